//! What a pager counts: the engine's counters under the kernel's names, and its own I/O.

use lowtide_core::{Engine, MemcgId, MemoryStat};
use lowtide_pin::hazard;
use lowtide_pin::sampling::SAMPLE;
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
    /// Hits that samples stand for.
    hits: AtomicU64,
    /// Accesses that waited for a read.
    misses: AtomicU64,
}

impl IoCounters {
    /// Counts an access to a page that an earlier access had brought in, and that was no fast hit.
    #[inline]
    pub(crate) fn note_hit(&self) {
        if hazard::is_sample() {
            self.note_sample();
        }
    }

    /// Counts the hits that a sample stands for.
    pub(crate) fn note_sample(&self) {
        self.hits.fetch_add(u64::from(SAMPLE), Relaxed);
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
        self.misses.load(Relaxed) + self.ahead_used.load(Relaxed)
    }

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
    /// Pages that were read ahead of a stream, around a miss, next to a page that came back from
    /// swap, or because of [`View::prefetch`](crate::View::prefetch).
    pub ahead_pages: u64,
    /// Those of them that were used.
    pub ahead_used: u64,
    /// Those of them that were evicted before they were used. The rest waits to be used, or its
    /// file was closed. Of long windows behind a pointer one page in eight is looked at, and stands
    /// for all; that others were used may not be seen.
    pub ahead_wasted: u64,
    /// Nanoseconds that threads slept because a tenant was over a limit, all threads together.
    pub throttled_ns: u64,
    /// How often reclaim found too much dirty and woke the flushers.
    pub flusher_wakes: u64,
}

/// Dirty data of a pager or a tenant, and of what is below it: how much there is, how much there
/// may be, and how long its writers had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtyStat {
    /// Bytes that wait to be written.
    pub dirty_bytes: u64,
    /// Bytes that are being written.
    pub writeback_bytes: u64,
    /// Above this many dirty bytes they are written in the background.
    pub background_bytes: u64,
    /// Up to this many bytes, dirty and being written, no writer waits.
    pub freerun_bytes: u64,
    /// At this many bytes, dirty and being written, every writer waits.
    pub hard_bytes: u64,
    /// Pauses that writers had to make.
    pub pauses: u64,
    /// Nanoseconds of all pauses of all writers.
    pub pause_ns: u64,
    /// Nanoseconds of the longest pause.
    pub longest_pause_ns: u64,
}

impl DirtyStat {
    /// The figures of a group that is alive.
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

/// One snapshot of a pager. `Display` is the text of a v2 `memory.stat`, and two lines for hits and
/// misses; the last line has no end, for `println!`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The pager met a defect of its own ([`Error::Poisoned`](crate::Error::Poisoned)), and does
    /// nothing more. `memory`, `dirty`, `unwritten_bytes` and `frame_metadata_bytes` are unknown
    /// then, and zero.
    pub poisoned: bool,
    /// The engine's view of the budget.
    pub memory: MemoryStat,
    /// Transfers.
    pub io: IoStat,
    /// Dirty data, and how long writers waited because of it.
    pub dirty: DirtyStat,
    /// Bytes of page frames: the budget.
    pub budget_bytes: u64,
    /// Bytes of the frames that have memory behind them: what the budget takes of the system's
    /// memory now.
    pub resident_bytes: u64,
    /// Bytes of the frames that are backed by huge pages at this moment.
    pub huge_bytes: u64,
    /// Bytes of the engine's and the allocator's tables, on top of the budget: they depend on the
    /// budget only.
    pub frame_metadata_bytes: u64,
    /// Bytes that are dirty or being written.
    pub unwritten_bytes: u64,
    /// Pages whose last write failed, or that have to be written again because a sync failed.
    pub failed_pages: u64,
    /// Bytes of memory that translations take: four for each page of each open file or region, in
    /// those parts of it that were ever used. More where the kernel gives huge pages.
    pub translation_bytes: u64,
    /// Reads of a page ([`View::page`](crate::View::page), and each page of a `read_at` or
    /// `get_many`) that found it in memory because of an earlier access. Estimated: one of 1024
    /// hits is counted, for all of them. Each thread that hits contributes an error below 1024;
    /// below 2048 if it uses several pagers one after the other. If it uses them in turns, the
    /// error grows with the root of its hits: 3 % of a million at most. The errors have a mean of
    /// zero.
    pub hits: u64,
    /// Reads of a page that waited for the device, or that read-ahead had started. Exact. Stores
    /// count in neither.
    pub misses: u64,
}

impl Stat {
    /// The share of the reads of pages since the pager was built that needed no device:
    /// [`hits`](Stat::hits) of hits and [`misses`](Stat::misses). `None` before the first. For
    /// the ratio of an interval, see [`hit_ratio_since`](Stat::hit_ratio_since).
    ///
    /// # Examples
    /// ```
    /// # let file = tempfile::NamedTempFile::new()?;
    /// # std::fs::write(file.path(), [1; 64])?;
    /// let pager = lowtide::Pager::builder().max(lowtide::Size::mib(1)).build()?;
    /// assert_eq!(pager.stat().hit_ratio(), None);
    /// let view = pager.open(file.path())?;
    /// for _ in 0..100_000 {
    ///     assert_eq!(view.page(0)?[63], 1);
    /// }
    /// assert!(pager.stat().hit_ratio() > Some(0.9));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        self.hit_ratio_since(&Self::default())
    }

    /// As [`hit_ratio`](Stat::hit_ratio), of what has happened since an earlier snapshot of the
    /// same pager.
    #[must_use]
    pub fn hit_ratio_since(&self, earlier: &Self) -> Option<f64> {
        let hits = self.hits.saturating_sub(earlier.hits);
        let reads = hits + self.misses.saturating_sub(earlier.misses);
        (reads > 0).then(|| hits as f64 / reads as f64)
    }
}

impl fmt::Display for Stat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}hits {}\nmisses {}", self.memory, self.hits, self.misses)
    }
}
