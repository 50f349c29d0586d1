package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Registry remembers which instance has which slot, in a file that all commands share under a lock.
type Registry struct {
	// Dir holds the registry's file; StateRoot on a real machine.
	Dir string
}

// Take returns the instance of that name with the slot it has, or gives it a free one.
func (r Registry) Take(name string) (Instance, error) {
	if err := ValidateName(name); err != nil {
		return Instance{}, err
	}
	taken := Instance{Name: name}
	return taken, r.update(func(slots map[string]int) error {
		slot, ok := slots[name]
		if !ok {
			var err error
			if slot, err = free(slots, name); err != nil {
				return err
			}
			slots[name] = slot
		}
		taken.Slot = slot
		return nil
	})
}

// Find returns the instance of that name; ok is false when it was never started or has been reset.
func (r Registry) Find(name string) (found Instance, ok bool, err error) {
	if err := ValidateName(name); err != nil {
		return Instance{}, false, err
	}
	slots, err := r.read()
	if err != nil {
		return Instance{}, false, err
	}
	slot, ok := slots[name]
	return Instance{Name: name, Slot: slot}, ok, nil
}

// List returns all instances by slot.
func (r Registry) List() ([]Instance, error) {
	slots, err := r.read()
	if err != nil {
		return nil, err
	}
	var all []Instance
	for name, slot := range slots {
		all = append(all, Instance{Name: name, Slot: slot})
	}
	slices.SortFunc(all, func(a, b Instance) int { return a.Slot - b.Slot })
	return all, nil
}

// Release forgets the instance; its slot may be taken by another.
func (r Registry) Release(name string) error {
	return r.update(func(slots map[string]int) error {
		delete(slots, name)
		return nil
	})
}

func free(slots map[string]int, name string) (int, error) {
	if name == Default {
		return 0, nil
	}
	used := slices.Collect(maps.Values(slots))
	for slot := 1; slot <= MaxSlot; slot++ {
		if !slices.Contains(used, slot) {
			return slot, nil
		}
	}
	names := slices.Sorted(maps.Keys(slots))
	return 0, fmt.Errorf("all %d slots for named instances are taken (%s): delete one with `mni reset --instance NAME`",
		MaxSlot, strings.Join(names, ", "))
}

func (r Registry) file() string { return filepath.Join(r.Dir, "instances.json") }

func (r Registry) read() (map[string]int, error) {
	slots := map[string]int{}
	raw, err := os.ReadFile(r.file())
	if errors.Is(err, fs.ErrNotExist) {
		return slots, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of instances: %w", err)
	}
	if err := json.Unmarshal(raw, &slots); err != nil {
		return nil, fmt.Errorf("%s is damaged (%w): it maps instances' names to slots 0 to %d; repair or delete it", r.file(), err, MaxSlot)
	}
	return slots, nil
}

func (r Registry) update(change func(map[string]int) error) error {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of instances: %w", err)
	}
	unlock, err := Lock(filepath.Join(r.Dir, "instances.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	slots, err := r.read()
	if err != nil {
		return err
	}
	before := maps.Clone(slots)
	if err := change(slots); err != nil {
		return err
	}
	if maps.Equal(before, slots) {
		return nil
	}
	raw, err := json.Marshal(slots)
	if err != nil {
		return err
	}
	return WriteFile(r.file(), raw, 0o644)
}

// WriteFile replaces a file as a whole: after a power cut there is the old content or the new, never half of it.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
