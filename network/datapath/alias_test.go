package datapath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// probed is two tenants whose interfaces on the first node, a1 and b1, have the same address, 10.0.1.11, and the infrastructure
// addresses 198.18.0.51 and .52; a2, on the second node, has .53.
type probed struct {
	*tenants
	n1, n2 *node
}

func newProbed(t testing.TB) *probed {
	c := newTenants(t)
	p := &probed{tenants: c, n1: c.nodes[0], n2: c.nodes[1]}
	p.infrastructure(c.a1, "198.18.0.51")
	p.infrastructure(c.b1, "198.18.0.52")
	p.infrastructure(c.a2, "198.18.0.53")
	return p
}

// infrastructure gives an interface its infrastructure address.
func (c *probed) infrastructure(p *pod, address string) {
	p.nic.Infrastructure = addr(address)
	require.NoError(c.t, p.node.NICs.Set(uint32(p.ifindex), p.nic))
	c.endpoint(p.node, EndpointKey{1, addr(address)}, Endpoint{
		VPCID: p.nic.VPCID, Kind: EndpointInfrastructure, MAC: p.nic.MAC, Ifindex: uint32(p.ifindex),
	})
}

// platform makes an ordinary Pod one of the platform's.
func (c *probed) platform(p *pod) {
	c.endpoint(p.node, EndpointKey{1, p.nic.Address}, Endpoint{VPCID: 1, Kind: EndpointPlatform, MAC: p.nic.MAC, Ifindex: uint32(p.ifindex)})
}

func (n *node) hostTCP(port uint16, to string, flags layers.TCP) []byte {
	s := n.hostUDP(port, to)
	s.tcp = &flags
	return s.frame()
}

func (n *node) hostICMP(to string, icmp *layers.ICMPv4, payload []byte) []byte {
	return build(ethernet(n.config.HostMAC, MAC{}, layers.EthernetTypeIPv4), ipv4(n.address, addr(to), layers.IPProtocolICMPv4), icmp,
		gopacket.Payload(payload))
}

// unreachable is an ICMP error about a packet that an interface received.
func (p *pod) unreachable(to string, quoted []byte) []byte {
	return build(ethernet(p.nic.MAC, p.nic.GatewayMAC, layers.EthernetTypeIPv4), ipv4(p.nic.Address, addr(to), layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}, gopacket.Payload(quoted))
}

func (o outcome) icmp() *layers.ICMPv4 {
	o.t.Helper()
	_, packet := o.parse()
	return packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
}

// comes asserts the addresses of the outcome's packet.
func (o outcome) comes(source, destination string) outcome {
	o.t.Helper()
	_, packet := o.parse()
	ip := packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	require.Equal(o.t, source+" > "+destination, ip.SrcIP.String()+" > "+ip.DstIP.String())
	return o
}

var (
	syn    = layers.TCP{SYN: true}
	synAck = layers.TCP{SYN: true, ACK: true}
	echo   = &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 77, Seq: 1}
)

// The aliases of the first node's host (192.0.2.1) and the second's.
const (
	alias1 = "169.254.66.1"
	alias2 = "169.254.66.2"
)

// https://github.com/kubeovn/kube-ovn/issues/3024 and 7130: probes to two Pods of one address in two VPCs on one node cannot work.
func TestAHostReachesTwoPodsOfOneAddressOnOneNode(t *testing.T) {
	c := newProbed(t)
	c.n1.hostSends(c.n1.hostTCP(4000, "198.18.0.51:80", syn)).reaches(c.a1).is(alias1+":4000", "10.0.1.11:80")
	c.n1.hostSends(c.n1.hostTCP(4000, "198.18.0.52:80", syn)).reaches(c.b1).is(alias1+":4000", "10.0.1.11:80")
	c.a1.sends(c.a1.tcp(80, alias1+":4000", synAck).frame()).reachesHost(c.n1).is("198.18.0.51:80", "192.0.2.1:4000")
	c.b1.sends(c.b1.tcp(80, alias1+":4000", synAck).frame()).reachesHost(c.n1).is("198.18.0.52:80", "192.0.2.1:4000")

	c.n1.hostSends(c.n1.hostUDP(53, "198.18.0.51:53").frame()).reaches(c.a1).is(alias1+":53", "10.0.1.11:53")
	c.a1.sends(c.a1.udp(53, alias1+":53").frame()).reachesHost(c.n1).is("198.18.0.51:53", "192.0.2.1:53")
	c.b1.sends(c.b1.udp(53, alias1+":53").frame()).isDropped(bpfDropReasonDROP_NOT_OPENED)
}

func TestAnotherNodesHostReachesAnInfrastructureAddress(t *testing.T) {
	c := newProbed(t)
	sent := c.n2.hostSends(c.n2.hostTCP(4000, "198.18.0.52:80", syn))
	require.EqualValues(t, 1, sent.trace.Vni)
	sent.then().reaches(c.b1).is(alias2+":4000", "10.0.1.11:80")
	c.b1.sends(c.b1.tcp(80, alias2+":4000", synAck).frame()).then().reachesHost(c.n2).is("198.18.0.52:80", "192.0.2.2:4000")
	c.n1.hostSends(c.n1.hostTCP(4000, "198.18.0.53:80", syn)).then().reaches(c.a2).is(alias1+":4000", "10.0.1.12:80")
	c.a2.sends(c.a2.tcp(80, alias1+":4000", synAck).frame()).then().reachesHost(c.n1).is("198.18.0.53:80", "192.0.2.1:4000")
}

func TestAPodOfThePlatformReachesAnInfrastructureAddress(t *testing.T) {
	c := newProbed(t)
	c.platform(c.web1)
	const alias = "169.254.64.11" // of 198.18.0.11
	c.web1.sends(c.web1.tcp(4000, "198.18.0.51:80", syn).frame()).reaches(c.a1).is(alias+":4000", "10.0.1.11:80")
	c.a1.sends(c.a1.tcp(80, alias+":4000", synAck).frame()).reaches(c.web1).is("198.18.0.51:80", "198.18.0.11:4000")
	c.web1.sends(c.web1.tcp(4000, "198.18.0.53:80", syn).frame()).then().reaches(c.a2).is(alias+":4000", "10.0.1.12:80")
	c.a2.sends(c.a2.tcp(80, alias+":4000", synAck).frame()).then().reaches(c.web1).is("198.18.0.53:80", "198.18.0.11:4000")
	// It may; its neighbour may not.
	c.web2.sends(c.web2.tcp(4000, "198.18.0.51:80", syn).frame()).isDropped(bpfDropReasonDROP_INFRASTRUCTURE_ADDRESS)
	// When it has gone the answers go nowhere.
	require.NoError(t, c.n1.Endpoints.Delete(EndpointKey{1, c.web1.nic.Address}))
	c.a1.sends(c.a1.tcp(80, alias+":4000", layers.TCP{ACK: true}).frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
}

func TestOnlyHostsAndThePlatformsPodsOpenConnectionsToInfrastructureAddresses(t *testing.T) {
	c := newProbed(t)
	n1, n2 := c.n1, c.n2
	c.web1.sends(c.web1.udp(4000, "198.18.0.51:80").frame()).isDropped(bpfDropReasonDROP_INFRASTRUCTURE_ADDRESS)
	// What a host forwards for others is not the host's.
	forwarded := n1.hostUDP(4000, "198.18.0.51:80")
	for _, source := range []string{"203.0.113.9:4000", "192.0.2.2:4000", "198.18.0.11:4000"} {
		forwarded.source = addrPortOf(source)
		n1.hostSends(forwarded.frame()).isDropped(bpfDropReasonDROP_INFRASTRUCTURE_ADDRESS)
	}
	// A member speaks for what it has: not for another's host, nor for a Pod that is not the platform's or elsewhere.
	c.platform(c.web1)
	n1.receives(n2.address, 1, n2.hostUDP(4000, "198.18.0.51:80").frame()).reaches(c.a1)
	n1.receives(n2.address, 1, n1.hostUDP(4000, "198.18.0.51:80").frame()).isDropped(bpfDropReasonDROP_INFRASTRUCTURE_ADDRESS)
	n1.receives(n2.address, 1, c.web1.udp(4000, "198.18.0.51:80").frame()).isDropped(bpfDropReasonDROP_INFRASTRUCTURE_ADDRESS)
	n1.receives(n2.address, 1, c.web2.udp(4000, "198.18.0.51:80").frame()).isDropped(bpfDropReasonDROP_INFRASTRUCTURE_ADDRESS)
	// A Pod of the platform's does not lend its right.
	spoofer := n1.pod(1, 1, "198.18.0.14")
	spoofer.nic.NoSourceDestCheck = true
	require.NoError(t, n1.NICs.Set(uint32(spoofer.ifindex), spoofer.nic))
	lie := spoofer.udp(4000, "198.18.0.51:80")
	lie.source = addrPortOf("198.18.0.11:4000")
	spoofer.sends(lie.frame()).isDropped(bpfDropReasonDROP_SPOOFED_ADDRESS)
	// Nor does a Service lead there.
	c.service(UDP, "198.19.0.10:80", 0, "198.18.0.51:80")
	n1.hostSends(n1.hostUDP(4000, "198.19.0.10:80").frame()).isDropped(bpfDropReasonDROP_INFRASTRUCTURE_ADDRESS)
	c.web1.sends(c.web1.udp(4000, "198.19.0.10:80").frame()).isDropped(bpfDropReasonDROP_INFRASTRUCTURE_ADDRESS)
	// An entry that leads to an interface of another address or VPC leads nowhere.
	c.endpoint(n1, EndpointKey{1, addr("198.18.0.60")}, Endpoint{VPCID: 7, Kind: EndpointInfrastructure, Ifindex: uint32(c.a1.ifindex)})
	c.endpoint(n1, EndpointKey{1, addr("198.18.0.52")}, Endpoint{VPCID: 7, Kind: EndpointInfrastructure, Ifindex: uint32(c.b1.ifindex)})
	for _, destination := range []string{"198.18.0.60:80", "198.18.0.52:80"} {
		n1.hostSends(n1.hostUDP(4000, destination).frame()).isDropped(bpfDropReasonDROP_DESTINATION_CHECK)
	}
}

func TestATenantOpensNothingThroughAliasesAndInfrastructureAddresses(t *testing.T) {
	c := newProbed(t)
	refused := func(p *pod, frame []byte) {
		t.Helper()
		p.sends(frame).isDropped(bpfDropReasonDROP_NOT_OPENED)
	}
	attacks := func() {
		t.Helper()
		for _, to := range []string{
			alias1 + ":10250", alias1 + ":4000", alias2 + ":4000", "169.254.127.255:80", // hosts
			"198.18.0.51:80", "198.18.0.52:80", "198.18.0.53:80", // its own, its neighbour's, a peer's
			"198.18.0.11:80", "198.18.0.1:80", // an ordinary Pod, the gateway
		} {
			refused(c.a1, c.a1.udp(5000, to).frame())
			refused(c.a1, c.a1.tcp(5000, to, syn).frame())
			refused(c.a1, c.a1.tcp(5000, to, synAck).frame())
			address := netip.MustParseAddrPort(to).Addr().String()
			refused(c.a1, c.a1.icmp(address, layers.CreateICMPv4TypeCode(8, 0)))
			refused(c.a1, c.a1.icmp(address, layers.CreateICMPv4TypeCode(0, 0)))
			refused(c.a1, c.a1.icmp(address, layers.CreateICMPv4TypeCode(3, 3)))
			refused(c.a1, c.a1.icmp(address, layers.CreateICMPv4TypeCode(5, 1)))
		}
	}
	attacks()
	// An open connection gives nothing but itself.
	c.n1.hostSends(c.n1.hostTCP(4000, "198.18.0.51:80", syn)).reaches(c.a1)
	attacks()
	answer := func(flags layers.TCP) []byte { return c.a1.tcp(80, alias1+":4000", flags).frame() }
	refused(c.a1, answer(syn))
	refused(c.a1, answer(layers.TCP{SYN: true, PSH: true}))
	refused(c.a1, c.a1.tcp(81, alias1+":4000", synAck).frame())
	refused(c.a1, c.a1.tcp(80, alias1+":4001", synAck).frame())
	refused(c.a1, c.a1.tcp(80, alias2+":4000", synAck).frame())
	refused(c.a1, c.a1.udp(80, alias1+":4000").frame())
	refused(c.b1, c.b1.tcp(80, alias1+":4000", synAck).frame()) // the same addresses and ports in another VPC
	neighbour := c.n1.pod(7, 1001, "10.0.1.13")
	neighbour.nic.NoSourceDestCheck = true
	require.NoError(t, c.n1.NICs.Set(uint32(neighbour.ifindex), neighbour.nic))
	forged := neighbour.tcp(80, alias1+":4000", synAck)
	forged.source = addrPortOf("10.0.1.11:80")
	refused(neighbour, forged.frame())
	c.a1.sends(answer(synAck)).reachesHost(c.n1)
	// Errors are about what the interface was sent.
	received := c.n1.hostSends(c.n1.hostUDP(4000, "198.18.0.51:53").frame()).reaches(c.a1).frame[14:]
	other := append([]byte{}, received...)
	other[20]++ // another port
	for _, quote := range [][]byte{
		other, received[:20], c.a1.udp(53, alias1+":4000").frame()[14:], // what it sent itself
		c.n1.hostUDP(4000, "10.0.1.11:53").frame()[14:],
		append([]byte{0x65}, received[1:]...), append([]byte{0x46}, received[1:]...), // no IPv4; options
	} {
		refused(c.a1, c.a1.unreachable(alias1, quote))
	}
	refused(c.b1, c.b1.unreachable(alias1, received))
	refused(c.a1, c.a1.unreachable(alias2, received))
	c.a1.sends(c.a1.unreachable(alias1, received)).reachesHost(c.n1)
}

func TestEchoAndErrorsOfInfrastructureAddresses(t *testing.T) {
	c := newProbed(t)
	request := c.n2.hostICMP("198.18.0.51", echo, []byte("hello"))
	got := c.n2.hostSends(request).then().reaches(c.a1).comes(alias2, "10.0.1.11").icmp()
	require.EqualValues(t, 77, got.Id)
	c.a1.sends(c.a1.icmp(alias2, layers.CreateICMPv4TypeCode(0, 0))).isDropped(bpfDropReasonDROP_NOT_OPENED) // another identifier
	reply := build(ethernet(c.a1.nic.MAC, c.a1.nic.GatewayMAC, layers.EthernetTypeIPv4), ipv4(c.a1.nic.Address, addr(alias2), layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(0, 0), Id: 77, Seq: 1}, gopacket.Payload("hello"))
	require.EqualValues(t, 77, c.a1.sends(reply).then().reachesHost(c.n2).comes("198.18.0.51", "192.0.2.2").icmp().Id)

	// The interface's error about what it was sent: UDP (with a checksum in the quote), TCP, echo.
	for _, packet := range [][]byte{
		c.n2.hostUDP(4000, "198.18.0.51:53").frame(), c.n2.hostTCP(4000, "198.18.0.51:53", syn),
	} {
		received := c.n2.hostSends(packet).then().reaches(c.a1)
		c.a1.sends(c.a1.unreachable(alias2, received.frame[14:])).then().reachesHost(c.n2).comes("198.18.0.51", "192.0.2.2").quotes(t, packet)
	}
	received := c.n2.hostSends(request).then().reaches(c.a1)
	c.a1.sends(c.a1.unreachable(alias2, received.frame[14:])).then().reachesHost(c.n2).quotes(t, request)

	// The host's error about the answer.
	answer := c.a1.udp(53, alias2+":4000").frame()
	heard := c.a1.sends(answer).then().reachesHost(c.n2).is("198.18.0.51:53", "192.0.2.2:4000")
	failed := c.n2.hostICMP("198.18.0.51", &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}, heard.frame[14:])
	c.n2.hostSends(failed).then().reaches(c.a1).comes(alias2, "10.0.1.11").quotes(t, answer)
	for _, quote := range [][]byte{
		c.n2.hostUDP(4000, "198.18.0.51:53").frame()[14:], // what it sent itself
		c.a1.udp(54, "192.0.2.2:4000").frame()[14:], heard.frame[14:34],
	} {
		failed := c.n2.hostICMP("198.18.0.51", &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}, quote)
		c.n2.hostSends(failed).then().isDropped(bpfDropReasonDROP_INFRASTRUCTURE_PROTOCOL)
	}
	unknown := append([]byte{}, heard.frame[14:]...)
	unknown[21]++
	c.n2.hostSends(c.n2.hostICMP("198.18.0.51", &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 3)}, unknown)).then().
		isDropped(bpfDropReasonDROP_INFRASTRUCTURE_PROTOCOL)
}

// quotes asserts that an ICMP error quotes a packet, but for TCP's checksum and the time to live.
func (o outcome) quotes(t *testing.T, frame []byte) outcome {
	t.Helper()
	_, packet := o.parse()
	quote := packet.Layer(layers.LayerTypeICMPv4).LayerPayload()
	require.Equal(t, frame[14:14+28], quote[:28])
	return o
}

func TestWhatAnInfrastructureAddressCannotCarryIsDroppedWithAReason(t *testing.T) {
	c := newProbed(t)
	fragment := c.n1.hostUDP(4000, "198.18.0.51:80")
	fragment.ip = func(ip *layers.IPv4) { ip.Flags = layers.IPv4MoreFragments }
	c.n1.hostSends(fragment.frame()).isDropped(bpfDropReasonDROP_INFRASTRUCTURE_FRAGMENT)
	answer := c.a1.udp(80, alias1+":4000")
	answer.ip = fragment.ip
	c.a1.sends(answer.frame()).isDropped(bpfDropReasonDROP_INFRASTRUCTURE_FRAGMENT)
	sctp := build(ethernet(c.n1.config.HostMAC, MAC{}, layers.EthernetTypeIPv4), ipv4(c.n1.address, addr("198.18.0.51"), layers.IPProtocolSCTP),
		gopacket.Payload(make([]byte, 20)))
	c.n1.hostSends(sctp).isDropped(bpfDropReasonDROP_INFRASTRUCTURE_PROTOCOL)
	c.n1.hostSends(c.n1.hostICMP("198.18.0.51", &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(13, 0)}, nil)).
		isDropped(bpfDropReasonDROP_INFRASTRUCTURE_PROTOCOL)
	c.n1.hostSends(c.n1.hostUDP(4000, "198.18.0.51:80").frame()).reaches(c.a1)
	answer.ip, answer.size = nil, 1450
	c.a1.sends(answer.frame()).isDropped(bpfDropReasonDROP_MTU_EXCEEDED)
}

func (n *node) aliases() *ebpf.Map { return n.collection.Maps[bpfMapAliasFlows] }

// eachAlias visits all flows to infrastructure addresses and says how many there are.
func (n *node) eachAlias(visit func(bpfAliasKey, bpfAliasFlow)) int {
	flows := map[bpfAliasKey]bpfAliasFlow{}
	var key bpfAliasKey
	var flow bpfAliasFlow
	for i := n.aliases().Iterate(); i.Next(bytesOf(&key), bytesOf(&flow)); {
		flows[key] = flow
	}
	for key, flow := range flows {
		visit(key, flow)
	}
	return len(flows)
}

// seconds is the programs' clock.
func (n *node) seconds() uint32 {
	var now unix.Timespec
	require.NoError(n.cloud.t, unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now))
	return uint32(now.Sec)
}

// ageAliases makes all flows to infrastructure addresses older, and says how many there are.
func (n *node) ageAliases(by time.Duration) int {
	return n.eachAlias(func(key bpfAliasKey, flow bpfAliasFlow) {
		flow.LastSeen -= uint32(by / time.Second)
		require.NoError(n.cloud.t, n.aliases().Put(bytesOf(&key), bytesOf(&flow)))
	})
}

func TestOnlyTheOpenerKeepsAFlowAlive(t *testing.T) {
	c := newProbed(t)
	request, answer := c.n1.hostUDP(4000, "198.18.0.51:53").frame(), c.a1.udp(53, alias1+":4000").frame()
	c.n1.hostSends(request).reaches(c.a1)
	c.a1.sends(answer).reachesHost(c.n1)
	c.n1.ageAliases(150 * time.Second)
	c.a1.sends(answer).reachesHost(c.n1)
	c.n1.ageAliases(31 * time.Second)
	c.a1.sends(answer).isDropped(bpfDropReasonDROP_NOT_OPENED)
	c.n1.hostSends(request).reaches(c.a1)
	c.a1.sends(answer).reachesHost(c.n1)

	tcp := func(flags layers.TCP) []byte { return c.n1.hostTCP(4000, "198.18.0.51:80", flags) }
	back := func(flags layers.TCP) []byte { return c.a1.tcp(80, alias1+":4000", flags).frame() }
	c.n1.hostSends(tcp(syn)).reaches(c.a1)
	c.a1.sends(back(synAck)).reachesHost(c.n1)
	c.n1.ageAliases(2 * time.Hour)
	c.n1.hostSends(tcp(layers.TCP{ACK: true})).reaches(c.a1)
	c.a1.sends(back(layers.TCP{FIN: true, ACK: true})).reachesHost(c.n1)
	c.n1.ageAliases(time.Hour)
	c.a1.sends(back(layers.TCP{ACK: true})).reachesHost(c.n1) // the opener may go on
	c.n1.hostSends(tcp(layers.TCP{FIN: true, ACK: true})).reaches(c.a1)
	c.a1.sends(back(layers.TCP{ACK: true})).reachesHost(c.n1)
	c.n1.ageAliases(11 * time.Second)
	c.a1.sends(back(layers.TCP{ACK: true})).isDropped(bpfDropReasonDROP_NOT_OPENED)
	// The same port anew, and refused.
	c.n1.hostSends(tcp(syn)).reaches(c.a1)
	c.a1.sends(back(layers.TCP{RST: true, ACK: true})).reachesHost(c.n1)
	c.n1.hostSends(tcp(syn)).reaches(c.a1) // at once again: a new connection
	c.n1.ageAliases(30 * time.Second)
	c.a1.sends(back(synAck)).reachesHost(c.n1)
	c.n1.hostSends(tcp(layers.TCP{RST: true})).reaches(c.a1)
	c.n1.ageAliases(11 * time.Second)
	c.a1.sends(back(layers.TCP{ACK: true})).isDropped(bpfDropReasonDROP_NOT_OPENED)
	require.Equal(t, 2, c.n1.ageAliases(0))
}

func TestOpenersOfOneAliasAndPortAreToldApart(t *testing.T) {
	c := newProbed(t)
	twin := c.n2.pod(1, 1, "198.18.2.1") // whose lowest bits are those of 192.0.2.1
	c.platform(twin)
	c.n1.hostSends(c.n1.hostUDP(4000, "198.18.0.51:53").frame()).reaches(c.a1).is(alias1+":4000", "10.0.1.11:53")
	second := twin.udp(4000, "198.18.0.51:53").frame()
	_, packet := twin.sends(second).then().reaches(c.a1).comes(alias1, "10.0.1.11").parse()
	port := uint16(packet.Layer(layers.LayerTypeUDP).(*layers.UDP).SrcPort)
	require.NotEqual(t, uint16(4000), port)
	require.GreaterOrEqual(t, port, uint16(1024))
	to := netip.AddrPortFrom(addr(alias1), port).String()
	twin.sends(second).then().reaches(c.a1).is(to, "10.0.1.11:53") // it keeps the port
	c.a1.sends(c.a1.udp(53, alias1+":4000").frame()).reachesHost(c.n1).is("198.18.0.51:53", "192.0.2.1:4000")
	c.a1.sends(c.a1.udp(53, to).frame()).then().reaches(twin).is("198.18.0.51:53", "198.18.2.1:4000")
	received := twin.sends(second).then().reaches(c.a1)
	c.a1.sends(c.a1.unreachable(alias1, received.frame[14:])).then().reaches(twin).quotes(t, second)
	// Echo too, by the identifier.
	c.n1.hostSends(c.n1.hostICMP("198.18.0.51", echo, nil)).reaches(c.a1)
	ping := build(ethernet(twin.nic.MAC, twin.nic.GatewayMAC, layers.EthernetTypeIPv4), ipv4(twin.nic.Address, addr("198.18.0.51"), layers.IPProtocolICMPv4), echo)
	got := twin.sends(ping).then().reaches(c.a1).icmp()
	require.NotEqual(t, echo.Id, got.Id)
	pong := build(ethernet(c.a1.nic.MAC, c.a1.nic.GatewayMAC, layers.EthernetTypeIPv4), ipv4(c.a1.nic.Address, addr(alias1), layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(0, 0), Id: got.Id, Seq: 1})
	require.Equal(t, echo.Id, c.a1.sends(pong).then().reaches(twin).icmp().Id)
	failed := c.a1.unreachable(alias1, twin.sends(ping).then().reaches(c.a1).frame[14:])
	c.a1.sends(failed).then().reaches(twin).quotes(t, ping)
	// The first flow's end does not move the second.
	c.n1.ageAliases(61 * time.Second)
	twin.sends(second).then().reaches(c.a1)
	// When every port that is tried is another's, there is none to give.
	third := twin.udp(4001, "198.18.0.51:80").frame()
	for range 4 {
		twin.sends(third).then().reaches(c.a1)
		c.n1.eachAlias(func(key bpfAliasKey, flow bpfAliasFlow) {
			if key.InterfacePort == networkPort(80) {
				flow.Opener = toAddress(addr("192.0.2.77"))
				require.NoError(t, c.n1.aliases().Put(bytesOf(&key), bytesOf(&flow)))
			}
		})
	}
	twin.sends(third).then().isDropped(bpfDropReasonDROP_CONNTRACK_COLLISION)
}
