//! Comparisons: lowtide under some policies and mappings of the kernel play the same operations
//! under the same budget, in turns.
//!
//! | file | concept |
//! |---|---|
//! | `plan` | what is compared: options of all, defaults, checks, files |
//! | `run` | from the comparison to table and JSON |
//! | `ycsb`, `mixed`, `random_read`, `scan`, `replay` | a workload's options and defaults |

pub(crate) mod mixed;
mod plan;
pub(crate) mod random_read;
pub(crate) mod replay;
mod run;
pub(crate) mod scan;
pub(crate) mod ycsb;

pub(crate) use plan::refuse_slowed;
