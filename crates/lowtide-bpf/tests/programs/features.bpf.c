/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What a compiler makes of C that is more than a formula: functions, global data, tables, loops, maps with structures as keys. */
#include "lowtide_bpf.h"

static volatile __u64 calls;
static volatile __u64 step = 3;
static const volatile __u64 table[8] = { 5, 10, 20, 40, 80, 160, 320, 640 };

struct key {
	__u64 group;
	__u32 level;
	__u32 zero;
};

struct value {
	__u64 asked;
	__s32 last;
	__u8 flags[5];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2);
	__type(key, struct key);
	__type(value, struct value);
} seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 3);
	__uint(key_size, 4);
	__uint(value_size, 8);
} sums SEC(".maps");

static __noinline __u64 less_one(__u64 x)
{
	return x - 1;
}

__noinline __u64 twice(const __u64 *x)
{
	return 2 * less_one(*x + 1);
}

/* table[group % 8] * 2 + calls * step */
LOWTIDE_THROTTLE(throttle)
{
	__u64 entry = table[ctx->group & 7];

	calls += 1;
	return twice(&entry) + calls * step;
}

/* The sum of the first `usage` numbers, by a loop, modulo the sum of an array on the stack. */
LOWTIDE_PROACTIVE(proactive)
{
	volatile __u32 array[16];
	__u64 sum = 0;
	__u32 total = 0;

	for (__u32 i = 0; i < 16; i++)
		array[i] = i * i;
	for (__u32 i = 0; i < 16; i++)
		total += array[i];
#pragma clang loop unroll(disable) vectorize(disable)
	for (__u64 i = 0; i < ctx->usage && i < 300; i++)
		sum += i ^ ctx->min;
	return sum % total;
}

/* Every change of a map and its result; a failed expectation is a negative answer. */
LOWTIDE_BELOW_LOW(below_low)
{
	struct key key = { .group = ctx->group, .level = ctx->level };
	struct value first = { .asked = 1, .last = -7, .flags = { 1, 2, 3, 4, 5 } };
	struct value *found = bpf_map_lookup_elem(&seen, &key);

	if (!found) {
		if (bpf_map_update_elem(&seen, &key, &first, BPF_EXIST) != -LOWTIDE_ENOENT)
			return -1;
		return bpf_map_update_elem(&seen, &key, &first, BPF_NOEXIST) == 0 ? 0 : -1;
	}
	found->asked += 1;
	found->last -= found->flags[4];
	if (bpf_map_update_elem(&seen, &key, &first, BPF_NOEXIST) != -LOWTIDE_EEXIST)
		return -1;
	return found->asked;
}

/* Removes what below_low remembers; the answer is whether it was there. */
LOWTIDE_BELOW_MIN(below_min)
{
	struct key key = { .group = ctx->group, .level = ctx->level };
	__u32 index = 2, beside = 3;
	__u64 *sum = bpf_map_lookup_elem(&sums, &index);

	if (!sum || bpf_map_lookup_elem(&sums, &beside))
		return -1;
	__sync_fetch_and_add(sum, bpf_ktime_get_ns());
	lowtide_request_reclaim(ctx->group, *sum);
	return bpf_map_delete_elem(&seen, &key) == 0;
}

LOWTIDE_LICENSE("MIT OR Apache-2.0");
