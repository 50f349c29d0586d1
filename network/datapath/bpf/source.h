/* SPDX-License-Identifier: Apache-2.0 */
/* Who may send as whom through VXLAN. */
#pragma once

#include "config.h"
#include "maps.h"
#include "packet.h"
#include "service.h"

static __always_inline bool same_address(const struct address *a, const struct address *b)
{
	return a->w[3] == b->w[3] && a->w[2] == b->w[2] && a->w[1] == b->w[1] && a->w[0] == b->w[0];
}

/* A member may send as what it has, so that a node that was lost and comes back cannot send as interfaces that are elsewhere
 * by now, whatever still runs there. An address of another Subnet of the VPC, or of a peer, is found by the route to it. Hosts may send
 * on what comes from outside, and a member that has an interface without source check what others sent. */
static __noinline int check_source(const struct packet *p, __u32 vni, __u32 vpc_id, const struct address *member)
{
	struct endpoint_key key = { .vni = vni, .address = ipv4(p->source) };
	struct endpoint *source = bpf_map_lookup_elem(&endpoints, &key);

	if (!source && vni != default_vni) {
		struct route *route = route_to(vni, p->source);

		if (route && route->vni) {
			key.vni = route->vni;
			source = bpf_map_lookup_elem(&endpoints, &key);
		}
	}
	if (source ? same_address(&source->node, member) : vni == default_vni && !in_infrastructure_cidr(p->source))
		return 0;
	struct forwarder_key forwarder = { .member = *member, .vpc_id = vpc_id };

	return bpf_map_lookup_elem(&forwarders, &forwarder) ? 0 : DROP(DROP_STALE_SOURCE);
}
