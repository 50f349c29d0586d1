/* SPDX-License-Identifier: Apache-2.0 */
/* Drops: counted by interface and reason. */
#pragma once

#include "maps.h"
#include "packet.h"

static __noinline void count_drop(__u32 ifindex, int reason, __u32 bytes)
{
	struct drop_key key = { .ifindex = ifindex, .reason = reason };
	struct drop_value *value = bpf_map_lookup_elem(&drops, &key);

	if (!value) {
		struct drop_value zero = {};

		bpf_map_update_elem(&drops, &key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&drops, &key);
		if (!value)
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
