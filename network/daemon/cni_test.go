package daemon

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
	cnitypes "github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/network/plugin/protocol"
)

// eachVersion tests with a node whose runtime speaks a version of the specification: what containerd 1.6 knows, and the newest.
func eachVersion(t *testing.T, test func(t *testing.T, c *cloud, n *node)) {
	for _, version := range []string{"1.0.0", "1.1.0"} {
		t.Run(strings.ReplaceAll(version, ".", "-"), func(t *testing.T) {
			c := newCloud(t, 1)
			c.nodes[0].cniVersion = version
			test(t, c, c.nodes[0])
		})
	}
}

func TestContainersAreAttachedAndDetachedThroughThePlugin(t *testing.T) {
	eachVersion(t, func(t *testing.T, c *cloud, n *node) {
		red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
		web := n.pod("web", red, "10.1.0.5", "198.18.0.5")
		n.start()
		n.awaitReady()

		require.NoError(t, n.status())
		result := web.mustAdd()
		require.Len(t, result.IPs, 1)
		require.Equal(t, "198.18.0.5/32", result.IPs[0].Address.String(), "status.podIP is the infrastructure address")
		require.Equal(t, "eth0", result.Interfaces[*result.IPs[0].Interface].Name)
		require.Equal(t, web.netns.Path(), result.Interfaces[*result.IPs[0].Interface].Sandbox)
		require.Equal(t, result, web.mustAdd(), "a repeated ADD")
		require.NoError(t, web.check())
		require.Len(t, n.links(), 1)
		info, err := os.Stat(n.options.Socket)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "for root only")

		t.Run("GC keeps what the runtime knows", func(t *testing.T) {
			cni, list := n.cni("1.1.0")
			valid := []cnitypes.GCAttachment{{ContainerID: web.id, IfName: "eth0"}}
			require.NoError(t, cni.GCNetworkList(t.Context(), list, &libcni.GCArgs{ValidAttachments: valid}))
			require.Len(t, n.links(), 1)
		})
		t.Run("GC collects what it does not", func(t *testing.T) {
			require.NoError(t, os.RemoveAll(filepath.Join(n.dir, "cache"))) // or libcni sends a DEL first
			cni, list := n.cni("1.1.0")
			require.NoError(t, cni.GCNetworkList(t.Context(), list, &libcni.GCArgs{ValidAttachments: []cnitypes.GCAttachment{}}))
			require.Empty(t, n.links())
		})
		t.Run("CHECK of what is not attached", func(t *testing.T) { require.Error(t, web.check()) })
		web.mustAdd()
		require.NoError(t, web.del())
		require.NoError(t, web.del(), "a repeated DEL")
		require.Empty(t, n.links())
	})
}

func TestAddSaysWhatItWaitsForAndGoesOnWhenItIsThere(t *testing.T) {
	eachVersion(t, func(t *testing.T, c *cloud, n *node) {
		n.options.AddDeadline = moment
		red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
		web := n.pod("web", red, "10.1.0.5", "198.18.0.5")
		web.condition(metav1.ConditionFalse, "AddressesExhausted", "Subnet red has no free address")
		n.start()
		n.awaitReady()

		_, err := web.add()
		require.Equal(t, cnitypes.ErrTryAgainLater, n.code(err))
		require.ErrorContains(t, err, "AddressesExhausted: Subnet red has no free address")
		web.condition(metav1.ConditionTrue, "Allocated", "")
		require.Eventually(t, func() bool { _, err := web.add(); return err == nil }, patience, moment)

		unknown := *web
		unknown.name, unknown.id, unknown.uid = "unknown", "sandbox-unknown", "uid-unknown"
		_, err = unknown.add()
		require.ErrorContains(t, err, "no NetworkInterface is held by the Pod")
	})
}

// https://github.com/cilium/cilium/issues/22067
func TestWhileTheDaemonIsDownDelIsQueuedAndTheRestIsRefusedForLater(t *testing.T) {
	eachVersion(t, func(t *testing.T, c *cloud, n *node) {
		red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
		web, db := n.pod("web", red, "10.1.0.5", "198.18.0.5"), n.pod("db", red, "10.1.0.6", "198.18.0.6")
		n.start()
		n.awaitReady()
		web.mustAdd()
		n.stop(syscall.SIGKILL)

		_, err := db.add()
		require.Equal(t, cnitypes.ErrTryAgainLater, n.code(err))
		require.Equal(t, cnitypes.ErrPluginNotAvailable, n.code(n.status()))
		require.Error(t, web.check())
		for range 2 {
			require.NoError(t, web.del())
		}
		queued, err := protocol.Queue(n.options.QueueDir)
		require.NoError(t, err)
		require.Len(t, queued, 1)
		require.Len(t, n.links(), 1, "until the daemon is back")

		n.start()
		n.awaitReady()
		queued, err = protocol.Queue(n.options.QueueDir)
		require.NoError(t, err)
		require.Empty(t, queued)
		require.Empty(t, n.links())
		db.mustAdd()
		require.NoError(t, db.del())
	})
}

func TestTrafficAndDetachmentNeedNoAPIServer(t *testing.T) {
	c := newCloud(t, 1)
	n := c.nodes[0]
	red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
	web, db := n.pod("web", red, "10.1.0.5", "198.18.0.5"), n.pod("db", red, "10.1.0.6", "198.18.0.6")
	n.start()
	n.awaitReady()
	web.mustAdd()
	db.mustAdd()
	c.answer(web.inside, "web")
	c.eventually(db.inside, "10.1.0.5", "web to 10.1.0.6: hello")
	count := c.flood(db.inside, "10.1.0.5")
	n.stop(syscall.SIGKILL)
	require.NoError(t, c.proxy.Close())
	n.start()
	require.Eventually(t, func() bool { return n.get("/healthz") == "ok\n" }, patience, moment)
	sent, received := count()
	require.Equal(t, sent, received, "datagrams and their answers")

	_, err := web.add()
	require.Equal(t, cnitypes.ErrTryAgainLater, n.code(err))
	require.ErrorContains(t, err, "API server")
	require.NoError(t, web.del())
	require.Len(t, n.links(), 1)
	require.Empty(t, c.ask(db.inside, "10.1.0.5"))
}

func TestTheNodeIsAnnouncedOnlyWhenItsNetworkWorks(t *testing.T) {
	c := newCloud(t, 1)
	n := c.nodes[0]
	n.options.Kubeconfig = filepath.Join(n.dir, "kubeconfig")
	data, err := os.ReadFile(c.kubeconfig)
	require.NoError(t, err)
	require.NoError(t, c.proxy.Close())
	require.NoError(t, os.WriteFile(n.options.Kubeconfig, data, 0o600))
	n.start()
	require.Eventually(t, func() bool { return n.get("/healthz") == "ok\n" }, patience, moment)
	require.Contains(t, n.get("/readyz"), "API server")
	require.NoFileExists(t, n.options.CNIConf)
}

// https://github.com/kubeovn/kube-ovn/issues/1457: the MTU was not what the encapsulation leaves.
func TestTheHostsLinksAreMadeAndFollowTheUnderlay(t *testing.T) {
	c := newCloud(t, 1)
	n := c.nodes[0]
	red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
	web := n.pod("web", red, "10.1.0.5", "198.18.0.5")
	n.start()
	n.awaitReady()
	web.mustAdd()

	mtus := func() map[string]int {
		found := map[string]int{}
		n.inside(func() {
			for _, name := range append([]string{"mnih0", "mnih1", "mnivx"}, n.links()...) {
				link, err := netlink.LinkByName(name)
				require.NoError(t, err)
				found[name] = link.Attrs().MTU
			}
		})
		require.NoError(t, web.netns.Do(func(ns.NetNS) error {
			eth0, err := netlink.LinkByName("eth0")
			found["eth0"] = eth0.Attrs().MTU
			return err
		}))
		return found
	}
	all := func(mtu int) map[string]int {
		want := map[string]int{"mnih0": mtu, "mnih1": mtu, "mnivx": mtu, "eth0": mtu}
		for _, name := range n.links() {
			want[name] = 65535 // what is longer than eth0's the datapath counts and explains
		}
		return want
	}
	require.Equal(t, all(1450), mtus())
	n.inside(func() {
		uplink, err := netlink.LinkByName("eth0")
		require.NoError(t, err)
		require.NoError(t, netlink.LinkSetMTU(uplink, 1400))
	})
	require.Eventually(t, func() bool { return reflect.DeepEqual(all(1350), mtus()) }, patience, moment)
	n.inside(func() {
		far, err := netlink.LinkByName("mnih1")
		require.NoError(t, err)
		require.NoError(t, netlink.LinkDel(far))
	})
	require.Eventually(t, func() bool {
		made := false
		n.inside(func() {
			routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
			require.NoError(t, err)
			for _, r := range routes {
				made = made || r.Dst != nil && r.Dst.String() == "198.18.0.0/17" && r.Src.String() == n.address.String()
			}
		})
		return made
	}, patience, moment, "the host's links are made again")
}
