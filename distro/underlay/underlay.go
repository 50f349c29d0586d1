package underlay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/spawn"
)

// NodeUplink is the name of a node's link into the underlay, in the node's namespace.
const NodeUplink = "eth0"

const (
	bridgeName  = "underlay"
	machinePort = "machine"
)

// Ensure makes the underlay of the instance with these nodes, and the machine's way to its external addresses. What is there
// already stays as it is.
func Ensure(ctx context.Context, inst instance.Instance, nodes []instance.Node, outside instance.Outside) error {
	plan := inst.Addresses()
	if err := ensureNetns(inst.SwitchNetns()); err != nil {
		return err
	}
	if err := ensureBridge(inst.SwitchNetns()); err != nil {
		return err
	}
	machine := port{
		netns: "", name: inst.UplinkName(), peer: machinePort,
		address: netip.PrefixFrom(plan.Machine, plan.Underlay.Bits()),
	}
	if err := machine.ensure(inst.SwitchNetns()); err != nil {
		return fmt.Errorf("join the machine to the underlay: %w", err)
	}
	for _, n := range nodes {
		if err := ensureNode(n, plan); err != nil {
			return fmt.Errorf("join %s to the underlay: %w", n.Name(), err)
		}
	}
	if err := ensureEdge(inst, outside); err != nil {
		return fmt.Errorf("join the edge router to the underlay: %w", err)
	}
	if err := ensurePoolRoute(inst, nodes, outside); err != nil {
		return fmt.Errorf("route the external addresses: %w", err)
	}
	return ensureFirewall(ctx, inst, outside)
}

func ensureNode(n instance.Node, plan instance.Addresses) error {
	if err := ensureNetns(n.Netns()); err != nil {
		return err
	}
	uplink := port{
		netns: n.Netns(), name: NodeUplink, peer: n.Name(),
		address: netip.PrefixFrom(n.Address(), plan.Underlay.Bits()),
		gateway: plan.Machine,
	}
	if err := uplink.ensure(n.Instance.SwitchNetns()); err != nil {
		return err
	}
	return spawn.Run(spawn.Place{Netns: NetnsPath(n.Netns())}, func() error {
		return writeSysctl("net/ipv4/ip_forward", "1")
	})
}

func ensureBridge(switchNetns string) error {
	links, err := handle(switchNetns)
	if err != nil {
		return err
	}
	defer links.Close()
	if err := up(links, "lo"); err != nil {
		return err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
	if err := links.LinkAdd(bridge); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make the underlay bridge: %w", err)
	}
	// With br_netfilter in the kernel, a new namespace starts with its hooks on.
	err = spawn.Run(spawn.Place{Netns: NetnsPath(switchNetns)}, func() error {
		for _, hook := range []string{"iptables", "ip6tables", "arptables"} {
			name := "net/bridge/bridge-nf-call-" + hook
			if err := writeSysctl(name, "0"); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep the underlay out of the firewall: %w", err)
	}
	return up(links, bridgeName)
}

// port is a link into the bridge.
type port struct {
	netns   string // of the member; empty is the machine's
	name    string // of the link there
	peer    string // of the link's other end, at the bridge
	address netip.Prefix
	gateway netip.Addr // zero: none
}

func (p port) ensure(switchNetns string) error {
	links, err := handle(p.netns)
	if err != nil {
		return err
	}
	defer links.Close()
	if p.netns != "" {
		if err := up(links, "lo"); err != nil {
			return err
		}
	}
	if err := p.ensureVeth(links, switchNetns); err != nil {
		return err
	}
	link, err := links.LinkByName(p.name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", p.name, err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{
		IP: p.address.Addr().AsSlice(), Mask: net.CIDRMask(p.address.Bits(), p.address.Addr().BitLen()),
	}}
	if err := links.AddrReplace(link, address); err != nil {
		return fmt.Errorf("give %s its address %s: %w", p.name, p.address, err)
	}
	if err := links.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up %s: %w", p.name, err)
	}
	if !p.gateway.IsValid() {
		return nil
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: p.gateway.AsSlice()}
	if err := links.RouteReplace(route); err != nil {
		return fmt.Errorf("route by %s: %w", p.gateway, err)
	}
	return nil
}

func (p port) ensureVeth(links *netlink.Handle, switchNetns string) error {
	atSwitch, err := handle(switchNetns)
	if err != nil {
		return err
	}
	defer atSwitch.Close()
	if _, err := links.LinkByName(p.name); err != nil {
		target, err := netns.GetFromPath(NetnsPath(switchNetns))
		if err != nil {
			return err
		}
		defer func() { _ = target.Close() }()
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: p.name}, PeerName: p.peer, PeerNamespace: netlink.NsFd(target),
		}
		if err := links.LinkAdd(veth); err != nil {
			return fmt.Errorf("make link %s: %w", p.name, err)
		}
	}
	peer, err := atSwitch.LinkByName(p.peer)
	if err != nil {
		return fmt.Errorf("find the bridge's port %s: %w", p.peer, err)
	}
	bridge, err := atSwitch.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("find the underlay bridge: %w", err)
	}
	if err := atSwitch.LinkSetMaster(peer, bridge); err != nil {
		return fmt.Errorf("join %s to the bridge: %w", p.peer, err)
	}
	return atSwitch.LinkSetUp(peer)
}

// Remove takes away everything that Ensure made, and any link of the instance on the machine.
func Remove(ctx context.Context, inst instance.Instance) error {
	var errs []error
	links, err := Links(inst)
	errs = append(errs, err)
	for _, link := range links {
		if err := netlink.LinkDel(link); err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("remove link %s: %w", link.Attrs().Name, err))
		}
	}
	names, err := Netns("mni-" + inst.Name)
	errs = append(errs, err)
	for _, name := range names {
		errs = append(errs, removeNetns(name))
	}
	errs = append(errs, removeFirewall(ctx, inst))
	return errors.Join(errs...)
}

// Links are the instance's links on the machine.
func Links(inst instance.Instance) ([]netlink.Link, error) {
	all, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	var ours []netlink.Link
	for _, link := range all {
		if strings.HasPrefix(link.Attrs().Name, inst.LinkPrefix()+"-") {
			ours = append(ours, link)
		}
	}
	return ours, nil
}

// MachinePrefixes are the prefixes of the machine's routes and addresses that are not the instance's own.
func MachinePrefixes(inst instance.Instance) ([]netip.Prefix, error) {
	ours, err := Links(inst)
	if err != nil {
		return nil, err
	}
	own := map[int]bool{}
	for _, link := range ours {
		own[link.Attrs().Index] = true
	}
	routes, err := routes()
	if err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	for _, r := range routes {
		if !own[r.link] {
			prefixes = append(prefixes, r.to)
		}
	}
	return prefixes, nil
}

// Routes are the machine's routes into the instance's ranges.
func Routes(inst instance.Instance) ([]string, error) {
	all, err := routes()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, r := range all {
		for _, ours := range inst.Addresses().Ranges() {
			if ours.Contains(r.to.Addr()) && r.to.Bits() >= ours.Bits() {
				found = append(found, r.to.String())
			}
		}
	}
	return found, nil
}

type route struct {
	to   netip.Prefix
	link int
}

// routes lists the IPv4 routes of all tables, local addresses among them.
func routes() ([]route, error) {
	list, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var all []route
	for _, r := range list {
		if r.Dst == nil {
			continue
		}
		if addr, ok := netip.AddrFromSlice(r.Dst.IP.To4()); ok {
			bits, _ := r.Dst.Mask.Size()
			all = append(all, route{netip.PrefixFrom(addr, bits), linkOf(&r)})
		}
	}
	return all, nil
}

// linkOf is the index of a route's link; of one with several next hops, the first's.
func linkOf(r *netlink.Route) int {
	if len(r.MultiPath) > 0 {
		return r.MultiPath[0].LinkIndex
	}
	return r.LinkIndex
}

// handle talks to the kernel about the links of a named namespace, or of the machine's.
func handle(name string) (*netlink.Handle, error) {
	if name == "" {
		return netlink.NewHandle()
	}
	ns, err := netns.GetFromPath(NetnsPath(name))
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", name, err)
	}
	defer func() { _ = ns.Close() }()
	return netlink.NewHandleAt(ns)
}

func up(links *netlink.Handle, name string) error {
	link, err := links.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := links.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	return nil
}

func writeSysctl(name, value string) error {
	return os.WriteFile("/proc/sys/"+name, []byte(value), 0)
}
