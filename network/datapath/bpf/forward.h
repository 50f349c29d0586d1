/* SPDX-License-Identifier: Apache-2.0 */
/* Where packets of interfaces and of the host go. */
#pragma once

#include "alias.h"
#include "deliver.h"
#include "external.h"
#include "gateway.h"
#include "service.h"

/* Where a route leads that is not simply to the destination's Subnet: the next hop's key. */
static __always_inline int next_hop(const struct route *route, const struct nic *nic, struct endpoint_key *key)
{
	if (route->kind == ROUTE_BLACKHOLE)
		return DROP(DROP_BLACKHOLE);
	if (route->kind != ROUTE_HOP)
		return DROP(DROP_RESERVED_RANGE);
	if (route->hop_vni == nic->vni && is_ipv4(&route->hop, nic->address.w[3]))
		return DROP(DROP_ROUTE_LOOP); /* it would get what it sent */
	key->vni = route->hop_vni;
	key->address = route->hop;
	return 0;
}

/* Between interfaces of a tenant's VPC, also by its Services. Beyond them is only what a route leads out to: never
 * hosts or the underlay. */
static __always_inline int forward_in_vpc(struct __sk_buff *skb, struct packet *p, const struct nic *nic)
{
	struct endpoint_key key = {};
	__u32 vpc_id = nic->vpc_id;
	bool hop = false;
	int done = 0;

	if (exceeds_mtu(skb, p))
		return DROP(DROP_MTU_EXCEEDED);
	if (p->destination == hairpin_address) {
		done = from_service(skb, p, nic->vpc_id);
		if (!done)
			return DROP(DROP_NO_CONNTRACK);
		p->exempt = true;
	} else if (in_service_cidr(p->destination)) {
		if (p->ttl <= 1) /* before it is translated, so that the sender knows it again */
			return DROP(DROP_TTL_EXCEEDED);
		done = to_backend(skb, p, nic);
		if (p->source == hairpin_address)
			p->exempt = true;
	}
	if (done < 0)
		return done;
	key.address = ipv4(p->destination);
	key.vni = nic->vni;
	if (!same_prefix(p->destination, &nic->address, nic->prefix_length)) {
		struct route *route = route_to(nic->vni, p->destination);

		if (!route)
			return DROP(DROP_NO_ROUTE);
		key.vni = route->vni;
		if (route->kind == ROUTE_PEER) {
			/* Nobody sends on what others sent: a peer of a peer is none. */
			if (!is_ipv4(&nic->address, p->source))
				return DROP(DROP_PEERING_TRANSIT);
			vpc_id = route->peer_vpc_id;
		} else if (route->kind != ROUTE_LOCAL) {
			bool answer = route->kind == ROUTE_RESERVED && answers_caller(skb, p, nic->address.w[3], nic->vpc_id);

			if (answer || route->kind == ROUTE_OUTSIDE)
				return leave_vpc(skb, p, nic, answer);
			done = next_hop(route, nic, &key);
			if (done)
				return done;
			hop = true;
		}
	}
	if (hop)
		trace_step(STEP_ROUTE, key.vni, key.address.w[3], false);
	else if (vpc_id != nic->vpc_id)
		trace_step(STEP_PEER, key.vni, p->destination, false);
	else
		trace_step(STEP_SUBNET, key.vni, p->destination, key.vni == nic->vni);
	struct endpoint *endpoint = bpf_map_lookup_elem(&endpoints, &key);

	if (!endpoint) {
		if (p->service)
			forget_flow(p, nic->vpc_id);
		if (hop)
			return DROP(DROP_NO_NEXT_HOP);
		return key.vni == nic->vni ? answer_ping(skb, key.vni) : DROP(DROP_NO_ENDPOINT);
	}
	if (endpoint->vpc_id != vpc_id)
		return DROP(DROP_OTHER_VPC);
	trace_step(STEP_ENDPOINT, endpoint->kind, endpoint->node.w[3], false);
	done = police_egress(skb, p, nic);
	if (done)
		return done;
	if (hop || key.vni != nic->vni) {
		done = decrement_ttl(skb);
		if (done)
			return done;
	}
	if (is_zero(&endpoint->node))
		return to_interface(skb, p, key.vni, endpoint);
	return hop ? to_member_hop(skb, key.vni, endpoint) : to_member(skb, key.vni, endpoint);
}

/* A Pod's own VXLAN would reach a member with its node's address as the outer source. */
static __always_inline bool is_forged_vxlan(const struct packet *p)
{
	return p->protocol == IPPROTO_UDP && p->destination_port == vxlan_port;
}

/* A destination in the default Subnet's VPC that is no endpoint: outside, or nothing. */
static __always_inline int forward_outside(struct __sk_buff *skb, const struct packet *p, const struct nic *nic)
{
	if (in_infrastructure_cidr(p->destination)) {
		if (p->service)
			forget_flow(p, default_vpc_id);
		return nic ? answer_ping(skb, default_vni) : DROP(DROP_NO_ENDPOINT);
	}
	/* The host's stack would not take its own packet back. */
	if (!nic)
		return p->service ? DROP(DROP_SERVICE_HOST_TO_HOST) : DROP(DROP_NO_ENDPOINT);
	if (is_forged_vxlan(p))
		return DROP(DROP_FORGED_VXLAN);
	trace_step(STEP_OUTSIDE, 0, p->destination, false);
	int error = police_egress(skb, p, nic);

	return error ? error : to_host(skb);
}

/* To this node's host, which may be the client of a Service. */
static __always_inline int to_own_host(struct __sk_buff *skb, struct packet *p)
{
	int done = from_service(skb, p, default_vpc_id);

	return done < 0 ? done : to_host(skb);
}

/* From an ordinary Pod or (where nic is NULL) this node's host: to ordinary Pods, Services, hosts and, if it may, to
 * infrastructure addresses; from Pods also to the outside. */
static __always_inline int forward_default(struct __sk_buff *skb, struct packet *p, const struct nic *nic)
{
	bool from_host = !nic;
	struct endpoint_key key = { .vni = default_vni };
	int done = 0;

	if (exceeds_mtu(skb, p))
		return DROP(DROP_MTU_EXCEEDED);
	if (p->destination == hairpin_address) {
		done = from_service(skb, p, default_vpc_id);
		if (!done)
			return DROP(DROP_NO_CONNTRACK);
		p->exempt = true;
	} else if (in_service_cidr(p->destination)) {
		done = to_backend(skb, p, nic);
		if (p->source == hairpin_address)
			p->exempt = true;
	}
	if (done < 0)
		return done;
	key.address = ipv4(p->destination);
	struct endpoint *endpoint = bpf_map_lookup_elem(&endpoints, &key);

	if (!endpoint)
		return forward_outside(skb, p, nic);
	trace_step(STEP_ENDPOINT, endpoint->kind, endpoint->node.w[3], false);
	if (endpoint->kind == ENDPOINT_INFRASTRUCTURE) {
		struct address here = {};

		if (p->service || !may_open(p->source, &here))
			return DROP(DROP_INFRASTRUCTURE_ADDRESS);
		done = nic ? police_egress(skb, p, nic) : 0;
		if (done)
			return done;
		if (!is_zero(&endpoint->node))
			return to_member(skb, default_vni, endpoint);
		return open_to_interface(skb, p, endpoint->ifindex, endpoint->vpc_id);
	}
	if (endpoint->kind == ENDPOINT_HOST && !from_host && is_forged_vxlan(p))
		return DROP(DROP_FORGED_VXLAN);
	/* Between a Pod and its own node's host nothing is forbidden. */
	if (nic && !(endpoint->kind == ENDPOINT_HOST && is_zero(&endpoint->node))) {
		done = police_egress(skb, p, nic);
		if (done)
			return done;
	}
	if (!is_zero(&endpoint->node)) {
		/* The answer would come by the underlay and miss its translation. */
		if (endpoint->kind == ENDPOINT_HOST && from_host)
			return DROP(DROP_SERVICE_HOST_TO_HOST);
		return to_member(skb, default_vni, endpoint);
	}
	if (endpoint->kind == ENDPOINT_HOST)
		return to_own_host(skb, p);
	return to_interface(skb, p, default_vni, endpoint);
}
