package datapath

import (
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// The gateway's address reaches FloatingIPs of its own and of another VPC, on the same node and on another, without the outside.
func TestAGatewayReachesFloatingIPsInside(t *testing.T) {
	c, _ := newShared(t)
	c.floating(c.b1, "203.0.113.7")
	c.floating(c.a4, "203.0.113.8")
	for external, target := range map[string]*pod{"203.0.113.7": c.b1, "203.0.113.8": c.a4} {
		for _, p := range []*pod{c.a1, c.a2} {
			o := p.sends(p.udp(4000, external+":80").frame())
			if target.node != p.node {
				require.EqualValues(t, DefaultOutsideVNI, o.trace.Vni)
				o = o.then()
			}
			_, packet := o.reaches(target).parse()
			port := uint16(packet.Layer(layers.LayerTypeUDP).(*layers.UDP).SrcPort)
			o.is(at(shared, port), at(target.nic.Address.String(), 80))
			back := target.sends(target.udp(80, at(shared, port)).frame())
			if target.node != p.node {
				back = back.then()
			}
			back.reaches(p).is(external+":80", at(p.nic.Address.String(), 4000))
			// And nobody else at that address's ports.
			target.sends(target.udp(81, at(shared, port)).frame()).isNotOpened()
		}
	}
}

// isNotOpened asserts that no flow is there, on this node or where the port is.
func (o outcome) isNotOpened() {
	o.t.Helper()
	if o.target == bpfTraceTargetTRACE_MEMBER && o.drop == 0 {
		o = o.then()
	}
	o.isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)
}

// RFC 4787, REQ-9: two behind gateways meet at each other's external ports once both have sent.
func TestTwoBehindAGatewayMeetAtTheirExternalPorts(t *testing.T) {
	c, _ := newShared(t)
	first := c.a1.sends(c.a1.udp(4000, outsider+":53").frame()).leaves().externalPort()
	second := c.a2.sends(c.a2.udp(5000, outsider+":53").frame()).leaves().externalPort()
	c.a1.sends(c.a1.udp(4000, at(shared, second)).frame()).isNotOpened()
	c.a2.sends(c.a2.udp(5000, at(shared, first)).frame()).then().reaches(c.a1).is(at(shared, second), "10.0.1.11:4000")
	c.a1.sends(c.a1.udp(4000, at(shared, second)).frame()).then().reaches(c.a2).is(at(shared, first), "10.0.1.12:5000")
}

func TestOnlyTheMemberThatHasAPortSendsFromIt(t *testing.T) {
	c, g := newShared(t)
	c.floating(c.a4, "203.0.113.8")
	n1, n2 := c.nodes[0], c.nodes[1]
	frame := func(port uint16) []byte { return fromOutside(at(shared, port), "203.0.113.8:80").frame() }
	n2.receives(n1.address, DefaultOutsideVNI, frame(1024)).reaches(c.a4)
	for _, port := range []uint16{1536, 4096, 80} { // the other's, nobody's
		n2.receives(n1.address, DefaultOutsideVNI, frame(port)).isDropped(bpfDropReasonDROP_STALE_SOURCE)
	}
	// What a member sent on is not sent on again.
	n2.receives(n1.address, DefaultOutsideVNI, fromOutside(outsider+":53", at(shared, 1024)).frame()).isDropped(bpfDropReasonDROP_NOT_LOCAL)
	g.takes(n1, block(shared, 1024))
	n2.receives(n1.address, DefaultOutsideVNI, frame(1024)).isDropped(bpfDropReasonDROP_STALE_SOURCE)
}

// A firewall of the tenant's that sends on what others sent gets the answers, too.
func TestWhatAFirewallSendsOnIsAnsweredByTheFirewall(t *testing.T) {
	c, g := newShared(t)
	g.gives(c.nodes[0], block(shared, 2048), 1002)
	c.forwarding(c.a3)
	c.table(1001, "0.0.0.0/0", 0, RouteHop, c.a3)
	c.a1.sends(c.a1.udp(4000, outsider+":80").frame()).reaches(c.a3)
	port := c.a3.sends(c.a1.udp(4000, outsider+":80").from(c.a3).frame()).leaves().externalPort()
	c.nodes[0].gets(fromOutside(outsider+":80", at(shared, port)).frame()).reaches(c.a3).is(outsider+":80", "10.0.1.11:4000")
}

func TestPoliciesSeeTheAddressesInside(t *testing.T) {
	c, _ := newShared(t)
	number := func(rules ...Rule) PolicyID {
		id, err := c.nodes[0].Policies.Number(Policy{Rules: rules})
		require.NoError(t, err)
		return id
	}
	c.a1.nic.IngressPolicy, c.a1.nic.EgressPolicy = number(), number(Rule{Peers: []Peer{{Prefix: prefix(outsider + "/32")}}})
	require.NoError(t, c.nodes[0].NICs.Set(uint32(c.a1.ifindex), c.a1.nic))
	port := c.a1.sends(c.a1.udp(4000, outsider+":53").frame()).leaves().externalPort()
	c.nodes[0].gets(fromOutside(outsider+":53", at(shared, port)).frame()).reaches(c.a1)
	c.a1.sends(c.a1.udp(4000, "198.51.100.10:53").frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
}
