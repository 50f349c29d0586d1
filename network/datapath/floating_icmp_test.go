package datapath

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// icmpAbout is an ICMP error from a router about a packet.
func icmpAbout(eth *layers.Ethernet, from, to string, kind layers.ICMPv4TypeCode, about []byte) []byte {
	return build(eth, ipv4(addr(from), addr(to), layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: kind}, gopacket.Payload(about))
}

// quoted is the packet in an outcome's ICMP error, and its checksums are right.
func (o outcome) quoted() string {
	o.t.Helper()
	_, packet := o.parse()
	icmp := packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
	inner := gopacket.NewPacket(icmp.Payload, layers.LayerTypeIPv4, gopacket.Default)
	ip := inner.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(icmp.Payload[i:]))
	}
	require.EqualValues(o.t, 0xffff, sum&0xffff+sum>>16, "the quoted header's checksum is wrong")
	return ip.SrcIP.String() + " > " + ip.DstIP.String()
}

func TestICMPErrorsAreTranslatedInsideToo(t *testing.T) {
	c := newFloating(t)
	tooBig := layers.CreateICMPv4TypeCode(3, 4)
	// What a1 sent was too long for a router outside.
	sent := c.a1.sends(c.a1.udp(4000, outsider+":80").frame()).leaves().frame[14:]
	in := ethernet(routerMAC, uplinkMAC, layers.EthernetTypeIPv4)
	for _, about := range [][]byte{sent, sent[:28]} {
		o := c.nodes[1].gets(icmpAbout(in, "198.51.100.1", "203.0.113.5", tooBig, about)).then().reaches(c.a1)
		require.Equal(t, "198.51.100.1 > 10.0.1.11", o.addresses())
		require.Equal(t, "10.0.1.11 > "+outsider, o.quoted())
	}
	// The quoted datagram is as a1 sent it, down to the checksum; but for the time to live.
	o := c.nodes[0].gets(icmpAbout(in, "198.51.100.1", "203.0.113.5", tooBig, sent)).reaches(c.a1)
	require.Equal(t, c.a1.udp(4000, outsider+":80").frame()[34:], o.frame[14+20+8+20:])

	// a1 has nothing at the port that the outside asked for.
	got := c.nodes[0].gets(fromOutside(outsider+":4000", "203.0.113.5:80").frame()).reaches(c.a1).frame[14:]
	out := ethernet(c.a1.nic.MAC, c.a1.nic.GatewayMAC, layers.EthernetTypeIPv4)
	o = c.a1.sends(icmpAbout(out, "10.0.1.11", outsider, layers.CreateICMPv4TypeCode(3, 3), got)).leaves()
	require.Equal(t, "203.0.113.5 > "+outsider, o.addresses())
	require.Equal(t, outsider+" > 203.0.113.5", o.quoted())

	// What is quoted and cannot be of the interface's, or is cut short, stays as it is.
	other := fromOutside(outsider+":4000", "198.51.100.77:80").frame()[14:]
	require.Equal(t, outsider+" > 198.51.100.77", c.nodes[0].gets(icmpAbout(in, "198.51.100.1", "203.0.113.5", tooBig, other)).reaches(c.a1).quoted())
	require.Equal(t, "203.0.113.5 > "+outsider, c.nodes[0].gets(icmpAbout(in, "198.51.100.1", "203.0.113.5", tooBig, sent[:24])).reaches(c.a1).quoted())
	// Of TCP, and of a later fragment, addresses are.
	tcp := c.a1.sends(c.a1.tcp(4000, outsider+":80", syn).frame()).leaves().frame[14:]
	require.Equal(t, "10.0.1.11 > "+outsider, c.nodes[0].gets(icmpAbout(in, "198.51.100.1", "203.0.113.5", tooBig, tcp)).reaches(c.a1).quoted())
}

func TestAPolicyLetsErrorsAboutItsOwnFlowsIn(t *testing.T) {
	c := newFloating(t)
	id, err := c.nodes[0].Policies.Number(Policy{})
	require.NoError(t, err)
	c.a1.nic.IngressPolicy = id
	require.NoError(t, c.nodes[0].NICs.Set(uint32(c.a1.ifindex), c.a1.nic))
	in := ethernet(routerMAC, uplinkMAC, layers.EthernetTypeIPv4)
	sent := c.a1.sends(c.a1.udp(4000, outsider+":80").frame()).leaves().frame[14:]
	c.nodes[0].gets(icmpAbout(in, "198.51.100.1", "203.0.113.5", layers.CreateICMPv4TypeCode(11, 0), sent)).reaches(c.a1)
	strange := fromOutside("203.0.113.5:9", outsider+":80").frame()[14:]
	c.nodes[0].gets(icmpAbout(in, "198.51.100.1", "203.0.113.5", layers.CreateICMPv4TypeCode(11, 0), strange)).isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
}

// https://github.com/cilium/cilium/issues/29583
func TestTheOutsideIsToldOfWhatIsTooLongByTheExternalAddress(t *testing.T) {
	c := newFloating(t)
	long := fromOutside(outsider+":4000", "203.0.113.5:80")
	long.size = 1460
	c.nodes[1].gets(long.frame()).isDropped(bpfDropReasonDROP_MTU_EXCEEDED) // it may be fragmented, and nobody does
	dont := func(ip *layers.IPv4) { ip.Flags = layers.IPv4DontFragment }
	for _, n := range c.nodes {
		o := n.gets(long.with(dont).frame()).isToldOutside(bpfDropReasonDROP_MTU_EXCEEDED)
		require.Equal(t, "203.0.113.5 > "+outsider, o.addresses())
		require.Equal(t, outsider+" > 203.0.113.5", o.quoted())
		_, packet := o.parse()
		icmp := packet.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		require.Equal(t, layers.CreateICMPv4TypeCode(3, 4), icmp.TypeCode)
		require.EqualValues(t, 1450, icmp.Seq, "the MTU (RFC 1191)")
	}
	long.size = 1422
	c.nodes[0].gets(long.with(dont).frame()).reaches(c.a1)
	// From inside it is the gateway that tells.
	big := c.a1.udp(4000, outsider+":80").with(dont)
	big.size = 1460
	require.Equal(t, "10.0.1.1 > 10.0.1.11", c.a1.sends(big.frame()).isToldTo(c.a1, bpfDropReasonDROP_MTU_EXCEEDED).addresses())
}

func TestATimeToLiveEndsBeforeTheTranslation(t *testing.T) {
	c := newFloating(t)
	last := func(ip *layers.IPv4) { ip.TTL = 1 }
	o := c.nodes[1].gets(fromOutside(outsider+":4000", "203.0.113.5:80").with(last).frame()).isToldOutside(bpfDropReasonDROP_TTL_EXCEEDED)
	require.Equal(t, "203.0.113.5 > "+outsider, o.addresses())
	o = c.a1.sends(c.a1.udp(4000, outsider+":80").with(last).frame()).isToldTo(c.a1, bpfDropReasonDROP_TTL_EXCEEDED)
	require.Equal(t, "10.0.1.1 > 10.0.1.11", o.addresses())
	require.Equal(t, "10.0.1.11 > "+outsider, o.quoted())
}

func TestWhatTheOutsideIsToldIsBoundedForEachExternalAddress(t *testing.T) {
	c := newFloating(t)
	last := func(ip *layers.IPv4) { ip.TTL = 1 }
	get := func() outcome {
		return c.nodes[0].gets(fromOutside(outsider+":4000", "203.0.113.5:80").with(last).frame())
	}
	require.True(t, get().told)
	busy := uint64(c.nodes[0].seconds()+600) * uint64(time.Second) // so many were told that the next is due in ten minutes
	require.NoError(t, c.nodes[0].collection.Maps[bpfMapErrorTimes].Put(addr("203.0.113.5").As4(), busy))
	get().isDropped(bpfDropReasonDROP_TTL_EXCEEDED)
	require.True(t, c.nodes[0].gets(fromOutside(outsider+":4000", "203.0.113.7:80").with(last).frame()).told, "another's is its own")
}
