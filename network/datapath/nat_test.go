package datapath

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// newShared is two nodes of VPC a, whose Subnet 1001 a NATGateway serves with a block on each.
func newShared(t testing.TB) (*tenants, *nat) {
	c := newTenants(t)
	g := newGateway(c.cloud, 1001, 1002, 2001)
	g.gives(c.nodes[0], block(shared, 1024), 1001)
	g.gives(c.nodes[1], block(shared, 1536), 1001)
	return c, g
}

// externalPort is the source port of what left the cloud, or the identifier of a ping.
func (o outcome) externalPort() uint16 {
	o.t.Helper()
	_, packet := o.parse()
	require.Equal(o.t, shared, packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4).SrcIP.String())
	if icmp, ok := packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok {
		return icmp.Id
	}
	port, err := strconv.ParseUint(packet.TransportLayer().TransportFlow().Src().String(), 10, 16)
	require.NoError(o.t, err)
	return uint16(port)
}

func at(address string, port uint16) string {
	return netip.AddrPortFrom(addr(address), port).String()
}

func TestWhatAServedSubnetSendsLeavesFromTheGatewaysAddressAndIsAnswered(t *testing.T) {
	c, _ := newShared(t)
	for _, p := range []*pod{c.a1, c.a2} {
		for _, s := range []segment{p.udp(4000, outsider+":53"), p.tcp(4001, outsider+":80", syn)} {
			o := p.sends(s.frame()).leaves()
			port := o.externalPort()
			require.Contains(t, p.node.blocks(t, 1001), blockOf(netip.AddrPortFrom(addr(shared), port)))
			require.Equal(t, 63, o.ttl())
			answer := fromOutside(s.destination.String(), at(shared, port))
			if s.tcp != nil {
				answer = answer.as(layers.TCP{SYN: true, ACK: true})
			}
			for _, n := range c.nodes { // by whatever node it comes in
				back := n.gets(answer.frame())
				if n != p.node {
					require.EqualValues(t, DefaultOutsideVNI, back.trace.Vni)
					back = back.then()
				}
				back.reaches(p).is(s.destination.String(), s.source.String())
				require.Equal(t, 63, back.ttl())
			}
			require.Equal(t, port, p.sends(s.frame()).leaves().externalPort(), "the flow keeps its port")
		}
	}
}

// blocks are those that a Subnet has on a node.
func (n *node) blocks(t testing.TB, vni uint32) []PortBlock {
	slots, err := n.NAT.slots.List()
	require.NoError(t, err)
	var blocks []PortBlock
	for slot, b := range slots {
		if slot.vni == vni {
			blocks = append(blocks, b)
		}
	}
	return blocks
}

func TestPingLeavesByAGatewayAndIsAnswered(t *testing.T) {
	c, _ := newShared(t)
	o := c.a1.sends(c.a1.icmp(outsider, layers.CreateICMPv4TypeCode(8, 0))).leaves()
	id := o.externalPort()
	require.Contains(t, c.nodes[0].blocks(t, 1001), blockOf(netip.AddrPortFrom(addr(shared), id)))
	reply := func(id uint16) []byte {
		return build(ethernet(routerMAC, uplinkMAC, layers.EthernetTypeIPv4), ipv4(addr(outsider), addr(shared), layers.IPProtocolICMPv4),
			&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(0, 0), Id: id, Seq: 1}, gopacket.Payload("0123456789"))
	}
	back := c.nodes[1].gets(reply(id)).then().reaches(c.a1)
	require.Equal(t, outsider+" > 10.0.1.11", back.addresses())
	_, packet := back.parse()
	require.EqualValues(t, 3, packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4).Id)
	c.nodes[0].gets(reply(id + 1)).isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)
}

func TestWhatAGatewayDoesNotServeDoesNotUseIt(t *testing.T) {
	c, _ := newShared(t)
	for _, p := range []*pod{c.a3, c.a4, c.b1, c.b2} { // another Subnet of the VPC, another VPC of the same addresses
		p.sends(p.udp(4000, outsider+":53").frame()).isDropped(bpfDropReasonDROP_NO_EXTERNAL)
	}
	for _, host := range []string{"192.0.2.1:22", "192.0.2.2:4789"} {
		c.a1.sends(c.a1.udp(4000, host).frame()).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
	}
	c.a1.sends(c.a1.udp(4000, "203.0.113.99:80").frame()).isDropped(bpfDropReasonDROP_EXTERNAL_FREE)
}

func TestAFloatingIPBeatsTheGateway(t *testing.T) {
	c, _ := newShared(t)
	c.floating(c.a1, "203.0.113.5")
	c.a1.sends(c.a1.udp(4000, outsider+":53").frame()).leaves().is("203.0.113.5:4000", outsider+":53")
	c.nodes[0].gets(fromOutside(outsider+":53", "203.0.113.5:4000").frame()).reaches(c.a1)
	c.a2.sends(c.a2.udp(4000, outsider+":53").frame()).leaves().externalPort()
}

// RFC 4787, REQ-1 and REQ-8: one port has one external port whoever it speaks with, and only those answer.
func TestAPortHasOneExternalPortAndIsAnsweredByThoseItSpeaksWith(t *testing.T) {
	c, _ := newShared(t)
	n := c.nodes[0]
	port := c.a1.sends(c.a1.udp(4000, outsider+":53").frame()).leaves().externalPort()
	for _, other := range []string{outsider + ":54", "198.51.100.10:53"} {
		n.gets(fromOutside(other, at(shared, port)).frame()).isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)
		require.Equal(t, port, c.a1.sends(c.a1.udp(4000, other).frame()).leaves().externalPort())
		n.gets(fromOutside(other, at(shared, port)).frame()).reaches(c.a1)
	}
	require.NotEqual(t, port, c.a1.sends(c.a1.udp(4001, outsider+":53").frame()).leaves().externalPort(), "another port has another")
	n.gets(fromOutside(outsider+":53", at(shared, port)).as(syn).frame()).isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)
	n.gets(fromOutside(outsider+":53", at(shared, port+1)).frame()).isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)
	n.gets(fromOutside(outsider+":53", at(shared, 40000)).frame()).isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW) // nobody's block
	n.gets(fromOutside(outsider+":53", at(shared, 80)).frame()).isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)
}

func TestTheSamePortsOfTwoVPCsAreNotConfused(t *testing.T) {
	c, g := newShared(t)
	const other = "203.0.113.78"
	g.gives(c.nodes[0], block(other, 1024), 2001)
	g.gives(c.nodes[1], block(other, 2048), 2001)
	remote := outsider + ":53"
	for _, pair := range [][2]*pod{{c.a1, c.b1}, {c.a2, c.b2}} {
		for _, p := range pair {
			o := p.sends(p.udp(4000, remote).frame()).leaves()
			_, packet := o.parse()
			external := packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4).SrcIP.String()
			require.Equal(t, map[uint32]string{7: shared, 8: other}[p.nic.VPCID], external)
			back := at(external, uint16(packet.Layer(layers.LayerTypeUDP).(*layers.UDP).SrcPort))
			for _, n := range c.nodes {
				if in := n.gets(fromOutside(remote, back).frame()); n == p.node {
					in.reaches(p)
				} else {
					in.then().reaches(p)
				}
			}
		}
	}
}

func TestOnlyTCPUDPAndPingLeaveByAGateway(t *testing.T) {
	c, _ := newShared(t)
	for _, protocol := range []layers.IPProtocol{47, 253} {
		out := build(ethernet(c.a1.nic.MAC, c.a1.nic.GatewayMAC, layers.EthernetTypeIPv4), ipv4(c.a1.nic.Address, addr(outsider), protocol), gopacket.Payload(make([]byte, 40)))
		c.a1.sends(out).isDropped(bpfDropReasonDROP_NAT_PROTOCOL)
		in := build(ethernet(routerMAC, uplinkMAC, layers.EthernetTypeIPv4), ipv4(addr(outsider), addr(shared), protocol), gopacket.Payload(make([]byte, 40)))
		c.nodes[0].gets(in).isDropped(bpfDropReasonDROP_NAT_PROTOCOL)
	}
	for _, kind := range []uint8{13, 5} { // a timestamp, a redirect
		c.a1.sends(c.a1.icmp(outsider, layers.CreateICMPv4TypeCode(kind, 0))).isDropped(bpfDropReasonDROP_NAT_PROTOCOL)
	}
	// What answers nothing, or ends nothing.
	c.a1.sends(c.a1.icmp(outsider, layers.CreateICMPv4TypeCode(0, 0))).isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)
	c.a1.sends(c.a1.tcp(4000, outsider+":80", layers.TCP{RST: true}).frame()).isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)
}

func TestICMPErrorsAboutAGatewaysFlowsPassBothWays(t *testing.T) {
	c, _ := newShared(t)
	tooBig, unreachable := layers.CreateICMPv4TypeCode(3, 4), layers.CreateICMPv4TypeCode(3, 3)
	in := ethernet(routerMAC, uplinkMAC, layers.EthernetTypeIPv4)
	out := ethernet(c.a1.nic.MAC, c.a1.nic.GatewayMAC, layers.EthernetTypeIPv4)
	udp, tcp := c.a1.udp(4000, outsider+":80").frame(), c.a1.tcp(4000, outsider+":80", syn).frame()
	for _, frame := range [][]byte{udp, tcp, c.a1.icmp(outsider, layers.CreateICMPv4TypeCode(8, 0))} {
		sent := c.a1.sends(frame).leaves().frame[14:]
		for _, n := range c.nodes {
			o := n.gets(icmpAbout(in, "198.51.100.1", shared, tooBig, sent)) // from a router on the way
			if n == c.nodes[1] {
				o = o.then()
			}
			o.reaches(c.a1)
			require.Equal(t, "198.51.100.1 > 10.0.1.11", o.addresses())
			require.Equal(t, "10.0.1.11 > "+outsider, o.quoted())
			quote := o.frame[14+20+8:]
			if frame[23] == 6 { // nobody looks at a quoted TCP checksum
				quote = quote[:28]
			}
			require.Equal(t, frame[34:][:len(quote)-20], quote[20:], "the packet is quoted as it was sent, but for the time to live")
		}
	}
	// What is cut short as RFC 792 allows, and about nothing.
	sent := c.a1.sends(udp).leaves()
	port := sent.externalPort()
	c.nodes[0].gets(icmpAbout(in, "198.51.100.1", shared, tooBig, sent.frame[14:][:28])).reaches(c.a1)
	strange := fromOutside(at(shared, port), "198.51.100.77:80").frame()[14:]
	c.nodes[0].gets(icmpAbout(in, "198.51.100.1", shared, tooBig, strange)).isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)

	// The interface has nothing at its port any more.
	got := c.nodes[0].gets(fromOutside(outsider+":80", at(shared, port)).frame()).reaches(c.a1).frame[14:]
	o := c.a1.sends(icmpAbout(out, "10.0.1.11", outsider, unreachable, got)).leaves()
	require.Equal(t, shared+" > "+outsider, o.addresses())
	require.Equal(t, outsider+" > "+shared, o.quoted())
	answer := fromOutside(outsider+":80", at(shared, port)).frame()
	require.Equal(t, answer[34:], o.frame[14+20+8+20:], "the answer is quoted as it came")
	stranger := fromOutside(outsider+":81", "10.0.1.11:4000").frame()[14:]
	c.a1.sends(icmpAbout(out, "10.0.1.11", outsider, unreachable, stranger)).isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)
}

// piece is a part of an IP packet's body.
func piece(macs [2]MAC, from, to string, protocol layers.IPProtocol, body []byte, at int, more bool) []byte {
	ip := ipv4(addr(from), addr(to), protocol)
	ip.FragOffset = uint16(at / 8)
	if more {
		ip.Flags = layers.IPv4MoreFragments
	}
	return build(ethernet(macs[0], macs[1], layers.EthernetTypeIPv4), ip, gopacket.Payload(body))
}

func TestFragmentsPassAGatewayAfterTheirFirst(t *testing.T) {
	c, _ := newShared(t)
	out, in := [2]MAC{c.a1.nic.MAC, c.a1.nic.GatewayMAC}, [2]MAC{routerMAC, uplinkMAC}
	s := c.a1.udp(4000, outsider+":80")
	s.size = 64
	body := s.frame()[34:]
	c.a1.sends(piece(out, "10.0.1.11", outsider, 17, body[40:], 40, false)).isDropped(bpfDropReasonDROP_UNKNOWN_FRAGMENT)
	first := c.a1.sends(piece(out, "10.0.1.11", outsider, 17, body[:40], 0, true)).leaves()
	last := c.a1.sends(piece(out, "10.0.1.11", outsider, 17, body[40:], 40, false)).leaves()
	require.Equal(t, shared+" > "+outsider, last.addresses())
	port := c.a1.sends(s.frame()).leaves().externalPort()
	joined := append(append([]byte{}, first.frame[34:]...), last.frame[34:]...)
	whole := segment{source: addrPortOf(at(shared, port)), destination: s.destination, size: 64}.frame()
	require.Equal(t, whole[34:], joined, "ports and checksum are those of its new source")

	answer := fromOutside(outsider+":80", at(shared, port))
	answer.size = 64
	body = answer.frame()[34:]
	n := c.nodes[1] // both nodes learn from the first
	n.gets(piece(in, outsider, shared, 17, body[40:], 40, false)).isDropped(bpfDropReasonDROP_UNKNOWN_FRAGMENT)
	first = n.gets(piece(in, outsider, shared, 17, body[:40], 0, true)).then().reaches(c.a1)
	last = n.gets(piece(in, outsider, shared, 17, body[40:], 40, false)).then().reaches(c.a1)
	joined = append(append([]byte{}, first.frame[34:]...), last.frame[34:]...)
	whole = segment{source: s.destination, destination: s.source, size: 64}.frame()
	require.Equal(t, whole[34:], joined)

	tiny := c.a1.tcp(4000, outsider+":80", syn).frame()[34:][:16]
	c.a1.sends(piece(out, "10.0.1.11", outsider, 6, tiny, 0, true)).isDropped(bpfDropReasonDROP_MALFORMED) // RFC 1858
}

func TestAUDPChecksumOfZeroStaysZeroByAGateway(t *testing.T) {
	c, _ := newShared(t)
	checksum := func(o outcome) uint16 {
		_, packet := o.parse()
		return packet.Layer(layers.LayerTypeUDP).(*layers.UDP).Checksum
	}
	out := c.a1.udp(4000, outsider+":80").frame()
	sent := c.a1.sends(out).leaves()
	in := fromOutside(outsider+":80", at(shared, sent.externalPort())).frame()
	require.NotZero(t, checksum(sent))
	in[40], in[41], out[40], out[41] = 0, 0, 0, 0
	require.Zero(t, checksum(c.a1.sends(out).leaves()))
	require.Zero(t, checksum(c.nodes[0].gets(in).reaches(c.a1)))
}
