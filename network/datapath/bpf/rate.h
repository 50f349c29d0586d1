/* SPDX-License-Identifier: Apache-2.0 */
/* How often something may happen: so many times at once, and one every so many ns on the average (GCRA, as in ITU-T I.371). */
#pragma once

#include "kernel.h"

/* Whether it may happen once more to something. The map has when the next time would be due if they came evenly: ns since boot. */
static __always_inline bool within_rate(void *times, __u32 what, __u64 at_once, __u64 interval)
{
	__u64 now = bpf_ktime_get_coarse_ns(), next = now;
	__u64 *due = bpf_map_lookup_elem(times, &what);

	if (due && *due > now)
		next = *due;
	if (next > now + at_once * interval)
		return false;
	next += interval;
	bpf_map_update_elem(times, &what, &next, BPF_ANY);
	return true;
}
