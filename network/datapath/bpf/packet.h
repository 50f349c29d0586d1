/* SPDX-License-Identifier: Apache-2.0 */
/* Packets: parsing, and rewriting of addresses, ports and checksums. */
#pragma once

#include "kernel.h"
#include "config.h"
#include "maps.h"
#include "reasons.h"

/* Functions that decide about a packet return a TC action, or a reason to drop it as a negative number. */
#define DROP(reason) (-(int)(reason))
#define COUNTED (-0x10000) /* dropped, and counted already */

#define IP_MORE_FRAGMENTS 0x2000
#define IP_FRAGMENT_OFFSET 0x1fff
#define IP_OFFSET ETH_HLEN
#define MAX_L4_OFFSET (ETH_HLEN + 60)

enum tcp_flags {
	TCP_FIN = 1,
	TCP_SYN = 2,
	TCP_RST = 4,
	TCP_ACK = 16,
};

/* An IPv4 packet in an Ethernet frame. */
struct packet {
	__be32 source;
	__be32 destination;
	__be16 source_port; /* TCP and UDP; of later fragments once they are learned */
	__be16 destination_port;
	__u32 l4_offset;
	__u32 l4_length; /* of the L4 header: TCP and UDP, not of later fragments */
	__u8 protocol;
	__u8 ttl;
	__u8 tcp_flags;
	bool fragment;
	bool later;   /* a fragment that is not the first */
	bool service; /* it was sent to a Service, and translated */
	bool exempt;  /* from policies: from this node's host, or to its own sender through a Service */
	__be32 service_address;
	__be16 service_port;
	__be16 client_port; /* of what is for a Service, before it is translated */
};

/* Where a packet begins and ends. Assembly, as compilers would otherwise narrow the pointers to the fields' 32 bits. */
static __always_inline void *packet_data(const struct __sk_buff *skb)
{
	void *pointer;

	asm volatile("%0 = *(u32 *)(%1 + %2)" : "=r"(pointer) : "r"(skb), "i"(offsetof(struct __sk_buff, data)));
	return pointer;
}

static __always_inline void *packet_end(const struct __sk_buff *skb)
{
	void *pointer;

	asm volatile("%0 = *(u32 *)(%1 + %2)" : "=r"(pointer) : "r"(skb), "i"(offsetof(struct __sk_buff, data_end)));
	return pointer;
}

/* Makes the first bytes of a packet directly accessible. Packet pointers must be read anew. */
static __always_inline bool pull(struct __sk_buff *skb, __u64 length)
{
	if (packet_data(skb) + (length & 255) <= packet_end(skb))
		return true;
	return skb->len >= length && !bpf_skb_pull_data(skb, length);
}

static __always_inline struct address ipv4(__be32 a)
{
	return (struct address){ .w = { 0, 0, bpf_htonl(0xffff), a } };
}

static __always_inline bool is_ipv4(const struct address *a, __be32 b)
{
	return a->w[3] == b;
}

static __always_inline bool is_zero(const struct address *a)
{
	return !a->w[3] && !a->w[2] && !a->w[1] && !a->w[0];
}

/* Whether an address is within the first bits (of the 128-bit form) of another. */
static __always_inline bool same_prefix(__be32 a, const struct address *b, __u32 bits128)
{
	__u32 bits = bits128 - 96;

	return bits == 0 || (bits <= 32 && !(bpf_ntohl(a ^ b->w[3]) >> ((32 - bits) & 31)));
}

static __always_inline bool same_mac(const __u8 *a, const __u8 *b)
{
	return !(((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2])) | ((a[3] ^ b[3]) | (a[4] ^ b[4]) | (a[5] ^ b[5])));
}

/* Reads the TCP or UDP header of a packet that is no later fragment. */
static __always_inline int parse_l4(struct __sk_buff *skb, struct packet *p)
{
	__u32 length = p->protocol == IPPROTO_TCP ? sizeof(struct tcphdr) : sizeof(struct udphdr);

	if (!pull(skb, p->l4_offset + length))
		return DROP(DROP_MALFORMED);
	__u32 offset = p->l4_offset & 127;

	if (p->protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = packet_data(skb) + offset;

		if ((void *)(tcp + 1) > packet_end(skb) || tcp->doff < 5)
			return DROP(DROP_MALFORMED);
		p->source_port = tcp->source;
		p->destination_port = tcp->dest;
		p->l4_length = tcp->doff * 4;
		p->tcp_flags = ((__u8 *)tcp)[13];
		return 0;
	}
	struct udphdr *udp = packet_data(skb) + offset;

	if ((void *)(udp + 1) > packet_end(skb))
		return DROP(DROP_MALFORMED);
	p->source_port = udp->source;
	p->destination_port = udp->dest;
	p->l4_length = sizeof(*udp);
	return 0;
}

static __always_inline int parse_ipv4(struct __sk_buff *skb, struct packet *p)
{
	if (!pull(skb, ETH_HLEN + sizeof(struct iphdr)))
		return DROP(DROP_MALFORMED);
	struct iphdr *ip = packet_data(skb) + IP_OFFSET;

	if ((void *)(ip + 1) > packet_end(skb))
		return DROP(DROP_MALFORMED);
	__u32 length = bpf_ntohs(ip->tot_len);
	__u32 header = ip->ihl * 4;

	/* Segments to be may add up to more than fits tot_len, which is then 0. */
	if (ip->version != 4 || header < sizeof(*ip) || (length < header && !skb->gso_size) || length > skb->len - ETH_HLEN)
		return DROP(DROP_MALFORMED);
	p->source = ip->saddr;
	p->destination = ip->daddr;
	p->protocol = ip->protocol;
	p->ttl = ip->ttl;
	p->l4_offset = ETH_HLEN + header;
	p->fragment = ip->frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_FRAGMENT_OFFSET);
	p->later = ip->frag_off & bpf_htons(IP_FRAGMENT_OFFSET);
	if (p->later || (p->protocol != IPPROTO_TCP && p->protocol != IPPROTO_UDP))
		return 0;
	/* Nor a first fragment without all of its header (RFC 1858). */
	if (length && length < header + (p->protocol == IPPROTO_TCP ? sizeof(struct tcphdr) : sizeof(struct udphdr)))
		return DROP(DROP_MALFORMED);
	return parse_l4(skb, p);
}

/* Whether a packet, or each of the segments it will be cut into, is longer than the MTU. */
static __always_inline bool exceeds_mtu(struct __sk_buff *skb, const struct packet *p)
{
	if (skb->gso_size)
		return p->l4_offset - ETH_HLEN + p->l4_length + skb->gso_size > mtu;
	return skb->len - ETH_HLEN > mtu;
}

/* The Internet checksum after a 16-bit or 32-bit field changed (RFC 1624). */
static __always_inline __u16 checksum_replace(__u16 checksum, __be32 from, __be32 to)
{
	__u64 sum = (__u16)~checksum + (__u64)(__u32)~from + to;

	sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline int decrement_ttl(struct __sk_buff *skb)
{
	struct iphdr *ip = packet_data(skb) + IP_OFFSET;

	if ((void *)(ip + 1) > packet_end(skb))
		return DROP(DROP_MALFORMED);
	if (ip->ttl <= 1)
		return DROP(DROP_TTL_EXCEEDED);
	ip->check = checksum_replace(ip->check, bpf_htons(ip->ttl << 8), bpf_htons((ip->ttl - 1) << 8));
	ip->ttl--;
	return 0;
}

static __always_inline int set_macs(struct __sk_buff *skb, const __u8 *destination, const __u8 *source)
{
	struct ethhdr *eth = packet_data(skb);

	if ((void *)(eth + 1) > packet_end(skb))
		return DROP(DROP_MALFORMED);
	__builtin_memcpy(eth->h_dest, destination, ETH_ALEN);
	if (source)
		__builtin_memcpy(eth->h_source, source, ETH_ALEN);
	return 0;
}

static __always_inline int set_addresses(struct __sk_buff *skb, struct packet *p, __be32 source, __be32 destination)
{
	if (!pull(skb, ETH_HLEN + sizeof(struct iphdr)))
		return DROP(DROP_KERNEL);
	struct iphdr *ip = packet_data(skb) + IP_OFFSET;

	if ((void *)(ip + 1) > packet_end(skb))
		return DROP(DROP_KERNEL);
	ip->check = checksum_replace(checksum_replace(ip->check, ip->saddr, source), ip->daddr, destination);
	p->source = ip->saddr = source;
	p->destination = ip->daddr = destination;
	return 0;
}

/* Addresses and ports of a TCP or UDP packet. */
struct tuple {
	__be32 source;
	__be32 destination;
	__be16 source_port;
	__be16 destination_port;
};

/* Gives a TCP or UDP packet other addresses and ports. The helper knows of checksums that an interface is yet to fill in
 * (CHECKSUM_PARTIAL), and leaves a UDP checksum of 0 alone. Of fragments the first has ports and checksum. */
static __noinline int translate(struct __sk_buff *skb, struct packet *p, const struct tuple *to)
{
	__u64 udp = p->protocol == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	__u32 check = p->l4_offset + (p->protocol == IPPROTO_UDP ? offsetof(struct udphdr, check) : offsetof(struct tcphdr, check));
	__be32 old_ports = (__u32)p->source_port | (__u32)p->destination_port << 16;
	__be32 new_ports = (__u32)to->source_port | (__u32)to->destination_port << 16;
	int error = 0;

	if (p->later)
		return set_addresses(skb, p, to->source, to->destination);
	if (to->source != p->source)
		error |= bpf_l4_csum_replace(skb, check, p->source, to->source, BPF_F_PSEUDO_HDR | udp | 4);
	if (to->destination != p->destination)
		error |= bpf_l4_csum_replace(skb, check, p->destination, to->destination, BPF_F_PSEUDO_HDR | udp | 4);
	if (new_ports != old_ports)
		error |= bpf_l4_csum_replace(skb, check, old_ports, new_ports, udp | 4);
	if (error || !pull(skb, p->l4_offset + 4))
		return DROP(DROP_KERNEL);
	struct iphdr *ip = packet_data(skb) + IP_OFFSET;
	__be16 *ports = packet_data(skb) + (p->l4_offset & 127);

	if ((void *)(ip + 1) > packet_end(skb) || (void *)(ports + 2) > packet_end(skb))
		return DROP(DROP_KERNEL);
	ip->check = checksum_replace(checksum_replace(ip->check, ip->saddr, to->source), ip->daddr, to->destination);
	p->source = ip->saddr = to->source;
	p->destination = ip->daddr = to->destination;
	p->source_port = ports[0] = to->source_port;
	p->destination_port = ports[1] = to->destination_port;
	return 0;
}
