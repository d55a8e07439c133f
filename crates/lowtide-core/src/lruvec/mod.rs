//! A lruvec: the lists of one memory control group, and everything that decides about their order.
//!
//! [`Lruvec`] is the data. [`Locked`] is a lruvec whose lock is held, together with the things that
//! every list operation needs (folio table, counters, policy); all algorithms of this folder are
//! methods of it, one file for each concept:
//!
//! | file | concept | section |
//! |---|---|---|
//! | `generation.rs` | where a folio enters, how generations open and close | §2.1-2.5, 2.7 |
//! | `access.rs` | what an access does to a folio | §1.2, 1.3, 2.6 |
//! | `aging.rs` | the walk that makes a new generation | §2.5 |
//! | `bloom.rs` | which tables of translations are worth walking | §2.5 |
//! | `scan.rs` | scanning, sorting, isolating | §2.8 |
//! | `tier.rs` | refault feedback: which type, which tiers | §2.9 |
//! | `swappiness.rs` | which types may be evicted at all (what there is of swap: `swap.rs`) | §2.2 |
//! | `classical.rs`, `cost.rs` | the active and inactive lists and their balance | §5 |
//! | `levels.rs` | clocks and sizes that include what is below | §5.2, 5.6 |
//! | `workingset.rs` | shadow entries and refaults | §6 |

mod access;
mod aging;
mod bloom;
mod classical;
mod cost;
mod generation;
mod levels;
mod scan;
mod swappiness;
mod tier;
mod workingset;

pub use access::{Facts, FolioState, References, Window};
pub(crate) use aging::AgeEnd;
pub use aging::AgeJob;
pub use workingset::Shadow;
pub(crate) use workingset::{EvictionClock, Sighting};

pub(crate) use aging::WalkState;
pub(crate) use classical::{ClassicalLists, Published};
pub(crate) use cost::{CostModel, Preparation, scan_targets};
pub(crate) use generation::{Generations, slot};
pub(crate) use levels::Levels;
pub(crate) use scan::Scan;
pub(crate) use tier::TierControl;

use crate::folio::{AccessCounts, FolioTable, ListHead};
use crate::policy::{Lists, Policy};
use crate::stat::Events;
use crate::swap::SwapFacts;
use crate::units::{LruType, MemcgSlot};

/// The lists of one group and their bookkeeping.
#[derive(Debug)]
pub(crate) struct Lruvec {
    pub(crate) gens: Generations,
    pub(crate) tiers: [TierControl; 2],
    pub(crate) walk: WalkState,
    pub(crate) clock: EvictionClock,
    pub(crate) classical: ClassicalLists,
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
            cost: CostModel::default(),
            unevictable: 0,
            isolated: 0,
            congested: false,
            node: NodeFlags::default(),
            swappiness: crate::limits::DEFAULT_SWAPPINESS,
        }
    }

    /// The lists, to be given up with the lruvec: empty, if nothing was lost.
    pub(crate) fn take_lists(&mut self) -> Vec<ListHead> {
        let classical =
            LruType::ALL.map(|t| [false, true].map(|active| self.classical.list(t, active)));
        self.gens.lists.iter().flatten().chain(classical.iter().flatten()).copied().collect()
    }

    /// Pages of a type by (inactive, active), whichever lists are kept.
    pub(crate) fn sizes(&self, lists: Lists, t: LruType) -> (u64, u64) {
        match lists {
            Lists::MultiGen => self.gens.inactive_active(t),
            Lists::Classical => self.classical.inactive_active(t),
        }
    }
}

/// A lruvec under its lock, with what its algorithms need.
pub(crate) struct Locked<'a> {
    pub(crate) lv: &'a mut Lruvec,
    /// Whose lruvec it is.
    pub(crate) slot: MemcgSlot,
    pub(crate) levels: &'a mut Levels,
    pub(crate) folios: &'a mut FolioTable,
    pub(crate) events: &'a mut Events,
    pub(crate) accesses: &'a AccessCounts,
    pub(crate) policy: Policy,
    pub(crate) swap: &'a mut SwapFacts,
}
