//! Changing the size of a file.
//!
//! ```text
//!   the page that the file ends in, or has ended in, is brought in
//!     ──► in one step: the size changes, translations past the end go, and the rest of that
//!         page becomes zeros
//!     ──► pages past the end go, each when it is neither read nor written
//! ```
//!
//! One task at a time changes the size of a file; a write that would make it larger waits
//! meanwhile. From the one step on no access reaches what is past the end: a read ends there, and
//! an access through a mapping is an error ([`MachineError::BeyondEnd`]). The size itself is
//! durable at once: the file system's log is not simulated.

use super::ctx::Ctx;
use super::ended::MachineError;
use super::files::{FileId, OpenId};
use super::read::Part;
use super::watch::PageEvent;
use crate::memory::ObjectId;
use lowtide_core::FolioId;

/// A size: whole pages, and whether the last of them is there in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    pub pages: u64,
    pub partial: bool,
}

impl Size {
    /// In halves of pages: a page that is there in part is half there.
    const fn halves(self) -> u64 {
        2 * self.pages - self.partial as u64
    }

    /// The page that is there in part.
    const fn last_part(self) -> Option<u64> {
        if self.partial { self.pages.checked_sub(1) } else { None }
    }
}

impl Ctx {
    /// Makes a file shorter or longer. What it did not have before reads as zeros.
    ///
    /// # Errors
    /// [`MachineError::Io`] and [`MachineError::OutOfMemory`] if the page that it ends in cannot be
    /// read; the size is the old one then.
    pub async fn resize(&self, open: OpenId, size: Size) -> Result<(), MachineError> {
        let file = self.w().opens[open.0 as usize].file;
        while self.wait_resized(file).await {}
        self.w().file(file).resizing = true;
        let result = self.change_size(file, size).await;
        let world = &mut *self.w();
        world.let_go(self.id);
        let entry = &mut world.files[file.0 as usize];
        entry.resizing = false;
        for task in std::mem::take(&mut entry.resize_waiters) {
            world.sched.wake(task);
        }
        result
    }

    /// Waits while the size of a file is being changed. Returns whether it was.
    pub(super) async fn wait_resized(&self, file: FileId) -> bool {
        if !self.w().file(file).resizing {
            return false;
        }
        self.settle().await;
        {
            let mut world = self.w();
            let id = self.id;
            let entry = world.file(file);
            if !entry.resizing {
                return true;
            }
            entry.resize_waiters.push(id);
        }
        self.block(None).await;
        true
    }

    async fn change_size(&self, file: FileId, size: Size) -> Result<(), MachineError> {
        let (object, old, failures) = {
            let mut world = self.w();
            let entry = world.file(file);
            (entry.object, Size { pages: entry.pages, partial: entry.partial }, entry.read_failures)
        };
        let tail = if size.halves() < old.halves() { size.last_part() } else { old.last_part() };
        let syscall = self.w().costs.syscall_ns;
        self.spend(syscall).await;
        let tail = match tail.filter(|_| size != old) {
            Some(page) => Some((page, self.bring_in(file, page, failures).await?)),
            None => None,
        };
        let owes = self.set_size(file, object, old, size, tail);
        let gone = size.pages..old.pages.max(size.pages);
        for page in gone.clone() {
            self.give_up_for_certain(Some(file), object, page).await;
        }
        let cost = {
            let costs = &self.w().costs;
            gone.count() as u64 * (costs.zap_ns + costs.free_page_ns)
        };
        self.spend(cost).await;
        if owes {
            self.w().let_go(self.id);
            self.balance_dirty(file).await;
        }
        Ok(())
    }

    /// The step between the two sizes. Returns whether the task must answer for what it has
    /// dirtied.
    fn set_size(
        &self,
        file: FileId,
        object: ObjectId,
        old: Size,
        size: Size,
        tail: Option<(u64, FolioId)>,
    ) -> bool {
        let world = &mut *self.w();
        let entry = world.file(file);
        (entry.pages, entry.partial) = (size.pages, size.partial);
        for page in size.pages..old.pages {
            world.pool.memory.unmap(object, page);
        }
        world.watched(|watch, world| {
            watch.resized(world, object, size.pages, tail.map(|(page, _)| page));
        });
        let Some((page, frame)) = tail else { return false };
        let owes = world.set_dirty(self.id, file, page, frame);
        world.watched_file(PageEvent::TailZeroed, file, page, frame);
        owes
    }

    /// Brings a page in and waits until its contents have arrived. No other task runs before the
    /// caller has used it.
    async fn bring_in(
        &self,
        file: FileId,
        page: u64,
        failures: u64,
    ) -> Result<FolioId, MachineError> {
        loop {
            match self.part(file, page, failures).await? {
                Part::There(frame) => return Ok(frame),
                Part::Again => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, MachineConfig};
    use super::*;
    use crate::spec::MachineSpec;
    use lowtide_core::{MemcgId, Policy};
    use std::sync::atomic::AtomicBool;

    #[test]
    fn what_is_behind_the_end_is_neither_kept_nor_reached() {
        let spec = MachineSpec { cpus: 1, ..MachineSpec::load("ramdisk").unwrap() };
        let config = MachineConfig { spec, policy: Policy::MGLRU, max: Some(64 * 4096), seed: 1 };
        let mut m = Machine::new(&config).unwrap();
        let (open, mapping) = {
            let mut world = m.world();
            let file = world.add_file(8);
            let space = world.add_address_space(MemcgId::ROOT);
            let open = world.open(file);
            (open, world.map_file(space, open))
        };
        m.client(async move |ctx| {
            ctx.access(mapping, 0, 8, true).await?;
            ctx.resize(open, Size { pages: 3, partial: true }).await?;
            let resident = |ctx: &Ctx| ctx.w().pool.engine.usage(MemcgId::ROOT);
            assert_eq!(resident(&ctx), 3);
            let beyond = ctx.access(mapping, 3, 1, false).await;
            assert!(matches!(beyond, Err(MachineError::BeyondEnd { .. })), "{beyond:?}");
            ctx.read(open, 0, 8).await?;
            assert_eq!(resident(&ctx), 3, "a read ends at the end");
            ctx.write(open, 5, 1).await?;
            let file = ctx.w().opens[open.0 as usize].file;
            let pages = ctx.w().file(file).pages;
            assert_eq!(pages, 6, "a write makes it longer");
            ctx.read(open, 0, 8).await?;
            assert_eq!(resident(&ctx), 6);
            Ok(())
        });
        m.run(&AtomicBool::new(false), &mut || ()).unwrap();
    }
}
