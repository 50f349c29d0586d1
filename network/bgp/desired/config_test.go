package desired

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/bgp/bird"
)

func node(labels map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}},
	}
}

func pool(name string, cidrs ...string) netv1.AddressPool {
	return netv1.AddressPool{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.AddressPoolSpec{CIDRs: cidrs}, Status: netv1.AddressPoolStatus{CIDRs: cidrs},
	}
}

func peer(name, address string, second int64) netv1.BGPPeer {
	return netv1.BGPPeer{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(second, 0))},
		Spec: netv1.BGPPeerSpec{
			ASN: 4200000001, LocalASN: 64512, Address: address, Port: 179, HoldTimeSeconds: 90, GracefulRestartSeconds: 120,
		},
	}
}

func advertisement(name string, spec netv1.BGPAdvertisementSpec) netv1.BGPAdvertisement {
	return netv1.BGPAdvertisement{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func compute(t *testing.T, in Input) bird.Config {
	t.Helper()
	config, refusals, err := Compute(in)
	require.NoError(t, err)
	require.Empty(t, refusals)
	return config
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func TestPoolsAreAnnouncedToThePeersThatAdvertisementsName(t *testing.T) {
	in := Input{
		Node:  node(nil),
		Pools: []netv1.AddressPool{pool("b", "198.51.100.0/24"), pool("a", "203.0.113.0/25", "203.0.113.128/32")},
		Peers: []netv1.BGPPeer{peer("y", "192.0.2.9", 2), peer("x", "192.0.2.8", 1)},
		Advertisements: []netv1.BGPAdvertisement{
			advertisement("some", netv1.BGPAdvertisementSpec{Pools: []string{"a"}, Peers: []string{"x"}, HostRoutes: true}),
			advertisement("all", netv1.BGPAdvertisementSpec{Communities: []netv1.Community{"64512:1", "no-export"}}),
		},
		InUse: []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("10.0.0.1")},
	}
	c := compute(t, in)
	require.Equal(t, "192.0.2.1", c.Address.String())
	require.Equal(t, []netip.Prefix{prefix("198.51.100.0/24"), prefix("203.0.113.0/25"), prefix("203.0.113.128/32")}, c.Aggregates)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("203.0.113.7")}, c.Hosts, "an address of no pool is not announced")
	require.Len(t, c.Peers, 2)
	both := [][2]uint16{{64512, 1}, {0xffff, 0xff01}}
	require.Equal(t, []bird.Export{
		{Match: prefix("198.51.100.0/24"), Communities: both},
		{Match: prefix("203.0.113.0/25"), Communities: both},
		{Match: prefix("203.0.113.0/25"), Hosts: true},
		{Match: prefix("203.0.113.128/32"), Communities: both},
	}, c.Peers[0].Exports)
	require.Len(t, c.Peers[1].Exports, 3, "y is told of aggregates only")
}

func TestAddressesInUseAreThoseThatLeadToInterfacesOnTheNode(t *testing.T) {
	floating := func(external, address, node string) netv1.FloatingIP {
		return netv1.FloatingIP{Status: netv1.FloatingIPStatus{ExternalAddress: external, Address: address, Node: node}}
	}
	require.Equal(t, []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.9")}, InUse([]netv1.FloatingIP{
		floating("203.0.113.9", "10.0.0.1", "here"), floating("203.0.113.1", "10.0.0.2", "here"), floating("203.0.113.2", "10.0.0.2", "there"),
		floating("203.0.113.3", "10.0.0.3", ""), floating("", "", ""), floating("", "", "here"), floating("2001:db8::1", "10.0.0.4", "here"),
	}, "here"))
}

func TestNodeSelectorsChoose(t *testing.T) {
	only := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	here, there := peer("here", "192.0.2.8", 1), peer("there", "192.0.2.9", 1)
	here.Spec.NodeSelector, there.Spec.NodeSelector = only("rack", "a"), only("rack", "b")
	broken := peer("broken", "192.0.2.10", 1)
	broken.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Nonsense"}}}
	in := Input{
		Node: node(map[string]string{"rack": "a"}), Pools: []netv1.AddressPool{pool("a", "203.0.113.0/24")},
		Peers: []netv1.BGPPeer{here, there, broken},
		Advertisements: []netv1.BGPAdvertisement{
			advertisement("no", netv1.BGPAdvertisementSpec{NodeSelector: only("rack", "b")}),
		},
	}
	c := compute(t, in)
	require.Len(t, c.Peers, 1)
	require.Equal(t, "here", c.Peers[0].Name)
	require.Empty(t, c.Peers[0].Exports)
	in.Node = node(map[string]string{"rack": "b"})
	c = compute(t, in)
	require.Equal(t, "there", c.Peers[0].Name)
	require.Len(t, c.Peers[0].Exports, 1)
}

func TestWhereSeveralSpeakOfARouteItHasAllTheirAttributes(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	c := compute(t, Input{
		Node: node(nil), Pools: []netv1.AddressPool{pool("a", "203.0.113.0/24")}, Peers: []netv1.BGPPeer{peer("x", "192.0.2.8", 1)},
		Advertisements: []netv1.BGPAdvertisement{
			advertisement("1", netv1.BGPAdvertisementSpec{MED: n(10), LocalPreference: n(100), LargeCommunities: []netv1.LargeCommunity{"4200000001:2:3"}}),
			advertisement("2", netv1.BGPAdvertisementSpec{MED: n(4294967295), LocalPreference: n(4294967295), LargeCommunities: []netv1.LargeCommunity{"4200000001:2:3", "1:2:3"}}),
		},
	})
	e := c.Peers[0].Exports[0]
	require.EqualValues(t, 10, *e.MED)
	require.EqualValues(t, 4294967295, *e.LocalPreference)
	require.Equal(t, [][3]uint32{{1, 2, 3}, {4200000001, 2, 3}}, e.LargeCommunities)
}

func TestAPeerThatCannotBeSpokenWithIsRefusedAndTheOthersAreNot(t *testing.T) {
	noSecret, badSecret, second, going := peer("no-secret", "192.0.2.10", 1), peer("bad-secret", "192.0.2.11", 1), peer("second", "192.0.2.8", 2), peer("going", "192.0.2.12", 1)
	noSecret.Spec.PasswordSecret, badSecret.Spec.PasswordSecret = "none", "bad"
	going.DeletionTimestamp = &metav1.Time{}
	secret := peer("secret", "192.0.2.13", 1)
	secret.Spec.PasswordSecret = "good"
	now := metav1.Now()
	going.DeletionTimestamp = &now
	c, refusals, err := Compute(Input{
		Node: node(nil), Peers: []netv1.BGPPeer{second, noSecret, badSecret, peer("first", "192.0.2.8", 1), going, peer("address", "x", 1), secret},
		Passwords: map[string]string{"bad": "a\"b", "good": "pw"},
	})
	require.NoError(t, err)
	require.Len(t, c.Peers, 2)
	require.Equal(t, "first", c.Peers[0].Name)
	require.Equal(t, "pw", c.Peers[1].Password)
	reasons := map[string]string{}
	for _, r := range refusals {
		reasons[r.Peer] = r.Reason
	}
	require.Len(t, reasons, 4)
	require.Contains(t, reasons["no-secret"], "no Secret none in namespace mni-bgp")
	require.Contains(t, reasons["bad-secret"], "printable")
	require.NotContains(t, reasons["bad-secret"], `a"b`, "the password is not told")
	require.Contains(t, reasons["second"], "BGPPeer first's")
	require.Contains(t, reasons["address"], "spec.address")
}

// A next hop that was derived once was a black hole for a day. https://github.com/kubeovn/kube-ovn/issues/7111
func TestTheNodesAddressIsFollowed(t *testing.T) {
	in := Input{Node: node(nil), Peers: []netv1.BGPPeer{peer("x", "192.0.2.8", 1)}}
	before := compute(t, in).Text()
	in.Node.Status.Addresses[0].Address = "192.0.2.77"
	after := compute(t, in).Text()
	require.NotEqual(t, before, after)
	require.Contains(t, after, "192.0.2.77")
	require.NotContains(t, after, "192.0.2.1;")
	require.Contains(t, after, "next hop self;", "which is the session's source, chosen by the kernel's routes")
	in.Node.Status.Addresses = nil
	_, _, err := Compute(in)
	require.ErrorContains(t, err, "InternalIP")
}

// A template that depends on time or on the order of things reloads for nothing. https://github.com/projectcalico/calicoctl/issues/136
func TestTheOrderOfObjectsChangesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	in := Input{Node: node(map[string]string{"a": "b"})}
	for i := range 6 {
		in.Pools = append(in.Pools, pool(fmt.Sprint("p", i), fmt.Sprintf("10.%d.0.0/16", i), fmt.Sprintf("11.%d.0.0/16", i)))
		in.Peers = append(in.Peers, peer(fmt.Sprint("x", i), fmt.Sprintf("192.0.2.%d", 10+i/2), int64(i%3)))
		in.Advertisements = append(in.Advertisements, advertisement(fmt.Sprint("a", i), netv1.BGPAdvertisementSpec{
			HostRoutes: i%2 == 0, Communities: []netv1.Community{netv1.Community(fmt.Sprintf("1:%d", i)), "2:2"},
		}))
		in.InUse = append(in.InUse, netip.AddrFrom4([4]byte{10, byte(i), 0, 1}))
	}
	config, refusals, err := Compute(in)
	require.NoError(t, err)
	require.NotEmpty(t, refusals)
	for range 20 {
		r.Shuffle(6, func(i, j int) { in.Pools[i], in.Pools[j] = in.Pools[j], in.Pools[i] })
		r.Shuffle(6, func(i, j int) { in.Peers[i], in.Peers[j] = in.Peers[j], in.Peers[i] })
		r.Shuffle(6, func(i, j int) {
			in.Advertisements[i], in.Advertisements[j] = in.Advertisements[j], in.Advertisements[i]
		})
		r.Shuffle(6, func(i, j int) { in.InUse[i], in.InUse[j] = in.InUse[j], in.InUse[i] })
		again, refusedAgain, err := Compute(in)
		require.NoError(t, err)
		require.Equal(t, config.Text(), again.Text())
		require.Equal(t, refusals, refusedAgain)
	}
}
