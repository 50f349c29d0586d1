package desired

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/bgp/bird"
)

// exports are what advertisements tell a peer of the ranges: each range, and, where asked for, the addresses in it. They depend
// on no single address, so that an address which comes or goes changes no session's configuration.
func exports(peer string, ranges []poolRange, advertisements []netv1.BGPAdvertisement) []bird.Export {
	var all []bird.Export
	for _, r := range ranges {
		var aggregate, hosts []*netv1.BGPAdvertisementSpec
		for i := range advertisements {
			spec := &advertisements[i].Spec
			if !names(spec.Peers, peer) || !names(spec.Pools, r.pool) {
				continue
			}
			aggregate = append(aggregate, spec)
			if spec.HostRoutes && r.cidr.Bits() < r.cidr.Addr().BitLen() {
				hosts = append(hosts, spec)
			}
		}
		if len(aggregate) > 0 {
			all = append(all, merge(bird.Export{Match: r.cidr}, aggregate))
		}
		if len(hosts) > 0 {
			all = append(all, merge(bird.Export{Match: r.cidr, Hosts: true}, hosts))
		}
	}
	return all
}

// InUse are the external addresses that lead to interfaces on a node, sorted.
func InUse(floating []netv1.FloatingIP, node string) []netip.Addr {
	var addresses []netip.Addr
	for i := range floating {
		s := &floating[i].Status
		if s.Node != node || s.Address == "" {
			continue
		}
		if address, err := netip.ParseAddr(s.ExternalAddress); err == nil && address.Is4() {
			addresses = append(addresses, address)
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(addresses)
}

// names tells whether a list names something; one that names nothing names all.
func names(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }

// merge gives a route the attributes of all that speak of it.
func merge(e bird.Export, specs []*netv1.BGPAdvertisementSpec) bird.Export {
	for _, s := range specs {
		for _, c := range s.Communities {
			if numbers, ok := community(c); ok {
				e.Communities = append(e.Communities, numbers)
			}
		}
		for _, c := range s.LargeCommunities {
			if numbers, ok := largeCommunity(c); ok {
				e.LargeCommunities = append(e.LargeCommunities, numbers)
			}
		}
		if p := s.LocalPreference; p != nil && (e.LocalPreference == nil || *e.LocalPreference < uint32(*p)) {
			e.LocalPreference = number(*p)
		}
		if m := s.MED; m != nil && (e.MED == nil || *e.MED > uint32(*m)) {
			e.MED = number(*m)
		}
	}
	slices.SortFunc(e.Communities, func(a, b [2]uint16) int { return slices.Compare(a[:], b[:]) })
	slices.SortFunc(e.LargeCommunities, func(a, b [3]uint32) int { return slices.Compare(a[:], b[:]) })
	e.Communities, e.LargeCommunities = slices.Compact(e.Communities), slices.Compact(e.LargeCommunities)
	return e
}

func number(n int64) *uint32 {
	v := uint32(n)
	return &v
}

// wellKnown are communities with names (RFC 1997).
var wellKnown = map[netv1.Community][2]uint16{
	"no-export": {0xffff, 0xff01}, "no-advertise": {0xffff, 0xff02}, "no-export-subconfed": {0xffff, 0xff03},
}

func community(c netv1.Community) (numbers [2]uint16, ok bool) {
	if numbers, ok := wellKnown[c]; ok {
		return numbers, true
	}
	parts := strings.Split(string(c), ":")
	if len(parts) != len(numbers) {
		return numbers, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return numbers, false
		}
		numbers[i] = uint16(n)
	}
	return numbers, true
}

func largeCommunity(c netv1.LargeCommunity) (numbers [3]uint32, ok bool) {
	parts := strings.Split(string(c), ":")
	if len(parts) != len(numbers) {
		return numbers, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return numbers, false
		}
		numbers[i] = uint32(n)
	}
	return numbers, true
}
