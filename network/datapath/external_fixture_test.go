package datapath

import (
	"net/netip"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

var (
	uplinkMAC = MAC{2, 0, 0, 0, 0, 13}
	routerMAC = MAC{2, 0, 0, 0, 0, 99}
)

const (
	pool     = "203.0.113.0/24"
	outsider = "198.51.100.9"
)

// outside gives every node the pool, and Subnets a route out of the cloud.
func (c *cloud) outside(vnis ...uint32) {
	for _, n := range c.nodes {
		require.NoError(c.t, n.Externals.Set(prefix(pool), External{}))
		for _, vni := range vnis {
			require.NoError(c.t, n.Routes.Set(RouteKey{vni, prefix("0.0.0.0/0")}, Route{Kind: RouteOutside}))
		}
	}
}

// floating gives an interface an external address.
func (c *cloud) floating(p *pod, external string) {
	for _, n := range c.nodes {
		e := External{Kind: ExternalFloating, Target: EndpointKey{p.nic.VNI, p.nic.Address}, VPCID: p.nic.VPCID, Node: p.node.address}
		if n == p.node {
			e.Node = netip.Addr{}
		}
		require.NoError(c.t, n.Externals.Set(prefix(external+"/32"), e))
		require.NoError(c.t, n.Floatings.Set(FloatingKey{p.nic.VPCID, p.nic.Address}, Floating{addr(external)}))
	}
}

// gets gives a frame to the program at the uplink.
func (n *node) gets(frame []byte) outcome {
	n.cloud.t.Helper()
	return n.run(bpfProgUplinkIngress, frame, skBuff{ifindex: uplinkIfindex}, bpfTrace{})
}

// fromOutside is a packet that arrives at an uplink.
func fromOutside(source, destination string) segment {
	return segment{sourceMAC: routerMAC, destinationMAC: uplinkMAC, source: addrPortOf(source), destination: addrPortOf(destination), size: 32}
}

func (s segment) as(tcp layers.TCP) segment {
	s.tcp = &tcp
	return s
}

func (s segment) with(change func(*layers.IPv4)) segment {
	s.ip = change
	return s
}

// leaves asserts that the packet goes out of the uplink.
func (o outcome) leaves() outcome {
	o.t.Helper()
	require.Zero(o.t, o.drop, "dropped: %s", o.drop)
	require.Equal(o.t, bpfTraceTargetTRACE_OUTSIDE, o.target)
	require.EqualValues(o.t, uplinkIfindex, o.trace.Ifindex)
	return o
}

// isToldOutside asserts that the packet from outside was dropped, and that its sender is told so.
func (o outcome) isToldOutside(reason bpfDropReason) outcome {
	o.t.Helper()
	require.Equal(o.t, Reason(reason).String(), o.drop.String())
	require.True(o.t, o.told, "the sender is not told")
	require.Equal(o.t, bpfTraceTargetTRACE_SENDER, o.target)
	require.EqualValues(o.t, uplinkIfindex, o.trace.Ifindex)
	eth, _ := o.parse()
	require.Equal(o.t, routerMAC.String(), eth.DstMAC.String())
	require.Equal(o.t, uplinkMAC.String(), eth.SrcMAC.String())
	return o
}

// addresses are those that the outcome's packet has, of whatever protocol.
func (o outcome) addresses() string {
	o.t.Helper()
	_, packet := o.parse()
	ip := packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	return ip.SrcIP.String() + " > " + ip.DstIP.String()
}
