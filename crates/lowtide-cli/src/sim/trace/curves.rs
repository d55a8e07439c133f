//! `sim trace --mrc` and `--advise`: miss ratios at many budgets, and the smallest sufficient
//! budget.
//!
//! The trace is read once and packed into four bytes per access (in memory up to 256 MiB, otherwise
//! in a temporary file). The packed trace is replayed for each policy at each size, on all cores;
//! the engine's policies run on the plain machine. OPT, which knows the future, is the bound.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::{fs, io, thread};

use clap::Args;
use lowtide::Policy;
use lowtide_core::limits::MIN_BUDGET;
use lowtide_core::reuse::Rate;
use lowtide_mrc::baseline::Baseline;
use lowtide_mrc::{
    Advice, AdviceRow, Curve, MakePlayer, MrcError, Player, PlayerError, Progress, RecordError,
    Refusal, Row, Run, Storage, System, Table, Tape, refusals, rows, spread,
};
use lowtide_report::json::{Report, writable};
use lowtide_report::page::{Document, page};
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::table::{self, thousands};
use lowtide_report::{interrupt, out};
use lowtide_sim::Plain;
use lowtide_workload::trace::Trace;
use lowtide_workload::{PageOp, SpaceKind};
use serde::Serialize;

use super::source::{Source, reading};
use super::{Options, paging};
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::options::{Output, Swap};
use lowtide_bench::sim::show::{self, Head, PlainMachine};

/// Records between two checks of progress and Ctrl-C.
const STRIDE: u64 = 4096;

/// Options for many budgets instead of one.
#[derive(Debug, Args)]
pub(crate) struct Curves {
    /// Print the miss-ratio curve of each policy and baseline
    #[arg(long)]
    mrc: bool,
    /// Find the smallest budget with at most this share of misses, as in 0.01
    #[arg(long, value_name = "RATIO", value_parser = share, allow_negative_numbers = true)]
    advise: Option<f64>,
    /// Do not count first accesses of pages, which miss with any budget, in the share of --advise
    #[arg(long, requires = "advise")]
    besides_first: bool,
    /// Number of budgets on each curve
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(2..=1000),
        default_value_t = 24,
        requires = "curves"
    )]
    points: u16,
    /// Textbook policies to compare with the engine's: strict-lru, clock, sieve, s3-fifo, arc,
    /// tide, opt, or none [default: all with --mrc, otherwise none]
    #[arg(long, value_name = "B,B", value_delimiter = ',', requires = "curves")]
    baseline: Option<Vec<BaselineName>>,
    /// Draw the curves, with table and advice, as a page of HTML into FILE
    #[arg(long, value_name = "FILE", requires = "curves")]
    plot: Option<PathBuf>,
}

/// A share of misses.
pub(crate) fn share(text: &str) -> Result<f64, &'static str> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or("give a number from 0 to 1, as in 0.01")
}

/// A baseline, or the word for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BaselineName(Option<Baseline>);

impl FromStr for BaselineName {
    type Err = <Baseline as FromStr>::Err;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name == "none" {
            Ok(Self(None))
        } else {
            name.parse().map(|baseline| Self(Some(baseline)))
        }
    }
}

impl Curves {
    /// Whether curves are requested, or advice, which needs them.
    pub(crate) const fn are_wanted(&self) -> bool {
        self.mrc || self.advise.is_some()
    }

    /// The selected baselines, each once; by default all for curves, and none for advice alone.
    fn baselines(&self) -> Vec<Baseline> {
        let Some(given) = &self.baseline else {
            return if self.mrc { Baseline::ALL.to_vec() } else { Vec::new() };
        };
        let mut baselines = Vec::new();
        for baseline in given.iter().filter_map(|name| name.0) {
            if !baselines.contains(&baseline) {
                baselines.push(baseline);
            }
        }
        baselines
    }
}

/// The JSON; its rows are the points.
#[derive(Debug, Serialize)]
struct Extra {
    #[serde(flatten)]
    machine: PlainMachine,
    trace: String,
    /// Pages of the program for which one of the trace stands.
    sampled: u64,
    footprint_bytes: u64,
    accesses: u64,
    cold_misses: u64,
    advice: Vec<AdviceRow>,
    refused: Vec<Refusal>,
}

/// A point of a curve, as a row like those of other runs.
#[derive(Debug, Serialize)]
struct Measured {
    workload: &'static str,
    world: &'static str,
    /// `lowtide` for the engine's policies, `baseline` for textbook ones.
    system: &'static str,
    #[serde(flatten)]
    row: Row,
}

/// Measures the curves, prints, writes and draws them, and gives advice.
pub(crate) fn run(options: &Options, policies: &[Policy], source: &Source) -> Result<(), SimError> {
    let wanted = &options.curves;
    if let Some(path) = &wanted.plot {
        check_plot(path)?;
    }
    let trace = source.open()?;
    let format = trace.format();
    let page = paging::page_of(options.page, &trace)?;
    let paged = paging::shown(options.page, &trace, page);
    // A page of a sample stands for the others.
    let sampled = trace.sampled().0;
    let page = page * sampled;
    let (tape, spaces) = record(source, trace)?;
    source.refuse_empty(tape.accesses())?;
    let footprint = u64::from(tape.distinct());
    let of_sample = match sampled {
        1 => String::new(),
        pages => format!("; each stands for {pages}, which were not recorded"),
    };
    let head = Head {
        what: format!("miss-ratio curves of {}, read as {format}", source.name()),
        machine: show::plain_machine(),
        max: None,
        data: format!(
            "{} pages touched ({}) by {} accesses; {paged}{of_sample}",
            thousands(footprint as f64),
            table::memory(footprint * page),
            thousands(tape.accesses() as f64)
        ),
        run: "every policy at every budget".into(),
    };
    head.print_but_budget(&options.common);

    let makers: Vec<Box<MakePlayer<'_>>> = policies
        .iter()
        .map(|&policy| maker(&options.swap, policy, page / sampled, &spaces))
        .collect();
    let engine = policies
        .iter()
        .zip(&makers)
        .map(|(policy, make)| System::Player { name: policy.to_string(), make: make.as_ref() });
    let systems: Vec<System<'_>> =
        engine.chain(wanted.baselines().into_iter().map(System::Baseline)).collect();
    let bar = Mutex::new(Patient::new("accesses", Unit::Steps, 0));
    let progress = |p: Progress| {
        if let Ok(mut bar) = bar.try_lock() {
            bar.of(p.total);
            bar.set(p.done);
        }
    };
    let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let run = Run { tape: &tape, threads, stop: interrupt::flag(), progress: &progress };
    let sizes = sizes(footprint, wanted.points.into());
    let curves = run.curves(&systems, &sizes).map_err(|e| mrc_error(e, source))?;
    let mut advice = Vec::new();
    if let Some(target) = wanted.advise {
        let first = tape.cold() as f64 / tape.accesses() as f64;
        let target = if wanted.besides_first { (target + first).min(1.0) } else { target };
        for (system, curve) in systems.iter().zip(&curves) {
            advice.push(run.advise(system, target, curve).map_err(|e| mrc_error(e, source))?);
        }
    }
    drop(bar);
    show_all(options, source, (page, sampled), &tape, &curves, &advice)
}

/// About `count` sizes, none below the engine's smallest budget unless the whole footprint is.
fn sizes(footprint: u64, count: usize) -> Vec<u64> {
    let possible =
        |n| -> Vec<u64> { spread(footprint, n).into_iter().filter(|&s| s >= MIN_BUDGET).collect() };
    let enough = (count..=4 * count).map(possible).find(|sizes| sizes.len() >= count);
    let sizes = enough.unwrap_or_else(|| possible(4 * count));
    if sizes.is_empty() { spread(footprint, count) } else { sizes }
}

/// Packs the trace. Also returns its spaces.
fn record(source: &Source, mut trace: Trace) -> Result<(Tape, Vec<SpaceKind>), SimError> {
    let mut progress = reading(trace.progress());
    let mut n = 0_u64;
    let (pages, together) = trace.sampled();
    let log = |n: u64| n.trailing_zeros() as u8;
    let rate = Rate { shift: log(pages), together: log(together) };
    let next = || -> Option<Result<PageOp, SimError>> {
        if n.is_multiple_of(STRIDE) {
            progress.set(trace.progress().read_bytes);
            if let Err(e) = interrupt::check(|| format!("reading the trace {}", source.name())) {
                return Some(Err(e.into()));
            }
        }
        n += 1;
        loop {
            match trace.next().transpose() {
                Ok(Some(record)) if !rate.has(record.op.page) => {}
                Ok(record) => return record.map(|record| Ok(record.op)),
                Err(error) => return Some(Err(error.into())),
            }
        }
    };
    let tape =
        Tape::record(std::iter::from_fn(next), &Storage::default()).map_err(
            |error| match error {
                RecordError::Source(error) => error,
                error => SimError::Tape(error.to_string()),
            },
        )?;
    let kinds = trace.names().spaces().iter().map(|space| space.kind).collect();
    Ok((tape, kinds))
}

fn maker<'a>(
    swap: &'a Swap,
    policy: Policy,
    page: u64,
    spaces: &'a [SpaceKind],
) -> Box<MakePlayer<'a>> {
    Box::new(move |pages| -> Result<Box<dyn Player>, PlayerError> {
        let mut machine = Plain::new(&swap.plain_config(policy, pages, page))?;
        for &kind in spaces {
            machine.add_space(kind, 0);
        }
        Ok(Box::new(machine))
    })
}

fn mrc_error(error: MrcError, source: &Source) -> SimError {
    match error {
        MrcError::Cancelled => {
            interrupt::Interrupted { during: format!("while playing {}", source.name()) }.into()
        }
        MrcError::Target(_) => SimError::usage(format!("--advise: {error}"), "as in --advise 0.01"),
        error => SimError::Tape(error.to_string()),
    }
}

fn show_all(
    options: &Options,
    source: &Source,
    (bytes, sampled): (u64, u64),
    tape: &Tape,
    curves: &[Curve],
    advice: &[Advice],
) -> Result<(), SimError> {
    let footprint = u64::from(tape.distinct());
    let extra = Extra {
        machine: PlainMachine::of(bytes / sampled),
        trace: source.name(),
        sampled,
        footprint_bytes: footprint * bytes,
        accesses: tape.accesses(),
        cold_misses: tape.cold(),
        advice: advice.iter().map(|a| a.row(bytes)).collect(),
        refused: refusals(curves, bytes),
    };
    let measured = |row: Row| Measured {
        workload: super::WORKLOAD,
        world: "sim",
        system: if row.policy.parse::<Policy>().is_ok() { "lowtide" } else { "baseline" },
        row,
    };
    let points = rows(curves, bytes).into_iter().map(measured).collect();
    let report = Report::new(&extra, points);
    let text = report.text().map_err(SimError::Output)?;
    let table = Table::new(curves, footprint, bytes);
    let sentences: Vec<String> = advice.iter().map(|advice| advice.sentences(bytes)).collect();
    if options.common.results.output() == Output::Json {
        out::all(&text).map_err(SimError::Output)?;
    } else {
        out::line(&table);
        sentences.iter().for_each(out::line);
    }
    // The table is printed first, as writing the files may fail.
    if let Output::Both(path) = options.common.results.output() {
        report.write(Some(path))?;
    }
    let Some(path) = &options.curves.plot else { return Ok(()) };
    let about = format!(
        "{} accesses to {} pages of {bytes} bytes, {} of them the first of their page. Played by \
         lowtide {} on a plain machine: one CPU, no read-ahead.",
        thousands(tape.accesses() as f64),
        thousands(footprint as f64),
        thousands(tape.cold() as f64),
        env!("CARGO_PKG_VERSION")
    );
    let notes = [vec![about], sentences, table.notes()].concat();
    plot(path, source, &notes, &text)?;
    if options.common.results.output() != Output::Json {
        out::line(format_args!("\nplot written to {}", path.display()));
    }
    Ok(())
}

/// Draws a result, as `lowtide report` does.
fn plot(path: &Path, source: &Source, notes: &[String], result: &[u8]) -> Result<(), SimError> {
    let title = format!("Miss ratios of {}", source.name());
    let document = Document::parse(source.name(), &String::from_utf8_lossy(result));
    let text = document.map(|document| page(&title, notes, &[document]));
    let written = text.map_err(io::Error::other).and_then(|text| fs::write(path, text));
    written.map_err(|source| SimError::Plot { path: path.to_owned(), source })
}

/// Rejects an unwritable path for a plot before any work starts.
fn check_plot(path: &Path) -> Result<(), SimError> {
    let is_html = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"));
    let possible =
        if is_html { writable(path) } else { Err("its name does not end in .html".into()) };
    possible.map_err(|why| {
        SimError::usage(
            format!("cannot write a plot to {}: {why}", path.display()),
            "give --plot a file in an existing directory, with a name that ends in .html",
        )
    })
}
