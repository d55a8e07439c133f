//! A set of pages of one file: a bit for each page, in blocks of 512 neighbours that exist where a
//! member does.
//!
//! Cost: 64 bytes and a node of a tree for each block that has members; O(log blocks) and O(pages /
//! 64) an operation.

use lowtide_core::limits::TABLE_ENTRIES;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

const WORDS: usize = TABLE_ENTRIES as usize / 64;

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
pub(crate) struct PageSet {
    tables: BTreeMap<u64, [u64; WORDS]>,
    len: u64,
}

impl PageSet {
    /// How many pages there are.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn insert(&mut self, pages: Range<u64>) {
        for (table, within) in by_table(pages) {
            let words = self.tables.entry(table).or_default();
            for (word, mask) in masks(within) {
                self.len += u64::from((mask & !words[word]).count_ones());
                words[word] |= mask;
            }
        }
    }

    pub(crate) fn remove(&mut self, pages: Range<u64>) {
        if self.is_empty() || pages.is_empty() {
            return;
        }
        let tables = pages.start / TABLE_ENTRIES..=(pages.end - 1) / TABLE_ENTRIES;
        let there: Vec<u64> = self.tables.range(tables).map(|(table, _)| *table).collect();
        for table in there {
            let first = table * TABLE_ENTRIES;
            let within =
                pages.start.max(first) - first..pages.end.min(first + TABLE_ENTRIES) - first;
            let words = self.tables.get_mut(&table).expect("it was just found");
            for (word, mask) in masks(within) {
                self.len -= u64::from((mask & words[word]).count_ones());
                words[word] &= !mask;
            }
            if words.iter().all(|word| *word == 0) {
                self.tables.remove(&table);
            }
        }
    }

    /// Moves all pages of another set into this one.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        if self.is_empty() {
            std::mem::swap(self, other);
        }
        for run in std::mem::take(other).runs() {
            self.insert(run);
        }
    }

    /// All pages as ranges, in order, as long as possible within a table.
    pub(crate) fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (table, words) in &self.tables {
            for (at, word) in words.iter().enumerate() {
                let first = table * TABLE_ENTRIES + at as u64 * 64;
                let mut left = *word;
                while left != 0 {
                    let start = left.trailing_zeros();
                    let ones = (left >> start).trailing_ones();
                    let run = first + u64::from(start)..first + u64::from(start + ones);
                    match runs.last_mut() {
                        Some(last) if last.end == run.start => last.end = run.end,
                        _ => runs.push(run),
                    }
                    left &= u64::MAX.checked_shl(start + ones).unwrap_or(0);
                }
            }
        }
        runs
    }
}

/// Cuts a range at the borders of tables; parts count from the start of their table.
fn by_table(pages: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let mut at = pages.start;
    std::iter::from_fn(move || {
        (at < pages.end).then(|| {
            let (table, start) = (at / TABLE_ENTRIES, at % TABLE_ENTRIES);
            let end = (start + pages.end - at).min(TABLE_ENTRIES);
            at += end - start;
            (table, start..end)
        })
    })
}

/// The words that a part of a table touches, and its bits in each.
fn masks(within: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    (within.start / 64..within.end.div_ceil(64)).map(move |word| {
        let first = word * 64;
        let (low, high) = (within.start.max(first) - first, within.end.min(first + 64) - first);
        (word as usize, (u64::MAX >> (64 - (high - low))) << low)
    })
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
