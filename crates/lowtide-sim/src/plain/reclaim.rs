//! How a page comes in on the plain machine: charged, with as much reclaim as that takes, at once.

use super::{Plain, PlayError, Space};
use crate::memory::Walk;
use lowtide_core::{Charge, FolioId, MemcgId, Next, Reclaim, Step, Task};
use lowtide_workload::SpaceId;

impl Plain {
    /// Makes a page resident.
    #[cold]
    pub(super) fn bring_in(
        &mut self,
        space: SpaceId,
        at: Space,
        page: u64,
        task: Task,
        read: bool,
    ) -> Result<FolioId, PlayError> {
        self.counts.misses += 1;
        self.until_publish -= 1;
        if self.until_publish == 0 {
            self.until_publish = self.config.publish_every.max(1);
            self.publish();
        }
        if !self.charge(task) {
            let (max, anon) = (self.config.pages, self.stat().anon);
            return Err(PlayError::OutOfMemory { space, page, max, anon });
        }
        self.counts.reads += u64::from(read && !at.anon);
        let frame = self.pool.insert(at.object, page, read, task);
        if self.config.always_mapped {
            self.pool.memory.map_old(at.vma, page);
        }
        Ok(frame)
    }

    pub(super) fn charge(&mut self, task: Task) -> bool {
        let mut charge = Charge::new(MemcgId::ROOT, 1);
        let mut reclaimed = None;
        loop {
            match charge.next(&mut self.pool.engine, task, reclaimed) {
                Next::Charged => return true,
                Next::Failed => return false,
                Next::Reclaim(reclaim) => reclaimed = Some(self.reclaim(*reclaim)),
            }
        }
    }

    /// Runs an invocation of reclaim to its end. Returns the pages reclaimed.
    fn reclaim(&mut self, mut reclaim: Reclaim) -> u64 {
        self.counts.invocations += 1;
        let mut flush = false;
        loop {
            let step = reclaim.step(&mut self.pool.engine, &mut self.pool.memory, self.counts.misses);
            // A flusher that was woken runs as soon as nothing is isolated any more.
            let isolated = matches!(step, Step::Unmap | Step::Freed | Step::WakeFlushers);
            if !isolated && std::mem::take(&mut flush) {
                self.flush();
            }
            match step {
                Step::Walk => {
                    let pool = &mut self.pool;
                    Walk::default().step(&mut pool.memory, &mut pool.engine, reclaim.age_job(), u64::MAX);
                }
                Step::Unmap => {
                    self.pool.unmap_victims(&mut reclaim, |_, _| false);
                }
                Step::Freed => {
                    self.pool.take_freed(&reclaim);
                }
                Step::WakeFlushers => {
                    self.counts.flusher_wakes += 1;
                    flush = true;
                }
                // Writes have ended already; a nap would wait for nothing.
                Step::Throttle(..) => self.counts.naps += 1,
                // There is nobody to let in.
                Step::Yield => {}
                Step::Done => return reclaim.reclaimed(),
            }
        }
    }
}
