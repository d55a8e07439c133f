//! `lowtide bench hit`: what a hit costs through a View, beside a raw pointer.
//!
//! The same words lie twice in memory: in a file, all of it resident under a budget that holds it,
//! and in a private anonymous mapping of ordinary 4 KiB pages, which is what a program has that
//! simply loads its data. Both are read 8 bytes at a random place at a time, in two patterns:
//!
//! * *independent*: places come from a generator, so the processor overlaps many reads; this shows
//!   throughput;
//! * *dependent*: each place follows from the word read before, as in a search tree; this shows
//!   latency.
//!
//! | file | concept |
//! |---|---|
//! | `chase.rs` | the two patterns, the same code for both systems |
//! | `pointer.rs` | the raw pointer |
//! | `run.rs` | turns, table, JSON |

mod chase;
mod pointer;
mod run;

pub(crate) use run::{ABOUT, HitArgs, NAME, run};
