//! Progress and cancellation: after each chunk of the tape, some 64 thousand records, a thread
//! reports its progress and checks whether to stop.

use super::run::MrcError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Records played, over all jobs.
    pub done: u64,
    /// Records to play. Estimated for [`Run::advise`](super::Run::advise).
    pub total: u64,
}

/// Counts and reports played records, and checks for cancellation.
pub(super) struct Watch<'a> {
    stop: &'a AtomicBool,
    /// Set when another thread failed.
    abandoned: AtomicBool,
    progress: &'a (dyn Fn(Progress) + Sync),
    done: AtomicU64,
    total: u64,
}

impl<'a> Watch<'a> {
    pub(super) const fn new(
        stop: &'a AtomicBool,
        progress: &'a (dyn Fn(Progress) + Sync),
        total: u64,
    ) -> Self {
        Self { stop, abandoned: AtomicBool::new(false), progress, done: AtomicU64::new(0), total }
    }

    /// Counts records as played.
    pub(super) fn played(&self, records: usize) -> Result<(), MrcError> {
        self.count(records as u64);
        if self.stop.load(Ordering::Relaxed) || self.abandoned.load(Ordering::Relaxed) {
            return Err(MrcError::Cancelled);
        }
        Ok(())
    }

    /// Makes the other threads stop.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Counts records as played or skipped.
    pub(super) fn count(&self, records: u64) {
        // Relaxed: the numbers are only displayed, and order nothing.
        let done = self.done.fetch_add(records, Ordering::Relaxed) + records;
        (self.progress)(Progress { done: done.min(self.total), total: self.total });
    }
}
