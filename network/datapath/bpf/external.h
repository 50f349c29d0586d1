/* SPDX-License-Identifier: Apache-2.0 */
/* External addresses: what the outside knows interfaces by. A FloatingIP gives an interface one of its own, and translates
 * addresses alone: no state, so that fragments and every protocol pass. What came from outside, and what an interface sends
 * to an external address, is translated to the interface that has it where that is; nodes send it to each other as it came, in a VNI
 * that is no Subnet's. */
#pragma once

#include "caller.h"
#include "config.h"
#include "deliver.h"
#include "icmp.h"
#include "maps.h"
#include "nat_way.h"
#include "packet.h"
#include "policy.h"
#include "service.h"
#include "trace.h"

/* What an address belongs to; NULL: it is no external address. The keys of these look-ups are in frames of their own: all frames of a
 * chain of calls share 512 bytes. */
static __noinline struct external *external_of(__be32 address)
{
	struct external_key key = { .prefix_length = 128, .prefix = ipv4(address) };

	return bpf_map_lookup_elem(&externals, &key);
}

/* The external address of an interface; NULL: it has none. */
static __noinline struct floating *floating_of(__u32 vpc_id, __be32 address)
{
	struct floating_key key = { .vpc_id = vpc_id, .address = ipv4(address) };

	return bpf_map_lookup_elem(&floatings, &key);
}

/* Whether an address is one of the default VPC, hosts among them. */
static __noinline bool is_of_the_cloud(__be32 address)
{
	struct endpoint_key key = { .vni = default_vni, .address = ipv4(address) };

	return bpf_map_lookup_elem(&endpoints, &key);
}

/* Translates what an ICMP error quotes when it is the packet of the one whose address changes. Of a TCP header nobody looks at the
 * checksum there. */
static __noinline int translate_quote(struct __sk_buff *skb, const struct packet *p, __be32 source, __be32 destination)
{
	struct quote old, quote;
	__u32 at = p->l4_offset;

	if (bpf_skb_load_bytes(skb, at + sizeof(struct icmp), &old, sizeof(old)) || old.ip.version != 4 || old.ip.ihl != 5)
		return 0;
	quote = old;
	if (old.ip.saddr == p->destination)
		quote.ip.saddr = destination;
	if (old.ip.daddr == p->source)
		quote.ip.daddr = source;
	quote.ip.check = checksum_replace(checksum_replace(old.ip.check, old.ip.saddr, quote.ip.saddr), old.ip.daddr, quote.ip.daddr);
	if (old.ip.protocol == IPPROTO_UDP && old.udp_check && !(old.ip.frag_off & bpf_htons(IP_FRAGMENT_OFFSET))) {
		__u16 check = checksum_replace(checksum_replace(old.udp_check, old.ip.saddr, quote.ip.saddr), old.ip.daddr, quote.ip.daddr);

		quote.udp_check = check ? check : 0xffff;
	}
	__s64 difference = bpf_csum_diff((__be32 *)&old, sizeof(old), (__be32 *)&quote, sizeof(quote), 0);

	if (difference < 0 || bpf_l4_csum_replace(skb, at + offsetof(struct icmp, check), 0, difference, 0) ||
	    bpf_skb_store_bytes(skb, at + sizeof(struct icmp), &quote, sizeof(quote), 0))
		return DROP(DROP_KERNEL);
	return 0;
}

/* Gives a packet of any protocol, or a fragment, other addresses. Of fragments the first has the checksum. */
static __noinline int translate_addresses(struct __sk_buff *skb, struct packet *p, __be32 source, __be32 destination)
{
	__u64 flags = BPF_F_PSEUDO_HDR | 4 | (p->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0);
	__u32 check = p->l4_offset + (p->protocol == IPPROTO_UDP ? offsetof(struct udphdr, check) : offsetof(struct tcphdr, check));
	int error = 0;

	if (!p->fragment && is_icmp_error(skb, p))
		error = translate_quote(skb, p, source, destination);
	if (error)
		return error;
	if (!p->later && (p->protocol == IPPROTO_TCP || p->protocol == IPPROTO_UDP)) {
		if (source != p->source)
			error |= bpf_l4_csum_replace(skb, check, p->source, source, flags);
		if (destination != p->destination)
			error |= bpf_l4_csum_replace(skb, check, p->destination, destination, flags);
		if (error)
			return DROP(DROP_KERNEL);
	}
	return set_addresses(skb, p, source, destination);
}

/* To the member that has an external address's target, as it is. */
static __always_inline int to_member_external(struct __sk_buff *skb, const struct address *node)
{
	struct endpoint there = { .node = *node };

	return through_tunnel(skb, outside_vni, &there, NULL);
}

/* To the interface of this node that gets what is for an external address, which it has alone or sent something from. */
static __always_inline int to_target(struct __sk_buff *skb, struct packet *p, const struct external *external)
{
	struct endpoint_key key = { .vni = external->vni, .address = external->target };
	__u32 vpc_id = external->vpc_id;
	bool nat = external->kind == EXTERNAL_NAT;
	int error = 0;

	if (nat) {
		struct nat_scratch *s = nat_scratch();

		if (!s)
			return DROP(DROP_KERNEL);
		error = nat_in(s);
		if (error)
			return error;
		key.vni = s->flow.vni;
		key.address = s->flow.via;
		vpc_id = s->flow.vpc_id;
	}
	struct endpoint *endpoint = bpf_map_lookup_elem(&endpoints, &key);

	if (!endpoint)
		return DROP(DROP_NO_ENDPOINT);
	if (!is_zero(&endpoint->node))
		return DROP(DROP_NOT_LOCAL);
	if (endpoint->vpc_id != vpc_id)
		return DROP(DROP_OTHER_VPC);
	if (nat) {
		error = nat_translate(skb, p, false);
	} else {
		trace_step(STEP_EXTERNAL, key.vni, key.address.w[3], false);
		note_caller(skb, p, key.address.w[3], key.vni, vpc_id);
		error = translate_addresses(skb, p, p->source, key.address.w[3]);
	}
	return error ? error : to_interface(skb, p, key.vni, endpoint);
}

/* To whatever has the external address that a packet is for, on this node or another. What a member sent on is not sent on again. */
static __always_inline int to_external(struct __sk_buff *skb, struct packet *p, const struct external *external, bool sent_on)
{
	const struct address *node = &external->node;

	if (external->kind == EXTERNAL_FREE)
		return DROP(DROP_EXTERNAL_FREE);
	if (external->kind == EXTERNAL_NAT) {
		struct port_block *block;
		int error = nat_read(skb, p, 0);

		if (error)
			return error;
		block = port_block_of_answer(p->destination);
		if (!block)
			return DROP(DROP_NAT_UNKNOWN_FLOW);
		node = &block->node;
	}
	if (!is_zero(node))
		return sent_on ? DROP(DROP_NOT_LOCAL) : to_member_external(skb, node);
	return to_target(skb, p, external);
}

/* Out of the cloud. The kernel knows the next hop, and its MAC address. */
static __always_inline int to_outside(void)
{
	trace_redirect(TRACE_OUTSIDE, uplink_ifindex);
	return bpf_redirect_neigh(uplink_ifindex, NULL, 0, 0);
}

/* What a route leads out of the VPC, or answers a caller: from the sender's external address, or one that its Subnet shares, to the outside or to another external
 * address. Hosts of the cloud are no outside. */
static __always_inline int leave_vpc(struct __sk_buff *skb, struct packet *p, const struct nic *nic, bool answer)
{
	int error;

	if (!answer && is_of_the_cloud(p->destination))
		return DROP(DROP_RESERVED_RANGE);
	struct floating *floating = floating_of(nic->vpc_id, p->source);

	if (!floating && (answer || !is_served(nic->vni)))
		return DROP(DROP_NO_EXTERNAL);
	struct external *to = external_of(p->destination);

	if (to && to->kind == EXTERNAL_FREE)
		return DROP(DROP_EXTERNAL_FREE);
	error = police_egress(skb, p, nic);
	if (!error)
		error = decrement_ttl(skb);
	if (error)
		return error;
	if (floating) {
		trace_step(STEP_FLOATING, nic->vpc_id, floating->external.w[3], false);
		error = translate_addresses(skb, p, floating->external.w[3], p->destination);
	} else {
		error = nat_out(skb, p, nic);
		if (!error)
			error = nat_translate(skb, p, true);
	}
	if (error)
		return error;
	return to ? to_external(skb, p, to, false) : to_outside();
}
