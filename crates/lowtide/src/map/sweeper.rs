//! The thread that compares what is cached of mapped files with what is charged (`sweep.rs`).
//!
//! It is a thread of its own, since it waits for devices: to drop a dirty page is to write it. The
//! threads that bring pages in and evict them do not wait for it.

use super::error::MapError;
use super::noticed::WatchedFile;
use super::sweep::Sweeps;
use crate::fault::nested::Serving;
use crate::pager::Pager;
use crate::pool::Pool;
use crate::pool::high::Pay;
use crate::pool::service::Service;
use crate::space::Space;
use lowtide_sys::room;
use lowtide_sys::tell;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// A mapped file, for one comparison. Holds the file, and not its mappings: these end meanwhile.
#[derive(Debug)]
pub(super) struct Swept {
    pub(super) space: Arc<Space>,
    /// The kernel's mappings of it; a mirror has none.
    pub(super) watched: Option<Weak<WatchedFile>>,
}

impl Swept {
    /// It is shown by a mirror.
    pub(super) const fn is_mirror(&self) -> bool {
        self.watched.is_none()
    }

    /// Notes of its reads come.
    pub(super) fn is_read(&self) -> bool {
        self.of_watched(|file| file.noted.is_read()).unwrap_or(false)
    }

    /// Its pages in the page cache that a tenant pays for, or another process.
    pub(super) fn charged(&self, pool: &Pool) -> u64 {
        if self.is_mirror() {
            return 0;
        }
        let pages = self.space.table.resident();
        let exchange = pool.exchange.get();
        let others = |file: &WatchedFile| file.watched.company.say_pages(exchange, pages);
        pages + self.of_watched(others).unwrap_or(0)
    }

    /// This number of its pages is cached, and this one charged.
    pub(super) fn note_cached(&self, cached: u64, charged: u64, least: u64) {
        self.of_watched(|file| file.watched.company.note_cached(cached, charged, least));
    }

    /// Takes all of its pages out of the page table of this process.
    pub(super) fn zap(&self) {
        let pages = 0..self.space.table.pages();
        self.of_watched(|file| file.watched.zap(&file.watched.state(), &pages, |_| ()));
    }

    /// Pages that other processes are about to read.
    pub(super) fn wanted(&self, most: u64) -> Vec<Range<u64>> {
        self.of_watched(|file| file.watched.company.wanted(most)).unwrap_or_default()
    }

    /// Some of its pages are dirty now, or none.
    pub(super) fn note_dirty(&self, any: bool) {
        self.of_watched(|file| file.watched.note_dirty(any));
    }

    fn of_watched<R>(&self, say: impl FnOnce(&WatchedFile) -> R) -> Option<R> {
        Some(say(&*self.watched.as_ref()?.upgrade()?))
    }
}

/// A file, as long as it is mapped.
#[derive(Debug)]
struct Entry {
    space: Weak<Space>,
    watched: Option<Weak<WatchedFile>>,
}

impl Entry {
    fn swept(&self) -> Option<Swept> {
        let space = self.space.upgrade().filter(|space| !space.is_closed())?;
        Some(Swept { space, watched: self.watched.clone() })
    }
}

#[derive(Debug, Default)]
struct State {
    files: Vec<Entry>,
    /// A file has come.
    new: bool,
    stop: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Sweeper {
    state: Mutex<State>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Service for Sweeper {
    fn close(&self) -> Vec<JoinHandle<()>> {
        lowtide_pin::sync::lock(&self.state).stop = true;
        self.wake.notify_all();
        lowtide_pin::sync::lock(&self.thread).take().into_iter().collect()
    }
}

/// That of a pager, started for its first map.
pub(super) fn sweeper_of(pager: &Pager) -> Result<Arc<Sweeper>, MapError> {
    let started = pager.inner.threads.service(Sweeper::start);
    started.map_err(MapError::kernel("starting a thread"))
}

impl Sweeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// That of `pthread_create(3)`.
    pub(crate) fn start(pool: &Arc<Pool>) -> io::Result<Arc<Self>> {
        let (state, wake, thread) = Default::default();
        let sweeper = Arc::new(Self { state, wake, thread });
        let (this, pool) = (Arc::clone(&sweeper), Arc::clone(pool));
        let thread = room::spawn("lowtide-sweep", move || this.run(&pool))?;
        *lowtide_pin::sync::lock(&sweeper.thread) = Some(thread);
        Ok(sweeper)
    }

    /// Compares a file from now on: one that a mirror shows, or one with mappings of the kernel.
    pub(super) fn add(&self, space: &Arc<Space>, watched: Option<&Arc<WatchedFile>>) {
        let entry = Entry { space: Arc::downgrade(space), watched: watched.map(Arc::downgrade) };
        let mut state = lowtide_pin::sync::lock(&self.state);
        state.files.push(entry);
        state.new = true;
        drop(state);
        self.wake.notify_all();
    }

    fn run(&self, pool: &Pool) {
        let _serving = Serving::begin();
        let (mut sweeps, mut pause) = (Sweeps::new(), Duration::ZERO);
        loop {
            let state = lowtide_pin::sync::lock(&self.state);
            let idle = |state: &mut State| !state.stop && !state.new;
            let woken = self.wake.wait_timeout_while(state, pause, idle);
            let mut state = woken.unwrap_or_else(PoisonError::into_inner).0;
            if state.stop || pool.is_poisoned() {
                return;
            }
            state.new = false;
            state.files.retain(|file| file.swept().is_some());
            let mut files: Vec<Swept> = state.files.iter().filter_map(Entry::swept).collect();
            drop(state);
            let mapped = files.iter().filter(|file| !file.is_mirror());
            let mapped: Vec<_> = mapped.map(|file| file.space.backing.key()).collect();
            // What is cached of a file with mappings of both kinds is of the kernel's.
            files.retain(|file| !file.is_mirror() || !mapped.contains(&file.space.backing.key()));
            pause = sweeps.tick(pool, &files);
            drop(files);
            // Paid without a sleep: this thread works for all tenants.
            if let Err(error) = pool.settle(Pay::Reclaim) {
                tell!(error, %error, "the thread that sweeps files cannot reclaim");
            }
        }
    }
}
