//! Time on the plain machine, and what is on its way to swap.
//!
//! Time is virtual nanoseconds: 100 an access, 1 µs a step of reclaim, naps as long as reclaim
//! requests. A miss whose contents have to be read sleeps for the latency of the swap device,
//! wherever it reads, unless the configuration says what a read of a file takes. Only compressed
//! pages (`zcache.rs`) and an asynchronous swap device depend on any of this: its writes end a
//! latency after they began. Their state does not matter between two faults, so accesses that hit
//! advance the clock by being counted, and writes that have ended meanwhile are settled at the next
//! access that does more than hit.

use super::Plain;
use lowtide_core::{FolioId, Task};
use std::collections::VecDeque;

/// What an access takes.
const ACCESS_NS: u64 = 100;
/// What a step of reclaim takes.
pub(super) const RECLAIM_STEP_NS: u64 = 1_000;

/// Time beyond that of the accesses, and the writes that it will end.
#[derive(Debug, Default)]
pub(super) struct Clock {
    passed: u64,
    /// When writes end, and of what. They take equally long, so the first to begin is the first to
    /// end.
    writes: VecDeque<(u64, FolioId)>,
}

impl Plain {
    /// Nanoseconds of virtual time that have passed.
    #[must_use]
    pub const fn now(&self) -> u64 {
        self.counts.accesses.saturating_mul(ACCESS_NS).saturating_add(self.clock.passed)
    }

    /// Lets time pass, and writes end.
    pub(super) fn pass_time(&mut self, nanos: u64) {
        self.clock.passed = self.clock.passed.saturating_add(nanos);
        self.settle();
    }

    /// Ends the writes that are over.
    #[inline]
    pub(super) fn settle(&mut self) {
        if !self.clock.writes.is_empty() {
            self.end_writes();
        }
    }

    fn end_writes(&mut self) {
        let now = self.now();
        while let Some((_, frame)) = self.clock.writes.pop_front_if(|&mut (end, _)| end <= now) {
            self.pool.engine.end_writeback(frame, true, Task::DESCRIPTOR);
        }
    }

    /// A write has begun that takes this long.
    pub(super) fn write_ends_in(&mut self, latency_ns: u64, frame: FolioId) {
        self.clock.writes.push_back((self.now().saturating_add(latency_ns), frame));
    }

    /// The task is switched out, and comes back after this time.
    pub(super) fn sleep(&mut self, nanos: u64) {
        if !self.config.switched_in_walk {
            self.pool.engine.set_idle(self.process, false);
        }
        self.pass_time(nanos);
    }

    /// The task sleeps for a read, and while it does, what reclaim wrote to swap for its sake is
    /// written.
    pub(super) fn wait_for_read(&mut self) {
        self.sleep(self.config.swap.and_then(|swap| swap.latency_ns).unwrap_or(0));
    }

    /// The task sleeps for a read of a file.
    pub(super) fn wait_for_file(&mut self) {
        match self.config.read_ns {
            Some(nanos) => self.sleep(nanos),
            None => self.wait_for_read(),
        }
    }

    /// The task sleeps until a folio is no longer being written.
    pub(super) fn wait_for_write(&mut self, frame: FolioId) {
        self.settle();
        if let Some(&(end, _)) = self.clock.writes.iter().find(|&&(_, writing)| writing == frame) {
            self.sleep(end.saturating_sub(self.now()));
        }
    }
}
