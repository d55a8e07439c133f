//! Checkpoints: all dirty data is made durable at intervals, while operations continue.
//!
//! A database makes its changes durable in the background and serves reads meanwhile; `mixed`
//! measures the effect on the reads. A separate thread flushes at each interval (lowtide:
//! [`flush`](DataAccess::flush) of the view; a mapping: `msync` of all of it), and a read counts as
//! *during* a checkpoint if one was in progress when the read began or ended.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use lowtide_report::tally::{Checkpoints, Latency, Tally};
use lowtide_report::threads::{self, Stop};
use lowtide_workload::ycsb::YcsbStream;

use lowtide_bench::access::{AccessError, DataAccess};
use lowtide_bench::error::BenchError;
use lowtide_bench::play::record::RecordPlayer;
use lowtide_bench::thread_pool::Player;

/// The times of checkpoints, and whether one is in progress. Clones share the latter.
#[derive(Clone, Debug)]
pub(crate) struct Checkpointer {
    every: Duration,
    running: Arc<AtomicBool>,
}

impl Checkpointer {
    /// One checkpoint per interval, counted from the start of a slice.
    pub(crate) fn every(every: Duration) -> Self {
        Self { every, running: Arc::default() }
    }

    /// Plays a slice with checkpoints through `access`. A checkpoint in progress when the
    /// operations end is finished; one that is only due is skipped.
    ///
    /// # Errors
    /// Those of `slice`. A checkpoint that fails is counted as an error of the first thread.
    pub(crate) fn beside<D: DataAccess>(
        &self,
        access: &mut D,
        slice: impl FnOnce() -> Result<Vec<Tally>, BenchError>,
    ) -> Result<(Vec<Tally>, Checkpoints), BenchError> {
        let (done, slice_done) = channel::<()>();
        let slice = move || {
            let _until_it_ends = done;
            slice()
        };
        let make = move || self.make(access, &slice_done);
        let (tallies, made) = threads::run(&Stop::default(), [make], slice)?;
        let mut tallies = tallies?;
        let (mut seconds, mut failed) = (Vec::new(), None);
        for (took, error) in made {
            seconds.extend(took);
            failed = failed.or(error);
        }
        if let (Some(error), Some(tally)) = (failed, tallies.first_mut()) {
            tally.fail(&format_args!("checkpoint: {error}"));
        }
        let (mut during, mut outside) = (Latency::default(), Latency::default());
        for reads in tallies.iter().filter_map(|tally| tally.reads.as_ref()) {
            during.add(&reads.during);
            outside.add(&reads.outside);
        }
        let checkpoints = Checkpoints { seconds, during: during.pairs(), outside: outside.pairs() };
        Ok((tallies, checkpoints))
    }

    /// Makes checkpoints until the other end of `slice_done` is dropped.
    fn make<D: DataAccess>(
        &self,
        access: &mut D,
        slice_done: &Receiver<()>,
    ) -> (Vec<f64>, Option<AccessError>) {
        let (mut seconds, mut failed) = (Vec::new(), None);
        let mut due = Instant::now() + self.every;
        while slice_done.recv_timeout(due.saturating_duration_since(Instant::now()))
            == Err(RecvTimeoutError::Timeout)
        {
            let begin = Instant::now();
            self.running.store(true, Relaxed);
            let done = access.flush();
            self.running.store(false, Relaxed);
            match done {
                Ok(()) => seconds.push(begin.elapsed().as_secs_f64()),
                Err(error) => failed = failed.or(Some(error)),
            }
            due = (due + self.every).max(Instant::now());
        }
        (seconds, failed)
    }
}

/// Operations on records, whose reads are counted as during or outside a checkpoint.
pub(crate) struct CheckpointedPlayer<D> {
    inner: RecordPlayer<D>,
    checkpointer: Checkpointer,
    began_during: bool,
}

impl<D: DataAccess> CheckpointedPlayer<D> {
    /// A player of `stream` with checkpoints by `checkpointer`.
    pub(crate) fn new(access: D, stream: YcsbStream, checkpointer: Checkpointer) -> Self {
        Self { inner: RecordPlayer::new(access, stream), checkpointer, began_during: false }
    }
}

impl<D: DataAccess> Player for CheckpointedPlayer<D> {
    fn step(&mut self, most: u64, tally: &mut Tally) -> u64 {
        self.began_during = self.checkpointer.running.load(Relaxed);
        self.inner.step(most, tally)
    }

    fn took(&mut self, took: Duration, tally: &mut Tally) {
        let count = self.inner.last_reads();
        if count == 0 {
            return;
        }
        let during = self.began_during || self.checkpointer.running.load(Relaxed);
        let reads = tally.reads.get_or_insert_default();
        if during { &mut reads.during } else { &mut reads.outside }.record(took, count);
    }
}
