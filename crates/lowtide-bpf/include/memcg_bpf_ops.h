/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * memcg_bpf_ops.h - the hooks that a patch series proposes for Linux, for programs that are to run in both.
 *
 * A source that includes this header and nothing else is compiled for lowtide as any other (see lowtide_bpf.h). With the kernel's types before it
 *
 *     #include "vmlinux.h"
 *     #include "memcg_bpf_ops.h"
 *
 * it is one for a kernel with the series. No released kernel has it, and the series changes: what is here is its seventh version.
 *
 * A program is a function of a section struct_ops/..., and a variable says which hook it is for:
 *
 *     SEC("struct_ops/below_low")
 *     bool BPF_PROG(spare, struct mem_cgroup *memcg, unsigned long elow, unsigned long usage) { return usage < 1000; }
 *
 *     SEC(".struct_ops.link")
 *     struct memcg_bpf_ops ops = { .below_low = (void *)spare };
 *
 * A group is a name: its fields are the kernel's. What both can tell of it: memcg_number(), bpf_mem_cgroup_usage().
 */
#ifndef MEMCG_BPF_OPS_H
#define MEMCG_BPF_OPS_H

#ifdef __VMLINUX_H__

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* The identity of a group; never used again for another one while programs can know of it. */
static __always_inline __u64 memcg_number(struct mem_cgroup *memcg)
{
	return BPF_CORE_READ(memcg, css.cgroup, kn, id);
}

#else

#include "lowtide_bpf.h"

#ifndef __bool_true_false_are_defined
typedef _Bool bool;
#define true 1
#define false 0
#endif

struct mem_cgroup;

/*
 * Not served, so an object that sets it is refused: memcg_uncharged. Until its sixth version the series had get_high_delay_ms in the place of
 * memcg_charged.
 */
struct memcg_bpf_ops {
	/*
	 * After a batch was charged to a group, whether or not it is above its high: milliseconds that the task sleeps at least; 0 for none. lowtide
	 * asks once at the end of an operation, with all its batches.
	 */
	__u32 (*memcg_charged)(struct mem_cgroup *memcg, unsigned int nr_pages);
	__u32 (*get_high_delay_ms)(struct mem_cgroup *memcg);
	void (*memcg_uncharged)(struct mem_cgroup *memcg, unsigned int nr_pages);
	/* true: treated as protected by low, or by min; false: the built-in test decides. In pages. */
	bool (*below_low)(struct mem_cgroup *memcg, unsigned long elow, unsigned long usage);
	bool (*below_min)(struct mem_cgroup *memcg, unsigned long emin, unsigned long usage);
	/* A group was created below the one that has these operations, or is about to be removed. */
	void (*handle_cgroup_online)(struct mem_cgroup *memcg);
	void (*handle_cgroup_offline)(struct mem_cgroup *memcg);
};

/* What lowtide knows of the group. Only here: a source for both asks the functions below. */
static const struct lowtide_limit *(*const lowtide_limit)(struct mem_cgroup *memcg) = (void *)4097;

/* Bytes that the group uses. */
extern unsigned long bpf_mem_cgroup_usage(struct mem_cgroup *memcg);

/* The identity of a group; never used again for another one. */
static __always_inline __u64 memcg_number(struct mem_cgroup *memcg)
{
	return lowtide_limit(memcg)->group;
}

/* A function whose arguments come as an array: one to three of them, as the hooks have. */
#define MEMCG_PASS(_1, _2, _3, name, ...) name
#define MEMCG_1(c, a) (void *)(c)[0]
#define MEMCG_2(c, a, b) (void *)(c)[0], (c)[1]
#define MEMCG_3(c, a, b, d) (void *)(c)[0], (c)[1], (c)[2]
#define BPF_PROG(name, ...)                                                                  \
	name(__u64 *numbers);                                                                      \
	static __always_inline __typeof__(name((void *)0)) name##_body(__VA_ARGS__);               \
	__typeof__(name((void *)0)) name(__u64 *numbers)                                           \
	{                                                                                          \
		return name##_body(                                                                      \
			MEMCG_PASS(__VA_ARGS__, MEMCG_3, MEMCG_2, MEMCG_1)(numbers, __VA_ARGS__));             \
	}                                                                                          \
	static __always_inline __typeof__(name((void *)0)) name##_body(__VA_ARGS__)

#endif

#endif
