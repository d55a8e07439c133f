//! Per-CPU batches of list operations (`docs/kernel/reclaim.md` §0, 5.1).
//!
//! A new folio does not enter its list at once: it waits, with up to thirty others, until the batch
//! is full or somebody scans the lruvec. *Where* it enters is decided then, so flags that were set
//! in between count. Activations and rotations wait in the same way. A driver that runs the engine
//! behind one lock uses one CPU's batches for everybody.

use crate::engine::Engine;
use crate::folio::Flags;
use crate::limits::LRU_BATCH;
use crate::lruvec::Locked;
use crate::policy::Lists;
use crate::units::FolioId;

/// The batches of one CPU.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    add: Vec<FolioId>,
    activate: Vec<FolioId>,
    rotate: Vec<FolioId>,
}

impl Batches {
    /// Each kind of batch with the flag of the folios in it.
    pub(crate) fn by_flag(&self) -> [(Flags, &[FolioId]); 3] {
        [
            (Flags::ADD_BATCH, &self.add),
            (Flags::ACT_BATCH, &self.activate),
            (Flags::ROT_BATCH, &self.rotate),
        ]
    }
}

impl Engine {
    /// A new folio waits to be added; a large one does not wait.
    pub(crate) fn batch_add(&mut self, cpu: u16, id: FolioId) {
        self.folios[id].flags.insert(Flags::ADD_BATCH);
        let large = self.folios[id].order > 0;
        let batch = &mut self.cpus[usize::from(cpu)].add;
        batch.push(id);
        if batch.len() >= LRU_BATCH || large {
            self.drain_adds(cpu);
        }
    }

    /// A folio on a list waits to be moved among the active.
    pub(crate) fn batch_activate(&mut self, cpu: u16, id: FolioId) {
        if self.folios[id].flags.contains(Flags::ACT_BATCH) {
            return;
        }
        self.folios[id].flags.insert(Flags::ACT_BATCH);
        let large = self.folios[id].order > 0;
        let batch = &mut self.cpus[usize::from(cpu)].activate;
        batch.push(id);
        if batch.len() >= LRU_BATCH || large {
            self.drain_activations(cpu);
        }
    }

    /// A folio on a list waits to be moved to the eviction end.
    pub(crate) fn batch_rotate(&mut self, cpu: u16, id: FolioId) {
        if self.folios[id].flags.contains(Flags::ROT_BATCH) {
            return;
        }
        self.folios[id].flags.insert(Flags::ROT_BATCH);
        let large = self.folios[id].order > 0;
        let batch = &mut self.cpus[usize::from(cpu)].rotate;
        batch.push(id);
        if batch.len() >= LRU_BATCH || large {
            self.drain_rotations(cpu);
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
        self.drain_adds(cpu);
        self.drain_rotations(cpu);
        self.drain_activations(cpu);
    }

    /// Acts on each folio of a batch, and gives the emptied batch back for reuse.
    fn each(
        &mut self,
        mut batch: Vec<FolioId>,
        act: impl Fn(&mut Locked<'_>, FolioId),
    ) -> Vec<FolioId> {
        for id in batch.drain(..) {
            let memcg = self.folios[id].memcg;
            act(&mut self.locked(memcg), id);
        }
        batch
    }

    fn drain_adds(&mut self, cpu: u16) {
        let batch = std::mem::take(&mut self.cpus[usize::from(cpu)].add);
        self.cpus[usize::from(cpu)].add = self.each(batch, |lru, id| {
            lru.folios[id].flags.remove(Flags::ADD_BATCH);
            lru.add(id, false);
        });
    }

    fn drain_activations(&mut self, cpu: u16) {
        let batch = std::mem::take(&mut self.cpus[usize::from(cpu)].activate);
        self.cpus[usize::from(cpu)].activate = self.each(batch, |lru, id| {
            let flags = &mut lru.folios[id].flags;
            flags.remove(Flags::ACT_BATCH);
            if flags.contains(Flags::LRU) && !flags.intersects(Flags::ACTIVE | Flags::MLOCKED) {
                lru.take_off_list(id);
                lru.folios[id].flags.insert(Flags::ACTIVE);
                lru.events.pgactivate += lru.folios[id].pages();
                lru.add(id, false);
            }
        });
    }

    fn drain_rotations(&mut self, cpu: u16) {
        let batch = std::mem::take(&mut self.cpus[usize::from(cpu)].rotate);
        self.cpus[usize::from(cpu)].rotate = self.each(batch, |lru, id| {
            lru.folios[id].flags.remove(Flags::ROT_BATCH);
            let flags = lru.folios[id].flags;
            if flags.contains(Flags::LRU) && !flags.contains(Flags::MLOCKED) {
                lru.take_off_list(id);
                lru.folios[id].flags.remove(Flags::ACTIVE);
                lru.events.pgrotated += lru.folios[id].pages();
                lru.add(id, true);
            }
        });
    }

    /// A folio goes away: it may wait in a batch no longer.
    pub(crate) fn forget_in_batches(&mut self, id: FolioId) {
        for cpu in &mut self.cpus {
            cpu.add.retain(|&x| x != id);
            cpu.activate.retain(|&x| x != id);
            cpu.rotate.retain(|&x| x != id);
        }
        self.folios[id].flags.remove(Flags::BATCHED);
    }
}

impl Locked<'_> {
    /// Puts a folio that is on no list where it belongs.
    pub(crate) fn add(&mut self, id: FolioId, tail: bool) {
        if self.folios[id].flags.contains(Flags::MLOCKED) {
            self.cull(id);
            return;
        }
        match self.policy.lists() {
            Lists::MultiGen => self.add_to_generation(id, tail),
            Lists::Classical => self.add_to_classical(id, tail),
        }
    }
}
