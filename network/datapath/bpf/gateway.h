/* SPDX-License-Identifier: Apache-2.0 */
/* The Subnet's gateway: nothing but a MAC address, and an answer to ping. */
#pragma once

#include "icmp.h"
#include "maps.h"
#include "packet.h"
#include "trace.h"

#define GATEWAY_TTL 64

/* Answers a ping of the gateway; nothing else is there. */
static __noinline int answer_ping(struct __sk_buff *skb, __u32 vni)
{
	struct subnet *subnet = bpf_map_lookup_elem(&subnets, &vni);
	__u8 source_mac[ETH_ALEN];

	if (!subnet || !pull(skb, ETH_HLEN + sizeof(struct iphdr) + 8))
		return DROP(DROP_NO_ENDPOINT);
	struct ethhdr *eth = packet_data(skb);
	struct iphdr *ip = (void *)(eth + 1);
	__u8 *icmp = (void *)(ip + 1);

	if ((void *)(icmp + 8) > packet_end(skb))
		return DROP(DROP_NO_ENDPOINT);
	if (!is_ipv4(&subnet->gateway, ip->daddr) || ip->protocol != IPPROTO_ICMP || ip->ihl != 5 || icmp[0] != ICMP_ECHO_REQUEST ||
	    (ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_FRAGMENT_OFFSET)))
		return DROP(DROP_NO_ENDPOINT);

	icmp[0] = ICMP_ECHO_REPLY;
	__be16 *check = (__be16 *)(icmp + 2);
	__be32 client = ip->saddr;

	*check = checksum_replace(*check, bpf_htons(ICMP_ECHO_REQUEST << 8), bpf_htons(ICMP_ECHO_REPLY << 8));
	ip->saddr = ip->daddr;
	ip->daddr = client;
	ip->check = checksum_replace(ip->check, bpf_htons(ip->ttl << 8), bpf_htons(GATEWAY_TTL << 8));
	ip->ttl = GATEWAY_TTL;
	__builtin_memcpy(source_mac, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, source_mac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, subnet->gateway_mac, ETH_ALEN);
	trace_redirect(TRACE_SENDER, skb->ifindex);
	return bpf_redirect(skb->ifindex, 0);
}
