//! What measurements on a real machine need of its kernel, and lowtide does not.
//!
//! The command compares lowtide with programs of the kernel's own paging, under the same budget,
//! and says what each cost. The runtime uses none of this: what it uses is in [`lowtide_sys`].
//!
//! | module | kernel interface | purpose |
//! |---|---|---|
//! | [`memcg`] | cgroup v1 and v2 `memory` controller | a group with a limit, to compare |
//! | [`usage`] | `getrusage(2)`, `/proc/PID/io` | the cost of a measurement |
//! | [`file`](mod@file) | `statfs(2)`, `posix_fadvise(2)` | where a file is; an empty page cache |
//! | [`heap`] | `mallopt(3)` | many threads in a limited address space |
//! | [`itself`] | `/proc/self/exe`, `AT_EXECFN` | the file of this program |
//! | [`maps`] | `userfaultfd(2)`, `PAGEMAP_SCAN` | how lowtide's maps work here |
//! | [`reach`] | those that `lowtide run` needs | what it can do here |
//! | [`probe`] | all of these, and those of [`lowtide_sys`] | a report of the machine's features |
//!
//! Unsafe code is denied here and allowed again by each file that needs it, under a paragraph
//! headed *Safety* that states what the file relies on and what it guarantees.

#![deny(unsafe_code)]

pub mod file;
pub mod heap;
pub mod itself;
pub mod maps;
pub mod memcg;
pub mod probe;
pub mod reach;
pub mod usage;
