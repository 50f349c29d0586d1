/* SPDX-License-Identifier: Apache-2.0 */
/* Infrastructure addresses: how hosts and the platform's Pods reach an interface in a tenant's VPC, and it answers.
 *
 * Translation happens on the node that has the interface. What an opener sends to the infrastructure address goes to the
 * interface's own address, from an alias: a link-local address that stands for the opener, whose own would mean nothing, or
 * something else, in the VPC. The interface's answers to the alias go back by the flow's entry. Only openers make entries
 * and only they keep them alive, so that a tenant can open nothing. */
#pragma once

#include "config.h"
#include "conntrack.h"
#include "deliver.h"
#include "icmp.h"
#include "maps.h"
#include "packet.h"
#include "service.h"

/* Ports tried for an opener whose alias and port are another's too. */
#define ALIAS_TRIES 4

/* A flow as the interface sees it. Of echo, the identifier is the alias's port. */
struct alias_key {
	LATER(__u64 later;)
	struct address interface;
	struct address alias;
	__u32 vpc_id;
	__be16 interface_port;
	__be16 alias_port;
	__u8 protocol;
	__u8 pad[3];
};

struct alias_flow {
	LATER(__u64 later;)
	struct address opener;
	struct address infrastructure;
	__be16 opener_port;
	__be16 pad;
	__u32 last_seen; /* by a packet of the opener's: seconds since boot */
	enum conntrack_flags flags; /* forward: from the opener */
};

MAP(alias_flows, BPF_MAP_TYPE_LRU_HASH, struct alias_key, struct alias_flow, 32768, 0);

static __always_inline bool is_alias(__be32 a)
{
	return (a & alias_mask) == alias_prefix;
}

static __always_inline bool is_live_alias(const struct alias_flow *flow, __u8 protocol, __u32 now)
{
	return now - flow->last_seen <= timeout_of(flow->flags, protocol);
}

/* Whether a source on a member (zero: this node) may open connections to infrastructure addresses: its host, or a Pod of the
 * platform's. */
static __always_inline bool may_open(__be32 source, const struct address *member)
{
	struct endpoint_key key = { .vni = default_vni, .address = ipv4(source) };
	struct endpoint *endpoint = bpf_map_lookup_elem(&endpoints, &key);

	if (!endpoint || endpoint->node.w[3] != member->w[3])
		return false;
	return endpoint->kind == ENDPOINT_HOST || endpoint->kind == ENDPOINT_PLATFORM;
}

/* Finds an opener's flow and writes the alias's port to the key. Where there is none the key is that of a new one, or
 * alias_port is 0: too many openers have this alias and port. */
static __always_inline struct alias_flow *find_alias_flow(struct alias_key *key, __be32 opener, __be16 opener_port, __u32 now)
{
	__be16 free = 0;

	key->alias = ipv4(alias_prefix | (opener & ~alias_mask));
	key->alias_port = opener_port;
	for (int i = 0; i < ALIAS_TRIES; i++) {
		struct alias_flow *flow = bpf_map_lookup_elem(&alias_flows, key);

		if (flow && is_live_alias(flow, key->protocol, now)) {
			if (flow->opener.w[3] == opener && flow->opener_port == opener_port)
				return flow;
		} else if (!free) {
			free = key->alias_port;
		}
		key->alias_port = bpf_htons(FIRST_NAT_PORT + hash(opener, opener_port, i) % (65536 - FIRST_NAT_PORT));
	}
	key->alias_port = free;
	return NULL;
}

/* Notes a packet of the opener's in its flow, which is made if there is none. */
static __always_inline int note_opener(struct alias_key *key, const struct packet *p, const struct nic *nic)
{
	__u32 now = seconds();
	struct alias_flow *flow = find_alias_flow(key, p->source, p->source_port, now);
	bool again = (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	__u32 flags = (p->tcp_flags & TCP_FIN ? CONNTRACK_FIN_FORWARD : 0) | (p->tcp_flags & TCP_RST ? CONNTRACK_RST : 0);

	if (flow && !(again && is_closed(flow->flags))) {
		if (flow->last_seen != now)
			flow->last_seen = now;
		if ((flow->flags & flags) != flags)
			flow->flags |= flags;
		return 0;
	}
	struct alias_flow fresh = {
		.opener = ipv4(p->source),
		.opener_port = p->source_port,
		.infrastructure = nic->infrastructure,
		.last_seen = now,
		.flags = flags,
	};

	if (!flow && !key->alias_port && p->source_port)
		return DROP(DROP_CONNTRACK_COLLISION);
	return bpf_map_update_elem(&alias_flows, key, &fresh, BPF_ANY) ? DROP(DROP_KERNEL) : 0;
}

/* An ICMP error of the opener's, about what the interface answered. */
static __always_inline int open_error(struct __sk_buff *skb, struct packet *p, struct alias_key *key, const struct nic *nic)
{
	struct quote quote;
	struct alias_flow *flow;

	if (!read_quote(skb, p, &quote) || quote.ip.saddr != p->destination || quote.ip.daddr != p->source)
		return DROP(DROP_INFRASTRUCTURE_PROTOCOL);
	key->protocol = quote.ip.protocol;
	key->interface_port = quoted_source_port(&quote);
	flow = find_alias_flow(key, p->source, quoted_destination_port(&quote), seconds());
	if (!flow)
		return DROP(DROP_INFRASTRUCTURE_PROTOCOL);
	struct tuple to = {
		.source = key->alias.w[3],
		.source_port = key->alias_port,
		.destination = nic->address.w[3],
		.destination_port = key->interface_port,
	};

	return translate_error(skb, p, &quote, &to);
}

/* Gives an interface of this node what one who may open connections sends to its infrastructure address. */
static __noinline int open_to_interface(struct __sk_buff *skb, struct packet *p, __u32 ifindex, __u32 vpc_id)
{
	struct nic *nic = bpf_map_lookup_elem(&nics, &ifindex);
	struct alias_key key = {};
	int error;

	if (!nic || nic->vpc_id != vpc_id || !is_ipv4(&nic->infrastructure, p->destination))
		return DROP(DROP_DESTINATION_CHECK);
	if (p->fragment)
		return DROP(DROP_INFRASTRUCTURE_FRAGMENT);
	trace_step(STEP_OPENED, nic->vpc_id, nic->address.w[3], false);
	key.interface = nic->address;
	key.vpc_id = nic->vpc_id;
	if (is_icmp_error(skb, p)) {
		error = open_error(skb, p, &key, nic);
		return error ? error : into_interface(skb, nic, ifindex);
	}
	if (p->protocol == IPPROTO_ICMP) {
		if (icmp_type(skb, p) != ICMP_ECHO_REQUEST)
			return DROP(DROP_INFRASTRUCTURE_PROTOCOL);
		p->source_port = echo_identifier(skb, p);
	} else if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP) {
		return DROP(DROP_INFRASTRUCTURE_PROTOCOL);
	}
	key.protocol = p->protocol;
	key.interface_port = p->destination_port;
	error = note_opener(&key, p, nic);
	if (error)
		return error;
	struct tuple to = {
		.source = key.alias.w[3],
		.source_port = key.alias_port,
		.destination = nic->address.w[3],
		.destination_port = p->destination_port,
	};

	error = p->protocol == IPPROTO_ICMP ? translate_echo(skb, p, &to, p->source_port, to.source_port) : translate(skb, p, &to);
	return error ? error : into_interface(skb, nic, ifindex);
}

/* To the opener of a flow, wherever it is by now. */
static __always_inline int to_opener(struct __sk_buff *skb, struct packet *p)
{
	struct endpoint_key key = { .vni = default_vni, .address = ipv4(p->destination) };
	struct endpoint *endpoint = bpf_map_lookup_elem(&endpoints, &key);

	if (!endpoint || endpoint->kind == ENDPOINT_INFRASTRUCTURE)
		return DROP(DROP_NO_ENDPOINT);
	if (!is_zero(&endpoint->node))
		return to_member(skb, default_vni, endpoint);
	if (endpoint->kind == ENDPOINT_HOST)
		return to_host(skb);
	return to_interface(skb, p, default_vni, endpoint);
}

/* An interface's flow by what it sends. Dead ones and those of another holder of its address do not count. */
static __always_inline struct alias_flow *answered_flow(const struct alias_key *key, const struct nic *nic)
{
	struct alias_flow *flow = bpf_map_lookup_elem(&alias_flows, key);

	if (!flow || flow->infrastructure.w[3] != nic->infrastructure.w[3] || !is_live_alias(flow, key->protocol, seconds()))
		return NULL;
	return flow;
}

/* An ICMP error of the interface's, about what an opener sent. */
static __always_inline int answer_error(struct __sk_buff *skb, struct packet *p, struct alias_key *key, const struct nic *nic)
{
	struct quote quote;
	struct alias_flow *flow;

	if (!read_quote(skb, p, &quote) || quote.ip.saddr != p->destination || quote.ip.daddr != p->source)
		return DROP(DROP_NOT_OPENED);
	key->protocol = quote.ip.protocol;
	key->interface_port = quoted_destination_port(&quote);
	key->alias_port = quoted_source_port(&quote);
	flow = answered_flow(key, nic);
	if (!flow)
		return DROP(DROP_NOT_OPENED);
	struct tuple to = {
		.source = flow->infrastructure.w[3],
		.source_port = key->interface_port,
		.destination = flow->opener.w[3],
		.destination_port = flow->opener_port,
	};

	return translate_error(skb, p, &quote, &to);
}

/* Makes what an interface in a tenant's VPC sends to an alias an answer to the opener it stands for. Anything but an answer ends
 * here: TCP's begins with no SYN of its own, and only an echo request is answered with an echo reply. */
static __noinline int answer_to_opener(struct __sk_buff *skb, struct packet *p, const struct nic *nic)
{
	struct alias_key key = {};

	if (!nic)
		return DROP(DROP_KERNEL);
	if (p->fragment)
		return DROP(DROP_INFRASTRUCTURE_FRAGMENT);
	if (!is_alias(p->destination) || !is_ipv4(&nic->address, p->source))
		return DROP(DROP_NOT_OPENED);
	if (exceeds_mtu(skb, p))
		return DROP(DROP_MTU_EXCEEDED);
	key.interface = nic->address;
	key.alias = ipv4(p->destination);
	key.vpc_id = nic->vpc_id;
	if (is_icmp_error(skb, p)) {
		return answer_error(skb, p, &key, nic);
	}
	if (p->protocol == IPPROTO_ICMP) {
		if (icmp_type(skb, p) != ICMP_ECHO_REPLY)
			return DROP(DROP_NOT_OPENED);
		p->destination_port = echo_identifier(skb, p);
	}
	if ((p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		return DROP(DROP_NOT_OPENED);
	key.protocol = p->protocol;
	key.interface_port = p->source_port;
	key.alias_port = p->destination_port;
	struct alias_flow *flow = answered_flow(&key, nic);

	if (!flow)
		return DROP(DROP_NOT_OPENED);
	trace_step(STEP_ANSWER, bpf_ntohs(flow->opener_port), flow->opener.w[3], true);
	__u32 flags = CONNTRACK_SEEN_REPLY | (p->tcp_flags & TCP_FIN ? CONNTRACK_FIN_REVERSE : 0) |
		      (p->tcp_flags & TCP_RST ? CONNTRACK_RST : 0);

	if ((flow->flags & flags) != flags)
		flow->flags |= flags;
	struct tuple to = {
		.source = flow->infrastructure.w[3],
		.source_port = p->source_port,
		.destination = flow->opener.w[3],
		.destination_port = flow->opener_port,
	};

	return p->protocol == IPPROTO_ICMP ? translate_echo(skb, p, &to, p->destination_port, to.destination_port) : translate(skb, p, &to);
}
