package datapath

import (
	"fmt"
	"net"
	"net/netip"
)

// MAC is an Ethernet address.
type MAC [6]byte

// ParseMAC reads a MAC address in the usual form, 02:00:5e:10:00:01.
func ParseMAC(s string) (MAC, error) {
	hw, err := net.ParseMAC(s)
	if err != nil {
		return MAC{}, err
	}
	if len(hw) != len(MAC{}) {
		return MAC{}, fmt.Errorf("address %s: %d bytes long, an Ethernet address has 6", s, len(hw))
	}
	return MAC(hw), nil
}

// HardwareAddr is the address as package net has it.
func (m MAC) HardwareAddr() net.HardwareAddr { return net.HardwareAddr(m[:]) }

func (m MAC) String() string { return m.HardwareAddr().String() }

// Subnet is an address range of a VPC. Its key is its VNI.
type Subnet struct {
	VPCID      uint32
	Prefix     netip.Prefix
	Gateway    netip.Addr
	GatewayMAC MAC
}

// NIC is an interface on this node: what may come from it and what may be delivered to it. Its key is the ifindex of
// its host side. Set it before AttachPod: a program that finds no entry drops everything.
type NIC struct {
	VNI, VPCID uint32
	// Address in the Subnet, and the Subnet's prefix length: addresses within are resolved by ARP.
	Address      netip.Addr
	PrefixLength uint8
	MAC          MAC
	// GatewayMAC is the Subnet's: it answers ARP and is the source of everything delivered.
	GatewayMAC MAC
	// Infrastructure is the interface's infrastructure address; the zero Addr where Address is one itself.
	Infrastructure netip.Addr
	// NoSourceDestCheck lets the interface send from, and receive for, addresses not its own.
	NoSourceDestCheck bool
	// NoServices tells that no packet to the interface can be a Service's backend's answer: its VPC has no Services, and it has had no flow
	// through any. Such packets are not looked for.
	NoServices bool
	// IngressPolicy is what may reach the interface, EgressPolicy what it may send; numbers that Policies gave.
	IngressPolicy, EgressPolicy PolicyID
}

// EndpointKey is an address in a Subnet.
type EndpointKey struct {
	VNI     uint32
	Address netip.Addr
}

// EndpointKind says what answers at an address.
type EndpointKind uint32

const (
	// EndpointInterface is an interface of a Pod or a virtual machine.
	EndpointInterface = EndpointKind(bpfEndpointKindENDPOINT_INTERFACE)
	// EndpointHost is the host of a member itself, in the default VNI: Node's zero Addr means this one.
	EndpointHost = EndpointKind(bpfEndpointKindENDPOINT_HOST)
	// EndpointInfrastructure is the infrastructure address, in the default VNI, of an interface in a tenant's VPC.
	EndpointInfrastructure = EndpointKind(bpfEndpointKindENDPOINT_INFRASTRUCTURE)
	// EndpointPlatform is an interface, in the default VNI, that may open connections to infrastructure addresses.
	EndpointPlatform = EndpointKind(bpfEndpointKindENDPOINT_PLATFORM)
)

// Endpoint says where an address is.
type Endpoint struct {
	VPCID uint32
	Kind  EndpointKind
	MAC   MAC
	// Node is the underlay address of the member that has it; the zero Addr means this node.
	Node netip.Addr
	// Ifindex of the host side on this node, for local interfaces.
	Ifindex uint32
}

// RouteKey is a destination seen from a Subnet. The longest prefix wins.
type RouteKey struct {
	VNI    uint32
	Prefix netip.Prefix
}

// RouteKind says where a route leads.
type RouteKind uint32

const (
	// RouteLocal leads to the Subnet of the VPC that the destination is in.
	RouteLocal = RouteKind(bpfRouteKindROUTE_LOCAL)
	// RouteHop leads to an interface of the VPC without source and destination check, which sends on.
	RouteHop = RouteKind(bpfRouteKindROUTE_HOP)
	// RouteBlackhole leads nowhere, because somebody wants it so.
	RouteBlackhole = RouteKind(bpfRouteKindROUTE_BLACKHOLE)
	// RouteReserved leads nowhere, as the range is the cloud's own. No interface may send from there either.
	RouteReserved = RouteKind(bpfRouteKindROUTE_RESERVED)
	// RouteOutside leads out of the cloud, from an external address of the sender's.
	RouteOutside = RouteKind(bpfRouteKindROUTE_OUTSIDE)
	// RoutePeer leads to the Subnet of another VPC that the destination is in. Only an interface's own address may be sent from there.
	RoutePeer = RouteKind(bpfRouteKindROUTE_PEER)
)

func (k RouteKind) String() string {
	names := []string{"local", "hop", "blackhole", "reserved", "outside", "peer"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// Route says where packets to a destination go. A Subnet needs no route to itself.
type Route struct {
	Kind RouteKind
	// VNI of the Subnet of the VPC, or of a peer, that the destination is in, wherever the route leads; 0 when it is in none.
	VNI uint32
	// VPCID of a RoutePeer is the VPC that the Subnet is in.
	VPCID uint32
	// Hop is the next hop of a RouteHop; its zero Address, while there is none, drops.
	Hop EndpointKey
}

// HopKey is the MAC address, in a Subnet, by which other members find a next hop on this node.
type HopKey struct {
	VNI uint32
	MAC MAC
}

// Hop is an interface of this node that sends on what others sent.
type Hop struct {
	// Ifindex of the host side.
	Ifindex uint32
}

// Member is a node (or the machine) whose VXLAN is accepted. Its key is its underlay address.
type Member struct{}

// ForwarderKey is a member that has an interface without source check in a VPC.
type ForwarderKey struct {
	// Member is its underlay address.
	Member netip.Addr
	VPCID  uint32
}

// Forwarder lets a member send as addresses of the VPC that it does not have.
type Forwarder struct{}

// Protocol is an IP protocol number.
type Protocol uint8

// Protocols that have ports, and ICMP, which has types and codes.
const (
	ICMP Protocol = 1
	TCP  Protocol = 6
	UDP  Protocol = 17
)

func (p Protocol) String() string {
	switch p {
	case ICMP:
		return "ICMP"
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	default:
		return fmt.Sprintf("protocol %d", uint8(p))
	}
}
