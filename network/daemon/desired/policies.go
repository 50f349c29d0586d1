package desired

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// Policies are what may reach an interface and what it may send; nil means everything.
type Policies struct {
	Ingress, Egress *datapath.Policy
}

// closed lets nothing pass.
func closed() Policies { return Policies{Ingress: &datapath.Policy{}, Egress: &datapath.Policy{}} }

// addPolicies says what the node's interfaces may do: by their SecurityGroups, or, in the default Subnet and without groups, by
// the NetworkPolicies that select their Pods.
func (s *State) addPolicies(in Input, local []Attachment) {
	interfaces := map[types.UID]*netv1.NetworkInterface{}
	for i := range in.Interfaces {
		interfaces[in.Interfaces[i].UID] = &in.Interfaces[i]
	}
	groups := newGroupIndex(in)
	var network *networkPolicies
	for _, a := range local {
		nic := interfaces[a.Interface.UID]
		var p Policies
		switch {
		case len(nic.Spec.SecurityGroups) > 0:
			p = groups.of(nic)
		case a.Interface.VNI == netv1.DefaultVNI && len(in.NetworkPolicies) > 0:
			if network == nil {
				network = newNetworkPolicies(in)
			}
			p = network.of(a.Interface.Pod)
		}
		if p != (Policies{}) {
			s.Policies[uint32(a.Ifindex)] = p
		}
	}
}

// groupIndex is what SecurityGroups and their members are found by.
type groupIndex struct {
	groups map[string]*netv1.SecurityGroup
	// members are the addresses of the interfaces that name a group, by the VPC they are in.
	members map[groupInVPC][]datapath.Peer
}

type groupInVPC struct {
	group string
	vpc   uint32
}

func newGroupIndex(in Input) groupIndex {
	x := groupIndex{groups: map[string]*netv1.SecurityGroup{}, members: map[groupInVPC][]datapath.Peer{}}
	for i := range in.SecurityGroups {
		x.groups[in.SecurityGroups[i].Name] = &in.SecurityGroups[i]
	}
	for i := range in.Interfaces {
		nic := &in.Interfaces[i]
		address, err := netip.ParseAddr(nic.Status.Address)
		if err != nil {
			continue
		}
		for _, name := range nic.Spec.SecurityGroups {
			if group := x.groups[name]; group != nil && group.Spec.Namespace == nic.Spec.Namespace {
				key := groupInVPC{name, nic.Status.VPCID}
				x.members[key] = append(x.members[key], single(address))
			}
		}
	}
	for _, members := range x.members {
		slices.SortFunc(members, func(a, b datapath.Peer) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	}
	return x
}

// single is one address as a peer.
func single(address netip.Addr) datapath.Peer {
	return datapath.Peer{Prefix: netip.PrefixFrom(address, address.BitLen())}
}

// of is what an interface's groups allow: together what one of them does. A group that is unknown, or another tenant's, closes
// the interface.
func (x groupIndex) of(nic *netv1.NetworkInterface) Policies {
	p := Policies{Ingress: &datapath.Policy{}}
	for _, name := range nic.Spec.SecurityGroups {
		group := x.groups[name]
		if group == nil || group.Spec.Namespace != nic.Spec.Namespace {
			return closed()
		}
		p.Ingress.Rules = append(p.Ingress.Rules, x.rules(group, group.Spec.Ingress, nic.Status.VPCID)...)
		if len(group.Spec.Egress) > 0 {
			if p.Egress == nil {
				p.Egress = &datapath.Policy{}
			}
			p.Egress.Rules = append(p.Egress.Rules, x.rules(group, group.Spec.Egress, nic.Status.VPCID)...)
		}
	}
	return p
}

// rules are a group's rules for an interface in a VPC. One that no peer is found for allows nothing and is left out.
func (x groupIndex) rules(of *netv1.SecurityGroup, rules []netv1.SecurityGroupRule, vpc uint32) []datapath.Rule {
	var out []datapath.Rule
	for i := range rules {
		r := &rules[i]
		var peers []datapath.Peer
		switch {
		case r.SecurityGroup != nil:
			if other := x.groups[*r.SecurityGroup]; other != nil && other.Spec.Namespace == of.Spec.Namespace {
				peers = x.members[groupInVPC{*r.SecurityGroup, vpc}]
			}
		case r.CIDR != nil:
			if prefix, err := netip.ParsePrefix(*r.CIDR); err == nil && prefix.Addr().Is4() {
				peers = []datapath.Peer{{Prefix: prefix.Masked()}}
			}
		}
		if len(peers) > 0 {
			out = append(out, datapath.Rule{Peers: peers, Ports: portsOf(r)})
		}
	}
	return out
}

// portsOf are the ports, or ICMP types, of a rule; none means everything.
func portsOf(r *netv1.SecurityGroupRule) []datapath.Ports {
	switch r.Protocol {
	case netv1.RuleTCP:
		return []datapath.Ports{portRange(datapath.TCP, r.Port, r.EndPort)}
	case netv1.RuleUDP:
		return []datapath.Ports{portRange(datapath.UDP, r.Port, r.EndPort)}
	case netv1.RuleICMP:
		switch {
		case r.ICMPType == nil:
			return []datapath.Ports{datapath.AllPorts(datapath.ICMP)}
		case r.ICMPCode == nil:
			return []datapath.Ports{datapath.ICMPType(uint8(*r.ICMPType))}
		}
		return []datapath.Ports{datapath.ICMPCode(uint8(*r.ICMPType), uint8(*r.ICMPCode))}
	}
	return nil
}

func portRange(protocol datapath.Protocol, first, last *int32) datapath.Ports {
	switch {
	case first == nil:
		return datapath.AllPorts(protocol)
	case last == nil:
		last = first
	}
	return datapath.Ports{Protocol: protocol, First: uint16(*first), Last: uint16(*last)}
}
