package routing

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func nic(name, address string, vpcID uint32, check bool) netv1.NetworkInterface {
	return netv1.NetworkInterface{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.NetworkInterfaceSpec{SourceDestCheck: &check},
		Status: netv1.NetworkInterfaceStatus{Address: address, VPCID: vpcID, VNI: 10*vpcID + 1},
	}
}

func ptr[T any](v T) *T { return &v }

func TestEachRouteLeadsToItsTargetOrDropsAndSaysWhy(t *testing.T) {
	gateway := func(name, vpc string, addresses ...string) netv1.NATGateway {
		return netv1.NATGateway{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.NATGatewaySpec{VPC: vpc}, Status: netv1.NATGatewayStatus{Addresses: addresses},
		}
	}
	leaving := gateway("leaving", "main", "203.0.113.7")
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	targets := Index([]netv1.NetworkInterface{
		nic("firewall", "10.0.1.7", 7, false), nic("closed", "10.0.1.8", 7, true), nic("foreign", "10.0.1.7", 8, false), nic("new", "", 7, false),
	}, []netv1.NATGateway{gateway("egress", "main", "203.0.113.7"), gateway("fresh", "main"), gateway("others", "other", "203.0.113.7"), leaving})
	hop := func(destination string) *Route {
		return &Route{Destination: netip.MustParsePrefix(destination), VNI: 71, Address: netip.MustParseAddr("10.0.1.7")}
	}
	drops := func(destination string) *Route { return &Route{Destination: netip.MustParsePrefix(destination)} }
	for name, c := range map[string]struct {
		route netv1.Route
		want  *Route
		final bool
		says  string
	}{
		"to an interface":        {netv1.Route{Destination: "10.9.0.0/16", Interface: ptr("firewall")}, hop("10.9.0.0/16"), false, ""},
		"to an address":          {netv1.Route{Destination: "10.9.0.0/16", Address: ptr("10.0.1.7")}, hop("10.9.0.0/16"), false, ""},
		"everything":             {netv1.Route{Destination: "0.0.0.0/0", Interface: ptr("firewall")}, hop("0.0.0.0/0"), false, ""},
		"the target's Subnet":    {netv1.Route{Destination: "10.0.1.0/24", Interface: ptr("firewall")}, hop("10.0.1.0/24"), false, ""},
		"blackhole":              {netv1.Route{Destination: "10.9.0.0/16", Blackhole: ptr(true)}, &Route{Destination: netip.MustParsePrefix("10.9.0.0/16"), Blackhole: true}, false, ""},
		"out of the cloud":       {netv1.Route{Destination: "0.0.0.0/0", Internet: ptr(true)}, &Route{Destination: netip.MustParsePrefix("0.0.0.0/0"), Internet: true}, false, ""},
		"by a NATGateway":        {netv1.Route{Destination: "0.0.0.0/0", NATGateway: ptr("egress")}, &Route{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: "egress"}, false, ""},
		"no NATGateway":          {netv1.Route{Destination: "0.0.0.0/0", NATGateway: ptr("gone")}, drops("0.0.0.0/0"), false, "the route to 0.0.0.0/0 drops: NATGateway gone does not exist; create it"},
		"another VPC's gateway":  {netv1.Route{Destination: "0.0.0.0/0", NATGateway: ptr("others")}, drops("0.0.0.0/0"), true, "NATGateway others is in another VPC; name one in this"},
		"a gateway that goes":    {netv1.Route{Destination: "0.0.0.0/0", NATGateway: ptr("leaving")}, drops("0.0.0.0/0"), false, "NATGateway leaving is being deleted"},
		"a gateway without any":  {netv1.Route{Destination: "0.0.0.0/0", NATGateway: ptr("fresh")}, drops("0.0.0.0/0"), false, "NATGateway fresh has no external address yet"},
		"around reserved ranges": {netv1.Route{Destination: "128.0.0.0/1", Interface: ptr("firewall")}, hop("128.0.0.0/1"), false, ""},
		"reserved":               {netv1.Route{Destination: "198.18.4.0/24", Interface: ptr("firewall")}, nil, true, "spec.routes[0]: destination 198.18.4.0/24 is in 198.18.0.0/15, which the cloud keeps"},
		"a reserved blackhole":   {netv1.Route{Destination: "127.0.0.1/32", Blackhole: ptr(true)}, nil, true, "remove the route"},
		"of the owner's":         {netv1.Route{Destination: "172.30.1.0/24", Blackhole: ptr(true)}, nil, true, "172.30.0.0/16"},
		"not canonical":          {netv1.Route{Destination: "10.9.0.5/16", Blackhole: ptr(true)}, nil, true, "not a canonical IPv4 range"},
		"IPv6":                   {netv1.Route{Destination: "fd00::/8", Blackhole: ptr(true)}, nil, true, "not a canonical IPv4 range"},
		"no target":              {netv1.Route{Destination: "10.9.0.0/16"}, drops("10.9.0.0/16"), true, "it has no target"},
		"missing":                {netv1.Route{Destination: "10.9.0.0/16", Interface: ptr("gone")}, drops("10.9.0.0/16"), false, "the route to 10.9.0.0/16 drops: NetworkInterface gone does not exist"},
		"nobody's address":       {netv1.Route{Destination: "10.9.0.0/16", Address: ptr("10.0.1.9")}, drops("10.9.0.0/16"), false, "nothing in the VPC has the address 10.0.1.9"},
		"not allocated":          {netv1.Route{Destination: "10.9.0.0/16", Interface: ptr("new")}, drops("10.9.0.0/16"), false, "has no address yet"},
		"another VPC's":          {netv1.Route{Destination: "10.9.0.0/16", Interface: ptr("foreign")}, drops("10.9.0.0/16"), true, "is in another VPC"},
		"one that checks":        {netv1.Route{Destination: "10.9.0.0/16", Interface: ptr("closed")}, drops("10.9.0.0/16"), false, "set its spec.sourceDestCheck to false"},
		"itself":                 {netv1.Route{Destination: "10.0.1.7/32", Interface: ptr("firewall")}, drops("10.0.1.7/32"), true, "by its own address"},
	} {
		t.Run(name, func(t *testing.T) {
			routes, problems := Resolve(&netv1.RouteTableSpec{VPC: "main", Routes: []netv1.Route{c.route}}, 7, targets, append(Reserved(), netip.MustParsePrefix("172.30.0.0/16")))
			if c.want == nil {
				require.Empty(t, routes)
			} else {
				require.Equal(t, []Route{*c.want}, routes)
			}
			if c.says == "" {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Equal(t, c.final, problems[0].Final)
			require.Contains(t, problems[0].Message, c.says)
		})
	}
}
