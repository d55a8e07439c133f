//! The plain machine: one CPU, one task, and only the accesses themselves.
//!
//! It has no read-ahead and no fault-around, a fault costs nothing and a write ends when it begins,
//! so its counters mean exactly what the accesses did. That makes it the machine for traces, for
//! miss-ratio curves, and for the comparison with real kernels, which were measured in the same
//! way. All spaces are mapped into the one address space of the one task. A file goes like this; a
//! heap, with or without swap, as in `heap.rs`:
//!
//! ```text
//!   load, store ──► mapped? ──no──► resident? ──no──► charge ─► insert(FAULT) ─► map young (major)
//!                     │                └──yes──► map young                                 (minor)
//!                     └──yes──► young; a store to a clean page is a fault too, and makes it dirty
//!   read, write ──► resident? ──no──► charge ─► insert(DESCRIPTOR); reads mark accessed
//! ```
//!
//! Time (`clock.rs`) matters to asynchronous swap and to compressed pages (`zcache.rs`) alone. With
//! these, a miss of a page of a file that is stored compressed is a miss that reads nothing.
//!
//! The classical lists, and all writers, see group statistics as of the last publication, every two
//! seconds of a real machine. On the machines that were measured a miss took so much longer than a
//! hit that misses are the better clock: there is a publication every
//! [`PlainConfig::publish_every`] misses. The flusher (`flusher.rs`) writes everything when too
//! much is dirty by these figures, or when reclaim wakes it.
//!
//! Sources: `docs/kernel/reclaim.md` §5.7 and section C, the minimal models that reproduce what
//! kernels count.

mod clock;
mod config;
mod flusher;
mod heap;
mod reclaim;
mod zcache;

pub use config::{PlainConfig, PlainSwap, PlainZcache};

use crate::memory::{ObjectId, PAGES_MAX, VmaId};
use crate::pool::Pool;
use lowtide_core::{ConfigError, EngineConfig, LruType, MemcgId, MemoryStat, Owner, Task};
use lowtide_workload::{OpKind, PageOp, SpaceId, SpaceKind};
use thiserror::Error;

/// Why an operation cannot be played.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PlayError {
    /// All of the budget is taken by pages that cannot go. In the kernel, the out-of-memory killer.
    #[error(
        "out of memory: page {page} of space {} does not fit, and nothing in the budget of {max} \
         pages can be evicted; raise --max{}",
        space.0, no_way_out(*anon, *swap)
    )]
    OutOfMemory {
        /// The space that needed a page.
        space: SpaceId,
        /// The page.
        page: u64,
        /// The budget in pages.
        max: u64,
        /// Anonymous pages in it.
        anon: u64,
        /// Free pages of swap, where there is any.
        swap: Option<u64>,
    },
    /// A page number beyond what a space can have.
    #[error(
        "page {page} of space {} is beyond the limit of {PAGES_MAX} pages for a space", space.0
    )]
    PageTooLarge {
        /// The space.
        space: SpaceId,
        /// The page.
        page: u64,
    },
}

/// Why anonymous pages could not go.
fn no_way_out(anon: u64, swap: Option<u64>) -> String {
    match swap {
        _ if anon == 0 => String::new(),
        None => format!(", or give its {anon} anonymous pages somewhere to go with --swap"),
        Some(free) => {
            format!(", or --swap, of which {free} pages are free for its {anon} anonymous pages")
        }
    }
}

/// Counts that the engine does not keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PlainCounts {
    /// Page accesses played.
    pub accesses: u64,
    /// Accesses to pages that were not resident. The first touch of a heap's page is one.
    pub misses: u64,
    /// Pages read from files. (What is read from swap is `pswpin`.)
    pub reads: u64,
    /// Pages written to files. (What is written to swap is `pswpout`.)
    pub writes: u64,
    /// Invocations of reclaim.
    pub invocations: u64,
    /// Wakings of the flusher by reclaim.
    pub flusher_wakes: u64,
    /// Naps of reclaim.
    pub naps: u64,
}

/// The machine. See the module documentation.
#[derive(Debug)]
pub struct Plain {
    pool: Pool,
    config: PlainConfig,
    counts: PlainCounts,
    spaces: Vec<Space>,
    /// The address space of the one task.
    process: lowtide_core::SpaceId,
    until_publish: u64,
    flusher: flusher::Flusher,
    clock: clock::Clock,
    zcache: Option<zcache::Zcache>,
}

/// A space of the workload, as this machine knows it.
#[derive(Clone, Copy, Debug)]
struct Space {
    object: ObjectId,
    vma: VmaId,
    anon: bool,
    /// The page that was read last through the descriptor: reading it again is the same access.
    last_read: u64,
}

const NO_PAGE: u64 = u64::MAX;

impl Plain {
    /// An empty machine.
    ///
    /// # Errors
    /// [`ConfigError`] when the budget is impossible.
    pub fn new(config: &PlainConfig) -> Result<Self, ConfigError> {
        let metadata = config.metadata;
        let max = config.pages.saturating_add(metadata);
        let mut pool = Pool::new(&EngineConfig {
            frames: u32::try_from(max).unwrap_or(u32::MAX),
            max,
            page_bytes: config.page_bytes,
            policy: config.policy,
            cpus: 1,
        })?;
        heap::give_swap(&mut pool.engine, config);
        let zcache = config.zcache.map(|zcache| {
            let read_ns = config.read_ns.unwrap_or(0);
            zcache::Zcache::new(zcache, config.page_bytes, read_ns, &pool.engine)
        });
        let process = pool.memory.add_space(&mut pool.engine, MemcgId::ROOT);
        let mut machine = Self {
            pool,
            process,
            config: *config,
            counts: PlainCounts::default(),
            spaces: Vec::new(),
            until_publish: config.publish_phase.max(1),
            flusher: flusher::Flusher::default(),
            clock: clock::Clock::default(),
            zcache,
        };
        machine.pool.memory.keeps_dirty_mapped = config.always_mapped;
        let Pool { memory, engine, .. } = &mut machine.pool;
        let object = memory.add_object(engine, LruType::File, MemcgId::ROOT);
        for page in 0..metadata {
            let charged = machine.charge(Task::DESCRIPTOR);
            debug_assert!(charged, "the machine is empty");
            let (frame, _) =
                machine.pool.insert(object, page, false, MemcgId::ROOT, Task::DESCRIPTOR);
            for _ in 0..2 {
                machine.pool.mark_accessed(frame, Task::DESCRIPTOR);
            }
        }
        Ok(machine)
    }

    /// Adds a space, the next number, of `pages` pages as far as is known: it grows when more are
    /// touched.
    pub fn add_space(&mut self, kind: SpaceKind, pages: u64) -> SpaceId {
        let anon = kind == SpaceKind::Anon;
        let lru_type = if anon { LruType::Anon } else { LruType::File };
        let (object, vma) = self.pool.add_mapped(self.process, lru_type, pages);
        self.spaces.push(Space { object, vma, anon, last_read: NO_PAGE });
        SpaceId(self.spaces.len() as u32 - 1)
    }

    /// Plays one operation.
    ///
    /// # Errors
    /// [`PlayError`]; the pages before the one that failed have been played.
    ///
    /// # Panics
    /// When the space has not been added.
    #[inline]
    pub fn play(&mut self, op: &PageOp) -> Result<(), PlayError> {
        for page in op.page..op.page.saturating_add(u64::from(op.pages)) {
            self.access(op.kind, op.space, page)?;
        }
        Ok(())
    }

    /// Plays an operation on one page. Returns whether the page was resident before.
    ///
    /// # Errors
    /// [`PlayError`].
    ///
    /// # Panics
    /// When the space has not been added.
    #[inline]
    pub fn access(&mut self, kind: OpKind, space: SpaceId, page: u64) -> Result<bool, PlayError> {
        let at = self.spaces[space.0 as usize];
        match kind {
            OpKind::Load | OpKind::Store => {
                self.counts.accesses += 1;
                let store = kind == OpKind::Store;
                if self.pool.memory.vmas[at.vma.0 as usize].touch(page, store) {
                    return Ok(true);
                }
                self.fault(space, at, page, store)
            }
            OpKind::Read | OpKind::Write if at.anon => self.access(via_mapping(kind), space, page),
            OpKind::Read | OpKind::Write => {
                self.counts.accesses += 1;
                self.descriptor(space, at, page, kind == OpKind::Write)
            }
            OpKind::Sync => {
                self.settle();
                self.sync(at.object, page);
                Ok(true)
            }
            OpKind::Free => Ok(self.free(space, at.object, page)),
        }
    }

    fn fault(
        &mut self,
        space: SpaceId,
        at: Space,
        page: u64,
        store: bool,
    ) -> Result<bool, PlayError> {
        if page >= PAGES_MAX {
            return Err(PlayError::PageTooLarge { space, page });
        }
        self.settle();
        if at.anon {
            return self.heap_fault(space, at, page, store);
        }
        let resident = self.pool.frame(at.object, page).is_some();
        self.pool.engine.count_fault(MemcgId::ROOT, !resident);
        if !resident {
            self.bring_in(space, at, page, Task::FAULT, true)?;
        }
        self.pool.memory.map(at.vma, page, store);
        if !resident {
            self.forget_first(at, page);
        }
        if store {
            self.set_dirty(at.object, page);
        }
        Ok(resident)
    }

    /// The access that brought a page in leaves no young bit, where that is so.
    fn forget_first(&mut self, at: Space, page: u64) {
        if !self.config.young_faults {
            self.pool.memory.vmas[at.vma.0 as usize].ptes.take_young(page);
        }
    }

    fn descriptor(
        &mut self,
        space: SpaceId,
        at: Space,
        page: u64,
        write: bool,
    ) -> Result<bool, PlayError> {
        if page >= PAGES_MAX {
            return Err(PlayError::PageTooLarge { space, page });
        }
        self.settle();
        let found = self.pool.frame(at.object, page);
        let frame = match found {
            Some(frame) => frame,
            None => self.bring_in(space, at, page, Task::DESCRIPTOR, !write)?,
        };
        if write {
            self.set_dirty(at.object, page);
        } else if at.last_read != page {
            self.pool.mark_accessed(frame, Task::DESCRIPTOR);
        }
        if !write {
            self.spaces[space.0 as usize].last_read = page;
        }
        Ok(found.is_some())
    }

    /// Writes a part of a page of a file through the descriptor: unlike a [`OpKind::Write`], which
    /// is of whole pages, it needs what was there, so a page that is not resident is read. Returns
    /// whether it was resident before.
    ///
    /// # Errors
    /// [`PlayError`].
    ///
    /// # Panics
    /// When the space has not been added.
    pub fn update(&mut self, space: SpaceId, page: u64) -> Result<bool, PlayError> {
        let at = self.spaces[space.0 as usize];
        self.counts.accesses += 1;
        self.settle();
        let resident = self.pool.frame(at.object, page).is_some();
        if !resident {
            if page >= PAGES_MAX {
                return Err(PlayError::PageTooLarge { space, page });
            }
            self.bring_in(space, at, page, Task::DESCRIPTOR, true)?;
        }
        self.set_dirty(at.object, page);
        Ok(resident)
    }

    /// Publishes group statistics now, whatever the count of misses, which begins again.
    pub fn publish(&mut self) {
        self.until_publish = self.config.publish_every.max(1);
        self.pool.engine.publish();
        self.flusher.published = self.pool.engine.dirty();
    }

    /// Counters and sizes.
    #[must_use]
    pub fn stat(&self) -> MemoryStat {
        self.pool.engine.stat(MemcgId::ROOT)
    }

    /// What the engine does not count.
    #[must_use]
    pub const fn counts(&self) -> PlainCounts {
        self.counts
    }

    /// Bytes of memory that this machine takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.pool.bytes()
    }

    /// Checks every invariant of the engine, that compressed pages have as much memory as they
    /// need, and that every slot of swap is free or has one page. Cost: O(frames + pages of heaps).
    ///
    /// # Errors
    /// The first invariant that does not hold, in words.
    pub fn validate(&mut self) -> Result<(), String> {
        self.pool.engine.validate()?;
        self.zcache.as_ref().map_or(Ok(()), zcache::Zcache::validate)?;
        self.validate_swap()
    }
}

/// A page, as the engine names it.
const fn owner_of(object: ObjectId, page: u64) -> Owner {
    Owner { space: lowtide_core::SpaceId(object.0), page }
}

/// A heap has no descriptor: reading and writing it is loading and storing.
const fn via_mapping(kind: OpKind) -> OpKind {
    match kind {
        OpKind::Read => OpKind::Load,
        OpKind::Write => OpKind::Store,
        kind => kind,
    }
}
