//! An engine whose folios a test arranges by hand.
//!
//! Page `n` of the one space lives in frame `n`, and every fact that the engine may query is a
//! vector that the test writes to. There are no accesses and no charges other than those the test
//! makes; a reclaim runs to its end, the list of its steps is the result.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use lowtide_core::limits::{LOOK_AROUND_MAX, TABLE_ENTRIES};
use lowtide_core::{
    AgeJob, Engine, EngineConfig, Events, Facts, Flags, Folio, FolioId, FolioState, LruType,
    MemcgId, Owner, Policy, Reason, Reclaim, References, Shadow, SpaceId, Step, Swap, TableKey,
    Task, Unmapped, Window,
};

pub(crate) const ROOT: MemcgId = MemcgId::ROOT;

/// Facts by frame.
#[derive(Debug)]
pub(crate) struct Sheet {
    pub(crate) locked: Vec<bool>,
    pub(crate) mapped: Vec<bool>,
    pub(crate) young: Vec<bool>,
    pub(crate) exec: Vec<bool>,
    /// Folios asked about by the shrinker, in order.
    pub(crate) judged: Vec<FolioId>,
    /// Folios whose slots in swap reclaim took away.
    pub(crate) given_up: Vec<FolioId>,
    /// Pages of the batch that is judged now.
    pub(crate) gathered: Vec<u64>,
}

impl Facts for Sheet {
    fn state(&mut self, id: FolioId, _: &Folio) -> FolioState {
        self.judged.push(id);
        FolioState { locked: self.locked[id.index()], mapped: self.mapped[id.index()] }
    }

    fn gather<'a>(&mut self, folios: impl Iterator<Item = &'a Folio>) {
        self.gathered = folios.map(|folio| folio.owner().page).collect();
    }

    fn references(&mut self, id: FolioId, folio: &Folio) -> References {
        let page = folio.owner().page;
        assert!(self.gathered.contains(&page), "{page} is judged and was not announced");
        let young = std::mem::take(&mut self.young[id.index()]);
        References { young: u32::from(young), exec: self.exec[id.index()] }
    }

    fn look_around(
        &mut self,
        id: FolioId,
        _: &Folio,
        visit: &mut dyn FnMut(FolioId) -> bool,
    ) -> Option<Window> {
        let first = u64::from(id.0) / LOOK_AROUND_MAX * LOOK_AROUND_MAX;
        for n in (first..first + LOOK_AROUND_MAX).map(|n| n as u32).filter(|&n| n != id.0) {
            if self.young.get(n as usize) == Some(&true) && visit(FolioId(n)) {
                self.young[n as usize] = false;
            }
        }
        Some(Window { table: TableKey(u64::from(id.0) / TABLE_ENTRIES), entries: LOOK_AROUND_MAX })
    }

    fn unmap_dirty(&mut self, id: FolioId, _: &Folio) {
        self.mapped[id.index()] = false;
    }

    fn slot_given_up(&mut self, id: FolioId, _: &Folio) {
        self.given_up.push(id);
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Harness {
    pub(crate) engine: Engine,
    pub(crate) facts: Sheet,
    /// What was freed, in order, with what is remembered of it.
    pub(crate) freed: Vec<(FolioId, Shadow)>,
    /// What had been freed lazily, and is gone.
    pub(crate) dropped: Vec<FolioId>,
    space: SpaceId,
    synchronous: bool,
}

impl Harness {
    /// An empty harness with room for a number of pages.
    pub(crate) fn new(policy: Policy, pages: u32) -> Self {
        let config = EngineConfig {
            frames: pages,
            max: u64::from(pages),
            page_bytes: 4096,
            policy,
            cpus: 2,
        };
        let mut engine = Engine::new(&config).expect("the budget is big enough");
        let space = engine.add_space(ROOT);
        let all = || vec![false; pages as usize];
        let facts = Sheet {
            locked: all(),
            mapped: all(),
            young: all(),
            exec: all(),
            judged: Vec::new(),
            given_up: Vec::new(),
            gathered: Vec::new(),
        };
        Self { engine, facts, freed: Vec::new(), dropped: Vec::new(), space, synchronous: false }
    }

    /// A harness for a policy by name.
    pub(crate) fn of(policy: &str, pages: u32) -> Self {
        Self::new(policy.parse().expect("a policy"), pages)
    }

    /// Brings a folio in.
    pub(crate) fn insert(
        &mut self,
        id: u32,
        order: u8,
        t: LruType,
        shadow: Option<Shadow>,
        task: Task,
    ) {
        self.engine.try_charge(ROOT, 1 << order).expect("the test leaves room");
        let owner = Owner { space: self.space, page: u64::from(id) };
        self.engine.insert(FolioId(id), owner, order, t, ROOT, shadow, task);
    }

    /// Gives the engine swap. Writes to it end when the test ends them, or at once.
    pub(crate) fn swap(&mut self, pages: u64, synchronous: bool) {
        self.synchronous = synchronous;
        self.engine.set_swap(Swap { pages, synchronous }).expect("it is large enough");
    }

    /// Brings pages of the heap in that were never touched, puts them on their lists, and forgets
    /// that they are young.
    pub(crate) fn heap(&mut self, pages: std::ops::Range<u32>) {
        for id in pages {
            self.insert(id, 0, LruType::Anon, None, Task::FAULT);
            self.facts.mapped[id as usize] = true;
        }
    }

    /// Brings a page in that is swapped out, and maps it for a load or store. Returns whether it
    /// gave its slot up.
    pub(crate) fn swap_in(&mut self, id: u32, shadow: Option<Shadow>, store: bool) -> bool {
        self.engine.try_charge(ROOT, 1).expect("the test leaves room");
        let owner = Owner { space: self.space, page: u64::from(id) };
        self.engine.swap_in(FolioId(id), owner, 0, ROOT, shadow, Task::FAULT);
        self.swap_fault(id, store)
    }

    /// Maps a folio of the swap cache for a load or store. Returns whether it gave its slot up.
    pub(crate) fn swap_fault(&mut self, id: u32, store: bool) -> bool {
        self.facts.mapped[id as usize] = true;
        self.engine.swap_fault(FolioId(id), store, Task::FAULT)
    }

    /// Brings file pages in through the descriptor, and does not mark them accessed.
    pub(crate) fn fill(&mut self, pages: std::ops::Range<u32>) {
        pages.for_each(|id| self.insert(id, 0, LruType::File, None, Task::DESCRIPTOR));
    }

    /// Brings file pages in through faults, and maps them young.
    pub(crate) fn fault(&mut self, pages: std::ops::Range<u32>) {
        for id in pages {
            self.insert(id, 0, LruType::File, None, Task::FAULT);
            self.map_young(id);
        }
    }

    pub(crate) fn map_young(&mut self, id: u32) {
        self.facts.mapped[id as usize] = true;
        self.facts.young[id as usize] = true;
    }

    /// One read through the descriptor.
    pub(crate) fn read(&mut self, id: u32) {
        if self.engine.accesses().record(FolioId(id)) {
            self.engine.mark_accessed(FolioId(id), Task::DESCRIPTOR);
        }
    }

    /// Makes pages dirty, and begins to write them if asked.
    pub(crate) fn dirty(&mut self, pages: std::ops::Range<u32>, write: bool) {
        for id in pages.map(FolioId) {
            assert!(self.engine.set_dirty(id));
            assert!(!write || self.engine.start_writeback(id));
        }
    }

    pub(crate) fn events(&self) -> Events {
        self.engine.stat(ROOT).events
    }

    pub(crate) fn flags(&self, id: u32) -> Flags {
        self.engine.folio(FolioId(id)).expect("the folio exists").flags()
    }

    pub(crate) fn resident(&self, id: u32) -> bool {
        self.engine.folio(FolioId(id)).is_some()
    }

    /// How many generations a folio is from the young end: 1 is the youngest, `None` is on no list.
    /// (`max_seq` is 3 and the agings.)
    pub(crate) fn depth(&self, id: u32) -> Option<u64> {
        let max_seq = 3 + self.events().aging;
        self.flags(id).generation().map(|slot| (max_seq + 4 - slot as u64) % 4 + 1)
    }

    /// Runs a direct reclaim for a number of pages to its end.
    pub(crate) fn reclaim(&mut self, goal: u64) -> Vec<Step> {
        self.run(&mut Reclaim::new(ROOT, goal, Reason::Direct, Task::DESCRIPTOR))
    }

    /// Runs a reclaim to its end. Victims are unmapped without fail.
    pub(crate) fn run(&mut self, reclaim: &mut Reclaim) -> Vec<Step> {
        let mut steps = Vec::new();
        while steps.last() != Some(&Step::Done) {
            steps.push(self.step(reclaim));
            assert!(steps.len() < 100_000, "reclaim does not end");
        }
        self.engine.validate().expect("the engine is sound");
        steps
    }

    /// One step of a reclaim, and what a driver does after it.
    pub(crate) fn step(&mut self, reclaim: &mut Reclaim) -> Step {
        let step = reclaim.step(&mut self.engine, &mut self.facts, 0);
        match step {
            Step::Walk => self.walk(reclaim.age_job()),
            Step::Unmap => {
                for victim in reclaim.victims() {
                    victim.outcome = Unmapped::Done;
                    if victim.to_swap {
                        self.facts.mapped[victim.folio.index()] = false;
                        if self.engine.start_writeback(victim.folio) {
                            victim.outcome = Unmapped::Writing;
                            if self.synchronous {
                                self.engine.end_writeback(victim.folio, true, Task::FAULT);
                            }
                        }
                    }
                }
            }
            Step::Freed => {
                for gone in reclaim.freed() {
                    match gone.shadow {
                        Some(shadow) => self.freed.push((gone.folio, shadow)),
                        None => self.dropped.push(gone.folio),
                    }
                }
            }
            _ => {}
        }
        step
    }

    /// Feeds an aging job to its end.
    pub(crate) fn walk(&mut self, job: &mut AgeJob) {
        while job.next_space(&mut self.engine).is_some() {
            for (n, young) in self.facts.young.iter_mut().enumerate() {
                let key = TableKey(n as u64 / TABLE_ENTRIES);
                if *young
                    && job.wants(&self.engine, key)
                    && let Some(folio) = job.takes(&self.engine, FolioId(n as u32))
                {
                    *young = false;
                    job.young(&mut self.engine, folio, self.facts.exec[n]);
                }
            }
            for table in 0..(self.facts.young.len() as u64).div_ceil(TABLE_ENTRIES) {
                // Every table is worth walking next time.
                job.table_done(&mut self.engine, TableKey(table), 1, 1);
            }
        }
    }
}
