//! The pool: the arena of frames, the engine that decides about them, and the lock around it.
//!
//! A *frame* is a piece of the arena as large as a base page; the arena has exactly as many as the budget. Each is in one of four states:
//! free (in the buddy allocator), in flight (charged, its translation busy), resident (a translation leads to it), or being evicted or written to by
//! a store (its translation is locked). Charged frames and free frames always add up to the budget.
//!
//! There is one lock, [`Pool::lock`], and it protects the engine and the allocator: it plays the part of the kernel's lruvec lock. A
//! hit does not take it; a miss takes it once before its read, for a few hundred nanoseconds.
//!
//! Lock order: a space's `writing`, then the pool's lock, then a wait bucket. Nothing is awaited under the pool's lock but its own condition
//! variables.

use crate::config::Builder;
use crate::error::{BuildError, Error};
use crate::frames::Frames;
use crate::io::{Arena, Backend, Options};
use crate::space::Space;
use crate::stat::IoCounters;
use crate::sync;
use crate::wait::WaitTable;
use lowtide_core::{
    AccessCounts, Charge, Engine, EngineConfig, FolioId, LruType, MemcgId, Next, Owner, Task,
};
use lowtide_sys::memory::{HugePages, Mapping};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Frames that a translation can name.
const FRAMES_MAX: u64 = crate::translation::FRAMES_MAX as u64;
/// Below this budget there is no background reclaim: the watermarks would be a visible part of it.
const BACKGROUND_MIN_FRAMES: u64 = 2048;

/// What the pool's lock protects.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) frames: Frames,
    /// Open spaces by number, for the way from a folio to its translations.
    pub(crate) spaces: Vec<Option<Arc<Space>>>,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) page_shift: u32,
    page_bytes: usize,
    state: Mutex<State>,
    /// Frames came free.
    pub(crate) freed: Condvar,
    /// Background reclaim is wanted.
    pub(crate) kswapd: Condvar,
    pub(crate) flusher: Flusher,
    pub(crate) accesses: Arc<AccessCounts>,
    pub(crate) backend: Backend,
    pub(crate) waits: WaitTable,
    pub(crate) io: IoCounters,
    pub(crate) watermarks: Watermarks,
    pub(crate) patience: Duration,
    pub(crate) background: bool,
    pub(crate) young_faults: bool,
    pub(crate) io_mode: crate::config::IoMode,
    pub(crate) closing: AtomicBool,
    born: Instant,
    /// Last, so that it outlives the backend, which may have registered it with the kernel.
    arena: Mapping,
}

/// Free frames at which background reclaim starts and stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watermarks {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// The bell of whoever writes dirty pages.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    rung: Mutex<bool>,
    bell: Condvar,
}

impl Flusher {
    pub(crate) fn ring(&self) {
        *sync::lock(&self.rung) = true;
        self.bell.notify_one();
    }

    /// Waits for the bell, or for the time; returns whether it rang.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut rung = sync::lock(&self.rung);
        if !*rung {
            (rung, _) =
                self.bell.wait_timeout(rung, timeout).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        std::mem::take(&mut rung)
    }
}

/// A frame that was taken, charged, but belongs to no folio yet, or to one whose page is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFolio {
    pub(crate) owner: Owner,
    pub(crate) order: u8,
    pub(crate) shadow: u32,
    pub(crate) task: Task,
}

impl Pool {
    pub(crate) fn new(config: &Builder) -> Result<Self, BuildError> {
        let page_bytes = config.page_bytes;
        if !page_bytes.is_power_of_two() || !crate::config::PAGE_BYTES.contains(&page_bytes) {
            return Err(BuildError::PageSize { bytes: page_bytes });
        }
        let max_bytes = config.max.ok_or(BuildError::NoBudget)?.bytes();
        let max = max_bytes / page_bytes as u64;
        if max >= FRAMES_MAX {
            let limit_bytes = (FRAMES_MAX - 1) * page_bytes as u64;
            return Err(BuildError::BudgetTooLarge { max_bytes, page_bytes, limit_bytes });
        }
        let frames = max as u32;
        let engine = Engine::new(&EngineConfig {
            frames,
            max,
            page_bytes: page_bytes as u64,
            policy: config.policy,
            cpus: 1,
        })
        .map_err(|e| BuildError::from_config(e, max_bytes, page_bytes))?;
        let bytes = frames as usize * page_bytes;
        let memory = |source| BuildError::Memory { bytes: bytes as u64, source };
        let arena = Mapping::new(bytes, HugePages::Yes).map_err(memory)?;
        // All of it now: an error here is better than one in the middle of a miss.
        arena.populate(0..bytes).map_err(memory)?;
        lowtide_sys::membarrier::register();
        // SAFETY: fields drop in the order of their declaration, and `arena` is declared last; no part of it is ever unmapped, moved or
        // discarded before.
        #[expect(unsafe_code, reason = "the promise about the arena is given where the arena is made")]
        let registered = unsafe { Arena::new(arena.as_ptr(), bytes) };
        let backend = Backend::open(Options {
            engine: config.io_engine,
            depth: config.depth,
            arena: Some(registered),
            inject: config.inject.clone(),
        })
        .map_err(|e| BuildError::Io(e.to_string()))?;
        let background = config.background && max >= BACKGROUND_MIN_FRAMES;
        let low = if background { max / 256 } else { 0 };
        Ok(Self {
            page_shift: page_bytes.trailing_zeros(),
            page_bytes,
            accesses: engine.accesses(),
            state: Mutex::new(State { engine, frames: Frames::new(frames), spaces: Vec::new() }),
            freed: Condvar::new(),
            kswapd: Condvar::new(),
            flusher: Flusher::default(),
            backend,
            waits: WaitTable::new(),
            io: IoCounters::default(),
            watermarks: Watermarks { low, high: 2 * low },
            patience: config.patience,
            background: config.background,
            young_faults: config.young_faults,
            io_mode: config.io_mode,
            closing: AtomicBool::new(false),
            born: Instant::now(),
            arena,
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        sync::lock(&self.state)
    }

    /// Nanoseconds since the pool was made: the engine's time.
    pub(crate) fn now(&self) -> u64 {
        self.born.elapsed().as_nanos() as u64
    }

    #[inline]
    pub(crate) const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    pub(crate) fn arena_bytes(&self) -> usize {
        self.arena.len()
    }

    pub(crate) fn huge_bytes(&self) -> usize {
        self.arena.huge_bytes()
    }

    /// Address of a frame.
    #[inline]
    pub(crate) fn frame_ptr(&self, frame: u32) -> *mut u8 {
        // A product, not a shift: on x86 a shift by a variable is three operations, and hits count them.
        self.arena.as_ptr().wrapping_add(frame as usize * self.page_bytes)
    }

    /// Takes frames for a folio, charged and known to the engine. Its translation must be busy until the contents are there.
    ///
    /// Reclaims when the budget is used up, and waits for frames when there is nothing to reclaim, but not longer than
    /// the pool's patience; with `wait` false not at all. `Ok(None)`: there is no contiguous room for a large folio.
    ///
    /// # Errors
    /// [`Error::OutOfBudget`].
    pub(crate) fn allocate(&self, new: &NewFolio, wait: bool) -> Result<Option<u32>, Error> {
        let pages = 1 << new.order;
        let mut deadline = None;
        let mut state = self.lock();
        loop {
            let mut charge = Charge::new(MemcgId::ROOT, pages);
            let mut reclaimed = None;
            loop {
                match charge.next(&mut state.engine, new.task, reclaimed) {
                    Next::Charged { .. } => {
                        let Some(frame) = state.frames.alloc(new.order) else {
                            state.engine.uncharge(MemcgId::ROOT, pages);
                            return Ok(None);
                        };
                        self.insert(&mut state, frame, new);
                        if u64::from(state.frames.free_frames()) < self.watermarks.low {
                            self.kswapd.notify_one();
                        }
                        return Ok(Some(frame));
                    }
                    Next::Reclaim(reclaim) => {
                        let result;
                        (state, result) = self.reclaim(state, *reclaim);
                        reclaimed = Some(result);
                    }
                    Next::Failed { .. } => break,
                    Next::Gone => unreachable!("the root is never removed"),
                }
            }
            // Everything is held, in flight, dirty or being written. Others will let go of some of it.
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.patience);
            if !wait || Instant::now() >= deadline {
                return Err(self.out_of_budget(&state));
            }
            if state.engine.dirty() > 0 {
                drop(state);
                self.write_back_some();
                state = self.lock();
            }
            (state, _) = self
                .freed
                .wait_timeout(state, Duration::from_millis(1))
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    fn insert(&self, state: &mut State, frame: u32, new: &NewFolio) {
        state.engine.count_fault(MemcgId::ROOT, true);
        let shadow = lowtide_core::Shadow::from_bits(new.shadow);
        state.engine.insert(
            FolioId(frame),
            new.owner,
            new.order,
            LruType::File,
            MemcgId::ROOT,
            shadow,
            new.task,
        );
    }

    fn out_of_budget(&self, state: &State) -> Error {
        let stat = state.engine.stat(MemcgId::ROOT);
        Error::OutOfBudget {
            max_bytes: stat.max << self.page_shift,
            dirty: stat.file_dirty + stat.file_writeback,
        }
    }

    /// Gives back the frames of a folio that was allocated and not filled.
    pub(crate) fn give_back(&self, frame: u32, order: u8) {
        let mut state = self.lock();
        let removed = state.engine.remove(FolioId(frame));
        // Isolation never outlasts a hold of the lock (see `reclaim.rs`), so nobody else can have it.
        assert!(removed, "folio {frame} is isolated outside of the pool's lock");
        state.frames.free(frame, order);
        self.freed.notify_all();
    }

    /// Tells the background threads to end.
    pub(crate) fn close(&self) {
        self.closing.store(true, Relaxed);
        // Under the lock, so that nobody is between looking at the flag and waiting.
        let _state = self.lock();
        self.kswapd.notify_all();
        self.flusher.ring();
    }
}
