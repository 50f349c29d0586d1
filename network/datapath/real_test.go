package datapath

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// reality is the datapath attached in namespaces: two nodes, an outside, and Pods of two VPCs with the same addresses.
type reality struct {
	t        testing.TB
	net      *testnet.Network
	nodes    []*realNode
	config   []Config
	clsact   bool
	object   func() (*ebpf.CollectionSpec, error) // the version that runs
	pods     []*realPod
	a1, a2   *realPod // VPC 7, 10.0.1.11 and .12, on both nodes
	a3, a4   *realPod // VPC 7, 10.0.2.11 and .12, on both nodes
	b1, b2   *realPod // VPC 8, 10.0.1.11 and .12, on both nodes
	web1     *realPod // ordinary, on the first node
	web2     *realPod // ordinary, on the second node
	neighbor *realPod // ordinary, on the first node
}

type realNode struct {
	*testnet.Node
	*Datapath
}

type realPod struct {
	*testnet.Pod
	nic NIC
}

func (p *realPod) ifindex() int { return p.HostLink.Attrs().Index }

const (
	infrastructureCIDR = "198.18.0.0/17"
	serviceCIDR        = "198.19.0.0/17"
)

// eachMode runs a test with tcx and with clsact.
func eachMode(t *testing.T, test func(t *testing.T, r *reality)) {
	for _, mode := range []Mode{ModeTCX, ModeClsact} {
		t.Run(string(mode), func(t *testing.T) {
			r := newReality(t, mode == ModeClsact)
			require.Equal(t, mode, r.nodes[0].Mode())
			test(t, r)
		})
	}
}

// kernelMode is how programs are attached on this kernel.
var kernelMode struct {
	sync.Once
	Mode
}

// newReality makes all of it; a test of tcx is skipped where the kernel is older.
func newReality(t testing.TB, clsact bool) *reality {
	kernelMode.Do(func() { kernelMode.Mode = mustLoad(t, testConfig(bpffs(t))).Mode() })
	if !clsact && kernelMode.Mode != ModeTCX {
		t.Skip("this kernel has no tcx (Linux 6.6)")
	}
	r := &reality{t: t, net: testnet.New(t, 2), clsact: clsact, object: loadBpf}
	for _, n := range r.net.Nodes {
		devices := n.AddDevices(1450, DefaultVXLANPort, infrastructureCIDR, serviceCIDR, DefaultHairpinAddress.String()+"/32")
		config := testConfig(bpffs(t))
		config.HostIfindex = devices.Host.Attrs().Index
		config.HostMAC = MAC(devices.Host.Attrs().HardwareAddr)
		config.HostPeerIfindex = devices.HostPeer.Attrs().Index
		config.VXLANIfindex = devices.VXLAN.Attrs().Index
		config.UplinkIfindex, config.NodeAddress = n.Link(testnet.UplinkName).Attrs().Index, n.Address
		config.ForceClsact = clsact
		r.config = append(r.config, config)
		r.nodes = append(r.nodes, &realNode{Node: n})
	}
	r.load()
	first, second := r.nodes[0], r.nodes[1]
	r.a1, r.a2 = r.pod(first, "a1", 7, 1001, "10.0.1.11"), r.pod(second, "a2", 7, 1001, "10.0.1.12")
	r.a3, r.a4 = r.pod(first, "a3", 7, 1002, "10.0.2.11"), r.pod(second, "a4", 7, 1002, "10.0.2.12")
	r.b1, r.b2 = r.pod(first, "b1", 8, 2001, "10.0.1.11"), r.pod(second, "b2", 8, 2001, "10.0.1.12")
	r.web1, r.web2 = r.pod(first, "web1", 1, 1, "198.18.0.11"), r.pod(second, "web2", 1, 1, "198.18.0.12")
	r.neighbor = r.pod(first, "neighbor", 1, 1, "198.18.0.13")
	r.infrastructure(r.a1, "198.18.0.51")
	r.infrastructure(r.b1, "198.18.0.52")
	r.infrastructure(r.a2, "198.18.0.53")
	r.fill()
	r.attach()
	return r
}

// load loads (again) each node's datapath, as a daemon that starts does.
func (r *reality) load() {
	for i := range r.nodes {
		r.loadNode(i)
	}
}

func (r *reality) loadNode(i int) {
	n := r.nodes[i]
	d, err := LoadObject(r.config[i], r.object)
	require.NoError(r.t, err)
	if n.Datapath != nil {
		require.NoError(r.t, n.Datapath.Close())
	}
	n.Datapath = d
}

func (r *reality) pod(n *realNode, name string, vpc, vni uint32, address string) *realPod {
	ip := addr(address)
	subnet := netip.PrefixFrom(ip, 24).Masked()
	gateway := subnet.Addr().Next()
	p := &realPod{Pod: n.AddPod(name, address+"/24", gateway.String(), 1450)}
	p.nic = NIC{VNI: vni, VPCID: vpc, Address: ip, PrefixLength: 24, MAC: MAC(p.MAC), GatewayMAC: gatewayMAC(vni)}
	require.NoError(r.t, n.NICs.Set(uint32(p.ifindex()), p.nic))
	for _, at := range r.nodes {
		require.NoError(r.t, at.Subnets.Set(vni, Subnet{VPCID: vpc, Prefix: subnet, Gateway: gateway, GatewayMAC: gatewayMAC(vni)}))
		e := Endpoint{VPCID: vpc, MAC: p.nic.MAC, Node: n.Address}
		if at == n {
			e.Node, e.Ifindex = netip.Addr{}, uint32(p.ifindex())
		}
		require.NoError(r.t, at.Endpoints.Set(EndpointKey{vni, ip}, e))
	}
	p.Serve(8080)
	p.ServeBulk(9090)
	r.pods = append(r.pods, p)
	return p
}

// fill sets what is not of single Pods.
func (r *reality) fill() {
	for _, n := range r.nodes {
		require.NoError(r.t, n.Routes.Set(RouteKey{1001, prefix("10.0.2.0/24")}, Route{VNI: 1002}))
		require.NoError(r.t, n.Routes.Set(RouteKey{1002, prefix("10.0.1.0/24")}, Route{VNI: 1001}))
		for _, member := range r.nodes {
			require.NoError(r.t, n.Members.Set(member.Address, Member{}))
			host := Endpoint{VPCID: 1, Kind: EndpointHost, Node: member.Address}
			if member == n {
				host.Node = netip.Addr{}
			}
			require.NoError(r.t, n.Endpoints.Set(EndpointKey{1, member.Address}, host))
		}
		n.Serve(8080)
	}
	r.net.Outside.Serve(8080)
	for i, n := range r.nodes { // nothing masquerades here: the outside knows the way back
		r.net.Outside.AddRoute(fmt.Sprintf("198.18.0.%d/32", 11+i), testnet.UplinkName, n.Address.String(), "")
	}
}

// attach puts the loaded programs in place of those before.
func (r *reality) attach() {
	for _, n := range r.nodes {
		r.attachNode(n)
	}
}

func (r *reality) attachNode(n *realNode) {
	require.NoError(r.t, n.Replace(func() error {
		for _, attach := range r.attachments(n) {
			if err := n.Do(attach); err != nil {
				return err
			}
		}
		return nil
	}))
}

// attachments attach the programs of a node, one by one.
func (r *reality) attachments(n *realNode) []func() error {
	all := []func() error{n.AttachHost, n.AttachVXLAN, n.AttachUplink}
	for _, p := range r.pods {
		if p.Node == n.Node {
			all = append(all, func() error { return n.AttachPod(p.ifindex()) })
		}
	}
	return all
}

// answers asserts who answers a client, and which address the server sees.
func (r *reality) answers(client *testnet.Namespace, address, who, sees string) {
	r.t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		answer, err := client.Ask(network, address, testnet.Timeout)
		require.NoError(r.t, err, "%s from %s to %s", network, client.Name(), address)
		require.Equal(r.t, who+" "+sees, answer, "%s from %s to %s", network, client.Name(), address)
	}
}

func (r *reality) silence(client *testnet.Namespace, address string) {
	r.t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		answer, err := client.Ask(network, address, testnet.ShortTimeout)
		require.Error(r.t, err, "%s from %s to %s: %q answered", network, client.Name(), address, answer)
	}
}

// dropped is how often a node dropped for a reason at a Pod's interface.
func (r *reality) dropped(p *realPod, reason bpfDropReason) uint64 {
	for _, n := range r.nodes {
		if n.Node == p.Node {
			drops, err := n.Drops.List()
			require.NoError(r.t, err)
			return drops[DropKey{p.ifindex(), Reason(reason)}].Packets
		}
	}
	return 0
}

func TestRealTraffic(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		t.Log("within VPCs that use the same addresses")
		r.answers(r.a1.Namespace, "10.0.1.12:8080", "a2", "10.0.1.11")
		r.answers(r.a2.Namespace, "10.0.1.11:8080", "a1", "10.0.1.12")
		r.answers(r.b1.Namespace, "10.0.1.12:8080", "b2", "10.0.1.11")
		r.answers(r.b2.Namespace, "10.0.1.11:8080", "b1", "10.0.1.12")
		t.Log("between Subnets, on one node and across nodes")
		r.answers(r.a1.Namespace, "10.0.2.11:8080", "a3", "10.0.1.11")
		r.answers(r.a1.Namespace, "10.0.2.12:8080", "a4", "10.0.1.11")
		r.answers(r.a4.Namespace, "10.0.1.11:8080", "a1", "10.0.2.12")
		t.Log("between ordinary Pods, hosts and the outside")
		r.answers(r.web1.Namespace, "198.18.0.13:8080", "neighbor", "198.18.0.11")
		r.answers(r.web1.Namespace, "198.18.0.12:8080", "web2", "198.18.0.11")
		r.answers(r.web1.Namespace, "192.0.2.1:8080", "node-1", "198.18.0.11")
		r.answers(r.web1.Namespace, "192.0.2.2:8080", "node-2", "198.18.0.11")
		r.answers(r.web1.Namespace, testnet.OutsideAddress+":8080", "outside", "198.18.0.11")
		r.answers(r.nodes[0].Namespace, "198.18.0.11:8080", "web1", "192.0.2.1")
		r.answers(r.nodes[0].Namespace, "198.18.0.12:8080", "web2", "192.0.2.1")
		t.Log("not between VPCs, nor out of one")
		r.silence(r.b1.Namespace, "10.0.2.11:8080")
		for _, address := range []string{"192.0.2.1", "192.0.2.2", "198.18.0.11", "198.18.0.12", testnet.OutsideAddress} {
			reason := bpfDropReasonDROP_NO_ROUTE
			if prefix(infrastructureCIDR).Contains(addr(address)) {
				reason = bpfDropReasonDROP_NOT_OPENED
			}
			before := r.dropped(r.a1, reason)
			r.silence(r.a1.Namespace, address+":8080")
			require.Greater(t, r.dropped(r.a1, reason), before)
		}
	})
}

func TestRealServices(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		for at, backend := range map[string]Backend{
			"198.19.0.10": {addr("198.18.0.12"), 8080}, "198.19.0.11": {addr("198.18.0.13"), 8080}, "198.19.0.12": {addr("198.18.0.11"), 8080},
			"198.19.0.13": {addr("192.0.2.1"), 8080}, "198.19.0.14": {addr("192.0.2.2"), 8080}, "198.19.0.15": {addr(testnet.OutsideAddress), 8080},
			"198.19.0.16": {addr("198.18.0.12"), 9090}, "198.19.0.17": {addr("198.18.0.12"), 7070}, "198.19.0.18": {addr("198.18.0.11"), 7070},
		} {
			for _, n := range r.nodes {
				for _, protocol := range []Protocol{TCP, UDP} {
					require.NoError(t, n.Services.Set(ServiceKey{1, addr(at), 80, protocol}, Service{Backends: []Backend{backend}}))
				}
			}
		}
		r.answers(r.web1.Namespace, "198.19.0.10:80", "web2", "198.18.0.11")
		r.answers(r.web1.Namespace, "198.19.0.11:80", "neighbor", "198.18.0.11")
		r.answers(r.web1.Namespace, "198.19.0.12:80", "web1", "169.254.0.1") // itself
		r.answers(r.web1.Namespace, "198.19.0.13:80", "node-1", "198.18.0.11")
		r.answers(r.web1.Namespace, "198.19.0.14:80", "node-2", "198.18.0.11")
		r.answers(r.web1.Namespace, "198.19.0.15:80", "outside", "198.18.0.11")
		r.answers(r.nodes[0].Namespace, "198.19.0.10:80", "web2", "192.0.2.1")
		r.answers(r.nodes[0].Namespace, "198.19.0.12:80", "web1", "192.0.2.1")
		r.answers(r.nodes[0].Namespace, "198.19.0.13:80", "node-1", "169.254.0.1") // itself
		r.silence(r.nodes[0].Namespace, "198.19.0.14:80")
		r.silence(r.a1.Namespace, "198.19.0.10:80")
		require.NoError(t, r.web1.Bulk("198.19.0.16:80", 4<<20))
		require.NoError(t, r.neighbor.Bulk("198.19.0.16:80", 4<<20))
		r.web1.ServeEcho("198.18.0.11", 7070)
		r.web2.ServeEcho("198.18.0.12", 7070)
		for _, size := range []int{100, 1500, 20000} { // in one packet, and in fragments
			require.NoError(t, r.web1.Echo("198.19.0.17:80", size))
			require.NoError(t, r.web1.Echo("198.19.0.18:80", size)) // itself
			require.NoError(t, r.nodes[0].Echo("198.19.0.17:80", size))
		}
	})
}

// https://github.com/projectcalico/calico/issues/4865 and
// https://github.com/projectcalico/calico/issues/9433: with checksum offload only ICMP worked over VXLAN.
func TestBulkDataArrivesWholeWithOffloadsOn(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		const size = 8 << 20
		for _, transfer := range []struct {
			from    *testnet.Namespace
			address string
		}{
			{r.web1.Namespace, "198.18.0.13:9090"},     // on one node
			{r.a1.Namespace, "10.0.1.12:9090"},         // across nodes
			{r.a1.Namespace, "10.0.2.12:9090"},         // across nodes and Subnets
			{r.a3.Namespace, "10.0.1.11:9090"},         // across Subnets
			{r.nodes[0].Namespace, "198.18.0.12:9090"}, // from a host across nodes
		} {
			require.NoError(t, transfer.from.Bulk(transfer.address, size), "%s to %s", transfer.from.Name(), transfer.address)
		}
	})
}

func TestSpoofedFramesDoNotArriveAndAreCounted(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		capture, err := r.a2.Capture("eth0")
		require.NoError(t, err)
		defer func() { require.NoError(t, capture.Close()) }()
		gateway := gatewayMAC(1001)
		frame := func(mark, source string, from MAC) []byte {
			ip := ipv4(addr(source), r.a2.Address, layers.IPProtocolUDP)
			udp := &layers.UDP{SrcPort: 4000, DstPort: 4000}
			require.NoError(t, udp.SetNetworkLayerForChecksum(ip))
			return build(ethernet(from, gateway, layers.EthernetTypeIPv4), ip, udp, gopacket.Payload(mark))
		}
		own := r.a1.nic.MAC
		require.NoError(t, r.a1.SendFrame("eth0", frame("honest", "10.0.1.11", own)))
		_, err = capture.Await([]byte("honest"), testnet.Timeout)
		require.NoError(t, err, "the receiver receives")

		arp := &layers.ARP{
			AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: layers.ARPReply, SourceHwAddress: own.HardwareAddr(), SourceProtAddress: addr("10.0.1.1").AsSlice(),
			DstHwAddress: r.a2.MAC, DstProtAddress: r.a2.Address.AsSlice(),
		}
		tagged := frame("liar", "10.0.1.11", own)
		tagged = append(append(append([]byte{}, tagged[:12]...), 0x81, 0, 0, 5), tagged[12:]...)
		for reason, lie := range map[bpfDropReason][]byte{
			bpfDropReasonDROP_SPOOFED_ADDRESS:   frame("liar", "10.0.1.99", own),
			bpfDropReasonDROP_SPOOFED_MAC:       frame("liar", "10.0.1.11", r.a2.nic.MAC),
			bpfDropReasonDROP_SPOOFED_ARP:       build(ethernet(own, broadcastMAC, layers.EthernetTypeARP), arp, gopacket.Payload("liar")),
			bpfDropReasonDROP_UNKNOWN_ETHERTYPE: tagged,
			bpfDropReasonDROP_MALFORMED:         append(append([]byte{}, frame("", "10.0.1.11", own)[:14]...), "liar"...),
		} {
			before := r.dropped(r.a1, reason)
			require.NoError(t, r.a1.SendFrame("eth0", lie))
			require.Eventually(t, func() bool { return r.dropped(r.a1, reason) == before+1 }, testnet.Timeout, time.Millisecond, Reason(reason).String())
		}
		_, err = capture.Await([]byte("liar"), testnet.ShortTimeout)
		require.Error(t, err, "a lie arrived")
		require.NoError(t, r.a1.SendFrame("eth0", frame("honest again", "10.0.1.11", own)))
		_, err = capture.Await([]byte("honest again"), testnet.Timeout)
		require.NoError(t, err)
	})
}

func TestForgedVXLANIsNotAccepted(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		inner := build(ethernet(r.b1.nic.MAC, r.a2.nic.MAC, layers.EthernetTypeIPv4), ipv4(addr("10.0.1.11"), addr("10.0.1.12"), 253),
			gopacket.Payload("forged"))
		vxlan := append([]byte{8, 0, 0, 0, 0, 0x03, 0xe9, 0}, inner...) // VNI 1001
		capture, err := r.a2.Capture("eth0")
		require.NoError(t, err)
		defer func() { require.NoError(t, capture.Close()) }()
		send := func(from *testnet.Namespace) {
			conn, err := from.Dial("udp", "192.0.2.2:4789", testnet.Timeout)
			require.NoError(t, err)
			defer conn.Close()
			_, err = conn.Write(vxlan)
			require.NoError(t, err)
		}
		send(r.nodes[0].Namespace) // a member may
		_, err = capture.Await([]byte("forged"), testnet.Timeout)
		require.NoError(t, err, "the receiver receives")
		send(r.net.Outside)
		send(r.a1.Namespace)
		send(r.web1.Namespace)
		send(r.web2.Namespace)
		_, err = capture.Await([]byte("forged"), testnet.ShortTimeout)
		require.Error(t, err)
		require.EqualValues(t, 1, r.dropped(r.web1, bpfDropReasonDROP_FORGED_VXLAN))
		require.EqualValues(t, 1, r.dropped(r.web2, bpfDropReasonDROP_FORGED_VXLAN))
		drops, err := r.nodes[1].Drops.List()
		require.NoError(t, err)
		require.EqualValues(t, 1, drops[DropKey{r.config[1].VXLANIfindex, Reason(bpfDropReasonDROP_UNKNOWN_MEMBER)}].Packets)
	})
}
