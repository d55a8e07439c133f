//! Figures of compressed pages of files.

use super::kept::Kept;
use std::fmt;
use std::sync::Arc;

/// Clean pages of files that a tenant and its descendants have compressed. `Display` has one line
/// for each figure. While other threads work, figures may be some pages apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ZcacheStat {
    /// Pages that are stored.
    pub pages: u64,
    /// Bytes of all pages as they were.
    pub orig_bytes: u64,
    /// Bytes of all pages as they are kept.
    pub compressed_bytes: u64,
    /// Bytes of memory that they take, unused parts included: charged to the tenant.
    pub memory_bytes: u64,
    /// Bytes that its tables take, in whole pages: charged to the tenant until its last file is
    /// closed.
    pub table_bytes: u64,
    /// Bytes of memory that they may take now.
    pub target_bytes: u64,
    /// Pages that were evicted and stored.
    pub stored: u64,
    /// Misses that found a page here, and needed no read.
    pub loaded: u64,
    /// Pages that were tried, and did not become small enough.
    pub incompressible: u64,
    /// Loads that found other contents than were stored. The file was read instead.
    pub corrupt: u64,
}

impl ZcacheStat {
    /// How many times larger the pages were than the memory that they take. `None` if they take
    /// none.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.memory_bytes > 0).then(|| self.orig_bytes as f64 / self.memory_bytes as f64)
    }

    /// The figures of some stores together. Called without the pool's lock.
    pub(crate) fn of(caches: &[Arc<dyn Kept>], page_shift: u32) -> Self {
        let mut sum = Self::default();
        for cache in caches {
            cache.add_to(&mut sum, page_shift);
        }
        sum
    }
}

impl fmt::Display for ZcacheStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [
            ("pages", self.pages),
            ("orig_bytes", self.orig_bytes),
            ("compressed_bytes", self.compressed_bytes),
            ("memory_bytes", self.memory_bytes),
            ("table_bytes", self.table_bytes),
            ("target_bytes", self.target_bytes),
            ("stored", self.stored),
            ("loaded", self.loaded),
            ("incompressible", self.incompressible),
            ("corrupt", self.corrupt),
        ];
        lines.into_iter().try_for_each(|(name, value)| writeln!(f, "{name} {value}"))
    }
}
