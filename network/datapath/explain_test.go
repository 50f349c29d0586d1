package datapath

import (
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// Kinds of ICMP errors.
var (
	portUnreachable     = layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodePort)
	fragmentationNeeded = layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeFragmentationNeeded)
	timeExceeded        = layers.CreateICMPv4TypeCode(layers.ICMPv4TypeTimeExceeded, layers.ICMPv4CodeTTLExceeded)
)

// says asserts what an ICMP error is and who sends it to whom, and that it quotes a packet. Seq is the place of the MTU.
func (o outcome) says(kind layers.ICMPv4TypeCode, from, to string, frame []byte) *layers.ICMPv4 {
	o.t.Helper()
	icmp := o.comes(from, to).icmp()
	require.Equal(o.t, kind.String(), icmp.TypeCode.String())
	require.Equal(o.t, 64, o.ttl())
	_, packet := o.parse()
	require.Equal(o.t, frame[14:14+28], packet.Layer(layers.LayerTypeICMPv4).LayerPayload())
	return icmp
}

func dontFragment(ip *layers.IPv4) { ip.Flags = layers.IPv4DontFragment }

// https://github.com/cilium/cilium/issues/29583: an oversize packet was dropped, and no ICMP sent.
func TestTheSenderOfAnOversizePacketIsToldTheMTU(t *testing.T) {
	c := newProbed(t)
	for _, p := range []struct {
		from        *pod
		to, gateway string
	}{
		{c.a1, "10.0.1.12:80", "10.0.1.1"},
		{c.a1, "10.0.2.12:80", "10.0.1.1"},
		{c.web1, "198.18.0.12:80", "198.18.0.1"},
		{c.web1, "203.0.113.9:80", "198.18.0.1"},
		{c.a1, alias1 + ":4000", "10.0.1.1"},
	} {
		long := p.from.udp(4000, p.to)
		long.size, long.ip = 1450-28+1, dontFragment
		got := p.from.sends(long.frame()).isToldTo(p.from, bpfDropReasonDROP_MTU_EXCEEDED).
			says(fragmentationNeeded, p.gateway, p.from.nic.Address.String(), long.frame())
		require.EqualValues(t, 1450, got.Seq)
		require.Zero(t, got.Id)
		long.ip = nil // it may be fragmented, which nobody does here
		p.from.sends(long.frame()).isDropped(bpfDropReasonDROP_MTU_EXCEEDED)
	}
	// TCP, ping, and the host.
	tcp := c.a1.tcp(4000, "10.0.1.12:80", layers.TCP{ACK: true})
	tcp.size, tcp.ip = 1450, dontFragment
	c.a1.sends(tcp.frame()).isToldTo(c.a1, bpfDropReasonDROP_MTU_EXCEEDED).says(fragmentationNeeded, "10.0.1.1", "10.0.1.11", tcp.frame())
	ip := ipv4(c.a1.nic.Address, addr("10.0.1.12"), layers.IPProtocolICMPv4)
	dontFragment(ip)
	ping := build(ethernet(c.a1.nic.MAC, c.a1.nic.GatewayMAC, layers.EthernetTypeIPv4), ip, echo, gopacket.Payload(make([]byte, 1450)))
	c.a1.sends(ping).isToldTo(c.a1, bpfDropReasonDROP_MTU_EXCEEDED).says(fragmentationNeeded, "10.0.1.1", "10.0.1.11", ping)
	host := c.n1.hostUDP(4000, "198.18.0.12:80")
	host.size, host.ip = 1450, dontFragment
	c.n1.hostSends(host.frame()).isToldTo(nil, bpfDropReasonDROP_MTU_EXCEEDED).says(fragmentationNeeded, "198.18.0.1", "192.0.2.1", host.frame())
}

func TestTheSenderOfAPacketWhoseTimeRanOutIsTold(t *testing.T) {
	c := newTenants(t)
	c.serviceIn(7, UDP, "198.19.0.10:80", "10.0.2.12:80")
	for _, to := range []string{"10.0.2.11:80", "10.0.2.12:80", "198.19.0.10:80"} {
		last := c.a1.udp(4000, to)
		last.ip = func(ip *layers.IPv4) { ip.TTL = 1 }
		c.a1.sends(last.frame()).isToldTo(c.a1, bpfDropReasonDROP_TTL_EXCEEDED).says(timeExceeded, "10.0.1.1", "10.0.1.11", last.frame())
	}
}

func TestAServiceWithoutABackendRefuses(t *testing.T) {
	c := newTenants(t)
	c.service(TCP, "198.19.0.10:80", 0)
	for _, to := range []string{"198.19.0.10:80", "198.19.0.10:81", "198.19.0.11:80"} {
		reason := bpfDropReasonDROP_UNKNOWN_SERVICE
		if to == "198.19.0.10:80" {
			reason = bpfDropReasonDROP_NO_BACKEND
		}
		packet := c.web1.tcp(4000, to, syn).frame()
		c.web1.sends(packet).isToldTo(c.web1, reason).says(portUnreachable, to[:11], "198.18.0.11", packet)
		packet = c.nodes[0].hostTCP(4000, to, syn)
		c.nodes[0].hostSends(packet).isToldTo(nil, reason).says(portUnreachable, to[:11], "192.0.2.1", packet)
	}
	packet := c.a1.udp(4000, "198.19.0.10:80").frame()
	c.a1.sends(packet).isToldTo(c.a1, bpfDropReasonDROP_UNKNOWN_SERVICE).says(portUnreachable, "198.19.0.10", "10.0.1.11", packet)
}

func TestNobodyIsToldAboutErrorsFragmentsAndOptions(t *testing.T) {
	c := newTenants(t)
	long := func(change func(*layers.IPv4), icmp *layers.ICMPv4) []byte {
		ip := ipv4(c.a1.nic.Address, addr("10.0.1.12"), layers.IPProtocolICMPv4)
		dontFragment(ip)
		change(ip)
		return build(ethernet(c.a1.nic.MAC, c.a1.nic.GatewayMAC, layers.EthernetTypeIPv4), ip, icmp, gopacket.Payload(make([]byte, 1450)))
	}
	same := func(*layers.IPv4) {}
	c.a1.sends(long(same, &layers.ICMPv4{TypeCode: portUnreachable})).isDropped(bpfDropReasonDROP_MTU_EXCEEDED)
	c.a1.sends(long(same, &layers.ICMPv4{TypeCode: timeExceeded})).isDropped(bpfDropReasonDROP_MTU_EXCEEDED)
	c.a1.sends(long(func(ip *layers.IPv4) { ip.FragOffset = 8 }, echo)).isDropped(bpfDropReasonDROP_MTU_EXCEEDED)
	options := func(ip *layers.IPv4) {
		ip.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 0}}
	}
	c.a1.sends(long(options, echo)).isDropped(bpfDropReasonDROP_MTU_EXCEEDED)
	require.NoError(t, c.nodes[0].Subnets.Delete(1001)) // nobody could say it
	c.a1.sends(long(same, echo)).isDropped(bpfDropReasonDROP_MTU_EXCEEDED)
}

func TestErrorsAreLimitedForEachInterface(t *testing.T) {
	c := newTenants(t)
	c.nodes[0].unforetold = true
	packet := func(p *pod) []byte { return p.udp(4000, "198.19.0.99:80").frame() }
	told := 0
	start := time.Now()
	for range 300 {
		if c.a1.sends(packet(c.a1)).told {
			told++
		}
	}
	allowed := 50 + int(time.Since(start)/(10*time.Millisecond)) + 2 // the clock is coarse
	require.Greater(t, told, 49)
	require.LessOrEqual(t, told, allowed)
	c.b1.sends(packet(c.b1)).isToldTo(c.b1, bpfDropReasonDROP_UNKNOWN_SERVICE)
	require.NoError(t, c.nodes[0].collection.Maps[bpfMapErrorTimes].Put(uint32(c.a1.ifindex), uint64(1<<62)))
	c.a1.sends(packet(c.a1)).isDropped(bpfDropReasonDROP_UNKNOWN_SERVICE)
}
