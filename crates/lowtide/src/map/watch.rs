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
//! without a charge for a moment (`sweep.rs`, in another thread). What is read ahead is charged
//! before it is read. The thread ticks every millisecond while pages come in, twice as often while
//! a file is read in order, and more and more seldom while none do.
//!
//! **Cost.** A scan costs about 17 ns for each present page; the time between two scans is at least
//! 50 times what the last one took, unless a part of the budget has come in, or the last one found
//! a place that was read in order too late to read ahead of it: then it is 4 times that. Charging
//! and evicting cost 1 to 5 µs a page, most of it in the kernel, and least where neighbours come
//! and go together.
//!
//! **Stores.** A dirty page cannot be dropped before the kernel has written it, and no thread is
//! slowed down for it here. A program that stores faster than its device writes exceeds the budget
//! by what is dirty, up to the kernel's own limits for dirty pages.
//!
//! Pages may be cached without a charge: `sweep.rs`. Pages of reads that are noted are charged as
//! those of mappings are (`run/noted.rs`).

use super::noticed::{TOGETHER, WatchedFile, admit, charge_step, note_first_use, notice};
use super::run::noted::{Hands, Taking};
use super::streams::{AHEAD_PART, Bounds, HANDED};
use crate::ahead::readahead::budget_of;
use crate::fault::Access;
use crate::fault::nested::Serving;
use crate::pool::Pool;
use crate::pool::high::Pay;
use crate::pool::service::Service;
use crate::space::Space;
use lowtide_pin::translation::{Entry, State};
use lowtide_sys::room::{self, Own};
use lowtide_sys::schedule::take_turns_of;
use lowtide_sys::tell;
use lowtide_sys::userfault::{Features, Modes, Scope, UserFault};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
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
/// A scan costs little when this number of times what the last one took has gone by.
const SELDOM: u32 = 50;
/// The same after a scan that came too late for a place where a file was read in order: of small
/// files each would be gone through before the next one.
const OFTEN: u32 = 4;
/// Pages of a window that are looked at together.
const LOOK_STEP: u64 = 256;
/// The thread's turns: the shortest that there are. Readers wait for it.
const TURN: Duration = Duration::from_micros(100);
/// Wishes of a file that are remembered: more than a thread grants in a turn would come late.
const WISHES: usize = 16;

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
    taking_over: Mutex<()>,
    /// Makes the kernel map touched pages alone, where it may.
    exact: Option<Own<UserFault>>,
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
        let exact = Own::make(|| UserFault::open(Scope::Any, wanted)).ok();
        let watcher = Arc::new(Self {
            exact: exact.filter(|faults| faults.fact(UserFault::features) == wanted),
            taking_over: Mutex::default(),
            files: Mutex::default(),
            orders: Mutex::default(),
            wake: Condvar::new(),
            thread: Mutex::default(),
        });
        let (this, pool) = (Arc::clone(&watcher), Arc::clone(pool));
        let thread = room::spawn("lowtide-watch", move || this.run(&pool))?;
        *lowtide_pin::sync::lock(&watcher.thread) = Some(thread);
        Ok(watcher)
    }

    /// While it lives, no other thread takes a mapping over.
    pub(super) fn one_at_a_time(&self) -> MutexGuard<'_, ()> {
        lowtide_pin::sync::lock(&self.taking_over)
    }

    /// Makes faults in a mapping bring in one page alone, and not its neighbours. Returns whether
    /// they do.
    pub(super) fn make_exact(&self, addresses: &Range<usize>) -> bool {
        let Some(faults) = &self.exact else { return false };
        // SAFETY: no page is ever protected with this descriptor, and write protection is answered
        // by the kernel: the memory works as before.
        #[expect(unsafe_code, reason = "registering memory lets a descriptor decide about it")]
        let register = |faults: &UserFault| unsafe {
            faults.register(addresses.clone(), Modes::WRITE_PROTECT)
        };
        faults.with(register).is_ok()
    }

    /// Undoes [`Watcher::make_exact`], where memory is still registered.
    pub(super) fn make_coarse(&self, addresses: &Range<usize>) {
        if let Some(faults) = &self.exact
            && let Err(error) = faults.with(|faults| faults.unregister(addresses.clone()))
        {
            tell!(debug, %error, "a mapping stays registered, or is gone");
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

    /// Sees how far streams have come, and reads ahead of them. Returns whether one goes on.
    fn follow(&self, pool: &Pool, file: &WatchedFile) -> bool {
        let mut streams = lowtide_pin::sync::lock(&file.streams);
        let windows: Vec<_> = streams.ahead().collect();
        let reached: Vec<u64> =
            windows.into_iter().map(|window| reached(pool, file, window)).collect();
        if !reached.is_empty() {
            let budget = budget_of(pool, &file.space);
            // Streams of several processes that follow each other have one window of the kernel's.
            let (company, exchange) = (&file.watched.company, pool.exchange.get());
            let together = 1 + company.say_windows(exchange, streams.windows(), budget);
            let room = (budget * together / AHEAD_PART).min(budget / 4);
            let may_hand = file.kernel_ahead() <= budget * together / AHEAD_PART / 4;
            let bounds = Bounds {
                pages: file.space.table.pages(),
                room,
                handed: if may_hand { room / 2 } else { 0 },
                wasted: file.space.wasted_pages.load(Relaxed),
            };
            streams.went_on(&reached, bounds, |window| {
                file.came.run(&window, pool, &file.space);
                if may_hand && window.end - window.start >= HANDED {
                    self.hand_over(pool, file, window)
                } else {
                    read_ahead(pool, file, window)
                }
            });
        }
        file.watched.take_back(|handed| streams.within(handed), |at| _ = self.make_exact(at));
        streams.are_going()
    }

    /// Charges pages that the kernel is to read ahead. Returns the page up to which that was done.
    fn hand_over(&self, pool: &Pool, file: &WatchedFile, window: Range<u64>) -> u64 {
        let charged = window.start..charge_ahead(pool, file, window, |_| ());
        let spare = HANDED.max(2 * file.kernel_ahead());
        let end = (charged.end + spare).min(file.space.table.pages());
        let make_coarse = |at: &Range<usize>| self.make_coarse(at);
        if !charged.is_empty() && !file.watched.hand_over(charged.start..end, make_coarse) {
            file.watched.prefetch(&charged);
        }
        charged.end
    }

    fn run(&self, pool: &Pool) {
        let _serving = Serving::begin();
        drop(take_turns_of(TURN));
        let (mut tick, mut faults, mut unseen) = (TICK, page_faults(), 0);
        let (mut scanned, mut took, mut seldom) = (Instant::now(), Duration::ZERO, SELDOM);
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
            let mut enough = unseen >= FEW && scanned.elapsed() >= took * seldom;
            if new > 0 {
                let files = self.files();
                if files.iter().filter(|file| self.follow(pool, file)).count() > 0 {
                    tick = TICK_STREAM;
                }
                let budgets = files.iter().map(|file| budget_of(pool, &file.space));
                enough |= budgets.min().is_some_and(|smallest| unseen >= smallest / PART);
            }
            if unseen > 0 && (enough || scanned.elapsed() >= SCAN_MAX) {
                let began = Instant::now();
                let late = self.files().iter().filter(|file| notice(pool, file)).count() > 0;
                (unseen, scanned, took) = (0, Instant::now(), began.elapsed());
                seldom = if late { OFTEN } else { (seldom * 2).min(SELDOM) };
            }
            // Paid without a sleep: this thread works for all tenants.
            if let Err(error) = pool.settle(Pay::Reclaim) {
                tell!(error, %error, "the thread that watches maps cannot reclaim");
            }
        }
    }
}

/// Page faults of this process so far, with a read or without.
fn page_faults() -> u64 {
    let faults = lowtide_sys::pagemap::page_faults();
    faults.minor + faults.major
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
/// Looks at no more than what was touched and a step: most of a window is not, mostly. What is
/// handed to the kernel is looked at as a whole: of what was touched, parts may have been taken out
/// of the page table again, each with all pages of a folio. Beyond a gap only pages count that have
/// come in since: others may be there from before.
fn reached(pool: &Pool, file: &WatchedFile, window: Range<u64>) -> u64 {
    let (mut reached, mut present) = (window.start, Vec::new());
    let handed = file.watched.handed(window.start);
    let end = window.end.max(handed);
    for first in (window.start..end).step_by(LOOK_STEP as usize) {
        let step = first..(first + LOOK_STEP).min(end);
        if let Err(error) = file.watched.present(step, &mut present) {
            tell!(error, %error, "pages of a map cannot be seen");
        }
        if present.is_empty() && first >= handed {
            break;
        }
        for pages in present.drain(..) {
            let last = || pages.clone().rev().find(|page| came_in(pool, file, *page));
            let end =
                if pages.start <= reached { pages.end } else { last().map_or(0, |page| page + 1) };
            reached = reached.max(end);
            admit(pool, file, pages, |_| ());
        }
    }
    (window.start..reached.min(handed)).for_each(|page| note_first_use(pool, file, page));
    reached
}

/// Whether a page that is mapped was not there before it was read ahead of a stream.
fn came_in(pool: &Pool, file: &WatchedFile, page: u64) -> bool {
    match file.space.table.get(page).map(Entry::load) {
        Some(State::Absent { .. }) => true,
        Some(State::Resident { frame, .. }) => pool.unused.is_set(frame),
        _ => false,
    }
}

/// Charges pages that nothing has touched yet, as far as there is room, and has the kernel read
/// them. Returns the page up to which that was done.
fn read_ahead(pool: &Pool, file: &WatchedFile, window: Range<u64>) -> u64 {
    charge_ahead(pool, file, window, |pages| file.watched.prefetch(pages))
}

/// Has the kernel read what was in memory before a restart.
pub(super) fn read_runs(pool: &Pool, file: &Weak<WatchedFile>, runs: &[Range<u64>]) {
    if let Some(file) = file.upgrade() {
        // The mapping may be of a part of the file.
        let pages = file.space.table.pages();
        let within = runs.iter().map(|run| run.start..run.end.min(pages));
        within.for_each(|run| _ = read_ahead(pool, &file, run));
    }
}

/// Charges pages that nothing has touched yet, as far as there is room, and requests them step by
/// step. Returns the page up to which that was done.
fn charge_ahead(
    pool: &Pool,
    file: &WatchedFile,
    window: Range<u64>,
    request: impl Fn(&Range<u64>),
) -> u64 {
    let mut at = window.start;
    while at < window.end {
        let end = (at + TOGETHER).min(window.end);
        let done = charge_step(pool, file, at..end, Access::Ahead, |pages| request(&pages));
        if done < end {
            return done;
        }
        at = end;
    }
    at
}

/// Takes what was noted of reads of a file.
fn take(pool: &Pool, file: &WatchedFile) {
    let charge = |pages| charge_step(pool, file, pages, Access::Descriptor, drop);
    let read_ahead = |pages| read_ahead(pool, file, pages);
    let hands = Hands { charge: &charge, read_ahead: &read_ahead };
    Taking { pool, space: &file.space, watched: &file.watched, hands }.take(&file.noted);
}
