//! Options that several workloads share, in groups that a workload's arguments are made of.
//!
//! What differs between workloads (how large, how long) is in the file of each workload, with its
//! default; its parser is in `values`.
//!
//! | file | concept |
//! |---|---|
//! | `values` | single values: budgets, scales, times, pages |
//! | `memory` | budgets that do not fit into the machine |
//! | `files` | where the data files are, and a file of the user's own |
//! | `rows` | policies and peers, a row each |
//! | `device` | how lowtide reads and writes, and a device that is slowed down |
//! | `timing` | seconds or operations, in rounds |

pub(crate) mod memory;
pub(crate) mod values;

mod device;
mod files;
mod rows;
mod timing;

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};

pub(crate) use device::{Engine, Io, Mode, Slowdown, YoungFaults};
pub(crate) use files::{Files, ScratchPlace, Source, UserFile};
pub(crate) use rows::{FewPolicies, Mappings, MmapPeer, OnePolicy, Policies, chosen};
pub(crate) use timing::{Operations, Timing, batch, rounds, threads};

use crate::json;

/// Where results go, beside the table.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Also write the results to this file, as JSON
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(writable))]
    pub(crate) json: Option<PathBuf>,
}

fn writable(path: PathBuf) -> Result<PathBuf, String> {
    json::writable(&path)?;
    Ok(path)
}

/// Where random choices begin.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Seed {
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = Seed::USUAL, allow_negative_numbers = true)]
    pub(crate) seed: u64,
}

impl Seed {
    /// The default, which rows of workloads without random choices have as well.
    pub(crate) const USUAL: u64 = 42;
}
