//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	vishnetns "github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/distro/cloud"
	machine "github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath/testnet"
)

// edgePeer is the embedded cloud's edge router, Ready, with the sessions of all nodes.
func edgePeer(ctx context.Context) (*netv1.BGPPeer, error) {
	peer := &netv1.BGPPeer{}
	if err := kube.Get(ctx, client.ObjectKey{Name: "edge"}, peer); err != nil {
		return nil, err
	}
	if !conditions.IsReady(peer.Status.Conditions, peer.Generation) {
		return nil, errors.New(conditions.Message(peer.Status.Conditions))
	}
	if len(peer.Status.Sessions) != len(nodes) {
		return nil, fmt.Errorf("%d sessions of %d nodes", len(peer.Status.Sessions), len(nodes))
	}
	for _, s := range peer.Status.Sessions {
		if s.State != netv1.BGPEstablished || s.RoutesSent == 0 || s.Since == nil {
			return nil, fmt.Errorf("%+v", s)
		}
	}
	return peer, nil
}

// edgeHops are the edge router's next hops to a range, as its kernel has them.
func edgeHops(t *testing.T, cidr string) []string {
	t.Helper()
	hops, err := nextHops(thisInstance(t).EdgeNetns(), cidr)
	require.NoError(t, err)
	return hops
}

// nextHops are the next hops to a range that the kernel has in a named network namespace.
func nextHops(name, cidr string) ([]string, error) {
	ns, err := vishnetns.GetFromName(name)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	links, err := netlink.NewHandleAt(ns)
	if err != nil {
		return nil, err
	}
	defer links.Close()
	_, to, err := net.ParseCIDR(cidr)
	if err != nil {
		return nil, err
	}
	routes, err := links.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: to}, netlink.RT_FILTER_DST)
	if err != nil {
		return nil, err
	}
	var hops []string
	for _, r := range routes {
		if r.Gw != nil {
			hops = append(hops, r.Gw.String())
		}
		for _, hop := range r.MultiPath {
			hops = append(hops, hop.Gw.String())
		}
	}
	return hops, nil
}

func TestEveryNodeAnnouncesTheDefaultPoolToTheEdgeRouter(t *testing.T) {
	c, err := cloud.Find(instance)
	require.NoError(t, err)
	plan := c.Instance.Addresses()
	eventually(t, "the nodes' sessions with the edge router are established", func(ctx context.Context) error {
		_, err := edgePeer(ctx)
		return err
	})
	var want []string
	for _, n := range c.Instance.Nodes(len(nodes)) {
		want = append(want, n.Address().String())
	}
	eventually(t, "the edge router spreads the pool's traffic over all nodes", func(context.Context) error {
		if have := edgeHops(t, plan.Pool.String()); len(have) != len(want) {
			return fmt.Errorf("next hops %v", have)
		}
		return nil
	})
	require.ElementsMatch(t, want, edgeHops(t, plan.Pool.String()))

	var pool netv1.AddressPool
	require.NoError(t, kube.Get(t.Context(), client.ObjectKey{Name: netv1.DefaultAddressPool}, &pool))
	require.True(t, conditions.IsReady(pool.Status.Conditions, pool.Generation), conditions.Message(pool.Status.Conditions))
	require.Equal(t, []string{plan.Pool.String()}, pool.Status.CIDRs)

	routes, err := netlink.RouteGet(plan.Pool.Addr().Next().AsSlice())
	require.NoError(t, err)
	require.Len(t, routes, 1)
	require.Equal(t, plan.Edge.String(), routes[0].Gw.String(), "the machine reaches external addresses through the edge router")
	listener, err := net.Listen("tcp", "127.0.0.1:179")
	require.NoError(t, err, "the machine's own BGP port is free")
	require.NoError(t, listener.Close())
}

// Restarting the speaker must not disturb its sessions. https://github.com/cilium/cilium/issues/31346
func TestARestartOfTheSpeakerIsNotSeenByTheRouter(t *testing.T) {
	eventually(t, "the sessions are established", func(ctx context.Context) error { _, err := edgePeer(ctx); return err })
	before, err := edgePeer(t.Context())
	require.NoError(t, err)
	part := nodes[0] + "/mni-bgpd"
	kill(t, part)
	eventually(t, "it reports", func(ctx context.Context) error { _, err := edgePeer(ctx); return err })
	after, err := edgePeer(t.Context())
	require.NoError(t, err)
	for i, s := range after.Status.Sessions {
		require.Equal(t, before.Status.Sessions[i].Since, s.Since, "%s: the session is the same", s.Node)
	}
	out := mustMni(t, "logs", part)
	require.Contains(t, out, "took over the running BIRD")
}

func TestAPeerThatIsNotThereSaysSoAndDisturbsNoOther(t *testing.T) {
	c, err := cloud.Find(instance)
	require.NoError(t, err)
	nowhere := c.Instance.Addresses().Edge.Prev().String()
	peer := &netv1.BGPPeer{}
	peer.Name = "nowhere"
	peer.Spec = netv1.BGPPeerSpec{ASN: 65001, Address: nowhere}
	create(t, peer)
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(kube.Delete(context.WithoutCancel(t.Context()), peer)))
	})
	eventually(t, "both nodes say that they connect", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(peer), peer); err != nil {
			return err
		}
		raw, _ := json.Marshal(peer.Status)
		if len(peer.Status.Sessions) != len(nodes) || !strings.Contains(conditions.Message(peer.Status.Conditions), "nodes without a session") {
			return errors.New(string(raw))
		}
		return nil
	})
	_, err = edgePeer(t.Context())
	require.NoError(t, err)
}

// joinUnderlay joins a namespace with the network that the nodes are on, at an address that nothing has.
func joinUnderlay(t *testing.T, ns *testnet.Namespace, inst machine.Instance, address netip.Addr) {
	t.Helper()
	at, err := vishnetns.GetFromName(inst.SwitchNetns())
	require.NoError(t, err)
	defer at.Close()
	far, err := netlink.NewHandleAt(at)
	require.NoError(t, err)
	t.Cleanup(far.Close)
	require.NoError(t, ns.Links().LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "underlay"}, PeerName: "e2e-inner", PeerNamespace: netlink.NsFd(at)}))
	port, err := far.LinkByName("e2e-inner")
	require.NoError(t, err)
	t.Cleanup(func() { _ = far.LinkDel(port) })
	bridge, err := far.LinkByName("underlay")
	require.NoError(t, err)
	require.NoError(t, far.LinkSetMaster(port, bridge))
	require.NoError(t, far.LinkSetUp(port))
	ns.AddAddress("underlay", netip.PrefixFrom(address, inst.Addresses().Underlay.Bits()).String())
	require.NoError(t, ns.Links().LinkSetUp(ns.Link("underlay")))
}

// A router of the cloud's own AS hears the local preference of each node's advertisement, and goes by it.
func TestARouterOfTheSameASChoosesByTheLocalPreference(t *testing.T) {
	inst := thisInstance(t)
	members := inst.Nodes(len(nodes))
	address := inst.Addresses().Edge.Prev().Prev()
	ns := testnet.NewNamespace(t, "inner")
	joinUnderlay(t, ns, inst, address)
	config := fmt.Sprintf("router bgp %d\n bgp router-id %s\n bgp graceful-restart\n", machine.ASN, address)
	for _, n := range members {
		config += fmt.Sprintf(" neighbor %[1]s remote-as %[2]d\n neighbor %[1]s timers connect 2\n", n.Address(), machine.ASN)
	}
	router := testnet.StartRouter(t, ns, config)
	made := []client.Object{&netv1.BGPPeer{ObjectMeta: objectMeta("", "inner"), Spec: netv1.BGPPeerSpec{ASN: int64(machine.ASN), Address: address.String()}}}
	var advertisements []*netv1.BGPAdvertisement
	for i, node := range nodes {
		preference := int64(300 - 100*i)
		a := &netv1.BGPAdvertisement{ObjectMeta: objectMeta("", "by-"+node), Spec: netv1.BGPAdvertisementSpec{
			Peers: []string{"inner"}, LocalPreference: &preference, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: node}},
		}}
		advertisements = append(advertisements, a)
		made = append(made, a)
	}
	t.Cleanup(func() {
		for _, o := range made {
			require.NoError(t, client.IgnoreNotFound(kube.Delete(context.WithoutCancel(t.Context()), o)))
		}
	})
	create(t, made...)
	pool := inst.Addresses().Pool.String()
	goesBy := func(n machine.Node) {
		t.Helper()
		eventually(t, "the router goes by "+n.Name(), func(context.Context) error {
			learned := router.Ask("show bgp ipv4 unicast " + pool)
			if routes := router.Routes(); !slices.Contains(routes, pool+" via "+n.Address().String()) ||
				!strings.Contains(learned, "localpref 300") || !strings.Contains(learned, "localpref 200") {
				return fmt.Errorf("routes %v: %s", routes, learned)
			}
			return nil
		})
	}
	goesBy(members[0])
	for i, a := range advertisements {
		preference := int64(200 + 100*i)
		change(t, a, func() { a.Spec.LocalPreference = &preference })
	}
	goesBy(members[1])
}
