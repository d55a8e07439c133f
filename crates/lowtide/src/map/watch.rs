//! The thread that watches the kernel's mappings (`watched.rs`), and keeps their budget.
//!
//! Pages come in without our help, so the budget is a control loop:
//!
//! ```text
//!   look at the process's page faults, every tick   ──few──► sleep
//!            │ enough for 1/32 of the budget, or long ago
//!            ▼
//!   scan the page tables ──► charge each new page, which evicts another
//! ```
//!
//! **Overshoot.** Between two scans at most 1/32 of the smallest budget comes in unnoticed, and
//! what the device delivers in one tick and while the thread is at work. Up to 1/16 may be read
//! ahead and not touched yet, and 1/16 may be cached without being mapped. The thread ticks every
//! millisecond while pages come in, and more and more seldom while none do.
//!
//! **Cost.** A scan costs about 17 ns for each present page, so 0.5 µs for each new one; charging
//! and evicting cost 3 to 5 µs a page, most of it in the kernel.
//!
//! **Stores.** A dirty page cannot be dropped before the kernel has written it, and no thread is
//! slowed down for it here. So writing is started as soon as a sixteenth of the budget is dirty. A
//! program that stores faster than its device writes exceeds the budget by what is dirty, up to the
//! kernel's own limits for dirty pages.
//!
//! Pages may be cached without ever being mapped: by `read(2)`, or read ahead for another process.
//! When there are more cached pages than charged ones, those between the charged ones are dropped.

use super::pages::MappedPages;
use super::streams::Streams;
use super::watched::Watched;
use crate::fault::{Access, Miss};
use crate::high::Pay;
use crate::nested::Serving;
use crate::pool::Pool;
use crate::readahead::budget_of;
use crate::space::Space;
use crate::translation::State;
use crate::view::Open;
use lowtide_sys::page_cache::{cachestat, start_writing};
use lowtide_sys::userfault::{Features, Modes, Scope, UserFault};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks at the counters while pages come in.
const TICK: Duration = Duration::from_millis(1);
/// The longest time between two looks.
const TICK_MAX: Duration = Duration::from_millis(50);
/// Pages are noticed after this time, however few they are.
const SCAN_MAX: Duration = Duration::from_millis(100);
/// This part of the budget may come in between two scans.
const PART: u64 = 32;
/// Excess of cached pages over charged ones, as a part of the budget, that is dropped.
const EXCESS_PART: u64 = 16;
/// Time between two comparisons of cached and charged pages.
const SWEEP: Duration = Duration::from_millis(500);
/// The same, while a file has dirty pages.
const SWEEP_DIRTY: Duration = Duration::from_millis(50);
/// Pages that are dropped with one call, in a sweep.
const SWEEP_RUN: u64 = 1 << 18;

/// A file whose mappings are watched.
#[derive(Debug)]
pub(super) struct WatchedFile {
    pub(super) space: Arc<Space>,
    pub(super) watched: Arc<Watched>,
    /// Pages that were noticed to have come in.
    pub(super) admitted: AtomicU64,
    /// Where it is read in order. Only the thread uses it.
    pub(super) streams: Mutex<Streams>,
    /// Keeps the file open. Taken only on drop.
    pub(super) open: Option<Open>,
}

impl Drop for WatchedFile {
    /// The last mapping is gone: so are its pages, from the cache and from the engine.
    fn drop(&mut self) {
        self.watched.close();
        drop(self.open.take());
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// The files, which their mappings keep.
    files: Mutex<HashMap<u32, Weak<WatchedFile>>>,
    /// One thread takes a mapping over at a time.
    adopting: Mutex<()>,
    /// Makes the kernel map touched pages alone, where it may.
    exact: Option<UserFault>,
    stop: Mutex<bool>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Watcher {
    /// Starts the thread.
    ///
    /// # Errors
    /// That of `pthread_create(3)`.
    pub(crate) fn start(pool: &Arc<Pool>) -> std::io::Result<Arc<Self>> {
        let wanted = Features::WP | Features::WP_ASYNC;
        let exact = UserFault::open(Scope::Any, wanted).ok();
        let watcher = Arc::new(Self {
            exact: exact.filter(|faults| faults.features() == wanted),
            adopting: Mutex::default(),
            files: Mutex::default(),
            stop: Mutex::new(false),
            wake: Condvar::new(),
            thread: Mutex::default(),
        });
        let (this, pool) = (Arc::clone(&watcher), Arc::clone(pool));
        let thread = std::thread::Builder::new().name("lowtide-watch".to_owned());
        let thread = thread.spawn(move || this.run(&pool))?;
        *crate::sync::lock(&watcher.thread) = Some(thread);
        Ok(watcher)
    }

    /// While it lives, no other thread takes a mapping over.
    pub(super) fn adopting(&self) -> MutexGuard<'_, ()> {
        crate::sync::lock(&self.adopting)
    }

    /// Makes faults in a mapping bring in one page alone, and not its neighbours. Returns whether
    /// they do.
    pub(super) fn make_exact(&self, addresses: &Range<usize>) -> bool {
        let Some(faults) = &self.exact else { return false };
        // SAFETY: no page is ever protected with this descriptor, and write protection is answered
        // by the kernel: the memory works as before.
        #[expect(unsafe_code, reason = "registering memory lets a descriptor decide about it")]
        let registered = unsafe { faults.register(addresses.clone(), Modes::WRITE_PROTECT) };
        registered.is_ok()
    }

    /// Undoes [`Watcher::make_exact`], where memory is still registered.
    pub(super) fn make_coarse(&self, addresses: &Range<usize>) {
        if let Some(faults) = &self.exact
            && let Err(error) = faults.unregister(addresses.clone())
        {
            tracing::debug!(%error, "a mapping stays registered, or is gone");
        }
    }

    /// The watched file of a space that has the same file and pays from the same group.
    pub(super) fn find(&self, same: impl Fn(&Space) -> bool) -> Option<Arc<WatchedFile>> {
        let files = crate::sync::lock(&self.files);
        files.values().filter_map(Weak::upgrade).find(|file| same(&file.space))
    }

    pub(super) fn add(&self, file: &Arc<WatchedFile>) {
        crate::sync::lock(&self.files).insert(file.space.id.0, Arc::downgrade(file));
        self.wake.notify_all();
    }

    /// Makes the thread end, and returns it.
    pub(crate) fn close(&self) -> Option<JoinHandle<()>> {
        *crate::sync::lock(&self.stop) = true;
        self.wake.notify_all();
        crate::sync::lock(&self.thread).take()
    }

    fn files(&self) -> Vec<Arc<WatchedFile>> {
        let mut files = crate::sync::lock(&self.files);
        files.retain(|_, file| file.strong_count() > 0);
        files.values().filter_map(Weak::upgrade).collect()
    }

    fn run(&self, pool: &Pool) {
        let _serving = Serving::begin();
        let (mut tick, mut pause, mut faults) = (TICK, SWEEP, page_faults());
        let (mut unseen, mut scanned, mut swept) = (0, Instant::now(), Instant::now());
        loop {
            let stop = crate::sync::lock(&self.stop);
            let woken = self.wake.wait_timeout_while(stop, tick, |stop| !*stop);
            if *woken.unwrap_or_else(PoisonError::into_inner).0 || pool.is_poisoned() {
                return;
            }
            let now = page_faults();
            let new = now.saturating_sub(std::mem::replace(&mut faults, now));
            tick = if new > 0 { TICK } else { (tick * 2).min(TICK_MAX) };
            unseen += new;
            let mut enough = false;
            if new > 0 {
                let files = self.files();
                files.iter().for_each(|file| follow(pool, file));
                let budgets = files.iter().map(|file| budget_of(pool, &file.space));
                enough = budgets.min().is_some_and(|smallest| unseen >= smallest / PART);
            }
            if unseen > 0 && (enough || scanned.elapsed() >= SCAN_MAX) {
                self.files().iter().for_each(|file| notice(pool, file));
                (unseen, scanned) = (0, Instant::now());
            }
            if swept.elapsed() >= pause {
                let dirty = self.files().iter().filter(|file| sweep(pool, file)).count() > 0;
                pause = if dirty { SWEEP_DIRTY } else { SWEEP };
                swept = Instant::now();
            }
            // Paid without a sleep: this thread works for all tenants.
            if let Err(error) = pool.settle(Pay::Reclaim) {
                tracing::error!(%error, "the thread that watches maps cannot reclaim");
            }
        }
    }
}

/// Page faults of this process so far, with a read or without.
fn page_faults() -> u64 {
    let faults = lowtide_sys::pagemap::page_faults();
    faults.minor + faults.major
}

/// Charges the pages of a file that came in since the last look.
fn notice(pool: &Pool, file: &WatchedFile) {
    let mut present: Vec<Range<u64>> = Vec::new();
    if let Err(error) = file.watched.present(0..u64::MAX, &mut present) {
        tracing::error!(%error, "pages of a map cannot be seen");
    }
    let mut runs: Vec<Range<u64>> = Vec::new();
    for page in present.into_iter().flatten() {
        if admit(pool, file, page) {
            match runs.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
    }
    crate::sync::lock(&file.streams).came_in(&runs);
}

/// Charges what streams have touched, and reads ahead of them.
fn follow(pool: &Pool, file: &WatchedFile) {
    let mut streams = crate::sync::lock(&file.streams);
    let windows: Vec<_> = streams.ahead().collect();
    if windows.is_empty() {
        return;
    }
    let mut present = Vec::new();
    let reached: Vec<u64> = windows
        .into_iter()
        .map(|window| {
            present.clear();
            if let Err(error) = file.watched.present(window.clone(), &mut present) {
                tracing::error!(%error, "pages of a map cannot be seen");
            }
            let touched = present.iter().cloned().flatten();
            touched.fold(window.start, |reached, page| {
                admit(pool, file, page);
                reached.max(page + 1)
            })
        })
        .collect();
    let room = budget_of(pool, &file.space) / EXCESS_PART;
    streams.went_on(&reached, file.space.table.pages(), room, |window| {
        file.watched.prefetch(&window);
    });
}

/// Charges a page, and returns whether it is new. One that there is no room for is dropped.
fn admit(pool: &Pool, file: &WatchedFile, page: u64) -> bool {
    let space = &*file.space;
    let Some(entry) = space.table.get(page) else { return false };
    if !matches!(entry.load(), State::Absent { .. }) {
        return false;
    }
    let Miss::Claimed(mut claim) = pool.claim(space, page, entry) else { return false };
    match pool.frames_for(space, page, &mut claim, Access::Mapped) {
        Ok(Some((frame, stall))) => {
            file.watched.admitted(page);
            file.admitted.fetch_add(1, Relaxed);
            if entry.finish_read(frame, pool.young_faults) {
                pool.waits.complete(entry, &Ok(()));
            }
            pool.stall_ends(stall, pool.page_bytes() as u64);
        }
        Ok(None) => {}
        Err(_) => file.watched.release(page..page + 1),
    }
    true
}

/// Drops pages that are cached and not charged, if there are many, and has those written that are
/// dirty. Returns whether some are.
fn sweep(pool: &Pool, file: &WatchedFile) -> bool {
    let table = &file.space.table;
    let Ok(stat) = cachestat(file.watched.file(), 0, 0) else { return false };
    let dirty = stat.dirty + stat.writeback > 0;
    let part = budget_of(pool, &file.space) / EXCESS_PART;
    if stat.dirty > part
        && let Err(error) = start_writing(file.watched.file())
    {
        tracing::debug!(%error, "dirty pages wait for the kernel's flusher");
    }
    let charged = table.resident();
    let ahead = crate::sync::lock(&file.streams).waiting();
    if stat.cached <= charged + ahead + part {
        return dirty;
    }
    let pages = table.pages();
    let mut from = 0;
    while from < pages {
        let end = (from + SWEEP_RUN).min(pages);
        let known = |page: &u64| !matches!(table.entry(*page).load(), State::Absent { .. });
        let gap = (from..end).find(known).unwrap_or(end);
        if gap > from && file.watched.drop_cached(from..gap).is_err() {
            return dirty;
        }
        from = (gap..end).find(|page| !known(page)).unwrap_or(end);
    }
    dirty
}
