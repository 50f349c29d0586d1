// SPDX-License-Identifier: Apache-2.0
/* The four programs of a node. docs/design/network.md tells what each does and why. */
#include "arp.h"
#include "drop.h"
#include "explain.h"
#include "forward.h"
#include "ipv6.h"
#include "resolver.h"
#include "source.h"
#include "trace.h"
#include "uplink.h"

/* Reads the Ethernet header; what is not IPv4 is a reason to drop. VLAN tags would be carried along unseen. */
static __always_inline int parse_ethernet(struct __sk_buff *skb)
{
	if (!pull(skb, ETH_HLEN))
		return DROP(DROP_MALFORMED);
	struct ethhdr *eth = packet_data(skb);

	if ((void *)(eth + 1) > packet_end(skb))
		return DROP(DROP_MALFORMED);
	if (skb->vlan_present)
		return DROP(DROP_UNKNOWN_ETHERTYPE);
	if (eth->h_proto == bpf_htons(ETH_P_IPV6))
		return refuse_ipv6(skb);
	if (eth->h_proto != bpf_htons(ETH_P_IP))
		return DROP(DROP_UNKNOWN_ETHERTYPE);
	return 0;
}

static __always_inline int refuse_group(const struct ethhdr *eth, __be32 destination)
{
	if (destination == 0xffffffff || same_mac(eth->h_dest, (const __u8[ETH_ALEN]){ 255, 255, 255, 255, 255, 255 }))
		return DROP(DROP_BROADCAST);
	if ((destination & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000) || (eth->h_dest[0] & 1))
		return DROP(DROP_MULTICAST);
	return 0;
}

/* Whether an interface may send a packet whose source is not its own. Never from a range that the cloud keeps for itself, nor to a
 * Service: those are the clients' own to reach. In the default Subnet every other address is somebody else's. */
static __always_inline int check_forwarded(const struct nic *nic, const struct packet *p)
{
	if (!(nic->flags & NIC_NO_SOURCE_DEST_CHECK) || nic->vni == default_vni)
		return DROP(DROP_SPOOFED_ADDRESS);
	struct route *back = route_to(nic->vni, p->source);

	if ((back && back->kind == ROUTE_RESERVED) || in_service_cidr(p->destination) || p->destination == hairpin_address ||
	    p->destination == resolver_address)
		return DROP(DROP_RESERVED_RANGE);
	return 0;
}

static __always_inline int from_pod(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct nic *nic = bpf_map_lookup_elem(&nics, &ifindex);
	struct packet p = {};

	if (!nic)
		return DROP(DROP_UNKNOWN_INTERFACE);
	if (!pull(skb, ETH_HLEN))
		return DROP(DROP_MALFORMED);
	struct ethhdr *eth = packet_data(skb);

	if ((void *)(eth + 1) > packet_end(skb))
		return DROP(DROP_MALFORMED);
	if (!same_mac(eth->h_source, nic->mac))
		return DROP(DROP_SPOOFED_MAC);
	if (eth->h_proto == bpf_htons(ETH_P_ARP) && !skb->vlan_present)
		return answer_arp(skb, nic);
	int error = parse_ethernet(skb);

	if (!error)
		error = parse_ipv4(skb, &p);
	if (error)
		return error;
	eth = packet_data(skb);
	if ((void *)(eth + 1) > packet_end(skb))
		return DROP(DROP_MALFORMED);
	error = refuse_group(eth, p.destination);
	if (error)
		return error;
	if (!is_ipv4(&nic->address, p.source)) {
		error = check_forwarded(nic, &p);
		if (error)
			return error;
	}
	trace_step(STEP_SOURCE, nic->vpc_id, p.source, !is_ipv4(&nic->address, p.source));
	if (nic->vni == default_vni)
		return forward_default(skb, &p, nic);
	if (p.destination == resolver_address) {
		error = ask_resolver(skb, &p, nic);
		return error ? error : to_host(skb);
	}
	if (is_alias(p.destination) || in_infrastructure_cidr(p.destination)) {
		error = answer_to_opener(skb, &p, nic);
		return error ? error : to_opener(skb, &p);
	}
	return forward_in_vpc(skb, &p, nic);
}

/* The host forwards for others, too (NodePorts): their addresses are not its own. */
static __always_inline bool is_own_host(__be32 address)
{
	struct endpoint_key key = { .vni = default_vni, .address = ipv4(address) };
	struct endpoint *endpoint = bpf_map_lookup_elem(&endpoints, &key);

	return endpoint && endpoint->kind == ENDPOINT_HOST && is_zero(&endpoint->node);
}

static __always_inline int from_host(struct __sk_buff *skb)
{
	struct packet p = {};
	int error = parse_ethernet(skb);

	if (!error)
		error = parse_ipv4(skb, &p);
	if (error)
		return error;
	if (p.source == resolver_address)
		return answer_query(skb, &p);
	p.exempt = is_own_host(p.source);
	return forward_default(skb, &p, NULL);
}

/* From a member to an interface of this node that sends on what others sent. */
static __always_inline int to_hop(struct __sk_buff *skb, struct packet *p, __u32 vni, const struct ethhdr *eth, const struct address *member,
				  const struct endpoint *source)
{
	struct hop_key key = { .vni = vni };

	__builtin_memcpy(key.mac, eth->h_dest, ETH_ALEN);
	struct hop *hop = bpf_map_lookup_elem(&hops, &key);

	if (!hop)
		return DROP(DROP_NO_NEXT_HOP);
	__u32 ifindex = hop->ifindex;
	struct nic *nic = bpf_map_lookup_elem(&nics, &ifindex);

	if (!nic || nic->vni != vni || !(nic->flags & NIC_NO_SOURCE_DEST_CHECK))
		return DROP(DROP_DESTINATION_CHECK);
	int error = check_source(p, vni, nic->vpc_id, member, source);

	return error ? error : admit(skb, p, nic, ifindex);
}

static __always_inline int from_member(struct __sk_buff *skb)
{
	struct endpoint_key key = {};
	struct bpf_tunnel_key tunnel = {};
	struct packet p = {};

	if (!trace_from(&tunnel) && bpf_skb_get_tunnel_key(skb, &tunnel, sizeof(tunnel), 0))
		return DROP(DROP_NO_TUNNEL);
	struct address member = ipv4(bpf_htonl(tunnel.remote_ipv4));

	int error = parse_ethernet(skb);

	if (!error)
		error = parse_ipv4(skb, &p);
	if (error)
		return bpf_map_lookup_elem(&members, &member) ? error : DROP(DROP_UNKNOWN_MEMBER);
	key.vni = tunnel.tunnel_id;
	key.address = ipv4(p.source);
	struct endpoint *source = bpf_map_lookup_elem(&endpoints, &key);

	if (!is_at(source, &member) && !bpf_map_lookup_elem(&members, &member))
		return DROP(DROP_UNKNOWN_MEMBER);
	trace_step(STEP_MEMBER, tunnel.tunnel_id, member.w[3], false);
	struct ethhdr *eth = packet_data(skb);

	if ((void *)(eth + 1) > packet_end(skb))
		return DROP(DROP_MALFORMED);
	if (tunnel.tunnel_id == outside_vni)
		return from_member_external(skb, &p, &member);
	if (is_to_hop(eth))
		return to_hop(skb, &p, tunnel.tunnel_id, eth, &member, source);
	key.address = ipv4(p.destination);
	struct endpoint *endpoint = bpf_map_lookup_elem(&endpoints, &key);

	if (!endpoint)
		return bpf_map_lookup_elem(&subnets, &key.vni) ? DROP(DROP_NO_ENDPOINT) : DROP(DROP_UNKNOWN_VNI);
	if (!is_zero(&endpoint->node))
		return DROP(DROP_NOT_LOCAL);
	if (endpoint->kind == ENDPOINT_INFRASTRUCTURE) {
		if (!may_open(p.source, &member))
			return DROP(DROP_INFRASTRUCTURE_ADDRESS);
		return open_to_interface(skb, &p, endpoint->ifindex, endpoint->vpc_id);
	}
	error = check_source(&p, key.vni, endpoint->vpc_id, &member, source);
	if (error)
		return error;
	trace_step(STEP_MEMBER_SOURCE, key.vni, p.source, false);
	if (endpoint->kind == ENDPOINT_HOST)
		return to_own_host(skb, &p);
	return to_interface(skb, &p, key.vni, endpoint);
}

/* At the host side of a Pod's veth: what the Pod sends. */
SEC("tc")
int pod_egress(struct __sk_buff *skb)
{
	return conclude(skb, from_pod(skb), FROM_POD);
}

/* At the far end of the host's veth: what the host sends to Pods and Services. */
SEC("tc")
int host_egress(struct __sk_buff *skb)
{
	return conclude(skb, from_host(skb), FROM_HOST);
}

/* At the vxlan device: what other members send. */
SEC("tc")
int vxlan_ingress(struct __sk_buff *skb)
{
	return finish(skb, from_member(skb));
}

/* At the uplink: what comes from outside for external addresses. The rest is the host's own, and left as it is. */
SEC("tc")
int uplink_ingress(struct __sk_buff *skb)
{
	struct external *external = arrived(skb);

	if (!external) {
		trace_redirect(TRACE_STACK, skb->ifindex);
		return TC_ACT_UNSPEC; /* the programs after this one, if any, decide */
	}
	return conclude(skb, from_outside(skb, external), FROM_OUTSIDE);
}

char _license[] SEC("license") = "Apache-2.0";
