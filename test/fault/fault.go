// Package fault breaks a cloud on this machine, for tests that look what becomes of it: it pulls a node's cable, and lets a node
// crash. Parts are killed by their process IDs, which `mni status` tells.
package fault

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/cgroup"
	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/spawn"
	"github.com/mnicloud/mnicloud/distro/underlay"
)

// Plug plugs a node's cable in, or pulls it: its port of the underlay bridge is set up or down.
func Plug(n instance.Node, in bool) error {
	return spawn.Run(spawn.Place{Netns: underlay.NetnsPath(n.Instance.SwitchNetns())}, func() error {
		port, err := netlink.LinkByName(n.Name())
		if err != nil {
			return err
		}
		if in {
			return netlink.LinkSetUp(port)
		}
		return netlink.LinkSetDown(port)
	})
}

// Crash ends everything on a node at once and takes away what a reboot takes away: processes, Pods' links and namespaces.
func Crash(n instance.Node) error {
	tree, err := cgroup.Detect()
	if err != nil {
		return err
	}
	pods, err := tree.Processes(n.PodCgroup())
	if err != nil {
		return err
	}
	parts, err := processesIn(underlay.NetnsPath(n.Netns()))
	if err != nil {
		return err
	}
	for _, pid := range append(parts, pods...) {
		_ = unix.Kill(pid, unix.SIGKILL) // one that has ended meanwhile is what is wanted
	}
	return node.Run(n, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Alias, "mni-netd attachment ") {
				if gone := netlink.LinkDel(l); !errors.Is(gone, unix.ENODEV) {
					err = errors.Join(err, gone)
				}
			}
		}
		pins, globErr := filepath.Glob("/run/netns/cni-*")
		for _, pin := range pins {
			_ = unix.Unmount(pin, unix.MNT_DETACH)
			if gone := os.Remove(pin); !errors.Is(gone, os.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
		return errors.Join(err, globErr)
	})
}

// processesIn are those in the network namespace that is pinned on the file.
func processesIn(pin string) ([]int, error) {
	var want unix.Stat_t
	if err := unix.Stat(pin, &want); err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", pin, err)
	}
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, link := range links {
		var stat unix.Stat_t
		var pid int
		if unix.Stat(link, &stat) != nil || stat.Ino != want.Ino {
			continue
		}
		if _, err := fmt.Sscanf(link, "/proc/%d/", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
