//! The threads of one system: started once, and run slice by slice.
//!
//! They live as long as their system, so that what a system keeps for each thread (rings, slots,
//! queues) is made once. Between slices they wait for an order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lowtide_workload::RecordOpKind;

use crate::error::Error;
use crate::pages::Pages;
use crate::work::Stream;

/// Operations between two looks at the clock.
const STEP: u64 = 32;

/// Set by a signal: all slices end.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// When a slice ends.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After this time.
    Time(Duration),
    /// After this many operations of each thread.
    Ops(u64),
}

/// What a slice did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Operations.
    pub ops: u64,
    /// Updates among them.
    pub updates: u64,
    /// Operations whose page was read from the device, as the threads know it.
    pub missed: u64,
    /// From the first start to the last end.
    pub seconds: f64,
}

type Answer = Result<Tally, Error>;
type Order = (Until, Arc<Barrier>);

/// The threads.
pub struct ThreadPool {
    workers: Vec<Worker>,
    name: String,
}

struct Worker {
    /// `None` once the pool is being dropped.
    orders: Option<Sender<Order>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl ThreadPool {
    /// Starts a thread for each stream.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub fn start(
        name: &str,
        pages: &Arc<dyn Pages>,
        streams: impl Iterator<Item = Stream>,
    ) -> Result<Self, Error> {
        let start = |mut stream: Stream| {
            let (orders, inbox) = channel::<Order>();
            let (outbox, answers) = channel();
            let pages = Arc::clone(pages);
            let thread = std::thread::Builder::new().spawn(move || {
                while let Ok((until, together)) = inbox.recv() {
                    together.wait();
                    if outbox.send(play(pages.as_ref(), &mut stream, until)).is_err() {
                        return;
                    }
                }
            });
            let thread = thread.map_err(|_| Error::Thread(name.to_owned()))?;
            Ok(Worker { orders: Some(orders), answers, thread: Some(thread) })
        };
        Ok(Self { workers: streams.map(start).collect::<Result<_, Error>>()?, name: name.into() })
    }

    /// Runs one slice.
    ///
    /// # Errors
    /// The first error of a thread, once all have ended; [`Error::Thread`] if one has panicked.
    pub fn run(&mut self, until: Until) -> Result<Tally, Error> {
        let together = Arc::new(Barrier::new(self.workers.len()));
        for worker in &self.workers {
            // A thread that has ended is noticed below.
            let _ =
                worker.orders.as_ref().map(|orders| orders.send((until, Arc::clone(&together))));
        }
        let ended = || Error::Thread(self.name.clone());
        let answers: Vec<Answer> = self
            .workers
            .iter()
            .map(|worker| worker.answers.recv().unwrap_or_else(|_| Err(ended())))
            .collect();
        answers.into_iter().try_fold(Tally::default(), |sum, answer| {
            let tally = answer?;
            Ok(Tally {
                ops: sum.ops + tally.ops,
                updates: sum.updates + tally.updates,
                missed: sum.missed + tally.missed,
                seconds: sum.seconds.max(tally.seconds),
            })
        })
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.orders = None;
        }
        for worker in &mut self.workers {
            // A panic was reported with its slice.
            let _ = worker.thread.take().map(JoinHandle::join);
        }
    }
}

fn play(pages: &dyn Pages, stream: &mut Stream, until: Until) -> Answer {
    let begin = Instant::now();
    let mut tally = Tally::default();
    loop {
        let steps = match until {
            Until::Time(_) => STEP,
            Until::Ops(ops) => STEP.min(ops - tally.ops),
        };
        for _ in 0..steps {
            let op = stream.next_op();
            let missed = match op.kind {
                RecordOpKind::Read => pages.read(op.key)?,
                RecordOpKind::Update => {
                    tally.updates += 1;
                    pages.update(op.key)?
                }
            };
            tally.missed += u64::from(missed);
        }
        tally.ops += steps;
        let ended = match until {
            Until::Time(time) => begin.elapsed() >= time,
            Until::Ops(ops) => tally.ops >= ops,
        };
        if ended || STOP.load(Ordering::Relaxed) {
            tally.seconds = begin.elapsed().as_secs_f64();
            return Ok(tally);
        }
    }
}
