/* SPDX-License-Identifier: Apache-2.0 */
/* What comes for external addresses: from outside by the uplink, and from the member that it arrived at. */
#pragma once

#include "external.h"
#include "source.h"

/* Whether a packet that arrived at the uplink is for an external address, and for which. All else is the host's. */
static __always_inline struct external *arrived(struct __sk_buff *skb)
{
	if (skb->protocol != bpf_htons(ETH_P_IP) || skb->vlan_present || skb->pkt_type != PACKET_HOST ||
	    !pull(skb, ETH_HLEN + sizeof(struct iphdr)))
		return NULL;
	struct iphdr *ip = packet_data(skb) + IP_OFFSET;

	if ((void *)(ip + 1) > packet_end(skb) || ip->daddr == node_address)
		return NULL;
	return external_of(ip->daddr);
}

/* Whether an address cannot be one of the outside: the cloud's own, or nobody's. */
static __always_inline bool is_no_outside(__be32 a)
{
	__u32 first = bpf_ntohl(a) >> 24;

	return first == 0 || first == 127 || first >= 224 || is_alias(a) || a == hairpin_address || in_service_cidr(a) ||
	       in_infrastructure_cidr(a) || external_of(a);
}

static __always_inline int from_outside(struct __sk_buff *skb, const struct external *external)
{
	struct packet p = {};
	int error = parse_ipv4(skb, &p);

	if (error)
		return error;
	if (is_no_outside(p.source))
		return DROP(DROP_OUTSIDE_SOURCE);
	if (external->kind == EXTERNAL_FREE)
		return DROP(DROP_EXTERNAL_FREE);
	if (exceeds_mtu(skb, &p))
		return DROP(DROP_MTU_EXCEEDED);
	error = decrement_ttl(skb);
	return error ? error : to_external(skb, &p, external, false);
}

/* What another member got for an external address whose target is here. What its own interfaces send comes from external
 * addresses that are there. */
static __always_inline int from_member_external(struct __sk_buff *skb, struct packet *p, const struct address *member)
{
	struct external *external = external_of(p->destination);
	struct external *from = external_of(p->source);

	if (!external || external->kind == EXTERNAL_FREE)
		return DROP(DROP_EXTERNAL_FREE);
	if (from && !(from->kind == EXTERNAL_NAT ? is_port_of(skb, p, member) : same_address(&from->node, member)))
		return DROP(DROP_STALE_SOURCE);
	return to_external(skb, p, external, true);
}
