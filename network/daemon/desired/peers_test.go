package desired

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

func of(vpc string, s netv1.Subnet) netv1.Subnet {
	s.Spec.VPC = vpc
	return s
}

// agreed is the VPCs' agreement with each other.
func agreed(a, b string) []netv1.VPCPeering {
	return []netv1.VPCPeering{{Spec: netv1.VPCPeeringSpec{VPC: a, Peer: b}}, {Spec: netv1.VPCPeeringSpec{VPC: b, Peer: a}}}
}

// peered is VPC red with an interface here, and green and teal elsewhere, which are peered with it; pink is peered with green.
func peered(t *testing.T) Input {
	front, back := of("red", redFront), of("red", redBack)
	green, teal := of("green", subnet("green", "10.3.1.0/24", "10.3.1.1", 1003, 1004)), of("teal", subnet("teal", "10.4.1.0/24", "10.4.1.1", 1004, 1005))
	pink := of("pink", subnet("pink", "10.5.1.0/24", "10.5.1.1", 1005, 1006))
	web, far := nic("web", "node-1", front, "10.0.1.5", "198.18.0.5"), nic("far", "node-2", green, "10.3.1.5", "198.18.0.6")
	pinks := nic("pinks", "node-2", pink, "10.5.1.5", "198.18.0.7")
	in := input([]Attachment{attached(t, web, front, 7, 1)}, web, far, pinks)
	in.Subnets = []netv1.Subnet{defaultSubnet, front, back, green, teal, pink}
	in.VPCPeerings = append(append(agreed("red", "green"), agreed("teal", "red")...), agreed("green", "pink")...)
	return in
}

func toPeer(vni, vpc uint32) datapath.Route {
	return datapath.Route{Kind: datapath.RoutePeer, VNI: vni, VPCID: vpc}
}

func TestThePeersOfANodesVPCsAreKnownAndRoutedToAndNoFurther(t *testing.T) {
	in := peered(t)
	s := Compute(in)
	require.Equal(t, map[string]datapath.Route{"10.0.2.0/24": {VNI: 1002}, "10.3.1.0/24": toPeer(1004, 1003), "10.4.1.0/24": toPeer(1005, 1004)}, s.from(1001))
	require.Empty(t, s.from(1004), "green has nothing here that sends")
	at := datapath.EndpointKey{VNI: 1004, Address: ip("10.3.1.5")}
	require.Equal(t, ip("192.0.2.3"), s.Endpoints[at].Node)
	require.Contains(t, s.Subnets, uint32(1005))
	require.NotContains(t, s.Subnets, uint32(1006), "a peer's peer is none")
	require.NotContains(t, s.Endpoints, datapath.EndpointKey{VNI: 1006, Address: ip("10.5.1.5")})
	part := s.Of(in.Attachments[0], true)
	require.Equal(t, s.from(1001), part.from(1001))
	require.Contains(t, part.Endpoints, at, "its VPC is new to the node, and so are its peers")
	require.Contains(t, part.Subnets, uint32(1004))
	require.NotContains(t, s.Of(in.Attachments[0], false).Endpoints, at)
}

func TestAPeeringNeedsBothAndEndsWithEither(t *testing.T) {
	in := peered(t)
	in.VPCPeerings = agreed("red", "green")
	require.Contains(t, Compute(in).from(1001), "10.3.1.0/24")
	for i := range in.VPCPeerings {
		one := in
		one.VPCPeerings = []netv1.VPCPeering{in.VPCPeerings[i]}
		s := Compute(one)
		require.NotContains(t, s.from(1001), "10.3.1.0/24")
		require.NotContains(t, s.Subnets, uint32(1004))
		require.NotContains(t, s.Endpoints, datapath.EndpointKey{VNI: 1004, Address: ip("10.3.1.5")})
		ending := append([]netv1.VPCPeering{}, in.VPCPeerings...)
		ending[i].DeletionTimestamp = &metav1.Time{}
		ending[i].DeletionTimestamp.Time = ending[i].DeletionTimestamp.AddDate(2000, 0, 0)
		one.VPCPeerings = ending
		require.NotContains(t, Compute(one).from(1001), "10.3.1.0/24")
	}
}

// What is refused above must take nothing of what is sent elsewhere below, either.
func TestAPeersSubnetTakesNothingOfTheVPCsOwnNorOfAnOlderPeers(t *testing.T) {
	in := peered(t)
	thief := of("teal", subnet("thief", "10.0.2.128/25", "10.0.2.129", 1004, 1007))
	second := of("teal", subnet("second", "10.3.1.0/26", "10.3.1.1", 1004, 1008))
	in.Subnets = append(in.Subnets, thief, second)
	require.Equal(t, map[string]datapath.Route{"10.0.2.0/24": {VNI: 1002}, "10.3.1.0/24": toPeer(1004, 1003), "10.4.1.0/24": toPeer(1005, 1004)}, Compute(in).from(1001))
}

func TestATableWinsOverAPeeringAndRemembersWhereThePeerIs(t *testing.T) {
	in := peered(t)
	blackhole := true
	in.Subnets[1].Spec.RouteTable = "closed"
	in.RouteTables = []netv1.RouteTable{{ObjectMeta: metav1.ObjectMeta{Name: "closed"}, Spec: netv1.RouteTableSpec{VPC: "red", Routes: []netv1.Route{
		{Destination: "10.3.1.0/24", Blackhole: &blackhole}, {Destination: "0.0.0.0/0", Blackhole: &blackhole},
	}}}}
	in.Reserved = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}
	routes := Compute(in).from(1001)
	require.Equal(t, datapath.Route{Kind: datapath.RouteBlackhole, VNI: 1004}, routes["10.3.1.0/24"])
	require.Equal(t, toPeer(1005, 1004), routes["10.4.1.0/24"], "it is longer than what the table says")
}

func TestBothVPCsOfAPeeringOnOneNodeReachEachOther(t *testing.T) {
	in := peered(t)
	green := in.Subnets[3]
	here := nic("here", "node-1", green, "10.3.1.6", "198.18.0.8")
	in.Interfaces = append(in.Interfaces, here)
	in.Attachments = append(in.Attachments, attached(t, here, green, 8, 1))
	s := Compute(in)
	require.Equal(t, toPeer(1004, 1003), s.from(1001)["10.3.1.0/24"])
	require.Equal(t, map[string]datapath.Route{"10.0.1.0/24": toPeer(1001, 1001), "10.0.2.0/24": toPeer(1002, 1001), "10.5.1.0/24": toPeer(1006, 1005)}, s.from(1004))
	require.Equal(t, uint32(8), s.Endpoints[datapath.EndpointKey{VNI: 1004, Address: ip("10.3.1.6")}].Ifindex)
}
