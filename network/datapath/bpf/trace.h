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
	TRACE_OUTSIDE = 5, /* out of the uplink, to the next hop that the kernel knows */
	TRACE_STACK = 6,   /* left as it is to the node's own stack, for which it came */
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

/* What the programs decided on the way, in order. The comment says what number and address are, and when known is set. */
enum trace_step_kind {
	STEP_NONE = 0,
	STEP_SOURCE,         /* an interface may send it: its addresses are the interface's own; known: it sends on what another sent */
	STEP_MEMBER,         /* a member's VXLAN is accepted; VNI, the member */
	STEP_MEMBER_SOURCE,  /* the source is at the member that sent it */
	STEP_ANSWER,         /* to an alias: the answer to what was opened; opener's port, opener */
	STEP_SERVICE,        /* a Service leads to a backend; its port, its address; the flow is known */
	STEP_SERVICE_ANSWER, /* it comes from a backend and is made to come from the Service; its port, its address */
	STEP_SUBNET,         /* the destination is in a Subnet; its VNI, the destination; it is the sender's own */
	STEP_ROUTE,          /* a route leads to a next hop; its VNI, the next hop */
	STEP_ENDPOINT,       /* the destination's endpoint; its kind, its node */
	STEP_OUTSIDE,        /* the destination is outside, by the node's own stack */
	STEP_EGRESS,         /* the sender's policy is asked; its number, the other side; the flow is known */
	STEP_INGRESS,        /* the destination's policy is asked; like STEP_EGRESS */
	STEP_OPENED,         /* to an infrastructure address, from one who may open connections; the interface's VPC, its address */
	STEP_EXTERNAL,       /* the destination is an external address that an interface has; its Subnet's VNI, the interface's own address */
	STEP_FLOATING,       /* it leaves the VPC from the interface's own external address; the VPC, the external address */
	STEP_NAT,            /* it leaves the VPC by a NATGateway; the external port and address; the flow is known */
	STEP_NAT_ANSWER,     /* it answers what was sent by a NATGateway; the interface's port and address */
	STEP_RESOLVER,       /* to the VPC's resolver; the VPC, the infrastructure address that it comes from */
	STEP_RESOLVED,       /* the resolver answers; the VPC, the interface's own address */
	STEP_PEER,           /* the destination is in a Subnet of a peer; its VNI, the destination */
};

struct trace_step {
	enum trace_step_kind kind;
	__u32 number;
	__be32 address;
	__u32 known;
};

#define TRACE_STEPS 16

struct trace_log {
	__u32 count;
	struct trace_step steps[TRACE_STEPS];
};

/* A variable, not a map: a lookup would take room on the stack. */
struct trace_log trace_log;

static __always_inline void trace_step(enum trace_step_kind kind, __u32 number, __be32 address, bool known)
{
	if (!tracing)
		return;
	__u32 i = trace_log.count;

	if (i >= TRACE_STEPS)
		return;
	trace_log.steps[i & (TRACE_STEPS - 1)] = (struct trace_step){ kind, number, address, known };
	trace_log.count = i + 1;
}

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
