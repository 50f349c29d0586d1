package desired

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// Member is a host of the network: a node, or a machine beside the cluster.
type Member struct {
	// Node is its Kubernetes name; empty for a machine.
	Node string
	// Address on the underlay.
	Address netip.Addr
}

// Members are all nodes that have an address, and the extra hosts, in order of address. An address that two claim is the
// node's whose name comes first.
func Members(nodes []corev1.Node, extra []netip.Addr) []Member {
	var members []Member
	for i := range nodes {
		if address, ok := InternalIP(&nodes[i]); ok {
			members = append(members, Member{Node: nodes[i].Name, Address: address})
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Node, b.Node) })
	for _, address := range extra {
		members = append(members, Member{Address: address})
	}
	slices.SortStableFunc(members, func(a, b Member) int { return a.Address.Compare(b.Address) })
	return slices.CompactFunc(members, func(a, b Member) bool { return a.Address == b.Address })
}

// InternalIP is a node's first IPv4 InternalIP: its address on the underlay.
func InternalIP(node *corev1.Node) (netip.Addr, bool) {
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if address, err := netip.ParseAddr(a.Address); err == nil && address.Is4() {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// addMembers accepts VXLAN from every other member and makes every member's host an endpoint of the default Subnet.
func (s *State) addMembers(members []Member, own netip.Addr) {
	host := datapath.Endpoint{VPCID: netv1.DefaultVPCID, Kind: datapath.EndpointHost}
	s.Endpoints[datapath.EndpointKey{VNI: netv1.DefaultVNI, Address: own}] = host
	for _, m := range members {
		if m.Address == own {
			continue
		}
		s.Members[m.Address] = datapath.Member{}
		remote := host
		remote.Node = m.Address
		s.Endpoints[datapath.EndpointKey{VNI: netv1.DefaultVNI, Address: m.Address}] = remote
	}
}
