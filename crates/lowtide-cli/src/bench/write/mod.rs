//! `lowtide bench` of sequential writing: a file several times the budget, written from its start
//! to its end and made durable.
//!
//! | file | concept |
//! |---|---|
//! | `fill` | one file to be written, the same for all systems: the loop, the clock, the proof |
//! | `source` | where the bytes come from |
//! | `systems` | lowtide and its peers as writers |
//! | `run` | rounds, table and JSON of both workloads |
//! | `as_fast`, `dd_oom` | options of `fill`, and of `dd-oom` |

pub(crate) mod as_fast;
pub(crate) mod dd_oom;
mod fill;
mod run;
mod source;
mod systems;

pub(crate) use fill::Fill;
