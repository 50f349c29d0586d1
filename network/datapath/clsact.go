package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Our one filter on an interface: a fixed handle and priority, so that a replacement takes its place at once. The uplink is not our
// own: others' filters there have their places.
const (
	filterHandle   = 1
	filterPriority = 1
	uplinkPriority = 0x6d6e
)

// priorityOf is that of a program's filter.
func priorityOf(program string) uint16 {
	if program == bpfProgUplinkIngress {
		return uplinkPriority
	}
	return filterPriority
}

// replaceFilter puts a program at an interface's clsact ingress. The kernel swaps an existing one atomically.
func replaceFilter(program *ebpf.Program, name string, ifindex int) error {
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add a clsact qdisc: %w", err)
	}
	filter := ingressFilter(name, ifindex)
	filter.Fd, filter.Name, filter.DirectAction = program.FD(), name, true
	if err := netlink.FilterReplace(filter); err != nil {
		return fmt.Errorf("replace the clsact filter: %w", err)
	}
	return nil
}

// removeFilter removes a program's filter from an interface. That the interface, the qdisc or the filter is missing is no error.
func removeFilter(program string, ifindex int) error {
	err := netlink.FilterDel(ingressFilter(program, ifindex))
	for _, missing := range []error{nil, unix.ENOENT, unix.ENODEV, unix.EINVAL} {
		if errors.Is(err, missing) {
			return nil
		}
	}
	return fmt.Errorf("remove the clsact filter of interface %d: %w", ifindex, err)
}

func ingressFilter(program string, ifindex int) *netlink.BpfFilter {
	return &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: ifindex,
		Parent:    netlink.HANDLE_MIN_INGRESS,
		Handle:    filterHandle,
		Priority:  priorityOf(program),
		Protocol:  unix.ETH_P_ALL,
	}}
}

// removeUplinkFilter removes the filter at the uplink of the datapath that is pinned at a path: unlike the others' its interface stays.
func removeUplinkFilter(pinPath string) error {
	ifindex, err := filteredUplink(pinPath)
	if err != nil || ifindex == 0 {
		return err
	}
	return removeFilter(bpfProgUplinkIngress, ifindex)
}

// filteredUplink is the ifindex of the uplink that has a filter of the datapath that is pinned at a path; 0 when none has.
func filteredUplink(pinPath string) (int, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return 0, fmt.Errorf("list the network's links: %w", err)
	}
	for _, l := range links {
		filters, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
		if err != nil {
			continue // it has no ingress
		}
		for _, filter := range filters {
			program := programOfFilter(filter, pinPath)
			if program == nil {
				continue
			}
			if err := program.Close(); err != nil {
				return 0, err
			}
			if filter.Attrs().Priority == uplinkPriority {
				return l.Attrs().Index, nil
			}
		}
	}
	return 0, nil
}

// FindUplink is the ifindex of the link at which the datapath that is pinned at a path meets the outside, in the calling thread's
// network namespace; 0 when it does not.
func FindUplink(pinPath string) (int, error) {
	l, err := link.LoadPinnedLink(filepath.Join(linksDir(pinPath), uplinkLink), nil)
	if errors.Is(err, os.ErrNotExist) {
		return filteredUplink(pinPath)
	}
	if err != nil {
		return 0, fmt.Errorf("open the pinned link of the uplink: %w", err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil || info.TCX() == nil {
		return 0, err
	}
	return int(info.TCX().Ifindex), nil
}
