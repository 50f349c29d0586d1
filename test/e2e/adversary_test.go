//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/distro/cloud"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

// silence is how long a frame that must not arrive is waited for; one that may arrives within milliseconds.
const silence = time.Second

func TestASpoofedSourceDropsAndIsCounted(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "spoof")
	vpcWithSubnets(t, namespace)
	liar, near, far := shell(namespace, "liar", "a", nodes[0]), shell(namespace, "near", "a", nodes[0]), shell(namespace, "far", "a", nodes[1])
	create(t, liar, near, far)
	ready(t, liar, near, far)
	gateway := gatewayMAC(t, liar)
	socket := openPacketSocket(t, liar)
	foreignMAC := net.HardwareAddr{0x02, 0xde, 0xad, 0xbe, 0xef, 0x01}

	for _, receiver := range []*ctrv1.Container{near, far} {
		target := openPacketSocket(t, receiver)
		eventually(t, receiver.Name+" receives what is honest", func(context.Context) error {
			socket.send(t, udp(t, socket.nic.HardwareAddr, gateway, liar.Status.Address, receiver.Status.Address, 9, []byte("honest-"+receiver.Name)))
			if !target.receives(t, "honest-"+receiver.Name, silence) {
				return fmt.Errorf("nothing arrived")
			}
			return nil
		})
		for what, frame := range map[string][]byte{
			"another's address":         udp(t, socket.nic.HardwareAddr, gateway, "10.0.1.251", receiver.Status.Address, 9, []byte("spoofed-ip")),
			"an infrastructure address": udp(t, socket.nic.HardwareAddr, gateway, "198.18.0.1", receiver.Status.Address, 9, []byte("spoofed-infra")),
			"another's MAC":             udp(t, foreignMAC, gateway, liar.Status.Address, receiver.Status.Address, 9, []byte("spoofed-mac")),
		} {
			before := drops(t, nodes[0], liar.Status.Pod)
			socket.send(t, frame)
			if target.receives(t, "spoofed-", silence) {
				t.Errorf("%s received a frame with %s as its source", receiver.Name, what)
			}
			eventually(t, "the drop is counted", func(context.Context) error {
				if after := drops(t, nodes[0], liar.Status.Pod); after <= before {
					return fmt.Errorf("%s: %v drops before, %v after", what, before, after)
				}
				return nil
			})
		}
	}
}

func TestForgedVXLANReachesNobody(t *testing.T) {
	t.Parallel()
	attacker, victimSpace := tenant(t, "forger"), tenant(t, "victim")
	vpcWithSubnets(t, attacker)
	vpcWithSubnets(t, victimSpace)
	forger := shell(attacker, "forger", "a", nodes[0])
	victim, peer := shell(victimSpace, "victim", "a", nodes[1]), shell(victimSpace, "peer", "a", nodes[0])
	create(t, forger, victim, peer)
	ready(t, forger, victim, peer)
	gateway, victimGateway := gatewayMAC(t, forger), gatewayMAC(t, peer)
	target, honest, socket := openPacketSocket(t, victim), openPacketSocket(t, peer), openPacketSocket(t, forger)
	eventually(t, "the victim receives from its own VPC", func(context.Context) error {
		honest.send(t, udp(t, honest.nic.HardwareAddr, victimGateway, peer.Status.Address, victim.Status.Address, 9, []byte("honest-vxlan")))
		if !target.receives(t, "honest-vxlan", silence) {
			return fmt.Errorf("nothing arrived")
		}
		return nil
	})
	vni, err := kubectl(t.Context(), "get", "networkinterfaces.net.mnicloud.jp", string(victim.UID), "-o", "jsonpath={.status.vni}")
	if err != nil {
		t.Fatalf("%v: %s", err, vni)
	}
	var id uint32
	if _, err := fmt.Sscan(vni, &id); err != nil {
		t.Fatalf("VNI %q: %v", vni, err)
	}
	inner := udp(t, honest.nic.HardwareAddr, target.nic.HardwareAddr, peer.Status.Address, victim.Status.Address, 9, []byte("forged-vxlan"))
	for _, node := range nodeAddresses(t) {
		for _, port := range []uint16{4789, vxlanPort(t)} {
			for _, source := range append(nodeAddresses(t), forger.Status.Address) {
				socket.send(t, udp(t, socket.nic.HardwareAddr, gateway, source, node, port, vxlan(id, inner)))
			}
		}
	}
	if target.receives(t, "forged-vxlan", silence) {
		t.Error("the victim received a frame that another tenant forged")
	}
}

func TestAContainerReachesNothingOfThePlatform(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "caged")
	vpcWithSubnets(t, namespace)
	ordinary, prisoner := shellPod(namespace, "ordinary", nodes[0]), shell(namespace, "prisoner", "a", nodes[0])
	create(t, ordinary, prisoner)
	running(t, ordinary)
	ready(t, prisoner)
	var kubernetes, dns corev1.Service
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kubernetes"}, &kubernetes); err != nil {
		t.Fatal(err)
	}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "kube-dns"}, &dns); err != nil {
		t.Fatal(err)
	}
	machine, _, err := net.SplitHostPort(strings.TrimPrefix(kubeConfig.Host, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	targets := []string{
		machine + " 6443", machine + " 2379", // the API server, etcd
		kubernetes.Spec.ClusterIP + " 443", dns.Spec.ClusterIP + " 53",
	}
	for _, node := range nodeAddresses(t) {
		targets = append(targets, node+" 10250") // the kubelet
	}
	for _, target := range targets {
		address, port, _ := strings.Cut(target, " ")
		eventually(t, "an ordinary Pod reaches "+target, func(ctx context.Context) error {
			out, err := inPod(ctx, ordinary, "nc", "-w", "3", address, port, "-e", "/bin/true")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		if out, err := in(t.Context(), prisoner, "nc", "-w", "2", address, port, "-e", "/bin/true"); err == nil {
			t.Errorf("a tenant's Container reached %s: %s", target, out)
		}
	}
	// Other Pods' infrastructure addresses, its own gateway's services, the resolver, the metadata address.
	for _, target := range []string{"10.0.1.1 10250", "10.0.1.1 22", "169.254.169.254 80", "169.254.1.1 10250", ordinary.Status.PodIP + " 8080"} {
		address, port, _ := strings.Cut(target, " ")
		if out, err := in(t.Context(), prisoner, "nc", "-w", "2", address, port, "-e", "/bin/true"); err == nil {
			t.Errorf("a tenant's Container reached %s: %s", target, out)
		}
	}
}

// drops is how many packets of a Pod a node's datapath has dropped, by its metrics.
func drops(t *testing.T, node, pod string) float64 {
	t.Helper()
	return dropsWhere(t, node, "pod", pod)
}

// dropsWhere is how many packets a node has dropped whose counter has the label.
func dropsWhere(t *testing.T, node, name, value string) float64 {
	t.Helper()
	body, err := get(t.Context(), "http://"+nodeAddress(t, node)+":9440/metrics")
	if err != nil {
		t.Fatalf("metrics of %s: %v", node, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("metrics of %s: %v", node, err)
	}
	sum := 0.0
	for _, metric := range families["mni_drop_packets_total"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == name && label.GetValue() == value {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// vxlanPort is the UDP port of the instance's VXLAN.
func vxlanPort(t *testing.T) uint16 {
	t.Helper()
	found, ok, err := cloud.Registry().Find(instance)
	if err != nil || !ok {
		t.Fatalf("instance %s: %v", instance, err)
	}
	return uint16(found.Addresses().VXLANPort)
}

// nodeAddress is the underlay address of a node.
func nodeAddress(t *testing.T, name string) string {
	t.Helper()
	out, err := kubectl(t.Context(), "get", "node", name, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
}

// nodeAddresses are the underlay addresses of the nodes.
func nodeAddresses(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, name := range nodes {
		out = append(out, nodeAddress(t, name))
	}
	return out
}
