/* SPDX-License-Identifier: Apache-2.0 */
/* The ways of packets through NATGateways: out, from a port that the node has, and in, to who opened the flow. */
#pragma once

#include "nat_ports.h"

/* Finds the flow of what an interface of a served Subnet sends, or begins one. The scratch has it. */
static __noinline int nat_out(struct __sk_buff *skb, const struct packet *p, const struct nic *nic)
{
	struct nat_scratch *s = nat_scratch();

	if (!s || !p || !nic)
		return DROP(DROP_KERNEL);
	int error = nat_read(skb, p, nic->vpc_id);

	if (error)
		return error;
	struct l4 *l4 = &s->l4;
	__u32 now = seconds();

	__builtin_memset(&s->flow, 0, sizeof(s->flow));
	s->flow.inner = ipv4(l4->source);
	s->flow.inner_port = l4->source_port;
	s->flow.via = nic->address;
	s->flow.vni = nic->vni;
	s->flow.vpc_id = nic->vpc_id;
	nat_inside_keys(s, &s->flow, l4->destination, l4->destination_port);
	struct nat_flow *flow = bpf_map_lookup_elem(&nat_flows, &s->forward);

	if (flow && nat_is_live(flow, now) && flow->vni == nic->vni && !(opens(l4) && is_closed(flow->flags))) {
		s->flow = *flow;
		nat_outside_keys(s, &s->flow, l4->destination, l4->destination_port);
		/* An entry may become another flow's while it is read. */
		if (s->flow.inner.w[3] == l4->source && s->flow.inner_port == l4->source_port && s->flow.vpc_id == nic->vpc_id &&
		    (l4->related || nat_touch(s, flow, false))) {
			trace_step(STEP_NAT, bpf_ntohs(s->flow.external_port), s->flow.external.w[3], true);
			return 0;
		}
		bpf_map_delete_elem(&nat_flows, &s->forward);
		return DROP(DROP_NAT_UNKNOWN_FLOW);
	}
	/* What ends a connection, or speaks of one, begins none. */
	if (l4->related || (l4->tcp_flags & TCP_RST))
		return DROP(DROP_NAT_UNKNOWN_FLOW);
	if (l4->protocol == IPPROTO_ICMP && !asks_ping(l4))
		return DROP(DROP_NAT_UNKNOWN_FLOW);
	nat_outside_keys(s, &s->flow, l4->destination, l4->destination_port);
	nat_note(&s->flow, l4->protocol, l4->tcp_flags & TCP_FIN ? CONNTRACK_FIN_FORWARD : 0, now);
	error = nat_begin(s);
	if (error)
		return error;
	trace_step(STEP_NAT, bpf_ntohs(s->flow.external_port), s->flow.external.w[3], false);
	return 0;
}

/* Finds the flow of what the outside sends to a port that this node has, which nat_read has read. The scratch has it. */
static __noinline int nat_in(struct nat_scratch *s)
{
	if (!s)
		return DROP(DROP_KERNEL);
	struct l4 *l4 = &s->l4;
	__u32 now = seconds();

	s->flow.external = ipv4(l4->destination);
	s->flow.external_port = l4->destination_port;
	nat_outside_keys(s, &s->flow, l4->source, l4->source_port);
	struct nat_flow *flow = bpf_map_lookup_elem(&nat_flows, &s->reverse);

	bool healed = !flow;

	if (!flow) { /* if it was evicted, the other half is found by the mapping */
		struct nat_flow *mapped = bpf_map_lookup_elem(&nat_flows, &s->mapped);

		if (!mapped)
			return DROP(DROP_NAT_UNKNOWN_FLOW);
		s->flow = *mapped;
		nat_inside_keys(s, &s->flow, l4->source, l4->source_port);
		flow = bpf_map_lookup_elem(&nat_flows, &s->forward);
	}
	if (!flow || !nat_is_live(flow, now))
		return DROP(DROP_NAT_UNKNOWN_FLOW);
	s->flow = *flow;
	if (s->flow.external.w[3] != l4->destination || s->flow.external_port != l4->destination_port)
		return DROP(DROP_NAT_UNKNOWN_FLOW);
	nat_inside_keys(s, &s->flow, l4->source, l4->source_port);
	if (healed)
		bpf_map_update_elem(&nat_flows, &s->reverse, &s->flow, BPF_NOEXIST);
	if (!l4->related && !nat_touch(s, flow, true))
		return DROP(DROP_NAT_UNKNOWN_FLOW);
	trace_step(STEP_NAT_ANSWER, bpf_ntohs(s->flow.inner_port), s->flow.inner.w[3], true);
	return 0;
}

/* Translates an ICMP error and the packet that it quotes, which went the other way. Who sends an error need not be an end of the flow. */
static __noinline int nat_translate_error(struct __sk_buff *skb, struct packet *p, struct nat_scratch *s, bool out)
{
	__u32 at = p->l4_offset;

	if (!s)
		return DROP(DROP_KERNEL);
	struct quote *quote = (void *)s->quote, *old = (void *)s->old_quote;

	if (!read_quote(skb, p, quote))
		return DROP(DROP_NAT_PROTOCOL);
	*old = *quote;
	__be32 address = out ? s->flow.external.w[3] : s->flow.inner.w[3], was = out ? quote->ip.daddr : quote->ip.saddr;
	__be16 port = out ? s->flow.external_port : s->flow.inner_port, was_port;

	if (out)
		quote->ip.daddr = address;
	else
		quote->ip.saddr = address;
	quote->ip.check = checksum_replace(quote->ip.check, was, address);
	if (quote->ip.protocol == IPPROTO_ICMP) {
		was_port = quote->icmp.identifier;
		quote->icmp.identifier = port;
		quote->icmp.check = checksum_replace(quote->icmp.check, was_port, port);
	} else {
		was_port = out ? quote->destination_port : quote->source_port;
		if (out)
			quote->destination_port = port;
		else
			quote->source_port = port;
	}
	if (quote->ip.protocol == IPPROTO_UDP && quote->udp_check) {
		__u16 check = checksum_replace(checksum_replace(quote->udp_check, was, address), was_port, port);

		quote->udp_check = check ? check : 0xffff;
	}
	__s64 difference = bpf_csum_diff((__be32 *)old, sizeof(*old), (__be32 *)quote, sizeof(*quote), 0);

	if (difference < 0 || bpf_l4_csum_replace(skb, at + offsetof(struct icmp, check), 0, difference, 0) ||
	    bpf_skb_store_bytes(skb, at + sizeof(struct icmp), quote, sizeof(*quote), 0))
		return DROP(DROP_KERNEL);
	return set_addresses(skb, p, out ? address : p->source, out ? p->destination : address);
}

/* Gives a packet the addresses and the port of the scratch's flow. */
static __noinline int nat_translate(struct __sk_buff *skb, struct packet *p, bool out)
{
	struct nat_scratch *s = nat_scratch();

	if (!s || !p)
		return DROP(DROP_KERNEL);
	if (s->l4.related)
		return nat_translate_error(skb, p, s, out);
	struct tuple to = {
		.source = out ? s->flow.external.w[3] : p->source,
		.source_port = out ? s->flow.external_port : s->l4.source_port,
		.destination = out ? p->destination : s->flow.inner.w[3],
		.destination_port = out ? s->l4.destination_port : s->flow.inner_port,
	};

	if (p->fragment) {
		p->source_port = s->l4.source_port;
		p->destination_port = s->l4.destination_port;
	}
	if (p->protocol == IPPROTO_ICMP && !p->later)
		return translate_echo(skb, p, &to, out ? s->l4.source_port : s->l4.destination_port, out ? to.source_port : to.destination_port);
	return translate(skb, p, &to);
}
