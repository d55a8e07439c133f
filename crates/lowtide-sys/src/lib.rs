//! Raw Linux interfaces that lowtide needs, each behind a small safe face.
//!
//! Everything here is a thin layer over one group of system calls. Nothing here decides anything:
//! policy lives in the engine, and the runtime chooses among what the [`probe`] found. The crate
//! depends on no other part of lowtide, so that it can be read, tested and replaced alone.
//!
//! | module | kernel interface | what it is for |
//! |---|---|---|
//! | [`memory`] | `mmap(2)`, `madvise(2)`, `mprotect(2)` | frames, tables and the mappings of the benchmark's peers |
//! | [`membarrier`] | `membarrier(2)` | fences that are free on the side that runs often |
//! | [`file`](mod@file) | `open(2)`, `statx(2)`, `posix_fadvise(2)` | what direct I/O needs to know about a file |
//! | [`memcg`] | cgroup v1 and v2 `memory` controller | a group with a limit, for honest comparisons |
//! | [`usage`] | `getrusage(2)`, `/proc/PID/io` | what a measurement cost |
//! | [`probe`] | all of the above | one printable report of what this machine offers |
//!
//! Unsafe code is denied here and allowed again by each file that needs it, under a paragraph
//! headed *Safety* that says what the file relies on and what it promises.

#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("lowtide-sys speaks to the Linux kernel; build it for a Linux target");

pub mod file;
pub mod membarrier;
pub mod memcg;
pub mod memory;
pub mod probe;
pub mod usage;
