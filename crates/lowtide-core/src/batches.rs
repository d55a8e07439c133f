//! Per-CPU batches of list operations (`docs/kernel/reclaim.md` §0, 5.1).
//!
//! A new folio does not enter its list at once. It waits with up to thirty others until the batch
//! is full or a reclaimer scans the lruvec. Its place is decided only then, so flags that were set
//! in between count. Activations and rotations wait in the same way. A driver that runs the engine
//! behind one lock uses the batches of one CPU for all threads. With `tide` only rotations wait.

use crate::engine::Engine;
use crate::folio::{Flags, Pending};
use crate::lruvec::Locked;
use crate::units::FolioId;

impl Engine {
    /// A new folio waits to be added; a large one does not wait.
    pub(crate) fn batch_add(&mut self, cpu: u16, id: FolioId) {
        self.queue(cpu, id, Pending::Add);
    }

    /// A folio on a list waits to be moved among the active.
    pub(crate) fn batch_activate(&mut self, cpu: u16, id: FolioId) {
        self.queue(cpu, id, Pending::Activate);
    }

    /// A folio on a list waits to be moved to the eviction end.
    pub(crate) fn batch_rotate(&mut self, cpu: u16, id: FolioId) {
        self.queue(cpu, id, Pending::Rotate);
    }

    fn queue(&mut self, cpu: u16, id: FolioId, pending: Pending) {
        let folio = &mut self.folios[id];
        if folio.flags.contains(pending.flag()) {
            return;
        }
        folio.flags.insert(pending.flag());
        let large = folio.order() > 0;
        if self.cpus[usize::from(cpu)].push(pending, id) || large {
            self.carry_out(cpu, pending);
        }
    }

    /// Carries out everything that waits on any CPU.
    pub(crate) fn drain_all(&mut self) {
        for cpu in 0..self.cpus.len() {
            self.drain(cpu as u16);
        }
    }

    /// Carries out everything that waits on one CPU.
    pub(crate) fn drain(&mut self, cpu: u16) {
        self.carry_out(cpu, Pending::Add);
        self.carry_out(cpu, Pending::Rotate);
        self.carry_out(cpu, Pending::Activate);
    }

    fn carry_out(&mut self, cpu: u16, pending: Pending) {
        if self.cpus[usize::from(cpu)].is_empty(pending) {
            return;
        }
        let batch = self.cpus[usize::from(cpu)].take(pending);
        if !matches!(pending, Pending::Add) {
            self.folios.fetch_neighbours(&batch);
        }
        for &id in &batch {
            let folio = &mut self.folios[id];
            folio.flags.remove(pending.flag());
            let memcg = folio.memcg;
            let mut lru = self.locked(memcg);
            match pending {
                Pending::Add => lru.add(id, false),
                Pending::Activate => activate(&mut lru, id),
                Pending::Rotate => rotate(&mut lru, id),
            }
        }
        self.cpus[usize::from(cpu)].hand_back(pending, batch);
    }

    /// A folio goes away: it may wait in a batch no longer.
    pub(crate) fn forget_in_batches(&mut self, id: FolioId) {
        for batches in &mut self.cpus {
            batches.forget(id);
        }
        self.folios[id].flags.remove(Flags::BATCHED);
    }
}

fn activate(lru: &mut Locked<'_>, id: FolioId) {
    let flags = lru.folios[id].flags;
    if flags.contains(Flags::LRU) && !flags.intersects(Flags::ACTIVE | Flags::MLOCKED) {
        lru.take_off_list(id);
        lru.folios[id].flags.insert(Flags::ACTIVE);
        lru.events.pgactivate += lru.folios[id].pages();
        lru.add(id, false);
    }
}

fn rotate(lru: &mut Locked<'_>, id: FolioId) {
    let flags = lru.folios[id].flags;
    if flags.contains(Flags::LRU) && !flags.contains(Flags::MLOCKED) {
        lru.take_off_list(id);
        lru.folios[id].flags.remove(Flags::ACTIVE);
        lru.events.pgrotated += lru.folios[id].pages();
        lru.add(id, true);
    }
}
