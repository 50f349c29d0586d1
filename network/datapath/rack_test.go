package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// rack keeps loaded programs for the next test that wants the same: the verifier takes a second for each, which was most of what
// this package's tests took. Their maps are emptied between.
var rack struct {
	sync.Mutex
	free map[string][]*loaded
	all  []*loaded
}

// loaded is the programs of one node that are run and not attached, and a tracer that foretells what they do.
type loaded struct {
	*Datapath
	tracer *Tracer
	mount  string
}

// takeNode gives a test a node with empty tables, until it ends. The configuration's PinPath is chosen here.
func takeNode(t testing.TB, config Config) (*Datapath, *Tracer) {
	t.Helper()
	form := fmt.Sprintf("%+v", config)
	l := fromRack(form)
	if l == nil {
		var err error
		l, err = loadNode(config)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() { // who knows what it left
			return
		}
		require.NoError(t, l.empty())
		rack.Lock()
		defer rack.Unlock()
		rack.free[form] = append(rack.free[form], l)
	})
	return l.Datapath, l.tracer
}

func fromRack(form string) *loaded {
	rack.Lock()
	defer rack.Unlock()
	free := rack.free[form]
	if len(free) == 0 {
		return nil
	}
	rack.free[form] = free[:len(free)-1]
	return free[len(free)-1]
}

func loadNode(config Config) (*loaded, error) {
	mount, err := os.MkdirTemp("", "rack-")
	if err != nil {
		return nil, err
	}
	if err := unix.Mount("bpffs", mount, "bpf", 0, ""); err != nil {
		return nil, fmt.Errorf("mount a bpffs (needs root): %w", err)
	}
	config.PinPath = filepath.Join(mount, "node")
	l := &loaded{mount: mount}
	rack.Lock()
	rack.all = append(rack.all, l)
	if rack.free == nil {
		rack.free = map[string][]*loaded{}
	}
	rack.Unlock()
	if l.Datapath, err = load(config, loadBpf, true); err != nil {
		return nil, err
	}
	constants, err := constantsOf(l.program(bpfProgPodEgress))
	if err != nil {
		return nil, err
	}
	l.tracer, err = newTracer(config.PinPath, constants)
	return l, err
}

// empty takes everything out of the maps, and forgets what this process remembered of them.
func (l *loaded) empty() error {
	for name, m := range l.collection.Maps {
		if strings.HasPrefix(name, ".") { // a section of the object file: constants, and what each run sets
			continue
		}
		if err := emptyMap(m); err != nil {
			return fmt.Errorf("empty map %s: %w", name, err)
		}
	}
	l.openTables()
	return nil
}

func emptyMap(m *ebpf.Map) error {
	switch m.Type() {
	case ebpf.Array:
		return m.Put(uint32(0), make([]byte, m.ValueSize())) // all have one entry
	case ebpf.PerCPUArray:
		return nil // scratches, which each run sets
	default:
	}
	for {
		key, err := m.NextKeyBytes(nil)
		if err != nil || key == nil {
			return err
		}
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
	}
}

// closeRack frees everything.
func closeRack() error {
	var errs []error
	for _, l := range rack.all {
		if l.tracer != nil {
			errs = append(errs, l.tracer.Close())
		}
		if l.Datapath != nil {
			errs = append(errs, l.Close())
		}
		errs = append(errs, unix.Unmount(l.mount, 0), os.Remove(l.mount))
	}
	return errors.Join(errs...)
}
