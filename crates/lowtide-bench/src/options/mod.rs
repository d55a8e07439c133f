//! Groups of options that several workloads share.
//!
//! Options with different defaults (size, length) are in the file of each workload; their parsers
//! are in `values`.
//!
//! | file | concept |
//! |---|---|
//! | `values` | single values: budgets, scales, times, pages |
//! | `memory` | budgets that do not fit in memory |
//! | `files` | budget and data, the directory of data files, and a data file of the user's |
//! | `rows` | policies and peers, one row each |
//! | `device` | lowtide's I/O |
//! | `timing` | seconds or operations, in rounds |

pub mod memory;

pub mod device;
pub mod files;
pub mod rows;
pub mod timing;

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use lowtide_report::json;

pub use device::{Io, YoungFaults, engines, modes};
pub use files::{Files, Place, Sizes, Source, UserFile};
pub use rows::{Mappings, MmapPeer, Policies, chosen, policy_rows};
pub use timing::{Operations, Timing, batch, rounds, threads};

/// A file for the results, in addition to the table.
#[derive(Debug, Args)]
pub struct Output {
    /// Also write the results to this file as JSON
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(writable))]
    pub json: Option<PathBuf>,
}

fn writable(path: PathBuf) -> Result<PathBuf, String> {
    json::writable(&path)?;
    Ok(path)
}

/// The seed of random choices.
#[derive(Clone, Copy, Debug, Args)]
pub struct Seed {
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = Seed::USUAL, allow_negative_numbers = true)]
    pub seed: u64,
}

impl Seed {
    /// The default, also in rows of workloads without random choices.
    pub const USUAL: u64 = 42;
}
