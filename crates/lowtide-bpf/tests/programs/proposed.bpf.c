/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* All hooks of the proposed series that are served, in its names. `own.bpf.c` is its twin in ours. */
#include "memcg_bpf_ops.h"

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

SEC("struct_ops/memcg_charged")
__u32 BPF_PROG(charged, struct mem_cgroup *memcg, unsigned int nr_pages)
{
	add(0, memcg_number(memcg));
	return nr_pages + (bpf_mem_cgroup_usage(memcg) >> 12) % 100;
}

SEC("struct_ops/below_low")
bool BPF_PROG(below_low, struct mem_cgroup *memcg, unsigned long elow, unsigned long usage)
{
	add(1, memcg_number(memcg) + elow);
	return usage < 2 * elow;
}

SEC("struct_ops/below_min")
bool BPF_PROG(below_min, struct mem_cgroup *memcg, unsigned long emin, unsigned long usage)
{
	add(1, memcg_number(memcg) - emin);
	return usage < 3 * emin;
}

SEC("struct_ops/handle_cgroup_online")
void BPF_PROG(online, struct mem_cgroup *memcg)
{
	add(2, memcg_number(memcg));
}

SEC("struct_ops/handle_cgroup_offline")
void BPF_PROG(offline, struct mem_cgroup *memcg)
{
	add(3, bpf_mem_cgroup_usage(memcg));
}

SEC(".struct_ops.link")
struct memcg_bpf_ops proposed = {
	.memcg_charged = (void *)charged,
	.below_low = (void *)below_low,
	.below_min = (void *)below_min,
	.handle_cgroup_online = (void *)online,
	.handle_cgroup_offline = (void *)offline,
};

char _license[] SEC("license") = "Dual MIT/GPL";
