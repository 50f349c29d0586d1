package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
)

// Open opens the pinned maps of a datapath that some process has loaded, to look at them. It has no programs; nothing can be
// attached with it. While one version takes over from another these are the tables of either.
func Open(pinPath string) (*Datapath, error) {
	spec, err := loadBpf()
	if err != nil {
		return nil, fmt.Errorf("read the embedded object file: %w", err)
	}
	pinned, err := openPinned(spec, pinPath)
	if err != nil {
		return nil, err
	}
	d := &Datapath{config: Config{PinPath: pinPath}, collection: &ebpf.Collection{Maps: pinned}}
	d.openTables()
	return d, nil
}

// openPinned opens the tables under a pin path that have the layout of an object file, whatever their size.
func openPinned(spec *ebpf.CollectionSpec, pinPath string) (map[string]*ebpf.Map, error) {
	dirs, err := layoutDirs(pinPath)
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("open maps: none are pinned under %s: %w", pinPath, os.ErrNotExist)
	for _, dir := range dirs {
		var pinned map[string]*ebpf.Map
		if pinned, err = openLayout(spec, dir); err == nil {
			return pinned, nil
		}
	}
	return nil, err
}

func openLayout(spec *ebpf.CollectionSpec, dir string) (map[string]*ebpf.Map, error) {
	pinned := map[string]*ebpf.Map{}
	for name, mapSpec := range spec.Maps {
		if ofOneLoad(name) {
			continue
		}
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil)
		if err == nil {
			pinned[name] = m
			if m.KeySize() != mapSpec.KeySize || m.ValueSize() != mapSpec.ValueSize {
				err = errors.New("it has the layout of another version")
			}
		}
		if err != nil {
			closeMaps(pinned)
			return nil, fmt.Errorf("open map %s: %w", name, err)
		}
	}
	return pinned, nil
}
