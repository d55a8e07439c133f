//! `lowtide-lab bench file-anon-mix`: readers of a file beside threads that allocate and free,
//! together 1.375 times the budget, as in the reproducer of the aging OOM.
//!
//! ```text
//!   readers ──► a load of every page of the file, in order ──► pause 120 ms ──► again, forever
//!   workers ──► when every reader has been through once: each fills its share of the heap
//!           ──► all done: free it ──► pause ──► next round
//! ```
//!
//! The heap is real memory, reserved in the tenant piece by piece before it is written, so it
//! evicts the file's pages from the same budget, and only those are evictable. A reservation or a
//! load that fails for lack of memory corresponds to the kill of the published run; here it is a
//! result (`oom`), and the round does not count. The process uses the budget's frames and, in
//! addition, 7/8 of the budget for the heap. Source: `docs/kernel/workloads.md` §3.

use lowtide_report::outcome::MixRow;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use lowtide::{Error, OpenOptions, Policy, Size, Tenant, View};
use lowtide_bench::content::{Content, UNIT_BYTES};
use lowtide_bench::datafile::{DataFile, Purpose};
use lowtide_bench::error::BenchError;
use lowtide_bench::options::Seed;
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::row::Row;
use lowtide_report::{columns, progress::Patient};

use super::{
    BENCH_ABOUT, BenchOptions, COLUMNS, NAME, PUBLISHED, READER_PAUSE, READERS, ROUND_PAUSE,
    WORKERS, ending, part,
};
use crate::bench::tenancy::host::{Common, check_memory, head, tail, whole_windows};
use crate::bench::tenancy::loaders::{Count, Loaders};

/// Size of a worker's reservations.
const PIECE_BYTES: u64 = 64 << 10;
/// Bytes of a page of the program's own memory.
const HEAP_PAGE: usize = 4096;

/// One run, with all options resolved.
#[derive(Debug)]
struct Mix<'a> {
    common: &'a Common,
    max: u64,
    file: u64,
    anon: u64,
    rounds: u32,
    limit: Duration,
    policies: Vec<Policy>,
}

/// The state shared by readers, workers and the round's clock.
#[derive(Debug, Default)]
struct Scene {
    loaders: Loaders,
    /// Readers that have completed one pass.
    ready: AtomicU64,
    /// A charge that failed for lack of memory.
    killed: AtomicBool,
}

impl<'a> Mix<'a> {
    fn new(args: &'a BenchOptions) -> Self {
        Self {
            common: &args.common,
            max: args.max,
            file: whole_windows(part(args.max, PUBLISHED.file), args.common.page),
            anon: part(args.max, PUBLISHED.anon),
            rounds: args.rounds,
            limit: Duration::from_secs_f64(args.seconds),
            policies: args.policies.rows(),
        }
    }

    const fn budget(&self) -> u64 {
        self.max + self.max / 8 + (8 << 20)
    }

    fn row(&self, policy: Policy, file: &DataFile) -> Result<Row, BenchError> {
        let pager = self.common.pager(policy, self.budget())?;
        let tenant = pager.tenant("mix").max(Size::new(self.max)).create()?;
        let view = OpenOptions::new().tenant(&tenant).lock(false).open(&pager, file.path())?;
        let scene = Scene::default();
        let counts: Vec<Count> = (0..READERS).map(|_| Count::default()).collect();
        let before = pager.stat();
        let begin = Instant::now();
        let readers = counts.iter().map(|count| {
            let (view, scene) = (view.clone(), &scene);
            let mut passes = 0_u64;
            move || {
                read_once(&view, count, scene)?;
                passes += 1;
                if passes == 1 {
                    scene.ready.fetch_add(1, Relaxed);
                }
                scene.loaders.pause(READER_PAUSE);
                Ok::<(), String>(())
            }
        });
        let fill_and_free = || -> Result<_, BenchError> {
            let late = || begin.elapsed() >= self.limit;
            while !scene.loaders.stopped() && !late() && scene.ready.load(Relaxed) < READERS as u64
            {
                thread::sleep(Duration::from_millis(1));
            }
            let (mut rounds, mut seconds) = (0, 0.0);
            while rounds < self.rounds && !scene.loaders.stopped() && !late() {
                let round = Instant::now();
                if !self.round(&tenant, &scene)? {
                    break;
                }
                seconds += round.elapsed().as_secs_f64();
                rounds += 1;
                scene.loaders.pause(ROUND_PAUSE);
            }
            Ok((rounds, seconds))
        };
        let (rounds, round_seconds) = scene.loaders.run(readers, fill_and_free)??;
        let seconds = begin.elapsed().as_secs_f64();
        scene.loaders.verdict(&policy.to_string())?;
        let after = pager.stat();
        let (loads, misses) =
            counts.iter().fold((0, 0), |sum, count| (sum.0 + count.ops(), sum.1 + count.misses()));
        let threads = (READERS + WORKERS) as u32;
        let row = Row::real(NAME, &pager, policy, threads, Seed::USUAL);
        let mut row = row.on_pager(&before, &after, seconds, (loads, misses));
        row.stat.insert("peak".into(), tenant.peak()?);
        row.stat.insert("failcnt".into(), tenant.events()?.max);
        Ok({
            let own = MixRow {
                round_seconds: (rounds > 0).then(|| round_seconds / f64::from(rounds)),
                ..row.own()
            };
            Row {
                program: Some("views and reservations"),
                max_bytes: Some(self.max),
                data_bytes: Some(self.file + self.anon),
                oom: Some(u64::from(scene.killed.load(Relaxed))),
                rounds: Some(rounds),
                ..row
            }
            .with(own)
        })
    }

    /// One round of the workers. Returns whether it was completed.
    fn round(&self, tenant: &Tenant, scene: &Scene) -> Result<bool, BenchError> {
        let share = self.anon / WORKERS as u64;
        let workers = (0..WORKERS).map(|_| || fill_share(tenant, share, scene));
        // Shares are kept until all are filled.
        let heaps = scene.loaders.once(workers)?;
        Ok(heaps.iter().all(Option::is_some))
    }
}

/// One piece of the heap: its reservation in the budget, and its memory.
type Piece = (lowtide::Reservation, Vec<u8>);

/// Reserves a share of the heap, and writes a byte of each page. `None` if it was not completed.
fn fill_share(tenant: &Tenant, share: u64, scene: &Scene) -> Option<Vec<Piece>> {
    let mut heap = Vec::new();
    let mut left = share;
    while left > 0 {
        if scene.loaders.stopped() {
            return None;
        }
        let bytes = left.min(PIECE_BYTES);
        let reserved = match tenant.reserve(Size::new(bytes)) {
            Ok(reserved) => reserved,
            Err(error) => {
                scene.refused(&error);
                return None;
            }
        };
        let mut memory = vec![0_u8; bytes as usize];
        memory.iter_mut().step_by(HEAP_PAGE).for_each(|byte| *byte = 1);
        heap.push((reserved, memory));
        left -= bytes;
    }
    Some(heap)
}

/// One pass of a reader: every page, a kilobyte of each verified.
fn read_once(view: &View, count: &Count, scene: &Scene) -> Result<(), String> {
    let units = view.page_size() / UNIT_BYTES;
    for page in 0..view.page_count() {
        if scene.loaders.stopped() {
            return Ok(());
        }
        let missed = !view.is_resident(page);
        match view.page(page) {
            Ok(bytes) => {
                let (found, _) = bytes.as_chunks::<UNIT_BYTES>();
                let unit = page % units as u64;
                if !Content::Blocks.check(page * units as u64 + unit, &found[unit as usize]) {
                    return Err(format!("page {page} holds wrong bytes in its kilobyte {unit}"));
                }
            }
            Err(error) => {
                scene.refused(&error);
                return Ok(());
            }
        }
        count.done(missed);
    }
    Ok(())
}

impl Scene {
    /// Lack of memory is a result; any other error is a failure.
    fn refused(&self, error: &Error) {
        if matches!(error, Error::OutOfBudget { .. }) {
            self.killed.store(true, Relaxed);
            self.loaders.stop();
        } else {
            self.loaders.fail(error);
        }
    }
}

/// Measures every policy.
///
/// # Errors
/// Any [`BenchError`]; an exhausted budget is not an error.
pub(crate) fn run(args: &BenchOptions) -> Result<(), BenchError> {
    let plan = Mix::new(args);
    check_memory(plan.budget() + plan.anon)?;
    let pager = plan.common.pager(plan.policies[0], plan.budget())?;
    let data_dir = args.common.files.data_dir()?;
    let file = data_dir.prepare(Content::Blocks, plan.file, 1, Purpose::Lasting)?.remove(0);
    file.drop_page_cache()?;
    let lines = [
        (
            "tenant",
            format!(
                "max {}; a file of {} for {READERS} readers, a heap of {} for {WORKERS} workers: \
                 {:.3} times as much",
                Size::new(plan.max),
                Size::new(plan.file),
                Size::new(plan.anon),
                (plan.file + plan.anon) as f64 / plan.max as f64
            ),
        ),
        (
            "run",
            format!(
                "{} rounds of filling and freeing, {:.1} s at most for each row",
                plan.rounds,
                plan.limit.as_secs_f64()
            ),
        ),
    ];
    let machine = head((NAME, BENCH_ABOUT), &pager, &file, &lines)?;
    drop(pager);
    let mut progress = Patient::steps(plan.policies.len() as u64);
    let mut rows = Vec::new();
    let mut cut = Cut::default();
    for &policy in &plan.policies {
        progress.say(policy.to_string());
        let row = plan.row(policy, &file);
        let row = interrupt::check(|| "running file-anon-mix".into()).map_err(Into::into).and(row);
        let Some(row) = cut.take(row)? else { break };
        rows.push(row);
        progress.add(1);
    }
    drop(progress);
    let mut closing: Vec<String> = rows.iter().filter_map(|row| ending(row, plan.rounds)).collect();
    if closing.is_empty() {
        closing.push(format!("all finished their {} rounds", plan.rounds));
    }
    let table = columns::table(COLUMNS, &rows);
    tail(&args.common.output, &machine, &table, rows, closing, cut)
}
