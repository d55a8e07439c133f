//! The three caches, behind one seam.
//!
//! Each maps a page number to a [`Slot`]: one item is one page, so the capacity is a count. All
//! three get the same hasher (foldhash), because the default of one of them (SipHash) would cost it
//! more than its policy gains; everything else is as its authors set it, but for foyer's policy,
//! which is S3-FIFO here and would be LRU.

use std::ops::Deref;

use foldhash::fast::RandomState;
use foyer_memory::{CacheEntry, S3FifoConfig};
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{OptionsBuilder, UnitWeighter};

use crate::slab::Slot;

/// A cache of pages.
pub trait PageCache: Send + Sync + Sized + 'static {
    /// Its name.
    const NAME: &'static str;

    /// Pages beyond its capacity that it may hold for a while: its shards are rounded up, or it
    /// evicts in batches.
    const SPARE: usize = 32;

    /// What [`PageCache::get`] returns: the page stays in memory while it lives.
    type Held: Deref<Target: Deref<Target = [u8]>>;

    /// A cache of `pages` pages.
    fn new(pages: usize) -> Self;

    /// The page, if it is in memory.
    fn get(&self, page: u64) -> Option<Self::Held>;

    /// Adds or replaces a page.
    fn put(&self, page: u64, slot: Slot);

    /// Frees what has been evicted and is still held. Called when no buffer is free.
    fn relieve(&self) {}
}

/// [`quick_cache`]: sharded, with a policy of the S3-FIFO family.
pub type QuickCache =
    quick_cache::sync::Cache<u64, Slot, UnitWeighter, RandomState, DefaultLifecycle<u64, Slot>>;
/// [`moka`]: W-TinyLFU, with queues of accesses that are applied in batches.
pub type Moka = moka::sync::Cache<u64, Slot, RandomState>;
/// foyer's cache in memory: sharded, S3-FIFO.
pub type Foyer = foyer_memory::Cache<u64, Slot, RandomState>;

/// A page that the cache returned as a copy of its value.
pub struct Copied(Slot);

impl Deref for Copied {
    type Target = Slot;

    #[inline]
    fn deref(&self) -> &Slot {
        &self.0
    }
}

impl PageCache for QuickCache {
    const NAME: &'static str = "quick_cache";
    type Held = Copied;

    fn new(pages: usize) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity(pages)
            .weight_capacity(pages as u64)
            .build()
            .expect("both capacities are given");
        Self::with_options(
            options,
            UnitWeighter,
            RandomState::default(),
            DefaultLifecycle::default(),
        )
    }

    #[inline]
    fn get(&self, page: u64) -> Option<Copied> {
        Self::get(self, &page).map(Copied)
    }

    #[inline]
    fn put(&self, page: u64, slot: Slot) {
        self.insert(page, slot);
    }
}

impl PageCache for Moka {
    const NAME: &'static str = "moka";
    const SPARE: usize = 128;
    type Held = Copied;

    fn new(pages: usize) -> Self {
        moka::sync::CacheBuilder::new(pages as u64).build_with_hasher(RandomState::default())
    }

    #[inline]
    fn get(&self, page: u64) -> Option<Copied> {
        Self::get(self, &page).map(Copied)
    }

    #[inline]
    fn put(&self, page: u64, slot: Slot) {
        self.insert(page, slot);
    }

    fn relieve(&self) {
        self.run_pending_tasks();
    }
}

impl PageCache for Foyer {
    const NAME: &'static str = "foyer";
    type Held = CacheEntry<u64, Slot, RandomState>;

    fn new(pages: usize) -> Self {
        foyer_memory::CacheBuilder::new(pages)
            .with_eviction_config(S3FifoConfig::default())
            .with_hash_builder(RandomState::default())
            .build()
    }

    #[inline]
    fn get(&self, page: u64) -> Option<Self::Held> {
        Self::get(self, &page)
    }

    #[inline]
    fn put(&self, page: u64, slot: Slot) {
        self.insert(page, slot);
    }
}
