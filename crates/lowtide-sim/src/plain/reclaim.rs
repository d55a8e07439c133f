//! How a page comes in on the plain machine: charged, with as much reclaim as that takes, at once.

use super::{Plain, PlayError, Space, clock, owner_of};
use crate::memory::{ObjectId, Walk};
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
        let came_back = self.pool.memory.cached(at.object, page).is_gone();
        let (frame, _) = self.pool.insert(at.object, page, read, MemcgId::ROOT, task);
        if self.config.always_mapped {
            self.pool.memory.map_old(at.vma, page);
        }
        match self.decompress(at, page, frame, came_back, read) {
            Some(nanos) => self.pass_time(nanos),
            None if read => {
                self.counts.reads += 1;
                self.wait_for_file();
            }
            None => {}
        }
        Ok(frame)
    }

    /// Fills a page's new frame, if the page was kept compressed and is not about to be
    /// overwritten. Returns the nanoseconds that takes.
    fn decompress(
        &mut self,
        at: Space,
        page: u64,
        frame: FolioId,
        came_back: bool,
        read: bool,
    ) -> Option<u64> {
        let (zcache, engine) = (self.zcache.as_mut()?, &mut self.pool.engine);
        zcache.placed(frame, came_back);
        if read {
            return zcache.take(engine, owner_of(at.object, page));
        }
        zcache.forget(engine, owner_of(at.object, page));
        None
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
                Next::Reclaim(reclaim) => {
                    let pages = match (self.reclaim(*reclaim), &mut self.zcache) {
                        (0, Some(zcache)) => zcache.shrink(&mut self.pool.engine),
                        (pages, _) => pages,
                    };
                    reclaimed = Some(pages);
                }
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
            if !isolated {
                self.store_compressed();
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
                    self.offer_freed(&reclaim);
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

    /// Offers freed pages of files to be compressed.
    fn offer_freed(&mut self, reclaim: &Reclaim) {
        let now = self.now();
        let Some(zcache) = &mut self.zcache else { return };
        for gone in reclaim.freed() {
            if !self.pool.is_anon(ObjectId(gone.owner.space.0)) {
                zcache.freed(gone.folio, gone.owner, now);
            }
        }
    }

    /// Compresses what was wanted of that.
    fn store_compressed(&mut self) {
        let (now, accesses) = (self.now(), self.counts.accesses);
        let Some(zcache) = &mut self.zcache else { return };
        let took = zcache.store(&mut self.pool.engine, now, accesses);
        self.pass_time(took);
    }
}
