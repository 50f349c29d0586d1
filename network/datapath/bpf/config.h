/* SPDX-License-Identifier: Apache-2.0 */
/* Constants that the loader sets (Config in Go); the verifier sees their values, so code they rule out costs nothing. */
#pragma once

#include "kernel.h"

volatile const __u32 default_vni = 1;
volatile const __u32 default_vpc_id = 1;
volatile const __be32 infrastructure_prefix;
volatile const __be32 infrastructure_mask;
volatile const __be32 service_prefix;
volatile const __be32 service_mask;
volatile const __be32 hairpin_address;
volatile const __be32 resolver_address;
volatile const __be32 alias_prefix;
volatile const __be32 alias_mask;
volatile const __u32 mtu = 1450;
volatile const __be16 vxlan_port;
volatile const __u32 host_ifindex;
volatile const __u32 vxlan_ifindex;
volatile const __u8 host_mac[6];
volatile const __u32 outside_vni = 2;  /* what members send on to each other that came from, or is for, an external address */
volatile const __u32 uplink_ifindex;
volatile const __be32 node_address; /* this node's on the underlay */
