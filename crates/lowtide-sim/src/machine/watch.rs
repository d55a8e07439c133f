//! An observer of the machine: it gets what happens to pages, and looks after every turn of the
//! machine whether all is well.
//!
//! A machine has none by default, and an event then costs the test of a pointer. The observer gets
//! the world to look at, and reports what is wrong with [`World::violated`], which ends the run. It
//! may also change the world: that is how a planted bug is made (`swarm/sabotage.rs`) without a
//! line of it in the kernel's paths.

use super::ended::MachineError;
use super::files::FileId;
use super::world::World;
use crate::memory::{ObjectId, VmaId};
use lowtide_core::{FolioId, Freed, Victim};
use std::fmt::Debug;

/// What happened to a page of an object, in the order of a page's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageEvent {
    /// A heap's page was made, filled with zeros.
    Zeroed,
    /// Its contents came from the device.
    Arrived,
    /// The device failed to bring them; the page is gone again.
    ReadFailed,
    /// A task read it, either way.
    Loaded,
    /// A task wrote all of it.
    Stored,
    /// A task wrote a part of it, either way; the rest is as it was.
    Patched,
    /// What of it is past the end of its file was filled with zeros.
    TailZeroed,
    /// A task that held it has released it.
    Released,
    /// Its contents go to the device as they are now.
    WriteBegan,
    /// They are there.
    Written,
    /// They are not.
    WriteFailed,
}

/// What happened to a flush of the device's cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlushEvent {
    /// It was submitted: what has been written until now is to be durable.
    Began,
    /// It is.
    Ended,
    /// It need not be. The flush was for a sync of this file.
    Failed(FileId),
}

/// See the module documentation.
pub trait Watch: Debug {
    /// The machine has made a turn: a task ran until it gave up its CPU, or a request completed.
    fn turn(&mut self, world: &mut World);
    /// Something happened to a resident page.
    fn page(
        &mut self,
        world: &mut World,
        event: PageEvent,
        object: ObjectId,
        page: u64,
        frame: FolioId,
    );
    /// Something happened to a flush of the device's cache; each has a number.
    fn flush(&mut self, world: &mut World, event: FlushEvent, number: u64);
    /// The translations of these folios are about to be dropped.
    fn victims(&mut self, world: &mut World, victims: &[Victim]);
    /// These folios have gone, and their frames are free.
    fn freed(&mut self, world: &mut World, freed: &[Freed]);
    /// A clean page of a file that was not in use was dropped from memory.
    fn dropped(&mut self, world: &mut World, object: ObjectId, page: u64, frame: FolioId);
    /// A page was given up; its contents are zeros from now on.
    fn given_up(&mut self, world: &mut World, object: ObjectId, page: u64);
    /// A page of a heap was freed lazily: it may be dropped until it is stored to.
    fn freed_lazily(&mut self, object: ObjectId, page: u64);
    /// A file has `pages` pages now. The part of page `tail` behind its old end, or its new one, is
    /// to become zeros.
    fn resized(&mut self, world: &mut World, object: ObjectId, pages: u64, tail: Option<u64>);
    /// A task's charge, which began at `since` (nanoseconds), failed after all tries.
    fn out_of_memory(&mut self, world: &mut World, since: u64);
}

impl World {
    /// Reports something to the observer, if there is one.
    #[inline]
    pub fn watched(&mut self, report: impl FnOnce(&mut dyn Watch, &mut Self)) {
        if let Some(mut watch) = self.watch.take() {
            report(&mut *watch, self);
            self.watch = Some(watch);
        }
    }

    /// Reports to the observer what happened to a page of a file, in this folio.
    pub fn watched_file(&mut self, event: PageEvent, file: FileId, page: u64, folio: FolioId) {
        if self.watch.is_some() {
            let frame = self.pool.frame_in(folio, page);
            self.watched_frame(event, file, page, frame);
        }
    }

    /// The same, where the frame of the page is known.
    pub(super) fn watched_frame(
        &mut self,
        event: PageEvent,
        file: FileId,
        page: u64,
        frame: FolioId,
    ) {
        let object = self.file(file).object;
        self.watched(|watch, world| watch.page(world, event, object, page, frame));
    }

    /// Reports to the observer a load from, or a store to, a page through its translation.
    pub fn watched_touch(&mut self, vma: VmaId, page: u64, store: bool) {
        if self.watch.is_none() {
            return;
        }
        let object = self.pool.memory.vmas[vma.0 as usize].object;
        let event = if store { PageEvent::Patched } else { PageEvent::Loaded };
        match self.pool.frame(object, page) {
            Some(frame) => {
                self.watched(|watch, world| watch.page(world, event, object, page, frame));
            }
            None => {
                self.violated(
                    "translations",
                    format!("page {page} of {object:?} is mapped and not resident"),
                );
            }
        }
    }

    /// Ends the run: an invariant does not hold.
    #[cold]
    pub fn violated(&mut self, invariant: &'static str, what: String) {
        let at_ns = self.sched.now;
        self.fail(Err(MachineError::Violation { at_ns, invariant, what }));
    }
}
