//! A run: for each page size, number of threads and workload, all systems take turns.
//!
//! The speed of a device changes within minutes, so no system is measured in one piece. All are
//! built and warmed up; then each has a short slice, in an order that changes from round to round.
//! The ratio of two systems is computed within each round, and the median over the rounds is shown
//! with the smallest and the largest. Updates are flushed at the end of a slice, within its time.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::layout::RecordLayout;
use lowtide_host::usage::CpuTime;
use lowtide_workload::record::{Payload, RECORD_BYTES};

use crate::error::Error;
use crate::files::{Files, stop};
use crate::heap;
use crate::pages::{Counts, Pages};
use crate::system::{Fit, Kind, Terms};
use crate::threads::{ThreadPool, Until};
use crate::work::Work;

/// Threads of a warm-up, so that the device is busy.
pub const WARMERS: u32 = 32;
/// Operations of a warm-up, as a multiple of the records that the budget holds.
const WARM_TURNS: u64 = 6;

/// What is to be compared.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where data files are made.
    pub dir: PathBuf,
    /// What records are made of.
    pub contents: Payload,
    /// Bytes of the file.
    pub data: u64,
    /// The budget of each system.
    pub max: u64,
    /// Page sizes.
    pub pages: Vec<RecordLayout>,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Workloads.
    pub works: Vec<Work>,
    /// Systems; ratios are of the first.
    pub systems: Vec<Kind>,
    /// Rounds.
    pub rounds: u32,
    /// The length of a slice.
    pub slice: Duration,
    /// Whether each update is durable when it returns.
    pub durable: bool,
}

/// One slice of one system.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Operations a second.
    pub rate: f64,
    /// Operations.
    pub ops: u64,
    /// Accesses that waited for the device.
    pub misses: u64,
    /// Read requests.
    pub reads: u64,
    /// Processor seconds of the process.
    pub cpu: f64,
}

/// One system in one table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name.
    pub system: String,
    /// How large it was made.
    pub fit: Fit,
    /// Bytes that it took in the end, by the same account.
    pub bytes: u64,
    /// Bytes by which the process grew while the system was built and warmed up.
    pub grown: u64,
    /// One for each round.
    pub slices: Vec<Slice>,
}

impl Row {
    /// The sum of a count over all slices, for each operation.
    #[must_use]
    pub fn per_op(&self, count: impl Fn(&Slice) -> f64) -> f64 {
        let ops: u64 = self.slices.iter().map(|slice| slice.ops).sum();
        self.slices.iter().map(count).sum::<f64>() / ops.max(1) as f64
    }
}

/// The results of one page size, number of threads and workload.
#[derive(Clone, Debug)]
pub struct Table {
    /// The workload.
    pub work: Work,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Threads.
    pub threads: u32,
    /// A row for each system.
    pub rows: Vec<Row>,
}

/// Runs the plan; each table is passed to `show` as soon as it is complete.
///
/// # Errors
/// [`Error::Usage`] for a plan that cannot be run, and everything that can go wrong.
pub fn run(plan: &Plan, mut show: impl FnMut(&Table)) -> Result<(), Error> {
    let largest = plan.pages.iter().map(RecordLayout::page_bytes).max().unwrap_or(RECORD_BYTES);
    if !plan.data.is_multiple_of(largest as u64) || plan.data <= plan.max {
        return Err(Error::Usage(format!(
            "the file has to be larger than the budget, and a multiple of {largest} bytes: give \
             another --data or --max"
        )));
    }
    let count = if plan.works.iter().any(|work| work.writes()) { plan.systems.len() } else { 1 };
    let mut files = Files::make(&plan.dir, plan.contents, plan.data, count)?;
    for &layout in &plan.pages {
        for &threads in &plan.threads {
            let terms =
                Terms { layout, data: plan.data, max: plan.max, threads, durable: plan.durable };
            let fit = |kind: &Kind| stop().and_then(|()| kind.fit(files.path(0), &terms));
            let fits: Vec<Fit> = plan.systems.iter().map(fit).collect::<Result<_, _>>()?;
            for &work in &plan.works {
                show(&compare(plan, &terms, &fits, work, &mut files)?);
            }
        }
    }
    Ok(())
}

/// A system that is being measured.
struct Running {
    pages: Arc<dyn Pages>,
    threads: ThreadPool,
    updates: u64,
    row: Row,
}

fn compare(
    plan: &Plan,
    terms: &Terms,
    fits: &[Fit],
    work: Work,
    files: &mut Files,
) -> Result<Table, Error> {
    let streams = work.streams(plan.data / RECORD_BYTES as u64, terms.layout)?;
    let mut systems: Vec<Running> = Vec::new();
    for (number, (kind, fit)) in plan.systems.iter().zip(fits).enumerate() {
        stop()?;
        heap::trim();
        let before = resident();
        let path = files.path(if work.writes() { number } else { 0 });
        let (name, pages) = (kind.to_string(), kind.build(path, terms, fit.pages)?);
        // Streams of the warm-up are others than those that are measured.
        let warmers =
            (0..WARMERS).map(|n| streams.stream(terms.threads + n, terms.threads + WARMERS));
        let ops = WARM_TURNS * plan.max / RECORD_BYTES as u64 / u64::from(WARMERS);
        let warm = ThreadPool::start(&name, &pages, warmers)?.run(Until::Ops(ops))?;
        pages.flush()?;
        let all = (0..terms.threads).map(|n| streams.stream(n, terms.threads + WARMERS));
        let threads = ThreadPool::start(&name, &pages, all)?;
        let grown = resident().saturating_sub(before);
        let row = Row { system: name, fit: *fit, bytes: 0, grown, slices: Vec::new() };
        systems.push(Running { pages, threads, updates: warm.updates, row });
    }
    for round in 0..plan.rounds as usize {
        for turn in 0..systems.len() {
            stop()?;
            let at = (round + turn) % systems.len();
            slice(&mut systems[at], work, plan.slice)?;
        }
    }
    let mut rows = Vec::new();
    for (number, Running { pages, threads, updates, mut row }) in systems.into_iter().enumerate() {
        row.bytes = pages.bytes() + row.fit.heap;
        drop(threads);
        drop(pages);
        if work.writes() {
            files.check(number, updates, &row.system)?;
        }
        rows.push(row);
    }
    let (page_bytes, threads) = (terms.layout.page_bytes(), terms.threads);
    Ok(Table { work, page_bytes, threads, rows })
}

fn slice(system: &mut Running, work: Work, time: Duration) -> Result<(), Error> {
    let (cpu, before) = (CpuTime::now_self(), system.pages.counts());
    let begin = std::time::Instant::now();
    let tally = system.threads.run(Until::Time(time))?;
    let mut seconds = tally.seconds;
    if work.writes() {
        system.pages.flush()?;
        seconds = begin.elapsed().as_secs_f64();
    }
    stop()?;
    let own = Counts { misses: tally.missed, reads: tally.missed };
    let counts = system.pages.counts().zip(before).map_or(own, |(now, before)| Counts {
        misses: now.misses - before.misses,
        reads: now.reads - before.reads,
    });
    system.updates += tally.updates;
    system.row.slices.push(Slice {
        rate: tally.ops as f64 / seconds,
        ops: tally.ops,
        misses: counts.misses,
        reads: counts.reads,
        cpu: CpuTime::now_self().since(cpu).seconds(),
    });
    Ok(())
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    status("VmRSS:")
}

/// The most bytes of this process that were in memory at any time.
#[must_use]
pub fn peak_resident() -> u64 {
    status("VmHWM:")
}

/// A line of `/proc/self/status`, in bytes; 0 where there is none.
fn status(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix(field)?.trim().split(' ').next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}
