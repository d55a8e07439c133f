//! The naive model of memory that `properties.rs` compares the engine with: which folios there are,
//! and what was done to them.

mod heap;

use lowtide_core::limits::TABLE_ENTRIES;
use lowtide_core::{
    Facts, Folio, FolioId, FolioState, Owner, References, Shadow, SpaceId, TableKey, Window,
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What the model knows of a folio. It is found by its space and first page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    pub(crate) id: FolioId,
    pub(crate) order: u8,
    pub(crate) mapped: bool,
    pub(crate) young: bool,
    pub(crate) dirty: bool,
    pub(crate) writeback: bool,
    pub(crate) locked: bool,
    pub(crate) unevictable: bool,
    /// Heap: the translation knows of a store that the engine does not.
    pub(crate) stored: bool,
    /// Heap: freed lazily, and the engine knows of no store since.
    pub(crate) lazy: bool,
    /// Heap: what is in memory.
    pub(crate) content: u64,
    /// Heap: what is being written.
    pub(crate) writing: u64,
}

/// What a slot of swap holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    /// Nothing that may be read.
    Void,
    /// Contents of a page.
    Holds(u64),
}

pub(crate) type Key = (SpaceId, u64);

/// The translations, as the engine may ask about them.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) resident: BTreeMap<Key, Resident>,
    pub(crate) shadows: HashMap<Key, Shadow>,
    /// The slots of pages of the heap.
    pub(crate) slots: HashMap<Key, Slot>,
    /// What was stored last to each page of the heap.
    pub(crate) latest: HashMap<Key, u64>,
    /// Folios whose young bit the engine took when it last judged them.
    pub(crate) harvested: HashSet<FolioId>,
}

impl Model {
    /// The folio that a page is in.
    pub(crate) fn at(&self, (space, page): Key) -> Option<Key> {
        let (&key, r) = self.resident.range((space, 0)..=(space, page)).next_back()?;
        (page < key.1 + (1 << r.order)).then_some(key)
    }

    /// A page's slot is free, and what is in memory is nowhere else.
    pub(crate) fn give_up_slot(&mut self, key: Key) {
        self.slots.remove(&key).expect("only a slot that is held is given up");
        let r = self.resident.get_mut(&key).expect("the page is in memory");
        assert!(r.mapped && !r.writeback, "the slot is still needed");
        r.dirty = true;
    }

    pub(crate) fn of(&mut self, folio: &Folio) -> &mut Resident {
        let owner = folio.owner();
        self.resident
            .get_mut(&(owner.space, owner.page))
            .expect("the engine asks about folios that exist")
    }
}

impl Facts for Model {
    fn state(&mut self, id: FolioId, folio: &Folio) -> FolioState {
        // A judgement begins: what was harvested before it belongs to an earlier one.
        self.harvested.remove(&id);
        let r = self.of(folio);
        FolioState { locked: r.locked, mapped: r.mapped }
    }

    fn references(&mut self, id: FolioId, folio: &Folio) -> References {
        let young = std::mem::take(&mut self.of(folio).young);
        if young {
            self.harvested.insert(id);
        }
        // Every third folio is a program text.
        References { young: u32::from(young), exec: id.0.is_multiple_of(3) }
    }

    fn look_around(
        &mut self,
        _: FolioId,
        folio: &Folio,
        visit: &mut dyn FnMut(FolioId) -> bool,
    ) -> Option<Window> {
        let Owner { space, page } = folio.owner();
        let table = page / TABLE_ENTRIES;
        let first = page.saturating_sub(32).max(table * TABLE_ENTRIES);
        let end = (first + 64).min((table + 1) * TABLE_ENTRIES);
        for (key, r) in self.resident.range_mut((space, first)..(space, end)) {
            // Any frame of a large folio must do.
            let frame = FolioId(r.id.0 + (1 << r.order) - 1);
            if key.1 != page && r.young && visit(frame) {
                r.young = false;
            }
        }
        Some(Window { table: TableKey(table), entries: end - first })
    }

    fn unmap_dirty(&mut self, _: FolioId, folio: &Folio) {
        let r = self.of(folio);
        (r.mapped, r.young) = (false, false);
    }

    fn slot_given_up(&mut self, _: FolioId, folio: &Folio) {
        self.give_up_slot((folio.owner().space, folio.owner().page));
    }
}
