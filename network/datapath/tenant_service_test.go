package datapath

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// serviceIn sets a Service of a tenant's VPC on every node.
func (c *cloud) serviceIn(vpc uint32, protocol Protocol, at string, backends ...string) {
	c.t.Helper()
	key := ServiceKey{VPCID: vpc, Address: addrPortOf(at).Addr(), Port: addrPortOf(at).Port(), Protocol: protocol}
	service := Service{}
	for _, b := range backends {
		service.Backends = append(service.Backends, Backend{addrPortOf(b).Addr(), addrPortOf(b).Port()})
	}
	for _, n := range c.nodes {
		require.NoError(c.t, n.Services.Set(key, service))
	}
}

func TestATenantsServiceBalancesWithinItsVPC(t *testing.T) {
	c := newTenants(t)
	for _, protocol := range []Protocol{TCP, UDP} {
		packet := func(p *pod, port uint16, to string, flags layers.TCP) []byte {
			if protocol == UDP {
				return p.udp(port, to).frame()
			}
			return p.tcp(port, to, flags).frame()
		}
		// Two VPCs have a Service of one address, each its own.
		c.serviceIn(7, protocol, "198.19.0.10:80", "10.0.1.12:8080")
		c.serviceIn(8, protocol, "198.19.0.10:80", "10.0.1.12:9090")
		sent := c.a1.sends(packet(c.a1, 4000, "198.19.0.10:80", syn))
		require.EqualValues(t, 1001, sent.trace.Vni)
		sent.then().reaches(c.a2).is("10.0.1.11:4000", "10.0.1.12:8080")
		c.b1.sends(packet(c.b1, 4000, "198.19.0.10:80", syn)).then().reaches(c.b2).is("10.0.1.11:4000", "10.0.1.12:9090")
		c.a2.sends(packet(c.a2, 8080, "10.0.1.11:4000", synAck)).then().reaches(c.a1).is("198.19.0.10:80", "10.0.1.11:4000")
		c.b2.sends(packet(c.b2, 9090, "10.0.1.11:4000", synAck)).then().reaches(c.b1).is("198.19.0.10:80", "10.0.1.11:4000")
		// In another Subnet, on the same node: one hop each way.
		c.serviceIn(7, protocol, "198.19.0.11:80", "10.0.2.11:80")
		require.Equal(t, 63, c.a1.sends(packet(c.a1, 4001, "198.19.0.11:80", syn)).reaches(c.a3).is("10.0.1.11:4001", "10.0.2.11:80").ttl())
		c.a3.sends(packet(c.a3, 80, "10.0.1.11:4001", synAck)).reaches(c.a1).is("198.19.0.11:80", "10.0.1.11:4001")
		// In another Subnet on another node.
		c.serviceIn(7, protocol, "198.19.0.12:80", "10.0.2.12:80")
		c.a1.sends(packet(c.a1, 4002, "198.19.0.12:80", syn)).then().reaches(c.a4).is("10.0.1.11:4002", "10.0.2.12:80")
		c.a4.sends(packet(c.a4, 80, "10.0.1.11:4002", synAck)).then().reaches(c.a1).is("198.19.0.12:80", "10.0.1.11:4002")
		// Itself.
		c.serviceIn(7, protocol, "198.19.0.13:80", "10.0.1.11:80")
		c.a1.sends(packet(c.a1, 4003, "198.19.0.13:80", syn)).reaches(c.a1).is("169.254.0.1:4003", "10.0.1.11:80")
		c.a1.sends(packet(c.a1, 80, "169.254.0.1:4003", synAck)).reaches(c.a1).is("198.19.0.13:80", "10.0.1.11:4003")
		c.b1.sends(packet(c.b1, 80, "169.254.0.1:4003", synAck)).isDropped(bpfDropReasonDROP_NO_CONNTRACK)
		// What a client says to the backend itself is left alone.
		c.a1.sends(packet(c.a1, 4004, "10.0.1.12:8080", syn)).then().reaches(c.a2).is("10.0.1.11:4004", "10.0.1.12:8080")
		c.a2.sends(packet(c.a2, 8080, "10.0.1.11:4004", synAck)).then().reaches(c.a1).is("10.0.1.12:8080", "10.0.1.11:4004")
	}
}

func TestATenantsServiceIsOfNoUseToOthers(t *testing.T) {
	c := newTenants(t)
	c.serviceIn(7, UDP, "198.19.0.10:80", "10.0.1.12:80")
	c.b1.sends(c.b1.udp(4000, "198.19.0.10:80").frame()).isToldTo(c.b1, bpfDropReasonDROP_UNKNOWN_SERVICE)
	c.web1.sends(c.web1.udp(4000, "198.19.0.10:80").frame()).isToldTo(c.web1, bpfDropReasonDROP_UNKNOWN_SERVICE)
	c.nodes[0].hostSends(c.nodes[0].hostUDP(4000, "198.19.0.10:80").frame()).isToldTo(nil, bpfDropReasonDROP_UNKNOWN_SERVICE)
	// Nor are ordinary ones of use to a tenant.
	c.service(UDP, "198.19.0.11:80", 0, "198.18.0.12:80")
	c.a1.sends(c.a1.udp(4000, "198.19.0.11:80").frame()).isToldTo(c.a1, bpfDropReasonDROP_UNKNOWN_SERVICE)
	// A backend that no route of the VPC leads to is not reached, whatever the table says.
	for _, backend := range []string{"198.18.0.12:80", "192.0.2.1:10250", "203.0.113.9:80", "169.254.66.1:10250"} {
		c.serviceIn(7, UDP, "198.19.0.12:80", backend)
		c.a1.sends(c.a1.udp(4000, "198.19.0.12:80").frame()).isDropped(bpfDropReasonDROP_NO_ROUTE)
	}
}

func TestATenantsBackendThatIsGoneIsNotUsedAgain(t *testing.T) {
	c := newTenants(t)
	n := c.nodes[0]
	c.serviceIn(7, TCP, "198.19.0.10:80", "10.0.1.12:80", "10.0.2.12:80")
	var port uint16
	for port = 4000; ; port++ { // a client of the one that will go
		_, packet := c.a1.sends(c.a1.tcp(port, "198.19.0.10:80", syn).frame()).parse()
		if packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4).DstIP.Equal(addr("10.0.2.12").AsSlice()) {
			break
		}
	}
	require.NoError(t, n.Endpoints.Delete(EndpointKey{1002, addr("10.0.2.12")}))
	again := c.a1.tcp(port, "198.19.0.10:80", syn).frame()
	c.a1.sends(again).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
	c.a1.sends(again).then().reaches(c.a2).is(netip.AddrPortFrom(c.a1.nic.Address, port).String(), "10.0.1.12:80")
}

func TestAChangeOfBackendsLeavesRunningConnectionsAlone(t *testing.T) {
	c := newTenants(t)
	for _, s := range []struct {
		from *pod
		set  func(backends ...string)
		host string
	}{
		{c.web1, func(b ...string) { c.service(TCP, "198.19.0.10:80", 0, b...) }, "198.18.0.12:"},
		{c.a1, func(b ...string) { c.serviceIn(7, TCP, "198.19.0.10:80", b...) }, "10.0.1.12:"},
	} {
		backend := func(port uint16, flags layers.TCP) layers.TCPPort {
			_, packet := s.from.sends(s.from.tcp(port, "198.19.0.10:80", flags).frame()).then().parse()
			return packet.Layer(layers.LayerTypeTCP).(*layers.TCP).DstPort
		}
		s.set(s.host+"1", s.host+"2", s.host+"3")
		before := map[uint16]layers.TCPPort{}
		for port := uint16(4000); port < 4060; port++ {
			before[port] = backend(port, syn)
		}
		// One terminates, others come, in another order.
		s.set(s.host+"5", s.host+"3", s.host+"4", s.host+"1", s.host+"6")
		for port, had := range before {
			require.Equal(t, had, backend(port, layers.TCP{ACK: true}), "port %d", port)
			require.NotEqual(t, layers.TCPPort(2), backend(port+1000, syn), "new ones go to what is there")
		}
	}
}

func TestAnInterfaceWithoutServicesDoesNotLookForAnswersOfAny(t *testing.T) {
	c := newTenants(t)
	c.serviceIn(7, TCP, "198.19.0.10:80", "10.0.1.12:8080")
	c.a1.sends(c.a1.tcp(4000, "198.19.0.10:80", syn).frame()).then().reaches(c.a2)
	answer := c.a2.tcp(8080, "10.0.1.11:4000", synAck).frame()
	for _, without := range []bool{true, false} {
		nic := c.a1.nic
		nic.NoServices = without
		require.NoError(t, c.nodes[0].NICs.Set(uint32(c.a1.ifindex), nic))
		from := "198.19.0.10:80"
		if without {
			from = "10.0.1.12:8080"
		}
		c.a2.sends(answer).then().reaches(c.a1).is(from, "10.0.1.11:4000")
	}
}
