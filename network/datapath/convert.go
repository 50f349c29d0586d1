package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// table is a map and the types of its keys and values; nil where the kernel does not know them.
type table struct {
	*ebpf.Map
	key, value btf.Type
}

// typed finds the types of a map that another version made, by the names that they have in this one.
func typed(m *ebpf.Map, spec *ebpf.MapSpec) (table, error) {
	t := table{Map: m}
	handle, err := m.Handle()
	if errors.Is(err, ebpf.ErrNotSupported) {
		return t, nil
	}
	if err != nil {
		return t, fmt.Errorf("types of its entries: %w", err)
	}
	defer handle.Close()
	types, err := handle.Spec(nil)
	if err != nil {
		return t, fmt.Errorf("types of its entries: %w", err)
	}
	t.key, t.value = named(types, spec.Key), named(types, spec.Value)
	return t, nil
}

// named finds a type of the name of another.
func named(types *btf.Spec, like btf.Type) btf.Type {
	if like == nil || like.TypeName() == "" {
		return nil
	}
	found, err := types.AnyTypeByName(like.TypeName())
	if err != nil {
		return nil
	}
	return found
}

// move brings entries from a table to one of another layout.
type move struct {
	from, to   table
	key, value conversion
}

// newMove tells how; ok is false when the entries of the one cannot be told in the other's terms.
func newMove(from, to table) (m move, ok bool) {
	key, known := convert(from.key, to.key, from.KeySize(), to.KeySize())
	value, knownToo := convert(from.value, to.value, from.ValueSize(), to.ValueSize())
	return move{from, to, key, value}, known && knownToo && from.Type() == to.Type()
}

// conversion makes a key or value of another layout: what has the same name in both is copied, the rest is zero.
type conversion struct {
	same  bool
	size  uint32
	spans []span
}

// span is bytes to copy, from one offset to another.
type span struct{ from, to, size uint32 }

// convert compares two types. One that is not known is taken to be the other when it is as long.
func convert(from, to btf.Type, fromSize, toSize uint32) (c conversion, ok bool) {
	c.size = toSize
	if from == nil || to == nil {
		c.same = fromSize == toSize
		return c, c.same
	}
	if describe(from) == describe(to) {
		c.same = true
		return c, true
	}
	c.compare(from, to, 0, 0)
	return c, len(c.spans) > 0
}

func (c *conversion) compare(from, to btf.Type, fromAt, toAt uint32) {
	switch to := btf.UnderlyingType(to).(type) {
	case *btf.Struct:
		before, ok := btf.UnderlyingType(from).(*btf.Struct)
		if !ok {
			return
		}
		for _, member := range to.Members {
			for _, old := range before.Members {
				if old.Name == member.Name && old.BitfieldSize == 0 && member.BitfieldSize == 0 {
					c.compare(old.Type, member.Type, fromAt+old.Offset.Bytes(), toAt+member.Offset.Bytes())
				}
			}
		}
	case *btf.Array:
		before, ok := btf.UnderlyingType(from).(*btf.Array)
		if !ok {
			return
		}
		fromSize, toSize := sizeOf(before.Type), sizeOf(to.Type)
		for i := range min(before.Nelems, to.Nelems) {
			c.compare(before.Type, to.Type, fromAt+i*fromSize, toAt+i*toSize)
		}
	default: // a number, which may become longer or shorter: the programs are little-endian
		c.spans = append(c.spans, span{fromAt, toAt, min(sizeOf(from), sizeOf(to))})
	}
}

// sizeOf is 0 for what has no size.
func sizeOf(t btf.Type) uint32 {
	size, err := btf.Sizeof(t)
	if err != nil || size < 0 {
		return 0
	}
	return uint32(size)
}

func (c conversion) convert(b []byte) []byte {
	if c.same {
		return b
	}
	out := make([]byte, c.size)
	for _, s := range c.spans {
		copy(out[s.to:s.to+s.size], b[s.from:s.from+s.size])
	}
	return out
}
