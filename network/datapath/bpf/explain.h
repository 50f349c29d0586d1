/* SPDX-License-Identifier: Apache-2.0 */
/* ICMP errors (RFC 792, RFC 1191, RFC 1812): senders are told of drops that they can do something about. */
#pragma once

#include "deliver.h"
#include "drop.h"
#include "gateway.h"
#include "icmp.h"
#include "rate.h"

/* For each interface, or external address: so many at once, and one every so many ns on the average. */
#define ERRORS_AT_ONCE 50
#define ERROR_INTERVAL 10000000ULL

#define IP_DONT_FRAGMENT 0x4000
#define ICMP_PORT_UNREACHABLE 3
#define ICMP_FRAGMENTATION_NEEDED 4

/* Where what is dropped came from. */
enum origin {
	FROM_POD,
	FROM_HOST,
	FROM_OUTSIDE,
};

/* When the next error would be due if they came evenly: ns since boot, by the ifindex of the program's interface, or the external
 * address that a packet from outside was for. */
MAP(error_times, BPF_MAP_TYPE_LRU_HASH, __u32, __u64, 1024, 0);

/* An ICMP error as it is sent. The quote is as long as must be. */
struct icmp_error {
	struct iphdr ip;
	struct icmp icmp;
	struct quote quote;
};

/* What an error says of a reason, and who says it: the gateway, or where there is none who the packet was for. False: nothing. */
static __always_inline bool compose(struct icmp_error *error, int reason, const struct subnet *subnet)
{
	const struct iphdr *ip = &error->quote.ip;

	error->icmp.type = ICMP_UNREACHABLE;
	error->ip.saddr = subnet ? subnet->gateway.w[3] : ip->daddr;
	switch (reason) {
	case DROP_NO_BACKEND:
	case DROP_UNKNOWN_SERVICE:
		error->icmp.code = ICMP_PORT_UNREACHABLE;
		error->ip.saddr = ip->daddr;
		break;
	case DROP_MTU_EXCEEDED:
		if (!(ip->frag_off & bpf_htons(IP_DONT_FRAGMENT)))
			return false;
		error->icmp.code = ICMP_FRAGMENTATION_NEEDED;
		error->icmp.sequence = bpf_htons(mtu); /* the next hop's, RFC 1191 */
		break;
	case DROP_TTL_EXCEEDED:
		error->icmp.type = ICMP_TIME_EXCEEDED;
		break;
	default:
		return false;
	}
	/* Never about an error, nor about other fragments than the first. */
	if (ip->version != 4 || ip->ihl != 5 || ip->frag_off & bpf_htons(IP_FRAGMENT_OFFSET))
		return false;
	if (ip->protocol == IPPROTO_ICMP && error->quote.icmp.type != ICMP_ECHO_REQUEST && error->quote.icmp.type != ICMP_ECHO_REPLY)
		return false;
	error->ip.version = 4;
	error->ip.ihl = 5;
	error->ip.ttl = GATEWAY_TTL;
	error->ip.protocol = IPPROTO_ICMP;
	error->ip.tot_len = bpf_htons(sizeof(*error));
	error->ip.daddr = ip->saddr;
	return true;
}

static __always_inline __u16 fold(__s64 sum)
{
	sum = (sum & 0xffff) + ((sum >> 16) & 0xffff);
	return ~((sum & 0xffff) + (sum >> 16));
}

/* Sends an error back to where the packet came from. */
static __always_inline int send_back(struct __sk_buff *skb, const struct nic *nic, enum origin origin)
{
	__u8 source[ETH_ALEN], destination[ETH_ALEN];
	__u32 ifindex = skb->ifindex;

	if (origin == FROM_HOST)
		return to_host(skb);
	if (origin == FROM_OUTSIDE) {
		struct ethhdr *eth = packet_data(skb);

		if ((void *)(eth + 1) > packet_end(skb))
			return DROP(DROP_KERNEL);
		__builtin_memcpy(source, eth->h_dest, ETH_ALEN);
		__builtin_memcpy(destination, eth->h_source, ETH_ALEN);
		if (set_macs(skb, destination, source))
			return DROP(DROP_KERNEL);
	} else if (!nic || set_macs(skb, nic->mac, nic->gateway_mac)) {
		return DROP(DROP_KERNEL);
	}
	trace_redirect(TRACE_SENDER, ifindex);
	return bpf_redirect(ifindex, 0);
}

/* Makes of a packet the ICMP error about its drop and sends it back. TC_ACT_SHOT: it says nothing. */
static __noinline int explain(struct __sk_buff *skb, int reason, enum origin origin)
{
	struct icmp_error error = {};
	__u32 vni = default_vni, ifindex = skb->ifindex;
	struct nic *nic = origin == FROM_POD ? bpf_map_lookup_elem(&nics, &ifindex) : NULL;
	struct subnet *subnet = NULL;

	if (nic)
		vni = nic->vni;
	if (origin != FROM_OUTSIDE) {
		subnet = bpf_map_lookup_elem(&subnets, &vni);
		if (!subnet)
			return TC_ACT_SHOT;
	}
	if (bpf_skb_load_bytes(skb, IP_OFFSET, &error.quote, sizeof(error.quote)) || !compose(&error, reason, subnet) ||
	    !within_rate(&error_times, origin == FROM_OUTSIDE ? error.quote.ip.daddr : ifindex, ERRORS_AT_ONCE, ERROR_INTERVAL))
		return TC_ACT_SHOT;
	error.ip.check = fold(bpf_csum_diff(NULL, 0, (__be32 *)&error.ip, sizeof(error.ip), 0));
	error.icmp.check = fold(bpf_csum_diff(NULL, 0, (__be32 *)&error.icmp, sizeof(error.icmp) + sizeof(error.quote), 0));
	if (bpf_skb_change_tail(skb, IP_OFFSET + sizeof(error), 0) || bpf_skb_store_bytes(skb, IP_OFFSET, &error, sizeof(error), 0))
		return TC_ACT_SHOT;
	int action = send_back(skb, nic, origin);

	return action < 0 ? TC_ACT_SHOT : action;
}

/* What the program of where a sender is returns: drops are counted, and explained where that helps. */
static __always_inline int conclude(struct __sk_buff *skb, int decision, enum origin origin)
{
	__u32 ifindex = skb->ifindex, bytes = skb->len;

	if (decision >= 0 && decision != TC_ACT_SHOT)
		return decision;
	if (decision == COUNTED)
		return TC_ACT_SHOT;
	if (decision == TC_ACT_SHOT)
		decision = DROP(DROP_KERNEL);
	int action = explain(skb, -decision, origin);

	count_drop(ifindex, -decision, bytes);
	return action;
}
