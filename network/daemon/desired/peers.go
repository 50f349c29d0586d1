package desired

import (
	"net/netip"
	"slices"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
	"github.com/mnicloud/mnicloud/network/routing"
)

// peering are the VPCs that those of this node are peered with.
type peering struct {
	// of a VPC, by identity and sorted.
	of map[uint32][]uint32
	// all of them.
	all map[uint32]bool
}

func peersOf(in Input, vpcs map[uint32]bool) peering {
	names := routing.Peers(in.VPCPeerings)
	if len(names) == 0 {
		return peering{}
	}
	ids := map[string]uint32{}
	for i := range in.Subnets {
		if id := in.Subnets[i].Status.VPCID; id != 0 {
			ids[in.Subnets[i].Spec.VPC] = id
		}
	}
	p := peering{of: map[uint32][]uint32{}, all: map[uint32]bool{}}
	for vpc, others := range names {
		id := ids[vpc]
		if !vpcs[id] || id == netv1.DefaultVPCID {
			continue
		}
		for _, other := range others {
			if peer := ids[other]; peer != 0 && peer != netv1.DefaultVPCID {
				p.of[id] = append(p.of[id], peer)
				p.all[peer] = true
			}
		}
		slices.Sort(p.of[id])
	}
	return p
}

// addPeers adds the routes from a Subnet to those of its VPC's peers, and returns the latter. One that overlaps a Subnet of the VPC, or of
// a peer with a lower identity, is in nobody's reach: a peer's range must take nothing of what is sent elsewhere.
func (s *State) addPeers(vni uint32, own []uint32, others []uint32, subnets map[uint32][]uint32) (reached []uint32) {
	taken := prefixesOf(s, own)
	for _, peer := range others {
		var theirs []netip.Prefix
		for _, other := range subnets[peer] {
			prefix := s.Subnets[other].Prefix
			if slices.ContainsFunc(taken, prefix.Overlaps) {
				continue
			}
			s.Routes[datapath.RouteKey{VNI: vni, Prefix: prefix}] = datapath.Route{Kind: datapath.RoutePeer, VNI: other, VPCID: peer}
			theirs, reached = append(theirs, prefix), append(reached, other)
		}
		taken = append(taken, theirs...)
	}
	return reached
}

func prefixesOf(s *State, subnets []uint32) []netip.Prefix {
	prefixes := make([]netip.Prefix, 0, len(subnets))
	for _, vni := range subnets {
		prefixes = append(prefixes, s.Subnets[vni].Prefix)
	}
	return prefixes
}
