/* SPDX-License-Identifier: Apache-2.0 */
/* Callers: hosts in ranges that the cloud keeps for itself, its underlay above all, that open connections to external addresses as
 * anybody outside may. An interface answers them and can open nothing: only what they sent makes entries and keeps them alive. */
#pragma once

#include "conntrack.h"
#include "icmp.h"
#include "maps.h"
#include "packet.h"
#include "service.h"

/* Of echo, the identifier is the caller's port. */
struct caller_key {
	LATER(__u64 later;)
	struct address interface;
	struct address caller;
	__u32 vpc_id;
	__be16 interface_port;
	__be16 caller_port;
	__u8 protocol;
	__u8 pad[3];
};

struct caller {
	LATER(__u64 later;)
	__u32 last_seen; /* by a packet of the caller's: seconds since boot */
	enum conntrack_flags flags; /* forward: from the caller */
};

MAP(callers, BPF_MAP_TYPE_LRU_HASH, struct caller_key, struct caller, 16384, 0);

/* Notes what a caller sends to an interface's external address. */
static __noinline int note_caller(struct __sk_buff *skb, const struct packet *p, __be32 interface, __u32 vni, __u32 vpc_id)
{
	struct route *back = route_to(vni, p->source);
	struct caller_key key = {
		.interface = ipv4(interface), .caller = ipv4(p->source), .vpc_id = vpc_id, .protocol = p->protocol,
		.interface_port = p->destination_port, .caller_port = p->source_port,
	};
	struct caller now = { .last_seen = seconds() };

	if (!back || back->kind != ROUTE_RESERVED || p->fragment)
		return 0;
	if (p->protocol == IPPROTO_ICMP) {
		if (icmp_type(skb, p) != ICMP_ECHO_REQUEST)
			return 0;
		key.caller_port = echo_identifier(skb, p);
	} else if (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP) {
		return 0;
	}
	struct caller *known = bpf_map_lookup_elem(&callers, &key);
	__u32 flags = (p->tcp_flags & TCP_FIN ? CONNTRACK_FIN_FORWARD : 0) | (p->tcp_flags & TCP_RST ? CONNTRACK_RST : 0);
	bool again = (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;

	if (known && !(again && is_closed(known->flags))) {
		known->last_seen = now.last_seen;
		known->flags |= flags;
		return 0;
	}
	now.flags = flags;
	bpf_map_update_elem(&callers, &key, &now, BPF_ANY);
	return 0;
}

/* Whether what an interface sends to a reserved range answers a caller. */
static __noinline bool answers_caller(struct __sk_buff *skb, const struct packet *p, __be32 interface, __u32 vpc_id)
{
	struct caller_key key = {
		.interface = ipv4(interface), .caller = ipv4(p->destination), .vpc_id = vpc_id, .protocol = p->protocol,
		.interface_port = p->source_port, .caller_port = p->destination_port,
	};

	if (p->fragment || p->source != interface || (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		return false;
	if (p->protocol == IPPROTO_ICMP) {
		if (icmp_type(skb, p) != ICMP_ECHO_REPLY)
			return false;
		key.caller_port = echo_identifier(skb, p);
	}
	struct caller *known = bpf_map_lookup_elem(&callers, &key);

	if (!known || seconds() - known->last_seen > timeout_of(known->flags, p->protocol))
		return false;
	known->flags |= CONNTRACK_SEEN_REPLY | (p->tcp_flags & TCP_FIN ? CONNTRACK_FIN_REVERSE : 0) |
			(p->tcp_flags & TCP_RST ? CONNTRACK_RST : 0);
	return true;
}
