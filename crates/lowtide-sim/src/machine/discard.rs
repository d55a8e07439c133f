//! Pages that leave on request, and not because memory is scarce.
//!
//! | | contents | waits for reads and writes of the page |
//! |---|---|---|
//! | give up: `munmap` of a heap, a hole in a file | zeros from now on | yes |
//! | give up: the end of a file that is made shorter (`resize.rs`) | none | yes |
//! | free lazily: `MADV_FREE` | zeros when reclaim has dropped it | no: such a page stays |
//! | drop: `POSIX_FADV_DONTNEED` | what the device has | no: such a page stays |

use super::ctx::Ctx;
use super::files::FileId;
use super::world::{MappingId, World};
use crate::memory::ObjectId;
use lowtide_core::{FolioId, Task};

impl World {
    /// Gives up a page of a mapping. Returns false if it is being read or written.
    fn give_up_page(&mut self, file: Option<FileId>, object: ObjectId, page: u64) -> bool {
        let reading = self.pool.frame(object, page).is_some_and(|frame| self.is_locked(frame));
        if reading || !self.pool.discard(object, page) {
            return false;
        }
        self.fit_zram();
        self.watched(|watch, world| watch.given_up(world, object, page));
        if let Some(file) = file {
            self.file(file).dirty.remove(&page);
        }
        true
    }

    /// Frees a page of a heap lazily; gives it up if it is in swap.
    fn free_page_lazily(&mut self, object: ObjectId, page: u64, task: Task) {
        match self.pool.frame(object, page) {
            Some(frame) if self.pool.memory.is_mapped(object, page) => {
                if !self.is_locked(frame) && self.pool.engine.free_lazily(frame, task) {
                    self.pool.memory.age_and_clean(object, page);
                    self.watched(|watch, _| watch.freed_lazily(object, page));
                }
            }
            // One that reclaim has unmapped and not yet freed stays if it cannot go.
            _ => {
                self.give_up_page(None, object, page);
            }
        }
    }

    /// Drops the folio of a page of a file if it is clean and neither used nor mapped. Returns
    /// whether it did.
    fn drop_page(&mut self, object: ObjectId, page: u64) -> bool {
        let Some(frame) = self.pool.frame(object, page) else { return false };
        let (extent, _) = self.pool.extent(frame);
        let busy = self.pool.is_dirty(frame)
            || self.pool.is_writing(frame)
            || self.is_locked(frame)
            || self.holds.is_held(object, &extent)
            || extent.clone().any(|page| self.pool.memory.is_mapped(object, page));
        if busy || !self.pool.discard(object, page) {
            return false;
        }
        for (offset, page) in (0..).zip(extent) {
            let frame = FolioId(frame.0 + offset);
            self.watched(|watch, world| watch.dropped(world, object, page, frame));
        }
        true
    }
}

impl Ctx {
    /// Waits until a page that could not be given up is no longer used: until it has been read or
    /// written.
    async fn wait_unused(&self, file: Option<FileId>, object: ObjectId, page: u64) {
        self.wait_page(object, page).await;
        self.settle().await;
        let writing = {
            let mut world = self.w();
            let writing =
                world.pool.frame(object, page).is_some_and(|frame| world.pool.is_writing(frame));
            if writing && let Some(file) = file {
                let id = self.id;
                world.file(file).sync_waiters.push(id);
            }
            writing
        };
        if writing {
            self.block(None).await;
        }
    }

    /// Gives up a page as soon as it can go.
    pub(super) async fn give_up_for_certain(
        &self,
        file: Option<FileId>,
        object: ObjectId,
        page: u64,
    ) {
        while !self.w().give_up_page(file, object, page) {
            self.wait_unused(file, object, page).await;
        }
    }

    /// Gives up pages of a mapping: `munmap` of a heap, punching a hole into a file. Takes the
    /// address space's lock for writing.
    pub async fn give_up(&self, id: MappingId, first: u64, pages: u64) {
        let mapping = self.w().mappings[id.0 as usize];
        self.take(mapping.mmap_lock, true).await;
        self.take(mapping.vma_lock, true).await;
        let (object, file) = {
            let world = self.w();
            let object = world.pool.memory.vmas[mapping.vma.0 as usize].object;
            (object, mapping.open.map(|open| world.opens[open.0 as usize].file))
        };
        for page in first..first + pages {
            self.give_up_for_certain(file, object, page).await;
        }
        self.w().let_go(self.id);
        let cost = {
            let mut world = self.w();
            world.release(mapping.vma_lock, true);
            world.release(mapping.mmap_lock, true);
            world.costs.mmap_ns + pages * (world.costs.zap_ns + world.costs.free_page_ns)
        };
        self.spend(cost).await;
    }

    /// Frees pages of a heap lazily (madvise(2), `MADV_FREE`). Takes the address space's lock for
    /// reading.
    pub async fn free_lazily(&self, id: MappingId, first: u64, pages: u64) {
        let mapping = self.w().mappings[id.0 as usize];
        self.take(mapping.mmap_lock, false).await;
        let cost = {
            let mut world = self.w();
            let object = world.pool.memory.vmas[mapping.vma.0 as usize].object;
            let task = world.engine_task(self.id, false);
            for page in first..first + pages {
                world.free_page_lazily(object, page, task);
            }
            world.release(mapping.mmap_lock, false);
            world.costs.syscall_ns + pages * world.costs.zap_ns
        };
        self.spend(cost).await;
    }

    /// Drops those of some pages of a file from memory that can go at once.
    pub async fn drop_cached(&self, object: ObjectId, first: u64, pages: u64) {
        let cost = {
            let mut world = self.w();
            let dropped =
                (first..first + pages).filter(|&page| world.drop_page(object, page)).count();
            world.costs.syscall_ns
                + pages * world.costs.lookup_ns
                + dropped as u64 * world.costs.free_page_ns
        };
        self.spend(cost).await;
    }
}
