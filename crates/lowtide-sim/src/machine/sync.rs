//! Sync: a file is on the medium, or the caller gets an error because it may not be.
//!
//! ```text
//!   write what is dirty ──► wait for every write that has begun ──► flush the device's cache
//!                                                                              │
//!                                           has anything failed since the last time?
//! ```
//!
//! A write that has ended is in the device's cache, which loses it with the power. A flush makes
//! everything durable that had ended when the flush was submitted. Pages whose write failed are
//! dirty again, so the next sync tries again; a flush that failed is a failure of the file whose
//! sync requested it. Source: `docs/kernel/fault-and-writeback.md` B11.

use super::ctx::Ctx;
use super::ended::MachineError;
use super::files::{FileId, OpenId};

impl Ctx {
    /// Makes a file durable as it is now.
    ///
    /// # Errors
    /// [`MachineError::WriteBack`] if a write of the file, or a flush for it, has failed since it
    /// was last synced through `open`, or since it was opened: what had been stored may or may not
    /// be durable.
    pub async fn sync(&self, open: OpenId) -> Result<(), MachineError> {
        let (file, waiting, deferred) = {
            let mut world = self.w();
            let file = world.opens[open.0 as usize].file;
            let entry = world.file(file);
            (file, !entry.redirtied.is_empty(), entry.deferred)
        };
        self.write_all(file).await;
        self.wait_written(file).await;
        // What was being written, and had become dirty again, could not be begun before that write
        // had ended.
        if waiting || self.w().file(file).deferred > deferred {
            self.write_all(file).await;
            self.wait_written(file).await;
        }
        self.flush_device(file).await;
        if self.w().check_errors(open) {
            return Err(MachineError::WriteBack { at_ns: self.now() });
        }
        Ok(())
    }

    /// Begins to write every dirty page of a file, once.
    async fn write_all(&self, file: FileId) {
        let mut at = 0;
        while let Some((end, _)) = self.write_run(file, at).await {
            at = end;
        }
    }

    /// Waits for the end of every write to a file that has begun.
    async fn wait_written(&self, file: FileId) {
        let last = self.w().requests.last_write();
        loop {
            self.settle().await;
            {
                let mut world = self.w();
                let id = self.id;
                let entry = world.file(file);
                if entry.writing.first().is_none_or(|&first| first > last) {
                    break;
                }
                entry.sync_waiters.push(id);
            }
            self.block(None).await;
        }
    }

    /// Waits until everything that the device was given to write, and has written, is on the
    /// medium.
    async fn flush_device(&self, file: FileId) {
        self.settle().await;
        self.w().submit_flush(file, self.id);
        self.block(None).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, MachineConfig, World};
    use crate::spec::MachineSpec;
    use lowtide_core::Policy;
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::atomic::AtomicBool;

    /// What the syncs of a program that stores a page and syncs, again and again, return: through
    /// two descriptors in turn, with the device as `before` makes it before each round.
    fn syncs(rounds: usize, before: impl Fn(&mut World, usize) + 'static) -> Vec<[bool; 2]> {
        let spec = MachineSpec { cpus: 1, ..MachineSpec::load("ramdisk").unwrap() };
        let config = MachineConfig { spec, policy: Policy::MGLRU, max: Some(64 * 4096), seed: 1 };
        let mut m = Machine::new(&config).unwrap();
        let opens = {
            let mut world = m.world();
            let file = world.add_file(8);
            [world.open(file), world.open(file)]
        };
        let results = Rc::new(RefCell::new(Vec::new()));
        let reported = Rc::clone(&results);
        m.client(async move |ctx| {
            for round in 0..rounds {
                before(&mut ctx.w(), round);
                ctx.write(opens[0], 3, 1).await?;
                let [a, b] = [ctx.sync(opens[0]).await, ctx.sync(opens[1]).await];
                reported.borrow_mut().push([a.is_ok(), b.is_ok()]);
            }
            Ok(())
        });
        m.run(&AtomicBool::new(false), &mut || ()).unwrap();
        results.take()
    }

    #[test]
    fn a_failed_write_is_reported_to_each_opener_once_and_written_again() {
        let reported = syncs(3, |world, round| world.requests.fails.writes = u64::from(round == 1));
        // In the second round both syncs write, and both fail.
        assert_eq!(reported, [[true; 2], [false; 2], [false, true]]);
    }

    #[test]
    fn a_failed_flush_is_told_like_a_failed_write() {
        let reported =
            syncs(3, |world, round| world.requests.fails.flushes = u64::from(round == 1));
        assert_eq!(reported, [[true; 2], [false; 2], [false, true]]);
    }
}
