//! `lowtide bench random-read --depth N`: cold random reads, N of them in flight, beside fio.
//!
//! One thread requests batches of distinct random pages with `get_many`, which keeps the configured
//! number of reads in flight. The file is many times larger than the budget, and a batch many times
//! deeper than the queue, so that the queue is nearly always full. The result is the rate of device
//! reads (IOPS), which excludes resident pages. fio reads the same file with direct I/O, the same
//! block size and the same depth.

use lowtide::{Builder, Size};
use lowtide_host::probe::Probe;
use lowtide_report::interrupt::Cut;
use lowtide_report::json::Report;
use lowtide_report::measured::{Common, WorkloadRow};
use lowtide_report::rounds::{Row, ratio};
use lowtide_report::spread::Spread;
use lowtide_report::tally::Slice;
use lowtide_report::values::{PAGE_BYTES, scaled};
use lowtide_report::{out, progress, table};
use lowtide_workload::Workload;

use super::compare::random_read::RandomReadArgs;
use super::content::Content;
use super::datafile::{DataFile, Purpose};
use super::error::BenchError;
use super::machine::Machine;
use super::options::Source;
use super::options::memory::check_memory;
use super::peer::fio::Fio;
use super::play::job::{Job, Script};
use super::play::popularity::Popularity;
use super::rounds::{take_turns, verdict};
use super::system::{Lowtide, System};
use super::thread_pool::Until;

/// Pages of a batch for each read in flight. The queue runs empty at the end of a batch, so batches
/// should be long.
const BATCH_PER_DEPTH: u32 = 32;
/// The largest batch, so that `get_many` never needs more pages than a small budget has.
const BATCH_MAX: u32 = 2048;

/// Measures every requested depth.
///
/// # Errors
/// Any [`BenchError`].
pub(crate) fn run(args: &RandomReadArgs) -> Result<(), BenchError> {
    let probe = Probe::ask();
    let fio = if args.beside_fio()? { find_fio() } else { None };
    let page_bytes = args.pages.common.page.unwrap_or(PAGE_BYTES);
    let (max_bytes, seconds, rounds) =
        (args.max, args.pages.timing.seconds, args.pages.timing.rounds);
    let policy = args.pages.common.policies.rows()[0];
    let pager = |depth| {
        let young = args.pages.young.young_faults;
        let adjust = |builder: Builder| builder.young_faults(young).depth(depth);
        args.pages.common.io.pager(policy, max_bytes, page_bytes, adjust)
    };
    check_memory(0, 1, max_bytes, probe.memory_available)?;
    drop(pager(1)?);
    let wanted = scaled(max_bytes, args.scale);
    let source = Source::of(&args.pages.common.files, args.pages.file.file.clone())?;
    let (file, content) = match &source {
        Source::User(path, locking) => DataFile::of_user(path, *locking)?,
        Source::Made(data_dir) => {
            let mut files = data_dir.prepare(Content::Blocks, wanted, 1, Purpose::Lasting)?;
            (files.remove(0), Content::Blocks)
        }
    };
    let content = if content == Content::Blocks { content } else { Content::Unknown };

    let mut printed = table::new(&["depth", "system", "IOPS", "MiB/s", "cpu s", "ratio"], 2);
    let mut json = Vec::new();
    let mut closing = Vec::new();
    let mut all_rows = Vec::new();
    let mut machine = None;
    let systems_per_depth = 1 + u64::from(fio.is_some());
    let progress =
        progress::steps("", args.depth.len() as u64 * u64::from(rounds) * systems_per_depth);
    let mut cut = Cut::default();
    for &depth in &args.depth {
        let job = job(args, &file, content, page_bytes, batch(depth, max_bytes, page_bytes));
        let script = job.script(None)?;
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
        let taken = take_turns(&mut systems, rounds, |_| slice, &progress, &mut cut);
        let Some(rows) = cut.take(taken)? else { break };
        for row in &rows {
            let (sum, ratio) = (row.sum(), ratio(row, &rows[0], rate));
            print(&mut printed, depth, row, &sum, ratio, page_bytes);
            let common = common(&job, max_bytes);
            json.push(WorkloadRow::new(&common, row, &rows[0]).at_depth(depth, rate(&sum), ratio));
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
    progress.finish_and_clear();
    out::line(printed);
    if !closing.is_empty() {
        out::line(format_args!("\n{}", closing.join("\n")));
    }
    if let Some(machine) = &machine {
        Report::new(machine, json)
            .cut_short(cut.is_cut())
            .write(args.pages.common.output.json.as_deref())?;
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
    args: &RandomReadArgs,
    file: &DataFile,
    job: &Job,
    script: &Script,
    (pager, policy): (lowtide::Pager, lowtide::Policy),
    fio: Option<&Fio>,
    depth: u32,
) -> Result<Vec<Box<dyn System>>, BenchError> {
    let lowtide = Lowtide::start(pager, policy, file, job, script)?;
    let mut systems: Vec<Box<dyn System>> = vec![Box::new(lowtide)];
    if let Some(fio) = fio {
        systems.push(Box::new(fio.at(
            file.path(),
            job.data_bytes,
            job.page_bytes,
            depth,
            args.pages.seed.seed,
        )));
    }
    Ok(systems)
}

fn job(
    args: &RandomReadArgs,
    file: &DataFile,
    content: Content,
    page_bytes: u64,
    batch: u32,
) -> Job {
    Job {
        workload: Workload::RandomRead.name().to_owned(),
        popularity: Popularity::Uniform,
        content,
        data_bytes: file.bytes() - file.bytes() % page_bytes,
        page_bytes,
        threads: 1,
        batch,
        seed: args.pages.seed.seed,
        trace: None,
        trace_format: None,
        writes: false,
        update_percent: None,
        checkpoint_seconds: None,
        stride: 1,
    }
}

fn common(job: &Job, max_bytes: u64) -> Common {
    Common {
        workload: Workload::RandomRead.name(),
        max_bytes,
        data_bytes: job.data_bytes,
        page_bytes: job.page_bytes,
        threads: job.threads,
        batch: job.batch,
        seed: job.seed,
        slowed: None,
        checkpoint_seconds: None,
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
        "random-read: cold random reads of single pages, a number of them in flight from one \
         thread",
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
    row: &Row,
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
