//! A look inside: for tests, proofs and benchmarks. Feature `instruments`.
//!
//! | what | for |
//! |---|---|
//! | [`Inject`], [`Gate`], [`Verdict`] | devices that fail, hang, or lose power |
//! | [`FaultSite`] | which of the places that handle them was reached |
//! | [`MissTimes`], [`LockTimes`] | where the time of a miss goes |
//! | [`Pager::validate`](crate::Pager::validate) | every invariant of engine and frames |
//!
//! Nothing here is needed to use a pager, and none of it is stable.

pub use crate::pool::lock::LockTimes;
pub use crate::pool::miss_clock::MissTimes;
pub use lowtide_io::{FaultSite, Gate, Inject, InjectOp, Request, Verdict};

use crate::config::PagerBuilder;
use crate::pager::Pager;
use crate::tenant::ExportError;
use lowtide_core::MemcgId;
use std::sync::Arc;

impl PagerBuilder {
    /// Makes chosen requests fail, for tests.
    pub fn inject(mut self, inject: Arc<dyn Inject>) -> Self {
        self.inject = Some(inject);
        self
    }
}

impl Pager {
    /// Begins or ends to measure where the time of misses goes. Each miss then costs some ten looks
    /// at the clock, which are part of what is measured.
    pub fn measure_misses(&self, on: bool) {
        self.inner.pool.miss_clock.set(on);
    }

    /// What misses have taken while they were measured. The time for which the lock is held, over
    /// the misses of the same time, says how many misses a second are possible on a machine with
    /// many processors: one miss takes the lock more than once.
    #[must_use]
    pub fn miss_times(&self) -> MissTimes {
        self.inner.pool.miss_clock.times()
    }

    /// Checks every invariant of the engine and of the frames. Cost: a look at every frame; for
    /// tests and for runs with such an option.
    ///
    /// # Errors
    /// A sentence that names the first invariant that does not hold.
    pub fn validate(&self) -> Result<(), String> {
        let pool = &self.inner.pool;
        let mut state = pool.lock();
        pool.check().map_err(|e| e.to_string())?;
        state.engine.validate()?;
        let reserved = state.engine.stat(MemcgId::ROOT).reserved;
        let charged = state.engine.usage(MemcgId::ROOT);
        let free = u64::from(state.frames.free_frames());
        let frames = u64::from(pool.frames);
        if charged - reserved + free == frames {
            Ok(())
        } else {
            Err(format!(
                "{charged} pages are charged, {reserved} of them reserved, and {free} frames are \
                 free, of {frames}"
            ))
        }
    }

    /// What went wrong in the last round of exports, if anything did.
    #[must_use]
    pub fn export_error(&self) -> Option<ExportError> {
        self.inner.threads.exporter()?.last_error()
    }

    /// How often each place that handles failing devices was reached, for tests of failing devices.
    #[must_use]
    pub fn fault_sites(&self) -> Vec<(FaultSite, u64)> {
        self.inner.pool.fault_sites.counts()
    }

    /// Publishes the statistics that classical reclaim works with, which background threads
    /// otherwise do every two seconds.
    pub fn publish(&self) {
        let pool = &self.inner.pool;
        let mut state = pool.lock();
        if !pool.is_poisoned() {
            state.engine.publish();
        }
    }
}
