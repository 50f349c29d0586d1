package datapath

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
)

// codec translates between a type of this package and its form in a map.
type codec[T, W any] struct {
	encode func(T) (W, error)
	decode func(W) T
}

// Table is typed access to one pinned map. K and V are what callers see, WK and WV what the kernel has.
// It is safe for concurrent use; concurrent Syncs of one table need a lock of the caller's.
type Table[K, V comparable, WK, WV any] struct {
	m     *ebpf.Map
	name  string
	key   codec[K, WK]
	value codec[V, WV]
}

func newTable[K, V comparable, WK, WV any](m *ebpf.Map, name string, key codec[K, WK], value codec[V, WV]) *Table[K, V, WK, WV] {
	return &Table[K, V, WK, WV]{m: m, name: name, key: key, value: value}
}

// bytesOf is the memory of a map key or value: ebpf passes byte slices to the kernel as they are.
func bytesOf[W any](w *W) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(w)), unsafe.Sizeof(*w))
}

// Set creates or replaces an entry.
func (t *Table[K, V, WK, WV]) Set(key K, value V) error {
	wk, err := t.key.encode(key)
	if err != nil {
		return fmt.Errorf("%s: key %v: %w", t.name, key, err)
	}
	wv, err := t.value.encode(value)
	if err != nil {
		return fmt.Errorf("%s: %v: %w", t.name, key, err)
	}
	if err := t.m.Put(bytesOf(&wk), bytesOf(&wv)); err != nil {
		return fmt.Errorf("%s: set %v: %w", t.name, key, err)
	}
	return nil
}

// Get returns an entry and whether there is one.
func (t *Table[K, V, WK, WV]) Get(key K) (V, bool, error) {
	var zero V
	wk, err := t.key.encode(key)
	if err != nil {
		return zero, false, fmt.Errorf("%s: key %v: %w", t.name, key, err)
	}
	var wv WV
	err = t.m.Lookup(bytesOf(&wk), bytesOf(&wv))
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return zero, false, nil
	}
	if err != nil {
		return zero, false, fmt.Errorf("%s: get %v: %w", t.name, key, err)
	}
	return t.value.decode(wv), true, nil
}

// Delete removes an entry. That there is none is no error.
func (t *Table[K, V, WK, WV]) Delete(key K) error {
	wk, err := t.key.encode(key)
	if err != nil {
		return fmt.Errorf("%s: key %v: %w", t.name, key, err)
	}
	if err := t.m.Delete(bytesOf(&wk)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("%s: delete %v: %w", t.name, key, err)
	}
	return nil
}

// List returns all entries.
func (t *Table[K, V, WK, WV]) List() (map[K]V, error) {
	entries := map[K]V{}
	var wk WK
	var wv WV
	iterator := t.m.Iterate()
	for iterator.Next(bytesOf(&wk), bytesOf(&wv)) {
		entries[t.key.decode(wk)] = t.value.decode(wv)
	}
	if err := iterator.Err(); err != nil {
		return nil, fmt.Errorf("%s: list: %w", t.name, err)
	}
	return entries, nil
}

// Sync makes the table's content what is desired: sets what is new or different, then deletes what is not desired.
// It returns the number of entries written and deleted (0 in steady state). It goes on after an error.
func (t *Table[K, V, WK, WV]) Sync(desired map[K]V) (int, error) {
	have, err := t.List()
	if err != nil {
		return 0, err
	}
	var changes int
	var errs []error
	note := func(err error) {
		if err != nil {
			errs = append(errs, err)
			return
		}
		changes++
	}
	for key, value := range desired {
		if old, ok := have[key]; !ok || old != value {
			note(t.Set(key, value))
		}
	}
	for key := range have {
		if _, ok := desired[key]; !ok {
			note(t.Delete(key))
		}
	}
	return changes, errors.Join(errs...)
}
