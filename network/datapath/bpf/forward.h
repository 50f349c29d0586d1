/* SPDX-License-Identifier: Apache-2.0 */
/* Where packets of interfaces and of the host go. */
#pragma once

#include "deliver.h"
#include "gateway.h"
#include "service.h"

/* Between interfaces of a tenant's VPC. Nothing else is within reach: not hosts, Services, the underlay or the outside. */
static __always_inline int forward_in_vpc(struct __sk_buff *skb, struct packet *p, const struct nic *nic)
{
	struct endpoint_key key = { .vni = nic->vni, .address = ipv4(p->destination) };
	bool other_subnet = !same_prefix(p->destination, &nic->address, nic->prefix_length);

	if (other_subnet) {
		struct route_key to = { .prefix_length = 32 + 128, .vni = nic->vni, .prefix = key.address };
		struct route *route = bpf_map_lookup_elem(&routes, &to);

		if (!route)
			return DROP(DROP_NO_ROUTE);
		key.vni = route->vni;
	}
	struct endpoint *endpoint = bpf_map_lookup_elem(&endpoints, &key);

	if (!endpoint)
		return other_subnet ? DROP(DROP_NO_ENDPOINT) : answer_ping(skb, key.vni);
	if (endpoint->vpc_id != nic->vpc_id)
		return DROP(DROP_OTHER_VPC);
	if (exceeds_mtu(skb, p))
		return DROP(DROP_MTU_EXCEEDED);
	int error = police_egress(skb, p, nic);

	if (error)
		return error;
	if (other_subnet) {
		error = decrement_ttl(skb);
		if (error)
			return error;
	}
	if (is_zero(&endpoint->node))
		return to_interface(skb, p, key.vni, endpoint);
	return to_member(skb, key.vni, endpoint);
}

/* A Pod's own VXLAN would reach a member with its node's address as the outer source. */
static __always_inline bool is_forged_vxlan(const struct packet *p)
{
	return p->protocol == IPPROTO_UDP && p->destination_port == vxlan_port;
}

/* A destination in the default Subnet's VPC that is no endpoint: outside, or nothing. */
static __always_inline int forward_outside(struct __sk_buff *skb, const struct packet *p, const struct nic *nic, __be32 client,
					   __be16 client_port)
{
	if (in_infrastructure_cidr(p->destination)) {
		if (p->service)
			forget_flow(p, client, client_port);
		return nic ? answer_ping(skb, default_vni) : DROP(DROP_NO_ENDPOINT);
	}
	/* The host's stack would not take its own packet back. */
	if (!nic)
		return p->service ? DROP(DROP_SERVICE_HOST_TO_HOST) : DROP(DROP_NO_ENDPOINT);
	if (is_forged_vxlan(p))
		return DROP(DROP_FORGED_VXLAN);
	int error = police_egress(skb, p, nic);

	return error ? error : to_host(skb);
}

/* To this node's host, which may be the client of a Service. */
static __always_inline int to_own_host(struct __sk_buff *skb, struct packet *p)
{
	int done = from_service(skb, p);

	return done < 0 ? done : to_host(skb);
}

/* From an ordinary Pod, or from this node's host, which has no interface (nic is NULL): to ordinary Pods, Services and hosts;
 * from Pods also to the outside. */
static __always_inline int forward_default(struct __sk_buff *skb, struct packet *p, const struct nic *nic)
{
	struct endpoint_key key = { .vni = default_vni };
	__be32 client = p->source;
	__be16 client_port = p->source_port;
	int done = 0;

	if (exceeds_mtu(skb, p))
		return DROP(DROP_MTU_EXCEEDED);
	if (p->destination == hairpin_address) {
		done = from_service(skb, p);
		if (!done)
			return DROP(DROP_NO_CONNTRACK);
		p->exempt = true;
	} else if (in_service_cidr(p->destination)) {
		done = to_backend(skb, p);
		if (p->source == hairpin_address)
			p->exempt = true;
	}
	if (done < 0)
		return done;
	key.address = ipv4(p->destination);
	struct endpoint *endpoint = bpf_map_lookup_elem(&endpoints, &key);

	if (!endpoint)
		return forward_outside(skb, p, nic, client, client_port);
	if (endpoint->kind == ENDPOINT_INFRASTRUCTURE)
		return DROP(DROP_INFRASTRUCTURE_ADDRESS);
	if (endpoint->kind == ENDPOINT_HOST && nic && is_forged_vxlan(p))
		return DROP(DROP_FORGED_VXLAN);
	/* Between a Pod and its own node's host nothing is forbidden. */
	bool own_host = endpoint->kind == ENDPOINT_HOST && is_zero(&endpoint->node);

	if (nic && !own_host) {
		done = police_egress(skb, p, nic);
		if (done)
			return done;
	}
	if (!is_zero(&endpoint->node)) {
		/* The answer would come by the underlay and miss its translation. */
		if (endpoint->kind == ENDPOINT_HOST && !nic)
			return DROP(DROP_SERVICE_HOST_TO_HOST);
		return to_member(skb, default_vni, endpoint);
	}
	if (endpoint->kind == ENDPOINT_HOST)
		return to_own_host(skb, p);
	return to_interface(skb, p, default_vni, endpoint);
}
