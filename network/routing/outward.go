package routing

import (
	"net/netip"
	"slices"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// Outward returns the route out of the cloud that a Subnet has by itself: to 0.0.0.0/0, while a NATGateway serves it or an interface
// in it has a FloatingIP. One of the Subnet's table to 0.0.0.0/0 counts instead of it; one whose table, nil for none, leads to a
// NATGateway has only what the table says.
func Outward(subnet *netv1.Subnet, table *netv1.RouteTable, gateways []netv1.NATGateway, floating []netv1.FloatingIP) (route Route, ok bool) {
	if table != nil && Gateway(&table.Spec) != "" {
		return Route{}, false
	}
	served := slices.ContainsFunc(gateways, func(g netv1.NATGateway) bool {
		return g.Spec.VPC == subnet.Spec.VPC && slices.Contains(g.Status.Subnets, subnet.Name)
	})
	if !served && !slices.ContainsFunc(floating, func(f netv1.FloatingIP) bool {
		return f.Status.Address != "" && f.Status.VNI == subnet.Status.VNI
	}) {
		return Route{}, false
	}
	return Route{Destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Internet: true}, true
}
