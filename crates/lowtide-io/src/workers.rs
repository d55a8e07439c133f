//! Threads that make blocking calls for others, started as they are needed.
//!
//! A device that hangs keeps every thread that made a request to it. Such a thread is *lost* for as
//! long as that lasts, and another may be started in its place, up to [`LOST_MAX`] of them: a dead
//! device must not take the threads that read from others.

use lowtide_sys::{tell, threads};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::psync::lock;

/// Lost threads that others are started for.
const LOST_MAX: usize = 256;

/// Something to do in another thread.
pub(super) type Task = Box<dyn FnOnce() + Send>;

/// Threads, and the list they take tasks from. Dropping it joins them.
pub(super) struct Workers {
    name: &'static str,
    list: Arc<List>,
    most: usize,
    lost: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("name", &self.name)
            .field("most", &self.most)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct List {
    state: Mutex<ListState>,
    changed: Condvar,
}

#[derive(Default)]
struct ListState {
    tasks: VecDeque<Task>,
    /// Threads that wait for a task.
    idle: usize,
    closed: bool,
}

impl List {
    /// The life of a thread: tasks until the list is closed and empty.
    fn serve(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(task) = state.tasks.pop_front() {
                drop(state);
                task();
                state = lock(&self.state);
            } else if state.closed {
                return;
            } else {
                state.idle += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

impl Workers {
    /// At most `most` workers called `name`, and none yet.
    pub(super) fn new(name: &'static str, most: usize) -> Workers {
        let (list, lost, threads) = (Arc::default(), AtomicUsize::new(0), Mutex::default());
        Workers { name, list, most, lost, threads }
    }

    /// Starts some of them, as far as the system permits.
    pub(super) fn start(&self, count: usize) {
        let mut threads = lock(&self.threads);
        while threads.len() < count
            && let Ok(thread) = self.spawn(threads.len())
        {
            threads.push(thread);
        }
    }

    fn spawn(&self, number: usize) -> std::io::Result<JoinHandle<()>> {
        let theirs = Arc::clone(&self.list);
        threads::spawn(&format!("{}-{number}", self.name), move || theirs.serve())
    }

    /// How many there are at most, lost ones aside.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Hands a task to a worker, a new one if none is idle; runs it at once when there is no worker
    /// and none can be started.
    pub(super) fn give(&self, task: Task) {
        {
            let mut state = lock(&self.list.state);
            if state.tasks.len() < state.idle {
                state.tasks.push_back(task);
                drop(state);
                return self.list.changed.notify_one();
            }
        }
        let mut threads = lock(&self.threads);
        if threads.len() < self.most + self.lost.load(Relaxed).min(LOST_MAX) {
            match self.spawn(threads.len()) {
                Ok(thread) => threads.push(thread),
                Err(error) if threads.is_empty() => {
                    tell!(warn, %error, "no I/O thread can be started: transfers do not \
                        overlap");
                    drop(threads);
                    return task();
                }
                // The workers that exist will do it.
                Err(_) => {}
            }
        }
        drop(threads);
        lock(&self.list.state).tasks.push_back(task);
        self.list.changed.notify_one();
    }

    /// A worker's task is not waited for any more.
    pub(super) fn lose(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    /// Such a task has ended after all.
    pub(super) fn find(&self) {
        self.lost.fetch_sub(1, Relaxed);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        lock(&self.list.state).closed = true;
        self.list.changed.notify_all();
        for thread in lock(&self.threads).drain(..) {
            // The end of the last late read drops the pool, and this with it.
            if thread.thread().id() != std::thread::current().id() {
                // A task does not panic; if one did, its message is already on stderr.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn another_thread_is_started_for_one_that_is_lost() {
        let workers = Workers::new("test", 1);
        let (open, gate) = channel::<()>();
        let (send, ended) = channel();
        workers.give(Box::new(move || gate.recv().unwrap()));
        let (late, ended_late) = (send.clone(), send);
        workers.give(Box::new(move || late.send(1).unwrap()));
        let soon = std::time::Duration::from_millis(50);
        assert!(ended.recv_timeout(soon).is_err(), "the only thread is busy");
        workers.lose();
        workers.give(Box::new(move || ended_late.send(2).unwrap()));
        assert_eq!((ended.recv(), ended.recv()), (Ok(1), Ok(2)), "by another, in their order");
        open.send(()).unwrap();
        workers.find();
    }
}
