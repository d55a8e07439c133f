//! Drawing a plan from a seed.
//!
//! Every plan switches a different set of things on (that is the idea of a swarm): a run in which
//! nothing is ever written finds other bugs than one in which everything is. Sizes are drawn by
//! their logarithm, so that small ones, where the corners are, come often. Memory is small in
//! comparison to the data, but not always; heaps fit, now and then just so.
//!
//! Drawing is in integers, and the order of the draws is the meaning of a seed: a new property is
//! drawn last.

use super::plan::{Fault, PAGE, PAGE_LEAST, PAGE_MOST, Pattern, Plan, SpacePlan, ThreadPlan};
use crate::spec::DeviceSpec;
use lowtide_core::limits::MIN_BUDGET;
use lowtide_core::{DirtyLimits, DirtyShare, Policy, Switches};
use lowtide_workload::{SpaceKind, SplitMix64};

/// Pages of a space at most.
const PAGES_MAX: u64 = 8192;
/// The cost of a full check is proportional to frames and pages; a run makes about so many page
/// visits in checks.
const CHECK_PAGES: u64 = 400_000;

/// A generator with the shapes that plans need.
struct Dice(SplitMix64);

impl Dice {
    fn percent(&mut self, percent: u32) -> bool {
        self.0.percent(percent)
    }

    /// `least..=most`.
    fn range(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.below(most - least + 1)
    }

    /// `least..=most`, each power of two as likely as any other.
    fn by_magnitude(&mut self, least: u64, most: u64) -> u64 {
        let steps = u64::from((most / least).ilog2());
        let low = least << self.range(0, steps);
        self.range(low, (2 * low).min(most))
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.below(of.len() as u64) as usize]
    }
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice(SplitMix64::new(seed).fork(0x5741_524D));
        let whole = dice.percent(30);
        let budget = dice.by_magnitude(if whole { 2 * MIN_BUDGET } else { MIN_BUDGET }, 4096);
        let devices: Vec<&'static str> = DeviceSpec::names().collect();
        let mut plan = Self {
            seed,
            cpus: dice.range(1, 8) as u16,
            page: PAGE,
            budget,
            room: budget,
            whole,
            walks: 1,
            device: dice.one_of(&devices),
            readahead: dice.one_of(&[0, 0, 4, 32, 32, 256]),
            around: dice.one_of(&[0, 16, 16, 64]),
            policy: policy(&mut dice),
            dirty: None,
            exact: false,
            processes: dice.one_of(&[1, 1, 1, 2, 3]),
            spaces: Vec::new(),
            threads: Vec::new(),
            faults: Vec::new(),
            check: 1,
            bug: None,
        };
        plan.draw_spaces(&mut dice);
        plan.draw_threads(&mut dice);
        plan.draw_faults(&mut dice);
        plan.draw_power(&mut dice);
        plan.draw_limits(&mut dice);
        plan.draw_discards(&mut dice);
        plan.draw_sizes(&mut dice);
        if dice.percent(20) {
            plan.walks = dice.one_of(&[10, 100, 1_000, 10_000]);
        }
        // A device that takes a second is slow enough: waiting a minute for a page is a million
        // naps.
        let slowest =
            DeviceSpec::preset(plan.device).is_some_and(|device| device.write_ns >= 1_000_000_000);
        plan.faults.retain(|(_, fault)| !slowest || !matches!(fault, Fault::Slow(_)));
        // About ten turns to an operation.
        let checks = (CHECK_PAGES / (plan.budget + plan.pages())).max(4);
        plan.check = (10 * plan.ops() / checks).max(1);
        plan
    }

    fn pages(&self) -> u64 {
        self.spaces.iter().map(|space| space.pages).sum()
    }

    fn draw_spaces(&mut self, dice: &mut Dice) {
        // Heaps never leave memory: what all of them together may take.
        let room = match dice.range(0, 9) {
            0 => self.budget - self.budget / 8,
            1 => self.budget,
            _ => self.budget / 2,
        } / u64::from(self.processes);
        let mut left = room;
        for i in 0..dice.range(1, 4) {
            let heap = i > 0 && left >= 8 && dice.percent(40);
            self.spaces.push(if heap {
                let pages = if dice.percent(30) { left } else { dice.by_magnitude(8, left) };
                left -= pages;
                SpacePlan { kind: SpaceKind::Anon, pages }
            } else {
                let times = dice.by_magnitude(32, 2048);
                SpacePlan {
                    kind: SpaceKind::File,
                    pages: (self.budget * times / 256).clamp(8, PAGES_MAX),
                }
            });
        }
    }

    fn draw_threads(&mut self, dice: &mut Dice) {
        let ops =
            if dice.percent(8) { dice.range(4_000, 12_000) } else { dice.by_magnitude(200, 3_200) };
        let threads = dice.by_magnitude(1, 16);
        // What a whole plan does not do at all.
        let (no_writes, no_maps, no_syncs, no_frees) =
            (dice.percent(20), dice.percent(15), dice.percent(50), dice.percent(50));
        let some =
            |dice: &mut Dice, never: bool, of: &[u32]| if never { 0 } else { dice.one_of(of) };
        for _ in 0..threads {
            let space = dice.range(0, self.spaces.len() as u64 - 1) as usize;
            self.threads.push(ThreadPlan {
                space,
                pattern: dice.one_of(&Pattern::ALL),
                mapped: some(dice, no_maps, &[0, 0, 20, 50, 80, 100, 100]),
                writes: some(dice, no_writes, &[0, 0, 1, 5, 20, 50, 100]),
                syncs: some(dice, no_syncs, &[0, 0, 1, 10, 100]),
                frees: some(dice, no_frees, &[0, 0, 1, 10, 50]),
                sleeps: dice.one_of(&[0, 0, 0, 2, 50]),
                pages: dice.one_of(&[1, 1, 1, 4, 16, 64]).min(self.spaces[space].pages),
                think_ns: dice.one_of(&[0, 100, 1_000, 30_000]),
                ops: (ops / threads).max(10),
                drops: 0,
                resizes: 0,
                parts: 0,
            });
        }
    }

    fn draw_faults(&mut self, dice: &mut Dice) {
        let ops = self.ops();
        if dice.percent(30) {
            self.faults.push((0, Fault::Slow(dice.one_of(&[3, 10, 50]))));
        }
        if dice.percent(35) {
            for _ in 0..dice.range(1, 4) {
                let pages = match dice.range(0, 3) {
                    0 => MIN_BUDGET,
                    1 => self.budget,
                    _ => dice.range(MIN_BUDGET, self.budget),
                };
                self.faults.push((dice.range(0, ops), Fault::Max(pages)));
            }
        }
        if dice.percent(30) {
            for _ in 0..dice.range(1, 2) {
                let from = dice.range(0, ops);
                self.faults.push((from, Fault::Slow(100)));
                self.faults.push((dice.range(from, ops), Fault::Slow(1)));
            }
        }
        if dice.percent(30) {
            // Never all of them: writers would wait for ever for a device that writes nothing.
            let from = dice.range(0, ops);
            self.faults.push((from, Fault::Fail(dice.one_of(&[2, 3, 7, 20, 100]))));
            self.faults.push((dice.range(from, ops), Fault::Fail(0)));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Power cuts, devices that fail in one way only, and limits for dirty pages.
    fn draw_power(&mut self, dice: &mut Dice) {
        let ops = self.ops();
        if dice.percent(60) {
            for _ in 0..dice.range(1, 4) {
                self.faults.push((dice.range(0, ops), Fault::Cut(dice.range(0, 999))));
            }
            // A cut is of interest where something was acknowledged.
            let few = [0, 1, 10, 10, 100];
            self.threads
                .iter_mut()
                .filter(|t| t.syncs == 0)
                .for_each(|t| t.syncs = dice.one_of(&few));
            let some = [0, 5, 20, 50, 100];
            self.threads
                .iter_mut()
                .filter(|t| t.writes == 0)
                .for_each(|t| t.writes = dice.one_of(&some));
        }
        let kinds: [fn(u64) -> Fault; 2] = [Fault::FailWrites, Fault::FailFlushes];
        for fault in kinds {
            if dice.percent(15) {
                let from = dice.range(0, ops);
                self.faults.push((from, fault(dice.one_of(&[2, 3, 10, 50]))));
                self.faults.push((dice.range(from, ops), fault(0)));
            }
        }
        self.faults.sort_by_key(|(at, _)| *at);
        self.exact = dice.percent(50);
        if dice.percent(40) {
            self.dirty = Some(if dice.percent(50) {
                let hard = dice.one_of(&[1, 2, 5, 10, 20, 50, 100]);
                let background = DirtyShare::Percent(dice.range(0, hard.into()) as u32);
                DirtyLimits { background, hard: DirtyShare::Percent(hard) }
            } else {
                let hard = PAGE * dice.by_magnitude(2, self.budget);
                DirtyLimits {
                    background: DirtyShare::Bytes(dice.range(0, hard)),
                    hard: DirtyShare::Bytes(hard),
                }
            });
        }
    }
}

impl Plan {
    /// The size of base pages, and budgets that are lowered and raised, above the first one too.
    fn draw_limits(&mut self, dice: &mut Dice) {
        if dice.percent(50) {
            self.page = PAGE_LEAST << dice.range(0, (PAGE_MOST / PAGE_LEAST).ilog2().into());
        }
        // What was drawn for pages of the usual size stays the same number of pages.
        let scaled = |share| match share {
            DirtyShare::Bytes(bytes) => DirtyShare::Bytes(bytes / PAGE * self.page),
            percent @ DirtyShare::Percent(_) => percent,
        };
        self.dirty = self.dirty.map(|limits| DirtyLimits {
            background: scaled(limits.background),
            hard: scaled(limits.hard),
        });
        if !dice.percent(30) {
            return;
        }
        self.room = (self.budget * dice.one_of(&[4, 4, 5, 8, 16]) / 4).min(PAGES_MAX);
        let ops = self.ops();
        for _ in 0..dice.range(1, 3) {
            let lowered = dice.range(0, ops);
            self.faults.push((lowered, Fault::Max(dice.range(MIN_BUDGET, self.budget))));
            let raised = Fault::Max(dice.range(self.budget, self.room));
            self.faults.push((dice.range(lowered, ops), raised));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Files that are made shorter and longer, and stores to parts of pages.
    fn draw_sizes(&mut self, dice: &mut Dice) {
        if dice.percent(40) {
            self.threads.iter_mut().for_each(|t| t.resizes = dice.one_of(&[0, 0, 1, 5, 20]));
        }
        if dice.percent(40) {
            self.threads.iter_mut().for_each(|t| t.parts = dice.one_of(&[0, 10, 50, 100]));
        }
    }

    /// Threads that drop what is cached, and reads that hang.
    fn draw_discards(&mut self, dice: &mut Dice) {
        if dice.percent(30) {
            self.threads.iter_mut().for_each(|t| t.drops = dice.one_of(&[0, 1, 10, 50]));
        }
        if dice.percent(25) {
            let ops = self.ops();
            let from = dice.range(0, ops);
            self.faults.push((from, Fault::Hang(dice.one_of(&[1, 3, 10, 50]))));
            self.faults.push((dice.range(from, ops), Fault::Hang(0)));
            self.faults.sort_by_key(|(at, _)| *at);
        }
    }
}

/// A built-in policy; every third has up to four switches turned.
fn policy(dice: &mut Dice) -> Policy {
    let all: Vec<Policy> = Policy::builtin().map(|(policy, _)| policy).collect();
    let mut policy = dice.one_of(&all);
    if dice.percent(33) {
        let switches: Vec<Switches> = Switches::all().iter().collect();
        for _ in 0..dice.range(1, 4) {
            let switch = dice.one_of(&switches);
            policy = policy.with(switch, !policy.has(switch));
        }
    }
    policy
}
