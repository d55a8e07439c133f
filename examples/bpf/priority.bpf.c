/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Priorities: who matters less waits longer.
 *
 * The operator fills the map `priority`, by the identity of the group. A group that is not in it has priority 100.
 *
 *     0 to 99     waits 1 + (100 - priority) / 10 times as long as the built-in policy says
 *     100         the built-in policy decides
 *     above 100   never waits, and reclaim spares it while others have something
 *
 * `waited_ns` adds up what was asked for, by priority in steps of 10, for the operator to read.
 */
#include "lowtide_bpf.h"

#define NORMAL 100
#define STEPS 12

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u32);
} priority SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STEPS);
	__type(key, __u32);
	__type(value, __u64);
} waited_ns SEC(".maps");

static __always_inline __u32 priority_of(__u64 group)
{
	__u32 *found = bpf_map_lookup_elem(&priority, &group);

	return found ? *found : NORMAL;
}

LOWTIDE_THROTTLE(throttle)
{
	__u32 mine = priority_of(ctx->group);
	__u64 delay = ctx->default_delay_ns;
	__u32 step = mine / 10;
	__u64 *sum;

	if (mine == NORMAL)
		return LOWTIDE_NO_OPINION;
	if (mine > NORMAL)
		return 0;
	if (delay > LOWTIDE_DELAY_MAX_NS)
		delay = LOWTIDE_DELAY_MAX_NS;
	delay += delay * (NORMAL - mine) / 10;
	if (delay > LOWTIDE_DELAY_MAX_NS)
		delay = LOWTIDE_DELAY_MAX_NS;
	sum = bpf_map_lookup_elem(&waited_ns, &step);
	if (sum)
		*sum += delay;
	return delay;
}

LOWTIDE_BELOW_LOW(below_low)
{
	return priority_of(ctx->group) > NORMAL ? 1 : LOWTIDE_NO_OPINION;
}

LOWTIDE_LICENSE("Dual MIT/Apache-2.0");
