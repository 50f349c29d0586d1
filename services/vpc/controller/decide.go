package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/dependency"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// Reasons of the Ready condition that tenants meet.
const (
	reasonCIDRInvalid    = "CIDRInvalid"
	reasonCIDRReserved   = "CIDRReserved"
	reasonCIDROutsideVPC = "CIDROutsideVPC"
	reasonCIDROverlap    = "CIDROverlap"
	reasonHasSubnets     = "HasSubnets"
	reasonHasTables      = "HasRouteTables"
	reasonTableNotFound  = "RouteTableNotFound"
	reasonTableOtherVPC  = "RouteTableOfOtherVpc"
	reasonRouteInvalid   = "RouteInvalid"
	reasonInUse          = "InUse"
	reasonDeleting       = "Deleting"
	reasonGroupNotFound  = "SecurityGroupNotFound"
)

// refusal is why an object is not made; nil means that it may be.
type refusal = *conditions.Result

func refuse(r conditions.Result) refusal { return &r }

// checkVPC decides whether a Vpc may be made.
func checkVPC(vpc *vpcv1.Vpc, reserved []netip.Prefix) refusal {
	cidr, err := netip.ParsePrefix(vpc.Spec.CIDR)
	if err != nil {
		return refuse(conditions.Failed(reasonCIDRInvalid, fmt.Sprintf("spec.cidr %q is not an address range; make a new Vpc with one such as 10.0.0.0/16", vpc.Spec.CIDR)))
	}
	for _, r := range reserved {
		if r.Overlaps(cidr) {
			return refuse(conditions.Failed(reasonCIDRReserved, fmt.Sprintf(
				"spec.cidr %s meets the reserved range %s; make a new Vpc with another range, such as 10.0.0.0/16", cidr, r)))
		}
	}
	return nil
}

// checkSubnet decides whether a Subnet may be made in its Vpc, as far as the two alone can tell. vpc is nil when it does
// not exist.
func checkSubnet(subnet *vpcv1.Subnet, vpc *vpcv1.Vpc) refusal {
	name := subnet.Spec.VPC
	if vpc == nil {
		return checkVPCOf("Subnet", name, vpc)
	}
	cidr, err := netip.ParsePrefix(subnet.Spec.CIDR)
	if err != nil {
		return refuse(conditions.Failed(reasonCIDRInvalid, fmt.Sprintf("spec.cidr %q is not an address range; make a new Subnet with one such as 10.0.1.0/24", subnet.Spec.CIDR)))
	}
	whole, err := netip.ParsePrefix(vpc.Spec.CIDR)
	if err == nil && !within(cidr, whole) {
		return refuse(conditions.Failed(reasonCIDROutsideVPC, fmt.Sprintf(
			"spec.cidr %s is not a part of %s, the range of Vpc %q; make a new Subnet with a part of it", cidr, whole, name)))
	}
	return checkVPCOf("Subnet", name, vpc)
}

// checkVPCOf decides whether a Vpc of a name can take an object of a kind. vpc is nil when it does not exist.
func checkVPCOf(kind, name string, vpc *vpcv1.Vpc) refusal {
	named := dependency.Reference{Field: "spec.vpc", Kind: "Vpc", Name: name, By: kind}
	if vpc == nil {
		return named.NotFound()
	}
	return named.Unready(vpc, vpc.Status.Conditions)
}

// checkOverlap decides whether a Subnet's range is free in its Vpc. others are the Subnets of the namespace; the Subnet
// itself may be among them. Who was accepted before wins, then who is older. One that is no part of the Vpc can never be
// accepted and has no claim.
func checkOverlap(subnet *vpcv1.Subnet, vpc *vpcv1.Vpc, others []vpcv1.Subnet) refusal {
	cidr, err := netip.ParsePrefix(subnet.Spec.CIDR)
	if err != nil {
		return nil
	}
	whole, err := netip.ParsePrefix(vpc.Spec.CIDR)
	if err != nil {
		return nil
	}
	for i := range others {
		other := &others[i]
		if other.UID == subnet.UID || other.Spec.VPC != subnet.Spec.VPC || !precedes(other, subnet) {
			continue
		}
		taken, err := netip.ParsePrefix(other.Spec.CIDR)
		if err != nil || !accepted(other) && !within(taken, whole) {
			continue
		}
		if taken.Overlaps(cidr) {
			return refuse(conditions.Failed(reasonCIDROverlap, fmt.Sprintf(
				"spec.cidr %s overlaps %s of Subnet %q; make a new Subnet with a range that no other Subnet of Vpc %q has, or delete that one",
				cidr, taken, other.Name, subnet.Spec.VPC)))
		}
	}
	return nil
}

// checkRoutes decides whether the addresses that a table leads to can be in its Vpc.
func checkRoutes(table *vpcv1.RouteTable, vpc *vpcv1.Vpc) refusal {
	whole, err := netip.ParsePrefix(vpc.Spec.CIDR)
	if err != nil {
		return nil
	}
	for i, route := range table.Spec.Routes {
		if route.Address == nil {
			continue
		}
		if address, err := netip.ParseAddr(*route.Address); err != nil || !whole.Contains(address) {
			return refuse(conditions.Failed(reasonRouteInvalid, fmt.Sprintf(
				"spec.routes[%d].address %s is not in %s, the range of Vpc %q; give the address of a workload there", i, *route.Address, whole, vpc.Name)))
		}
	}
	return nil
}

// checkTableOf decides whether the RouteTable that a Subnet names counts; table is nil when it does not exist.
func checkTableOf(subnet *vpcv1.Subnet, table *vpcv1.RouteTable) refusal {
	name := subnet.Spec.RouteTable
	switch {
	case table == nil:
		return refuse(conditions.Waiting(reasonTableNotFound, fmt.Sprintf(
			"spec.routeTable names RouteTable %q, which does not exist in this namespace; create it, or name another or none", name)))
	case table.Spec.VPC != subnet.Spec.VPC:
		return refuse(conditions.Failed(reasonTableOtherVPC, fmt.Sprintf(
			"spec.routeTable names RouteTable %q, which is of Vpc %q; name one of Vpc %q, or none", name, table.Spec.VPC, subnet.Spec.VPC)))
	}
	return nil
}

// subnetsThatName names the Subnets in which a table's routes count.
func subnetsThatName(table *vpcv1.RouteTable, subnets []vpcv1.Subnet) []string {
	var names []string
	for i := range subnets {
		if subnets[i].Spec.RouteTable == table.Name && subnets[i].Spec.VPC == table.Spec.VPC && accepted(&subnets[i]) {
			names = append(names, subnets[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// gatewaysNamed are the NATGateways that a table's routes lead to, once each.
func gatewaysNamed(table *vpcv1.RouteTable) []string {
	var names []string
	for _, route := range table.Spec.Routes {
		if route.NATGateway != nil && !slices.Contains(names, *route.NATGateway) {
			names = append(names, *route.NATGateway)
		}
	}
	return names
}

// tablesTo names the RouteTables that keep a NATGateway from going: those that lead to it and that something was made for.
func tablesTo(gateway *vpcv1.NATGateway, tables []vpcv1.RouteTable) []string {
	var names []string
	for i := range tables {
		if slices.Contains(gatewaysNamed(&tables[i]), gateway.Name) && slices.Contains(tables[i].Finalizers, vpcv1.Finalizer) {
			names = append(names, "RouteTable "+tables[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// within tells whether cidr is a part of whole.
func within(cidr, whole netip.Prefix) bool {
	return whole.Bits() <= cidr.Bits() && whole.Contains(cidr.Addr())
}

// precedes tells whether a has the better right to a range than b. One that has begun to go still has it.
func precedes(a, b *vpcv1.Subnet) bool {
	switch {
	case accepted(a) != accepted(b):
		return accepted(a)
	case !a.DeletionTimestamp.IsZero() && !accepted(a):
		return false
	case !a.CreationTimestamp.Equal(&b.CreationTimestamp):
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// accepted tells whether the Subnet's range is its own for good: the finalizer is what says so.
func accepted(subnet *vpcv1.Subnet) bool { return slices.Contains(subnet.Finalizers, vpcv1.Finalizer) }

// subnetsIn names the Subnets that keep a Vpc from going: those that something was made for.
func subnetsIn(vpc *vpcv1.Vpc, subnets []vpcv1.Subnet) []string {
	var names []string
	for i := range subnets {
		if subnets[i].Spec.VPC == vpc.Name && accepted(&subnets[i]) {
			names = append(names, subnets[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// tablesIn names the RouteTables that keep a Vpc from going.
func tablesIn(vpc *vpcv1.Vpc, tables []vpcv1.RouteTable) []string {
	var names []string
	for i := range tables {
		if tables[i].Spec.VPC == vpc.Name && slices.Contains(tables[i].Finalizers, vpcv1.Finalizer) {
			names = append(names, tables[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// some joins at most five names and says how many more there are.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
