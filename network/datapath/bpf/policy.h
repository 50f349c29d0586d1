/* SPDX-License-Identifier: Apache-2.0 */
/* Policies: what an interface may send and what may reach it. A policy is a set of rules under a number that is never used
 * for other rules: a flow remembers under which it was let through, and is judged again when the interface has another by
 * now. Rules are found in two steps whatever their number: the peer's address leads to a class of peers that the rules do not
 * tell apart, and class, protocol and port (or ICMP type and code) lead to a rule. */
#pragma once

#include "config.h"
#include "conntrack.h"
#include "drop.h"
#include "flow.h"
#include "maps.h"
#include "packet.h"
#include "trace.h"

/* Numbers of policies that have no entries. */
#define POLICY_NONE 0	/* everything may pass, and nothing is remembered when both directions have it */
#define POLICY_CLOSED 1 /* nothing may pass */

struct policy_peer_key {
	__u32 prefix_length; /* 32 bits of policy and then of the 128-bit form */
	__u32 policy;
	struct address address;
};

struct policy_peer {
	__u32 class; /* zero: no rule speaks of it */
};

struct policy_rule_key {
	__u32 prefix_length; /* 64: every protocol; 72: all of one; more: the first bits of match */
	__u32 policy;
	__u32 class;
	__u8 protocol;
	__u8 match[2]; /* the port, or the ICMP type and code */
	__u8 pad;
};

struct policy_rule {
	__u32 pad;
};

MAP(policy_peers, BPF_MAP_TYPE_LPM_TRIE, struct policy_peer_key, struct policy_peer, 1048576, BPF_F_NO_PREALLOC);
MAP(policy_rules, BPF_MAP_TYPE_LPM_TRIE, struct policy_rule_key, struct policy_rule, 1048576, BPF_F_NO_PREALLOC);
MAP(policy_numbers, BPF_MAP_TYPE_ARRAY, __u32, __u32, 1, 0); /* the last number given */

/* Whether a policy lets a peer through. */
static __noinline bool allows(__u32 policy, __be32 peer, __u8 protocol, __be16 match)
{
	struct policy_peer_key from = { .prefix_length = 32 + 128, .policy = policy, .address = ipv4(peer) };
	struct policy_rule_key rule = { .prefix_length = 64 + 8 + 16, .policy = policy, .protocol = protocol };
	struct policy_peer *class;

	if (policy <= POLICY_CLOSED)
		return policy == POLICY_NONE;
	class = bpf_map_lookup_elem(&policy_peers, &from);
	if (!class || !class->class)
		return false;
	rule.class = class->class;
	__builtin_memcpy(rule.match, &match, sizeof(match));
	return bpf_map_lookup_elem(&policy_rules, &rule);
}

/* Judges a flow that was let through under another policy than the interface has now. */
static __always_inline bool is_cut(const struct nic *nic, const struct flow_key *key, struct flow *flow)
{
	__u32 policy = flow->origin == FLOW_IN ? nic->ingress_policy : nic->egress_policy;
	__u64 verdict = flow->verdict;

	if ((__u32)verdict != policy) {
		verdict = policy;
		if (!allows(policy, key->remote.w[3], key->protocol, flow->match))
			verdict |= FLOW_CUT;
		flow->verdict = verdict;
	}
	return verdict & FLOW_CUT;
}

static __always_inline int denied(enum flow_origin origin)
{
	return origin == FLOW_IN ? DROP(DROP_POLICY_INGRESS) : DROP(DROP_POLICY_EGRESS);
}

/* Who began a TCP connection of an interface that had no policy: such an interface has no flows, and its first policy is to cut what
 * it does not allow, and nothing else. Noted by each SYN, forgotten when others need the room. */
struct opening {
	LATER(__u64 later;)
	__u32 origin; /* enum flow_origin */
	__u32 pad;
};

MAP(openings, BPF_MAP_TYPE_LRU_HASH, struct flow_key, struct opening, 65536, 0);

static __noinline int note_opening(const struct packet *p, const struct nic *nic, __u32 ifindex, enum flow_origin way)
{
	struct opening opening = { .origin = way };
	struct flow_key key = {};
	struct l4 l4 = {};

	if (!p || !nic)
		return DROP(DROP_KERNEL);
	l4.source = p->source;
	l4.destination = p->destination;
	l4.source_port = p->source_port;
	l4.destination_port = p->destination_port;
	l4.protocol = p->protocol;
	flow_key_of(&key, &l4, nic->vpc_id, ifindex, way);
	bpf_map_update_elem(&openings, &key, &opening, BPF_ANY);
	return 0;
}

/* Who began what a packet is of that is of no flow. What the interface sends in the middle of a connection that nothing is known of is
 * rather an answer than the beginning of one: a connection that came in must not be kept alive as one that went out. */
static __always_inline enum flow_origin origin_of(const struct nic *nic, const struct flow_key *key, const struct l4 *l4, enum flow_origin way)
{
	struct opening *opening;

	if (l4->protocol != IPPROTO_TCP || opens(l4))
		return way;
	opening = bpf_map_lookup_elem(&openings, key);
	if (opening)
		return opening->origin;
	if (way == FLOW_OUT && nic->ingress_policy != POLICY_NONE &&
	    allows(nic->ingress_policy, key->remote.w[3], l4->protocol, key->local_port))
		return FLOW_IN;
	return way;
}

/* Decides about the first packet of a flow, or one of a flow that was forgotten. */
static __always_inline int begin_flow(const struct nic *nic, const struct flow_key *key, const struct l4 *l4, enum flow_origin way, __u32 now)
{
	struct flow flow = { .origin = origin_of(nic, key, l4, way), .match = l4->match, .last_seen = now };
	__u32 policy = flow.origin == FLOW_IN ? nic->ingress_policy : nic->egress_policy;

	if (flow.origin != way)
		flow.match = flow.origin == FLOW_IN ? key->local_port : key->remote_port;
	if (!allows(policy, key->remote.w[3], l4->protocol, flow.match))
		return denied(flow.origin);
	flow.verdict = policy;
	note_flags(&flow, l4, way);
	bpf_map_update_elem(&flows, key, &flow, BPF_ANY);
	return 0;
}

/* Decides about a packet that an interface sends or that is to be delivered to it. */
static __noinline int police(struct __sk_buff *skb, const struct packet *p, const struct nic *nic, __u32 ifindex, enum flow_origin way)
{
	struct flow_key key = {};
	struct l4 l4 = {};
	__u32 now = seconds();

	if (!p || !nic)
		return DROP(DROP_KERNEL);
	int error = read_l4(skb, p, nic->vpc_id, &l4);

	if (error)
		return error;
	flow_key_of(&key, &l4, nic->vpc_id, ifindex, way);
	struct flow *flow = bpf_map_lookup_elem(&flows, &key);
	bool known = flow && flow_is_live(flow, l4.protocol, now);

	if (way == FLOW_IN)
		trace_step(STEP_INGRESS, nic->ingress_policy, p->source, known);
	else
		trace_step(STEP_EGRESS, nic->egress_policy, p->destination, known);
	if (known) {
		bool cut = is_cut(nic, &key, flow);

		if (!opens(&l4) || !(cut || flow_is_closing(flow))) {
			if (cut)
				return denied(flow->origin);
			if (!l4.related)
				touch_flow(flow, &l4, way, now);
			return 0;
		}
	}
	if (l4.related)
		return allows(way == FLOW_IN ? nic->ingress_policy : nic->egress_policy, way == FLOW_IN ? p->source : p->destination,
			      IPPROTO_ICMP, l4.match) ?
			       0 :
			       denied(way);
	return begin_flow(nic, &key, &l4, way, now);
}

/* Whether a policy is to be asked about a packet. */
static __always_inline bool is_policed(const struct packet *p, const struct nic *nic, __u32 ifindex, enum flow_origin way)
{
	if (p->exempt)
		return false;
	if (nic->ingress_policy | nic->egress_policy)
		return true;
	if ((p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		note_opening(p, nic, ifindex, way);
	return false;
}

/* What an interface sends, before it leaves. */
static __always_inline int police_egress(struct __sk_buff *skb, const struct packet *p, const struct nic *nic)
{
	return is_policed(p, nic, skb->ifindex, FLOW_OUT) ? police(skb, p, nic, skb->ifindex, FLOW_OUT) : 0;
}

/* What is about to be delivered to an interface. It is the destination's drop: counted there, not where the packet came from. */
static __always_inline int police_ingress(struct __sk_buff *skb, const struct packet *p, const struct nic *nic, __u32 ifindex)
{
	if (!is_policed(p, nic, ifindex, FLOW_IN))
		return 0;
	int error = police(skb, p, nic, ifindex, FLOW_IN);

	if (!error)
		return 0;
	count_drop(ifindex, -error, skb->len);
	return COUNTED;
}
