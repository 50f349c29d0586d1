package datapath

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// admits is what a policy means, rule by rule.
func (p Policy) admits(peer netip.Addr, protocol Protocol, match uint16) bool {
	for _, r := range p.Rules {
		peers, ports := len(r.Peers) == 0, len(r.Ports) == 0
		for _, q := range r.Peers {
			inside := q.Prefix.Contains(peer)
			for _, except := range q.Except {
				inside = inside && !except.Contains(peer)
			}
			peers = peers || inside
		}
		for _, q := range r.Ports {
			ports = ports || q.Protocol == 0 || (q.Protocol == protocol && q.First <= match && match <= q.Last)
		}
		if peers && ports {
			return true
		}
	}
	return false
}

// admits is what the tables say.
func (c *compiled) admits(peer netip.Addr, protocol Protocol, match uint16) bool {
	class := uint32(0)
	for bits := 32; bits >= 0 && class == 0; bits-- {
		around, _ := peer.Prefix(bits)
		found, ok := c.peers[around]
		if ok && found == 0 {
			return false
		}
		class = found
	}
	for _, bits := range []int{0, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24} {
		rule := compiledRule{class: class, bits: uint8(bits)}
		if bits >= 8 {
			rule.protocol, rule.match = protocol, match&^(1<<(24-bits)-1)
		}
		if _, ok := c.rules[rule]; ok && class != 0 {
			return true
		}
	}
	return false
}

// randomPolicy is one that speaks of the addresses 10.0.0.0 to 10.0.3.255 and of few ports.
func randomPolicy(r *rand.Rand, rules int) Policy {
	randomPrefix := func(within netip.Prefix) netip.Prefix {
		base := within.Addr().As4()
		host := r.Uint32() & (1<<(32-within.Bits()) - 1)
		base[1], base[2], base[3] = base[1]|byte(host>>16), base[2]|byte(host>>8), base[3]|byte(host)
		p, _ := netip.AddrFrom4(base).Prefix(within.Bits() + r.IntN(33-within.Bits()))
		return p
	}
	var p Policy
	for range rules {
		var rule Rule
		for range r.IntN(3) {
			peer := Peer{Prefix: randomPrefix(prefix("10.0.0.0/22"))}
			for range r.IntN(3) {
				peer.Except = append(peer.Except, randomPrefix(peer.Prefix))
			}
			rule.Peers = append(rule.Peers, peer)
		}
		for range r.IntN(4) {
			first := uint16(r.IntN(16))
			protocol := []Protocol{TCP, UDP}[r.IntN(2)]
			switch r.IntN(8) {
			case 0:
				rule.Ports = append(rule.Ports, AllPorts(protocol))
			case 1:
				rule.Ports = append(rule.Ports, ICMPType(8))
			case 2:
				rule.Ports = append(rule.Ports, ICMPCode(8, 0))
			default:
				rule.Ports = append(rule.Ports, Ports{protocol, first, first + uint16(r.IntN(8))})
			}
		}
		p.Rules = append(p.Rules, rule)
	}
	return p
}

func TestTheTablesOfAPolicySayWhatItsRulesSay(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 300 {
		p := randomPolicy(r, r.IntN(12))
		c, err := compile(p)
		require.NoError(t, err)
		for range 300 {
			peer := netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(5)), byte(r.IntN(256))})
			protocol := []Protocol{TCP, UDP, ICMP, 132}[r.IntN(4)]
			match := uint16(r.IntN(24))
			if protocol == ICMP {
				match = []uint16{8 << 8, 8<<8 | 1, 0}[r.IntN(3)]
			}
			require.Equal(t, p.admits(peer, protocol, match), c.admits(peer, protocol, match), "%v of %v, %v %d", p, peer, protocol, match)
		}
	}
}

func TestPortsAreCutIntoTheFewestPrefixes(t *testing.T) {
	for _, c := range []struct {
		first, last uint16
		prefixes    int
	}{{0, 65535, 1}, {80, 80, 1}, {1, 65535, 16}, {1024, 65535, 6}, {1, 65534, 30}, {8080, 8081, 1}, {8081, 8082, 2}} {
		covered := 0
		for _, p := range portPrefixes(c.first, c.last) {
			covered += 1 << (16 - p.bits)
		}
		require.Equal(t, int(c.last)-int(c.first)+1, covered)
		require.Len(t, portPrefixes(c.first, c.last), c.prefixes, "%v", c)
	}
}

func TestAPolicyThatIsTooLargeOrWrongIsRefused(t *testing.T) {
	big := Policy{}
	for i := range 600 {
		host := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)
		big.Rules = append(big.Rules, Rule{[]Peer{{Prefix: host}}, []Ports{port(TCP, 1)}}, Rule{nil, []Ports{port(TCP, uint16(2*i+2))}})
	}
	for message, p := range map[string]Policy{
		"combinations of peers and ports": big,
		"canonical form":                  {Rules: []Rule{{Peers: []Peer{{Prefix: netip.MustParsePrefix("10.0.0.1/24")}}}}},
		"no range of a protocol":          {Rules: []Rule{{Ports: []Ports{{TCP, 2, 1}}}}},
	} {
		_, err := compile(p)
		require.ErrorContains(t, err, message)
	}
}

// judge is the engine in plain Go: what one interface's policies make of packets.
type judge struct {
	ingress, egress *Policy // nil: none
	version         int
	flows           map[string]*judgedFlow
	openings        map[string]bool // of TCP connections that began while there was no policy: whether they came in
}

type judgedFlow struct {
	in, cut       bool
	version       int
	match         uint16
	finIn, finOut bool
	reset         bool
}

type modelPacket struct {
	protocol                    Protocol
	source, destination         netip.Addr
	sourcePort, destinationPort uint16
	flags                       layers.TCP
	kind, identifier            uint16
}

func may(p *Policy, peer netip.Addr, protocol Protocol, match uint16) bool {
	return p == nil || p.admits(peer, protocol, match)
}

// decide returns "", "policy_ingress" or "policy_egress".
func (j *judge) decide(p modelPacket, in bool) string {
	peer, localPort, remotePort := p.destination, p.sourcePort, p.destinationPort
	key := fmt.Sprint(p.protocol, p.destination, p.sourcePort, p.destinationPort)
	if in {
		peer, localPort, remotePort = p.source, p.destinationPort, p.sourcePort
		key = fmt.Sprint(p.protocol, p.source, p.destinationPort, p.sourcePort)
	}
	match := p.destinationPort
	if p.protocol == ICMP {
		match = p.kind << 8
		client := in != (p.kind == 8) // whether the interface is the one that asks
		key = fmt.Sprint(p.protocol, peer, p.identifier, client)
	}
	names := map[bool]string{true: "policy_ingress", false: "policy_egress"}
	of := func(in bool) *Policy {
		if in {
			return j.ingress
		}
		return j.egress
	}
	opens := p.protocol == TCP && p.flags.SYN && !p.flags.ACK
	if j.ingress == nil && j.egress == nil {
		if opens {
			j.openings[key] = in
		}
		return ""
	}
	if f := j.flows[key]; f != nil {
		if f.version != j.version {
			f.cut, f.version = !may(of(f.in), peer, p.protocol, f.match), j.version
		}
		closing := f.reset || (f.finIn && f.finOut)
		if !opens || (!f.cut && !closing) {
			if f.cut {
				return names[f.in]
			}
			f.note(p, in)
			return ""
		}
	}
	f := &judgedFlow{in: in, version: j.version, match: match}
	if p.protocol == TCP && !opens {
		if began, ok := j.openings[key]; ok {
			f.in, f.match = began, remotePort
		} else if !in && j.ingress != nil && may(j.ingress, peer, TCP, localPort) {
			f.in = true
		}
		if f.in {
			f.match = localPort
		}
	}
	if !may(of(f.in), peer, p.protocol, f.match) {
		return names[f.in]
	}
	f.note(p, in)
	j.flows[key] = f
	return ""
}

func (f *judgedFlow) note(p modelPacket, in bool) {
	if p.protocol == TCP {
		f.reset = f.reset || p.flags.RST
		f.finIn = f.finIn || (p.flags.FIN && in)
		f.finOut = f.finOut || (p.flags.FIN && !in)
	}
}

// send makes the packet and gives it to the sender's program.
func (p modelPacket) send(from *pod) outcome {
	to := netip.AddrPortFrom(p.destination, p.destinationPort).String()
	switch p.protocol {
	case TCP:
		return from.sends(from.tcp(p.sourcePort, to, p.flags).frame())
	case UDP:
		return from.sends(from.udp(p.sourcePort, to).frame())
	default:
		frame := from.icmp(p.destination.String(), layers.CreateICMPv4TypeCode(uint8(p.kind), 0))
		return from.sends(frame)
	}
}

// Random policies that change, and random packets: each is decided as the plain model decides.
func TestEveryPacketIsJudgedAsTheModelJudges(t *testing.T) {
	const packets = 1500 // of which the first is seldom older than the timeout of closed connections, which the model does not know
	for seed := range uint64(12) {
		c := tenantsAlone(t)
		r := rand.New(rand.NewPCG(seed, 7))
		pods := []*pod{c.a1, c.a2, c.a3, c.a4, c.nodes[0].pod(7, 1001, "10.0.1.13")}
		judges := map[*pod]*judge{}
		for _, p := range pods {
			judges[p] = &judge{flows: map[string]*judgedFlow{}, openings: map[string]bool{}}
		}
		verdicts := map[string]int{}
		for i := range packets {
			if r.IntN(40) == 0 {
				p := pods[r.IntN(len(pods))]
				j := judges[p]
				j.ingress, j.egress = maybePolicy(r), maybePolicy(r)
				j.version++
				p.setPolicies(j.ingress, j.egress)
				collectUnused(t, p.node)
			}
			from, to := pods[r.IntN(len(pods))], pods[r.IntN(len(pods))]
			if from == to {
				continue
			}
			packet := modelPacket{
				protocol: []Protocol{TCP, UDP, ICMP}[r.IntN(3)], source: from.nic.Address, destination: to.nic.Address,
				sourcePort: uint16(r.IntN(4)), destinationPort: uint16(r.IntN(4)),
				flags: []layers.TCP{syn, synAck, ack, ack, fin, rst}[r.IntN(6)], kind: []uint16{0, 8}[r.IntN(2)], identifier: 3,
			}
			want := judges[from].decide(packet, false)
			if want == "" {
				want = judges[to].decide(packet, true)
			}
			for _, n := range c.nodes {
				n.unforetold = i%50 != 0
			}
			o := packet.send(from)
			if o.drop == 0 && o.target == bpfTraceTargetTRACE_MEMBER {
				o = o.then()
			}
			got := ""
			if o.drop != 0 {
				got = o.drop.String()
			}
			require.Equal(t, want, got, "seed %d, packet %d: %+v\nfrom %+v\nto %+v", seed, i, packet, judges[from], judges[to])
			verdicts[got]++
		}
		for _, verdict := range []string{"", "policy_ingress", "policy_egress"} {
			require.Greater(t, verdicts[verdict], packets/20, "too few %q for a test: %v", verdict, verdicts)
		}
	}
}

func maybePolicy(r *rand.Rand) *Policy {
	if r.IntN(4) == 0 {
		return nil
	}
	p := randomPolicy(r, r.IntN(12))
	if p.admitsAll() {
		return nil
	}
	return &p
}

// collectUnused removes the policies that no interface of the node has.
func collectUnused(t testing.TB, n *node) {
	nics, err := n.NICs.List()
	require.NoError(t, err)
	used := map[PolicyID]bool{}
	for _, nic := range nics {
		used[nic.IngressPolicy], used[nic.EgressPolicy] = true, true
	}
	_, err = n.Policies.Collect(used)
	require.NoError(t, err)
	kept, err := n.Policies.Len()
	require.NoError(t, err)
	require.LessOrEqual(t, kept, len(used))
}
