//! Calls that the thread that wants them can stop waiting for.
//!
//! A system call returns when the device answers, and the thread that made it cannot go before. So
//! [workers](super::workers) make the calls, and own all that the device may still touch. A thread
//! that waits for as long as it may, and no longer, *leaves* its call:
//!
//! ```text
//!   queued ──▶ started ──▶ done: given to the thread that waits
//!      │          └─left─▶ late ──▶ done: dropped
//!      └─left─▶ withdrawn: it is not made
//! ```
//!
//! The price is a switch of threads for each call, there and back.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::psync::lock;
use super::workers::Workers;
use crate::deadline::Deadline;

/// Threads of a kind that make calls, and how many of these are late.
#[derive(Debug)]
pub struct Bounded {
    workers: Arc<Workers>,
    late: Arc<AtomicUsize>,
}

/// Where a call is.
enum Stage<T> {
    Queued,
    Started,
    Done(T),
    Left,
}

impl Bounded {
    /// At most `most` threads called `name`, of which some are started now. Others are when they
    /// are needed.
    pub fn new(name: &'static str, most: usize, now: usize) -> Self {
        let workers = Arc::new(Workers::new(name, most));
        workers.start(now);
        Self { workers, late: Arc::default() }
    }

    /// Calls that were left, and that the device has not answered.
    pub fn late(&self) -> usize {
        self.late.load(SeqCst)
    }

    /// Makes a call in another thread. `None` if it has not ended after `limit`: then it is not
    /// made, or what it returns is dropped when it ends.
    pub fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let deadline = Deadline::after(limit);
        let shared = Arc::new((Mutex::new(Stage::Queued), Condvar::new()));
        let (theirs, late) = (Arc::clone(&shared), Arc::clone(&self.late));
        // Kept by the task: the threads end when the last late call has.
        let workers = Arc::clone(&self.workers);
        self.workers.give(Box::new(move || {
            let (stage, done) = &*theirs;
            {
                let mut stage = lock(stage);
                if let Stage::Left = *stage {
                    return;
                }
                *stage = Stage::Started;
            }
            let result = call();
            let mut stage = lock(stage);
            if let Stage::Left = *stage {
                drop(stage);
                drop(result);
                workers.find();
                late.fetch_sub(1, SeqCst);
            } else {
                *stage = Stage::Done(result);
                done.notify_one();
            }
        }));
        let (stage, done) = &*shared;
        let mut stage = lock(stage);
        loop {
            if let Stage::Done(_) = *stage
                && let Stage::Done(result) = std::mem::replace(&mut *stage, Stage::Left)
            {
                return Some(result);
            }
            let in_time;
            (stage, in_time) = deadline.wait(done, stage);
            if !in_time && !matches!(*stage, Stage::Done(_)) {
                if let Stage::Started = std::mem::replace(&mut *stage, Stage::Left) {
                    self.late.fetch_add(1, SeqCst);
                    self.workers.lose();
                }
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_call_that_ends_in_time_is_returned_and_one_that_does_not_is_late_until_it_ends() {
        let bounded = Bounded::new("test", 1, 1);
        assert_eq!(bounded.run(Duration::MAX, || 7), Some(7));
        let (open, gate) = channel::<()>();
        let (send, dropped) = channel::<()>();
        let (begun, begins) = channel();
        let hangs = move || {
            begun.send(()).unwrap();
            gate.recv().unwrap();
            send
        };
        std::thread::scope(|scope| {
            let left = scope.spawn(|| bounded.run(Duration::from_millis(1), hangs).is_none());
            // It may be withdrawn before it begins; then nothing hangs.
            if begins.recv().is_ok() {
                assert!(left.join().unwrap() && bounded.late() == 1);
                // Another thread takes its place.
                assert_eq!(bounded.run(Duration::MAX, || 8), Some(8));
                open.send(()).unwrap();
                assert!(dropped.recv().is_err(), "what it returns is dropped");
                while bounded.late() > 0 {
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!(bounded.run(Duration::ZERO, || 9).or(Some(9)), Some(9));
    }
}
