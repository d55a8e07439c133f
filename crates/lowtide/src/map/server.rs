//! The threads that serve the page faults of maps.
//!
//! One descriptor of `userfaultfd(2)` for each pager. A thread takes the faults that wait, up to a
//! batch, sorts them by file and page, and brings the pages in as `get_many` does: neighbours
//! together, reads overlapping. A fault of a page that is there by now only has to be woken.
//!
//! A thread that stores to a page for the first time waits, too, until the page is dirty
//! (`stores.rs`), and longer if its map makes more dirty than may be.
//!
//! A page that cannot be brought in is *poisoned*: the thread that touches it gets `SIGBUS`, as
//! from a map of the kernel, and the error is in [`Map::error`](super::Map::error).
//!
//! Pages of heaps come from swap, those that are touched in order or in blocks together
//! (`anon/together.rs`): the thread that took a fault answers it first, and brings the rest of the
//! window then. A store that waits there came to a page that was on its way to swap (`heap.rs`).
//!
//! A server thread works for all tenants. So it never sleeps for one that is over its `high`: it
//! evicts, and the sleep is let off.

use super::mirror::{Mirror, forget_installed, has_installed, will_answer};
use super::on_error::OnError;
use super::pages::MappedPages;
use super::run::manner::Counted;
use super::stores::{Storing, begin_store};
use crate::ahead::readahead::ReadAhead;
use crate::anon::{self, StoresInOrder};
use crate::error::Error;
use crate::fault::Access;
use crate::fault::nested::Serving;
use crate::pool::Pool;
use crate::pool::high::Pay;
use crate::pool::service::Service;
use crate::space::Space;
use crate::thread_locals;
use crate::view::Open;
use crate::writeback;
use lowtide_io::Deadline;
use lowtide_pin::translation::{Entry, State};
use lowtide_sys::room::Own;
use lowtide_sys::tell;
use lowtide_sys::userfault::{CopyError, Event, Features, Modes, Scope, UserFault};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Faults that a thread takes at a time.
const BATCH: usize = 32;
/// Threads that serve. One batch overlaps its reads, so a few keep a device busy; further ones are
/// for devices that are slower than others.
const THREADS: usize = 4;
/// Of these, how many bring in pages of heaps that no thread waits for, at most.
const AHEAD: usize = THREADS / 2;
/// Pages of a window of a heap that come in together: one request, and one batch of reclaim.
const PART: u64 = 64;
/// How long dropping a map waits for the threads that serve it. A device that hangs keeps them, and
/// on a machine with more work than processors they may wait for one.
pub(super) const LET_GO: Duration = Duration::from_secs(5);
/// Time between two looks whether they are done.
pub(super) const LOOK: Duration = Duration::from_micros(20);

/// A map whose faults are served.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) space: Arc<Space>,
    pub(super) mirror: Arc<Mirror>,
    /// The first page that could not be brought in, and why.
    pub(super) error: Mutex<Option<Error>>,
    /// What the program wants to do about each.
    pub(super) on_error: Option<OnError>,
    /// Faults that were served.
    pub(super) faults: AtomicU64,
    /// In which manner pages came in.
    pub(super) came: Counted,
    /// What is read in order is read ahead.
    pub(super) ahead: ReadAhead,
    /// What its stores have to answer for.
    pub(super) storing: Storing,
    /// Where stores to a heap come in order.
    pub(super) in_order: StoresInOrder,
    /// The failures of writes that the handle knows of.
    pub(super) cursor: AtomicU64,
    /// Keeps the file open. Taken only on drop.
    pub(super) open: Option<Open>,
    /// Keeps the pages of a heap, which has no file. Taken only on drop.
    pub(super) region: Option<anon::Open>,
}

impl Served {
    /// Waits a moment for the threads that serve it, which may be busy with faults of it that were
    /// answered. The last of them closes it otherwise.
    pub(super) fn await_threads(self: &Arc<Self>) {
        let deadline = Deadline::after(LET_GO);
        while Arc::strong_count(self) > 1 && !deadline.has_passed() {
            std::thread::sleep(LOOK);
        }
    }

    /// Makes durable what was stored to these pages before the call.
    pub(super) fn flush(&self, pages: Range<u64>) -> Result<(), Error> {
        match &self.open {
            Some(open) => writeback::flush(open.pool(), &self.space, pages, &self.cursor),
            None => Ok(()),
        }
    }

    /// Has these pages written soon; where no thread does that, now.
    pub(super) fn start_flush(&self, pages: Range<u64>) -> Result<(), Error> {
        match (&self.open, self.space.device.get()) {
            (Some(open), Some(device)) if open.pool().background => {
                device.request(&self.space, pages);
                Ok(())
            }
            _ => self.flush(pages),
        }
    }
}

impl Drop for Served {
    /// The map is gone, and no thread serves it any more.
    fn drop(&mut self) {
        if self.mirror.is_stored_to() && !self.mirror.is_heap() {
            // What was stored is written first, and the memory goes with the file.
            self.mirror.detach();
            if let Some(open) = &self.open {
                self.storing.leave(open.pool());
            }
        } else {
            self.mirror.close();
        }
        // Now the frames are free in the engine's eyes, too.
        drop(self.open.take());
        drop(self.region.take());
    }
}

/// A page that a thread waits for.
#[derive(Clone, Debug)]
struct Wanted {
    served: Arc<Served>,
    page: u64,
    /// It is to be stored to.
    store: bool,
}

impl Wanted {
    fn space(&self) -> u32 {
        self.served.space.id.0
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Server {
    faults: Arc<Own<UserFault>>,
    /// The maps, by the address behind their last.
    maps: RwLock<Maps>,
    closing: AtomicBool,
    /// Wakes the threads when they are to end.
    end: Own<OwnedFd>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Threads that bring in what nothing waits for.
    ahead: AtomicUsize,
}

type Maps = BTreeMap<usize, Arc<Served>>;

fn lock_write(maps: &RwLock<Maps>) -> RwLockWriteGuard<'_, Maps> {
    maps.write().unwrap_or_else(PoisonError::into_inner)
}

impl Service for Server {
    fn close(&self) -> Vec<JoinHandle<()>> {
        self.closing.store(true, Relaxed);
        if let Err(error) = self.end.with(|end| Ok(rustix::io::write(end, &1_u64.to_ne_bytes())?)) {
            tell!(error, %error, "the threads that serve maps cannot be woken");
        }
        std::mem::take(&mut lowtide_pin::sync::lock(&self.threads))
    }
}

impl Server {
    /// Opens a descriptor, and starts the threads.
    ///
    /// # Errors
    /// A step, and why the kernel refuses it.
    pub(crate) fn start(pool: &Arc<Pool>) -> Result<Arc<Self>, (&'static str, io::Error)> {
        let shmem = Features::MISSING_SHMEM | Features::WP_SHMEM;
        let wanted = shmem | Features::POISON | Features::EVENT_REMAP;
        let faults =
            Own::make(|| UserFault::open(Scope::Any, wanted)).map_err(|e| ("userfaultfd(2)", e))?;
        if faults.fact(UserFault::features) != wanted {
            let lacks = format!("the kernel lacks {:?}", wanted - faults.fact(UserFault::features));
            let error = io::Error::new(io::ErrorKind::Unsupported, lacks);
            return Err(("userfaultfd(2)", error));
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let end = Own::make(|| Ok(eventfd(0, flags)?)).map_err(|e| ("eventfd(2)", e))?;
        let server = Arc::new(Self {
            faults: Arc::new(faults),
            maps: RwLock::default(),
            closing: AtomicBool::new(false),
            end,
            threads: Mutex::default(),
            ahead: AtomicUsize::new(0),
        });
        for _ in 0..THREADS {
            let (this, pool) = (Arc::clone(&server), Arc::clone(pool));
            match thread_locals::spawn("lowtide-fault", move || this.run(&pool)) {
                Ok(thread) => lowtide_pin::sync::lock(&server.threads).push(thread),
                Err(e) => {
                    server.close();
                    return Err(("starting a thread", e));
                }
            }
        }
        Ok(server)
    }

    pub(super) fn faults(&self) -> &Arc<Own<UserFault>> {
        &self.faults
    }

    /// Serves the faults of a map from now on.
    ///
    /// # Safety
    /// The addresses are the map's alone, and no thread has a pointer to them yet.
    ///
    /// # Errors
    /// The kernel's.
    #[expect(unsafe_code, reason = "from now on this process decides what the memory contains")]
    pub(super) unsafe fn add(&self, served: &Arc<Served>) -> io::Result<()> {
        let (range, end) = (served.mirror.first_addresses(), served.mirror.addresses().end);
        let mut maps = lock_write(&self.maps);
        maps.insert(end, Arc::clone(served));
        // SAFETY: the caller's promise; and a missing page gets what the file has there.
        let register = |faults: &UserFault| unsafe {
            faults.register(range, Modes::MISSING | Modes::WRITE_PROTECT)
        };
        let registered = self.faults.with(register);
        let begun = registered.and_then(|()| served.mirror.begin());
        if begun.is_err() {
            maps.remove(&end);
        }
        begun
    }

    /// Ends the serving of a map, which no pointer leads to.
    pub(super) fn remove(&self, served: &Arc<Served>) {
        let end = served.mirror.addresses().end;
        let mut maps = lock_write(&self.maps);
        // Another may be at its addresses by now.
        let is_own = maps.get(&end).is_some_and(|there| Arc::ptr_eq(there, served));
        let removed = is_own.then(|| maps.remove(&end));
        drop(maps);
        // A thread that still serves it drops it when it is done.
        drop(removed);
    }

    fn run(&self, pool: &Pool) {
        let _serving = Serving::begin();
        let waiting = match self.wait_set() {
            Ok(waiting) => waiting,
            Err(error) => return tell!(error, %error, "cannot wait for page faults"),
        };
        let mut events = [Event::default(); BATCH];
        // Stores that have to wait, and until when.
        let mut later: Vec<(Instant, Wanted)> = Vec::new();
        while !self.closing.load(Relaxed) {
            let now = Instant::now();
            let mut wanted: Vec<_> =
                later.extract_if(.., |(at, _)| *at <= now).map(|(_, wanted)| wanted).collect();
            match self.faults.with(|faults| faults.read_events(&mut events)) {
                Ok(count) => self.find(&events[..count], &mut wanted),
                Err(error) => tell!(error, %error, "cannot read page faults"),
            }
            if !wanted.is_empty() {
                self.serve(pool, wanted, &mut later);
                continue;
            }
            let next = later.iter().map(|(at, _)| at.saturating_duration_since(now)).min();
            let next = next.map(|left| Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            });
            let mut ready = [MaybeUninit::uninit(); 2];
            if let Err(error) = epoll::wait(&waiting, &mut ready, next.as_ref())
                && error != rustix::io::Errno::INTR
            {
                return tell!(error, %error, "cannot wait for page faults");
            }
        }
    }

    /// What threads wait for.
    fn find(&self, events: &[Event], wanted: &mut Vec<Wanted>) {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        wanted.extend(events.iter().filter_map(|event| {
            // A fault without a map is of one that was dropped while a thread touched it.
            let (_, served) = maps.range(event.address + 1..).next()?;
            let mirror = &served.mirror;
            let store = (event.wp || event.write) && mirror.is_stored_to();
            let inside = mirror.addresses().contains(&event.address);
            let page = inside.then(|| mirror.page_at(event.address))?;
            if !mirror.has_arrived() {
                mirror.wake(page);
                return None;
            }
            Some(Wanted { served: Arc::clone(served), page, store })
        }));
    }

    /// What one thread waits for. A fault wakes one of the threads, and not all of them.
    fn wait_set(&self) -> io::Result<OwnedFd> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        let one_of_all = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        let gone = || io::Error::from(io::ErrorKind::NotFound);
        let (faults, end) = self.faults.here().zip(self.end.here()).ok_or_else(gone)?;
        epoll::add(&set, faults, data, one_of_all)?;
        epoll::add(&set, end, data, epoll::EventFlags::IN)?;
        Ok(set)
    }

    fn serve(&self, pool: &Pool, mut wanted: Vec<Wanted>, later: &mut Vec<(Instant, Wanted)>) {
        wanted.sort_unstable_by_key(|w| (w.space(), w.page, !w.store));
        let mut now = Vec::with_capacity(wanted.len());
        for w in wanted {
            let pause = || w.served.storing.pause(pool, &w.served.space);
            match w.store.then(pause).flatten() {
                Some(until) => later.push((until, w)),
                None => now.push(w),
            }
        }
        // Of a page that is loaded from and stored to, the store is left.
        now.dedup_by_key(|w| (w.space(), w.page));
        for of_map in now.chunk_by(|a, b| a.space() == b.space()) {
            if of_map[0].served.mirror.is_heap() {
                self.serve_heap(pool, of_map);
            } else {
                self.serve_file(pool, of_map);
            }
        }
        // What it owes is paid without a sleep, before it takes the next faults.
        if let Err(error) = pool.settle(Pay::Reclaim) {
            tell!(error, %error, "a thread that serves page faults cannot reclaim");
        }
    }

    /// Brings in pages of one file, in order, and answers the threads that wait for them.
    fn serve_file(&self, pool: &Pool, wanted: &[Wanted]) {
        let served = &*wanted[0].served;
        let space = &*served.space;
        served.faults.fetch_add(wanted.len() as u64, Relaxed);
        forget_installed();
        will_answer(wanted.iter().filter(|w| w.store).map(|w| w.page));
        let mut must_answer = false;
        let mut answer = |page| {
            let stores = |at: usize| wanted[at].store;
            if wanted.binary_search_by_key(&page, |w| w.page).is_ok_and(stores) {
                must_answer |= begin_store(pool, (space, &served.mirror), &served.storing, page);
            } else if !has_installed(page) {
                // Installing wakes. A page that was there already may have been zapped while a
                // thread was on its way to sleep.
                served.mirror.expect_touch(page);
                served.mirror.wake(page);
            }
        };
        self.look_ahead(pool, served, wanted);
        let pages = wanted.iter().map(|w| w.page);
        // One page is read in this thread, which costs less than a batch of one.
        let together = wanted.len() > 1
            && pool
                .read_many(space, pages.clone(), Access::Mapped, |_, page, _| answer(page))
                .is_ok();
        if !together {
            // Or one of them failed: which, and what of the others?
            for page in pages {
                match pool.hold_page(space, page, Access::Mapped) {
                    Ok(_held) => answer(page),
                    Err(error) => self.poison(pool, served, page, error),
                }
            }
        }
        if must_answer {
            served.storing.answer(pool, space);
        }
    }

    /// Brings in pages of one heap, and lets stores to pages go on that stay.
    fn serve_heap(&self, pool: &Pool, wanted: &[Wanted]) {
        let served = &*wanted[0].served;
        served.faults.fetch_add(wanted.len() as u64, Relaxed);
        forget_installed();
        let windows = self.look_ahead(pool, served, wanted);
        let mut zeroes = anon::ZEROES;
        for &Wanted { page, store, .. } in wanted {
            if let Some(window) = windows.iter().find(|window| window.start == page + 1) {
                let with = page..window.end.min(page + PART);
                anon::bring_together(pool, &served.space, with, Some(page), &mut zeroes);
            }
            let access = if store { Access::Stored } else { Access::Mapped };
            match anon::bring_in(pool, &served.space, page, access) {
                // It came in without protection, and installing wakes.
                Ok(_held) if store && has_installed(page) => {}
                // While it is held it does not begin to leave, so no protection is ended that a
                // pass of reclaim relies on.
                Ok(_held) if store => {
                    let at = (&*served.space, &served.in_order);
                    let unprotect = |pages| served.mirror.unprotect(pages);
                    if !anon::stored_through_a_pointer(pool, at, page, unprotect) {
                        served.mirror.wake(page);
                    }
                }
                Ok(_held) if !has_installed(page) => {
                    served.mirror.expect_touch(page);
                    served.mirror.wake(page);
                }
                Ok(_held) => {}
                Err(error) => self.poison(pool, served, page, error),
            }
        }
        if windows.is_empty() {
            return;
        }
        // The other threads serve what is waited for meanwhile.
        if self.ahead.fetch_add(1, Relaxed) < AHEAD {
            // A thread that comes to a part that is on its way waits for that part alone.
            let parts = windows.into_iter().flat_map(|Range { start, end }| {
                let part = move |at: u64| at..end.min(at + PART);
                (start..end).step_by(PART as usize).map(part)
            });
            for part in parts.take_while(|_| !self.closing.load(Relaxed)) {
                anon::bring_together(pool, &served.space, part, None, &mut zeroes);
            }
        }
        self.ahead.fetch_sub(1, Relaxed);
    }

    /// Requests what will be wanted next, if the map is read in order, and brings in what is missed
    /// together with its neighbours, if that is useful. Returns what the caller is to bring in.
    fn look_ahead(&self, pool: &Pool, served: &Served, faults: &[Wanted]) -> Vec<Range<u64>> {
        let mut windows = Vec::new();
        if served.ahead.is_off() {
            return windows;
        }
        for run in faults.chunk_by(|a, b| a.page + 1 == b.page) {
            let request = run[0].page..run[run.len() - 1].page + 1;
            let absent = |&page: &u64| {
                let entry = served.space.table.get(page).map(Entry::load);
                matches!(entry, Some(State::Absent { .. }))
            };
            let window = served.ahead.touched(&request, pool, &served.space).or_else(|| {
                let at = request.clone().find(absent)?;
                served.ahead.missed(&request, at, pool, &served.space)
            });
            window.iter().for_each(|window| served.came.run(window, pool, &served.space));
            match (window, &served.open) {
                (Some(window), Some(open)) => open.read_ahead(window),
                (Some(window), None) => windows.push(window),
                (None, _) => request.filter(absent).for_each(|page| {
                    served.came.alone(1);
                    pool.read_around(&served.space, page);
                }),
            }
        }
        windows
    }

    /// The threads that touch a page get a signal from now on, unless it came in after all.
    fn poison(&self, pool: &Pool, served: &Served, page: u64, error: Error) {
        if served.mirror.is_detached() {
            // Its threads look again, at other memory.
            return;
        }
        let path = served.space.path_ref().display();
        tell!(error, %path, page, %error, "a page of a map cannot be brought in: the thread \
            that touches it gets SIGBUS");
        if let Some(on_error) = &served.on_error {
            on_error.call(&error);
        }
        lowtide_pin::sync::lock(&served.error).get_or_insert(error);
        let Some(entry) = served.space.table.get(page) else {
            return self.mark(served, page);
        };
        // Until it is marked no other thread brings it in.
        match entry.load() {
            State::Absent { shadow } if entry.try_begin_read(shadow).is_ok() => {
                // A mark of write protection would be in the way.
                served.mirror.unprotect(page..page + 1);
                self.mark(served, page);
                if entry.abort_read(shadow) {
                    pool.waits.complete(entry, &Ok(()));
                }
            }
            _ => served.mirror.wake(page),
        }
    }

    fn mark(&self, served: &Served, page: u64) {
        match served.mirror.poison(page) {
            Ok(()) => {}
            // It came in after all.
            Err(CopyError::Present) => served.mirror.wake(page),
            Err(error) => tell!(error, %error, "a page cannot be poisoned"),
        }
    }
}
