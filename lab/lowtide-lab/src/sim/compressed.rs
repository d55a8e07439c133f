//! `lowtide-lab sim compressed`: what pages that stay compressed are worth, in cells. See
//! `lowtide_experiments::compressed`.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::thread;

use crate::sim::options::{Output, Results};
use clap::Args;
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::show::{self, PlainMachine};
use lowtide_core::Policy;
use lowtide_experiments::compressed::{BUDGETS, Cell, Codec, Contents, Grid, GridError, TOLERANCE};
use lowtide_report::json::Report;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::{interrupt, out, table};
use serde::Serialize;

/// The name on the command line.
pub(crate) const NAME: &str = "compressed";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "evicted pages that stay compressed: how much faster, by contents, skew, budget and device";

const HELP: &str = "\
Each cell is played with and without compressed pages; ratios are of virtual time, above 1 where
compressing pays. The verdict says where it costs most.

Examples: lowtide-lab sim compressed
          lowtide-lab sim compressed --pages 4096 --accesses 500000 --policy tide,mglru
          lowtide-lab sim compressed --slow --json";

/// Options of `sim compressed`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Pages of the file
    #[arg(long, value_name = "N", default_value_t = 16_384,
          value_parser = clap::value_parser!(u32).range(256..=1 << 24))]
    pages: u32,
    /// Accesses of each cell
    #[arg(long, value_name = "N", default_value_t = 4_000_000,
          value_parser = clap::value_parser!(u32).range(1..))]
    accesses: u32,
    /// Policies
    #[arg(long, value_name = "P,P", value_delimiter = ',', default_value = "tide")]
    policy: Vec<Policy>,
    /// Compressing takes as long as the runtime was measured to take, not as long as zstd does
    #[arg(long)]
    slow: bool,
    /// The seed of streams
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The destination of results.
    #[command(flatten)]
    results: Results,
}

/// A cell.
#[derive(Debug, Serialize)]
struct Row {
    workload: &'static str,
    world: &'static str,
    policy: String,
    stream: String,
    contents: String,
    codec: &'static str,
    /// The data are as many times larger than the budget.
    data_to_budget: f64,
    read_ns: u64,
    without_ns: u64,
    with_ns: u64,
    gain: f64,
    without_reads: u64,
    with_reads: u64,
    zswpout: u64,
    zswpin: u64,
}

impl Row {
    fn of(cell: &Cell) -> Self {
        Self {
            workload: NAME,
            world: "sim",
            policy: cell.policy.to_string(),
            stream: cell.skew.name(),
            contents: cell.contents.name(),
            codec: cell.codec.name(),
            data_to_budget: f64::from(cell.budget) / 10.0,
            read_ns: cell.read_ns,
            without_ns: cell.without.nanos,
            with_ns: cell.with.nanos,
            gain: cell.gain(),
            without_reads: cell.without.reads,
            with_reads: cell.with.reads,
            zswpout: cell.with.stored,
            zswpin: cell.with.loaded,
        }
    }
}

/// The JSON beside the rows.
#[derive(Debug, Serialize)]
struct Extra {
    #[serde(flatten)]
    machine: PlainMachine,
    verdict: String,
}

/// Plays all cells, and shows them.
///
/// # Errors
/// [`SimError::Usage`] for a budget that is none, [`SimError::Interrupted`], [`SimError::Output`],
/// [`SimError::Results`].
pub(crate) fn run(options: &Options) -> Result<(), SimError> {
    options.results.check()?;
    let mut grid = Grid::new(options.pages, options.accesses as usize, &options.policy);
    grid.codecs = vec![if options.slow { Codec::Slow } else { Codec::Fast }];
    grid.seed = options.seed;
    let bar = Mutex::new(Patient::new("rows", Unit::Steps, grid.rows() as u64));
    let done = |rows: usize| {
        if let Ok(mut bar) = bar.try_lock() {
            bar.set(rows as u64);
        }
    };
    let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let cells = grid.play(threads, interrupt::flag(), &done);
    drop(bar);
    let cells = cells.map_err(|error| match error {
        GridError::Cancelled => {
            interrupt::Interrupted { during: "while playing cells".into() }.into()
        }
        error => SimError::usage(error.to_string(), "choose other --pages"),
    })?;
    let extra = Extra { machine: PlainMachine::of(show::PLAIN.page()), verdict: verdict(&cells) };
    let report = Report::new(&extra, cells.iter().map(Row::of).collect());
    if options.results.output() == Output::Json {
        return report.text().and_then(|text| out::all(&text)).map_err(SimError::Output);
    }
    out::line(table(&grid, &cells));
    out::line(&extra.verdict);
    if let Output::Both(path) = options.results.output() {
        report.write(Some(path))?;
    }
    Ok(())
}

/// For each device and contents: least, median and largest ratio, over streams and budgets.
fn table(grid: &Grid, cells: &[Cell]) -> table::Table {
    let names: Vec<String> = grid.contents.iter().map(|contents| contents.name()).collect();
    let headers: Vec<&str> =
        ["read", "data/budget"].into_iter().chain(names.iter().map(String::as_str)).collect();
    let mut table = table::new(&headers, 2);
    for &read_ns in &grid.reads {
        for budget in BUDGETS {
            let of = |contents: &Contents| {
                let is_it = |cell: &&Cell| {
                    (cell.read_ns, cell.budget, cell.contents) == (read_ns, budget, *contents)
                };
                spread(cells.iter().filter(is_it))
            };
            let head = [format!("{} µs", read_ns / 1000), format!("{}", f64::from(budget) / 10.0)];
            table.add_row(head.into_iter().chain(grid.contents.iter().map(of)));
        }
    }
    table
}

fn spread<'a>(cells: impl Iterator<Item = &'a Cell>) -> String {
    let mut gains: Vec<f64> = cells.map(Cell::gain).collect();
    gains.sort_by(f64::total_cmp);
    match (gains.first(), gains.get(gains.len() / 2), gains.last()) {
        (Some(least), Some(median), Some(most)) => format!("{median:.2} ({least:.2}-{most:.2})"),
        _ => "-".into(),
    }
}

fn verdict(cells: &[Cell]) -> String {
    let gain = |a: &&Cell, b: &&Cell| a.gain().total_cmp(&b.gain());
    let Some(worst) = cells.iter().min_by(gain) else { return "verdict   no cell".to_owned() };
    let over = cells.iter().filter(|cell| cell.gain() < 1.0 - TOLERANCE).count();
    format!(
        "verdict   more than {:.0} % slower in {over} of {} cells; at worst {:.3} ({} pages, {}, \
         data {} times the budget, reads of {} µs)",
        TOLERANCE * 100.0,
        cells.len(),
        worst.gain(),
        worst.contents.name(),
        worst.skew.name(),
        f64::from(worst.budget) / 10.0,
        worst.read_ns / 1000,
    )
}
