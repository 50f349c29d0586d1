package desired

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/daemon/attachment"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// Attachment is an attachment of this node and the index of its host side.
type Attachment struct {
	attachment.Record
	Ifindex int
}

// Input is everything that the maps depend on.
type Input struct {
	// Node is this node's name; empty on a member that is not a node.
	Node string
	// Address is this node's on the underlay.
	Address netip.Addr
	// Attachments of this node.
	Attachments []Attachment
	// ExtraHosts are members that are not nodes.
	ExtraHosts []netip.Addr

	// Reserved are ranges that no route leads to, and that no interface sends from.
	Reserved []netip.Prefix

	Nodes       []corev1.Node
	Subnets     []netv1.Subnet
	RouteTables []netv1.RouteTable
	VPCPeerings []netv1.VPCPeering
	Interfaces  []netv1.NetworkInterface
	Services    []corev1.Service
	// AddressPools have the external addresses, FloatingIPs give them to interfaces.
	AddressPools []netv1.AddressPool
	FloatingIPs  []netv1.FloatingIP
	NATGateways  []netv1.NATGateway
	// PortBlocks are all nodes'. GivenBack are the names of those of this node that it translates with no more,
	// Draining of those with which it begins nothing new.
	PortBlocks          []netv1.PortBlock
	GivenBack, Draining map[string]bool
	Slices              []discoveryv1.EndpointSlice

	SecurityGroups  []netv1.SecurityGroup
	NetworkPolicies []networkingv1.NetworkPolicy
	// Pods and Namespaces are what NetworkPolicies select: labels, and Pods' named ports.
	Pods       []corev1.Pod
	Namespaces []corev1.Namespace
}

// State is what the maps should hold.
type State struct {
	Subnets   map[uint32]datapath.Subnet
	NICs      map[uint32]datapath.NIC
	Endpoints map[datapath.EndpointKey]datapath.Endpoint
	Routes    map[datapath.RouteKey]datapath.Route
	// Hops are the interfaces of this node that send on what others sent.
	Hops    map[datapath.HopKey]datapath.Hop
	Members map[netip.Addr]datapath.Member
	// Forwarders are the members that may send as addresses of a VPC that they do not have.
	Forwarders map[datapath.ForwarderKey]datapath.Forwarder
	Services   map[datapath.ServiceKey]datapath.Service
	// Externals say what has external addresses, Floatings which external address an interface has.
	Externals map[netip.Prefix]datapath.External
	Floatings map[datapath.FloatingKey]datapath.Floating
	// NAT is how interfaces leave by NATGateways.
	NAT datapath.NATState
	// Policies of interfaces that have any, by the index of the host side. They are given numbers, which go into NICs, when they
	// are written.
	Policies map[uint32]Policies
}

func newState() State {
	return State{
		Subnets:    map[uint32]datapath.Subnet{},
		NICs:       map[uint32]datapath.NIC{},
		Endpoints:  map[datapath.EndpointKey]datapath.Endpoint{},
		Routes:     map[datapath.RouteKey]datapath.Route{},
		Hops:       map[datapath.HopKey]datapath.Hop{},
		Members:    map[netip.Addr]datapath.Member{},
		Forwarders: map[datapath.ForwarderKey]datapath.Forwarder{},
		Services:   map[datapath.ServiceKey]datapath.Service{},
		Externals:  map[netip.Prefix]datapath.External{},
		Floatings:  map[datapath.FloatingKey]datapath.Floating{},
		NAT:        datapath.NATState{Subnets: map[uint32][]datapath.PortBlock{}, Kept: map[uint32][]datapath.PortBlock{}, Members: map[datapath.PortBlock]netip.Addr{}},
		Policies:   map[uint32]Policies{},
	}
}

// Compute says what the maps of a node should hold. It knows of other VPCs, but for those that its own are peered with, only their
// infrastructure addresses.
func Compute(in Input) State {
	s := newState()
	members := Members(in.Nodes, in.ExtraHosts)
	s.addMembers(members, in.Address)

	vpcs := map[uint32]bool{netv1.DefaultVPCID: true}
	local := current(in.Attachments, in.Interfaces, in.Node)
	for _, a := range local {
		vpcs[a.Interface.VPCID] = true
	}
	addresses := map[string]netip.Addr{}
	for _, m := range members {
		addresses[m.Node] = m.Address
	}
	peers := peersOf(in, vpcs)
	s.addRemote(in.Interfaces, vpcs, peers, addresses, in.Node)
	for _, a := range local {
		s.merge(Local(a))
	}
	s.addSubnets(in.Subnets, vpcs, peers)
	s.addRoutes(in, local, peers)
	s.addExternals(in, vpcs, addresses)
	s.addNAT(in, local, addresses)
	s.addPolicies(in, local)
	s.addServices(in.Services, in.Slices, tenantsOf(in.Interfaces, vpcs), in.Node)
	s.noteNoServices()
	return s
}

// merge adds the entries of another state; they win.
func (s *State) merge(other State) {
	for k, v := range other.Subnets {
		s.Subnets[k] = v
	}
	for k, v := range other.NICs {
		s.NICs[k] = v
	}
	for k, v := range other.Endpoints {
		s.Endpoints[k] = v
	}
	for k, v := range other.Hops {
		s.Hops[k] = v
	}
}

// Of selects what an attachment needs at once. When its VPC is new to the node that is everything of the VPC and its peers, otherwise
// the attachment's own entries.
func (s State) Of(a Attachment, newVPC bool) State {
	part := newState()
	own := Local(a)
	reached := map[uint32]bool{a.Interface.VPCID: true}
	for key, route := range s.Routes {
		if key.VNI == a.Interface.VNI {
			part.Routes[key] = route
			if route.Kind == datapath.RoutePeer {
				reached[route.VPCID] = true
			}
		}
	}
	for vni, subnet := range s.Subnets {
		if reached[subnet.VPCID] {
			part.Subnets[vni] = subnet
		}
	}
	for key, endpoint := range s.Endpoints {
		if _, mine := own.Endpoints[key]; mine || newVPC && reached[endpoint.VPCID] {
			part.Endpoints[key] = endpoint
		}
	}
	for key, hop := range s.Hops {
		if hop.Ifindex == uint32(a.Ifindex) {
			part.Hops[key] = hop
		}
	}
	for key := range s.Forwarders {
		if key.VPCID == a.Interface.VPCID {
			part.Forwarders[key] = datapath.Forwarder{}
		}
	}
	for key, floating := range s.Floatings {
		if key.VPCID == a.Interface.VPCID {
			part.Floatings[key] = floating
		}
	}
	if nic, ok := s.NICs[uint32(a.Ifindex)]; ok {
		part.NICs[uint32(a.Ifindex)] = nic
	}
	return part
}
