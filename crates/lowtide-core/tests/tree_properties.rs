//! Random trees, charges, limits, moves and removals, with reclaims kept in the middle:
//! `docs/kernel/memcg.md` §16, 1-8, 14, 18.
//!
//! After every operation the engine recounts itself: usage is what children use and what is charged
//! here, claims are what children publish, stocks are within bounds, usage is at most `max` (or
//! falling). What is checked here beside that: a charge that fails changes nothing, effective
//! protection is never more than there is, a group below `min` is not looked at for others, events
//! add up, and in the end everything is given back.

use crate::forest::{Forest, ROOT};
use lowtide_core::{MemcgId, Policy, Reason, Reclaim, Step, Task};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Create {
        parent: usize,
    },
    Remove {
        group: usize,
    },
    Move {
        group: usize,
        to: usize,
    },
    Max {
        group: usize,
        pages: u64,
    },
    High {
        group: usize,
        pages: u64,
    },
    Low {
        group: usize,
        pages: u64,
    },
    Min {
        group: usize,
        pages: u64,
    },
    Page {
        group: usize,
        cpu: u16,
        times: u32,
    },
    Drop {
        nth: usize,
    },
    Reserve {
        group: usize,
        pages: u64,
    },
    Reclaim {
        group: usize,
        goal: u64,
    },
    /// Begins a reclaim that goes on bit by bit.
    Begin {
        group: usize,
        goal: u64,
    },
    Advance {
        steps: u32,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let any = any::<usize>();
    let limit = prop_oneof![Just(u64::MAX), 0..600_u64];
    prop_oneof![
        3 => any.prop_map(|parent| Op::Create { parent }),
        2 => any.prop_map(|group| Op::Remove { group }),
        1 => (any, any).prop_map(|(group, to)| Op::Move { group, to }),
        2 => (any, limit.clone()).prop_map(|(group, pages)| Op::Max { group, pages }),
        1 => (any, limit).prop_map(|(group, pages)| Op::High { group, pages }),
        2 => (any, 0..600_u64).prop_map(|(group, pages)| Op::Low { group, pages }),
        1 => (any, 0..400_u64).prop_map(|(group, pages)| Op::Min { group, pages }),
        12 => (any, 0..2_u16, 1..200_u32)
            .prop_map(|(group, cpu, times)| Op::Page { group, cpu, times }),
        3 => any.prop_map(|nth| Op::Drop { nth }),
        1 => (any, 1..100_u64).prop_map(|(group, pages)| Op::Reserve { group, pages }),
        2 => (any, 1..200_u64).prop_map(|(group, goal)| Op::Reclaim { group, goal }),
        1 => (any, 1..400_u64).prop_map(|(group, goal)| Op::Begin { group, goal }),
        4 => (1..20_u32).prop_map(|steps| Op::Advance { steps }),
    ]
}

struct World {
    forest: Forest,
    /// Live groups, the root first.
    groups: Vec<MemcgId>,
    reserved: Vec<(MemcgId, u64)>,
    running: Option<Reclaim>,
    moved: bool,
}

impl World {
    fn pick(&self, n: usize) -> MemcgId {
        self.groups[n % self.groups.len()]
    }

    /// Runs the reclaim that is kept to where it holds nothing: between two batches, or to its end.
    fn advance(&mut self, steps: u32) {
        let Some(mut reclaim) = self.running.take() else { return };
        for n in 0..10_000 {
            match self.forest.step(&mut reclaim) {
                Step::Done => return,
                Step::Yield | Step::Throttle(..) if n >= steps => break,
                _ => {}
            }
        }
        self.running = Some(reclaim);
    }

    fn usages(&self) -> Vec<u64> {
        self.groups.iter().map(|&g| self.forest.engine.usage(g)).collect()
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Create { parent } if self.groups.len() < 24 => {
                let id = self.forest.engine.create_group(self.pick(parent)).unwrap();
                assert!(!self.groups.contains(&id), "no name is used twice");
                self.groups.push(id);
            }
            Op::Create { .. } => {}
            Op::Remove { group } => {
                let id = self.pick(group);
                let leaf = id != ROOT && self.forest.engine.children(id).next().is_none();
                let parent = self.forest.engine.parent(id);
                let before = parent.map(|parent| self.forest.engine.stat(parent).events);
                assert_eq!(self.forest.engine.remove_group(id).is_ok(), leaf);
                if leaf {
                    let parent = parent.unwrap();
                    self.groups.retain(|&g| g != id);
                    self.reserved.iter_mut().filter(|r| r.0 == id).for_each(|r| r.0 = parent);
                    let mut after = self.forest.engine.stat(parent).events;
                    // Draining batches may have activated something.
                    after.pgactivate = before.unwrap().pgactivate;
                    assert_eq!(after, before.unwrap());
                }
            }
            Op::Move { group, to } => {
                let before = self.usages();
                let (group, to) = (self.pick(group), self.pick(to));
                if self.forest.engine.move_group(group, to).is_ok() {
                    self.moved = true;
                    assert_eq!(self.forest.engine.parent(group), Some(to));
                } else {
                    // Stocks may have been drained; nothing else has changed.
                    assert!(self.usages().iter().zip(&before).all(|(now, was)| now <= was));
                }
            }
            Op::Max { group, pages } => {
                let id = self.pick(group);
                if id != ROOT {
                    self.forest.engine.set_max(id, pages).unwrap();
                }
            }
            Op::High { group, pages } => self.forest.engine.set_high(self.pick(group), pages),
            Op::Low { group, pages } => self.forest.engine.set_low(self.pick(group), pages),
            Op::Min { group, pages } => self.forest.engine.set_min(self.pick(group), pages),
            Op::Page { group, cpu, times } => {
                let id = self.pick(group);
                for _ in 0..times {
                    if self.forest.page(id, Task { cpu, in_lru_fault: false }).is_err() {
                        break;
                    }
                }
            }
            Op::Drop { nth } => {
                let pages: Vec<_> = self.forest.pages.keys().copied().collect();
                if let Some(&page) = pages.get(nth % pages.len().max(1)) {
                    self.forest.drop_page(page);
                }
            }
            Op::Reserve { group, pages } => {
                let id = self.pick(group);
                if self.forest.charge(id, pages, Task::DESCRIPTOR).is_ok() {
                    self.forest.engine.reserve(id, pages);
                    self.reserved.push((id, pages));
                }
            }
            Op::Reclaim { group, goal } => self.reclaim(self.pick(group), goal),
            Op::Begin { group, goal } => {
                self.advance(10_000);
                self.running =
                    Some(Reclaim::new(self.pick(group), goal, Reason::Direct, Task::DESCRIPTOR));
            }
            Op::Advance { steps } => self.advance(steps),
        }
    }

    /// Reclaims, and checks whom.
    fn reclaim(&mut self, target: MemcgId, goal: u64) {
        let scans: Vec<_> =
            self.groups.iter().map(|&g| self.forest.engine.own_events(g).pgscan).collect();
        let before = self.usages();
        self.forest.reclaim(target, goal);
        let engine = &self.forest.engine;
        for (n, &g) in self.groups.iter().enumerate() {
            let scanned = engine.own_events(g).pgscan - scans[n];
            let within =
                std::iter::successors(Some(g), |&at| engine.parent(at)).any(|at| at == target);
            assert!(within || scanned == 0, "reclaim for {target:?} has looked at {g:?}");
            let (min, low) = engine.effective(g);
            let child_of_target = engine.parent(g) == Some(target);
            let setting = engine.limits(g).min;
            if child_of_target && setting >= before[n] && setting > 0 {
                assert_eq!(scanned, 0, "{g:?} has {setting} of {} protected", before[n]);
            }
            // Only of those that were visited is the protection that of this reclaim. A parent that
            // is protected beyond what it uses passes the excess on, so the rule "never
            // more than usage" holds below one that is not.
            if scanned > 0 && g != target && !child_of_target {
                let parent = engine.parent(g).unwrap();
                let (parent_min, parent_low) = engine.effective(parent);
                let excess = parent_min.max(parent_low) > engine.usage(parent);
                assert!(
                    excess || min.max(low) <= before[n],
                    "{g:?} is protected for {min}, {low} of {}",
                    before[n]
                );
            }
        }
    }

    fn check(&mut self) {
        self.forest.engine.validate().unwrap();
        let engine = &self.forest.engine;
        let frames =
            self.forest.pages.len() as u64 + self.reserved.iter().map(|r| r.1).sum::<u64>();
        assert_eq!(engine.usage(ROOT), frames, "the root counts every page and no stock");
        for &g in &self.groups {
            let below = engine.children(g).fold((0, 0), |sum, child| {
                let limits = engine.stat(child).limits;
                (sum.0 + limits.max, sum.1 + limits.oom)
            });
            let (all, own) = (engine.stat(g).limits, engine.local_events(g));
            // Groups that are gone have counted too; one that has moved did so at its old parent.
            let below = if self.moved { (0, 0) } else { below };
            assert!(all.max >= own.max + below.0 && all.oom >= own.oom + below.1);
        }
    }
}

fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::MGLRU), Just(Policy::MGLRU_7_1), Just(Policy::LRU), Just(Policy::TIDE)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn trees_keep_their_accounts(policy in policies(), ops in prop::collection::vec(op(), 1..120)) {
        let forest = Forest::new(policy, 1024, 2);
        let mut world = World {
            forest,
            groups: vec![ROOT],
            reserved: Vec::new(),
            running: None,
            moved: false,
        };
        for op in ops {
            world.apply(op);
            world.check();
        }
        world.advance(10_000);
        for (group, pages) in std::mem::take(&mut world.reserved) {
            world.forest.engine.release_reserved(group, pages);
        }
        let pages: Vec<_> = world.forest.pages.keys().copied().collect();
        pages.into_iter().for_each(|page| world.forest.drop_page(page));
        while world.groups.len() > 1 {
            let engine = &world.forest.engine;
            let is_leaf = |g: &&MemcgId| engine.children(**g).next().is_none();
            let leaf = *world.groups.iter().rev().find(is_leaf).unwrap();
            world.forest.engine.remove_group(leaf).unwrap();
            world.groups.retain(|&g| g != leaf);
        }
        world.check();
        prop_assert_eq!(world.forest.engine.usage(ROOT), 0);
    }
}
