// SPDX-License-Identifier: Apache-2.0
#include "kernel.h"
#include "config.h"
#include "maps.h"
#include "reasons.h"

SEC("tc")
int pod_egress(struct __sk_buff *skb __attribute__((unused)))
{
	return TC_ACT_SHOT;
}

SEC("tc")
int host_egress(struct __sk_buff *skb __attribute__((unused)))
{
	return TC_ACT_SHOT;
}

SEC("tc")
int vxlan_ingress(struct __sk_buff *skb __attribute__((unused)))
{
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual MIT/GPL";
