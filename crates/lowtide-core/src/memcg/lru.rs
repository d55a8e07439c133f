//! The memcg LRU: the order in which groups are reclaimed when a whole machine is short of memory
//! (multi-gen LRU only).
//!
//! Groups are in a ring of three generations, each in one of eight bins that is drawn at random. A
//! reclaimer begins in a random bin of the oldest generation and visits every group of that
//! generation at most once. The place of a group after the visit decides when it is visited again:
//! one that was aged, is too small or is protected goes to the young generation; one that still has
//! something stays, or goes to the tail of a bin once. When the oldest generation is empty the next
//! one is the oldest. So reclaim spreads over all groups in the long run while each reclaimer sees
//! only a few, and bins keep reclaimers apart.
//!
//! Reclaim for a group's own limit does not use this but a [cursor](super::Cursor) over its
//! subtree. Source: `docs/kernel/reclaim.md` §2.11.

use crate::units::{MemcgId, MemcgSlot};
use std::collections::VecDeque;

const GENERATIONS: u64 = 3;
const BINS: usize = 8;

/// Where a group was put last within its generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Segment {
    #[default]
    Default,
    Tail,
}

/// A group's place.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Ring slot of its generation.
    generation: usize,
    bin: usize,
    segment: Segment,
}

/// Where a group goes after a visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Requeue {
    /// It stays where it is.
    Stay,
    /// To the tail of a bin of its generation.
    Tail,
    /// To the young generation: its visit is over.
    Young,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct MemcgLru {
    seq: u64,
    bins: [[VecDeque<MemcgId>; BINS]; GENERATIONS as usize],
    /// By place.
    entries: Vec<Option<Entry>>,
    random: u64,
}

impl MemcgLru {
    pub(crate) fn new() -> Self {
        Self {
            seq: 0,
            bins: Default::default(),
            entries: Vec::new(),
            random: 0x9E37_79B9_7F4A_7C15,
        }
    }

    /// A bin at random: the same ones in the same order for every engine.
    fn draw(&mut self) -> usize {
        // Xorshift: three shifts, and never 0.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as usize % BINS
    }

    fn old(&self) -> usize {
        (self.seq % GENERATIONS) as usize
    }

    /// A new group: it is visited soon.
    pub(crate) fn insert(&mut self, id: MemcgId) {
        if id.slot.index() >= self.entries.len() {
            self.entries.resize(id.slot.index() + 1, None);
        }
        let entry = Entry { generation: self.old(), bin: self.draw(), segment: Segment::Default };
        self.put(id, entry);
    }

    /// A group is gone.
    pub(crate) fn remove(&mut self, id: MemcgId) {
        self.take(id);
        self.settle();
    }

    fn put(&mut self, id: MemcgId, entry: Entry) {
        self.bins[entry.generation][entry.bin].push_back(id);
        self.entries[id.slot.index()] = Some(entry);
    }

    fn take(&mut self, id: MemcgId) -> Option<Entry> {
        let entry = self.entries.get_mut(id.slot.index())?.take()?;
        let bin = &mut self.bins[entry.generation][entry.bin];
        bin.retain(|&at| at != id);
        Some(entry)
    }

    /// Moves on when the oldest generation is empty.
    fn settle(&mut self) {
        for _ in 1..GENERATIONS {
            if self.bins[self.old()].iter().any(|bin| !bin.is_empty()) {
                return;
            }
            self.seq += 1;
        }
    }

    /// Whether a group was put to the tail of a bin since it became old.
    pub(crate) fn at_tail(&self, slot: MemcgSlot) -> bool {
        self.entries
            .get(slot.index())
            .copied()
            .flatten()
            .is_some_and(|entry| entry.segment == Segment::Tail)
    }

    /// Puts a group where it belongs after a visit.
    pub(crate) fn visited(&mut self, id: MemcgId, to: Requeue) {
        if to == Requeue::Stay {
            return;
        }
        let Some(entry) = self.take(id) else { return };
        let bin = self.draw();
        let entry = match to {
            Requeue::Young => Entry {
                generation: ((self.seq + 1) % GENERATIONS) as usize,
                bin,
                segment: Segment::Default,
            },
            _ => Entry { bin, segment: Segment::Tail, ..entry },
        };
        self.put(id, entry);
        self.settle();
    }
}

/// One pass over the oldest generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Round {
    generation: usize,
    /// The bin that the pass began in, and how many it has begun.
    first: usize,
    bins: usize,
    /// What is left of the bin, the next one last.
    left: Vec<MemcgId>,
}

impl Round {
    pub(crate) fn new(lru: &mut MemcgLru) -> Self {
        Self { generation: lru.old(), first: lru.draw(), bins: 0, left: Vec::new() }
    }

    /// The next group: of the generation that was the oldest when the pass began, and each group
    /// once.
    pub(crate) fn next(&mut self, lru: &MemcgLru) -> Option<MemcgId> {
        loop {
            while let Some(id) = self.left.pop() {
                let bin = (self.first + self.bins - 1) % BINS;
                let entry = lru.entries.get(id.slot.index()).copied().flatten();
                if entry.is_some_and(|at| at.generation == self.generation && at.bin == bin) {
                    return Some(id);
                }
            }
            if self.bins == BINS {
                return None;
            }
            let bin = (self.first + self.bins) % BINS;
            self.bins += 1;
            self.left = lru.bins[self.generation][bin].iter().rev().copied().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(n: u16) -> (MemcgLru, Vec<MemcgId>) {
        let mut lru = MemcgLru::new();
        let ids: Vec<_> = (0..n).map(|n| MemcgId { slot: MemcgSlot(n), serial: 0 }).collect();
        ids.iter().for_each(|&id| lru.insert(id));
        (lru, ids)
    }

    #[test]
    fn a_round_visits_every_group_of_the_oldest_generation_once() {
        let (mut lru, ids) = groups(50);
        let mut round = Round::new(&mut lru);
        let mut seen: Vec<_> = std::iter::from_fn(|| round.next(&lru)).collect();
        seen.sort();
        assert_eq!(seen, ids);
    }

    #[test]
    fn a_group_that_was_visited_waits_until_all_others_were() {
        let (mut lru, ids) = groups(20);
        let mut turns = vec![0; ids.len()];
        for _ in 0..200 {
            let mut round = Round::new(&mut lru);
            let id = round.next(&lru).unwrap();
            turns[id.slot.index()] += 1;
            lru.visited(id, Requeue::Young);
        }
        assert_eq!(turns, vec![10; 20], "round robin in the long run");
    }

    #[test]
    fn a_group_that_is_gone_is_visited_no_more() {
        let (mut lru, ids) = groups(3);
        lru.remove(ids[1]);
        lru.visited(ids[0], Requeue::Tail);
        assert!(lru.at_tail(ids[0].slot) && !lru.at_tail(ids[2].slot));
        let mut round = Round::new(&mut lru);
        let seen: Vec<_> = std::iter::from_fn(|| round.next(&lru)).collect();
        assert_eq!(seen.len(), 2);
        assert!(!seen.contains(&ids[1]));
    }
}
