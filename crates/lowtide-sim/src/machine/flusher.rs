//! The flusher: the task that writes dirty pages that no task waits for.
//!
//! ```text
//!   woken by a writer over the background limit, by time,
//!   by reclaim that met nothing but dirty pages
//!        │
//!        ▼
//!   the engine decides: n pages, of this group, older than an age
//!        ▲      │
//!        │      └──► files in the order in which they became dirty, each from where the last
//!        │           turn ended; a file that is not done waits for its next turn
//!        └── nothing: sleep
//! ```
//!
//! A kernel has one such task for each pair of a device and a group, as long as there is work; here
//! one task does all their work in turn, which differs where several groups write at once. Source:
//! `docs/kernel/fault-and-writeback.md` B10.

use super::ctx::Ctx;
use super::files::{File, FileId};
use super::world::World;
use lowtide_core::limits::PUBLISH_INTERVAL_NS;
use lowtide_core::{FlushWork, MemcgId};

/// Nanoseconds that the flusher sleeps at most.
const LONGEST_SLEEP_NS: u64 = 5_000_000_000;
/// Nanoseconds until it looks again if what there is to write cannot be written yet.
const NOT_YET_NS: u64 = 10_000_000;

impl World {
    /// Reclaim met only dirty pages: everything dirty now is to be written. A kernel does not tell
    /// groups apart here.
    pub fn wake_flusher(&mut self) {
        self.counts.flusher_wakes += 1;
        if !self.pool.engine.ask_to_flush(MemcgId::ROOT).is_empty() {
            self.rouse_flusher();
        }
    }

    pub(super) fn rouse_flusher(&mut self) {
        if let Some(task) = self.writeback.flusher
            && std::mem::take(&mut self.writeback.asleep)
        {
            self.sched.wake(task);
        }
    }

    /// The next file, of those that a piece of work is about.
    fn next_file(&self, work: &FlushWork) -> Option<FileId> {
        let wanted = |file: &File| {
            !file.dirty.is_empty()
                && work.older_than.is_none_or(|then| file.dirtied_at <= then)
                && work.group.is_none_or(|group| self.pool.engine.is_within(file.owner, group))
        };
        let files = (0..).map(FileId).zip(&self.files).filter(|(_, file)| wanted(file));
        files.min_by_key(|(_, file)| file.queued_at).map(|(id, _)| id)
    }
}

impl Ctx {
    /// Publishes group statistics forever.
    pub async fn publisher(self) {
        loop {
            self.sleep(PUBLISH_INTERVAL_NS).await;
            let world = &mut *self.w();
            if world.clients == 0 {
                return;
            }
            world.published.publish(&mut world.pool.engine);
        }
    }

    /// The flusher's life.
    pub async fn flusher(self) {
        loop {
            self.settle().await;
            let work = {
                let world = &mut *self.w();
                if world.clients == 0 {
                    return;
                }
                let (now, device) = (world.sched.now, world.writeback.device);
                let work = world.pool.engine.flusher_work(device, now);
                world.pool.engine.set_writing(device, work.is_some());
                work
            };
            match work {
                // What is dirty and cannot be begun is being written at the moment.
                Some(work) => {
                    if self.write_some(&work).await == 0 && !self.wait_for_room().await {
                        self.rest(NOT_YET_NS).await;
                    }
                }
                None => {
                    // The interval begins when the work has ended.
                    let interval = self.w().pool.engine.dirty_timers().interval_ns;
                    let until = if interval == 0 { LONGEST_SLEEP_NS } else { interval };
                    self.rest(until.min(LONGEST_SLEEP_NS)).await;
                }
            }
        }
    }

    /// Sleeps until the flusher is woken, or for this time.
    async fn rest(&self, nanos: u64) {
        self.w().writeback.asleep = true;
        self.block(Some(nanos)).await;
        self.w().writeback.asleep = false;
    }

    /// Does a piece of work. Returns the pages that it has begun to write.
    async fn write_some(&self, work: &FlushWork) -> u64 {
        let mut written = 0;
        while written < work.pages {
            let next = self.w().next_file(work);
            let Some(file) = next else { break };
            let some = self.write_from_cursor(file, work.pages - written).await;
            written += some;
            if some == 0 {
                break;
            }
        }
        written
    }

    /// Writes about `most` dirty pages of a file, from where the last turn ended and round its end.
    /// Returns how many it was.
    async fn write_from_cursor(&self, file: FileId, most: u64) -> u64 {
        let mut written = 0;
        let mut wrapped = false;
        while written < most {
            let cursor = self.w().file(file).cursor;
            match self.write_run(file, cursor).await {
                Some((end, pages)) => {
                    written += pages;
                    self.w().file(file).cursor = end;
                }
                None if wrapped || cursor == 0 => break,
                None => {
                    wrapped = true;
                    self.w().file(file).cursor = 0;
                }
            }
        }
        let mut world = self.w();
        let now = world.sched.now;
        let entry = world.file(file);
        entry.queued_at = now;
        if written < most {
            // All that was dirty is being written; what is dirty now became so meanwhile.
            entry.dirtied_at = now;
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, MachineConfig};
    use crate::spec::{DeviceSpec, MachineSpec};
    use lowtide_core::{MemcgId, Policy};
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::atomic::AtomicBool;

    const MS: u64 = 1_000_000;

    /// Pages apart from each other, a millisecond for each: 2,000 of them take the flusher two
    /// seconds. They are more than the background limit, and fewer than a writer is throttled for.
    #[test]
    fn the_flusher_sleeps_for_its_interval_after_its_work_however_long_that_took() {
        let laptop = MachineSpec::load("laptop").unwrap();
        let device =
            DeviceSpec { queue_depth: 1, write_ns: MS, spread: 0.0, ..laptop.device.clone() };
        let spec = MachineSpec { device, ..laptop };
        let config =
            MachineConfig { spec, policy: Policy::MGLRU, max: Some(16_384 * 4096), seed: 1 };
        let mut m = Machine::new(&config).unwrap();
        let open = {
            let mut world = m.world();
            let file = world.add_file(16_384);
            world.open(file)
        };
        let seen = Rc::new(RefCell::new(Vec::new()));
        let looks = Rc::clone(&seen);
        m.client(async move |ctx| {
            // It looks at 5 s, and is done at 7.
            for (at, first) in [(100, 0), (7_500, 4_000)] {
                ctx.sleep(at * MS - ctx.now()).await;
                for page in (first..first + 4_000).step_by(2) {
                    ctx.write(open, page, 1).await?;
                }
            }
            for at in [11_500, 14_500] {
                ctx.sleep(at * MS - ctx.now()).await;
                let dirty = ctx.w().pool.engine.dirty_state(MemcgId::ROOT).dirty;
                looks.borrow_mut().push((at, dirty));
            }
            Ok(())
        });
        m.run(&AtomicBool::new(false), &mut || ()).unwrap();
        let [(11_500, asleep), (14_500, awake)] = seen.take()[..] else { panic!("two looks") };
        assert!(asleep >= 2_000 && awake < 1_000, "{asleep} pages, then {awake}");
    }
}
