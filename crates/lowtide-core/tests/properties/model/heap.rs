//! The heap of the naive model: what is in its pages and in its slots of swap, and how they get
//! from one to the other.

use super::{Key, Resident, Slot};
use crate::properties::World;
use lowtide_core::{LruType, MemcgId, Unmapped, Victim};

impl World {
    /// A load or store to a page of the heap. With bad luck the read from swap fails; with good
    /// luck the engine learns of a store at once.
    pub(crate) fn heap(&mut self, key: Key, store: bool, luck: bool) {
        if !self.model.resident.contains_key(&key) {
            let swapped = self.model.slots.get(&key).copied();
            let shadow = self.model.shadows.get(&key).copied();
            let Some(r) = self.bring_in(key, LruType::Anon, 0, true) else { return };
            let id = r.id;
            match swapped {
                Some(slot) if luck || !store => {
                    let Slot::Holds(content) = slot else { panic!("{key:?} is nowhere") };
                    r.content = content;
                    assert_eq!(
                        Some(&content),
                        self.model.latest.get(&key),
                        "an old version came back"
                    );
                }
                Some(_) => {
                    assert!(self.engine.swap_in_failed(id), "no reclaim can have isolated it yet");
                    self.model.resident.remove(&key);
                    self.model.shadows.extend(shadow.map(|s| (key, s)));
                    self.release(id, 0);
                    return;
                }
                None => {
                    (r.mapped, r.content) = (true, 0);
                    self.model.latest.insert(key, 0);
                }
            }
        }
        let task = self.task(true);
        let r = self.model.resident.get_mut(&key).unwrap();
        let id = r.id;
        let mapped = std::mem::replace(&mut r.mapped, true);
        if !mapped && self.engine.swap_fault(id, store, task) {
            self.model.give_up_slot(key);
        }
        let r = self.model.resident.get_mut(&key).unwrap();
        r.young = true;
        if store {
            self.stores += 1;
            (r.content, r.stored) = (self.stores, true);
            self.model.latest.insert(key, self.stores);
            if luck {
                self.dirty(id);
            }
        }
    }

    /// Begins to write a folio, if that can be: a page of the heap needs a slot.
    pub(crate) fn start_writeback(&mut self, key: Key) {
        let r = self.model.resident.get_mut(&key).unwrap();
        if key.0 == self.anon && !self.model.slots.contains_key(&key) {
            return;
        }
        let began = self.engine.start_writeback(r.id);
        assert_eq!(began, r.dirty && !r.writeback);
        if began {
            (r.dirty, r.writeback, r.writing) = (false, true, r.content);
            self.model.slots.entry(key).and_modify(|slot| *slot = Slot::Void);
        }
    }

    /// Ends the write of a folio, well or not.
    pub(crate) fn end_writeback(&mut self, key: Key, written: bool) {
        let task = self.task(false);
        let r = self.model.resident.get_mut(&key).unwrap();
        r.writeback = false;
        r.dirty |= !written;
        if written && let Some(slot) = self.model.slots.get_mut(&key) {
            *slot = Slot::Holds(r.writing);
        }
        self.engine.end_writeback(r.id, written, task);
    }

    /// Drops the translation of a page of the heap, and writes it if its slot does not hold what it
    /// holds.
    pub(crate) fn unmap_to_swap(&mut self, victim: &mut Victim, luck: u32) {
        let key = (victim.owner.space, victim.owner.page);
        let r = self.model.resident.get_mut(&key).unwrap();
        r.mapped = false;
        if std::mem::take(&mut r.stored) {
            self.dirty(victim.folio);
        }
        if !self.model.resident[&key].dirty {
            return;
        }
        self.start_writeback(key);
        victim.outcome = Unmapped::Writing;
        if self.settling || self.swap.synchronous {
            let written = self.settling || luck % 16 < 14;
            self.end_writeback(key, written);
        }
    }

    /// Frees a page of the heap lazily, if it is mapped and the engine agrees.
    pub(crate) fn free_lazily(&mut self, n: usize) {
        let mapped = |(key, r): &(&Key, &Resident)| key.0 == self.anon && r.mapped;
        let pages: Vec<_> = self.model.resident.iter().filter(mapped).map(|(k, _)| *k).collect();
        let Some(key) = pages.get(n % pages.len().max(1)) else { return };
        let task = self.task(true);
        let r = self.model.resident.get_mut(key).unwrap();
        if self.engine.free_lazily(r.id, task) {
            assert!(!r.lazy && !r.writeback && !r.unevictable, "it cannot be dropped");
            (r.lazy, r.dirty, r.stored, r.young) = (true, false, false, false);
            self.model.slots.remove(key);
        }
    }

    /// Drops a page that is swapped out.
    pub(crate) fn free_swap(&mut self, n: usize) {
        let gone = |k: &&Key| !self.model.resident.contains_key(k);
        let mut gone: Vec<_> = self.model.slots.keys().filter(gone).copied().collect();
        gone.sort_unstable();
        if let Some(key) = gone.get(n % gone.len().max(1)) {
            self.engine.free_swap(MemcgId::ROOT, 1);
            self.model.slots.remove(key);
            self.model.shadows.remove(key);
            self.model.latest.remove(key);
        }
    }
}
