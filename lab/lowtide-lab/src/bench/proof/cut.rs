//! `bench power-cut`: pagers on a disk that loses power.
//!
//! The proof is [`lowtide_proof::power_cut`]; this file has its options, progress and result.

use std::time::Instant;

use clap::Args;
use lowtide::Size;
use lowtide::map::MapMode;
use lowtide_bench::error::BenchError;
use lowtide_bench::options::{Io, Policies, threads};
use lowtide_host::file as facts;
use lowtide_proof::files::Files;
use lowtide_proof::power_cut::{self, PowerCuts};
use lowtide_proof::schedule::Lie;
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::out;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::values::budget;

use super::report::{Common, Setting, Sizes, conclude};
use super::{coverage, ways_of_maps};
use crate::error::of_proof;

pub(crate) const NAME: &str = "power-cut";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "a disk that fails, hangs and loses power: no flushed byte may be lost";

/// A proof with this many cuts must have covered every case.
const CUTS_FOR_COVERAGE: u64 = 2000;

#[derive(Debug, Args)]
pub(crate) struct CutArgs {
    /// Number of power cuts
    #[arg(long, value_name = "N", default_value_t = 10_000,
          value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    cuts: u64,
    /// Threads that write
    #[arg(long, value_name = "N", value_parser = threads(), default_value_t = 4)]
    threads: u32,
    /// Memory budget; the default is the smallest possible
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "128K",
          allow_hyphen_values = true)]
    max: u64,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    io: Io,
    #[command(flatten)]
    common: Common,
    /// Give the runtime a disk that lies about syncs, so that the proof must fail
    #[arg(long, hide = true)]
    sabotage: Option<Lie>,
}

/// Runs the proof.
///
/// # Errors
/// Any [`BenchError`]; [`LabError::Broken`](crate::error::LabError::Broken) for a broken guarantee,
/// [`LabError::Uncovered`](crate::error::LabError::Uncovered) when a long proof has not covered
/// every case.
pub(crate) fn run(args: &CutArgs) -> Result<(), BenchError> {
    let Sizes { max_bytes, bytes, threads, layout } =
        Sizes::new(args.max, args.common.scale, args.threads)?;
    let (policies, seed) = (args.policies.rows(), args.common.seed.seed);
    let data_dir = args.common.place.data_dir()?;
    let scratch = data_dir.scratch("power-cut")?;
    let files = Files::beside(scratch.path());
    let setting = Setting {
        proof: NAME,
        cycles: "power cuts",
        in_process: true,
        policy: policies.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        max_bytes,
        data_bytes: bytes,
        threads,
        seed,
        file_system: facts::fs_name(scratch.path()).unwrap_or_else(|_| "unknown".into()),
        io: args.io.io.to_string(),
    };
    let cuts = args.cuts;
    out::line(format_args!(
        "power-cut: {threads} threads write records to {} of file under a budget of {}; {cuts} \
         cuts; seed {}",
        Size::new(bytes),
        Size::new(max_bytes),
        seed
    ));
    let with = power_cut::Setting {
        policies,
        io: args.io.io,
        direct: args.io.direct,
        max_bytes,
        threads: threads as usize,
        seed,
        lie: args.sabotage,
        maps: ways_of_maps().contains(&MapMode::Userfault),
    };
    let mut proof = PowerCuts::new(with, &layout, files);
    let began = Instant::now();
    let mut progress = Patient::new("cutting", Unit::Steps, cuts);
    let mut cut = Cut::default();
    for cycle in 0..cuts {
        let during = || format!("cutting the power ({cycle} times so far)");
        if cut.take(interrupt::check(during).map_err(BenchError::from))?.is_none() {
            break;
        }
        progress.set(cycle);
        proof.cycle().map_err(of_proof)?;
    }
    cut.refuse_nothing(proof.tally().cycles == 0)?;
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    for text in coverage::tables(proof.coverage()) {
        out::line(format_args!("{text}\n"));
    }
    conclude(&args.common.output, &setting, proof.tally(), seconds, proof.coverage(), cut)?;
    let long = cuts >= CUTS_FOR_COVERAGE && args.sabotage.is_none();
    coverage::must_have(long, &proof.coverage().missing())
}
