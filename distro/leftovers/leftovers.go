// Package leftovers finds what an instance has left on the machine, and removes it. After a clean stop there is nothing;
// after a crash or a power cut this is how the next start gets a clean ground. The instance's state is not touched.
package leftovers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/cgroup"
	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/machine"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/supervisor"
	"github.com/mnicloud/mnicloud/distro/underlay"
)

// Leftover is one thing of an instance that is still on the machine.
type Leftover struct {
	// Kind: process, namespace, link, route, table, mount, cgroup, pin or file.
	Kind string
	// What names it.
	What string
}

// String is "KIND WHAT".
func (l Leftover) String() string { return l.Kind + " " + l.What }

// Find lists everything of the instance that is on the machine, except its state.
func Find(ctx context.Context, inst instance.Instance) ([]Leftover, error) {
	var found []Leftover
	var errs []error
	add := func(kind string, what []string, err error) {
		errs = append(errs, err)
		for _, w := range what {
			found = append(found, Leftover{kind, w})
		}
	}
	processes, err := Processes(inst)
	var names []string
	for _, pid := range processes {
		names = append(names, describe(pid))
	}
	add("process", names, err)
	namespaces, err := underlay.Netns("mni-" + inst.Name)
	add("namespace", namespaces, err)
	links, err := underlay.Links(inst)
	names = nil
	for _, link := range links {
		names = append(names, link.Attrs().Name)
	}
	add("link", names, err)
	routes, err := underlay.Routes(inst)
	add("route", routes, err)
	tables, err := underlay.Tables(ctx, inst)
	add("table", tables, err)
	mounts, err := node.Mounts(inst)
	add("mount", mounts, err)
	tree, err := cgroup.Detect()
	add("cgroup", tree.Remaining(inst.Cgroup()), err)
	for kind, path := range map[string]string{"pin": inst.PinDir(), "file": inst.RunDir()} {
		if _, err := os.Lstat(path); err == nil {
			add(kind, []string{path}, nil)
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	slices.SortStableFunc(found, func(a, b Leftover) int { return strings.Compare(a.Kind, b.Kind) })
	return found, errors.Join(errs...)
}

// Processes lists the living processes of the instance: those in its control groups, those marked as its parts, and those
// in its namespaces. The calling process is never among them.
func Processes(inst instance.Instance) ([]int, error) {
	tree, err := cgroup.Detect()
	if err != nil {
		return nil, err
	}
	pids, err := tree.Processes(inst.Cgroup())
	if err != nil {
		return nil, err
	}
	marked, err := supervisor.Marked(inst.Name)
	if err != nil {
		return nil, err
	}
	inside, err := inNamespaces(inst)
	if err != nil {
		return nil, err
	}
	pids = slices.Concat(pids, marked, inside)
	slices.Sort(pids)
	return slices.DeleteFunc(slices.Compact(pids), func(pid int) bool { return pid == os.Getpid() || !supervisor.Alive(pid) }), nil
}

// inNamespaces lists processes whose network or mount namespace is pinned for the instance.
func inNamespaces(inst instance.Instance) ([]int, error) {
	var pins []string
	names, err := underlay.Netns("mni-" + inst.Name)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		pins = append(pins, underlay.NetnsPath(name))
	}
	mounts, err := filepath.Glob(filepath.Join(inst.RunDir(), "namespaces", "*.mnt"))
	if err != nil {
		return nil, err
	}
	ours := map[uint64]bool{}
	for _, pin := range slices.Concat(pins, mounts) {
		var stat unix.Stat_t
		if underlay.Pinned(pin) && unix.Stat(pin, &stat) == nil {
			ours[stat.Ino] = true
		}
	}
	if len(ours) == 0 {
		return nil, nil
	}
	var pids []int
	links, err := filepath.Glob("/proc/[0-9]*/ns/[mn][ne]t")
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		var stat unix.Stat_t
		if unix.Stat(link, &stat) == nil && ours[stat.Ino] {
			var pid int
			if _, err := fmt.Sscanf(link, "/proc/%d/", &pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

func describe(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return fmt.Sprint(pid)
	}
	command := strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " "))
	if len(command) > 80 {
		command = command[:80] + "..."
	}
	return fmt.Sprintf("%d (%s)", pid, command)
}

// Remove removes everything of the instance from the machine, except its state, and says what could not be removed.
// The caller holds the instance's lock.
func Remove(ctx context.Context, inst instance.Instance) error {
	tree, err := cgroup.Detect()
	if err != nil {
		return err
	}
	if err := kill(ctx, inst); err != nil {
		return err
	}
	err = errors.Join(
		unpin(inst.PinDir()),
		node.Unmount(inst),
		underlay.Remove(ctx, inst),
		tree.Remove(inst.Cgroup()),
	)
	tree.RemoveIfEmpty(filepath.Dir(inst.Cgroup()))
	for _, setting := range machine.Settings() {
		err = errors.Join(err, setting.Release(inst.Name))
	}
	if err != nil {
		return err
	}
	left, err := Find(ctx, inst)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		lines := make([]string, len(left))
		for i, l := range left {
			lines[i] = "  " + l.String()
		}
		return fmt.Errorf("instance %q is stopped, but this is left of it:\n%s", inst.Name, strings.Join(lines, "\n"))
	}
	return nil
}

// kill ends all processes of the instance, those that start others first, until none is left.
func kill(ctx context.Context, inst instance.Instance) error {
	deadline := time.Now().Add(15 * time.Second)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		pids, err := Processes(inst)
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			var names []string
			for _, pid := range pids {
				names = append(names, describe(pid))
			}
			return fmt.Errorf("processes do not end, not even when killed (a disk or mount that does not answer?): %s", strings.Join(names, ", "))
		}
		supervisor.KillGuardsFirst(pids)
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unpin removes a folder of BPF pins and the parents that are empty then.
func unpin(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove BPF pins: %w", err)
	}
	_ = unix.Rmdir(filepath.Dir(dir))
	return nil
}
