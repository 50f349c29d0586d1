package underlay

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/spawn"
)

// edgePort is the edge router's link at the bridge.
const edgePort = "edge"

// ensureEdge makes the edge router's namespace, or removes it where the owner has a router.
func ensureEdge(inst instance.Instance, outside instance.Outside) error {
	if !outside.Edge() {
		return removeNetns(inst.EdgeNetns())
	}
	if err := ensureNetns(inst.EdgeNetns()); err != nil {
		return err
	}
	plan := inst.Addresses()
	uplink := port{
		netns: inst.EdgeNetns(), name: NodeUplink, peer: edgePort,
		address: netip.PrefixFrom(plan.Edge, plan.Underlay.Bits()), gateway: plan.Machine,
	}
	if err := uplink.ensure(inst.SwitchNetns()); err != nil {
		return err
	}
	return spawn.Run(spawn.Place{Netns: NetnsPath(inst.EdgeNetns())}, func() error {
		return errors.Join(
			writeSysctl("net/ipv4/ip_forward", "1"),
			writeSysctl("net/ipv4/fib_multipath_hash_policy", "1"), // connections, not hosts, are spread over the nodes
			// Who asks is on the link of the nodes, too. Told of a better way (ICMP redirect) it would keep to a node that dies.
			writeSysctl("net/ipv4/conf/all/send_redirects", "0"),
			writeSysctl("net/ipv4/conf/"+NodeUplink+"/send_redirects", "0"),
		)
	})
}

// ensurePoolRoute gives the machine its route to the external addresses: by the edge router, or, where the owner's router sends
// their traffic to this machine, by all nodes, each of which takes it to the right one. A route to another pool goes.
func ensurePoolRoute(inst instance.Instance, nodes []instance.Node, outside instance.Outside) error {
	plan := inst.Addresses()
	link, err := netlink.LinkByName(inst.UplinkName())
	if err != nil {
		return fmt.Errorf("find link %s: %w", inst.UplinkName(), err)
	}
	gateways := []netip.Addr{plan.Edge}
	if !outside.Edge() {
		gateways = nil
		for _, n := range nodes {
			gateways = append(gateways, n.Address())
		}
	}
	route := &netlink.Route{Dst: network(outside.Pool), Protocol: unix.RTPROT_STATIC}
	for _, g := range gateways {
		route.MultiPath = append(route.MultiPath, &netlink.NexthopInfo{LinkIndex: link.Attrs().Index, Gw: g.AsSlice()})
	}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("add the route to %s: %w", outside.Pool, err)
	}
	have, err := poolRoutes(link)
	if err != nil {
		return err
	}
	for i := range have {
		if have[i].Dst.String() == route.Dst.String() {
			continue
		}
		if err := netlink.RouteDel(&have[i]); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove the route to %s: %w", have[i].Dst, err)
		}
	}
	return nil
}

// poolRoutes are the machine's routes to external addresses by the instance's link.
func poolRoutes(link netlink.Link) ([]netlink.Route, error) {
	all, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: unix.RTPROT_STATIC}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var ours []netlink.Route
	for i := range all {
		if all[i].Dst != nil && linkOf(&all[i]) == link.Attrs().Index {
			ours = append(ours, all[i])
		}
	}
	return ours, nil
}

func network(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
