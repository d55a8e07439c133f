/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What `proposed.bpf.c` does, in our names. */
#include "lowtide_bpf.h"

#define NSEC_PER_MSEC 1000000LL

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} sums SEC(".maps");

static __noinline void add(__u32 at, __u64 number)
{
	__u64 *sum = bpf_map_lookup_elem(&sums, &at);

	if (sum)
		*sum = *sum * 31 + number;
}

LOWTIDE_CHARGED(charged)
{
	add(0, ctx->group);
	return (ctx->nr_over_high + ctx->usage % 100) * NSEC_PER_MSEC;
}

LOWTIDE_BELOW_LOW(below_low)
{
	add(1, ctx->group + ctx->elow);
	return ctx->usage < 2 * ctx->elow ? 1 : LOWTIDE_NO_OPINION;
}

LOWTIDE_BELOW_MIN(below_min)
{
	add(1, ctx->group - ctx->emin);
	return ctx->usage < 3 * ctx->emin ? 1 : LOWTIDE_NO_OPINION;
}

LOWTIDE_ONLINE(online)
{
	add(2, ctx->group);
}

LOWTIDE_OFFLINE(offline)
{
	add(3, ctx->usage * ctx->page_bytes);
}

LOWTIDE_LICENSE("Dual MIT/Apache-2.0");
