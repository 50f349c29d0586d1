// Package fault breaks a cloud on this machine, for tests that look what becomes of it: it pulls a node's cable, and lets a node
// crash. Parts are killed by their process IDs, which `mni status` tells.
package fault

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/cgroup"
	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/spawn"
	"github.com/mnicloud/mnicloud/distro/underlay"
	"github.com/mnicloud/mnicloud/network/datapath"
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

// Crash ends everything on a node at once and takes away what a reboot takes away: processes and Pods' namespaces, and of the network
// everything that the kernel or /run has: programs and tables, all links but the cable and with them routes, nftables, the runtime's network
// configuration and the daemon's socket. All stands still before it is taken, so that nothing is made anew that a reboot would take.
func Crash(n instance.Node) error {
	processes := func(by unix.Signal) error {
		tree, err := cgroup.Detect()
		if err != nil {
			return err
		}
		pods, err := tree.Processes(n.PodCgroup())
		if err != nil {
			return err
		}
		parts, err := processesIn(underlay.NetnsPath(n.Netns()))
		for _, pid := range append(parts, pods...) {
			_ = unix.Kill(pid, by) // one that has ended meanwhile is what is wanted
		}
		return err
	}
	err := processes(unix.SIGSTOP)
	if err == nil {
		err = node.Run(n, func() error { return errors.Join(datapath.Remove(n.PinDir()), takeLinks(), takeTables(), takeFiles()) })
	}
	return errors.Join(err, processes(unix.SIGKILL))
}

// takeLinks deletes all links of the calling thread's network namespace but its loopback and the cable.
func takeLinks() error {
	links, err := netlink.LinkList()
	for _, l := range links {
		if l.Attrs().Name == underlay.NodeUplink || l.Attrs().Flags&net.FlagLoopback != 0 {
			continue
		}
		// The other end of a pair is gone with the first.
		if gone := netlink.LinkDel(l); gone != nil && !errors.Is(gone, unix.ENODEV) && !errors.Is(gone, unix.EINVAL) {
			err = errors.Join(err, fmt.Errorf("delete link %s: %w", l.Attrs().Name, gone))
		}
	}
	return err
}

// takeTables deletes everything of nftables, the daemon's and kube-proxy's, and forgets the kernel's connections.
func takeTables() error {
	conn, err := nftables.New()
	if err != nil {
		return err
	}
	conn.FlushRuleset()
	return errors.Join(conn.Flush(), netlink.ConntrackTableFlush(netlink.ConntrackTable))
}

// takeFiles removes what the node has in /run of its network: Pods' namespaces, the runtime's configuration and the daemon's socket.
func takeFiles() error {
	pins, err := filepath.Glob("/run/netns/cni-*")
	for _, pin := range pins {
		_ = unix.Unmount(pin, unix.MNT_DETACH)
	}
	files, globErr := filepath.Glob(filepath.Join(node.CNIConfDir, "*"))
	err = errors.Join(err, globErr)
	for _, path := range slices.Concat(pins, files, []string{"/run/mni/netd.sock"}) {
		if gone := os.Remove(path); !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
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
