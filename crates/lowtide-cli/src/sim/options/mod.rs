//! Options that several workloads share, and what their values may be.
//!
//! The options of a workload stand in its own file, with its defaults: groups of those here, and
//! its own. So a workload has no option that it does not use, and its help has no other.
//!
//! | file | group |
//! |---|---|
//! | `common` | policies, seed and results, which every simulation of policies has |
//! | `results` | `--json`, `--timing` |
//! | `load` | what numbers of threads and seconds may be |
//! | `machine` | `--machine`, `--scale` |
//! | `budget` | what `--max` and `--size` may be |
//! | `swap` | swap of the plain machine |

mod budget;
mod common;
mod load;
mod machine;
mod results;
mod swap;

pub(crate) use budget::{data_pages, floor, group_budget, machine_budget, plain_budget};
pub(crate) use common::Common;
pub(crate) use load::{seconds, threads};
pub(crate) use machine::{OnMachine, Scale};
pub(crate) use results::{Output, Results, Switch, Timing};
pub(crate) use swap::Swap;

/// Bytes of a page of the plain machine, unless a trace says otherwise.
pub(crate) const PAGE_BYTES: u64 = 4096;
