package datapath

import (
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// setPolicies gives an interface policies; nil is none.
func (p *pod) setPolicies(ingress, egress *Policy) {
	t := p.node.cloud.t
	t.Helper()
	number := func(policy *Policy) PolicyID {
		if policy == nil {
			return PolicyNone
		}
		id, err := p.node.Policies.Number(*policy)
		require.NoError(t, err)
		return id
	}
	p.nic.IngressPolicy, p.nic.EgressPolicy = number(ingress), number(egress)
	require.NoError(t, p.node.NICs.Set(uint32(p.ifindex), p.nic))
}

func from(prefixes ...string) (peers []Peer) {
	for _, p := range prefixes {
		peers = append(peers, Peer{Prefix: prefix(p)})
	}
	return peers
}

func port(p Protocol, first uint16) Ports { return Ports{p, first, first} }

// policy is rules in which each allows some ports to some peers.
func policy(rules ...Rule) *Policy { return &Policy{Rules: rules} }

var (
	ack = layers.TCP{ACK: true}
	fin = layers.TCP{FIN: true, ACK: true}
	rst = layers.TCP{RST: true}
)

func TestAnInterfaceWithoutRulesIsClosedAndOneWithoutPolicyOpen(t *testing.T) {
	c := newTenants(t)
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:80", syn).frame()).then().reaches(c.a2)
	c.a2.setPolicies(policy(), nil)
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:80", syn).frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.sends(c.a1.udp(4000, "10.0.1.12:80").frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.sends(c.a1.icmp("10.0.1.12", layers.CreateICMPv4TypeCode(8, 0))).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a3.sends(c.a3.tcp(4000, "10.0.1.12:80", syn).frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	// On the same node and with the same address in another VPC.
	c.b1.sends(c.b1.tcp(4000, "10.0.1.12:80", syn).frame()).then().reaches(c.b2)
	c.a2.setPolicies(policy(), policy())
	c.a2.sends(c.a2.tcp(4000, "10.0.1.11:80", syn).frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
	c.a4.sends(c.a4.udp(4000, "10.0.1.12:80").frame()).isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
}

func TestAnAllowedFlowIsAnswered(t *testing.T) {
	c := newTenants(t)
	c.a2.setPolicies(policy(Rule{from("10.0.1.0/24"), []Ports{port(TCP, 8080)}}), policy())
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:8080", syn).frame()).then().reaches(c.a2)
	c.a2.sends(c.a2.tcp(8080, "10.0.1.11:4000", synAck).frame()).then().reaches(c.a1)
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:8080", ack).frame()).then().reaches(c.a2)
	// Not another port, peer, protocol or direction.
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:8081", syn).frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a3.sends(c.a3.tcp(4000, "10.0.1.12:8080", syn).frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.sends(c.a1.udp(4000, "10.0.1.12:8080").frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a2.sends(c.a2.tcp(8081, "10.0.1.11:4000", synAck).frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
	c.a2.sends(c.a2.tcp(8081, "10.0.1.11:4000", syn).frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
}

func TestWhatAnInterfaceBeginsIsAnsweredThroughItsClosedIngress(t *testing.T) {
	c := newTenants(t)
	c.a1.setPolicies(policy(), nil)
	c.a2.sends(c.a2.udp(53, "10.0.1.11:4000").frame()).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.sends(c.a1.udp(4000, "10.0.1.12:53").frame()).then().reaches(c.a2)
	c.a2.sends(c.a2.udp(53, "10.0.1.11:4000").frame()).then().reaches(c.a1)
	c.a2.sends(c.a2.udp(54, "10.0.1.11:4000").frame()).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	// A stranger's answer to a connection that there is not.
	c.a2.sends(c.a2.tcp(80, "10.0.1.11:4000", synAck).frame()).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	c.a2.sends(c.a2.tcp(80, "10.0.1.11:4000", ack).frame()).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	c.a2.sends(c.a2.tcp(80, "10.0.1.11:4000", rst).frame()).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
}

func TestAPolicyOnEachSideOfOneNodeCounts(t *testing.T) {
	c := newTenants(t)
	neighbour := c.nodes[0].pod(7, 1001, "10.0.1.13")
	c.a1.setPolicies(policy(), policy(Rule{from("10.0.1.13/32"), []Ports{port(TCP, 80)}}))
	neighbour.setPolicies(policy(Rule{from("10.0.1.11/32"), nil}), policy())
	c.a1.sends(c.a1.tcp(4000, "10.0.1.13:80", syn).frame()).reaches(neighbour)
	neighbour.sends(neighbour.tcp(80, "10.0.1.11:4000", synAck).frame()).reaches(c.a1)
	c.a1.sends(c.a1.tcp(4000, "10.0.1.13:81", syn).frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
	neighbour.setPolicies(policy(), nil)
	c.a1.sends(c.a1.tcp(4001, "10.0.1.13:80", syn).frame()).isRefusedBy(neighbour, bpfDropReasonDROP_POLICY_INGRESS)
	neighbour.sends(neighbour.tcp(4000, "10.0.1.11:22", syn).frame()).isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
}

func TestAChangeCutsWhatIsNotAllowedAnyMoreAndNothingElse(t *testing.T) {
	c := newTenants(t)
	web, ssh := Rule{from("10.0.0.0/8"), []Ports{port(TCP, 80)}}, Rule{from("10.0.1.0/24"), []Ports{port(TCP, 22)}}
	c.a2.setPolicies(policy(web, ssh), nil)
	for _, to := range []string{"10.0.1.12:80", "10.0.1.12:22"} {
		c.a1.sends(c.a1.tcp(4000, to, syn).frame()).then().reaches(c.a2)
	}
	c.a2.sends(c.a2.tcp(80, "10.0.1.11:4000", synAck).frame()).then().reaches(c.a1)
	c.a2.sends(c.a2.tcp(22, "10.0.1.11:4000", synAck).frame()).then().reaches(c.a1)

	c.a2.setPolicies(policy(web), nil)
	// The server speaks first: it must not revive the connection as one of its own.
	c.a2.sends(c.a2.tcp(22, "10.0.1.11:4000", ack).frame()).isDropped(bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:22", ack).frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a2.sends(c.a2.tcp(22, "10.0.1.11:4000", ack).frame()).isDropped(bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:80", ack).frame()).then().reaches(c.a2)
	c.a2.sends(c.a2.tcp(80, "10.0.1.11:4000", ack).frame()).then().reaches(c.a1)
	// The client tries again, in vain; the server may open a connection with the same ports.
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:22", syn).frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a2.sends(c.a2.tcp(22, "10.0.1.11:4000", syn).frame()).then().reaches(c.a1)
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:22", synAck).frame()).then().reaches(c.a2)

	// Allowed again, a cut flow goes on.
	c.a2.setPolicies(policy(), nil)
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:80", ack).frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a2.setPolicies(policy(web, ssh), nil)
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:80", ack).frame()).then().reaches(c.a2)
}

func TestUnderAFirstPolicyAConnectionIsOfTheSideThatBeganIt(t *testing.T) {
	c := newTenants(t)
	ssh := Rule{from("10.0.1.0/24"), []Ports{port(TCP, 22)}}
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:22", syn).frame()).then().reaches(c.a2) // came in
	c.a2.sends(c.a2.tcp(22, "10.0.1.11:4000", synAck).frame()).then().reaches(c.a1)
	c.a2.sends(c.a2.tcp(4001, "10.0.1.11:80", syn).frame()).then().reaches(c.a1) // went out

	c.a2.setPolicies(policy(), nil)
	for range 2 { // the server speaks first: that must not make the connection one of its own
		c.a2.sends(c.a2.tcp(22, "10.0.1.11:4000", ack).frame()).isDropped(bpfDropReasonDROP_POLICY_INGRESS)
		c.a1.sends(c.a1.tcp(4000, "10.0.1.12:22", ack).frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	}
	// The other side speaks first, of what the interface began.
	c.a1.sends(c.a1.tcp(80, "10.0.1.12:4001", ack).frame()).then().reaches(c.a2)
	c.a2.sends(c.a2.tcp(4001, "10.0.1.11:80", ack).frame()).then().reaches(c.a1)
	c.a2.setPolicies(policy(ssh), policy())
	c.a2.sends(c.a2.tcp(22, "10.0.1.11:4000", ack).frame()).then().reaches(c.a1)
	c.a2.sends(c.a2.tcp(4001, "10.0.1.11:80", ack).frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)

	// The first policy may be one of what is sent.
	c.a1.sends(c.a1.tcp(80, "10.0.1.12:4001", ack).frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_EGRESS)
	c.a1.setPolicies(nil, policy())
	c.a1.sends(c.a1.tcp(80, "10.0.1.12:4001", ack).frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_EGRESS)
	c.a1.sends(c.a1.tcp(4000, "10.0.1.12:22", ack).frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
}

func TestAFlowOutIsCutByItsEgressPolicyOnBothWays(t *testing.T) {
	c := newTenants(t)
	c.a1.setPolicies(policy(), policy(Rule{from("10.0.1.12/32"), []Ports{port(UDP, 53)}}))
	c.a1.sends(c.a1.udp(4000, "10.0.1.12:53").frame()).then().reaches(c.a2)
	c.a1.setPolicies(policy(), policy(Rule{from("10.0.1.12/32"), []Ports{port(UDP, 54)}}))
	c.a2.sends(c.a2.udp(53, "10.0.1.11:4000").frame()).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_EGRESS)
	c.a1.sends(c.a1.udp(4000, "10.0.1.12:53").frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
}

func TestAForgottenConnectionIsOfTheSideThatMayOpenIt(t *testing.T) {
	c := newTenants(t)
	c.a2.setPolicies(policy(Rule{nil, []Ports{port(TCP, 80)}}), nil)
	// The first packet seen is the server's, in the middle of a connection.
	c.a2.sends(c.a2.tcp(80, "10.0.1.11:4000", ack).frame()).then().reaches(c.a1)
	c.a2.setPolicies(policy(Rule{nil, []Ports{port(TCP, 81)}}), nil)
	c.a2.sends(c.a2.tcp(80, "10.0.1.11:4000", ack).frame()).isDropped(bpfDropReasonDROP_POLICY_INGRESS)
}

func TestAClosedConnectionIsNoWayIn(t *testing.T) {
	c := newTenants(t)
	c.a1.setPolicies(policy(), nil)
	for name, end := range map[string]func(){
		"reset": func() { c.a1.sends(c.a1.tcp(4000, "10.0.1.12:80", rst).frame()).then().reaches(c.a2) },
		"closed": func() {
			c.a1.sends(c.a1.tcp(4000, "10.0.1.12:80", fin).frame()).then().reaches(c.a2)
			c.a2.sends(c.a2.tcp(80, "10.0.1.11:4000", fin).frame()).then().reaches(c.a1)
		},
	} {
		t.Log(name)
		c.a1.sends(c.a1.tcp(4000, "10.0.1.12:80", syn).frame()).then().reaches(c.a2)
		c.a2.sends(c.a2.tcp(80, "10.0.1.11:4000", synAck).frame()).then().reaches(c.a1)
		end()
		c.a2.sends(c.a2.tcp(80, "10.0.1.11:4000", ack).frame()).then().reaches(c.a1) // the last acknowledgement
		c.a2.sends(c.a2.tcp(80, "10.0.1.11:4000", syn).frame()).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	}
}

func TestPingsAreFlowsOfTheirOwn(t *testing.T) {
	c := newTenants(t)
	request, reply := layers.CreateICMPv4TypeCode(8, 0), layers.CreateICMPv4TypeCode(0, 0)
	c.a1.setPolicies(policy(), nil)
	c.a2.sends(c.a2.icmp("10.0.1.11", reply)).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.sends(c.a1.icmp("10.0.1.12", request)).then().reaches(c.a2)
	c.a2.sends(c.a2.icmp("10.0.1.11", reply)).then().reaches(c.a1)
	// One the other way with the same identifier is another flow.
	c.a2.sends(c.a2.icmp("10.0.1.11", request)).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.setPolicies(policy(Rule{from("10.0.1.12/32"), []Ports{ICMPType(8)}}), policy())
	c.a2.sends(c.a2.icmp("10.0.1.11", request)).then().reaches(c.a1)
	c.a1.sends(c.a1.icmp("10.0.1.12", reply)).then().reaches(c.a2)
	c.a2.sends(c.a2.icmp("10.0.1.11", layers.CreateICMPv4TypeCode(13, 0))).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.setPolicies(policy(Rule{nil, []Ports{ICMPCode(13, 0)}}), policy())
	c.a2.sends(c.a2.icmp("10.0.1.11", layers.CreateICMPv4TypeCode(13, 1))).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	c.a2.sends(c.a2.icmp("10.0.1.11", layers.CreateICMPv4TypeCode(13, 0))).then().reaches(c.a1)
	c.a1.sends(c.a1.icmp("10.0.1.12", layers.CreateICMPv4TypeCode(14, 0))).then().reaches(c.a2)
}

// icmpError is what an interface says about a packet that it got.
func (p *pod) icmpError(to string, kind layers.ICMPv4TypeCode, about []byte) []byte {
	return build(ethernet(p.nic.MAC, p.nic.GatewayMAC, layers.EthernetTypeIPv4), ipv4(p.nic.Address, addr(to), layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: kind}, gopacket.Payload(about[14:min(len(about), 14+28)]))
}

func TestErrorsAboutAnAllowedFlowPass(t *testing.T) {
	c := newTenants(t)
	unreachable := layers.CreateICMPv4TypeCode(3, 3)
	question := c.a1.udp(4000, "10.0.1.12:53").frame()
	c.a1.setPolicies(policy(), nil)
	c.a2.sends(c.a2.icmpError("10.0.1.11", unreachable, question)).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.sends(question).then().reaches(c.a2)
	c.a2.sends(c.a2.icmpError("10.0.1.11", unreachable, question)).then().reaches(c.a1)
	c.a3.sends(c.a3.icmpError("10.0.1.11", layers.CreateICMPv4TypeCode(11, 0), question)).reaches(c.a1) // from a router on the way
	other := c.a1.udp(4001, "10.0.1.12:53").frame()
	c.a2.sends(c.a2.icmpError("10.0.1.11", unreachable, other)).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	c.a2.sends(c.a2.icmpError("10.0.1.11", layers.CreateICMPv4TypeCode(5, 0), question)).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	// About somebody else's packet.
	foreign := c.a3.udp(4000, "10.0.1.12:53").frame()
	c.a2.sends(c.a2.icmpError("10.0.1.11", unreachable, foreign)).then().isRefusedBy(c.a1, bpfDropReasonDROP_POLICY_INGRESS)
	// About a ping.
	ping := c.a1.icmp("10.0.1.12", layers.CreateICMPv4TypeCode(8, 0))
	c.a1.sends(ping).then().reaches(c.a2)
	c.a2.sends(c.a2.icmpError("10.0.1.11", layers.CreateICMPv4TypeCode(3, 13), ping)).then().reaches(c.a1)

	// The other way: about what came in.
	c.a2.setPolicies(policy(Rule{nil, []Ports{port(UDP, 53)}}), policy())
	c.a2.sends(c.a2.icmpError("10.0.1.11", unreachable, question)).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
	c.a1.sends(question).then().reaches(c.a2)
	c.a2.sends(c.a2.icmpError("10.0.1.11", unreachable, question)).then().reaches(c.a1)
	// A cut flow's errors are cut, too; a rule of their own lets errors pass.
	c.a2.setPolicies(policy(), policy())
	c.a2.sends(c.a2.icmpError("10.0.1.11", unreachable, question)).isDropped(bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.setPolicies(policy(Rule{nil, []Ports{ICMPType(3)}}), nil)
	c.a4.sends(c.a4.icmpError("10.0.1.11", unreachable, other)).then().reaches(c.a1)
}

// fragment is a part of a datagram: the first one has ports.
func (p *pod) fragment(to string, id, offset uint16, more bool, payload []byte) []byte {
	ip := ipv4(p.nic.Address, addr(to), layers.IPProtocolUDP)
	ip.Id, ip.FragOffset = id, offset
	if more {
		ip.Flags = layers.IPv4MoreFragments
	}
	return build(ethernet(p.nic.MAC, p.nic.GatewayMAC, layers.EthernetTypeIPv4), ip, gopacket.Payload(payload))
}

func TestFragmentsFollowTheirFirst(t *testing.T) {
	c := newTenants(t)
	ports := []byte{0x0f, 0xa0, 0, 53, 0, 40, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8} // 4000 to 53
	denied := []byte{0x0f, 0xa0, 0, 54, 0, 40, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
	c.a1.sends(c.a1.fragment("10.0.1.12", 9, 2, false, ports)).then().reaches(c.a2) // no policy, no state
	c.a2.setPolicies(policy(Rule{nil, []Ports{port(UDP, 53)}}), policy())
	c.a1.sends(c.a1.fragment("10.0.1.12", 9, 2, true, ports)).then().isRefusedBy(c.a2, bpfDropReasonDROP_UNKNOWN_FRAGMENT)
	c.a1.sends(c.a1.fragment("10.0.1.12", 9, 0, true, ports)).then().reaches(c.a2)
	c.a1.sends(c.a1.fragment("10.0.1.12", 9, 2, true, denied)).then().reaches(c.a2)
	c.a1.sends(c.a1.fragment("10.0.1.12", 9, 4, false, denied)).then().reaches(c.a2)
	c.a1.sends(c.a1.fragment("10.0.1.12", 10, 2, true, ports)).then().isRefusedBy(c.a2, bpfDropReasonDROP_UNKNOWN_FRAGMENT)
	c.a3.sends(c.a3.fragment("10.0.1.12", 9, 2, false, ports)).then().isRefusedBy(c.a2, bpfDropReasonDROP_UNKNOWN_FRAGMENT)
	c.a1.sends(c.a1.fragment("10.0.1.12", 11, 0, true, denied)).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a1.sends(c.a1.fragment("10.0.1.12", 11, 2, false, ports)).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	// The answer may be in fragments, too.
	answer := []byte{0, 53, 0x0f, 0xa0, 0, 40, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
	c.a2.sends(c.a2.fragment("10.0.1.11", 12, 0, true, answer)).then().reaches(c.a1)
	c.a2.sends(c.a2.fragment("10.0.1.11", 12, 2, false, answer)).then().reaches(c.a1)
	c.a2.sends(c.a2.fragment("10.0.1.11", 13, 2, false, answer)).isDropped(bpfDropReasonDROP_UNKNOWN_FRAGMENT)
	// Too short to say which flow it is of.
	c.a2.sends(c.a2.fragment("10.0.1.11", 14, 0, true, answer[:4])).isDropped(bpfDropReasonDROP_MALFORMED)
}

// https://www.rfc-editor.org/rfc/rfc3128
func TestAFragmentDoesNotReplaceTheFlagsOfATCPHeader(t *testing.T) {
	c := newTenants(t)
	c.a2.setPolicies(policy(Rule{nil, []Ports{port(TCP, 80)}}), nil)
	s := c.a1.tcp(4000, "10.0.1.12:80", syn)
	s.ip = func(ip *layers.IPv4) { ip.Flags = layers.IPv4MoreFragments }
	c.a1.sends(s.frame()).then().reaches(c.a2)
	s.ip = func(ip *layers.IPv4) { ip.FragOffset = 1 }
	c.a1.sends(s.frame()).then().isRefusedBy(c.a2, bpfDropReasonDROP_MALFORMED)
	s.ip = func(ip *layers.IPv4) { ip.FragOffset = 2 }
	c.a1.sends(s.frame()).then().reaches(c.a2)
}

func TestPoliciesSeeTheBackendAndTheClientOfAService(t *testing.T) {
	c := newTenants(t)
	c.service(TCP, "198.19.0.10:80", 0, "198.18.0.12:8080")
	// Not the Service's address and port.
	c.web1.setPolicies(policy(), policy(Rule{from("198.19.0.10/32"), nil}, Rule{nil, []Ports{port(TCP, 80)}}))
	c.web1.sends(c.web1.tcp(4000, "198.19.0.10:80", syn).frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
	c.web1.setPolicies(policy(), policy(Rule{from("198.18.0.12/32"), []Ports{port(TCP, 8080)}}))
	c.web2.setPolicies(policy(Rule{from("198.18.0.11/32"), []Ports{port(TCP, 8080)}}), policy())
	c.web1.sends(c.web1.tcp(4000, "198.19.0.10:80", syn).frame()).then().reaches(c.web2).is("198.18.0.11:4000", "198.18.0.12:8080")
	c.web2.sends(c.web2.tcp(8080, "198.18.0.11:4000", synAck).frame()).then().reaches(c.web1).is("198.19.0.10:80", "198.18.0.11:4000")
	// On one node.
	neighbour := c.nodes[1].pod(1, 1, "198.18.0.13")
	neighbour.setPolicies(policy(), policy(Rule{from("198.18.0.12/32"), nil}))
	c.web2.setPolicies(policy(Rule{from("198.18.0.13/32"), nil}), policy())
	neighbour.sends(neighbour.tcp(4000, "198.19.0.10:80", syn).frame()).reaches(c.web2)
	c.web2.sends(c.web2.tcp(8080, "198.18.0.13:4000", synAck).frame()).reaches(neighbour).is("198.19.0.10:80", "198.18.0.13:4000")
}

func TestAPodReachesItselfThroughAServiceWhateverItsPolicy(t *testing.T) {
	c := newTenants(t)
	c.service(TCP, "198.19.0.10:80", 0, "198.18.0.11:8080")
	c.web1.setPolicies(policy(), policy())
	c.web1.sends(c.web1.tcp(4000, "198.19.0.10:80", syn).frame()).reaches(c.web1).is("169.254.0.1:4000", "198.18.0.11:8080")
	c.web1.sends(c.web1.tcp(8080, "169.254.0.1:4000", synAck).frame()).reaches(c.web1).is("198.19.0.10:80", "198.18.0.11:4000")
}

func TestTheHostAndItsPodsAlwaysReachEachOther(t *testing.T) {
	c := newTenants(t)
	n1, n2 := c.nodes[0], c.nodes[1]
	c.web1.setPolicies(policy(), policy())
	n1.hostSends(n1.hostUDP(4000, "198.18.0.11:80").frame()).reaches(c.web1)
	c.web1.sends(c.web1.udp(80, "192.0.2.1:4000").frame()).reachesHost(n1)
	c.web1.sends(c.web1.udp(4000, "192.0.2.1:10250").frame()).reachesHost(n1)
	// Another node's host is like anyone else, and so is whom the host forwards for.
	n2.hostSends(n2.hostUDP(4000, "198.18.0.11:80").frame()).then().isRefusedBy(c.web1, bpfDropReasonDROP_POLICY_INGRESS)
	c.web1.sends(c.web1.udp(4000, "192.0.2.2:10250").frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
	forwarded := n1.hostUDP(4000, "198.18.0.11:80")
	forwarded.source = addrPortOf("203.0.113.10:4000")
	n1.hostSends(forwarded.frame()).isRefusedBy(c.web1, bpfDropReasonDROP_POLICY_INGRESS)
	c.web1.sends(c.web1.udp(4000, "203.0.113.10:53").frame()).isDropped(bpfDropReasonDROP_POLICY_EGRESS)
	c.web1.setPolicies(policy(), policy(Rule{from("203.0.113.0/24"), nil}))
	c.web1.sends(c.web1.udp(4000, "203.0.113.10:53").frame()).reachesHost(n1)
	answer := n1.hostUDP(53, "198.18.0.11:4000")
	answer.source = addrPortOf("203.0.113.10:53")
	n1.hostSends(answer.frame()).reaches(c.web1)
}

func TestOtherProtocolsAreFlowsByAddress(t *testing.T) {
	c := newTenants(t)
	other := func(p *pod, to string) []byte {
		return build(ethernet(p.nic.MAC, p.nic.GatewayMAC, layers.EthernetTypeIPv4), ipv4(p.nic.Address, addr(to), 253), gopacket.Payload("0123456789"))
	}
	c.a2.setPolicies(policy(Rule{nil, []Ports{AllPorts(TCP), AllPorts(UDP), AllPorts(ICMP)}}), policy())
	c.a1.sends(other(c.a1, "10.0.1.12")).then().isRefusedBy(c.a2, bpfDropReasonDROP_POLICY_INGRESS)
	c.a2.setPolicies(policy(Rule{from("10.0.1.0/24"), nil}), policy())
	c.a1.sends(other(c.a1, "10.0.1.12")).then().reaches(c.a2)
	c.a2.sends(other(c.a2, "10.0.1.11")).then().reaches(c.a1)
}
