// Package cgroup makes, fills, lists and removes control groups of a path in every hierarchy of the machine, whether it
// has cgroup v2, v1, or v1 with a v2 hierarchy for tracking (hybrid). Paths are absolute, from a hierarchy's root. It
// sets no limits: those are the kubelet's and the container runtime's.
package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// hierarchy is one mounted cgroup file system.
type hierarchy struct {
	mountPoint string
	v2         bool
	cpuset     bool // v1 with the cpuset controller: a new group is unusable until it is filled in
}

// Tree is all hierarchies of the machine.
type Tree struct {
	hierarchies []hierarchy
}

// Detect reads the mounted hierarchies.
func Detect() (Tree, error) {
	raw, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return Tree{}, err
	}
	tree := parse(string(raw))
	// What is listed may be hidden below a later mount.
	tree.hierarchies = slices.DeleteFunc(tree.hierarchies, func(h hierarchy) bool {
		var stat unix.Statfs_t
		return unix.Statfs(h.mountPoint, &stat) != nil || stat.Type != unix.CGROUP_SUPER_MAGIC && stat.Type != unix.CGROUP2_SUPER_MAGIC
	})
	if len(tree.hierarchies) == 0 {
		return Tree{}, errors.New("no control groups are mounted under /sys/fs/cgroup: mount cgroup2 there, or boot with it")
	}
	return tree, nil
}

func parse(mounts string) Tree {
	var tree Tree
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[1], "/sys/fs/cgroup") {
			continue
		}
		known := slices.ContainsFunc(tree.hierarchies, func(h hierarchy) bool { return h.mountPoint == f[1] })
		if known {
			continue
		}
		switch f[2] {
		case "cgroup2":
			tree.hierarchies = append(tree.hierarchies, hierarchy{mountPoint: f[1], v2: true})
		case "cgroup":
			isCPUSet := slices.Contains(strings.Split(f[3], ","), "cpuset")
			tree.hierarchies = append(tree.hierarchies, hierarchy{mountPoint: f[1], cpuset: isCPUSet})
		}
	}
	return tree
}

// Unified says that the machine has cgroup v2 alone.
func (t Tree) Unified() bool { return len(t.hierarchies) == 1 && t.hierarchies[0].v2 }

// Dirs are the folders of the path, one a hierarchy.
func (t Tree) Dirs(path string) []string {
	var dirs []string
	for _, h := range t.hierarchies {
		dirs = append(dirs, filepath.Join(h.mountPoint, path))
	}
	return dirs
}

// Make makes the group and its parents in every hierarchy. In cgroup v2 the parents hand on all their controllers.
func (t Tree) Make(path string) error {
	for _, h := range t.hierarchies {
		dir := h.mountPoint
		for _, name := range strings.Split(strings.Trim(path, "/"), "/") {
			if h.v2 {
				if err := delegate(dir); err != nil {
					return err
				}
			}
			parent := dir
			dir = filepath.Join(dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make control group: %w", err)
			}
			if h.cpuset {
				if err := inherit(parent, dir); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Delegate lets the children of the group use every controller that the group has (cgroup v2 only).
func (t Tree) Delegate(path string) error {
	for _, h := range t.hierarchies {
		if h.v2 {
			if err := delegate(filepath.Join(h.mountPoint, path)); err != nil {
				return err
			}
		}
	}
	return nil
}

func delegate(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read the controllers of a control group: %w", err)
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	enabled, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(available)) {
		if slices.Contains(strings.Fields(string(enabled)), controller) {
			continue
		}
		// One at a time: some (cpu with real-time tasks about) may refuse, and the kubelet says what it misses.
		if err := os.WriteFile(control, []byte("+"+controller), 0); err != nil && controller == "memory" {
			return fmt.Errorf("hand on the memory controller below %s: %w", dir, err)
		}
	}
	return nil
}

func inherit(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		have, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(have)) > 0 {
			continue
		}
		from, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), from, 0); err != nil {
			return fmt.Errorf("fill in %s of %s: %w", file, dir, err)
		}
	}
	return nil
}

// Processes lists all processes in the group and below it.
func (t Tree) Processes(path string) ([]int, error) {
	seen := map[int]bool{}
	for _, h := range t.hierarchies {
		err := filepath.WalkDir(filepath.Join(h.mountPoint, path), func(p string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !d.IsDir() {
				return err
			}
			return readProcs(filepath.Join(p, "cgroup.procs"), seen)
		})
		if err != nil {
			return nil, fmt.Errorf("list processes of a control group: %w", err)
		}
	}
	pids := make([]int, 0, len(seen))
	for pid := range seen {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids, nil
}

func readProcs(file string, into map[int]bool) error {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			return err
		}
		if pid != 0 { // of another PID namespace
			into[pid] = true
		}
	}
	return lines.Err()
}

// Remaining lists the folders of the group that exist.
func (t Tree) Remaining(path string) []string {
	var found []string
	for _, dir := range t.Dirs(path) {
		if _, err := os.Stat(dir); err == nil {
			found = append(found, dir)
		}
	}
	return found
}

// Remove removes the group and everything below it. The processes must be gone.
func (t Tree) Remove(path string) error {
	var errs []error
	for _, dir := range t.Dirs(path) {
		var dirs []string
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
		errs = append(errs, err)
		for _, d := range slices.Backward(dirs) {
			if err := rmdir(d); err != nil {
				errs = append(errs, fmt.Errorf("remove control group %s: %w", d, err))
			}
		}
	}
	return errors.Join(errs...)
}

// rmdir waits a little for processes that have ended but that the kernel still counts.
func rmdir(dir string) error {
	deadline := time.Now().Add(2 * time.Second)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := unix.Rmdir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		<-again.C
	}
}

// RemoveIfEmpty removes the group itself where it has neither processes nor groups below it.
func (t Tree) RemoveIfEmpty(path string) {
	for _, dir := range t.Dirs(path) {
		_ = unix.Rmdir(dir)
	}
}

// EnterThread moves the calling thread alone into the group, so that what it forks starts there. Only for cgroup v1
// hierarchies: returns the folder of the v2 hierarchy, if there is one, for clone3(2)'s CLONE_INTO_CGROUP.
func (t Tree) EnterThread(path string) (v2Dir string, err error) {
	tid := []byte(strconv.Itoa(unix.Gettid()))
	for _, h := range t.hierarchies {
		dir := filepath.Join(h.mountPoint, path)
		if h.v2 {
			v2Dir = dir
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "tasks"), tid, 0); err != nil {
			return "", fmt.Errorf("enter control group: %w", err)
		}
	}
	return v2Dir, nil
}
