//! Options that several workloads share, and their valid values.
//!
//! The file of a workload defines its options and their defaults: groups from here, and its own. So
//! a workload accepts only options that it uses, and its help shows no others.
//!
//! | file | group |
//! |---|---|
//! | `common` | policies, seed and results, for every simulation that compares policies |
//! | `results` | `--json`, `--timing` |
//! | `load` | valid numbers of threads |
//! | `machine` | `--machine`, `--device` |
//! | `budget` | valid values of `--max` and `--size` |
//! | `swap` | swap of the plain machine |

pub mod budget;
pub mod common;
pub mod load;
pub mod machine;
pub mod results;
pub mod swap;

pub use budget::{data_pages, floor, machine_budget, plain_budget};
pub use common::Common;
pub use load::threads;
pub use machine::{OrPlain, devices, with_device};
pub use results::{Output, Results, Switch, Timing};
pub use swap::Swap;

/// Bytes of a page of the plain machine, unless a trace says otherwise.
pub const PAGE_BYTES: u64 = 4096;
