//! Dirty, under writeback, clean: what the driver reports of a folio, and what is counted for it.
//!
//! A folio may be dirty and under writeback at once: it was stored to while it was being written.
//! Then it counts as both. Truncation undoes that a page is dirty, but not that it became dirty. A
//! failed write makes pages dirty *again*; that counts neither as dirtying nor as written, so a
//! device that fails looks slow to the estimators, as it is. Source: B2; end of writeback:
//! `docs/kernel/reclaim.md` §4.2.

use super::pause::MS;
use super::wb::{Device, Wb};
use crate::engine::Engine;
use crate::folio::{Flags, Folio};
use crate::units::{FolioId, Task};

impl Engine {
    /// The folio's contents are newer than its backing store. Returns whether it was clean.
    /// The writer then accounts for its pages with [`Engine::dirtied`]. A folio that was freed
    /// lazily is so no more.
    pub fn set_dirty(&mut self, id: FolioId) -> bool {
        self.withdraw_lazy_free(id);
        if self.folios[id].flags.contains(Flags::DIRTY) {
            return false;
        }
        self.count_as_dirty(id, true);
        true
    }

    /// The driver begins to write the folio: dirty becomes writeback. Returns false, changing
    /// nothing, if it is not dirty or is being written already. For anonymous memory `pswpout`
    /// counts its pages.
    ///
    /// Its contents are to be written as they are now, to its file, or to its slots in swap (which
    /// only a victim of reclaim has and needs).
    pub fn start_writeback(&mut self, id: FolioId) -> bool {
        let flags = self.folios[id].flags;
        if !flags.contains(Flags::DIRTY) || flags.contains(Flags::WRITEBACK) {
            return false;
        }
        self.count_as_clean(id);
        let f = &mut self.folios[id];
        f.flags.insert(Flags::WRITEBACK);
        let (f, pages) = (*f, f.pages());
        let group = &mut self.memcgs[f.memcg];
        group.file_writeback += pages;
        self.totals.writeback += pages;
        if f.is_anon() {
            group.events.pswpout += pages;
        }
        let now = self.dirty.now / MS;
        if let Some((wb, device)) = self.wb_of(&f) {
            if wb.writeback == 0 {
                wb.write_rate.restart(now, wb.written);
            }
            wb.writeback += pages;
            if device.writeback == 0 {
                device.write_rate.restart(now, device.written);
            }
            device.writeback += pages;
            device.begun += pages;
        }
        true
    }

    /// The write ended (`docs/kernel/reclaim.md` §4.2). A folio that reclaim was waiting for moves
    /// to the eviction end, unless it is dirty again or isolated at the moment. After a failed
    /// write (`written` false) the folio is dirty as before: it is not dropped and
    /// not forgotten.
    ///
    /// # Panics
    /// When the folio is not being written.
    pub fn end_writeback(&mut self, id: FolioId, written: bool, task: Task) {
        let f = self.folios[id];
        assert!(
            f.flags.contains(Flags::WRITEBACK),
            "the write of folio {id:?} ended but never began"
        );
        self.count_as_not_written(id);
        let (period, pages) = (self.dirty.period(), f.pages());
        if !written {
            if let Some((_, device)) = self.wb_of(&f) {
                device.begun -= pages;
            }
            if !f.flags.contains(Flags::DIRTY) {
                self.count_as_dirty(id, false);
            }
        } else if let Some((wb, device)) = self.wb_of(&f) {
            wb.written += pages;
            wb.completions.add(pages, period);
            device.written += pages;
            device.completions.add(pages, period);
            self.dirty.completions.add(pages, period);
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
            self.count_as_not_written(id);
        }
    }

    /// A clean folio is dirty from now on, because of a store, or (not `new`) because writing it
    /// failed.
    fn count_as_dirty(&mut self, id: FolioId, new: bool) {
        let f = &mut self.folios[id];
        f.flags.insert(Flags::DIRTY);
        let (f, pages) = (*f, f.pages());
        if f.is_anon() {
            return;
        }
        self.memcgs[f.memcg].file_dirty += pages;
        self.totals.file_dirty += pages;
        let slot = self.slot_of_space(f.owner().space);
        if let Some((wb, device)) = self.wb_of(&f) {
            if wb.reclaimable == 0 {
                device.dirty.extend(slot);
            }
            wb.reclaimable += pages;
            wb.dirtied += if new { pages } else { 0 };
            device.reclaimable += pages;
        }
    }

    /// A dirty folio is dirty no more.
    pub(crate) fn count_as_clean(&mut self, id: FolioId) {
        let f = &mut self.folios[id];
        f.flags.remove(Flags::DIRTY);
        let (f, pages) = (*f, f.pages());
        if f.is_anon() {
            return;
        }
        self.memcgs[f.memcg].file_dirty -= pages;
        self.totals.file_dirty -= pages;
        let slot = self.slot_of_space(f.owner().space);
        if let Some((wb, device)) = self.wb_of(&f) {
            wb.reclaimable -= pages;
            device.reclaimable -= pages;
            if wb.reclaimable == 0
                && let Some(slot) = slot
            {
                device.dirty.remove(&slot);
            }
        }
    }

    /// A folio under writeback is so no more.
    fn count_as_not_written(&mut self, id: FolioId) {
        let f = &mut self.folios[id];
        f.flags.remove(Flags::WRITEBACK);
        let (f, pages) = (*f, f.pages());
        self.memcgs[f.memcg].file_writeback -= pages;
        self.totals.writeback -= pages;
        if let Some((wb, device)) = self.wb_of(&f) {
            wb.writeback -= pages;
            device.writeback -= pages;
        }
    }

    /// Where a file folio is counted beside its group.
    #[inline]
    fn wb_of(&mut self, f: &Folio) -> Option<(&mut Wb, &mut Device)> {
        if f.is_anon() {
            return None;
        }
        let (device, slot) = self.place_of(f.owner().space)?;
        Some(self.wb_and_device(slot, device))
    }
}
