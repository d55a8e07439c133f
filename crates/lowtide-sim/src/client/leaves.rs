//! The database's own cache: which leaves of its tree are in its memory, and where the others are
//! on disk.
//!
//! The eviction server walks the tree, looks at so many leaves in memory at a time, and takes the
//! third of them that was not used for longest: an approximate LRU. A dirty leaf that is evicted is
//! written to a *new* extent; its old one can be used again only after the next checkpoint. Free
//! extents are taken lowest first, which is what best fit comes to when all extents have one size.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Clone, Copy, Debug)]
struct Leaf {
    /// When it was used last, in uses of any leaf.
    used: u32,
    /// Number of its extent in the file.
    extent: u32,
    cached: bool,
    dirty: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Leaves {
    leaves: Vec<Leaf>,
    uses: u32,
    cached: u32,
    capacity: u32,
    /// Where the eviction server goes on in the tree, and what it has chosen, the oldest last.
    cursor: u32,
    candidates: Vec<u32>,
    free: BinaryHeap<Reverse<u32>>,
    /// Extents given up since the last checkpoint.
    given_up: Vec<u32>,
    extents: u32,
}

/// Leaves in memory that the eviction server looks at before it chooses.
const WALKED: usize = 300;

impl Leaves {
    /// `leaves` leaves, each in the extent of its own number, `capacity` of which fit into memory.
    pub(crate) fn new(leaves: u32, capacity: u32) -> Self {
        let leaf = |extent| Leaf { used: 0, extent, cached: false, dirty: false };
        Self {
            leaves: (0..leaves).map(leaf).collect(),
            uses: 0,
            cached: 0,
            capacity,
            cursor: 0,
            candidates: Vec::new(),
            free: BinaryHeap::new(),
            given_up: Vec::new(),
            extents: leaves,
        }
    }

    /// Uses a leaf. Returns whether it is in memory.
    pub(crate) fn touch(&mut self, id: u32) -> bool {
        self.uses += 1;
        let leaf = &mut self.leaves[id as usize];
        leaf.used = self.uses;
        leaf.cached
    }

    /// Brings a leaf into memory after it was read.
    pub(crate) fn insert(&mut self, id: u32) {
        self.cached += u32::from(!std::mem::replace(&mut self.leaves[id as usize].cached, true));
    }

    /// Takes a leaf out that was not used lately, if there are too many. Returns it, and whether it
    /// must be written first.
    pub(crate) fn evict(&mut self) -> Option<(u32, bool)> {
        if self.cached <= self.capacity {
            return None;
        }
        loop {
            let Some(id) = self.candidates.pop() else {
                self.walk();
                continue;
            };
            let leaf = &mut self.leaves[id as usize];
            if std::mem::take(&mut leaf.cached) {
                self.cached -= 1;
                return Some((id, std::mem::take(&mut leaf.dirty)));
            }
        }
    }

    /// Walks on through the tree and queues the oldest third of what is in memory there.
    fn walk(&mut self) {
        let mut found = Vec::with_capacity(WALKED);
        while found.len() < WALKED.min(self.cached as usize) {
            let id = self.cursor;
            self.cursor = (id + 1) % self.leaves.len() as u32;
            if self.leaves[id as usize].cached {
                found.push(id);
            }
        }
        found.sort_by_key(|&id| (self.leaves[id as usize].used, id));
        found.truncate(found.len().div_ceil(3));
        found.reverse();
        self.candidates = found;
    }

    /// Changes a leaf that is in memory. Returns false if it is not (any more).
    pub(crate) fn update(&mut self, id: u32) -> bool {
        let leaf = &mut self.leaves[id as usize];
        leaf.dirty |= leaf.cached;
        leaf.cached
    }

    /// A leaf was written where it is, and is as on disk. Returns its extent, or `None` if it was
    /// clean.
    pub(crate) fn take_clean(&mut self, id: u32) -> Option<u32> {
        let leaf = &mut self.leaves[id as usize];
        std::mem::take(&mut leaf.dirty).then_some(leaf.extent)
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
        let dirty = (0..)
            .zip(&mut self.leaves)
            .filter_map(|(id, leaf)| std::mem::take(&mut leaf.dirty).then_some(id));
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
