//! The report of an operation that found no room: the text that the kernel logs when a group is out
//! of memory, and what is needed besides to decide what to do. Source: `docs/kernel/memcg.md` §11.

use super::TenantLimits;
use crate::error::advice;
use lowtide_core::MemoryStat;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

/// The kernel's text for a missing limit, in KiB.
const NO_LIMIT_KIB: u64 = (i64::MAX as u64 >> 12) << 2;

/// Why there was no room: the tenant that is full, as it was when the operation gave up.
///
/// `Display` is the text that a kernel logs for a memory cgroup that is out of memory (usage, limit
/// and failcnt, then `memory.stat`), followed by protection and the largest consumers.
/// [`summary`](OomReport::summary) is one sentence.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OomReport {
    /// Path of the tenant that is full: the one that pays, or an ancestor of it.
    pub tenant: String,
    /// Path of the tenant that was to pay.
    pub payer: String,
    /// Bytes that were requested.
    pub asked_bytes: u64,
    /// Bytes charged to the full tenant, those below it included.
    pub usage_bytes: u64,
    /// Its limit in bytes; `u64::MAX` for none.
    pub limit_bytes: u64,
    /// Charges that have met this limit so far.
    pub failcnt: u64,
    /// Bytes in swap.
    pub swap_bytes: u64,
    /// Its settings.
    pub limits: TenantLimits,
    /// Effective `min` and `low` in bytes, as the last reclaim for an ancestor computed them.
    pub effective_bytes: (u64, u64),
    /// Its `memory.stat`.
    pub stat: MemoryStat,
    /// Tenants below it and itself, by what is charged to each alone, the largest first; ten at
    /// most.
    pub consumers: Vec<Consumer>,
    /// How many there are.
    pub consumers_total: usize,
    /// Bytes of pages that are pinned by guards of the thread whose operation failed: it waits for
    /// itself.
    pub held_here_bytes: u64,
    /// A file whose pages take room because they cannot be written.
    pub unwritable: Option<Unwritable>,
    /// Why anonymous pages take room: the error of the swap file, or that there is none, for which
    /// swap did not take those that were to go last.
    pub swap_refusal: Option<Arc<io::Error>>,
}

/// A file whose dirty pages cannot be written, in an [`OomReport`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unwritable {
    /// The file.
    pub path: Arc<PathBuf>,
    /// The last error of the device or the file system.
    pub source: Arc<io::Error>,
}

/// A tenant in an [`OomReport`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Consumer {
    /// Its path.
    pub tenant: String,
    /// Bytes charged to it alone.
    pub bytes: u64,
    /// Effective `min` in bytes: reclaim for the full tenant does not take it below this.
    pub min_bytes: u64,
    /// Effective `low` in bytes.
    pub low_bytes: u64,
}

impl OomReport {
    /// Bytes that are dirty or being written: they can be evicted only when they have been written.
    fn dirty_bytes(&self) -> u64 {
        (self.stat.file_dirty + self.stat.file_writeback) * self.stat.page_bytes
    }

    /// One sentence: which tenant is full, of what, and what to do.
    #[must_use]
    pub fn summary(&self) -> String {
        let reserved = self.stat.reserved * self.stat.page_bytes;
        let budget = format!(
            "the budget of {} bytes of tenant {:?} is used up by",
            self.limit_bytes, self.tenant
        );
        let resident = (self.stat.file + self.stat.anon) * self.stat.page_bytes;
        if self.held_here_bytes > 0 && self.held_here_bytes >= resident {
            return format!(
                "{budget} pages that guards of this very thread hold ({} bytes, {reserved} \
                 reserved): drop some of them first",
                self.held_here_bytes
            );
        }
        let dirty = self.dirty_bytes();
        if let Some(Unwritable { path, source }) = &self.unwritable {
            return format!(
                "{budget} pages that cannot be written ({dirty} bytes are dirty, {reserved} \
                 reserved): {}: {source}{}",
                path.display(),
                advice(source)
            );
        }
        if let Some(source) = &self.swap_refusal
            && self.stat.anon > self.stat.file
        {
            return format!(
                "{budget} pages that swap does not take ({dirty} bytes are dirty, {reserved} \
                 reserved): {source}"
            );
        }
        format!(
            "{budget} pages that cannot be evicted now ({dirty} bytes are dirty, {reserved} \
             reserved): \
             hold fewer pages at once, or raise its max"
        )
    }
}

fn kib(bytes: u64) -> u64 {
    if bytes == u64::MAX { NO_LIMIT_KIB } else { bytes >> 10 }
}

impl fmt::Display for OomReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (usage, limit) = (kib(self.usage_bytes), kib(self.limit_bytes));
        writeln!(f, "memory: usage {usage}kB, limit {limit}kB, failcnt {}", self.failcnt)?;
        let (usage, limit) = (kib(self.swap_bytes), kib(self.limits.swap_max.bytes()));
        writeln!(f, "swap: usage {usage}kB, limit {limit}kB, failcnt 0")?;
        writeln!(f, "Memory cgroup stats for {}:", self.tenant)?;
        write!(f, "{}", self.stat)?;
        let TenantLimits { min, low, .. } = self.limits;
        let (emin, elow) = self.effective_bytes;
        writeln!(
            f,
            "protection: min {}kB, low {}kB, effective {}kB, {}kB",
            kib(min.bytes()),
            kib(low.bytes()),
            kib(emin),
            kib(elow)
        )?;
        writeln!(f, "asked: {}kB for {}", kib(self.asked_bytes), self.payer)?;
        writeln!(f, "largest of {} tenants:", self.consumers_total)?;
        for c in &self.consumers {
            let (bytes, min, low) = (kib(c.bytes), kib(c.min_bytes), kib(c.low_bytes));
            writeln!(f, "{bytes}kB (min {min}kB, low {low}kB) {}", c.tenant)?;
        }
        Ok(())
    }
}
