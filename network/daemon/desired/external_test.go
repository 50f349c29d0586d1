package desired

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

func pool(cidrs ...string) netv1.AddressPool {
	return netv1.AddressPool{Spec: netv1.AddressPoolSpec{CIDRs: []string{"192.0.2.0/24"}}, Status: netv1.AddressPoolStatus{CIDRs: cidrs}}
}

// floating is a FloatingIP as the controller leaves it when all is well.
func floating(name, external string, nic netv1.NetworkInterface) netv1.FloatingIP {
	return netv1.FloatingIP{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.FloatingIPSpec{ExternalIP: name, NetworkInterface: nic.Name},
		Status: netv1.FloatingIPStatus{ExternalAddress: external, VPCID: nic.Status.VPCID, VNI: nic.Status.VNI, Address: nic.Status.Address, Node: nic.Spec.Node},
	}
}

// outward is an interface of a VPC here, one of it elsewhere and one of another VPC elsewhere, all with FloatingIPs.
func outward(t *testing.T) Input {
	here, there, other := nic("here", "node-1", redFront, "10.0.1.5", "198.18.0.5"), nic("there", "node-2", redBack, "10.0.2.6", "198.18.0.6"), nic("other", "node-2", blue, "10.0.1.5", "198.18.0.7")
	in := input([]Attachment{attached(t, here, redFront, 7, 1)}, here, there, other)
	in.AddressPools = []netv1.AddressPool{pool("203.0.113.0/24", "not a range", "203.0.114.7/24", "2001:db8::/64")}
	in.FloatingIPs = []netv1.FloatingIP{floating("a", "203.0.113.5", here), floating("b", "203.0.113.6", there), floating("c", "203.0.113.7", other)}
	in.Reserved = []netip.Prefix{prefixOf("192.0.2.0/24")}
	return in
}

func TestEveryNodeKnowsAllExternalAddressesAndThoseOfItsVPCsInterfaces(t *testing.T) {
	s := Compute(outward(t))
	require.Equal(t, map[netip.Prefix]datapath.External{
		prefixOf("203.0.113.0/24"): {},
		prefixOf("203.0.113.5/32"): {Kind: datapath.ExternalFloating, Target: datapath.EndpointKey{VNI: 1001, Address: ip("10.0.1.5")}, VPCID: 1001},
		prefixOf("203.0.113.6/32"): {Kind: datapath.ExternalFloating, Target: datapath.EndpointKey{VNI: 1002, Address: ip("10.0.2.6")}, VPCID: 1001, Node: ip("192.0.2.3")},
		prefixOf("203.0.113.7/32"): {Kind: datapath.ExternalFloating, Target: datapath.EndpointKey{VNI: 1003, Address: ip("10.0.1.5")}, VPCID: 1002, Node: ip("192.0.2.3")},
	}, s.Externals)
	require.Equal(t, map[datapath.FloatingKey]datapath.Floating{
		{VPCID: 1001, Address: ip("10.0.1.5")}: {External: ip("203.0.113.5")},
		{VPCID: 1001, Address: ip("10.0.2.6")}: {External: ip("203.0.113.6")},
	}, s.Floatings)
}

// The interface moves before the FloatingIP's status tells: both sides follow in one step.
func TestAnExternalAddressIsWhereItsInterfaceIs(t *testing.T) {
	at := prefixOf("203.0.113.6/32")
	for name, c := range map[string]struct {
		change func(nic *netv1.NetworkInterface, f *netv1.FloatingIP)
		want   datapath.External
	}{
		"on another node": {
			func(nic *netv1.NetworkInterface, _ *netv1.FloatingIP) { nic.Spec.Node = "node-1" },
			datapath.External{Kind: datapath.ExternalFloating, Target: datapath.EndpointKey{VNI: 1002, Address: ip("10.0.2.6")}, VPCID: 1001},
		},
		"on none that is known":  {func(nic *netv1.NetworkInterface, _ *netv1.FloatingIP) { nic.Spec.Node = "node-9" }, datapath.External{}},
		"attached nowhere":       {func(nic *netv1.NetworkInterface, _ *netv1.FloatingIP) { nic.Spec.Pod = nil }, datapath.External{}},
		"with another address":   {func(nic *netv1.NetworkInterface, _ *netv1.FloatingIP) { nic.Status.Address = "10.0.2.9" }, datapath.External{}},
		"of another name":        {func(nic *netv1.NetworkInterface, _ *netv1.FloatingIP) { nic.Name = "new" }, datapath.External{}},
		"of an address with two": {func(_ *netv1.NetworkInterface, f *netv1.FloatingIP) { f.Name = "z" }, datapath.External{Kind: datapath.ExternalFloating, Target: datapath.EndpointKey{VNI: 1003, Address: ip("10.0.1.5")}, VPCID: 1002, Node: ip("192.0.2.3")}},
	} {
		t.Run(name, func(t *testing.T) {
			in := outward(t)
			if name == "of an address with two" {
				in.FloatingIPs[2].Status.ExternalAddress = "203.0.113.6"
			}
			c.change(&in.Interfaces[1], &in.FloatingIPs[1])
			require.Equal(t, c.want, Compute(in).Externals[at])
		})
	}
}

func TestAFloatingIPThatTranslatesNothingLeavesItsAddressFree(t *testing.T) {
	for name, spoil := range map[string]func(*netv1.FloatingIPStatus){
		"no external address":  func(s *netv1.FloatingIPStatus) { s.ExternalAddress = "" },
		"no interface":         func(s *netv1.FloatingIPStatus) { s.Address, s.VNI, s.VPCID, s.Node = "", 0, 0, "" },
		"no VPC":               func(s *netv1.FloatingIPStatus) { s.VPCID = 0 },
		"IPv6":                 func(s *netv1.FloatingIPStatus) { s.Address = "fd00::5" },
		"IPv6 external":        func(s *netv1.FloatingIPStatus) { s.ExternalAddress = "2001:db8::5" },
		"no Subnet's identity": func(s *netv1.FloatingIPStatus) { s.VNI = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			in := outward(t)
			spoil(&in.FloatingIPs[0].Status)
			s := Compute(in)
			require.NotContains(t, s.Externals, prefixOf("203.0.113.5/32"))
			require.NotContains(t, s.Floatings, datapath.FloatingKey{VPCID: 1001, Address: ip("10.0.1.5")})
		})
	}
}

// A pool of one address is that address, free until something has it.
func TestAPoolOfOneAddressIsFreeUntilItIsUsed(t *testing.T) {
	in := outward(t)
	in.AddressPools = []netv1.AddressPool{pool("203.0.113.5/32", "203.0.113.9/32")}
	s := Compute(in)
	require.Equal(t, datapath.ExternalFloating, s.Externals[prefixOf("203.0.113.5/32")].Kind)
	require.Equal(t, datapath.ExternalFree, s.Externals[prefixOf("203.0.113.9/32")].Kind)
}

func TestSubnetsWithAWayOutHaveTheRouteAndTheReservedRanges(t *testing.T) {
	in := outward(t)
	back := nic("back", "node-1", redBack, "10.0.2.5", "198.18.0.8")
	in.Attachments = append(in.Attachments, attached(t, back, redBack, 8, 2))
	in.Interfaces = append(in.Interfaces, back)
	in.FloatingIPs = in.FloatingIPs[:1]
	out, reserved := datapath.Route{Kind: datapath.RouteOutside}, datapath.Route{Kind: datapath.RouteReserved}
	s := Compute(in)
	require.Equal(t, map[string]datapath.Route{"10.0.2.0/24": {VNI: 1002}, "0.0.0.0/0": out, "192.0.2.0/24": reserved}, s.from(1001))
	require.Equal(t, map[string]datapath.Route{"10.0.1.0/24": {VNI: 1001}}, s.from(1002), "a Subnet without a FloatingIP")
	part := s.Of(in.Attachments[0], false)
	require.Equal(t, s.from(1001), part.from(1001))
	require.Equal(t, s.Floatings, part.Floatings)

	// Of a table, its own route to everything counts, and one to the internet may be narrower.
	front := *redFront.DeepCopy()
	front.Spec.VPC, front.Spec.RouteTable = "red", "t"
	in.Subnets[1] = front
	yes := true
	in.RouteTables = []netv1.RouteTable{{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Spec: netv1.RouteTableSpec{VPC: "red", Routes: []netv1.Route{
		{Destination: "0.0.0.0/0", Blackhole: &yes}, {Destination: "198.51.100.0/24", Internet: &yes},
	}}}}
	s = Compute(in)
	require.Equal(t, map[string]datapath.Route{
		"10.0.2.0/24": {VNI: 1002}, "0.0.0.0/0": {Kind: datapath.RouteBlackhole}, "198.51.100.0/24": out, "192.0.2.0/24": reserved,
	}, s.from(1001))
}
