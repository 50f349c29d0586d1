package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// writtenMaps are the maps that programs write. A Tracer's programs have copies of them; all others they share with the
// programs that are attached, and only read.
var writtenMaps = []string{
	bpfMapAffinities, bpfMapConntracks, bpfMapAliasFlows, bpfMapCallers, bpfMapErrorTimes, bpfMapQueryTimes, bpfMapFlows, bpfMapOpenings, bpfMapFragments,
	bpfMapNatFlows, bpfMapNatWants, bpfMapNatSearchTimes, bpfMapNatScratches, bpfMapScratches, bpfMapDrops, bpfMapDeliveries,
}

// freshMaps are those among them whose content decides nothing: they start empty for each packet.
var freshMaps = map[string]bool{bpfMapNatWants: true, bpfMapNatScratches: true, bpfMapScratches: true, bpfMapDrops: true, bpfMapDeliveries: true}

// Tracer tells what the attached programs would do with a packet, by running the same programs, with the same constants and on
// the same maps, on a packet that does not exist (BPF_PROG_TEST_RUN). It changes nothing: what programs write are copies that
// are made for each packet, and a redirect of such a run goes nowhere. It must be used in the network namespace of the node.
type Tracer struct {
	d *Datapath
	// pinned are the maps of the node that the copies are made from.
	pinned map[string]*ebpf.Map
}

// OpenTracer opens a tracer for the datapath that is pinned at a path and attached in the calling thread's network namespace.
func OpenTracer(pinPath string) (*Tracer, error) {
	running, _, err := attachedProgram(pinPath)
	if err != nil {
		return nil, err
	}
	defer running.Close()
	constants, err := constantsOf(running)
	if err != nil {
		return nil, err
	}
	t, err := newTracer(pinPath, constants)
	if err != nil {
		return nil, err
	}
	if err := t.isThatOf(running); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// newTracer loads the programs with the constants (the content of the section .rodata) of others.
func newTracer(pinPath string, constants []byte) (*Tracer, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, fmt.Errorf("read the embedded object file: %w", err)
	}
	if size := spec.Maps[constantsSection].ValueSize; int(size) != len(constants) {
		return nil, fmt.Errorf("%w: their constants have %d bytes, not %d", errOtherVersion, len(constants), size)
	}
	for _, variable := range spec.Variables {
		if variable.SectionName != constantsSection {
			continue
		}
		if err := variable.Set(constants[variable.Offset : variable.Offset+variable.Size()]); err != nil {
			return nil, fmt.Errorf("constant %s: %w", variable.Name, err)
		}
	}
	if err := spec.Variables[bpfVarTracing].Set(true); err != nil {
		return nil, fmt.Errorf("constant %s: %w", bpfVarTracing, err)
	}
	pinned, err := openPinned(spec, pinPath)
	if err != nil {
		return nil, err
	}
	t := &Tracer{pinned: pinned}
	shared := map[string]*ebpf.Map{}
	for name, m := range t.pinned {
		shared[name] = m
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	for _, name := range writtenMaps {
		delete(shared, name)
		if spec.Maps[name].Type == ebpf.LRUHash { // a copy must not evict what the original has
			spec.Maps[name].Type, spec.Maps[name].Flags = ebpf.Hash, noPrealloc
			spec.Maps[name].MaxEntries += room
		}
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
	if err != nil {
		closeMaps(t.pinned)
		return nil, fmt.Errorf("load the programs: %w", err)
	}
	t.d = &Datapath{config: Config{PinPath: pinPath}, collection: collection}
	t.d.openTables()
	return t, nil
}

const (
	constantsSection = ".rodata"
	// noPrealloc is BPF_F_NO_PREALLOC.
	noPrealloc = 1
	// room is for the entries that one packet makes.
	room = 16
)

// Close frees the programs and copies.
func (t *Tracer) Close() error {
	t.d.collection.Close()
	closeMaps(t.pinned)
	return nil
}

// Packet is a packet to trace: a frame and where it comes from, which is one of the four.
type Packet struct {
	// Ifindex is the host side of the interface that sends it.
	Ifindex int
	// Host tells that the node's own stack sends it, by the far end of the host's veth.
	Host bool
	// Uplink tells that it comes from outside by the uplink, whose MAC address it gets.
	Uplink bool
	// Member and VNI tell that a member sends it by VXLAN.
	Member netip.Addr
	VNI    uint32
	// Frame is an Ethernet frame.
	Frame []byte
}

// Target is where a packet goes.
type Target uint32

const (
	// TargetNowhere is nowhere: it is dropped.
	TargetNowhere = Target(bpfTraceTargetTRACE_NOWHERE)
	// TargetInterface is an interface of this node.
	TargetInterface = Target(bpfTraceTargetTRACE_INTERFACE)
	// TargetSender is who sent it: an answer goes back.
	TargetSender = Target(bpfTraceTargetTRACE_SENDER)
	// TargetHost is the node's own stack.
	TargetHost = Target(bpfTraceTargetTRACE_HOST)
	// TargetMember is another member, by VXLAN.
	TargetMember = Target(bpfTraceTargetTRACE_MEMBER)
	// TargetOutside is out of the cloud, by the uplink.
	TargetOutside = Target(bpfTraceTargetTRACE_OUTSIDE)
	// TargetStack is the node's own stack, as it came: it is for no external address.
	TargetStack = Target(bpfTraceTargetTRACE_STACK)
)

// Verdict is what the programs would do with a packet.
type Verdict struct {
	Target Target
	// Ifindex is the device it goes to.
	Ifindex int
	// Member and VNI are those of TargetMember.
	Member netip.Addr
	VNI    uint32
	// Frame is as it leaves the program. Of a dropped packet: what its sender is told (an ICMP error), if anything.
	Frame []byte
	// Drop is why it is dropped; 0 when it is not. DropIfindex is the interface it would be counted at; 0 for the host's, the
	// vxlan device's and the uplink's.
	Drop        Reason
	DropIfindex int
	// Steps are the decisions on the way.
	Steps []Step
}

// Trace runs a packet through the program that would get it.
func (t *Tracer) Trace(p Packet) (Verdict, error) {
	program, trace, ifindex := bpfProgPodEgress, bpfTrace{}, uint32(p.Ifindex)
	switch {
	case p.Host:
		// Any device does: what is dropped is counted in a copy.
		program, ifindex = bpfProgHostEgress, loopbackIfindex
	case p.Uplink:
		uplink, err := t.uplink()
		if err != nil {
			return Verdict{}, err
		}
		link, err := netlink.LinkByIndex(int(uplink))
		if err != nil {
			return Verdict{}, fmt.Errorf("the uplink is gone: %w", err)
		}
		frame := slices.Clone(p.Frame)
		copy(frame, link.Attrs().HardwareAddr)
		v, err := t.run(bpfProgUplinkIngress, frame, skBuff{ifindex: uplink}, trace)
		if v.DropIfindex == int(uplink) {
			v.DropIfindex = 0
		}
		return v, err
	case p.Member.IsValid():
		program, ifindex = bpfProgVxlanIngress, loopbackIfindex
		trace.FromVni, trace.FromMember = p.VNI, toAddress(p.Member).W[3]
	}
	v, err := t.run(program, p.Frame, skBuff{ifindex: ifindex}, trace)
	if v.DropIfindex == loopbackIfindex {
		v.DropIfindex = 0
	}
	return v, err
}

const loopbackIfindex = 1

// uplink is the ifindex of the uplink, as the programs have it.
func (t *Tracer) uplink() (ifindex uint32, err error) {
	err = t.d.collection.Variables[bpfVarUplinkIfindex].Get(&ifindex)
	return ifindex, err
}

func (t *Tracer) run(program string, frame []byte, ctx skBuff, trace bpfTrace) (Verdict, error) {
	if err := t.refresh(); err != nil {
		return Verdict{}, err
	}
	err := errors.Join(t.d.collection.Maps[bpfMapTraces].Put(uint32(0), trace), t.d.collection.Variables[bpfVarTraceLog].Set(bpfTraceLog{}))
	if err != nil {
		return Verdict{}, fmt.Errorf("prepare the trace: %w", err)
	}
	options := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: ctx}
	action, err := t.d.program(program).Run(options)
	if errors.Is(err, unix.ENODEV) {
		return Verdict{}, fmt.Errorf("interface %d is not in the node's network namespace (any more)", ctx.ifindex)
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("run %s: %w", program, err)
	}
	return t.verdict(action, options.DataOut)
}

func (t *Tracer) verdict(action uint32, frame []byte) (Verdict, error) {
	var trace bpfTrace
	var log bpfTraceLog
	err := errors.Join(t.d.collection.Maps[bpfMapTraces].Lookup(uint32(0), &trace), t.d.collection.Variables[bpfVarTraceLog].Get(&log))
	drops, listErr := t.d.Drops.List()
	if err := errors.Join(err, listErr); err != nil {
		return Verdict{}, err
	}
	v := Verdict{Target: Target(trace.Target), Ifindex: int(trace.Ifindex), VNI: trace.Vni, Steps: stepsOf(log)}
	if v.Target == TargetMember {
		v.Member = fromIPv4(trace.Member)
	}
	if action == actionRedirect || v.Target == TargetStack {
		v.Frame = frame
	}
	for key := range drops {
		v.Drop, v.DropIfindex = key.Reason, key.Ifindex
	}
	return v, nil
}

// actionRedirect is TC_ACT_REDIRECT.
const actionRedirect = 7

// refresh makes the copies of the maps anew.
func (t *Tracer) refresh() error {
	for _, name := range writtenMaps {
		m := t.d.collection.Maps[name]
		if m.Type() == ebpf.PerCPUArray {
			continue
		}
		if err := clearMap(m); err != nil {
			return fmt.Errorf("%s: clear the copy: %w", name, err)
		}
		if freshMaps[name] {
			continue
		}
		if err := copyMap(m, t.pinned[name]); err != nil {
			return fmt.Errorf("%s: copy: %w", name, err)
		}
	}
	return nil
}

func clearMap(m *ebpf.Map) error {
	key := make([]byte, m.KeySize())
	for {
		if err := m.NextKey(nil, key); errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		if err := m.Delete(key); err != nil {
			return err
		}
	}
}

func copyMap(to, from *ebpf.Map) error {
	key, value := make([]byte, from.KeySize()), make([]byte, from.ValueSize())
	iterator := from.Iterate()
	for iterator.Next(key, value) {
		if err := to.Put(key, value); err != nil {
			return err
		}
	}
	// A busy table changes while it is read; what was seen of it is true.
	if err := iterator.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return err
	}
	return nil
}

// skBuff is the part of struct __sk_buff that BPF_PROG_TEST_RUN takes.
type skBuff struct {
	_       [10]uint32
	ifindex uint32
	_       [30]uint32
	gsoSegs uint32
	_       [2]uint32
	gsoSize uint32
	_       [3]uint32
}
