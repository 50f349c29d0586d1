/* SPDX-License-Identifier: Apache-2.0 */
/* IPv6 is not carried yet. What interfaces send by themselves is told apart, so that the rest can be noticed. */
#pragma once

#include "packet.h"

#define ICMPV6_OFFSET (ETH_HLEN + sizeof(struct ipv6hdr))

static __always_inline bool is_discovery(__u8 icmpv6_type)
{
	return (icmpv6_type >= 130 && icmpv6_type <= 137) || icmpv6_type == 143;
}

static __always_inline int refuse_ipv6(struct __sk_buff *skb)
{
	__u8 next = 0, type = 0;
	__u32 offset = ICMPV6_OFFSET;

	if (bpf_skb_load_bytes(skb, ETH_HLEN + offsetof(struct ipv6hdr, nexthdr), &next, 1))
		return DROP(DROP_IPV6);
	if (next == IPPROTO_HOPOPTS) { /* listener discovery has a router alert */
		if (bpf_skb_load_bytes(skb, ICMPV6_OFFSET, &next, 1))
			return DROP(DROP_IPV6);
		offset += 8;
	}
	if (next == IPPROTO_ICMPV6 && !bpf_skb_load_bytes(skb, offset, &type, 1) && is_discovery(type))
		return DROP(DROP_IPV6_DISCOVERY);
	return DROP(DROP_IPV6);
}
