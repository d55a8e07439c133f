//! What a pager counts: the engine's counters under the kernel's names, and its own I/O.

use lowtide_core::{Engine, MemcgId, MemoryStat};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Transfers, counted as they end.
#[derive(Debug, Default)]
pub(crate) struct IoCounters {
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) write_bytes: AtomicU64,
    pub(crate) ahead_pages: AtomicU64,
    pub(crate) ahead_used: AtomicU64,
    pub(crate) ahead_wasted: AtomicU64,
    pub(crate) throttled_ns: AtomicU64,
    pub(crate) flusher_wakes: AtomicU64,
}

impl IoCounters {
    /// Counts a read that ended well.
    pub(crate) fn note_read(&self, bytes: u32) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(u64::from(bytes), Relaxed);
    }

    pub(crate) fn snapshot(&self) -> IoStat {
        IoStat {
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            ahead_pages: self.ahead_pages.load(Relaxed),
            ahead_used: self.ahead_used.load(Relaxed),
            ahead_wasted: self.ahead_wasted.load(Relaxed),
            throttled_ns: self.throttled_ns.load(Relaxed),
            flusher_wakes: self.flusher_wakes.load(Relaxed),
        }
    }
}

/// Transfers between files and frames since the pager was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStat {
    /// Reads that ended well, each of one page or of neighbours that were joined.
    pub reads: u64,
    /// Bytes that they brought.
    pub read_bytes: u64,
    /// Write runs that ended well.
    pub writes: u64,
    /// Bytes that they wrote.
    pub write_bytes: u64,
    /// Pages that were read ahead of a stream, or because of [`View::prefetch`](crate::View::prefetch).
    pub ahead_pages: u64,
    /// Those of them that were used.
    pub ahead_used: u64,
    /// Those of them that were evicted before they were used. The rest waits to be used, or its file was closed.
    pub ahead_wasted: u64,
    /// Nanoseconds that threads slept because a tenant was over a limit, all threads together.
    pub throttled_ns: u64,
    /// How often reclaim found so much dirty that it woke the flushers.
    pub flusher_wakes: u64,
}

/// Dirty data of a pager or a tenant, and of what is below it: how much there is, how much there may be, and what its writers were made to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyStat {
    /// Bytes that wait to be written.
    pub dirty_bytes: u64,
    /// Bytes that are being written.
    pub writeback_bytes: u64,
    /// Above so many dirty bytes they are written in the background.
    pub background_bytes: u64,
    /// Up to so many bytes, dirty and being written, no writer waits.
    pub freerun_bytes: u64,
    /// At so many bytes, dirty and being written, every writer waits.
    pub hard_bytes: u64,
    /// Pauses that writers had to make.
    pub pauses: u64,
    /// Nanoseconds of all pauses of all writers.
    pub pause_ns: u64,
    /// Nanoseconds of the longest pause.
    pub longest_pause_ns: u64,
}

impl DirtyStat {
    /// Of a group that is alive.
    pub(crate) fn of(engine: &Engine, group: MemcgId, page_shift: u32) -> Self {
        let (state, limits) = (engine.dirty_state(group), engine.dirty_thresholds(group));
        let throttled = engine.throttled(group);
        let bytes = |pages: u64| pages.saturating_mul(1 << page_shift);
        Self {
            dirty_bytes: bytes(state.dirty),
            writeback_bytes: bytes(state.writeback),
            background_bytes: bytes(limits.background),
            freerun_bytes: bytes(limits.freerun),
            hard_bytes: bytes(limits.hard),
            pauses: throttled.pauses,
            pause_ns: throttled.pause_ns,
            longest_pause_ns: throttled.longest_ns,
        }
    }
}

/// One snapshot of a pager. `Display` is the text of a v2 `memory.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The engine's view of the budget.
    pub memory: MemoryStat,
    /// Transfers.
    pub io: IoStat,
    /// Dirty data, and what writers waited because of it.
    pub dirty: DirtyStat,
    /// Bytes of page frames: the budget.
    pub budget_bytes: u64,
    /// Bytes of the frames that have memory behind them: what the budget takes of the system's memory now.
    pub resident_bytes: u64,
    /// Bytes of the frames that are backed by huge pages at this moment.
    pub huge_bytes: u64,
    /// Bytes of the engine's and the allocator's tables, on top of the budget: they depend on the budget only.
    pub frame_metadata_bytes: u64,
    /// Bytes that are dirty or being written.
    pub unwritten_bytes: u64,
    /// Pages whose last write failed, or that have to be written again because a sync failed.
    pub failed_pages: u64,
    /// Bytes of translations, four for each page of each open file.
    pub translation_bytes: u64,
}

impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.fmt(f)
    }
}
