package datapath

import (
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// forwarding makes an interface one that sends on what others sent, and tells every node.
func (c *cloud) forwarding(p *pod) {
	p.nic.NoSourceDestCheck = true
	require.NoError(c.t, p.node.NICs.Set(uint32(p.ifindex), p.nic))
	require.NoError(c.t, p.node.Hops.Set(HopKey{p.nic.VNI, p.nic.MAC}, Hop{uint32(p.ifindex)}))
	for _, n := range c.nodes {
		if n != p.node {
			require.NoError(c.t, n.Forwarders.Set(ForwarderKey{p.node.address, p.nic.VPCID}, Forwarder{}))
		}
		for _, reserved := range []string{"198.18.0.0/15", "169.254.0.0/16", "192.0.2.0/24", "127.0.0.0/8", "224.0.0.0/4"} {
			require.NoError(c.t, n.Routes.Set(RouteKey{p.nic.VNI, prefix(reserved)}, Route{Kind: RouteReserved}))
		}
	}
}

// table sets a route of a Subnet's on every node. In is the Subnet that the destination is in.
func (c *cloud) table(vni uint32, destination string, in uint32, kind RouteKind, hop *pod) {
	route := Route{Kind: kind, VNI: in}
	if hop != nil {
		route.Hop = EndpointKey{hop.nic.VNI, hop.nic.Address}
	}
	for _, n := range c.nodes {
		require.NoError(c.t, n.Routes.Set(RouteKey{vni, prefix(destination)}, route))
	}
}

// from is the packet as sent on by another.
func (s segment) from(p *pod) segment {
	s.sourceMAC, s.destinationMAC = p.nic.MAC, p.nic.GatewayMAC
	return s
}

// The firewall is in a Subnet of its own, on the client's node and on the other, before and after what it sends on.
func TestARouteLeadsThroughAnInterfaceOnAnyNode(t *testing.T) {
	for name, place := range map[string]func(*tenants) *pod{
		"on the client's node": func(c *tenants) *pod { return c.nodes[0].pod(7, 1003, "10.0.3.11") },
		"on another node":      func(c *tenants) *pod { return c.nodes[1].pod(7, 1003, "10.0.3.11") },
	} {
		t.Run(name, func(t *testing.T) {
			c := newTenants(t)
			c.subnet(7, 1003, "10.0.3.0/24")
			c.route(1001, "10.0.1.0/24", 1003, "10.0.3.0/24")
			c.route(1002, "10.0.2.0/24", 1003, "10.0.3.0/24")
			firewall := place(c)
			c.forwarding(firewall)
			c.table(1001, "10.0.2.0/24", 1002, RouteHop, firewall) // the whole of another Subnet
			c.table(1001, "0.0.0.0/0", 0, RouteHop, firewall)
			arrives := func(o outcome, p *pod) outcome {
				t.Helper()
				if o.node == p.node {
					return o.reaches(p)
				}
				return o.then().reaches(p)
			}
			for _, server := range []*pod{c.a3, c.a4} {
				to := server.nic.Address.String() + ":80"
				first := arrives(c.a1.sends(c.a1.udp(4000, to).frame()), firewall).is("10.0.1.11:4000", to)
				require.Equal(t, 63, first.ttl())
				second := c.a1.udp(4000, to).from(firewall)
				second.ip = func(ip *layers.IPv4) { ip.TTL = 62 }
				require.Equal(t, 61, arrives(firewall.sends(second.frame()), server).is("10.0.1.11:4000", to).ttl())
				// The answer comes straight back: the server's Subnet has no such route.
				back := server.udp(80, "10.0.1.11:4000").frame()
				arrives(server.sends(back), c.a1)
			}
			arrives(c.a1.sends(c.a1.tcp(4000, "203.0.113.9:443", syn).frame()), firewall).is("10.0.1.11:4000", "203.0.113.9:443")
			// What the outside sends comes back through it.
			outside := c.a1.udp(443, "10.0.1.11:4000").from(firewall)
			outside.source = addrPortOf("203.0.113.9:443")
			arrives(firewall.sends(outside.frame()), c.a1).is("203.0.113.9:443", "10.0.1.11:4000")
			// Not for the Subnet's own addresses, nor for others' Subnets and VPCs.
			c.a1.sends(c.a1.udp(4000, "10.0.1.12:80").frame()).then().reaches(c.a2)
			c.a3.sends(c.a3.udp(4000, "203.0.113.9:443").frame()).isDropped(bpfDropReasonDROP_NO_ROUTE)
			c.b1.sends(c.b1.udp(4000, "203.0.113.9:443").frame()).isDropped(bpfDropReasonDROP_NO_ROUTE)
		})
	}
}

func TestTheLongestPrefixDecidesWhereARouteLeads(t *testing.T) {
	c := newTenants(t)
	c.forwarding(c.a3)
	c.forwarding(c.a4)
	c.table(1001, "0.0.0.0/0", 0, RouteHop, c.a3)
	c.table(1001, "172.16.0.0/12", 0, RouteHop, c.a4)
	c.table(1001, "172.16.5.0/24", 0, RouteBlackhole, nil)
	c.table(1001, "10.0.2.128/25", 1002, RouteBlackhole, nil)
	send := func(to string) outcome { return c.a1.sends(c.a1.udp(4000, to).frame()) }
	send("8.8.8.8:53").reaches(c.a3)
	send("172.17.0.1:53").then().reaches(c.a4)
	send("172.16.5.1:53").isDropped(bpfDropReasonDROP_BLACKHOLE)
	send("10.0.2.12:80").then().reaches(c.a4) // as without a table
	send("10.0.2.200:80").isDropped(bpfDropReasonDROP_BLACKHOLE)
	for _, reserved := range []string{"198.19.0.0:80", "192.0.2.1:22", "127.0.0.1:80", "169.254.169.254:80"} {
		if reserved != "198.19.0.0:80" { // a Service's, which answers for itself
			c.table(1001, prefixOf(reserved), 0, RouteReserved, nil)
			send(reserved).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
		}
	}
}

func prefixOf(addressPort string) string { return addrPortOf(addressPort).Addr().String() + "/32" }

func TestANextHopThatIsNotThereDropsWithItsReason(t *testing.T) {
	c := newTenants(t)
	n1, n2 := c.nodes[0], c.nodes[1]
	remote, local := c.a4, c.a3
	c.table(1001, "172.16.0.0/16", 0, RouteHop, nil) // the target is not there
	c.table(1001, "172.17.0.0/16", 0, RouteHop, remote)
	c.table(1001, "172.18.0.0/16", 0, RouteHop, local)
	c.table(1001, "172.19.0.0/16", 0, RouteHop, c.a1)
	c.table(1001, "172.20.0.0/16", 0, RouteHop, c.b1)
	send := func(to string) outcome { return c.a1.sends(c.a1.udp(4000, to).frame()) }
	send("172.16.0.1:80").isDropped(bpfDropReasonDROP_NO_NEXT_HOP)
	// One that checks addresses, or is not said to send on, gets nothing of it.
	send("172.17.0.1:80").then().isDropped(bpfDropReasonDROP_NO_NEXT_HOP)
	send("172.18.0.1:80").isDropped(bpfDropReasonDROP_DESTINATION_CHECK)
	require.NoError(t, n2.Hops.Set(HopKey{1002, remote.nic.MAC}, Hop{uint32(remote.ifindex)}))
	send("172.17.0.1:80").then().isDropped(bpfDropReasonDROP_DESTINATION_CHECK)
	require.NoError(t, n2.Hops.Set(HopKey{1002, remote.nic.MAC}, Hop{99}))
	send("172.17.0.1:80").then().isDropped(bpfDropReasonDROP_DESTINATION_CHECK)
	// Back to the sender.
	c.forwarding(c.a1)
	send("172.19.0.1:80").isDropped(bpfDropReasonDROP_ROUTE_LOOP)
	// In another VPC.
	c.forwarding(c.b1)
	send("172.20.0.1:80").isDropped(bpfDropReasonDROP_OTHER_VPC)
	// Its endpoint has gone.
	c.forwarding(remote)
	send("172.17.0.1:80").then().reaches(remote)
	require.NoError(t, n1.Endpoints.Delete(EndpointKey{1002, remote.nic.Address}))
	send("172.17.0.1:80").isDropped(bpfDropReasonDROP_NO_NEXT_HOP)
}

// A sender that has not heard yet that the firewall is gone must not reach, past it, what the firewall protects.
func TestAPacketToAGoneNextHopIsNotDeliveredByItsDestination(t *testing.T) {
	c := newTenants(t)
	firewall := c.nodes[1].pod(7, 1002, "10.0.2.13") // in the Subnet and on the node of what it protects
	c.forwarding(firewall)
	c.table(1001, "10.0.2.0/24", 1002, RouteHop, firewall)
	sent := c.a1.sends(c.a1.udp(4000, "10.0.2.12:80").frame())
	sent.then().reaches(firewall)
	require.NoError(t, c.nodes[1].Hops.Delete(HopKey{1002, firewall.nic.MAC}))
	sent.then().isDropped(bpfDropReasonDROP_NO_NEXT_HOP)
	// To the firewall itself the route leads as well, and what it has is delivered.
	c.forwarding(firewall)
	c.a1.sends(c.a1.udp(4000, "10.0.2.13:80").frame()).then().reaches(firewall)
}

func TestARoutedPacketIsOneHopOlderAlsoWithinASubnet(t *testing.T) {
	c := newTenants(t)
	router := c.nodes[0].pod(7, 1001, "10.0.1.13")
	c.forwarding(router)
	c.table(1001, "172.16.0.0/12", 0, RouteHop, router)
	require.Equal(t, 63, c.a1.sends(c.a1.udp(4000, "172.16.0.1:80").frame()).reaches(router).ttl())
	last := c.a1.udp(4000, "172.16.0.1:80")
	last.ip = func(ip *layers.IPv4) { ip.TTL = 1 }
	c.a1.sends(last.frame()).isToldTo(c.a1, bpfDropReasonDROP_TTL_EXCEEDED)
	// What the router itself sends by this route would come back to it.
	router.sends(router.udp(4000, "172.16.0.1:80").frame()).isDropped(bpfDropReasonDROP_ROUTE_LOOP)
	router.sends(c.a1.udp(4000, "172.16.0.1:80").from(router).frame()).isDropped(bpfDropReasonDROP_ROUTE_LOOP)
}

func TestAForwardingInterfaceNeverSpeaksForTheCloudsOwnRanges(t *testing.T) {
	c := newTenants(t)
	c.serviceIn(7, UDP, "198.19.0.10:80", "10.0.2.12:80")
	c.forwarding(c.a1)
	for _, source := range []string{"192.0.2.1", "198.18.0.12", "198.19.0.10", "169.254.64.1", "127.0.0.1", "224.0.0.1"} {
		lie := c.a1.udp(4000, "10.0.2.12:80")
		lie.source = addrPortOf(source + ":4000")
		c.a1.sends(lie.frame()).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
	}
	foreign := func(to string) outcome {
		s := c.a1.udp(4000, to)
		s.source = addrPortOf("172.16.0.9:4000")
		return c.a1.sends(s.frame())
	}
	for _, to := range []string{"198.19.0.10:80", DefaultHairpinAddress.String() + ":80", "192.0.2.1:22", "127.0.0.1:80"} {
		foreign(to).isDropped(bpfDropReasonDROP_RESERVED_RANGE)
	}
	for _, to := range []string{"198.18.0.12:80", "169.254.64.1:10250"} {
		foreign(to).isDropped(bpfDropReasonDROP_NOT_OPENED)
	}
	foreign("10.0.2.12:80").then().reaches(c.a4)
	// As itself it uses Services like anyone.
	c.a1.sends(c.a1.udp(4000, "198.19.0.10:80").frame()).then().reaches(c.a4).is("10.0.1.11:4000", "10.0.2.12:80")
	// In the default Subnet every other address is somebody else's.
	c.forwarding(c.web1)
	lie := c.web1.udp(4000, "198.18.0.12:80")
	lie.source = addrPortOf("203.0.113.9:4000")
	c.web1.sends(lie.frame()).isDropped(bpfDropReasonDROP_SPOOFED_ADDRESS)
}

func TestPoliciesApplyToWhatIsSentOn(t *testing.T) {
	c := newTenants(t)
	firewall := c.nodes[1].pod(7, 1002, "10.0.2.13")
	c.forwarding(firewall)
	c.table(1001, "172.16.0.0/12", 0, RouteHop, firewall)
	firewall.setPolicies(policy(Rule{from("10.0.1.11/32"), []Ports{port(UDP, 80)}}), policy(Rule{from("10.0.2.12/32"), nil}))
	c.a1.sends(c.a1.udp(4000, "172.16.0.1:80").frame()).then().reaches(firewall)
	c.a1.sends(c.a1.udp(4000, "172.16.0.1:81").frame()).then().isRefusedBy(firewall, bpfDropReasonDROP_POLICY_INGRESS)
	firewall.sends(c.a1.udp(4001, "10.0.2.12:80").from(firewall).frame()).reaches(c.a4)
	firewall.sends(c.a2.udp(4001, "10.0.1.11:80").from(firewall).frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
}

// A Service is undone where its client is: the firewall between sees the backend.
func TestAServicesBackendIsReachedAndAnswersThroughANextHop(t *testing.T) {
	c := newTenants(t)
	firewall := c.nodes[0].pod(7, 1001, "10.0.1.13") // on the client's node
	c.forwarding(firewall)
	c.serviceIn(7, UDP, "198.19.0.10:80", "10.0.2.12:8080")
	c.table(1001, "10.0.2.0/24", 1002, RouteHop, firewall)
	c.table(1002, "10.0.1.11/32", 1001, RouteHop, firewall)
	c.a1.sends(c.a1.udp(4000, "198.19.0.10:80").frame()).reaches(firewall).is("10.0.1.11:4000", "10.0.2.12:8080")
	c.table(1001, "10.0.2.12/32", 1002, RouteLocal, nil) // the firewall's own way on
	firewall.sends(c.a1.udp(4000, "10.0.2.12:8080").from(firewall).frame()).then().reaches(c.a4)
	c.a4.sends(c.a4.udp(8080, "10.0.1.11:4000").frame()).then().reaches(firewall).is("10.0.2.12:8080", "10.0.1.11:4000")
	firewall.sends(c.a4.udp(8080, "10.0.1.11:4000").from(firewall).frame()).reaches(c.a1).is("198.19.0.10:80", "10.0.1.11:4000")
	// Without the next hop the flow is forgotten, so that the client's next try may find another backend.
	c.table(1001, "10.0.2.12/32", 1002, RouteHop, nil)
	c.a1.sends(c.a1.udp(4000, "198.19.0.10:80").frame()).isDropped(bpfDropReasonDROP_NO_NEXT_HOP)
}

// Fencing: the source of what comes by a next hop, too, must be at the member that sent it, whatever the table of the Subnet says
// about the way back.
func TestOnlyTheMemberThatHasTheSourceSendsToANextHop(t *testing.T) {
	c := newTenants(t)
	c.forwarding(c.a4)
	c.table(1001, "172.16.0.0/12", 0, RouteHop, c.a4)
	c.table(1002, "10.0.1.0/24", 1001, RouteHop, c.a4) // the way back is another
	sent := c.a1.sends(c.a1.udp(4000, "172.16.0.1:80").frame())
	sent.then().reaches(c.a4)
	key := EndpointKey{1001, c.a1.nic.Address}
	require.NoError(t, c.nodes[1].Endpoints.Set(key, Endpoint{VPCID: 7, MAC: c.a1.nic.MAC, Node: addr("192.0.2.3")}))
	sent.then().isDropped(bpfDropReasonDROP_STALE_SOURCE)
	require.NoError(t, c.nodes[1].Endpoints.Delete(key))
	sent.then().isDropped(bpfDropReasonDROP_STALE_SOURCE)
}
