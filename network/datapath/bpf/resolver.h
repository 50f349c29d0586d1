/* SPDX-License-Identifier: Apache-2.0 */
/* The resolver of VPCs: the one thing on a host that a tenant may speak to. Its address, link-local, is the same in every VPC and on
 * every node, where the resolver itself listens on it.
 *
 * What an interface sends there comes to the host from the interface's infrastructure address, which says whose it is, and what the
 * resolver answers goes to the interface's own. Nothing is remembered, so a resolver may answer after any restart. Policies do
 * not apply, as to what the platform sends. */
#pragma once

#include "alias.h"
#include "config.h"
#include "deliver.h"
#include "icmp.h"
#include "maps.h"
#include "packet.h"
#include "rate.h"

#define RESOLVER_PORT bpf_htons(53)

/* For each interface: so many packets at once, and one every so many ns on the average, 1024 a second. */
#define QUERIES_AT_ONCE 1024
#define QUERY_INTERVAL 976562ULL

/* When the next query of an interface would be due if they came evenly: ns since boot, by its ifindex. */
MAP(query_times, BPF_MAP_TYPE_LRU_HASH, __u32, __u64, 16384, 0);

/* Makes what an interface in a tenant's VPC sends to the resolver come from its infrastructure address. */
static __noinline int ask_resolver(struct __sk_buff *skb, struct packet *p, const struct nic *nic)
{
	if (!nic)
		return DROP(DROP_KERNEL);
	if (p->fragment || !has_ports(p) || p->destination_port != RESOLVER_PORT)
		return DROP(DROP_RESOLVER_PROTOCOL);
	if (exceeds_mtu(skb, p))
		return DROP(DROP_MTU_EXCEEDED);
	if (is_zero(&nic->infrastructure))
		return DROP(DROP_NO_ENDPOINT);
	if (!within_rate(&query_times, skb->ifindex, QUERIES_AT_ONCE, QUERY_INTERVAL))
		return DROP(DROP_RESOLVER_RATE);
	struct tuple to = {
		.source = nic->infrastructure.w[3],
		.source_port = p->source_port,
		.destination = p->destination,
		.destination_port = p->destination_port,
	};

	trace_step(STEP_RESOLVER, nic->vpc_id, to.source, false);
	return translate(skb, p, &to);
}

/* Gives the interface that asked what the host sends from the resolver's address to its infrastructure address. */
static __noinline int answer_query(struct __sk_buff *skb, struct packet *p)
{
	struct endpoint_key key = { .vni = default_vni, .address = ipv4(p->destination) };
	struct endpoint *endpoint = bpf_map_lookup_elem(&endpoints, &key);

	if (!endpoint || endpoint->kind != ENDPOINT_INFRASTRUCTURE || !is_zero(&endpoint->node))
		return DROP(DROP_NO_ENDPOINT);
	__u32 ifindex = endpoint->ifindex;
	struct nic *nic = bpf_map_lookup_elem(&nics, &ifindex);

	if (!nic || nic->vpc_id != endpoint->vpc_id || !is_ipv4(&nic->infrastructure, p->destination))
		return DROP(DROP_DESTINATION_CHECK);
	/* Port unreachable: nothing listens. Who asks waits and asks again, and does not fail while the resolver is started anew. */
	if (is_icmp_error(skb, p))
		return DROP(DROP_RESOLVER_DOWN);
	if (p->fragment || !has_ports(p) || p->source_port != RESOLVER_PORT)
		return DROP(DROP_RESOLVER_PROTOCOL);
	if (exceeds_mtu(skb, p))
		return DROP(DROP_MTU_EXCEEDED);
	trace_step(STEP_RESOLVED, nic->vpc_id, nic->address.w[3], false);
	struct tuple to = {
		.source = p->source,
		.source_port = p->source_port,
		.destination = nic->address.w[3],
		.destination_port = p->destination_port,
	};
	int error = translate(skb, p, &to);

	return error ? error : into_interface(skb, nic, ifindex);
}
