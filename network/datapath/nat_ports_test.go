package datapath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"
)

// entries are all of the table of flows.
func (n *node) entries() map[bpfConntrackKey]bpfNatFlow {
	all := map[bpfConntrackKey]bpfNatFlow{}
	require.NoError(n.cloud.t, n.NAT.each(func(e natEntry) { all[e.key] = e.flow }))
	return all
}

// edit changes entries, or deletes those for which it returns false. All that was done with those that stay was a moment ago.
func (n *node) edit(change func(key bpfConntrackKey, flow *bpfNatFlow) (keep bool)) {
	t := n.cloud.t
	for key, flow := range n.entries() {
		if change(key, &flow) {
			flow.Touched--
			require.NoError(t, n.NAT.flows.Update(bytesOf(&key), bytesOf(&flow), ebpf.UpdateExist))
		} else {
			require.NoError(t, n.NAT.flows.Delete(bytesOf(&key)))
		}
	}
}

// idle makes it so long ago that anything was sent.
func (n *node) idle(seconds uint32) {
	n.edit(func(_ bpfConntrackKey, flow *bpfNatFlow) bool {
		flow.LastSeen -= seconds
		return true
	})
}

// kind says which of the four entries of a flow one is.
func kind(key bpfConntrackKey) string {
	e := natEntry{key: key}
	return map[bool]string{true: "forward", false: "reverse"}[e.forward()] + map[bool]string{true: " mapping", false: ""}[e.mapping()]
}

// https://github.com/cilium/cilium/issues/33074: packets were dropped although ports were free. Every port serves each destination.
func TestEveryPortOfABlockServesEachDestination(t *testing.T) {
	c := tenantsAlone(t)
	g := newGateway(c.cloud, 1001)
	g.gives(c.nodes[0], block(shared, 1024), 1001)
	n := c.nodes[0]
	n.unforetold = true
	for _, remote := range []string{outsider + ":80", "198.51.100.10:80"} {
		used := map[uint16]uint16{}
		dropped := 0
		for inner := range uint16(PortBlockSize + 100) {
			o := c.a1.sends(c.a1.udp(20000+inner, remote).frame())
			if o.drop != 0 {
				o.isDropped(bpfDropReasonDROP_NAT_EXHAUSTED)
				dropped++
				continue
			}
			port := o.leaves().externalPort()
			require.Zero(t, used[port], "two have the port %d", port)
			used[port] = 20000 + inner
		}
		require.Equal(t, 100, dropped)
		require.Len(t, used, PortBlockSize)
		for port, inner := range used {
			n.gets(fromOutside(remote, at(shared, port)).frame()).reaches(c.a1).is(remote, at("10.0.1.11", inner))
		}
	}
	wants, err := n.NAT.Wants()
	require.NoError(t, err)
	require.Equal(t, map[uint32]int{1001: 1}, wants)
	g.gives(n, block(shared, 1536), 1001)
	c.a1.sends(c.a1.udp(30000, outsider+":80").frame()).leaves()
}

// A port is first one interface's alone; only when there is none left two share it, towards different destinations.
func TestPortsAreSharedOnlyWhenNoneIsLeft(t *testing.T) {
	c, _ := newShared(t)
	c.nodes[0].unforetold = true
	seen := map[uint16]bool{}
	for i := range uint16(128) {
		port := c.a1.sends(c.a1.udp(20000+i, at("198.51.100.9", 1000+i)).frame()).leaves().externalPort()
		require.False(t, seen[port], "a port has two although others have none")
		seen[port] = true
	}
}

func TestTheSpareBlockIsAskedForBeforeItIsNeeded(t *testing.T) {
	c, g := newShared(t)
	n := c.nodes[0]
	c.a1.sends(c.a1.udp(4000, outsider+":53").frame()).leaves()
	wants, err := n.NAT.Wants()
	require.NoError(t, err)
	require.Equal(t, map[uint32]int{1001: 1}, wants, "the only block is in use")
	g.gives(n, block(shared, 2048), 1001)
	for i := range uint16(16) {
		port := c.a1.sends(c.a1.udp(5000+i, outsider+":53").frame()).leaves().externalPort()
		require.Less(t, port, uint16(1536), "the spare block is used while the other has free ports")
	}
	wants, err = n.NAT.Wants()
	require.NoError(t, err)
	require.Empty(t, wants)
}

func TestWithoutPortsNothingLeavesUntranslated(t *testing.T) {
	c, g := newShared(t)
	c.a1.sends(c.a1.udp(4000, outsider+":53").frame()).leaves()
	g.takes(c.nodes[0], block(shared, 1024))
	require.Empty(t, c.nodes[0].entries(), "flows end with their ports")
	_, err := c.nodes[0].NAT.Sync(NATState{Subnets: map[uint32][]PortBlock{1001: nil}, Members: map[PortBlock]netip.Addr{block(shared, 1536): c.nodes[1].address}})
	require.NoError(t, err)
	c.a1.sends(c.a1.udp(4000, outsider+":53").frame()).isDropped(bpfDropReasonDROP_NAT_NO_PORTS)
	state, err := c.nodes[0].NAT.State()
	require.NoError(t, err)
	require.Equal(t, NATState{Subnets: map[uint32][]PortBlock{1001: nil}, Members: map[PortBlock]netip.Addr{block(shared, 1536): c.nodes[1].address}}, state)
}

func TestABlockOfAnotherShapeIsRefused(t *testing.T) {
	c, _ := newShared(t)
	for _, b := range []PortBlock{block(shared, 512), block(shared, 1025), block("2001:db8::5", 1024)} {
		_, err := c.nodes[0].NAT.Sync(NATState{Members: map[PortBlock]netip.Addr{b: {}}})
		require.Error(t, err, "%s", b)
	}
}

// https://github.com/cilium/cilium/issues/34833 and https://github.com/cilium/cilium/issues/29305: half of a pair was evicted.
func TestWhateverIsEvictedOfAFlowItGoesOnByTheSamePort(t *testing.T) {
	c, _ := newShared(t)
	n := c.nodes[0]
	remote := outsider + ":53"
	out := func() uint16 { return c.a1.sends(c.a1.udp(4000, remote).frame()).leaves().externalPort() }
	port := out()
	in := func() outcome { return n.gets(fromOutside(remote, at(shared, port)).frame()) }
	in().reaches(c.a1)
	all := n.entries()
	require.Len(t, all, 4)
	names := []string{"forward", "reverse", "forward mapping", "reverse mapping"}
	for lost := range 1 << len(names) {
		evict := map[string]bool{}
		for i, name := range names {
			evict[name] = lost&(1<<i) != 0
		}
		drop := func() {
			n.edit(func(key bpfConntrackKey, flow *bpfNatFlow) bool {
				flow.LastSeen-- // a second ago
				return !evict[kind(key)]
			})
		}
		drop()
		require.Equal(t, port, out(), "%v", evict)
		in().reaches(c.a1)
		drop()
		if o := in(); evict["reverse"] && (evict["forward"] || evict["reverse mapping"]) {
			o.isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW) // nothing says whose it was
		} else {
			o.reaches(c.a1)
		}
		require.Equal(t, port, out(), "%v", evict)
		n.edit(func(_ bpfConntrackKey, flow *bpfNatFlow) bool { flow.LastSeen--; return true })
		in().reaches(c.a1)
		require.Equal(t, port, out(), "%v", evict)
		require.Len(t, n.entries(), 4, "%v", evict)
	}
}

// Two interfaces' flows must never look alike outside, whatever is evicted.
func TestAFlowWhosePortAnotherTookIsNotMixedWithIt(t *testing.T) {
	c, _ := newShared(t)
	n := c.nodes[0]
	remote := outsider + ":53"
	port := c.a1.sends(c.a1.udp(4000, remote).frame()).leaves().externalPort()
	n.edit(func(key bpfConntrackKey, flow *bpfNatFlow) bool {
		flow.LastSeen--
		if kind(key) == "reverse" {
			flow.InnerPort = networkPort(4001) // by now another's
		}
		return true
	})
	c.a1.sends(c.a1.udp(4000, remote).frame()).isDropped(bpfDropReasonDROP_NAT_UNKNOWN_FLOW)
	require.NotEqual(t, port, c.a1.sends(c.a1.udp(4000, remote).frame()).leaves().externalPort())
}

func TestFlowsEndWithTime(t *testing.T) {
	c, _ := newShared(t)
	n := c.nodes[0]
	ping := layers.CreateICMPv4TypeCode(8, 0)
	for name, test := range map[string]struct {
		packets func(c *tenants, in func(segment) outcome)
		seconds uint32 // after which it is no more
	}{
		"UDP unanswered": {func(_ *tenants, _ func(segment) outcome) {}, 60},
		"UDP":            {func(_ *tenants, in func(segment) outcome) { in(segment{}) }, 180},
		"TCP unanswered": {func(_ *tenants, _ func(segment) outcome) {}, 60},
		"TCP":            {func(_ *tenants, in func(segment) outcome) { in(segment{tcp: &layers.TCP{SYN: true, ACK: true}}) }, 8000},
		"TCP reset": {func(_ *tenants, in func(segment) outcome) {
			in(segment{tcp: &layers.TCP{SYN: true, ACK: true}})
			in(segment{tcp: &layers.TCP{RST: true}})
		}, 10},
		"TCP closed": {func(c *tenants, in func(segment) outcome) {
			c.a1.sends(c.a1.tcp(4000, outsider+":80", layers.TCP{FIN: true, ACK: true}).frame()).leaves()
			in(segment{tcp: &layers.TCP{FIN: true, ACK: true}})
		}, 10},
		"ping": {nil, 60},
	} {
		t.Log(name)
		n.edit(func(bpfConntrackKey, *bpfNatFlow) bool { return false })
		frame := c.a1.udp(4000, outsider+":80").frame()
		switch name[:3] {
		case "TCP":
			frame = c.a1.tcp(4000, outsider+":80", syn).frame()
		case "pin":
			frame = c.a1.icmp(outsider, ping)
		}
		port := c.a1.sends(frame).leaves().externalPort()
		in := func(s segment) outcome {
			answer := fromOutside(outsider+":80", at(shared, port))
			answer.tcp = s.tcp
			return n.gets(answer.frame()).reaches(c.a1)
		}
		if test.packets != nil {
			test.packets(c, in)
		}
		collect := func(later uint32) (flows int) { // not by entries that are older: a machine that just started has no such time
			_, err := n.NAT.Collect(time.Duration(n.seconds()+later)*time.Second, there)
			require.NoError(t, err)
			for key := range n.entries() {
				if e := (natEntry{key: key}); !e.mapping() {
					flows++
				}
			}
			return flows
		}
		require.Equal(t, 2, collect(test.seconds/2))
		require.Zero(t, collect(test.seconds+2))
	}
}

// A connection that begins again from the same port has its port again, also where the former one had just ended.
func TestAClosedConnectionsPortsBeginANewOne(t *testing.T) {
	c, _ := newShared(t)
	n := c.nodes[0]
	send := func(flags layers.TCP) outcome { return c.a1.sends(c.a1.tcp(4000, outsider+":80", flags).frame()) }
	port := send(syn).leaves().externalPort()
	n.gets(fromOutside(outsider+":80", at(shared, port)).as(layers.TCP{SYN: true, ACK: true}).frame()).reaches(c.a1)
	n.gets(fromOutside(outsider+":80", at(shared, port)).as(layers.TCP{RST: true}).frame()).reaches(c.a1)
	require.Equal(t, port, send(syn).leaves().externalPort())
	flows, err := n.NAT.List()
	require.NoError(t, err)
	require.Len(t, flows, 1)
	require.False(t, flows[0].Closing)
	require.Equal(t, []netip.AddrPort{addrPortOf("10.0.1.11:4000"), addrPortOf(outsider + ":80"), addrPortOf(at(shared, port))},
		[]netip.AddrPort{flows[0].Inner, flows[0].Remote, flows[0].External})
}

func there(EndpointKey) bool { return true }

func TestFlowsEndWithTheirInterface(t *testing.T) {
	c, g := newShared(t)
	n := c.nodes[0]
	g.gives(n, block(shared, 2048), 1002)
	c.a1.sends(c.a1.udp(4000, outsider+":53").frame()).leaves()
	c.a3.sends(c.a3.udp(4000, outsider+":53").frame()).leaves()
	live, err := n.NAT.Collect(time.Duration(n.seconds())*time.Second, func(key EndpointKey) bool { return key == EndpointKey{1002, addr("10.0.2.11")} })
	require.NoError(t, err)
	require.Equal(t, map[PortBlock]int{block(shared, 2048): 2}, live)
	for _, flow := range n.entries() {
		require.EqualValues(t, 1002, flow.Vni)
	}
}

// A block that is to be given back begins no flow, and those that it has go on.
func TestFlowsOfABlockThatIsKeptGoOn(t *testing.T) {
	c, _ := newShared(t)
	n := c.nodes[0]
	send := func(port uint16) uint16 {
		return c.a1.sends(c.a1.udp(port, outsider+":53").frame()).leaves().externalPort()
	}
	before := send(4000)
	s := NATState{
		Subnets: map[uint32][]PortBlock{1001: {block(shared, 2048)}}, Kept: map[uint32][]PortBlock{1001: {block(shared, 1024)}},
		Members: map[PortBlock]netip.Addr{block(shared, 1024): {}, block(shared, 2048): {}},
	}
	_, err := n.NAT.Sync(s)
	require.NoError(t, err)
	require.Equal(t, before, send(4000))
	n.gets(fromOutside(outsider+":53", at(shared, before)).frame()).reaches(c.a1)
	require.GreaterOrEqual(t, send(4001), uint16(2048))
	s.Kept, s.Members = nil, map[PortBlock]netip.Addr{block(shared, 2048): {}}
	_, err = n.NAT.Sync(s)
	require.NoError(t, err)
	require.GreaterOrEqual(t, send(4000), uint16(2048))
}

// What a packet makes anew while entries are collected stays.
func TestCollectionTakesNothingFromAFlowInUse(t *testing.T) {
	c, _ := newShared(t)
	n := c.nodes[0]
	port := c.a1.sends(c.a1.udp(4000, outsider+":53").frame()).leaves().externalPort()
	now := time.Duration(n.seconds()) * time.Second
	for key, flow := range n.entries() {
		read := natEntry{key: key, flow: flow}
		read.flow.LastSeen -= 1000 // as it was read, before the packet
		require.NoError(t, n.NAT.collect(&read, now))
	}
	require.Len(t, n.entries(), 4)
	live, err := n.NAT.Collect(now, there)
	require.NoError(t, err)
	require.Equal(t, map[PortBlock]int{block(shared, 1024): 2}, live)
	n.gets(fromOutside(outsider+":53", at(shared, port)).frame()).reaches(c.a1)
}
