/* SPDX-License-Identifier: Apache-2.0 */
/* Services: what is sent to one goes to one of its backends in the client's VPC; what the backend answers comes from the
 * Service. Both happen on the client's node. */
#pragma once

#include "config.h"
#include "conntrack.h"
#include "flow.h"
#include "maps.h"
#include "packet.h"
#include "trace.h"

/* What does not fit on the stack while a new flow is made: all functions called share 512 bytes of it. */
struct scratch {
	struct conntrack flow;
	struct affinity_key client;
	struct affinity kept;
};

MAP(scratches, BPF_MAP_TYPE_PERCPU_ARRAY, __u32, struct scratch, 1, 0);

/* Backends tried for one whose endpoint exists. */
#define BACKEND_TRIES 4

static __always_inline bool in_service_cidr(__be32 a)
{
	return (a & service_mask) == service_prefix;
}

static __always_inline bool in_infrastructure_cidr(__be32 a)
{
	return (a & infrastructure_mask) == infrastructure_prefix;
}

/* The route from a Subnet to an address. */
static __always_inline struct route *route_to(__u32 vni, __be32 address)
{
	struct route_key to = { .prefix_length = 32 + 128, .vni = vni, .prefix = ipv4(address) };

	return bpf_map_lookup_elem(&routes, &to);
}

/* The Subnet that an address of a tenant's VPC is in, seen from an interface; 0 when it is in none. */
static __always_inline __u32 vni_of(const struct nic *nic, __be32 address)
{
	struct route *route;

	if (same_prefix(address, &nic->address, nic->prefix_length))
		return nic->vni;
	route = route_to(nic->vni, address);
	return route ? route->vni : 0;
}

static __always_inline __u32 hash(__u32 a, __u32 b, __u32 c)
{
	__u32 h = a * 0xcc9e2d51;

	h = (h << 15 | h >> 17) ^ b * 0x1b873593;
	h = (h << 13 | h >> 19) * 5 ^ c * 0x85ebca6b;
	h ^= h >> 16;
	h *= 0xc2b2ae35;
	return h ^ h >> 13;
}

/* The backend that a client keeps to, if it is still one. */
static __always_inline struct backend *kept_backend(const struct affinity_key *key, const struct service *service, __u32 now)
{
	struct affinity *kept = bpf_map_lookup_elem(&affinities, key);
	struct backend_key slot = { .service = key->service };
	struct backend *backend;

	if (!kept || now - kept->last_seen > service->affinity || kept->slot >= service->count)
		return NULL;
	slot.slot = kept->slot;
	backend = bpf_map_lookup_elem(&backends, &slot);
	if (!backend || backend->port != kept->backend.port || backend->address.w[3] != kept->backend.address.w[3])
		return NULL;
	kept->last_seen = now;
	return backend;
}

/* Whether a client can reach a backend: its endpoint exists, or it is a host or outside, of which only ordinary Pods have
 * Services. */
static __always_inline bool is_reachable(const struct backend *backend, const struct nic *nic)
{
	struct endpoint_key key = { .vni = default_vni, .address = backend->address };

	if (nic && nic->vni != default_vni)
		key.vni = vni_of(nic, backend->address.w[3]);
	else if (!in_infrastructure_cidr(backend->address.w[3]))
		return true;
	return bpf_map_lookup_elem(&endpoints, &key);
}

/* A backend by the flow's hash: a flow whose entry was evicted finds the same again. */
static __always_inline struct backend *pick_backend(struct backend_key *slot, const struct service *service, const struct nic *nic,
						    __u32 h)
{
	struct backend *backend = NULL;

	slot->service = service->id;
	for (int i = 0; i < BACKEND_TRIES; i++) {
		slot->slot = (h + i) % service->count;
		backend = bpf_map_lookup_elem(&backends, slot);
		if (backend && is_reachable(backend, nic))
			return backend;
	}
	return backend;
}

/* Chooses the backend of a new flow. The client's nic is NULL for the host. */
static __noinline int choose_backend(const struct conntrack_key *flow, struct scratch *scratch, const struct nic *nic)
{
	struct service_key key = {};
	struct backend_key slot = {};
	struct service *service;
	struct backend *backend = NULL;

	if (!flow || !scratch)
		return DROP(DROP_KERNEL);
	struct conntrack *ct = &scratch->flow;
	struct affinity_key *client = &scratch->client;

	key.address = flow->destination;
	key.vpc_id = flow->vpc_id;
	key.port = flow->destination_port;
	key.protocol = flow->protocol;
	service = bpf_map_lookup_elem(&services, &key);
	if (!service)
		return DROP(DROP_UNKNOWN_SERVICE);
	if (!service->count)
		return DROP(DROP_NO_BACKEND);
	client->client = flow->source;
	client->vpc_id = flow->vpc_id;
	client->service = service->id;
	if (service->affinity)
		backend = kept_backend(client, service, ct->last_seen);
	if (!backend) {
		backend = pick_backend(&slot, service, nic,
				       hash(flow->source.w[3], service->id, service->affinity ? 0 : flow->source_port));
		if (!backend)
			return DROP(DROP_NO_BACKEND);
		if (service->affinity) {
			scratch->kept = (struct affinity){ .backend = *backend, .slot = slot.slot, .last_seen = ct->last_seen };
			bpf_map_update_elem(&affinities, client, &scratch->kept, BPF_ANY);
		}
	}
	ct->service = flow->destination;
	ct->service_port = flow->destination_port;
	ct->client_port = ct->nat_port = flow->source_port;
	ct->service_id = service->id;
	ct->backend = backend->address;
	ct->backend_port = backend->port;
	if (backend->address.w[3] == flow->source.w[3])
		ct->flags |= CONNTRACK_HAIRPIN;
	return 0;
}

static __always_inline void flow_key(struct conntrack_key *key, const struct packet *p, __u32 vpc_id, enum conntrack_direction direction)
{
	key->source = ipv4(p->source);
	key->destination = ipv4(p->destination);
	key->vpc_id = vpc_id;
	key->source_port = p->source_port;
	key->destination_port = p->destination_port;
	key->direction = direction;
	key->protocol = p->protocol;
}

static __always_inline bool has_ports(const struct packet *p)
{
	return p->protocol == IPPROTO_TCP || p->protocol == IPPROTO_UDP;
}

/* Fills in the ports of a TCP or UDP fragment, which the first one has for all. */
static __noinline int learn_ports(struct __sk_buff *skb, struct packet *p, __u32 vpc_id)
{
	struct l4 l4 = {};

	if (!p)
		return DROP(DROP_KERNEL);
	l4.source = p->source;
	l4.destination = p->destination;
	l4.protocol = p->protocol;
	int error = read_fragment(skb, p, vpc_id, &l4);

	p->source_port = l4.source_port;
	p->destination_port = l4.destination_port;
	return error;
}

/* Sends a packet for a Service to a backend. The client's nic is NULL for the host. */
static __noinline int to_backend(struct __sk_buff *skb, struct packet *p, const struct nic *nic)
{
	struct conntrack_key key = {};
	__u32 vpc_id = nic ? nic->vpc_id : default_vpc_id;
	__u32 now = seconds(), zero = 0;

	if (!has_ports(p))
		return DROP(DROP_SERVICE_PROTOCOL);
	if (p->fragment) {
		int error = learn_ports(skb, p, vpc_id);

		if (error)
			return error == DROP(DROP_UNKNOWN_FRAGMENT) ? DROP(DROP_SERVICE_FRAGMENT) : error;
	}
	flow_key(&key, p, vpc_id, CONNTRACK_FORWARD);
	struct conntrack *ct = bpf_map_lookup_elem(&conntracks, &key);
	bool again = (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;

	bool known = ct && is_live(ct, p->protocol, now) && !(again && is_closing(ct));

	if (known) {
		touch(&key, ct, p->tcp_flags, now);
	} else {
		struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);

		if (!scratch)
			return DROP(DROP_KERNEL);
		ct = &scratch->flow;
		__builtin_memset(ct, 0, sizeof(*ct));
		ct->last_seen = now;
		int error = choose_backend(&key, scratch, nic);

		if (!error)
			error = create(&key, ct);
		if (error)
			return error;
	}
	trace_step(STEP_SERVICE, bpf_ntohs(ct->backend_port), ct->backend.w[3], known);
	p->service = true;
	p->service_address = p->destination;
	p->service_port = p->destination_port;
	p->client_port = p->source_port;
	struct tuple to = {
		.source = ct->flags & CONNTRACK_HAIRPIN ? hairpin_address : p->source,
		.source_port = ct->nat_port,
		.destination = ct->backend.w[3],
		.destination_port = ct->backend_port,
	};

	return translate(skb, p, &to);
}

/* Forgets the flow of a packet whose backend is gone, so that the client's next try finds another. */
static __always_inline void forget_flow(const struct packet *p, __u32 vpc_id)
{
	struct conntrack_key key = {};

	flow_key(&key, p, vpc_id, CONNTRACK_FORWARD);
	key.source = ipv4(p->source == hairpin_address ? p->destination : p->source);
	key.source_port = p->client_port;
	key.destination = ipv4(p->service_address);
	key.destination_port = p->service_port;
	bpf_map_delete_elem(&conntracks, &key);
}

/* Makes what a backend of a VPC answers come from the Service. Returns 1 when it did, 0 when the packet is of no such flow. */
static __noinline int from_service(struct __sk_buff *skb, struct packet *p, __u32 vpc_id)
{
	struct conntrack_key key = {};
	__u32 now = seconds();

	if (!has_ports(p))
		return 0;
	if (p->fragment) {
		int error = learn_ports(skb, p, vpc_id);

		/* Whether it is of such a flow only the first would tell: without it nobody can make use of this one. */
		if (error)
			return error == DROP(DROP_UNKNOWN_FRAGMENT) ? 0 : error;
	}
	flow_key(&key, p, vpc_id, CONNTRACK_REVERSE);
	struct conntrack *ct = bpf_map_lookup_elem(&conntracks, &key);

	if (!ct || !is_live(ct, p->protocol, now))
		return 0;
	touch(&key, ct, p->tcp_flags, now);
	trace_step(STEP_SERVICE_ANSWER, bpf_ntohs(ct->service_port), ct->service.w[3], true);
	struct tuple to = {
		.source = ct->service.w[3],
		.source_port = ct->service_port,
		.destination = ct->flags & CONNTRACK_HAIRPIN ? ct->backend.w[3] : p->destination,
		.destination_port = ct->client_port,
	};
	int error = translate(skb, p, &to);

	return error ? error : 1;
}
