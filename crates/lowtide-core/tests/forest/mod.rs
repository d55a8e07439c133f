//! A forest: an engine with a tree of groups, whose folios are clean file pages that are never
//! accessed again.
//!
//! The simplest driver there is: it charges, inserts, reclaims and forgets. A reclaim runs to its
//! end, or is kept in the middle at a step at which it holds nothing, while the tree changes under
//! it.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use lowtide_core::{
    Charge, Engine, EngineConfig, Facts, Folio, FolioId, FolioState, LruType, MemcgId, Next, Owner,
    Policy, Reason, Reclaim, References, Shadow, SpaceId, Step, Task, Unmapped, Window,
};
use std::collections::{BTreeMap, HashMap};

pub(crate) const ROOT: MemcgId = MemcgId::ROOT;

/// No folio was accessed, except those in the set.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    pub(crate) young: std::collections::HashSet<FolioId>,
}

impl Facts for Idle {
    fn state(&mut self, _: FolioId, _: &Folio) -> FolioState {
        FolioState { locked: false, mapped: true }
    }

    fn references(&mut self, id: FolioId, _: &Folio) -> References {
        References { young: u32::from(self.young.remove(&id)), exec: false }
    }

    fn look_around(
        &mut self,
        _: FolioId,
        _: &Folio,
        _: &mut dyn FnMut(FolioId) -> bool,
    ) -> Option<Window> {
        None
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Forest {
    pub(crate) engine: Engine,
    pub(crate) facts: Idle,
    free: Vec<u32>,
    space: SpaceId,
    next_page: u64,
    /// Resident pages with their frames.
    pub(crate) pages: BTreeMap<u64, FolioId>,
    /// What is remembered of pages that are gone.
    pub(crate) shadows: HashMap<u64, Shadow>,
    /// Pages over `high` that charges have reported.
    pub(crate) over_high: u64,
    now: u64,
}

impl Forest {
    pub(crate) fn new(policy: Policy, frames: u32, cpus: u16) -> Self {
        let config =
            EngineConfig { frames, max: u64::from(frames), page_bytes: 4096, policy, cpus };
        let mut engine = Engine::new(&config).expect("the budget is big enough");
        let space = engine.add_space(ROOT);
        Self {
            engine,
            facts: Idle::default(),
            free: (0..frames).rev().collect(),
            space,
            next_page: 0,
            pages: BTreeMap::new(),
            shadows: HashMap::new(),
            over_high: 0,
            now: 0,
        }
    }

    /// A new group with a limit.
    pub(crate) fn group(&mut self, parent: MemcgId, max: u64) -> MemcgId {
        let id = self.engine.create_group(parent).expect("there is room for a group");
        self.engine.set_max(id, max).expect("only the root's budget can be impossible");
        id
    }

    /// Charges pages to a group. Returns the group that was full if that fails.
    pub(crate) fn charge(
        &mut self,
        group: MemcgId,
        pages: u64,
        task: Task,
    ) -> Result<(), Option<MemcgId>> {
        let mut charge = Charge::new(group, pages);
        let mut reclaimed = None;
        loop {
            match charge.next(&mut self.engine, task, reclaimed) {
                Next::Charged { over_high } => {
                    self.over_high += over_high;
                    return Ok(());
                }
                Next::Failed { over } => return Err(Some(over)),
                Next::Gone => return Err(None),
                Next::Reclaim(mut reclaim) => reclaimed = Some(self.run(&mut reclaim)),
            }
        }
    }

    /// A free frame, for a folio that the test inserts itself.
    pub(crate) fn take_frame(&mut self) -> u32 {
        self.free.pop().expect("what is charged has a frame")
    }

    /// Brings a new page in, paid by a group.
    pub(crate) fn page(&mut self, group: MemcgId, task: Task) -> Result<u64, Option<MemcgId>> {
        let page = self.next_page;
        self.next_page += 1;
        self.bring(group, page, task).map(|()| page)
    }

    /// Brings a page in, paid by a group.
    pub(crate) fn bring(
        &mut self,
        group: MemcgId,
        page: u64,
        task: Task,
    ) -> Result<(), Option<MemcgId>> {
        self.charge(group, 1, task)?;
        let id = FolioId(self.free.pop().expect("what is charged has a frame"));
        let owner = Owner { space: self.space, page };
        let shadow = self.shadows.remove(&page);
        self.engine.insert(id, owner, 0, LruType::File, group, shadow, task);
        self.pages.insert(page, id);
        Ok(())
    }

    /// Brings `pages` new pages in.
    pub(crate) fn fill(&mut self, group: MemcgId, pages: u64) {
        for _ in 0..pages {
            self.page(group, Task::DESCRIPTOR).expect("there is room, or something to evict");
        }
    }

    /// Drops a page.
    pub(crate) fn drop_page(&mut self, page: u64) {
        if let Some(id) = self.pages.remove(&page) {
            assert!(self.engine.remove(id), "nothing is isolated between steps");
            self.free.push(id.0);
        }
    }

    /// One step of a reclaim, with all the work that it requires.
    pub(crate) fn step(&mut self, reclaim: &mut Reclaim) -> Step {
        self.now += 1000;
        let step = reclaim.step(&mut self.engine, &mut self.facts, self.now);
        match step {
            Step::Walk => while reclaim.age_job().next_space(&mut self.engine).is_some() {},
            Step::Unmap => {
                reclaim.victims().iter_mut().for_each(|victim| victim.outcome = Unmapped::Done);
            }
            Step::Freed => {
                for gone in reclaim.freed() {
                    assert_eq!(self.pages.remove(&gone.owner.page), Some(gone.folio));
                    self.shadows
                        .insert(gone.owner.page, gone.shadow.expect("no page is freed lazily"));
                    self.free.push(gone.folio.0);
                }
            }
            _ => {}
        }
        step
    }

    /// Runs a reclaim to its end. Returns the pages reclaimed.
    pub(crate) fn run(&mut self, reclaim: &mut Reclaim) -> u64 {
        for _ in 0..1_000_000 {
            if self.step(reclaim) == Step::Done {
                return reclaim.reclaimed();
            }
        }
        panic!("a reclaim does not end: {reclaim:?}");
    }

    /// Reclaims from a group on request. Returns the pages reclaimed.
    pub(crate) fn reclaim(&mut self, group: MemcgId, goal: u64) -> u64 {
        self.run(&mut Reclaim::new(group, goal, Reason::Proactive, Task::DESCRIPTOR))
    }

    /// Pages that a group alone has resident.
    pub(crate) fn resident(&self, group: MemcgId) -> u64 {
        let below: u64 =
            self.engine.children(group).map(|child| self.engine.stat(child).file).sum();
        self.engine.stat(group).file - below
    }
}
