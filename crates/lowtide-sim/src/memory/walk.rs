//! The aging walk: all tables of all address spaces that have a young bit, in the order of
//! addresses (`docs/kernel/reclaim.md` §2.5). Mappings of what may not be evicted, such as heaps
//! without swap, are left out, and so are those that were advised to be random.
//!
//! It is a value that can be stopped between tables, since on a machine with several CPUs others
//! run meanwhile.

use super::facts::table_key;
use super::{Memory, Vma, VmaId};
use lowtide_core::limits::TABLE_ENTRIES;
use lowtide_core::{AgeJob, Engine};

/// Where a walk has come to.
#[derive(Debug, Default)]
pub struct Walk {
    /// Mappings of the space being walked that are still to be visited, the next one last.
    vmas: Vec<VmaId>,
    table: u64,
}

/// What part of a walk did, which is what it costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Walked {
    /// Tables looked at or skipped for want of a young bit.
    pub tables: u64,
    /// Entries examined.
    pub entries: u64,
    /// Young entries among them.
    pub young: u64,
    /// The walk is over.
    pub done: bool,
}

impl Walk {
    /// Goes on until about `budget` entries have been examined (a skipped table counts as one), or
    /// a space has been walked, or the walk is over.
    pub fn step(
        &mut self,
        memory: &mut Memory,
        engine: &mut Engine,
        job: &mut AgeJob,
        budget: u64,
    ) -> Walked {
        let mut walked = Walked::default();
        while walked.tables + walked.entries < budget {
            let Some(&vma) = self.vmas.last() else {
                // The walk so far takes its time before a task learns that there is no other space.
                if walked != Walked::default() {
                    break;
                }
                let Some(space) = job.next_space(engine) else {
                    walked.done = true;
                    break;
                };
                self.vmas.extend(memory.spaces[space.0 as usize].iter().rev());
                self.table = 0;
                continue;
            };
            let Vma { object, young, recency, .. } = &memory.vmas[vma.0 as usize];
            if !recency || !job.visits(engine, memory.objects[object.0 as usize].lru_type) {
                self.vmas.pop();
                self.table = 0;
                continue;
            }
            // The mapping may have gone since the last step, and another may have its number.
            let left = young.get(self.table as usize..).unwrap_or_default();
            let skipped = left.iter().position(|&young| young);
            let Some(skipped) = skipped else {
                walked.tables += left.len() as u64;
                self.vmas.pop();
                self.table = 0;
                continue;
            };
            let table = self.table + skipped as u64;
            walked.tables += skipped as u64 + 1;
            let (entries, young) = walk_table(memory, engine, job, vma, table);
            walked.entries += entries;
            walked.young += young;
            self.table = table + 1;
        }
        walked
    }
}

/// Visits a table if the job wants it. Returns the entries examined and how many of them were
/// young.
fn walk_table(
    memory: &mut Memory,
    engine: &mut Engine,
    job: &mut AgeJob,
    id: VmaId,
    table: u64,
) -> (u64, u64) {
    let key = table_key(id, table);
    let vma = &mut memory.vmas[id.0 as usize];
    // The hardware sets the bit again with the next access through the table; no other code reads
    // it.
    vma.young[table as usize] = false;
    if !job.wants(engine, key) {
        return (0, 0);
    }
    let (entries, exec) = (vma.entries(table), vma.exec);
    let (Some(ptes), Some(cached)) =
        (vma.ptes.table_mut(table), memory.objects[vma.object.0 as usize].pages.table(table))
    else {
        return (0, 0);
    };
    let mut young = 0;
    for entry in ptes.young(0..TABLE_ENTRIES) {
        if let Some(frame) = cached[entry as usize].frame()
            && let Some(folio) = job.takes(engine, frame)
        {
            ptes.take_young(entry);
            job.young(engine, folio, exec);
            young += 1;
        }
    }
    job.table_done(engine, key, young, entries);
    (entries, young)
}
