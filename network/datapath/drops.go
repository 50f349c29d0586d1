package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// DropKey is what drops are counted by: the interface whose program dropped (a Pod's host side, the far end of the
// host's veth, the vxlan device) and why.
type DropKey struct {
	Ifindex int
	Reason  Reason
}

// Drops is the counters of dropped packets.
type Drops struct{ m *ebpf.Map }

// List returns all counters, summed over CPUs.
func (d *Drops) List() (map[DropKey]Count, error) {
	counts := map[DropKey]Count{}
	var key bpfDropKey
	var values []bpfCount
	iterator := d.m.Iterate()
	for iterator.Next(bytesOf(&key), &values) {
		var sum Count
		sum.add(values)
		counts[DropKey{Ifindex: int(key.Ifindex), Reason: Reason(key.Reason)}] = sum
	}
	if err := iterator.Err(); err != nil {
		return nil, fmt.Errorf("drops: list: %w", err)
	}
	return counts, nil
}

// DeleteInterface forgets an interface's counters, before its ifindex can be another's.
func (d *Drops) DeleteInterface(ifindex int) error {
	var errs []error
	for reason := range Reason(bpfDropReasonDROP_REASON_COUNT) {
		key := bpfDropKey{Ifindex: uint32(ifindex), Reason: bpfDropReason(reason)}
		if err := d.m.Delete(bytesOf(&key)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("drops: delete interface %d: %w", ifindex, err))
		}
	}
	return errors.Join(errs...)
}
