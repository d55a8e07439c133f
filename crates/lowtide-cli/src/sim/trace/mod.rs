//! `lowtide sim trace FILE`: a recorded stream, on the plain machine or on a full one.
//!
//! A trace may be larger than memory and is read while it is played. The plain machine needs one
//! pass. Another pass comes first to compute the default of `--max`, and for a full machine, whose
//! files must exist before the first operation.
//!
//! | file | concept |
//! |---|---|
//! | `source` | the trace, and a pass that finds the pages it touches |
//! | `paging` | the size of its pages |
//! | `footprint` | the set of touched pages |
//! | `plain` | one reader, and a plain machine for each policy |
//! | `curves` | miss-ratio curves and advice |
//! | `deal` | the operations of each thread, from one reader |
//! | `full` | a full machine for each policy |

pub(crate) mod curves;
pub(crate) mod deal;
pub(crate) mod footprint;
pub(crate) mod full;
pub(crate) mod paging;
pub(crate) mod plain;
pub(crate) mod source;

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use lowtide::Size;
use lowtide_workload::trace::Format;

use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::options::{Common, OrPlain, Swap, Timing};
use source::Source;

/// The name on the command line.
pub(crate) const NAME: &str = "trace";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "a recorded trace, on the plain machine or a full one; miss-ratio curves and advice";

/// The workload's name in rows, as in `lowtide bench`.
const WORKLOAD: &str = "replay";

const HELP: &str = "\
Without --machine, the plain machine: one CPU, no time, no read-ahead and no fault-around, so that
counters reflect exactly the accesses. docs/traces.md describes the formats.

Examples:
  lowtide sim trace t.csv --max 64M --policy mglru,lru
  lowtide sim trace t.csv --mrc --advise 0.01 --plot curves.html";

/// Options of `sim trace`.
#[derive(Debug, Args)]
#[command(
    after_help = HELP,
    group = ArgGroup::new("curves").args(["mrc", "advise"]).multiple(true),
    mut_arg("machine", |arg| arg.conflicts_with("curves")),
    mut_arg("seed", |arg| arg.requires("machine")),
    mut_arg("timing", |arg| arg.conflicts_with("curves"))
)]
pub(crate) struct Options {
    /// The trace; `-` is standard input
    file: PathBuf,
    /// Format: csv, compact, oracle-general, object-csv, msr, lackey or filemap [default: detected]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Page size of the trace [default: as the trace says, otherwise 4K]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    page: Option<Size>,
    /// Budget [default: a quarter of the touched pages; with --machine all of its memory]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, conflicts_with = "curves")]
    max: Option<Size>,
    /// The machine, if it is not the plain one.
    #[command(flatten)]
    machine: OrPlain,
    /// Swap of the plain machine.
    #[command(flatten)]
    swap: Swap,
    /// Curves and advice.
    #[command(flatten)]
    curves: curves::Curves,
    /// Whether rows include the simulation's speed.
    #[command(flatten)]
    timing: Timing,
    /// Policies, seed and results.
    #[command(flatten)]
    common: Common,
}

/// Plays the trace under every policy and prints the rows.
pub(crate) fn run(options: &Options) -> Result<(), SimError> {
    let policies = options.common.begin()?;
    let source = Source::new(&options.file, options.format);
    if options.curves.are_wanted() {
        return curves::run(options, &policies, &source);
    }
    match options.machine.load()? {
        Some(machine) => full::run(options, &policies, source, &machine),
        None => plain::run(options, &policies, &source),
    }
}
