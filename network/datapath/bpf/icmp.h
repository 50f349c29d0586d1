/* SPDX-License-Identifier: Apache-2.0 */
/* ICMP: echo, and errors with the packet that they quote (RFC 792), under translation (RFC 5508). */
#pragma once

#include "packet.h"

#define ICMP_ECHO_REPLY 0
#define ICMP_UNREACHABLE 3
#define ICMP_ECHO_REQUEST 8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12

struct icmp {
	__u8 type;
	__u8 code;
	__u16 check;
	__be16 identifier; /* of echo */
	__be16 sequence;
};

/* What an error quotes: a header without options and the eight octets that are always there. */
struct quote {
	struct iphdr ip;
	union {
		struct {
			__be16 source_port;
			__be16 destination_port;
			__be16 length;
			__u16 udp_check;
		};
		struct icmp icmp;
	};
};

/* The type of an ICMP packet that is no fragment; -1 when it is cut short. */
static __always_inline int icmp_type(struct __sk_buff *skb, const struct packet *p)
{
	__u8 type;

	return bpf_skb_load_bytes(skb, p->l4_offset, &type, 1) ? -1 : type;
}

static __always_inline bool is_icmp_error(struct __sk_buff *skb, const struct packet *p)
{
	if (p->protocol != IPPROTO_ICMP)
		return false;
	int type = icmp_type(skb, p);

	return type == ICMP_UNREACHABLE || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETER_PROBLEM;
}

static __always_inline __be16 echo_identifier(struct __sk_buff *skb, const struct packet *p)
{
	__be16 identifier = 0;

	bpf_skb_load_bytes(skb, p->l4_offset + offsetof(struct icmp, identifier), &identifier, sizeof(identifier));
	return identifier;
}

/* Reads what an error quotes. False when it is nothing that a flow could have. */
static __always_inline bool read_quote(struct __sk_buff *skb, const struct packet *p, struct quote *quote)
{
	if (bpf_skb_load_bytes(skb, p->l4_offset + sizeof(struct icmp), quote, sizeof(*quote)))
		return false;
	if (quote->ip.version != 4 || quote->ip.ihl != 5 || quote->ip.frag_off & bpf_htons(IP_FRAGMENT_OFFSET))
		return false;
	if (quote->ip.protocol == IPPROTO_ICMP)
		return quote->icmp.type == ICMP_ECHO_REQUEST || quote->icmp.type == ICMP_ECHO_REPLY;
	return quote->ip.protocol == IPPROTO_TCP || quote->ip.protocol == IPPROTO_UDP;
}

/* The ports of a quoted packet; of echo, the identifier is the asker's. */
static __always_inline __be16 quoted_source_port(const struct quote *quote)
{
	if (quote->ip.protocol == IPPROTO_ICMP)
		return quote->icmp.type == ICMP_ECHO_REQUEST ? quote->icmp.identifier : 0;
	return quote->source_port;
}

static __always_inline __be16 quoted_destination_port(const struct quote *quote)
{
	if (quote->ip.protocol == IPPROTO_ICMP)
		return quote->icmp.type == ICMP_ECHO_REPLY ? quote->icmp.identifier : 0;
	return quote->destination_port;
}

/* Gives an echo request or reply other addresses and another identifier. */
static __noinline int translate_echo(struct __sk_buff *skb, struct packet *p, const struct tuple *to, __be16 from_identifier,
				     __be16 identifier)
{
	__u32 at = p->l4_offset;

	if (!to)
		return DROP(DROP_KERNEL);
	if (identifier != from_identifier &&
	    (bpf_l4_csum_replace(skb, at + offsetof(struct icmp, check), from_identifier, identifier, 2) ||
	     bpf_skb_store_bytes(skb, at + offsetof(struct icmp, identifier), &identifier, sizeof(identifier), 0)))
		return DROP(DROP_KERNEL);
	return set_addresses(skb, p, to->source, to->destination);
}

/* Gives an error the addresses of a tuple, and what it quotes, which went the other way, its reverse. A quoted TCP checksum is
 * beyond the eight octets that must be there, and nobody looks at it. */
static __noinline int translate_error(struct __sk_buff *skb, struct packet *p, struct quote *quote, const struct tuple *to)
{
	struct quote old;
	__u32 at = p->l4_offset;

	if (!quote || !to)
		return DROP(DROP_KERNEL);
	old = *quote;
	quote->ip.saddr = to->destination;
	quote->ip.daddr = to->source;
	quote->ip.check = checksum_replace(checksum_replace(quote->ip.check, old.ip.saddr, quote->ip.saddr), old.ip.daddr, quote->ip.daddr);
	if (quote->ip.protocol == IPPROTO_ICMP) {
		quote->icmp.identifier = quote->icmp.type == ICMP_ECHO_REQUEST ? to->destination_port : to->source_port;
		quote->icmp.check = checksum_replace(quote->icmp.check, old.icmp.identifier, quote->icmp.identifier);
	} else {
		quote->source_port = to->destination_port;
		quote->destination_port = to->source_port;
	}
	if (quote->ip.protocol == IPPROTO_UDP && quote->udp_check) {
		__u16 check = checksum_replace(quote->udp_check, old.ip.saddr, quote->ip.saddr);

		check = checksum_replace(check, old.ip.daddr, quote->ip.daddr);
		check = checksum_replace(check, old.source_port, quote->source_port);
		check = checksum_replace(check, old.destination_port, quote->destination_port);
		quote->udp_check = check ? check : 0xffff;
	}
	__s64 difference = bpf_csum_diff((__be32 *)&old, sizeof(old), (__be32 *)quote, sizeof(*quote), 0);

	if (difference < 0 || bpf_l4_csum_replace(skb, at + offsetof(struct icmp, check), 0, difference, 0) ||
	    bpf_skb_store_bytes(skb, at + sizeof(struct icmp), quote, sizeof(*quote), 0))
		return DROP(DROP_KERNEL);
	return set_addresses(skb, p, to->source, to->destination);
}
