package attachment

import (
	"encoding/json"
	"testing"
	"time"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/mnicloud/mnicloud/network/plugin/protocol"
	"github.com/mnicloud/mnicloud/test/isolate"
)

func link(t *testing.T, name string) netlink.Link {
	l, err := netlink.LinkByName(name)
	require.NoError(t, err)
	return l
}

func TestCheckTellsEachKindOfDamageAndARepeatedAddRepairsIt(t *testing.T) {
	address := func(t *testing.T, on, cidr string) {
		parsed, err := netlink.ParseAddr(cidr)
		require.NoError(t, err)
		require.NoError(t, netlink.AddrDel(link(t, on), parsed))
	}
	for name, c := range map[string]struct {
		inside bool
		damage func(*testing.T, Record)
		says   string
	}{
		"link down":  {true, func(t *testing.T, _ Record) { require.NoError(t, netlink.LinkSetDown(link(t, "eth0"))) }, "eth0 is down"},
		"no address": {true, func(t *testing.T, _ Record) { address(t, "eth0", "10.0.0.5/24") }, "lacks its address 10.0.0.5/24"},
		"another MAC": {true, func(t *testing.T, _ Record) {
			require.NoError(t, netlink.LinkSetHardwareAddr(link(t, "eth0"), []byte{2, 9, 9, 9, 9, 9}))
		}, "has the MAC address 02:09:09:09:09:09"},
		"no lo":            {true, func(t *testing.T, _ Record) { require.NoError(t, netlink.LinkSetDown(link(t, "lo"))) }, "lo is down"},
		"no infra address": {true, func(t *testing.T, _ Record) { address(t, "lo", "198.18.0.5/32") }, "lo lacks the infrastructure address 198.18.0.5"},
		"no route": {true, func(t *testing.T, r Record) {
			require.NoError(t, netlink.RouteDel(defaultRoute(link(t, "eth0").Attrs().Index, r.Interface)))
		}, "lacks the default route via 10.0.0.1"},
		"no neighbour": {true, func(t *testing.T, r Record) {
			require.NoError(t, netlink.NeighDel(&netlink.Neigh{LinkIndex: link(t, "eth0").Attrs().Index, IP: r.Interface.Gateway.AsSlice()}))
		}, "the gateway 10.0.0.1 is not a permanent neighbour"},
		"no link":         {false, func(t *testing.T, r Record) { require.NoError(t, netlink.LinkDel(link(t, r.HostLink))) }, "not found"},
		"host's end down": {false, func(t *testing.T, r Record) { require.NoError(t, netlink.LinkSetDown(link(t, r.HostLink))) }, "the host's end of the link, is down"},
	} {
		t.Run(name, func(t *testing.T) {
			f, netns := newFixture(t), isolate.Netns(t)
			record, err := f.Add(t.Context(), addRequest("c1", netns, "web"))
			require.NoError(t, err)
			require.NoError(t, f.Check(t.Context(), addRequest("c1", netns, "web")))
			if c.inside {
				inside(t, netns, func() { c.damage(t, record) })
			} else {
				c.damage(t, record)
			}
			require.ErrorContains(t, f.Check(t.Context(), addRequest("c1", netns, "web")), c.says)
			again, err := f.Add(t.Context(), addRequest("c1", netns, "web"))
			require.NoError(t, err)
			require.Equal(t, record.Interface, again.Interface)
			require.NoError(t, f.Check(t.Context(), addRequest("c1", netns, "web")))
			require.Len(t, ourLinks(t), 1)
		})
	}
}

func TestCheckComparesWithTheResultOfTheAdd(t *testing.T) {
	f, netns := newFixture(t), isolate.Netns(t)
	record, err := f.Add(t.Context(), addRequest("c1", netns, "web"))
	require.NoError(t, err)
	req := addRequest("c1", netns, "web")
	req.PrevResult = json.RawMessage(mustJSON(t, Result(record, 1450)))
	require.NoError(t, f.Check(t.Context(), req))
	for _, version := range []string{"0.4.0", "1.0.0"} {
		old, err := Result(record, 1450).GetAsVersion(version)
		require.NoError(t, err)
		req.PrevResult = json.RawMessage(mustJSON(t, old))
		require.NoError(t, f.Check(t.Context(), req), version)
	}
	other := record
	other.Interface = tenantInterface("web", 77)
	req.PrevResult = json.RawMessage(mustJSON(t, Result(other, 1450)))
	require.ErrorContains(t, f.Check(t.Context(), req), "prevResult has the address 198.18.0.77/32")
	req.PrevResult = json.RawMessage(`{"interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:99", "sandbox": "x"}]}`)
	require.ErrorContains(t, f.Check(t.Context(), req), "prevResult has the MAC address 02:00:00:00:00:99")
	req.PrevResult = json.RawMessage(`{"ips": 7}`)
	require.ErrorContains(t, f.Check(t.Context(), req), "prevResult")
	req.PrevResult = nil
	req.Netns += "-other"
	require.ErrorContains(t, f.Check(t.Context(), req), "is attached in")
}

func TestGCLeavesAttachmentsOfOtherNetworks(t *testing.T) {
	f := newFixture(t)
	f.source["db"] = tenantInterface("db", 6)
	add := func(id, network, pod string) Record {
		req := addRequest(id, isolate.Netns(t), pod)
		req.Network = network
		record, err := f.Add(t.Context(), req)
		require.NoError(t, err)
		return record
	}
	other := add("other", "second", "web")
	add("lost", "mni", "db")
	require.NoError(t, f.GC(t.Context(), "mni", []cnitypes.GCAttachment{}))
	require.Equal(t, []string{other.HostLink}, ourLinks(t))
	require.NoError(t, f.GC(t.Context(), "second", []cnitypes.GCAttachment{}))
	require.Empty(t, ourLinks(t))
}

// The daemon was down for long: Pods came to an end, one namespace is gone, a node was rebooted in between, and a Pod has a
// new sandbox whose ADD comes at once.
func TestALongAbsenceIsMadeUpForBeforeAnythingNewIsAttached(t *testing.T) {
	f, queue := newFixture(t), t.TempDir()
	f.source["db"], f.source["job"] = tenantInterface("db", 6), tenantInterface("job", 7)
	vanished, kept := isolate.Netns(t), isolate.Netns(t)
	_, err := f.Add(t.Context(), addRequest("ended", isolate.Netns(t), "web"))
	require.NoError(t, err)
	_, err = f.Add(t.Context(), addRequest("vanished", vanished, "db"))
	require.NoError(t, err)
	alive, err := f.Add(t.Context(), addRequest("alive", kept, "job"))
	require.NoError(t, err)

	for range 3 {
		require.NoError(t, protocol.Enqueue(queue, protocol.Request{Command: protocol.Del, ContainerID: "ended", IfName: "eth0"}))
	}
	require.NoError(t, protocol.Enqueue(queue, protocol.Request{Command: protocol.Del, ContainerID: "never-attached", IfName: "eth0"}))
	isolate.RemoveNetns(t, vanished)
	require.Eventually(t, func() bool { return len(ourLinks(t)) == 2 }, 10*time.Second, 10*time.Millisecond, "the kernel removes the link with the namespace")
	f.open(t)
	require.NoError(t, f.Recover(t.Context()))
	require.NoError(t, f.Replay(t.Context(), queue))
	require.Equal(t, []string{alive.HostLink}, ourLinks(t))
	left, err := protocol.Queue(queue)
	require.NoError(t, err)
	require.Empty(t, left)
	next, err := f.Add(t.Context(), addRequest("next", isolate.Netns(t), "web"))
	require.NoError(t, err)
	require.NoError(t, f.Del(t.Context(), "ended", "eth0"), "a late DEL")
	require.Len(t, f.Store.List(), 2)
	require.Equal(t, next.Key(), f.datapath.owner[next.Interface.UID])
	require.NoError(t, f.Check(t.Context(), addRequest("alive", kept, "job")))
}
