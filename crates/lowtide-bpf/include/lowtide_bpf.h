/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * lowtide_bpf.h - what a program about memory limits sees, may call, and answers.
 *
 * It needs no other header. Compile with
 *
 *     clang -O2 -g -target bpf -I crates/lowtide-bpf/include -c NAME.bpf.c -o NAME.bpf.o
 *     llvm-strip -g NAME.bpf.o
 *
 * -g is for the definitions of maps, which stand in the types; stripping keeps those.
 */
#ifndef LOWTIDE_BPF_H
#define LOWTIDE_BPF_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;

/* Why a program is asked: reason. */
#define LOWTIDE_REASON_HIGH 0       /* usage is above high */
#define LOWTIDE_REASON_MAX 1        /* usage is at max */
#define LOWTIDE_REASON_SWAP_HIGH 2  /* swap usage is above its high */
#define LOWTIDE_REASON_PROTECTION 3 /* reclaim wants to know whether the group is protected */
#define LOWTIDE_REASON_PROACTIVE 4  /* the timer: is there something to reclaim in advance */
#define LOWTIDE_REASON_CHARGE 5     /* a task charged pages; usage may be below high */
#define LOWTIDE_REASON_ONLINE 6     /* the group was created */
#define LOWTIDE_REASON_OFFLINE 7    /* the group is about to be removed */

/* No limit; no refault yet. */
#define LOWTIDE_NONE (~0ULL)

/* The longest delay that is believed, in nanoseconds. */
#define LOWTIDE_DELAY_MAX_NS 2000000000LL

/*
 * The context: one level of the tree of groups, and the task that pays. It is read-only. It only ever grows at the end; what is behind `size`
 * reads as 0, up to byte 511. Memory is in base pages unless it says bytes.
 */
struct lowtide_limit {
	__u32 size;              /* bytes: how much of this structure the engine fills in */
	__u32 reason;            /* LOWTIDE_REASON_... */
	__u64 group;             /* identity of the group; never used again for another one */
	__u32 level;             /* depth of the group; 0 is the root */
	__u32 page_bytes;        /* bytes of a base page */
	__u64 usage;             /* pages charged */
	__u64 max;               /* pages, or LOWTIDE_NONE */
	__u64 high;              /* pages, or LOWTIDE_NONE */
	__u64 low;               /* pages */
	__u64 min;               /* pages */
	__u64 elow;              /* pages: effective low, as last computed */
	__u64 emin;              /* pages: effective min, as last computed */
	__u64 swap_usage;        /* pages in swap */
	__u64 swap_max;          /* pages, or LOWTIDE_NONE */
	__u64 stall_rate;        /* ns a second: refault stall of all tasks below, decayed over 10 s */
	__u64 psi_some_us;       /* us: total time in which some task waited for memory */
	__u64 psi_full_us;       /* us: total time in which all tasks did */
	__u32 psi_some_avg10;    /* 0 to 10000, hundredths of a percent, over 10 s */
	__u32 psi_full_avg10;    /* 0 to 10000, hundredths of a percent, over 10 s */
	__u64 task;              /* number of the task */
	__u64 task_debt_ns;      /* ns: refault stall that the task has not paid for yet */
	__u64 nr_over_high;      /* pages that the task charged over the limit since it was last handled; with REASON_CHARGE all in batches */
	__u64 since_refault_ns;  /* ns since the last refault in the task's group, or LOWTIDE_NONE */
	__u64 overage_delay_ns;  /* ns: the kernel's penalty for overage */
	__u64 default_delay_ns;  /* ns: what the built-in policy would do */
	__u64 hz;                /* ticks a second */
	__u64 now_ns;            /* ns: the time of the driver */
};

#define SEC(name) __attribute__((section(name), used))
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#ifndef __noinline
#define __noinline __attribute__((noinline))
#endif

/*
 * One macro for each hook; each begins a function whose argument is `ctx`. An object has one program for a hook at most, and one of the
 * two throttles and `charged`. The hooks that are proposed for the kernel: memcg_bpf_ops.h.
 *
 *     LOWTIDE_THROTTLE(half) { return ctx->default_delay_ns / 2; }
 */
#define LOWTIDE_PROGRAM(section, type, name)               \
	SEC(section) type name(const struct lowtide_limit *ctx); \
	SEC(section) type name(const struct lowtide_limit *ctx)

/* Nanoseconds to sleep, whatever the built-in policy says; negative: no opinion. */
#define LOWTIDE_THROTTLE(name) LOWTIDE_PROGRAM("memcg/throttle", __s64, name)
/* Nanoseconds to sleep at least; negative: no opinion. */
#define LOWTIDE_THROTTLE_AT_LEAST(name) LOWTIDE_PROGRAM("memcg/throttle_at_least", __s64, name)
/*
 * Nanoseconds to sleep at least; negative: no opinion. Asked after each batch that a task charged, whether or not a group is above high, at the end
 * of the operation that charged. The context is that of the group that was charged; nr_over_high has the pages.
 */
#define LOWTIDE_CHARGED(name) LOWTIDE_PROGRAM("memcg/charged", __s64, name)
/* 1: reclaim spares the group while others have something; 0: it does not; negative: no opinion. */
#define LOWTIDE_BELOW_LOW(name) LOWTIDE_PROGRAM("memcg/below_low", int, name)
/* 1: reclaim spares the group altogether; 0: it does not; negative: no opinion. */
#define LOWTIDE_BELOW_MIN(name) LOWTIDE_PROGRAM("memcg/below_min", int, name)
/* Pages to reclaim in advance; 0 or negative: none. */
#define LOWTIDE_PROACTIVE(name) LOWTIDE_PROGRAM("memcg/proactive", __s64, name)

/* A group was created that this program decides for, or is about to be removed. No time and no pressure in the context. */
#define LOWTIDE_ONLINE(name) LOWTIDE_PROGRAM("memcg/online", void, name)
#define LOWTIDE_OFFLINE(name) LOWTIDE_PROGRAM("memcg/offline", void, name)

#define LOWTIDE_NO_OPINION (-1)

/* In the section "license"; without consequences. */
#define LOWTIDE_LICENSE(text) char _license[] SEC("license") = text

/*
 * Maps are variables in SEC(".maps"):
 *
 *     struct {
 *         __uint(type, BPF_MAP_TYPE_HASH);
 *         __uint(max_entries, 1024);
 *         __type(key, __u64);
 *         __type(value, __u64);
 *     } seen SEC(".maps");
 *
 * The key of an array is a __u32.
 */
#define __uint(name, val) int (*name)[val]
#define __type(name, val) __typeof__(val) *name

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2

#define BPF_ANY 0     /* set, whether it is there or not */
#define BPF_NOEXIST 1 /* only if it is not there */
#define BPF_EXIST 2   /* only if it is there */

#define LOWTIDE_ENOENT 2
#define LOWTIDE_E2BIG 7
#define LOWTIDE_EAGAIN 11
#define LOWTIDE_EEXIST 17
#define LOWTIDE_EINVAL 22

/* Helpers. An instruction costs 1 of the 4096 of a run, a helper 16 and 1 for each 16 bytes of key and value. */

/* The address of the key's value, to read and write; null if it is not there. */
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
/* 0, or -E2BIG if there is no room, -EEXIST, -ENOENT (see the flags), -EINVAL. */
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
/* 0, or -ENOENT, or -EINVAL for an array. */
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
/* The context's now_ns. */
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
/* Asks that pages of a group be reclaimed, some time later. 0, or -EAGAIN if 64 groups wait already, -EINVAL for no pages. */
static long (*const lowtide_request_reclaim)(__u64 group, __u64 pages) = (void *)4096;

#endif
