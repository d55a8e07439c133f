//! Comparisons: lowtide under some policies and the kernel's ways take turns to play the same
//! operations under the same budget.
//!
//! | file | concept |
//! |---|---|
//! | `plan` | the plan of a comparison: common options, defaults, checks, files |
//! | `on_pages` | options of workloads on pages |
//! | `run` | running a comparison, its table and JSON |
//! | `ycsb`, `random_read`, `gather`, `scan` | a workload's options and defaults |

pub mod gather;
pub mod on_pages;
pub mod plan;
pub mod random_read;
pub mod run;
pub mod scan;
pub mod ycsb;

pub use plan::refuse_slowed;

use lowtide_workload::Workload;

use crate::error::BenchError;
use plan::Comparison;

/// The options of a workload that compares.
pub trait Compare {
    /// What they ask for.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for options that exclude each other.
    fn comparison(&self, workload: Workload) -> Result<Comparison<'_>, BenchError>;
}
