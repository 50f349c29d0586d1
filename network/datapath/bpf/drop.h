/* SPDX-License-Identifier: Apache-2.0 */
/* Drops: counted by interface and reason. */
#pragma once

#include "maps.h"
#include "packet.h"

static __noinline void count_drop(__u32 ifindex, int reason, __u32 bytes)
{
	struct drop_key key = { .ifindex = ifindex, .reason = reason };
	struct count *value = bpf_map_lookup_elem(&drops, &key);

	if (!value) {
		struct count zero = {};

		bpf_map_update_elem(&drops, &key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&drops, &key);
		if (!value)
			return;
	}
	value->packets++;
	value->bytes += bytes;
}

/* Counts what is delivered to an interface: bpf_redirect_peer passes by the counters of its host side. */
static __always_inline void count_delivery(__u32 ifindex, __u32 bytes)
{
	struct count *value = bpf_map_lookup_elem(&deliveries, &ifindex);

	if (!value) {
		struct count first = { .packets = 1, .bytes = bytes };

		bpf_map_update_elem(&deliveries, &ifindex, &first, BPF_NOEXIST);
		return;
	}
	value->packets++;
	value->bytes += bytes;
}

/* What a program returns: the decision's TC action; drops are counted. */
static __always_inline int finish(struct __sk_buff *skb, int decision)
{
	if (decision == TC_ACT_SHOT)
		decision = DROP(DROP_KERNEL);
	if (decision >= 0)
		return decision;
	if (decision != COUNTED)
		count_drop(skb->ifindex, -decision, skb->len);
	return TC_ACT_SHOT;
}
