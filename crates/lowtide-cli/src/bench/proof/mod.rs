//! `lowtide bench` as a proof: killed, cut off and lied to, without losing a byte that was called
//! durable.
//!
//! | file | concept |
//! |---|---|
//! | `layout` | records of all sizes, and the pieces that a disk writes whole |
//! | `ledger` | what must be in the file, and comparing it with what is there |
//! | `script` | what the threads of a cycle change, from its seed alone |
//! | `writer` | a thread that changes, reads, flushes, and knows what it was promised |
//! | `crash`, `victim` | processes that are killed, and the file they leave |
//! | `cut`, `weather` | pagers whose power is cut, and what their disk does before |
//! | `shape` | which pages, folios and views a cycle draws |
//! | `files` | where they are |
//! | `coverage` | which faults happened, and which places that deal with them were reached |
//!
//! # What is promised, and what is checked
//!
//! When a flush returns well, every byte whose `write_at` had returned before it began is on the
//! disk. What was written later may be there or not, whole or in part, and in any mixture of bytes:
//! nothing keeps a program from storing to a page that is being written, and a device from stopping
//! anywhere. So a record may be old in one byte and new in another after a crash. Each sector's
//! *piece* of a record says whose it is and how new, and has bytes that only it has. A piece is
//! *lost* when it is older than what was promised, and *wrong* when it has a byte that is neither
//! of the promised record nor of one that was begun later. Where records are punched or cut off,
//! zeroes take the place of a record.

mod coverage;
mod crash;
mod cut;
mod files;
mod layout;
mod ledger;
mod script;
mod shape;
pub(crate) mod victim;
mod weather;
mod writer;

use lowtide_sys::probe::Probe;
use serde::Serialize;

use super::args::BenchArgs;
use super::error::BenchError;
use super::options;
use crate::json::Report;
use crate::out;
use crate::table::thousands;
use layout::Layout;
use ledger::Findings;

/// A proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// Processes that are killed.
    Crash,
    /// Disks whose power is cut.
    PowerCut,
}

impl Proof {
    /// All of them, in the order in which they are listed.
    pub(crate) const ALL: [Self; 2] = [Self::Crash, Self::PowerCut];

    /// The name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::PowerCut => "power-cut",
        }
    }

    /// One line about it, for listings.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Crash => {
                "writers killed by SIGKILL at random moments: no flushed byte may be lost"
            }
            Self::PowerCut => {
                "a disk that fails, hangs and loses power: no flushed byte may be lost"
            }
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// Any [`BenchError`]; [`BenchError::Broken`] for a promise that was not kept.
    pub(super) fn run(self, args: &BenchArgs) -> Result<(), BenchError> {
        options::refuse_misplaced(args, super::args::Target::Proof(self))?;
        match self {
            Self::Crash => crash::run(args),
            Self::PowerCut => cut::run(args),
        }
    }
}

/// The file as a multiple of the budget when nothing is said.
const SCALE: f64 = 4.0;

/// How large a proof is.
#[derive(Debug)]
struct Sizes {
    max_bytes: u64,
    /// Of the file.
    bytes: u64,
    threads: u32,
    layout: Layout,
}

impl Sizes {
    /// As the options say, or as the proof does.
    ///
    /// # Errors
    /// [`BenchError::Usage`].
    fn of(args: &BenchArgs, max_bytes: u64, threads: u32) -> Result<Self, BenchError> {
        let max_bytes = options::max_option(args)?.unwrap_or(max_bytes);
        // A little more than whole pages, so that the end of the file is no whole page.
        let bytes = options::grain((max_bytes as f64 * options::scale(args, SCALE)?) as u64) + 1600;
        let threads = args.threads_or(threads);
        let layout = Layout::new(bytes);
        // All but one share the first half.
        if layout.tail() < threads as usize {
            let records = layout.tail();
            return Err(BenchError::usage(
                format!(
                    "{threads} threads have more than the {records} records of half of the file"
                ),
                "lower --threads, or raise --max",
            ));
        }
        Ok(Self { max_bytes, bytes, threads, layout })
    }
}

/// What is known of the machine.
#[derive(Debug, Serialize)]
struct Machine {
    kernel: String,
    cpus: usize,
    cpu_model: String,
    file_system: String,
    io: String,
}

/// A proof's result, as it stands in the JSON.
#[derive(Debug, Serialize)]
struct ProofRow {
    workload: &'static str,
    world: &'static str,
    system: &'static str,
    policy: String,
    max_bytes: u64,
    data_bytes: u64,
    threads: u32,
    seed: u64,
    seconds: f64,
    /// Kills, or cuts of the power.
    cycles: u64,
    /// Changes of records; of killed processes, those that a flush had promised.
    writes: u64,
    /// Records read and compared before the end; killed processes do not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    reads: Option<u64>,
    /// Flushes that returned well.
    flushes: u64,
    /// Operations that ended in an error, which on a failing disk they may.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<u64>,
    /// Bytes compared with what must be there.
    verified_bytes: u64,
    lost_bytes: u64,
    wrong_bytes: u64,
    /// Records found old in one sector and new in another, which is allowed.
    torn_records: u64,
    /// Pieces of records found old in one byte and new in another, which is allowed, too.
    mixed_pieces: u64,
    errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<coverage::DiskRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<coverage::FaultRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sites: Vec<coverage::SiteRow>,
    drawn: Vec<coverage::DrawnRow>,
}

/// What a proof has counted.
#[derive(Clone, Debug, Default)]
struct Tally {
    cycles: u64,
    writes: u64,
    reads: u64,
    flushes: u64,
    refused: u64,
    findings: Findings,
}

/// How a proof was made.
#[derive(Clone, Debug)]
struct Setting {
    proof: Proof,
    policy: String,
    max_bytes: u64,
    data_bytes: u64,
    threads: u32,
    seed: u64,
    file_system: String,
    io: String,
}

/// Prints what follows from the counts, and writes the JSON.
///
/// # Errors
/// [`BenchError::Broken`] if a promise was not kept, after the JSON was written; those of writing
/// it.
fn conclude(
    args: &BenchArgs,
    setting: &Setting,
    tally: &Tally,
    seconds: f64,
    coverage: &coverage::Coverage,
) -> Result<(), BenchError> {
    let probe = Probe::ask();
    let machine = Machine {
        kernel: probe.kernel,
        cpus: probe.cpus,
        cpu_model: probe.cpu_model,
        file_system: setting.file_system.clone(),
        io: setting.io.clone(),
    };
    let found = &tally.findings;
    let row = ProofRow {
        workload: setting.proof.name(),
        world: "real",
        system: "lowtide",
        policy: setting.policy.clone(),
        max_bytes: setting.max_bytes,
        data_bytes: setting.data_bytes,
        threads: setting.threads,
        seed: setting.seed,
        seconds,
        cycles: tally.cycles,
        writes: tally.writes,
        reads: (setting.proof == Proof::PowerCut).then_some(tally.reads),
        flushes: tally.flushes,
        refused: (setting.proof == Proof::PowerCut).then_some(tally.refused),
        verified_bytes: found.verified,
        lost_bytes: found.lost,
        wrong_bytes: found.wrong,
        torn_records: found.torn,
        mixed_pieces: found.mixed,
        errors: found.lost + found.wrong,
        disk: (setting.proof == Proof::PowerCut).then(|| coverage.disk_row()),
        faults: coverage.fault_rows(),
        sites: coverage.site_rows(),
        drawn: coverage.drawn_rows(),
    };
    let (cycles, writes, flushes) = (tally.cycles, tally.writes, tally.flushes);
    out::line(match setting.proof {
        Proof::Crash => {
            format!("{cycles} kills in {seconds:.1} s: {flushes} flushes promised {writes} changes")
        }
        Proof::PowerCut => format!(
            "{cycles} power cuts in {seconds:.1} s: {writes} changes, {} reads, {flushes} \
             flushes; {} operations refused",
            tally.reads, tally.refused
        ),
    });
    out::line(format_args!(
        "{} bytes verified: {} lost, {} wrong; {} records torn between sectors and {} within, \
         which is allowed",
        thousands(found.verified as f64),
        thousands(found.lost as f64),
        thousands(found.wrong as f64),
        found.torn,
        found.mixed
    ));
    Report::new(&machine, vec![row]).seeded(setting.seed).write(args.json.as_deref())?;
    match &found.first {
        None => Ok(()),
        Some(first) => Err(BenchError::Broken {
            proof: setting.proof.name(),
            lost: found.lost,
            wrong: found.wrong,
            first: first.clone(),
        }),
    }
}
