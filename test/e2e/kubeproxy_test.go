//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	namespaces "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// tracked is how many connections a node's kernel tracks that were opened to an address and port.
func tracked(t *testing.T, node ns.NetNS, address string, port uint16) (n int) {
	t.Helper()
	handle, err := netlink.NewHandleAt(namespaces.NsHandle(node.Fd()), unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	defer handle.Close()
	flows, err := handle.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	for _, flow := range flows {
		if flow.Forward.DstIP.Equal(net.ParseIP(address)) && flow.Forward.DstPort == port {
			n++
		}
	}
	return n
}

// What kube-proxy's rules translate is in the kernel's table of connections. What Pods open to a ClusterIP is not.
func TestKubeProxyServesTheHostAndNodePortsOnly(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "kubeproxy")
	servers := []*corev1.Pod{serverPod(namespace, "server-1", nodes[0]), serverPod(namespace, "server-2", nodes[1])}
	asker := shellPod(namespace, "asker", nodes[0])
	hosts := []*corev1.Pod{hostShell(namespace, "host-1", nodes[0]), hostShell(namespace, "host-2", nodes[1])}
	const port = 8099
	service := &corev1.Service{ObjectMeta: objectMeta(namespace, "web"), Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "web"},
		Ports: []corev1.ServicePort{{Port: port, TargetPort: intstr.FromInt32(8080)}},
	}}
	create(t, servers[0], servers[1], asker, hosts[0], hosts[1], service)
	running(t, append(append(servers, hosts...), asker)...)

	for _, node := range nodes {
		eventually(t, "the machine, outside the nodes, is answered at the NodePort of "+node, func(ctx context.Context) error {
			return answers("server-")(get(ctx, fmt.Sprintf("http://%s:%d/", nodeAddress(t, node), service.Spec.Ports[0].NodePort)))
		})
	}

	// Connections are held while they are looked for.
	opens := func(who *corev1.Pod, from ns.NetNS) {
		t.Helper()
		eventually(t, who.Name+" connects to the ClusterIP", func(context.Context) error {
			return from.Do(func(ns.NetNS) error {
				conn, err := net.DialTimeout("tcp4", fmt.Sprintf("%s:%d", service.Spec.ClusterIP, port), time.Second)
				if err == nil {
					t.Cleanup(func() { _ = conn.Close() })
				}
				return err
			})
		})
	}
	inNodes := []ns.NetNS{podNetns(t, hosts[0]), podNetns(t, hosts[1])}
	before := make([]int, len(inNodes))
	for i, node := range inNodes {
		before[i] = tracked(t, node, service.Spec.ClusterIP, port)
	}
	from := podNetns(t, asker)
	for range 10 { // with backends of both nodes
		opens(asker, from)
	}
	for i, node := range inNodes {
		if now := tracked(t, node, service.Spec.ClusterIP, port); now != before[i] {
			t.Errorf("%s tracks %d of a Pod's connections to a ClusterIP: they met its netfilter", nodes[i], now-before[i])
		}
	}
	// A host's own are tracked, so that what was not seen above would have been.
	opens(hosts[0], inNodes[0])
	if now := tracked(t, inNodes[0], service.Spec.ClusterIP, port); now <= before[0] {
		t.Errorf("%s does not track its own connection to a ClusterIP: %d before, %d now; so nothing was proven of Pods", nodes[0], before[0], now)
	}
}
