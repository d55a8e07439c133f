//! The threads that serve the page faults of maps.
//!
//! One descriptor of `userfaultfd(2)` for each pager. A thread takes the faults that wait, up to a
//! batch, sorts them by file and page, and brings the pages in as `get_many` does: neighbours
//! together, reads overlapping. A fault of a page that is there by now only has to be woken.
//!
//! A page that cannot be brought in is *poisoned*: the thread that touches it gets `SIGBUS`, as
//! from a map of the kernel, and the error is in [`Map::error`](super::Map::error).
//!
//! A server thread works for all tenants. So it never sleeps for one that is over its `high`: it
//! evicts, and the sleep is let off.

use super::mirror::{Mirror, forget_installed, has_installed};
use crate::error::Error;
use crate::fault::Access;
use crate::high::Pay;
use crate::nested::Serving;
use crate::pool::Pool;
use crate::readahead::ReadAhead;
use crate::space::Space;
use crate::translation::{Entry, State};
use crate::view::Open;
use lowtide_sys::userfault::{CopyError, Event, Features, Modes, Scope, UserFault};
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::thread::JoinHandle;

/// Faults that a thread takes at a time.
const BATCH: usize = 32;
/// Threads that serve. One batch overlaps its reads, so a few keep a device busy; further ones are
/// for devices that are slower than others.
const THREADS: usize = 4;

/// A map whose faults are served.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) space: Arc<Space>,
    pub(super) mirror: Arc<Mirror>,
    /// The first page that could not be brought in, and why.
    pub(super) error: Mutex<Option<Error>>,
    /// Faults that were served.
    pub(super) faults: AtomicU64,
    /// What is read in order is read ahead.
    pub(super) ahead: ReadAhead,
    /// Keeps the file open. Taken only on drop.
    pub(super) open: Option<Open>,
}

impl Drop for Served {
    /// The map is gone, and no thread serves it any more.
    fn drop(&mut self) {
        self.mirror.close();
        // Now the frames are free in the engine's eyes, too.
        drop(self.open.take());
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Server {
    faults: Arc<UserFault>,
    /// The maps, by the address behind their last.
    maps: RwLock<Maps>,
    closing: AtomicBool,
    /// Wakes the threads when they are to end.
    end: OwnedFd,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

type Maps = BTreeMap<usize, Arc<Served>>;

fn lock_write(maps: &RwLock<Maps>) -> RwLockWriteGuard<'_, Maps> {
    maps.write().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Opens a descriptor, and starts the threads.
    ///
    /// # Errors
    /// A step, and why the kernel refuses it.
    pub(crate) fn start(pool: &Arc<Pool>) -> Result<Arc<Self>, (&'static str, io::Error)> {
        let wanted = Features::MISSING_SHMEM | Features::WP_SHMEM | Features::POISON;
        let faults = UserFault::open(Scope::Any, wanted).map_err(|e| ("userfaultfd(2)", e))?;
        if faults.features() != wanted {
            let lacks = format!("the kernel lacks {:?}", wanted - faults.features());
            let error = io::Error::new(io::ErrorKind::Unsupported, lacks);
            return Err(("userfaultfd(2)", error));
        }
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| ("eventfd(2)", e.into()))?;
        let server = Arc::new(Self {
            faults: Arc::new(faults),
            maps: RwLock::default(),
            closing: AtomicBool::new(false),
            end,
            threads: Mutex::default(),
        });
        for _ in 0..THREADS {
            let (this, pool) = (Arc::clone(&server), Arc::clone(pool));
            let thread = std::thread::Builder::new().name("lowtide-fault".to_owned());
            match thread.spawn(move || this.run(&pool)) {
                Ok(thread) => crate::sync::lock(&server.threads).push(thread),
                Err(e) => {
                    server.close();
                    return Err(("starting a thread", e));
                }
            }
        }
        Ok(server)
    }

    pub(super) fn faults(&self) -> &Arc<UserFault> {
        &self.faults
    }

    /// Serves the faults of a map from now on.
    ///
    /// # Safety
    /// The addresses are the map's alone, and nothing is in them.
    ///
    /// # Errors
    /// The kernel's.
    #[expect(unsafe_code, reason = "from now on this process decides what the memory contains")]
    pub(super) unsafe fn add(&self, served: &Arc<Served>) -> io::Result<()> {
        let range = served.mirror.addresses();
        let end = range.end;
        let mut maps = lock_write(&self.maps);
        maps.insert(end, Arc::clone(served));
        // SAFETY: the caller's promise; and a missing page gets what the file has there.
        let registered =
            unsafe { self.faults.register(range, Modes::MISSING | Modes::WRITE_PROTECT) };
        if registered.is_err() {
            maps.remove(&end);
        }
        registered
    }

    /// Ends the serving of a map, which no pointer leads to.
    pub(super) fn remove(&self, addresses: &Range<usize>) {
        let removed = lock_write(&self.maps).remove(&addresses.end);
        // A thread that still serves it drops it when it is done.
        drop(removed);
    }

    /// Makes the threads end, and returns them.
    pub(crate) fn close(&self) -> Vec<JoinHandle<()>> {
        self.closing.store(true, Relaxed);
        if let Err(error) = rustix::io::write(&self.end, &1_u64.to_ne_bytes()) {
            tracing::error!(%error, "the threads that serve maps cannot be woken");
        }
        std::mem::take(&mut crate::sync::lock(&self.threads))
    }

    fn run(&self, pool: &Pool) {
        let _serving = Serving::begin();
        let waiting = match self.wait_set() {
            Ok(waiting) => waiting,
            Err(error) => return tracing::error!(%error, "cannot wait for page faults"),
        };
        let mut events = [Event::default(); BATCH];
        while !self.closing.load(Relaxed) {
            match self.faults.read_events(&mut events) {
                Ok(0) => {}
                Ok(count) => {
                    self.serve(pool, &events[..count]);
                    continue;
                }
                Err(error) => tracing::error!(%error, "cannot read page faults"),
            }
            let mut ready = [MaybeUninit::uninit(); 2];
            if let Err(error) = epoll::wait(&waiting, &mut ready, None)
                && error != rustix::io::Errno::INTR
            {
                return tracing::error!(%error, "cannot wait for page faults");
            }
        }
    }

    /// What one thread waits for. A fault wakes one of the threads, and not all of them.
    fn wait_set(&self) -> rustix::io::Result<OwnedFd> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        let one_of_all = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        epoll::add(&set, &*self.faults, data, one_of_all)?;
        epoll::add(&set, &self.end, data, epoll::EventFlags::IN)?;
        Ok(set)
    }

    fn serve(&self, pool: &Pool, events: &[Event]) {
        let mut wanted: Vec<(Arc<Served>, u64)> = {
            let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
            let map_at = |event: &Event| {
                let (_, served) = maps.range(event.address + 1..).next()?;
                let inside = served.mirror.addresses().contains(&event.address);
                inside.then(|| (Arc::clone(served), served.mirror.page_at(event.address)))
            };
            // A fault without a map is of one that was dropped while a thread touched it.
            events.iter().filter_map(map_at).collect()
        };
        wanted.sort_unstable_by_key(|(served, page)| (served.space.id.0, *page));
        wanted.dedup_by_key(|(served, page)| (served.space.id.0, *page));
        for of_file in wanted.chunk_by(|a, b| a.0.space.id == b.0.space.id) {
            let served = &*of_file[0].0;
            served.faults.fetch_add(of_file.len() as u64, Relaxed);
            forget_installed();
            let wake = |page| {
                // Installing wakes. A page that was there already may have been zapped while a
                // thread was on its way to sleep.
                if !has_installed(page)
                    && let Err(error) = self.faults.wake(served.mirror.addresses_of(page))
                {
                    tracing::error!(%error, "a thread that waits for a page cannot be woken");
                }
            };
            let pages = of_file.iter().map(|(_, page)| *page);
            let space = &*served.space;
            self.look_ahead(pool, served, of_file);
            // One page is read in this thread, which costs less than a batch of one.
            let together = of_file.len() > 1
                && pool
                    .read_many(space, pages.clone(), Access::Mapped, |_, page, _| wake(page))
                    .is_ok();
            if together {
                continue;
            }
            // Or one of them failed: which, and what of the others?
            for page in pages {
                match pool.hold_page(space, page, Access::Mapped) {
                    Ok(_held) => wake(page),
                    Err(error) => self.poison(served, page, error),
                }
            }
        }
        // What it owes is paid without a sleep, before it takes the next faults.
        if let Err(error) = pool.settle(Pay::Reclaim) {
            tracing::error!(%error, "a thread that serves page faults cannot reclaim");
        }
    }

    /// Requests what will be wanted next, if the map is read in order.
    fn look_ahead(&self, pool: &Pool, served: &Served, faults: &[(Arc<Served>, u64)]) {
        if served.ahead.is_off() {
            return;
        }
        for run in faults.chunk_by(|a, b| a.1 + 1 == b.1) {
            let request = run[0].1..run[run.len() - 1].1 + 1;
            let absent = |&page: &u64| {
                let entry = served.space.table.get(page).map(Entry::load);
                matches!(entry, Some(State::Absent { .. }))
            };
            let missed = request.clone().find(absent);
            let window =
                missed.and_then(|at| served.ahead.missed(&request, at, pool, &served.space));
            if let Some(window) = window
                && let Some(open) = &served.open
            {
                open.read_ahead(window);
            }
        }
    }

    fn poison(&self, served: &Served, page: u64, error: Error) {
        let path = served.space.path_ref().display();
        tracing::error!(%path, page, %error, "a page of a map cannot be brought in: the thread \
            that touches it gets SIGBUS");
        crate::sync::lock(&served.error).get_or_insert(error);
        match self.faults.poison(served.mirror.addresses_of(page)) {
            Ok(_) | Err(CopyError::Present) => {}
            Err(error) => tracing::error!(%error, "a page cannot be poisoned"),
        }
    }
}
