//! What a pager counts while it works. What it says of that is `lowtide_core::counters`.

use crate::space::Space;
use lowtide_core::counters::{DirtyStat, IoCounts};
use lowtide_core::{Engine, MemcgId};
use lowtide_pin::hazard;
use lowtide_pin::sampling::SAMPLE;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Transfers, counted as they end, and accesses.
#[derive(Debug, Default)]
pub(crate) struct IoCounters {
    /// Those that others see as they are.
    pub(crate) counts: IoCounts,
    /// Hits that samples stand for.
    hits: AtomicU64,
    /// Accesses that waited for a read.
    misses: AtomicU64,
}

impl IoCounters {
    /// Counts an access to a page of a space that an earlier access had brought in, and that was no
    /// fast hit.
    #[inline]
    pub(crate) fn note_hit(&self, space: &Space) {
        if hazard::is_sample() {
            self.note_sample(space);
        }
    }

    /// Counts the hits that a sample stands for.
    pub(crate) fn note_sample(&self, space: &Space) {
        self.hits.fetch_add(u64::from(SAMPLE), Relaxed);
        if let Some(zcache) = &space.zcache {
            zcache.cache.clock().note_hits(u64::from(SAMPLE));
        }
    }

    /// Counts an access that waited for a read.
    pub(crate) fn note_miss(&self) {
        self.misses.fetch_add(1, Relaxed);
    }

    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    /// The first accesses to pages that were read ahead are misses, too: their reads went to the
    /// device.
    pub(crate) fn misses(&self) -> u64 {
        self.misses.load(Relaxed) + self.counts.ahead_used.load(Relaxed)
    }

    /// Counts a read that ended well.
    pub(crate) fn note_read(&self, bytes: u32) {
        self.counts.reads.fetch_add(1, Relaxed);
        self.counts.read_bytes.fetch_add(u64::from(bytes), Relaxed);
    }
}

/// The figures of a group that is alive.
pub(crate) fn dirty_stat(engine: &Engine, group: MemcgId, page_shift: u32) -> DirtyStat {
    let (state, limits) = (engine.dirty_state(group), engine.dirty_thresholds(group));
    let throttled = engine.throttled(group);
    let bytes = |pages: u64| pages.saturating_mul(1 << page_shift);
    let mut stat = DirtyStat::default();
    stat.dirty_bytes = bytes(state.dirty);
    stat.writeback_bytes = bytes(state.writeback);
    stat.background_bytes = bytes(limits.background);
    stat.freerun_bytes = bytes(limits.freerun);
    stat.hard_bytes = bytes(limits.hard);
    stat.pauses = throttled.pauses;
    stat.paused = Duration::from_nanos(throttled.pause_ns);
    stat.longest_pause = Duration::from_nanos(throttled.longest_ns);
    stat
}
