//! `lowtide-lab bench hit`: the cost of a hit through a View and through maps, compared with a raw
//! pointer.
//!
//! The same words are in memory several times: in a file that is entirely resident under its
//! budget, through a View (a guard for each read, and a reader) and a map of each way, and in a
//! private anonymous mapping of ordinary 4 KiB pages, as in a program that simply loads its data.
//! All are read 8 bytes at a time at random places, in two patterns:
//!
//! * *independent*: places come from a generator, so the processor overlaps many reads; this shows
//!   throughput;
//! * *dependent*: each place depends on the previous word, as in a search tree; this shows
//!   latency.
//!
//! | file | concept |
//! |---|---|
//! | `chase.rs` | the two patterns, the same code for all systems |
//! | `pointer.rs` | the raw pointer, and that of a map |
//! | `load.rs` | everything into memory |
//! | `run.rs` | turns, table, JSON |

mod chase;
mod load;
mod pointer;
mod run;

pub(crate) use run::{ABOUT, HitArgs, NAME, run};
