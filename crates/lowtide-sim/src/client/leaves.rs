//! The database's own cache: which leaves of its tree are in its memory, and where the others are on disk.
//!
//! Approximate LRU over leaves, as a list through flat arrays. A dirty leaf that is evicted is written to a *new* extent; its old one can be
//! used again only after the next checkpoint. Free extents are taken lowest first, which is what best fit comes to when all extents have
//! one size.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Leaf {
    newer: u32,
    older: u32,
    /// Number of its extent in the file.
    extent: u32,
    cached: bool,
    dirty: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Leaves {
    leaves: Vec<Leaf>,
    newest: u32,
    oldest: u32,
    cached: u32,
    capacity: u32,
    free: BinaryHeap<Reverse<u32>>,
    /// Extents given up since the last checkpoint.
    given_up: Vec<u32>,
    extents: u32,
}

impl Leaves {
    /// `leaves` leaves, each in the extent of its own number, `capacity` of which fit into memory.
    pub(crate) fn new(leaves: u32, capacity: u32) -> Self {
        let leaf = |extent| Leaf { newer: NONE, older: NONE, extent, cached: false, dirty: false };
        Self {
            leaves: (0..leaves).map(leaf).collect(),
            newest: NONE,
            oldest: NONE,
            cached: 0,
            capacity,
            free: BinaryHeap::new(),
            given_up: Vec::new(),
            extents: leaves,
        }
    }

    fn unlink(&mut self, id: u32) {
        let Leaf { newer, older, .. } = self.leaves[id as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.leaves[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.leaves[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, id: u32) {
        let older = std::mem::replace(&mut self.newest, id);
        match older {
            NONE => self.oldest = id,
            older => self.leaves[older as usize].newer = id,
        }
        let leaf = &mut self.leaves[id as usize];
        (leaf.newer, leaf.older) = (NONE, older);
    }

    /// Uses a leaf. Returns whether it is in memory.
    pub(crate) fn touch(&mut self, id: u32) -> bool {
        let cached = self.leaves[id as usize].cached;
        if cached {
            self.unlink(id);
            self.link_newest(id);
        }
        cached
    }

    /// Brings a leaf into memory after it was read.
    pub(crate) fn insert(&mut self, id: u32) {
        if !std::mem::replace(&mut self.leaves[id as usize].cached, true) {
            self.cached += 1;
            self.link_newest(id);
        }
    }

    /// Takes the leaf out that was used longest ago, if there are too many. Returns it, and whether it must be written first.
    pub(crate) fn evict(&mut self) -> Option<(u32, bool)> {
        if self.cached <= self.capacity {
            return None;
        }
        let id = self.oldest;
        self.unlink(id);
        self.cached -= 1;
        let leaf = &mut self.leaves[id as usize];
        leaf.cached = false;
        Some((id, std::mem::take(&mut leaf.dirty)))
    }

    /// Changes a leaf that is in memory. Returns false if it is not (any more).
    pub(crate) fn update(&mut self, id: u32) -> bool {
        let leaf = &mut self.leaves[id as usize];
        leaf.dirty |= leaf.cached;
        leaf.cached
    }

    /// The extent that a leaf is in.
    pub(crate) fn extent(&self, id: u32) -> u32 {
        self.leaves[id as usize].extent
    }

    /// Gives a leaf a new extent, to be written.
    pub(crate) fn relocate(&mut self, id: u32) -> u32 {
        let new = self.free.pop().map_or_else(
            || {
                self.extents += 1;
                self.extents - 1
            },
            |Reverse(extent)| extent,
        );
        let old = std::mem::replace(&mut self.leaves[id as usize].extent, new);
        self.given_up.push(old);
        new
    }

    /// The dirty leaves in the order of their numbers, no longer dirty: a checkpoint writes them.
    pub(crate) fn take_dirty(&mut self) -> Vec<u32> {
        let dirty = (0..).zip(&mut self.leaves).filter_map(|(id, leaf)| std::mem::take(&mut leaf.dirty).then_some(id));
        dirty.collect()
    }

    /// Extents given up so far, to be handed to [`Leaves::checkpointed`].
    pub(crate) fn take_given_up(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.given_up)
    }

    /// A checkpoint is durable: what had been given up before it began can be used again.
    pub(crate) fn checkpointed(&mut self, given_up: Vec<u32>) {
        self.free.extend(given_up.into_iter().map(Reverse));
    }
}
