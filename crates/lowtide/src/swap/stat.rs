//! Figures of swap, for people and programs.

use super::slot::Store;
use crate::pool::Pool;
use crate::zcache::{ZcacheSize, ZcacheStat};
use lowtide_core::{MemcgId, MemoryStat};
use std::fmt;
use std::sync::Arc;

/// Swap usage of a tenant and its descendants at a moment. `Display` has one line for
/// each figure. While other threads work, figures may be some pages apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SwapStat {
    /// Pages that are stored.
    pub pages: u64,
    /// Of these, pages of one repeated word, which take no memory.
    pub same_pages: u64,
    /// Of these, pages that are kept as they are, because they do not compress.
    pub raw_pages: u64,
    /// Bytes of all pages as they were.
    pub orig_bytes: u64,
    /// Bytes of all pages as they are kept.
    pub compressed_bytes: u64,
    /// Bytes of memory that they take, unused parts included: charged to the tenant.
    pub memory_bytes: u64,
    /// Bytes that its tables take, in whole pages: charged to the tenant until its last region is
    /// closed.
    pub table_bytes: u64,
    /// Bytes of the tables that say where each page is, in whole pages, each for 512 pages of a
    /// region: charged to the tenant until the region is closed, or these pages are discarded.
    pub slot_bytes: u64,
    /// Pages that were not taken in, for want of room.
    pub rejected: u64,
    /// Loads that found other contents than were stored.
    pub corrupt: u64,
}

impl SwapStat {
    /// How many times larger the pages were than the memory that they take. `None` if they take
    /// none.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.memory_bytes > 0).then(|| self.orig_bytes as f64 / self.memory_bytes as f64)
    }
}

impl fmt::Display for SwapStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [
            ("pages", self.pages),
            ("same_pages", self.same_pages),
            ("raw_pages", self.raw_pages),
            ("orig_bytes", self.orig_bytes),
            ("compressed_bytes", self.compressed_bytes),
            ("memory_bytes", self.memory_bytes),
            ("table_bytes", self.table_bytes),
            ("slot_bytes", self.slot_bytes),
            ("rejected", self.rejected),
            ("corrupt", self.corrupt),
        ];
        lines.into_iter().try_for_each(|(name, value)| writeln!(f, "{name} {value}"))
    }
}

/// What of the pages of a group, and of those below it, is compressed in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kept {
    bytes: u64,
    pages: u64,
    /// Of these, pages that are kept as they are.
    raw: u64,
}

impl Kept {
    /// Looks at a group. Called without the pool's lock.
    pub(crate) fn of(pool: &Pool, group: MemcgId) -> Self {
        let mut kept = Self::default();
        if !pool.has_swap && pool.zcache_size == ZcacheSize::None {
            return kept;
        }
        let (stores, caches) = {
            let state = pool.lock();
            if pool.is_poisoned() || !state.engine.alive(group) {
                return kept;
            }
            let within = |of| state.engine.is_within(of, group);
            (state.swaps.all(within), state.zcaches.all(within))
        };
        caches.iter().for_each(|cache| cache.count());
        let clean = ZcacheStat::of(&caches, pool.page_shift);
        (kept.bytes, kept.pages) = (clean.compressed_bytes, clean.pages);
        for stat in stores.iter().map(|store| store.stat()) {
            kept.bytes += stat.compressed_bytes;
            kept.pages += stat.stored;
            kept.raw += stat.raw;
        }
        kept
    }

    /// Figures of the group with these among them.
    pub(crate) const fn among(self, mut stat: MemoryStat) -> MemoryStat {
        (stat.zswap, stat.zswapped, stat.zswap_incomp) = (self.bytes, self.pages, self.raw);
        stat
    }
}

/// The figures of some stores together; `slots`: tables of slots of their regions. Called without
/// the pool's lock.
pub(crate) fn sum(stores: &[Arc<dyn Store>], slots: u64, page_shift: u32) -> SwapStat {
    let mut sum = SwapStat { slot_bytes: slots << page_shift, ..SwapStat::default() };
    for stat in stores.iter().map(|store| store.stat()) {
        sum.pages += stat.stored;
        sum.same_pages += stat.same;
        sum.raw_pages += stat.raw;
        sum.orig_bytes += stat.orig_bytes();
        sum.compressed_bytes += stat.compressed_bytes;
        sum.memory_bytes += stat.memory << page_shift;
        sum.table_bytes += stat.table_pages << page_shift;
        sum.rejected += stat.rejected;
        sum.corrupt += stat.corrupt;
    }
    sum
}
