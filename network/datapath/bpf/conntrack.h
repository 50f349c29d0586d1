/* SPDX-License-Identifier: Apache-2.0 */
/* Flows through Services. A flow has two entries that both hold all of it, so that either makes the other anew when the
 * LRU has evicted it; both are touched together, at most once a second. */
#pragma once

#include "config.h"
#include "maps.h"
#include "packet.h"

/* Seconds without a packet after which an entry is no more. Longer for TCP than the two hours of keep-alive. */
#define TCP_TIMEOUT 8000
#define TCP_NEW_TIMEOUT 60
#define TCP_CLOSING_TIMEOUT 10
#define UDP_TIMEOUT 180
#define UDP_NEW_TIMEOUT 60

/* Ports tried for a flow that would look to its backend like another. */
#define NAT_PORT_TRIES 8
#define FIRST_NAT_PORT 1024

static __always_inline __u32 seconds(void)
{
	return bpf_ktime_get_coarse_ns() / 1000000000;
}

static __always_inline bool is_closed(__u32 flags)
{
	const __u32 both = CONNTRACK_FIN_FORWARD | CONNTRACK_FIN_REVERSE;

	return (flags & CONNTRACK_RST) || (flags & both) == both;
}

/* How many seconds after its last packet a flow of these flags is no more. */
static __always_inline __u32 timeout_of(__u32 flags, __u8 protocol)
{
	bool replied = flags & CONNTRACK_SEEN_REPLY;

	if (protocol != IPPROTO_TCP)
		return replied ? UDP_TIMEOUT : UDP_NEW_TIMEOUT;
	if (is_closed(flags))
		return TCP_CLOSING_TIMEOUT;
	return replied ? TCP_TIMEOUT : TCP_NEW_TIMEOUT;
}

static __always_inline bool is_closing(const struct conntrack *ct)
{
	return is_closed(ct->flags);
}

static __always_inline bool is_live(const struct conntrack *ct, __u8 protocol, __u32 now)
{
	return now - ct->last_seen <= timeout_of(ct->flags, protocol);
}

/* The key of the entry in the other direction of a flow. */
static __always_inline void pair_key(struct conntrack_key *pair, const struct conntrack_key *key, const struct conntrack *ct)
{
	bool hairpin = ct->flags & CONNTRACK_HAIRPIN;

	pair->vpc_id = key->vpc_id;
	pair->protocol = key->protocol;
	if (key->direction == CONNTRACK_FORWARD) {
		pair->direction = CONNTRACK_REVERSE;
		pair->source = ct->backend;
		pair->source_port = ct->backend_port;
		pair->destination = hairpin ? ipv4(hairpin_address) : key->source;
		pair->destination_port = ct->nat_port;
		return;
	}
	pair->direction = CONNTRACK_FORWARD;
	pair->source = hairpin ? ct->backend : key->destination;
	pair->source_port = ct->client_port;
	pair->destination = ct->service;
	pair->destination_port = ct->service_port;
}

/* Notes a packet of a flow in both of its entries. */
static __always_inline void touch(const struct conntrack_key *key, struct conntrack *ct, __u8 tcp_flags, __u32 now)
{
	bool reverse = key->direction == CONNTRACK_REVERSE;
	__u32 flags = reverse ? CONNTRACK_SEEN_REPLY : 0;
	struct conntrack_key pair_of = {};
	struct conntrack *pair;

	if (tcp_flags & TCP_FIN)
		flags |= reverse ? CONNTRACK_FIN_REVERSE : CONNTRACK_FIN_FORWARD;
	if (tcp_flags & TCP_RST)
		flags |= CONNTRACK_RST;
	if (ct->last_seen == now && (ct->flags & flags) == flags)
		return;
	ct->flags |= flags;
	ct->last_seen = now;
	pair_key(&pair_of, key, ct);
	pair = bpf_map_lookup_elem(&conntracks, &pair_of);
	if (!pair) {
		bpf_map_update_elem(&conntracks, &pair_of, ct, BPF_NOEXIST);
		return;
	}
	pair->flags |= flags;
	pair->last_seen = now;
}

static __always_inline bool same_flow(const struct conntrack *a, const struct conntrack *b)
{
	return a->service.w[3] == b->service.w[3] && a->service_port == b->service_port && a->client_port == b->client_port;
}

/* Enters a new flow under a source port that its backend sees from no other flow, and writes the port to the entry. */
static __noinline int create(const struct conntrack_key *forward, struct conntrack *ct)
{
	struct conntrack_key reverse = {};
	__u32 mix = bpf_ntohs(ct->client_port) * 2654435761u ^ ct->service_id;

	if (!forward || !ct)
		return DROP(DROP_KERNEL);
	pair_key(&reverse, forward, ct);
	for (int i = 0; i < NAT_PORT_TRIES; i++) {
		struct conntrack *other = bpf_map_lookup_elem(&conntracks, &reverse);

		if (other && !same_flow(other, ct) && is_live(other, forward->protocol, ct->last_seen)) {
			mix = mix * 1664525 + 1013904223;
			ct->nat_port = bpf_htons(FIRST_NAT_PORT + (mix >> 8) % (65536 - FIRST_NAT_PORT));
			reverse.destination_port = ct->nat_port;
			continue;
		}
		bpf_map_update_elem(&conntracks, &reverse, ct, BPF_ANY);
		if (bpf_map_update_elem(&conntracks, forward, ct, BPF_ANY))
			return DROP(DROP_KERNEL);
		return 0;
	}
	return DROP(DROP_CONNTRACK_COLLISION);
}
