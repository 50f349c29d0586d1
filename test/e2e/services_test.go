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

	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

func webService(namespace, name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: objectMeta(namespace, name), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"},
		Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
	}}
}

func TestATenantsServiceBalancesWithinItsVPCAndIsNoWayIn(t *testing.T) {
	t.Parallel()
	shells, services := map[string]*ctrv1.Container{}, map[string]*corev1.Service{}
	var servers []*corev1.Pod
	var platform []*corev1.Pod
	for _, namespace := range []string{tenant(t, "svc-a"), tenant(t, "svc-b")} {
		vpcWithSubnets(t, namespace)
		shells[namespace] = shell(namespace, namespace+"-shell", "a", nodes[0])
		services[namespace] = webService(namespace, "web")
		create(t, shells[namespace], services[namespace])
		for i, subnet := range []string{"a", "b"} {
			server := inSubnet(t, serverPod(namespace, fmt.Sprintf("%s-web-%d", namespace, i+1), nodes[i]), subnet, "")
			create(t, server)
			servers = append(servers, server)
		}
	}
	empty := &corev1.Service{ObjectMeta: objectMeta("svc-a", "empty"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "nothing"}, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	platform = append(platform, shellPod("svc-a", "ordinary", nodes[0]), hostShell("svc-a", "host", nodes[1]))
	create(t, empty, platform[0], platform[1])
	running(t, append(servers, platform...)...)
	for namespace, sh := range shells {
		ready(t, sh)
		missing := map[string]bool{namespace + "-web-1": true, namespace + "-web-2": true}
		eventually(t, sh.Name+" has met every backend, and no other", func(ctx context.Context) error {
			out, err := wget(ctx, sh, "http://"+services[namespace].Spec.ClusterIP+"/", 3)
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			if !strings.Contains(out, namespace+"-web-") {
				t.Fatalf("%s was answered by another tenant's: %s", sh.Name, out)
			}
			for name := range missing {
				if strings.Contains(out, name) {
					delete(missing, name)
				}
			}
			if len(missing) > 0 {
				return fmt.Errorf("not yet met: %v", missing)
			}
			return nil
		})
	}
	address := services["svc-a"].Spec.ClusterIP
	t.Run("kube-proxy is kept off it", func(t *testing.T) {
		eventually(t, "the Service is labelled", func(ctx context.Context) error {
			service := services["svc-a"].DeepCopy()
			if err := kube.Get(ctx, client.ObjectKeyFromObject(service), service); err != nil {
				return err
			}
			if service.Labels["service.kubernetes.io/service-proxy-name"] == "" {
				return fmt.Errorf("labels %v", service.Labels)
			}
			return nil
		})
		eventually(t, "a node's host has no way to it", func(ctx context.Context) error {
			if out, err := inPod(ctx, platform[1], "timeout", "3", "wget", "-q", "-O", "-", "http://"+address+"/"); err == nil {
				return fmt.Errorf("answered: %s", out)
			}
			return nil
		})
	})
	t.Run("it is refused to others", func(t *testing.T) {
		if out, err := wget(t.Context(), shells["svc-b"], "http://"+address+"/", 3); err == nil || !strings.Contains(out, "refused") {
			t.Errorf("another tenant: %v: %s", err, out)
		}
		if out, err := inPod(t.Context(), platform[0], "wget", "-q", "-O", "-", "http://"+address+"/"); err == nil || !strings.Contains(out, "refused") {
			t.Errorf("an ordinary Pod: %v: %s", err, out)
		}
		if out, err := get(t.Context(), "http://"+address+"/"); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("the machine: %v: %s", err, out)
		}
	})
	t.Run("one without backends refuses", func(t *testing.T) {
		if out, err := wget(t.Context(), shells["svc-a"], "http://"+empty.Spec.ClusterIP+"/", 3); err == nil || !strings.Contains(out, "refused") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("one that leads in is refused at admission", func(t *testing.T) {
		service := webService("svc-a", "port")
		service.Spec.Type = corev1.ServiceTypeNodePort
		if err := kube.Create(t.Context(), service); err == nil || !strings.Contains(err.Error(), "use type ClusterIP") {
			t.Errorf("it was made, or refused without saying what to do: %v", err)
		}
	})
}

func TestAHostPortLeadsToItsPodAndNeverIntoAVPC(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "hostport")
	vpcWithSubnets(t, namespace)
	withPort := func(pod *corev1.Pod) *corev1.Pod {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 18080}}
		return pod
	}
	server := withPort(serverPod(namespace, "server", nodes[0]))
	intruder := withPort(inSubnet(t, serverPod(namespace, "intruder", nodes[1]), "a", ""))
	far := shellPod(namespace, "far", nodes[1])
	create(t, server, intruder, far)
	running(t, server, far)
	url := "http://" + nodeAddress(t, nodes[0]) + ":18080/"
	eventually(t, "the machine reaches it", func(ctx context.Context) error { return answers(server.Name)(get(ctx, url)) })
	eventually(t, "a Pod of the other node reaches it", func(ctx context.Context) error {
		return answers(server.Name)(inPod(ctx, far, "timeout", "3", "wget", "-q", "-O", "-", url))
	})
	eventually(t, "an event says why a tenant's Pod has none", func(ctx context.Context) error {
		var events corev1.EventList
		if err := kube.List(ctx, &events, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.InvolvedObject.Name == intruder.Name && strings.Contains(event.Message, "have no ports of the host") {
				return nil
			}
		}
		return fmt.Errorf("%d events, none says it", len(events.Items))
	})
}
