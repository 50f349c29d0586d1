package datapath

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// seenReasons are the reasons for which the tests of this package saw a packet dropped.
var seenReasons sync.Map

// unprovokable are reasons that no packet and no map content can cause.
var unprovokable = map[Reason]string{
	Reason(bpfDropReasonDROP_KERNEL): "a helper of the kernel fails only when it is out of memory",
}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

// testMain runs the tests and, when that was all of them, demands that they saw every reason for a drop.
func testMain(m *testing.M) int {
	code := m.Run()
	if err := closeRack(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.bench").Value.String() == "" {
		for _, reason := range Reasons() {
			if _, seen := seenReasons.Load(reason); !seen && unprovokable[reason] == "" {
				fmt.Fprintf(os.Stderr, "no test saw a packet dropped for the reason %s\n", reason)
				code = 1
			}
		}
	}
	return code
}

const (
	hostIfindex, hostPeerIfindex, vxlanIfindex, uplinkIfindex = 10, 11, 12, 13
	firstPodIfindex                                           = 21
)

// cloud is nodes whose programs run without being attached (BPF_PROG_TEST_RUN). What one sends, another can be given.
type cloud struct {
	t     testing.TB
	nodes []*node
}

type node struct {
	*Datapath
	cloud   *cloud
	address netip.Addr
	pods    int
	// tracer foretells what each packet meets.
	tracer *Tracer
	// unforetold says that it is not to: the time that it takes would decide.
	unforetold bool
}

// pod is an interface on a node.
type pod struct {
	node    *node
	ifindex int
	nic     NIC
}

// newCloud makes nodes 192.0.2.1, .2 and so on, all members. Programs see devices of a namespace of the test's own.
func newCloud(t testing.TB, nodes int, settings ...func(*Config)) *cloud {
	runtime.LockOSThread() // for good: the thread is in another namespace and dies with the test
	require.NoError(t, unix.Unshare(unix.CLONE_NEWNET), "make a network namespace (needs root)")
	for ifindex := hostIfindex; ifindex < firstPodIfindex+10; ifindex++ { // any device does: nothing is sent
		device := netlink.LinkAttrs{Name: fmt.Sprintf("any%d", ifindex), Index: ifindex}
		if ifindex == uplinkIfindex {
			device.HardwareAddr = uplinkMAC.HardwareAddr()
		}
		require.NoError(t, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: device}))
	}
	c := &cloud{t: t}
	for i := range nodes {
		config := testConfig("")
		config.HostIfindex, config.HostPeerIfindex, config.VXLANIfindex = hostIfindex, hostPeerIfindex, vxlanIfindex
		config.UplinkIfindex, config.NodeAddress = uplinkIfindex, netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		for _, set := range settings {
			set(&config)
		}
		d, tracer := takeNode(t, config)
		c.nodes = append(c.nodes, &node{Datapath: d, tracer: tracer, cloud: c, address: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})})
	}
	for _, n := range c.nodes {
		for _, member := range c.nodes {
			require.NoError(t, n.Members.Set(member.address, Member{}))
		}
		c.endpoint(n, EndpointKey{1, n.address}, Endpoint{VPCID: 1, Kind: EndpointHost})
	}
	c.subnet(1, 1, "198.18.0.0/17")
	return c
}

// endpoint tells every node where an address is.
func (c *cloud) endpoint(at *node, key EndpointKey, e Endpoint) {
	for _, n := range c.nodes {
		seen := e
		if n != at {
			seen.Node, seen.Ifindex = at.address, 0
		}
		require.NoError(c.t, n.Endpoints.Set(key, seen))
	}
}

func gatewayMAC(vni uint32) MAC { return MAC{2, 0xee, 0, byte(vni >> 16), byte(vni >> 8), byte(vni)} }

func (c *cloud) subnet(vpc, vni uint32, prefix string) {
	p := netip.MustParsePrefix(prefix)
	for _, n := range c.nodes {
		require.NoError(c.t, n.Subnets.Set(vni, Subnet{VPCID: vpc, Prefix: p, Gateway: p.Addr().Next(), GatewayMAC: gatewayMAC(vni)}))
	}
}

// route leads from one Subnet to another, both ways.
func (c *cloud) route(a uint32, aPrefix string, b uint32, bPrefix string) {
	for _, n := range c.nodes {
		require.NoError(c.t, n.Routes.Set(RouteKey{a, netip.MustParsePrefix(bPrefix)}, Route{VNI: b}))
		require.NoError(c.t, n.Routes.Set(RouteKey{b, netip.MustParsePrefix(aPrefix)}, Route{VNI: a}))
	}
}

// pod makes an interface on a node.
func (n *node) pod(vpc, vni uint32, address string) *pod {
	t := n.cloud.t
	p := &pod{node: n, ifindex: firstPodIfindex + n.pods}
	n.pods++
	ip := addr(address).As4()
	p.nic = NIC{
		VNI: vni, VPCID: vpc, Address: addr(address), PrefixLength: 24, GatewayMAC: gatewayMAC(vni),
		MAC: MAC{2, byte(vni), ip[0], ip[1], ip[2], ip[3]},
	}
	require.NoError(t, n.NICs.Set(uint32(p.ifindex), p.nic))
	n.cloud.endpoint(n, EndpointKey{vni, p.nic.Address}, Endpoint{VPCID: vpc, MAC: p.nic.MAC, Ifindex: uint32(p.ifindex)})
	return p
}

// outcome is what a program did with a packet.
type outcome struct {
	t      testing.TB
	node   *node
	frame  []byte
	target bpfTraceTarget
	trace  bpfTrace
	steps  []Step
	drop   Reason
	dropAt int // the ifindex it was counted at
	sender int // that of the program
	// told: the sender gets an ICMP error, which is the frame, about the drop.
	told bool
}

// run gives a frame to a program, having asked the tracer what would become of it: it must be right.
func (n *node) run(program string, frame []byte, ctx skBuff, trace bpfTrace) outcome {
	t := n.cloud.t
	t.Helper()
	var foretold Verdict
	if !n.unforetold {
		var err error
		foretold, err = n.tracer.run(program, frame, ctx, trace)
		require.NoError(t, err)
	}
	before, err := n.Drops.List()
	require.NoError(t, err)
	require.NoError(t, n.collection.Maps[bpfMapTraces].Put(uint32(0), trace))
	require.NoError(t, n.collection.Variables[bpfVarTraceLog].Set(bpfTraceLog{}))
	out := make([]byte, len(frame)+256)
	options := &ebpf.RunOptions{Data: frame, DataOut: out, Context: ctx}
	action, err := n.program(program).Run(options)
	require.NoError(t, err)
	o := outcome{t: t, node: n, frame: options.DataOut}
	require.NoError(t, n.collection.Maps[bpfMapTraces].Lookup(uint32(0), &o.trace))
	o.target = o.trace.Target
	var log bpfTraceLog
	require.NoError(t, n.collection.Variables[bpfVarTraceLog].Get(&log))
	o.steps = stepsOf(log)
	after, err := n.Drops.List()
	require.NoError(t, err)
	for key, count := range after {
		if count == before[key] {
			continue
		}
		require.Zero(t, o.drop, "counted under two reasons")
		require.Equal(t, before[key].Packets+1, count.Packets)
		require.Equal(t, before[key].Bytes+uint64(len(frame)), count.Bytes)
		o.drop, o.dropAt = key.Reason, key.Ifindex
		seenReasons.Store(o.drop, true)
	}
	o.sender = int(ctx.ifindex)
	o.told = o.drop != 0 && action == 7
	switch {
	case o.drop != 0 && !o.told:
		require.EqualValues(t, 2, action, "counted as dropped (%s) but neither TC_ACT_SHOT nor TC_ACT_REDIRECT", o.drop)
	case o.target == bpfTraceTargetTRACE_STACK:
		require.EqualValues(t, -1, int32(action), "left to the stack, but not TC_ACT_UNSPEC")
		require.Equal(t, frame, o.frame, "it was changed")
	default:
		require.EqualValues(t, 7, action, "neither counted as dropped nor TC_ACT_REDIRECT")
	}
	if n.unforetold {
		return o
	}
	actual := Verdict{
		Target: Target(o.target), Ifindex: int(o.trace.Ifindex), VNI: o.trace.Vni, Member: foretold.Member, Steps: o.steps,
		Drop: o.drop, DropIfindex: o.dropAt,
	}
	if action == actionRedirect || o.target == bpfTraceTargetTRACE_STACK {
		actual.Frame = o.frame
	}
	require.Equal(t, actual, foretold, "the tracer foretold something else")
	require.Equal(t, o.trace.Member, toAddress(foretold.Member).W[3])
	return o
}

// sends gives a frame to the program at the interface.
func (p *pod) sends(frame []byte) outcome {
	p.node.cloud.t.Helper()
	return p.node.run(bpfProgPodEgress, frame, skBuff{ifindex: uint32(p.ifindex)}, bpfTrace{})
}

// hostSends gives a frame to the program at the host's veth.
func (n *node) hostSends(frame []byte) outcome {
	n.cloud.t.Helper()
	return n.run(bpfProgHostEgress, frame, skBuff{ifindex: hostPeerIfindex}, bpfTrace{})
}

// receives gives a frame to the program at the vxlan device.
func (n *node) receives(from netip.Addr, vni uint32, frame []byte) outcome {
	n.cloud.t.Helper()
	return n.run(bpfProgVxlanIngress, frame, skBuff{ifindex: vxlanIfindex}, bpfTrace{FromVni: vni, FromMember: toAddress(from).W[3]})
}

// then carries on where the outcome leads to another node.
func (o outcome) then() outcome {
	o.t.Helper()
	require.Equal(o.t, bpfTraceTargetTRACE_MEMBER, o.target, "the packet does not go to another node; dropped: %v", o.drop)
	require.EqualValues(o.t, vxlanIfindex, o.trace.Ifindex)
	member := fromAddress(bpfAddress{W: [4]uint32{0, 0, toAddress(o.node.address).W[2], o.trace.Member}})
	for _, n := range o.node.cloud.nodes {
		if n.address == member {
			return n.receives(o.node.address, o.trace.Vni, o.frame)
		}
	}
	require.Fail(o.t, "sent to a node that does not exist", "%v", member)
	return outcome{}
}

func (o outcome) reaches(p *pod) outcome {
	o.t.Helper()
	require.Zero(o.t, o.drop, "dropped: %s", o.drop)
	require.Equal(o.t, bpfTraceTargetTRACE_INTERFACE, o.target)
	require.Same(o.t, p.node, o.node, "on another node")
	require.EqualValues(o.t, p.ifindex, o.trace.Ifindex)
	eth, _ := o.parse()
	require.Equal(o.t, p.nic.MAC.String(), eth.DstMAC.String())
	require.Equal(o.t, p.nic.GatewayMAC.String(), eth.SrcMAC.String())
	return o
}

func (o outcome) reachesHost(n *node) outcome {
	o.t.Helper()
	require.Zero(o.t, o.drop, "dropped: %s", o.drop)
	require.Equal(o.t, bpfTraceTargetTRACE_HOST, o.target)
	require.Same(o.t, n, o.node, "on another node")
	require.EqualValues(o.t, hostIfindex, o.trace.Ifindex)
	eth, _ := o.parse()
	require.Equal(o.t, n.config.HostMAC.String(), eth.DstMAC.String())
	return o
}

func (o outcome) isDropped(reason bpfDropReason) {
	o.t.Helper()
	require.Equal(o.t, o.sender, o.dropAt, "counted for another interface")
	require.Equal(o.t, Reason(reason).String(), o.drop.String())
	require.False(o.t, o.told, "the sender is told")
}

// isToldTo asserts that the packet was dropped and that its sender, a pod or (nil) the host, is told so.
func (o outcome) isToldTo(p *pod, reason bpfDropReason) outcome {
	o.t.Helper()
	require.Equal(o.t, Reason(reason).String(), o.drop.String())
	require.True(o.t, o.told, "the sender is not told")
	eth, _ := o.parse()
	if p == nil {
		require.Equal(o.t, bpfTraceTargetTRACE_HOST, o.target)
		require.Equal(o.t, o.node.config.HostMAC.String(), eth.DstMAC.String())
		return o
	}
	require.Equal(o.t, bpfTraceTargetTRACE_SENDER, o.target)
	require.EqualValues(o.t, p.ifindex, o.trace.Ifindex)
	require.Equal(o.t, p.nic.MAC.String(), eth.DstMAC.String())
	require.Equal(o.t, p.nic.GatewayMAC.String(), eth.SrcMAC.String())
	return o
}

// isRefusedBy asserts that the destination's policy dropped the packet, and that it was counted there.
func (o outcome) isRefusedBy(p *pod, reason bpfDropReason) {
	o.t.Helper()
	require.Equal(o.t, Reason(reason).String(), o.drop.String())
	require.Same(o.t, p.node, o.node)
	require.Equal(o.t, p.ifindex, o.dropAt, "counted for another interface")
}
