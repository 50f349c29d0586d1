package datapath

import (
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// peer leads from a Subnet to one of another VPC and back, on every node.
func (c *cloud) peer(aVPC, a uint32, aPrefix string, bVPC, b uint32, bPrefix string) {
	for _, n := range c.nodes {
		require.NoError(c.t, n.Routes.Set(RouteKey{a, prefix(bPrefix)}, Route{Kind: RoutePeer, VNI: b, VPCID: bVPC}))
		require.NoError(c.t, n.Routes.Set(RouteKey{b, prefix(aPrefix)}, Route{Kind: RoutePeer, VNI: a, VPCID: aVPC}))
	}
}

// newPeers are the tenants, of whose VPCs the first is peered with VPC 9, which is peered with VPC 10, which is not peered with the first.
func newPeers(t *testing.T) (c *tenants, p1, p2, q1 *pod) {
	c = newTenants(t)
	c.subnet(9, 3001, "10.9.1.0/24")
	c.subnet(10, 4001, "10.10.1.0/24")
	c.peer(7, 1001, "10.0.1.0/24", 9, 3001, "10.9.1.0/24")
	c.peer(7, 1002, "10.0.2.0/24", 9, 3001, "10.9.1.0/24")
	c.peer(9, 3001, "10.9.1.0/24", 10, 4001, "10.10.1.0/24")
	return c, c.nodes[0].pod(9, 3001, "10.9.1.11"), c.nodes[1].pod(9, 3001, "10.9.1.12"), c.nodes[0].pod(10, 4001, "10.10.1.11")
}

func TestPeersReachEachOtherBothWaysOnAnyNode(t *testing.T) {
	c, p1, p2, _ := newPeers(t)
	require.Equal(t, 63, c.a1.sends(c.a1.udp(4000, "10.9.1.11:80").frame()).reaches(p1).is("10.0.1.11:4000", "10.9.1.11:80").ttl())
	require.Equal(t, 63, p1.sends(p1.udp(80, "10.0.1.11:4000").frame()).reaches(c.a1).is("10.9.1.11:80", "10.0.1.11:4000").ttl())
	c.a1.sends(c.a1.tcp(4000, "10.9.1.12:80", syn).frame()).then().reaches(p2).is("10.0.1.11:4000", "10.9.1.12:80")
	p2.sends(p2.udp(80, "10.0.1.11:4000").frame()).then().reaches(c.a1)
	p1.sends(p1.udp(80, "10.0.2.12:4000").frame()).then().reaches(c.a4)
	c.a4.sends(c.a4.udp(80, "10.9.1.11:4000").frame()).then().reaches(p1)
	last := c.a1.udp(4000, "10.9.1.11:80")
	last.ip = func(ip *layers.IPv4) { ip.TTL = 1 }
	c.a1.sends(last.frame()).isToldTo(c.a1, bpfDropReasonDROP_TTL_EXCEEDED)
	// Nothing else has the addresses, and nobody answers for the other side's gateway.
	c.a1.sends(c.a1.udp(4000, "10.9.1.77:80").frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
	c.a1.sends(c.a1.udp(4000, "10.9.1.1:80").frame()).isDropped(bpfDropReasonDROP_NO_ENDPOINT)
}

func TestAPeeringReachesNoThirdVPCAndNothingElse(t *testing.T) {
	c, p1, _, q1 := newPeers(t)
	c.a1.sends(c.a1.udp(4000, "10.10.1.11:80").frame()).isDropped(bpfDropReasonDROP_NO_ROUTE)
	q1.sends(q1.udp(4000, "10.0.1.11:80").frame()).isDropped(bpfDropReasonDROP_NO_ROUTE)
	q1.sends(q1.udp(4000, "10.9.1.11:80").frame()).reaches(p1)
	// Another tenant's VPC with the peer's addresses is nobody's peer.
	c.b1.sends(c.b1.udp(4000, "10.9.1.11:80").frame()).isDropped(bpfDropReasonDROP_NO_ROUTE)
	p1.sends(p1.udp(4000, "10.0.1.11:80").frame()).reaches(c.a1)
	// Nor may anyone send as somebody else over it.
	lie := c.a1.udp(4000, "10.9.1.11:80")
	lie.source = addrPortOf("10.0.1.12:4000")
	c.a1.sends(lie.frame()).isDropped(bpfDropReasonDROP_SPOOFED_ADDRESS)
	// A route and what it leads to must be of one VPC.
	for _, n := range c.nodes {
		require.NoError(t, n.Routes.Set(RouteKey{2001, prefix("10.9.1.0/24")}, Route{Kind: RoutePeer, VNI: 3001, VPCID: 10}))
		require.NoError(t, n.Routes.Set(RouteKey{2001, prefix("10.10.1.0/24")}, Route{VNI: 4001}))
	}
	c.b1.sends(c.b1.udp(4000, "10.9.1.11:80").frame()).isDropped(bpfDropReasonDROP_OTHER_VPC)
	c.b1.sends(c.b1.udp(4000, "10.10.1.11:80").frame()).isDropped(bpfDropReasonDROP_OTHER_VPC)
}

// A VPC's machine that sends on, without source check, makes no way from one of its peers to another, nor for its own VPC.
func TestNothingIsSentOnOverAPeering(t *testing.T) {
	c, p1, p2, q1 := newPeers(t)
	c.forwarding(p1)
	c.table(1001, "10.10.1.0/24", 0, RouteHop, p1) // the tables of VPCs lead to interfaces of their own only; this one lies
	c.a1.sends(c.a1.udp(4000, "10.10.1.11:80").frame()).isDropped(bpfDropReasonDROP_OTHER_VPC)
	p1.sends(c.a1.udp(4000, "10.10.1.11:80").from(p1).frame()).isDropped(bpfDropReasonDROP_PEERING_TRANSIT)
	p1.sends(q1.udp(4000, "10.0.1.12:80").from(p1).frame()).isDropped(bpfDropReasonDROP_PEERING_TRANSIT)
	p1.sends(p2.udp(4000, "10.0.1.12:80").from(p1).frame()).isDropped(bpfDropReasonDROP_PEERING_TRANSIT)
	// As itself it is a workload like any other.
	p1.sends(p1.udp(4000, "10.0.1.12:80").frame()).then().reaches(c.a2)
}

func TestPoliciesApplyToWhatPeersSend(t *testing.T) {
	c, p1, p2, _ := newPeers(t)
	p1.setPolicies(policy(Rule{from("10.0.1.11/32"), []Ports{port(UDP, 80)}}), nil)
	p2.setPolicies(policy(), nil) // nothing is let in
	c.a1.sends(c.a1.udp(4000, "10.9.1.11:80").frame()).reaches(p1)
	p1.sends(p1.udp(80, "10.0.1.11:4000").frame()).reaches(c.a1)
	c.a1.sends(c.a1.udp(4000, "10.9.1.11:81").frame()).isRefusedBy(p1, bpfDropReasonDROP_POLICY_INGRESS)
	c.a2.sends(c.a2.udp(4000, "10.9.1.11:80").frame()).then().isRefusedBy(p1, bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.sends(c.a1.udp(4000, "10.9.1.12:80").frame()).then().isRefusedBy(p2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.setPolicies(nil, policy(Rule{from("10.0.0.0/16"), nil}))
	c.a1.sends(c.a1.udp(4001, "10.9.1.11:80").frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
}

// Each side's nodes decide for themselves: one that has not heard yet, or lies, gets nothing in once the other knows of no peering.
func TestAPeeringEndsAtTheSideThatHeardOfItsEnd(t *testing.T) {
	c, _, p2, _ := newPeers(t)
	sent := c.a1.sends(c.a1.udp(4000, "10.9.1.12:80").frame())
	sent.then().reaches(p2)
	for _, other := range []string{"10.0.1.0/24", "10.0.2.0/24"} {
		require.NoError(t, c.nodes[1].Routes.Delete(RouteKey{3001, prefix(other)}))
	}
	sent.then().isDropped(bpfDropReasonDROP_STALE_SOURCE)
	p2.sends(p2.udp(80, "10.0.1.11:4000").frame()).isDropped(bpfDropReasonDROP_NO_ROUTE)
	// While it lasts only the member that has the source may send as it.
	c.peer(7, 1001, "10.0.1.0/24", 9, 3001, "10.9.1.0/24")
	sent.then().reaches(p2)
	require.NoError(t, c.nodes[1].Endpoints.Set(EndpointKey{1001, c.a1.nic.Address}, Endpoint{VPCID: 7, MAC: c.a1.nic.MAC, Node: addr("192.0.2.3")}))
	sent.then().isDropped(bpfDropReasonDROP_STALE_SOURCE)
}
