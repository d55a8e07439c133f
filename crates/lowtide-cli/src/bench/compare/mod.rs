//! Comparisons: lowtide under some policies and kernel mappings take turns to play the same
//! operations under the same budget.
//!
//! | file | concept |
//! |---|---|
//! | `plan` | the plan of a comparison: common options, defaults, checks, files |
//! | `on_pages` | options of workloads on pages |
//! | `run` | running a comparison, its table and JSON |
//! | `ycsb`, `random_read`, `scan`, `replay` | a workload's options and defaults |

mod on_pages;
pub(crate) mod plan;
pub(crate) mod random_read;
pub(crate) mod replay;
mod run;
pub(crate) mod scan;
pub(crate) mod ycsb;

pub(crate) use plan::refuse_slowed;
