//! Which slot of swap each page of a region has.
//!
//! A word belongs to the thread that has the page's translation busy or locked; the lock here only
//! protects the tables, which come with the first page of each that goes to swap. Cost: eight bytes
//! a page where pages went to swap, nothing elsewhere.

use crate::swap::Slot;
use lowtide_core::limits::TABLE_ENTRIES;
use std::sync::Mutex;

/// The slots of the pages of one table.
type Slab = Box<[Slot; TABLE_ENTRIES as usize]>;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<Vec<Option<Slab>>>);

impl Slots {
    /// Where in swap a page is.
    pub(crate) fn get(&self, page: u64) -> Slot {
        let slabs = crate::sync::lock(&self.0);
        let slab = slabs.get((page / TABLE_ENTRIES) as usize).and_then(Option::as_ref);
        slab.map_or(Slot::NONE, |slab| slab[(page % TABLE_ENTRIES) as usize])
    }

    /// A page goes to swap.
    pub(crate) fn set(&self, page: u64, slot: Slot) {
        let mut slabs = crate::sync::lock(&self.0);
        let table = (page / TABLE_ENTRIES) as usize;
        if slabs.len() <= table {
            slabs.resize_with(table + 1, || None);
        }
        let slab = slabs[table].get_or_insert_with(|| Box::new([Slot::NONE; 512]));
        let before = std::mem::replace(&mut slab[(page % TABLE_ENTRIES) as usize], slot);
        assert!(before.is_none(), "page {page} goes to swap, and is there already");
    }

    /// A page leaves swap. Returns where it was.
    pub(crate) fn take(&self, page: u64) -> Slot {
        let mut slabs = crate::sync::lock(&self.0);
        let slab = slabs.get_mut((page / TABLE_ENTRIES) as usize).and_then(Option::as_mut);
        slab.map_or(Slot::NONE, |slab| std::mem::take(&mut slab[(page % TABLE_ENTRIES) as usize]))
    }

    /// The pages that have one. Cost as for [`count`](Self::count).
    pub(super) fn pages(&self) -> Vec<u64> {
        let slabs = crate::sync::lock(&self.0);
        let of = |(table, slab): (usize, &Slab)| {
            let first = table as u64 * TABLE_ENTRIES;
            let used = (first..).zip(slab.iter()).filter(|(_, slot)| !slot.is_none());
            used.map(|(page, _)| page).collect::<Vec<_>>()
        };
        let used = slabs.iter().enumerate().filter_map(|(at, slab)| Some((at, slab.as_ref()?)));
        used.flat_map(of).collect()
    }

    /// Pages that have one. Cost: O(tables that were ever used).
    pub(crate) fn count(&self) -> u64 {
        let slabs = crate::sync::lock(&self.0);
        let words = slabs.iter().flatten().flat_map(|slab| slab.iter());
        words.filter(|slot| !slot.is_none()).count() as u64
    }
}
