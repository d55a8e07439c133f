//! Counters, under the kernel's names and in its units (`docs/kernel/reclaim.md` §8).
//!
//! Events count base pages, except `pgfault`, `pgmajfault` and `workingset_nodereclaim`, which
//! count occurrences. State items are computed on request. [`MemoryStat`] is one consistent
//! snapshot; its `Display` (`text.rs`) is the text of a v2 `memory.stat`, with state items in
//! bytes.

use crate::units::LruType;

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Monotonic event counters of one group.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Events { $($(#[$doc])* pub $name: u64),* }

        impl Events {
            /// Every counter with its name, in the order of `memory.stat`.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Adds another group's counts.
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// What happened between `earlier` and now.
            #[must_use]
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($name: self.$name.saturating_sub(earlier.$name)),* }
            }
        }
    };
}

events! {
    /// Anonymous pages that came back after they had been evicted.
    workingset_refault_anon,
    /// File pages that came back after they had been evicted.
    workingset_refault_file,
    /// Refaults recent enough to go among the active (each kind of lists has its rule).
    workingset_activate_anon,
    /// Refaults recent enough to go among the active.
    workingset_activate_file,
    /// Recent refaults of pages that had been in the workingset.
    workingset_restore_anon,
    /// Recent refaults of pages that had been in the workingset.
    workingset_restore_file,
    /// Index nodes of shadow entries freed; always 0 here, where shadows take no memory of their
    /// own.
    workingset_nodereclaim,
    /// Pages freed by the background reclaimer.
    pgsteal_kswapd,
    /// Pages freed by tasks that found no free page.
    pgsteal_direct,
    /// Pages freed on request.
    pgsteal_proactive,
    /// Pages scanned (classical: looked at; multi-gen: isolated) by the background reclaimer.
    pgscan_kswapd,
    /// The same by tasks that found no free page.
    pgscan_direct,
    /// The same on request.
    pgscan_proactive,
    /// Classical: pages looked at on active lists. Multi-gen: pages sorted.
    pgrefill,
    /// Pages scanned, whatever the reason.
    pgscan,
    /// Pages freed, whatever the reason.
    pgsteal,
    /// Pages read from swap.
    pswpin,
    /// Pages written to swap.
    pswpout,
    /// Page faults: accesses that found no translation, whether or not they had to read.
    pgfault,
    /// Faults that had to read.
    pgmajfault,
    /// Pages moved to the active list or activated by the shrinker.
    pgactivate,
    /// Pages moved from active to inactive.
    pgdeactivate,
    /// Pages marked as freeable without a write.
    pglazyfree,
    /// Such pages freed.
    pglazyfreed,
    /// Pages moved to the eviction end after writeback.
    pgrotated,
    /// Dirty file pages met by the shrinker, which it may not write.
    nr_vmscan_immediate_reclaim,
    /// Batches of victims that were dirty to the last page, and loops (before S11) that met nothing
    /// else: each woke the flushers. This and the following are
    /// counted at the target of the reclaim.
    nr_wakeup_flushers,
    /// Sleeps of reclaim because all dirty pages were being written.
    nr_throttled_congested,
    /// Sleeps of background reclaim because pages that it waits for were being written.
    nr_throttled_writeback,
    /// Sleeps of reclaim because other reclaimers had isolated too much.
    nr_throttled_isolated,
    /// Sleeps for congestion that were skipped, because half of the group or more was clean.
    nr_throttled_yield,
    /// File pages met by the shrinker that were dirty or being written. (Throttling is decided from
    /// this and the following counters; policies without S15 do not count them.)
    nr_shrink_dirty,
    /// Those that were being written when they were met for the second time.
    nr_shrink_congested,
    /// Pages that were being written.
    nr_shrink_writeback,
    /// Pages that background reclaim had marked and that were still being written.
    nr_shrink_immediate,
    /// Pages that were isolated.
    nr_shrink_taken,
    /// Agings completed.
    aging,
    /// Folios moved for the sake of tier protection.
    protected,
}

impl Events {
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

/// The lines of `memory.events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemcgEvents {
    /// Visits of reclaim although the group was below `low`.
    pub low: u64,
    /// Reclaims because usage was above `high`.
    pub high: u64,
    /// Charges that met the limit and reclaimed for it.
    pub max: u64,
    /// Charges that failed after all retries.
    pub oom: u64,
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

/// The lines of `memory.swap.events`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapEvents {
    /// Times that a task was handled while swap was above its `high`.
    pub high: u64,
    /// Pages that got no slot because of a limit.
    pub max: u64,
    /// Pages that got no slot, for that or because swap was full.
    pub fail: u64,
}

/// Events of pages that a driver keeps compressed in memory before they go to a device, as the
/// kernel's zswap does ([`Engine::count_zswap`](crate::Engine::count_zswap)). They are zero where
/// the driver has no such tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZswapEvents {
    /// Pages loaded from there.
    pub zswpin: u64,
    /// Pages stored there.
    pub zswpout: u64,
    /// Pages written from there to the device.
    pub zswpwb: u64,
}

impl ZswapEvents {
    /// Adds another group's counts.
    pub(crate) const fn add(&mut self, other: &Self) {
        self.zswpin += other.zswpin;
        self.zswpout += other.zswpout;
        self.zswpwb += other.zswpwb;
    }
}

/// One consistent snapshot of a group: sizes in base pages and event counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStat {
    /// Bytes of a base page; turns the sizes below into the bytes that `Display` prints.
    pub page_bytes: u64,
    /// Pages charged.
    pub current: u64,
    /// Limit in pages.
    pub max: u64,
    /// Anonymous pages that are mapped. Those in the swap cache only are in neither `anon` nor
    /// `file`.
    pub anon: u64,
    /// File pages.
    pub file: u64,
    /// Pages waiting to be written.
    pub file_dirty: u64,
    /// Pages being written, to files and to swap.
    pub file_writeback: u64,
    /// Pages in the swap cache, mapped or not.
    pub swapcached: u64,
    /// Bytes that pages compressed in memory have as they are kept. This and the two that follow
    /// are the driver's, which takes them at another moment; the engine leaves them zero.
    pub zswap: u64,
    /// These pages, as they were.
    pub zswapped: u64,
    /// Of these, pages that are kept as they were, because they do not compress.
    pub zswap_incomp: u64,
    /// Inactive and active, by type.
    pub inactive_anon: u64,
    /// Active anonymous pages.
    pub active_anon: u64,
    /// Inactive file pages.
    pub inactive_file: u64,
    /// Active file pages.
    pub active_file: u64,
    /// Pages that may not be evicted.
    pub unevictable: u64,
    /// Pages of memory that the program allocates itself, which are part of `anon`.
    pub reserved: u64,
    /// Event counters.
    pub events: Events,
    /// Events of pages that are compressed in memory.
    pub zswap_events: ZswapEvents,
    /// Limit events.
    pub limits: MemcgEvents,
}

impl MemoryStat {
    /// The state items by name, in base pages.
    pub fn sizes(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("anon", self.anon),
            ("file", self.file),
            ("file_dirty", self.file_dirty),
            ("file_writeback", self.file_writeback),
            ("swapcached", self.swapcached),
            ("inactive_anon", self.inactive_anon),
            ("active_anon", self.active_anon),
            ("inactive_file", self.inactive_file),
            ("active_file", self.active_file),
            ("unevictable", self.unevictable),
        ]
        .into_iter()
    }
}
