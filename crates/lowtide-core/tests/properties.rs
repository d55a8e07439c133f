//! Random operations against a naive model, every policy and every mixture of switches, with swap
//! of any size or none.
//!
//! The model knows which folios are in memory and what was done to them (dirty, under writeback,
//! locked, unevictable, young). Two reclaims may be in progress at any time, stopped at any step;
//! their answers to the engine (locked, young, pinned, raced) are arbitrary as long as they are
//! honest. Pages of the heap have contents, which must be what was stored last whenever a page
//! comes back from swap. After every operation the engine recounts itself ([`Engine::validate`])
//! and is compared with the model. The invariants of `docs/kernel/reclaim.md` §10, and where
//! they are checked:
//!
//! | invariants | checked |
//! |---|---|
//! | I1, I3, I5 | `validate` |
//! | I2, I6, I8 | [`World::after`] (`aging` is `max_seq - 3`) |
//! | I4, I7, I33 | `validate`, [`World::after`] |
//! | I9 | [`World::advance`]: at most one aging a step |
//! | I10 | `easy_to_get_wrong.rs`, aging |
//! | I11 | unit tests of `generation.rs` |
//! | I12, I13, I16, I24 | [`World::advance`] |
//! | I14 | [`World::freed`] |
//! | I15, I17 | `easy_to_get_wrong.rs`, budgets |
//! | I18 | an assertion in `reclaim/evict.rs`, exercised here |
//! | I19 | [`World::freed`]: a shadow for every page freed; unit tests of `tier.rs` |
//! | I20 | [`World::freed`]: without swap no anonymous folio is freed |
//! | I21, I22 | `easy_to_get_wrong.rs`, 22-26 |
//! | I23 | `easy_to_get_wrong.rs`, rotation |
//! | I25, I26 | `easy_to_get_wrong.rs`, the two out-of-memory scenarios |
//! | I27, I28 | no protection: there is one group |
//! | I29 | `validate` (charges are never forced) |
//! | I30 | one group: nothing to share out |
//! | I31 | `easy_to_get_wrong.rs`, charging |
//! | I32 | no memcg LRU: one group |
//! | I34 | [`World::after`] |
//! | I35 | faults are counted by the driver |
//! | design | [`World::settle`]: one clean evictable folio is enough to charge |
//! | faults, D 16, 17 | slots: [`World::after`]; contents: [`World::freed`], `model/heap.rs` |

mod model;

use lowtide_core::limits::{MIN_LRU_BATCH, TABLE_ENTRIES};
use lowtide_core::{
    Charge, Engine, EngineConfig, Events, Flags, Folio, FolioId, Lists, LruType, MemcgId, Next,
    Owner, Policy, Reason, Reclaim, Shadow, SpaceId, Step, Swap, Switches, TableKey, Task,
    ThrottleReason, Unmapped,
};
use model::{Key, Model, Resident, Slot};
use proptest::prelude::*;
use std::collections::HashMap;

const ROOT: MemcgId = MemcgId::ROOT;
/// Pages of the file: three tables.
const PAGES: u64 = 3 * TABLE_ENTRIES;
const MAX_ORDER: u8 = 2;
/// Pages of the heap.
const HEAP: u64 = 100;
/// More steps than any invocation in so small a memory can need.
const STEPS_MAX: u32 = 100_000;

/// A reclaim in progress.
#[derive(Debug)]
struct Run {
    reclaim: Reclaim,
    reason: Reason,
    goal: u64,
    phase: Phase,
    steps: u32,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Ready,
    /// Feeding an aging job: the next table of the space being walked.
    Walking(Option<(SpaceId, u64)>),
    /// Victims wait for their outcomes.
    Unmapping,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Mapped { page: u64, order: u8, store: bool },
    Descriptor { page: u64, write: bool },
    Heap { page: u64, store: bool, luck: bool },
    FreeSwap(usize),
    FreeLazily(usize),
    StartWriteback(usize),
    EndWriteback(usize, bool),
    Remove(usize),
    Unevictable(usize, bool),
    Lock(usize, bool),
    Begin { slot: usize, reason: Reason, goal: u64 },
    Step { slot: usize, luck: u32 },
    Publish,
    Swappiness(u32),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let reason = prop_oneof![Just(Reason::Direct), Just(Reason::Kswapd), Just(Reason::Proactive)];
    let op = prop_oneof![
        8 => (0..PAGES, 0..=MAX_ORDER, any::<bool>())
            .prop_map(|(page, order, store)| Op::Mapped { page, order, store }),
        // A hot part, so that promotion has something to do.
        8 => (0..24_u64, any::<bool>())
            .prop_map(|(page, store)| Op::Mapped { page, order: 0, store }),
        4 => (0..PAGES, any::<bool>()).prop_map(|(page, write)| Op::Descriptor { page, write }),
        4 => (0..24_u64).prop_map(|page| Op::Descriptor { page, write: false }),
        1 => (0..8_u64).prop_map(|page| Op::Heap { page, store: true, luck: true }),
        6 => (0..HEAP, any::<bool>(), any::<bool>())
            .prop_map(|(page, store, luck)| Op::Heap { page, store, luck }),
        1 => any::<usize>().prop_map(Op::FreeSwap),
        2 => any::<usize>().prop_map(Op::FreeLazily),
        2 => any::<usize>().prop_map(Op::StartWriteback),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(n, ok)| Op::EndWriteback(n, ok)),
        1 => any::<usize>().prop_map(Op::Remove),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(n, on)| Op::Unevictable(n, on)),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(n, on)| Op::Lock(n, on)),
        2 => (0..2_usize, reason, 1..100_u64)
            .prop_map(|(slot, reason, goal)| Op::Begin { slot, reason, goal }),
        8 => (0..2_usize, any::<u32>()).prop_map(|(slot, luck)| Op::Step { slot, luck }),
        1 => Just(Op::Publish),
        1 => prop_oneof![Just(0), Just(1), Just(60), Just(200)].prop_map(Op::Swappiness),
    ];
    // Half of each run is spent filling the memory, one way or another.
    prop::collection::vec(op, 1..400)
}

fn policies() -> impl Strategy<Value = Policy> {
    let base = prop_oneof![
        Just(Policy::MGLRU),
        Just(Policy::MGLRU_7_1),
        Just(Policy::LRU),
        Just(Policy::TIDE),
        Just(Policy::MGLRU_6_12)
    ];
    let toggled = prop_oneof![2 => Just(0), 3 => any::<u64>()];
    (base, toggled).prop_map(|(base, bits)| {
        Switches::from_bits_truncate(bits)
            .iter()
            .fold(base, |p, switch| p.with(switch, !p.has(switch)))
    })
}

fn swaps() -> impl Strategy<Value = Swap> {
    let pages = prop_oneof![2 => Just(0), 2 => 1..64_u64, 2 => 64..110_u64, 3 => Just(400)];
    (pages, any::<bool>()).prop_map(|(pages, synchronous)| Swap { pages, synchronous })
}

struct World {
    engine: Engine,
    model: Model,
    runs: [Option<Run>; 2],
    free: Vec<bool>,
    file: SpaceId,
    anon: SpaceId,
    before: Events,
    policy: Policy,
    turn: u16,
    swap: Swap,
    /// Writes to swap end at once, and well.
    settling: bool,
    stores: u64,
}

impl World {
    fn new(policy: Policy, max: u32, swap: Swap) -> Self {
        let config =
            EngineConfig { frames: max, max: u64::from(max), page_bytes: 4096, policy, cpus: 2 };
        let mut engine = Engine::new(&config).unwrap();
        engine.set_swap(swap).unwrap();
        let (file, anon) = (engine.add_space(ROOT), engine.add_space(ROOT));
        let free = vec![true; max as usize];
        let before = Events::default();
        Self {
            engine,
            model: Model::default(),
            runs: [None, None],
            free,
            file,
            anon,
            before,
            policy,
            turn: 0,
            swap,
            settling: false,
            stores: 0,
        }
    }

    /// The task that acts, on alternating CPUs.
    fn task(&mut self, in_lru_fault: bool) -> Task {
        self.turn ^= 1;
        Task { cpu: self.turn, in_lru_fault }
    }

    fn pick(&self, n: usize) -> Option<Key> {
        let keys = &self.model.resident;
        (!keys.is_empty()).then(|| *keys.keys().nth(n % keys.len()).unwrap())
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Mapped { page, order, store } => {
                let page = page >> order << order;
                if let Some(r) = self.resident((self.file, page), LruType::File, order, true) {
                    (r.mapped, r.young) = (true, true);
                    let id = r.id;
                    if store {
                        self.dirty(id);
                    }
                }
            }
            Op::Descriptor { page, write } => {
                if let Some(r) = self.resident((self.file, page), LruType::File, 0, false) {
                    let id = r.id;
                    if write {
                        self.dirty(id);
                    } else if self.engine.accesses().record(id) {
                        let task = self.task(false);
                        self.engine.mark_accessed(id, task);
                    }
                }
            }
            Op::Heap { page, store, luck } => self.heap((self.anon, page), store, luck),
            Op::FreeSwap(n) => self.free_swap(n),
            Op::FreeLazily(n) => self.free_lazily(n),
            Op::StartWriteback(n) => {
                if let Some(key) = self.pick(n) {
                    self.start_writeback(key);
                }
            }
            Op::EndWriteback(n, written) => {
                if let Some(key) = self.pick(n).filter(|k| self.model.resident[k].writeback) {
                    self.end_writeback(key, written);
                }
            }
            Op::Remove(n) => {
                if let Some(key) = self.pick(n).filter(|k| !self.model.resident[k].writeback) {
                    let r = self.model.resident[&key];
                    if self.engine.remove(r.id) {
                        self.model.resident.remove(&key);
                        self.model.slots.remove(&key);
                        self.model.latest.remove(&key);
                        self.release(r.id, r.order);
                    } else {
                        assert!(
                            self.runs.iter().flatten().count() > 0,
                            "a reclaim must have isolated it"
                        );
                    }
                }
            }
            Op::Unevictable(n, on) => {
                if let Some(key) = self.pick(n) {
                    let r = self.model.resident.get_mut(&key).unwrap();
                    r.unevictable = on;
                    self.engine.set_unevictable(r.id, on);
                }
            }
            Op::Lock(n, on) => {
                if let Some(key) = self.pick(n) {
                    self.model.resident.get_mut(&key).unwrap().locked = on;
                }
            }
            Op::Begin { slot, reason, goal } => {
                let task = self.task(true);
                let reclaim = Reclaim::new(ROOT, goal, reason, task);
                // Every fourth may not begin I/O.
                let reclaim = if goal % 4 == 0 { reclaim.without_io() } else { reclaim };
                self.runs[slot].get_or_insert(Run {
                    reclaim,
                    reason,
                    goal,
                    phase: Phase::Ready,
                    steps: 0,
                });
            }
            Op::Step { slot, luck } => {
                if let Some(mut run) = self.runs[slot].take()
                    && self.advance(&mut run, luck).is_none()
                {
                    self.runs[slot] = Some(run);
                }
            }
            Op::Publish => self.engine.publish(),
            Op::Swappiness(s) => self.engine.set_swappiness(ROOT, s),
        }
    }

    /// The folio at a page, brought in if there is room.
    fn resident(&mut self, key: Key, t: LruType, order: u8, fault: bool) -> Option<&mut Resident> {
        if let Some(found) = self.model.at(key) {
            return self.model.resident.get_mut(&found);
        }
        self.bring_in(key, t, order, fault)
    }

    /// The folio of a page that is not in memory, brought in if there is room. A page that has a
    /// slot comes from there.
    fn bring_in(&mut self, key: Key, t: LruType, order: u8, fault: bool) -> Option<&mut Resident> {
        // A large folio needs all of its pages to be absent.
        let order = if (0..1 << order).any(|i| self.model.at((key.0, key.1 + i)).is_some()) {
            0
        } else {
            order
        };
        let task = self.task(fault);
        if !self.charge(1 << order, task) {
            return None;
        }
        let Some(id) = self.frames(order) else {
            self.engine.uncharge(ROOT, 1 << order);
            return None;
        };
        let shadow = self.model.shadows.remove(&key);
        let owner = Owner { space: key.0, page: key.1 };
        if self.model.slots.contains_key(&key) {
            self.engine.swap_in(id, owner, order, ROOT, shadow, task);
        } else {
            self.engine.insert(id, owner, order, t, ROOT, shadow, task);
        }
        let r = Resident {
            id,
            order,
            mapped: false,
            young: false,
            dirty: false,
            writeback: false,
            locked: false,
            unevictable: false,
            stored: false,
            lazy: false,
            content: 0,
            writing: 0,
        };
        self.model.resident.insert(key, r);
        self.model.resident.get_mut(&key)
    }

    fn charge(&mut self, pages: u64, task: Task) -> bool {
        let mut charge = Charge::new(ROOT, pages);
        let mut reclaimed = None;
        loop {
            match charge.next(&mut self.engine, task, reclaimed) {
                Next::Charged { .. } => return true,
                Next::Gone => unreachable!("the root is never removed"),
                Next::Failed { .. } => return false,
                Next::Reclaim(reclaim) => {
                    let goal = pages.max(32);
                    let mut run = Run {
                        reclaim: *reclaim,
                        reason: Reason::Direct,
                        goal,
                        phase: Phase::Ready,
                        steps: 0,
                    };
                    reclaimed = loop {
                        let done = self.advance(&mut run, u32::MAX);
                        if done.is_some() {
                            break done;
                        }
                    };
                }
            }
        }
    }

    /// An aligned run of free frames, taken.
    fn frames(&mut self, order: u8) -> Option<FolioId> {
        let n = 1_usize << order;
        let first = (0..self.free.len() / n)
            .map(|i| i * n)
            .find(|&i| self.free[i..i + n].iter().all(|f| *f))?;
        self.free[first..first + n].fill(false);
        Some(FolioId(first as u32))
    }

    fn release(&mut self, id: FolioId, order: u8) {
        self.free[id.index()..id.index() + (1 << order)].fill(true);
    }

    fn dirty(&mut self, id: FolioId) {
        let r = self.model.resident.values_mut().find(|r| r.id == id).unwrap();
        r.lazy = false;
        assert_eq!(self.engine.set_dirty(id), !std::mem::replace(&mut r.dirty, true));
    }

    /// One step of a reclaim. `luck` decides about pins and races. Returns the pages reclaimed when
    /// it is over.
    fn advance(&mut self, run: &mut Run, luck: u32) -> Option<u64> {
        run.steps += 1;
        assert!(run.steps < STEPS_MAX, "reclaim does not end: {:?}", run.reclaim);
        match run.phase {
            Phase::Walking(at) => {
                run.phase = self.walk(run, at);
                return None;
            }
            Phase::Unmapping => self.unmap(run, luck),
            Phase::Ready => {}
        }
        run.phase = Phase::Ready;
        // Folios that wait to be rotated go from any generation to the oldest.
        let slot = |f: Flags| f.generation().filter(|_| !f.contains(Flags::ROT_BATCH));
        let before: HashMap<_, _> = self.folios().map(|(id, f)| (id, slot(f.flags()))).collect();
        let agings = self.events().aging;
        let step = run.reclaim.step(&mut self.engine, &mut self.model, 0);
        let aged = self.events().aging;
        assert!(aged - agings <= 1, "I9: one step opens at most one generation");
        match step {
            Step::Walk => run.phase = Phase::Walking(None),
            Step::Unmap => {
                // How many generations a slot was from the young end before this step: max_seq is 3
                // + agings. An aging in this step makes everything one older.
                let depth = |slot: usize| (7 + agings - slot as u64) % 4 + aged - agings;
                for victim in run.reclaim.victims() {
                    let f = victim.folio;
                    let key = (victim.owner.space, victim.owner.page);
                    let lazy = self.model.resident[&key].lazy;
                    assert_eq!(victim.to_swap, key.0 == self.anon && !lazy);
                    if victim.to_swap && !self.model.slots.contains_key(&key) {
                        self.model.slots.insert(key, Slot::Void);
                        self.model.resident.get_mut(&key).unwrap().dirty = true;
                    }
                    assert!(
                        !self.model.harvested.contains(&f),
                        "I13: {f:?} was young and is a victim"
                    );
                    assert!(
                        before[&f].is_none_or(|slot| depth(slot) >= 2),
                        "I12: {f:?} is of a young generation"
                    );
                }
                run.phase = Phase::Unmapping;
            }
            Step::Freed => self.freed(&run.reclaim),
            Step::Throttle(reason, nanos) => {
                assert!(nanos <= reason.timeout_ns(), "I24");
                let background = run.reason == Reason::Kswapd;
                assert_eq!(reason == ThrottleReason::Writeback, background, "I24: {reason:?}");
            }
            Step::WakeFlushers | Step::Yield => {}
            Step::Done => {
                let reclaimed = run.reclaim.reclaimed();
                if self.policy.lists() == Lists::MultiGen {
                    let batch = MIN_LRU_BATCH + (1 << MAX_ORDER);
                    assert!(
                        reclaimed < run.goal + batch,
                        "I16: {reclaimed} reclaimed for {}",
                        run.goal
                    );
                }
                return Some(reclaimed);
            }
        }
        None
    }

    /// Walks one table, or asks for the next space.
    fn walk(&mut self, run: &mut Run, at: Option<(SpaceId, u64)>) -> Phase {
        let job = run.reclaim.age_job();
        let Some((space, table)) = at else {
            return match job.next_space(&mut self.engine) {
                Some(space) => Phase::Walking(Some((space, 0))),
                None => Phase::Ready,
            };
        };
        let (first, end) = (table * TABLE_ENTRIES, (table + 1) * TABLE_ENTRIES);
        let key = TableKey(u64::from(space.0) << 32 | table);
        if job.wants(&self.engine, key) {
            let mut young = 0;
            for (_, r) in self.model.resident.range_mut((space, first)..(space, end)) {
                if r.young
                    && let Some(folio) = job.takes(&self.engine, r.id)
                {
                    r.young = false;
                    young += 1;
                    job.young(&mut self.engine, folio, r.id.0.is_multiple_of(3));
                }
            }
            job.table_done(&mut self.engine, key, young, TABLE_ENTRIES);
        }
        Phase::Walking((end < PAGES).then_some((space, table + 1)))
    }

    /// Settles the victims: honest about changes, arbitrary about the rest.
    fn unmap(&mut self, run: &mut Run, luck: u32) {
        for (i, victim) in run.reclaim.victims().iter_mut().enumerate() {
            let key = (victim.owner.space, victim.owner.page);
            let r = self.model.resident[&key];
            if r.lazy && r.stored {
                self.dirty(victim.folio);
            }
            let r = self.model.resident[&key];
            let changed =
                r.young || r.writeback || r.unevictable || r.locked || (r.dirty && !victim.to_swap);
            let luck = luck.rotate_left(i as u32);
            victim.outcome = match luck % 8 {
                _ if changed => Unmapped::Raced,
                0 => Unmapped::Pinned,
                1 => Unmapped::Raced,
                _ => Unmapped::Done,
            };
            if victim.outcome == Unmapped::Done && victim.to_swap {
                self.unmap_to_swap(victim, luck);
            }
        }
    }

    fn freed(&mut self, reclaim: &Reclaim) {
        for gone in reclaim.freed() {
            let key = (gone.owner.space, gone.owner.page);
            let r = self.model.resident.remove(&key).expect("what is freed was there");
            assert!(!r.dirty && !r.writeback, "I14: a folio with unwritten data was freed");
            assert!(!r.unevictable && !r.locked, "a folio that may not be evicted was freed");
            if r.lazy {
                assert!(!r.stored, "a store to a page that was freed is lost");
                assert_eq!(gone.shadow, None);
                self.model.latest.remove(&key);
                self.release(r.id, r.order);
                continue;
            }
            if key.0 == self.anon {
                assert!(!r.mapped && !r.stored, "a store to a page that was freed is lost");
                let slot =
                    self.model.slots.get(&key).expect("I20: anonymous memory has nowhere to go");
                assert_eq!(
                    *slot,
                    Slot::Holds(self.model.latest[&key]),
                    "a page was freed unwritten"
                );
            }
            assert_eq!((r.id, r.order), (gone.folio, gone.order));
            let shadow = gone.shadow.expect("I19");
            assert_eq!(Shadow::from_bits(shadow.to_bits()), Some(shadow), "I19");
            self.model.shadows.insert(key, shadow);
            self.release(r.id, r.order);
        }
    }

    fn events(&self) -> Events {
        self.engine.stat(ROOT).events
    }

    fn folios(&self) -> impl Iterator<Item = (FolioId, &Folio)> {
        self.model
            .resident
            .values()
            .map(|r| (r.id, self.engine.folio(r.id).expect("the model has it")))
    }

    /// What must hold between any two operations.
    fn after(&mut self) {
        self.engine.validate().unwrap();
        let stat = self.engine.stat(ROOT);
        let (mut resident, mut on_lists, mut dirty, mut elsewhere) = (0, 0, 0, 0);
        let (mut swapcached, mut swap_only) = (0, 0);
        for (key, r) in &self.model.resident {
            let f =
                self.engine.folio(r.id).expect("what is resident in the model is in the engine");
            let flags = f.flags();
            assert_eq!((f.owner().space, f.owner().page, f.order()), (key.0, key.1, r.order));
            assert_eq!(flags.contains(Flags::DIRTY), r.dirty);
            assert_eq!(flags.contains(Flags::WRITEBACK), r.writeback);
            assert_eq!(flags.contains(Flags::LAZYFREE), r.lazy);
            assert_eq!(flags.contains(Flags::MLOCKED), r.unevictable);
            assert_eq!(flags.contains(Flags::SWAPCACHE), self.model.slots.contains_key(key));
            assert_eq!(flags.contains(Flags::SWAPPED), key.0 == self.anon && !r.mapped);
            swapcached += u64::from(flags.contains(Flags::SWAPCACHE));
            swap_only += u64::from(flags.contains(Flags::SWAPPED));
            assert!(flags.refs() <= 4 && flags.tier() <= 3, "I8");
            assert_eq!(flags.tier() == 3, flags.contains(Flags::WORKINGSET), "I8");
            resident += f.pages();
            dirty += if r.dirty && !f.is_anon() { f.pages() } else { 0 };
            on_lists += if flags.contains(Flags::LRU) { f.pages() } else { 0 };
            elsewhere +=
                u64::from(!flags.intersects(Flags::LRU | Flags::ADD_BATCH | Flags::CULLED));
        }
        assert_eq!(stat.anon + stat.file + swap_only, resident);
        assert_eq!(stat.swapcached, swapcached);
        assert_eq!(self.engine.free_swap_pages(), self.swap.pages - self.model.slots.len() as u64);
        assert_eq!(stat.current, resident, "everything charged is resident between operations");
        assert_eq!(stat.file_dirty, dirty);
        let lists = [stat.inactive_anon, stat.active_anon, stat.inactive_file, stat.active_file];
        assert_eq!(lists.iter().sum::<u64>(), on_lists, "I6");
        assert!(
            elsewhere == 0 || self.runs.iter().flatten().count() > 0,
            "I7: {elsewhere} are isolated"
        );
        let e = stat.events;
        for ((name, now), (_, before)) in e.iter().zip(self.before.iter()) {
            assert!(now >= before, "I33: {name} went from {before} to {now}");
        }
        assert!(e.workingset_restore_file <= e.workingset_refault_file, "I34");
        if self.policy.lists() != Lists::MultiGen {
            assert!(e.workingset_restore_file <= e.workingset_activate_file, "I34");
            assert!(e.workingset_activate_file <= e.workingset_refault_file, "I34");
        } else if self.policy.has(Switches::ACTIVATE | Switches::RECENCY) {
            assert!(e.workingset_activate_file <= e.workingset_restore_file, "I34");
        }
        self.before = e;
    }

    /// Ends everything that is in progress and releases everything that is held; then, with one
    /// clean evictable folio of file memory in a full budget, a charge must succeed.
    fn settle(&mut self) {
        for slot in 0..2 {
            if let Some(mut run) = self.runs[slot].take() {
                while self.advance(&mut run, u32::MAX).is_none() {}
            }
        }
        self.after();
        self.settling = true;
        self.engine.set_swappiness(ROOT, 60);
        for key in self.model.resident.keys().copied().collect::<Vec<_>>() {
            let r = self.model.resident.get_mut(&key).unwrap();
            r.locked = false;
            r.unevictable = false;
            self.engine.set_unevictable(r.id, false);
            if r.dirty && !r.writeback {
                self.start_writeback(key);
            }
            if self.model.resident[&key].writeback {
                self.end_writeback(key, true);
            }
        }
        self.after();
        let filler = SpaceId(self.file.0);
        for page in PAGES..PAGES + 2 * self.free.len() as u64 {
            let clean = self.model.resident.iter().any(|(k, r)| k.0 == self.file && !r.dirty);
            let room = self.engine.usage(ROOT) < self.engine.max(ROOT);
            let charged = self.resident((filler, page), LruType::File, 0, false).is_some();
            assert!(
                charged || !(clean || room),
                "a clean folio was there, and no room could be made"
            );
        }
        self.after();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_engine_agrees_with_the_model_whatever_happens(
        policy in policies(), max in 32..160_u32, swap in swaps(), ops in ops(),
    ) {
        let mut world = World::new(policy, max, swap);
        for op in ops {
            world.apply(op);
            world.after();
        }
        world.settle();
    }
}
