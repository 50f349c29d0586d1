package desired

import (
	"cmp"
	"net/netip"
	"slices"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// addNAT says how interfaces here leave by NATGateways, and which member has which ports of their addresses.
func (s *State) addNAT(in Input, local []Attachment, nodes map[string]netip.Addr) {
	addresses := map[string]bool{}
	for i := range in.NATGateways {
		for _, text := range in.NATGateways[i].Status.Addresses {
			address, err := netip.ParseAddr(text)
			if err != nil || !address.Is4() {
				continue
			}
			addresses[text] = true
			at := netip.PrefixFrom(address, address.BitLen())
			if s.Externals[at].Kind == datapath.ExternalFree {
				s.Externals[at] = datapath.External{Kind: datapath.ExternalNAT}
			}
		}
	}
	for i := range in.PortBlocks {
		block, ok := portBlockOf(&in.PortBlocks[i])
		node := in.PortBlocks[i].Spec.Node
		if !ok || !addresses[in.PortBlocks[i].Spec.Address] || node == in.Node || in.PortBlocks[i].Spec.ReleasedAt != nil {
			continue
		}
		if address, known := nodes[node]; known {
			s.NAT.Members[block] = address
		}
	}
	serving := Serving(in)
	own, draining := map[string][]datapath.PortBlock{}, map[string][]datapath.PortBlock{}
	for _, b := range OwnPortBlocks(in) {
		block, ok := portBlockOf(b)
		switch {
		case !ok, in.GivenBack[b.Name]:
			continue
		case in.Draining[b.Name]:
			draining[b.Spec.NATGateway] = append(draining[b.Spec.NATGateway], block)
		default:
			own[b.Spec.NATGateway] = append(own[b.Spec.NATGateway], block)
		}
		s.NAT.Members[block] = netip.Addr{}
	}
	for _, a := range local {
		if gateway := serving[a.Interface.VNI]; gateway != nil {
			s.NAT.Subnets[a.Interface.VNI] = own[gateway.Name]
			if kept := draining[gateway.Name]; len(kept) > 0 {
				s.NAT.Kept[a.Interface.VNI] = kept
			}
		}
	}
}

// Serving are the NATGateways of Subnets, by VNI.
func Serving(in Input) map[uint32]*netv1.NATGateway {
	serving := map[uint32]*netv1.NATGateway{}
	if len(in.NATGateways) == 0 {
		return serving
	}
	for i := range in.Subnets {
		subnet := &in.Subnets[i]
		for j := range in.NATGateways {
			g := &in.NATGateways[j]
			if subnet.Status.VNI != 0 && subnet.Status.VNI != netv1.DefaultVNI && g.Spec.VPC == subnet.Spec.VPC && g.Status.VPCID == subnet.Status.VPCID &&
				slices.Contains(g.Status.Subnets, subnet.Name) {
				serving[subnet.Status.VNI] = g
			}
		}
	}
	return serving
}

// OwnPortBlocks are this node's that it may translate with, those that it has had for the longest time first.
func OwnPortBlocks(in Input) []*netv1.PortBlock {
	var own []*netv1.PortBlock
	for i := range in.PortBlocks {
		if b := &in.PortBlocks[i]; b.Spec.Node == in.Node && b.DeletionTimestamp.IsZero() && b.Spec.ReleasedAt == nil && isOf(b, in.NATGateways) {
			own = append(own, b)
		}
	}
	slices.SortFunc(own, func(a, b *netv1.PortBlock) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return own
}

// isOf tells whether a block's gateway has its address.
func isOf(b *netv1.PortBlock, gateways []netv1.NATGateway) bool {
	return slices.ContainsFunc(gateways, func(g netv1.NATGateway) bool {
		return g.Name == b.Spec.NATGateway && slices.Contains(g.Status.Addresses, b.Spec.Address)
	})
}

// portBlockOf is a PortBlock as the datapath has it. Of another size or place there is none.
func portBlockOf(b *netv1.PortBlock) (block datapath.PortBlock, ok bool) {
	address, err := netip.ParseAddr(b.Spec.Address)
	first := b.Spec.FirstPort
	if err != nil || !address.Is4() || b.Spec.Size != datapath.PortBlockSize || first < netv1.FirstNATPort || first > 65535 || first%datapath.PortBlockSize != 0 {
		return block, false
	}
	return datapath.PortBlock{Address: address, First: uint16(first)}, true
}
