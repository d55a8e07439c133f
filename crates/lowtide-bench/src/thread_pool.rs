//! The threads of one system: started once, and run slice by slice.
//!
//! A thread lives as long as its system, so that per-thread state (rings, registrations, page
//! tables) is set up once and not in every slice. Between slices it blocks on a channel. That is
//! why these are not threads of [`lowtide_report::threads`], which end with the call that starts
//! them.
//!
//! Latency takes one clock reading per step: a step starts when the previous one ends, so it
//! includes generating the operation and checking its bytes, equally for every system. Each
//! operation of a batch counts with the batch's time, because its caller waited that long.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lowtide_host::usage::CpuTime;
use lowtide_report::interrupt;
use lowtide_report::tally::{Slice, Tally};
use lowtide_report::threads::ThreadError;
use serde::{Deserialize, Serialize};

/// A thread ends its slice after this many errors: a few prove that the run is wrong, and errors
/// are often faster than operations and would flood the result.
const ERRORS_MAX: u64 = 100;

/// The end of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Until {
    /// After this time.
    Seconds(f64),
    /// After this many operations, over all threads.
    Ops(u64),
}

/// One thread's part of a workload.
pub trait Player: Send {
    /// Does up to `most` operations (at least 1), requesting their data together where the workload
    /// allows it, and returns their number; 0 when the workload has ended.
    fn step(&mut self, most: u64, tally: &mut Tally) -> u64;

    /// Receives the time of the last step, which is already counted.
    #[inline]
    fn took(&mut self, _took: Duration, _tally: &mut Tally) {}
}

/// The threads of one system.
#[derive(Debug)]
pub struct ThreadPool {
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    /// `None` once the pool is being dropped.
    orders: Option<Sender<Order>>,
    tallies: Receiver<Tally>,
    thread: Option<JoinHandle<()>>,
}

struct Order {
    duration: Option<Duration>,
    ops: u64,
    batch: u64,
    start: Arc<Barrier>,
}

impl ThreadPool {
    /// Starts one thread for each player.
    ///
    /// # Errors
    /// [`ThreadError::Create`] when the kernel cannot create that many threads.
    pub fn start(players: Vec<Box<dyn Player>>) -> Result<Self, ThreadError> {
        let count = players.len();
        let workers = players.into_iter().enumerate().map(|(number, mut player)| {
            let (orders, inbox) = channel::<Order>();
            let (outbox, tallies) = channel();
            let thread =
                std::thread::Builder::new().name(format!("player-{number}")).spawn(move || {
                    while let Ok(order) = inbox.recv() {
                        if outbox.send(play(player.as_mut(), &order)).is_err() {
                            return;
                        }
                    }
                })?;
            Ok(Worker { orders: Some(orders), tallies, thread: Some(thread) })
        });
        let workers: std::io::Result<_> = workers.collect();
        workers
            .map(|workers| Self { workers })
            .map_err(|source| ThreadError::Create { count, source })
    }

    /// Runs one slice in steps of `batch` operations and returns the threads' tallies.
    ///
    /// # Errors
    /// [`ThreadError::Panicked`].
    pub fn run(&mut self, until: Until, batch: u32) -> Result<Vec<Tally>, ThreadError> {
        let threads = self.workers.len() as u64;
        let start = Arc::new(Barrier::new(self.workers.len()));
        for (number, worker) in (0..).zip(&self.workers) {
            let (duration, ops) = match until {
                Until::Seconds(seconds) => (Some(Duration::from_secs_f64(seconds)), u64::MAX),
                Until::Ops(ops) => (None, share(ops, number, threads)),
            };
            let order = Order { duration, ops, batch: u64::from(batch), start: Arc::clone(&start) };
            // The loop below detects a worker that has ended.
            let _ = worker.orders.as_ref().map(|orders| orders.send(order));
        }
        self.workers
            .iter()
            .map(|worker| worker.tallies.recv().map_err(|_| ThreadError::Panicked))
            .collect()
    }
}

impl ThreadPool {
    /// Runs one slice, an operation at a time, of a system that flushes nothing, and measures the
    /// processor time of this process.
    ///
    /// # Errors
    /// Those of [`ThreadPool::run`].
    pub fn slice(&mut self, until: Until) -> Result<Slice, ThreadError> {
        let cpu = CpuTime::now_self();
        let mut slice = Slice::of(&self.run(until, 1)?);
        slice.cpu_seconds = CpuTime::now_self().since(cpu).seconds();
        Ok(slice)
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.orders = None;
        }
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                // The slice in which a panic happened has already reported it.
                let _ = thread.join();
            }
        }
    }
}

/// Share `number` of `total` operations in `parts` shares, which differ by at most one.
pub fn share(total: u64, number: u64, parts: u64) -> u64 {
    let cut = |n: u64| (u128::from(total) * u128::from(n) / u128::from(parts)) as u64;
    cut(number + 1) - cut(number)
}

fn play(player: &mut dyn Player, order: &Order) -> Tally {
    order.start.wait();
    let mut tally = Tally::new();
    let begin = Instant::now();
    let deadline = order.duration.map(|duration| begin + duration);
    let mut last = begin;
    let mut left = order.ops;
    while left > 0 && tally.errors < ERRORS_MAX && !interrupt::requested() {
        let done = player.step(order.batch.min(left), &mut tally);
        if done == 0 {
            break;
        }
        let now = Instant::now();
        tally.latency.record(now - last, done);
        player.took(now - last, &mut tally);
        tally.ops += done;
        left -= done.min(left);
        last = now;
        if deadline.is_some_and(|deadline| now >= deadline) {
            break;
        }
    }
    tally.span = (begin, last);
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Countdown {
        left: u64,
    }

    impl Player for Countdown {
        fn step(&mut self, most: u64, tally: &mut Tally) -> u64 {
            let done = self.left.min(most);
            self.left -= done;
            tally.verified += done;
            done
        }
    }

    fn pool(players: impl IntoIterator<Item = Countdown>) -> ThreadPool {
        let players =
            players.into_iter().map(|player| Box::new(player) as Box<dyn Player>).collect();
        ThreadPool::start(players).unwrap()
    }

    #[test]
    fn operations_are_shared_exactly_and_streams_go_on_in_the_next_slice() {
        let mut pool = pool((0..3).map(|_| Countdown { left: 100 }));
        for (want, slice) in [(200, 200), (100, 200), (0, 200)] {
            let tallies = pool.run(Until::Ops(slice), 7).unwrap();
            assert_eq!(tallies.iter().map(|tally| tally.ops).sum::<u64>(), want);
            assert_eq!(tallies.iter().map(|tally| tally.verified).sum::<u64>(), want);
        }
        assert_eq!((0..3).map(|n| share(10, n, 3)).collect::<Vec<_>>(), [3, 3, 4]);
    }

    #[test]
    fn a_slice_of_time_ends() {
        let mut pool = pool([Countdown { left: u64::MAX }]);
        let tally = &pool.run(Until::Seconds(0.001), 1).unwrap()[0];
        assert!(tally.ops > 0 && tally.span.1 > tally.span.0);
    }

    #[test]
    fn a_panicking_thread_is_an_error_and_not_a_hang() {
        struct Bomb;
        impl Player for Bomb {
            fn step(&mut self, _: u64, _: &mut Tally) -> u64 {
                panic!("as the test wants");
            }
        }
        let mut pool = ThreadPool::start(vec![Box::new(Bomb)]).unwrap();
        assert!(matches!(pool.run(Until::Ops(1), 1), Err(ThreadError::Panicked)));
    }
}
