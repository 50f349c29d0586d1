package desired

import (
	"fmt"
	"maps"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/attachment"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// current are the attachments that have a right to their addresses now: of an interface that still exists, that is still
// this Pod's and on this node, and the newest of them when the Pod's sandbox was made again. The others are cut off. What can change
// while a Pod is attached is as the interface says it now.
func current(attachments []Attachment, interfaces []netv1.NetworkInterface, node string) []Attachment {
	holders := map[types.UID]*netv1.NetworkInterface{}
	for i := range interfaces {
		nic := &interfaces[i]
		if nic.Spec.Pod != nil && nic.Spec.Node == node {
			holders[nic.UID] = nic
		}
	}
	newest := Newest(attachments)
	maps.DeleteFunc(newest, func(uid types.UID, a Attachment) bool {
		nic := holders[uid]
		return nic == nil || nic.Spec.Pod.UID != a.Interface.Pod.UID
	})
	all := make([]Attachment, 0, len(newest))
	for uid, a := range newest {
		a.Interface.SourceDestCheck = checksAddresses(holders[uid])
		all = append(all, a)
	}
	return all
}

// Newest is the newest attachment of each interface, by its UID.
func Newest(attachments []Attachment) map[types.UID]Attachment {
	newest := map[types.UID]Attachment{}
	for _, a := range attachments {
		if n, ok := newest[a.Interface.UID]; !ok || n.Sequence < a.Sequence {
			newest[a.Interface.UID] = a
		}
	}
	return newest
}

// Local are the entries of one attachment that need nothing from the API server.
func Local(a Attachment) State {
	s := newState()
	nic := a.Interface
	mac, err := datapath.ParseMAC(nic.MAC)
	if err != nil {
		return s
	}
	gatewayMAC, err := datapath.ParseMAC(nic.GatewayMAC)
	if err != nil {
		return s
	}
	s.Subnets[nic.VNI] = datapath.Subnet{VPCID: nic.VPCID, Prefix: nic.Prefix.Masked(), Gateway: nic.Gateway, GatewayMAC: gatewayMAC}
	entry := datapath.NIC{
		VNI: nic.VNI, VPCID: nic.VPCID, Address: nic.Prefix.Addr(), PrefixLength: uint8(nic.Prefix.Bits()),
		MAC: mac, GatewayMAC: gatewayMAC, NoSourceDestCheck: !nic.SourceDestCheck,
	}
	endpoint := datapath.Endpoint{VPCID: nic.VPCID, Kind: kindOf(nic.VNI, nic.Platform), MAC: mac, Ifindex: uint32(a.Ifindex)}
	s.Endpoints[datapath.EndpointKey{VNI: nic.VNI, Address: nic.Prefix.Addr()}] = endpoint
	if nic.VNI != netv1.DefaultVNI {
		entry.Infrastructure = nic.Infrastructure
		endpoint.Kind = datapath.EndpointInfrastructure
		s.Endpoints[datapath.EndpointKey{VNI: netv1.DefaultVNI, Address: nic.Infrastructure}] = endpoint
	}
	s.NICs[uint32(a.Ifindex)] = entry
	if entry.NoSourceDestCheck && nic.VNI != netv1.DefaultVNI {
		s.Hops[datapath.HopKey{VNI: nic.VNI, MAC: mac}] = datapath.Hop{Ifindex: uint32(a.Ifindex)}
	}
	return s
}

func checksAddresses(nic *netv1.NetworkInterface) bool {
	return nic.Spec.SourceDestCheck == nil || *nic.Spec.SourceDestCheck
}

// kindOf is what answers at an interface's own address. Only ordinary Pods can be the platform's.
func kindOf(vni uint32, platform bool) datapath.EndpointKind {
	if platform && vni == netv1.DefaultVNI {
		return datapath.EndpointPlatform
	}
	return datapath.EndpointInterface
}

// addRemote adds the endpoints on other nodes: those of the VPCs that have an interface here and of their peers, and everyone's
// infrastructure address.
func (s *State) addRemote(interfaces []netv1.NetworkInterface, vpcs map[uint32]bool, peers peering, nodes map[string]netip.Addr, own string) {
	for i := range interfaces {
		nic := &interfaces[i]
		node, known := nodes[nic.Spec.Node]
		if nic.Spec.Pod == nil || nic.Spec.Node == own || !known {
			continue
		}
		mac, err := datapath.ParseMAC(nic.Status.MAC)
		if err != nil {
			continue // not allocated yet
		}
		if !checksAddresses(nic) && vpcs[nic.Status.VPCID] {
			s.Forwarders[datapath.ForwarderKey{Member: node, VPCID: nic.Status.VPCID}] = datapath.Forwarder{}
		}
		endpoint := datapath.Endpoint{VPCID: nic.Status.VPCID, Kind: kindOf(nic.Status.VNI, nic.Spec.Platform), MAC: mac, Node: node}
		if address, err := netip.ParseAddr(nic.Status.Address); err == nil && (vpcs[nic.Status.VPCID] || peers.all[nic.Status.VPCID]) {
			s.Endpoints[datapath.EndpointKey{VNI: nic.Status.VNI, Address: address}] = endpoint
		}
		if address, err := netip.ParseAddr(nic.Status.InfrastructureAddress); err == nil && nic.Status.VNI != netv1.DefaultVNI {
			endpoint.Kind = datapath.EndpointInfrastructure
			s.Endpoints[datapath.EndpointKey{VNI: netv1.DefaultVNI, Address: address}] = endpoint
		}
	}
}

// addSubnets adds the Subnets of the VPCs and of their peers. What an attachment says of its Subnet is the same, so neither wins.
func (s *State) addSubnets(subnets []netv1.Subnet, vpcs map[uint32]bool, peers peering) {
	for i := range subnets {
		status := &subnets[i].Status
		if !vpcs[status.VPCID] && !peers.all[status.VPCID] || status.VNI == 0 {
			continue
		}
		prefix, err := netip.ParsePrefix(subnets[i].Spec.CIDR)
		if err != nil {
			continue
		}
		gateway, err := netip.ParseAddr(status.GatewayAddress)
		if err != nil {
			continue
		}
		mac, err := datapath.ParseMAC(status.GatewayMAC)
		if err != nil {
			continue
		}
		s.Subnets[status.VNI] = datapath.Subnet{VPCID: status.VPCID, Prefix: prefix, Gateway: gateway, GatewayMAC: mac}
	}
}

// InterfaceOf is what an attachment needs of a NetworkInterface and its Subnet. It fails while either has not been given
// everything yet.
func InterfaceOf(nic *netv1.NetworkInterface, subnet *netv1.Subnet) (attachment.Interface, error) {
	var i attachment.Interface
	address, err := netip.ParseAddr(nic.Status.Address)
	if err != nil {
		return i, missing("NetworkInterface", nic.Name, "status.address", err)
	}
	prefix, err := address.Prefix(int(nic.Status.PrefixLength))
	if err != nil || nic.Status.PrefixLength == 0 {
		return i, missing("NetworkInterface", nic.Name, "status.prefixLength", err)
	}
	infrastructure, err := netip.ParseAddr(nic.Status.InfrastructureAddress)
	if err != nil {
		return i, missing("NetworkInterface", nic.Name, "status.infrastructureAddress", err)
	}
	mac, err := datapath.ParseMAC(nic.Status.MAC)
	if err != nil {
		return i, missing("NetworkInterface", nic.Name, "status.mac", err)
	}
	gateway, err := netip.ParseAddr(nic.Status.GatewayAddress)
	if err != nil {
		return i, missing("NetworkInterface", nic.Name, "status.gatewayAddress", err)
	}
	gatewayMAC, err := datapath.ParseMAC(subnet.Status.GatewayMAC)
	if err != nil {
		return i, missing("Subnet", subnet.Name, "status.gatewayMAC", err)
	}
	if nic.Status.VNI == 0 || nic.Status.VPCID == 0 {
		return i, missing("NetworkInterface", nic.Name, "status.vni or status.vpcID", nil)
	}
	return attachment.Interface{
		Name: nic.Name, UID: nic.UID,
		Pod:   attachment.Pod{Namespace: nic.Spec.Pod.Namespace, Name: nic.Spec.Pod.Name, UID: nic.Spec.Pod.UID},
		VPCID: nic.Status.VPCID, VNI: nic.Status.VNI,
		Prefix: netip.PrefixFrom(address, prefix.Bits()), MAC: mac.String(),
		Gateway: gateway, GatewayMAC: gatewayMAC.String(), Infrastructure: infrastructure,
		Platform:        nic.Spec.Platform,
		SourceDestCheck: checksAddresses(nic),
	}, nil
}

func missing(kind, name, field string, cause error) error {
	if cause == nil {
		return fmt.Errorf("%s %s has no %s yet", kind, name, field)
	}
	return fmt.Errorf("%s %s has no %s yet: %w", kind, name, field, cause)
}
