/* SPDX-License-Identifier: Apache-2.0 */
/* ARP: the gateway's MAC address answers for every address of the Subnet, as endpoints are found by address alone. */
#pragma once

#include "maps.h"
#include "packet.h"
#include "trace.h"

#define ARP_REQUEST 1
#define ARP_REPLY 2

struct arp {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_length;
	__u8 protocol_length;
	__be16 operation;
	__u8 sender_mac[6];
	__be32 sender;
	__u8 target_mac[6];
	__be32 target;
} __attribute__((packed));

static __always_inline int answer_arp(struct __sk_buff *skb, const struct nic *nic)
{
	if (!pull(skb, ETH_HLEN + sizeof(struct arp)))
		return DROP(DROP_MALFORMED);
	struct ethhdr *eth = packet_data(skb);
	struct arp *arp = (void *)(eth + 1);

	if ((void *)(arp + 1) > packet_end(skb))
		return DROP(DROP_MALFORMED);
	if (arp->hardware != bpf_htons(1) || arp->protocol != bpf_htons(ETH_P_IP) || arp->hardware_length != ETH_ALEN ||
	    arp->protocol_length != 4 || (arp->operation != bpf_htons(ARP_REQUEST) && arp->operation != bpf_htons(ARP_REPLY)))
		return DROP(DROP_MALFORMED);

	__be32 sender = arp->sender, target = arp->target;
	bool probe = !sender && arp->operation == bpf_htons(ARP_REQUEST); /* RFC 5227 */

	if (!same_mac(arp->sender_mac, nic->mac))
		return DROP(DROP_SPOOFED_ARP);
	if (!probe && !is_ipv4(&nic->address, sender) && !(nic->flags & NIC_NO_SOURCE_DEST_CHECK))
		return DROP(DROP_SPOOFED_ARP);
	if (is_ipv4(&nic->address, target) || target == sender || arp->operation == bpf_htons(ARP_REPLY))
		return DROP(DROP_GRATUITOUS_ARP);
	if (!same_prefix(target, &nic->address, nic->prefix_length))
		return DROP(DROP_ARP_OUT_OF_SUBNET);

	arp->operation = bpf_htons(ARP_REPLY);
	__builtin_memcpy(arp->target_mac, nic->mac, ETH_ALEN);
	__builtin_memcpy(arp->sender_mac, nic->gateway_mac, ETH_ALEN);
	arp->target = sender;
	arp->sender = target;
	__builtin_memcpy(eth->h_dest, nic->mac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, nic->gateway_mac, ETH_ALEN);
	trace_redirect(TRACE_SENDER, skb->ifindex);
	return bpf_redirect(skb->ifindex, 0);
}
