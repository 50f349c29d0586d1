package host

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/nftables"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/test/isolate"
)

func TestMain(m *testing.M) { os.Exit(isolate.Main(m)) }

var config = Config{
	LinkPrefix: "mni", Uplink: "eth0", Address: netip.MustParseAddr("192.0.2.2"), VXLANPort: 4789, Forward: true,
	Infrastructure: netip.MustParsePrefix("198.18.0.0/17"), Resolver: netip.MustParseAddr("169.254.0.53"),
}

// inNode runs f in a namespace with an uplink of an MTU.
func inNode(t *testing.T, mtu int, f func()) {
	require.NoError(t, isolate.Netns(t).Do(func(ns.NetNS) error {
		require.NoError(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: mtu}, PeerName: "peer"}))
		eth0 := link(t, "eth0")
		address, err := netlink.ParseAddr("192.0.2.2/24")
		require.NoError(t, err)
		require.NoError(t, netlink.AddrAdd(eth0, address))
		require.NoError(t, netlink.LinkSetUp(eth0))
		f()
		return nil
	}))
}

func link(t *testing.T, name string) netlink.Link {
	l, err := netlink.LinkByName(name)
	require.NoError(t, err)
	return l
}

func sysctl(t *testing.T, path string) string {
	data, err := os.ReadFile("/proc/sys/net/" + path)
	require.NoError(t, err)
	return strings.TrimSpace(string(data))
}

func TestEnsureMakesTheHostsLinksOnce(t *testing.T) {
	inNode(t, 1500, func() {
		links, err := Ensure(config)
		require.NoError(t, err)
		require.Equal(t, 1450, links.MTU)
		require.Equal(t, hostMAC, links.Near.Attrs().HardwareAddr)
		require.NotZero(t, links.Near.Attrs().RawFlags&unix.IFF_NOARP)
		vxlan, ok := link(t, "mnivx").(*netlink.Vxlan)
		require.True(t, ok)
		require.True(t, vxlan.FlowBased)
		require.False(t, vxlan.Learning)
		require.Equal(t, 4789, vxlan.Port)
		for _, name := range []string{"mnih0", "mnih1", "mnivx"} {
			require.NotZero(t, link(t, name).Attrs().Flags&net.FlagUp)
			require.Equal(t, "1", sysctl(t, "ipv6/conf/"+name+"/disable_ipv6"))
		}
		require.Equal(t, "1", sysctl(t, "ipv4/ip_forward"))
		require.Equal(t, "0", sysctl(t, "ipv4/conf/mnih1/forwarding"))
		routes, err := netlink.RouteList(links.Near, netlink.FAMILY_V4)
		require.NoError(t, err)
		require.Len(t, routes, 1)
		require.Equal(t, "198.18.0.0/17", routes[0].Dst.String())
		require.Equal(t, "192.0.2.2", routes[0].Src.String())

		resolver, err := netlink.AddrList(links.Near, netlink.FAMILY_V4)
		require.NoError(t, err)
		require.Len(t, resolver, 1)
		require.Equal(t, "169.254.0.53/32", resolver[0].IPNet.String())
		require.Equal(t, int(netlink.SCOPE_HOST), resolver[0].Scope)

		again, err := Ensure(config)
		require.NoError(t, err)
		require.Equal(t, links.Near.Attrs().Index, again.Near.Attrs().Index)
		require.Equal(t, links.VXLAN.Attrs().Index, again.VXLAN.Attrs().Index)
	})
}

func TestEnsureReplacesATunnelOfAnotherPortAndFollowsTheAddress(t *testing.T) {
	inNode(t, 1500, func() {
		before, err := Ensure(config)
		require.NoError(t, err)
		address, err := netlink.ParseAddr("192.0.2.9/24")
		require.NoError(t, err)
		require.NoError(t, netlink.AddrAdd(link(t, "eth0"), address))
		changed := config
		changed.VXLANPort, changed.Address = 47890, netip.MustParseAddr("192.0.2.9")
		after, err := Ensure(changed)
		require.NoError(t, err)
		require.NotEqual(t, before.VXLAN.Attrs().Index, after.VXLAN.Attrs().Index)
		routes, err := netlink.RouteList(after.Near, netlink.FAMILY_V4)
		require.NoError(t, err)
		require.Len(t, routes, 1)
		require.Equal(t, "192.0.2.9", routes[0].Src.String())
	})
}

func TestAMemberWithoutPodsRoutesServicesAndForwardsNothing(t *testing.T) {
	inNode(t, 1500, func() {
		member := config
		member.Forward, member.Services, member.Hairpin = false, netip.MustParsePrefix("198.19.0.0/17"), netip.MustParseAddr("169.254.0.1")
		before := sysctl(t, "ipv4/ip_forward")
		links, err := Ensure(member)
		require.NoError(t, err)
		require.Equal(t, before, sysctl(t, "ipv4/ip_forward"))
		routes, err := netlink.RouteList(links.Near, netlink.FAMILY_V4)
		require.NoError(t, err)
		require.Len(t, routes, 3)
		require.NoError(t, Remove("mni"))
		require.NoError(t, Remove("mni"))
		for _, name := range []string{"mnih0", "mnih1", "mnivx"} {
			_, err := netlink.LinkByName(name)
			require.Error(t, err)
		}
	})
}

func TestAnUnderlayTooNarrowForATunnelIsRefused(t *testing.T) {
	inNode(t, 600, func() {
		_, err := Ensure(config)
		require.ErrorContains(t, err, "uplink eth0 has an MTU of 600 bytes, VXLAN needs at least 626; raise it")
	})
}

func TestMasqueradeIsMadeOnceAndFollowsItsMembers(t *testing.T) {
	inNode(t, 1500, func() {
		m := Masquerade{Table: "mni-netd", Uplink: "eth0", Infrastructure: config.Infrastructure}
		one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.3")
		require.NoError(t, m.Ensure([]netip.Addr{one}))
		handle := rule(t).Handle
		require.Equal(t, []string{"192.0.2.1"}, members(t))
		require.NoError(t, m.Ensure([]netip.Addr{one, two}))
		require.ElementsMatch(t, []string{"192.0.2.1", "192.0.2.3"}, members(t))
		require.NoError(t, m.Ensure([]netip.Addr{two}))
		require.Equal(t, []string{"192.0.2.3"}, members(t))
		require.Equal(t, handle, rule(t).Handle, "the rule stays the same")
		m.Uplink = "eth1"
		require.NoError(t, m.Ensure([]netip.Addr{two}))
		require.Equal(t, m.mark(), rule(t).UserData, "a rule for another uplink")
		require.NoError(t, m.Remove())
		require.NoError(t, m.Remove())
		tables, err := (&nftables.Conn{}).ListTables()
		require.NoError(t, err)
		require.Empty(t, tables)
	})
}

func rule(t *testing.T) *nftables.Rule {
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "mni-netd"}
	rules, err := (&nftables.Conn{}).GetRules(table, &nftables.Chain{Table: table, Name: "postrouting"})
	require.NoError(t, err)
	require.Len(t, rules, 1)
	return rules[0]
}

func members(t *testing.T) []string {
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "mni-netd"}
	present, err := (&nftables.Conn{}).GetSetElements(&nftables.Set{Table: table, Name: membersSet})
	require.NoError(t, err)
	var all []string
	for _, e := range present {
		all = append(all, net.IP(e.Key).String())
	}
	return all
}

func TestWatchTellsOfLinksAndAddresses(t *testing.T) {
	changed, gone, deleted := make(chan struct{}, 100), make(chan struct{}, 100), make(chan string, 100)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	stopped := errors.New("stopped by the test")
	inNode(t, 1500, func() {
		// Subscriptions are of the namespace of the thread that makes them: this one.
		started := make(chan struct{})
		events := Events{
			Names:       []string{"eth0"},
			Changed:     func() { changed <- struct{}{} },
			AddressGone: func() { gone <- struct{}{} },
			Deleted:     func(name string) { deleted <- name },
		}
		watch, err := newWatch(ctx)
		require.NoError(t, err)
		go func() { close(started); ended <- watch.run(events) }()
		<-started
		receive(t, changed)
		require.NoError(t, netlink.LinkSetMTU(link(t, "eth0"), 1400))
		receive(t, changed)
		address, err := netlink.ParseAddr("192.0.2.2/24")
		require.NoError(t, err)
		require.NoError(t, netlink.AddrDel(link(t, "eth0"), address))
		receive(t, gone)
		require.NoError(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "pod"}, PeerName: "pod-peer"}))
		require.NoError(t, netlink.LinkDel(link(t, "pod")))
		require.Contains(t, []string{"pod", "pod-peer"}, receive(t, deleted))
	})
	cancel(stopped)
	require.ErrorIs(t, receive(t, ended), stopped)
}

func receive[T any](t *testing.T, from chan T) (v T) {
	select {
	case v = <-from:
	case <-time.After(10 * time.Second):
		require.Fail(t, "nothing was told")
	}
	return v
}
