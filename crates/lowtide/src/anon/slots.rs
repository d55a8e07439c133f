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
//!
//! A region may be sparse, and far larger than memory: the *directory* of its tables has those that
//! are there and no others. The tenant pays for it as well, with a frame for each [`LISTED`]
//! tables: what a region has of it without a frame is less than a page.

use crate::swap::Slot;
use lowtide_core::limits::TABLE_ENTRIES;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

/// Tables for which the directory takes at most a page of the smallest size that can be stored:
/// some 100 bytes each, as nodes of the tree are at least half full.
const LISTED: usize = 32;

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
pub(crate) struct Slots(Mutex<Directory>);

/// The tables of a region that are there, by number.
#[derive(Debug, Default)]
struct Directory {
    slabs: BTreeMap<u64, Slab>,
    /// The frames that are charged for the directory itself.
    frames: Vec<u32>,
}

impl Directory {
    /// Frames that are to be charged for a directory of some tables.
    const fn frames_for(tables: usize) -> usize {
        tables / LISTED
    }
}

const fn place(page: u64) -> (u64, usize) {
    (page / TABLE_ENTRIES, (page % TABLE_ENTRIES) as usize)
}

impl Slots {
    /// Where in swap a page is.
    pub(crate) fn get(&self, page: u64) -> Slot {
        let (table, at) = place(page);
        let directory = lowtide_pin::sync::lock(&self.0);
        directory.slabs.get(&table).map_or(Slot::NONE, |slab| slab.slots[at])
    }

    /// The same of pages that follow each other.
    pub(super) fn run(&self, pages: Range<u64>) -> Vec<Slot> {
        let directory = lowtide_pin::sync::lock(&self.0);
        let mut table = (u64::MAX, None);
        let slot = |page| {
            let (number, at) = place(page);
            if table.0 != number {
                table = (number, directory.slabs.get(&number));
            }
            table.1.map_or(Slot::NONE, |slab: &Slab| slab.slots[at])
        };
        pages.map(slot).collect()
    }

    /// A page may go to swap soon. If its table is not there, nothing was done, and that many
    /// frames are needed for it.
    pub(super) fn expect(&self, page: u64) -> Result<(), usize> {
        let mut directory = lowtide_pin::sync::lock(&self.0);
        match directory.slabs.get_mut(&place(page).0) {
            Some(slab) => {
                slab.expected += 1;
                Ok(())
            }
            None => {
                let needed = Directory::frames_for(directory.slabs.len() + 1);
                Err(1 + needed.saturating_sub(directory.frames.len()))
            }
        }
    }

    /// The same, and there are frames for its table. Takes those that are needed; nothing is done
    /// if they are too few. Returns whether the page is expected.
    pub(super) fn expect_with(&self, page: u64, frames: &mut Vec<u32>) -> bool {
        let mut directory = lowtide_pin::sync::lock(&self.0);
        let Directory { slabs, frames: listed } = &mut *directory;
        if let Some(slab) = slabs.get_mut(&place(page).0) {
            slab.expected += 1;
            return true;
        }
        let lacking = Directory::frames_for(slabs.len() + 1).saturating_sub(listed.len());
        if frames.len() <= lacking {
            return false;
        }
        listed.extend(frames.drain(..lacking));
        let frame = frames.remove(0);
        let slots = Box::new([Slot::NONE; TABLE_ENTRIES as usize]);
        slabs.insert(place(page).0, Slab { slots, used: 0, expected: 1, frame });
        true
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
        let mut directory = lowtide_pin::sync::lock(&self.0);
        let slab = directory.slabs.get_mut(&table);
        act(slab.expect("the table of a page that was expected is there"), at);
    }

    /// A page leaves swap. Returns where it was.
    pub(crate) fn take(&self, page: u64) -> Slot {
        let (table, at) = place(page);
        let mut directory = lowtide_pin::sync::lock(&self.0);
        let Some(slab) = directory.slabs.get_mut(&table) else { return Slot::NONE };
        let slot = std::mem::take(&mut slab.slots[at]);
        slab.used -= u64::from(!slot.is_none());
        slot
    }

    /// Drops the tables of a range of pages that no page needs. Returns the frames that were
    /// charged for them. Cost: O(tables of the range).
    pub(super) fn trim(&self, pages: Range<u64>) -> Vec<u32> {
        let mut directory = lowtide_pin::sync::lock(&self.0);
        let Directory { slabs, frames: listed } = &mut *directory;
        let tables = place(pages.start).0..pages.end.div_ceil(TABLE_ENTRIES);
        if tables.is_empty() {
            return Vec::new();
        }
        let unneeded = |slab: &Slab| slab.used == 0 && slab.expected == 0;
        let gone: Vec<_> = slabs.range(tables).filter(|(_, slab)| unneeded(slab)).collect();
        let gone: Vec<_> = gone.into_iter().map(|(table, _)| *table).collect();
        let mut frames: Vec<_> =
            gone.into_iter().filter_map(|table| Some(slabs.remove(&table)?.frame)).collect();
        frames.extend(listed.split_off(Directory::frames_for(slabs.len()).min(listed.len())));
        frames
    }

    /// The pages that have one. Cost: O(tables).
    pub(super) fn pages(&self) -> Vec<u64> {
        let directory = lowtide_pin::sync::lock(&self.0);
        let of = |(table, slab): (&u64, &Slab)| {
            let used = (table * TABLE_ENTRIES..).zip(slab.slots.iter());
            used.filter(|(_, slot)| !slot.is_none()).map(|(page, _)| page).collect::<Vec<_>>()
        };
        directory.slabs.iter().flat_map(of).collect()
    }

    /// Pages that have one. Cost: O(tables).
    pub(crate) fn count(&self) -> u64 {
        lowtide_pin::sync::lock(&self.0).slabs.values().map(|slab| slab.used).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_a_page_is_expected_in_is_not_trimmed() {
        let slots = Slots::default();
        assert_eq!(slots.expect(700), Err(1));
        assert!(!slots.expect_with(700, &mut Vec::new()));
        assert!(slots.expect_with(700, &mut vec![3]));
        let mut unneeded = vec![4, 5];
        assert!(slots.expect_with(701, &mut unneeded) && unneeded == [4, 5], "the table is there");
        assert!(slots.trim(0..10_000).is_empty());
        slots.stays(701);
        assert!(slots.trim(0..10_000).is_empty());
        slots.set(700, Slot::of(5));
        assert!(slots.trim(0..10_000).is_empty());
        assert!(slots.take(700) == Slot::of(5) && slots.count() == 0);
        assert!(slots.trim(0..512).is_empty() && slots.trim(1024..1025).is_empty());
        assert_eq!(slots.trim(1000..1001), [3]);
    }

    #[test]
    fn the_directory_of_a_sparse_region_is_paid_for_and_has_what_is_there() {
        let slots = Slots::default();
        let far = |at: usize| (at as u64) << 30;
        let count = 5 * LISTED;
        for at in 0..count {
            let needed = slots.expect(far(at)).unwrap_err();
            assert_eq!(needed, if (at + 1).is_multiple_of(LISTED) { 2 } else { 1 });
            let mut frames = vec![0; needed];
            assert!(needed == 1 || !slots.expect_with(far(at), &mut vec![0]), "one is too few");
            assert!(slots.expect_with(far(at), &mut frames) && frames.is_empty());
            slots.set(far(at), Slot::of(1 + at as u64));
        }
        assert!(slots.pages().into_iter().eq((0..count).map(far)));
        (0..count - 1).for_each(|at| assert!(slots.take(far(at)) == Slot::of(1 + at as u64)));
        assert_eq!(slots.trim(0..u64::MAX).len(), count - 1 + 5, "one table stays");
        assert_eq!(slots.pages(), [far(count - 1)]);
    }
}
