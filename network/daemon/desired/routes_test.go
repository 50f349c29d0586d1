package desired

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// routed is a VPC with a Subnet that names a table, and one that does not, each with an interface here; and a firewall elsewhere.
func routed(t *testing.T, routes ...netv1.Route) (in Input, firewall *netv1.NetworkInterface) {
	front, back := *redFront.DeepCopy(), *redBack.DeepCopy()
	front.Spec.VPC, back.Spec.VPC, front.Spec.RouteTable = "red", "red", "inspected"
	web, db := nic("web", "node-1", front, "10.0.1.5", "198.18.0.5"), nic("db", "node-1", back, "10.0.2.5", "198.18.0.6")
	fw := nic("firewall", "node-2", back, "10.0.2.7", "198.18.0.7")
	fw.Spec.SourceDestCheck = new(bool)
	in = input([]Attachment{attached(t, web, front, 7, 1), attached(t, db, back, 8, 1)}, web, db, fw)
	in.Subnets = []netv1.Subnet{defaultSubnet, front, back, blue}
	in.RouteTables = []netv1.RouteTable{{
		ObjectMeta: metav1.ObjectMeta{Name: "inspected"}, Spec: netv1.RouteTableSpec{VPC: "red", Routes: routes},
	}}
	in.Reserved = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("127.0.0.0/8")}
	return in, &in.Interfaces[2]
}

func via(destination, name string) netv1.Route {
	return netv1.Route{Destination: destination, Interface: &name}
}

// from are a Subnet's routes as text.
func (s State) from(vni uint32) map[string]datapath.Route {
	routes := map[string]datapath.Route{}
	for key, route := range s.Routes {
		if key.VNI == vni {
			routes[key.Prefix.String()] = route
		}
	}
	return routes
}

func TestARouteTableCountsInTheSubnetsThatNameItOnly(t *testing.T) {
	blackhole := true
	in, _ := routed(t, via("0.0.0.0/0", "firewall"), netv1.Route{Destination: "172.16.0.0/12", Blackhole: &blackhole}, via("127.1.0.0/16", "firewall"))
	s := Compute(in)
	hop := datapath.EndpointKey{VNI: 1002, Address: ip("10.0.2.7")}
	require.Equal(t, map[string]datapath.Route{
		"10.0.2.0/24": {VNI: 1002}, "0.0.0.0/0": {Kind: datapath.RouteHop, Hop: hop}, "172.16.0.0/12": {Kind: datapath.RouteBlackhole},
		"198.18.0.0/15": {Kind: datapath.RouteReserved}, "127.0.0.0/8": {Kind: datapath.RouteReserved},
	}, s.from(1001))
	require.Equal(t, map[string]datapath.Route{"10.0.1.0/24": {VNI: 1001}}, s.from(1002))
	require.Empty(t, s.Hops, "the firewall is elsewhere")
	require.Equal(t, s.from(1001), s.Of(in.Attachments[0], false).from(1001))
}

func TestARouteToAnotherSubnetWinsAndRemembersIt(t *testing.T) {
	in, _ := routed(t, via("10.0.2.0/24", "firewall"), via("10.0.2.8/32", "firewall"), via("10.0.1.0/24", "firewall"), via("10.0.1.9/32", "firewall"))
	routes := Compute(in).from(1001)
	hop := datapath.Route{Kind: datapath.RouteHop, VNI: 1002, Hop: datapath.EndpointKey{VNI: 1002, Address: ip("10.0.2.7")}}
	require.Equal(t, hop, routes["10.0.2.0/24"])
	require.Equal(t, hop, routes["10.0.2.8/32"])
	require.NotContains(t, routes, "10.0.1.0/24", "within a Subnet nothing is routed")
	require.NotContains(t, routes, "10.0.1.9/32")
}

func TestARouteWhoseTargetIsNotThereDropsAndLeadsNowhereElse(t *testing.T) {
	in, firewall := routed(t, via("10.0.2.0/24", "firewall"), via("172.16.0.0/12", "gone"))
	drops := func(vni uint32) datapath.Route { return datapath.Route{Kind: datapath.RouteHop, VNI: vni} }
	require.Equal(t, drops(0), Compute(in).from(1001)["172.16.0.0/12"])
	require.NotEqual(t, drops(1002), Compute(in).from(1001)["10.0.2.0/24"])
	firewall.Spec.SourceDestCheck = nil
	require.Equal(t, drops(1002), Compute(in).from(1001)["10.0.2.0/24"], "it sends nothing on")
	in.Interfaces = in.Interfaces[:2]
	require.Equal(t, drops(1002), Compute(in).from(1001)["10.0.2.0/24"])
}

func TestARouteToANATGatewayLeadsOutWhereThatServesAndDropsElsewhere(t *testing.T) {
	gateway := "egress"
	in, _ := routed(t, netv1.Route{Destination: "198.51.100.0/24", NATGateway: &gateway})
	out, drops := datapath.Route{Kind: datapath.RouteOutside}, datapath.Route{Kind: datapath.RouteHop}
	require.Equal(t, drops, Compute(in).from(1001)["198.51.100.0/24"], "there is none")
	of := func(name string, subnets ...string) netv1.NATGateway {
		return netv1.NATGateway{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.NATGatewaySpec{VPC: "red"},
			Status: netv1.NATGatewayStatus{VPCID: in.Subnets[1].Status.VPCID, Addresses: []string{"203.0.113.7"}, Subnets: subnets},
		}
	}
	in.NATGateways = []netv1.NATGateway{of(gateway), of("other", in.Subnets[1].Name)}
	require.Equal(t, drops, Compute(in).from(1001)["198.51.100.0/24"], "another one serves the Subnet: nothing leaves by that")
	in.NATGateways = []netv1.NATGateway{of(gateway, in.Subnets[1].Name, in.Subnets[2].Name), of("other")}
	s := Compute(in)
	require.Equal(t, out, s.from(1001)["198.51.100.0/24"])
	require.NotContains(t, s.from(1001), "0.0.0.0/0", "only what the table says leads out")
	require.Equal(t, out, s.from(1002)["0.0.0.0/0"], "it has no table")
}

func TestATableOfAnotherVPCOrNoneIsAsIfNoneWereNamed(t *testing.T) {
	in, _ := routed(t, via("0.0.0.0/0", "firewall"))
	in.RouteTables[0].Spec.VPC = "blue"
	require.Equal(t, map[string]datapath.Route{"10.0.2.0/24": {VNI: 1002}}, Compute(in).from(1001))
	in.RouteTables = nil
	require.Equal(t, map[string]datapath.Route{"10.0.2.0/24": {VNI: 1002}}, Compute(in).from(1001))
}

func TestAnInterfaceThatComesToSendOnIsKnownAsANextHopAtOnce(t *testing.T) {
	in, _ := routed(t)
	in.RouteTables = nil
	s := Compute(in)
	require.Empty(t, s.Hops)
	in.Interfaces[0].Spec.SourceDestCheck = new(bool) // the attachment's record says otherwise
	s = Compute(in)
	key := datapath.HopKey{VNI: 1001, MAC: datapath.MAC{2, 0, 0, 0, 0, 5}}
	require.Equal(t, map[datapath.HopKey]datapath.Hop{key: {Ifindex: 7}}, s.Hops)
	require.True(t, s.NICs[7].NoSourceDestCheck)
	require.False(t, s.NICs[8].NoSourceDestCheck)
	require.Equal(t, s.Hops, s.Of(in.Attachments[0], false).Hops)
	require.Equal(t, datapath.RouteReserved, s.from(1001)["127.0.0.0/8"].Kind, "it must not send from there")
	require.NotContains(t, s.from(1002), "127.0.0.0/8")
}
