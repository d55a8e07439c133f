//! Dirty, under writeback, clean: what the driver says of a folio, and what is counted for it.
//!
//! A folio may be dirty and under writeback at once: it was stored to while it was being written. Then it counts as both. Truncation takes back that a page is dirty, but
//! not that it became dirty; a failed write makes pages dirty *again*, which is no dirtying and no page
//! written, so a device that fails looks slow to the estimators, as it is. Source: B2; end of writeback: `reclaim.md` §4.2.

use super::wb::Wb;
use crate::engine::Engine;
use crate::folio::{Flags, Folio};
use crate::units::{FolioId, LruType, Task};

impl Engine {
    /// The folio's contents are newer than its backing store. Returns whether that is news. The writer answers for its pages with
    /// [`Engine::dirtied`].
    pub fn set_dirty(&mut self, id: FolioId) -> bool {
        let Some(f) = self.make_dirty(id) else { return false };
        self.count_at_device(&f, |wb, pages| wb.dirtied += pages);
        true
    }

    /// Marks a folio dirty and counts it. Returns it if it was not.
    fn make_dirty(&mut self, id: FolioId) -> Option<Folio> {
        let f = &mut self.folios[id];
        if f.flags.contains(Flags::DIRTY) {
            return None;
        }
        f.flags.insert(Flags::DIRTY);
        let f = *f;
        if f.lru_type() == LruType::File {
            self.memcgs[f.memcg].file_dirty += f.pages();
            self.totals.file_dirty += f.pages();
            self.count_at_device(&f, |wb, pages| wb.reclaimable += pages);
        }
        Some(f)
    }

    /// The driver begins to write the folio: dirty becomes writeback. Returns false, changing nothing, if it is not
    /// dirty or is being written already. For anonymous memory `pswpout` counts its pages.
    ///
    /// Its contents are to be written as they are now, to its file, or to its slots in swap (which only a victim of reclaim has and needs).
    pub fn start_writeback(&mut self, id: FolioId) -> bool {
        let flags = self.folios[id].flags;
        if !flags.contains(Flags::DIRTY) || flags.contains(Flags::WRITEBACK) {
            return false;
        }
        self.count_as_clean(id);
        let f = &mut self.folios[id];
        f.flags.remove(Flags::DIRTY);
        f.flags.insert(Flags::WRITEBACK);
        let f = *f;
        let group = &mut self.memcgs[f.memcg];
        group.file_writeback += f.pages();
        self.totals.writeback += f.pages();
        if f.lru_type() == LruType::Anon {
            group.events.pswpout += f.pages();
        }
        self.count_at_device(&f, |wb, pages| wb.writeback += pages);
        if let Some((device, _)) = self.place_of(f.owner().space) {
            self.dirty.device(device).started += f.pages();
        }
        true
    }

    /// The write ended (`reclaim.md` §4.2). A folio that reclaim was waiting for moves to the eviction end, unless it is dirty
    /// again or isolated at the moment. After a failed write (`written` false) the folio is dirty as before: it is not dropped and
    /// not forgotten.
    ///
    /// # Panics
    /// When the folio is not being written.
    pub fn end_writeback(&mut self, id: FolioId, written: bool, task: Task) {
        let f = self.folios[id];
        assert!(f.flags.contains(Flags::WRITEBACK), "the write of folio {id:?} ended but never began");
        self.count_as_unwritten(id);
        self.folios[id].flags.remove(Flags::WRITEBACK);
        if written {
            let period = self.dirty.period();
            self.count_at_device(&f, |wb, pages| {
                wb.written += pages;
                wb.completions.add(pages, period);
            });
            if self.place_of(f.owner().space).is_some() {
                self.dirty.completions.add(f.pages(), period);
            }
        } else {
            self.make_dirty(id);
        }
        let flags = &mut self.folios[id].flags;
        if flags.contains(Flags::RECLAIM) {
            flags.remove(Flags::RECLAIM);
            if flags.contains(Flags::LRU) && !flags.intersects(Flags::DIRTY | Flags::MLOCKED) {
                self.batch_rotate(task.cpu, id);
            }
        }
    }

    /// A folio goes: it is neither dirty nor under writeback any more.
    pub(crate) fn count_as_gone(&mut self, id: FolioId) {
        let flags = self.folios[id].flags;
        if flags.contains(Flags::DIRTY) {
            self.count_as_clean(id);
        }
        if flags.contains(Flags::WRITEBACK) {
            self.count_as_unwritten(id);
        }
    }

    /// A dirty folio is dirty no more.
    fn count_as_clean(&mut self, id: FolioId) {
        let f = self.folios[id];
        if f.lru_type() == LruType::File {
            self.memcgs[f.memcg].file_dirty -= f.pages();
            self.totals.file_dirty -= f.pages();
            self.count_at_device(&f, |wb, pages| wb.reclaimable = wb.reclaimable.saturating_sub(pages));
        }
    }

    /// A folio under writeback is so no more.
    fn count_as_unwritten(&mut self, id: FolioId) {
        let f = self.folios[id];
        self.memcgs[f.memcg].file_writeback -= f.pages();
        self.totals.writeback -= f.pages();
        self.count_at_device(&f, |wb, pages| wb.writeback = wb.writeback.saturating_sub(pages));
    }

    /// Counts something at the device of a file folio, if it has one.
    #[inline]
    fn count_at_device(&mut self, f: &Folio, count: impl FnOnce(&mut Wb, u64)) {
        if f.lru_type() == LruType::File
            && let Some((device, slot)) = self.place_of(f.owner().space)
        {
            count(self.wb_mut(slot, device), f.pages());
        }
    }
}
