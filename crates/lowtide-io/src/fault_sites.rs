//! Where the runtime handles a fault, and how often it has.
//!
//! A test that makes a device fail proves something only about the code that ran because of it.
//! Each place that exists for a fault is therefore a *site* with a counter, and the proof (`lowtide
//! bench power-cut`) fails when a site was never reached. Counting costs one relaxed addition at
//! places where something has already gone wrong, or where the disk was waited for.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! sites {
    ($($(#[doc = $doc:literal])+ $site:ident)*) => {
        /// A place in the runtime that exists because devices fail, are slow, or get too much work.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum FaultSite {
            $($(#[doc = $doc])+ $site,)*
        }

        impl FaultSite {
            /// All of them.
            pub const ALL: &'static [FaultSite] = &[$(FaultSite::$site,)*];

            /// What it is called in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(FaultSite::$site => stringify!($site),)*
                }
            }
        }
    };
}

sites! {
    /// A transfer of a read stopped short, and another went on behind it.
    ShortReadContinued
    /// A transfer of a write stopped short, and another went on behind it.
    ShortWriteContinued
    /// A read failed, and all threads that wanted the page got the error.
    ReadFailed
    /// A read was not waited for any longer.
    ReadDeadlinePassed
    /// Such a read ended after all.
    LateReadEnded
    /// A write failed, and its pages stayed dirty.
    WriteFailedKeptDirty
    /// A run that failed was cut, so that only what cannot be written stays dirty.
    FailedRunSplit
    /// Pages that failed before were tried again after a pause.
    RetryAfterBackoff
    /// A sync failed, and what was written since the last good one was called not durable.
    SyncFailed
    /// Pages that were resident at a failed sync were written again.
    SyncFailedRewritten
    /// Pages that had left memory by then were read back and written again.
    SyncFailedReadBack
    /// A flush was covered by a sync that another thread had requested.
    SyncShared
    /// The file could not be made longer.
    ExtendFailed
    /// The file could not be made shorter, and is as it was.
    ShrinkFailed
    /// A hole could not be made, and the error named the bytes that are as they were.
    PunchFailed
    /// The file system makes no holes: zeroes were stored.
    PunchStoredZeroes
    /// All of a new file was durable, but not its name.
    NameNotDurable
    /// The end of a file that is no whole block was written through the page cache.
    TailThroughPageCache
    /// A page was stored to while it was being written, and was dirty again at once.
    DirtyAgainWhileWritten
    /// A thread waited for a device longer than the deadline, and got an error.
    DeadlinePassed
    /// The last view of a file was closed with pages that could not be written: they wait.
    CloseWithDirtyPages
    /// Reclaim met only dirty pages, and requested their write-back.
    ReclaimWokeFlushers
    /// Reclaim slept, because what it could have taken was dirty or being written.
    ReclaimThrottled
}

impl fmt::Display for FaultSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How often each site was reached.
#[derive(Debug)]
pub struct FaultSites([AtomicU64; FaultSite::ALL.len()]);

impl Default for FaultSites {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; FaultSite::ALL.len()])
    }
}

impl FaultSites {
    /// Counts a visit.
    pub fn mark(&self, site: FaultSite) {
        self.0[site as usize].fetch_add(1, Relaxed);
    }

    /// All counts, in the order of [`FaultSite::ALL`].
    pub fn counts(&self) -> Vec<(FaultSite, u64)> {
        FaultSite::ALL.iter().map(|&site| (site, self.0[site as usize].load(Relaxed))).collect()
    }
}
