//! `lowtide bench` of sequential writing: a file several times the budget, written from its start
//! to its end and made durable.
//!
//! | file | concept |
//! |---|---|
//! | `fill` | one file to be written, the same for every system: the loop, the clock, and the proof |
//! | `source` | where the bytes come from |
//! | `systems` | lowtide and its peers as writers |
//! | `run` | rounds, table and JSON of `fill` and `dd-oom` |

mod fill;
mod run;
mod source;
mod systems;

pub(crate) use fill::Fill;

use super::args::BenchArgs;
use super::error::BenchError;

/// A benchmark that only writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writing {
    /// As fast as it goes, beside `dd`.
    Fill,
    /// On a device whose writes take a second each.
    DdOom,
}

impl Writing {
    /// All of them, in the order in which they are listed.
    pub(crate) const ALL: [Self; 2] = [Self::Fill, Self::DdOom];

    /// The name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fill => "fill",
            Self::DdOom => "dd-oom",
        }
    }

    /// One line about it, for listings.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Fill => {
                "a file of four budgets written from start to end and made durable, beside dd"
            }
            Self::DdOom => {
                "the same of one and a half budgets where each write takes a second: nobody may \
                 run out of memory"
            }
        }
    }

    /// The budget when nothing is said.
    const fn max_bytes(self) -> u64 {
        match self {
            Self::Fill => super::plan::MAX_BYTES,
            Self::DdOom => 128 << 20,
        }
    }

    /// The file as a multiple of the budget when nothing is said.
    const fn scale(self) -> f64 {
        match self {
            Self::Fill => super::plan::SCALE,
            Self::DdOom => 1.5,
        }
    }

    /// Files that each system writes when nothing is said.
    const fn rounds(self) -> u32 {
        match self {
            Self::Fill => 3,
            Self::DdOom => 1,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// Any [`BenchError`].
    pub(super) fn run(self, args: &BenchArgs) -> Result<(), BenchError> {
        super::options::refuse_misplaced(args, super::args::Target::Writing(self))?;
        run::run(self, args)
    }
}
