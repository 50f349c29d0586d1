package datapath

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// newFloating is two VPCs with the same addresses, whose first interfaces have external addresses, each another.
func newFloating(t testing.TB) *tenants {
	c := newTenants(t)
	c.outside(1001, 1002, 2001)
	c.floating(c.a1, "203.0.113.5")
	c.floating(c.a2, "203.0.113.6")
	c.floating(c.b1, "203.0.113.7")
	return c
}

func TestAnExternalAddressReachesItsInterfaceFromAnyNode(t *testing.T) {
	c := newFloating(t)
	for external, p := range map[string]*pod{"203.0.113.5": c.a1, "203.0.113.6": c.a2, "203.0.113.7": c.b1} {
		for _, n := range c.nodes {
			for _, s := range []segment{fromOutside(outsider+":4000", external+":80"), fromOutside(outsider+":4000", external+":80").as(syn)} {
				o := n.gets(s.frame())
				if n != p.node {
					require.Equal(t, outsider+" > "+external, o.addresses(), "it is sent on as it came")
					require.EqualValues(t, DefaultOutsideVNI, o.trace.Vni)
					o = o.then()
				}
				o.reaches(p).is(outsider+":4000", p.nic.Address.String()+":80")
				require.Equal(t, 63, o.ttl(), "the cloud is one hop")
			}
		}
	}
}

func TestWhatAnInterfaceSendsLeavesFromItsExternalAddress(t *testing.T) {
	c := newFloating(t)
	for external, p := range map[string]*pod{"203.0.113.5": c.a1, "203.0.113.6": c.a2, "203.0.113.7": c.b1} {
		for _, s := range []segment{p.udp(80, outsider+":4000"), p.tcp(80, outsider+":4000", syn)} {
			require.Equal(t, 63, p.sends(s.frame()).leaves().is(external+":80", outsider+":4000").ttl())
		}
	}
}

// The source node knows where every external address is: nothing goes to the edge and back.
func TestInsideAnExternalAddressIsReachedWithoutTheOutside(t *testing.T) {
	c := newFloating(t)
	o := c.a1.sends(c.a1.udp(4000, "203.0.113.7:80").frame())
	require.Equal(t, 63, o.reaches(c.b1).is("203.0.113.5:4000", "10.0.1.11:80").ttl())
	c.b1.sends(c.b1.udp(80, "203.0.113.5:4000").frame()).reaches(c.a1).is("203.0.113.7:80", "10.0.1.11:4000")

	o = c.b1.sends(c.b1.tcp(4000, "203.0.113.6:80", syn).frame()).then()
	require.Equal(t, 63, o.reaches(c.a2).is("203.0.113.7:4000", "10.0.1.12:80").ttl())
	// Its own, as a neighbour would: the source is external, too.
	c.a1.sends(c.a1.udp(4000, "203.0.113.5:80").frame()).reaches(c.a1).is("203.0.113.5:4000", "10.0.1.11:80")
}

func TestAnExternalAddressThatNothingHasDrops(t *testing.T) {
	c := newFloating(t)
	n1, n2 := c.nodes[0], c.nodes[1]
	to := fromOutside(outsider+":4000", "203.0.113.99:80")
	n1.gets(to.frame()).isDropped(bpfDropReasonDROP_EXTERNAL_FREE)
	c.a1.sends(c.a1.udp(4000, "203.0.113.99:80").frame()).isDropped(bpfDropReasonDROP_EXTERNAL_FREE)
	n2.receives(n1.address, DefaultOutsideVNI, to.frame()).isDropped(bpfDropReasonDROP_EXTERNAL_FREE)
	n2.receives(n1.address, DefaultOutsideVNI, fromOutside(outsider+":4000", "192.0.2.2:22").frame()).isDropped(bpfDropReasonDROP_EXTERNAL_FREE)
}

func TestWithoutAnExternalAddressNothingLeaves(t *testing.T) {
	c := newFloating(t)
	c.a3.sends(c.a3.udp(4000, outsider+":80").frame()).isDropped(bpfDropReasonDROP_NO_EXTERNAL)
	c.a3.sends(c.a3.udp(4000, "203.0.113.6:80").frame()).isDropped(bpfDropReasonDROP_NO_EXTERNAL)
	// Another VPC's interface of the same address does not lend its own.
	c.b2.sends(c.b2.udp(4000, outsider+":80").frame()).isDropped(bpfDropReasonDROP_NO_EXTERNAL)
	// And without a route the address is of no use.
	for _, n := range c.nodes {
		require.NoError(t, n.Routes.Delete(RouteKey{1001, prefix("0.0.0.0/0")}))
	}
	c.a1.sends(c.a1.udp(4000, outsider+":80").frame()).isDropped(bpfDropReasonDROP_NO_ROUTE)
}

func TestHostsOfTheCloudAreNoOutside(t *testing.T) {
	c := newFloating(t)
	for _, host := range []string{"192.0.2.1:22", "192.0.2.2:4789"} {
		c.a1.sends(c.a1.udp(4000, host).frame()).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
	}
	c.table(1001, "192.0.2.0/24", 0, RouteReserved, nil)
	c.a1.sends(c.a1.udp(4000, "192.0.2.77:22").frame()).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
}

// The machine's own shell, and whoever shares the nodes' network, reach external addresses like anybody. They are answered; a tenant
// opens nothing towards them.
func TestAnInterfaceAnswersTheUnderlayAndOpensNothing(t *testing.T) {
	c := newFloating(t)
	c.table(1001, "192.0.2.0/24", 0, RouteReserved, nil)
	n1, n2 := c.nodes[0], c.nodes[1]
	for _, caller := range []string{"192.0.2.2", "192.0.2.77"} {
		answer := func() outcome { return c.a1.sends(c.a1.udp(80, caller+":4000").frame()) }
		answer().isDropped(bpfDropReasonDROP_RESERVED_RANGE)
		for _, n := range []*node{n1, n2} {
			if o := n.gets(fromOutside(caller+":4000", "203.0.113.5:80").frame()); n == n1 {
				o.reaches(c.a1)
			} else {
				o.then().reaches(c.a1)
			}
		}
		answer().leaves().is("203.0.113.5:80", caller+":4000")
		c.a1.sends(c.a1.udp(81, caller+":4000").frame()).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
		c.a1.sends(c.a1.udp(80, caller+":4001").frame()).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
		c.a1.sends(c.a1.tcp(80, caller+":4000", layers.TCP{ACK: true}).frame()).isDropped(bpfDropReasonDROP_RESERVED_RANGE)

		n1.gets(fromOutside(caller+":4000", "203.0.113.5:80").as(syn).frame()).reaches(c.a1)
		c.a1.sends(c.a1.tcp(80, caller+":4000", syn).frame()).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
		c.a1.sends(c.a1.tcp(80, caller+":4000", layers.TCP{SYN: true, ACK: true}).frame()).leaves().is("203.0.113.5:80", caller+":4000")
		n1.gets(fromOutside(caller+":4000", "203.0.113.5:80").as(layers.TCP{FIN: true, ACK: true}).frame()).reaches(c.a1)
		c.a1.sends(c.a1.tcp(80, caller+":4000", layers.TCP{FIN: true, ACK: true}).frame()).leaves()
		n1.gets(fromOutside(caller+":4000", "203.0.113.5:80").as(syn).frame()).reaches(c.a1)
		c.a1.sends(c.a1.tcp(80, caller+":4000", layers.TCP{SYN: true, ACK: true}).frame()).leaves()

		request, reply := layers.CreateICMPv4TypeCode(8, 0), layers.CreateICMPv4TypeCode(0, 0)
		c.a1.sends(c.a1.icmp(caller, reply)).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
		n1.gets(build(ethernet(routerMAC, uplinkMAC, layers.EthernetTypeIPv4), ipv4(addr(caller), addr("203.0.113.5"), layers.IPProtocolICMPv4),
			&layers.ICMPv4{TypeCode: request, Id: 3}, gopacket.Payload("0123456789"))).reaches(c.a1)
		require.Equal(t, "203.0.113.5 > "+caller, c.a1.sends(c.a1.icmp(caller, reply)).leaves().addresses())
		c.a1.sends(c.a1.icmp(caller, request)).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
		// Another VPC's interface of the same address was not called.
		for _, n := range c.nodes {
			require.NoError(t, n.Routes.Set(RouteKey{2001, prefix("192.0.2.0/24")}, Route{Kind: RouteReserved}))
		}
		c.b1.sends(c.b1.udp(80, caller+":4000").frame()).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
	}
}

func TestTheOutsideCannotSendFromTheCloudsAddresses(t *testing.T) {
	c := newFloating(t)
	for _, source := range []string{
		"198.18.0.11:4000", "198.19.0.10:80", "169.254.66.2:4000", "169.254.0.1:80", "203.0.113.6:4000", "203.0.113.99:4000",
		"127.0.0.1:80", "0.0.0.0:80", "224.0.0.1:80", "255.255.255.255:80",
	} {
		c.nodes[0].gets(fromOutside(source, "203.0.113.5:80").frame()).isDropped(bpfDropReasonDROP_OUTSIDE_SOURCE)
	}
}

func TestTheUplinkLeavesToTheHostWhatIsTheHosts(t *testing.T) {
	c := newFloating(t)
	require.NoError(t, c.nodes[0].Externals.Set(prefix("192.0.2.0/24"), External{})) // nonsense, but the node's own address is sacred
	eth := ethernet(routerMAC, uplinkMAC, layers.EthernetTypeIPv4)
	other := fromOutside(outsider+":4000", "203.0.113.5:80")
	other.destinationMAC = MAC{2, 0, 0, 0, 0, 77}
	tagged := &layers.Dot1Q{VLANIdentifier: 5, Type: layers.EthernetTypeIPv4}
	for name, frame := range map[string][]byte{
		"to the node":              fromOutside(outsider+":4000", "192.0.2.1:4789").frame(),
		"to elsewhere":             fromOutside(outsider+":4000", "198.51.100.77:80").frame(),
		"another's, by flooding":   other.frame(),
		"ARP":                      build(ethernet(routerMAC, broadcastMAC, layers.EthernetTypeARP), c.a1.arp(layers.ARPRequest, "192.0.2.9", "192.0.2.1")),
		"IPv6":                     build(ethernet(routerMAC, uplinkMAC, layers.EthernetTypeIPv6), gopacket.Payload(make([]byte, 60))),
		"a VLAN's":                 build(ethernet(routerMAC, uplinkMAC, layers.EthernetTypeDot1Q), tagged, ipv4(addr(outsider), addr("203.0.113.5"), 17), gopacket.Payload(make([]byte, 40))),
		"too short for an address": build(eth, gopacket.Payload{0x45, 0, 0, 20}),
	} {
		t.Log(name)
		o := c.nodes[0].gets(frame)
		require.Zero(t, o.drop)
		require.Equal(t, bpfTraceTargetTRACE_STACK, o.target)
	}
}

func TestBrokenPacketsForExternalAddressesDrop(t *testing.T) {
	c := newFloating(t)
	frame := fromOutside(outsider+":4000", "203.0.113.5:80").frame()
	frame[14] = 0x44 // a header of 16 bytes
	c.nodes[0].gets(frame).isDropped(bpfDropReasonDROP_MALFORMED)
	// A first fragment without the checksum that it is to have (RFC 1858).
	tiny := build(ethernet(routerMAC, uplinkMAC, layers.EthernetTypeIPv4), func() *layers.IPv4 {
		ip := ipv4(addr(outsider), addr("203.0.113.5"), layers.IPProtocolTCP)
		ip.Flags = layers.IPv4MoreFragments
		return ip
	}(), gopacket.Payload(make([]byte, 8)))
	c.nodes[0].gets(tiny).isDropped(bpfDropReasonDROP_MALFORMED)
}

func TestTheDestinationsSecurityGroupsSeeTheOutsidesAddress(t *testing.T) {
	c := newFloating(t)
	set := func(p *pod, in, out []Rule) {
		number := func(rules []Rule) PolicyID {
			id, err := p.node.Policies.Number(Policy{Rules: rules})
			require.NoError(t, err)
			return id
		}
		p.nic.IngressPolicy, p.nic.EgressPolicy = number(in), number(out)
		require.NoError(t, p.node.NICs.Set(uint32(p.ifindex), p.nic))
	}
	from := func(s string) []Rule { return []Rule{{Peers: []Peer{{Prefix: prefix(s)}}}} }
	set(c.a2, from("198.51.100.0/28"), from("198.51.100.0/28"))
	n1, n2 := c.nodes[0], c.nodes[1]
	n2.gets(fromOutside(outsider+":4000", "203.0.113.6:80").frame()).reaches(c.a2)
	n1.gets(fromOutside(outsider+":4000", "203.0.113.6:80").frame()).then().reaches(c.a2)
	n2.gets(fromOutside("198.51.100.200:4000", "203.0.113.6:80").frame()).isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	n1.gets(fromOutside("198.51.100.200:4000", "203.0.113.6:80").frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a2.sends(c.a2.udp(9, outsider+":53").frame()).leaves()
	c.a2.sends(c.a2.udp(9, "198.51.100.200:53").frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
	// Inside, the source is the external address: a rule for the VPC's own range does not admit it.
	set(c.a2, from("10.0.1.0/24"), nil)
	c.a1.sends(c.a1.udp(9, "203.0.113.6:80").frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	set(c.a2, from("203.0.113.5/32"), nil)
	c.a1.sends(c.a1.udp(9, "203.0.113.6:80").frame()).then().reaches(c.a2)
	// What answers a connection that came in passes.
	c.a2.sends(c.a2.udp(80, "203.0.113.5:9").frame()).then().reaches(c.a1)
}

func TestAFirewallMaySendOnFromAnothersExternalAddress(t *testing.T) {
	c := newFloating(t)
	c.forwarding(c.a3)
	c.table(1001, "0.0.0.0/0", 0, RouteHop, c.a3)
	c.a1.sends(c.a1.udp(4000, outsider+":80").frame()).reaches(c.a3)
	c.a3.sends(c.a1.udp(4000, outsider+":80").from(c.a3).frame()).leaves().is("203.0.113.5:4000", outsider+":80")
	strange := c.a1.udp(4000, outsider+":80").from(c.a3)
	strange.source = addrPortOf("172.16.0.9:4000")
	c.a3.sends(strange.frame()).isDropped(bpfDropReasonDROP_NO_EXTERNAL)
}

func TestOnlyTheMemberThatHasAnExternalAddressSendsFromIt(t *testing.T) {
	c := newFloating(t)
	n1, n2 := c.nodes[0], c.nodes[1]
	send := func() outcome { return c.a1.sends(c.a1.udp(4000, "203.0.113.6:80").frame()).then() }
	send().reaches(c.a2)
	moved := External{Kind: ExternalFloating, Target: EndpointKey{1001, c.a1.nic.Address}, VPCID: 7, Node: addr("192.0.2.3")}
	require.NoError(t, n2.Externals.Set(prefix("203.0.113.5/32"), moved))
	send().isDropped(bpfDropReasonDROP_STALE_SOURCE)
	require.NoError(t, n2.Externals.Delete(prefix("203.0.113.5/32")))
	send().isDropped(bpfDropReasonDROP_STALE_SOURCE)
	// A member sends on what came to it from outside, to what is there only.
	s := fromOutside(outsider+":4000", "203.0.113.5:80")
	n2.receives(n1.address, DefaultOutsideVNI, s.frame()).isDropped(bpfDropReasonDROP_EXTERNAL_FREE)
	require.NoError(t, n2.Externals.Set(prefix("203.0.113.5/32"), moved))
	n2.receives(n1.address, DefaultOutsideVNI, s.frame()).isDropped(bpfDropReasonDROP_NOT_LOCAL)
	n2.receives(addr("192.0.2.77"), DefaultOutsideVNI, s.frame()).isDropped(bpfDropReasonDROP_UNKNOWN_MEMBER)
}

func TestAnExternalAddressWhoseTargetIsNotThereDrops(t *testing.T) {
	c := newFloating(t)
	n := c.nodes[0]
	get := func() outcome { return n.gets(fromOutside(outsider+":4000", "203.0.113.5:80").frame()) }
	key := EndpointKey{1001, c.a1.nic.Address}
	require.NoError(t, n.Endpoints.Set(key, Endpoint{VPCID: 8, MAC: c.a1.nic.MAC, Ifindex: uint32(c.a1.ifindex)}))
	get().isDropped(bpfDropReasonDROP_OTHER_VPC)
	require.NoError(t, n.Endpoints.Set(key, Endpoint{VPCID: 7, MAC: c.a1.nic.MAC, Ifindex: uint32(c.b1.ifindex)}))
	get().isDropped(bpfDropReasonDROP_DESTINATION_CHECK)
	require.NoError(t, n.Endpoints.Set(key, Endpoint{VPCID: 7, MAC: c.a1.nic.MAC, Node: addr("192.0.2.2")}))
	get().isDropped(bpfDropReasonDROP_NOT_LOCAL)
	require.NoError(t, n.Endpoints.Delete(key))
	get().isDropped(bpfDropReasonDROP_NO_ENDPOINT)
}

// Whatever the protocol is, a FloatingIP translates addresses, and keeps no state: fragments pass in any order.
func TestFragmentsAndOtherProtocolsPassAFloatingIP(t *testing.T) {
	c := newFloating(t)
	whole := fromOutside(outsider+":4000", "203.0.113.5:80")
	whole.size = 64
	packet := whole.frame()
	body := packet[34:]
	fragment := func(macs [2]MAC, from, to string, body []byte, offset uint16, more bool) []byte {
		ip := ipv4(addr(from), addr(to), layers.IPProtocolUDP)
		ip.FragOffset = offset
		if more {
			ip.Flags = layers.IPv4MoreFragments
		}
		return build(ethernet(macs[0], macs[1], layers.EthernetTypeIPv4), ip, gopacket.Payload(body))
	}
	in := [2]MAC{routerMAC, uplinkMAC}
	last := c.nodes[0].gets(fragment(in, outsider, "203.0.113.5", body[40:], 5, false)).reaches(c.a1)
	first := c.nodes[0].gets(fragment(in, outsider, "203.0.113.5", body[:40], 0, true)).reaches(c.a1)
	require.Equal(t, outsider+" > 10.0.1.11", last.addresses())
	joined := append(append([]byte{}, first.frame[34:]...), last.frame[34:]...)
	expected := segment{source: addrPortOf(outsider + ":4000"), destination: addrPortOf("10.0.1.11:80"), size: 64}.frame()
	require.Equal(t, expected[34:], joined, "the datagram's checksum is that of its new addresses")

	out := [2]MAC{c.a1.nic.MAC, c.a1.nic.GatewayMAC}
	first = c.a1.sends(fragment(out, "10.0.1.11", outsider, expected[34:74], 0, true)).leaves()
	require.Equal(t, "203.0.113.5 > "+outsider, first.addresses())
	require.Equal(t, "203.0.113.5 > "+outsider, c.a1.sends(fragment(out, "10.0.1.11", outsider, body[40:], 5, false)).leaves().addresses())

	for _, protocol := range []layers.IPProtocol{115, 253} /* L2TPv3, and one for experiments */ {
		raw := func(source, destination MAC, from, to netip.Addr) []byte {
			return build(ethernet(source, destination, layers.EthernetTypeIPv4), ipv4(from, to, protocol), gopacket.Payload(make([]byte, 40)))
		}
		require.Equal(t, outsider+" > 10.0.1.11", c.nodes[0].gets(raw(routerMAC, uplinkMAC, addr(outsider), addr("203.0.113.5"))).reaches(c.a1).addresses())
		require.Equal(t, "203.0.113.5 > "+outsider, c.a1.sends(raw(c.a1.nic.MAC, c.a1.nic.GatewayMAC, c.a1.nic.Address, addr(outsider))).leaves().addresses())
	}
}

func TestAUDPChecksumOfZeroStaysZeroUnderAFloatingIP(t *testing.T) {
	c := newFloating(t)
	checksum := func(o outcome) uint16 {
		_, packet := o.parse()
		return packet.Layer(layers.LayerTypeUDP).(*layers.UDP).Checksum
	}
	in, out := fromOutside(outsider+":4000", "203.0.113.5:80").frame(), c.a1.udp(80, outsider+":4000").frame()
	require.NotZero(t, checksum(c.nodes[0].gets(in).reaches(c.a1)))
	in[40], in[41], out[40], out[41] = 0, 0, 0, 0
	require.Zero(t, checksum(c.nodes[0].gets(in).reaches(c.a1).is(outsider+":4000", "10.0.1.11:80")))
	require.Zero(t, checksum(c.a1.sends(out).leaves().is("203.0.113.5:80", outsider+":4000")))
}
