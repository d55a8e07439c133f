//! Raw Linux interfaces that lowtide needs, each behind a small safe interface.
//!
//! Each module is a thin layer over one group of system calls and decides nothing: policy lives in
//! the engine and in the runtime. The crate depends on no other part of lowtide, so that it can be
//! read, tested and replaced alone. What only measurements need is in the crate `lowtide-host`.
//!
//! | module | kernel interface | purpose |
//! |---|---|---|
//! | [`let_go`](mod@let_go) | `F_OFD_GETLK` of `fcntl(2)` | closes that lose no lock |
//! | [`locks`] | `fcntl(2)` | locks of an open file, which end with its process |
//! | [`memory`] | `mmap(2)`, `madvise(2)`, `mprotect(2)` | frames, tables |
//! | [`membarrier`] | `membarrier(2)` | fences that are free on the side that runs often |
//! | [`descriptors`] | `close_range(2)`, `unshare(2)` | a table of a thread's own |
//! | [`file`](mod@file) | `open(2)`, `statx(2)` | rules of direct I/O |
//! | [`shared`] | `mmap(2)` of a descriptor, `memfd_create(2)` | mappings of files, mirrors |
//! | [`userfault`] | `userfaultfd(2)` | page faults that this process serves itself |
//! | [`pagemap`] | `PAGEMAP_SCAN`, `mincore(2)` | which pages are present, which were written |
//! | [`page_cache`] | `madvise(2)`, `posix_fadvise(2)`, `cachestat(2)` | page cache of one file |
//! | [`memcg`] | `/proc/self/cgroup`, `memory.max` | the limit on memory that binds this process |
//! | [`room`] | `unshare(2)`, `pidfd_getfd(2)` | descriptors of ours beside a program's |
//! | [`running`] | `clock_gettime(2)` | how long threads had a processor |
//! | [`schedule`] | `sched_setattr(2)` | threads that are let in soon |
//! | [`threads`] | `rt_sigprocmask(2)`, `sched(7)` | threads of ours beside a program's |
//!
//! Unsafe code is denied here and allowed again by each file that needs it, under a paragraph
//! headed *Safety* that states what the file relies on and what it guarantees.

#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("lowtide-sys speaks to the Linux kernel; build it for a Linux target");

mod call;
pub mod descriptors;
pub mod file;
pub mod let_go;
pub mod locks;
pub mod membarrier;
pub mod memcg;
pub mod memory;
pub mod page_cache;
pub mod pagemap;
pub mod room;
pub mod running;
pub mod schedule;
pub mod shared;
pub mod threads;
pub mod userfault;
