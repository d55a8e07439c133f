//! The simulated kernel's state, all of it.

use super::device::{Device, Writeback};
use super::ended::MachineError;
use super::files::{File, Open, OpenId};
use super::groups::Groups;
use super::hold::Holds;
use super::lock::{PoolLock, RwSem, RwSemId, SpinLock};
use super::published::Published;
use super::requests::Requests;
use super::retry::Retries;
use super::sched::{Sched, TaskId};
use super::swap::SwapArea;
use super::watch::Watch;
use super::watermarks::Kswapd;
use crate::costs::Costs;
use crate::memory::{ObjectId, VmaId};
use crate::pool::Pool;
use crate::spec::FaultPath;
use lowtide_core::{FolioId, LruType, MemcgId, SpaceId, Task};
use std::collections::BTreeMap;

/// Counts that neither the engine nor a device keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelCounts {
    /// Accesses to pages.
    pub accesses: u64,
    /// Accesses that had to wait for the device, or for a page to come from swap.
    pub major: u64,
    /// Invocations of direct reclaim.
    pub direct_reclaims: u64,
    /// Wakings of the flusher by reclaim.
    pub flusher_wakes: u64,
    /// Sleeps of reclaim, for whatever reason.
    pub throttled: u64,
    /// Nanoseconds of those sleeps, all tasks together.
    pub throttled_ns: u64,
    /// Times that a writer was held back because too much was dirty.
    pub dirty_pauses: u64,
    /// Nanoseconds that writers were held back because too much was dirty.
    pub dirty_throttled_ns: u64,
    /// Sleeps of tasks that were over a limit.
    pub high_sleeps: u64,
    /// Nanoseconds of those sleeps, all tasks together.
    pub high_sleep_ns: u64,
    /// Aging walks begun.
    pub walks: u64,
    /// Nanoseconds that aging walks took.
    pub walk_ns: u64,
    /// Wakings of the background reclaimer.
    pub kswapd_wakes: u64,
    /// Charges that failed: in the kernel, the out-of-memory killer.
    pub oom: u64,
    /// Nanoseconds that the last of them had been trying.
    pub oom_tried_ns: u64,
    /// Faults that were retried and found that their page was not in the cache any more.
    pub retry_io_miss: u64,
    /// Times that the handler of a file gave a lock up, of whichever kind, so that its fault was to
    /// be retried.
    pub retry_mmap_drop: u64,
    /// Pages that read-ahead brought in beyond those requested.
    pub readahead: u64,
    /// Pages of those that were used later: read, written or faulted in.
    pub readahead_used: u64,
    /// Pages of those that were evicted before anything used them.
    pub readahead_unused: u64,
    /// Accesses that found a page with the read-ahead mark.
    pub marked_hits: u64,
    /// Windows that those opened, and the pages of them.
    pub marked_windows: u64,
    /// See `marked_windows`.
    pub marked_window_pages: u64,
    /// Pages that were requested and had to be read.
    pub missing: u64,
    /// Pages of those that had been in memory before.
    pub missing_again: u64,
    /// Commands that a device failed.
    pub io_errors: u64,
    /// Write commands among them.
    pub write_errors: u64,
    /// Flushes of its cache among them.
    pub flush_errors: u64,
    /// Reads that hung by fault injection.
    pub hung_reads: u64,
}

/// An address space.
#[derive(Clone, Copy, Debug)]
pub struct AddressSpace {
    pub(super) space: SpaceId,
    memcg: MemcgId,
    pub(super) mmap_lock: RwSemId,
}

/// The number of a mapping of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MappingId(pub u32);

/// A mapping with its locks.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    pub vma: VmaId,
    /// The file that is mapped, as it was opened; `None` for a heap.
    pub(super) open: Option<OpenId>,
    /// Lock of the address space.
    pub(super) mmap_lock: RwSemId,
    /// Lock of this mapping.
    pub(super) vma_lock: RwSemId,
}

/// The world of one machine.
#[derive(Debug)]
pub struct World {
    pub sched: Sched,
    pub pool: Pool,
    pub costs: Costs,
    pub page_bytes: u64,
    pub device: Device,
    pub requests: Requests,
    pub files: Vec<File>,
    pub opens: Vec<Open>,
    pub mappings: Vec<Mapping>,
    /// Numbers of mappings that are gone.
    pub(super) free_mappings: Vec<MappingId>,
    /// How faults wait for their I/O.
    pub fault_path: FaultPath,
    /// What retries depend on.
    pub retries: Retries,
    /// Pages that read-ahead reads at once at most.
    pub readahead_pages: u64,
    /// Cached pages that one fault maps at most.
    pub fault_around_pages: u64,
    /// The lock of the lists of each group.
    pub lruvec_locks: BTreeMap<MemcgId, SpinLock>,
    /// One lock in its place, where that is simulated.
    pub pool_lock: Option<PoolLock>,
    pub swap: SwapArea,
    pub rwsems: Vec<RwSem>,
    /// Tasks that wait for a page's contents.
    pub page_waiters: BTreeMap<(ObjectId, u64), Vec<TaskId>>,
    pub writeback: Writeback,
    pub kswapd: Kswapd,
    pub counts: KernelCounts,
    /// Clients that have not finished.
    pub clients: u32,
    pub groups: Groups,
    pub holds: Holds,
    /// When group statistics are published.
    pub published: Published,
    /// The first failure that ends the run.
    pub failure: Option<MachineError>,
    /// The observer, if there is one.
    pub watch: Option<Box<dyn Watch>>,
}

impl World {
    /// A task as the engine sees it.
    pub fn engine_task(&self, id: TaskId, in_lru_fault: bool) -> Task {
        Task { cpu: self.sched.tasks[id.0 as usize].cpu, in_lru_fault }
    }

    /// Remembers the first error.
    pub fn fail(&mut self, result: Result<(), MachineError>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    /// Adds a semaphore.
    pub fn add_rwsem(&mut self) -> RwSemId {
        self.rwsems.push(RwSem::default());
        RwSemId(self.rwsems.len() as u32 - 1)
    }

    /// Whether a resident page's contents have not arrived yet.
    pub fn is_locked(&self, frame: FolioId) -> bool {
        self.pool.memory.is_locked(frame)
    }

    /// Wakes all tasks that wait for a page.
    pub fn wake_page(&mut self, object: ObjectId, page: u64) {
        for task in self.page_waiters.remove(&(object, page)).unwrap_or_default() {
            self.sched.wake(task);
        }
    }

    /// Adds an address space: the process of a group's task.
    pub fn add_address_space(&mut self, memcg: MemcgId) -> AddressSpace {
        let space = self.pool.memory.add_space(&mut self.pool.engine, memcg);
        AddressSpace { space, memcg, mmap_lock: self.add_rwsem() }
    }

    /// Maps an open file, before the run. See [`AddressSpace::mmap`].
    pub fn map_file(&mut self, into: AddressSpace, open: OpenId) -> MappingId {
        let file = self.opens[open.0 as usize].file;
        let (object, pages) = (self.file(file).object, self.file(file).pages);
        self.add_mapping(into, object, pages, Some(open))
    }

    /// Maps a new heap.
    pub fn map_heap(&mut self, into: AddressSpace, pages: u64) -> MappingId {
        let object = self.pool.memory.add_object(&mut self.pool.engine, LruType::Anon, into.memcg);
        self.add_mapping(into, object, pages, None)
    }

    /// Advises that a mapping is accessed at random, as `MADV_RANDOM` does: misses read only their
    /// page, and accesses do not count (`docs/kernel/reclaim.md` §1.3, 2.3).
    pub fn advise_mapping_random(&mut self, mapping: MappingId) {
        let vma = self.mappings[mapping.0 as usize].vma;
        self.pool.memory.vmas[vma.0 as usize].recency = false;
    }

    /// A mapping is of a program's text. Reclaim spares pages that are executed
    /// (`docs/kernel/reclaim.md` §5.4, 5.5). Read-ahead treats it as any other.
    pub fn set_executable(&mut self, mapping: MappingId) {
        let vma = self.mappings[mapping.0 as usize].vma;
        self.pool.memory.vmas[vma.0 as usize].exec = true;
    }

    /// Whether accesses through a mapping count.
    pub(super) fn has_recency(&self, mapping: Mapping) -> bool {
        self.pool.memory.vmas[mapping.vma.0 as usize].recency
    }

    /// What a mapping maps.
    pub fn mapped_object(&self, mapping: MappingId) -> ObjectId {
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
        let memory = &mut self.pool.memory;
        if let Some(id) = self.free_mappings.pop() {
            let mapping = &mut self.mappings[id.0 as usize];
            memory.map_object_as(mapping.vma, into.space, object, pages, false);
            (mapping.open, mapping.mmap_lock) = (open, into.mmap_lock);
            return id;
        }
        let vma = memory.map_object(into.space, object, pages, false);
        let vma_lock = self.add_rwsem();
        self.mappings.push(Mapping { vma, open, mmap_lock: into.mmap_lock, vma_lock });
        MappingId(self.mappings.len() as u32 - 1)
    }
}
