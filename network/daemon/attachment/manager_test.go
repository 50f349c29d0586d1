package attachment

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/network/plugin/protocol"
	"github.com/mnicloud/mnicloud/test/isolate"
)

func TestAddGivesTheContainerItsAddressesAndOneNeighbour(t *testing.T) {
	f, netns := newFixture(t), isolate.Netns(t)
	record, err := f.Add(t.Context(), addRequest("c1", netns, "web"))
	require.NoError(t, err)
	require.True(t, record.Complete)
	require.Empty(t, f.datapath.upAt, "the program is attached before the link is up")

	host, err := netlink.LinkByName(record.HostLink)
	require.NoError(t, err)
	require.Equal(t, hostMTU, host.Attrs().MTU)
	require.Equal(t, netlink.LinkOperState(netlink.OperUp), host.Attrs().OperState)

	inside(t, netns, func() {
		eth0, err := netlink.LinkByName("eth0")
		require.NoError(t, err)
		require.Equal(t, "02:00:00:00:00:05", eth0.Attrs().HardwareAddr.String())
		require.Equal(t, 1450, eth0.Attrs().MTU)
		addresses, err := netlink.AddrList(eth0, netlink.FAMILY_ALL)
		require.NoError(t, err)
		require.Len(t, addresses, 1, "no IPv6 address")
		require.Equal(t, "10.0.0.5/24", addresses[0].IPNet.String())

		lo, err := netlink.LinkByName("lo")
		require.NoError(t, err)
		addresses, err = netlink.AddrList(lo, netlink.FAMILY_V4)
		require.NoError(t, err)
		require.Len(t, addresses, 2)
		require.Equal(t, "198.18.0.5/32", addresses[1].IPNet.String())
		require.Equal(t, int(netlink.SCOPE_HOST), addresses[1].Scope)

		routes, err := netlink.RouteList(eth0, netlink.FAMILY_V4)
		require.NoError(t, err)
		require.Len(t, routes, 1, "no connected route: everything goes to the gateway")
		require.Equal(t, "10.0.0.1", routes[0].Gw.String())
		neighbours, err := netlink.NeighList(eth0.Attrs().Index, netlink.FAMILY_V4)
		require.NoError(t, err)
		require.Len(t, neighbours, 1)
		require.Equal(t, "02:00:00:00:ff:01", neighbours[0].HardwareAddr.String())
		require.Equal(t, unix.NUD_PERMANENT, neighbours[0].State)
	})
	result := Result(record, 1450)
	require.JSONEq(t, `[{"interface":1,"address":"198.18.0.5/32"}]`, mustJSON(t, result.IPs))
	require.NoError(t, f.Check(t.Context(), addRequest("c1", netns, "web")))
}

// https://github.com/k8snetworkplumbingwg/whereabouts/issues/291
func TestARepeatedAddReusesTheAttachment(t *testing.T) {
	f, netns := newFixture(t), isolate.Netns(t)
	first, err := f.Add(t.Context(), addRequest("c1", netns, "web"))
	require.NoError(t, err)
	before := ourLinks(t)
	second, err := f.Add(t.Context(), addRequest("c1", netns, "web"))
	require.NoError(t, err)
	require.Equal(t, first, second)
	require.Equal(t, before, ourLinks(t))
}

func TestARepeatedAddRepairsAnAttachmentThatWasDamaged(t *testing.T) {
	f, netns := newFixture(t), isolate.Netns(t)
	_, err := f.Add(t.Context(), addRequest("c1", netns, "web"))
	require.NoError(t, err)
	inside(t, netns, func() {
		eth0, err := netlink.LinkByName("eth0")
		require.NoError(t, err)
		require.NoError(t, netlink.LinkSetDown(eth0))
	})
	require.ErrorContains(t, f.Check(t.Context(), addRequest("c1", netns, "web")), "eth0 is down")
	_, err = f.Add(t.Context(), addRequest("c1", netns, "web"))
	require.NoError(t, err)
	require.NoError(t, f.Check(t.Context(), addRequest("c1", netns, "web")))
	require.Len(t, ourLinks(t), 1)
}

// https://github.com/cilium/cilium/issues/10065
func TestALateDelDoesNotTouchTheNewAttachmentOfTheSamePod(t *testing.T) {
	f, netns, next := newFixture(t), isolate.Netns(t), isolate.Netns(t)
	_, err := f.Add(t.Context(), addRequest("old", netns, "web"))
	require.NoError(t, err)
	record, err := f.Add(t.Context(), addRequest("new", next, "web"))
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, f.Del(t.Context(), "old", "eth0"))
		require.Equal(t, []string{record.HostLink}, ourLinks(t))
		require.Equal(t, record.Key(), f.datapath.owner[record.Interface.UID])
		require.NoError(t, f.Check(t.Context(), addRequest("new", next, "web")))
	}
}

func TestDelRemovesEverythingAlsoWhenTheNamespaceIsGoneFirst(t *testing.T) {
	for _, gone := range []bool{false, true} {
		f, netns := newFixture(t), isolate.Netns(t)
		_, err := f.Add(t.Context(), addRequest("c1", netns, "web"))
		require.NoError(t, err)
		if gone {
			isolate.RemoveNetns(t, netns)
		}
		require.NoError(t, f.Del(t.Context(), "c1", "eth0"))
		require.Empty(t, ourLinks(t))
		require.Empty(t, f.datapath.owner)
		require.Empty(t, f.Store.List())
		files, err := os.ReadDir(f.dir)
		require.NoError(t, err)
		require.Empty(t, files)
	}
}

func TestAddWithoutAnInterfaceSaysWhyAndLeavesNothing(t *testing.T) {
	f, netns := newFixture(t), isolate.Netns(t)
	_, err := f.Add(t.Context(), addRequest("c1", netns, "unknown"))
	var cniError *cnitypes.Error
	require.ErrorAs(t, err, &cniError)
	require.Equal(t, cnitypes.ErrTryAgainLater, cniError.Code)
	require.Contains(t, cniError.Details, "AddressesExhausted")
	require.Empty(t, ourLinks(t))
	require.Empty(t, f.Store.List())
}

func TestAFailedAddLeavesNothing(t *testing.T) {
	f, netns := newFixture(t), isolate.Netns(t)
	f.datapath.failed = errors.New("map is full")
	_, err := f.Add(t.Context(), addRequest("c1", netns, "web"))
	require.ErrorContains(t, err, "map is full")
	require.Empty(t, ourLinks(t))
	require.Empty(t, f.Store.List())
}

func TestAnAddThatIsNoPodsIsRefused(t *testing.T) {
	f, netns := newFixture(t), isolate.Netns(t)
	req := addRequest("c1", netns, "web")
	req.Args = "IgnoreUnknown=1"
	_, err := f.Add(t.Context(), req)
	require.ErrorContains(t, err, "K8S_POD_NAME")
}

func TestGCDetachesWhatTheRuntimeDoesNotKnow(t *testing.T) {
	f := newFixture(t)
	f.source["db"] = tenantInterface("db", 6)
	kept, err := f.Add(t.Context(), addRequest("kept", isolate.Netns(t), "web"))
	require.NoError(t, err)
	_, err = f.Add(t.Context(), addRequest("lost", isolate.Netns(t), "db"))
	require.NoError(t, err)
	require.NoError(t, f.GC(t.Context(), "mni", []cnitypes.GCAttachment{{ContainerID: "kept", IfName: "eth0"}}))
	require.Equal(t, []string{kept.HostLink}, ourLinks(t))
}

func TestRecoverKeepsWhatWorksAndRemovesWhatDoesNot(t *testing.T) {
	f := newFixture(t)
	f.source["db"], f.source["job"] = tenantInterface("db", 6), tenantInterface("job", 7)
	kept, err := f.Add(t.Context(), addRequest("kept", isolate.Netns(t), "web"))
	require.NoError(t, err)
	interrupted, err := f.Add(t.Context(), addRequest("interrupted", isolate.Netns(t), "db"))
	require.NoError(t, err)
	interrupted.Complete = false
	require.NoError(t, f.Store.save(interrupted))
	lost, err := f.Add(t.Context(), addRequest("lost", isolate.Netns(t), "job"))
	require.NoError(t, err)
	require.NoError(t, f.Store.remove(lost.Key()))
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, ".unfinished"), []byte("{"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "cut:eth0.json"), nil, 0o600))

	f.open(t)
	require.NoError(t, f.Recover(t.Context()))
	require.Equal(t, []string{kept.HostLink}, ourLinks(t))
	require.Equal(t, []Record{kept}, f.Store.List())
	require.Equal(t, kept.Key(), f.datapath.owner[kept.Interface.UID])
	files, err := os.ReadDir(f.dir)
	require.NoError(t, err)
	require.Len(t, files, 1)

	next, err := f.Add(t.Context(), addRequest("next", isolate.Netns(t), "db"))
	require.NoError(t, err)
	require.Greater(t, next.Sequence, kept.Sequence)
}

func TestACrashAtAnyStepOfAddOrDelConverges(t *testing.T) {
	for name, crash := range map[string]func(*fixture, Record) error{
		"ADD: after the record": func(_ *fixture, r Record) error { return deleteLink(r.HostLink) },
		"ADD: after the link": func(_ *fixture, r Record) error {
			_, err := createLink(r, 1450)
			return err
		},
		"ADD: before it is complete": func(*fixture, Record) error { return nil },
		"DEL: after the link": func(f *fixture, r Record) error {
			r.Complete = true
			return errors.Join(f.Store.save(r), deleteLink(r.HostLink))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, netns := newFixture(t), isolate.Netns(t)
			record, err := f.Add(t.Context(), addRequest("c1", netns, "web"))
			require.NoError(t, err)
			record.Complete = false
			require.NoError(t, f.Store.save(record))
			require.NoError(t, crash(f, record))

			f.open(t)
			require.NoError(t, f.Recover(t.Context()))
			require.Empty(t, ourLinks(t))
			require.Empty(t, f.Store.List())
			_, err = f.Add(t.Context(), addRequest("c1", netns, "web"))
			require.NoError(t, err, "the runtime tries again")
			require.NoError(t, f.Check(t.Context(), addRequest("c1", netns, "web")))
			require.NoError(t, f.Del(t.Context(), "c1", "eth0"))
		})
	}
}

func TestAnAttachmentWhoseNamespaceVanishedIsCollected(t *testing.T) {
	f, netns := newFixture(t), isolate.Netns(t)
	record, err := f.Add(t.Context(), addRequest("c1", netns, "web"))
	require.NoError(t, err)
	require.NoError(t, f.Vanished(t.Context(), record.HostLink))
	require.NoError(t, f.Check(t.Context(), addRequest("c1", netns, "web")), "the link is still there")

	link, err := netlink.LinkByName(record.HostLink)
	require.NoError(t, err)
	require.NoError(t, netlink.LinkDel(link))
	require.NoError(t, f.Vanished(t.Context(), record.HostLink))
	require.Empty(t, f.Store.List())
	require.Empty(t, f.datapath.owner)
}

// https://github.com/cilium/cilium/issues/22067
func TestQueuedDetachmentsAreReplayedOnce(t *testing.T) {
	f, queue := newFixture(t), t.TempDir()
	_, err := f.Add(t.Context(), addRequest("c1", isolate.Netns(t), "web"))
	require.NoError(t, err)
	require.NoError(t, protocol.Enqueue(queue, protocol.Request{Command: protocol.Del, ContainerID: "c1", IfName: "eth0"}))
	require.NoError(t, os.WriteFile(filepath.Join(queue, "damaged.json"), []byte("{"), 0o600))
	require.ErrorContains(t, f.Replay(t.Context(), queue), "damaged.json")
	require.Empty(t, ourLinks(t))
	require.NoError(t, f.Replay(t.Context(), queue))
	left, err := protocol.Queue(queue)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestACommandWaitsForTheOneBeforeItUntilTheRuntimeGivesUp(t *testing.T) {
	f := newFixture(t)
	unlock, err := f.locks.lock(t.Context(), "c1:eth0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, f.Del(ctx, "c1", "eth0"), context.Canceled)
	unlock()
	require.NoError(t, f.Del(t.Context(), "c1", "eth0"))
	require.Empty(t, f.locks.locks)
}

func TestLinkNamesFitAndDiffer(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range []string{"a:eth0", "a:eth1", "b:eth0"} {
		for attempt := range 3 {
			name := linkName(key, attempt)
			require.LessOrEqual(t, len(name), 15)
			require.False(t, seen[name])
			seen[name] = true
		}
	}
}
