//! Accesses through a mapping, and their faults.
//!
//! ```text
//!   translation allows it ─────────────────────────────────────► young bit, done
//!   otherwise an attempt, under the mapping's own lock
//!     fault-around ──► maps the cached pages around; the page is one of them ─► done   (minor)
//!     handler   cached, arrived ───► map it ─────────────────────────────────► done   (minor)
//!               with the mark ─────► read ahead                                       (retry)
//!               on its way ────────► wait                                             (retry)
//!               absent ────────────► read it and its window, wait              (major, retry)
//!     a heap's page ───► as in `swap.rs` ──► done                (minor; major from swap)
//! ```
//!
//! What a retry is depends on the machine's fault path (`docs/design/fault-path.md`). A kernel's
//! gives its lock up before it reads or waits, and the page when that is over: another attempt
//! looks again, under a lock that it may have to wait for. Meanwhile the page may be evicted. The
//! last attempt (`tried`) gives nothing up: it reads and waits with its lock held, so the fault
//! ends. On x86 a fault that waited without reading anything is not at its last attempt yet: its
//! second may give up the mmap lock.
//!
//! An attempt that is to be repeated holds no lock; any other holds the one it began with. Sources:
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
use crate::spec::FaultPath;
use lowtide_core::{Flags, FolioId};
use std::ops::Range;

/// A fault, from its first attempt on.
#[derive(Debug)]
struct Fault {
    mapping: Mapping,
    object: ObjectId,
    page: u64,
    store: bool,
    /// Reads of the file that had failed when it began.
    failures: u64,
    /// It needed I/O.
    major: bool,
    /// This is the last attempt: no lock is given up any more.
    tried: bool,
}

/// The lock of an attempt.
#[derive(Debug)]
struct FaultLock {
    id: RwSemId,
    /// It is the mapping's own.
    own: bool,
    /// It has not been given up.
    held: bool,
}

/// How an attempt ended.
#[derive(Debug)]
enum Attempt {
    Mapped,
    /// The same, and the task must answer for what it has dirtied of a file.
    Owes(FileId),
    /// The same, with a page that came from swap.
    SwappedIn,
    /// The lock has been given up, and there is to be another attempt.
    Retry,
}

/// What a handler finds of its page.
#[derive(Debug)]
enum Found {
    Missing,
    /// It is on its way.
    Arriving,
    /// It is there and has the mark of read-ahead, and this window is to be read.
    Marked(Option<Window>),
    Ready,
}

impl World {
    fn fault(&mut self, id: MappingId, page: u64, store: bool) -> Fault {
        let mapping = self.mappings[id.0 as usize];
        let file = mapping.open.map(|open| self.opens[open.0 as usize].file);
        Fault {
            mapping,
            object: self.mapped_object(id),
            page,
            store,
            failures: file.map_or(0, |file| self.file(file).read_failures),
            major: false,
            tried: false,
        }
    }

    /// Pages that have arrived, are not mapped, and are not of the workingset.
    fn fresh_unmapped(&self, mapping: Mapping, object: ObjectId, span: Range<u64>) -> u32 {
        let vma = &self.pool.memory.vmas[mapping.vma.0 as usize];
        let fresh = |frame: FolioId| !self.is_locked(frame) && !self.is_workingset(frame);
        span.filter(|&p| !vma.ptes.get(p).present && self.pool.frame(object, p).is_some_and(fresh))
            .count() as u32
    }

    fn is_workingset(&self, frame: FolioId) -> bool {
        let folio = self.pool.engine.folio(frame);
        folio.is_some_and(|folio| folio.flags().contains(Flags::WORKINGSET))
    }

    /// Maps the cached pages around that of a read fault, as far as they have arrived and have no
    /// mark. `hit`: that page was there when the fault began. Returns whether that page is one of
    /// them, and whether others are.
    fn fault_around(&mut self, id: OpenId, fault: &Fault, hit: bool) -> (bool, bool) {
        let Fault { mapping, object, page, .. } = *fault;
        if self.fault_around_pages <= 1 {
            return (false, false);
        }
        let first = page / self.fault_around_pages * self.fault_around_pages;
        let file = self.opens[id.0 as usize].file;
        let end = (first + self.fault_around_pages).min(self.file(file).pages);
        let ready = self
            .pool
            .frame(object, page)
            .filter(|&frame| !self.is_locked(frame) && !self.pool.engine.has_readahead(frame));
        let fresh = if self.opens[id.0 as usize].readahead.counts_pages() {
            self.fresh_unmapped(mapping, object, first..end)
        } else {
            u32::from(hit && ready.is_some_and(|frame| !self.is_workingset(frame)))
        };
        self.opens[id.0 as usize].readahead.take_back(fresh);
        let Pool { memory, engine, .. } = &mut self.pool;
        let takes = |frame| !engine.has_readahead(frame);
        let others = memory.map_around(mapping.vma, page, (first, end), takes);
        if let Some(frame) = ready {
            count_use(self, frame, page);
            self.pool.memory.map(mapping.vma, page, false);
            self.watched_touch(mapping.vma, page, false);
        }
        (ready.is_some(), others > 0)
    }

    /// What the handler finds of its page; at its first look it counts a hit, and takes the mark.
    fn look_up(&mut self, open: OpenId, fault: &Fault, first: bool) -> Found {
        let Some(frame) = self.pool.frame(fault.object, fault.page) else { return Found::Missing };
        if self.is_locked(frame) {
            return Found::Arriving;
        }
        if !first || fault.tried || !self.has_recency(fault.mapping) {
            return Found::Ready;
        }
        self.opens[open.0 as usize].readahead.take_back(1);
        if self.readahead_pages == 0 || !self.pool.engine.take_readahead(frame) {
            return Found::Ready;
        }
        // A fault asks for one page, but what follows a mark is read in windows.
        let window = marked_window(self, open, fault.object, fault.page, self.readahead_pages);
        Found::Marked(window)
    }

    /// A handler has found its page missing: what to read.
    fn missed(&mut self, open: OpenId, fault: &mut Fault, memcg: lowtide_core::MemcgId) -> Window {
        self.counts.retry_io_miss += u64::from(fault.tried);
        self.counts.major += u64::from(!fault.major);
        self.pool.engine.count_major_fault(memcg);
        fault.major = true;
        if self.has_recency(fault.mapping) {
            self.opens[open.0 as usize].readahead.fault_missed(fault.page)
        } else {
            Window::page(fault.page)
        }
    }
}

impl Ctx {
    /// Loads from, or stores to, pages of a mapping.
    pub async fn access(
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
            let world = &mut *self.w();
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
    pub async fn sweep(
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
                let world = &mut *self.w();
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

    /// Serves a fault: when this is done, the access is.
    async fn fault(&self, id: MappingId, page: u64, store: bool) -> Result<(), MachineError> {
        let result = self.attempts(id, page, store).await;
        self.w().let_go(self.id);
        result
    }

    /// Attempts until one succeeds.
    async fn attempts(&self, id: MappingId, page: u64, store: bool) -> Result<(), MachineError> {
        let (mut fault, path) = {
            let mut world = self.w();
            (world.fault(id, page, store), world.fault_path)
        };
        let (mut by_vma, mut gave_up, mut attempts) = (true, None, 0);
        loop {
            attempts += 1;
            let mut lock = self.fault_lock(&fault, by_vma).await;
            if let Some(since) = gave_up {
                let now = self.now();
                self.w().retries.came_back(now - since);
            }
            let attempt = self.attempt(&mut fault, &mut lock).await;
            if lock.held {
                self.w().release(lock.id, false);
            }
            match attempt? {
                Attempt::Mapped => break,
                Attempt::Owes(file) => {
                    self.w().let_go(self.id);
                    self.balance_dirty(file).await;
                    break;
                }
                Attempt::SwappedIn => {
                    let memcg = self.memcg();
                    self.w().pool.engine.count_major_fault(memcg);
                    break;
                }
                Attempt::Retry => {
                    debug_assert!(!lock.held, "an attempt that is repeated holds no lock");
                    gave_up = Some(self.now());
                    by_vma = path.retries_by_vma() && (lock.own || path == FaultPath::PinRetry);
                    // Where only the mapping's lock was given up, and nothing was read, x86 begins
                    // again. The second time is the last in any case: a page may be given the mark
                    // of read-ahead by reclaim again and again, while its fault waits.
                    fault.tried |= !lock.own || fault.major || attempts >= 2;
                }
            }
        }
        let mut world = self.w();
        let memcg = world.memcg(self.id);
        world.pool.engine.count_fault(memcg, false);
        world.retries.ended(attempts);
        drop(world);
        Ok(())
    }

    /// The lock for an attempt: the mapping's own if it is to be that and can be had at once,
    /// else that of the address space.
    async fn fault_lock(&self, fault: &Fault, by_vma: bool) -> FaultLock {
        let Mapping { vma_lock, mmap_lock, .. } = fault.mapping;
        if by_vma && self.w().rwsems[vma_lock.0 as usize].try_take(false) {
            return FaultLock { id: vma_lock, own: true, held: true };
        }
        self.take(mmap_lock, false).await;
        FaultLock { id: mmap_lock, own: false, held: true }
    }

    /// Gives the lock of an attempt up, if it is held still.
    fn give_lock_up(&self, lock: &mut FaultLock) {
        if std::mem::take(&mut lock.held) {
            self.w().release(lock.id, false);
        }
    }

    /// One attempt, under a lock.
    async fn attempt(
        &self,
        fault: &mut Fault,
        lock: &mut FaultLock,
    ) -> Result<Attempt, MachineError> {
        let cost = self.w().costs.minor_fault_ns;
        self.spend(cost).await;
        let Some(open) = fault.mapping.open else {
            let swapped_in = self.heap_fault(fault.mapping, fault.page, fault.store).await?;
            return Ok(if swapped_in { Attempt::SwappedIn } else { Attempt::Mapped });
        };
        self.within_file(open, fault)?;
        if !fault.store {
            let (mapped, cost) = {
                let mut world = self.w();
                let (mapped, others) = world.fault_around(open, fault, !fault.tried);
                (mapped, if others { world.costs.around_ns() } else { 0 })
            };
            self.spend(cost).await;
            if mapped {
                return Ok(Attempt::Mapped);
            }
        }
        self.handle(open, fault, lock).await
    }

    /// An access past the end of its file is an error.
    fn within_file(&self, open: OpenId, fault: &Fault) -> Result<(), MachineError> {
        let mut world = self.w();
        let file = world.opens[open.0 as usize].file;
        if fault.page < world.file(file).pages {
            return Ok(());
        }
        Err(MachineError::BeyondEnd { at_ns: world.sched.local(self.id) })
    }

    /// The handler of a file: finds the page, or reads it, and maps it if the lock was not given up
    /// for that.
    async fn handle(
        &self,
        open: OpenId,
        fault: &mut Fault,
        lock: &mut FaultLock,
    ) -> Result<Attempt, MachineError> {
        let (path, file) = {
            let world = self.w();
            (world.fault_path, world.opens[open.0 as usize].file)
        };
        let may_drop = path.drops_lock() && !fault.tried;
        let Fault { object, page, .. } = *fault;
        let mut first = true;
        loop {
            self.within_file(open, fault)?;
            let found = self.w().look_up(open, fault, first);
            match found {
                Found::Ready if lock.held => {
                    // No other task runs between the look and the mapping.
                    return Ok(self.install(open, file, fault).await);
                }
                Found::Ready if path == FaultPath::Hold => {
                    self.w().hold(self.id, object, page);
                    *lock = self.fault_lock(fault, true).await;
                }
                Found::Ready => {
                    let mut world = self.w();
                    world.counts.retry_mmap_drop += 1;
                    if !path.keeps_page() {
                        world.let_go(self.id);
                    }
                    return Ok(Attempt::Retry);
                }
                Found::Arriving => {
                    if may_drop {
                        self.give_lock_up(lock);
                    }
                    self.wait_page(object, page).await;
                }
                Found::Marked(window) => {
                    self.w().hold(self.id, object, page);
                    if may_drop {
                        self.give_lock_up(lock);
                    }
                    if let Some(window) = window {
                        read_window(self, file, window, None, page..page + 1, true).await?;
                    }
                }
                Found::Missing => self.read_missing(open, file, fault, lock, first).await?,
            }
            first = false;
        }
    }

    /// Reads the page of a fault, at the first look with its window.
    async fn read_missing(
        &self,
        open: OpenId,
        file: FileId,
        fault: &mut Fault,
        lock: &mut FaultLock,
        first: bool,
    ) -> Result<(), MachineError> {
        let memcg = self.memcg();
        let (window, recency, keeps, may_drop, cost) = {
            let mut world = self.w();
            if world.file(file).failed_since(fault.page, fault.failures) {
                return Err(MachineError::Io { at_ns: world.sched.local(self.id) });
            }
            let may_drop = world.fault_path.drops_lock() && !fault.tried;
            let window =
                if first { world.missed(open, fault, memcg) } else { Window::page(fault.page) };
            let keeps = world.fault_path.keeps_page() || window.size == 1;
            let cost = if first { world.costs.major_fault_cpu_ns } else { 0 };
            (window, world.has_recency(fault.mapping), keeps, may_drop, cost)
        };
        let Fault { object, page, .. } = *fault;
        self.spend(cost).await;
        if keeps {
            // A page that is made for the fault has its reference; one of a window does not.
            self.w().hold(self.id, object, page);
        }
        if may_drop && window.size > 1 {
            self.give_lock_up(lock);
        }
        read_window(self, file, window, Some(page), page..page + 1, recency).await?;
        if may_drop {
            self.give_lock_up(lock);
        }
        Ok(())
    }

    /// Maps a page that is there, under the lock.
    async fn install(&self, open: OpenId, file: FileId, fault: &Fault) -> Attempt {
        let (owes, cost) = {
            let world = &mut *self.w();
            let Fault { mapping, object, page, store, .. } = *fault;
            let frame = world.pool.frame(object, page).expect("it has just been found");
            count_use(world, frame, page);
            let owes = store && world.set_dirty(self.id, file, page, frame);
            // A fault without a retry maps the neighbours that came with its page.
            let alone = store || world.fault_path != FaultPath::Hold;
            let others = !alone && world.fault_around(open, fault, false).1;
            world.pool.memory.map(mapping.vma, page, store);
            world.watched_touch(mapping.vma, page, store);
            (owes, if others { world.costs.around_ns() } else { 0 })
        };
        self.spend(cost).await;
        if owes { Attempt::Owes(file) } else { Attempt::Mapped }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AddressSpace, Machine, MachineConfig, MachineStat};
    use super::*;
    use crate::spec::MachineSpec;
    use lowtide_core::{MemcgId, Policy};
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
        m.client(async move |ctx| {
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
            m.client(async move |ctx| {
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
