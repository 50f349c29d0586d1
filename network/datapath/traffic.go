package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Count counts packets (a segmented one once) and their bytes with Ethernet headers.
type Count struct {
	Packets, Bytes uint64
}

func (c *Count) add(values []bpfCount) {
	for _, value := range values {
		c.Packets += value.Packets
		c.Bytes += value.Bytes
	}
}

// Deliveries counts what the programs gave to the interfaces of this node.
type Deliveries struct{ m *ebpf.Map }

// List returns the counters by the ifindex of the interface's host side, summed over CPUs.
func (d *Deliveries) List() (map[int]Count, error) {
	counts := map[int]Count{}
	var ifindex uint32
	var values []bpfCount
	iterator := d.m.Iterate()
	for iterator.Next(&ifindex, &values) {
		var sum Count
		sum.add(values)
		counts[int(ifindex)] = sum
	}
	if err := iterator.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("deliveries: list: %w", err)
	}
	return counts, nil
}

// DeleteInterface forgets an interface's counters, before its ifindex can be another's.
func (d *Deliveries) DeleteInterface(ifindex int) error {
	if err := d.m.Delete(uint32(ifindex)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("deliveries: delete interface %d: %w", ifindex, err)
	}
	return nil
}
