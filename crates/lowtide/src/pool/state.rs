//! The pool: the arena of frames, the engine that decides about them, and the lock around it.
//!
//! A *frame* is a piece of the arena as large as a base page; the arena has exactly as many as the
//! budget. Each is in one of four states: free (in the buddy allocator), in flight (charged, its
//! translation busy), resident (a translation leads to it), or being evicted or written to by a
//! store (its translation is locked). Charged frames and free frames always add up to the frames
//! there are.
//!
//! There is one lock, [`Pool::lock`], and it protects the engine and the allocator: it plays the
//! part of the kernel's lruvec lock. A hit does not take it; a miss takes it once before its read,
//! for a few hundred nanoseconds.
//!
//! Lock order: [`Pool::opening`], then the pool's lock, then a wait bucket, a device's queue or a
//! space's ledger. Nothing is awaited under the pool's lock but its own condition variables.

use super::arena::Arena;
use super::auto::{Auto, pages_to_keep};
use super::frames::Frames;
use super::lock::TimedGuard;
use super::miss_clock::MissClock;
use super::resident::Resident;
use super::sample::SampleMarks;
use super::wakeup::Wakeup;
use crate::ahead::marks::Unused;
use crate::anon::Void;
use crate::config::PagerBuilder;
use crate::error::{BuildError, Error};
use crate::fault::late_reads::LateReads;
use crate::fault::wait::WaitTable;
use crate::map::{Exchange, PageTables};
use crate::space::Space;
use crate::space::backing::{FileKey, NewName};
use crate::stat::IoCounters;
use crate::swap::{Backing, Limits, Swaps};
use crate::tenant::{Names, Reservations};
use crate::warm::known::Warm;
use crate::writeback::Devices;
use crate::zcache::{ZcacheSize, Zcaches};
use lowtide_core::reuse::Reuse;
use lowtide_core::{
    AccessCounts, Dirtier, Engine, EngineConfig, FolioId, MemcgId, Size, SpaceId, Swap,
};
use lowtide_io::{Backend, FaultSites, Numbers, Options};
use lowtide_pin::translation::State as EntryState;
use lowtide_swap::SwapFile;
use lowtide_sys::memcg::Limit;
use lowtide_sys::memory::Mapping;
use lowtide_sys::tell;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Frames that a translation can name.
const FRAMES_MAX: u64 = lowtide_pin::translation::FRAMES_MAX as u64;
/// Below this budget there is no background reclaim: the watermarks would be a visible part of it.
const BACKGROUND_MIN_FRAMES: u64 = 2048;

/// What ended threads had not answered for. Others will.
pub(crate) type DirtiersLeft = Mutex<Vec<Dirtier>>;

/// The pool's lock, held.
pub(crate) type StateGuard<'a> = TimedGuard<'a, State>;

/// Gives up the pages of a region that is closed; whether reclaim has none of them any more.
pub(crate) type EndOfRegion = fn(&Pool, &Arc<Space>) -> bool;

/// What the pool's lock protects.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) frames: Frames,
    pub(crate) resident: Resident,
    /// Open spaces by number, for the way from a folio to its translations.
    pub(crate) spaces: Vec<Option<Arc<Space>>>,
    /// Regions that were closed while reclaim had pages of them, and how each ends.
    pub(crate) orphans: Vec<(Arc<Space>, EndOfRegion)>,
    /// The numbers of the spaces of each file.
    files: HashMap<FileKey, Vec<SpaceId>>,
    /// The names of tenants.
    pub(crate) names: Names,
    /// The tenants that pay for the program's own memory.
    pub(crate) reservations: Reservations,
    /// The stores of compressed pages.
    pub(crate) swaps: Swaps,
    /// The stores of clean pages of files.
    pub(crate) zcaches: Zcaches,
    /// Tenants whose budget is divided among those below by benefit.
    pub(crate) by_benefit: BTreeSet<MemcgId>,
    /// How pages are used again.
    pub(crate) reuse: Reuse,
    /// The limits that set themselves.
    pub(crate) autos: HashMap<MemcgId, Auto>,
}

impl State {
    /// That of a pool without spaces and tenants, whose swaps take at most `swap_frames`.
    fn new(engine: Engine, resident: Resident, frames: u32, swap_frames: u64) -> Self {
        Self {
            engine,
            frames: Frames::new(frames),
            resident,
            spaces: Vec::new(),
            orphans: Vec::new(),
            files: HashMap::new(),
            names: Names::default(),
            reservations: Reservations::default(),
            swaps: Swaps::new(swap_frames),
            zcaches: Zcaches::default(),
            by_benefit: BTreeSet::new(),
            reuse: Reuse::default(),
            autos: HashMap::new(),
        }
    }

    /// Keeps a new space under its number.
    pub(crate) fn add_space(&mut self, space: &Arc<Space>) {
        let index = space.id.0 as usize;
        if self.spaces.len() <= index {
            self.spaces.resize(index + 1, None);
        }
        let before = self.spaces[index].replace(Arc::clone(space));
        assert!(before.is_none(), "{:?} is two files", space.id);
        self.files.entry(space.backing.key()).or_default().push(space.id);
    }

    /// Drops a space that has no pages, if it is still there.
    pub(crate) fn remove_space(&mut self, space: &Arc<Space>) {
        let place = &mut self.spaces[space.id.0 as usize];
        if place.as_ref().is_none_or(|there| !Arc::ptr_eq(there, space)) {
            return;
        }
        assert!(space.is_closed(), "{space:?} is dropped while it is in use");
        *place = None;
        self.engine.remove_space(space.id);
        self.reuse.forget_space(space.id);
        let key = space.backing.key();
        let of_file = self.files.get_mut(&key).expect("each space is among those of its file");
        of_file.retain(|id| *id != space.id);
        if of_file.is_empty() {
            self.files.remove(&key);
        }
    }

    /// The spaces of a file.
    pub(crate) fn spaces_of(&self, key: FileKey) -> impl Iterator<Item = &Arc<Space>> + Clone {
        let numbers = self.files.get(&key).map(Vec::as_slice).unwrap_or_default();
        numbers.iter().filter_map(|id| self.spaces[id.0 as usize].as_ref())
    }

    /// The folio of a page that is in memory, resident or locked by a store. The caller has looked
    /// at its translation since it took the pool's lock, so the two belong together.
    ///
    /// # Panics
    /// When they do not: then two pages share a frame.
    pub(crate) fn folio_of(&self, space: &Space, page: u64, frame: u32) -> FolioId {
        let id = self
            .engine
            .folio_of(FolioId(frame))
            .expect("the frame of a page in memory has a folio");
        let folio = self.engine.folio(id).expect("a folio that has frames exists");
        let (owner, pages) = (folio.owner(), 1 << folio.order());
        assert!(
            owner.space == space.id && (owner.page..owner.page + pages).contains(&page),
            "page {page} of {:?} is in frame {frame}, which belongs to {owner:?}",
            space.id
        );
        id
    }

    /// Takes a folio out of the engine and gives its frames back. The caller has made sure that no
    /// translation leads to it: the frames may be another folio's as soon as the lock is released.
    pub(crate) fn free_folio(&mut self, id: FolioId, order: u8) {
        let owner = self.engine.folio(id).map(lowtide_core::Folio::owner);
        let entry =
            owner.and_then(|at| self.spaces[at.space.0 as usize].as_ref()?.table.get(at.page));
        assert!(
            !entry.is_some_and(|entry| leads_to(entry.load(), id.0)),
            "{id:?} is given up while {owner:?} leads to it"
        );
        let removed = self.engine.remove(id);
        // Isolation never outlasts an acquisition of the lock (see `reclaim.rs`), so no other
        // thread can have it.
        assert!(removed, "{id:?} is isolated outside of the pool's lock");
        if let Some(at) = owner
            && let Some(mapped) =
                &self.spaces[at.space.0 as usize].as_ref().and_then(|s| s.mapped.as_ref())
        {
            mapped.release(at.page..at.page + (1 << order));
        }
        if let Some(at) = owner {
            self.reuse.forget(at.space, at.page..at.page + (1 << order));
        }
        self.frames.free(id.0, order);
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Itself, for what outlives an operation.
    pub(crate) me: Weak<Self>,
    /// No other pool of this process has it.
    pub(crate) number: u64,
    pub(crate) page_shift: u32,
    page_bytes: usize,
    /// Frames of the arena.
    pub(crate) frames: u32,
    state: Mutex<State>,
    /// For how long it is locked.
    pub(crate) miss_clock: MissClock,
    /// Frames came free.
    pub(crate) freed: Wakeup,
    /// Background reclaim is wanted.
    pub(crate) kswapd: Wakeup,
    /// Threads that sleep for a limit may look again.
    pub(crate) throttled: Condvar,
    /// One thread opens a file, or closes one for good, at a time. Taken before the pool's
    /// lock.
    pub(crate) opening: Mutex<()>,
    /// One thread ends closed regions at a time. Taken before the pool's lock.
    pub(crate) ending: Mutex<()>,
    /// How much memory clean pages of files may take compressed.
    pub(crate) zcache_size: ZcacheSize,
    /// Evicted anonymous pages go somewhere.
    pub(crate) has_swap: bool,
    /// Where those go that do not compress, or were not used for long.
    pub(crate) swap_file: Option<Arc<SwapFile<Backing>>>,
    /// One thread makes a tenant's store at a time. Taken before the pool's lock.
    pub(crate) making_swap: Mutex<()>,
    /// Names that this pager gave to files that are closed, and that could not be made durable.
    pub(crate) new_names: Mutex<HashMap<FileKey, NewName>>,
    /// What is read again when the program starts again.
    pub(crate) warm: Warm,
    pub(crate) devices: Devices,
    /// The debts of threads that made pages dirty and ended.
    pub(crate) dirtiers_left: Arc<DirtiersLeft>,
    pub(crate) accesses: Arc<AccessCounts>,
    pub(crate) backend: Backend,
    /// Those of the process, from the first map on.
    pub(crate) page_tables: OnceLock<PageTables>,
    /// How processes under one budget hear what each has of files.
    pub(crate) exchange: OnceLock<Exchange>,
    pub(crate) fault_sites: Arc<FaultSites>,
    pub(crate) waits: WaitTable,
    pub(crate) io: IoCounters,
    pub(crate) unused: Unused,
    /// Frames whose pages are in the sample of accesses.
    pub(crate) sample_marks: SampleMarks,
    /// Slots that reclaim has taken from pages in memory.
    pub(crate) void: Void,
    /// Reads that were not waited for.
    pub(crate) late: LateReads,
    pub(crate) memory_timeout: Duration,
    /// How long a thread waits for writes.
    pub(crate) io_timeout: Duration,
    /// How long it waits for a read of a file, if not forever.
    pub(crate) read_timeout: Option<Duration>,
    pub(crate) background: bool,
    pub(crate) young_faults: bool,
    pub(crate) io_mode: crate::config::IoMode,
    pub(crate) closing: AtomicBool,
    born: Instant,
    /// Last, so that it outlives the backend, which may have registered it with the kernel.
    arena: Arena,
}

/// How many pools there were in this process.
static POOLS: AtomicU64 = AtomicU64::new(0);

/// Pages that are not charged at which background reclaim starts and stops.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watermarks {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// Whether a translation leads to a frame.
fn leads_to(seen: EntryState, to: u32) -> bool {
    match seen {
        EntryState::Resident { frame, .. } | EntryState::Locked { frame, .. } => frame == to,
        EntryState::Absent { .. } | EntryState::Busy => false,
    }
}

/// The frames of a budget.
fn frames_of(config: &PagerBuilder) -> Result<u32, BuildError> {
    let page_bytes = config.page_bytes;
    if !page_bytes.is_power_of_two() || !crate::config::PAGE_BYTES.contains(&page_bytes) {
        return Err(BuildError::PageSize { bytes: page_bytes });
    }
    let max_bytes = config.max.ok_or(BuildError::NoBudget)?.bytes();
    let frames = max_bytes / page_bytes as u64;
    if frames >= FRAMES_MAX {
        let limit_bytes = (FRAMES_MAX - 1) * page_bytes as u64;
        return Err(BuildError::BudgetTooLarge { max_bytes, page_bytes, limit_bytes });
    }
    Ok(frames as u32)
}

/// An engine for as many frames.
fn engine_of(config: &PagerBuilder, frames: u32) -> Result<Engine, BuildError> {
    let page_bytes = config.page_bytes;
    let mut engine = Engine::new(&EngineConfig {
        frames,
        max: u64::from(frames),
        page_bytes: page_bytes as u64,
        policy: config.policy,
        cpus: 1,
    })
    .map_err(|e| BuildError::from_config(e, config.max.map_or(0, Size::bytes), page_bytes))?;
    engine.set_exact_dirty(true);
    engine.set_dirty_limits(MemcgId::ROOT, config.dirty_limits)?;
    engine.set_dirty_timers(config.dirty_timers)?;
    if let Some(swap) = &config.swap {
        if page_bytes != lowtide_swap::PAGE_BYTES {
            return Err(BuildError::Swap { page_bytes });
        }
        let slots = swap.slots(page_bytes.trailing_zeros());
        let swap = Swap { pages: slots, synchronous: true };
        engine.set_swap(swap).expect("nothing is in swap yet");
        // A page that comes back when swap is nearly full needs another to go, or its thread is
        // killed.
        engine.spare_swap(1);
    }
    Ok(engine)
}

/// The memory of as many frames, if the process may have it.
fn arena_of(config: &PagerBuilder, frames: u32) -> Result<Arena, BuildError> {
    let bytes = frames as usize * config.page_bytes;
    check_limit(bytes as u64, lowtide_sys::memcg::own_limit())?;
    let memory = |source| BuildError::Memory { bytes: bytes as u64, source };
    let arena = Arena::new(bytes);
    if config.populate {
        arena.populate(0..bytes).map_err(memory)?;
    } else {
        // A sandbox that refuses what addresses need is known now, and not at the first fault.
        Mapping::reserve(1).map_err(memory)?;
    }
    Ok(arena)
}

impl Pool {
    pub(crate) fn new(config: &PagerBuilder) -> Result<Arc<Self>, BuildError> {
        let (page_bytes, page_shift) = (config.page_bytes, config.page_bytes.trailing_zeros());
        let frames = frames_of(config)?;
        let engine = engine_of(config, frames)?;
        let limit = config.swap.as_ref().map_or(0, |swap| swap.frames(page_shift));
        let file = config.swap.as_ref().and_then(|swap| swap.file_slots(page_shift));
        let read = config.read_timeout.unwrap_or(Duration::MAX);
        let limits = Limits { write: config.io_timeout, read };
        let numbers = Numbers::default();
        let inject = config.inject.as_ref().map(|inject| (Arc::clone(inject), numbers.clone()));
        let make = |(dir, slots)| crate::swap::create(dir, slots, limits, inject.clone());
        let swap_file = file.map(make).transpose()?;
        let arena = arena_of(config, frames)?;
        lowtide_sys::membarrier::register();
        // Registering pins, and so takes, all of it.
        // SAFETY: fields drop in the order of their declaration, and `arena` is declared last; no
        // part of it is ever unmapped or moved before. Nothing of it is discarded either: it is
        // populated, and pinned (`resident.rs`).
        #[expect(unsafe_code, reason = "promised where the arena is made")]
        let register = || unsafe { lowtide_io::Arena::new(arena.at(0), arena.len()) };
        let fault_sites = Arc::<FaultSites>::default();
        let backend = Backend::open(Options {
            engine: config.io_engine,
            depth: config.depth,
            arena: config.populate.then(register),
            inject: config.inject.clone(),
            sites: Arc::clone(&fault_sites),
            numbers,
        })?;
        let accesses = engine.accesses();
        let resident = Resident::new(&arena, page_bytes, config.populate);
        let mut state = State::new(engine, resident, frames, limit);
        if config.zcache != ZcacheSize::None {
            state.zcaches = Zcaches::new(frames);
        }
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            number: POOLS.fetch_add(1, Relaxed),
            page_shift,
            page_bytes,
            frames,
            accesses,
            miss_clock: MissClock::default(),
            state: Mutex::new(state),
            freed: Wakeup::default(),
            kswapd: Wakeup::default(),
            throttled: Condvar::new(),
            opening: Mutex::new(()),
            ending: Mutex::new(()),
            zcache_size: config.zcache,
            has_swap: config.swap.is_some(),
            swap_file,
            making_swap: Mutex::new(()),
            new_names: Mutex::default(),
            warm: Warm::begin(config.warm.as_deref(), page_bytes as u64),
            devices: Devices::default(),
            dirtiers_left: Arc::default(),
            backend,
            page_tables: OnceLock::new(),
            exchange: OnceLock::new(),
            fault_sites,
            waits: WaitTable::new(),
            io: IoCounters::default(),
            unused: Unused::new(frames),
            sample_marks: SampleMarks::new(frames),
            void: Void::default(),
            late: LateReads::default(),
            memory_timeout: config.memory_timeout,
            io_timeout: config.io_timeout,
            read_timeout: config.read_timeout,
            background: config.background,
            young_faults: config.young_faults,
            io_mode: config.io_mode,
            closing: AtomicBool::new(false),
            born: Instant::now(),
            arena,
        }))
    }

    /// Locks what the pool shares, also when it [is poisoned](Pool::is_poisoned): a caller that
    /// changes something checks that, or calls [`lock_sound`](Pool::lock_sound).
    pub(crate) fn lock(&self) -> StateGuard<'_> {
        TimedGuard::lock(&self.state, &self.miss_clock.lock)
    }

    /// As [`lock`](Pool::lock), for what must not begin after a defect.
    pub(crate) fn lock_sound(&self) -> Result<StateGuard<'_>, Error> {
        let state = self.lock();
        self.check().map(|()| state)
    }

    /// Whether a thread has panicked while it had the lock (`poison.rs`).
    pub(crate) fn is_poisoned(&self) -> bool {
        self.state.is_poisoned()
    }

    /// Refuses to begin anything after a defect.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_poisoned() { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// Nanoseconds since the pool was made: the engine's time.
    pub(crate) fn now(&self) -> u64 {
        self.born.elapsed().as_nanos() as u64
    }

    #[inline]
    pub(crate) const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Bytes of all frames: the budget that the pager was built with.
    pub(crate) fn budget_bytes(&self) -> u64 {
        u64::from(self.frames) << self.page_shift
    }

    /// Bytes of all tables that depend on the budget only.
    pub(crate) fn table_bytes(&self, state: &State) -> usize {
        let State { engine, frames, .. } = state;
        engine.metadata_bytes() + frames.metadata_bytes() + self.sample_marks.bytes()
    }

    pub(crate) fn huge_bytes(&self) -> usize {
        self.arena.huge_bytes()
    }

    /// Address of the first frame; null where there are no addresses for them.
    pub(crate) fn frames_base(&self) -> *mut u8 {
        self.arena.base()
    }

    /// Address of a frame.
    #[inline]
    pub(crate) fn frame_ptr(&self, frame: u32) -> *mut u8 {
        // A product, not a shift: on x86 a shift by a variable is three operations, and hits count
        // them.
        self.arena.at(frame as usize * self.page_bytes)
    }

    /// The bytes of a frame that the caller has pinned, by a slot or because it is in no
    /// translation yet.
    pub(crate) fn bytes(&self, frame: u32) -> &[u8] {
        // SAFETY: every caller has a hazard slot on the frame's translation for as long as it uses
        // the slice (see `Page`), so no thread writes to it.
        #[expect(unsafe_code, reason = "this is where a frame becomes a slice")]
        unsafe {
            std::slice::from_raw_parts(self.frame_ptr(frame), self.page_bytes())
        }
    }

    /// The watermarks of the budget as it is now: of the limit of the root, less what is reserved.
    pub(crate) fn watermarks(&self, state: &State) -> Watermarks {
        let pages = state.engine.max(MemcgId::ROOT).saturating_sub(state.reservations.pages());
        let low = if self.background && pages >= BACKGROUND_MIN_FRAMES { pages / 256 } else { 0 };
        Watermarks { low, high: 2 * low }
    }

    /// Takes free frames for pages of a file. Those that a program reaches through a pointer have
    /// memory of their own, so their frames are to have none; the others get some.
    pub(crate) fn take_frames(&self, state: &mut State, space: &Space, order: u8) -> Option<u32> {
        if space.mapped.is_none() {
            return self.take_arena_frames(state, order);
        }
        let frame = state.frames.alloc(order)?;
        let outcome = state.resident.unback(&self.arena, frame, order);
        Self::taken(state, frame, order, outcome)
    }

    /// Gives the memory behind a frame back, which is to stand for memory elsewhere.
    pub(crate) fn unback(&self, state: &mut State, frame: u32) {
        if let Err(error) = state.resident.unback(&self.arena, frame, 0) {
            tell!(error, %error, "a page of a heap has memory twice");
        }
    }

    /// Takes free frames that have memory of the arena.
    pub(crate) fn take_arena_frames(&self, state: &mut State, order: u8) -> Option<u32> {
        let frame = state.frames.alloc(order)?;
        let whole = state.engine.max(MemcgId::ROOT) >= u64::from(self.frames);
        let outcome = state.resident.back(&self.arena, frame, order, whole);
        Self::taken(state, frame, order, outcome)
    }

    /// The frames that were taken, unless the system refuses the memory behind them.
    fn taken(
        state: &mut State,
        frame: u32,
        order: u8,
        outcome: std::io::Result<()>,
    ) -> Option<u32> {
        match outcome {
            Ok(()) => Some(frame),
            Err(error) => {
                state.frames.free(frame, order);
                state.resident.refused = Some(error);
                None
            }
        }
    }

    /// From now on frames get the memory that they need and no more, so that all of it can go back,
    /// but for some pages that never do.
    pub(crate) fn be_frugal(&self, state: &mut State, kept: u64) {
        if let Err(error) = state.resident.be_frugal(&self.arena, kept << self.page_shift) {
            tell!(warn, %error, "memory goes back in huge pages, and later");
        }
    }

    /// Gives memory that the budget does not allow any more back to the system; where limits set
    /// themselves, also what no page needs.
    pub(crate) fn trim<'a>(&'a self, mut state: StateGuard<'a>) -> StateGuard<'a> {
        loop {
            let max = state.engine.max(MemcgId::ROOT);
            let keep = match state.autos.is_empty() {
                true => max,
                false => max.min(pages_to_keep(&state.engine, self.page_shift)),
            };
            let budget = keep.saturating_sub(state.reservations.pages());
            if budget >= u64::from(self.frames) {
                return state;
            }
            let State { resident, frames, .. } = &mut *state;
            if !resident.trim(&self.arena, frames, budget << self.page_shift) {
                return state;
            }
            drop(state);
            state = self.lock();
        }
    }

    /// Makes the background threads end.
    pub(crate) fn close(&self) {
        self.closing.store(true, Relaxed);
        // Under the lock, so that no thread is between looking at the flag and waiting.
        let _state = self.lock();
        self.kswapd.wake_all();
        self.throttled.notify_all();
    }
}
/// Refuses a budget that the kernel would kill this process for.
fn check_limit(max_bytes: u64, limit: Option<Limit>) -> Result<(), BuildError> {
    match limit {
        Some(Limit { bytes: limit_bytes, group }) if max_bytes > limit_bytes => {
            Err(BuildError::AboveLimit { max_bytes, limit_bytes, group })
        }
        _ => Ok(()),
    }
}

/// Ends the regions that wait for what this thread has owned of them: called when it owns nothing
/// any more, and has the pool's lock, which is given back meanwhile if there are such regions.
pub(crate) fn end_orphans<'a>(pool: &'a Pool, state: StateGuard<'a>) -> StateGuard<'a> {
    if state.orphans.is_empty() {
        return state;
    }
    let orphans = state.orphans.clone();
    drop(state);
    for (space, end) in &orphans {
        end(pool, space);
    }
    pool.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_above_the_limit_of_the_memory_cgroup_is_refused_with_both_numbers() {
        let limit = || Some(Limit { bytes: 64 << 20, group: "/group".into() });
        check_limit(64 << 20, limit()).unwrap();
        check_limit(u64::MAX, None).unwrap();
        let error = check_limit((64 << 20) + 1, limit()).unwrap_err().to_string();
        let named = ["67108865", "67108864", "/group"].iter().all(|part| error.contains(part));
        assert!(named, "{error}");
    }
}
