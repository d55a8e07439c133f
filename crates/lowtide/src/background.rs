//! The threads of a pager: one reclaims ahead of need, one reads ahead when somebody asks, and one exports the files of tenants, if that was asked for. Those
//! that write dirty pages are with the devices (`writeback/device.rs`).
//!
//! None of them decides anything: the reclaimer runs the engine's invocations until the free frames stand at the high watermark.

use crate::error::BuildError;
use crate::pool::Pool;
use crate::space::Space;
use lowtide_core::limits::PUBLISH_INTERVAL_NS;
use lowtide_core::{MemcgId, Reason, Reclaim, Task};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Read-ahead requests that may wait; further ones are dropped, since they are hints.
const READ_AHEAD_QUEUE: usize = 64;
/// Pause of the reclaimer after a fruitless run.
const HOPELESS_PAUSE: Duration = Duration::from_millis(2);

/// Joins the background threads of a pager when its last handle goes.
#[derive(Debug)]
pub(crate) struct Threads {
    pool: Arc<Pool>,
    joins: Vec<JoinHandle<()>>,
    read_ahead: Option<SyncSender<Ahead>>,
}

/// A range to read ahead.
#[derive(Debug)]
struct Ahead {
    space: Arc<Space>,
    pages: Range<u64>,
}

impl Threads {
    pub(crate) fn start(pool: &Arc<Pool>) -> Result<Self, BuildError> {
        let mut threads = Self { pool: Arc::clone(pool), joins: Vec::new(), read_ahead: None };
        if !pool.background {
            return Ok(threads);
        }
        threads.spawn("lowtide-kswapd", kswapd)?;
        if pool.exporter.is_some() {
            threads.spawn("lowtide-export", export)?;
        }
        let (send, receive) = sync_channel(READ_AHEAD_QUEUE);
        threads.read_ahead = Some(send);
        threads.spawn("lowtide-ahead", move |pool| read_ahead(pool, &receive))?;
        Ok(threads)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(&Pool) + Send + 'static) -> Result<(), BuildError> {
        let pool = Arc::clone(&self.pool);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&pool));
        self.joins.push(thread.map_err(BuildError::Thread)?);
        Ok(())
    }

    /// Reads a range ahead: in the background, or, without background threads, at once.
    pub(crate) fn read_ahead(&self, space: &Arc<Space>, pages: Range<u64>) {
        match &self.read_ahead {
            // A full queue drops the hint.
            Some(queue) => drop(queue.try_send(Ahead { space: Arc::clone(space), pages })),
            None => drop(self.pool.read_ahead(space, pages)),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.pool.close();
        self.read_ahead = None;
        self.pool.end_flushers();
        for thread in self.joins.drain(..) {
            // The last handle may be dropped by a background thread that let go of a space.
            if thread.thread().id() != std::thread::current().id() {
                // A panic there was printed already; there is nobody to pass it on to.
                let _ = thread.join();
            }
        }
    }
}

fn kswapd(pool: &Pool) {
    let interval = Duration::from_nanos(PUBLISH_INTERVAL_NS);
    let mut published = Instant::now();
    let mut state = pool.lock();
    while !pool.closing.load(Relaxed) && !pool.is_poisoned() {
        if published.elapsed() >= interval {
            state.engine.publish();
            published = Instant::now();
            state = pool.trim(state);
            if !state.programs.is_empty() {
                state = pool.serve_programs(state);
            }
        }
        let free = state.engine.margin(MemcgId::ROOT);
        let watermarks = pool.watermarks(&state);
        if free >= watermarks.low {
            let left = interval.saturating_sub(published.elapsed());
            state = pool.kswapd.wait(state, left);
            continue;
        }
        let goal = watermarks.high - free;
        let reclaimed;
        let reclaim = Reclaim::new(MemcgId::ROOT, goal, Reason::Kswapd, Task::DESCRIPTOR);
        (state, reclaimed) = pool.reclaim(state, reclaim);
        if reclaimed == 0 {
            state = pool.kswapd.wait(state, HOPELESS_PAUSE);
        }
    }
}

fn export(pool: &Pool) {
    if let Some(exporter) = &pool.exporter {
        exporter.run(pool);
    }
}

fn read_ahead(pool: &Pool, queue: &Receiver<Ahead>) {
    while let Ok(Ahead { space, pages }) = queue.recv() {
        if !pool.closing.load(Relaxed) {
            // A page that cannot be read ahead will say so when it is wanted.
            drop(pool.read_ahead(&space, pages));
        }
    }
}
