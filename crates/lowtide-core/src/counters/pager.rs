//! What a pager counts. The runtime counts it and fills these structures.

use super::MemoryStat;
use super::table::{
    Rendering::{Metric, Page, Python},
    numbers,
};
use std::time::Duration;

numbers! {
    /// Transfers between files and frames since the pager was built.
    #[derive(Eq)]
    #[non_exhaustive]
    pub struct IoStat {
        /// Reads that ended well, each of one page or of neighbours that were joined.
        reads: u64 = events("Transfers from files").c(10, "reads").phrase("reads {}");
        read_bytes: u64 = bytes("Bytes read from files").c(11, "read_bytes").phrase("({})");
        /// Runs of pages that ended well.
        writes: u64 = events("Transfers to files").c(12, "writes").phrase("writes {}");
        write_bytes: u64 = bytes("Bytes written to files")
            .metric_name("written_bytes").c(13, "written_bytes").phrase("({})");
        /// Ahead of a stream, around a miss, next to a page that came back from swap, or because a
        /// program requested it.
        ahead_pages: u64 = pages("Pages that were read ahead")
            .c(14, "ahead_pages").phrase("read ahead {} pages").summary("read_ahead_pages");
        ahead_used: u64 = pages("Pages that were read ahead and used");
        /// The rest waits to be used, or its file was closed. Of long windows behind a pointer one
        /// page in eight is looked at, and stands for all; that others were used may not be seen.
        ahead_wasted: u64 = pages("Pages that were read ahead and evicted unused")
            .c(15, "ahead_wasted").phrase("{} wasted").summary("read_ahead_wasted_pages");
        /// All threads together.
        throttled: Duration =
            time("Time that threads slept because a tenant was over a limit")
            .named("throttled_ns").c(17, "throttled_ns").phrase("slept {}");
        flusher_wakes: u64 =
            events("Times that reclaim found too much dirty and woke the flushers");
    }
    counted {
        /// What becomes an [`IoStat`], counted by many threads. Time is in nanoseconds.
        IoCounts
    }
}

impl IoStat {
    /// Of what was read ahead, the shares that were used and that were evicted unused; none, where
    /// nothing was read ahead.
    #[must_use]
    pub fn ahead_shares(&self) -> Option<(f64, f64)> {
        let share = |pages: u64| pages as f64 / self.ahead_pages as f64;
        (self.ahead_pages > 0).then(|| (share(self.ahead_used), share(self.ahead_wasted)))
    }
}

numbers! {
    /// Dirty data of a pager or a tenant, and of what is below it: how much there is, how much
    /// there may be, and how long its writers had to wait.
    #[derive(Eq)]
    #[non_exhaustive]
    pub struct DirtyStat {
        dirty_bytes: u64 = bytes("Bytes that wait to be written").now().hidden(&[Page, Metric]);
        writeback_bytes: u64 = bytes("Bytes that are being written").now().hidden(&[Page, Metric]);
        /// Above this many dirty bytes they are written in the background.
        background_bytes: u64 =
            bytes("Dirty bytes above which they are written in the background").now()
            .hidden(&[Page, Metric]);
        freerun_bytes: u64 =
            bytes("Bytes, dirty and being written, up to which no writer waits").now()
            .hidden(&[Page, Metric]);
        hard_bytes: u64 =
            bytes("Bytes, dirty and being written, at which every writer waits").now()
            .hidden(&[Page, Metric]);
        pauses: u64 = events("Pauses that writers had to make").hidden(&[Page, Metric]);
        paused: Duration = time("Time of all pauses of all writers")
            .named("pause_ns").hidden(&[Page, Metric]);
        longest_pause: Duration = time("The longest pause of a writer").now()
            .named("longest_pause_ns").hidden(&[Page, Metric]);
    }
}

numbers! {
    /// One snapshot of a pager. `Display` is the text of a v2 `memory.stat`, and two lines for hits
    /// and misses; the last line has no end, for `println!`.
    #[derive(Eq)]
    #[non_exhaustive]
    pub struct Stat {
        budget_bytes: u64 = bytes("The budget: bytes of page frames").now()
            .hidden(&[Page, Metric]).c(0, "budget");
        /// What the budget takes of the system's memory now.
        resident_bytes: u64 = bytes("Bytes of frames that are backed by memory").now()
            .c(2, "resident");
        huge_bytes: u64 = bytes("Bytes of frames that are backed by huge pages").now()
            .hidden(&[Page, Metric]);
        /// The engine's and the allocator's: they depend on the budget only.
        frame_metadata_bytes: u64 = bytes("Bytes of tables, in addition to the budget").now()
            .named("metadata_bytes").hidden(&[Python]);
        /// Four for each page of each open file or region, in those parts of it that were ever
        /// used. More where the kernel gives huge pages.
        translation_bytes: u64 = bytes("Bytes of memory that translations take").now()
            .hidden(&[Page, Metric]);
        unwritten_bytes: u64 = bytes("Bytes that are dirty or being written").now()
            .hidden(&[Page, Metric]).c(6, "unwritten");
        /// Or that have to be written again because a sync failed.
        failed_pages: u64 = pages("Pages whose last write failed").now().c(7, "failed_pages");
        /// Each page of a range counts that was there because of an earlier access. One of 1024
        /// hits is counted, for all of them. Each thread that hits contributes an error below
        /// 1024; below 2048 if it uses several pagers one after the other. If it uses them in
        /// turns, the error grows with the root of its hits: 3 % of a million at most. The errors
        /// have a mean of zero.
        hits: u64 =
            events("Reads of pages found in memory, estimated; pointers are not counted")
            .c(8, "hits");
        /// Or that read-ahead had started. Exact. Stores count in neither.
        misses: u64 = events("Reads of pages that waited for the device").c(9, "misses");
        /// A defect of its own, after which it does nothing more. `memory`, `dirty`,
        /// `unwritten_bytes` and `frame_metadata_bytes` are unknown then, and zero.
        poisoned: bool = events("1 if the pager met a defect, after which most figures are zero")
            .now().hidden(&[Page, Metric, Python]).c(18, "poisoned");
    }
    parts {
        /// Transfers.
        io: IoStat,
        /// Dirty data, and how long writers waited because of it.
        dirty: DirtyStat,
    }
    beside {
        /// The engine's view of the budget.
        memory: MemoryStat,
    }
    computed {
        bytes("Bytes of pages that are charged: in use and on their way")
            .named("usage_bytes").now().hidden(&[Page, Metric, Python]).c(1, "usage")
            => |stat| stat.memory.current * stat.memory.page_bytes;
        bytes("Bytes of tables, in addition to the budget")
            .named("metadata_bytes").now().hidden(&[Page, Metric]).c(3, "metadata")
            => |stat| stat.frame_metadata_bytes + stat.translation_bytes;
        bytes("Bytes of pages of files")
            .named("file_bytes").now().hidden(&[Page, Metric, Python]).c(4, "file")
            => |stat| stat.memory.file * stat.memory.page_bytes;
        bytes("Bytes of pages of regions")
            .named("anon_bytes").now().hidden(&[Page, Metric, Python]).c(5, "anon")
            => |stat| stat.memory.anon * stat.memory.page_bytes;
        pages("Pages of files that came back after they had been evicted")
            .named("refaults").hidden(&[Page, Metric, Python]).c(16, "refaults")
            => |stat| stat.memory.events.workingset_refault_file;
    }
}

impl Stat {
    /// The share of the reads of pages since the pager was built that needed no device:
    /// [`hits`](Stat::hits) of hits and [`misses`](Stat::misses). `None` before the first. For
    /// the ratio of an interval, see [`hit_ratio_since`](Stat::hit_ratio_since).
    ///
    /// # Examples
    /// ```
    /// let mut stat = lowtide_core::counters::Stat::default();
    /// assert_eq!(stat.hit_ratio(), None);
    /// (stat.hits, stat.misses) = (3, 1);
    /// assert_eq!(stat.hit_ratio(), Some(0.75));
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

impl std::fmt::Display for Stat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}hits {}\nmisses {}", self.memory, self.hits, self.misses)
    }
}
