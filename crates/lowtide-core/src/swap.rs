//! Swap: where anonymous memory is evicted to, and the states of a page between memory and swap.
//!
//! A page of swap is a *slot*. The engine only counts slots; the driver knows which slot a page has
//! and what is in it. A folio that has slots is in the *swap cache*. A page moves along this line:
//!
//! ```text
//!   1 mapped              no slot
//!        │   reclaim takes a slot and unmaps
//!        ▼
//!   2 swap cache          dirty, unmapped
//!        │   written
//!        ▼
//!   3 swap cache          clean, unmapped  ◄── swap_in (major fault) ──┐
//!        │   reclaim frees the folio                                   │
//!        ▼                                                             │
//!   4 swapped out         no folio, a shadow ──────────────────────────┘
//!
//!   2, 3 ── fault ──► 5 swap cache, mapped    slot kept: unless the page is stored to, the next
//!                                             eviction writes nothing
//!   5 ── slot given up ──► 1
//! ```
//!
//! Three events free the slot of a folio that is mapped again; none does while it is being written
//! (`docs/kernel/fault-and-writeback.md` A7, C3):
//!
//! * the fault that maps it is a store;
//! * the device is synchronous, so that a second copy saves nothing;
//! * swap is *full*, which means more than half used, of the device or of what the group may use:
//!   then reclaim, too, takes the slots of folios that it activates.
//!
//! A page that is swapped out keeps its slot until it is read in, or until the driver drops it
//! ([`Engine::free_swap`]).
//!
//! **Lazy free** (`MADV_FREE`): a program has given the contents of a page up. Its folio gives its
//! slots up and is no longer swap-backed. It moves to the lists of *file* memory, as one that was
//! never used (to the oldest generation, the inactive list), although it still counts as anonymous.
//! Reclaim drops it there: nothing is written, no slot is taken, and no shadow remains. Until then
//! a read finds the old contents. A store withdraws the gift: the driver reports it with
//! [`Engine::set_dirty`], at once or when it drops the translations, and the folio is anonymous
//! memory like others, among the young. A kernel collects up to 31 such folios of a CPU before it
//! moves them; here they move at once.
//!
//! | the driver | calls |
//! |---|---|
//! | has swap | [`Engine::set_swap`] |
//! | faults on a new anonymous page | [`Engine::insert`] with [`LruType::Anon`], no shadow |
//! | faults on a page that is swapped out | [`Engine::swap_in`], reads, [`Engine::swap_fault`] |
//! | … and cannot read it | [`Engine::swap_in_failed`] |
//! | faults on a page that is in the swap cache | [`Engine::swap_fault`] |
//! | finds that a mapping was stored to | [`Engine::set_dirty`], before it drops the translations |
//! | learns that contents are not needed | [`Engine::free_lazily`] |
//! | unmaps victims | see [`Unmapped`](crate::Unmapped) |
//! | drops a page that is in memory | [`Engine::remove`]: its slot is free again |
//! | drops a page that is not | [`Engine::free_swap`] |
//!
//! Slots are counted in base pages, and a folio has one for each of its pages. In every state
//! *free* + *held by folios* + *swapped out* is the size of swap; [`Engine::validate`] checks it.
//! Source: `docs/kernel/reclaim.md` §2.2, 2.3, 4.1, 7.5; faults and writeback, A7, C2, C3, C8;
//! madvise(2).

mod slots;

pub(crate) use slots::Slots;
pub use slots::{Swap, SwapTooSmall};

use crate::counters::{Numbers, ZswapEvents};
use crate::engine::Engine;
use crate::folio::Flags;
use crate::high::Refaulted;
use crate::limits::MAX_ORDER;
use crate::lruvec::Shadow;
use crate::policy::Lists;
use crate::units::{FolioId, LruType, MemcgId, Owner, Task};

impl Engine {
    /// Sets the size of swap. If it is not 0, anonymous memory is reclaimed from now on, according
    /// to [`Engine::set_swappiness`].
    ///
    /// # Errors
    /// [`SwapTooSmall`] when more is in use; nothing is changed then.
    pub const fn set_swap(&mut self, swap: Swap) -> Result<(), SwapTooSmall> {
        self.swap.resize(swap)
    }

    /// Sets with how few free pages of swap the multi-gen LRU leaves anonymous memory alone: 64 in
    /// a kernel, and here at first. A driver whose pages have to give room for one that comes back
    /// uses swap to its last page, with 1.
    pub const fn spare_swap(&mut self, pages: u64) {
        self.swap.spared = pages;
    }

    /// Free slots.
    #[must_use]
    pub const fn free_swap_pages(&self) -> u64 {
        self.swap.free_pages
    }

    /// Brings a page that is swapped out into memory that has been charged: the folio enters the
    /// swap cache, unmapped and with its slots. Arguments and cost as for
    /// [`Engine::insert`]; `pswpin` counts its pages.
    ///
    /// A driver with swap readahead calls this ahead of need, and [`Engine::swap_fault`] when the
    /// page is touched.
    ///
    /// # Panics
    /// When a frame of the folio is in use or out of range, or fewer pages than it has are swapped
    /// out.
    pub fn swap_in(
        &mut self,
        id: FolioId,
        owner: Owner,
        order: u8,
        memcg: MemcgId,
        shadow: Option<Shadow>,
        task: Task,
    ) -> Option<Refaulted> {
        assert!(order <= MAX_ORDER, "order {order} is above {MAX_ORDER}");
        let pages = 1 << order;
        assert!(
            self.swap.swapped_out >= pages,
            "{owner:?} is read from swap, but {pages} pages are not there"
        );
        self.swap.swapped_out -= pages;
        let group = &mut self.memcgs[memcg];
        group.swapcached += pages;
        group.swap_only += pages;
        group.events.pswpin += pages;
        group.resident[LruType::Anon as usize] += pages;
        let kind = Flags::ANON | Flags::SWAPCACHE | Flags::SWAPPED;
        self.folios.create(id, owner, order, memcg.slot, kind);
        self.enter(id, memcg.slot, shadow, task)
    }

    /// The read of a folio after [`Engine::swap_in`] failed: it goes away, and its contents are in
    /// swap as before. The driver restores its shadow. Otherwise as
    /// [`Engine::remove`].
    ///
    /// # Panics
    /// When the folio does not exist, is being written, or is mapped.
    #[must_use]
    pub fn swap_in_failed(&mut self, id: FolioId) -> bool {
        let f = self.folios.get(id).expect("only an existing folio can be removed");
        assert!(f.flags.contains(Flags::SWAPPED), "folio {id:?} is mapped: its contents were read");
        let (memcg, pages) = (f.memcg, f.pages());
        let removed = self.remove(id);
        if removed {
            // `remove` has given its slots up.
            self.memcgs.add_swap(memcg, pages);
            self.swap.free_pages -= pages;
            self.swap.swapped_out += pages;
        }
        removed
    }

    /// A fault maps a folio of the swap cache: one whose contents [`Engine::swap_in`] has brought,
    /// or one that reclaim had unmapped and not yet freed (a minor fault). Does nothing for a
    /// folio that is not in the swap cache.
    ///
    /// Returns whether the folio gives up its slots. Then they are free, and the contents are
    /// dirty: they are nowhere else.
    ///
    /// # Panics
    /// When the folio does not exist.
    pub fn swap_fault(&mut self, id: FolioId, store: bool, task: Task) -> bool {
        self.swap_fault_from(id, store, self.swap.synchronous, task)
    }

    /// The same, of a page whose slots are on a device that is `synchronous`, or not: a driver may
    /// have both, or other reasons not to keep a second copy.
    ///
    /// # Panics
    /// When the folio does not exist.
    pub fn swap_fault_from(
        &mut self,
        id: FolioId,
        store: bool,
        synchronous: bool,
        task: Task,
    ) -> bool {
        let flags = self.folios.get(id).expect("only an existing folio can be mapped").flags;
        if !flags.contains(Flags::SWAPCACHE) {
            return false;
        }
        self.set_swapped(id, false);
        if store && flags.contains(Flags::ADD_BATCH) {
            // The kernel has to know that the batch holds no reference, so the folio is placed
            // while it is still in the swap cache.
            self.drain(task.cpu);
        }
        (store || synchronous || self.swap_full(id) || flags.contains(Flags::MLOCKED))
            && self.give_up_slot(id)
    }

    /// The driver drops pages of a group that are swapped out: their slots are free. O(depth).
    ///
    /// # Panics
    /// When fewer pages are swapped out.
    pub fn free_swap(&mut self, memcg: MemcgId, pages: u64) {
        assert!(
            self.swap.swapped_out >= pages,
            "{pages} pages of swap are dropped that are not there"
        );
        self.swap.swapped_out -= pages;
        self.swap.free_pages += pages;
        self.memcgs.sub_swap(memcg.slot, pages);
    }

    /// Pages of a group have been stored in memory that the driver keeps compressed, loaded from
    /// there, or written from there to a device. Nothing but counters of `memory.stat`: for the
    /// engine such pages are in swap, wherever they are.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn count_zswap(&mut self, memcg: MemcgId, events: &ZswapEvents) {
        self.memcgs[memcg].zswap_events.add(events);
    }

    /// The contents of a folio that is mapped are not needed any more. Returns whether reclaim may
    /// drop them from now on, which `pglazyfree` counts. If not, nothing has changed: it is no
    /// anonymous memory, may not be evicted, is being written to its slots, is isolated by a
    /// reclaim in progress, or was freed before. Slots that it has are free from now on, and the
    /// driver forgets what they hold.
    ///
    /// # Panics
    /// When the folio does not exist, or no translation leads to it.
    pub fn free_lazily(&mut self, id: FolioId, task: Task) -> bool {
        let f = self.folios.get(id).expect("only an existing folio can be freed");
        assert!(!f.flags.contains(Flags::SWAPPED), "folio {id:?} is freed, and not mapped");
        if f.flags.contains(Flags::ADD_BATCH) {
            self.drain(task.cpu);
        }
        let flags = self.folios[id].flags;
        let possible = flags.contains(Flags::ANON | Flags::LRU)
            && !flags.intersects(Flags::LAZYFREE | Flags::MLOCKED | Flags::WRITEBACK);
        if !possible {
            return false;
        }
        self.give_up_slot(id);
        if self.folios[id].flags.contains(Flags::DIRTY) {
            self.count_as_clean(id);
        }
        let memcg = self.folios[id].memcg;
        let mut lru = self.locked(memcg);
        lru.absorb(id);
        lru.take_off_list(id);
        let flags = &mut lru.folios[id].flags;
        flags.insert(Flags::LAZYFREE);
        flags.remove(Flags::ACTIVE | Flags::WORKINGSET | Flags::RECLAIM);
        flags.clear_refs();
        flags.set_queue_field(0);
        lru.events.pglazyfree += lru.folios[id].pages();
        // The queues of `tide` have their eviction end where the next scan begins.
        let tail = lru.policy.lists() == Lists::Tide;
        lru.add(id, tail);
        true
    }

    /// A folio was stored to: if it had been freed lazily, it is swap-backed again.
    pub(crate) fn withdraw_lazy_free(&mut self, id: FolioId) {
        let flags = self.folios[id].flags;
        if !flags.contains(Flags::LAZYFREE) {
            return;
        }
        let memcg = self.folios[id].memcg;
        let mut lru = self.locked(memcg);
        let on_list = flags.contains(Flags::LRU);
        if on_list {
            lru.take_off_list(id);
        }
        lru.folios[id].flags.remove(Flags::LAZYFREE);
        if on_list {
            lru.folios[id].flags.insert(Flags::ACTIVE);
            lru.add(id, false);
        }
    }

    /// Slots are short for a folio: more than half of swap is used, or of what its group, or one
    /// above, may use of it.
    pub(crate) fn swap_full(&self, id: FolioId) -> bool {
        let mut groups = self.memcgs.upwards(self.folios[id].memcg).map(|at| &self.memcgs[at].swap);
        self.swap.full() || groups.any(|swap| swap.usage > swap.max / 2)
    }

    /// Takes slots for a folio that has none. Returns whether there were enough. What they hold is
    /// older than the folio.
    pub(crate) fn take_slot(&mut self, id: FolioId) -> bool {
        let f = &mut self.folios[id];
        debug_assert!(f.lru_type() == LruType::Anon && !f.flags.contains(Flags::SWAPCACHE));
        let (memcg, pages) = (f.memcg, f.pages());
        if self.swap.free_pages < pages {
            self.memcgs.raise_swap(memcg, |events| &mut events.fail);
            return false;
        }
        if self.memcgs.upwards(memcg).any(|at| self.memcgs[at].swap.margin() < pages) {
            self.memcgs.raise_swap(memcg, |events| &mut events.max);
            self.memcgs.raise_swap(memcg, |events| &mut events.fail);
            return false;
        }
        self.swap.free_pages -= pages;
        self.folios[id].flags.insert(Flags::SWAPCACHE | Flags::DIRTY);
        self.memcgs[memcg].swapcached += pages;
        self.memcgs.add_swap(memcg, pages);
        true
    }

    /// Takes the slots of a mapped folio away, unless it is being written or has none. Returns
    /// whether it did.
    pub(crate) fn give_up_slot(&mut self, id: FolioId) -> bool {
        let f = &mut self.folios[id];
        if !f.flags.contains(Flags::SWAPCACHE)
            || f.flags.intersects(Flags::WRITEBACK | Flags::SWAPPED)
        {
            return false;
        }
        f.flags.remove(Flags::SWAPCACHE);
        f.flags.insert(Flags::DIRTY);
        let (memcg, pages) = (f.memcg, f.pages());
        self.memcgs[memcg].swapcached -= pages;
        self.swap.free_pages += pages;
        self.memcgs.sub_swap(memcg, pages);
        true
    }

    /// Notes that no translation leads to a folio of the swap cache any more, or that one does
    /// again.
    pub(crate) fn set_swapped(&mut self, id: FolioId, swapped: bool) {
        let f = &mut self.folios[id];
        if f.flags.contains(Flags::SWAPPED) == swapped {
            return;
        }
        f.flags.set(Flags::SWAPPED, swapped);
        let only = &mut self.memcgs[f.memcg].swap_only;
        *only = if swapped { *only + f.pages() } else { *only - f.pages() };
    }

    /// A folio of the swap cache ends: its slots stay behind as swapped out, or are free.
    pub(crate) fn leave_swap_cache(&mut self, id: FolioId, swapped_out: bool) {
        let (pages, memcg) = (self.folios[id].pages(), self.folios[id].memcg);
        self.set_swapped(id, false);
        self.memcgs[memcg].swapcached -= pages;
        if swapped_out {
            self.swap.swapped_out += pages;
        } else {
            self.swap.free_pages += pages;
            self.memcgs.sub_swap(memcg, pages);
        }
    }
}
