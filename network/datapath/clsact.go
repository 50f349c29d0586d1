package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Our one filter on an interface: a fixed handle and priority, so that a replacement takes its place at once.
const (
	filterHandle   = 1
	filterPriority = 1
)

// replaceFilter puts a program at an interface's clsact ingress. The kernel swaps an existing one atomically.
func replaceFilter(program *ebpf.Program, name string, ifindex int) error {
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add a clsact qdisc: %w", err)
	}
	filter := ingressFilter(ifindex)
	filter.Fd, filter.Name, filter.DirectAction = program.FD(), name, true
	if err := netlink.FilterReplace(filter); err != nil {
		return fmt.Errorf("replace the clsact filter: %w", err)
	}
	return nil
}

// removeFilter removes our filter from an interface. That the interface, the qdisc or the filter is missing is no error.
func removeFilter(ifindex int) error {
	err := netlink.FilterDel(ingressFilter(ifindex))
	for _, missing := range []error{nil, unix.ENOENT, unix.ENODEV, unix.EINVAL} {
		if errors.Is(err, missing) {
			return nil
		}
	}
	return fmt.Errorf("remove the clsact filter of interface %d: %w", ifindex, err)
}

func ingressFilter(ifindex int) *netlink.BpfFilter {
	return &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: ifindex,
		Parent:    netlink.HANDLE_MIN_INGRESS,
		Handle:    filterHandle,
		Priority:  filterPriority,
		Protocol:  unix.ETH_P_ALL,
	}}
}
