//! The steps of the life of a mapped page, each timed alone.

use std::fs::{self, File};
use std::io::{self, Read};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lowtide::{Pager, Size};
use lowtide_bench::datafile::DataFile;
use lowtide_bench::error::BenchError;
use lowtide_report::interrupt;
use lowtide_sys::memory::{HugePages, Mapping, page_size};
use lowtide_sys::pagemap::{Categories, Pagemap, Query};
use lowtide_workload::SplitMix64;
use rustix::fs::{Advice, fadvise};

use super::memory::Memory;
use crate::error::LabError;

/// The thread that watches mappings of the kernel.
const WATCHER: &str = "lowtide-watch";
/// It looks at once if its last look is longer ago than this, and a page fault has happened.
const LOOK_MAX: Duration = Duration::from_millis(260);
/// The longest time in which it does not look at the count of faults.
const TICK_MAX: Duration = Duration::from_millis(60);
/// Looks that are measured in one round.
const LOOKS: u32 = 3;
/// The longest wait until pages are noticed: on a busy machine it takes seconds.
const NOTICED_MAX: Duration = Duration::from_secs(60);
/// Bytes of one read into the page cache.
const WARM_BYTES: usize = 128 << 10;

/// One step in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// Pages that it was done to.
    pub(crate) pages: u64,
    /// Nanoseconds for all of them.
    pub(crate) ns: f64,
    /// Contents that were checked.
    pub(crate) verified: u64,
    /// Contents that were wrong.
    pub(crate) errors: u64,
}

impl Step {
    fn new(name: &'static str, pages: u64, ns: f64) -> Self {
        Self { name, pages, ns, verified: 0, errors: 0 }
    }

    fn checked(self, touches: u64, errors: u64) -> Self {
        Self { verified: touches - errors, errors, ..self }
    }
}

/// All steps of a mapping in which there is room for every page; those with page tables if they can
/// be scanned.
pub(crate) fn resident(
    memory: &Memory,
    pager: Option<&Pager>,
    file: &DataFile,
    (scans, seed): (bool, u64),
) -> Result<Vec<Step>, BenchError> {
    let failed = |action| move |source| BenchError::file(action, file.path(), source);
    interrupt::check(|| "measuring faults".into())?;
    warm(file)?;
    let order = shuffled(memory.pages(), seed);
    let touch = |name| {
        let begin = Instant::now();
        let errors = memory.touch(order.iter().copied(), seed);
        let ns = begin.elapsed().as_nanos() as f64;
        Step::new(name, memory.pages(), ns).checked(memory.pages(), errors)
    };
    let watcher = Watcher::find();
    let before = watcher.as_ref().and_then(Watcher::cpu_ns);
    let mut steps = vec![touch("fault")];
    noticed(memory)?;
    if let Some(ns) = watcher.as_ref().and_then(|watcher| watcher.since(before)) {
        steps.push(Step::new("notice", memory.pages(), ns));
    }
    let present = if scans {
        let scanned = scan(memory).map_err(failed("scan the pages of"))?;
        steps.push(scanned);
        scanned.pages
    } else {
        memory.pages()
    };
    let begin = Instant::now();
    memory.zap().map_err(failed("zap the pages of"))?;
    steps.push(Step::new("zap", present, begin.elapsed().as_nanos() as f64));
    steps.push(touch("touch"));
    if let Some(watcher) = &watcher {
        steps.extend(tick(watcher, memory.pages())?);
    }
    if let Some(pager) = pager {
        let begin = Instant::now();
        let bytes = pager.root().reclaim(Size::new(memory.addresses().len() as u64))?;
        let ns = begin.elapsed().as_nanos() as f64;
        steps.push(Step::new("evict", bytes / page_size() as u64, ns));
    }
    Ok(steps)
}

/// Scans all pages.
fn scan(memory: &Memory) -> io::Result<Step> {
    let pagemap = Pagemap::open()?;
    let query =
        Query { required: Categories::PRESENT, returned: Categories::PRESENT, ..Query::default() };
    let mut found = Vec::new();
    let begin = Instant::now();
    pagemap.scan(memory.addresses(), &query, &mut found)?;
    let ns = begin.elapsed().as_nanos() as f64;
    let present = found.iter().map(|region| (region.range().len() / page_size()) as u64).sum();
    Ok(Step::new("scan", present, ns))
}

/// Random touches of a map that has four times its budget.
pub(crate) fn turnover(
    memory: &Memory,
    pager: &Pager,
    file: &DataFile,
    seed: u64,
) -> Result<Step, BenchError> {
    interrupt::check(|| "measuring evictions".into())?;
    warm(file)?;
    let pages = memory.pages();
    let mut rng = SplitMix64::new(seed);
    let mut some = |count| (0..count).map(|_| rng.below(pages)).collect::<Vec<u64>>();
    let (mut touches, mut errors) = (0, 0);
    // The budget is full, and pages are evicted, before it begins. What is touched may be taken
    // before it is noticed: the whole file is cached, which is far beyond the budget.
    let waits = Instant::now();
    while memory.report().is_some_and(|report| report.resident_bytes == 0) {
        if waits.elapsed() > NOTICED_MAX {
            return Err(LabError::NotNoticed { pages }.into());
        }
        interrupt::check(|| "waiting for pages to be noticed".into())?;
        errors += memory.touch(some(pages / 2).into_iter(), seed);
        touches += pages / 2;
        sleep(LOOK_MAX);
    }
    let (before, begin) = (evictions(pager), Instant::now());
    let (mut ns, mut evicted) = (0.0, 0);
    // Pages that the kernel brings in are noticed, and others evicted, a little later.
    while evicted < pages / 4 && begin.elapsed() < NOTICED_MAX {
        let touched = some(pages);
        let pass = Instant::now();
        errors += memory.touch(touched.iter().copied(), seed);
        ns += pass.elapsed().as_nanos() as f64;
        touches += pages;
        evicted = evictions(pager) - before;
    }
    Ok(Step::new("turnover", evicted, ns).checked(touches, errors))
}

/// Pages that were evicted so far.
fn evictions(pager: &Pager) -> u64 {
    let events = pager.stat().memory.events;
    let steal = events.iter().find(|(name, _)| *name == "pgsteal");
    steal.map_or(0, |(_, count)| count)
}

/// The numbers below `count` in random order.
fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut rng = SplitMix64::new(seed);
    let mut order: Vec<u64> = (0..count).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    order
}

/// Brings the whole file into the page cache, page by page: a part of a large folio could not be
/// dropped.
fn warm(file: &DataFile) -> Result<(), BenchError> {
    let failed = |source| BenchError::file("read", file.path(), source);
    let mut from = File::open(file.path()).map_err(failed)?;
    fadvise(&from, 0, None, Advice::Random).map_err(|error| failed(error.into()))?;
    let mut bytes = vec![0; WARM_BYTES];
    while from.read(&mut bytes).map_err(failed)? > 0 {}
    Ok(())
}

/// Waits until lowtide knows of all pages of its map.
fn noticed(memory: &Memory) -> Result<(), BenchError> {
    let begin = Instant::now();
    while let Some(report) = memory.report() {
        let missing = report.bytes.saturating_sub(report.resident_bytes);
        if missing == 0 {
            break;
        }
        if begin.elapsed() > NOTICED_MAX {
            return Err(LabError::NotNoticed { pages: missing / page_size() as u64 }.into());
        }
        interrupt::check(|| "waiting for pages to be noticed".into())?;
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Looks at pages that are known already. A page fault elsewhere makes the thread look, once: in
/// the time that is measured it only sleeps besides.
fn tick(watcher: &Watcher, pages: u64) -> Result<Option<Step>, BenchError> {
    let mut ns = 0.0;
    for _ in 0..LOOKS {
        interrupt::check(|| "measuring ticks".into())?;
        sleep(LOOK_MAX);
        let before = watcher.cpu_ns();
        fault_once();
        sleep(TICK_MAX);
        let Some(more) = watcher.since(before) else { return Ok(None) };
        ns += more;
    }
    Ok(Some(Step::new("tick", pages * u64::from(LOOKS), ns)))
}

/// Has a page fault.
fn fault_once() {
    let fresh = Mapping::new(page_size(), HugePages::Never);
    // An error is a page that cannot be had: that is a fault, too.
    drop(fresh.and_then(|fresh| fresh.populate(0..page_size())));
}

/// The thread that watches mappings of the kernel, as the system shows it.
struct Watcher {
    schedstat: std::path::PathBuf,
}

impl Watcher {
    /// The youngest one of this process; there is none where nothing is watched.
    fn find() -> Option<Self> {
        let tasks = fs::read_dir("/proc/self/task").ok()?;
        let named = |task: &fs::DirEntry| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == WATCHER)
        };
        let youngest = tasks
            .flatten()
            .filter(named)
            .max_by_key(|task| task.file_name().to_string_lossy().parse::<u64>().unwrap_or(0))?;
        Some(Self { schedstat: youngest.path().join("schedstat") })
    }

    /// Nanoseconds of processor time so far, if the kernel counts them.
    fn cpu_ns(&self) -> Option<u64> {
        fs::read_to_string(&self.schedstat).ok()?.split_whitespace().next()?.parse().ok()
    }

    fn since(&self, before: Option<u64>) -> Option<f64> {
        Some(self.cpu_ns()?.saturating_sub(before?) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_its_turn_once() {
        let order = shuffled(1000, 7);
        assert!(order.windows(2).any(|pair| pair[0] > pair[1]));
        let mut sorted = order;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
    }
}
