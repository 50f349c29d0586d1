package datapath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

const resolver = "169.254.0.53"

// resolverSends is what the host sends from the resolver's address.
func (n *node) resolverSends(port uint16, to string, tcp *layers.TCP) segment {
	s := n.hostUDP(port, to)
	s.source, s.tcp = netip.AddrPortFrom(addr(resolver), port), tcp
	return s
}

// resolverICMP is what the host says from the resolver's address about a packet that it was sent.
func (n *node) resolverICMP(to string, kind layers.ICMPv4TypeCode, quoted []byte) []byte {
	return build(ethernet(n.config.HostMAC, MAC{}, layers.EthernetTypeIPv4), ipv4(addr(resolver), addr(to), layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: kind}, gopacket.Payload(quoted))
}

func TestAQuestionToTheResolverSaysWhoAsksAndTheAnswerComesBack(t *testing.T) {
	c := newProbed(t)
	c.a1.sends(c.a1.udp(4000, resolver+":53").frame()).reachesHost(c.n1).is("198.18.0.51:4000", resolver+":53")
	c.b1.sends(c.b1.udp(4000, resolver+":53").frame()).reachesHost(c.n1).is("198.18.0.52:4000", resolver+":53")
	c.a2.sends(c.a2.tcp(4000, resolver+":53", syn).frame()).reachesHost(c.n2).is("198.18.0.53:4000", resolver+":53")
	// Nothing is remembered, so an answer needs no question.
	c.n1.hostSends(c.n1.resolverSends(53, "198.18.0.51:4000", nil).frame()).reaches(c.a1).is(resolver+":53", "10.0.1.11:4000")
	c.n1.hostSends(c.n1.resolverSends(53, "198.18.0.52:4000", nil).frame()).reaches(c.b1).is(resolver+":53", "10.0.1.11:4000")
	c.n2.hostSends(c.n2.resolverSends(53, "198.18.0.53:4000", &synAck).frame()).reaches(c.a2).is(resolver+":53", "10.0.1.12:4000")
	// Policies do not apply, as it is the platform's.
	c.a1.setPolicies(policy(), policy())
	c.a1.sends(c.a1.udp(4000, resolver+":53").frame()).reachesHost(c.n1)
	c.n1.hostSends(c.n1.resolverSends(53, "198.18.0.51:4000", nil).frame()).reaches(c.a1)
}

func TestTheResolverHearsNothingButQuestions(t *testing.T) {
	c := newProbed(t)
	refused := func(reason bpfDropReason, frame []byte) {
		t.Helper()
		c.a1.sends(frame).isDropped(reason)
	}
	for _, port := range []string{":52", ":54", ":22", ":10250", ":0"} {
		refused(bpfDropReasonDROP_RESOLVER_PROTOCOL, c.a1.udp(53, resolver+port).frame())
		refused(bpfDropReasonDROP_RESOLVER_PROTOCOL, c.a1.tcp(53, resolver+port, syn).frame())
	}
	for _, kind := range []layers.ICMPv4TypeCode{echo.TypeCode, portUnreachable, fragmentationNeeded, timeExceeded, layers.CreateICMPv4TypeCode(5, 1)} {
		refused(bpfDropReasonDROP_RESOLVER_PROTOCOL, c.a1.icmp(resolver, kind))
	}
	part := c.a1.udp(4000, resolver+":53")
	part.ip = func(ip *layers.IPv4) { ip.Flags = layers.IPv4MoreFragments }
	refused(bpfDropReasonDROP_RESOLVER_PROTOCOL, part.frame())
	long := c.a1.udp(4000, resolver+":53")
	long.size = 1450 - 28 + 1
	refused(bpfDropReasonDROP_MTU_EXCEEDED, long.frame())
	// Its neighbours' addresses are others'.
	refused(bpfDropReasonDROP_NO_ROUTE, c.a1.udp(4000, "169.254.0.52:53").frame())
	refused(bpfDropReasonDROP_NO_ROUTE, c.a1.udp(4000, "169.254.0.54:53").frame())
	// Who sends on for others does not ask for them.
	router := c.n1.pod(7, 1001, "10.0.1.13")
	router.nic.NoSourceDestCheck = true
	c.infrastructure(router, "198.18.0.54")
	forged := router.udp(4000, resolver+":53")
	forged.source = addrPortOf("10.0.1.11:4000")
	router.sends(forged.frame()).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
	router.sends(router.udp(4000, resolver+":53").frame()).reachesHost(c.n1).is("198.18.0.54:4000", resolver+":53")
	// An interface without an infrastructure address could not be answered.
	c.a3.sends(c.a3.udp(4000, resolver+":53").frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
}

func TestTheHostAnswersFromTheResolverOnly(t *testing.T) {
	c := newProbed(t)
	n := c.n1
	for _, frame := range [][]byte{
		n.resolverSends(54, "198.18.0.51:4000", nil).frame(),
		n.resolverSends(22, "198.18.0.51:4000", &syn).frame(),
		n.resolverICMP("198.18.0.51", echo.TypeCode, []byte("0123456789")),
	} {
		n.hostSends(frame).isDropped(bpfDropReasonDROP_RESOLVER_PROTOCOL)
	}
	for _, to := range []string{"198.18.0.53:4000", "198.18.0.99:4000", "198.18.0.11:4000", "10.0.1.11:4000", "203.0.113.9:4000", "198.19.0.10:80"} {
		n.hostSends(n.resolverSends(53, to, nil).frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT) // on another node, nobody's, no tenant's
	}
	long := n.resolverSends(53, "198.18.0.51:4000", nil)
	long.size, long.ip = 1450-28+1, dontFragment
	n.hostSends(long.frame()).isToldTo(nil, bpfDropReasonDROP_MTU_EXCEEDED)
	// An entry that leads to an interface of another address or VPC leads nowhere.
	c.endpoint(n, EndpointKey{1, addr("198.18.0.60")}, Endpoint{VPCID: 7, Kind: EndpointInfrastructure, Ifindex: uint32(c.a1.ifindex)})
	c.endpoint(n, EndpointKey{1, addr("198.18.0.52")}, Endpoint{VPCID: 7, Kind: EndpointInfrastructure, Ifindex: uint32(c.b1.ifindex)})
	for _, to := range []string{"198.18.0.60:4000", "198.18.0.52:4000"} {
		n.hostSends(n.resolverSends(53, to, nil).frame()).isDropped(bpfDropReasonDROP_DESTINATION_CHECK)
	}
}

func TestThatTheResolverIsDownIsCounted(t *testing.T) {
	c := newProbed(t)
	asked := c.a1.sends(c.a1.udp(4000, resolver+":53").frame()).reachesHost(c.n1).frame[14:]
	c.n1.hostSends(c.n1.resolverICMP("198.18.0.51", portUnreachable, asked)).isDropped(bpfDropReasonDROP_RESOLVER_DOWN)
}

func TestAnInterfaceThatAsksTooMuchIsLimitedAlone(t *testing.T) {
	c := newProbed(t)
	c.n1.unforetold = true
	asks := func(p *pod) outcome { return p.sends(p.udp(4000, resolver+":53").frame()) }
	start := time.Now()
	passed := 0
	for range 5000 {
		if o := asks(c.a1); o.drop == 0 {
			passed++
		} else {
			o.isDropped(bpfDropReasonDROP_RESOLVER_RATE)
		}
	}
	require.GreaterOrEqual(t, passed, 1024)
	require.LessOrEqual(t, passed, 1024+int(time.Since(start)/(976*time.Microsecond))+12, "the clock is coarse")
	c.n1.unforetold = false
	times := c.n1.collection.Maps[bpfMapQueryTimes]
	require.NoError(t, times.Put(uint32(c.a1.ifindex), uint64(1<<62)))
	asks(c.a1).isDropped(bpfDropReasonDROP_RESOLVER_RATE)
	asks(c.b1).reachesHost(c.n1)
	require.NoError(t, times.Put(uint32(c.a1.ifindex), uint64(0)))
	asks(c.a1).reachesHost(c.n1)
}
