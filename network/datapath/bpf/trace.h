/* SPDX-License-Identifier: Apache-2.0 */
/* Tracing: a second load of the programs, for BPF_PROG_TEST_RUN, tells where a packet would go, and takes from the map
 * what a vxlan device would have told. Where the constant is false the verifier removes all of it. */
#pragma once

#include "kernel.h"
#include "maps.h"

volatile const bool tracing = false;

enum trace_target {
	TRACE_NOWHERE = 0,
	TRACE_INTERFACE = 1, /* into the interface of a Pod */
	TRACE_SENDER = 2,    /* back out of the interface it came from */
	TRACE_HOST = 3,
	TRACE_MEMBER = 4,
};

struct trace {
	/* What the packet came with, when it came by VXLAN. */
	__u32 from_vni;
	__be32 from_member;
	/* Where it goes. */
	enum trace_target target;
	__u32 ifindex;
	__u32 vni;
	__be32 member;
};

MAP(traces, BPF_MAP_TYPE_ARRAY, __u32, struct trace, 1, 0);

static __always_inline struct trace *trace(void)
{
	__u32 zero = 0;

	return tracing ? bpf_map_lookup_elem(&traces, &zero) : NULL;
}

static __always_inline void trace_redirect(enum trace_target target, __u32 ifindex)
{
	struct trace *t = trace();

	if (!t)
		return;
	t->target = target;
	t->ifindex = ifindex;
}

static __always_inline void trace_tunnel(__u32 vni, __be32 member)
{
	struct trace *t = trace();

	if (!t)
		return;
	t->vni = vni;
	t->member = member;
}

/* Overrides the tunnel key with a traced one. */
static __always_inline bool trace_from(struct bpf_tunnel_key *key)
{
	struct trace *t = trace();

	if (!t || !t->from_member)
		return false;
	key->tunnel_id = t->from_vni;
	key->remote_ipv4 = bpf_ntohl(t->from_member);
	return true;
}
