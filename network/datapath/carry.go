package datapath

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// former is the tables of another layout, which the programs that are attached may still use.
type former struct {
	dir string
	// forth brings entries into this datapath's tables, back those of this datapath to where the former programs find them.
	forth, back []move
	opened      []*ebpf.Map
}

// openFormer opens the tables of the layouts beside this datapath's own.
func (d *Datapath) openFormer(spec *ebpf.CollectionSpec, own string) error {
	dirs, err := layoutDirs(d.config.PinPath)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if dir == own {
			continue
		}
		f := &former{dir: dir}
		d.former = append(d.former, f)
		for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
			if ofOneLoad(name) {
				continue
			}
			if err := f.open(name, spec.Maps[name], d.collection.Maps[name]); err != nil {
				return fmt.Errorf("map %s of another layout: %w", name, err)
			}
		}
	}
	return nil
}

// open opens a table. One that the layout does not have, or whose entries cannot be told in the other's terms, is left out.
func (f *former) open(name string, spec *ebpf.MapSpec, current *ebpf.Map) error {
	m, err := ebpf.LoadPinnedMap(filepath.Join(f.dir, name), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.opened = append(f.opened, m)
	here := table{current, spec.Key, spec.Value}
	there, err := typed(m, spec)
	if err != nil {
		return err
	}
	if forth, ok := newMove(there, here); ok {
		f.forth = append(f.forth, forth)
	}
	if back, ok := newMove(here, there); ok {
		f.back = append(f.back, back)
	}
	return nil
}

func (f *former) close() {
	for _, m := range f.opened {
		_ = m.Close()
	}
}

// begin fills the tables, once, with what the former ones have. From then on they are brought to the desired state and only what
// programs write, and the last number given, is taken from the former ones: an entry that is not desired any more, or whose number
// means something else by now, must not come back.
func (d *Datapath) begin(own string) error {
	if isComplete(own) {
		return d.carry(numbers)
	}
	if err := d.carry(everything); err != nil {
		return err
	}
	return os.Mkdir(filepath.Join(own, completeName), 0o700)
}

// What is brought over.
func everything(ebpf.MapType) bool { return true }
func numbers(t ebpf.MapType) bool  { return t == ebpf.Array }
func flows(t ebpf.MapType) bool    { return t == ebpf.LRUHash }

// carry brings over the entries that are not there yet, of the tables of some types.
func carry(moves []move, of func(ebpf.MapType) bool) error {
	var errs []error
	for _, m := range moves {
		if of(m.from.Type()) {
			errs = append(errs, m.run())
		}
	}
	return errors.Join(errs...)
}

func (d *Datapath) carry(of func(ebpf.MapType) bool) error {
	var errs []error
	for _, f := range d.former {
		errs = append(errs, carry(f.forth, of))
	}
	return errors.Join(errs...)
}

// Replace calls attach, which attaches this datapath's programs everywhere. When those before have tables of another layout,
// flows go on from where they are: what either programs note of them is brought to the others until all are replaced. Then
// the former tables are removed. Started again after a crash at any point, by this version or by another, it does the rest.
func (d *Datapath) Replace(attach func() error) error {
	if len(d.former) == 0 {
		return attach()
	}
	if err := d.carry(flows); err != nil {
		return err
	}
	if err := d.whileMirroring(attach); err != nil {
		return err
	}
	awaitPrograms()
	if err := d.carry(flows); err != nil {
		return err
	}
	// The former programs chose from the backends that they knew.
	if err := d.Services.forgetRemoved(); err != nil {
		return err
	}
	return d.forget()
}

// whileMirroring brings flows back and forth, again and again, while attach runs.
func (d *Datapath) whileMirroring(attach func() error) error {
	stop := make(chan struct{})
	var mirror sync.WaitGroup
	var failed error
	mirror.Go(func() {
		for {
			for _, f := range d.former {
				failed = errors.Join(carry(f.forth, flows), carry(f.back, flows))
			}
			select {
			case <-stop:
				return
			default:
			}
			if failed != nil {
				return
			}
		}
	})
	err := attach()
	close(stop)
	mirror.Wait()
	return errors.Join(err, failed)
}

// forget removes the former tables.
func (d *Datapath) forget() error {
	for len(d.former) > 0 {
		f := d.former[0]
		if err := removeLayout(d.config.PinPath, f.dir); err != nil {
			return fmt.Errorf("remove the tables of another layout: %w", err)
		}
		f.close()
		d.former = d.former[1:]
	}
	return nil
}

// run brings over the entries that are not there yet. A table that is full, or busy, gets what it can.
func (m move) run() error {
	switch m.from.Type() {
	case ebpf.Array:
		return m.runArray()
	case ebpf.PerCPUHash:
		return m.runCounters()
	}
	key, value := make([]byte, m.from.KeySize()), make([]byte, m.from.ValueSize())
	iterator := m.from.Iterate()
	for iterator.Next(key, value) {
		err := m.to.Update(m.key.convert(key), m.value.convert(value), ebpf.UpdateNoExist)
		switch {
		case err == nil, errors.Is(err, ebpf.ErrKeyExist):
		case errors.Is(err, unix.E2BIG), errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EBUSY):
			return nil
		default:
			return fmt.Errorf("bring an entry over: %w", err)
		}
	}
	if err := iterator.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("read the entries to bring over: %w", err)
	}
	return nil
}

// runArray brings over the last numbers given, where they are higher.
func (m move) runArray() error {
	if !m.value.same || m.from.ValueSize() != 4 {
		return fmt.Errorf("an array of %d bytes is no array of numbers", m.from.ValueSize())
	}
	for i := range min(m.from.MaxEntries(), m.to.MaxEntries()) {
		var number, there uint32
		if err := errors.Join(m.from.Lookup(i, &number), m.to.Lookup(i, &there)); err != nil {
			return fmt.Errorf("read number %d: %w", i, err)
		}
		if number <= there {
			continue
		}
		if err := m.to.Put(i, number); err != nil {
			return fmt.Errorf("bring number %d over: %w", i, err)
		}
	}
	return nil
}

// runCounters brings counters over that are laid out as this version has them; others begin again.
func (m move) runCounters() error {
	if !m.key.same || !m.value.same {
		return nil
	}
	key := make([]byte, m.from.KeySize())
	var values []bpfCount
	iterator := m.from.Iterate()
	for iterator.Next(key, &values) {
		if err := m.to.Update(key, values, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return fmt.Errorf("bring a counter over: %w", err)
		}
	}
	if err := iterator.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("read the counters to bring over: %w", err)
	}
	return nil
}
