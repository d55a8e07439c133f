//! Accesses through a mapping.
//!
//! ```text
//!   translation allows it ─────────────────────────────────────► young bit, done
//!   otherwise: fault, under the mapping's own lock
//!     cached, arrived ─► map it and up to 15 cached neighbours ► done   (minor)
//!     with the mark ───► release the lock, read ahead, fault again
//!                        under the address space's lock                 (retry)
//!     on its way ──────► release the lock, wait, fault again            (retry)
//!                        under the address space's lock
//!     absent ──────────► start the read, release the lock, wait,
//!                        fault again                                    (major, retry)
//!     a heap's page ───► as in `swap.rs` ──────────────────────► done   (minor; major
//!                                                                        from swap)
//! ```
//!
//! The first attempt takes the lock of the mapping alone. If that is held for writing, or if the
//! fault has to be repeated, the fault takes the lock of the whole address space for reading.
//!
//! A page with the mark of read-ahead is left out when a fault maps cached neighbours: it is to
//! fault when it is touched, and so start the next window in time. Sources:
//! `docs/kernel/fault-and-writeback.md` A1-A6, A9.

use super::ctx::Ctx;
use super::ended::MachineError;
use super::files::{FileId, OpenId};
use super::lock::RwSemId;
use super::readahead::Window;
use super::window::{count_use, marked_window, read_window};
use super::world::{Mapping, MappingId, World};
use crate::memory::ObjectId;
use crate::pool::Pool;
use lowtide_core::{Flags, FolioId, LruType, MemcgId, SpaceId};

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
        let object = self.pool.memory.add_object(&mut self.pool.engine, LruType::Anon, into.memcg);
        self.add_mapping(into, object, pages, None)
    }

    /// Advises that a mapping is accessed at random, as `MADV_RANDOM` does: misses read only their
    /// page, and accesses do not count (`docs/kernel/reclaim.md` §1.3, 2.3).
    pub(crate) fn advise_mapping_random(&mut self, mapping: MappingId) {
        let vma = self.mappings[mapping.0 as usize].vma;
        self.pool.memory.vmas[vma.0 as usize].recency = false;
    }

    /// Whether accesses through a mapping count.
    fn has_recency(&self, mapping: Mapping) -> bool {
        self.pool.memory.vmas[mapping.vma.0 as usize].recency
    }

    /// A fault has found a page in the cache. If the page has the mark of read-ahead: the window to
    /// read, as far as something of it is missing.
    fn mark_touched(
        &mut self,
        mapping: Mapping,
        open: OpenId,
        object: ObjectId,
        page: u64,
    ) -> Option<Window> {
        let frame = self.pool.frame(object, page)?;
        if !self.has_recency(mapping) || !self.pool.engine.take_readahead(frame) {
            return None;
        }
        // A fault asks for one page, but what follows a mark is read in windows.
        marked_window(self, open, object, page, self.readahead_pages)
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

    /// Pages that have arrived, are not mapped, and are not of the workingset.
    fn fresh_unmapped(
        &self,
        mapping: Mapping,
        object: ObjectId,
        span: std::ops::Range<u64>,
    ) -> u32 {
        let vma = &self.pool.memory.vmas[mapping.vma.0 as usize];
        let fresh = |frame: FolioId| {
            let folio = self.pool.engine.folio(frame);
            !self.is_locked(frame)
                && folio.is_some_and(|folio| !folio.flags().contains(Flags::WORKINGSET))
        };
        span.filter(|&p| !vma.ptes.get(p).present && self.pool.frame(object, p).is_some_and(fresh))
            .count() as u32
    }

    /// Maps a page and, after a read fault of a file, its cached neighbours; `found` says whether
    /// the page was there at once. Returns how many neighbours.
    fn map_around(&mut self, mapping: Mapping, page: u64, store: bool, found: bool) -> u64 {
        let object = self.pool.memory.vmas[mapping.vma.0 as usize].object;
        let around = self.fault_around_pages.max(1);
        let first = page / around * around;
        let mut end = first + around;
        if let Some(open) = mapping.open {
            let counts = self.opens[open.0 as usize].readahead.counts_pages();
            let span = if store { page..page + 1 } else { first..first + around };
            let fresh = if counts { self.fresh_unmapped(mapping, object, span) } else { 0 };
            self.opens[open.0 as usize].readahead.fault_mapped(found, fresh);
            let file = self.opens[open.0 as usize].file;
            end = end.min(self.file(file).pages);
        }
        let Pool { memory, engine, .. } = &mut self.pool;
        memory.map(mapping.vma, page, store);
        if store || mapping.open.is_none() {
            return 0;
        }
        memory.map_around(mapping.vma, page, (first, end), |frame| !engine.has_readahead(frame))
    }
}

/// How an attempt ended.
enum Attempt {
    Mapped,
    /// The same, and the task must answer for what it has dirtied of a file.
    Owes(FileId),
    /// The same, with a page that came from swap.
    SwappedIn,
    /// The page is on its way.
    Wait,
    /// The page is there and has the mark: this window comes first.
    ReadAhead(FileId, Window),
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
        let touch = self.w().costs.touch_ns;
        for page in first..first + pages {
            self.touch(id, page, store, touch).await?;
        }
        Ok(())
    }

    /// Accesses a page, which costs `touch` nanoseconds besides the fault that it may take.
    async fn touch(
        &self,
        id: MappingId,
        page: u64,
        store: bool,
        touch: u64,
    ) -> Result<(), MachineError> {
        let hit = {
            let mut guard = self.w();
            let world = &mut *guard;
            world.counts.accesses += 1;
            let vma = world.mappings[id.0 as usize].vma;
            let hit = world.pool.memory.vmas[vma.0 as usize].touch(page, store);
            if hit {
                world.watched_touch(vma, page, store);
            }
            hit
        };
        if !hit {
            self.fault(id, page, store).await?;
            self.settle_limits().await;
        }
        self.spend(touch).await;
        Ok(())
    }

    /// Accesses pages of a mapping one after the other, as a program does that reads memory from
    /// start to end. Mapped pages are touched many at a time, but no more than until the task's
    /// debt is due: so the result is the same as of single accesses, to the nanosecond, and others
    /// run in between as often.
    pub(crate) async fn sweep(
        &self,
        id: MappingId,
        first: u64,
        pages: u64,
        store: bool,
    ) -> Result<(), MachineError> {
        let touch = self.w().costs.touch_sequential_ns;
        let end = first + pages;
        let mut page = first;
        while page < end {
            let touched = {
                let mut guard = self.w();
                let world = &mut *guard;
                let vma = world.mappings[id.0 as usize].vma;
                let due = world.sched.spends_until_due(self.id, touch);
                let touched =
                    world.pool.memory.vmas[vma.0 as usize].sweep(page, due.min(end - page), store);
                world.counts.accesses += touched;
                (page..page + touched).for_each(|page| world.watched_touch(vma, page, store));
                touched
            };
            if touched == 0 {
                self.touch(id, page, store, touch).await?;
                page += 1;
            } else {
                self.spend(touched * touch).await;
                page += touched;
            }
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
        // A kernel's fault may release each of its two locks once, and then never again.
        let mut windows = 0;
        let major = loop {
            let own = !repeated
                && windows == 0
                && self.w().rwsems[mapping.vma_lock.0 as usize].try_take(false);
            let lock = if own { mapping.vma_lock } else { mapping.mmap_lock };
            if !own {
                self.take(lock, false).await;
            }
            let attempt =
                self.attempt(mapping, page, store, failures, windows < 2, &mut repeated).await;
            self.w().release(lock, false);
            match attempt? {
                Attempt::Mapped => break repeated,
                Attempt::Owes(file) => {
                    self.w().let_go(self.id);
                    self.balance_dirty(file).await;
                    break repeated;
                }
                Attempt::SwappedIn => break true,
                Attempt::Wait => {
                    let object = {
                        let mut world = self.w();
                        world.counts.retry_mmap_drop += u64::from(own);
                        world.pool.memory.vmas[mapping.vma.0 as usize].object
                    };
                    self.wait_page(object, page).await;
                }
                Attempt::ReadAhead(file, window) => {
                    windows += 1;
                    {
                        let mut world = self.w();
                        world.counts.retry_mmap_drop += u64::from(own);
                        let object = world.pool.memory.vmas[mapping.vma.0 as usize].object;
                        world.hold(self.id, object, page);
                    }
                    read_window(self, file, window, None, page..page + 1, true).await?;
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
        may_read_ahead: bool,
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
        if page >= self.w().file(file).pages {
            return Err(MachineError::BeyondEnd { at_ns: self.now() });
        }
        if frame.is_some() && may_read_ahead && !*repeated {
            let window = self.w().mark_touched(mapping, open, object, page);
            if let Some(window) = window {
                return Ok(Attempt::ReadAhead(file, window));
            }
        }
        match frame {
            Some(frame) if self.w().is_locked(frame) => {
                *repeated = true;
                Ok(Attempt::Wait)
            }
            Some(_) => {
                let (cost, owes) = {
                    let mut guard = self.w();
                    let world = &mut *guard;
                    // The page may have gone while this task was spending.
                    let Some(frame) = world.pool.frame(object, page) else {
                        return Ok(Attempt::Wait);
                    };
                    if world.is_locked(frame) {
                        return Ok(Attempt::Wait);
                    }
                    count_use(world, frame, page);
                    let owes = store && world.set_dirty(self.id, file, page, frame);
                    let neighbours = world.map_around(mapping, page, store, !*repeated);
                    world.watched_touch(mapping.vma, page, store);
                    let cost = if neighbours > 0 {
                        world.costs.fault_around_ns
                            - world.costs.minor_fault_ns.min(world.costs.fault_around_ns)
                    } else {
                        0
                    };
                    (cost, owes)
                };
                self.spend(cost).await;
                Ok(if owes { Attempt::Owes(file) } else { Attempt::Mapped })
            }
            None => {
                let (window, recency, cost) = {
                    let mut world = self.w();
                    if world.file(file).failed_since(page, failures) {
                        let at_ns = world.sched.local(self.id);
                        return Err(MachineError::Io { at_ns });
                    }
                    world.hold(self.id, object, page);
                    world.counts.retry_io_miss += u64::from(*repeated);
                    world.counts.major += u64::from(!*repeated);
                    let recency = world.has_recency(mapping);
                    let window = if recency {
                        world.opens[open.0 as usize].readahead.fault_missed(page)
                    } else {
                        Window::page(page)
                    };
                    (window, recency, world.costs.major_fault_cpu_ns)
                };
                self.spend(cost).await;
                *repeated = true;
                read_window(self, file, window, Some(page), page..page + 1, recency).await?;
                Ok(Attempt::Wait)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, MachineConfig, MachineStat};
    use super::*;
    use crate::spec::MachineSpec;
    use lowtide_core::Policy;
    use std::sync::atomic::AtomicBool;

    const PAGES: u64 = 4_000;

    /// A machine with a group of `room` pages, and a mapping of a file of `PAGES` in it.
    fn mapped(spec: MachineSpec, policy: Policy, room: u64) -> (Machine, MappingId) {
        let config = MachineConfig { spec, policy, max: Some(room * 4096), seed: 1 };
        let m = Machine::new(&config).unwrap();
        let mapping = {
            let mut world = m.world();
            let file = world.add_file(PAGES);
            let space = world.add_address_space(MemcgId::ROOT);
            let open = world.open(file);
            world.map_file(space, open)
        };
        (m, mapping)
    }

    fn load(m: &mut Machine, mapping: MappingId, pages: impl IntoIterator<Item = u64> + 'static) {
        m.client(move |ctx| async move {
            for page in pages {
                ctx.access(mapping, page, 1, false).await?;
            }
            Ok(())
        });
        m.run(&AtomicBool::new(false), &mut || ()).unwrap();
    }

    /// A4: neighbours that a fault maps are young on x86 and old on arm64. In both, those with the
    /// mark of read-ahead are left out.
    #[test]
    fn neighbours_are_mapped_young_where_the_processor_is_no_arm() {
        for (machine, young) in [("laptop", true), ("phone", false)] {
            let spec = MachineSpec::load(machine).unwrap();
            let (mut m, mapping) = mapped(spec, Policy::MGLRU, PAGES);
            load(&mut m, mapping, [100]);
            let world = m.world();
            let vma = &world.pool.memory.vmas[world.mappings[mapping.0 as usize].vma.0 as usize];
            let pte = |page: u64| vma.ptes.get(page);
            // Read around 100 are 84 to 115 with a mark at 108, and mapped are 96 to 111.
            assert!(pte(100).young && pte(100).present);
            for page in (96..112).filter(|page| ![100, 108].contains(page)) {
                assert_eq!((pte(page).present, pte(page).young), (true, young), "{machine} {page}");
            }
            assert!([95, 108, 112].iter().all(|&page| !pte(page).present), "{machine}");
        }
    }

    /// A6.3: the first miss of a file that is loaded in order is the last.
    #[test]
    fn a_mark_that_a_load_meets_starts_the_next_window() {
        let (mut m, mapping) = mapped(MachineSpec::load("laptop").unwrap(), Policy::MGLRU, PAGES);
        load(&mut m, mapping, 0..PAGES);
        let counts = m.stat().kernel;
        assert_eq!((counts.major, counts.readahead), (1, PAGES - 1), "{counts:?}");
        assert!(counts.retry_mmap_drop > PAGES / 32, "a lock was released for each: {counts:?}");
    }

    /// `docs/kernel/reclaim.md` §1.3, 2.3: pages of a mapping that is advised to be random leave in
    /// the order in which they came, whatever is loaded in between.
    #[test]
    fn a_mapping_that_is_advised_to_be_random_is_first_in_first_out() {
        const ROOM: u64 = 1_000;
        for policy in [Policy::MGLRU, Policy::MGLRU_7_1, Policy::LRU] {
            let majors = |random: bool| {
                let spec = MachineSpec { readahead: 0, ..MachineSpec::load("laptop").unwrap() };
                let (mut m, mapping) = mapped(spec, policy, ROOM);
                if random {
                    m.world().advise_mapping_random(mapping);
                }
                // One page over and over, and all others once.
                load(&mut m, mapping, (1..PAGES).flat_map(|page| [0, page]));
                let agings = m.stat().memory.events.aging;
                (m.stat().kernel.major - (PAGES - 1), agings)
            };
            let (kept, _) = majors(false);
            assert!(kept <= 2, "{policy}: {kept}, as it is hot");
            let (forgotten, agings) = majors(true);
            let turns = PAGES / ROOM;
            assert!((turns..=turns + 1).contains(&forgotten), "{policy}: {forgotten}");
            assert_eq!(agings, 0, "{policy}: the oldest generation never runs dry");
        }
    }

    /// Four readers of a file, each in its own address space, and two threads that fill a heap,
    /// with room for two thirds. `whole` sweeps, or a page at a time.
    fn readers_and_writers(policy: Policy, whole: bool) -> MachineStat {
        let spec = MachineSpec { cpus: 3, ..MachineSpec::load("ramdisk").unwrap() };
        let config = MachineConfig { spec, policy, max: Some(PAGES * 4096), seed: 1 };
        let mut m = Machine::new(&config).unwrap();
        let (maps, heap) = {
            let mut world = m.world();
            let file = world.add_file(PAGES);
            let spaces: Vec<AddressSpace> =
                (0..5).map(|_| world.add_address_space(MemcgId::ROOT)).collect();
            let maps: Vec<MappingId> = spaces[..4]
                .iter()
                .map(|&space| {
                    let open = world.open(file);
                    world.map_file(space, open)
                })
                .collect();
            let heap = world.map_heap(spaces[4], PAGES / 2);
            (maps, heap)
        };
        let shares = maps.iter().map(|&map| (map, 0, PAGES, false));
        let shares = shares.chain((0..2).map(|i| (heap, i * PAGES / 4, PAGES / 4, true)));
        for (map, first, pages, store) in shares {
            m.client(move |ctx| async move {
                for _ in 0..8 {
                    if whole {
                        ctx.sweep(map, first, pages, store).await?;
                    } else {
                        let touch = ctx.w().costs.touch_sequential_ns;
                        for page in first..first + pages {
                            ctx.touch(map, page, store, touch).await?;
                        }
                    }
                    ctx.sleep(300_000).await;
                }
                Ok(())
            });
        }
        m.run(&AtomicBool::new(false), &mut || ()).unwrap();
        m.stat()
    }

    #[test]
    fn a_sweep_is_what_single_touches_would_be_to_the_nanosecond() {
        for policy in [Policy::MGLRU, Policy::MGLRU_7_1, Policy::LRU] {
            let [sweeps, touches] = [true, false].map(|whole| readers_and_writers(policy, whole));
            assert_eq!(format!("{sweeps:?}"), format!("{touches:?}"), "{policy}");
            assert!(sweeps.memory.events.pgsteal > PAGES && sweeps.switches > 100, "{sweeps:?}");
            assert_eq!(sweeps.kernel.accesses, 8 * (4 * PAGES + PAGES / 2));
        }
    }
}
