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

// Targets finds what routes lead to: NetworkInterfaces that have addresses, and NATGateways.
type Targets struct {
	byName    map[string]*netv1.NetworkInterface
	byAddress map[place]*netv1.NetworkInterface
	gateways  map[string]*netv1.NATGateway
}

type place struct {
	vpcID   uint32
	address string
}

// Index makes interfaces and gateways findable. It keeps pointers into the slices.
func Index(interfaces []netv1.NetworkInterface, gateways []netv1.NATGateway) Targets {
	i := Targets{
		byName: map[string]*netv1.NetworkInterface{}, byAddress: map[place]*netv1.NetworkInterface{}, gateways: map[string]*netv1.NATGateway{},
	}
	for n := range gateways {
		i.gateways[gateways[n].Name] = &gateways[n]
	}
	for n := range interfaces {
		nic := &interfaces[n]
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
	// Gateway is the name of the NATGateway that it leads out by, in Subnets that this one serves; in others it drops.
	Gateway string
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
func Resolve(spec *netv1.RouteTableSpec, vpcID uint32, targets Targets, reserved []netip.Prefix) (routes []Route, problems []Problem) {
	for i := range spec.Routes {
		route, problem := resolve(&spec.Routes[i], spec.VPC, vpcID, targets, reserved)
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

func resolve(r *netv1.Route, vpc string, vpcID uint32, targets Targets, reserved []netip.Prefix) (Route, *Problem) {
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
	if r.NATGateway != nil {
		problem := targets.gateway(*r.NATGateway, vpc)
		if problem == nil {
			route.Gateway = *r.NATGateway
			return route, nil
		}
		return route, problem.drops(destination)
	}
	nic, problem := targets.hop(r, vpcID)
	if problem == nil && destination == netip.PrefixFrom(destination.Addr(), 32) && nic.Status.Address == destination.Addr().String() {
		problem = &Problem{Final: true, Message: fmt.Sprintf("leads to NetworkInterface %s by its own address; remove the route: a Subnet's own leads there already", nic.Name)}
	}
	if problem != nil {
		return route, problem.drops(destination)
	}
	route.VNI = nic.Status.VNI
	route.Address, _ = netip.ParseAddr(nic.Status.Address)
	return route, nil
}

// drops says to which addresses a problem matters.
func (p *Problem) drops(destination netip.Prefix) *Problem {
	return &Problem{Final: p.Final, Message: fmt.Sprintf("the route to %s drops: %s", destination, p.Message)}
}

// Gateway is the name of the NATGateway that a table's routes lead to; "" when none does.
func Gateway(spec *netv1.RouteTableSpec) string {
	for i := range spec.Routes {
		if name := spec.Routes[i].NATGateway; name != nil {
			return *name
		}
	}
	return ""
}

// gateway says why a route of a VPC's table cannot lead to a NATGateway; nil when it can.
func (t Targets) gateway(name, vpc string) *Problem {
	switch g := t.gateways[name]; {
	case g == nil:
		return &Problem{Message: fmt.Sprintf("NATGateway %s does not exist; create it, or name another", name)}
	case g.Spec.VPC != vpc:
		return &Problem{Final: true, Message: fmt.Sprintf("NATGateway %s is in another VPC; name one in this", name)}
	case !g.DeletionTimestamp.IsZero():
		return &Problem{Message: fmt.Sprintf("NATGateway %s is being deleted; name another", name)}
	case len(g.Status.Addresses) == 0:
		return &Problem{Message: fmt.Sprintf("NATGateway %s has no external address yet", name)}
	}
	return nil
}

// hop finds the interface that a route leads to.
func (t Targets) hop(r *netv1.Route, vpcID uint32) (*netv1.NetworkInterface, *Problem) {
	var nic *netv1.NetworkInterface
	if r.Interface != nil {
		nic = t.byName[*r.Interface]
	} else if r.Address != nil {
		nic = t.byAddress[place{vpcID, *r.Address}]
	}
	switch {
	case nic == nil && r.Interface != nil:
		return nil, &Problem{Message: fmt.Sprintf("NetworkInterface %s does not exist; create it, or name another", *r.Interface)}
	case nic == nil && r.Address != nil:
		return nil, &Problem{Message: fmt.Sprintf("nothing in the VPC has the address %s; give the route another, or the address to something", *r.Address)}
	case nic == nil:
		return nil, &Problem{Final: true, Message: "it has no target; set interface, address, internet, natGateway or blackhole"}
	case nic.Status.Address == "":
		return nil, &Problem{Message: fmt.Sprintf("NetworkInterface %s has no address yet", nic.Name)}
	case nic.Status.VPCID != vpcID:
		return nil, &Problem{Final: true, Message: fmt.Sprintf("NetworkInterface %s is in another VPC; name one in this", nic.Name)}
	case nic.Spec.SourceDestCheck == nil || *nic.Spec.SourceDestCheck:
		return nil, &Problem{Message: fmt.Sprintf("NetworkInterface %s sends nothing on; set its spec.sourceDestCheck to false", nic.Name)}
	}
	return nic, nil
}
