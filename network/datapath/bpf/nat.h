/* SPDX-License-Identifier: Apache-2.0 */
/* NATGateways: many interfaces leave from external addresses that they share (RFC 4787, RFC 5382, RFC 5508). Every node translates
 * for its own interfaces, with blocks of ports that no other node has.
 *
 * A flow is a pair of entries in one table, FORWARD by what the interface sends and REVERSE by what the outside answers. Each holds
 * all of the flow, so that either makes the other anew. A mapping, the port that an interface's address and port have towards
 * everybody, is a pair without a remote side. What comes from outside passes by a flow, never by a mapping alone. */
#pragma once

#include "conntrack.h"
#include "flow.h"
#include "icmp.h"
#include "maps.h"
#include "packet.h"
#include "trace.h"

#define PORT_BLOCK_BITS 9
#define PORT_BLOCK_SIZE (1 << PORT_BLOCK_BITS)

/* Seconds without a packet of any of its flows after which a mapping is no more. Short for TCP: each of many short connections has
 * one. */
#define TCP_MAPPING_TIMEOUT 60
#define UDP_MAPPING_TIMEOUT 180
#define PING_TIMEOUT 60

/* A Subnet that a NATGateway serves, by VNI. */
struct nat {
	__u32 blocks; /* that this node has for it, in slots from 0; the last is the spare one */
};

struct nat_block_key {
	__u32 vni;
	__u32 slot;
};

/* Ports that this node may use: PORT_BLOCK_SIZE from the first. */
struct nat_block {
	struct address address;
	__u32 first_port;
};

struct port_block_key {
	struct address address;
	__u32 block; /* its first port / PORT_BLOCK_SIZE */
};

/* Who has a block of ports of an external address. */
struct port_block {
	struct address node; /* zero: this node */
};

/* One more block is wanted for a Subnet. */
struct nat_want {
	LATER(__u64 later;)
	__u32 blocks; /* that there were */
};

/* The keys are those of conntracks. FORWARD: VPC, the interface's side, the remote side. REVERSE: no VPC, the remote side, the
 * external side. Of a mapping the remote side is zero, not even an IPv4 address. */
struct nat_flow {
	LATER(__u64 later;)
	struct address inner;
	struct address external;
	struct address via; /* the interface that sent it, which gets the answers: it may send on what others sent */
	__u32 vni;	    /* the interface's Subnet */
	__u32 vpc_id;
	__be16 inner_port;
	__be16 external_port;
	__u32 last_seen; /* seconds since boot */
	__u32 timeout;	 /* seconds without a packet after which it is no more */
	__u32 touched;	 /* nat_ticks() of when all of its entries were last looked up */
	enum conntrack_flags flags;
};

/* What does not fit on the stack while a packet is translated. */
struct nat_scratch {
	struct conntrack_key forward, reverse;
	struct conntrack_key mapping, mapped; /* FORWARD and REVERSE of the mapping */
	struct conntrack_key other;	      /* of another flow */
	struct nat_flow flow;
	struct l4 l4;
	__u32 quote[sizeof(struct quote) / 4], old_quote[sizeof(struct quote) / 4]; /* bytes: bpf2go has no unions */
	__u32 hash;
	__u32 start; /* of a search for a port that is shared */
	__u32 blocks;
	__u32 found;
};

MAP(nats, BPF_MAP_TYPE_HASH, __u32, struct nat, 16384, BPF_F_NO_PREALLOC);
MAP(nat_blocks, BPF_MAP_TYPE_HASH, struct nat_block_key, struct nat_block, 131072, BPF_F_NO_PREALLOC);
MAP(port_blocks, BPF_MAP_TYPE_HASH, struct port_block_key, struct port_block, 262144, BPF_F_NO_PREALLOC);
MAP(nat_wants, BPF_MAP_TYPE_LRU_HASH, __u32, struct nat_want, 1024, 0);
MAP(nat_flows, BPF_MAP_TYPE_LRU_HASH, struct conntrack_key, struct nat_flow, 262144, 0);
MAP(nat_scratches, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct nat_scratch, 1, 0);

static __always_inline struct nat_scratch *nat_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&nat_scratches, &zero);
}

static __noinline bool is_served(__u32 vni)
{
	return bpf_map_lookup_elem(&nats, &vni);
}

static __always_inline bool nat_is_live(const struct nat_flow *flow, __u32 now)
{
	return now - flow->last_seen <= flow->timeout;
}

/* Time in units of 67 ms: so often the entries of a flow in use are looked up, all four, so that the LRU knows of each. What comes to a
 * node meanwhile does not fill its table. */
static __always_inline __u32 nat_ticks(void)
{
	return bpf_ktime_get_coarse_ns() >> 26;
}

/* Notes a packet in an entry of a flow. */
static __always_inline void nat_note(struct nat_flow *flow, __u8 protocol, __u32 flags, __u32 now)
{
	flow->touched = nat_ticks();
	flow->flags |= flags;
	flow->timeout = protocol == IPPROTO_ICMP ? PING_TIMEOUT : timeout_of(flow->flags, protocol);
	flow->last_seen = now;
}

/* Enters one half of the mapping of the scratch's flow. */
static __noinline bool nat_enter_mapping(struct nat_scratch *s, const struct conntrack_key *key, __u64 how)
{
	if (!s || !key)
		return false;
	__u32 timeout = s->flow.timeout;

	s->flow.timeout = key->protocol == IPPROTO_TCP ? TCP_MAPPING_TIMEOUT : key->protocol == IPPROTO_UDP ? UDP_MAPPING_TIMEOUT : PING_TIMEOUT;
	bool entered = !bpf_map_update_elem(&nat_flows, key, &s->flow, how);

	s->flow.timeout = timeout;
	return entered;
}

/* Whether two entries are of one interface's port, which has one external port. */
static __always_inline bool same_inner(const struct nat_flow *a, const struct nat_flow *b)
{
	return a->inner.w[3] == b->inner.w[3] && a->inner_port == b->inner_port && a->vpc_id == b->vpc_id;
}

static __always_inline bool same_external(const struct nat_flow *a, const struct nat_flow *b)
{
	return a->external.w[3] == b->external.w[3] && a->external_port == b->external_port;
}

static __always_inline void nat_key(struct conntrack_key *key, enum conntrack_direction direction, __u8 protocol, __u32 vpc_id)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->direction = direction;
	key->protocol = protocol;
	key->vpc_id = vpc_id;
}

/* The keys of a flow by its inside, and the FORWARD one of its mapping. */
static __always_inline void nat_inside_keys(struct nat_scratch *s, const struct nat_flow *flow, __be32 remote, __be16 remote_port)
{
	nat_key(&s->forward, CONNTRACK_FORWARD, s->l4.protocol, flow->vpc_id);
	s->forward.source = flow->inner;
	s->forward.source_port = flow->inner_port;
	s->mapping = s->forward;
	s->forward.destination = ipv4(remote);
	s->forward.destination_port = remote_port;
}

/* The keys of a flow by its outside, and the REVERSE one of its mapping. */
static __always_inline void nat_outside_keys(struct nat_scratch *s, const struct nat_flow *flow, __be32 remote, __be16 remote_port)
{
	nat_key(&s->reverse, CONNTRACK_REVERSE, s->l4.protocol, 0);
	s->reverse.destination = flow->external;
	s->reverse.destination_port = flow->external_port;
	s->mapped = s->reverse;
	s->reverse.source = ipv4(remote);
	s->reverse.source_port = remote_port;
}

static __always_inline bool asks_ping(const struct l4 *l4)
{
	return l4->protocol == IPPROTO_ICMP && bpf_ntohs(l4->match) >> 8 == ICMP_ECHO_REQUEST;
}

static __always_inline bool is_ping(const struct l4 *l4)
{
	return asks_ping(l4) || bpf_ntohs(l4->match) >> 8 == ICMP_ECHO_REPLY;
}

/* Reads of which flow a packet is into the scratch. Of outside packets the VPC is 0. */
static __noinline int nat_read(struct __sk_buff *skb, const struct packet *p, __u32 vpc_id)
{
	struct nat_scratch *s = nat_scratch();

	if (!s || !p)
		return DROP(DROP_KERNEL);
	__builtin_memset(&s->l4, 0, sizeof(s->l4));
	int error = read_l4(skb, p, vpc_id, &s->l4);

	if (error)
		return error;
	if (s->l4.protocol == IPPROTO_TCP || s->l4.protocol == IPPROTO_UDP)
		return 0;
	/* Of a ping one port is the type of the request. */
	if (s->l4.protocol == IPPROTO_ICMP && (s->l4.source_port == bpf_htons(ICMP_ECHO_REQUEST) || s->l4.destination_port == bpf_htons(ICMP_ECHO_REQUEST)) &&
	    (s->l4.related || is_ping(&s->l4)))
		return 0;
	return DROP(DROP_NAT_PROTOCOL);
}

/* Who has a port of an external address; NULL: nobody. */
static __noinline struct port_block *port_block_of(__be32 address, __be16 port)
{
	struct port_block_key key = { .address = ipv4(address), .block = bpf_ntohs(port) >> PORT_BLOCK_BITS };

	return bpf_map_lookup_elem(&port_blocks, &key);
}

/* Keeps the mapping of a flow alive, and makes its halves anew. A flow that shares its port with another's mapping has none. */
static __noinline void nat_renew(struct nat_scratch *s)
{
	if (!s)
		return;
	struct nat_flow *mapping = bpf_map_lookup_elem(&nat_flows, &s->mapping);
	struct nat_flow *mapped = bpf_map_lookup_elem(&nat_flows, &s->mapped);

	if ((mapping && !same_external(mapping, &s->flow)) || (mapped && !same_inner(mapped, &s->flow)))
		return;
	if (mapped)
		mapped->last_seen = s->flow.last_seen;
	else if (!nat_enter_mapping(s, &s->mapped, BPF_NOEXIST))
		return;
	if (mapping)
		mapping->last_seen = s->flow.last_seen;
	else
		nat_enter_mapping(s, &s->mapping, BPF_NOEXIST);
}

/* Who has the port that the packet in the scratch is for. */
static __noinline struct port_block *port_block_of_answer(__be32 address)
{
	struct nat_scratch *s = nat_scratch();

	return s ? port_block_of(address, s->l4.destination_port) : NULL;
}

/* Whether a member has the port that a packet comes from. */
static __noinline bool is_port_of(struct __sk_buff *skb, const struct packet *p, const struct address *member)
{
	struct nat_scratch *s = nat_scratch();

	if (!s || !p || !member || nat_read(skb, p, 0))
		return false;
	struct port_block *block = port_block_of(p->source, s->l4.source_port);

	return block && block->node.w[3] == member->w[3];
}

/* Notes a packet of a flow in its entries and its mapping's, at most once a tick, and makes anew those that were evicted. The
 * scratch has all keys and a copy of the flow. False: another flow has the port towards this remote side by now. */
static __noinline bool nat_touch(struct nat_scratch *s, struct nat_flow *flow, bool reverse)
{
	__u32 now = seconds(), flags = reverse ? CONNTRACK_SEEN_REPLY : 0;
	struct nat_flow *other;

	if (!s || !flow)
		return false;
	if (s->l4.protocol == IPPROTO_TCP) {
		if (s->l4.tcp_flags & TCP_FIN)
			flags |= reverse ? CONNTRACK_FIN_REVERSE : CONNTRACK_FIN_FORWARD;
		if (s->l4.tcp_flags & TCP_RST)
			flags |= CONNTRACK_RST;
	}
	if (flow->touched == nat_ticks() && (flow->flags & flags) == flags)
		return true;
	other = bpf_map_lookup_elem(&nat_flows, reverse ? &s->forward : &s->reverse);
	if (other && !(same_inner(other, &s->flow) && same_external(other, &s->flow)))
		return false;
	nat_note(&s->flow, s->l4.protocol, flags, now);
	nat_note(flow, s->l4.protocol, flags, now);
	if (other)
		nat_note(other, s->l4.protocol, flags, now);
	else
		bpf_map_update_elem(&nat_flows, reverse ? &s->forward : &s->reverse, &s->flow, BPF_NOEXIST);
	nat_renew(s);
	return true;
}
