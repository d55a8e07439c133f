//! A minimal machine: the smallest driver of the engine that counts what a kernel counts.
//!
//! One CPU, one task, one file and one heap mapped in one space, pages of order 0. The hardware part ([`Tables`]) is page tables of 512 entries
//! with a *young* bit that every mapped access sets, at the entry and at its table, and that nothing but the engine's questions
//! clears (there is no translation cache). The kernel part ([`Machine`]) is the rest of a fault: look up, charge, insert, map; direct
//! reclaim when the charge meets the budget; shadows kept where the entry was; a flusher; and swap (`heap.rs`).
//!
//! ```text
//!   load, store ──► mapped? ──no──► resident? ──no──► charge ─► insert(FAULT) ─► map young     (major fault)
//!                     │                └──yes──► map young                                     (minor fault)
//!                     └──yes──► young; a store to a clean page is a fault too, and makes it dirty
//!   read, write ──► resident? ──no──► charge ─► insert(DESCRIPTOR), then mark accessed
//! ```
//!
//! The flusher writes everything that is dirty when more than a tenth of the budget is, or when reclaim wakes it. With
//! [`Disk::Instant`] writes end at once; with [`Disk::Late`] after a latency of virtual time, which passes by 100 ns an access, 1 µs
//! a step of reclaim, and in naps. Swap ends its writes in the same two ways; with a late one, a miss waits for its read as long as a write takes. The classical lists see group statistics only as of the last publication, every two seconds of
//! a real machine; so does the flusher under them. On the machines that were measured a miss took so much longer than a
//! hit that misses are the better clock, so publication is every so many misses.
//!
//! It models what `reclaim.md` section C and §5.7 call the minimal model, and no more: no read-ahead, no batching
//! of charges, no second CPU.
#![allow(dead_code, reason = "every test binary uses a part of it")]

mod heap;
mod tables;

pub(crate) use heap::SwapDevice;
use lowtide_core::limits::DEFAULT_SWAPPINESS;
use lowtide_core::{
    AgeJob, Charge, Engine, EngineConfig, Events, FolioId, Lists, LruType, MemcgId, Next, Owner, Policy,
    Reclaim, SpaceId, Step, Swap, TableKey, Task,
};
use std::collections::VecDeque;
use tables::Entry;
pub(crate) use tables::Tables;

const NO_FRAME: u32 = u32::MAX;

/// How writes end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Disk {
    /// At once.
    Instant,
    /// So many nanoseconds of virtual time after they began.
    Late(u64),
}

/// What a machine is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// The policy.
    pub(crate) policy: Policy,
    /// Pages of the file.
    pub(crate) pages: u64,
    /// Budget in pages.
    pub(crate) max: u64,
    /// Misses between two publications of group statistics.
    pub(crate) publish_every: u64,
    /// Misses before the first publication.
    pub(crate) publish_phase: u64,
    /// Active pages of file-system metadata, never mapped (`reclaim.md` §6.1 step 4). They come out of the budget.
    pub(crate) metadata: u64,
    /// How writes to the file end.
    pub(crate) disk: Disk,
    /// Pages of the heap.
    pub(crate) heap: u64,
    /// Where the heap is swapped to.
    pub(crate) swap: Option<SwapDevice>,
    /// The task is switched out in the middle of every walk, so that the next aging walks again even if the task never left reclaim in
    /// between (`reclaim.md` §2.5, back-to-back agings).
    pub(crate) switched_in_walk: bool,
    /// How willingly the heap is taken rather than the file.
    pub(crate) swappiness: u32,
}

impl Setup {
    /// A machine without metadata, heap and swap, publishing every 10,000 misses.
    pub(crate) fn new(policy: Policy, pages: u64, max: u64) -> Self {
        let (publish_every, publish_phase) = (10_000, 10_000);
        let (disk, swappiness) = (Disk::Instant, DEFAULT_SWAPPINESS);
        Self {
            policy,
            pages,
            max,
            publish_every,
            publish_phase,
            metadata: 0,
            disk,
            heap: 0,
            swap: None,
            swappiness,
            switched_in_walk: true,
        }
    }
}

/// A kind of access to one page of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Through the mapping.
    Load,
    /// Through the mapping.
    Store,
    /// Through the descriptor.
    Read,
    /// Through the descriptor, the whole page: nothing is read, and no refault is counted.
    Write,
}

/// A charge failed after all retries: in the kernel, the out-of-memory killer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfMemory;

/// What the reclaimer was told to do, in numbers of steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Steps {
    /// Invocations of reclaim.
    pub(crate) invocations: u64,
    /// Wakings of the flusher.
    pub(crate) wakes: u64,
    /// Naps.
    pub(crate) naps: u64,
    /// Yields.
    pub(crate) yields: u64,
}

/// The machine. See the module documentation.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The engine under test.
    pub(crate) engine: Engine,
    /// The hardware.
    pub(crate) tables: Tables,
    /// What reclaim asked for so far.
    pub(crate) steps: Steps,
    /// Virtual time in nanoseconds.
    pub(crate) now: u64,
    space: SpaceId,
    setup: Setup,
    free: Vec<u32>,
    until_publish: u64,
    dirty: Vec<FolioId>,
    published_dirty: u64,
    in_flight: VecDeque<(u64, FolioId)>,
}

impl Machine {
    /// An empty machine.
    pub(crate) fn new(setup: Setup) -> Self {
        let frames = setup.max as u32;
        let (policy, max) = (setup.policy, setup.max);
        let config = EngineConfig { frames, max, page_bytes: 4096, policy, cpus: 1 };
        let mut engine = Engine::new(&config).expect("the budget is big enough");
        let space = engine.add_space(MemcgId::ROOT);
        engine.set_swappiness(MemcgId::ROOT, setup.swappiness);
        let slots = setup.swap.map_or(0, |swap| swap.pages);
        let synchronous = setup.swap.is_some_and(|swap| swap.disk == Disk::Instant);
        engine.set_swap(Swap { pages: slots.into(), synchronous }).expect("none of it is used");
        let mut machine = Self {
            engine,
            tables: Tables::new(setup.pages, setup.heap, setup.metadata, slots),
            steps: Steps::default(),
            now: 0,
            space,
            setup,
            free: (0..frames).rev().collect(),
            until_publish: setup.publish_phase,
            dirty: Vec::new(),
            published_dirty: 0,
            in_flight: VecDeque::new(),
        };
        for page in (0..setup.metadata).map(|n| machine.tables.metadata(n)).collect::<Vec<_>>() {
            for _ in 0..2 {
                machine.access(page, Access::Read).expect("the machine is empty");
            }
        }
        machine
    }

    /// The engine's counters.
    pub(crate) fn events(&self) -> Events {
        self.engine.stat(MemcgId::ROOT).events
    }

    /// One access to the file. Time passes, writes end, statistics are published.
    ///
    /// # Errors
    /// [`OutOfMemory`] when the page is not in memory and no room can be made for it.
    pub(crate) fn access(&mut self, page: u64, access: Access) -> Result<(), OutOfMemory> {
        self.pass_time(100);
        match access {
            Access::Load | Access::Store => self.mapped(page, access == Access::Store),
            Access::Read | Access::Write => self.descriptor(page, access == Access::Write),
        }
    }

    fn mapped(&mut self, page: u64, store: bool) -> Result<(), OutOfMemory> {
        let e = self.tables.entries[page as usize];
        if e.frame == NO_FRAME {
            self.engine.count_fault(MemcgId::ROOT, true);
            self.bring_in(page, Task::FAULT, true)?;
        } else if !e.mapped || (store && !e.dirty) {
            self.engine.count_fault(MemcgId::ROOT, false);
        }
        self.tables.map(page);
        if store {
            self.tables.entries[page as usize].dirty = true;
            self.set_dirty(page);
        }
        Ok(())
    }

    fn descriptor(&mut self, page: u64, write: bool) -> Result<(), OutOfMemory> {
        if !self.tables.resident(page) {
            self.bring_in(page, Task::DESCRIPTOR, !write)?;
        }
        if write {
            self.set_dirty(page);
        } else if self.engine.accesses().record(self.tables.folio(page)) {
            self.engine.mark_accessed(self.tables.folio(page), Task::DESCRIPTOR);
        }
        Ok(())
    }

    /// Makes a page resident.
    fn bring_in(&mut self, page: u64, task: Task, read: bool) -> Result<(), OutOfMemory> {
        self.publish_in_time();
        let frame = self.frame(task)?;
        let shadow = self.tables.entries[page as usize].shadow.take().filter(|_| read);
        let owner = Owner { space: self.space, page };
        self.engine.insert(FolioId(frame), owner, 0, LruType::File, MemcgId::ROOT, shadow, task);
        self.tables.entries[page as usize].frame = frame;
        if read {
            self.wait_for_read();
        }
        Ok(())
    }

    /// Counts a miss, and publishes group statistics if it is time.
    fn publish_in_time(&mut self) {
        self.until_publish -= 1;
        if self.until_publish == 0 {
            self.until_publish = self.setup.publish_every;
            self.engine.publish();
            self.published_dirty = self.engine.dirty(MemcgId::ROOT);
        }
    }

    /// A frame for a page, charged.
    fn frame(&mut self, task: Task) -> Result<u32, OutOfMemory> {
        self.charge(task)?;
        Ok(self.free.pop().expect("what is charged has a frame"))
    }

    fn charge(&mut self, task: Task) -> Result<(), OutOfMemory> {
        let mut charge = Charge::new(MemcgId::ROOT, 1);
        let mut reclaimed = None;
        loop {
            match charge.next(&mut self.engine, task, reclaimed) {
                Next::Charged => return Ok(()),
                Next::Failed => return Err(OutOfMemory),
                Next::Reclaim(reclaim) => reclaimed = Some(self.reclaim(*reclaim)),
            }
        }
    }

    /// Runs an invocation of reclaim to its end. Returns the pages reclaimed.
    pub(crate) fn reclaim(&mut self, mut reclaim: Reclaim) -> u64 {
        self.steps.invocations += 1;
        let mut flush = false;
        loop {
            let step = reclaim.step(&mut self.engine, &mut self.tables, self.now);
            if step == Step::Yield {
                // On one CPU there is nobody to let in.
                self.steps.yields += 1;
                continue;
            }
            // A flusher that was woken runs when the batch that woke it has been put back.
            if std::mem::take(&mut flush) {
                self.flush();
            }
            self.pass_time(1_000);
            match step {
                Step::Walk => self.walk(reclaim.age_job()),
                Step::Unmap => reclaim.victims().iter_mut().for_each(|v| self.unmap_victim(v)),
                Step::Freed => {
                    for gone in reclaim.freed() {
                        let e = &mut self.tables.entries[gone.owner.page as usize];
                        (e.frame, e.shadow) = (NO_FRAME, Some(gone.shadow));
                        self.free.push(gone.folio.0);
                    }
                }
                Step::WakeFlushers => {
                    self.steps.wakes += 1;
                    flush = true;
                }
                Step::Throttle(_, nanos) => {
                    self.steps.naps += 1;
                    self.engine.set_idle(self.space, false);
                    self.pass_time(nanos);
                }
                Step::Yield => {}
                Step::Done => return reclaim.reclaimed(),
            }
        }
    }

    /// Feeds an aging job to its end: the page-table walk of `reclaim.md` §2.5.
    pub(crate) fn walk(&mut self, job: &mut AgeJob) {
        while let Some(space) = job.next_space(&mut self.engine) {
            assert_eq!(space, self.space);
            self.engine.set_idle(space, !self.setup.switched_in_walk);
            for table in 0..self.tables.table_young.len() as u64 {
                self.walk_table(job, table);
            }
        }
    }

    fn walk_table(&mut self, job: &mut AgeJob, table: u64) {
        let key = TableKey(table);
        let (pages, t) = self.tables.table(table);
        if !job.visits(&mut self.engine, t) {
            return;
        }
        if !std::mem::take(&mut self.tables.table_young[table as usize]) || !job.wants(&self.engine, key) {
            return;
        }
        let mut young = 0;
        for e in pages.start as usize..pages.end as usize {
            let Entry { frame, young: true, .. } = self.tables.entries[e] else { continue };
            if let Some(folio) = job.takes(&self.engine, FolioId(frame)) {
                self.tables.entries[e].young = false;
                job.young(&mut self.engine, folio, false);
                young += 1;
            }
        }
        job.table_done(&mut self.engine, key, young, pages.end - pages.start);
    }

    fn set_dirty(&mut self, page: u64) {
        let folio = self.tables.folio(page);
        if self.engine.set_dirty(folio) {
            self.dirty.push(folio);
        }
        let classical = self.setup.policy.lists() == Lists::Classical;
        let seen = if classical { self.published_dirty } else { self.engine.dirty(MemcgId::ROOT) };
        if seen > self.setup.max / 10 {
            self.flush();
        }
    }

    /// Begins to write everything that is dirty.
    pub(crate) fn flush(&mut self) {
        for folio in std::mem::take(&mut self.dirty) {
            if !self.engine.start_writeback(folio) {
                // Dirtied again while it is being written: its turn comes when that has ended.
                self.dirty.push(folio);
                continue;
            }
            let page = self.engine.folio(folio).expect("a dirty folio is never freed").owner().page;
            self.tables.entries[page as usize].dirty = false;
            match self.setup.disk {
                Disk::Instant => self.engine.end_writeback(folio, true, Task::DESCRIPTOR),
                Disk::Late(latency) => self.finish_after(latency, folio),
            }
        }
    }

    /// A write has begun that takes so long.
    fn finish_after(&mut self, latency: u64, folio: FolioId) {
        let end = self.now + latency;
        let at = self.in_flight.partition_point(|&(other, _)| other <= end);
        self.in_flight.insert(at, (end, folio));
    }

    fn pass_time(&mut self, nanos: u64) {
        self.now += nanos;
        while self.in_flight.front().is_some_and(|&(end, _)| end <= self.now) {
            let (_, folio) = self.in_flight.pop_front().expect("there is a first");
            self.engine.end_writeback(folio, true, Task::DESCRIPTOR);
        }
    }
}
