//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	vishnetns "github.com/vishvananda/netns"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machine "github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath/testnet"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// A router of the owner's is beyond a link of the machine's; the pool is a range of the owner's. (Those for documentation are instances'.)
const (
	routerLink    = "mni-e2e-rtr0"
	routerAddress = "10.253.251.2"
	routerSide    = "10.253.251.1"
	routerASN     = 65010
	ownersPool    = "10.253.251.128/26"
)

// routerConfig is what docs/howto/bgp.md says that FRR needs.
func routerConfig(members []machine.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "router bgp %d\n bgp router-id %s\n no bgp ebgp-requires-policy\n bgp graceful-restart\n", routerASN, routerAddress)
	for _, n := range members {
		fmt.Fprintf(&b, " neighbor %[1]s remote-as 64512\n neighbor %[1]s ebgp-multihop 8\n", n.Address())
	}
	return b.String()
}

// joinMachine joins the router's namespace with the machine.
func joinMachine(t *testing.T, ns *testnet.Namespace, underlay netip.Prefix) {
	t.Helper()
	here, err := vishnetns.Get()
	require.NoError(t, err)
	defer here.Close()
	require.NoError(t, ns.Links().LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "machine"}, PeerName: routerLink, PeerNamespace: netlink.NsFd(here),
	}))
	ours, err := netlink.LinkByName(routerLink)
	require.NoError(t, err)
	t.Cleanup(func() { _ = netlink.LinkDel(ours) })
	address, err := netlink.ParseAddr(routerSide + "/30")
	require.NoError(t, err)
	require.NoError(t, netlink.AddrAdd(ours, address))
	require.NoError(t, netlink.LinkSetUp(ours))
	ns.AddAddress("machine", routerAddress+"/30")
	require.NoError(t, ns.Links().LinkSetUp(ns.Link("machine")))
	ns.AddRoute(underlay.String(), "machine", routerSide, "")
}

// asksFrom asks an external address for its identity from another network namespace.
func asksFrom(ns *testnet.Namespace, address string) (string, error) {
	conn, err := ns.Dial("tcp", address+":8080", 2*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	body, err := io.ReadAll(conn)
	return string(body), err
}

func TestARouterOfTheOwnersTakesTheEdgeRoutersPlace(t *testing.T) {
	inst := thisInstance(t)
	members := inst.Nodes(len(nodes))
	ns := testnet.NewNamespace(t, "router")
	joinMachine(t, ns, inst.Addresses().Underlay)
	router := testnet.StartRouter(t, ns, routerConfig(members))
	noExternalIPs(t)

	back := func(ctx context.Context) error {
		out, err := mni(ctx, "up", "--nodes", "2", "--pool", "default", "--peer", "default", "--no-hints")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	isBack := false
	t.Cleanup(func() {
		if !isBack {
			require.NoError(t, back(context.WithoutCancel(t.Context())))
		}
	})
	mustMni(t, "up", "--nodes", "2", "--pool", ownersPool, "--peer", fmt.Sprintf("%d@%s", routerASN, routerAddress), "--no-hints")
	for name := range mustParts(t) {
		require.False(t, strings.HasPrefix(name, "edge/"), "part %s of the edge router's runs", name)
	}
	require.ErrorIs(t, stat(filepath.Join("/run/netns", inst.EdgeNetns())), fs.ErrNotExist)
	established := func() {
		t.Helper()
		eventually(t, "the router has the pool by both nodes, and both have a session with it", func(ctx context.Context) error {
			if err := leads(router, ownersPool, members...); err != nil {
				return err
			}
			return peerIsReady(ctx, "router")
		})
	}
	established()
	require.True(t, apierrors.IsNotFound(kube.Get(t.Context(), client.ObjectKey{Name: "edge"}, &netv1.BGPPeer{})), "the edge router is no peer any more")

	namespace := tenant(t, "routed")
	vpcWithSubnets(t, namespace)
	near, far := whoami(namespace, "routed-near", "a", nodes[0]), whoami(namespace, "routed-far", "a", nodes[1])
	create(t, near, far)
	ready(t, near, far)
	published := []*vpcv1.FloatingIP{publish(t, near), publish(t, far)}
	answers := func() {
		t.Helper()
		for i, server := range []*ctrv1.Container{near, far} {
			address := published[i].Status.ExternalAddress
			require.True(t, netip.MustParsePrefix(ownersPool).Contains(netip.MustParseAddr(address)), address)
			eventually(t, "the router has the address by its node", func(context.Context) error {
				return leads(router, address+"/32", members[i])
			})
			eventually(t, server.Name+" answers the router at "+address, func(context.Context) error {
				body, err := asksFrom(ns, address)
				if err == nil && !strings.Contains(body, server.Name) {
					err = errors.New("another answers: " + body)
				}
				return err
			})
			answersOutside(t, address, server.Name)
		}
	}
	answers()
	t.Run("the router restarts", func(*testing.T) {
		router.Restart()
		established()
		answers()
	})
	t.Run("the cloud restarts", func(t *testing.T) {
		mustMni(t, "down")
		mustMni(t, "up", "--nodes", "2", "--no-hints") // it remembers the router and the pool
		require.NoError(t, connect())
		established()
		ready(t, near, far)
		answers()
	})

	goes(t, published[0], published[1], &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, near.Name)}, &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, far.Name)})
	require.NoError(t, back(t.Context()))
	isBack = true
	eventually(t, "the edge router has its place again", func(ctx context.Context) error {
		_, err := edgePeer(ctx)
		return err
	})
	eventually(t, "what the router learned is withdrawn", func(context.Context) error {
		if routes := router.Routes(); len(routes) > 0 {
			return fmt.Errorf("routes %v", routes)
		}
		return nil
	})
	isConsistent(t)
}

// leads says whether the router has learned a range from these nodes, and leads it to the machine, behind which they are.
func leads(router *testnet.Router, cidr string, members ...machine.Node) error {
	learned := router.Ask("show bgp ipv4 unicast " + cidr)
	if routes := router.Routes(); !slices.Contains(routes, cidr+" via "+routerSide) {
		return fmt.Errorf("routes %v: %s", routes, learned)
	}
	if strings.Count(learned, " from ") != len(members) {
		return fmt.Errorf("learned by others than %v: %s", members, learned)
	}
	for _, n := range members {
		if !strings.Contains(learned, " from "+n.Address().String()+" ") {
			return fmt.Errorf("not learned from %s: %s", n.Name(), learned)
		}
	}
	return nil
}

// peerIsReady says whether every node has a session with a peer.
func peerIsReady(ctx context.Context, name string) error {
	peer := &netv1.BGPPeer{}
	if err := kube.Get(ctx, client.ObjectKey{Name: name}, peer); err != nil {
		return err
	}
	if !conditions.IsReady(peer.Status.Conditions, peer.Generation) || len(peer.Status.Sessions) != len(nodes) {
		return errors.New(conditions.Message(peer.Status.Conditions))
	}
	return nil
}
