package datapath

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// A layout is how the tables of one object file are laid out in memory: types, sizes, fields. Each layout has a folder of its
// own under mapsDir, named by what it is. Beside one that is in use there is another only while programs are replaced by those
// of another version (carry.go).

// ofOneLoad tells whether a map is no table: each load of the programs has its own, which is not pinned.
func ofOneLoad(name string) bool {
	return name[0] == '.' || name == bpfMapTraces || name == bpfMapScratches || name == bpfMapNatScratches
}

// layoutOf names the layout of an object file's tables: two have one name when a program of the one can use the tables of the
// other. What a field means is not in it: one that comes to mean something else gets another name.
func layoutOf(spec *ebpf.CollectionSpec) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		m := spec.Maps[name]
		if !ofOneLoad(name) {
			fmt.Fprintf(h, "%s %s %d %d %d %d %s %s\n", name, m.Type, m.KeySize, m.ValueSize, m.MaxEntries, m.Flags, describe(m.Key), describe(m.Value))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// describe says where the fields of a type are; "?" when the type is not known.
func describe(t btf.Type) string {
	if t == nil {
		return "?"
	}
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		var b strings.Builder
		for _, m := range t.Members {
			fmt.Fprintf(&b, "%s@%d/%d:%s ", m.Name, m.Offset, m.BitfieldSize, describe(m.Type))
		}
		return fmt.Sprintf("{%s%d}", b.String(), t.Size)
	case *btf.Array:
		return fmt.Sprintf("[%d]%s", t.Nelems, describe(t.Type))
	default:
		size, err := btf.Sizeof(t)
		if err != nil {
			return "?"
		}
		return fmt.Sprint(size)
	}
}

// layoutDirs are the folders under a pin path that have tables. The first versions had them in mapsDir itself.
func layoutDirs(pinPath string) ([]string, error) {
	dir := mapsDir(pinPath)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list the pinned maps: %w", err)
	}
	var dirs []string
	for _, e := range entries {
		switch {
		case e.IsDir():
			dirs = append(dirs, filepath.Join(dir, e.Name()))
		case !slices.Contains(dirs, dir):
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// completeName is a folder in that of a layout which says that the tables were filled from the former ones.
const completeName = "complete"

func isComplete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, completeName))
	return err == nil
}

// makeFolders makes the folders of a layout and of links. Tables that were not completed, which no program uses, are made anew.
func makeFolders(pinPath, dir string) error {
	var err error
	if !isComplete(dir) {
		err = os.RemoveAll(dir)
	}
	return errors.Join(err, os.MkdirAll(dir, 0o700), os.MkdirAll(linksDir(pinPath), 0o700))
}

// removeLayout deletes the pins of the tables in a folder, and the folder when it is not mapsDir.
func removeLayout(pinPath, dir string) error {
	if dir != mapsDir(pinPath) {
		// First of all it is not complete any more, should this be killed.
		return errors.Join(os.RemoveAll(filepath.Join(dir, completeName)), os.RemoveAll(dir))
	}
	entries, err := os.ReadDir(dir)
	errs := []error{err}
	for _, e := range entries {
		if !e.IsDir() {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// openMaps opens or makes the tables of an object file in the folder of their layout.
func openMaps(spec *ebpf.CollectionSpec, dir string) (map[string]*ebpf.Map, error) {
	opened := map[string]*ebpf.Map{}
	for name, mapSpec := range spec.Maps {
		if ofOneLoad(name) {
			continue
		}
		m, err := openMap(mapSpec, filepath.Join(dir, name))
		if err != nil {
			closeMaps(opened)
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		opened[name] = m
	}
	return opened, nil
}

func openMap(spec *ebpf.MapSpec, path string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	switch {
	case err == nil && spec.Compatible(m) == nil:
		return m, nil
	case err == nil:
		return nil, errors.Join(fmt.Errorf("the pin %s is not what its folder says: %w", path, spec.Compatible(m)), m.Close())
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("open the pin %s: %w", path, err)
	}
	if m, err = ebpf.NewMap(spec); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	if err := m.Pin(path); err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("pin at %s (is it on a bpffs?): %w", path, err)
	}
	return m, nil
}

func closeMaps(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		_ = m.Close()
	}
}
