package routing

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func TestASubnetHasARouteOutWhileSomethingNeedsIt(t *testing.T) {
	subnet := &netv1.Subnet{
		ObjectMeta: metav1.ObjectMeta{Name: "app"}, Spec: netv1.SubnetSpec{VPC: "main"}, Status: netv1.SubnetStatus{VNI: 1001},
	}
	gateway := func(vpc string, serves ...string) netv1.NATGateway {
		return netv1.NATGateway{Spec: netv1.NATGatewaySpec{VPC: vpc}, Status: netv1.NATGatewayStatus{Subnets: serves}}
	}
	floating := func(vni uint32, address string) netv1.FloatingIP {
		return netv1.FloatingIP{Status: netv1.FloatingIPStatus{VNI: vni, Address: address}}
	}
	leads := &netv1.RouteTable{Spec: netv1.RouteTableSpec{VPC: "main", Routes: []netv1.Route{{Destination: "198.51.100.0/24", NATGateway: ptr("egress")}}}}
	for name, c := range map[string]struct {
		gateways []netv1.NATGateway
		floating []netv1.FloatingIP
		want     bool
	}{
		"nothing needs it":                  {nil, nil, false},
		"a NATGateway serves it":            {[]netv1.NATGateway{gateway("main", "db"), gateway("main", "app")}, nil, true},
		"a NATGateway serves another":       {[]netv1.NATGateway{gateway("main", "db")}, nil, false},
		"another VPC's":                     {[]netv1.NATGateway{gateway("other", "app")}, nil, false},
		"a FloatingIP is in it":             {nil, []netv1.FloatingIP{floating(1001, "10.0.1.7")}, true},
		"a FloatingIP is in another":        {nil, []netv1.FloatingIP{floating(1002, "10.0.1.7")}, false},
		"a FloatingIP that leads to nobody": {nil, []netv1.FloatingIP{floating(1001, "")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			route, ok := Outward(subnet, &netv1.RouteTable{}, c.gateways, c.floating)
			require.Equal(t, c.want, ok)
			_, led := Outward(subnet, leads, c.gateways, c.floating)
			require.False(t, led, "its table leads to a NATGateway: only what that says leads out")
			if ok {
				require.Equal(t, Route{Destination: netip.MustParsePrefix("0.0.0.0/0"), Internet: true}, route)
			}
		})
	}
}
