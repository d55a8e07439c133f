//! The engine: all folios and groups of one pool, and the operations on them.
//!
//! An [`Engine`] is a value. It does no I/O, reads no clock and starts no thread. Its owner (a
//! runtime that keeps it behind a mutex, or a simulator) is its *driver* and reports events to it:
//!
//! | the driver | calls |
//! |---|---|
//! | needs memory | [`Charge`](crate::Charge), which may return a [`Reclaim`](crate::Reclaim) |
//! | brings a page in | [`Engine::insert`] |
//! | sees an access through the descriptor | [`AccessCounts::record`], [`Engine::mark_accessed`] |
//! | sees an access through a mapping | nothing: it sets a young bit that [`Facts`] reports |
//! | makes a page dirty, writes it | [`Engine::set_dirty`] and others, see the folder `dirty` |
//! | drops a page itself | [`Engine::remove`] |
//! | has swap | [`Engine::set_swap`] and others, see `swap.rs` |
//! | has a timer | [`Engine::publish`] |
//!
//! Every call is O(1) unless its documentation gives another cost.
//!
//! [`Facts`]: crate::Facts

use crate::dirty::Dirty;
use crate::folio::{AccessCounts, Batches, Flags, Folio, FolioTable};
use crate::high::Refaulted;
use crate::limits::{MAX_ORDER, MIN_BUDGET};
use crate::lruvec::{Levels, Locked, Shadow};
use crate::memcg::{MemcgLru, MemcgTree, Stocks};
use crate::policy::{Lists, Policy};
use crate::reclaim::Batch;
use crate::swap::Slots;
use crate::units::{FolioId, LruType, MemcgId, MemcgSlot, Owner, SpaceId, Task};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// What an engine is made from.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Base-page frames there are: folio numbers are below this.
    pub frames: u32,
    /// Budget in base pages, at most `frames`.
    pub max: u64,
    /// Bytes of a base page: for `memory.stat`, and for the classical inactive ratio, which
    /// depends on gibibytes.
    pub page_bytes: u64,
    /// The policy.
    pub policy: Policy,
    /// CPUs that have batches of their own.
    pub cpus: u16,
}

/// A configuration that no engine can be made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// The budget cannot hold what one batch of reclaim takes.
    #[error("a budget of {pages} pages is too small: at least {MIN_BUDGET} pages are needed")]
    BudgetTooSmall {
        /// The requested budget.
        pages: u64,
    },
    /// More budget than frames.
    #[error("a budget of {pages} pages is larger than the {frames} frames there are")]
    BudgetTooLarge {
        /// The requested budget.
        pages: u64,
        /// The frames given.
        frames: u32,
    },
}

/// Whether a budget is possible.
pub(crate) fn check_budget(pages: u64, frames: u32) -> Result<(), ConfigError> {
    if pages < MIN_BUDGET {
        return Err(ConfigError::BudgetTooSmall { pages });
    }
    if pages > u64::from(frames) {
        return Err(ConfigError::BudgetTooLarge { pages, frames });
    }
    Ok(())
}

/// The window of generations of one group (`docs/kernel/reclaim.md` §2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sequences {
    /// The youngest generation, common to both types.
    pub max_seq: u64,
    /// The oldest generation of each [`LruType`].
    pub min_seq: [u64; 2],
}

/// All folios and groups of one pool. See the module documentation.
#[derive(Debug)]
pub struct Engine {
    pub(crate) policy: Policy,
    pub(crate) page_bytes: u64,
    pub(crate) folios: FolioTable,
    pub(crate) memcgs: MemcgTree,
    pub(crate) levels: Levels,
    pub(crate) stocks: Stocks,
    /// With it, the root is a machine; without, a group like others.
    pub(crate) memcg_lru: Option<MemcgLru>,
    pub(crate) cpus: Vec<Batches>,
    pub(crate) accesses: Arc<AccessCounts>,
    spaces: Vec<Option<MemcgSlot>>,
    /// Numbers of spaces that are gone. The smallest is used next.
    free_spaces: BinaryHeap<Reverse<u32>>,
    pub(crate) swap: Slots,
    pub(crate) dirty: Dirty,
    /// Sums over all groups, for queries that are frequent.
    pub(crate) totals: Totals,
    /// The memory of the last reclaim's batch, for the next one.
    pub(crate) spare_batch: Batch,
}

/// Sums over all groups that there are or were.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) pgscan: u64,
    /// Resident file pages.
    pub(crate) file: u64,
    pub(crate) file_dirty: u64,
    /// Pages being written, to files and to swap.
    pub(crate) writeback: u64,
}

impl Engine {
    /// Makes an engine with one group, [`MemcgId::ROOT`]. Cost: O(frames).
    ///
    /// # Errors
    /// [`ConfigError`] when the budget is impossible.
    pub fn new(config: &EngineConfig) -> Result<Self, ConfigError> {
        check_budget(config.max, config.frames)?;
        let mut folios = FolioTable::new(config.frames);
        let memcgs = MemcgTree::new(config.max, &mut folios);
        let mut levels = Levels::default();
        levels.begin(MemcgId::ROOT.slot, None);
        let cpus = config.cpus.max(1);
        Ok(Self {
            policy: config.policy,
            page_bytes: config.page_bytes,
            folios,
            memcgs,
            levels,
            stocks: Stocks::new(usize::from(cpus)),
            memcg_lru: None,
            cpus: (0..cpus).map(|_| Batches::default()).collect(),
            accesses: Arc::new(AccessCounts::new(config.frames as usize, config.policy.lists())),
            spaces: Vec::new(),
            free_spaces: BinaryHeap::new(),
            swap: Slots::default(),
            dirty: Dirty::default(),
            totals: Totals::default(),
            spare_batch: Batch::default(),
        })
    }

    /// The root is the memory of a whole machine rather than a group with a limit: the multi-gen
    /// LRU then reclaims it group by group in the order of the memcg LRU, and neither sleeps for
    /// congestion (`docs/kernel/reclaim.md` §2.11, 4.4). Call it before other groups are created.
    ///
    /// # Panics
    /// When there are other groups.
    pub fn set_machine_root(&mut self) {
        assert_eq!(self.memcgs.len(), 1, "there are groups already");
        let mut lru = MemcgLru::new();
        lru.insert(MemcgId::ROOT);
        self.memcg_lru = Some(lru);
    }

    /// The policy in force.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        self.policy
    }

    /// The lock-free access counts, to be shared with readers.
    #[must_use]
    pub fn accesses(&self) -> Arc<AccessCounts> {
        Arc::clone(&self.accesses)
    }

    /// Bytes that the engine's tables take: for folios, list heads and access counts.
    #[must_use]
    pub fn metadata_bytes(&self) -> usize {
        self.folios.bytes() + self.accesses.bytes()
    }

    /// The folio whose first frame is `id`, if there is one.
    #[must_use]
    pub fn folio(&self, id: FolioId) -> Option<&Folio> {
        self.folios.get(id)
    }

    /// The folio that a frame belongs to, given any of its frames.
    #[must_use]
    pub fn folio_of(&self, frame: FolioId) -> Option<FolioId> {
        self.folios.of_frame(frame)
    }

    /// Pages charged to a group.
    #[must_use]
    pub fn usage(&self, memcg: MemcgId) -> u64 {
        self.memcgs[memcg].memory.usage
    }

    /// Budget of a group in pages.
    #[must_use]
    pub fn max(&self, memcg: MemcgId) -> u64 {
        self.memcgs[memcg].memory.max
    }

    /// Sequence numbers of a group's generations. Without generations they stay as they were at the
    /// start.
    #[must_use]
    pub fn sequences(&self, memcg: MemcgId) -> Sequences {
        let gens = &self.memcgs[memcg].lruvec.gens;
        Sequences { max_seq: gens.max_seq, min_seq: gens.min_seq }
    }

    /// Pages scanned by reclaim so far, in all groups.
    #[must_use]
    pub const fn pgscan(&self) -> u64 {
        self.totals.pgscan
    }

    /// Dirty file pages that are not being written yet, in all groups.
    #[must_use]
    pub const fn dirty(&self) -> u64 {
        self.totals.file_dirty
    }

    /// Adds a space whose translations belong to a group; aging walks visit it from now on.
    pub fn add_space(&mut self, memcg: MemcgId) -> SpaceId {
        let id = match self.free_spaces.pop() {
            Some(Reverse(number)) => SpaceId(number),
            None => {
                self.spaces.push(None);
                SpaceId(self.spaces.len() as u32 - 1)
            }
        };
        self.spaces[id.0 as usize] = Some(memcg.slot);
        self.memcgs[memcg].lruvec.walk.add_space(id);
        id
    }

    /// Removes a space. Its folios must have been removed before; its number may be used again.
    pub fn remove_space(&mut self, id: SpaceId) {
        if let Some(memcg) = self.spaces[id.0 as usize].take() {
            self.memcgs[memcg].lruvec.walk.remove_space(id);
            self.free_spaces.push(Reverse(id.0));
        }
        self.dirty.forget_space(id);
    }

    /// The group that a folio is charged to; `None` if there is no such folio.
    #[must_use]
    pub fn group_of_folio(&self, id: FolioId) -> Option<MemcgId> {
        self.folio(id).map(|folio| self.memcgs.id(folio.memcg))
    }

    /// The group that the pages of a space are charged to.
    ///
    /// # Panics
    /// When there is no such space.
    #[inline]
    #[must_use]
    pub fn group_of_space(&self, id: SpaceId) -> MemcgId {
        self.memcgs.id(self.spaces[id.0 as usize].expect("the space exists"))
    }

    /// The place of the group that a space belongs to, if there is such a space.
    #[inline]
    pub(crate) fn slot_of_space(&self, id: SpaceId) -> Option<MemcgSlot> {
        self.spaces.get(id.0 as usize).copied().flatten()
    }

    /// The spaces whose translations belong to a group.
    pub(crate) fn spaces_of(&self, group: MemcgSlot) -> Vec<SpaceId> {
        let spaces = (0..).map(SpaceId).zip(&self.spaces);
        spaces.filter(|(_, of)| **of == Some(group)).map(|(id, _)| id).collect()
    }

    /// Moves a space to another group: aging walks of that group visit it from now on.
    pub(crate) fn give_space(&mut self, id: SpaceId, from: MemcgSlot, to: MemcgSlot) {
        self.spaces[id.0 as usize] = Some(to);
        self.memcgs[from].lruvec.walk.remove_space(id);
        self.memcgs[to].lruvec.walk.add_space(id);
    }

    /// Marks a space as idle: no task has run in it since it was last walked. Aging skips an idle
    /// space, and opens its generation all the same. Spaces are not idle by default. A driver that
    /// schedules tasks marks a space when it begins to walk it, and clears the mark when a task
    /// that uses the space is switched in. An unknown space is ignored.
    pub fn set_idle(&mut self, id: SpaceId, idle: bool) {
        if let Some(&Some(memcg)) = self.spaces.get(id.0 as usize) {
            self.memcgs[memcg].lruvec.walk.set_idle(id, idle);
        }
    }

    /// The lruvec of a group, as if its lock were taken.
    #[inline]
    pub(crate) fn locked(&mut self, memcg: impl Into<MemcgSlot>) -> Locked<'_> {
        let slot = memcg.into();
        let group = &mut self.memcgs[slot];
        Locked {
            lv: &mut group.lruvec,
            slot,
            levels: &mut self.levels,
            folios: &mut self.folios,
            events: &mut group.events,
            accesses: &self.accesses,
            policy: self.policy,
            swap: &mut self.swap,
        }
    }

    /// Brings a folio into memory that has been charged: counts a refault if there is a shadow, and
    /// queues it for its list.
    ///
    /// `order` is log2 of its base pages, `id` a multiple of that. A driver may insert the folio
    /// before its contents have arrived, if it answers
    /// [`FolioState::locked`](crate::FolioState::locked) until then. An anonymous page that comes
    /// back from swap is brought in by [`Engine::swap_in`].
    ///
    /// If it is a refault, the driver measures how long a thread waits for the contents, and
    /// reports it ([`Engine::stalled`]).
    ///
    /// # Panics
    /// When a frame of the folio is in use or out of range: the driver's frame allocator is wrong.
    #[expect(clippy::too_many_arguments, reason = "each is a separate fact about the folio")]
    pub fn insert(
        &mut self,
        id: FolioId,
        owner: Owner,
        order: u8,
        lru_type: LruType,
        memcg: MemcgId,
        shadow: Option<Shadow>,
        task: Task,
    ) -> Option<Refaulted> {
        assert!(order <= MAX_ORDER, "order {order} is above {MAX_ORDER}");
        let kind = if lru_type == LruType::Anon { Flags::ANON } else { Flags::empty() };
        self.memcgs[memcg].resident[lru_type as usize] += 1 << order;
        if lru_type == LruType::File {
            self.totals.file += 1 << order;
        }
        self.folios.create(id, owner, order, memcg.slot, kind);
        self.enter(id, memcg.slot, shadow, task)
    }

    /// Queues a folio that was just created for its list.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        id: FolioId,
        memcg: MemcgSlot,
        shadow: Option<Shadow>,
        task: Task,
    ) -> Option<Refaulted> {
        self.accesses.reset(id, !task.in_lru_fault);
        let mut lru = self.locked(memcg);
        let sighting =
            shadow.and_then(|shadow| lru.workingset_refault(id, shadow, task.in_lru_fault));
        match lru.policy.lists() {
            Lists::MultiGen => {
                lru.before_insertion(id, task.in_lru_fault);
                self.batch_add(task.cpu, id);
            }
            Lists::Classical => self.batch_add(task.cpu, id),
            Lists::Tide => lru.enter_tide(id),
        }
        sighting.map(|sighting| self.refaulted(memcg, sighting))
    }

    /// Takes a folio out of memory that the driver drops by itself (truncated, closed, or never
    /// filled), and uncharges it. No shadow remains, and slots in swap that the folio has are
    /// free again. Cost: O(batch size) if the folio waits in a batch.
    ///
    /// Returns false, changing nothing, if a reclaim in progress has isolated the folio: finish
    /// that step and try again.
    ///
    /// # Panics
    /// When the folio does not exist or is being written: its frame may not be reused before the
    /// write has ended.
    #[must_use]
    pub fn remove(&mut self, id: FolioId) -> bool {
        let f = *self.folios.get(id).expect("only an existing folio can be removed");
        assert!(
            !f.flags.contains(Flags::WRITEBACK),
            "folio {id:?} was removed while it is being written"
        );
        let mut lru = self.locked(f.memcg);
        if f.flags.contains(Flags::LRU) {
            lru.take_off_list(id);
        } else if f.flags.contains(Flags::CULLED) {
            lru.lv.unevictable -= f.pages();
        } else if !f.flags.contains(Flags::ADD_BATCH) {
            return false;
        }
        self.release(id, false);
        true
    }

    /// Whether a reclaim in progress has isolated a folio; false if there is no such folio.
    #[must_use]
    pub fn is_isolated(&self, id: FolioId) -> bool {
        let on_a_list = Flags::LRU | Flags::CULLED | Flags::ADD_BATCH;
        self.folios.get(id).is_some_and(|folio| !folio.flags.intersects(on_a_list))
    }

    /// Ends the life of a folio that is on no list. If it is `evicted`, its slots in swap keep its
    /// contents.
    pub(crate) fn release(&mut self, id: FolioId, evicted: bool) {
        if self.folios[id].flags.intersects(Flags::BATCHED) {
            self.forget_in_batches(id);
        }
        if self.folios[id].flags.contains(Flags::SWAPCACHE) {
            self.leave_swap_cache(id, evicted);
        }
        self.count_as_gone(id);
        let f = self.folios[id];
        let group = &mut self.memcgs[f.memcg];
        let pages = f.pages();
        group.resident[f.kind() as usize] -= pages;
        if !f.is_anon() {
            self.totals.file -= pages;
        }
        self.folios[id].flags.remove(Flags::LRU);
        self.folios.destroy(id);
        self.memcgs.sub(f.memcg, pages, pages);
    }

    /// Records one access through the descriptor, under the engine's lock (see [`AccessCounts`]
    /// for the way without it).
    pub fn mark_accessed(&mut self, id: FolioId, task: Task) {
        let Some(f) = self.folios.get(id) else { return };
        let memcg = f.memcg;
        if self.locked(memcg).mark_accessed(id) {
            self.batch_activate(task.cpu, id);
        }
    }

    /// Whether a folio is among the active ones: on the active list, in one of the two youngest
    /// generations, or in the main queue. One that does not exist is not.
    #[must_use]
    pub fn is_active(&self, id: FolioId) -> bool {
        self.folios
            .get(id)
            .is_some_and(|f| self.memcgs[f.memcg].lruvec.is_active(self.policy.lists(), f.flags))
    }

    /// Sets the read-ahead mark of a folio: an access that finds it begins the next window.
    ///
    /// The mark is the same bit as [`Flags::RECLAIM`], as it is in a kernel, and the confusion is
    /// part of the behaviour: see [`Engine::take_readahead`].
    pub fn mark_readahead(&mut self, id: FolioId) {
        self.folios[id].flags.insert(Flags::RECLAIM);
    }

    /// Whether a folio carries the bit of the read-ahead mark.
    #[must_use]
    pub fn has_readahead(&self, id: FolioId) -> bool {
        self.folios[id].flags.contains(Flags::RECLAIM)
    }

    /// Takes the read-ahead mark off a folio that an access has found. Returns whether it had one.
    ///
    /// A dirty folio that reclaim has met carries the same bit, so it passes for one that
    /// read-ahead has marked, and the access reads pages for which no program has asked. Folios
    /// under writeback are exempt and keep the bit: reclaim waits for them. Sources:
    /// `docs/kernel/reclaim.md` §9, 24; `docs/kernel/fault-and-writeback.md` A6.5.
    pub fn take_readahead(&mut self, id: FolioId) -> bool {
        let flags = &mut self.folios[id].flags;
        let marked = flags.contains(Flags::RECLAIM) && !flags.contains(Flags::WRITEBACK);
        if marked {
            flags.remove(Flags::RECLAIM);
        }
        marked
    }

    /// Counts a page fault, and whether it had to read.
    pub fn count_fault(&mut self, memcg: MemcgId, major: bool) {
        let events = &mut self.memcgs[memcg].events;
        events.pgfault += 1;
        events.pgmajfault += u64::from(major);
    }

    /// Counts a page of a group's that a fault needs from a device. A fault that is counted as
    /// major by [`Engine::count_fault`] has done so; a fault that may need I/O more than once, as a
    /// kernel's, counts here each time.
    pub fn count_major_fault(&mut self, memcg: MemcgId) {
        self.memcgs[memcg].events.pgmajfault += 1;
    }

    /// Forbids or allows the eviction of a folio. It leaves its list when a scan meets it, and
    /// comes back at once.
    pub fn set_unevictable(&mut self, id: FolioId, unevictable: bool) {
        let f = &self.folios[id];
        let (memcg, pages, was) = (f.memcg, f.pages(), f.flags.contains(Flags::MLOCKED));
        if was == unevictable {
            return;
        }
        // Accesses noted so far were made under the old state; those of an unevictable folio do not
        // count.
        self.locked(memcg).absorb(id);
        let f = &mut self.folios[id];
        f.flags.set(Flags::MLOCKED, unevictable);
        if !unevictable && f.flags.contains(Flags::CULLED) {
            f.flags.remove(Flags::CULLED);
            let mut lru = self.locked(memcg);
            lru.lv.unevictable -= pages;
            lru.add(id, false);
        }
    }

    /// Publishes group statistics to where classical reclaim reads them. Drivers call this every
    /// [`PUBLISH_INTERVAL_NS`](crate::limits::PUBLISH_INTERVAL_NS).
    pub fn publish(&mut self) {
        self.levels.begin_publication();
        let root = MemcgId::ROOT.slot;
        let mut at = Some(root);
        while let Some(slot) = at {
            let (own, dirty) = (self.locked(slot).to_publish(), self.memcgs[slot].figures());
            self.levels.publish(slot, &own, &dirty);
            at = self.memcgs.next_in(root, slot);
        }
    }

    /// How willingly anonymous memory is taken: 0 (never) to 200, or 201 for nothing else. Larger
    /// numbers mean 201.
    ///
    /// Without swap, 0 to 200 all mean 0, and 201 means that nothing at all can be reclaimed
    /// (`ANONONLY` off: it means 0).
    pub fn set_swappiness(&mut self, memcg: MemcgId, swappiness: u32) {
        self.memcgs[memcg].lruvec.swappiness = swappiness.min(crate::limits::SWAPPINESS_ANON_ONLY);
    }
}
