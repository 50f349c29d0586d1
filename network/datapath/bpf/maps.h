/* SPDX-License-Identifier: Apache-2.0 */
/* Maps: keys, values, definitions. Go mirrors of the structures are generated from here by bpf2go. */
#pragma once

#include "kernel.h"
#include "reasons.h"

/* A field that only the tables of the tests' other object file have (../otherlayout): as a later version might. */
#ifdef OTHER_LAYOUT
#define LATER(field) field
#else
#define LATER(field)
#endif

/* An address of either family: IPv4 as ::ffff:a.b.c.d, so that keys need no change for IPv6. */
struct address {
	__be32 w[4];
};

/* A Subnet, by VNI. */
struct subnet {
	struct address prefix;
	struct address gateway;
	__u32 vpc_id;
	__u8 gateway_mac[6];
	__u8 prefix_length; /* of the 128-bit form */
	__u8 pad;
};

enum nic_flags {
	NIC_NO_SOURCE_DEST_CHECK = 1,
	NIC_NO_SERVICES = 2, /* its VPC has no Services, and it has no flows through any */
};

/* An interface of this node, by the ifindex of its host side. */
struct nic {
	struct address address;
	struct address infrastructure;
	__u32 vni;
	__u32 vpc_id;
	__u8 mac[6];
	__u8 gateway_mac[6];
	__u32 prefix_length; /* of the 128-bit form */
	enum nic_flags flags;
	__u32 ingress_policy; /* policy.h */
	__u32 egress_policy;
};

struct endpoint_key {
	struct address address;
	__u32 vni;
};

enum endpoint_kind {
	ENDPOINT_INTERFACE = 0,
	ENDPOINT_HOST = 1,
	ENDPOINT_INFRASTRUCTURE = 2,
	ENDPOINT_PLATFORM = 3, /* an interface that may open connections to infrastructure addresses */
};

/* Where an address of a Subnet is. */
struct endpoint {
	struct address node; /* zero: this node */
	__u32 vpc_id;
	__u32 ifindex; /* host side, when it is an interface of this node */
	enum endpoint_kind kind;
	__u8 mac[6];
	__u8 pad[2];
};

struct route_key {
	__u32 prefix_length; /* 32 bits of VNI and then of the 128-bit form */
	__u32 vni;
	struct address prefix;
};

enum route_kind {
	ROUTE_LOCAL = 0,     /* to the Subnet of the VPC that the destination is in */
	ROUTE_HOP = 1,	     /* to an interface of the VPC that sends on */
	ROUTE_BLACKHOLE = 2, /* nowhere, because the tenant says so */
	ROUTE_RESERVED = 3,  /* nowhere: a range that the cloud keeps for itself */
	ROUTE_OUTSIDE = 4,   /* out of the cloud, from an external address */
	ROUTE_PEER = 5,	     /* to the Subnet of another VPC, both of which want it so, that the destination is in */
};

struct route {
	struct address hop; /* ROUTE_HOP: its address; zero while there is none */
	__u32 hop_vni;
	__u32 vni; /* the Subnet of the VPC, or of a peer, that the destination is in, wherever the route leads; zero: in none */
	enum route_kind kind;
	__u32 peer_vpc_id; /* ROUTE_PEER: the VPC that the Subnet is in */
};

/* An interface of this node that sends on what others sent, by what the inner destination MAC address says of it. */
struct hop_key {
	__u32 vni;
	__u8 mac[6];
	__u8 pad[2];
};

struct hop {
	__u32 ifindex;
};

struct member {
	__u32 pad;
};

/* A member that has an interface without source check in the VPC: it sends on what others sent. */
struct forwarder_key {
	struct address member;
	__u32 vpc_id;
};

struct forwarder {
	__u32 pad;
};

enum external_kind {
	EXTERNAL_FREE = 0,     /* a pool's, and nothing has it */
	EXTERNAL_FLOATING = 1, /* an interface's own */
	EXTERNAL_NAT = 2,      /* a NATGateway's; who has which of its ports says port_blocks */
};

struct external_key {
	__u32 prefix_length; /* of the 128-bit form: a pool's, or all of an address */
	struct address prefix;
};

/* What has an external address. */
struct external {
	struct address node;   /* where it is; zero: this node */
	struct address target; /* the interface's address in its Subnet */
	__u32 vni;
	__u32 vpc_id;
	enum external_kind kind;
};

struct floating_key {
	struct address address;
	__u32 vpc_id;
};

/* The external address of an interface's address. */
struct floating {
	struct address external;
};

struct service_key {
	struct address address;
	__u32 vpc_id;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

struct service {
	__u32 id;
	__u32 count;
	__u32 affinity; /* seconds; zero: none */
};

struct backend_key {
	__u32 service;
	__u32 slot;
};

struct backend {
	struct address address;
	__be16 port;
	__u8 pad[2];
};

struct affinity_key {
	LATER(__u64 later;)
	struct address client;
	__u32 vpc_id;
	__u32 service;
};

struct affinity {
	LATER(__u64 later;)
	struct backend backend;
	__u32 slot;
	__u32 last_seen; /* seconds since boot */
};

enum conntrack_direction {
	CONNTRACK_FORWARD = 0,
	CONNTRACK_REVERSE = 1,
};

/* A flow through a Service. Each has two entries: FORWARD is keyed by what the client sends, REVERSE by what the backend
 * answers. */
struct conntrack_key {
	LATER(__u64 later;)
	struct address source;
	struct address destination;
	__u32 vpc_id;
	__be16 source_port;
	__be16 destination_port;
	enum conntrack_direction direction;
	__u8 protocol;
	__u8 pad[3];
};

enum conntrack_flags {
	CONNTRACK_SEEN_REPLY = 1,
	CONNTRACK_FIN_FORWARD = 2,
	CONNTRACK_FIN_REVERSE = 4,
	CONNTRACK_RST = 8,
	CONNTRACK_HAIRPIN = 16, /* client and backend are one: the backend sees HAIRPIN_ADDRESS */
};

/* FORWARD: the backend becomes the destination, client_port the source port.
 * REVERSE: the Service becomes the source, client_port the destination port. */
struct conntrack {
	LATER(__u64 later;)
	struct address service;
	struct address backend;
	__be16 service_port;
	__be16 backend_port;
	__be16 client_port; /* as the client has it */
	__be16 nat_port;    /* as the backend sees it */
	__u32 service_id;
	__u32 last_seen; /* seconds since boot */
	enum conntrack_flags flags;
};

struct drop_key {
	__u32 ifindex;
	enum drop_reason reason;
};

struct count {
	__u64 packets;
	__u64 bytes;
};

#define MAP(name_, type_, key_, value_, max_, flags_)                                                                  \
	struct {                                                                                                       \
		__uint(type, type_);                                                                                   \
		__type(key, key_);                                                                                     \
		__type(value, value_);                                                                                 \
		__uint(max_entries, max_);                                                                             \
		__uint(map_flags, flags_);                                                                             \
	} name_ SEC(".maps")

MAP(subnets, BPF_MAP_TYPE_HASH, __u32, struct subnet, 16384, BPF_F_NO_PREALLOC);
MAP(nics, BPF_MAP_TYPE_HASH, __u32, struct nic, 16384, BPF_F_NO_PREALLOC);
MAP(endpoints, BPF_MAP_TYPE_HASH, struct endpoint_key, struct endpoint, 262144, BPF_F_NO_PREALLOC);
MAP(routes, BPF_MAP_TYPE_LPM_TRIE, struct route_key, struct route, 1048576, BPF_F_NO_PREALLOC);
MAP(hops, BPF_MAP_TYPE_HASH, struct hop_key, struct hop, 16384, BPF_F_NO_PREALLOC);
MAP(members, BPF_MAP_TYPE_HASH, struct address, struct member, 16384, BPF_F_NO_PREALLOC);
MAP(forwarders, BPF_MAP_TYPE_HASH, struct forwarder_key, struct forwarder, 65536, BPF_F_NO_PREALLOC);
MAP(externals, BPF_MAP_TYPE_LPM_TRIE, struct external_key, struct external, 262144, BPF_F_NO_PREALLOC);
MAP(floatings, BPF_MAP_TYPE_HASH, struct floating_key, struct floating, 262144, BPF_F_NO_PREALLOC);
MAP(services, BPF_MAP_TYPE_HASH, struct service_key, struct service, 65536, BPF_F_NO_PREALLOC);
MAP(backends, BPF_MAP_TYPE_HASH, struct backend_key, struct backend, 262144, BPF_F_NO_PREALLOC);
MAP(affinities, BPF_MAP_TYPE_LRU_HASH, struct affinity_key, struct affinity, 32768, 0);
MAP(conntracks, BPF_MAP_TYPE_LRU_HASH, struct conntrack_key, struct conntrack, 131072, 0);
MAP(deliveries, BPF_MAP_TYPE_PERCPU_HASH, __u32, struct count, 16384, BPF_F_NO_PREALLOC);
MAP(drops, BPF_MAP_TYPE_PERCPU_HASH, struct drop_key, struct count, 65536, BPF_F_NO_PREALLOC);
