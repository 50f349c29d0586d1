//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// sharedAddress is the address that Pods of two tenants have on one node.
const sharedAddress = "10.0.1.77"

// inSubnet puts a Pod into a tenant's Subnet, as the container controller does.
func inSubnet(t *testing.T, pod *corev1.Pod, name, address string) *corev1.Pod {
	t.Helper()
	subnet := &vpcv1.Subnet{ObjectMeta: objectMeta(pod.Namespace, name)}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(subnet), subnet); err != nil {
		t.Fatal(err)
	}
	pod.Annotations = map[string]string{netv1.AnnotationSubnet: string(subnet.UID), netv1.AnnotationAddress: address}
	return pod
}

func httpProbe(port int32) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(port)}}}
}

// hostShell is a shell on a node's own network.
func hostShell(namespace, name, node string) *corev1.Pod {
	pod := shellPod(namespace, name, node)
	pod.Spec.HostNetwork = true
	return pod
}

// https://github.com/kubeovn/kube-ovn/issues/3024 and
// https://github.com/kubeovn/kube-ovn/issues/7130: probes to two Pods of one address in two VPCs on one node cannot work.
func TestTheKubeletReachesPodsOfTwoTenantsWithOneAddressOnOneNode(t *testing.T) {
	t.Parallel()
	var servers []*corev1.Pod
	var containers []*ctrv1.Container
	for _, namespace := range []string{tenant(t, "probed-a"), tenant(t, "probed-b")} {
		vpcWithSubnets(t, namespace)
		server := inSubnet(t, serverPod(namespace, namespace+"-web", nodes[0]), "a", sharedAddress)
		main := &server.Spec.Containers[0]
		main.ReadinessProbe = httpProbe(8080)
		main.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}}
		container := whoami(namespace, namespace+"-ctr", "a", nodes[0])
		container.Spec.Probes = &ctrv1.Probes{
			Startup:   &ctrv1.Probe{TCPConnect: &ctrv1.TCPConnect{Port: 8080}, PeriodSeconds: 1},
			Readiness: &ctrv1.Probe{HTTPGet: &ctrv1.HTTPGet{Path: "/", Port: 8080}, PeriodSeconds: 1},
		}
		create(t, server, container)
		servers, containers = append(servers, server), append(containers, container)
	}
	platform := &corev1.Namespace{ObjectMeta: objectMeta("", "probing")}
	platform.Labels = map[string]string{netv1.LabelPlatform: netv1.PlatformTrue}
	create(t, platform)
	t.Cleanup(func() { _ = kube.Delete(context.Background(), platform) })
	deaf := inSubnet(t, serverPod("probed-a", "deaf", nodes[0]), "b", "")
	deaf.Spec.Containers[0].ReadinessProbe = httpProbe(8081)
	scraper, ordinary := shellPod(platform.Name, "scraper", nodes[1]), shellPod(platform.Name, "ordinary", nodes[0])
	scraper.Labels = platform.Labels
	hosts := []*corev1.Pod{hostShell(platform.Name, "host-1", nodes[0]), hostShell(platform.Name, "host-2", nodes[1])}
	prisoner := shell("probed-a", "prisoner", "a", nodes[0])
	create(t, deaf, scraper, ordinary, hosts[0], hosts[1], prisoner)

	running(t, servers...)
	ready(t, append(containers, prisoner)...)
	running(t, scraper, ordinary, hosts[0], hosts[1])
	for _, server := range servers {
		address, err := kubectl(t.Context(), "get", "networkinterfaces.net.mnicloud.jp", string(server.UID), "-o", "jsonpath={.status.address}")
		if err != nil || address != sharedAddress {
			t.Fatalf("%s has address %s (%v)", server.Name, address, err)
		}
	}

	t.Run("a probe that nobody answers fails", func(t *testing.T) {
		eventually(t, "an event says that the connection was refused", func(ctx context.Context) error {
			var events corev1.EventList
			if err := kube.List(ctx, &events, client.InNamespace(deaf.Namespace)); err != nil {
				return err
			}
			for _, event := range events.Items {
				if event.InvolvedObject.Name == deaf.Name && strings.Contains(event.Message, "connection refused") {
					return nil
				}
			}
			return fmt.Errorf("%d events, none says it", len(events.Items))
		})
	})

	for _, server := range servers {
		url := "http://" + server.Status.PodIP + ":8080/"
		t.Run("the machine, the API server's proxy and port-forward reach "+server.Name, func(t *testing.T) {
			eventually(t, "the machine", func(ctx context.Context) error { return answers(server.Name)(get(ctx, url)) })
			eventually(t, "the API server's proxy", func(ctx context.Context) error {
				return answers(server.Name)(kubectl(ctx, "get", "--raw", "/api/v1/namespaces/"+server.Namespace+"/pods/"+server.Name+":8080/proxy/"))
			})
			forwarded(t, server)
		})
		t.Run("both nodes' hosts and the platform's Pod reach "+server.Name, func(t *testing.T) {
			for _, from := range append(hosts, scraper) {
				eventually(t, from.Name, func(ctx context.Context) error {
					return answers(server.Name)(inPod(ctx, from, "timeout", "3", "wget", "-q", "-O", "-", url))
				})
			}
		})
		t.Run("an ordinary Pod and tenants do not reach "+server.Name+" that way", func(t *testing.T) {
			if out, err := inPod(t.Context(), ordinary, "timeout", "2", "wget", "-q", "-O", "-", url); err == nil {
				t.Errorf("an ordinary Pod reached it: %s", out)
			}
			if out, err := wget(t.Context(), prisoner, url, 2); err == nil {
				t.Errorf("a tenant reached it: %s", out)
			}
		})
	}

	t.Run("a tenant reaches no host by an alias", func(t *testing.T) {
		for _, node := range nodeAddresses(t) {
			var a, b, c, d byte
			if _, err := fmt.Sscanf(node, "%d.%d.%d.%d", &a, &b, &c, &d); err != nil {
				t.Fatal(err)
			}
			alias := fmt.Sprintf("169.254.%d.%d", 64|c&63, d)
			before := drops(t, nodes[0], prisoner.Status.Pod)
			if out, err := in(t.Context(), prisoner, "nc", "-w", "2", alias, "10250", "-e", "/bin/true"); err == nil {
				t.Errorf("a tenant reached the kubelet at %s: %s", alias, out)
			}
			if after := drops(t, nodes[0], prisoner.Status.Pod); after <= before {
				t.Errorf("%v drops before, %v after", before, after)
			}
		}
	})

	t.Run("a namespace that is not the platform's has no Pod of the platform", func(t *testing.T) {
		claim := shellPod("probed-b", "claim", nodes[0])
		claim.Labels = platform.Labels
		if err := kube.Create(t.Context(), claim); err == nil || !strings.Contains(err.Error(), "may have no Pods of the platform") {
			t.Errorf("it was made, or refused without saying why: %v", err)
		}
	})
}

// The command of an exec probe runs in the Container that it is of, and nowhere else: each Container knows a name that only its own probe asks for.
func TestExecProbesRunInTheirOwnContainerAndRestartIt(t *testing.T) {
	t.Parallel()
	var well []*ctrv1.Container
	for _, namespace := range []string{tenant(t, "exec-a"), tenant(t, "exec-b")} {
		vpcWithSubnets(t, namespace)
		container := shell(namespace, namespace+"-probed", "a", nodes[0])
		container.Spec.Address = sharedAddress
		container.Spec.Command = []string{"sh", "-c", "echo " + namespace + " > /dev/shm/name; exec sleep 1000000"}
		container.Spec.Probes = &ctrv1.Probes{Liveness: &ctrv1.Probe{PeriodSeconds: 1, TimeoutSeconds: 10, Exec: &ctrv1.Exec{
			Command: []string{"sh", "-c", "echo asked >> /dev/shm/asked; grep -qx " + namespace + " /dev/shm/name"},
		}}}
		create(t, container)
		well = append(well, container)
	}
	ill := shell("exec-a", "ill", "b", nodes[0])
	ill.Spec.Probes = &ctrv1.Probes{Liveness: &ctrv1.Probe{PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 1, Exec: &ctrv1.Exec{Command: []string{"false"}}}}
	create(t, ill)
	ready(t, well...)
	eventually(t, "the one whose probe fails is restarted", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(ill), ill); err != nil {
			return err
		}
		if ill.Status.Restarts == 0 {
			return fmt.Errorf("no restart: %+v", ill.Status)
		}
		return nil
	})
	for _, container := range well {
		if container.Status.Address != sharedAddress {
			t.Errorf("%s has address %s", container.Name, container.Status.Address)
		}
		eventually(t, container.Name+" was asked more often than would restart it", func(ctx context.Context) error {
			out, err := in(ctx, container, "cat", "/dev/shm/asked")
			if err == nil && strings.Count(out, "asked") <= 3 {
				err = fmt.Errorf("asked %d times", strings.Count(out, "asked"))
			}
			return err
		})
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(container), container); err != nil {
			t.Fatal(err)
		}
		if container.Status.Restarts != 0 {
			t.Errorf("%s was restarted %d times", container.Name, container.Status.Restarts)
		}
	}
}
