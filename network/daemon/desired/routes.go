package desired

import (
	"net/netip"
	"slices"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
	"github.com/mnicloud/mnicloud/network/routing"
)

// addRoutes adds the routes of every Subnet that has an interface here: to the other Subnets of its VPC and those of its peers, and by its RouteTable. Where a
// table, an interface that sends on, or the way out of the cloud could lead to a range that is the cloud's own, that range is there as well.
func (s *State) addRoutes(in Input, local []Attachment, peers peering) {
	tables := tablesOf(in)
	outward := outwardOf(in, tables)
	forwards := map[uint32]bool{}
	vpcs := map[uint32]uint32{}
	for _, a := range local {
		vpcs[a.Interface.VNI] = a.Interface.VPCID
		forwards[a.Interface.VNI] = forwards[a.Interface.VNI] || !a.Interface.SourceDestCheck
	}
	var targets routing.Targets
	var serving map[uint32]*netv1.NATGateway
	if len(tables) > 0 {
		targets, serving = routing.Index(in.Interfaces, in.NATGateways), Serving(in)
	}
	subnets := map[uint32][]uint32{} // of VPCs
	for vni, subnet := range s.Subnets {
		subnets[subnet.VPCID] = append(subnets[subnet.VPCID], vni)
	}
	for vni, vpc := range vpcs {
		if vni == netv1.DefaultVNI {
			continue
		}
		for _, other := range subnets[vpc] {
			if other != vni {
				s.Routes[datapath.RouteKey{VNI: vni, Prefix: s.Subnets[other].Prefix}] = datapath.Route{VNI: other}
			}
		}
		known := append(slices.Clone(subnets[vpc]), s.addPeers(vni, subnets[vpc], peers.of[vpc], subnets)...)
		out, leaves := outward[vni]
		if leaves { // its table may say something else
			s.addTable(vni, nil, known, []routing.Route{out})
		}
		table := tables[vni]
		if table != nil {
			routes, _ := routing.Resolve(&table.Spec, vpc, targets, in.Reserved)
			s.addTable(vni, serving[vni], known, routes)
		}
		if table != nil || forwards[vni] || leaves {
			for _, own := range in.Reserved {
				s.Routes[datapath.RouteKey{VNI: vni, Prefix: own}] = datapath.Route{Kind: datapath.RouteReserved}
			}
		}
	}
}

// addTable adds the routes of a Subnet's table; of a destination that another Subnet has, too, they win. To the Subnet's own addresses
// nothing is routed. Subnets are the VPC's and its peers', gateway is the NATGateway that serves the Subnet; nil for none.
func (s *State) addTable(vni uint32, gateway *netv1.NATGateway, subnets []uint32, routes []routing.Route) {
	for _, r := range routes {
		in := s.subnetOf(subnets, r.Destination)
		if in == vni {
			continue
		}
		route := datapath.Route{Kind: datapath.RouteBlackhole, VNI: in}
		switch {
		case r.Internet || r.Gateway != "" && gateway != nil && r.Gateway == gateway.Name:
			route.Kind = datapath.RouteOutside
		case !r.Blackhole:
			route.Kind = datapath.RouteHop
			route.Hop = datapath.EndpointKey{VNI: r.VNI, Address: r.Address}
		}
		s.Routes[datapath.RouteKey{VNI: vni, Prefix: r.Destination}] = route
	}
}

// subnetOf is which of the Subnets has all of a range; 0 when there is none.
func (s *State) subnetOf(subnets []uint32, destination netip.Prefix) uint32 {
	for _, vni := range subnets {
		if p := s.Subnets[vni].Prefix; p.Bits() <= destination.Bits() && p.Contains(destination.Addr()) {
			return vni
		}
	}
	return 0
}

// tablesOf are the RouteTables of Subnets by VNI. One of another VPC is none.
func tablesOf(in Input) map[uint32]*netv1.RouteTable {
	byName := map[string]*netv1.RouteTable{}
	for i := range in.RouteTables {
		byName[in.RouteTables[i].Name] = &in.RouteTables[i]
	}
	tables := map[uint32]*netv1.RouteTable{}
	for i := range in.Subnets {
		subnet := &in.Subnets[i]
		table := byName[subnet.Spec.RouteTable]
		if table != nil && subnet.Status.VNI != 0 && table.Spec.VPC == subnet.Spec.VPC {
			tables[subnet.Status.VNI] = table
		}
	}
	return tables
}

// outwardOf are the routes out of the cloud that Subnets, with tables by VNI, have by themselves, by VNI.
func outwardOf(in Input, tables map[uint32]*netv1.RouteTable) map[uint32]routing.Route {
	routes := map[uint32]routing.Route{}
	for i := range in.Subnets {
		subnet := &in.Subnets[i]
		if route, ok := routing.Outward(subnet, tables[subnet.Status.VNI], in.NATGateways, in.FloatingIPs); ok && subnet.Status.VNI != 0 {
			routes[subnet.Status.VNI] = route
		}
	}
	return routes
}
