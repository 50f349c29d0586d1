package inspect

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/mnicloud/mnicloud/network/datapath"
)

// Route is one way that a node knows to addresses.
type Route struct {
	Node string `json:"node"`
	VPC  string `json:"vpc"`
	// Subnet is the one in which the route holds.
	Subnet string `json:"subnet"`
	// Prefix is the destination.
	Prefix string `json:"prefix"`
	// Kind is subnet (addresses of the Subnet itself), route (to another Subnet), peer (to a Subnet of a VPC that it is peered with), hop (by an interface that sends on), blackhole,
	// outside (out of the cloud), reserved (for the cloud itself) or endpoint (one address).
	Kind string `json:"kind"`
	// NextHop is where it leads: the Subnet, or the interface that has the address.
	NextHop string `json:"nextHop"`
	// At is the node that has the endpoint.
	At string `json:"at,omitempty"`

	prefix netip.Prefix
}

// Kinds of routes.
const (
	RouteSubnet    = "subnet"
	RouteRoute     = "route"
	RoutePeer      = "peer"
	RouteHop       = "hop"
	RouteBlackhole = "blackhole"
	RouteReserved  = "reserved"
	RouteOutside   = "outside"
	RouteEndpoint  = "endpoint"
)

// Routes are what the nodes would do with addresses: of all VPCs, or of a VPC or Subnet by its name. Endpoints, of which there may
// be very many, are listed only when endpoints is set.
func (n *Network) Routes(node, of string, endpoints bool) ([]Route, error) {
	wanted, err := n.scope(of)
	if err != nil {
		return nil, err
	}
	rows := []Route{}
	err = n.each(node, func(m Member, d *datapath.Datapath) error {
		found, err := n.routesOf(m, d, wanted, endpoints)
		rows = append(rows, found...)
		return err
	})
	for i := range rows {
		rows[i].Prefix = rows[i].prefix.String()
	}
	byNames(rows, func(r Route) []string { return []string{r.Node, r.VPC, r.Subnet, r.Kind} })
	return rows, err
}

// scope tells which Subnets are meant by a name.
func (n *Network) scope(of string) (func(vni, vpc uint32) bool, error) {
	if of == "" {
		return func(uint32, uint32) bool { return true }, nil
	}
	subnet, isSubnet := n.Objects.subnetVNI(of)
	id, err := n.Objects.vpcID(of)
	if err != nil && !isSubnet {
		return nil, fmt.Errorf("there is no VPC or Subnet %q; VPCs: %s; Subnets: %s", of, someOf(n.Objects.VPCNames()), someOf(n.Objects.SubnetNames()))
	}
	return func(vni, vpc uint32) bool { return (isSubnet && vni == subnet) || (err == nil && vpc == id) }, nil
}

func (n *Network) routesOf(m Member, d *datapath.Datapath, wanted func(vni, vpc uint32) bool, endpoints bool) ([]Route, error) {
	subnets, subnetsErr := d.Subnets.List()
	routes, routesErr := d.Routes.List()
	known, endpointsErr := d.Endpoints.List()
	row := func(vni uint32) Route {
		return Route{Node: m.Name, VPC: n.Objects.vpcName(subnets[vni].VPCID), Subnet: n.Objects.subnetName(vni)}
	}
	var rows []Route
	for vni, s := range subnets {
		if wanted(vni, s.VPCID) {
			r := row(vni)
			r.Kind, r.prefix, r.NextHop = RouteSubnet, s.Prefix, "direct"
			rows = append(rows, r)
		}
	}
	for key, route := range routes {
		if wanted(key.VNI, subnets[key.VNI].VPCID) {
			r := row(key.VNI)
			r.prefix = key.Prefix
			n.lead(&r, route)
			rows = append(rows, r)
		}
	}
	for key, e := range known {
		if endpoints && wanted(key.VNI, subnets[key.VNI].VPCID) {
			r := row(key.VNI)
			r.Kind, r.prefix, r.At, r.NextHop = RouteEndpoint, netip.PrefixFrom(key.Address, 32), m.Name, n.endpointName(key, e)
			if e.Node.IsValid() {
				r.At = n.Objects.nodeName(e.Node)
			}
			rows = append(rows, r)
		}
	}
	return rows, errors.Join(subnetsErr, routesErr, endpointsErr)
}

// lead says where a route leads.
func (n *Network) lead(r *Route, route datapath.Route) {
	switch route.Kind {
	case datapath.RouteHop:
		r.Kind, r.NextHop = RouteHop, "nothing: its target is not there"
		if route.Hop.Address.IsValid() {
			r.NextHop = n.endpointName(route.Hop, datapath.Endpoint{}) + " " + route.Hop.Address.String()
		}
	case datapath.RouteBlackhole:
		r.Kind, r.NextHop = RouteBlackhole, "nothing"
	case datapath.RouteReserved:
		r.Kind, r.NextHop = RouteReserved, "nothing"
	case datapath.RoutePeer:
		r.Kind, r.NextHop = RoutePeer, "subnet "+n.Objects.subnetName(route.VNI)+" of VPC "+n.Objects.vpcName(route.VPCID)
	case datapath.RouteOutside:
		r.Kind, r.NextHop = RouteOutside, "outside, from a FloatingIP or a NATGateway"
	default:
		r.Kind, r.NextHop = RouteRoute, "subnet "+n.Objects.subnetName(route.VNI)
	}
}

// endpointName is what has an address, for people.
func (n *Network) endpointName(key datapath.EndpointKey, e datapath.Endpoint) string {
	nic := n.Objects.at(key.VNI, key.Address)
	what := "interface"
	switch {
	case e.Kind == datapath.EndpointHost:
		return "host"
	case podOf(nic) != "":
		what = podOf(nic)
	case nic != nil:
		what = nic.Name
	}
	if e.Kind == datapath.EndpointInfrastructure {
		what += " (infrastructure address)"
	}
	return what
}
