//! The size of a proof, and its result as text and JSON.

use crate::bench::options::ScratchPlace;
use clap::Args;
use lowtide_bench::error::BenchError;
use lowtide_bench::options::{Output, Seed};
use lowtide_host::probe::Probe;
use lowtide_proof::coverage::{Coverage, Cuts, Tally};
use lowtide_proof::layout::Layout;
use lowtide_report::interrupt::Cut;
use lowtide_report::json::Report;
use lowtide_report::out;
use lowtide_report::table::thousands;
use lowtide_report::values::{scale, scaled};
use serde::Serialize;

use super::coverage;
use crate::error::LabError;

/// Options of both proofs.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Size of the file as a multiple of the budget
    #[arg(long, value_name = "F", value_parser = scale, default_value = "4",
          allow_negative_numbers = true)]
    pub(crate) scale: f64,
    #[command(flatten)]
    pub(crate) seed: Seed,
    #[command(flatten)]
    pub(crate) place: ScratchPlace,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// The size of a proof.
#[derive(Debug)]
pub(crate) struct Sizes {
    pub(crate) max_bytes: u64,
    /// Of the file.
    pub(crate) bytes: u64,
    pub(crate) threads: u32,
    pub(crate) layout: Layout,
}

impl Sizes {
    /// Of a proof with this budget.
    ///
    /// # Errors
    /// [`BenchError::Usage`].
    pub(crate) fn new(max_bytes: u64, scale: f64, threads: u32) -> Result<Self, BenchError> {
        // Slightly more than whole pages, so that the last page is partial.
        let bytes = scaled(max_bytes, scale) + 1600;
        let layout = Layout::new(bytes);
        // All threads but one share the first half.
        if layout.tail() < threads as usize {
            let records = layout.tail();
            return Err(BenchError::usage(
                format!(
                    "{threads} threads are more than the {records} records in half of the file"
                ),
                "lower --threads, or raise --max",
            ));
        }
        Ok(Self { max_bytes, bytes, threads, layout })
    }
}

/// The description of the machine.
#[derive(Debug, Serialize)]
struct Machine {
    kernel: String,
    cpus: usize,
    cpu_model: String,
    file_system: String,
    io: String,
}

/// A proof's result, as in the JSON.
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
    /// Kills, or power cuts.
    cycles: u64,
    /// Changes of records; for killed processes, only flushed ones.
    writes: u64,
    /// Records read and compared before the end; killed processes do not report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    reads: Option<u64>,
    /// Successful flushes.
    flushes: u64,
    /// Operations that ended in an error, which is allowed on a failing disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<u64>,
    /// Bytes compared with their expected values.
    verified_bytes: u64,
    lost_bytes: u64,
    wrong_bytes: u64,
    /// Records found old in one sector and new in another, which is allowed.
    torn_records: u64,
    /// Pieces of records found old in one byte and new in another, which is allowed, too.
    mixed_pieces: u64,
    errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<Cuts>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<coverage::FaultRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sites: Vec<coverage::SiteRow>,
    drawn: Vec<coverage::DrawnRow>,
}

/// The kind of a proof.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) proof: &'static str,
    /// The name of the ends of its cycles, in the plural.
    pub(crate) cycles: &'static str,
    /// Whether reads and errors are counted: killed processes do not report them.
    pub(crate) in_process: bool,
    pub(crate) policy: String,
    pub(crate) max_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) threads: u32,
    pub(crate) seed: u64,
    pub(crate) file_system: String,
    pub(crate) io: String,
}

/// Prints the result of the counts, and writes the JSON; then ends the run, which may have been
/// interrupted.
///
/// # Errors
/// [`LabError::Broken`] for a broken guarantee, after writing the JSON; those of writing it; the
/// interruption.
pub(crate) fn conclude(
    output: &Output,
    setting: &Setting,
    tally: &Tally,
    seconds: f64,
    covered: &Coverage,
    cut: Cut,
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
        workload: setting.proof,
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
        reads: setting.in_process.then_some(tally.reads),
        flushes: tally.flushes,
        refused: setting.in_process.then_some(tally.refused),
        verified_bytes: found.verified,
        lost_bytes: found.lost,
        wrong_bytes: found.wrong,
        torn_records: found.torn,
        mixed_pieces: found.mixed,
        errors: found.lost + found.wrong,
        disk: setting.in_process.then(|| covered.cuts.clone()),
        faults: coverage::fault_rows(covered),
        sites: coverage::site_rows(covered),
        drawn: coverage::drawn_rows(covered),
    };
    let (cycles, writes, flushes) = (tally.cycles, tally.writes, tally.flushes);
    let ends = setting.cycles;
    out::line(if setting.in_process {
        format!(
            "{cycles} {ends} in {seconds:.1} s: {writes} changes, {} reads, {flushes} flushes; {} \
             operations refused",
            tally.reads, tally.refused
        )
    } else {
        format!("{cycles} {ends} in {seconds:.1} s: {flushes} flushes promised {writes} changes")
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
    Report::new(&machine, vec![row])
        .seeded(setting.seed)
        .cut_short(cut.is_cut())
        .write(output.json.as_deref())?;
    match &found.first {
        None => cut.verdict(),
        Some(first) => Err(LabError::Broken {
            proof: setting.proof,
            lost: found.lost,
            wrong: found.wrong,
            first: first.clone(),
        }
        .into()),
    }
}
