//! The folios that wait for a list operation, one set of batches for each CPU.

use super::Flags;
use crate::limits::LRU_BATCH;
use crate::units::FolioId;

/// The operation that a folio waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pending {
    /// To be added to a list.
    Add,
    /// To be moved among the active.
    Activate,
    /// To be moved to the eviction end.
    Rotate,
}

impl Pending {
    const ALL: [Self; 3] = [Self::Add, Self::Activate, Self::Rotate];

    /// The flag of the folios that wait for it.
    pub(crate) const fn flag(self) -> Flags {
        match self {
            Self::Add => Flags::ADD_BATCH,
            Self::Activate => Flags::ACT_BATCH,
            Self::Rotate => Flags::ROT_BATCH,
        }
    }
}

/// The batches of one CPU, in the order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Batches([Vec<FolioId>; 3]);

impl Batches {
    /// Adds a folio to a batch. Returns whether the batch is full.
    pub(crate) fn push(&mut self, pending: Pending, id: FolioId) -> bool {
        let batch = &mut self.0[pending as usize];
        batch.push(id);
        batch.len() >= LRU_BATCH
    }

    /// Whether no folio waits in a batch.
    pub(crate) fn is_empty(&self, pending: Pending) -> bool {
        self.0[pending as usize].is_empty()
    }

    /// Takes a batch out, to be carried out and handed back.
    pub(crate) fn take(&mut self, pending: Pending) -> Vec<FolioId> {
        std::mem::take(&mut self.0[pending as usize])
    }

    /// Hands a batch that was carried out back, so that its memory is used again.
    pub(crate) fn hand_back(&mut self, pending: Pending, mut batch: Vec<FolioId>) {
        batch.clear();
        self.0[pending as usize] = batch;
    }

    /// Drops a folio from all batches. Cost: O(batch size).
    pub(crate) fn forget(&mut self, id: FolioId) {
        for batch in &mut self.0 {
            batch.retain(|&x| x != id);
        }
    }

    /// Each batch with the flag of the folios in it.
    pub(crate) fn by_flag(&self) -> [(Flags, &[FolioId]); 3] {
        Pending::ALL.map(|pending| (pending.flag(), &*self.0[pending as usize]))
    }
}
