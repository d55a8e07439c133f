//! Page tables as bitmaps: four bits an entry, 64 entries at a time.
//!
//! ```text
//!   table of 512 entries = 8 rows of 64
//!   row: │ present  │ young    │ writable │ dirty    │     four words, half a cache line
//! ```
//!
//! Where an entry leads to is in the page cache, since every mapping maps a whole object, so its
//! bits are all there is. A single access reads and writes one row, as it would one entry. What
//! concerns many entries works on words: a program that reads a mapping from start to end touches
//! 64 pages with one *or*, and an aging walk passes over what is old without looking at it. An
//! entry that is not present has no other bit either.

use super::page_map::{MASK, PAGES_MAX, SHIFT, Top};
use lowtide_core::limits::TABLE_ENTRIES;

/// Entries in a row.
pub(super) const ROW: u64 = u64::BITS as u64;
const ROWS: usize = (TABLE_ENTRIES / ROW) as usize;

/// The bits of 64 entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(align(32))]
struct Row {
    present: u64,
    young: u64,
    writable: u64,
    dirty: u64,
}

impl Row {
    /// The entries that an access needs no fault for.
    #[inline]
    const fn allows(&self, store: bool) -> u64 {
        if store { self.present & self.writable } else { self.present }
    }

    /// What the hardware does with accesses that are allowed.
    #[inline]
    const fn access(&mut self, entries: u64, store: bool) {
        self.young |= entries;
        if store {
            self.dirty |= entries;
        }
    }
}

/// A table of 512 entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Table([Row; ROWS]);

impl Table {
    /// The young entries in a part of the table, in order. Cost: O(rows and young entries).
    pub fn young(&self, entries: std::ops::Range<u64>) -> impl Iterator<Item = u64> + use<> {
        let mut rows = self.0.map(|row| row.young);
        let (mut row, end) = (entries.start / ROW, entries.end.div_ceil(ROW));
        for row in row..end {
            let first = row * ROW;
            rows[row as usize] &= between(entries.start.max(first) - first, entries.end - first);
        }
        std::iter::from_fn(move || {
            while row < end {
                let word = &mut rows[row as usize];
                if *word != 0 {
                    let bit = u64::from(word.trailing_zeros());
                    *word &= *word - 1;
                    return Some(row * ROW + bit);
                }
                row += 1;
            }
            None
        })
    }

    /// Clears the young bit of an entry. Returns whether it was set.
    pub const fn take_young(&mut self, entry: u64) -> bool {
        let (row, bit) = (&mut self.0[(entry / ROW) as usize], 1 << (entry % ROW));
        let young = row.young & bit != 0;
        row.young &= !bit;
        young
    }
}

/// The bits from `first` on and before `end`, which may be beyond the last.
#[inline]
const fn between(first: u64, end: u64) -> u64 {
    let below = if end >= ROW { u64::MAX } else { (1 << end) - 1 };
    below & (u64::MAX << first)
}

/// The numbers of the bits that are set, in order.
fn bits(mut word: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| u64::from(word.trailing_zeros()));
        word &= word.wrapping_sub(1);
        bit
    })
}

/// An entry, looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pte {
    /// It leads to a page.
    pub present: bool,
    /// It was used since this bit was last cleared.
    pub young: bool,
    /// Stores need no fault.
    pub writable: bool,
    /// There was a store through it since it was made, or since it was last protected.
    pub dirty: bool,
}

/// All page tables of a mapping.
#[derive(Clone, Debug, Default)]
pub struct PageTables {
    top: Top,
    tables: Vec<Table>,
}

impl PageTables {
    #[inline]
    fn row(&self, page: u64) -> Option<(&Row, u64)> {
        let table = &self.tables[self.top.slot(page >> SHIFT)?];
        Some((&table.0[((page & MASK) / ROW) as usize], 1 << (page % ROW)))
    }

    #[inline]
    fn row_mut(&mut self, page: u64) -> Option<(&mut Row, u64)> {
        let table = &mut self.tables[self.top.slot(page >> SHIFT)?];
        Some((&mut table.0[((page & MASK) / ROW) as usize], 1 << (page % ROW)))
    }

    /// The row of a page, in a table that is made if need be.
    #[inline]
    fn row_made(&mut self, page: u64) -> (&mut Row, u64) {
        let slot = self.top.slot(page >> SHIFT).unwrap_or_else(|| self.make(page));
        (&mut self.tables[slot].0[((page & MASK) / ROW) as usize], 1 << (page % ROW))
    }

    /// # Panics
    /// When the page is not below [`PAGES_MAX`].
    #[cold]
    fn make(&mut self, page: u64) -> usize {
        assert!(page < PAGES_MAX, "page {page} is beyond what a space can have");
        let slot = self.tables.len();
        self.top.set(page >> SHIFT, slot);
        self.tables.push(Table::default());
        slot
    }

    /// Whether a page is mapped.
    #[inline]
    pub fn is_present(&self, page: u64) -> bool {
        self.row(page).is_some_and(|(row, bit)| row.present & bit != 0)
    }

    /// The entry of a page.
    #[inline]
    pub fn get(&self, page: u64) -> Pte {
        let Some((row, bit)) = self.row(page) else { return Pte::default() };
        let is = |word: u64| word & bit != 0;
        Pte {
            present: is(row.present),
            young: is(row.young),
            writable: is(row.writable),
            dirty: is(row.dirty),
        }
    }

    /// An access to a page, if it needs no fault. Returns whether it did not.
    #[inline]
    pub fn touch(&mut self, page: u64, store: bool) -> bool {
        let Some((row, bit)) = self.row_mut(page) else { return false };
        let allowed = row.allows(store) & bit != 0;
        if allowed {
            row.access(bit, store);
        }
        allowed
    }

    /// Accesses to `pages` pages from `first` on, within one table, as far as they need no fault.
    /// Returns how many did not: the page after them is the first that faults. Cost: O(pages / 64).
    pub fn sweep(&mut self, first: u64, pages: u64, store: bool) -> u64 {
        debug_assert!(
            pages == 0 || first >> SHIFT == (first + pages - 1) >> SHIFT,
            "one table at a time"
        );
        let Some(slot) = self.top.slot(first >> SHIFT) else { return 0 };
        let table = &mut self.tables[slot];
        let end = first + pages;
        let mut page = first;
        while page < end {
            let row = &mut table.0[((page & MASK) / ROW) as usize];
            let from = page % ROW;
            let wanted = between(from, from + (end - page));
            let missing = wanted & !row.allows(store);
            let touched = if missing == 0 {
                wanted
            } else {
                wanted & between(0, missing.trailing_zeros().into())
            };
            row.access(touched, store);
            page += u64::from(touched.count_ones());
            if missing != 0 {
                break;
            }
        }
        page - first
    }

    /// Clears all entries, and calls back for each that was present: its page, and whether it was
    /// young. The memory of the tables is kept for the next mapping. Cost: O(tables and entries).
    pub fn zap(&mut self, mut gone: impl FnMut(u64, bool)) {
        for (first, slot) in self.top.slots() {
            let firsts = (first << SHIFT..).step_by(ROW as usize);
            for (row, first) in self.tables[slot].0.iter_mut().zip(firsts) {
                let Row { present, young, .. } = std::mem::take(row);
                bits(present).for_each(|bit| gone(first + bit, young & (1 << bit) != 0));
            }
        }
    }

    /// Clears the young bit of a page. Returns whether it was set.
    #[inline]
    pub fn take_young(&mut self, page: u64) -> bool {
        let Some((row, bit)) = self.row_mut(page) else { return false };
        let young = row.young & bit != 0;
        row.young &= !bit;
        young
    }

    /// Maps a page, young; an entry that was writable stays so.
    ///
    /// # Panics
    /// When the page is not below [`PAGES_MAX`]: a caller that takes page numbers from outside
    /// checks them first.
    #[inline]
    pub fn map(&mut self, page: u64, writable: bool) {
        let (row, bit) = self.row_made(page);
        row.present |= bit;
        row.young |= bit;
        row.writable |= if writable { bit } else { 0 };
    }

    /// Maps a page, its young bit as it is.
    ///
    /// # Panics
    /// As [`PageTables::map`].
    pub fn map_old(&mut self, page: u64) {
        let (row, bit) = self.row_made(page);
        row.present |= bit;
    }

    /// Maps those pages of the 64 from `first` on whose bit in `pages` is set and that are not
    /// mapped yet, `young` or not; entries that are there stay as they are.
    ///
    /// # Panics
    /// As [`PageTables::map`].
    pub fn map_row(&mut self, first: u64, pages: u64, young: bool) {
        debug_assert_eq!(first % ROW, 0, "a whole row");
        if pages != 0 {
            let (row, _) = self.row_made(first);
            row.young |= if young { pages & !row.present } else { 0 };
            row.present |= pages;
        }
    }

    /// Drops the entry of a page. Returns whether there was one.
    #[inline]
    pub fn clear(&mut self, page: u64) -> bool {
        let Some((row, bit)) = self.row_mut(page) else { return false };
        let present = row.present & bit != 0;
        row.present &= !bit;
        row.young &= !bit;
        row.writable &= !bit;
        row.dirty &= !bit;
        present
    }

    /// The entry of a page is present and writable as before, old, and clean.
    pub fn age_and_clean(&mut self, page: u64) {
        if let Some((row, bit)) = self.row_mut(page) {
            row.young &= !bit;
            row.dirty &= !bit;
        }
    }

    /// The entry of a page is present as before, no longer writable, and clean.
    pub fn protect(&mut self, page: u64) {
        if let Some((row, bit)) = self.row_mut(page) {
            row.writable &= !bit;
            row.dirty &= !bit;
        }
    }

    /// Tables there could be, made or not: one more than the number of the last that was made.
    pub const fn tables(&self) -> u64 {
        self.top.len()
    }

    /// A table that has been made.
    pub fn table_mut(&mut self, table: u64) -> Option<&mut Table> {
        Some(&mut self.tables[self.top.slot(table)?])
    }

    /// Bytes of memory this takes.
    pub const fn bytes(&self) -> usize {
        self.top.bytes() + self.tables.capacity() * size_of::<Table>()
    }
}

const _: () = assert!(size_of::<Table>() * 8 == 4 * TABLE_ENTRIES as usize, "four bits an entry");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Pages of three tables, one of which is far from the others.
    fn page() -> impl Strategy<Value = u64> {
        prop_oneof![4 => 0..1024_u64, 1 => (1 << 30)..(1 << 30) + 600_u64]
    }

    #[derive(Clone, Debug)]
    enum Op {
        Map(u64, bool),
        MapOld(u64),
        MapRow(u64, u64, bool),
        Fill(u64, u64, bool),
        Touch(u64, bool),
        Sweep(u64, u64, bool),
        TakeYoung(u64),
        Clear(u64),
        Protect(u64),
        Young(u64, u64, u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (page(), any::<bool>()).prop_map(|(page, writable)| Op::Map(page, writable)),
            page().prop_map(Op::MapOld),
            (page(), any::<u64>(), any::<bool>()).prop_map(|(page, pages, young)| Op::MapRow(
                page / ROW * ROW,
                pages,
                young
            )),
            (page(), 0..300_u64, any::<bool>())
                .prop_map(|(page, n, writable)| Op::Fill(page, n, writable)),
            (page(), any::<bool>()).prop_map(|(page, store)| Op::Touch(page, store)),
            (page(), 0..=512_u64, any::<bool>())
                .prop_map(|(page, n, store)| Op::Sweep(page, n, store)),
            page().prop_map(Op::TakeYoung),
            page().prop_map(Op::Clear),
            page().prop_map(Op::Protect),
            (page(), 0..=512_u64, 0..=512_u64).prop_map(|(page, a, b)| Op::Young(
                page,
                a.min(b),
                a.max(b)
            )),
        ]
    }

    /// The same with a map of entries, one at a time.
    #[derive(Default)]
    struct Naive(BTreeMap<u64, Pte>);

    impl Naive {
        fn map(&mut self, page: u64, young: bool, writable: bool) {
            let pte = self.0.entry(page).or_default();
            pte.present = true;
            pte.young |= young;
            pte.writable |= writable;
        }

        fn touch(&mut self, page: u64, store: bool) -> bool {
            match self.0.get_mut(&page) {
                Some(pte) if pte.writable || !store => {
                    pte.young = true;
                    pte.dirty |= store;
                    true
                }
                _ => false,
            }
        }
    }

    proptest! {
        #[test]
        fn tables_do_what_single_entries_would_do(ops in prop::collection::vec(op(), 1..200)) {
            let (mut tables, mut naive) = (PageTables::default(), Naive::default());
            for op in ops {
                match op {
                    Op::Map(page, writable) => {
                        tables.map(page, writable);
                        naive.map(page, true, writable);
                    }
                    Op::MapOld(page) => {
                        tables.map_old(page);
                        naive.map(page, false, false);
                    }
                    Op::MapRow(first, pages, young) => {
                        tables.map_row(first, pages, young);
                        for page in bits(pages).map(|bit| first + bit) {
                            let there = naive.0.get(&page).is_some_and(|pte| pte.present);
                            naive.map(page, young && !there, false);
                        }
                    }
                    Op::Fill(page, pages, writable) => {
                        for page in page..page + pages {
                            tables.map(page, writable);
                            naive.map(page, true, writable);
                        }
                    }
                    Op::Touch(page, store) => {
                        prop_assert_eq!(tables.touch(page, store), naive.touch(page, store));
                    }
                    Op::Sweep(page, pages, store) => {
                        let pages = pages.min(TABLE_ENTRIES - page % TABLE_ENTRIES);
                        let range = page..page + pages;
                        let touched = range.take_while(|&page| naive.touch(page, store)).count();
                        prop_assert_eq!(tables.sweep(page, pages, store), touched as u64);
                    }
                    Op::TakeYoung(page) => {
                        let pte = naive.0.get_mut(&page);
                        let young = pte.is_some_and(|pte| std::mem::take(&mut pte.young));
                        prop_assert_eq!(tables.take_young(page), young);
                    }
                    Op::Clear(page) => {
                        prop_assert_eq!(tables.clear(page), naive.0.remove(&page).is_some());
                    }
                    Op::Protect(page) => {
                        tables.protect(page);
                        if let Some(pte) = naive.0.get_mut(&page) {
                            (pte.writable, pte.dirty) = (false, false);
                        }
                    }
                    Op::Young(page, from, to) => {
                        let first = page / TABLE_ENTRIES * TABLE_ENTRIES;
                        let found: Vec<u64> = match tables.table_mut(page / TABLE_ENTRIES) {
                            Some(table) => {
                                table.young(from..to).map(|entry| first + entry).collect()
                            }
                            None => Vec::new(),
                        };
                        let range = naive.0.range(first + from..first + to);
                        let young = range.filter(|(_, pte)| pte.young);
                        let young: Vec<u64> = young.map(|(page, _)| *page).collect();
                        prop_assert_eq!(found, young);
                    }
                }
            }
            for page in (0..1400).chain((1 << 30)..(1 << 30) + 1000) {
                prop_assert_eq!(tables.get(page), naive.0.get(&page).copied().unwrap_or_default());
            }
        }
    }

    #[test]
    fn a_sweep_ends_before_the_first_page_that_faults() {
        let mut tables = PageTables::default();
        (0..512).for_each(|page| tables.map(page, page < 100));
        tables.clear(300);
        assert_eq!((tables.sweep(0, 512, false), tables.sweep(5, 295, false)), (300, 295));
        assert_eq!((tables.sweep(300, 212, false), tables.sweep(301, 211, false)), (0, 211));
        assert_eq!(tables.sweep(64, 448, true), 36, "stores end with what is writable");
        assert!(tables.get(99).dirty && !tables.get(100).dirty && !tables.get(63).dirty);
        assert_eq!(tables.sweep(512, 512, false), 0, "no table");
    }
}
