//! What a lruvec shares with its ancestors: clocks and sizes that include the groups below.
//!
//! With the classical lists, an eviction or an activation moves the clock of refault distances of
//! the group *and of all its ancestors*: a page that was evicted for an ancestor is measured on the
//! ancestor's clock, against the ancestor's sizes. Reclaim of a subtree prepares its passes from
//! the sizes and costs of the whole subtree. Both are kept here, in one table by place, so that a
//! lruvec under its lock can reach its ancestors without the tree. Source: `docs/kernel/reclaim.md`
//! §5.2, 5.6, 6.1.

use crate::dirty::Figures;
use crate::units::{LruType, MemcgSlot};

/// The group statistics as readers see them (`docs/kernel/reclaim.md` §5.6).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Published {
    /// By type and activity.
    pub(super) size: [[u64; 2]; 2],
    pub(super) activations: [u64; 2],
    pub(super) rotated: [u64; 2],
    pub(super) io: [u64; 2],
}

impl Published {
    pub(crate) fn active(&self, t: LruType) -> u64 {
        self.size[t as usize][1]
    }

    pub(crate) fn inactive(&self, t: LruType) -> u64 {
        self.size[t as usize][0]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let sums =
            self.size.iter_mut().flatten().chain(&mut self.activations).chain(&mut self.rotated);
        let more = other.size.iter().flatten().chain(&other.activations).chain(&other.rotated);
        for (sum, more) in sums.chain(&mut self.io).zip(more.chain(&other.io)) {
            *sum += more;
        }
    }

    /// Pages on all four lists.
    pub(crate) fn lru_size(&self) -> u64 {
        self.size.iter().flatten().sum()
    }
}

/// One group's part.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    parent: Option<MemcgSlot>,
    /// Evictions and activations here and below, in pages.
    nonresident_age: u64,
    /// Sizes and counts here and below, as of the last publication.
    published: Published,
    published_dirty: Figures,
}

/// All groups' parts. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    levels: Vec<Level>,
}

impl Levels {
    /// A new group begins in a place.
    pub(crate) fn begin(&mut self, slot: MemcgSlot, parent: Option<MemcgSlot>) {
        if slot.index() >= self.levels.len() {
            self.levels.resize(slot.index() + 1, Level::default());
        }
        self.levels[slot.index()] = Level { parent, ..Level::default() };
    }

    pub(crate) fn set_parent(&mut self, slot: MemcgSlot, parent: Option<MemcgSlot>) {
        self.levels[slot.index()].parent = parent;
    }

    /// A group and its ancestors.
    fn upwards(&self, slot: MemcgSlot) -> impl Iterator<Item = MemcgSlot> {
        std::iter::successors(Some(slot), |&at| self.levels[at.index()].parent)
    }

    /// Pages were evicted from a group, or activated in it.
    #[inline]
    pub(super) fn age(&mut self, slot: MemcgSlot, pages: u64) {
        let mut at = Some(slot);
        while let Some(slot) = at {
            let level = &mut self.levels[slot.index()];
            level.nonresident_age += pages;
            at = level.parent;
        }
    }

    pub(super) fn nonresident_age(&self, slot: MemcgSlot) -> u64 {
        self.levels[slot.index()].nonresident_age
    }

    #[inline]
    pub(crate) fn published(&self, slot: MemcgSlot) -> &Published {
        &self.levels[slot.index()].published
    }

    /// What limits of dirty data are computed from, here and below, as of the last publication.
    pub(crate) fn published_dirty(&self, slot: MemcgSlot) -> &Figures {
        &self.levels[slot.index()].published_dirty
    }

    /// For a group that moves: the counts of its ancestors go with it.
    pub(super) fn published_mut(&mut self, slot: MemcgSlot) -> &mut Published {
        &mut self.levels[slot.index()].published
    }

    /// Forgets everything that is published; [`publish`](Self::publish) for each group follows.
    pub(crate) fn begin_publication(&mut self) {
        for level in &mut self.levels {
            level.published = Published::default();
            level.published_dirty = Figures::default();
        }
    }

    /// Adds what a group has to what is published of it and of its ancestors. `own` and `dirty` are
    /// its exact counts without those below.
    pub(crate) fn publish(&mut self, slot: MemcgSlot, own: &Published, dirty: &Figures) {
        let mut at = Some(slot);
        while let Some(slot) = at {
            let level = &mut self.levels[slot.index()];
            level.published.add(own);
            level.published_dirty.add(dirty);
            at = level.parent;
        }
    }

    /// The group that a shadow's few bits name: the ancestor, or the group itself, whose place has
    /// these low bits.
    pub(super) fn named(&self, slot: MemcgSlot, bits: u16, mask: u16) -> Option<MemcgSlot> {
        self.upwards(slot).find(|at| at.0 & mask == bits)
    }
}
