package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Names of links in the pin folder. After podLinkPrefix follows the ifindex.
const (
	hostLink      = "host"
	vxlanLink     = "vxlan"
	uplinkLink    = "uplink"
	podLinkPrefix = "pod_"
)

// AttachPod attaches pod_egress at the ingress of a Pod's host side, or replaces the program there: at no time is there
// none. Interfaces are those of the calling thread's network namespace.
func (d *Datapath) AttachPod(ifindex int) error {
	return d.attach(bpfProgPodEgress, podLinkPrefix+strconv.Itoa(ifindex), ifindex)
}

// AttachHost attaches host_egress at the far end of the host's veth, like AttachPod.
func (d *Datapath) AttachHost() error {
	return d.attach(bpfProgHostEgress, hostLink, d.config.HostPeerIfindex)
}

// AttachVXLAN attaches vxlan_ingress at the vxlan device, like AttachPod.
func (d *Datapath) AttachVXLAN() error {
	return d.attach(bpfProgVxlanIngress, vxlanLink, d.config.VXLANIfindex)
}

// AttachUplink attaches uplink_ingress at the uplink, like AttachPod.
func (d *Datapath) AttachUplink() error {
	return d.attach(bpfProgUplinkIngress, uplinkLink, d.config.UplinkIfindex)
}

// DetachPod removes a Pod's program and its drop counters. That the interface, or its program, is gone is no error.
func (d *Datapath) DetachPod(ifindex int) error {
	return errors.Join(
		removeLink(d.linkPath(podLinkPrefix+strconv.Itoa(ifindex))),
		removeFilter(bpfProgPodEgress, ifindex),
		d.forgetCounters(ifindex),
	)
}

func (d *Datapath) forgetCounters(ifindex int) error {
	return errors.Join(d.Drops.DeleteInterface(ifindex), d.Deliveries.DeleteInterface(ifindex))
}

// CollectLinks removes the pins of links whose interface is gone, and links of programs that only another version has. It returns
// how many there were. Call it when this version's programs are attached.
func (d *Datapath) CollectLinks() (int, error) {
	entries, err := os.ReadDir(linksDir(d.config.PinPath))
	if err != nil {
		return 0, fmt.Errorf("list the pinned links: %w", err)
	}
	var removed int
	var errs []error
	for _, entry := range entries {
		if slices.Contains([]string{hostLink, vxlanLink, uplinkLink}, entry.Name()) {
			continue
		}
		digits, ok := strings.CutPrefix(entry.Name(), podLinkPrefix)
		ifindex, err := strconv.Atoi(digits)
		if !ok || err != nil { // of a program that this version does not have
			removed++
			errs = append(errs, removeLink(d.linkPath(entry.Name())))
			continue
		}
		l, err := d.pinnedLink(entry.Name(), ifindex)
		if err == nil && l != nil {
			_ = l.Close()
			continue
		}
		if err == nil {
			removed++
			err = errors.Join(removeLink(d.linkPath(entry.Name())), d.forgetCounters(ifindex))
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}

func (d *Datapath) linkPath(name string) string {
	return filepath.Join(linksDir(d.config.PinPath), name)
}

// attach attaches a program in the datapath's mode and then removes what the other mode left.
func (d *Datapath) attach(program, name string, ifindex int) error {
	if d.mode == ModeClsact {
		if err := replaceFilter(d.program(program), program, ifindex); err != nil {
			return fmt.Errorf("attach %s to interface %d: %w", program, ifindex, err)
		}
		return removeLink(d.linkPath(name))
	}
	if err := d.attachTCX(program, name, ifindex); err != nil {
		return fmt.Errorf("attach %s to interface %d: %w", program, ifindex, err)
	}
	return removeFilter(program, ifindex)
}

func (d *Datapath) attachTCX(program, name string, ifindex int) error {
	l, err := d.pinnedLink(name, ifindex)
	if err != nil {
		return err
	}
	if l != nil {
		defer l.Close()
		return l.Update(d.program(program))
	}
	if err := removeLink(d.linkPath(name)); err != nil {
		return err
	}
	l, err = link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: d.program(program), Attach: ebpf.AttachTCXIngress})
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Pin(d.linkPath(name))
}

// pinnedLink opens a pinned link; nil when there is none or it is not attached to that interface any more.
func (d *Datapath) pinnedLink(name string, ifindex int) (link.Link, error) {
	l, err := link.LoadPinnedLink(d.linkPath(name), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the pinned link %s: %w", name, err)
	}
	info, err := l.Info()
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("pinned link %s: %w", name, err)
	}
	if tcx := info.TCX(); tcx == nil || int(tcx.Ifindex) != ifindex {
		return nil, l.Close()
	}
	return l, nil
}

// removeLink detaches a pinned link and removes its pin. A pin alone would be forgotten by the kernel only some time later.
func removeLink(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the pinned link %s: %w", path, err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil && !errors.Is(err, unix.ENOLINK) {
		return fmt.Errorf("detach the link %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the pinned link: %w", err)
	}
	return nil
}
