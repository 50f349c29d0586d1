package datapath

import (
	"errors"
	"fmt"
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
	dirs, err := layoutDirs(pinPath)
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("open maps: none are pinned under %s", pinPath)
	for _, dir := range dirs {
		var d *Datapath
		if d, err = openLayout(spec, pinPath, dir); err == nil {
			return d, nil
		}
	}
	return nil, err
}

func openLayout(spec *ebpf.CollectionSpec, pinPath, dir string) (*Datapath, error) {
	d := &Datapath{config: Config{PinPath: pinPath}, collection: &ebpf.Collection{Maps: map[string]*ebpf.Map{}}}
	for name, mapSpec := range spec.Maps {
		if ofOneLoad(name, mapSpec) {
			continue
		}
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil)
		if err == nil {
			d.collection.Maps[name] = m
			if m.KeySize() != mapSpec.KeySize || m.ValueSize() != mapSpec.ValueSize {
				err = errors.New("it has the layout of another version")
			}
		}
		if err != nil {
			d.collection.Close()
			return nil, fmt.Errorf("open map %s: %w", name, err)
		}
	}
	d.openTables()
	return d, nil
}
