package desired

import (
	"cmp"
	"net/netip"
	"slices"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// addExternals says what has the external addresses, and which the interfaces have whose VPC is on this node. A range of a pool is
// nothing's but for the addresses within that are in use.
func (s *State) addExternals(in Input, vpcs map[uint32]bool, nodes map[string]netip.Addr) {
	for i := range in.AddressPools {
		for _, text := range in.AddressPools[i].Status.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil && p.Addr().Is4() && p == p.Masked() {
				s.Externals[p] = datapath.External{}
			}
		}
	}
	interfaces := map[string]*netv1.NetworkInterface{}
	for i := range in.Interfaces {
		interfaces[in.Interfaces[i].Name] = &in.Interfaces[i]
	}
	for _, f := range inOrder(in.FloatingIPs) {
		external, target, ok := translation(f)
		if !ok {
			continue
		}
		at := netip.PrefixFrom(external, external.BitLen())
		from := datapath.FloatingKey{VPCID: f.Status.VPCID, Address: target.Address}
		if _, taken := s.Externals[at]; taken && at.Bits() == external.BitLen() && s.Externals[at].Kind != datapath.ExternalFree {
			continue
		}
		s.Externals[at] = externalOf(f, target, interfaces[f.Spec.NetworkInterface], nodes, in.Node)
		if _, taken := s.Floatings[from]; !taken && vpcs[from.VPCID] {
			s.Floatings[from] = datapath.Floating{External: external}
		}
	}
}

// inOrder are the FloatingIPs by name. Of two with one address or target, which the controller never leaves both set, the first counts.
func inOrder(all []netv1.FloatingIP) []*netv1.FloatingIP {
	sorted := make([]*netv1.FloatingIP, 0, len(all))
	for i := range all {
		sorted = append(sorted, &all[i])
	}
	slices.SortFunc(sorted, func(a, b *netv1.FloatingIP) int { return cmp.Compare(a.Name, b.Name) })
	return sorted
}

// translation is what a FloatingIP translates; ok is false while it does not.
func translation(f *netv1.FloatingIP) (external netip.Addr, target datapath.EndpointKey, ok bool) {
	external, err := netip.ParseAddr(f.Status.ExternalAddress)
	if err != nil || !external.Is4() {
		return external, target, false
	}
	address, err := netip.ParseAddr(f.Status.Address)
	if err != nil || !address.Is4() || f.Status.VNI == 0 || f.Status.VPCID == 0 {
		return external, target, false
	}
	return external, datapath.EndpointKey{VNI: f.Status.VNI, Address: address}, true
}

// externalOf says where the target of a FloatingIP is: where its interface is, which moves before the FloatingIP's status tells. The
// address is nothing's while the interface is attached nowhere, or has another address by now.
func externalOf(f *netv1.FloatingIP, target datapath.EndpointKey, nic *netv1.NetworkInterface, nodes map[string]netip.Addr, own string) datapath.External {
	if nic == nil || nic.Spec.Pod == nil || nic.Status.VNI != target.VNI || nic.Status.Address != target.Address.String() {
		return datapath.External{}
	}
	e := datapath.External{Kind: datapath.ExternalFloating, Target: target, VPCID: f.Status.VPCID}
	if nic.Spec.Node == own {
		return e
	}
	node, known := nodes[nic.Spec.Node]
	if !known {
		return datapath.External{}
	}
	e.Node = node
	return e
}
