//! Strict LRU at all sizes in one pass: stack distances.
//!
//! R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger: "Evaluation techniques for storage
//! hierarchies", IBM Systems Journal 9(2), 1970. Imagine all pages in a stack, the most recently
//! accessed on top. A cache of `c` pages holds exactly the top `c`, so an access that finds its
//! page at depth `d` hits in every cache of at least `d` pages and misses in all smaller ones; one
//! histogram of depths is the whole curve.
//!
//! **Depth by counting.** Each page has a slot in a row ordered by time. The depth of a page is the
//! number of used slots from its own to the end, which a Fenwick tree over the row gives in O(log
//! n). When the row is full, the used slots are compacted in order; the row is at least twice as
//! long as the stack is deep, so that costs O(1) per access.
//!
//! **Removals leave holes.** A freed page frees space in every cache that held it, and none in a
//! smaller cache that had evicted it. Both are modelled by a hole in its place in the stack.
//! An access then takes its page from depth `d`, pushes the pages above down by one, and the first
//! hole above `d` absorbs the push:
//!
//! ```text
//!   top                     d                        top                     d
//!    a   b  (hole)  e   f   x   g        access x     x   a   b   e   f  (hole)  g
//! ```
//!
//! Caches of at least `d` pages had `x` and have one hole as before, in its place; those that end
//! between the hole and `d` missed, and put `x` in their free space; those that end above the hole
//! missed and evicted their last page. Without a hole above, the place of `x` closes, and a new
//! page takes the first hole.

use super::run::MrcError;
use super::tape::{Effect, Record, Tape};
use super::watch::Watch;
use super::words::Chunk;
use std::collections::BinaryHeap;
use std::sync::atomic::AtomicBool;

/// The slot is free, or the page has no slot.
const NONE: u32 = u32::MAX;
/// The slot is a hole.
const HOLE: u32 = u32::MAX - 1;
/// Smallest number of slots of a row, so that short stacks are not compacted all the time.
const SLOTS_MIN: usize = 1024;

/// The miss counts of strict LRU at every size.
#[derive(Clone, Debug)]
pub struct StackDistances {
    /// `hits[c]` is the number of accesses that a cache of `c` pages hits.
    hits: Vec<u64>,
    accesses: u64,
}

impl StackDistances {
    /// Replays the tape once. Uses 28 bytes per distinct page meanwhile, 8 afterwards.
    ///
    /// # Errors
    /// [`MrcError::Spill`] when the tape cannot be read, [`MrcError::Cancelled`] when `stop`
    /// becomes true.
    pub fn of(tape: &Tape, stop: &AtomicBool) -> Result<Self, MrcError> {
        Self::watched(tape, &Watch::new(stop, &|_| (), 0))
    }

    pub(super) fn watched(tape: &Tape, watch: &Watch<'_>) -> Result<Self, MrcError> {
        let mut stack = Stack::new(tape.distinct());
        // Depths are at most the number of distinct pages; index 0 stays 0.
        let mut hits = vec![0_u64; tape.distinct() as usize + 1];
        let words = tape.words();
        let mut room = Chunk::default();
        for index in 0..words.chunks() {
            let chunk = words.chunk(index, &mut room)?;
            for &word in chunk {
                let record = Record::from_word(word);
                match record.effect() {
                    Effect::Access => {
                        if let Some(depth) = stack.access(record.page()) {
                            hits[depth as usize] += 1;
                        }
                    }
                    Effect::Remove => stack.remove(record.page()),
                    Effect::Nothing => (),
                }
            }
            watch.played(chunk.len())?;
        }
        let mut sum = 0;
        for count in &mut hits {
            sum += *count;
            *count = sum;
        }
        Ok(Self { hits, accesses: tape.accesses() })
    }

    /// Number of accesses that miss in a strict LRU cache of `pages` pages.
    #[must_use]
    pub fn misses(&self, pages: u64) -> u64 {
        let last = self.hits.len() - 1;
        self.accesses - self.hits[usize::try_from(pages).unwrap_or(last).min(last)]
    }

    /// The smallest size with at most `misses` misses, if there is one.
    #[must_use]
    pub fn smallest_with(&self, misses: u64) -> Option<u64> {
        let enough = self.accesses.saturating_sub(misses);
        let pages = self.hits.partition_point(|&hits| hits < enough);
        (pages < self.hits.len()).then_some(pages as u64)
    }
}

/// The stack, with holes.
struct Stack {
    /// By slot, in order of time: a page, [`HOLE`] or [`NONE`].
    owner: Vec<u32>,
    /// By page: its slot, or [`NONE`].
    slot: Vec<u32>,
    /// Fenwick tree over "the slot is used", counted from 1.
    tree: Vec<u32>,
    /// The slots that are holes, youngest on top.
    holes: BinaryHeap<u32>,
    /// Number of used slots.
    taken: u32,
    /// The next free slot; all later ones are free too.
    next: u32,
}

impl Stack {
    fn new(pages: u32) -> Self {
        let slots = (2 * pages as usize).max(SLOTS_MIN);
        Self {
            owner: vec![NONE; slots],
            slot: vec![NONE; pages as usize],
            tree: vec![0; slots + 1],
            holes: BinaryHeap::new(),
            taken: 0,
            next: 0,
        }
    }

    /// Moves `page` to the top and returns its previous depth, from 1; `None` if it was not in the
    /// stack.
    fn access(&mut self, page: u32) -> Option<u32> {
        let slot = self.slot[page as usize];
        if slot != NONE && slot + 1 == self.next {
            return Some(1);
        }
        if self.next as usize == self.owner.len() {
            self.move_together();
        }
        // Compaction gave the page another slot.
        let slot = self.slot[page as usize];
        let depth = (slot != NONE).then(|| self.taken - self.taken_before(slot));
        let hole = self.holes.peek().copied();
        match hole {
            Some(hole) if slot == NONE || hole > slot => {
                self.holes.pop();
                self.vacate(hole);
                if slot != NONE {
                    self.owner[slot as usize] = HOLE;
                    self.holes.push(slot);
                }
            }
            _ if slot != NONE => self.vacate(slot),
            _ => (),
        }
        let top = self.next;
        self.next += 1;
        self.owner[top as usize] = page;
        self.slot[page as usize] = top;
        self.taken += 1;
        self.add(top, 1);
        depth
    }

    fn remove(&mut self, page: u32) {
        let slot = std::mem::replace(&mut self.slot[page as usize], NONE);
        if slot != NONE {
            self.owner[slot as usize] = HOLE;
            self.holes.push(slot);
        }
    }

    fn vacate(&mut self, slot: u32) {
        self.owner[slot as usize] = NONE;
        self.taken -= 1;
        self.add(slot, u32::MAX);
    }

    /// Adds 1 or, as `u32::MAX`, -1 at a slot.
    fn add(&mut self, slot: u32, change: u32) {
        let mut at = slot as usize + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }

    /// Number of used slots before this one.
    fn taken_before(&self, slot: u32) -> u32 {
        let mut at = slot as usize;
        let mut sum = 0;
        while at > 0 {
            sum += self.tree[at];
            at &= at - 1;
        }
        sum
    }

    /// Compacts the used slots, in order, to the start of the row.
    fn move_together(&mut self) {
        self.holes.clear();
        let mut to = 0;
        for from in 0..self.owner.len() {
            let owner = std::mem::replace(&mut self.owner[from], NONE);
            match owner {
                NONE => continue,
                HOLE => self.holes.push(to),
                page => self.slot[page as usize] = to,
            }
            self.owner[to as usize] = owner;
            to += 1;
        }
        self.next = to;
        // A node of the tree counts the slots from itself back to its lowest bit.
        for at in 1..self.tree.len() {
            let first = at & (at - 1);
            self.tree[at] = (to as usize).clamp(first, at).wrapping_sub(first) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::{Cache, Lru};
    use crate::testing::{any_ops, tape, zipf};
    use lowtide_workload::PageOp;
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    /// Misses of an LRU cache of each size, one run each.
    fn by_simulation(tape: &Tape) -> Vec<u64> {
        let mut room = Chunk::default();
        let misses = |capacity: u32| {
            let mut cache = Lru::new(tape.distinct(), NonZeroU32::new(capacity).unwrap());
            let mut misses = 0;
            for index in 0..tape.chunks() {
                for record in tape.chunk(index, &mut room).unwrap() {
                    match record.effect() {
                        Effect::Access => misses += u64::from(!cache.access(record.page(), 0)),
                        Effect::Remove => cache.remove(record.page()),
                        Effect::Nothing => (),
                    }
                }
            }
            misses
        };
        (1..=tape.distinct()).map(misses).collect()
    }

    fn check(ops: &[PageOp]) -> Result<(), TestCaseError> {
        let tape = tape(ops);
        let distances = StackDistances::of(&tape, &AtomicBool::new(false)).unwrap();
        let misses: Vec<u64> =
            (1..=u64::from(tape.distinct())).map(|pages| distances.misses(pages)).collect();
        prop_assert_eq!(misses, by_simulation(&tape));
        prop_assert_eq!(distances.misses(0), tape.accesses());
        prop_assert_eq!(distances.misses(u64::MAX), tape.cold());
        for target in [0, tape.cold(), tape.accesses() / 2, tape.accesses()] {
            let smallest =
                (0..=u64::from(tape.distinct())).find(|&pages| distances.misses(pages) <= target);
            prop_assert_eq!(distances.smallest_with(target), smallest);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn one_pass_gives_what_a_run_at_each_size_gives(ops in any_ops()) {
            check(&ops)?;
        }
    }

    /// Long enough that the row of slots is compacted many times.
    #[test]
    fn long_streams_agree_too() {
        check(&zipf(40, 30_000, 1)).unwrap();
    }
}
