package testnet

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that lives as long as its test.
type Namespace struct {
	t      testing.TB
	name   string
	handle netns.NsHandle
	links  *netlink.Handle
}

// NewNamespace makes a namespace with its loopback up. The name is for messages only.
func NewNamespace(t testing.TB, name string) *Namespace {
	t.Helper()
	n := &Namespace{t: t, name: name}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		var err error
		n.handle, err = netns.New()
		done <- err
	}()
	require.NoError(t, <-done, "make a network namespace (needs root)")
	t.Cleanup(func() { require.NoError(t, n.handle.Close()) })
	var err error
	n.links, err = netlink.NewHandleAt(n.handle, unix.NETLINK_ROUTE)
	require.NoError(t, err)
	t.Cleanup(n.links.Close)
	n.up("lo")
	return n
}

// Name is what the namespace was called.
func (n *Namespace) Name() string { return n.name }

// Path is a path that opens the namespace while this process lives.
func (n *Namespace) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(n.handle)) }

// Links is netlink in the namespace.
func (n *Namespace) Links() *netlink.Handle { return n.links }

// Do calls a function on a thread that is in the namespace. Sockets made there stay there; goroutines started do not.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := netns.Set(n.handle); err != nil {
			done <- fmt.Errorf("enter namespace %s: %w", n.name, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// Sysctl sets a kernel parameter of the namespace, named as a path (net/ipv4/ip_forward).
func (n *Namespace) Sysctl(name, value string) {
	n.t.Helper()
	require.NoError(n.t, n.Do(func() error { return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644) }))
}

// Link is a link of the namespace by name.
func (n *Namespace) Link(name string) netlink.Link {
	n.t.Helper()
	link, err := n.links.LinkByName(name)
	require.NoError(n.t, err, "link %s of %s", name, n.name)
	return link
}

// AddVeth makes a veth with an end here and one in another namespace, both up.
func (n *Namespace) AddVeth(name string, other *Namespace, otherName string, mtu int) {
	n.t.Helper()
	require.NoError(n.t, n.links.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, MTU: mtu}, PeerName: otherName, PeerNamespace: netlink.NsFd(int(other.handle)), PeerMTU: uint32(mtu),
	}))
	n.up(name)
	other.up(otherName)
}

// AddAddress gives a link an address with its prefix length (192.0.2.1/24).
func (n *Namespace) AddAddress(link, address string) {
	n.t.Helper()
	a, err := netlink.ParseAddr(address)
	require.NoError(n.t, err)
	require.NoError(n.t, n.links.AddrAdd(n.Link(link), a))
}

// AddRoute adds a route through a link; gateway and source may be empty.
func (n *Namespace) AddRoute(destination, link, gateway, source string) {
	n.t.Helper()
	dst, err := netlink.ParseIPNet(destination)
	require.NoError(n.t, err)
	route := &netlink.Route{Dst: dst, LinkIndex: n.Link(link).Attrs().Index, Gw: parseIP(gateway), Src: parseIP(source)}
	if gateway == "" {
		route.Scope = netlink.SCOPE_LINK
	}
	require.NoError(n.t, n.links.RouteAdd(route), "route to %s in %s", destination, n.name)
}

func (n *Namespace) up(link string) {
	n.t.Helper()
	require.NoError(n.t, n.links.LinkSetUp(n.Link(link)))
}
