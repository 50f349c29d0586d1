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

/* Whether an endpoint is at a member. What has an endpoint is a member. */
static __always_inline bool is_at(const struct endpoint *endpoint, const struct address *member)
{
	return endpoint && same_address(&endpoint->node, member);
}

/* A member may send as what it has, so that a node that was lost and comes back cannot send as interfaces that are elsewhere
 * by now, whatever still runs there. An address of another Subnet of the VPC, or of a peer, is found by the route to it. Hosts may send
 * on what comes from outside, and a member that has an interface without source check what others sent. The source is what the packet's
 * source address is in the Subnet that it came by, NULL when it is nothing there. */
static __noinline int check_source(const struct packet *p, __u32 vni, __u32 vpc_id, const struct address *member,
				   const struct endpoint *source)
{
	struct endpoint_key key = { .address = ipv4(p->source) };

	if (!source && vni != default_vni) {
		struct route *route = route_to(vni, p->source);

		if (route && route->vni) {
			key.vni = route->vni;
			source = bpf_map_lookup_elem(&endpoints, &key);
		}
	}
	if (source ? is_at(source, member) : vni == default_vni && !in_infrastructure_cidr(p->source))
		return 0;
	struct forwarder_key forwarder = { .member = *member, .vpc_id = vpc_id };

	return bpf_map_lookup_elem(&forwarders, &forwarder) ? 0 : DROP(DROP_STALE_SOURCE);
}
