//! One group: a counter, its lists, and its event counts.

use super::{Counter, UNLIMITED};
use crate::counters::{Events, MemcgEvents, SwapEvents, ZswapEvents};
use crate::dirty::{DirtyState, Figures, GroupDirty};
use crate::folio::FolioTable;
use crate::high::GroupHigh;
use crate::hooks::LimitHooks;
use crate::lruvec::Lruvec;
use crate::units::{LruType, MemcgId, MemcgSlot};

/// The position that all partial walks of one target share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SharedCursor {
    /// The group visited last in this round; `None` between rounds.
    pub(super) at: Option<MemcgId>,
    /// Number of the round.
    pub(super) round: u64,
}

/// One budget. `charge.rs` and `memcg/` are the only writers of its counters.
#[derive(Debug)]
pub(crate) struct Memcg {
    /// How many groups had this place before.
    pub(super) serial: u16,
    /// Depth in the tree: 0 for the root.
    pub(crate) depth: u32,
    pub(crate) parent: Option<MemcgSlot>,
    pub(super) first_child: Option<MemcgSlot>,
    pub(super) last_child: Option<MemcgSlot>,
    pub(super) next_sibling: Option<MemcgSlot>,
    pub(super) prev_sibling: Option<MemcgSlot>,
    pub(crate) memory: Counter,
    /// Slots of swap that hold pages of this group and those below, and how many may.
    pub(crate) swap: Counter,
    pub(crate) lruvec: Lruvec,
    pub(crate) events: Events,
    /// Limit events of this group alone.
    pub(crate) local: MemcgEvents,
    /// Limit events of this group and those below.
    pub(crate) limits: MemcgEvents,
    /// Events of swap of this group and those below.
    pub(crate) swap_events: SwapEvents,
    /// Events of pages that the driver compresses in memory.
    pub(crate) zswap_events: ZswapEvents,
    /// Where reclaim of this subtree goes on.
    pub(crate) cursor: SharedCursor,
    /// Resident pages by type.
    pub(crate) resident: [u64; 2],
    pub(crate) file_dirty: u64,
    /// Pages being written, to files and to swap.
    pub(crate) file_writeback: u64,
    /// Its dirty pages by device, and how many there may be.
    pub(crate) dirty: GroupDirty,
    /// Pages of folios that have slots in swap.
    pub(crate) swapcached: u64,
    /// Those of them that are unmapped.
    pub(crate) swap_only: u64,
    /// Pages charged for memory that the program allocates itself.
    pub(crate) reserved: u64,
    /// What its limits cost its tasks.
    pub(crate) high: GroupHigh,
    /// A program that decides about the limits of this group and those below that have none of
    /// their own.
    pub(crate) hooks: Option<Box<dyn LimitHooks>>,
}

impl Memcg {
    pub(super) fn new(
        serial: u16,
        parent: Option<MemcgSlot>,
        depth: u32,
        max: u64,
        folios: &mut FolioTable,
    ) -> Self {
        Self {
            serial,
            depth,
            parent,
            first_child: None,
            last_child: None,
            next_sibling: None,
            prev_sibling: None,
            memory: Counter::new(max),
            swap: Counter::new(UNLIMITED),
            lruvec: Lruvec::new(folios),
            events: Events::default(),
            local: MemcgEvents::default(),
            limits: MemcgEvents::default(),
            swap_events: SwapEvents::default(),
            zswap_events: ZswapEvents::default(),
            cursor: SharedCursor::default(),
            resident: [0; 2],
            file_dirty: 0,
            file_writeback: 0,
            dirty: GroupDirty::default(),
            swapcached: 0,
            swap_only: 0,
            reserved: 0,
            high: GroupHigh::default(),
            hooks: None,
        }
    }

    /// What limits of dirty data are computed from, without what is below.
    pub(crate) const fn figures(&self) -> Figures {
        let state = DirtyState { dirty: self.file_dirty, writeback: self.file_writeback };
        Figures { file: self.resident[LruType::File as usize], state }
    }
}
