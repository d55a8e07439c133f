//! Every constant of reclaim, with unit and source (`docs/kernel/reclaim.md` §0), and the relations
//! between them.

/// The youngest generations of a type that are never evictable.
pub const MIN_NR_GENS: u64 = 2;
/// Size of the ring of generations.
pub const MAX_NR_GENS: u64 = 4;
/// [`MAX_NR_GENS`] as an array length.
pub const GENS: usize = MAX_NR_GENS as usize;
/// Tiers within a generation.
pub const MAX_NR_TIERS: usize = 4;
/// Folios: size of one eviction batch, and the isolated pages that end one.
pub const MIN_LRU_BATCH: u64 = 64;
/// Folios: moves per acquisition of the lruvec lock, and promotions of one walk chunk.
pub const MAX_LRU_BATCH: u64 = 4096;
/// Pages: goal of one direct reclaim and batch of the classical lists.
pub const SWAP_CLUSTER_MAX: u64 = 32;
/// First priority of an invocation; a pass at priority `p` may scan `size >> p`.
pub const DEF_PRIORITY: u32 = 12;
/// Swappiness that a lruvec starts with.
pub const DEFAULT_SWAPPINESS: u32 = 60;
/// Largest ordinary swappiness.
pub const MAX_SWAPPINESS: u32 = 200;
/// Swappiness that selects anonymous memory only.
pub const SWAPPINESS_ANON_ONLY: u32 = 201;
/// Fruitless invocations that one charge survives.
pub const MAX_RECLAIM_RETRIES: u32 = 16;
/// Folios: capacity of a per-CPU LRU batch; it is flushed when this many have entered.
pub const LRU_BATCH: usize = 31;
/// Entries of a table of translations.
pub const TABLE_ENTRIES: u64 = 512;
/// Most entries that look-around examines.
pub const LOOK_AROUND_MAX: u64 = 64;
/// A table with at least one young entry in this many is worth walking: entries in a cache line.
pub const ENTRIES_PER_LINE: u64 = 8;
/// Bits of a Bloom filter (two hash functions of 15 bits each).
pub const BLOOM_BITS: usize = 1 << 15;
/// Refaults below which a tier counts as free of refaults.
pub const MIN_REFAULTS: u64 = 64;
/// Nanoseconds: CONGESTED and NOPROGRESS sleeps, one scheduler tick at 250 Hz.
pub const TICK_NS: u64 = 4_000_000;
/// Nanoseconds between two publications of group statistics (`docs/kernel/reclaim.md` §5.6).
/// Drivers call [`Engine::publish`](crate::Engine::publish) at this interval.
pub const PUBLISH_INTERVAL_NS: u64 = 2_000_000_000;
/// Pages: swap below which the multi-gen LRU leaves anonymous memory alone.
pub const MIN_SWAP_PAGES: u64 = 64;
/// Largest folio order the engine accepts: 2^12 base pages, 2 MiB of 512-byte pages.
pub const MAX_ORDER: u8 = 12;
/// Pages: the smallest budget that a pager may be given. Below it, a batch of victims would be the
/// whole memory.
pub const MIN_BUDGET: u64 = SWAP_CLUSTER_MAX;
/// Levels of groups below the root. A charge and a reclaim cost O(depth) under the lock, and the
/// kernel's trees, which can be bounded in the same way (`cgroup.max.depth`), are rarely deeper
/// than ten.
pub const MAX_DEPTH: u32 = 64;

const _: () = assert!(MIN_NR_GENS < MAX_NR_GENS);
const _: () = assert!(MIN_LRU_BATCH <= MAX_LRU_BATCH);
const _: () = assert!(MIN_LRU_BATCH >= SWAP_CLUSTER_MAX, "one batch must be able to meet the goal");
const _: () = assert!(LOOK_AROUND_MAX <= TABLE_ENTRIES);
