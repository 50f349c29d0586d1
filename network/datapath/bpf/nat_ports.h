/* SPDX-License-Identifier: Apache-2.0 */
/* Ports of new flows through NATGateways. */
#pragma once

#include "nat.h"
#include "rate.h"
#include "service.h"

/* Ports tried for one that no mapping has: half of them in the spare block. */
#define FREE_PORT_TRIES 64
/* Ports tried for one that no flow has towards the same remote side: a few for each packet, and if none of them is free many more. That
 * takes long, so that it is done only so many times at once for a Subnet, and one every so many ns on the average: who begins flows that find no
 * port must not take the processor from others. What finds none drops; its sender's next try, a second later or more, begins elsewhere. */
#define SHARED_PORT_TRIES 64
#define MORE_SHARED_PORT_TRIES 8192
#define SEARCHES_AT_ONCE 16
#define SEARCH_INTERVAL 20000000

MAP(nat_search_times, BPF_MAP_TYPE_LRU_HASH, __u32, __u64, 1024, 0);

/* Whether the flow towards the same remote side that the interface has whose mapping has the scratch's external port has lost its REVERSE
 * half to the LRU, and nothing else: it gets that again. */
static __noinline bool nat_heal_other(struct nat_scratch *s)
{
	if (!s)
		return false;
	nat_key(&s->other, CONNTRACK_REVERSE, s->reverse.protocol, 0);
	s->other.destination = s->flow.external;
	s->other.destination_port = s->flow.external_port;
	struct nat_flow *mapped = bpf_map_lookup_elem(&nat_flows, &s->other);

	if (!mapped || same_inner(mapped, &s->flow))
		return false;
	nat_key(&s->other, CONNTRACK_FORWARD, s->reverse.protocol, mapped->vpc_id);
	s->other.source = mapped->inner;
	s->other.source_port = mapped->inner_port;
	s->other.destination = s->forward.destination;
	s->other.destination_port = s->forward.destination_port;
	struct nat_flow *flow = bpf_map_lookup_elem(&nat_flows, &s->other);

	if (!flow || !nat_is_live(flow, s->flow.last_seen) || !same_external(flow, &s->flow))
		return false;
	bpf_map_update_elem(&nat_flows, &s->reverse, flow, BPF_NOEXIST);
	return true;
}

/* Takes the scratch's external port for its flow, if none has it towards the same remote side. An entry of the flow's own, whose
 * other half was evicted, is taken up again. */
static __noinline bool nat_take(struct nat_scratch *s)
{
	if (!s)
		return false;
	s->reverse.destination = s->flow.external;
	s->reverse.destination_port = s->flow.external_port;
	struct nat_flow *other = bpf_map_lookup_elem(&nat_flows, &s->reverse);

	if (other && nat_is_live(other, s->flow.last_seen)) {
		if (!same_inner(other, &s->flow))
			return false;
		if (!opens(&s->l4))
			nat_note(&s->flow, s->reverse.protocol, other->flags, s->flow.last_seen);
		bpf_map_update_elem(&nat_flows, &s->reverse, &s->flow, BPF_ANY);
	} else {
		if (other)
			bpf_map_delete_elem(&nat_flows, &s->reverse);
		else if (nat_heal_other(s))
			return false;
		if (bpf_map_update_elem(&nat_flows, &s->reverse, &s->flow, BPF_NOEXIST))
			return false;
	}
	if (bpf_map_update_elem(&nat_flows, &s->forward, &s->flow, BPF_ANY))
		return false;
	return true;
}

/* Points the scratch at a port of a block. False: there is no such block (any more). */
static __noinline bool nat_point(struct nat_scratch *s, __u32 slot, __u32 port)
{
	if (!s)
		return false;
	struct nat_block_key key = { .vni = s->flow.vni, .slot = slot };
	struct nat_block *block = bpf_map_lookup_elem(&nat_blocks, &key);

	if (!block)
		return false;
	s->flow.external = block->address;
	s->flow.external_port = bpf_htons(block->first_port + (port & (PORT_BLOCK_SIZE - 1)));
	return true;
}

/* Tries a port that no mapping has. Callbacks return 1 to end. */
static int nat_try_free(__u32 i, void *unused __attribute__((unused)))
{
	struct nat_scratch *s = nat_scratch();

	if (!s || !s->blocks)
		return 1;
	__u32 last = s->blocks - 1, at = s->hash + i * 2654435761u;
	bool spare = i >= FREE_PORT_TRIES / 2 || !last;

	if (!nat_point(s, spare ? last : (at >> PORT_BLOCK_BITS) % last, at))
		return 0;
	s->mapped.destination = s->flow.external;
	s->mapped.destination_port = s->flow.external_port;
	struct nat_flow *owner = bpf_map_lookup_elem(&nat_flows, &s->mapped);

	if (owner && !same_inner(owner, &s->flow)) {
		if (nat_is_live(owner, s->flow.last_seen))
			return 0;
		bpf_map_delete_elem(&nat_flows, &s->mapped);
		owner = NULL;
	}
	if (!owner && !nat_enter_mapping(s, &s->mapped, BPF_NOEXIST))
		return 0;
	if (!nat_take(s)) {
		bpf_map_delete_elem(&nat_flows, &s->mapped);
		return 0;
	}
	nat_enter_mapping(s, &s->mapping, BPF_ANY);
	s->found = spare ? 2 : 1;
	return 1;
}

/* Tries a port whoever has it towards others. */
static int nat_try_shared(__u32 i, void *unused __attribute__((unused)))
{
	struct nat_scratch *s = nat_scratch();

	if (!s || !s->blocks)
		return 1;
	__u32 at = (s->start + i) % (s->blocks << PORT_BLOCK_BITS);

	if (!nat_point(s, at >> PORT_BLOCK_BITS, at) || !nat_take(s))
		return 0;
	s->found = 2;
	return 1;
}

/* Finds a port for a new flow, and enters it: the one that its sender has towards others; one that nobody has; one that nobody has
 * towards the same remote side. The scratch has the flow's inside and its keys but for the port. */
static __noinline int nat_begin(struct nat_scratch *s)
{
	if (!s)
		return DROP(DROP_KERNEL);
	__u32 vni = s->flow.vni;
	struct nat *nat = bpf_map_lookup_elem(&nats, &vni);

	if (!nat || !nat->blocks)
		return DROP(DROP_NAT_NO_PORTS);
	struct nat_want want = { .blocks = nat->blocks };

	s->blocks = nat->blocks;
	s->hash = hash(s->flow.inner.w[3], s->flow.inner_port, s->flow.vpc_id << 8 | s->l4.protocol);
	s->found = 0;
	struct nat_flow *mapping = bpf_map_lookup_elem(&nat_flows, &s->mapping);

	if (mapping && nat_is_live(mapping, s->flow.last_seen)) {
		s->flow.external = mapping->external;
		s->flow.external_port = mapping->external_port;
		if (nat_take(s)) {
			s->mapped.destination = s->flow.external;
			s->mapped.destination_port = s->flow.external_port;
			nat_renew(s);
			return 0;
		}
	} else {
		bpf_loop(FREE_PORT_TRIES, nat_try_free, NULL, 0);
	}
	s->start = s->hash + s->flow.last_seen * 2654435761u;
	if (!s->found)
		bpf_loop(SHARED_PORT_TRIES, nat_try_shared, NULL, 0);
	s->start += SHARED_PORT_TRIES;
	if (!s->found && within_rate(&nat_search_times, vni, SEARCHES_AT_ONCE, SEARCH_INTERVAL)) {
		__u32 ports = s->blocks << PORT_BLOCK_BITS;

		bpf_loop(ports < MORE_SHARED_PORT_TRIES ? ports : MORE_SHARED_PORT_TRIES, nat_try_shared, NULL, 0);
	}
	if (s->found != 1)
		bpf_map_update_elem(&nat_wants, &vni, &want, BPF_ANY);
	return s->found ? 0 : DROP(DROP_NAT_EXHAUSTED);
}
