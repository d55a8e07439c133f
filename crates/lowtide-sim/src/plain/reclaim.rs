//! How a page comes in on the plain machine: charged, with as much reclaim as that takes, at once.

use super::{Plain, PlayError, Space, clock};
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
        self.publish_in_time();
        self.make_room(space, page, task)?;
        self.counts.reads += u64::from(read);
        let (frame, _) = self.pool.insert(at.object, page, read, MemcgId::ROOT, task);
        if self.config.always_mapped {
            self.pool.memory.map_old(at.vma, page);
        }
        if read {
            self.wait_for_read();
        }
        Ok(frame)
    }

    /// Counts a miss that a task waits for, and publishes group statistics if it is time.
    pub(super) fn publish_in_time(&mut self) {
        self.until_publish -= 1;
        if self.until_publish == 0 {
            self.publish();
        }
    }

    /// Charges a page.
    pub(super) fn make_room(
        &mut self,
        space: SpaceId,
        page: u64,
        task: Task,
    ) -> Result<(), PlayError> {
        if self.charge(task) {
            return Ok(());
        }
        let swap = self.config.swap.map(|_| self.pool.engine.free_swap_pages());
        Err(PlayError::OutOfMemory {
            space,
            page,
            max: self.config.pages,
            anon: self.stat().anon,
            swap,
        })
    }

    /// Charges a page, with reclaim only if there is no room: nearly always there is, from the
    /// last one.
    pub(super) fn charge(&mut self, task: Task) -> bool {
        self.pool.engine.charge_if_room(MemcgId::ROOT, 1, task).is_some()
            || self.charge_by_reclaim(task)
    }

    #[cold]
    fn charge_by_reclaim(&mut self, task: Task) -> bool {
        let mut charge = Charge::new(MemcgId::ROOT, 1);
        let mut reclaimed = None;
        loop {
            match charge.next(&mut self.pool.engine, task, reclaimed) {
                Next::Charged { .. } => return true,
                Next::Failed { .. } => return false,
                Next::Gone => unreachable!("the root is never removed"),
                Next::Reclaim(reclaim) => reclaimed = Some(self.reclaim(*reclaim)),
            }
        }
    }

    /// Runs an invocation of reclaim to its end. Returns the pages reclaimed.
    fn reclaim(&mut self, mut reclaim: Reclaim) -> u64 {
        self.counts.invocations += 1;
        let mut flush = false;
        loop {
            let now = self.now();
            let step = reclaim.step(&mut self.pool.engine, &mut self.pool.memory, now);
            // A flusher that was woken runs as soon as nothing is isolated any more.
            let isolated = matches!(step, Step::Unmap | Step::Freed | Step::WakeFlushers);
            if !isolated && std::mem::take(&mut flush) {
                self.flush();
            }
            if step != Step::Yield {
                self.pass_time(clock::RECLAIM_STEP_NS);
            }
            match step {
                Step::Walk => {
                    let (pool, mut walk) = (&mut self.pool, Walk::default());
                    while !walk
                        .step(&mut pool.memory, &mut pool.engine, reclaim.age_job(), u64::MAX)
                        .done
                    {}
                    if !self.config.switched_in_walk {
                        self.pool.engine.set_idle(self.process, true);
                    }
                }
                Step::Unmap => self.unmap_victims(&mut reclaim),
                Step::Freed => {
                    self.pool.take_freed(&reclaim);
                }
                Step::WakeFlushers => {
                    self.counts.flusher_wakes += 1;
                    flush = true;
                }
                Step::Throttle(_, nanos) => {
                    self.counts.naps += 1;
                    self.sleep(nanos);
                }
                // There is no other task to let in.
                Step::Yield => {}
                Step::Done => return reclaim.reclaimed(),
            }
        }
    }
}
