package host

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Overhead is what VXLAN over IPv4 adds to a packet, in bytes: outer Ethernet is not counted in an MTU, inner Ethernet (14),
// VXLAN (8), UDP (8) and IPv4 (20) are.
const Overhead = 50

// minMTU is the smallest inner MTU that IPv4 hosts must accept (RFC 791).
const minMTU = 576

// hostMAC and farMAC are the fixed addresses of h0 and h1: the datapath writes them into what it gives to the host.
var (
	hostMAC = net.HardwareAddr{0x02, 0x6d, 0x6e, 0x69, 0x00, 0x00}
	farMAC  = net.HardwareAddr{0x02, 0x6d, 0x6e, 0x69, 0x00, 0x01}
)

// Config says what a namespace should have.
type Config struct {
	// LinkPrefix begins the names of the links.
	LinkPrefix string
	// Uplink is the name of the link to the underlay.
	Uplink string
	// Address is the node's address on the underlay: the source of what the host sends to Pods.
	Address netip.Addr
	// Infrastructure is the range of Pods' infrastructure addresses.
	Infrastructure netip.Prefix
	// Services is routed into the datapath when valid: for members without a kube-proxy.
	Services netip.Prefix
	// Hairpin is the address that stands for the host when it is its own Service's backend; routed like Services.
	Hairpin netip.Addr
	// Resolver, when valid, is where the resolver of VPCs listens on this host: an address of h0, in no range of a network.
	Resolver netip.Addr
	// VXLANPort is the UDP port of the tunnels.
	VXLANPort uint16
	// Forward makes the host forward packets: for nodes with Pods.
	Forward bool
}

// Links are the links of a namespace that is set up.
type Links struct {
	// Near is h0, in the host's stack; Far is h1, where the datapath meets it.
	Near, Far netlink.Link
	// VXLAN is the flow-based device of all tunnels.
	VXLAN netlink.Link
	// Uplink is the link to the underlay.
	Uplink netlink.Link
	// MTU of everything inside the tunnels, in bytes.
	MTU int
}

func (c Config) name(role string) string { return c.LinkPrefix + role }

// Names are the uplink's name and those of the links that Ensure makes.
func (c Config) Names() []string { return []string{c.Uplink, c.name("h0"), c.name("h1"), c.name("vx")} }

// Remove deletes the links that Ensure made, and with them their routes. What is not there is a success.
func Remove(linkPrefix string) error {
	var errs []error
	for _, role := range []string{"h0", "vx"} {
		link, err := netlink.LinkByName(linkPrefix + role)
		if isNotFound(err) {
			continue
		}
		if err == nil {
			err = netlink.LinkDel(link)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Ensure makes the namespace as Config says and returns its links.
func Ensure(c Config) (*Links, error) {
	uplink, err := netlink.LinkByName(c.Uplink)
	if err != nil {
		return nil, fmt.Errorf("uplink %s: %w", c.Uplink, err)
	}
	mtu, err := innerMTU(uplink)
	if err != nil {
		return nil, err
	}
	if c.Forward { // first: it sets every link's own forwarding
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
			return nil, fmt.Errorf("let the node forward packets: %w", err)
		}
	}
	near, far, err := ensureHostPair(c.name("h0"), c.name("h1"), mtu)
	if err != nil {
		return nil, err
	}
	vxlan, err := ensureVXLAN(c.name("vx"), int(c.VXLANPort), mtu)
	if err != nil {
		return nil, err
	}
	destinations := []netip.Prefix{c.Infrastructure}
	if c.Services.IsValid() {
		destinations = append(destinations, c.Services, netip.PrefixFrom(c.Hairpin, c.Hairpin.BitLen()))
	}
	for _, destination := range destinations {
		if err := ensureRoute(near, destination, c.Address); err != nil {
			return nil, err
		}
	}
	if c.Resolver.IsValid() {
		if err := ensureAddress(near, c.Resolver); err != nil {
			return nil, err
		}
	}
	return &Links{Near: near, Far: far, VXLAN: vxlan, Uplink: uplink, MTU: mtu}, nil
}

// innerMTU is the uplink's less what VXLAN adds (https://github.com/kubeovn/kube-ovn/issues/1457).
func innerMTU(uplink netlink.Link) (int, error) {
	mtu := uplink.Attrs().MTU - Overhead
	if mtu < minMTU {
		return 0, fmt.Errorf("uplink %s has an MTU of %d bytes, VXLAN needs at least %d; raise it", uplink.Attrs().Name, uplink.Attrs().MTU, minMTU+Overhead)
	}
	return mtu, nil
}

// ensureHostPair makes h0 and h1. h0 has no ARP: the datapath finds endpoints by address.
func ensureHostPair(nearName, farName string, mtu int) (near, far netlink.Link, err error) {
	near, err = netlink.LinkByName(nearName)
	if isNotFound(err) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU, attrs.HardwareAddr = nearName, mtu, hostMAC
		err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: farName, PeerHardwareAddr: farMAC, PeerMTU: uint32(mtu)})
		if err != nil {
			return nil, nil, fmt.Errorf("make veth pair %s, %s: %w", nearName, farName, err)
		}
		near, err = netlink.LinkByName(nearName)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("link %s: %w", nearName, err)
	}
	if far, err = netlink.LinkByName(farName); err != nil {
		return nil, nil, fmt.Errorf("link %s: %w; remove %s and start again", farName, err, nearName)
	}
	if !bytes.Equal(near.Attrs().HardwareAddr, hostMAC) {
		if err := netlink.LinkSetHardwareAddr(near, hostMAC); err != nil {
			return nil, nil, fmt.Errorf("MAC address of %s: %w", nearName, err)
		}
	}
	if near.Attrs().RawFlags&unix.IFF_NOARP == 0 {
		if err := netlink.LinkSetARPOff(near); err != nil {
			return nil, nil, fmt.Errorf("switch ARP off on %s: %w", nearName, err)
		}
	}
	err = errors.Join(
		setSysctl("ipv4", nearName, "rp_filter", "1"),
		setSysctl("ipv4", nearName, "send_redirects", "0"),
		setSysctl("ipv4", nearName, "accept_redirects", "0"),
		setSysctl("ipv4", farName, "forwarding", "0"),
		setSysctl("ipv4", farName, "arp_ignore", "8"),
		raise(far, mtu), raise(near, mtu),
	)
	if err != nil {
		return nil, nil, err
	}
	near, err = netlink.LinkByName(nearName)
	return near, far, err
}

// ensureVXLAN makes the one device of all tunnels: VNI and destination come with each packet, nothing is learned.
func ensureVXLAN(name string, port, mtu int) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if err == nil {
		vxlan, ok := link.(*netlink.Vxlan)
		if ok && vxlan.FlowBased && vxlan.Port == port {
			return link, raise(link, mtu)
		}
		if err := netlink.LinkDel(link); err != nil {
			return nil, fmt.Errorf("replace %s: %w", name, err)
		}
	} else if !isNotFound(err) {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	if err := netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, FlowBased: true, Port: port, Learning: false}); err != nil {
		return nil, fmt.Errorf("make VXLAN device %s on UDP port %d: %w", name, port, err)
	}
	if link, err = netlink.LinkByName(name); err != nil {
		return nil, err
	}
	return link, raise(link, mtu)
}

// raise sets a link's MTU, keeps IPv6 away from it and sets it up.
func raise(link netlink.Link, mtu int) error {
	attrs := link.Attrs()
	if attrs.MTU != mtu {
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set the MTU of %s to %d: %w", attrs.Name, mtu, err)
		}
	}
	if err := setSysctl("ipv6", attrs.Name, "disable_ipv6", "1"); err != nil {
		return err
	}
	if attrs.Flags&net.FlagUp != 0 {
		return nil
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", attrs.Name, err)
	}
	return nil
}

func ensureRoute(near netlink.Link, destination netip.Prefix, source netip.Addr) error {
	route := &netlink.Route{
		LinkIndex: near.Attrs().Index, Scope: netlink.SCOPE_LINK, Src: source.AsSlice(),
		Dst: &net.IPNet{IP: destination.Addr().AsSlice(), Mask: net.CIDRMask(destination.Bits(), destination.Addr().BitLen())},
	}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("route %s dev %s src %s: %w", destination, near.Attrs().Name, source, err)
	}
	return nil
}

// ensureAddress gives a link an address of scope host: nothing is sent from it but by who listens on it.
func ensureAddress(link netlink.Link, address netip.Addr) error {
	name := link.Attrs().Name
	have, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("addresses of %s: %w", name, err)
	}
	for i := range have {
		if have[i].IP.Equal(address.AsSlice()) {
			return nil
		}
	}
	one := &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: one, Scope: int(netlink.SCOPE_HOST)}); err != nil {
		return fmt.Errorf("give %s the resolver's address %s: %w", name, address, err)
	}
	return nil
}

// setSysctl sets net.FAMILY.conf.LINK.KEY. A kernel without IPv6 has nothing to switch off.
func setSysctl(family, link, key, value string) error {
	err := os.WriteFile(filepath.Join("/proc/sys/net", family, "conf", link, key), []byte(value), 0)
	if family == "ipv6" && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// getSysctl is what net.FAMILY.conf.LINK.KEY is.
func getSysctl(family, link, key string) (string, error) {
	value, err := os.ReadFile(filepath.Join("/proc/sys/net", family, "conf", link, key))
	return strings.TrimSpace(string(value)), err
}

func isNotFound(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound)
}
