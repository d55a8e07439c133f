//! Trails: the next folios of a scan are loaded side by side.
//!
//! A scan follows links, from each folio to the next, and every link is a load that waits for the
//! one before it. In a table that is larger than the processor's caches that took a memory latency
//! a folio. So a list keeps a *trail*: every eighth folio that entered at its young end, in order.
//!
//! ```text
//!   old end                                                    young end
//!     o ─ o ─ M ─ o ─ o ─ o ─ o ─ o ─ o ─ o ─ M ─ o ─ o ─ … ─ o ─ o
//!     └─────► └─────────────────────────────► └───────────► followed at the same time
//! ```
//!
//! Before a scan takes a batch, it follows the links from several marks at once and looks at what
//! they lead to, so the loads overlap. That decides nothing: a mark may be of a folio that has left
//! the list, whose links lead elsewhere, and then it is of no use.
//!
//! The record of a folio says whether it has a mark in the trail of the list that it is on. A scan
//! that meets such a folio at the old end drops its mark, and all before it: those were of folios
//! that left in another way.

use super::{FolioTable, ListHead};
use crate::units::FolioId;
use std::collections::VecDeque;

/// Folios from one mark to the next.
const STRIDE: usize = 8;
/// Places from which links are followed at the same time.
const LANES: usize = 8;
/// Folios that each lane looks at, at most.
const STEPS: usize = 2 * STRIDE;
/// Marks that are tried for one batch, and the list's head.
const MARKS: usize = 2 * LANES + 1;

/// The trail of one list.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// Folios that entered after the last mark.
    since: u8,
    /// From the old end on.
    marks: VecDeque<u32>,
}

impl Trail {
    pub(super) fn bytes(&self) -> usize {
        self.marks.capacity() * size_of::<u32>()
    }
}

impl FolioTable {
    /// Most folios that one call of [`fetch_oldest`](Self::fetch_oldest) loads.
    pub(crate) const FETCHED: usize = STRIDE * LANES;

    #[inline]
    fn trail(&mut self, list: ListHead) -> &mut Trail {
        let at = list.index() - self.frames();
        &mut self.trails[at as usize]
    }

    /// A folio has entered at the young end.
    #[inline]
    pub(super) fn extend_trail(&mut self, list: ListHead, id: FolioId) {
        let trail = self.trail(list);
        trail.since += 1;
        if usize::from(trail.since) == STRIDE {
            trail.since = 0;
            self.mark(list, id);
        }
    }

    fn mark(&mut self, list: ListHead, id: FolioId) {
        let trail = self.trail(list);
        if trail.marks.len() == trail.marks.capacity() {
            self.drop_stale_marks(list);
        }
        self.link(id.0).set_on_trail(true);
        self.trail(list).marks.push_back(id.0);
    }

    /// Before a trail grows: drops the marks of folios that have left the list, so that it takes
    /// memory in proportion to the folios that there are. Cost: O(marks), amortized O(1).
    fn drop_stale_marks(&mut self, list: ListHead) {
        let mut marks = std::mem::take(&mut self.trail(list).marks);
        // Of two marks of one folio the later is right. The bit is off while one is in `kept`.
        let mut kept = VecDeque::with_capacity(marks.len());
        while let Some(id) = marks.pop_back() {
            if self.link(id).on_trail() {
                self.link(id).set_on_trail(false);
                kept.push_front(id);
            }
        }
        for &id in &kept {
            self.link(id).set_on_trail(true);
        }
        self.trail(list).marks = kept;
    }

    /// A folio with a mark has come to the old end.
    #[cold]
    pub(super) fn shorten_trail(&mut self, list: ListHead, id: FolioId) {
        self.link(id.0).set_on_trail(false);
        let marks = &mut self.trail(list).marks;
        while marks.pop_front().is_some_and(|mark| mark != id.0) {}
    }

    /// Loads the folios at the old end, up to [`FETCHED`](Self::FETCHED), that a scan of `n` folios
    /// is about to look at, and `also` what else it needs of them.
    ///
    /// Links are followed in *lanes*. A lane that comes to a folio with a mark is where another has
    /// begun, and goes on at the next mark; so does one whose mark turns out to be of a folio that
    /// has left. The choice is computed, not branched on: a branch would wait for the load.
    pub(crate) fn fetch_oldest(
        &mut self,
        list: ListHead,
        n: usize,
        mut also: impl FnMut(FolioId) -> u8,
    ) {
        // Behind the last mark, lanes stay at the head, where there is nothing to wait for.
        let mut marks = [list.index(); MARKS];
        let trail = &self.trails[(list.index() - self.frames()) as usize];
        for (to, &mark) in marks[..MARKS - 1].iter_mut().zip(&trail.marks) {
            *to = mark;
        }
        // Where each lane is, and whether it has just gone to a mark.
        let mut lanes = [(list.index(), false); LANES];
        for (lane, mark) in lanes[1..].iter_mut().zip(marks) {
            *lane = (mark, true);
        }
        lanes[0].0 = self.link(list.index()).prev;
        let lanes = &mut lanes[..(n.div_ceil(STRIDE) + 1).min(LANES)];
        let (mut next, mut fetched, mut seen) = (lanes.len() - 1, 0, 0);
        for _ in 0..STEPS {
            for (at, begins) in &mut *lanes {
                let Some(folio) = self.record(*at) else {
                    (*at, *begins) = (list.index(), true);
                    continue;
                };
                seen |= also(FolioId(*at));
                let leaves = folio.on_trail() != *begins;
                *at = [folio.prev, marks[next]][usize::from(leaves)];
                *begins = leaves;
                next = (next + usize::from(leaves)).min(MARKS - 1);
                fetched += usize::from(!leaves);
            }
            // Lanes that went astray count, too.
            if fetched >= n + STRIDE {
                break;
            }
        }
        std::hint::black_box(seen);
    }

    /// Whether the folios on a list whose records speak of a mark have one in its trail, in order.
    pub(crate) fn trail_is_right(&self, list: ListHead) -> bool {
        let at = list.index() - self.frames();
        let mut marks = self.trails[at as usize].marks.iter();
        let mut marked = self.oldest_first(list).filter(|&id| self[id].on_trail());
        marked.all(|id| marks.any(|&mark| mark == id.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAMES: u32 = 256;

    /// A number for each folio and step: what happens to it.
    fn steps() -> impl Strategy<Value = Vec<(u32, u8)>> {
        prop::collection::vec((0..FRAMES, 0..16_u8), 0..4000)
    }

    /// The folios that a fetch looks at, once each.
    fn fetched(table: &mut FolioTable, list: ListHead, n: usize) -> Vec<FolioId> {
        let mut seen = Vec::new();
        table.fetch_oldest(list, n, |id| {
            seen.push(id);
            0
        });
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    proptest! {
        /// Folios enter at both ends, leave at the old end and from the middle, and change lists.
        #[test]
        fn a_record_speaks_only_of_marks_that_there_are(steps in steps()) {
            let mut table = FolioTable::used(FRAMES);
            let lists = [table.new_list(), table.new_list()];
            let mut on = [false; FRAMES as usize];
            for (n, what) in steps {
                let (id, list) = (FolioId(n), lists[usize::from(what & 1)]);
                if what < 2 {
                    if let Some(oldest) = table.oldest(list) {
                        table.unlink(oldest);
                        on[oldest.index()] = false;
                    }
                    continue;
                }
                if std::mem::replace(&mut on[id.index()], true) {
                    table.unlink(id);
                }
                match what {
                    2 | 3 => table.push_old(list, id),
                    4 | 5 => on[id.index()] = false,
                    _ => table.push_young(list, id),
                }
                let before = lists.map(|list| table.walk(list));
                fetched(&mut table, list, FolioTable::FETCHED);
                prop_assert_eq!(lists.map(|list| table.walk(list)), before);
                prop_assert!(lists.iter().all(|&list| table.trail_is_right(list)));
            }
        }
    }

    #[test]
    fn what_a_scan_will_look_at_is_fetched() {
        let mut table = FolioTable::used(FRAMES);
        let list = table.new_list();
        (0..FRAMES).for_each(|n| table.push_young(list, FolioId(n)));
        let taken = |table: &mut FolioTable, n: u32| {
            for _ in 0..n {
                let id = table.oldest(list).expect("it is not empty");
                table.unlink(id);
            }
        };
        for (first, n) in [(0, 64), (64, 3), (67, 64), (131, 61)] {
            let seen = fetched(&mut table, list, n);
            for id in first..first + n as u32 {
                assert!(seen.contains(&FolioId(id)), "{id} is not fetched from {first} on");
            }
            taken(&mut table, n as u32);
        }
        // Every other folio has left, and one with a mark.
        (192..FRAMES).step_by(2).for_each(|n| table.unlink(FolioId(n)));
        table.unlink(FolioId(207));
        let seen = fetched(&mut table, list, 16);
        assert!((193..223).step_by(2).all(|id| id == 207 || seen.contains(&FolioId(id))));
    }

    /// A list that no scan looks at: folios come, and leave in another way.
    #[test]
    fn a_trail_does_not_grow_with_what_has_left() {
        let mut table = FolioTable::used(FRAMES);
        let list = table.new_list();
        for n in 0..100 * FRAMES {
            let id = FolioId(n % FRAMES);
            if n >= FRAMES {
                table.unlink(id);
            }
            table.push_young(list, id);
        }
        assert!(table.trail(list).bytes() <= 4 * FRAMES as usize, "as large as a byte a folio");
        assert!(table.trail_is_right(list));
    }
}
