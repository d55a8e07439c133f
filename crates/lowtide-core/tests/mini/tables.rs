//! The hardware part of the minimal machine: page tables, and what the engine may ask of them.
//!
//! One address space has three stretches of pages, each beginning with a table of its own:
//!
//! ```text
//!   0            file          heap           metadata
//!   | the file, mapped | the heap, mapped | never mapped |
//! ```
//!
//! *Young* is set by every mapped access, at the entry and at its table; *dirty* by every store. Of file pages dirty means that the
//! engine knows; of heap pages it is known to nobody until the translation is dropped.

use super::NO_FRAME;
use lowtide_core::limits::{LOOK_AROUND_MAX, TABLE_ENTRIES};
use lowtide_core::{Facts, Folio, FolioId, FolioState, LruType, References, Shadow, TableKey, Window};
use std::ops::Range;

/// A page: where it is, how it is mapped, and what is remembered of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(super) frame: u32,
    pub(super) shadow: Option<Shadow>,
    pub(super) mapped: bool,
    pub(super) young: bool,
    pub(super) dirty: bool,
    /// The page's slot in swap.
    pub(super) slot: Option<u32>,
}

/// The page tables of the one address space.
#[derive(Debug)]
pub(crate) struct Tables {
    file: Range<u64>,
    pub(super) heap: Range<u64>,
    pub(super) entries: Vec<Entry>,
    /// The accessed bit of the table itself, one for each 512 entries.
    pub(super) table_young: Vec<bool>,
    /// Slots of swap that no page has.
    pub(super) free_slots: Vec<u32>,
}

impl Tables {
    pub(super) fn new(file: u64, heap: u64, metadata: u64, slots: u32) -> Self {
        let empty =
            Entry { frame: NO_FRAME, shadow: None, mapped: false, young: false, dirty: false, slot: None };
        let first = file.next_multiple_of(TABLE_ENTRIES);
        let end = (first + heap).next_multiple_of(TABLE_ENTRIES);
        Self {
            file: 0..file,
            heap: first..first + heap,
            entries: vec![empty; (end + metadata) as usize],
            table_young: vec![false; (end / TABLE_ENTRIES) as usize],
            free_slots: (0..slots).rev().collect(),
        }
    }

    /// Index of a page of metadata.
    pub(super) fn metadata(&self, n: u64) -> u64 {
        self.table_young.len() as u64 * TABLE_ENTRIES + n
    }

    fn touch(&mut self, page: u64) {
        self.entries[page as usize].young = true;
        self.table_young[(page / TABLE_ENTRIES) as usize] = true;
    }

    pub(super) fn map(&mut self, page: u64) {
        self.entries[page as usize].mapped = true;
        self.touch(page);
    }

    pub(super) fn unmap(&mut self, page: u64) {
        let e = &mut self.entries[page as usize];
        (e.mapped, e.young, e.dirty) = (false, false, false);
    }

    pub(super) fn free_slot(&mut self, page: u64) {
        let slot = self.entries[page as usize].slot.take().expect("only a slot that is held is given up");
        self.free_slots.push(slot);
    }

    /// Whether the page is in memory.
    pub(crate) fn resident(&self, page: u64) -> bool {
        self.entries[page as usize].frame != NO_FRAME
    }

    /// The folio that holds a resident page.
    pub(crate) fn folio(&self, page: u64) -> FolioId {
        FolioId(self.entries[page as usize].frame)
    }

    /// The mapped pages of a table, and their type.
    pub(super) fn table(&self, table: u64) -> (Range<u64>, LruType) {
        let first = table * TABLE_ENTRIES;
        let (stretch, t) =
            if first < self.heap.start { (&self.file, LruType::File) } else { (&self.heap, LruType::Anon) };
        (first..(first + TABLE_ENTRIES).min(stretch.end), t)
    }

    /// The window of `reclaim.md` §2.6: the table, or 64 entries of it around the hit, clipped to its ends.
    fn window(&self, page: u64) -> Range<u64> {
        let Range { start, end } = self.table(page / TABLE_ENTRIES).0;
        let half = LOOK_AROUND_MAX / 2;
        if end - start <= LOOK_AROUND_MAX {
            start..end
        } else if page - start < half {
            start..start + LOOK_AROUND_MAX
        } else if end - page < half {
            end - LOOK_AROUND_MAX..end
        } else {
            page - half..page + half
        }
    }
}

impl Facts for Tables {
    fn state(&mut self, _: FolioId, folio: &Folio) -> FolioState {
        FolioState { locked: false, mapped: self.entries[folio.owner().page as usize].mapped }
    }

    fn references(&mut self, _: FolioId, folio: &Folio) -> References {
        let young = std::mem::take(&mut self.entries[folio.owner().page as usize].young);
        References { young: u32::from(young), exec: false }
    }

    fn look_around(
        &mut self,
        _: FolioId,
        folio: &Folio,
        visit: &mut dyn FnMut(FolioId) -> bool,
    ) -> Option<Window> {
        let page = folio.owner().page;
        let window = self.window(page);
        for e in window.clone().filter(|&p| p != page).map(|p| p as usize) {
            if self.entries[e].young && visit(FolioId(self.entries[e].frame)) {
                self.entries[e].young = false;
            }
        }
        Some(Window { table: TableKey(page / TABLE_ENTRIES), entries: window.end - window.start })
    }

    fn unmap_dirty(&mut self, _: FolioId, folio: &Folio) {
        self.unmap(folio.owner().page);
    }

    fn slot_given_up(&mut self, _: FolioId, folio: &Folio) {
        self.free_slot(folio.owner().page);
    }
}
