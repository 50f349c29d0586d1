package datapath

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/cilium/ebpf"
)

// Fill is how full a map is.
type Fill struct {
	// Entries is how many there are, Max how many there can be.
	Entries, Max int
}

// fillBatch is how many keys are read at once.
const fillBatch = 4096

// Fill counts the entries of every map that has a varying number of them, by the map's name. A busy table changes while it is
// counted, so the number is not exact there.
func (d *Datapath) Fill() (map[string]Fill, error) {
	fills := map[string]Fill{}
	for name, m := range d.collection.Maps {
		switch m.Type() {
		case ebpf.Array, ebpf.PerCPUArray:
			continue
		}
		n, err := entries(m)
		if err != nil {
			return nil, fmt.Errorf("%s: count: %w", name, err)
		}
		fills[name] = Fill{Entries: n, Max: int(m.MaxEntries())}
	}
	return fills, nil
}

// entries counts a map's. Batches need one call of the kernel for thousands; where there are none, keys are read one by one.
func entries(m *ebpf.Map) (int, error) {
	if m.Type() == ebpf.Hash || m.Type() == ebpf.LRUHash {
		n, err := countBatches(m)
		if !errors.Is(err, ebpf.ErrNotSupported) {
			return n, err
		}
	}
	key, next, most := []byte(nil), make([]byte, m.KeySize()), int(m.MaxEntries())
	for n := 0; n < most; n++ {
		var from any
		if key != nil {
			from = key
		}
		if err := m.NextKey(from, next); errors.Is(err, ebpf.ErrKeyNotExist) {
			return n, nil
		} else if err != nil {
			return 0, err
		}
		key, next = next, make([]byte, len(next))
	}
	return most, nil
}

func countBatches(m *ebpf.Map) (int, error) {
	rows := func(size uint32) any {
		row := reflect.ArrayOf(int(size), reflect.TypeFor[byte]())
		return reflect.MakeSlice(reflect.SliceOf(row), fillBatch, fillBatch).Interface()
	}
	keys, values := rows(m.KeySize()), rows(m.ValueSize())
	var cursor ebpf.MapBatchCursor
	total := 0
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		total += n
		if errors.Is(err, ebpf.ErrKeyNotExist) { // that was the last batch
			return total, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
