//! The engine's counters, under the kernel's names and in its units (`docs/kernel/reclaim.md` §8).
//!
//! Events count base pages, except `pgfault`, `pgmajfault` and `workingset_nodereclaim`, which
//! count occurrences. State items are computed on request. [`MemoryStat`] is one consistent
//! snapshot; its `Display` (`text.rs`) is the text of a v2 `memory.stat`, with state items in
//! bytes, in the order of the rows here.

use super::table::{Numbers, Unit, numbers};
use crate::units::LruType;

numbers! {
    /// Monotonic event counters of one group.
    #[derive(Eq)]
    #[non_exhaustive]
    pub struct Events {
        workingset_refault_anon: u64 =
            pages("Anonymous pages that came back after they had been evicted");
        workingset_refault_file: u64 =
            pages("File pages that came back after they had been evicted");
        /// Each kind of lists has its rule.
        workingset_activate_anon: u64 =
            pages("Anonymous refaults recent enough to go among the active");
        workingset_activate_file: u64 =
            pages("File refaults recent enough to go among the active");
        workingset_restore_anon: u64 =
            pages("Recent refaults of anonymous pages that had been in the workingset");
        workingset_restore_file: u64 =
            pages("Recent refaults of file pages that had been in the workingset");
        /// Always 0 here, where shadows take no memory of their own.
        workingset_nodereclaim: u64 = events("Index nodes of shadow entries freed")
            .followed_by(&[
                "pgdemote_kswapd", "pgdemote_direct", "pgdemote_khugepaged", "pgdemote_proactive"
            ]);
        pgsteal_kswapd: u64 = pages("Pages freed by the background reclaimer");
        pgsteal_direct: u64 = pages("Pages freed by tasks that found no free page")
            .followed_by(&["pgsteal_khugepaged"]);
        pgsteal_proactive: u64 = pages("Pages freed on request");
        /// Classical: looked at; multi-gen: isolated.
        pgscan_kswapd: u64 = pages("Pages scanned by the background reclaimer");
        pgscan_direct: u64 = pages("Pages scanned by tasks that found no free page")
            .followed_by(&["pgscan_khugepaged"]);
        pgscan_proactive: u64 = pages("Pages scanned on request");
        pgrefill: u64 =
            pages("Classical: pages looked at on active lists; multi-gen: pages sorted")
            .followed_by(&["pgpromote_success"]);
        pgscan: u64 = pages("Pages scanned, whatever the reason");
        pgsteal: u64 = pages("Pages freed, whatever the reason");
        pswpin: u64 = pages("Pages read from swap");
        pswpout: u64 = pages("Pages written to swap");
        /// Whether or not they had to read.
        pgfault: u64 = events("Page faults: accesses that found no translation");
        pgmajfault: u64 = events("Faults that had to read");
        pgactivate: u64 = pages("Pages moved to the active list or activated by the shrinker");
        pgdeactivate: u64 = pages("Pages moved from active to inactive");
        pglazyfree: u64 = pages("Pages marked as freeable without a write");
        pglazyfreed: u64 = pages("Pages freed without a write because they were marked")
            .followed_by(&["swpin_zero", "swpout_zero"]);
        pgrotated: u64 = pages("Pages moved to the eviction end after writeback").ours();
        nr_vmscan_immediate_reclaim: u64 =
            pages("Dirty file pages met by the shrinker, which it may not write").ours();
        /// Loops (before S11) that met nothing else count, too. This and the following are counted
        /// at the target of the reclaim.
        nr_wakeup_flushers: u64 =
            events("Batches of victims that were dirty to the last page: each woke the flushers")
            .ours();
        nr_throttled_congested: u64 =
            events("Sleeps of reclaim because all dirty pages were being written").ours();
        nr_throttled_writeback: u64 =
            events("Sleeps of background reclaim because pages that it met were being written")
            .ours();
        nr_throttled_isolated: u64 =
            events("Sleeps of reclaim because other reclaimers had isolated too much").ours();
        /// Half of the group or more was clean.
        nr_throttled_yield: u64 = events("Sleeps for congestion that were skipped").ours();
        /// Throttling is decided from this and the following counters; policies without S15 do not
        /// count them.
        nr_shrink_dirty: u64 =
            pages("File pages met by the shrinker that were dirty or being written").ours();
        nr_shrink_congested: u64 =
            pages("File pages that were being written when the shrinker met them again").ours();
        nr_shrink_writeback: u64 = pages("Pages met that were being written").ours();
        nr_shrink_immediate: u64 =
            pages("Pages that background reclaim had marked and that were still being written")
            .ours();
        nr_shrink_taken: u64 = pages("Pages that the shrinker isolated").ours();
        aging: u64 = events("Agings completed").ours();
        protected: u64 = pages("Folios moved for the sake of tier protection").ours();
    }
}

impl Events {
    /// Every counter with its name, in the order of `memory.stat`.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let mut all = Vec::new();
        self.each(&mut |counter, value| all.push((counter.name, value.whole())));
        all.into_iter()
    }

    /// What happened between `earlier` and now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Numbers::since(self, earlier)
    }

    /// Pages of both types that came back after they had been evicted.
    #[must_use]
    pub const fn refaults(&self) -> u64 {
        self.workingset_refault_anon + self.workingset_refault_file
    }

    pub(crate) fn refault(&mut self, t: LruType) -> &mut u64 {
        match t {
            LruType::Anon => &mut self.workingset_refault_anon,
            LruType::File => &mut self.workingset_refault_file,
        }
    }

    pub(crate) fn activate(&mut self, t: LruType) -> &mut u64 {
        match t {
            LruType::Anon => &mut self.workingset_activate_anon,
            LruType::File => &mut self.workingset_activate_file,
        }
    }

    pub(crate) fn restore(&mut self, t: LruType) -> &mut u64 {
        match t {
            LruType::Anon => &mut self.workingset_restore_anon,
            LruType::File => &mut self.workingset_restore_file,
        }
    }

    /// Recent workingset refaults of both types.
    pub(crate) fn activations(&self, t: LruType) -> u64 {
        match t {
            LruType::Anon => self.workingset_activate_anon,
            LruType::File => self.workingset_activate_file,
        }
    }
}

numbers! {
    /// The lines of `memory.events`.
    #[derive(Eq)]
    #[non_exhaustive]
    pub struct MemcgEvents {
        low: u64 = events("Visits of reclaim although the group was below `low`");
        high: u64 = events("Reclaims because usage was above `high`");
        max: u64 = events("Charges that met the limit and reclaimed for it");
        oom: u64 = events("Charges that failed after all retries")
            .followed_by(&["oom_kill", "oom_group_kill", "sock_throttled"]);
    }
}

/// Pages of about one age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgeClass {
    /// Driver time at which the generation was opened: that of the group with the most pages, where
    /// groups are added up. None without generations.
    pub born: Option<u64>,
    /// Anonymous pages.
    pub anon: u64,
    /// File pages.
    pub file: u64,
}

numbers! {
    /// The lines of `memory.swap.events`.
    #[derive(Eq)]
    #[non_exhaustive]
    pub struct SwapEvents {
        high: u64 = events("Times that a task was handled while swap was above its `high`");
        max: u64 = pages("Pages that got no slot because of a limit");
        fail: u64 = pages("Pages that got no slot, for that or because swap was full");
    }
}

numbers! {
    /// Events of pages that a driver keeps compressed in memory before they go to a device, as the
    /// kernel's zswap does ([`Engine::count_zswap`](crate::Engine::count_zswap)). They are zero
    /// where the driver has no such tier.
    #[derive(Eq)]
    #[non_exhaustive]
    pub struct ZswapEvents {
        zswpin: u64 = pages("Pages loaded from compressed memory");
        zswpout: u64 = pages("Pages stored in compressed memory");
        zswpwb: u64 = pages("Pages written from compressed memory to the device")
            .followed_by(&[
                "thp_fault_alloc", "thp_collapse_alloc", "thp_swpout", "thp_swpout_fallback",
                "numa_pages_migrated", "numa_pte_updates", "numa_hint_faults"
            ]);
    }
}

impl ZswapEvents {
    /// Pages loaded, and nothing else.
    #[must_use]
    pub fn loaded(pages: u64) -> Self {
        Self { zswpin: pages, ..Self::default() }
    }

    /// Pages stored, and nothing else.
    #[must_use]
    pub fn stored(pages: u64) -> Self {
        Self { zswpout: pages, ..Self::default() }
    }

    /// Pages written to the device, and nothing else.
    #[must_use]
    pub fn written(pages: u64) -> Self {
        Self { zswpwb: pages, ..Self::default() }
    }
}

numbers! {
    /// One consistent snapshot of a group: sizes in base pages and event counters.
    #[derive(Eq)]
    #[non_exhaustive]
    pub struct MemoryStat {
        /// It turns the sizes below into the bytes that `Display` prints.
        page_bytes: u64 = bytes("Bytes of a base page").now().ours();
        current: u64 = pages("Pages charged").now().ours();
        max: u64 = pages("Limit in pages").now().ours();
        /// Those in the swap cache only are in neither `anon` nor `file`.
        anon: u64 = pages("Anonymous pages that are mapped").now();
        file: u64 = pages("File pages").now()
            .followed_by(&[
                "kernel", "kernel_stack", "pagetables", "sec_pagetables", "percpu", "sock",
                "vmalloc", "shmem"
            ]);
        /// This and the two that follow are the driver's, which takes them at another moment; the
        /// engine leaves them zero.
        zswap: u64 = bytes("Bytes that pages compressed in memory have as they are kept").now();
        zswapped: u64 = pages("Pages compressed in memory, as they were").now();
        zswap_incomp: u64 =
            pages("Of these, pages that are kept as they were, because they do not compress").now()
            .followed_by(&["file_mapped"]);
        file_dirty: u64 = pages("Pages waiting to be written").now();
        file_writeback: u64 = pages("Pages being written, to files and to swap").now();
        swapcached: u64 = pages("Pages in the swap cache, mapped or not").now()
            .followed_by(&["anon_thp", "file_thp", "shmem_thp"]);
        inactive_anon: u64 = pages("Inactive anonymous pages").now();
        active_anon: u64 = pages("Active anonymous pages").now();
        inactive_file: u64 = pages("Inactive file pages").now();
        active_file: u64 = pages("Active file pages").now();
        unevictable: u64 = pages("Pages that may not be evicted").now()
            .followed_by(&["slab_reclaimable", "slab_unreclaimable", "slab"]);
        reserved: u64 =
            pages("Pages of memory that the program allocates itself, which are part of `anon`")
            .now().ours();
    }
    parts {
        /// Event counters.
        events: Events,
        /// Events of pages that are compressed in memory.
        zswap_events: ZswapEvents,
    }
    beside {
        /// Limit events.
        limits: MemcgEvents,
    }
}

impl MemoryStat {
    /// The engine's state items by name, in base pages.
    pub fn sizes(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let mut all = Vec::new();
        self.each(&mut |counter, value| {
            let is_engines = !counter.name.starts_with("zswap");
            if counter.is_kernels && is_engines && !counter.grows && counter.unit == Unit::Pages {
                all.push((counter.name, value.whole()));
            }
        });
        all.into_iter()
    }
}
