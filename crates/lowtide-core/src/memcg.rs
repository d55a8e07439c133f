//! Memory control groups: who pays, and how much there is to spend.
//!
//! A group has a counter with a limit, a lruvec and its statistics. Charging walks from the group towards the root, so groups
//! already form a tree in which only the root exists. This file and `charge.rs` are the only writers of *usage*.

use crate::folio::FolioTable;
use crate::lruvec::Lruvec;
use crate::stat::{Events, MemcgEvents};
use crate::units::MemcgId;

/// One budget.
#[derive(Debug)]
pub(crate) struct Memcg {
    pub(crate) parent: Option<MemcgId>,
    /// Pages charged here and below.
    pub(crate) usage: u64,
    /// Pages that may be charged.
    pub(crate) max: u64,
    /// What usage may be at most: `max`, or what it was when `max` was set to less.
    pub(crate) ceiling: u64,
    pub(crate) lruvec: Lruvec,
    pub(crate) events: Events,
    pub(crate) limits: MemcgEvents,
    /// Resident pages by type.
    pub(crate) resident: [u64; 2],
    pub(crate) file_dirty: u64,
    /// Pages being written, to files and to swap.
    pub(crate) file_writeback: u64,
    /// Pages of folios that have slots in swap.
    pub(crate) swapcached: u64,
    /// Those of them that nobody maps.
    pub(crate) swap_only: u64,
}

impl Memcg {
    pub(crate) fn new(parent: Option<MemcgId>, max: u64, folios: &mut FolioTable) -> Self {
        Self {
            parent,
            usage: 0,
            max,
            ceiling: max,
            lruvec: Lruvec::new(folios),
            events: Events::default(),
            limits: MemcgEvents::default(),
            resident: [0; 2],
            file_dirty: 0,
            file_writeback: 0,
            swapcached: 0,
            swap_only: 0,
        }
    }

    /// Sets the limit. Usage may be above it from now on, but it can only fall until it is below.
    pub(crate) fn set_max(&mut self, pages: u64) {
        self.max = pages;
        self.ceiling = pages.max(self.usage);
    }

    /// Pages that may still be charged.
    pub(crate) fn margin(&self) -> u64 {
        self.max.saturating_sub(self.usage)
    }
}
