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
