package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/host"
	"github.com/mnicloud/mnicloud/network/datapath"
	"github.com/mnicloud/mnicloud/test/isolate"
)

const port = 7000

// place is where sockets are made: a Pod's namespace, a node's, or the machine's.
type place func(func())

func (p *pod) inside(f func()) {
	require.NoError(p.node.cloud.t, p.netns.Do(func(ns.NetNS) error { f(); return nil }))
}

func machine(f func()) { f() }

// answer answers every datagram with who it is, whom it answers and what was said.
func (c *cloud) answer(where place, identity string) { c.answerAt(where, net.IPv4zero, identity) }

// answerAt does so at one address: a reply from all of them would come from whichever the route prefers.
func (c *cloud) answerAt(where place, address net.IP, identity string) {
	var conn *net.UDPConn
	where(func() {
		var err error
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: address, Port: port})
		require.NoError(c.t, err)
	})
	c.buffer(conn)
	c.t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 2000)
		for {
			n, from, err := conn.ReadFromUDP(buffer)
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(writerTo{conn, from}, "%s to %s: %s", identity, from.IP, buffer[:n])
		}
	}()
}

type writerTo struct {
	conn *net.UDPConn
	to   *net.UDPAddr
}

func (w writerTo) Write(b []byte) (int, error) { return w.conn.WriteToUDP(b, w.to) }

// ask sends one datagram and returns the answer, or nothing.
func (c *cloud) ask(where place, address string) string { return c.askFrom(where, nil, address) }

// askFrom does so from an address of the place.
func (c *cloud) askFrom(where place, source net.IP, address string) string {
	var conn net.Conn
	var err error
	where(func() {
		dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: source}}
		conn, err = dialer.DialContext(c.t.Context(), "udp4", net.JoinHostPort(address, strconv.Itoa(port)))
	})
	if err != nil {
		return ""
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		return ""
	}
	_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	buffer := make([]byte, 2000)
	n, err := conn.Read(buffer)
	if err != nil {
		return ""
	}
	return string(buffer[:n])
}

// eventually asks until the answer is right.
func (c *cloud) eventually(where place, address, answer string) {
	c.t.Helper()
	last := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if last = c.ask(where, address); last == answer {
			return
		}
	}
	require.Equal(c.t, answer, last, "asked %s", address)
}

// running is a cloud of two nodes and the machine, with daemons that are ready.
func running(t *testing.T) *cloud {
	c := newCloud(t, 2)
	c.machine = &node{cloud: c, name: "machine", netns: currentNetns(t), address: netip.MustParseAddr(machineAddress), dir: t.TempDir()}
	c.machine.options = c.nodes[0].options
	c.machine.options.NodeName, c.machine.options.NodeAddress = "", c.machine.address
	c.machine.options.HostOnly, c.machine.options.Uplink = true, underlay
	c.machine.options.Socket, c.machine.options.QueueDir, c.machine.options.CNIConf = "", "", ""
	c.machine.options.PinPath += "-machine"
	c.machine.options.MetricsAddress = machineAddress + ":9100"
	t.Cleanup(func() { // its links are in the tests' own namespace
		c.machine.stop(os.Kill)
		require.NoError(t, host.Remove("mni"))
		require.NoError(t, datapath.Remove(c.machine.options.PinPath))
	})
	for _, n := range append(c.nodes, c.machine) {
		n.options.ExtraHosts = []netip.Addr{c.machine.address}
		n.start()
	}
	for _, n := range append(c.nodes, c.machine) {
		n.awaitReady()
		n.attachesAsAsked()
	}
	return c
}

func currentNetns(t *testing.T) ns.NetNS {
	current, err := ns.GetCurrentNS()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, current.Close()) })
	return current
}

func (c *cloud) defaultSubnet() *netv1.Subnet {
	return c.subnet(netv1.DefaultSubnet, "198.18.0.0/17", netv1.DefaultVPCID, netv1.DefaultVNI)
}

func TestTwoVPCsOfOneCIDRDoNotMeet(t *testing.T) {
	c := running(t)
	one, two := c.nodes[0], c.nodes[1]
	red, back := c.subnet("red", "10.1.0.0/24", 1001, 1001), c.subnet("red-back", "10.1.1.0/24", 1001, 1002)
	blue := c.subnet("blue", "10.1.0.0/24", 1002, 1003)
	pods := map[string]*pod{
		"red-5": one.pod("red-5", red, "10.1.0.5", "198.18.0.5"), "red-6": one.pod("red-6", red, "10.1.0.6", "198.18.0.6"),
		"red-7": two.pod("red-7", red, "10.1.0.7", "198.18.0.7"), "red-back-8": two.pod("red-back-8", back, "10.1.1.8", "198.18.0.8"),
		"blue-5": one.pod("blue-5", blue, "10.1.0.5", "198.18.1.5"), "blue-7": two.pod("blue-7", blue, "10.1.0.7", "198.18.1.7"),
	}
	for name, p := range pods {
		p.mustAdd()
		c.answer(p.inside, name)
	}
	c.eventually(pods["red-5"].inside, "10.1.0.6", "red-6 to 10.1.0.5: hello")
	c.eventually(pods["red-5"].inside, "10.1.0.7", "red-7 to 10.1.0.5: hello")
	c.eventually(pods["red-5"].inside, "10.1.1.8", "red-back-8 to 10.1.0.5: hello")
	c.eventually(pods["red-back-8"].inside, "10.1.0.6", "red-6 to 10.1.1.8: hello")
	c.eventually(pods["blue-5"].inside, "10.1.0.7", "blue-7 to 10.1.0.5: hello")
	require.Empty(t, c.ask(pods["blue-5"].inside, "10.1.0.6"), "only red has it")
	require.Empty(t, c.ask(pods["blue-5"].inside, "10.1.1.8"), "blue has no such Subnet")
	for _, address := range []string{machineAddress, one.address.String(), two.address.String(), "198.18.0.6"} {
		require.Empty(t, c.ask(pods["blue-5"].inside, address), "tenants do not reach %s", address)
	}
	require.Contains(t, one.get("/metrics"), `mni_drop_packets_total{interface="uid-blue-5",namespace="shop",pod="blue-5",reason="no_endpoint",subnet="1003",vpc="1002"}`)
	require.Contains(t, one.get("/metrics"), `mni_drop_packets_total{interface="uid-blue-5",namespace="shop",pod="blue-5",reason="no_route",subnet="1003",vpc="1002"}`)

	require.NoError(t, pods["red-7"].del())
	require.NoError(t, c.client.Delete(t.Context(), pods["red-7"].nic))
	require.Eventually(t, func() bool { return c.ask(pods["red-5"].inside, "10.1.0.7") == "" }, patience, moment)
	c.eventually(pods["blue-5"].inside, "10.1.0.7", "blue-7 to 10.1.0.5: hello")
}

// https://github.com/kubeovn/kube-ovn/issues/3024 and
// https://github.com/kubeovn/kube-ovn/issues/7130
func TestHostsAndTheMachineReachTwoPodsOfOneAddressOnOneNode(t *testing.T) {
	c := running(t)
	one, two := c.nodes[0], c.nodes[1]
	red, blue := c.subnet("red", "10.1.0.0/24", 1001, 1001), c.subnet("blue", "10.1.0.0/24", 1002, 1003)
	pods := []*pod{one.pod("red-5", red, "10.1.0.5", "198.18.0.5"), one.pod("blue-5", blue, "10.1.0.5", "198.18.1.5")}
	for _, p := range pods {
		p.mustAdd()
		c.answer(p.inside, p.name)
	}
	for alias, from := range map[string]place{"169.254.66.1": machine, "169.254.66.2": one.inside, "169.254.66.3": two.inside} {
		c.eventually(from, "198.18.0.5", "red-5 to "+alias+": hello")
		c.eventually(from, "198.18.1.5", "blue-5 to "+alias+": hello")
		require.Empty(t, c.ask(pods[0].inside, alias))
	}
	require.Empty(t, c.ask(pods[0].inside, "198.18.1.5"))
	require.Contains(t, one.get("/metrics"), `mni_drop_packets_total{interface="uid-red-5",namespace="shop",pod="red-5",reason="not_opened",subnet="1001",vpc="1001"}`)
}

func TestOrdinaryPodsReachEachOtherHostsServicesAndTheOutside(t *testing.T) {
	c := running(t)
	subnet := c.defaultSubnet()
	a, b := c.nodes[0].pod("a", subnet, "198.18.0.5", "198.18.0.5"), c.nodes[1].pod("b", subnet, "198.18.0.6", "198.18.0.6")
	for _, p := range []*pod{a, b} {
		require.Equal(t, p.nic.Status.Address+"/17", p.mustAdd().IPs[0].Address.String())
		c.answer(p.inside, p.name)
	}
	c.answerAt(machine, net.ParseIP(machineAddress), "machine")
	c.answer(c.nodes[0].inside, "node-1")
	c.answer(c.nodes[1].inside, "node-2")
	c.service("web", "10.0.0.20", b.nic.Status.Address)
	c.service("machine", "10.0.0.21", machineAddress)
	addAddress(t, loopback(t), "203.0.113.9/32")
	c.answerAt(machine, net.IPv4(203, 0, 113, 9), "outside")

	c.eventually(a.inside, "198.18.0.6", "b to 198.18.0.5: hello")
	c.eventually(a.inside, "192.0.2.2", "node-1 to 198.18.0.5: hello")
	c.eventually(a.inside, "192.0.2.3", "node-2 to 198.18.0.5: hello")
	c.eventually(a.inside, machineAddress, "machine to 198.18.0.5: hello")
	c.eventually(c.nodes[0].inside, "198.18.0.5", "a to 192.0.2.2: hello")
	c.eventually(c.nodes[0].inside, "198.18.0.6", "b to 192.0.2.2: hello")
	c.eventually(machine, "198.18.0.5", "a to 192.0.2.1: hello")
	c.eventually(a.inside, "10.0.0.20", "b to 198.18.0.5: hello")
	c.eventually(a.inside, "10.0.0.21", "machine to 198.18.0.5: hello")
	c.eventually(machine, "10.0.0.20", "b to 192.0.2.1: hello")
	c.eventually(machine, "10.0.0.21", "machine to 169.254.18.181: hello") // its own backend: by the hairpin address
	c.eventually(a.inside, "203.0.113.9", "outside to 192.0.2.2: hello")   // masqueraded
}

func loopback(t testing.TB) netlink.Link {
	lo, err := netlink.LinkByName("lo")
	require.NoError(t, err)
	return lo
}

// service makes a Service of one port with one endpoint, and its slice.
func (c *cloud) service(name, clusterIP, backend string) {
	c.serviceIn("default", name, clusterIP, corev1.ProtocolUDP, backend)
}

func (c *cloud) serviceIn(namespace, name, clusterIP string, protocol corev1.Protocol, backend string) {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "test-" + name, Labels: map[string]string{discoveryv1.LabelServiceName: "test-" + name}}
	c.create(&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Protocol: protocol, Port: port}},
	}})
	c.create(&discoveryv1.EndpointSlice{
		ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{backend}}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(protocol), Port: ptr.To[int32](port)}},
	})
}

// https://github.com/cilium/cilium/issues/10065
func TestALateDelLeavesTheNewSandboxReachable(t *testing.T) {
	c := running(t)
	red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
	web, peer := c.nodes[0].pod("web", red, "10.1.0.5", "198.18.0.5"), c.nodes[1].pod("client", red, "10.1.0.6", "198.18.0.6")
	peer.mustAdd()
	web.mustAdd()
	c.answer(web.inside, "first")
	c.eventually(peer.inside, "10.1.0.5", "first to 10.1.0.6: hello")
	again := &pod{node: web.node, name: web.name, id: "sandbox-again", netns: isolate.Netns(t), nic: web.nic}
	again.mustAdd()
	c.answer(again.inside, "again")
	c.eventually(peer.inside, "10.1.0.5", "again to 10.1.0.6: hello")
	for range 2 {
		require.NoError(t, web.del())
		require.Equal(t, "again to 10.1.0.6: hello", c.ask(peer.inside, "10.1.0.5"))
	}
}

func TestAKilledAndRestartedDaemonLosesNoPacket(t *testing.T) {
	for _, clsact := range []bool{false, true} {
		t.Run("clsact "+strconv.FormatBool(clsact), func(t *testing.T) {
			c := running(t)
			red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
			web, peer := c.nodes[0].pod("web", red, "10.1.0.5", "198.18.0.5"), c.nodes[1].pod("client", red, "10.1.0.6", "198.18.0.6")
			for _, n := range c.nodes {
				n.stop(syscall.SIGTERM)
				n.options.ForceClsact = clsact
				n.start()
				n.awaitReady()
				n.attachesAsAsked()
			}
			peer.mustAdd()
			web.mustAdd()
			c.answer(web.inside, "web")
			c.echo(web.inside, port)
			c.eventually(peer.inside, "10.1.0.5", "web to 10.1.0.6: hello")

			settle := c.traffic("from the other node", peer.inside, "10.1.0.5")
			for _, signal := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM} {
				for _, n := range c.nodes {
					n.stop(signal)
					n.start()
					n.awaitReady()
				}
			}
			settle()
			require.NoError(t, web.check())
		})
	}
}

// https://github.com/cilium/cilium/issues/31528
func TestPeersFollowANodesNewAddress(t *testing.T) {
	c := running(t)
	red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
	web, peer := c.nodes[0].pod("web", red, "10.1.0.5", "198.18.0.5"), c.nodes[1].pod("client", red, "10.1.0.6", "198.18.0.6")
	peer.mustAdd()
	web.mustAdd()
	c.answer(web.inside, "web")
	c.eventually(peer.inside, "10.1.0.5", "web to 10.1.0.6: hello")
	c.nodes[0].readdress("192.0.2.102")
	started := time.Now()
	c.eventually(peer.inside, "10.1.0.5", "web to 10.1.0.6: hello")
	require.Less(t, time.Since(started), 5*time.Second)
	c.nodes[0].inside(func() {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
		require.NoError(t, err)
		require.Contains(t, fmt.Sprint(routes), "Src: 192.0.2.102")
	})
}

// readdress gives a node another address on the underlay.
func (n *node) readdress(address string) {
	t := n.cloud.t
	n.inside(func() {
		eth0, err := netlink.LinkByName("eth0")
		require.NoError(t, err)
		old, err := netlink.ParseAddr(n.address.String() + "/24")
		require.NoError(t, err)
		require.NoError(t, netlink.AddrDel(eth0, old)) // routes go with it
		addAddress(t, eth0, address+"/24")
		require.NoError(t, netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.ParseIP(machineAddress)}))
	})
	n.address = netip.MustParseAddr(address)
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name}}
	require.NoError(t, n.cloud.client.Get(t.Context(), client.ObjectKey{Name: n.name}, object))
	object.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	require.NoError(t, n.cloud.client.Status().Update(t.Context(), object))
}
