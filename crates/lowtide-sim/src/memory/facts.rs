//! The answers to the engine's questions about translations.

use super::{Memory, ObjectId, VmaId};
use lowtide_core::limits::{LOOK_AROUND_MAX, TABLE_ENTRIES};
use lowtide_core::{Facts, Folio, FolioId, FolioState, References, TableKey, Window};

/// The key of a table of a mapping.
pub(super) const fn table_key(vma: VmaId, table: u64) -> TableKey {
    TableKey((vma.0 as u64) << 40 | table)
}

/// The window of `docs/kernel/reclaim.md` §2.6: the table, or 64 entries of it around the hit,
/// clipped to its ends.
fn window(page: u64, pages: u64) -> (u64, u64) {
    let first = page / TABLE_ENTRIES * TABLE_ENTRIES;
    let end = (first + TABLE_ENTRIES).min(pages);
    if end - first <= LOOK_AROUND_MAX {
        return (first, end);
    }
    let from = page.saturating_sub(LOOK_AROUND_MAX / 2).clamp(first, end - LOOK_AROUND_MAX);
    (from, from + LOOK_AROUND_MAX)
}

impl Facts for Memory {
    fn state(&mut self, id: FolioId, folio: &Folio) -> FolioState {
        let owner = folio.owner();
        let mapped = self.is_mapped(ObjectId(owner.space.0), owner.page);
        FolioState { locked: self.is_locked(id), mapped }
    }

    /// Loads what is looked at next for each of these folios. These loads do not wait for each
    /// other, so the processor fetches all that its caches do not hold at once, and not one by one.
    fn gather<'a>(&mut self, folios: impl Iterator<Item = &'a Folio>) {
        let mut mapped = 0_u32;
        for owner in folios.map(Folio::owner) {
            if let Some(vma) = self.objects[owner.space.0 as usize].vmas.first() {
                mapped += u32::from(self.vmas[vma.0 as usize].ptes.is_present(owner.page));
            }
        }
        std::hint::black_box(mapped);
    }

    fn references(&mut self, _: FolioId, folio: &Folio) -> References {
        let owner = folio.owner();
        let mut found = References::default();
        self.hit = None;
        for &id in &self.objects[owner.space.0 as usize].vmas {
            let vma = &mut self.vmas[id.0 as usize];
            self.looked += u64::from(vma.ptes.is_present(owner.page));
            if vma.recency && vma.ptes.take_young(owner.page) {
                found.young += 1;
                found.exec |= vma.exec;
                self.hit.get_or_insert(id);
            }
        }
        found
    }

    fn look_around(
        &mut self,
        _: FolioId,
        folio: &Folio,
        visit: &mut dyn FnMut(FolioId) -> bool,
    ) -> Option<Window> {
        let (id, page) = (self.hit?, folio.owner().page);
        let vma = &mut self.vmas[id.0 as usize];
        let table = page / TABLE_ENTRIES;
        let (first, end) = window(page, vma.pages);
        let offset = table * TABLE_ENTRIES;
        let ptes = vma.ptes.table_mut(table)?;
        let cached = self.objects[vma.object.0 as usize].pages.table(table)?;
        for entry in ptes.young(first - offset..end - offset) {
            if offset + entry != page
                && let Some(frame) = cached[entry as usize].frame()
                && visit(frame)
            {
                ptes.take_young(entry);
            }
        }
        Some(Window { table: table_key(id, table), entries: end - first })
    }

    fn unmap_dirty(&mut self, _: FolioId, folio: &Folio) {
        if self.keeps_dirty_mapped {
            return;
        }
        let owner = folio.owner();
        self.unmap(ObjectId(owner.space.0), owner.page);
    }
}
