package routing

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func TestARouteThatBringsBackWhatItsTargetSendsOnIsTold(t *testing.T) {
	subnet := func(name, cidr string, vni uint32, table string) netv1.Subnet {
		return netv1.Subnet{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.SubnetSpec{VPC: "v", CIDR: cidr, RouteTable: table}, Status: netv1.SubnetStatus{VNI: vni},
		}
	}
	route := func(destination, to string) netv1.Route { return netv1.Route{Destination: destination, Interface: &to} }
	blackhole := true
	// front has the clients; a is in middle, b in back, checks in middle, too.
	const front, middle, back = "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24"
	nics := map[string]*netv1.NetworkInterface{}
	for name, vni := range map[string]uint32{"a": 2, "b": 3, "checks": 2} {
		check := name == "checks"
		nics[name] = &netv1.NetworkInterface{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: netv1.NetworkInterfaceSpec{SourceDestCheck: &check},
			Status: netv1.NetworkInterfaceStatus{VNI: vni, VPCID: 7, Address: "10.0.9.9"},
		}
	}
	for name, tc := range map[string]struct {
		// own is what the table in question has; ofMiddle and ofBack are the tables of those Subnets, nil for none.
		own, ofMiddle, ofBack []netv1.Route
		loops                 []int
	}{
		"its Subnet has no table":                {own: []netv1.Route{route("172.16.0.0/12", "a")}},
		"its Subnet has the same route":          {own: []netv1.Route{route("10.9.0.0/16", "b"), route("172.16.0.0/12", "a")}, ofMiddle: []netv1.Route{route("172.16.0.0/12", "a")}, loops: []int{1}},
		"its Subnet has a wider one":             {own: []netv1.Route{route("172.16.0.0/12", "a")}, ofMiddle: []netv1.Route{route("0.0.0.0/0", "a")}, loops: []int{0}},
		"its Subnet has one of a part":           {own: []netv1.Route{route("0.0.0.0/0", "a")}, ofMiddle: []netv1.Route{route("172.16.0.0/12", "a")}},
		"the longer one leads elsewhere":         {own: []netv1.Route{route("172.16.0.0/12", "a")}, ofMiddle: []netv1.Route{route("0.0.0.0/0", "a"), {Destination: "172.16.0.0/12", Blackhole: &blackhole}}},
		"one behind the other":                   {own: []netv1.Route{route("172.16.0.0/12", "a")}, ofMiddle: []netv1.Route{route("172.16.0.0/12", "b")}},
		"each is behind the other":               {own: []netv1.Route{route("172.16.0.0/12", "a")}, ofMiddle: []netv1.Route{route("172.16.0.0/12", "b")}, ofBack: []netv1.Route{route("172.16.0.0/12", "a")}, loops: []int{0}},
		"a way to a circle is not a part of it":  {own: []netv1.Route{route("172.16.0.0/12", "a")}, ofMiddle: []netv1.Route{route("172.16.0.0/12", "b")}, ofBack: []netv1.Route{route("172.16.0.0/12", "b")}},
		"the destination is a Subnet":            {own: []netv1.Route{route(front, "a")}, ofMiddle: []netv1.Route{route("10.0.0.0/16", "a")}},
		"a Subnet that the tables lead past":     {own: []netv1.Route{route(front, "a")}, ofMiddle: []netv1.Route{route(front, "a")}, loops: []int{0}},
		"the destination is its own Subnet":      {own: []netv1.Route{route(middle, "a")}, ofMiddle: []netv1.Route{route(middle, "a")}},
		"one that sends nothing on":              {own: []netv1.Route{route("172.16.0.0/12", "checks")}, ofMiddle: []netv1.Route{route("172.16.0.0/12", "checks")}},
		"one that does not exist":                {own: []netv1.Route{route("172.16.0.0/12", "none")}, ofMiddle: []netv1.Route{route("172.16.0.0/12", "none")}},
		"behind it is one that does not send on": {own: []netv1.Route{route("172.16.0.0/12", "a")}, ofMiddle: []netv1.Route{route("172.16.0.0/12", "checks")}},
	} {
		t.Run(name, func(t *testing.T) {
			tables := map[string]*netv1.RouteTable{}
			named := func(name string, routes []netv1.Route) string {
				if routes == nil {
					return ""
				}
				tables[name] = &netv1.RouteTable{Spec: netv1.RouteTableSpec{VPC: "v", Routes: routes}}
				return name
			}
			in := Neighbourhood{
				VPCID: 7,
				Subnets: []netv1.Subnet{
					subnet("front", front, 1, named("own", tc.own)), subnet("middle", middle, 2, named("of-middle", tc.ofMiddle)), subnet("back", back, 3, named("of-back", tc.ofBack)),
				},
				Table: func(name string) *netv1.RouteTable { return tables[name] },
				Hop:   func(r *netv1.Route) *netv1.NetworkInterface { return nics[*r.Interface] },
			}
			got := Loops(tables["own"], in)
			require.Len(t, got, len(tc.loops), "%v", got)
			for i, at := range tc.loops {
				require.Contains(t, got[i], "spec.routes["+string(rune('0'+at))+"]: what NetworkInterface a sends on to "+tc.own[at].Destination+" comes back to it")
			}
		})
	}
}
