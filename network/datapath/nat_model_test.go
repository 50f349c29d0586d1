package datapath

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// natModel is what flows and blocks should be.
type natModel struct {
	t       *testing.T
	r       *rand.Rand
	c       *tenants
	g       *nat
	pods    []*pod
	remotes []netip.AddrPort
	passed  int // seconds that were made to
	began   time.Time
	step    int // when what is being done began, by the model's clock: the programs' clock is read between that and now
	flows   []*modelFlow
	// users are who has had an external port since its block was last given away; ports those that an inside port has had since blocks moved and it
	// had no flow.
	users map[modelPort]map[modelInner]bool
	ports map[modelInner]map[netip.AddrPort]bool
	seen  map[string]int
}

// slack is by how much the model's clock and the programs' may differ, in seconds.
const slack = 3

// now is the model's clock: the seconds that passed, and those that were made to.
func (m *natModel) now() int { return m.passed + int(time.Since(m.began)/time.Second) }

// oldest is how old a flow may be at most, however long the machine took for what is being done.
func (m *natModel) oldest(f *modelFlow) int { return m.now() - f.since + slack }

// sure tells that a flow is certainly live, or certainly not.
func (m *natModel) sure(f *modelFlow) (live, dead bool) {
	return m.oldest(f) < f.timeout(), m.step-f.until-slack > f.timeout()
}

// of finds flows.
func (m *natModel) of(is func(*modelFlow) bool) (found []*modelFlow) {
	for _, f := range m.flows {
		if is(f) {
			found = append(found, f)
		}
	}
	return found
}

func one(flows []*modelFlow) *modelFlow {
	if len(flows) == 0 {
		return nil
	}
	return flows[0]
}

// owns tells whether a pod's Subnet has the block of a port on its node.
func (m *natModel) owns(p *pod, external netip.AddrPort) bool {
	b := blockOf(external)
	return slices.Contains(m.g.blocks[p.node], b) && slices.Contains(m.g.subnets[b], p.nic.VNI)
}

// served tells whether a pod's Subnet has a block on its node.
func (m *natModel) served(p *pod) bool {
	return slices.ContainsFunc(m.g.blocks[p.node], func(b PortBlock) bool { return slices.Contains(m.g.subnets[b], p.nic.VNI) })
}

var natFlags = []layers.TCP{syn, syn, {ACK: true}, {ACK: true}, {FIN: true, ACK: true}, {RST: true}}

// packet is a frame of a flow, by its protocol.
func (m *natModel) packet(protocol Protocol, s segment, flags layers.TCP) []byte {
	if protocol == TCP {
		s.tcp = &flags
	}
	return s.frame()
}

// out has a Pod send, and compares.
func (m *natModel) out() {
	p, remote := m.pods[m.r.IntN(len(m.pods))], m.remotes[m.r.IntN(len(m.remotes))]
	protocol, flags := []Protocol{TCP, UDP}[m.r.IntN(2)], natFlags[m.r.IntN(len(natFlags))]
	inner := modelInner{p.nic.VPCID, protocol, netip.AddrPortFrom(p.nic.Address, uint16(4000+m.r.IntN(6)))}
	known := one(m.of(func(f *modelFlow) bool { return f.inner == inner && f.remote == remote }))
	o := p.sends(m.packet(protocol, p.udp(inner.at.Port(), remote.String()), flags))
	opens := protocol == TCP && flags.SYN
	aborts := protocol == TCP && flags.RST
	var live, dead bool
	if known != nil {
		live, dead = m.sure(known)
		if opens && known.closed() {
			live, dead = false, true // it begins anew
		}
	}
	if o.drop != 0 {
		m.seen[o.drop.String()]++
		require.False(m.t, live, "a live flow was dropped: %s, %+v", o.drop, known)
		switch {
		case aborts:
			o.isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)
		case !m.served(p):
			o.isDropped(bpfDropReasonDROP_NAT_NO_PORTS)
		default:
			require.Fail(m.t, "dropped although there are ports", "%s: %+v to %s", o.drop, inner, remote)
		}
		return
	}
	external := m.leaves(o, protocol, remote)
	require.True(m.t, m.owns(p, external), "%s is no port of %+v's", external, inner)
	// Whether a flow went on that was neither certainly live nor certainly not, the programs alone know.
	wentOn := slices.ContainsFunc(o.steps, func(s Step) bool { return s.Kind == StepNAT && s.Known })
	require.False(m.t, live && !wentOn, "a live flow began anew: %+v", known)
	if wentOn {
		require.NotNil(m.t, known, "nobody began it: %+v to %s", inner, remote)
		require.False(m.t, dead, "it went on after its time: %+v", known)
		require.Equal(m.t, known.external, external, "a live flow has another port: %+v", known)
		known.note(flags, false, m.step, m.now())
		m.seen["went on"]++
		return
	}
	require.False(m.t, aborts, "what aborts a connection began one: %+v", inner)
	m.begins(inner, remote, external)
	m.forgets(func(f *modelFlow) bool { return f == known })
	f := &modelFlow{pod: p, inner: inner, external: external, remote: remote}
	f.note(flags, false, m.step, m.now())
	m.flows = append(m.flows, f)
}

func (m *natModel) forgets(is func(*modelFlow) bool) { m.flows = slices.DeleteFunc(m.flows, is) }

// begins compares the port of a flow that begins.
func (m *natModel) begins(inner modelInner, remote, external netip.AddrPort) {
	m.seen["began"]++
	others := m.of(func(f *modelFlow) bool {
		live, _ := m.sure(f)
		return live && f.inner != inner && f.inner.protocol == inner.protocol && f.external == external && f.remote == remote
	})
	require.Empty(m.t, others, "two live flows share %s towards %s", external, remote)
	// Endpoint-independent mapping: while a port that nobody else has had is the only one that it has had, and is in use, the next flow
	// has it, too.
	used := m.of(func(f *modelFlow) bool {
		live, _ := m.sure(f)
		return live && f.inner == inner && m.oldest(f) < 60
	})
	if len(used) > 0 && len(m.ports[inner]) == 1 && len(m.users[modelPort{inner.protocol, used[0].external}]) == 1 {
		require.Equal(m.t, used[0].external, external, "%+v has two ports", inner)
		m.seen["same port towards another"]++
	}
	key := modelPort{inner.protocol, external}
	if m.users[key] == nil {
		m.users[key] = map[modelInner]bool{}
	}
	if m.ports[inner] == nil {
		m.ports[inner] = map[netip.AddrPort]bool{}
	}
	m.users[key][inner], m.ports[inner][external] = true, true
}

// leaves is the external side that a packet left from: never its inside.
func (m *natModel) leaves(o outcome, protocol Protocol, remote netip.AddrPort) netip.AddrPort {
	_, packet := o.leaves().parse()
	ip := packet.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	flow := packet.TransportLayer().TransportFlow()
	require.Equal(m.t, uint8(protocol), uint8(ip.Protocol))
	require.Equal(m.t, remote.String(), ip.DstIP.String()+":"+flow.Dst().String())
	require.Equal(m.t, shared, ip.SrcIP.String(), "it left untranslated")
	return addrPortOf(ip.SrcIP.String() + ":" + flow.Src().String())
}

// in has the outside send, by any node, and compares.
func (m *natModel) in() {
	protocol, flags := []Protocol{TCP, UDP}[m.r.IntN(2)], []layers.TCP{synAck, {ACK: true}, {FIN: true, ACK: true}, {RST: true}, syn}[m.r.IntN(5)]
	remote := m.remotes[m.r.IntN(len(m.remotes))]
	external := netip.AddrPortFrom(addr(shared), uint16(m.r.IntN(8*PortBlockSize)))
	if len(m.flows) > 0 && m.r.IntN(6) > 0 {
		f := m.flows[m.r.IntN(len(m.flows))]
		protocol, external = f.inner.protocol, f.external
		if m.r.IntN(5) > 0 {
			remote = f.remote
		}
	}
	// Of several that had the port, one after the other, only the last can be live.
	found := m.of(func(f *modelFlow) bool {
		return f.inner.protocol == protocol && f.external == external && f.remote == remote
	})
	slices.SortFunc(found, func(a, b *modelFlow) int { return b.until - a.until })
	o := m.c.nodes[m.r.IntN(len(m.c.nodes))].gets(m.packet(protocol, fromOutside(remote.String(), external.String()), flags))
	if o.drop == 0 && o.target == bpfTraceTargetTRACE_MEMBER {
		o = o.then()
	}
	for _, f := range found {
		live, dead := m.sure(f)
		require.False(m.t, live && o.drop != 0, "an answer was dropped: %s, %+v", o.drop, f)
		if o.drop == 0 && !dead && int(o.trace.Ifindex) == f.pod.ifindex && o.node == f.pod.node {
			o.reaches(f.pod).is(remote.String(), f.inner.at.String())
			f.note(flags, true, m.step, m.now())
			m.seen["answered"]++
			return
		}
	}
	require.NotZero(m.t, o.drop, "it reached somebody who did not ask: %s to %s, %+v", remote, external, found)
	o.isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)
	m.seen["not answered"]++
}

// passes makes time pass.
func (m *natModel) passes() {
	seconds := []int{1, 5, 20, 70, 200}[m.r.IntN(5)]
	for _, n := range m.c.nodes {
		n.idle(uint32(seconds))
	}
	m.passed += seconds
}

// collects removes what timed out of a node's table, and compares what is left.
func (m *natModel) collects() {
	n := m.c.nodes[m.r.IntN(len(m.c.nodes))]
	_, err := n.NAT.Collect(time.Duration(n.seconds())*time.Second, there)
	require.NoError(m.t, err)
	list, err := n.NAT.List()
	require.NoError(m.t, err)
	type tuple struct {
		inner            modelInner
		external, remote netip.AddrPort
	}
	left := map[tuple]bool{}
	for _, f := range list {
		left[tuple{modelInner{f.VPCID, f.Protocol, f.Inner}, f.External, f.Remote}] = true
	}
	for _, f := range m.flows {
		if f.pod.node != n {
			continue
		}
		key := tuple{f.inner, f.external, f.remote}
		switch live, dead := m.sure(f); {
		case live:
			require.True(m.t, left[key], "a live flow was collected: %+v", f)
		case dead:
			require.False(m.t, left[key], "a flow outlived its time: %+v", f)
		}
		delete(left, key)
	}
	require.Empty(m.t, left, "flows that nobody began")
	m.forgets(func(f *modelFlow) bool {
		_, dead := m.sure(f)
		return dead && f.pod.node == n
	})
	m.seen["collected"]++
}

// moves gives a block to a Subnet of a node, or takes it away, or both: to another node.
func (m *natModel) moves() {
	b := block(shared, 1024+PortBlockSize*m.r.IntN(6))
	var before *node
	was := m.g.subnets[b]
	for _, n := range m.c.nodes {
		if i := slices.Index(m.g.blocks[n], b); i >= 0 {
			before = n
			m.g.blocks[n] = slices.Delete(slices.Clone(m.g.blocks[n]), i, i+1)
		}
	}
	delete(m.g.subnets, b)
	if m.r.IntN(3) > 0 {
		n := m.c.nodes[m.r.IntN(len(m.c.nodes))]
		m.g.blocks[n] = append(m.g.blocks[n], b)
		m.g.subnets[b] = []uint32{[]uint32{1001, 2001}[m.r.IntN(2)]}
		if n == before && slices.Equal(was, m.g.subnets[b]) {
			return
		}
	}
	m.syncs()
	m.forgets(func(f *modelFlow) bool { return !m.owns(f.pod, f.external) })
	maps.DeleteFunc(m.users, func(key modelPort, _ map[modelInner]bool) bool { return blockOf(key.external) == b })
	// A mapping that went with its block is another port's from the next packet of a flow that has that one.
	maps.DeleteFunc(m.ports, func(inner modelInner, _ map[netip.AddrPort]bool) bool {
		return len(m.of(func(f *modelFlow) bool { return f.inner == inner })) == 0
	})
	m.seen["blocks moved"]++
}

// syncs brings the nodes' tables to what the gateway is. A Subnet without a block is served all the same.
func (m *natModel) syncs() {
	for _, n := range m.c.nodes {
		s := NATState{Subnets: map[uint32][]PortBlock{1001: nil, 2001: nil}, Members: map[PortBlock]netip.Addr{}}
		for owner, blocks := range m.g.blocks {
			for _, b := range blocks {
				s.Members[b] = owner.address
				if owner == n {
					s.Members[b] = netip.Addr{}
					vni := m.g.subnets[b][0]
					s.Subnets[vni] = append(s.Subnets[vni], b)
				}
			}
		}
		_, err := n.NAT.Sync(s)
		require.NoError(m.t, err)
	}
}

// restarts has a node's daemon end and begin again: programs and tables are loaded anew, from the pins.
func (m *natModel) restarts() {
	n := m.c.nodes[m.r.IntN(len(m.c.nodes))]
	d, err := load(n.config, loadBpf, true)
	require.NoError(m.t, err)
	m.t.Cleanup(func() { require.NoError(m.t, d.Close()) })
	n.Datapath = d
	m.syncs()
	m.seen["restarts"]++
}

// natSteps is how many operations each seed has, natSeeds are more than one in `make soak`.
func natSteps(t *testing.T) int {
	given := os.Getenv("NAT_STEPS")
	if given == "" {
		return 4000
	}
	steps, err := strconv.Atoi(given)
	require.NoError(t, err, "NAT_STEPS")
	return steps
}

func natSeeds() []uint64 {
	if os.Getenv("NAT_STEPS") == "" {
		return []uint64{1}
	}
	return []uint64{1, 2, 3, 4, uint64(time.Now().UnixNano())}
}

// Random packets both ways, time, collection, blocks that come, go and move between nodes, and restarts of daemons: no two live flows
// share an external port and a remote side; no answer reaches a port that did not ask; a port has one external port towards everybody;
// nothing leaves as it came.
func TestWhateverHappensFlowsAndBlocksAreAsTheModelSays(t *testing.T) {
	for _, seed := range natSeeds() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { newNATModel(t, seed).isFollowed(natSteps(t)) })
	}
}

func newNATModel(t *testing.T, seed uint64) *natModel {
	c := newTenants(t)
	m := &natModel{
		t: t, r: rand.New(rand.NewPCG(seed, 4)), c: c, g: newGateway(c.cloud, 1001, 2001), pods: []*pod{c.a1, c.a2, c.b1, c.b2},
		remotes: []netip.AddrPort{addrPortOf(outsider + ":53"), addrPortOf(outsider + ":80"), addrPortOf("198.51.100.10:53"), addrPortOf("198.51.100.11:4000")},
		users:   map[modelPort]map[modelInner]bool{}, ports: map[modelInner]map[netip.AddrPort]bool{}, seen: map[string]int{}, began: time.Now(),
	}
	for _, n := range c.nodes {
		require.NoError(t, n.Externals.Set(prefix(shared+"/32"), External{Kind: ExternalNAT}))
	}
	m.syncs()
	for range 8 {
		m.moves()
	}
	return m
}

// isFollowed does so many things, and compares each with the model.
func (m *natModel) isFollowed(steps int) {
	for i := range steps {
		for _, n := range m.c.nodes {
			n.unforetold = i%200 != 0
		}
		m.step = m.now()
		switch k := m.r.IntN(1000); {
		case k < 570:
			m.out()
		case k < 960:
			m.in()
		case k < 975:
			m.passes()
		case k < 990:
			m.collects()
		case k < 999:
			m.moves()
		default:
			m.restarts()
		}
	}
	m.t.Logf("%v", m.seen)
	for _, what := range []string{"went on", "began", "same port towards another", "answered", "not answered", "collected", "blocks moved", "restarts", "nat_no_ports"} {
		require.Positive(m.t, m.seen[what], "it never came to %q: %v", what, m.seen)
	}
}
