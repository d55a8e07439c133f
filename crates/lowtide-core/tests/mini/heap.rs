//! The heap of the minimal machine, and its swap.
//!
//! ```text
//!   load, store ─► mapped? ─no─► resident? ─no─► has a slot? ─no─► charge ─► insert ─► map young     (minor fault)
//!                    │              │                └──yes──► charge ─► swap_in ─► read ─┐          (major fault)
//!                    │              └──yes (swap cache)───────────────────────────► swap_fault ─► map young
//!                    └──yes──► young; a store sets the dirty bit, and nobody notices
//! ```
//!
//! A translation is writable from the first fault on, also when a load brought the page in. So a page that is stored to later keeps the slot that
//! its load left it, and the engine learns of the store when the page is unmapped. Shared zero pages are not modelled: a load from a page that was never
//! stored to is a fault and leaves nothing behind.

use super::tables::Entry;
use super::{Disk, Machine, NO_FRAME, OutOfMemory};
use lowtide_core::{Flags, FolioId, LruType, MemcgId, Owner, Task, Unmapped, Victim};

/// A swap device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwapDevice {
    /// Slots.
    pub(crate) pages: u32,
    /// How writes end. One that ends them at once is synchronous, like compressed memory.
    pub(crate) disk: Disk,
}

impl Machine {
    /// One load or store to a page of the heap.
    ///
    /// # Errors
    /// [`OutOfMemory`] when the page is not in memory and no room can be made for it.
    pub(crate) fn heap(&mut self, page: u64, store: bool) -> Result<(), OutOfMemory> {
        self.pass_time(100);
        let page = self.tables.heap.start + page;
        let e = self.tables.entries[page as usize];
        if !e.mapped {
            self.engine.count_fault(MemcgId::ROOT, e.frame == NO_FRAME && e.slot.is_some());
            match e {
                Entry { frame: NO_FRAME, slot: Some(_), .. } => {
                    self.swap_in(page)?;
                    self.map_swapped(page, store);
                }
                Entry { frame: NO_FRAME, slot: None, .. } if store => self.first_touch(page)?,
                Entry { frame: NO_FRAME, .. } => return Ok(()),
                _ => self.map_swapped(page, store),
            }
        }
        self.tables.map(page);
        self.tables.entries[page as usize].dirty |= store;
        Ok(())
    }

    fn first_touch(&mut self, page: u64) -> Result<(), OutOfMemory> {
        let frame = self.frame(Task::FAULT)?;
        let owner = Owner { space: self.space, page };
        self.engine.insert(FolioId(frame), owner, 0, LruType::Anon, MemcgId::ROOT, None, Task::FAULT);
        self.tables.entries[page as usize].frame = frame;
        Ok(())
    }

    fn swap_in(&mut self, page: u64) -> Result<(), OutOfMemory> {
        self.publish_in_time();
        let frame = self.frame(Task::FAULT)?;
        let e = &mut self.tables.entries[page as usize];
        e.frame = frame;
        let shadow = e.shadow.take();
        let owner = Owner { space: self.space, page };
        self.engine.swap_in(FolioId(frame), owner, 0, MemcgId::ROOT, shadow, Task::FAULT);
        self.wait_for_read();
        Ok(())
    }

    fn map_swapped(&mut self, page: u64, store: bool) {
        if self.engine.swap_fault(self.tables.folio(page), store, Task::FAULT) {
            self.tables.free_slot(page);
        }
    }

    /// The task sleeps for a read, and while it does, whatever reclaim wrote to swap for its sake is written.
    pub(super) fn wait_for_read(&mut self) {
        self.engine.set_idle(self.space, false);
        if let Some(SwapDevice { disk: Disk::Late(latency), .. }) = self.setup.swap {
            self.pass_time(latency);
        }
    }

    /// Drops the translation of a victim, and writes it to its slot if it is of the heap and dirty.
    pub(super) fn unmap_victim(&mut self, victim: &mut Victim) {
        let page = victim.owner.page;
        let dirty = self.tables.entries[page as usize].dirty;
        self.tables.unmap(page);
        victim.outcome = Unmapped::Done;
        if !victim.to_swap {
            return;
        }
        let Self { tables, engine, .. } = self;
        let slot = &mut tables.entries[page as usize].slot;
        if slot.is_none() {
            *slot = Some(tables.free_slots.pop().expect("the engine counts slots"));
        }
        if dirty {
            engine.set_dirty(victim.folio);
        }
        if !engine.folio(victim.folio).expect("a victim exists").flags().contains(Flags::DIRTY) {
            return;
        }
        assert!(engine.start_writeback(victim.folio), "a victim is not being written");
        victim.outcome = Unmapped::Writing;
        match self.setup.swap.expect("victims go to swap only if there is any").disk {
            Disk::Instant => self.engine.end_writeback(victim.folio, true, Task::FAULT),
            Disk::Late(latency) => self.finish_after(latency, victim.folio),
        }
    }

    /// Whether engine and machine agree about swap, and nobody has two slots or shares one.
    pub(crate) fn validate(&mut self) {
        self.engine.validate().expect("the engine is sound");
        let total = self.setup.swap.map_or(0, |swap| swap.pages) as usize;
        let mut slots: Vec<_> = self.tables.entries.iter().filter_map(|e| e.slot).collect();
        assert_eq!(self.engine.free_swap_pages(), (total - slots.len()) as u64, "slots are lost");
        slots.extend(&self.tables.free_slots);
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), total, "a slot is used twice");
    }
}
