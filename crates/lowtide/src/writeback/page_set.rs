//! A set of pages of one file, for what is written, failed or not durable yet: ranges are added and
//! removed, and listed.
//!
//! Sorted arrays, bitmaps and runs of a [`RoaringTreemap`], whichever is smallest for 65,536
//! neighbours. Measured in `docs/decisions/0022-sets-of-pages.md`.

use roaring::RoaringTreemap;
use std::collections::VecDeque;
use std::ops::Range;

/// Ranges that cover the same pages, in order, without overlap.
pub(super) fn union(ranges: impl Iterator<Item = Range<u64>>) -> VecDeque<Range<u64>> {
    let mut sorted: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
    sorted.sort_by_key(|range| range.start);
    let mut united: VecDeque<Range<u64>> = VecDeque::new();
    for range in sorted {
        match united.back_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => united.push_back(range),
        }
    }
    united
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageSet(RoaringTreemap);

impl PageSet {
    /// How many pages there are. Cost: O(pages / 65,536).
    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, pages: Range<u64>) {
        self.0.insert_range(pages);
    }

    pub(crate) fn remove(&mut self, pages: Range<u64>) {
        self.0.remove_range(pages);
    }

    /// Moves all pages of another set into this one.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        self.0 |= std::mem::take(&mut other.0);
    }

    /// All pages as ranges, in order, as long as possible.
    pub(crate) fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (high, pages) in self.0.bitmaps() {
            let mut pages = pages.iter();
            while let Some(run) = pages.next_range() {
                let [first, last] =
                    [run.start(), run.end()].map(|low| u64::from(high) << 32 | u64::from(*low));
                match runs.last_mut() {
                    Some(before) if before.end == first => before.end = last + 1,
                    _ => runs.push(first..last + 1),
                }
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_what_was_inserted_less_what_was_removed() {
        let mut set = PageSet::default();
        let mut model = std::collections::BTreeSet::new();
        let mut random = 1_u64;
        for step in 0..4000 {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(step);
            let start = (random >> 20) % 3000;
            let pages = start..start + (random >> 50) % 700;
            if random >> 63 == 0 {
                set.insert(pages.clone());
                model.extend(pages);
            } else {
                set.remove(pages.clone());
                model.retain(|page| !pages.contains(page));
            }
            assert_eq!(set.len(), model.len() as u64);
        }
        assert!(set.runs().into_iter().flatten().eq(model.iter().copied()));
        let mut other = PageSet::default();
        other.insert(10_000..10_001);
        other.absorb(&mut set);
        assert_eq!((other.len(), set.len()), (model.len() as u64 + 1, 0));
        other.remove(0..u64::MAX);
        assert!(other.is_empty() && other.runs().is_empty());
    }
}
