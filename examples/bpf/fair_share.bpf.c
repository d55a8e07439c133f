/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Fair shares: reclaim takes from groups that use more than the average of all first.
 *
 * It uses the hooks that are proposed for the kernel, so the source is one for both. Attach it to the parent of the groups before they are created.
 * A group's usage is what it was when reclaim last came to it.
 */
#include "memcg_bpf_ops.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u64);
} pages SEC(".maps");

static volatile __u64 groups;
static volatile __u64 total;

SEC("struct_ops/handle_cgroup_online")
void BPF_PROG(online, struct mem_cgroup *memcg)
{
	__u64 group = memcg_number(memcg);
	__u64 none = 0;

	if (bpf_map_update_elem(&pages, &group, &none, BPF_NOEXIST) == 0)
		groups += 1;
}

SEC("struct_ops/handle_cgroup_offline")
void BPF_PROG(offline, struct mem_cgroup *memcg)
{
	__u64 group = memcg_number(memcg);
	__u64 *last = bpf_map_lookup_elem(&pages, &group);

	if (!last)
		return;
	total -= *last;
	groups -= 1;
	bpf_map_delete_elem(&pages, &group);
}

SEC("struct_ops/below_low")
bool BPF_PROG(below_low, struct mem_cgroup *memcg, unsigned long elow, unsigned long usage)
{
	__u64 group = memcg_number(memcg);
	__u64 *last = bpf_map_lookup_elem(&pages, &group);

	(void)elow;
	if (!last)
		return false;
	total += usage - *last;
	*last = usage;
	return usage * groups < total;
}

SEC(".struct_ops.link")
struct memcg_bpf_ops fair_share = {
	.below_low = (void *)below_low,
	.handle_cgroup_online = (void *)online,
	.handle_cgroup_offline = (void *)offline,
};

char _license[] SEC("license") = "Dual MIT/GPL";
