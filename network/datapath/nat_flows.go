package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// NATFlow is a flow through a NATGateway, as the node of who opened it knows it.
type NATFlow struct {
	VPCID    uint32
	Protocol Protocol
	// Inner opened it, to Remote, which sees External. Of ping Inner and External have the identifiers, and Remote has no port.
	Inner, Remote, External netip.AddrPort
	// Replied tells that the outside has answered; Closing that both sides ended, or one aborted, the connection.
	Replied, Closing bool
	// LastSeen is the time since boot of the last packet, to the second.
	LastSeen time.Duration
}

// natEntry is one of the entries of a flow, or of a mapping, whose remote side is zero.
type natEntry struct {
	key  bpfConntrackKey
	flow bpfNatFlow
}

func (e natEntry) forward() bool {
	return e.key.Direction == bpfConntrackDirectionCONNTRACK_FORWARD
}

func (e natEntry) mapping() bool {
	if e.forward() {
		return e.key.Destination == bpfAddress{}
	}
	return e.key.Source == bpfAddress{}
}

func (e natEntry) external() netip.AddrPort { return addrPort(e.flow.External, e.flow.ExternalPort) }

// List returns the flows.
func (n *NAT) List() ([]NATFlow, error) {
	var flows []NATFlow
	err := n.each(func(e natEntry) {
		if !e.forward() || e.mapping() {
			return
		}
		f := NATFlow{
			VPCID: e.key.VpcId, Protocol: Protocol(e.key.Protocol),
			Inner: addrPort(e.key.Source, e.key.SourcePort), Remote: addrPort(e.key.Destination, e.key.DestinationPort), External: e.external(),
			Replied: e.flow.Flags&bpfConntrackFlagsCONNTRACK_SEEN_REPLY != 0, Closing: isClosed(e.flow.Flags),
			LastSeen: time.Duration(e.flow.LastSeen) * time.Second,
		}
		if f.Protocol == ICMP {
			f.Remote = netip.AddrPortFrom(f.Remote.Addr(), 0)
		}
		flows = append(flows, f)
	})
	return flows, err
}

// Collect removes entries that timed out, and those of interfaces that are not there. It returns how many live flows and mappings each
// block has. An entry that a packet makes anew meanwhile stays, so that no half of a pair is taken from one that is in use.
func (n *NAT) Collect(now time.Duration, there func(EndpointKey) bool) (live map[PortBlock]int, err error) {
	live = map[PortBlock]int{}
	var dead []natEntry
	var gone []bpfConntrackKey
	err = n.each(func(e natEntry) {
		switch {
		case !there(EndpointKey{e.flow.Vni, fromAddress(e.flow.Via)}):
			gone = append(gone, e.key)
		case e.expired(now):
			dead = append(dead, e)
		case e.forward():
			live[blockOf(e.external())]++
		}
	})
	err = errors.Join(err, n.forget(gone))
	for i := range dead {
		err = errors.Join(err, n.collect(&dead[i], now))
	}
	return live, err
}

func (e natEntry) expired(now time.Duration) bool {
	// One second more than the programs: they take now for later than the clock that is read here, if only by a tick.
	return int32(uint32(now/time.Second)-e.flow.LastSeen) > int32(e.flow.Timeout+1)
}

// collect removes an entry if it is still dead.
func (n *NAT) collect(e *natEntry, now time.Duration) error {
	var found natEntry
	found.key = e.key
	err := n.flows.LookupAndDelete(bytesOf(&e.key), bytesOf(&found.flow))
	if err == nil && !found.expired(now) {
		err = n.flows.Update(bytesOf(&found.key), bytesOf(&found.flow), ebpf.UpdateNoExist)
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) && !errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("%s: collect: %w", bpfMapNatFlows, err)
	}
	return nil
}

// purge removes the entries of ports that a Subnet does not have.
func (n *NAT) purge(s NATState) error {
	type use struct {
		vni   uint32
		block PortBlock
	}
	known := map[use]bool{}
	var gone []bpfConntrackKey
	err := n.each(func(e natEntry) {
		u := use{e.flow.Vni, blockOf(e.external())}
		has, asked := known[u]
		if !asked {
			has = s.has(u.vni, u.block)
			known[u] = has
		}
		if !has {
			gone = append(gone, e.key)
		}
	})
	return errors.Join(err, n.forget(gone))
}

// forget removes entries.
func (n *NAT) forget(keys []bpfConntrackKey) error {
	var errs []error
	for i := range keys {
		if err := n.flows.Delete(bytesOf(&keys[i])); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("%s: delete: %w", bpfMapNatFlows, err))
		}
	}
	return errors.Join(errs...)
}

// each visits every entry that is there all the time, in batches: nothing that programs write meanwhile makes it miss one.
func (n *NAT) each(visit func(natEntry)) error {
	keys := make([][unsafe.Sizeof(bpfConntrackKey{})]byte, fillBatch)
	flows := make([][unsafe.Sizeof(bpfNatFlow{})]byte, fillBatch)
	if int(n.flows.KeySize()) != len(keys[0]) || int(n.flows.ValueSize()) != len(flows[0]) {
		return nil // of another version's object file
	}
	var cursor ebpf.MapBatchCursor
	for {
		count, err := n.flows.BatchLookup(&cursor, keys, flows, nil)
		for i := range count {
			visit(natEntry{
				key: *(*bpfConntrackKey)(unsafe.Pointer(&keys[i])), flow: *(*bpfNatFlow)(unsafe.Pointer(&flows[i])),
			})
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return nil // that was the last batch
		case err != nil:
			return fmt.Errorf("%s: list: %w", bpfMapNatFlows, err)
		}
	}
}

// SinceBoot is the clock of the programs: that of LastSeen.
func SinceBoot() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
