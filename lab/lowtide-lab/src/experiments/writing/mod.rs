//! Experiments in which a program writes a new file from start to end: `fill` and `dd-oom`.
//!
//! ```text
//!   experiment ──► writer (budget, file) ──► a player ──► written ──► experiment ──► rows, verdict
//!   (its options)                        real or simulated
//! ```
//!
//! Like the experiments of scripts, each is one file that does not depend on its world. Their runs
//! end by themselves and have no seconds, no tenants and no random choices, so they have players of
//! their own. A real machine repeats the run, because a device varies; a simulated one does not.
//!
//! | file | concept |
//! |---|---|
//! | `real` | the player on real files and memory, beside other programs, and its command line |
//! | `simulated` | the command line of the player on a simulated machine |

pub(crate) mod real;
pub(crate) mod simulated;

use serde::Serialize;
use std::fmt;

use clap::Args;
use lowtide_bench::error::BenchError;
use lowtide_experiments::programs::writer::Writer;
use lowtide_report::columns::Columns;
use lowtide_report::json::LatencyUs;
use lowtide_report::outcome::{KillRow, Naps};
use lowtide_report::row::Row;
use lowtide_report::span::Span;
use lowtide_report::spread::Spread;
use lowtide_report::verdict::Closing;

use super::Sizes;
use crate::bench::write::FillPeer;

/// What rows about writing a file say.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct WrittenRow {
    /// The out-of-memory kill that ended the run. Counters are as of the kill.
    pub(crate) kill: Option<KillRow>,
    /// Bytes that the program had written at the end, or at the kill.
    pub(crate) written_bytes: Option<u64>,
    /// The speed of writing a file and making it durable.
    pub(crate) mib_per_s: Option<Spread>,
    /// The share of the group's cached file pages that was dirty or under writeback at the kill.
    pub(crate) unclean_pct: Option<f64>,
    /// Naps of reclaim, by their reason.
    pub(crate) naps: Option<Naps>,
    /// The published outcome, in the posting's words.
    pub(crate) outcome_published: Option<&'static str>,
}

/// An experiment with a writer. The value has its own options.
pub(crate) trait Writing: Args + fmt::Debug {
    const NAME: &str;
    /// One line for listings.
    const ABOUT: &str;
    /// The text below the options in its help.
    const HELP: &str;
    /// The simulated machine, unless an option names another.
    const MACHINE: &str;
    /// The rows of a simulation, with commas between them, unless an option names others.
    const POLICIES: &str;
    /// Delay of a real device's writes, unless an option sets one.
    const DELAY: Option<Span>;
    /// How often a real machine repeats the run.
    const ROUNDS: &str;
    /// Whether an out-of-memory kill is a result; otherwise it is an error.
    const KILL_IS_RESULT: bool;
    /// The table.
    const COLUMNS: Columns;
    /// Options about other programs on a real machine.
    type Peers: Beside;

    /// What is written.
    fn writer(&self) -> Writer;

    /// The delay of the device's writes, if an option sets it.
    fn delay(&self) -> Option<Span> {
        None
    }

    /// The rows of a run: its own, and published ones. `published` says whether it is the published
    /// machine.
    fn rows(&self, written: Written, published: bool) -> Vec<Row>;

    /// What follows from the rows.
    fn closing(&self, _rows: &[Row]) -> Closing {
        Closing::default()
    }
}

/// The programs that write the same file on a real machine.
pub(crate) trait Beside: Args + fmt::Debug {
    /// Each once.
    ///
    /// # Errors
    /// [`BenchError::Usage`] for peers that exclude each other.
    fn peers(&self) -> Result<Vec<FillPeer>, BenchError>;
}

/// The results of a run, or of the repetitions of one.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// A row with what all experiments show.
    pub(crate) row: Row,
    /// Latency of a `write()`, unless the program does not tell.
    pub(crate) latency: Option<LatencyUs>,
    /// MiB per second of a file.
    pub(crate) mib_per_s: Spread,
    /// The largest write bandwidth of a simulated device.
    pub(crate) device_write_mib_per_s: Option<f64>,
    /// The share of cached pages that was dirty or under writeback at the end, or at the kill.
    pub(crate) unclean_pct: Option<f64>,
    /// Naps of reclaim.
    pub(crate) naps: Option<Naps>,
    /// The out-of-memory kill that ended the run.
    pub(crate) kill: Option<KillRow>,
}

impl Sizes {
    /// `usual` with these sizes.
    pub(crate) fn writer(&self, usual: Writer) -> Writer {
        Writer { max: self.max, file: self.bytes(), ..usual }
    }
}
