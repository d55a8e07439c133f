//! `lowtide-lab bench depth`: cold random reads, N of them in flight, beside fio.
//!
//! One thread requests batches of distinct random pages with `get_many`, which keeps the configured
//! number of reads in flight. The file is many times larger than the budget, and a batch many times
//! deeper than the queue, so that the queue is nearly always full. The result is the rate of device
//! reads (IOPS), which excludes resident pages. fio reads the same file with direct I/O, the same
//! block size and the same depth.

use clap::{Args, ValueEnum};
use lowtide::advanced::PagerAdvanced as _;
use lowtide::{PagerBuilder, Size};
use lowtide_bench::content::Content;
use lowtide_bench::datafile::DataFile;
use lowtide_bench::error::BenchError;
use lowtide_bench::machine::Machine;
use lowtide_bench::options::memory::check_memory;
use lowtide_bench::options::threads;
use lowtide_bench::play::job::{Job, Operations, Script};
use lowtide_bench::play::popularity::Popularity;
use lowtide_bench::rounds::{take_turns, verdict};
use lowtide_bench::system::{Lowtide, System, VIEW};
use lowtide_bench::thread_pool::Until;
use lowtide_host::probe::Probe;
use lowtide_report::interrupt::Cut;
use lowtide_report::json::Report;
use lowtide_report::measured::Common;
use lowtide_report::rounds::{Turns, ratio};
use lowtide_report::row::Row;
use lowtide_report::spread::Spread;
use lowtide_report::tally::Slice;
use lowtide_report::values::{budget, scale, scaled};
use lowtide_report::{out, progress::Patient, table};
use lowtide_workload::Workload;

use super::cold::Cold;
use super::peer::fio::Fio;

/// Pages of a batch for each read in flight. The queue runs empty at the end of a batch, so batches
/// should be long.
const BATCH_PER_DEPTH: u32 = 32;
/// The largest batch, so that `get_many` never needs more pages than a small budget has.
const BATCH_MAX: u32 = 2048;

/// The name of the workload.
pub(crate) const NAME: &str = "depth";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "cold random reads of single pages from one thread, a number of them in flight, beside fio";

#[derive(Debug, Args)]
pub(crate) struct DepthArgs {
    /// Reads in flight, one group of rows each
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = threads(),
          default_value = "1,8,32")]
    depth: Vec<u32>,
    /// Memory budget
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "64M",
          allow_hyphen_values = true)]
    max: u64,
    /// Size of the data as a multiple of the budget
    #[arg(long, value_name = "F", value_parser = scale, default_value = "16",
          allow_negative_numbers = true)]
    scale: f64,
    /// The system to compare with
    #[arg(long, value_name = "PEER", value_enum, default_value = "none")]
    against: Peer,
    #[command(flatten)]
    cold: Cold,
}

/// The peers of such reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    // With direct I/O.
    Fio,
    None,
}

/// Measures every requested depth.
pub(crate) fn run(args: &DepthArgs) -> Result<(), BenchError> {
    let probe = Probe::ask();
    let fio = if args.against == Peer::Fio { find_fio() } else { None };
    let (page_bytes, policy) = (args.cold.page, args.cold.policy.policy);
    let (max_bytes, seconds, rounds) = (args.max, args.cold.seconds, args.cold.rounds);
    let pager = |depth| {
        let young = args.cold.young.young_faults;
        let adjust = |builder: PagerBuilder| builder.young_faults(young).depth(depth);
        args.cold.io.pager(policy, max_bytes, page_bytes, adjust)
    };
    check_memory(0, 1, max_bytes, probe.memory_available)?;
    drop(pager(1)?);
    let (file, content) = args.cold.data(scaled(max_bytes, args.scale))?;
    let content = if content == Content::Blocks { content } else { Content::Unknown };

    let mut printed = table::new(&["depth", "system", "IOPS", "MiB/s", "cpu s", "ratio"], 2);
    let mut json = Vec::new();
    let mut closing = Vec::new();
    let mut all_rows = Vec::new();
    let mut machine = None;
    let systems_per_depth = 1 + u64::from(fio.is_some());
    let mut progress =
        Patient::steps(args.depth.len() as u64 * u64::from(rounds) * systems_per_depth);
    let mut cut = Cut::default();
    for &depth in &args.depth {
        let job = job(args, &file, content, page_bytes, batch(depth, max_bytes, page_bytes));
        let script = Operations::of(&job)?;
        let pager = pager(depth)?;
        if machine.is_none() {
            let asked = Machine::ask(&probe, &file, &pager)?;
            head(&asked, &file, max_bytes, page_bytes, (seconds, rounds));
            machine = Some(asked);
        }
        file.drop_page_cache()?;
        let mut systems =
            systems(args, &file, &job, &script, (pager, policy), fio.as_ref(), depth)?;
        let rate = |slice: &Slice| iops(slice, page_bytes);
        let slice = Until::Seconds(seconds / f64::from(rounds));
        let taken = take_turns(&mut systems, rounds, |_| slice, &mut progress, &mut cut);
        let Some(rows) = cut.take(taken)? else { break };
        for row in &rows {
            let (sum, ratio) = (row.sum(), ratio(row, &rows[0], rate));
            print(&mut printed, depth, row, &sum, ratio, page_bytes);
            let common = common(&job, max_bytes);
            json.push(Row::compared(&common, row, &rows[0]).at_depth(depth, rate(&sum), ratio));
        }
        if let [lowtide, fio] = rows.as_slice() {
            let ratio = ratio(lowtide, fio, rate);
            closing.push(format!(
                "at depth {depth} lowtide is {:.2} x fio {}",
                ratio.median,
                ratio.range()
            ));
        }
        all_rows.extend(rows);
        if cut.is_cut() {
            break;
        }
    }
    cut.refuse_nothing(all_rows.is_empty())?;
    drop(progress);
    out::line(printed);
    if !closing.is_empty() {
        out::line(format_args!("\n{}", closing.join("\n")));
    }
    if let Some(machine) = &machine {
        Report::new(machine, json)
            .cut_short(cut.is_cut())
            .write(args.cold.output.json.as_deref())?;
    }
    all_rows.iter().try_for_each(verdict)?;
    cut.verdict()
}

/// fio, if it is installed.
fn find_fio() -> Option<Fio> {
    let fio = Fio::find();
    if fio.is_none() {
        out::note("fio left out: it is not installed (the package is called fio)");
    }
    fio
}

fn systems(
    args: &DepthArgs,
    file: &DataFile,
    job: &Job,
    script: &Operations,
    (pager, policy): (lowtide::Pager, lowtide::Policy),
    fio: Option<&Fio>,
    depth: u32,
) -> Result<Vec<Box<dyn System>>, BenchError> {
    let lowtide = Lowtide::start(pager, (VIEW, policy), file, job, script)?;
    let mut systems: Vec<Box<dyn System>> = vec![Box::new(lowtide)];
    if let Some(fio) = fio {
        systems.push(Box::new(fio.at(
            file.path(),
            job.data_bytes,
            job.page_bytes,
            depth,
            args.cold.seed.seed,
        )));
    }
    Ok(systems)
}

fn job(args: &DepthArgs, file: &DataFile, content: Content, page_bytes: u64, batch: u32) -> Job {
    Job {
        workload: Workload::RandomRead.name().to_owned(),
        popularity: Popularity::Uniform,
        content,
        data_bytes: file.bytes() - file.bytes() % page_bytes,
        page_bytes,
        threads: 1,
        batch,
        seed: args.cold.seed.seed,
        writes: false,
        reads_ahead: true,
        stride: 1,
        rows: None,
        own: None,
    }
}

fn common(job: &Job, max_bytes: u64) -> Common {
    Common {
        workload: NAME,
        max_bytes,
        data_bytes: job.data_bytes,
        page_bytes: job.page_bytes,
        threads: job.threads,
        batch: job.batch,
        seed: job.seed,
        slowed: None,
        stride: None,
    }
}

/// Pages of a batch. A depth of one is a plain read through a guard.
fn batch(depth: u32, max_bytes: u64, page_bytes: u64) -> u32 {
    if depth == 1 {
        return 1;
    }
    let fits = u32::try_from(max_bytes / page_bytes / 8).unwrap_or(u32::MAX);
    (depth * BATCH_PER_DEPTH).min(BATCH_MAX).min(fits).max(depth)
}

/// Device reads per second.
fn iops(slice: &Slice, page_bytes: u64) -> f64 {
    if slice.seconds > 0.0 {
        slice.read_bytes as f64 / page_bytes as f64 / slice.seconds
    } else {
        0.0
    }
}

fn head(
    machine: &Machine,
    file: &DataFile,
    max_bytes: u64,
    page_bytes: u64,
    (seconds, rounds): (f64, u32),
) {
    out::line(
        "depth: cold random reads of single pages, a number of them in flight from one thread",
    );
    for line in machine.lines(file) {
        out::line(line);
    }
    out::line(format_args!(
        "run       pages of {}, budget {}; {rounds} rounds of {:.2} s each, in turns\n",
        Size::new(page_bytes),
        Size::new(max_bytes),
        seconds / f64::from(rounds)
    ));
}

fn print(
    printed: &mut table::Table,
    depth: u32,
    row: &Turns,
    sum: &Slice,
    ratio: Spread,
    page_bytes: u64,
) {
    let iops = iops(sum, page_bytes);
    printed.add_row(vec![
        depth.to_string(),
        row.label.clone(),
        table::thousands(iops),
        table::thousands(iops * page_bytes as f64 / f64::from(1 << 20)),
        format!("{:.2}", sum.cpu_seconds),
        ratio.text(),
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_keep_the_queue_full_and_fit_the_budget() {
        assert_eq!(batch(1, 64 << 20, 4096), 1);
        assert_eq!(batch(8, 64 << 20, 4096), 256);
        assert_eq!(batch(32, 64 << 20, 4096), 1024);
        assert_eq!(batch(128, 64 << 20, 4096), 2048);
        assert_eq!(batch(8, 256 << 10, 4096), 8);
    }
}
