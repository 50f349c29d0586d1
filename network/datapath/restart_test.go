package datapath

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"

	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// https://github.com/cilium/cilium/issues/13015: an upgrade cut traffic for seconds.
func TestARestartLosesNoPacket(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		require.NoError(t, r.nodes[0].Services.Set(ServiceKey{1, addr("198.19.0.10"), 80, UDP}, Service{Backends: []Backend{{addr("198.18.0.12"), 8080}}}))
		r.nat(map[uint32]string{1001: "198.51.100.20"})
		r.outside(r.nodes[1], testnet.OutsideAddress, 1001)
		streams := map[string]*testnet.Stream{
			"same node":        r.web1.Stream("198.18.0.13:8080"),
			"across nodes":     r.a1.Stream("10.0.1.12:8080"),
			"Service":          r.web1.Stream("198.19.0.10:80"),
			"host across node": r.nodes[0].Stream("198.18.0.12:8080"),
			"infrastructure":   r.nodes[1].Stream("198.18.0.51:8080"),
			"NATGateway":       r.a1.Stream(testnet.OutsideAddress + ":8080"),
		}
		for range 10 {
			r.load()
			r.attach()
		}
		for name, stream := range streams {
			require.NoError(t, stream.Stop(), name)
		}
	})
}

func TestTrafficFlowsWhileNoProcessRuns(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		for _, n := range r.nodes {
			require.NoError(t, n.Close())
			n.Datapath = nil
		}
		r.answers(r.a1.Namespace, "10.0.1.12:8080", "a2", "10.0.1.11")
		r.answers(r.nodes[0].Namespace, "198.18.0.12:8080", "web2", "192.0.2.1")
		r.load()
		nics, err := r.nodes[0].NICs.List()
		require.NoError(t, err)
		require.Len(t, nics, 5, "the maps' content is kept")
	})
}

func TestTheOtherModeTakesOverAndLeavesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		if kernelMode.Mode != ModeTCX {
			t.Skip("this kernel has no other mode than clsact (tcx: Linux 6.6)")
		}
		for i := range r.config {
			r.config[i].ForceClsact = !r.clsact
		}
		r.load()
		r.attach()
		r.answers(r.a1.Namespace, "10.0.1.12:8080", "a2", "10.0.1.11")
		n := r.nodes[0]
		filters, err := n.Links().FilterList(r.a1.HostLink, netlink.HANDLE_MIN_INGRESS)
		pins, readErr := os.ReadDir(linksDir(n.config.PinPath))
		require.NoError(t, readErr)
		if r.clsact { // tcx took over
			require.True(t, err != nil || len(filters) == 0, "%v", filters)
			require.Len(t, pins, 3+5)
		} else {
			require.NoError(t, err)
			require.Len(t, filters, 1)
			require.Empty(t, pins)
		}
	})
}

func TestAReplacedProgramIsTheOnlyOne(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		n := r.nodes[0]
		r.load()
		r.attach()
		want, err := n.program(bpfProgPodEgress).Info()
		require.NoError(t, err)
		id, _ := want.ID()
		if r.clsact {
			filters, err := n.Links().FilterList(r.a1.HostLink, netlink.HANDLE_MIN_INGRESS)
			require.NoError(t, err)
			require.Len(t, filters, 1)
			require.EqualValues(t, id, filters[0].(*netlink.BpfFilter).Id)
			return
		}
		var attached *link.QueryResult
		require.NoError(t, n.Do(func() error {
			attached, err = link.QueryPrograms(link.QueryOptions{Target: r.a1.ifindex(), Attach: ebpf.AttachTCXIngress})
			return err
		}))
		require.Len(t, attached.Programs, 1)
		require.Equal(t, id, attached.Programs[0].ID)
	})
}

func TestDetachingIsRepeatableAndForgetsTheCounters(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		n := r.nodes[0]
		r.silence(r.a1.Namespace, "10.0.1.99:8080")
		require.NotZero(t, r.dropped(r.a1, bpfDropReasonDROP_NO_ENDPOINT))
		for range 2 {
			require.NoError(t, n.Do(func() error { return n.DetachPod(r.a1.ifindex()) }))
		}
		require.Zero(t, r.dropped(r.a1, bpfDropReasonDROP_NO_ENDPOINT))
		r.silence(r.a1.Namespace, "10.0.1.12:8080")
		require.NoError(t, n.Do(func() error { return n.AttachPod(r.a1.ifindex()) }))
		r.answers(r.a1.Namespace, "10.0.1.12:8080", "a2", "10.0.1.11")
		require.NoError(t, n.Links().LinkDel(r.a1.HostLink))
		require.NoError(t, n.Do(func() error { return n.DetachPod(r.a1.ifindex()) }))
	})
}

func TestPinsOfDeadLinksAreCollected(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		n := r.nodes[0]
		collects := func(want int) {
			t.Helper()
			if r.clsact { // a filter goes with its interface
				want = 0
			}
			removed, err := n.CollectLinks()
			require.NoError(t, err)
			require.Equal(t, want, removed)
		}
		collects(0)
		require.NoError(t, n.Links().LinkDel(r.a1.HostLink))
		collects(1)
		// The interface's number may come back as another's.
		require.NoError(t, n.Links().LinkDel(r.a3.HostLink))
		reused := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "reused", Index: r.a3.ifindex()}}
		require.NoError(t, n.Links().LinkAdd(reused))
		require.NoError(t, n.Do(func() error { return n.AttachPod(r.a3.ifindex()) }))
		collects(0)
	})
}

func TestWhatIsNotAttachedIsTold(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		n := r.nodes[0]
		want := Interfaces{HostPeer: n.config.HostPeerIfindex, VXLAN: n.config.VXLANIfindex, Uplink: n.config.UplinkIfindex}
		for _, p := range []*realPod{r.a1, r.a3, r.b1, r.web1, r.neighbor} {
			want.Pods = append(want.Pods, p.ifindex())
		}
		told := func(want Interfaces) (told []string) {
			require.NoError(t, n.Do(func() (err error) {
				told, err = compareAttached(n.config.PinPath, want, n.Mode())
				return err
			}))
			return told
		}
		require.Empty(t, told(want))
		more := want
		more.Pods = append(slices.Clone(want.Pods), n.Link("lo").Attrs().Index)
		require.Len(t, told(more), 1, "an interface without a program")
		require.NoError(t, n.Do(func() error { return n.DetachPod(r.a1.ifindex()) }))
		require.Len(t, told(want), 1)
		if n.Mode() == ModeTCX {
			require.NoError(t, n.Do(func() error { return n.AttachPod(r.a1.ifindex()) }))
			require.Empty(t, told(want))
			fewer := want
			fewer.Pods = want.Pods[1:]
			require.Len(t, told(fewer), 1, "a pin of no interface")
			require.NoError(t, n.Links().LinkDel(r.a1.HostLink))
			require.Len(t, told(want), 1, "a pin of what is gone")
		}
	})
}

func TestRemoveLeavesNothing(t *testing.T) {
	eachMode(t, func(t *testing.T, r *reality) {
		n := r.nodes[0]
		require.Contains(t, n.attachedTo(t, r.a1.ifindex()), bpfProgPodEgress)
		uplink := n.Link(testnet.UplinkName).Attrs().Index
		require.Contains(t, n.attachedTo(t, uplink), bpfProgUplinkIngress)
		require.NoError(t, n.Close())
		require.NoError(t, n.Do(func() error { return Remove(n.config.PinPath) }))
		_, err := os.Stat(n.config.PinPath)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.NoError(t, n.Do(func() error { return Remove(n.config.PinPath) }))
		require.Empty(t, n.attachedTo(t, uplink))
		if !r.clsact { // the filters of its own interfaces go with those
			require.Empty(t, n.attachedTo(t, r.a1.ifindex()))
		}
		n.Datapath = nil
	})
}

// attachedTo names the programs at an interface's ingress.
func (n *realNode) attachedTo(t *testing.T, ifindex int) []string {
	var names []string
	require.NoError(t, n.Do(func() error {
		l, err := netlink.LinkByIndex(ifindex)
		require.NoError(t, err)
		filters, err := netlink.FilterList(l, netlink.HANDLE_MIN_INGRESS)
		if err == nil { // else it has no ingress
			for _, filter := range filters {
				names = append(names, filter.(*netlink.BpfFilter).Name)
			}
		}
		if kernelMode.Mode != ModeTCX {
			return nil
		}
		attached, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: ebpf.AttachTCXIngress})
		require.NoError(t, err)
		for _, a := range attached.Programs {
			program, err := ebpf.NewProgramFromID(a.ID)
			require.NoError(t, err)
			info, err := program.Info()
			require.NoError(t, err)
			names = append(names, info.Name)
			require.NoError(t, program.Close())
		}
		return nil
	}))
	return names
}

func TestAPinPathThatIsNoBPFFSIsExplained(t *testing.T) {
	_, err := Load(testConfig(t.TempDir()))
	require.ErrorContains(t, err, "bpffs")
	config := testConfig("/proc/nowhere")
	_, err = Load(config)
	require.Error(t, err)
	require.False(t, errors.Is(err, os.ErrPermission))
}
