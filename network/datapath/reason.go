package datapath

import "fmt"

// Reason says why a packet was dropped. Its String is short and stable: metrics have it as a label.
type Reason uint32

// Reasons that are decisions of a policy.
const (
	PolicyIngress = Reason(bpfDropReasonDROP_POLICY_INGRESS)
	PolicyEgress  = Reason(bpfDropReasonDROP_POLICY_EGRESS)
)

// reasons has each reason's name, what it means, and whether healthy traffic meets it too.
var reasons = [bpfDropReasonDROP_REASON_COUNT]struct {
	name, meaning string
	expected      bool
}{
	bpfDropReasonDROP_UNKNOWN_INTERFACE:       {"unknown_interface", "the interface has no entry (yet)", false},
	bpfDropReasonDROP_MALFORMED:               {"malformed", "headers are cut short or wrong", false},
	bpfDropReasonDROP_SPOOFED_MAC:             {"spoofed_mac", "the source MAC address is not the interface's", false},
	bpfDropReasonDROP_SPOOFED_ADDRESS:         {"spoofed_address", "the source address is not the interface's", false},
	bpfDropReasonDROP_SPOOFED_ARP:             {"spoofed_arp", "ARP speaks for another address", false},
	bpfDropReasonDROP_GRATUITOUS_ARP:          {"gratuitous_arp", "ARP that asks for or announces the sender's own address: nobody needs to hear it", true},
	bpfDropReasonDROP_ARP_OUT_OF_SUBNET:       {"arp_out_of_subnet", "ARP asks for an address outside the Subnet", false},
	bpfDropReasonDROP_BROADCAST:               {"broadcast", "broadcast is not carried", true},
	bpfDropReasonDROP_MULTICAST:               {"multicast", "multicast is not carried", true},
	bpfDropReasonDROP_IPV6:                    {"ipv6", "IPv6 is not supported yet", true},
	bpfDropReasonDROP_IPV6DISCOVERY:           {"ipv6_discovery", "IPv6 neighbour or listener discovery, which interfaces send by themselves", true},
	bpfDropReasonDROP_UNKNOWN_ETHERTYPE:       {"unknown_ethertype", "neither IP nor ARP", false},
	bpfDropReasonDROP_NO_ROUTE:                {"no_route", "no route of the VPC leads to the destination", false},
	bpfDropReasonDROP_OTHER_VPC:               {"other_vpc", "a route led to another VPC's endpoint", false},
	bpfDropReasonDROP_NO_ENDPOINT:             {"no_endpoint", "nothing has the destination address", false},
	bpfDropReasonDROP_INFRASTRUCTURE_ADDRESS:  {"infrastructure_address", "to the infrastructure address of an interface in a tenant's VPC, from one who may not open connections to it", false},
	bpfDropReasonDROP_DESTINATION_CHECK:       {"destination_check", "the interface found does not have the destination address", false},
	bpfDropReasonDROP_TTL_EXCEEDED:            {"ttl_exceeded", "the time to live ran out", false},
	bpfDropReasonDROP_MTU_EXCEEDED:            {"mtu_exceeded", "longer than the MTU", false},
	bpfDropReasonDROP_UNKNOWN_SERVICE:         {"unknown_service", "no Service has the destination address and port", false},
	bpfDropReasonDROP_NO_BACKEND:              {"no_backend", "the Service has no backends", false},
	bpfDropReasonDROP_SERVICE_PROTOCOL:        {"service_protocol", "neither TCP nor UDP to a Service", false},
	bpfDropReasonDROP_SERVICE_FRAGMENT:        {"service_fragment", "a later fragment to a Service whose first one did not come before", false},
	bpfDropReasonDROP_SERVICE_HOST_TO_HOST:    {"service_host_to_host", "from a host to a Service whose backend is another host or outside", false},
	bpfDropReasonDROP_CONNTRACK_COLLISION:     {"conntrack_collision", "no port was free to tell the flow from others", false},
	bpfDropReasonDROP_NO_CONNTRACK:            {"no_conntrack", "to the hairpin address without a flow", false},
	bpfDropReasonDROP_FORGED_VXLAN:            {"forged_vxlan", "a Pod's packet to the VXLAN port of a host or the outside", false},
	bpfDropReasonDROP_NO_TUNNEL:               {"no_tunnel", "on the vxlan device without tunnel metadata", false},
	bpfDropReasonDROP_UNKNOWN_MEMBER:          {"unknown_member", "VXLAN from an address that is no member's", false},
	bpfDropReasonDROP_UNKNOWN_VNI:             {"unknown_vni", "VXLAN of a VNI that is not on this node", false},
	bpfDropReasonDROP_NOT_LOCAL:               {"not_local", "VXLAN to an endpoint that is not on this node", false},
	bpfDropReasonDROP_KERNEL:                  {"kernel", "the kernel refused to change or redirect the packet", false},
	bpfDropReasonDROP_STALE_SOURCE:            {"stale_source", "VXLAN from a member that does not have the source address (any more)", false},
	bpfDropReasonDROP_NOT_OPENED:              {"not_opened", "a tenant's packet to a host alias or an infrastructure address that answers nothing", false},
	bpfDropReasonDROP_INFRASTRUCTURE_FRAGMENT: {"infrastructure_fragment", "a fragment to an infrastructure address, or of the answer", false},
	bpfDropReasonDROP_INFRASTRUCTURE_PROTOCOL: {"infrastructure_protocol", "to an infrastructure address: neither TCP, UDP, an echo request nor an ICMP error about a flow", false},
	bpfDropReasonDROP_BLACKHOLE:               {"blackhole", "a route of the route table says that it leads nowhere", false},
	bpfDropReasonDROP_NO_NEXT_HOP:             {"no_next_hop", "the interface that a route leads to is not there, or sends nothing on", false},
	bpfDropReasonDROP_ROUTE_LOOP:              {"route_loop", "a route leads back to the interface that sends", false},
	bpfDropReasonDROP_PEERING_TRANSIT:         {"peering_transit", "an interface that sends on what others sent, to a peer of its VPC", false},
	bpfDropReasonDROP_RESERVED_RANGE:          {"reserved_range", "to, or sent on from or to, a range that the cloud keeps for itself", false},
	bpfDropReasonDROP_EXTERNAL_FREE:           {"external_free", "to an external address that nothing has", false},
	bpfDropReasonDROP_NO_EXTERNAL:             {"no_external", "a route leads out of the cloud, but the sender has no external address to leave from", false},
	bpfDropReasonDROP_OUTSIDE_SOURCE:          {"outside_source", "from outside, with a source address that is the cloud's own or nobody's", false},
	bpfDropReasonDROP_POLICY_INGRESS:          {"policy_ingress", "no rule of the destination interface's policy lets it in", false},
	bpfDropReasonDROP_POLICY_EGRESS:           {"policy_egress", "no rule of the interface's policy lets it out", false},
	bpfDropReasonDROP_NAT_NO_PORTS:            {"nat_no_ports", "the node has no PortBlock of the NATGateway (yet)", false},
	bpfDropReasonDROP_NAT_EXHAUSTED:           {"nat_exhausted", "no port of the NATGateway's addresses is free towards the destination", false},
	bpfDropReasonDROP_NAT_PROTOCOL:            {"nat_protocol", "by a NATGateway: neither TCP, UDP, ping nor an ICMP error about a flow", false},
	bpfDropReasonDROP_NAT_UNKNOWN_FLOW:        {"nat_unknown_flow", "by or to a NATGateway's address, and of no connection that was opened from inside", true},
	bpfDropReasonDROP_RESOLVER_PROTOCOL:       {"resolver_protocol", "to or from the VPC's resolver, and neither UDP nor TCP of its port 53", false},
	bpfDropReasonDROP_RESOLVER_RATE:           {"resolver_rate", "the interface asks the VPC's resolver too much: more than 1,024 packets a second", false},
	bpfDropReasonDROP_RESOLVER_DOWN:           {"resolver_down", "the host says that nothing listens at the resolver's address; who asked waits and asks again", false},
	bpfDropReasonDROP_UNKNOWN_FRAGMENT:        {"unknown_fragment", "a later fragment of a packet whose first one did not come before", false},
}

func (r Reason) String() string {
	if int(r) < len(reasons) && reasons[r].name != "" {
		return reasons[r].name
	}
	return fmt.Sprintf("reason_%d", uint32(r))
}

// Meaning is a sentence for people.
func (r Reason) Meaning() string {
	if int(r) < len(reasons) && reasons[r].name != "" {
		return reasons[r].meaning
	}
	return "unknown: counted by another version"
}

// Remedy is what to do about it; empty where nothing is to be done.
func (r Reason) Remedy() string { return remedies[r] }

// Expected tells that healthy interfaces cause it too: it is no sign of a fault or an attack.
func (r Reason) Expected() bool { return int(r) < len(reasons) && reasons[r].expected }

// Reasons returns all reasons, in the order of their numbers.
func Reasons() []Reason {
	var all []Reason
	for r := Reason(1); int(r) < len(reasons); r++ {
		all = append(all, r)
	}
	return all
}
