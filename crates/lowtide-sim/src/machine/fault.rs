//! Accesses through a mapping.
//!
//! ```text
//!   translation allows it ─────────────────────────────────────────────► young bit, done
//!   else: fault, under the mapping's own lock
//!     cached, arrived ──► map it and up to 15 cached neighbours ───────► done                       (minor)
//!     on its way ───────► let go of the lock, wait, fault again under the address space's lock      (retry)
//!     absent ───────────► start the read, let go, wait, fault again                                 (major, retry)
//!     a heap's page ────► as in `swap.rs` ─────────────────────────────► done                       (minor; major from swap)
//! ```
//!
//! The first attempt takes the lock of the mapping alone. If that is held for writing, or if the fault has to be repeated, the lock of the
//! whole address space is taken for reading. Sources: `fault-and-writeback.md` A1-A5, A9.

use super::MachineError;
use super::ctx::Ctx;
use super::files::OpenId;
use super::lock::RwSemId;
use super::world::World;
use crate::memory::{ObjectId, VmaId};
use lowtide_core::{Flags, FolioId, LruType, MemcgId, SpaceId};

/// The number of a mapping of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MappingId(pub(crate) u32);

/// A mapping with its locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    pub(crate) vma: VmaId,
    /// The file that is mapped, as it was opened; `None` for a heap.
    open: Option<OpenId>,
    /// Lock of the address space.
    mmap_lock: RwSemId,
    /// Lock of this mapping.
    vma_lock: RwSemId,
}

/// An address space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressSpace {
    space: SpaceId,
    memcg: MemcgId,
    mmap_lock: RwSemId,
}

impl World {
    /// Adds an address space: the process of a group's task.
    pub(crate) fn add_address_space(&mut self, memcg: MemcgId) -> AddressSpace {
        let space = self.pool.memory.add_space(&mut self.pool.engine, memcg);
        AddressSpace { space, memcg, mmap_lock: self.add_rwsem() }
    }

    /// Maps an open file.
    pub(crate) fn map_file(&mut self, into: AddressSpace, open: OpenId) -> MappingId {
        let file = self.opens[open.0 as usize].file;
        let (object, pages) = (self.file(file).object, self.file(file).pages);
        self.add_mapping(into, object, pages, Some(open))
    }

    /// Maps a new heap.
    pub(crate) fn map_heap(&mut self, into: AddressSpace, pages: u64) -> MappingId {
        let object = self.pool.memory.add_object(LruType::Anon, into.memcg);
        self.add_mapping(into, object, pages, None)
    }

    /// What a mapping maps.
    pub(crate) fn mapped_object(&self, mapping: MappingId) -> ObjectId {
        let vma = self.mappings[mapping.0 as usize].vma;
        self.pool.memory.vmas[vma.0 as usize].object
    }

    fn add_mapping(
        &mut self,
        into: AddressSpace,
        object: ObjectId,
        pages: u64,
        open: Option<OpenId>,
    ) -> MappingId {
        let vma = self.pool.memory.map_object(into.space, object, pages, false);
        let vma_lock = self.add_rwsem();
        self.mappings.push(Mapping { vma, open, mmap_lock: into.mmap_lock, vma_lock });
        MappingId(self.mappings.len() as u32 - 1)
    }

    /// Gives up a page of a mapping. Returns false if it is being read or written.
    fn give_up_page(&mut self, mapping: Mapping, object: ObjectId, page: u64) -> bool {
        let reading = self.pool.frame(object, page).is_some_and(|frame| self.is_locked(frame));
        if reading || !self.pool.discard(object, page) {
            return false;
        }
        self.fit_zram();
        self.watched(|watch, world| watch.given_up(world, object, page));
        if let Some(open) = mapping.open {
            let file = self.opens[open.0 as usize].file;
            self.file(file).dirty.remove(&page);
        }
        true
    }

    /// Whether a resident page is not of the workingset.
    fn is_fresh(&self, frame: FolioId) -> bool {
        self.pool.engine.folio(frame).is_some_and(|folio| !folio.flags().contains(Flags::WORKINGSET))
    }

    /// Maps a page and, after a read fault of a file, its cached neighbours; `found` says whether the page was there at once. Returns how many neighbours.
    fn map_around(&mut self, mapping: Mapping, page: u64, store: bool, found: bool) -> u64 {
        let object = self.pool.memory.vmas[mapping.vma.0 as usize].object;
        let around = self.fault_around_pages.max(1);
        let first = page / around * around;
        if let Some(open) = mapping.open {
            let vma = &self.pool.memory.vmas[mapping.vma.0 as usize];
            let span = if store { page..page + 1 } else { first..first + around };
            let fresh = span.filter(|&p| {
                let frame = self.pool.frame(object, p).filter(|&frame| !self.is_locked(frame));
                frame.is_some_and(|frame| !vma.ptes.get(p).is_present() && self.is_fresh(frame))
            });
            let fresh = fresh.count() as u32;
            self.opens[open.0 as usize].readahead.fault_mapped(found, fresh);
        }
        let memory = &mut self.pool.memory;
        memory.map(mapping.vma, page, store);
        if store || mapping.open.is_none() {
            return 0;
        }
        let mut mapped = 0;
        for neighbour in (first..first + around).filter(|&p| p != page) {
            let frame = memory.cached(object, neighbour).frame();
            if frame.is_some_and(|frame| !memory.is_locked(frame)) {
                memory.map_old(mapping.vma, neighbour);
                mapped += 1;
            }
        }
        mapped
    }
}

/// How an attempt ended.
enum Attempt {
    Mapped,
    /// The same, with a page that came from swap.
    SwappedIn,
    /// The page is on its way.
    Wait,
}

impl Ctx {
    /// Loads from, or stores to, pages of a mapping.
    pub(crate) async fn access(
        &self,
        id: MappingId,
        first: u64,
        pages: u64,
        store: bool,
    ) -> Result<(), MachineError> {
        for page in first..first + pages {
            let (hit, touch) = {
                let mut guard = self.w();
                let world = &mut *guard;
                world.counts.accesses += 1;
                let vma = world.mappings[id.0 as usize].vma;
                let hit = world.pool.memory.vmas[vma.0 as usize].touch(page, store);
                if hit {
                    world.watched_touch(vma, page, store);
                }
                (hit, world.costs.touch_ns)
            };
            if !hit {
                self.fault(id, page, store).await?;
                self.settle_limits().await;
            }
            self.spend(touch).await;
        }
        Ok(())
    }

    async fn fault(&self, id: MappingId, page: u64, store: bool) -> Result<(), MachineError> {
        let result = self.attempts(id, page, store).await;
        self.w().let_go(self.id);
        result
    }

    /// Attempts until one succeeds.
    async fn attempts(&self, id: MappingId, page: u64, store: bool) -> Result<(), MachineError> {
        let (mapping, failures) = {
            let mut world = self.w();
            let mapping = world.mappings[id.0 as usize];
            let file = mapping.open.map(|open| world.opens[open.0 as usize].file);
            (mapping, file.map_or(0, |file| world.file(file).read_failures))
        };
        let mut repeated = false;
        let major = loop {
            let own = !repeated && self.w().rwsems[mapping.vma_lock.0 as usize].try_take(false);
            let lock = if own { mapping.vma_lock } else { mapping.mmap_lock };
            if !own {
                self.take(lock, false).await;
            }
            let attempt = self.attempt(mapping, page, store, failures, &mut repeated).await;
            self.w().release(lock, false);
            match attempt? {
                Attempt::Mapped => break repeated,
                Attempt::SwappedIn => break true,
                Attempt::Wait => {
                    let object = {
                        let mut world = self.w();
                        world.counts.retry_mmap_drop += u64::from(own);
                        world.pool.memory.vmas[mapping.vma.0 as usize].object
                    };
                    self.wait_page(object, page).await;
                }
            }
        };
        let mut world = self.w();
        let memcg = world.memcg(self.id);
        world.pool.engine.count_fault(memcg, major);
        drop(world);
        Ok(())
    }

    /// One attempt, under a lock.
    async fn attempt(
        &self,
        mapping: Mapping,
        page: u64,
        store: bool,
        failures: u64,
        repeated: &mut bool,
    ) -> Result<Attempt, MachineError> {
        let (object, frame, cost) = {
            let world = self.w();
            let object = world.pool.memory.vmas[mapping.vma.0 as usize].object;
            (object, world.pool.frame(object, page), world.costs.minor_fault_ns)
        };
        self.spend(cost).await;
        let Some(open) = mapping.open else {
            let swapped_in = self.heap_fault(mapping, page, store).await?;
            return Ok(if swapped_in { Attempt::SwappedIn } else { Attempt::Mapped });
        };
        let file = self.w().opens[open.0 as usize].file;
        match frame {
            Some(frame) if self.w().is_locked(frame) => {
                *repeated = true;
                Ok(Attempt::Wait)
            }
            Some(_) => {
                let cost = {
                    let mut guard = self.w();
                    let world = &mut *guard;
                    // The page may have gone while this task was spending.
                    let Some(frame) = world.pool.frame(object, page) else { return Ok(Attempt::Wait) };
                    if world.is_locked(frame) {
                        return Ok(Attempt::Wait);
                    }
                    if store {
                        world.set_dirty(file, page, frame);
                    }
                    let neighbours = world.map_around(mapping, page, store, !*repeated);
                    world.watched_touch(mapping.vma, page, store);
                    if neighbours > 0 {
                        world.costs.fault_around_ns
                            - world.costs.minor_fault_ns.min(world.costs.fault_around_ns)
                    } else {
                        0
                    }
                };
                self.spend(cost).await;
                if store {
                    self.balance_dirty(1).await;
                }
                Ok(Attempt::Mapped)
            }
            None => {
                let (window, cost) = {
                    let mut world = self.w();
                    if world.file(file).failed_since(page, failures) {
                        let at_ns = world.sched.local(self.id);
                        return Err(MachineError::Io { at_ns });
                    }
                    world.hold(self.id, object, page);
                    world.counts.retry_io_miss += u64::from(*repeated);
                    world.counts.major += u64::from(!*repeated);
                    let window = world.opens[open.0 as usize].readahead.fault_missed(page);
                    (window, world.costs.major_fault_cpu_ns)
                };
                self.spend(cost).await;
                *repeated = true;
                self.read_window(file, window, Some(page), true).await?;
                Ok(Attempt::Wait)
            }
        }
    }

    /// Waits until a page that could not be given up is used no more: until it has been read or written.
    async fn wait_unused(&self, mapping: Mapping, object: ObjectId, page: u64) {
        self.wait_page(object, page).await;
        self.settle().await;
        let writing = {
            let mut world = self.w();
            let writing = world.pool.frame(object, page).is_some_and(|frame| world.pool.is_writing(frame));
            if writing && let Some(open) = mapping.open {
                let (id, file) = (self.id, world.opens[open.0 as usize].file);
                world.file(file).sync_waiters.push(id);
            }
            writing
        };
        if writing {
            self.block(None).await;
        }
    }

    /// Gives up pages of a mapping: `munmap` of a heap, punching a hole into a file. Takes the address space's lock for writing.
    pub(crate) async fn give_up(&self, id: MappingId, first: u64, pages: u64) {
        let mapping = self.w().mappings[id.0 as usize];
        self.take(mapping.mmap_lock, true).await;
        self.take(mapping.vma_lock, true).await;
        let object = self.w().pool.memory.vmas[mapping.vma.0 as usize].object;
        for page in first..first + pages {
            while !self.w().give_up_page(mapping, object, page) {
                self.wait_unused(mapping, object, page).await;
            }
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
}
