package datapath

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// tenants is two nodes and two VPCs that use the same addresses. The second VPC has its pods on the same interfaces'
// numbers, so that only the identity can tell them apart.
type tenants struct {
	*cloud
	a1, a2, a3, a4 *pod // VPC 7: 10.0.1.11 and .12 on both nodes, 10.0.2.11 and .12 on both nodes
	b1, b2         *pod // VPC 8: 10.0.1.11 and .12 on both nodes
	web1, web2     *pod // ordinary Pods on both nodes
}

// newTenants makes them in a test that goes on beside others of its kind: nearly all of its time is the kernel's verifier's.
func newTenants(t testing.TB, settings ...func(*Config)) *tenants {
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	return tenantsAlone(t, settings...)
}

// tenantsAlone is for what depends on the clock, or makes them more than once.
func tenantsAlone(t testing.TB, settings ...func(*Config)) *tenants {
	c := newCloud(t, 2, settings...)
	c.subnet(7, 1001, "10.0.1.0/24")
	c.subnet(7, 1002, "10.0.2.0/24")
	c.route(1001, "10.0.1.0/24", 1002, "10.0.2.0/24")
	c.subnet(8, 2001, "10.0.1.0/24")
	n1, n2 := c.nodes[0], c.nodes[1]
	return &tenants{
		cloud: c,
		a1:    n1.pod(7, 1001, "10.0.1.11"), a2: n2.pod(7, 1001, "10.0.1.12"),
		a3: n1.pod(7, 1002, "10.0.2.11"), a4: n2.pod(7, 1002, "10.0.2.12"),
		b1: n1.pod(8, 2001, "10.0.1.11"), b2: n2.pod(8, 2001, "10.0.1.12"),
		web1: n1.pod(1, 1, "198.18.0.11"), web2: n2.pod(1, 1, "198.18.0.12"),
	}
}

func TestAPodLearnsOneMACForItsWholeSubnet(t *testing.T) {
	c := newTenants(t)
	for _, target := range []string{"10.0.1.1", "10.0.1.12", "10.0.1.200"} {
		for _, sender := range []string{"10.0.1.11", "0.0.0.0"} {
			o := c.a1.sendsARP(c.a1.arp(layers.ARPRequest, sender, target))
			require.Equal(t, bpfTraceTargetTRACE_SENDER, o.target, "dropped: %s", o.drop)
			require.EqualValues(t, c.a1.ifindex, o.trace.Ifindex)
			eth, packet := o.parse()
			require.Equal(t, c.a1.nic.MAC.String(), eth.DstMAC.String())
			arp := packet.Layer(layers.LayerTypeARP).(*layers.ARP)
			require.EqualValues(t, layers.ARPReply, arp.Operation)
			require.Equal(t, gatewayMAC(1001).HardwareAddr(), eth.SrcMAC)
			require.EqualValues(t, gatewayMAC(1001).HardwareAddr(), arp.SourceHwAddress)
			require.EqualValues(t, addr(target).AsSlice(), arp.SourceProtAddress)
			require.EqualValues(t, c.a1.nic.MAC.HardwareAddr(), arp.DstHwAddress)
			require.EqualValues(t, addr(sender).AsSlice(), arp.DstProtAddress)
		}
	}
}

func TestNobodyAnswersForTheAskersOwnAddress(t *testing.T) {
	c := newTenants(t)
	for _, arp := range []*layers.ARP{
		c.a1.arp(layers.ARPRequest, "0.0.0.0", "10.0.1.11"),   // duplicate address detection
		c.a1.arp(layers.ARPRequest, "10.0.1.11", "10.0.1.11"), // announcement
		c.a1.arp(layers.ARPReply, "10.0.1.11", "10.0.1.11"),
	} {
		c.a1.sendsARP(arp).isDropped(bpfDropReasonDROP_GRATUITOUS_ARP)
	}
	require.True(t, Reason(bpfDropReasonDROP_GRATUITOUS_ARP).Expected())
}

func TestARPThatLiesIsDropped(t *testing.T) {
	c := newTenants(t)
	lie := c.a1.arp(layers.ARPRequest, "10.0.1.12", "10.0.1.1")
	c.a1.sendsARP(lie).isDropped(bpfDropReasonDROP_SPOOFED_ARP)
	lie = c.a1.arp(layers.ARPReply, "0.0.0.0", "10.0.1.1")
	c.a1.sendsARP(lie).isDropped(bpfDropReasonDROP_SPOOFED_ARP)
	lie = c.a1.arp(layers.ARPRequest, "10.0.1.11", "10.0.1.1")
	lie.SourceHwAddress = c.a2.nic.MAC.HardwareAddr()
	c.a1.sendsARP(lie).isDropped(bpfDropReasonDROP_SPOOFED_ARP)
	c.a1.sendsARP(c.a1.arp(layers.ARPRequest, "10.0.1.11", "10.0.2.11")).isDropped(bpfDropReasonDROP_ARP_OUT_OF_SUBNET)

	frame := build(ethernet(c.a2.nic.MAC, broadcastMAC, layers.EthernetTypeARP), c.a1.arp(layers.ARPRequest, "10.0.1.11", "10.0.1.1"))
	c.a1.sends(frame).isDropped(bpfDropReasonDROP_SPOOFED_MAC)

	strange := c.a1.arp(3, "10.0.1.11", "10.0.1.1") // reverse ARP
	c.a1.sendsARP(strange).isDropped(bpfDropReasonDROP_MALFORMED)
	short := build(ethernet(c.a1.nic.MAC, broadcastMAC, layers.EthernetTypeARP), gopacket.Payload("too short"))
	c.a1.sends(short).isDropped(bpfDropReasonDROP_MALFORMED)
}

func TestAPacketReachesItsNeighbourOnTheSameNode(t *testing.T) {
	c := newTenants(t)
	neighbour := c.nodes[0].pod(7, 1001, "10.0.1.13")
	c.a1.sends(c.a1.udp(4000, "10.0.1.13:5000").frame()).reaches(neighbour).is("10.0.1.11:4000", "10.0.1.13:5000")
	neighbour.sends(neighbour.udp(5000, "10.0.1.11:4000").frame()).reaches(c.a1).is("10.0.1.13:5000", "10.0.1.11:4000")
}

func TestAPacketReachesItsNeighbourOnAnotherNode(t *testing.T) {
	c := newTenants(t)
	sent := c.a1.sends(c.a1.udp(4000, "10.0.1.12:5000").frame())
	require.EqualValues(t, 1001, sent.trace.Vni)
	received := sent.then().reaches(c.a2).is("10.0.1.11:4000", "10.0.1.12:5000")
	require.Equal(t, 64, received.ttl(), "one Subnet is one hop")
	c.a2.sends(c.a2.udp(5000, "10.0.1.11:4000").frame()).then().reaches(c.a1)
}

func TestAnotherSubnetOfTheVPCIsOneHopAway(t *testing.T) {
	c := newTenants(t)
	received := c.a1.sends(c.a1.udp(4000, "10.0.2.11:5000").frame()).reaches(c.a3)
	require.Equal(t, 63, received.ttl())

	sent := c.a1.sends(c.a1.udp(4000, "10.0.2.12:5000").frame())
	require.EqualValues(t, 1002, sent.trace.Vni, "the destination's Subnet")
	received = sent.then().reaches(c.a4).is("10.0.1.11:4000", "10.0.2.12:5000")
	require.Equal(t, 63, received.ttl(), "only the sender's node counts the hop")

	last := c.a1.udp(4000, "10.0.2.12:5000")
	last.ip = func(ip *layers.IPv4) { ip.TTL = 1 }
	c.a1.sends(last.frame()).isToldTo(c.a1, bpfDropReasonDROP_TTL_EXCEEDED)
	last.destination = c.a1.udp(4000, "10.0.1.12:5000").destination
	c.a1.sends(last.frame()).then().reaches(c.a2)
}

func TestTwoVPCsWithTheSameAddressesNeverMeet(t *testing.T) {
	c := newTenants(t)
	c.a1.sends(c.a1.udp(4000, "10.0.1.12:5000").frame()).then().reaches(c.a2)
	c.b1.sends(c.b1.udp(4000, "10.0.1.12:5000").frame()).then().reaches(c.b2)
	c.b2.sends(c.b2.udp(4000, "10.0.1.11:5000").frame()).then().reaches(c.b1)

	// The second VPC has no other Subnet, and no way to the first's.
	c.b1.sends(c.b1.udp(4000, "10.0.2.11:5000").frame()).isDropped(bpfDropReasonDROP_NO_ROUTE)
	// Not even when a route leads there.
	require.NoError(t, c.nodes[0].Routes.Set(RouteKey{2001, prefix("10.0.2.0/24")}, Route{VNI: 1002}))
	c.b1.sends(c.b1.udp(4000, "10.0.2.11:5000").frame()).isDropped(bpfDropReasonDROP_OTHER_VPC)
}

func TestATenantReachesNothingButItsVPC(t *testing.T) {
	c := newTenants(t)
	for _, destination := range []string{
		"192.0.2.1:22",     // its own node
		"192.0.2.2:4789",   // another node
		"169.254.1.1:80",   // link-local
		"203.0.113.10:443", // outside
		"127.0.0.1:80",
	} {
		c.a1.sends(c.a1.udp(4000, destination).frame()).isDropped(bpfDropReasonDROP_NO_ROUTE)
	}
	c.a1.sends(c.a1.udp(4000, "10.0.1.77:80").frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
	c.a1.sends(c.a1.udp(4000, "10.0.2.77:80").frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
}

func TestTheGatewayAnswersPing(t *testing.T) {
	c := newTenants(t)
	echo := layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0)
	for p, gateway := range map[*pod]string{c.a1: "10.0.1.1", c.web1: "198.18.0.1"} {
		o := p.sends(p.icmp(gateway, echo))
		require.Equal(t, bpfTraceTargetTRACE_SENDER, o.target, "dropped: %s", o.drop)
		eth, packet := o.parse()
		require.Equal(t, p.nic.MAC.String(), eth.DstMAC.String())
		require.Equal(t, p.nic.GatewayMAC.String(), eth.SrcMAC.String())
		ip := packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		require.Equal(t, gateway+" > "+p.nic.Address.String(), ip.SrcIP.String()+" > "+ip.DstIP.String())
		icmp := packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		require.EqualValues(t, layers.ICMPv4TypeEchoReply, icmp.TypeCode.Type())
		require.EqualValues(t, 3, icmp.Id)
	}
	c.a1.sends(c.a1.icmp("10.0.1.1", layers.CreateICMPv4TypeCode(13, 0))).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
	c.a1.sends(c.a1.icmp("10.0.1.99", echo)).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
	c.a1.sends(c.a1.udp(1, "10.0.1.1:53").frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
}

func TestSpoofedSourcesAreDropped(t *testing.T) {
	c := newTenants(t)
	lie := c.a1.udp(4000, "10.0.1.12:5000")
	lie.sourceMAC = c.a2.nic.MAC
	c.a1.sends(lie.frame()).isDropped(bpfDropReasonDROP_SPOOFED_MAC)
	lie = c.a1.udp(4000, "10.0.1.12:5000")
	for _, source := range []string{"10.0.1.13:4000", "10.0.1.1:4000", "192.0.2.1:4000", "0.0.0.0:4000"} {
		lie.source = addrPortOf(source)
		c.a1.sends(lie.frame()).isDropped(bpfDropReasonDROP_SPOOFED_ADDRESS)
	}
}

func TestAnInterfaceWithoutSourceDestCheckForwardsForOthers(t *testing.T) {
	c := newTenants(t)
	nic := c.a1.nic
	nic.NoSourceDestCheck = true
	require.NoError(t, c.nodes[0].NICs.Set(uint32(c.a1.ifindex), nic))
	require.NoError(t, c.nodes[1].Forwarders.Set(ForwarderKey{c.nodes[0].address, 7}, Forwarder{}))
	foreign := c.a1.udp(4000, "10.0.1.12:5000")
	foreign.source = addrPortOf("172.16.0.9:4000")
	c.a1.sends(foreign.frame()).then().reaches(c.a2).is("172.16.0.9:4000", "10.0.1.12:5000")
	foreign.sourceMAC = c.a2.nic.MAC
	c.a1.sends(foreign.frame()).isDropped(bpfDropReasonDROP_SPOOFED_MAC)
	c.a1.sendsARP(c.a1.arp(layers.ARPRequest, "172.16.0.9", "10.0.1.1"))
	// An endpoint that leads to it is delivered though the address is another.
	c.endpoint(c.nodes[0], EndpointKey{1001, addr("10.0.1.50")}, Endpoint{VPCID: 7, MAC: nic.MAC, Ifindex: uint32(c.a1.ifindex)})
	c.a2.sends(c.a2.udp(4000, "10.0.1.50:5000").frame()).then().reaches(c.a1)
}

func TestTheDestinationsOwnEntryDecides(t *testing.T) {
	c := newTenants(t)
	stale := map[string]Endpoint{
		"10.0.1.21": {VPCID: 7, Ifindex: 99},                   // gone
		"10.0.1.22": {VPCID: 7, Ifindex: uint32(c.a1.ifindex)}, // has another address by now
		"10.0.1.11": {VPCID: 7, Ifindex: uint32(c.b1.ifindex)}, // the same address in another VPC
	}
	for address, endpoint := range stale {
		c.endpoint(c.nodes[0], EndpointKey{1001, addr(address)}, endpoint)
		c.a2.sends(c.a2.udp(4000, address+":5000").frame()).then().isDropped(bpfDropReasonDROP_DESTINATION_CHECK)
	}
}

func TestWhatIsNotUnicastIPv4IsDroppedWithAReason(t *testing.T) {
	c := newTenants(t)
	p := c.a1
	dhcp := segment{
		sourceMAC: p.nic.MAC, destinationMAC: broadcastMAC, source: addrPortOf("0.0.0.0:68"), destination: addrPortOf("255.255.255.255:67"),
	}
	p.sends(dhcp.frame()).isDropped(bpfDropReasonDROP_BROADCAST)
	broadcast := p.udp(4000, "10.0.1.255:5000")
	broadcast.destinationMAC = broadcastMAC
	p.sends(broadcast.frame()).isDropped(bpfDropReasonDROP_BROADCAST)
	mdns := p.udp(5353, "224.0.0.251:5353")
	p.sends(mdns.frame()).isDropped(bpfDropReasonDROP_MULTICAST)
	group := p.udp(4000, "10.0.1.12:5000")
	group.destinationMAC = MAC{1, 0, 0x5e, 0, 0, 1}
	p.sends(group.frame()).isDropped(bpfDropReasonDROP_MULTICAST)

	p.sends(build(ethernet(p.nic.MAC, p.nic.GatewayMAC, 0x88cc), gopacket.Payload("LLDP"))).isDropped(bpfDropReasonDROP_UNKNOWN_ETHERTYPE)
	vlan := build(ethernet(p.nic.MAC, p.nic.GatewayMAC, layers.EthernetTypeDot1Q), &layers.Dot1Q{VLANIdentifier: 5, Type: layers.EthernetTypeIPv4})
	p.sends(vlan).isDropped(bpfDropReasonDROP_UNKNOWN_ETHERTYPE)

	v6 := func(next layers.IPProtocol, payload ...byte) []byte {
		ip := &layers.IPv6{Version: 6, NextHeader: next, HopLimit: 255, SrcIP: addr("fe80::1").AsSlice(), DstIP: addr("ff02::1").AsSlice()}
		return build(ethernet(p.nic.MAC, MAC{0x33, 0x33}, layers.EthernetTypeIPv6), ip, gopacket.Payload(payload))
	}
	discovery := append([]byte{135}, make([]byte, 23)...)
	listener := append([]byte{58, 0, 5, 2, 0, 0, 1, 0, 143}, make([]byte, 19)...)
	p.sends(v6(layers.IPProtocolICMPv6, discovery...)).isDropped(bpfDropReasonDROP_IPV6DISCOVERY)
	p.sends(v6(layers.IPProtocolIPv6HopByHop, listener...)).isDropped(bpfDropReasonDROP_IPV6DISCOVERY)
	p.sends(v6(layers.IPProtocolUDP, make([]byte, 20)...)).isDropped(bpfDropReasonDROP_IPV6)
	p.sends(v6(layers.IPProtocolIPv6HopByHop)).isDropped(bpfDropReasonDROP_IPV6)
	p.sends(build(ethernet(p.nic.MAC, MAC{0x33, 0x33}, layers.EthernetTypeIPv6))).isDropped(bpfDropReasonDROP_IPV6)
}

func TestPacketsThatAreCutShortAreDropped(t *testing.T) {
	c := newTenants(t)
	whole := c.a1.tcp(4000, "10.0.1.12:5000", layers.TCP{SYN: true}).frame()
	c.a1.sends(whole).then().reaches(c.a2)
	spoil := func(offset int, value byte) []byte {
		frame := append([]byte{}, whole...)
		frame[offset] = value
		return frame
	}
	for name, frame := range map[string][]byte{
		"TCP header":                 build(ethernet(c.a1.nic.MAC, c.a1.nic.GatewayMAC, layers.EthernetTypeIPv4), ipv4(c.a1.nic.Address, addr("10.0.1.12"), layers.IPProtocolTCP), gopacket.Payload("short")),
		"UDP header":                 build(ethernet(c.a1.nic.MAC, c.a1.nic.GatewayMAC, layers.EthernetTypeIPv4), ipv4(c.a1.nic.Address, addr("10.0.1.12"), layers.IPProtocolUDP), gopacket.Payload("short")),
		"payload":                    whole[:len(whole)-1],
		"version":                    spoil(14, 0x55),
		"header length":              spoil(14, 0x44),
		"total length under headers": spoil(17, 19),
		"TCP data offset":            spoil(14+20+12, 0x40),
	} {
		t.Log(name)
		c.a1.sends(frame).isDropped(bpfDropReasonDROP_MALFORMED)
	}
}

func TestNothingIsLongerThanTheMTU(t *testing.T) {
	c := newTenants(t)
	const headers = 20 + 8
	for destination, passes := range map[string]func(outcome){
		"10.0.1.12:5000":  func(o outcome) { o.then().reaches(c.a2) },
		"10.0.2.11:5000":  func(o outcome) { o.reaches(c.a3) },
		"198.18.0.12:500": func(o outcome) { o.then().reaches(c.web2) },
	} {
		p := c.a1
		if destination == "198.18.0.12:500" {
			p = c.web1
		}
		s := p.udp(4000, destination)
		s.size = 1450 - headers
		passes(p.sends(s.frame()))
		s.size++
		p.sends(s.frame()).isDropped(bpfDropReasonDROP_MTU_EXCEEDED)
	}
	// Of what will be cut into segments, each counts.
	long := c.a1.tcp(4000, "10.0.1.12:5000", layers.TCP{ACK: true, Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop}}})
	long.size = 3000
	gso := func(size uint32) outcome {
		ctx := skBuff{ifindex: uint32(c.a1.ifindex), gsoSize: size, gsoSegs: 3000/size + 1}
		return c.nodes[0].run(bpfProgPodEgress, long.frame(), ctx, bpfTrace{})
	}
	gso(1450 - 20 - 24).then()
	gso(1450 - 20 - 23).isDropped(bpfDropReasonDROP_MTU_EXCEEDED)
}

func TestAnUnknownInterfaceReachesNothing(t *testing.T) {
	c := newTenants(t)
	require.NoError(t, c.nodes[0].NICs.Delete(uint32(c.a1.ifindex)))
	c.a1.sends(c.a1.udp(4000, "10.0.1.12:5000").frame()).isDropped(bpfDropReasonDROP_UNKNOWN_INTERFACE)
	c.a1.sendsARP(c.a1.arp(layers.ARPRequest, "10.0.1.11", "10.0.1.1")).isDropped(bpfDropReasonDROP_UNKNOWN_INTERFACE)
}
