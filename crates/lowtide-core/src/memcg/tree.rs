//! The tree of groups: places, names, parents and children.
//!
//! Groups are kept in a table; a place that becomes free is used again under a new name
//! ([`MemcgId`] carries a serial number), so the old name finds no group rather than the wrong one.
//! A place that has used up its serial numbers stays empty. Children are linked in the order of
//! their creation, and a subtree is visited in pre-order: a group before its children, in O(1) a
//! step on average.

use super::Memcg;
use crate::counters::{MemcgEvents, SwapEvents};
use crate::folio::FolioTable;
use crate::units::{MemcgId, MemcgSlot};

/// All groups of an engine. The root is always there, in the first place.
#[derive(Debug)]
pub(crate) struct MemcgTree {
    places: Vec<Place>,
    free: Vec<MemcgSlot>,
    live: usize,
}

#[derive(Debug)]
enum Place {
    Group(Box<Memcg>),
    /// Free; the next group here gets this serial number. `None`: there is no next one.
    Free(Option<u16>),
}

impl MemcgTree {
    /// Groups that there can be at a time.
    pub(crate) const MAX: usize = u16::MAX as usize;

    pub(crate) fn new(max: u64, folios: &mut FolioTable) -> Self {
        let root = Memcg::new(0, None, 0, max, folios);
        Self { places: vec![Place::Group(Box::new(root))], free: Vec::new(), live: 1 }
    }

    /// Groups that there are.
    pub(crate) const fn len(&self) -> usize {
        self.live
    }

    /// Whether a group still exists.
    #[inline]
    pub(crate) fn alive(&self, id: MemcgId) -> bool {
        let place = self.places.get(id.slot.index());
        matches!(place, Some(Place::Group(group)) if group.serial == id.serial)
    }

    /// The name of the group in a place.
    pub(crate) fn id(&self, slot: MemcgSlot) -> MemcgId {
        MemcgId { slot, serial: self[slot].serial }
    }

    /// Adds a group without limits below another; `None` if there are too many.
    pub(super) fn insert(&mut self, parent: MemcgSlot, folios: &mut FolioTable) -> Option<MemcgId> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.places.len() < Self::MAX => {
                self.places.push(Place::Free(Some(0)));
                MemcgSlot((self.places.len() - 1) as u16)
            }
            None => return None,
        };
        let Place::Free(Some(serial)) = self.places[slot.index()] else {
            unreachable!("a free place is free")
        };
        let depth = self[parent].depth + 1;
        let group = Memcg::new(serial, Some(parent), depth, super::UNLIMITED, folios);
        self.places[slot.index()] = Place::Group(Box::new(group));
        self.link(slot, parent);
        self.live += 1;
        Some(MemcgId { slot, serial })
    }

    /// Takes a group without children out of the tree.
    pub(super) fn take(&mut self, slot: MemcgSlot) -> Memcg {
        self.unlink(slot);
        let next = self[slot].serial.checked_add(1);
        let Place::Group(group) =
            std::mem::replace(&mut self.places[slot.index()], Place::Free(next))
        else {
            unreachable!("only a group is taken")
        };
        if next.is_some() {
            self.free.push(slot);
        }
        self.live -= 1;
        *group
    }

    /// Makes a group the last child of another.
    pub(super) fn link(&mut self, slot: MemcgSlot, parent: MemcgSlot) {
        let last = self[parent].last_child.replace(slot);
        match last {
            Some(last) => self[last].next_sibling = Some(slot),
            None => self[parent].first_child = Some(slot),
        }
        let group = &mut self[slot];
        (group.parent, group.prev_sibling, group.next_sibling) = (Some(parent), last, None);
    }

    /// Takes a group, with what is below it, out of its parent's children.
    pub(super) fn unlink(&mut self, slot: MemcgSlot) {
        let group = &self[slot];
        let (parent, prev, next) = (
            group.parent.expect("the root has no siblings"),
            group.prev_sibling,
            group.next_sibling,
        );
        match prev {
            Some(prev) => self[prev].next_sibling = next,
            None => self[parent].first_child = next,
        }
        match next {
            Some(next) => self[next].prev_sibling = prev,
            None => self[parent].last_child = prev,
        }
    }

    /// Sets the depths of a subtree after its top has moved.
    pub(super) fn settle_depths(&mut self, top: MemcgSlot) {
        let mut at = Some(top);
        while let Some(slot) = at {
            let depth = self[slot].parent.map_or(0, |parent| self[parent].depth + 1);
            self[slot].depth = depth;
            at = self.next_in(top, slot);
        }
    }

    /// A group and its ancestors, the root last.
    pub(crate) fn upwards(&self, from: MemcgSlot) -> impl Iterator<Item = MemcgSlot> {
        std::iter::successors(Some(from), |&slot| self[slot].parent)
    }

    /// Whether a group is another or below it.
    pub(crate) fn is_below(&self, slot: MemcgSlot, top: MemcgSlot) -> bool {
        self.upwards(slot).any(|at| at == top)
    }

    /// The group after another in the pre-order of a subtree.
    pub(crate) fn next_in(&self, top: MemcgSlot, at: MemcgSlot) -> Option<MemcgSlot> {
        if let Some(child) = self[at].first_child {
            return Some(child);
        }
        let mut up = at;
        while up != top {
            if let Some(next) = self[up].next_sibling {
                return Some(next);
            }
            up = self[up].parent?;
        }
        None
    }

    /// A subtree in pre-order.
    pub(crate) fn subtree(&self, top: MemcgSlot) -> impl Iterator<Item = MemcgSlot> {
        std::iter::successors(Some(top), move |&at| self.next_in(top, at))
    }

    /// The direct children of a group, in the order of their creation.
    pub(crate) fn children(&self, slot: MemcgSlot) -> impl Iterator<Item = MemcgSlot> {
        std::iter::successors(self[slot].first_child, |&at| self[at].next_sibling)
    }

    /// Counts a limit event at a group, and for the files that include what is below at each of its
    /// ancestors (`docs/kernel/memcg.md` §13).
    pub(crate) fn raise(&mut self, slot: MemcgSlot, event: impl Fn(&mut MemcgEvents) -> &mut u64) {
        *event(&mut self[slot].local) += 1;
        let mut at = Some(slot);
        while let Some(slot) = at {
            let group = &mut self[slot];
            *event(&mut group.limits) += 1;
            at = group.parent;
        }
    }

    /// Counts an event of swap at a group and each of its ancestors.
    pub(crate) fn raise_swap(
        &mut self,
        slot: MemcgSlot,
        event: impl Fn(&mut SwapEvents) -> &mut u64,
    ) {
        let mut at = Some(slot);
        while let Some(slot) = at {
            let group = &mut self[slot];
            *event(&mut group.swap_events) += 1;
            at = group.parent;
        }
    }
}

impl std::ops::Index<MemcgSlot> for MemcgTree {
    type Output = Memcg;
    #[inline]
    fn index(&self, slot: MemcgSlot) -> &Memcg {
        match &self.places[slot.index()] {
            Place::Group(group) => group,
            Place::Free(_) => panic!("there is no group in place {}", slot.0),
        }
    }
}

impl std::ops::IndexMut<MemcgSlot> for MemcgTree {
    #[inline]
    fn index_mut(&mut self, slot: MemcgSlot) -> &mut Memcg {
        match &mut self.places[slot.index()] {
            Place::Group(group) => group,
            Place::Free(_) => panic!("there is no group in place {}", slot.0),
        }
    }
}

impl std::ops::Index<MemcgId> for MemcgTree {
    type Output = Memcg;
    #[inline]
    fn index(&self, id: MemcgId) -> &Memcg {
        let group = &self[id.slot];
        assert!(group.serial == id.serial, "group {} has been removed", id.number());
        group
    }
}

impl std::ops::IndexMut<MemcgId> for MemcgTree {
    #[inline]
    fn index_mut(&mut self, id: MemcgId) -> &mut Memcg {
        let group = &mut self[id.slot];
        assert!(group.serial == id.serial, "group {} has been removed", id.number());
        group
    }
}
