//! The threads that read ahead.
//!
//! A request for read-ahead is a hint: it may be dropped, and it must not delay anything else. A
//! thread that reads ahead waits for the device, perhaps forever. So there are several, started
//! when there is work and none is idle. At most [`FILE_THREADS`] requests of one file are carried
//! out at a time, and at most [`DEVICE_THREADS`] of one device, so that a device that hangs keeps
//! those threads and no others. If too many requests wait behind them, new ones are dropped.

use crate::pool::Pool;
use crate::space::Space;
use lowtide_core::SpaceId;
use lowtide_io::Deadline;
use lowtide_sys::{room, threads};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Requests of one file that are carried out at a time: one window, and the next.
const FILE_THREADS: usize = 2;
/// Requests of one device that are carried out at a time.
const DEVICE_THREADS: usize = 8;
/// Threads of a pager that read ahead.
const THREADS: usize = 32;
/// Requests of one file that may wait; further ones are dropped.
const FILE_QUEUE: usize = 16;
/// Requests of a pager that may wait.
const QUEUE: usize = 256;

/// A range to read ahead.
#[derive(Debug)]
struct Request {
    space: Arc<Space>,
    pages: Range<u64>,
}

impl Request {
    fn key(&self) -> (SpaceId, u64) {
        (self.space.id, self.space.backing.key().device)
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Request>,
    /// The file and the device of each request that is being carried out.
    running: Vec<(SpaceId, u64)>,
    /// Threads that wait for work.
    idle: usize,
    closing: bool,
}

impl Queue {
    fn may_run(&self, (space, device): (SpaceId, u64)) -> bool {
        self.running.iter().filter(|(id, _)| *id == space).count() < FILE_THREADS
            && self.running.iter().filter(|(_, on)| *on == device).count() < DEVICE_THREADS
    }

    /// The oldest request that may be carried out now.
    fn take(&mut self) -> Option<Request> {
        let at = self.waiting.iter().position(|request| self.may_run(request.key()))?;
        let request = self.waiting.remove(at)?;
        self.running.push(request.key());
        Some(request)
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    shared: Arc<(Mutex<Queue>, Condvar)>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Readers {
    /// Requests that a range is read ahead, or drops the hint.
    pub(crate) fn request(&self, pool: &Arc<Pool>, space: &Arc<Space>, pages: Range<u64>) {
        let (queue, work) = &*self.shared;
        let request = Request { space: Arc::clone(space), pages };
        {
            let mut queue = lowtide_pin::sync::lock(queue);
            let of_file =
                queue.waiting.iter().filter(|waiting| waiting.space.id == space.id).count();
            if of_file >= FILE_QUEUE || queue.waiting.len() >= QUEUE || queue.closing {
                return;
            }
            let needs_thread = queue.idle <= queue.waiting.len() && queue.may_run(request.key());
            queue.waiting.push_back(request);
            if !needs_thread {
                drop(queue);
                work.notify_one();
                return;
            }
        }
        let mut started = lowtide_pin::sync::lock(&self.threads);
        if started.len() < THREADS {
            let (pool, shared) = (Arc::clone(pool), Arc::clone(&self.shared));
            // Where no thread can be started, the existing ones do it, or none does.
            let (run, in_room) = (move || serve(&pool, &shared), space.mapped.is_some());
            let spawn = if in_room { room::spawn } else { threads::spawn };
            started.extend(spawn("lowtide-ahead", run).ok());
        }
    }

    /// Drops waiting requests, and makes the threads end. Returns them.
    pub(crate) fn close(&self) -> Vec<JoinHandle<()>> {
        let (queue, work) = &*self.shared;
        let mut queue = lowtide_pin::sync::lock(queue);
        queue.closing = true;
        let dropped = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(dropped);
        work.notify_all();
        std::mem::take(&mut lowtide_pin::sync::lock(&self.threads))
    }
}

fn serve(pool: &Pool, (queue, work): &(Mutex<Queue>, Condvar)) {
    let mut queue_now = lowtide_pin::sync::lock(queue);
    while !queue_now.closing {
        let Some(Request { space, pages }) = queue_now.take() else {
            queue_now.idle += 1;
            queue_now = work.wait(queue_now).unwrap_or_else(PoisonError::into_inner);
            queue_now.idle -= 1;
            continue;
        };
        drop(queue_now);
        let id = space.id;
        // A page that cannot be read ahead will say so when it is wanted.
        drop(pool.read_ahead(&space, pages));
        if space.is_closed() {
            // The closing may not have waited for these reads.
            pool.forget(&space, Deadline::after(Duration::ZERO));
        }
        drop(space);
        queue_now = lowtide_pin::sync::lock(queue);
        if let Some(at) = queue_now.running.iter().position(|(running, _)| *running == id) {
            queue_now.running.swap_remove(at);
        }
    }
}
