//! A minimal machine: the smallest driver of the engine that counts what a kernel counts.
//!
//! One CPU, one task, one file mapped in one space, pages of order 0. The hardware part ([`Tables`]) is page tables of 512 entries
//! with a *young* bit that every mapped access sets, at the entry and at its table, and that nothing but the engine's questions
//! clears (there is no translation cache). The kernel part ([`Machine`]) is the rest of a fault: look up, charge, insert, map; direct
//! reclaim when the charge meets the budget; shadows kept where the entry was; and a flusher.
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
//! a step of reclaim, and in naps. The classical lists see group statistics only as of the last publication, every two seconds of
//! a real machine; so does the flusher under them. On the machines that were measured a miss took so much longer than a
//! hit that misses are the better clock, so publication is every so many misses.
//!
//! It models what `reclaim.md` section C and §5.7 call the minimal model, and no more: no read-ahead, no batching
//! of charges, no second CPU.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use lowtide_core::limits::{LOOK_AROUND_MAX, TABLE_ENTRIES};
use lowtide_core::{
    AgeJob, Charge, Engine, EngineConfig, Events, Facts, Folio, FolioId, FolioState, Lists, LruType, MemcgId,
    Next, Owner, Policy, Reclaim, References, Shadow, SpaceId, Step, TableKey, Task, Unmapped, Victim,
    Window,
};
use std::collections::VecDeque;

const NO_FRAME: u32 = u32::MAX;

/// One page of the file: where it is, how it is mapped, and what is remembered of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    frame: u32,
    shadow: Option<Shadow>,
    mapped: bool,
    young: bool,
    /// A store does not fault: the page is known to be dirty.
    writable: bool,
}

/// The page tables of the one mapping, and what the engine may ask of them.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Pages that are mapped; entries behind them belong to metadata.
    mapping: u64,
    entries: Vec<Entry>,
    /// The accessed bit of the table itself, one for each 512 entries.
    table_young: Vec<bool>,
}

impl Tables {
    fn new(mapping: u64, metadata: u64) -> Self {
        let empty = Entry { frame: NO_FRAME, shadow: None, mapped: false, young: false, writable: false };
        Self {
            mapping,
            entries: vec![empty; (mapping + metadata) as usize],
            table_young: vec![false; mapping.div_ceil(TABLE_ENTRIES) as usize],
        }
    }

    fn touch(&mut self, page: u64) {
        self.entries[page as usize].young = true;
        self.table_young[(page / TABLE_ENTRIES) as usize] = true;
    }

    fn map(&mut self, page: u64) {
        self.entries[page as usize].mapped = true;
        self.touch(page);
    }

    fn unmap(&mut self, page: u64) {
        let e = &mut self.entries[page as usize];
        (e.mapped, e.young, e.writable) = (false, false, false);
    }

    /// Whether the page is in memory.
    pub(crate) fn resident(&self, page: u64) -> bool {
        self.entries[page as usize].frame != NO_FRAME
    }

    /// The folio that holds a resident page.
    pub(crate) fn folio(&self, page: u64) -> FolioId {
        FolioId(self.entries[page as usize].frame)
    }

    /// The window of `reclaim.md` §2.6: the table, or 64 entries of it around the hit, clipped to its ends.
    fn window(&self, page: u64) -> (u64, u64) {
        let first = page / TABLE_ENTRIES * TABLE_ENTRIES;
        let end = (first + TABLE_ENTRIES).min(self.mapping);
        let half = LOOK_AROUND_MAX / 2;
        if end - first <= LOOK_AROUND_MAX {
            (first, end)
        } else if page - first < half {
            (first, first + LOOK_AROUND_MAX)
        } else if end - page < half {
            (end - LOOK_AROUND_MAX, end)
        } else {
            (page - half, page + half)
        }
    }

    /// Drops the translation of a victim. A test may ask for another outcome.
    pub(crate) fn unmap_victim(&mut self, victim: &mut Victim) {
        self.unmap(victim.owner.page);
        victim.outcome = Unmapped::Done;
    }
}

impl Facts for Tables {
    fn state(&mut self, _: FolioId, folio: &Folio) -> FolioState {
        FolioState { locked: false, mapped: self.entries[folio.owner().page as usize].mapped }
    }

    fn references(&mut self, _: FolioId, folio: &Folio) -> References {
        let young = std::mem::take(&mut self.entries[folio.owner().page as usize].young);
        References { young: u32::from(young), exec: false }
    }

    fn look_around(
        &mut self,
        _: FolioId,
        folio: &Folio,
        visit: &mut dyn FnMut(FolioId) -> bool,
    ) -> Option<Window> {
        let page = folio.owner().page;
        let (first, end) = self.window(page);
        for e in (first..end).filter(|&p| p != page).map(|p| p as usize) {
            if self.entries[e].young && visit(FolioId(self.entries[e].frame)) {
                self.entries[e].young = false;
            }
        }
        Some(Window { table: TableKey(page / TABLE_ENTRIES), entries: end - first })
    }

    fn unmap_dirty(&mut self, _: FolioId, folio: &Folio) {
        self.unmap(folio.owner().page);
    }
}

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
    /// How writes end.
    pub(crate) disk: Disk,
}

impl Setup {
    /// A machine without metadata, publishing every 10,000 misses.
    pub(crate) fn new(policy: Policy, pages: u64, max: u64) -> Self {
        let (publish_every, publish_phase) = (10_000, 10_000);
        Self { policy, pages, max, publish_every, publish_phase, metadata: 0, disk: Disk::Instant }
    }
}

/// A kind of access to one page.
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
        let mut machine = Self {
            engine,
            tables: Tables::new(setup.pages, setup.metadata),
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
        for page in setup.pages..setup.pages + setup.metadata {
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

    /// One access. Time passes, writes end, statistics are published.
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
        } else if !e.mapped || (store && !e.writable) {
            self.engine.count_fault(MemcgId::ROOT, false);
        }
        self.tables.map(page);
        if store {
            self.tables.entries[page as usize].writable = true;
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
        self.until_publish -= 1;
        if self.until_publish == 0 {
            self.until_publish = self.setup.publish_every;
            self.engine.publish();
            self.published_dirty = self.engine.dirty(MemcgId::ROOT);
        }
        self.charge(task)?;
        let frame = self.free.pop().expect("what is charged has a frame");
        let shadow = self.tables.entries[page as usize].shadow.take().filter(|_| read);
        let owner = Owner { space: self.space, page };
        self.engine.insert(FolioId(frame), owner, 0, LruType::File, MemcgId::ROOT, shadow, task);
        self.tables.entries[page as usize].frame = frame;
        Ok(())
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
                Step::Unmap => reclaim.victims().iter_mut().for_each(|v| self.tables.unmap_victim(v)),
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
            for table in 0..self.tables.table_young.len() as u64 {
                self.walk_table(job, table);
            }
        }
    }

    fn walk_table(&mut self, job: &mut AgeJob, table: u64) {
        let key = TableKey(table);
        if !std::mem::take(&mut self.tables.table_young[table as usize]) || !job.wants(&self.engine, key) {
            return;
        }
        let first = table * TABLE_ENTRIES;
        let end = (first + TABLE_ENTRIES).min(self.tables.mapping);
        let mut young = 0;
        for e in first as usize..end as usize {
            let Entry { frame, young: true, .. } = self.tables.entries[e] else { continue };
            if let Some(folio) = job.takes(&self.engine, FolioId(frame)) {
                self.tables.entries[e].young = false;
                job.young(&mut self.engine, folio, false);
                young += 1;
            }
        }
        job.table_done(&mut self.engine, key, young, end - first);
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
            self.tables.entries[page as usize].writable = false;
            match self.setup.disk {
                Disk::Instant => self.engine.end_writeback(folio, true, Task::DESCRIPTOR),
                Disk::Late(latency) => self.in_flight.push_back((self.now + latency, folio)),
            }
        }
    }

    fn pass_time(&mut self, nanos: u64) {
        self.now += nanos;
        while self.in_flight.front().is_some_and(|&(end, _)| end <= self.now) {
            let (_, folio) = self.in_flight.pop_front().expect("there is a first");
            self.engine.end_writeback(folio, true, Task::DESCRIPTOR);
        }
    }
}
