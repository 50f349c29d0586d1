package routing

import (
	"fmt"
	"net/netip"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// longestWay is how many interfaces a way is followed over.
const longestWay = 16

// Neighbourhood is a VPC as the ways in it depend on it.
type Neighbourhood struct {
	VPCID   uint32
	Subnets []netv1.Subnet
	// Table is a RouteTable by name; nil when there is none.
	Table func(name string) *netv1.RouteTable
	// Hop is the interface that a route names, or whose address it names; nil when there is none.
	Hop func(*netv1.Route) *netv1.NetworkInterface
}

// Loops tells which of a table's routes lead to an interface that would get back what it sends on to the route's destination, by the routes of the
// Subnets that it is sent on in: each with its place in the table. An interface at which the destination ends, as one at the end of a tunnel, sends
// nothing on there, so that such a route may be as it should be.
func Loops(table *netv1.RouteTable, in Neighbourhood) (problems []string) {
	for i := range table.Spec.Routes {
		r := &table.Spec.Routes[i]
		destination, err := netip.ParsePrefix(r.Destination)
		first := in.forwarder(r)
		if err != nil || first == nil {
			continue
		}
		at := first
		for range longestWay {
			if at = in.next(at, destination); at == nil || at.Name == first.Name {
				break
			}
		}
		if at != nil && at.Name == first.Name {
			problems = append(problems, fmt.Sprintf("spec.routes[%d]: what NetworkInterface %s sends on to %s comes back to it by the routes of its own Subnet, and drops; "+
				"let that Subnet name a RouteTable that leads elsewhere, unless the interface is where the range ends", i, first.Name, r.Destination))
		}
	}
	return problems
}

// forwarder is the interface that a route leads to, if it sends on.
func (n Neighbourhood) forwarder(r *netv1.Route) *netv1.NetworkInterface {
	if r.Interface == nil && r.Address == nil {
		return nil
	}
	nic := n.Hop(r)
	if nic == nil || nic.Status.Address == "" || nic.Status.VPCID != n.VPCID || nic.Spec.SourceDestCheck == nil || *nic.Spec.SourceDestCheck {
		return nil
	}
	return nic
}

// next is the interface that gets what another one sends on to a whole range; nil when that goes to a Subnet, out of the cloud, or drops.
func (n Neighbourhood) next(nic *netv1.NetworkInterface, to netip.Prefix) *netv1.NetworkInterface {
	var own *netv1.Subnet
	longest := -1
	for i := range n.Subnets {
		cidr, err := netip.ParsePrefix(n.Subnets[i].Spec.CIDR)
		if n.Subnets[i].Status.VNI == nic.Status.VNI {
			own = &n.Subnets[i]
		}
		if err != nil || !covers(cidr, to) {
			continue
		}
		if own == &n.Subnets[i] { // a Subnet's own addresses are not routed
			return nil
		}
		longest = max(longest, cidr.Bits())
	}
	if own == nil || own.Spec.RouteTable == "" {
		return nil
	}
	table := n.Table(own.Spec.RouteTable)
	if table == nil || table.Spec.VPC != own.Spec.VPC {
		return nil
	}
	var way *netv1.Route
	for i := range table.Spec.Routes {
		r := &table.Spec.Routes[i]
		if destination, err := netip.ParsePrefix(r.Destination); err == nil && covers(destination, to) && destination.Bits() >= longest {
			longest, way = destination.Bits(), r
		}
	}
	if way == nil {
		return nil
	}
	return n.forwarder(way)
}

// covers tells whether all of a range is in another.
func covers(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}
