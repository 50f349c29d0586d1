package attachment

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// linkPrefix begins the name of the host's end of every veth pair.
	linkPrefix = "mni"
	// aliasPrefix begins its alias, which goes on with the attachment's key: links without a record are found by it.
	aliasPrefix = "mni-netd attachment "
	// hostMTU is the host's end's: as large as can be, so that a packet longer than the container's MTU reaches the datapath, which
	// counts it and tells the sender. A veth drops what is longer than the receiving end's MTU, and tells nobody.
	hostMTU = 65535
)

// linkName is the name of the host's end of a veth pair: at most 15 characters (IFNAMSIZ), 60 bits of a hash of the key. The
// store asks for another attempt when an attachment of the node has the name already, so that names never meet.
func linkName(key string, attempt int) string {
	if attempt > 0 {
		key += ":" + strconv.Itoa(attempt)
	}
	sum := sha256.Sum256([]byte(key))
	return linkPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:12])
}

// createLink makes the veth pair, its container end directly in the container's namespace, both down. A pair that an
// interrupted ADD of the same container left is replaced.
func createLink(r Record, mtu int) (netlink.Link, error) {
	mac, err := net.ParseMAC(r.Interface.MAC)
	if err != nil {
		return nil, err
	}
	if err := deleteLink(r.HostLink); err != nil {
		return nil, err
	}
	netns, err := os.Open(r.Netns)
	if err != nil {
		return nil, err
	}
	defer netns.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = r.HostLink, hostMTU
	veth := &netlink.Veth{
		LinkAttrs: attrs, PeerName: r.IfName, PeerHardwareAddr: mac, PeerMTU: uint32(mtu),
		PeerNamespace: netlink.NsFd(netns.Fd()),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("make veth pair %s, %s in %s: %w", r.HostLink, r.IfName, r.Netns, err)
	}
	link, err := netlink.LinkByName(r.HostLink)
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetAlias(link, aliasPrefix+r.Key()); err != nil {
		return nil, fmt.Errorf("alias of %s: %w", r.HostLink, err)
	}
	return link, hardenHostLink(r.HostLink)
}

// hardenHostLink makes the host's own stack deaf on a container's link: everything goes through the datapath, and should its
// program be missing, nothing is answered, forwarded or accepted.
func hardenHostLink(name string) error {
	return errors.Join(
		writeSysctl("ipv6", name, "disable_ipv6", "1"),
		writeSysctl("ipv4", name, "rp_filter", "1"),
		writeSysctl("ipv4", name, "forwarding", "0"),
		writeSysctl("ipv4", name, "arp_ignore", "8"),
		writeSysctl("ipv4", name, "accept_redirects", "0"),
		writeSysctl("ipv4", name, "send_redirects", "0"),
	)
}

// writeSysctl sets net.FAMILY.conf.LINK.KEY in the network namespace of the calling thread. A kernel without IPv6 has nothing
// to switch off.
func writeSysctl(family, link, key, value string) error {
	path := filepath.Join("/proc/sys/net", family, "conf", link, key)
	err := os.WriteFile(path, []byte(value), 0)
	if family == "ipv6" && errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// deleteLink removes a link by name. One that is not there is a success.
func deleteLink(name string) error {
	link, err := netlink.LinkByName(name)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete link %s: %w", name, err)
	}
	return nil
}

func isNotFound(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound)
}

// inNetns runs f in a network namespace. A namespace that is gone is errNetnsGone.
func inNetns(path string, f func() error) error {
	err := ns.WithNetNSPath(path, func(ns.NetNS) error { return f() })
	var gone ns.NSPathNotExistErr
	var notNS ns.NSPathNotNSErr
	if errors.As(err, &gone) || errors.As(err, &notNS) {
		return fmt.Errorf("%w: %w", errNetnsGone, err)
	}
	return err
}

var errNetnsGone = errors.New("the network namespace does not exist")
