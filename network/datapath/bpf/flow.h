/* SPDX-License-Identifier: Apache-2.0 */
/* Flows that policies have let through, each as one interface sees it, and what tells a packet's flow: ports, ICMP
 * identifiers, the packet an ICMP error speaks of, the first fragment. */
#pragma once

#include "config.h"
#include "conntrack.h"
#include "icmp.h"
#include "maps.h"
#include "packet.h"

#define ICMP_TIMESTAMP 13
#define ICMP_TIMESTAMP_REPLY 14

/* Seconds that the fragments of a packet have to arrive in: as long as receivers wait. */
#define FRAGMENT_TIMEOUT 30

enum flow_origin {
	FLOW_OUT = 0, /* the interface began it */
	FLOW_IN = 1,  /* the other side did */
};

struct flow_key {
	LATER(__u64 later;)
	struct address local;
	struct address remote;
	__u32 vpc_id;
	__u32 ifindex;
	__be16 local_port;
	__be16 remote_port;
	__u8 protocol;
	__u8 pad[3];
};

/* Bits of a verdict above the policy's number. */
#define FLOW_CUT (1ULL << 32)

struct flow {
	LATER(__u64 later;)
	__u64 verdict; /* the policy that it was judged by, and whether it was cut: one word, so that both change at once */
	__u32 last_seen;
	__be16 match; /* what rules were asked for: port, or ICMP type and code */
	__u8 origin;
	__u8 replied;
	__u8 fin_out; /* bytes, not bits: the two directions write on two processors */
	__u8 fin_in;
	__u8 reset;
	__u8 pad[5];
};

struct fragment_key {
	struct address source;
	struct address destination;
	__u32 vpc_id;
	__be16 id;
	__u8 protocol;
	__u8 pad;
};

/* What a packet's flow is told by. Of an ICMP error: what the packet that it speaks of is, turned round. */
struct l4 {
	LATER(__u64 later;)
	__be32 source;
	__be32 destination;
	__be16 source_port; /* an ICMP query has its identifier here, and its type as the other port */
	__be16 destination_port;
	__be16 match;
	__u8 protocol;
	__u8 tcp_flags;
	__u32 last_seen;
	__u8 related;
	__u8 pad[3];
};

MAP(flows, BPF_MAP_TYPE_LRU_HASH, struct flow_key, struct flow, 131072, 0);
MAP(fragments, BPF_MAP_TYPE_LRU_HASH, struct fragment_key, struct l4, 8192, 0);

/* Reads ports, or the identifier of an ICMP query, at an offset in the packet. */
static __always_inline bool read_ports(struct __sk_buff *skb, __u32 offset, struct l4 *l4)
{
	__u8 header[sizeof(struct icmp)];
	__be16 first, second;

	if (l4->protocol != IPPROTO_TCP && l4->protocol != IPPROTO_UDP && l4->protocol != IPPROTO_ICMP)
		return true;
	if (bpf_skb_load_bytes(skb, offset, header, sizeof(header)))
		return false;
	__builtin_memcpy(&first, header, sizeof(first));
	if (l4->protocol != IPPROTO_ICMP) {
		__builtin_memcpy(&second, header + 2, sizeof(second));
		l4->source_port = first;
		l4->destination_port = second;
		l4->match = second;
		return true;
	}
	__builtin_memcpy(&second, header + 4, sizeof(second));
	l4->match = first; /* type and code */
	l4->destination_port = bpf_htons(header[0]);
	if (header[0] == ICMP_ECHO_REQUEST || header[0] == ICMP_TIMESTAMP) {
		l4->source_port = second;
	} else if (header[0] == ICMP_ECHO_REPLY || header[0] == ICMP_TIMESTAMP_REPLY) {
		l4->source_port = bpf_htons(header[0] == ICMP_ECHO_REPLY ? ICMP_ECHO_REQUEST : ICMP_TIMESTAMP);
		l4->destination_port = second;
	}
	return true;
}

static __always_inline bool is_error(__be16 match)
{
	__u8 type = bpf_ntohs(match) >> 8;

	return type == ICMP_UNREACHABLE || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETER_PROBLEM;
}

/* Reads of which flow the packet was that an ICMP error speaks of, unless it was not the receiver's of the error. Match stays
 * the error's own. */
static __noinline int read_related(struct __sk_buff *skb, __u32 offset, struct l4 *l4)
{
	struct l4 inner = {};
	struct iphdr ip;

	if (!l4 || bpf_skb_load_bytes(skb, offset + sizeof(struct icmp), &ip, sizeof(ip)))
		return 0;
	if (ip.version != 4 || ip.ihl < 5 || (ip.frag_off & bpf_htons(IP_FRAGMENT_OFFSET)) || ip.saddr != l4->destination)
		return 0;
	inner.protocol = ip.protocol;
	if (!read_ports(skb, offset + sizeof(struct icmp) + ip.ihl * 4, &inner))
		return 0;
	l4->source = ip.daddr;
	l4->source_port = inner.destination_port;
	l4->destination_port = inner.source_port;
	l4->protocol = ip.protocol;
	l4->related = true;
	return 0;
}

/* Learns from the first fragment of a packet what the others do not say. */
static __noinline int read_fragment(struct __sk_buff *skb, const struct packet *p, __u32 vpc_id, struct l4 *l4)
{
	struct fragment_key key = { .source = ipv4(p->source), .destination = ipv4(p->destination), .vpc_id = vpc_id, .protocol = p->protocol };
	struct iphdr ip;

	if (!l4 || bpf_skb_load_bytes(skb, IP_OFFSET, &ip, sizeof(ip)))
		return DROP(DROP_MALFORMED);
	__u32 offset = bpf_ntohs(ip.frag_off) & IP_FRAGMENT_OFFSET;

	key.id = ip.id;
	if (offset) {
		struct l4 *first = bpf_map_lookup_elem(&fragments, &key);

		/* RFC 3128: it would replace the flags of a TCP header. */
		if (offset == 1 && p->protocol == IPPROTO_TCP)
			return DROP(DROP_MALFORMED);
		if (!first || seconds() - first->last_seen > FRAGMENT_TIMEOUT)
			return DROP(DROP_UNKNOWN_FRAGMENT);
		*l4 = *first;
		return 0;
	}
	/* Not to read from the padding of a short frame. */
	__u32 length = p->l4_offset - ETH_HLEN + sizeof(struct icmp);

	if (bpf_ntohs(ip.tot_len) < length || !read_ports(skb, p->l4_offset, l4))
		return DROP(DROP_MALFORMED);
	l4->tcp_flags = p->tcp_flags;
	l4->last_seen = seconds();
	bpf_map_update_elem(&fragments, &key, l4, BPF_ANY);
	return 0;
}

static __always_inline int read_l4(struct __sk_buff *skb, const struct packet *p, __u32 vpc_id, struct l4 *l4)
{
	l4->source = p->source;
	l4->destination = p->destination;
	l4->protocol = p->protocol;
	l4->tcp_flags = p->tcp_flags;
	if (p->fragment)
		return read_fragment(skb, p, vpc_id, l4);
	if (p->protocol == IPPROTO_TCP || p->protocol == IPPROTO_UDP) {
		l4->source_port = p->source_port;
		l4->destination_port = l4->match = p->destination_port;
		return 0;
	}
	if (!read_ports(skb, p->l4_offset, l4))
		return DROP(DROP_MALFORMED);
	if (l4->protocol == IPPROTO_ICMP && is_error(l4->match))
		return read_related(skb, p->l4_offset, l4);
	return 0;
}

static __always_inline void flow_key_of(struct flow_key *key, const struct l4 *l4, __u32 vpc_id, __u32 ifindex, enum flow_origin way)
{
	bool in = way == FLOW_IN;

	key->local = ipv4(in ? l4->destination : l4->source);
	key->remote = ipv4(in ? l4->source : l4->destination);
	key->local_port = in ? l4->destination_port : l4->source_port;
	key->remote_port = in ? l4->source_port : l4->destination_port;
	key->vpc_id = vpc_id;
	key->ifindex = ifindex;
	key->protocol = l4->protocol;
}

/* Whether a packet begins a connection and is of none. */
static __always_inline bool opens(const struct l4 *l4)
{
	return l4->protocol == IPPROTO_TCP && !l4->related && (l4->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

static __always_inline bool flow_is_closing(const struct flow *flow)
{
	return flow->reset || (flow->fin_in && flow->fin_out);
}

static __always_inline bool flow_is_live(const struct flow *flow, __u8 protocol, __u32 now)
{
	__u32 timeout = flow->replied ? UDP_TIMEOUT : UDP_NEW_TIMEOUT;

	if (protocol == IPPROTO_TCP)
		timeout = flow_is_closing(flow) ? TCP_CLOSING_TIMEOUT : flow->replied ? TCP_TIMEOUT : TCP_NEW_TIMEOUT;
	return now - flow->last_seen <= timeout;
}

static __always_inline void note_flags(struct flow *flow, const struct l4 *l4, enum flow_origin way)
{
	if (l4->protocol == IPPROTO_TCP) {
		if (l4->tcp_flags & TCP_RST)
			flow->reset = 1;
		if ((l4->tcp_flags & TCP_FIN) && way == FLOW_IN)
			flow->fin_in = 1;
		if ((l4->tcp_flags & TCP_FIN) && way == FLOW_OUT)
			flow->fin_out = 1;
	}
	if (way != flow->origin && !flow->replied)
		flow->replied = 1;
}

static __always_inline void touch_flow(struct flow *flow, const struct l4 *l4, enum flow_origin way, __u32 now)
{
	note_flags(flow, l4, way);
	if (flow->last_seen != now)
		flow->last_seen = now;
}
