package node

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/underlay"
)

// mounter does mounts until one fails and remembers why.
type mounter struct{ err error }

func (m *mounter) do(what string, act func() error) {
	if m.err == nil {
		if err := act(); err != nil {
			m.err = fmt.Errorf("%s: %w", what, err)
		}
	}
}

func (m *mounter) bind(from, to string) {
	m.do("bind "+from+" to "+to, func() error { return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "") })
}

func (m *mounter) propagation(path string, kind uintptr) {
	m.do("set the propagation of "+path, func() error { return unix.Mount("", path, "", kind|unix.MS_REC, "") })
}

func (m *mounter) copy(from, to string) {
	m.do("write "+to, func() error {
		content, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, content, 0o644)
	})
}

// sys puts a new sysfs, of the current network namespace, in the place of /sys, with the machine's control groups and
// BPF file system in it. There is no securityfs: container runtimes would load AppArmor profiles into the machine.
func (m *mounter) sys(staging string) {
	m.do("mount sysfs", func() error {
		return unix.Mount("sysfs", staging, "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	})
	for _, keep := range []string{"fs/cgroup", "fs/bpf"} {
		m.bind("/sys/"+keep, filepath.Join(staging, keep))
	}
	m.do("move sysfs", func() error { return unix.Mount(staging, "/sys", "", unix.MS_MOVE, "") })
}

// detachForeign drops, in this mount namespace only, pinned namespaces and other instances' run folders: a copy of
// them here would keep them alive after their owners let go. What an owner removes meanwhile is gone here, too.
func (m *mounter) detachForeign() {
	m.do("drop the machine's pinned namespaces", func() error {
		mounts, err := mountPoints("/proc/thread-self/mountinfo")
		if err != nil {
			return err
		}
		for _, mount := range slices.Backward(mounts) {
			if mount.fsType != "nsfs" {
				continue
			}
			if err := unix.Unmount(mount.path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("%s: %w", mount.path, err)
			}
		}
		return nil
	})
}

type mountPoint struct{ path, fsType string }

// mountPoints reads a mountinfo file (proc_pid_mountinfo(5)).
func mountPoints(file string) ([]mountPoint, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var mounts []mountPoint
	lines := bufio.NewScanner(bytes.NewReader(raw))
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if ok && len(fields) >= 5 && len(rest) >= 1 {
			mounts = append(mounts, mountPoint{path: unescape.Replace(fields[4]), fsType: rest[0]})
		}
	}
	return mounts, lines.Err()
}

func isMountPoint(path string) (bool, error) {
	mounts, err := mountPoints("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(mounts, func(m mountPoint) bool { return m.path == path }), nil
}

// Mounts lists the machine's mounts that belong to the instance, innermost last.
func Mounts(inst instance.Instance) ([]string, error) {
	mounts, err := mountPoints("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	netns, err := underlay.Netns("mni-" + inst.Name)
	if err != nil {
		return nil, err
	}
	var ours []string
	for _, m := range mounts {
		named := slices.ContainsFunc(netns, func(name string) bool { return m.path == underlay.NetnsPath(name) })
		if named || below(m.path, inst.RunDir()) || below(m.path, inst.StateDir()) {
			ours = append(ours, m.path)
		}
	}
	return ours, nil
}

// Unmount unmounts everything of the instance on the machine, pinned namespaces included, and removes its run folder.
func Unmount(inst instance.Instance) error {
	mounts, err := Mounts(inst)
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range slices.Backward(mounts) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(inst.RunDir())
}

// below says whether path is dir or in it.
func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
