//! A look inside: for tests, proofs and benchmarks. Feature `instruments`.
//!
//! | what | for |
//! |---|---|
//! | [`Inject`], [`Gate`], [`Verdict`] | devices that fail, hang, or lose power |
//! | [`PagerBuilder::zcache_sixteenths`] | pages that are compressed though it may not pay |
//! | [`DirtyTimers`] | when old dirty data is written |
//! | [`FileStat`] | what the swap file holds, and what was moved |
//! | [`FaultSite`] | which of the places that handle them was reached |
//! | [`MissTimes`], [`LockTimes`] | where the time of a miss goes |
//! | [`Pager::validate`](crate::Pager::validate) | every invariant of engine and frames |
//!
//! Nothing here is needed to use a pager, and none of it is stable.

pub use crate::pool::lock::LockTimes;
pub use crate::pool::miss_clock::MissTimes;
pub use lowtide_core::DirtyTimers;
pub use lowtide_io::{FaultSite, Gate, Inject, InjectOp, Request, Verdict};
pub use lowtide_swap::FileStat;

use crate::config::PagerBuilder;
use crate::pager::Pager;
use crate::zcache::ZcacheSize;
use lowtide_core::MemcgId;
use std::sync::Arc;

/// The first invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(String);

/// An injector is the program's, and has the program's descriptors.
struct Outside(Arc<dyn Inject>);

impl Inject for Outside {
    fn before(&self, request: &Request<'_>) -> Verdict {
        lowtide_sys::room::outside(|| self.0.before(request))
    }

    fn after(&self, request: &Request<'_>, result: Result<(), i32>) {
        lowtide_sys::room::outside(|| self.0.after(request, result));
    }
}

impl PagerBuilder {
    /// Makes chosen requests fail, for tests.
    pub fn inject(mut self, inject: Arc<dyn Inject>) -> Self {
        self.inject = Some(Arc::new(Outside(inject)));
        self
    }

    /// As [`zcache`](Self::zcache), with this many sixteenths of each budget for compressed pages
    /// from the beginning, whether that pays or not.
    pub fn zcache_sixteenths(mut self, part: u64) -> Self {
        self.zcache = ZcacheSize::Sixteenths(part);
        self
    }

    /// When old data is written, even if it is not much. Default: data dirty for 30 s, checked
    /// every 5 s.
    pub fn dirty_timers(mut self, timers: DirtyTimers) -> Self {
        self.dirty_timers = timers;
        self
    }
}

impl Pager {
    /// Figures of the swap file; `None` if there is none
    /// ([`SwapOptions::file`](crate::SwapOptions::file)).
    #[must_use]
    pub fn swap_file(&self) -> Option<FileStat> {
        self.inner.pool.swap_file.as_ref().map(|file| file.stat())
    }

    /// Begins or ends to measure where the time of misses goes. Each miss then costs some ten looks
    /// at the clock, which are part of what is measured.
    pub fn measure_misses(&self, on: bool) {
        self.inner.pool.miss_clock.set(on);
    }

    /// Times of the misses that were measured. The time for which the lock is held, over
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
    /// [`Violation`] is a sentence that names the invariant.
    pub fn validate(&self) -> Result<(), Violation> {
        let pool = &self.inner.pool;
        let mut state = pool.lock_sound().map_err(|e| Violation(e.to_string()))?;
        state.engine.validate().map_err(Violation)?;
        let reserved = state.engine.stat(MemcgId::ROOT).reserved;
        let charged = state.engine.usage(MemcgId::ROOT);
        let free = u64::from(state.frames.free_frames());
        let frames = u64::from(pool.frames);
        if charged - reserved + free == frames {
            Ok(())
        } else {
            Err(Violation(format!(
                "{charged} pages are charged, {reserved} of them reserved, and {free} frames are \
                 free, of {frames}"
            )))
        }
    }

    /// How often each place that handles failing devices was reached, for tests of failing devices.
    #[must_use]
    pub fn fault_sites(&self) -> Vec<(FaultSite, u64)> {
        self.inner.pool.fault_sites.counts()
    }

    /// Publishes the statistics that classical reclaim works with, which background threads
    /// otherwise do every two seconds.
    pub fn publish(&self) {
        if let Ok(mut state) = self.inner.pool.lock_sound() {
            state.engine.publish();
        }
    }
}
