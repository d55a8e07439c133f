//! A load under a budget: a thread that reads, and looks at the tenant meanwhile.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use lowtide::budget::AutoLimits;
use lowtide::{HighPolicy, OpenOptions, Pager, Size, Tenant, View};
use lowtide_bench::content::{WORD_BYTES, word};
use lowtide_bench::datafile::DataFile;
use lowtide_bench::error::BenchError;
use lowtide_report::interrupt;
use lowtide_workload::SplitMix64;
use serde::Serialize;

use super::load::{Pattern, Phase};

/// Time between two points of the timeline.
const POINT: Duration = Duration::from_millis(250);
/// Time between two looks whether a phase without reads is over.
const NAP: Duration = Duration::from_millis(50);

/// The budget of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Budget {
    Fixed(u64),
    Auto(AutoLimits),
}

/// A point of the timeline.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) seconds: f64,
    pub(crate) phase: &'static str,
    /// The limit: `max` of a fixed budget.
    pub(crate) limit_bytes: u64,
    pub(crate) usage_bytes: u64,
    /// What frames take of the system's memory.
    pub(crate) resident_bytes: u64,
    /// Share of the time since the last point that was waited.
    pub(crate) stall_share: f64,
    pub(crate) reads_per_s: f64,
    /// Pages that came back, so far.
    pub(crate) refaults: u64,
}

/// What became of a phase.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Played {
    pub(crate) phase: &'static str,
    pub(crate) seconds: f64,
    pub(crate) reads: u64,
    pub(crate) reads_per_s: f64,
    pub(crate) stall_share: f64,
    pub(crate) mean_limit_bytes: u64,
    pub(crate) mean_usage_bytes: u64,
    pub(crate) mean_resident_bytes: u64,
    /// When the phase ends.
    pub(crate) end_usage_bytes: u64,
    pub(crate) refaults: u64,
    /// Words that were wrong.
    pub(crate) errors: u64,
    #[serde(skip)]
    pub(crate) timeline: Vec<Point>,
}

/// What the reading thread has done so far.
#[derive(Debug, Default)]
struct Done {
    reads: AtomicU64,
    waited_ns: AtomicU64,
    errors: AtomicU64,
}

/// A tenant with a budget, and its view of the file.
pub(crate) struct Player<'a> {
    pager: &'a Pager,
    tenant: Tenant,
    view: View,
    began: Instant,
    think: Duration,
    rng: SplitMix64,
}

impl<'a> Player<'a> {
    /// # Errors
    /// [`BenchError::Tenant`]; those of opening the file.
    pub(crate) fn new(
        pager: &'a Pager,
        file: &DataFile,
        budget: Budget,
        think: Duration,
        seed: u64,
    ) -> Result<Self, BenchError> {
        let tenant = pager.tenant("auto").create()?;
        match budget {
            Budget::Fixed(bytes) => {
                tenant.set_high_policy(HighPolicy::Overage)?;
                let _ = tenant.set_max(Size::new(bytes))?;
            }
            Budget::Auto(limits) => tenant.set_auto(limits)?,
        }
        let view = OpenOptions::new().tenant(&tenant).lock(false).open(pager, file.path())?;
        let (began, rng) = (Instant::now(), SplitMix64::new(seed));
        Ok(Self { pager, tenant, view, began, think, rng })
    }

    /// Plays a phase.
    ///
    /// # Errors
    /// That it was interrupted; [`BenchError::Tenant`].
    pub(crate) fn play(&mut self, phase: &Phase) -> Result<Played, BenchError> {
        let (done, mut rng) = (Done::default(), self.rng);
        let (view, think) = (&self.view, self.think);
        let begin = Instant::now();
        let refaults = self.refaults()?;
        let timeline = thread::scope(|scope| -> Result<Vec<Point>, BenchError> {
            let reader =
                scope.spawn(|| read(view, &phase.pattern, begin, phase, think, &mut rng, &done));
            let timeline = self.watch(phase, begin, &done)?;
            reader.join().map_err(|_| BenchError::Usage {
                what: "the reading thread has panicked".into(),
                advice: "report it".into(),
            })?;
            Ok(timeline)
        })?;
        self.rng = rng;
        let seconds = begin.elapsed().as_secs_f64();
        let points = timeline.len().max(1) as u64;
        let mean = |of: fn(&Point) -> u64| timeline.iter().map(of).sum::<u64>() / points;
        let reads = done.reads.load(Relaxed);
        Ok(Played {
            phase: phase.name,
            seconds,
            reads,
            reads_per_s: reads as f64 / seconds,
            stall_share: done.waited_ns.load(Relaxed) as f64 / 1e9 / seconds,
            mean_limit_bytes: mean(|point| point.limit_bytes),
            mean_usage_bytes: mean(|point| point.usage_bytes),
            mean_resident_bytes: mean(|point| point.resident_bytes),
            end_usage_bytes: self.tenant.usage()?,
            refaults: self.refaults()? - refaults,
            errors: done.errors.load(Relaxed),
            timeline,
        })
    }

    fn refaults(&self) -> Result<u64, BenchError> {
        Ok(self.tenant.stat()?.events.workingset_refault_file)
    }

    fn watch(&self, phase: &Phase, begin: Instant, done: &Done) -> Result<Vec<Point>, BenchError> {
        let mut points = Vec::new();
        let (mut reads, mut waited, mut at) = (0, 0, begin);
        while begin.elapsed() < phase.time {
            thread::sleep(POINT.min(phase.time.saturating_sub(begin.elapsed())));
            interrupt::check(|| format!("playing {}", phase.name))?;
            let took = at.elapsed().as_secs_f64().max(1e-9);
            at = Instant::now();
            let (reads_now, waited_now) = (done.reads.load(Relaxed), done.waited_ns.load(Relaxed));
            let limits = self.tenant.limits()?;
            points.push(Point {
                seconds: self.began.elapsed().as_secs_f64(),
                phase: phase.name,
                limit_bytes: limits.high.min(limits.max).bytes(),
                usage_bytes: self.tenant.usage()?,
                resident_bytes: self.pager.stat().resident_bytes,
                stall_share: (waited_now - waited) as f64 / 1e9 / took,
                reads_per_s: (reads_now - reads) as f64 / took,
                refaults: self.refaults()?,
            });
            (reads, waited) = (reads_now, waited_now);
        }
        Ok(points)
    }

    /// Takes the tenant away, with its pages.
    ///
    /// # Errors
    /// [`BenchError::Tenant`].
    pub(crate) fn end(self) -> Result<(), BenchError> {
        drop(self.view);
        let _ = self.tenant.set_max(Size::new(1 << 20))?;
        Ok(self.tenant.remove()?)
    }
}

/// Reads until the phase is over.
fn read(
    view: &View,
    pattern: &Pattern,
    begin: Instant,
    phase: &Phase,
    think: Duration,
    rng: &mut SplitMix64,
    done: &Done,
) {
    let words = (view.page_size() / WORD_BYTES) as u64;
    let mut count = 0;
    loop {
        let now = Instant::now();
        if now - begin >= phase.time || interrupt::requested() {
            return;
        }
        let Some(page) = pattern.next(rng, count) else {
            thread::sleep(NAP);
            continue;
        };
        count += 1;
        let misses = !view.is_resident(page);
        let right = view.page(page).is_ok_and(|page_bytes| {
            let (all, _) = page_bytes.as_chunks::<WORD_BYTES>();
            all.first().is_some_and(|first| u64::from_le_bytes(*first) == word(page * words))
        });
        if misses {
            let waited = u64::try_from(now.elapsed().as_nanos()).unwrap_or(u64::MAX);
            done.waited_ns.fetch_add(waited, Relaxed);
        }
        done.reads.fetch_add(1, Relaxed);
        done.errors.fetch_add(u64::from(!right), Relaxed);
        let thinking = Instant::now();
        while thinking.elapsed() < think {
            std::hint::spin_loop();
        }
    }
}
