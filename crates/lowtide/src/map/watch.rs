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
//! what the device delivers in one tick and while the thread is at work. Up to 1/16 may be cached
//! without being mapped. What is read ahead is charged before it is read. The thread ticks every
//! millisecond while pages come in, twice as often while a file is read in order, and more and more
//! seldom while none do.
//!
//! **Cost.** A scan costs about 17 ns for each present page; the time between two scans is at least
//! 50 times what the last one took, unless a part of the budget has come in. Charging and evicting
//! cost 1 to 5 µs a page, most of it in the kernel, and least where neighbours come and go
//! together.
//!
//! **Stores.** A dirty page cannot be dropped before the kernel has written it, and no thread is
//! slowed down for it here. So writing is started as soon as a sixteenth of the budget is dirty. A
//! program that stores faster than its device writes exceeds the budget by what is dirty, up to the
//! kernel's own limits for dirty pages.
//!
//! Pages may be cached without ever being mapped: by `read(2)`, or read ahead for another process.
//! When there are more cached pages than charged ones, those between the charged ones are dropped.
//! That is looked at for at most a fiftieth of the time, or a third while files are read faster
//! than their pages are noticed. Pages of reads that are noted are charged as those of mappings are
//! (`noted.rs`).

use super::noted::{Hands, Noted, Taking};
use super::pages::MappedPages;
use super::streams::{AHEAD_PART, Bounds, Streams};
use super::watched::Watched;
use crate::ahead::marks::Ahead;
use crate::ahead::readahead::{budget_of, note_ahead};
use crate::fault::nested::{Nested, Serving};
use crate::fault::{Access, Claim, Miss};
use crate::pool::Pool;
use crate::pool::high::Pay;
use crate::pool::payer::{Effort, Payer};
use crate::pool::service::Service;
use crate::space::Space;
use crate::view::Open;
use lowtide_pin::translation::State;
use lowtide_sys::page_cache::{CacheStat, cached_pages, cachestat, start_writing};
use lowtide_sys::schedule::take_turns_of;
use lowtide_sys::userfault::{Features, Modes, Scope, UserFault};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks at the counters while pages come in.
const TICK: Duration = Duration::from_millis(1);
/// The same while a file is read in order.
const TICK_STREAM: Duration = Duration::from_micros(500);
/// The longest time between two looks.
const TICK_MAX: Duration = Duration::from_millis(50);
/// Pages are noticed after this time, however few they are.
const SCAN_MAX: Duration = Duration::from_millis(100);
/// This part of the budget may come in between two scans.
const PART: u64 = 32;
/// Page faults that are worth a scan that costs little.
const FEW: u64 = 32;
/// A scan costs little, and a comparison is due, when this number of times what the last one took
/// has gone by.
const SELDOM: u32 = 50;
/// The same of a comparison, while more of a file is read than is noted in time.
const SELDOM_EXCESS: u32 = 2;
/// Excess of cached pages over charged ones, as a part of the budget, that is dropped.
const EXCESS_PART: u64 = 16;
/// Pages of a window that are charged, and then requested, at a time: the device reads some while
/// others are evicted for the next.
const AHEAD_STEP: u64 = 64;
/// Pages of a window that are looked at together.
const LOOK_STEP: u64 = 256;
/// The thread's turns: the shortest that there are. Readers wait for it.
const TURN: Duration = Duration::from_micros(100);
/// Time between two comparisons of cached and charged pages while their number changes.
const SWEEP: Duration = Duration::from_millis(10);
/// The same, while it does not.
const SWEEP_MAX: Duration = Duration::from_millis(500);
/// The longest time while a file has dirty pages.
const SWEEP_DIRTY: Duration = Duration::from_millis(50);
/// The longest time that a sweep takes of a file.
const SWEEP_TIME: Duration = Duration::from_millis(2);
/// Wishes of a file that are remembered: more than a thread grants in a turn would come late.
const WISHES: usize = 16;
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
    /// The page with which the next sweep begins.
    pub(super) swept: AtomicU64,
    /// What is read of it through descriptors.
    pub(super) noted: Noted,
    /// Pages that the program will need soon.
    pub(super) wishes: Mutex<Vec<Range<u64>>>,
    /// Keeps the file open. Taken only on drop.
    pub(super) open: Option<Open>,
}

impl Drop for WatchedFile {
    /// The last mapping is gone: so are its pages, from the cache and from the engine.
    fn drop(&mut self) {
        self.watched.close();
        drop(self.open.take());
        self.watched.end();
    }
}

/// What other threads want of the thread.
#[derive(Debug, Default)]
struct Orders {
    /// That it ends.
    stop: bool,
    /// That it takes what was noted of reads.
    noted: bool,
    /// That it reads what is wished for.
    wished: bool,
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
    orders: Mutex<Orders>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Service for Watcher {
    fn close(&self) -> Vec<JoinHandle<()>> {
        lowtide_pin::sync::lock(&self.orders).stop = true;
        self.wake.notify_all();
        lowtide_pin::sync::lock(&self.thread).take().into_iter().collect()
    }
}

impl Watcher {
    /// Starts the thread.
    ///
    /// # Errors
    /// That of `pthread_create(3)`.
    pub(crate) fn start(pool: &Arc<Pool>) -> io::Result<Arc<Self>> {
        let wanted = Features::WP | Features::WP_ASYNC;
        let exact = UserFault::open(Scope::Any, wanted).ok();
        let watcher = Arc::new(Self {
            exact: exact.filter(|faults| faults.features() == wanted),
            adopting: Mutex::default(),
            files: Mutex::default(),
            orders: Mutex::default(),
            wake: Condvar::new(),
            thread: Mutex::default(),
        });
        let (this, pool) = (Arc::clone(&watcher), Arc::clone(pool));
        let thread = std::thread::Builder::new().name("lowtide-watch".to_owned());
        let thread = thread.spawn(move || this.run(&pool))?;
        *lowtide_pin::sync::lock(&watcher.thread) = Some(thread);
        Ok(watcher)
    }

    /// While it lives, no other thread takes a mapping over.
    pub(super) fn adopting(&self) -> MutexGuard<'_, ()> {
        lowtide_pin::sync::lock(&self.adopting)
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
        let files = lowtide_pin::sync::lock(&self.files);
        files.values().filter_map(Weak::upgrade).find(|file| same(&file.space))
    }

    pub(super) fn add(&self, file: &Arc<WatchedFile>) {
        lowtide_pin::sync::lock(&self.files).insert(file.space.id.0, Arc::downgrade(file));
        self.wake.notify_all();
    }

    /// Makes the thread take what was noted of reads.
    pub(super) fn noted(&self) {
        lowtide_pin::sync::lock(&self.orders).noted = true;
        self.wake.notify_all();
    }

    /// Has the thread read pages of a file soon, as far as there is room.
    pub(super) fn will_need(&self, file: &WatchedFile, pages: Range<u64>) {
        let mut wishes = lowtide_pin::sync::lock(&file.wishes);
        if wishes.len() < WISHES {
            wishes.push(pages);
        }
        drop(wishes);
        lowtide_pin::sync::lock(&self.orders).wished = true;
        self.wake.notify_all();
    }

    fn files(&self) -> Vec<Arc<WatchedFile>> {
        let mut files = lowtide_pin::sync::lock(&self.files);
        files.retain(|_, file| file.strong_count() > 0);
        files.values().filter_map(Weak::upgrade).collect()
    }

    fn run(&self, pool: &Pool) {
        let _serving = Serving::begin();
        drop(take_turns_of(TURN));
        let (mut tick, mut faults, mut unseen) = (TICK, page_faults(), 0);
        let (mut scanned, mut took) = (Instant::now(), Duration::ZERO);
        let mut sweeps = Sweeps::new();
        loop {
            let orders = lowtide_pin::sync::lock(&self.orders);
            let idle = |orders: &mut Orders| !orders.stop && !orders.noted && !orders.wished;
            let woken = self.wake.wait_timeout_while(orders, tick, idle);
            let Orders { stop, noted, wished } =
                std::mem::take(&mut *woken.unwrap_or_else(PoisonError::into_inner).0);
            if stop || pool.is_poisoned() {
                return;
            }
            if noted {
                self.files().iter().for_each(|file| take(pool, file));
            }
            if wished {
                self.files().iter().for_each(|file| grant(pool, file));
            }
            let now = page_faults();
            let new = now.saturating_sub(std::mem::replace(&mut faults, now));
            tick = if new > 0 || noted { TICK } else { (tick * 2).min(TICK_MAX) };
            unseen += new;
            let mut enough = unseen >= FEW && scanned.elapsed() >= took * SELDOM;
            if new > 0 {
                let files = self.files();
                if files.iter().filter(|file| follow(pool, file)).count() > 0 {
                    tick = TICK_STREAM;
                }
                let budgets = files.iter().map(|file| budget_of(pool, &file.space));
                enough |= budgets.min().is_some_and(|smallest| unseen >= smallest / PART);
            }
            if unseen > 0 && (enough || scanned.elapsed() >= SCAN_MAX) {
                let began = Instant::now();
                self.files().iter().for_each(|file| notice(pool, file));
                (unseen, scanned, took) = (0, Instant::now(), began.elapsed());
            }
            sweeps.tick(pool, || self.files());
            // Paid without a sleep: this thread works for all tenants.
            if let Err(error) = pool.settle(Pay::Reclaim) {
                tracing::error!(%error, "the thread that watches maps cannot reclaim");
            }
        }
    }
}

/// When cached and charged pages are compared.
#[derive(Debug)]
struct Sweeps {
    last: Instant,
    pause: Duration,
    /// Pages that were cached.
    cached: u64,
}

impl Sweeps {
    fn new() -> Self {
        Self { last: Instant::now(), pause: SWEEP, cached: 0 }
    }

    /// Compares, if it is time.
    fn tick(&mut self, pool: &Pool, files: impl FnOnce() -> Vec<Arc<WatchedFile>>) {
        if self.last.elapsed() < self.pause {
            return;
        }
        let (began, mut cached, mut dirty) = (Instant::now(), 0, false);
        let (files, mut excess) = (files(), false);
        // Of files that are read all may have an excess at a time.
        let readers = files.iter().filter(|file| file.noted.is_read()).count().max(1) as u64;
        for file in files {
            let part = EXCESS_PART * if file.noted.is_read() { readers } else { 1 };
            let (found, dropped) = sweep(&file, budget_of(pool, &file.space) / part);
            cached += found.cached;
            dirty |= found.dirty + found.writeback > 0;
            excess |= dropped && file.noted.is_read();
        }
        let changed = cached != std::mem::replace(&mut self.cached, cached);
        let longest = if dirty { SWEEP_DIRTY } else { SWEEP_MAX };
        let pause = if changed { SWEEP } else { (self.pause * 2).min(longest) };
        // What is read comes as fast as the device, and without a fault that would be seen.
        let seldom = if excess { SELDOM_EXCESS } else { SELDOM };
        self.pause = pause.max(began.elapsed() * seldom);
        self.last = Instant::now();
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
    lowtide_pin::sync::lock(&file.streams).came_in(&runs);
}

/// Sees how far streams have come, and reads ahead of them. Returns whether one goes on.
fn follow(pool: &Pool, file: &WatchedFile) -> bool {
    let mut streams = lowtide_pin::sync::lock(&file.streams);
    let windows: Vec<_> = streams.ahead().collect();
    if windows.is_empty() {
        return false;
    }
    let reached: Vec<u64> = windows.into_iter().map(|window| reached(pool, file, window)).collect();
    let bounds = Bounds {
        pages: file.space.table.pages(),
        room: budget_of(pool, &file.space) / AHEAD_PART,
        wasted: file.space.ahead_wasted.load(Relaxed),
    };
    streams.went_on(&reached, bounds, |window| read_ahead(pool, file, window));
    streams.are_going()
}

/// Reads what the program has said that it will need, as much of it as a stream may have ahead.
fn grant(pool: &Pool, file: &WatchedFile) {
    let wishes = std::mem::take(&mut *lowtide_pin::sync::lock(&file.wishes));
    let mut room = budget_of(pool, &file.space) / AHEAD_PART;
    for wish in wishes {
        let window = wish.start..wish.end.min(wish.start + room).min(file.space.table.pages());
        room -= window.end.saturating_sub(window.start);
        read_ahead(pool, file, window);
    }
}

/// The page up to which a window was touched. What was not read ahead is charged.
///
/// Looks at no more than what was touched and a step: most of a window is not, mostly.
fn reached(pool: &Pool, file: &WatchedFile, window: Range<u64>) -> u64 {
    let (mut reached, mut present) = (window.start, Vec::new());
    for first in window.clone().step_by(LOOK_STEP as usize) {
        present.clear();
        let step = first..(first + LOOK_STEP).min(window.end);
        if let Err(error) = file.watched.present(step, &mut present) {
            tracing::error!(%error, "pages of a map cannot be seen");
        }
        if present.is_empty() {
            break;
        }
        for page in present.iter().cloned().flatten() {
            admit(pool, file, page);
            reached = reached.max(page + 1);
        }
    }
    reached
}

/// Charges pages that nothing has touched yet, as far as there is room, and has the kernel read
/// them. Returns the page up to which that was done.
fn read_ahead(pool: &Pool, file: &WatchedFile, window: Range<u64>) -> u64 {
    let mut at = window.start;
    while at < window.end {
        let end = (at + AHEAD_STEP).min(window.end);
        let done = read_step_ahead(pool, file, at..end);
        if done < end {
            return done;
        }
        at = end;
    }
    at
}

fn read_step_ahead(pool: &Pool, file: &WatchedFile, window: Range<u64>) -> u64 {
    charge_step(pool, file, window, Access::Ahead, |pages| file.watched.prefetch(&pages))
}

/// Charges those of some pages that are absent, as far as there is room, and then calls `arrive`
/// with the pages up to there, whose end it returns.
fn charge_step(
    pool: &Pool,
    file: &WatchedFile,
    window: Range<u64>,
    access: Access,
    arrive: impl FnOnce(Range<u64>),
) -> u64 {
    let _nested = Nested::begin();
    let space = &*file.space;
    let claim = |page: u64| match pool.claim(space, page, space.table.get(page)?) {
        Miss::Claimed(claim) => Some(claim),
        Miss::Resident(..) | Miss::Busy(_) => None,
    };
    let claims: Vec<Claim> = window.clone().filter_map(claim).collect();
    let mut charged = Vec::with_capacity(claims.len());
    let mut state = pool.lock();
    for claim in &claims {
        let result;
        (state, result) =
            pool.charge(state, Payer::Space(space.id), 1, access.task(), Effort::Reclaim);
        let Ok(group) = result else { break };
        let new = claim.new_folio(space, access);
        let Some(placed) = pool.place(&mut state, space, &new, group) else { break };
        charged.push(placed);
    }
    drop(state);
    let rest = &claims[charged.len()..];
    rest.iter().for_each(|claim| pool.abandon(space, claim, &Ok(())));
    let end = rest.first().map_or(window.end, |claim| claim.page);
    arrive(window.start..end);
    for (claim, (frame, stall)) in claims.iter().zip(charged) {
        if access == Access::Ahead {
            note_ahead(pool, frame..frame + 1, Some(Ahead::Seen));
        } else {
            file.admitted.fetch_add(1, Relaxed);
        }
        let entry = space.table.entry(claim.page);
        if entry.finish_read(frame, false) {
            pool.waits.complete(entry, &Ok(()));
        }
        let bytes = pool.page_bytes() as u64;
        match access {
            Access::Ahead => pool.stall_ends(stall, bytes),
            _ => pool.unseen_stall_ends(stall, bytes),
        }
    }
    end
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
            pool.unseen_stall_ends(stall, pool.page_bytes() as u64);
        }
        Ok(None) => {}
        Err(_) => file.watched.release(page..page + 1),
    }
    true
}

/// What is cached of a file, and dirty. Before Linux 6.5 no call says how much is dirty: all that
/// is cached may be.
fn cached_of(file: &File) -> io::Result<CacheStat> {
    cachestat(file, 0, 0).or_else(|_| {
        let cached = cached_pages(file)?;
        Ok(CacheStat { cached, dirty: cached, ..CacheStat::default() })
    })
}

/// Drops pages that are cached and not charged, if there are many, and has those written that are
/// dirty: more than `part`. Returns what was cached, and whether any were dropped.
fn sweep(file: &WatchedFile, part: u64) -> (CacheStat, bool) {
    let table = &file.space.table;
    let Ok(stat) = cached_of(file.watched.file()) else { return (CacheStat::default(), false) };
    if stat.dirty > part
        && let Err(error) = start_writing(file.watched.file())
    {
        tracing::debug!(%error, "dirty pages wait for the kernel's flusher");
    }
    if stat.cached <= table.resident() + part {
        return (stat, false);
    }
    drop_gaps(file);
    if file.noted.is_read() {
        drop_folios(file, table.resident() + part);
    }
    (stat, true)
}

/// Takes what was noted of reads of a file.
fn take(pool: &Pool, file: &WatchedFile) {
    let charge = |pages| charge_step(pool, file, pages, Access::Descriptor, drop);
    let read_ahead = |pages| read_ahead(pool, file, pages);
    let hands = Hands { charge: &charge, read_ahead: &read_ahead };
    Taking { pool, space: &file.space, watched: &file.watched, hands }.take(&file.noted);
}

/// Drops all that is cached of a file, if more than this number of pages is that could go: folios
/// that are charged in part.
fn drop_folios(file: &WatchedFile, most: u64) {
    let Ok(stat) = cached_of(file.watched.file()) else { return };
    if stat.cached.saturating_sub(stat.dirty + stat.writeback) > most
        && let Err(error) = file.watched.drop_cached(0..0)
    {
        tracing::debug!(%error, "pages of a file stay cached");
    }
}

/// Drops what is cached between charged pages. Goes on where it ended the last time, for a moment:
/// there may be as many gaps as pages, and one with pages that other processes map takes half a
/// millisecond where all processors are busy.
fn drop_gaps(file: &WatchedFile) {
    let (table, began) = (&file.space.table, Instant::now());
    let pages = table.pages();
    let mut from = file.swept.swap(0, Relaxed);
    while from < pages {
        if began.elapsed() >= SWEEP_TIME {
            file.swept.store(from, Relaxed);
            return;
        }
        let end = (from + SWEEP_RUN).min(pages);
        let known = |page: &u64| !matches!(table.entry(*page).load(), State::Absent { .. });
        let gap = (from..end).find(known).unwrap_or(end);
        if gap > from && file.watched.drop_cached(from..gap).is_err() {
            return;
        }
        from = (gap..end).find(|page| !known(page)).unwrap_or(end);
    }
}
