// Package routing says what RouteTables amount to: where each route leads, or why it leads nowhere. In: tables and interfaces as the
// API server has them. Out: routes for the datapath, and problems for people; pure functions, so that the controller tells
// what the nodes do. Nothing else may enter.
package routing

import (
	"fmt"
	"net/netip"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// Reserved are the ranges that tenants may not use unless the owner of the cloud says otherwise: Pods' infrastructure addresses and
// Services (RFC 2544's benchmarking range), link-local, the embedded cloud's underlay (TEST-NET-1), this host, loopback, shared
// address space (RFC 6598, Tailscale's addresses), multicast, reserved.
func Reserved() []netip.Prefix {
	var prefixes []netip.Prefix
	for _, s := range []string{
		"198.18.0.0/15", "169.254.0.0/16", "192.0.2.0/24", "0.0.0.0/8", "127.0.0.0/8", "100.64.0.0/10", "224.0.0.0/4", "240.0.0.0/4",
	} {
		prefixes = append(prefixes, netip.MustParsePrefix(s))
	}
	return prefixes
}

// Interfaces finds NetworkInterfaces that have addresses.
type Interfaces struct {
	byName    map[string]*netv1.NetworkInterface
	byAddress map[place]*netv1.NetworkInterface
}

type place struct {
	vpcID   uint32
	address string
}

// Index makes interfaces findable. It keeps pointers into the slice.
func Index(all []netv1.NetworkInterface) Interfaces {
	i := Interfaces{byName: map[string]*netv1.NetworkInterface{}, byAddress: map[place]*netv1.NetworkInterface{}}
	for n := range all {
		nic := &all[n]
		i.byName[nic.Name] = nic
		if nic.Status.Address == "" {
			continue
		}
		at := place{nic.Status.VPCID, nic.Status.Address}
		if other := i.byAddress[at]; other == nil || nic.Name < other.Name {
			i.byAddress[at] = nic
		}
	}
	return i
}

// Route is a route as nodes have it.
type Route struct {
	Destination netip.Prefix
	// Blackhole drops.
	Blackhole bool
	// Internet leads out of the cloud: by the sender's FloatingIP, else by the Subnet's NATGateway, else it drops.
	Internet bool
	// VNI and Address are the next hop's; the zero Address, while there is none, drops, too: what a firewall should see must not find
	// a way past it.
	VNI     uint32
	Address netip.Addr
}

// Problem is why a route does not do what it says.
type Problem struct {
	// Final tells that only a change of the table helps.
	Final bool
	// Message names the field and the remedy.
	Message string
}

// Resolve says where the routes of a table lead in its VPC. A route that meets a reserved range is left out.
func Resolve(spec *netv1.RouteTableSpec, vpcID uint32, interfaces Interfaces, reserved []netip.Prefix) (routes []Route, problems []Problem) {
	for i := range spec.Routes {
		route, problem := resolve(&spec.Routes[i], vpcID, interfaces, reserved)
		if problem != nil {
			problem.Message = fmt.Sprintf("spec.routes[%d]: %s", i, problem.Message)
			problems = append(problems, *problem)
		}
		if route.Destination.IsValid() {
			routes = append(routes, route)
		}
	}
	return routes, problems
}

func resolve(r *netv1.Route, vpcID uint32, interfaces Interfaces, reserved []netip.Prefix) (Route, *Problem) {
	destination, err := netip.ParsePrefix(r.Destination)
	if err != nil || !destination.Addr().Is4() || destination != destination.Masked() {
		return Route{}, &Problem{Final: true, Message: fmt.Sprintf("destination %s is not a canonical IPv4 range such as 10.9.0.0/16; correct it", r.Destination)}
	}
	for _, own := range reserved {
		if own.Bits() <= destination.Bits() && own.Contains(destination.Addr()) {
			return Route{}, &Problem{Final: true, Message: fmt.Sprintf(
				"destination %s is in %s, which the cloud keeps for itself, and no route leads there; remove the route", destination, own)}
		}
	}
	if r.Blackhole != nil {
		return Route{Destination: destination, Blackhole: true}, nil
	}
	if r.Internet != nil {
		return Route{Destination: destination, Internet: true}, nil
	}
	route := Route{Destination: destination}
	nic, problem := target(r, vpcID, interfaces)
	if problem == nil && destination == netip.PrefixFrom(destination.Addr(), 32) && nic.Status.Address == destination.Addr().String() {
		problem = &Problem{Final: true, Message: fmt.Sprintf("leads to NetworkInterface %s by its own address; remove the route: a Subnet's own leads there already", nic.Name)}
	}
	if problem != nil {
		problem.Message = fmt.Sprintf("the route to %s drops: %s", destination, problem.Message)
		return route, problem
	}
	route.VNI = nic.Status.VNI
	route.Address, _ = netip.ParseAddr(nic.Status.Address)
	return route, nil
}

// target finds the interface that a route leads to.
func target(r *netv1.Route, vpcID uint32, interfaces Interfaces) (*netv1.NetworkInterface, *Problem) {
	var nic *netv1.NetworkInterface
	if r.Interface != nil {
		nic = interfaces.byName[*r.Interface]
	} else if r.Address != nil {
		nic = interfaces.byAddress[place{vpcID, *r.Address}]
	}
	switch {
	case nic == nil && r.Interface != nil:
		return nil, &Problem{Message: fmt.Sprintf("NetworkInterface %s does not exist; create it, or name another", *r.Interface)}
	case nic == nil && r.Address != nil:
		return nil, &Problem{Message: fmt.Sprintf("nothing in the VPC has the address %s; give the route another, or the address to something", *r.Address)}
	case nic == nil:
		return nil, &Problem{Final: true, Message: "it has no target; set interface, address, internet or blackhole"}
	case nic.Status.Address == "":
		return nil, &Problem{Message: fmt.Sprintf("NetworkInterface %s has no address yet", nic.Name)}
	case nic.Status.VPCID != vpcID:
		return nil, &Problem{Final: true, Message: fmt.Sprintf("NetworkInterface %s is in another VPC; name one in this", nic.Name)}
	case nic.Spec.SourceDestCheck == nil || *nic.Spec.SourceDestCheck:
		return nil, &Problem{Message: fmt.Sprintf("NetworkInterface %s sends nothing on; set its spec.sourceDestCheck to false", nic.Name)}
	}
	return nic, nil
}
