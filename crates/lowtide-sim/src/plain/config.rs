//! What a plain machine is made from.

use crate::costs::Costs;
use lowtide_core::limits::DEFAULT_SWAPPINESS;
use lowtide_core::{Lists, Policy};

/// What a plain machine is made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainConfig {
    /// The policy.
    pub policy: Policy,
    /// Budget in pages: all of it holds data.
    pub pages: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Misses between two publications of group statistics.
    pub publish_every: u64,
    /// Misses before the first publication.
    pub publish_phase: u64,
    /// Every resident page has a translation, as in the runtime. A kernel maps pages when they are
    /// accessed through the mapping, and unmaps dirty ones that reclaim meets.
    pub always_mapped: bool,
    /// The access that faults leaves its page young, as hardware does. With `tide` it does not: no
    /// kernel has that policy, and the runtime knows the access that missed
    /// (`docs/decisions/0004-first-accesses.md`).
    pub young_faults: bool,
    /// Pages of file-system metadata, read twice at the start through the descriptor and never
    /// mapped. They do not come out of the budget.
    pub metadata: u64,
    /// Where heaps go. Without it their pages stay where they are.
    pub swap: Option<PlainSwap>,
    /// How willingly heaps are taken rather than files: 0 (never) to 200, or 201 for heaps alone
    /// (`docs/kernel/reclaim.md` §2.2). Larger numbers mean 201.
    pub swappiness: u32,
    /// The task is switched out in the middle of every aging walk, so that the next aging walks
    /// again even if the task never left reclaim in between (`docs/kernel/reclaim.md` §2.5,
    /// back-to-back agings). On a real machine that is a matter of luck.
    pub switched_in_walk: bool,
    /// Virtual nanoseconds that reading a page of a file takes. Without them, as long as a read
    /// from swap.
    pub read_ns: Option<u64>,
    /// Evicted clean pages of files that stay compressed. Without it none does.
    pub zcache: Option<PlainZcache>,
}

impl PlainConfig {
    /// A machine without swap, with pages of 4 KiB, that publishes every 10,000 misses.
    ///
    /// Under the classical lists it has two pages of metadata: without a few active pages no
    /// refault is ever recent for them (`docs/kernel/reclaim.md` §6.1 step 4).
    #[must_use]
    pub const fn new(policy: Policy, pages: u64) -> Self {
        let metadata = match policy.lists() {
            Lists::Classical => 2,
            _ => 0,
        };
        Self {
            policy,
            pages,
            page_bytes: 4096,
            publish_every: 10_000,
            publish_phase: 10_000,
            always_mapped: false,
            young_faults: !matches!(policy.lists(), Lists::Tide),
            metadata,
            swap: None,
            swappiness: DEFAULT_SWAPPINESS,
            switched_in_walk: true,
            read_ns: None,
            zcache: None,
        }
    }
}

/// A swap device. Its slots are counted; they have no places, and reading or writing them fails
/// never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainSwap {
    /// Its size in pages.
    pub pages: u64,
    /// Virtual nanoseconds that a read or a write takes. `None` is a synchronous device, like
    /// compressed memory: it takes no longer than copying, and a page that is read in gives its
    /// slot up.
    pub latency_ns: Option<u64>,
}

impl PlainSwap {
    /// The latency of [`PlainSwap::disk`]: twice what a step of reclaim takes, so that the writes
    /// of a pass end while the next one is under way (`docs/kernel/reclaim.md` §5.4).
    pub const DISK_LATENCY_NS: u64 = 2_000;

    /// Compressed memory: synchronous.
    #[must_use]
    pub const fn zram(pages: u64) -> Self {
        Self { pages, latency_ns: None }
    }

    /// A fast disk: asynchronous, through the swap cache.
    #[must_use]
    pub const fn disk(pages: u64) -> Self {
        Self { pages, latency_ns: Some(Self::DISK_LATENCY_NS) }
    }
}

/// Evicted clean pages of files that stay compressed within the budget, as many as pay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainZcache {
    /// Bytes that a page takes compressed. Pages that keep more than seven tenths of theirs are not
    /// stored.
    pub bytes: u64,
    /// Of a hundred pages, those that do not compress.
    pub incompressible: u32,
    /// Virtual nanoseconds that compressing and storing a page takes.
    pub store_ns: u64,
    /// Virtual nanoseconds that decompressing one takes.
    pub load_ns: u64,
}

impl PlainZcache {
    /// Pages that all become this small, at the costs that zstd has in the full machine's
    /// compressed memory, of pages of 4 KiB.
    #[must_use]
    pub fn zstd(bytes: u64) -> Self {
        let costs = Costs::default();
        Self {
            bytes,
            incompressible: 0,
            store_ns: costs.compress_zstd_ns + costs.zram_io_ns,
            load_ns: costs.decompress_zstd_ns + costs.zram_io_ns,
        }
    }
}
