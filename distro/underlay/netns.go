package underlay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/spawn"
)

// NetnsRoot is where `ip netns` and we pin network namespaces by name.
const NetnsRoot = "/run/netns"

// NetnsPath is the file on which the named namespace is pinned.
func NetnsPath(name string) string { return filepath.Join(NetnsRoot, name) }

// Pinned says whether a namespace is pinned on the file.
func Pinned(path string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(path, &stat) == nil && stat.Type == unix.NSFS_MAGIC
}

// ensureNetns makes a network namespace and pins it, unless it is there.
func ensureNetns(name string) error {
	path := NetnsPath(name)
	if Pinned(path) {
		return nil
	}
	unlock, err := lockNetnsRoot()
	if err != nil {
		return err
	}
	defer unlock()
	if err := shareNetnsRoot(); err != nil {
		return err
	}
	if err := os.WriteFile(path, nil, 0o444); err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("make the file for network namespace %s: %w", name, err)
	}
	made := make(chan error, 1)
	go spawn.OnThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- fmt.Errorf("make network namespace %s: %w", name, err)
			return
		}
		own := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		if err := unix.Mount(own, path, "", unix.MS_BIND, ""); err != nil {
			made <- fmt.Errorf("pin network namespace %s: %w", name, err)
			return
		}
		made <- nil
	})
	return <-made
}

// shareNetnsRoot makes NetnsRoot a shared mount, as the first `ip netns add` does. Left to that, it would hide the
// namespaces pinned before it under a mount of its own, and they could not be removed.
func shareNetnsRoot() error {
	if err := os.MkdirAll(NetnsRoot, 0o755); err != nil {
		return err
	}
	err := unix.Mount("", NetnsRoot, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // it is no mount yet
		if err := unix.Mount(NetnsRoot, NetnsRoot, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", NetnsRoot, err)
		}
		err = unix.Mount("", NetnsRoot, "none", unix.MS_SHARED|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", NetnsRoot, err)
	}
	return nil
}

// lockNetnsRoot keeps other instances from mounting or unmounting NetnsRoot meanwhile: between one's look and its act the other's
// namespace would be pinned under a mount that goes. The lock is on the folder above, so that no file stays behind.
func lockNetnsRoot() (unlock func(), err error) {
	dir, err := os.Open(filepath.Dir(NetnsRoot))
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", NetnsRoot, err)
	}
	for {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", NetnsRoot, err), dir.Close())
	}
	return func() { _ = dir.Close() }, nil
}

// removeNetns unpins a namespace; it ends, with all its links, when its last process has.
func removeNetns(name string) error {
	unlock, err := lockNetnsRoot()
	if err != nil {
		return err
	}
	defer unlock()
	path := NetnsPath(name)
	err = unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unpin network namespace %s: %w", name, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if entries, err := os.ReadDir(NetnsRoot); err == nil && len(entries) == 0 {
		_ = unix.Unmount(NetnsRoot, 0) // nobody's any more; the next namespace mounts it again
	}
	return nil
}

// Netns lists the pinned namespaces of an instance: those whose names start with its prefix and "-".
func Netns(prefix string) ([]string, error) {
	entries, err := os.ReadDir(NetnsRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), prefix+"-")
		if ok && (rest == "underlay" || rest == "edge" || strings.HasPrefix(rest, "node-")) && !strings.Contains(strings.TrimPrefix(rest, "node-"), "-") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
