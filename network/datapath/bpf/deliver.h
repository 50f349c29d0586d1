/* SPDX-License-Identifier: Apache-2.0 */
/* The ways a packet leaves a program: to an interface of this node, to another member, to this node's host. */
#pragma once

#include "config.h"
#include "maps.h"
#include "packet.h"
#include "policy.h"
#include "service.h"
#include "trace.h"

/* Into an interface of this node, whatever the packet's destination. */
static __always_inline int into_interface(struct __sk_buff *skb, const struct nic *nic, __u32 ifindex)
{
	int error = set_macs(skb, nic->mac, nic->gateway_mac);

	if (error)
		return error;
	if (skb->pkt_type != PACKET_HOST)
		bpf_skb_change_type(skb, PACKET_HOST);
	count_delivery(ifindex, skb->len);
	trace_redirect(TRACE_INTERFACE, ifindex);
	return bpf_redirect_peer(ifindex, 0);
}

/* Into an interface that may have the packet, if its policy lets it in. Its policy sees a backend's answer before it is made to
 * come from the Service, which happens where the client is and not where a next hop sends on. */
static __always_inline int admit(struct __sk_buff *skb, struct packet *p, const struct nic *nic, __u32 ifindex)
{
	int error = police_ingress(skb, p, nic, ifindex);

	if (error)
		return error;
	if (!(nic->flags & NIC_NO_SERVICES) && is_ipv4(&nic->address, p->destination)) {
		error = from_service(skb, p, nic->vpc_id);
		if (error < 0)
			return error;
	}
	return into_interface(skb, nic, ifindex);
}

/* To an interface of this node. The destination's own entry decides: its program is not run. */
static __always_inline int to_interface(struct __sk_buff *skb, struct packet *p, __u32 vni, const struct endpoint *endpoint)
{
	struct nic *nic = bpf_map_lookup_elem(&nics, &endpoint->ifindex);

	if (!nic || nic->vni != vni || nic->vpc_id != endpoint->vpc_id ||
	    (!is_ipv4(&nic->address, p->destination) && !(nic->flags & NIC_NO_SOURCE_DEST_CHECK)))
		return DROP(DROP_DESTINATION_CHECK);
	return admit(skb, p, nic, endpoint->ifindex);
}

/* To another member, through VXLAN. The source is the inner source MAC address, which stays as it is when it is NULL. */
static __always_inline int through_tunnel(struct __sk_buff *skb, __u32 vni, const struct endpoint *endpoint, const __u8 *source)
{
	struct bpf_tunnel_key key = {
		.tunnel_id = vni,
		.remote_ipv4 = bpf_ntohl(endpoint->node.w[3]),
		.tunnel_ttl = 64,
	};
	int error = set_macs(skb, endpoint->mac, source);

	if (error)
		return error;
	if (bpf_skb_set_tunnel_key(skb, &key, sizeof(key), BPF_F_ZERO_CSUM_TX))
		return DROP(DROP_KERNEL);
	trace_tunnel(vni, endpoint->node.w[3]);
	trace_redirect(TRACE_MEMBER, vxlan_ifindex);
	return bpf_redirect(vxlan_ifindex, 0);
}

/* To the endpoint on another member that has the packet's destination. */
static __always_inline int to_member(struct __sk_buff *skb, __u32 vni, const struct endpoint *endpoint)
{
	return through_tunnel(skb, vni, endpoint, NULL);
}

/* Members tell a packet to a next hop, which is found by its MAC address, from one to whatever has its destination, which is
 * found by that address, by this: its source and destination MAC addresses are one. Nobody sends to itself. */
static __always_inline int to_member_hop(struct __sk_buff *skb, __u32 vni, const struct endpoint *endpoint)
{
	return through_tunnel(skb, vni, endpoint, endpoint->mac);
}

static __always_inline bool is_to_hop(const struct ethhdr *eth)
{
	return same_mac(eth->h_source, eth->h_dest);
}

/* To this node's host: its stack receives or forwards. */
static __always_inline int to_host(struct __sk_buff *skb)
{
	__u8 mac[ETH_ALEN];

#pragma unroll
	for (int i = 0; i < ETH_ALEN; i++)
		mac[i] = host_mac[i];
	int error = set_macs(skb, mac, NULL);

	if (error)
		return error;
	trace_redirect(TRACE_HOST, host_ifindex);
	return bpf_redirect(host_ifindex, BPF_F_INGRESS);
}
