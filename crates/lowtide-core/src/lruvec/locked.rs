//! A lruvec, and a lruvec whose lock is held.

use super::{
    ClassicalLists, CostModel, EvictionClock, Generations, Levels, TideLists, TierControl,
    WalkState, tide::Queue,
};
use crate::counters::Events;
use crate::folio::{AccessCounts, Flags, FolioTable, ListHead};
use crate::policy::{Lists, Policy};
use crate::swap::Slots;
use crate::units::{LruType, MemcgSlot};

/// The lists of one group and their bookkeeping.
#[derive(Debug)]
pub(crate) struct Lruvec {
    pub(crate) gens: Generations,
    pub(crate) tiers: [TierControl; 2],
    pub(crate) walk: WalkState,
    pub(crate) clock: EvictionClock,
    pub(crate) classical: ClassicalLists,
    /// By type.
    pub(crate) tide: [TideLists; 2],
    pub(crate) cost: CostModel,
    /// Pages taken off the lists because they may not be evicted.
    pub(crate) unevictable: u64,
    /// Pages isolated and not yet put back or freed.
    pub(crate) isolated: u64,
    /// Everything dirty that a pass of direct reclaim met was under writeback for the second time.
    /// Cleared when that invocation ends (`docs/kernel/reclaim.md` §4.4).
    pub(crate) congested: bool,
    /// What the background reclaimer found. Only it sets these flags, and only it clears them,
    /// when it meets its goal.
    pub(crate) node: NodeFlags,
    /// 0..=200: how willingly anonymous memory is taken rather than file memory.
    pub(crate) swappiness: u32,
    /// An invocation has found that swap refuses its pages. Cleared when that invocation ends.
    pub(crate) swap_refused: bool,
}

/// State of writeback as the background reclaimer saw it (`docs/kernel/reclaim.md` §4.4; the "node"
/// is the group itself).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeFlags {
    /// Everything dirty in a pass was under writeback for the second time.
    pub(crate) congested: bool,
    /// Everything taken in a pass was under writeback.
    pub(crate) writeback: bool,
}

impl Lruvec {
    pub(crate) fn new(folios: &mut FolioTable) -> Self {
        Self {
            gens: Generations::new(folios),
            tiers: Default::default(),
            walk: WalkState::new(),
            clock: EvictionClock::default(),
            classical: ClassicalLists::new(folios),
            tide: [TideLists::new(folios), TideLists::new(folios)],
            cost: CostModel::default(),
            unevictable: 0,
            isolated: 0,
            congested: false,
            node: NodeFlags::default(),
            swappiness: crate::limits::DEFAULT_SWAPPINESS,
            swap_refused: false,
        }
    }

    /// The lists, to be given up with the lruvec: empty, if nothing was lost.
    pub(crate) fn take_lists(&mut self) -> Vec<ListHead> {
        let classical =
            LruType::ALL.map(|t| [false, true].map(|active| self.classical.list(t, active)));
        let tide = self.tide.iter().flat_map(TideLists::heads);
        let others = self.gens.lists.iter().flatten().chain(classical.iter().flatten());
        others.copied().chain(tide).collect()
    }

    /// Pages of a type by (inactive, active), whichever lists are kept.
    pub(crate) fn sizes(&self, lists: Lists, t: LruType) -> (u64, u64) {
        match lists {
            Lists::MultiGen => self.gens.inactive_active(t),
            Lists::Classical => self.classical.inactive_active(t),
            Lists::Tide => self.tide[t as usize].small_main(),
        }
    }

    /// Whether a folio with these flags is among the active ones that [`Self::sizes`] counts.
    pub(crate) fn is_active(&self, lists: Lists, flags: Flags) -> bool {
        match lists {
            Lists::MultiGen => flags.generation().is_some_and(|at| self.gens.is_young(at)),
            Lists::Classical => flags.contains(Flags::ACTIVE),
            Lists::Tide => Queue::of(flags) == Queue::Main,
        }
    }
}

/// A lruvec under its lock, with what its algorithms need.
pub(crate) struct Locked<'a> {
    pub(crate) lv: &'a mut Lruvec,
    /// The group of the lruvec.
    pub(crate) slot: MemcgSlot,
    pub(crate) levels: &'a mut Levels,
    pub(crate) folios: &'a mut FolioTable,
    pub(crate) events: &'a mut Events,
    pub(crate) accesses: &'a AccessCounts,
    pub(crate) policy: Policy,
    pub(crate) swap: &'a mut Slots,
}
