package attachment

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// configureContainer sets up the container's end, in its namespace: address, default route through the Subnet's gateway,
// the infrastructure address on lo, and everything up. Repeating it changes nothing.
//
// The address shows the Subnet's prefix length but makes no connected route: every packet goes to the gateway's MAC, which is
// a permanent neighbour. So a container needs one neighbour entry, however many peers it has (the kernel's neighbour table,
// 1,024 entries by default, is shared by all namespaces), and no ARP before its first packet.
func configureContainer(r Record) error {
	return inNetns(r.Netns, func() error {
		if err := configureLoopback(r.Interface); err != nil {
			return err
		}
		link, err := netlink.LinkByName(r.IfName)
		if err != nil {
			return fmt.Errorf("%s in %s: %w", r.IfName, r.Netns, err)
		}
		if err := errors.Join(
			writeSysctl("ipv6", r.IfName, "disable_ipv6", "1"),
			writeSysctl("ipv4", r.IfName, "accept_redirects", "0"),
		); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := configureForwarding(r); err != nil {
			return err
		}
		address := &netlink.Addr{IPNet: ipNet(r.Interface.Prefix), Flags: unix.IFA_F_NOPREFIXROUTE}
		if err := netlink.AddrReplace(link, address); err != nil {
			return fmt.Errorf("address %s on %s: %w", r.Interface.Prefix, r.IfName, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", r.IfName, err)
		}
		return configureRoutes(link, r.Interface)
	})
}

// forwarding switches the namespace's routing between interfaces: the kernel's own name for it is net.ipv4.ip_forward.
const forwarding = "/proc/sys/net/ipv4/ip_forward"

// configureForwarding makes the namespace of an interface without source and destination check route: a tenant's container cannot
// write the parameter itself. What comes in goes out of the same interface, about which no ICMP redirect is to be sent.
func configureForwarding(r Record) error {
	if r.Interface.SourceDestCheck {
		return nil
	}
	return errors.Join(
		os.WriteFile(forwarding, []byte("1"), 0),
		writeSysctl("ipv4", "all", "send_redirects", "0"),
		writeSysctl("ipv4", r.IfName, "send_redirects", "0"),
	)
}

// checkForwarding looks whether the namespace routes, if it must.
func checkForwarding(i Interface) error {
	if i.SourceDestCheck {
		return nil
	}
	value, err := os.ReadFile(forwarding)
	if err == nil && strings.TrimSpace(string(value)) != "1" {
		err = errors.New("net.ipv4.ip_forward is off, although the interface has no source and destination check")
	}
	return err
}

func configureLoopback(i Interface) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	if i.Infrastructure == i.Prefix.Addr() {
		return nil
	}
	address := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(i.Infrastructure, 32)), Scope: unix.RT_SCOPE_HOST}
	if err := netlink.AddrReplace(lo, address); err != nil {
		return fmt.Errorf("infrastructure address %s on lo: %w", i.Infrastructure, err)
	}
	return nil
}

func configureRoutes(link netlink.Link, i Interface) error {
	mac, err := net.ParseMAC(i.GatewayMAC)
	if err != nil {
		return fmt.Errorf("gateway's MAC address: %w", err)
	}
	if err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT,
		IP: i.Gateway.AsSlice(), HardwareAddr: mac,
	}); err != nil {
		return fmt.Errorf("neighbour %s: %w", i.Gateway, err)
	}
	if err := netlink.RouteReplace(defaultRoute(link.Attrs().Index, i)); err != nil {
		return fmt.Errorf("default route via %s: %w", i.Gateway, err)
	}
	return nil
}

func defaultRoute(index int, i Interface) *netlink.Route {
	return &netlink.Route{
		LinkIndex: index, Dst: &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
		Gw: i.Gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
	}
}

// checkContainer verifies what configureContainer has made.
func checkContainer(r Record) error {
	return inNetns(r.Netns, func() error {
		link, err := netlink.LinkByName(r.IfName)
		if err != nil {
			return fmt.Errorf("%s in %s: %w", r.IfName, r.Netns, err)
		}
		attrs := link.Attrs()
		if attrs.Flags&net.FlagUp == 0 {
			return fmt.Errorf("%s is down", r.IfName)
		}
		if attrs.HardwareAddr.String() != r.Interface.MAC {
			return fmt.Errorf("%s has the MAC address %s, not the interface's %s", r.IfName, attrs.HardwareAddr, r.Interface.MAC)
		}
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		if !hasAddress(addresses, r.Interface.Prefix) {
			return fmt.Errorf("%s lacks its address %s", r.IfName, r.Interface.Prefix)
		}
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, defaultRoute(attrs.Index, r.Interface),
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_DST|netlink.RT_FILTER_GW)
		if err != nil {
			return err
		}
		if len(routes) == 0 {
			return fmt.Errorf("%s lacks the default route via %s", r.IfName, r.Interface.Gateway)
		}
		if err := checkNeighbour(attrs.Index, r.Interface); err != nil {
			return err
		}
		return errors.Join(checkLoopback(r.Interface), checkForwarding(r.Interface))
	})
}

// checkNeighbour looks for the gateway, without which no packet leaves.
func checkNeighbour(index int, i Interface) error {
	neighbours, err := netlink.NeighList(index, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, n := range neighbours {
		if n.IP.String() == i.Gateway.String() && n.HardwareAddr.String() == i.GatewayMAC && n.State&netlink.NUD_PERMANENT != 0 {
			return nil
		}
	}
	return fmt.Errorf("the gateway %s is not a permanent neighbour at %s", i.Gateway, i.GatewayMAC)
}

// checkLoopback looks for the infrastructure address.
func checkLoopback(i Interface) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if lo.Attrs().Flags&net.FlagUp == 0 {
		return errors.New("lo is down")
	}
	if i.Infrastructure == i.Prefix.Addr() {
		return nil
	}
	addresses, err := netlink.AddrList(lo, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	if !hasAddress(addresses, netip.PrefixFrom(i.Infrastructure, i.Infrastructure.BitLen())) {
		return fmt.Errorf("lo lacks the infrastructure address %s", i.Infrastructure)
	}
	return nil
}

func hasAddress(addresses []netlink.Addr, want netip.Prefix) bool {
	for _, a := range addresses {
		if a.IPNet.String() == want.String() {
			return true
		}
	}
	return false
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
