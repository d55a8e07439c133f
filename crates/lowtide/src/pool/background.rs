//! The threads of a pager: one reclaims ahead of need, one reads ahead on request, and one exports
//! the files of tenants, if that is enabled. The threads that write dirty pages are with the
//! devices (`writeback/device.rs`).
//!
//! None of them makes decisions: the reclaimer runs the engine's invocations until the free frames
//! reach the high watermark.

use super::divide::divide_all;
use super::looks::Looks;
use super::reclaim::{PIECE, piece};
use super::service::Service;
use super::{Pool, StateGuard};
use crate::ahead::readers::Readers;
use crate::error::BuildError;
use crate::space::Space;
use crate::swap;
use crate::thread_locals;
use crate::zcache;
use lowtide_core::limits::PUBLISH_INTERVAL_NS;
use lowtide_core::{MemcgId, Reason, Reclaim, Task};
use lowtide_io::Deadline;
use lowtide_sys::room::enter;
use lowtide_sys::tell;
use std::any::Any;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause of the reclaimer after a fruitless run.
const HOPELESS_PAUSE: Duration = Duration::from_millis(2);

/// Bytes from which on a range behind pointers is read ahead by two threads.
const HALVED: u64 = 1 << 20;

/// Time between two looks whether a thread has ended.
const JOIN_PAUSE: Duration = Duration::from_micros(100);

/// Joins the background threads of a pager when its last handle goes.
#[derive(Debug)]
pub(crate) struct Threads {
    pool: Arc<Pool>,
    joins: Vec<JoinHandle<()>>,
    /// Those of files that views read, and those of maps, which are in the room.
    readers: [Readers; 2],
    /// Those of maps, from the first one on: one of each type.
    services: Mutex<Vec<Arc<dyn Service>>>,
}

impl Threads {
    pub(crate) fn start(pool: &Arc<Pool>) -> Result<Self, BuildError> {
        let mut threads = Self {
            pool: Arc::clone(pool),
            joins: Vec::new(),
            readers: Default::default(),
            services: Mutex::default(),
        };
        if pool.background {
            threads.spawn("lowtide-kswapd", kswapd)?;
        }
        Ok(threads)
    }

    /// The service of a type; started if need be, while others wait.
    ///
    /// # Errors
    /// Those of `start`.
    pub(crate) fn service<T: Service, E>(
        &self,
        start: impl FnOnce(&Arc<Pool>) -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let mut services = lowtide_pin::sync::lock(&self.services);
        let of_type = |service: &Arc<dyn Service>| {
            let any: Arc<dyn Any + Send + Sync> = Arc::<dyn Service>::clone(service);
            any.downcast().ok()
        };
        if let Some(there) = services.iter().find_map(of_type) {
            return Ok(there);
        }
        let started = start(&self.pool)?;
        services.push(Arc::<T>::clone(&started));
        Ok(started)
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(&Pool) + Send + 'static,
    ) -> Result<(), BuildError> {
        let pool = Arc::clone(&self.pool);
        let thread = thread_locals::spawn(name, move || run(&pool));
        self.joins.push(thread.map_err(BuildError::Thread)?);
        Ok(())
    }

    /// Reads a range ahead: in the background, or, without background threads, at once.
    pub(crate) fn read_ahead(&self, space: &Arc<Space>, pages: Range<u64>) {
        if self.pool.background {
            let readers = &self.readers[usize::from(space.mapped.is_some())];
            let (first, second) = halves(&self.pool, space, pages);
            readers.request(&self.pool, space, first);
            if !second.is_empty() {
                readers.request(&self.pool, space, second);
            }
        } else {
            // A page that cannot be read ahead will say so when it is wanted.
            let read = || Ok(self.pool.read_ahead(space, pages));
            drop(if space.mapped.is_some() { enter(read) } else { read() });
        }
    }
}

/// A range to read ahead, for two threads if it is long and its pages are installed behind
/// pointers: that takes a processor about as long as the device takes to read them. Otherwise the
/// second is empty.
fn halves(pool: &Pool, space: &Space, pages: Range<u64>) -> (Range<u64>, Range<u64>) {
    let count = pages.end.saturating_sub(pages.start);
    let long = count << pool.page_shift >= HALVED;
    let middle = if long && space.mapped.is_some() { pages.start + count / 2 } else { pages.end };
    (pages.start..middle, middle..pages.end)
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.pool.close();
        self.joins.extend(self.readers.iter().flat_map(Readers::close));
        for service in lowtide_pin::sync::lock(&self.services).drain(..) {
            self.joins.extend(service.close());
        }
        self.pool.end_flushers();
        let deadline = Deadline::after(self.pool.io_timeout);
        for thread in self.joins.drain(..) {
            // The last handle may be dropped by a background thread that held a space.
            if thread.thread().id() == std::thread::current().id() {
                continue;
            }
            while !thread.is_finished() && !deadline.has_passed() {
                std::thread::sleep(JOIN_PAUSE);
            }
            if thread.is_finished() {
                // A panic there was printed already, and there is no caller to pass it on to.
                let _ = thread.join();
            } else {
                // It has the pool, so what the device may still write to stays where it is.
                let name = thread.thread().name().unwrap_or_default();
                tell!(
                    error,
                    name,
                    "a device does not answer; a thread that waits for it is left behind"
                );
            }
        }
    }
}

fn kswapd(pool: &Pool) {
    let interval = Duration::from_nanos(PUBLISH_INTERVAL_NS);
    let (mut published, mut looks) = (Instant::now(), Looks::begin());
    let mut state = pool.lock();
    while !pool.closing.load(Relaxed) && !pool.is_poisoned() {
        if published.elapsed() >= interval {
            state.engine.publish();
            published = Instant::now();
            divide_all(&mut state);
            state = pool.trim(state);
            state = swap::maintain(pool, state);
            state = zcache::maintain(pool, state);
            state = serve_programs(pool, state);
        }
        state = looks.turn(pool, state);
        let free = state.engine.margin(MemcgId::ROOT);
        let watermarks = pool.watermarks(&state);
        if free >= watermarks.low {
            let left = interval.saturating_sub(published.elapsed()).min(looks.left());
            state = state.wait(|guard| pool.kswapd.wait(guard, left));
            continue;
        }
        let goal = watermarks.high - free;
        let reclaimed;
        let reclaim = Reclaim::new(MemcgId::ROOT, goal, Reason::Kswapd, Task::DESCRIPTOR);
        (state, reclaimed) = pool.reclaim(state, reclaim);
        if reclaimed == 0 {
            state = state.wait(|guard| pool.kswapd.wait(guard, HOPELESS_PAUSE));
        }
    }
}

/// Reclaims what tenants' programs want in advance. Cost: O(tenants).
fn serve_programs<'a>(pool: &'a Pool, mut state: StateGuard<'a>) -> StateGuard<'a> {
    let now = pool.now();
    let engine = &mut state.engine;
    let hooked: Vec<MemcgId> =
        engine.below(MemcgId::ROOT).filter(|&id| engine.has_hooks(id)).collect();
    let mut wanted = Vec::new();
    for id in hooked {
        wanted.push((id, engine.ask_proactive(id, now)));
        wanted.extend(engine.take_requests(id));
    }
    for (id, pages) in wanted {
        let mut left = pages;
        while left > 0 && state.engine.alive(id) {
            let reclaimed;
            (state, reclaimed) = piece(pool, state, id, left.min(PIECE), Reason::Proactive);
            if reclaimed == 0 {
                break;
            }
            left = left.saturating_sub(reclaimed);
        }
    }
    state
}
