//! Which slot of swap each page of a region has.
//!
//! A word belongs to the thread that has the page's translation busy or locked; the lock here only
//! protects the tables.
//!
//! A table has the words of 512 pages: eight bytes a page, 4 KiB. The tenant pays for it, with a
//! frame that is charged and not used, as a kernel charges the page tables in which it notes the
//! same. It comes when the first of its pages is about to go to swap, and goes when the region
//! ends, or when pages are discarded and no other of it is in swap. A page that is on its way is
//! *expected*, so that the table is there when it arrives.

use crate::swap::Slot;
use lowtide_core::limits::TABLE_ENTRIES;
use std::ops::Range;
use std::sync::Mutex;

/// The slots of the pages of one table.
#[derive(Debug)]
struct Slab {
    slots: Box<[Slot; TABLE_ENTRIES as usize]>,
    /// Pages that have one.
    used: u64,
    /// Pages that may have one soon.
    expected: u64,
    /// The frame that is charged for it.
    frame: u32,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<Vec<Option<Slab>>>);

const fn place(page: u64) -> (usize, usize) {
    ((page / TABLE_ENTRIES) as usize, (page % TABLE_ENTRIES) as usize)
}

impl Slots {
    /// Where in swap a page is.
    pub(crate) fn get(&self, page: u64) -> Slot {
        let (table, at) = place(page);
        let slabs = crate::sync::lock(&self.0);
        slabs.get(table).and_then(Option::as_ref).map_or(Slot::NONE, |slab| slab.slots[at])
    }

    /// A page may go to swap soon. False, having done nothing, if its table is not there.
    pub(super) fn expect(&self, page: u64) -> bool {
        let mut slabs = crate::sync::lock(&self.0);
        let slab = slabs.get_mut(place(page).0).and_then(Option::as_mut);
        slab.map(|slab| slab.expected += 1).is_some()
    }

    /// The same, and there is a frame for its table. Returns the frame if the table is there.
    pub(super) fn expect_with(&self, page: u64, frame: u32) -> Option<u32> {
        let (table, _) = place(page);
        let mut slabs = crate::sync::lock(&self.0);
        if slabs.len() <= table {
            slabs.resize_with(table + 1, || None);
        }
        let unneeded = slabs[table].is_some().then_some(frame);
        let new = || Slab { slots: Box::new([Slot::NONE; 512]), used: 0, expected: 0, frame };
        slabs[table].get_or_insert_with(new).expected += 1;
        unneeded
    }

    /// A page that was expected stays where it is.
    pub(crate) fn stays(&self, page: u64) {
        self.with(page, |slab, _| slab.expected -= 1);
    }

    /// A page that was expected goes to swap.
    pub(crate) fn set(&self, page: u64, slot: Slot) {
        self.with(page, |slab, at| {
            let before = std::mem::replace(&mut slab.slots[at], slot);
            assert!(before.is_none(), "page {page} goes to swap, and is there already");
            slab.expected -= 1;
            slab.used += 1;
        });
    }

    /// A page is elsewhere in swap from now on.
    pub(crate) fn moved(&self, page: u64, to: Slot) {
        self.with(page, |slab, at| {
            let before = std::mem::replace(&mut slab.slots[at], to);
            assert!(!before.is_none(), "page {page} is moved, and not in swap");
        });
    }

    fn with(&self, page: u64, act: impl FnOnce(&mut Slab, usize)) {
        let (table, at) = place(page);
        let mut slabs = crate::sync::lock(&self.0);
        let slab = slabs.get_mut(table).and_then(Option::as_mut);
        act(slab.expect("the table of a page that was expected is there"), at);
    }

    /// A page leaves swap. Returns where it was.
    pub(crate) fn take(&self, page: u64) -> Slot {
        let (table, at) = place(page);
        let mut slabs = crate::sync::lock(&self.0);
        let Some(slab) = slabs.get_mut(table).and_then(Option::as_mut) else { return Slot::NONE };
        let slot = std::mem::take(&mut slab.slots[at]);
        slab.used -= u64::from(!slot.is_none());
        slot
    }

    /// Drops the tables of a range of pages that no page needs. Returns the frames that were
    /// charged for them. Cost: O(tables of the range that were ever used).
    pub(super) fn trim(&self, pages: Range<u64>) -> Vec<u32> {
        let mut slabs = crate::sync::lock(&self.0);
        let end = (pages.end.div_ceil(TABLE_ENTRIES) as usize).min(slabs.len());
        let first = place(pages.start).0.min(end);
        let unneeded = |slab: &mut Slab| slab.used == 0 && slab.expected == 0;
        let gone = slabs[first..end].iter_mut().filter_map(|slab| slab.take_if(unneeded));
        gone.map(|slab| slab.frame).collect()
    }

    /// The pages that have one. Cost: O(tables that were ever used).
    pub(super) fn pages(&self) -> Vec<u64> {
        let slabs = crate::sync::lock(&self.0);
        let of = |(table, slab): (usize, &Slab)| {
            let first = table as u64 * TABLE_ENTRIES;
            let used = (first..).zip(slab.slots.iter()).filter(|(_, slot)| !slot.is_none());
            used.map(|(page, _)| page).collect::<Vec<_>>()
        };
        let used = slabs.iter().enumerate().filter_map(|(at, slab)| Some((at, slab.as_ref()?)));
        used.flat_map(of).collect()
    }

    /// Pages that have one. Cost: O(tables that were ever used).
    pub(crate) fn count(&self) -> u64 {
        crate::sync::lock(&self.0).iter().flatten().map(|slab| slab.used).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_a_page_is_expected_in_is_not_trimmed() {
        let slots = Slots::default();
        assert!(!slots.expect(700));
        assert_eq!(slots.expect_with(700, 3), None);
        assert_eq!(slots.expect_with(701, 4), Some(4), "the table is there");
        assert!(slots.trim(0..10_000).is_empty());
        slots.stays(701);
        assert!(slots.trim(0..10_000).is_empty());
        slots.set(700, Slot::of(5));
        assert!(slots.trim(0..10_000).is_empty());
        assert!(slots.take(700) == Slot::of(5) && slots.count() == 0);
        assert!(slots.trim(0..512).is_empty() && slots.trim(1024..1025).is_empty());
        assert_eq!(slots.trim(1000..1001), [3]);
    }
}
