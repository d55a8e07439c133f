/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Reads a field where a kernel has it: nothing that can be served. */
#include "memcg_bpf_ops.h"

struct counter {
	long usage;
} __attribute__((preserve_access_index));

SEC("struct_ops/below_low")
bool BPF_PROG(below_low, struct mem_cgroup *memcg, unsigned long elow, unsigned long usage)
{
	return ((struct counter *)memcg)->usage + elow < usage;
}

SEC(".struct_ops.link")
struct memcg_bpf_ops kernel_field = {
	.below_low = (void *)below_low,
};
