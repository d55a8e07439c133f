//! Raw Linux interfaces that lowtide needs, each behind a small safe interface.
//!
//! Each module is a thin layer over one group of system calls and decides nothing: policy lives in
//! the engine, and the runtime chooses among what the [`probe`] found. The crate depends on no
//! other part of lowtide, so that it can be read, tested and replaced alone.
//!
//! | module | kernel interface | purpose |
//! |---|---|---|
//! | [`memory`] | `mmap(2)`, `madvise(2)`, `mprotect(2)` | frames, tables, mapped files |
//! | [`membarrier`] | `membarrier(2)` | fences that are free on the side that runs often |
//! | [`file`](mod@file) | `open(2)`, `statx(2)`, `posix_fadvise(2)` | rules of direct I/O |
//! | [`memcg`] | cgroup v1 and v2 `memory` controller | a group with a limit, to compare |
//! | [`usage`] | `getrusage(2)`, `/proc/PID/io` | the cost of a measurement |
//! | [`probe`] | all of the above | one printable report of the machine's features |
//!
//! Unsafe code is denied here and allowed again by each file that needs it, under a paragraph
//! headed *Safety* that states what the file relies on and what it guarantees.

#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("lowtide-sys speaks to the Linux kernel; build it for a Linux target");

pub mod file;
pub mod membarrier;
pub mod memcg;
pub mod memory;
pub mod probe;
pub mod usage;
