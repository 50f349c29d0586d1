package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var errOtherVersion = errors.New("the attached programs are of another version of mNi Cloud: use the programs that belong to it, or bring the cloud to this version with `mni up`")

// errNotAttached says that nothing of a datapath runs.
var errNotAttached = errors.New("no program is attached: is mni-netd running on this node?")

// Attached is what is known of the programs that are attached.
type Attached struct {
	// Mode is how they are.
	Mode Mode
	// Tag is the kernel's digest of the instructions of pod_egress or another of the programs.
	Tag string
	// Age is how long ago they were loaded.
	Age time.Duration
}

// FindAttached tells of the programs of the datapath that is pinned at a path, which are attached in the calling thread's network
// namespace.
func FindAttached(pinPath string) (Attached, error) {
	program, mode, err := attachedProgram(pinPath)
	if err != nil {
		return Attached{}, err
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return Attached{}, err
	}
	attached := Attached{Mode: mode, Tag: info.Tag}
	var now unix.Timespec
	if loaded, ok := info.LoadTime(); ok && unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) == nil {
		attached.Age = time.Duration(now.Nano()) - loaded
	}
	return attached, nil
}

// attachedProgram opens one of the programs that are attached.
func attachedProgram(pinPath string) (*ebpf.Program, Mode, error) {
	entries, err := os.ReadDir(linksDir(pinPath))
	if err != nil {
		return nil, "", fmt.Errorf("list the pinned links: %w", err)
	}
	for _, entry := range entries {
		if program, err := programOfLink(filepath.Join(linksDir(pinPath), entry.Name())); err == nil {
			return program, ModeTCX, nil
		}
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, "", fmt.Errorf("list the network's links: %w", err)
	}
	for _, l := range links {
		filters, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
		if err != nil {
			continue // it has no ingress
		}
		for _, filter := range filters {
			if program := programOfFilter(filter, pinPath); program != nil {
				return program, ModeClsact, nil
			}
		}
	}
	return nil, "", errNotAttached
}

// programOfFilter opens the program of a filter; nil when it is not of the datapath that is pinned at a path.
func programOfFilter(filter netlink.Filter, pinPath string) *ebpf.Program {
	ours, ok := filter.(*netlink.BpfFilter)
	if !ok || !slices.Contains(programNames, ours.Name) {
		return nil
	}
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(ours.Id))
	if err != nil {
		return nil
	}
	if !readsMapsOf(program, pinPath) {
		_ = program.Close()
		return nil
	}
	return program
}

var programNames = []string{bpfProgPodEgress, bpfProgHostEgress, bpfProgVxlanIngress, bpfProgUplinkIngress}

func programOfLink(path string) (*ebpf.Program, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return nil, err
	}
	if tcx := info.TCX(); tcx == nil || tcx.Ifindex == 0 {
		return nil, errNotAttached
	}
	return ebpf.NewProgramFromID(info.Program)
}

// readsMapsOf tells whether a program uses the maps that are pinned: two datapaths may be attached in one namespace.
func readsMapsOf(program *ebpf.Program, pinPath string) bool {
	ids, err := mapIDs(program)
	if err != nil {
		return false
	}
	dirs, err := layoutDirs(pinPath)
	return err == nil && slices.ContainsFunc(dirs, func(dir string) bool {
		id, err := pinnedID(filepath.Join(dir, bpfMapEndpoints))
		return err == nil && slices.Contains(ids, id)
	})
}

// pinnedID is the kernel's number of a pinned map.
func pinnedID(path string) (ebpf.MapID, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	id, known := info.ID()
	if !known {
		return 0, errors.New("the kernel does not number maps")
	}
	return id, nil
}

func mapIDs(program *ebpf.Program) ([]ebpf.MapID, error) {
	info, err := program.Info()
	if err != nil {
		return nil, err
	}
	ids, ok := info.MapIDs()
	if !ok {
		return nil, errors.New("the kernel does not tell a program's maps")
	}
	return ids, nil
}

// constantsOf reads the constants that were compiled into a program when it was loaded: its only frozen map.
func constantsOf(program *ebpf.Program) ([]byte, error) {
	ids, err := mapIDs(program)
	if err != nil {
		return nil, fmt.Errorf("constants of the attached programs: %w", err)
	}
	for _, id := range ids {
		constants, err := readFrozen(id)
		if err != nil {
			return nil, fmt.Errorf("constants of the attached programs: %w", err)
		}
		if constants != nil {
			return constants, nil
		}
	}
	return nil, fmt.Errorf("%w: they have no constants", errOtherVersion)
}

// readFrozen is the content of a map that is frozen, nil of another.
func readFrozen(id ebpf.MapID) ([]byte, error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil || !info.Frozen() {
		return nil, err
	}
	value := make([]byte, m.ValueSize())
	if err := m.Lookup(uint32(0), &value); err != nil {
		return nil, err
	}
	return bytes.Clone(value), nil
}

// isThatOf compares the tracer's programs with an attached one: the kernel's digest of the instructions must be the same.
func (t *Tracer) isThatOf(running *ebpf.Program) error {
	theirs, err := running.Info()
	if err != nil {
		return err
	}
	ours, err := t.d.program(theirs.Name).Info()
	if err != nil {
		return err
	}
	if ours.Tag != theirs.Tag {
		return errOtherVersion
	}
	return nil
}
