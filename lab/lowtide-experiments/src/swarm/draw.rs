//! Drawing a plan from a seed.
//!
//! Every plan switches a different set of things on (that is the idea of a swarm): a run in which
//! nothing is ever written finds other bugs than one in which everything is. Sizes are drawn by
//! their logarithm, so that small ones, where the corners are, come often. Memory is small in
//! comparison to the data, but not always; heaps fit, now and then just so.
//!
//! Drawing is in integers, and the order of the draws is the meaning of a seed: a new property is
//! drawn last.

use lowtide_core::limits::MIN_BUDGET;
use lowtide_core::{DirtyLimits, DirtyShare, Policy, Switches};
use lowtide_sim::spec::{DeviceSpec, FaultPath};
use lowtide_workload::{SpaceKind, SplitMix64};

use super::plan::{Fault, PAGE, PAGE_LEAST, PAGE_MOST, Pattern, Plan, SpacePlan, ThreadPlan};

/// Pages of a space at most.
const PAGES_MAX: u64 = 8192;
/// The cost of a full check is proportional to frames and pages; a run makes about this many page
/// visits in checks.
const CHECK_PAGES: u64 = 400_000;

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed).fork(0x5741_524D);
        let whole = rng.percent(30);
        let budget = rng.by_magnitude(if whole { 2 * MIN_BUDGET } else { MIN_BUDGET }, 4096);
        let devices: Vec<&'static str> = DeviceSpec::names().collect();
        let mut plan = Self {
            seed,
            cpus: rng.range(1, 8) as u16,
            page: PAGE,
            budget,
            room: budget,
            whole,
            walks: 1,
            device: rng.one_of(&devices),
            readahead: rng.one_of(&[0, 0, 4, 32, 32, 256]),
            around: rng.one_of(&[0, 16, 16, 64]),
            policy: policy(&mut rng),
            path: FaultPath::default(),
            dirty: None,
            exact: false,
            large: false,
            processes: rng.one_of(&[1, 1, 1, 2, 3]),
            spaces: Vec::new(),
            threads: Vec::new(),
            faults: Vec::new(),
            check: 1,
            bug: None,
        };
        plan.draw_spaces(&mut rng);
        plan.draw_threads(&mut rng);
        plan.draw_faults(&mut rng);
        plan.draw_power(&mut rng);
        plan.draw_limits(&mut rng);
        plan.draw_discards(&mut rng);
        plan.draw_sizes(&mut rng);
        if rng.percent(20) {
            plan.walks = rng.one_of(&[10, 100, 1_000, 10_000]);
        }
        if rng.percent(75) {
            plan.path = rng.one_of(&FaultPath::ALL);
        }
        plan.draw_lazy_frees(&mut rng);
        plan.draw_folios(&mut rng);
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

    fn draw_spaces(&mut self, rng: &mut SplitMix64) {
        // Heaps never leave memory: what all of them together may take.
        let room = match rng.range(0, 9) {
            0 => self.budget - self.budget / 8,
            1 => self.budget,
            _ => self.budget / 2,
        } / u64::from(self.processes);
        let mut left = room;
        for i in 0..rng.range(1, 4) {
            let heap = i > 0 && left >= 8 && rng.percent(40);
            self.spaces.push(if heap {
                let pages = if rng.percent(30) { left } else { rng.by_magnitude(8, left) };
                left -= pages;
                SpacePlan { kind: SpaceKind::Anon, pages }
            } else {
                let times = rng.by_magnitude(32, 2048);
                SpacePlan {
                    kind: SpaceKind::File,
                    pages: (self.budget * times / 256).clamp(8, PAGES_MAX),
                }
            });
        }
    }

    fn draw_threads(&mut self, rng: &mut SplitMix64) {
        let ops =
            if rng.percent(8) { rng.range(4_000, 12_000) } else { rng.by_magnitude(200, 3_200) };
        let threads = rng.by_magnitude(1, 16);
        // What a whole plan does not do at all.
        let (no_writes, no_maps, no_syncs, no_frees) =
            (rng.percent(20), rng.percent(15), rng.percent(50), rng.percent(50));
        let some =
            |rng: &mut SplitMix64, never: bool, of: &[u32]| if never { 0 } else { rng.one_of(of) };
        for _ in 0..threads {
            let space = rng.range(0, self.spaces.len() as u64 - 1) as usize;
            self.threads.push(ThreadPlan {
                space,
                pattern: rng.one_of(&Pattern::ALL),
                mapped: some(rng, no_maps, &[0, 0, 20, 50, 80, 100, 100]),
                writes: some(rng, no_writes, &[0, 0, 1, 5, 20, 50, 100]),
                syncs: some(rng, no_syncs, &[0, 0, 1, 10, 100]),
                frees: some(rng, no_frees, &[0, 0, 1, 10, 50]),
                sleeps: rng.one_of(&[0, 0, 0, 2, 50]),
                pages: rng.one_of(&[1, 1, 1, 4, 16, 64]).min(self.spaces[space].pages),
                think_ns: rng.one_of(&[0, 100, 1_000, 30_000]),
                ops: (ops / threads).max(10),
                drops: 0,
                resizes: 0,
                parts: 0,
                lazy: 0,
            });
        }
    }

    fn draw_faults(&mut self, rng: &mut SplitMix64) {
        let ops = self.ops();
        if rng.percent(30) {
            self.faults.push((0, Fault::Slow(rng.one_of(&[3, 10, 50]))));
        }
        if rng.percent(35) {
            for _ in 0..rng.range(1, 4) {
                let pages = match rng.range(0, 3) {
                    0 => MIN_BUDGET,
                    1 => self.budget,
                    _ => rng.range(MIN_BUDGET, self.budget),
                };
                self.faults.push((rng.range(0, ops), Fault::Max(pages)));
            }
        }
        if rng.percent(30) {
            for _ in 0..rng.range(1, 2) {
                let from = rng.range(0, ops);
                self.faults.push((from, Fault::Slow(100)));
                self.faults.push((rng.range(from, ops), Fault::Slow(1)));
            }
        }
        if rng.percent(30) {
            // Never all of them: writers would wait forever for a device that writes nothing.
            let from = rng.range(0, ops);
            self.faults.push((from, Fault::Fail(rng.one_of(&[2, 3, 7, 20, 100]))));
            self.faults.push((rng.range(from, ops), Fault::Fail(0)));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Power cuts, devices that fail in one way only, and limits for dirty pages.
    fn draw_power(&mut self, rng: &mut SplitMix64) {
        let ops = self.ops();
        if rng.percent(60) {
            for _ in 0..rng.range(1, 4) {
                self.faults.push((rng.range(0, ops), Fault::Cut(rng.range(0, 999))));
            }
            // A cut is of interest where something was acknowledged.
            let few = [0, 1, 10, 10, 100];
            self.threads
                .iter_mut()
                .filter(|t| t.syncs == 0)
                .for_each(|t| t.syncs = rng.one_of(&few));
            let some = [0, 5, 20, 50, 100];
            self.threads
                .iter_mut()
                .filter(|t| t.writes == 0)
                .for_each(|t| t.writes = rng.one_of(&some));
        }
        let kinds: [fn(u64) -> Fault; 2] = [Fault::FailWrites, Fault::FailFlushes];
        for fault in kinds {
            if rng.percent(15) {
                let from = rng.range(0, ops);
                self.faults.push((from, fault(rng.one_of(&[2, 3, 10, 50]))));
                self.faults.push((rng.range(from, ops), fault(0)));
            }
        }
        self.faults.sort_by_key(|(at, _)| *at);
        self.exact = rng.percent(50);
        if rng.percent(40) {
            self.dirty = Some(if rng.percent(50) {
                let hard = rng.one_of(&[1, 2, 5, 10, 20, 50, 100]);
                let background = DirtyShare::Percent(rng.range(0, hard.into()) as u32);
                DirtyLimits::new(background, DirtyShare::Percent(hard))
            } else {
                let hard = PAGE * rng.by_magnitude(2, self.budget);
                DirtyLimits::new(DirtyShare::Bytes(rng.range(0, hard)), DirtyShare::Bytes(hard))
            });
        }
    }
}

impl Plan {
    /// The size of base pages, and budgets that are lowered and raised, above the first one too.
    fn draw_limits(&mut self, rng: &mut SplitMix64) {
        if rng.percent(50) {
            self.page = PAGE_LEAST << rng.range(0, (PAGE_MOST / PAGE_LEAST).ilog2().into());
        }
        // What was drawn for pages of the usual size stays the same number of pages.
        let scaled = |share| match share {
            DirtyShare::Bytes(bytes) => DirtyShare::Bytes(bytes / PAGE * self.page),
            percent @ DirtyShare::Percent(_) => percent,
        };
        self.dirty = self
            .dirty
            .map(|limits| DirtyLimits::new(scaled(limits.background), scaled(limits.hard)));
        if !rng.percent(30) {
            return;
        }
        self.room = (self.budget * rng.one_of(&[4, 4, 5, 8, 16]) / 4).min(PAGES_MAX);
        let ops = self.ops();
        for _ in 0..rng.range(1, 3) {
            let lowered = rng.range(0, ops);
            self.faults.push((lowered, Fault::Max(rng.range(MIN_BUDGET, self.budget))));
            let raised = Fault::Max(rng.range(self.budget, self.room));
            self.faults.push((rng.range(lowered, ops), raised));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Files that are made shorter and longer, and stores to parts of pages.
    fn draw_sizes(&mut self, rng: &mut SplitMix64) {
        if rng.percent(40) {
            self.threads.iter_mut().for_each(|t| t.resizes = rng.one_of(&[0, 0, 1, 5, 20]));
        }
        if rng.percent(40) {
            self.threads.iter_mut().for_each(|t| t.parts = rng.one_of(&[0, 10, 50, 100]));
        }
    }

    /// Threads that free pages of heaps lazily.
    fn draw_lazy_frees(&mut self, rng: &mut SplitMix64) {
        if rng.percent(30) {
            self.threads.iter_mut().for_each(|t| t.lazy = rng.one_of(&[0, 1, 10, 50]));
        }
    }

    /// Large folios, and for half of them a file that can have some.
    fn draw_folios(&mut self, rng: &mut SplitMix64) {
        self.large = rng.percent(30);
        if self.large && rng.percent(50) {
            let space = rng.range(0, self.spaces.len() as u64 - 1) as usize;
            let users = self.threads.iter_mut().filter(|t| t.space == space);
            users.for_each(|t| {
                (t.mapped, t.writes, t.resizes, t.frees) = (0, 0, 0, 0);
                t.pattern = rng.one_of(&[Pattern::Loop, Pattern::Scan, t.pattern]);
            });
            self.readahead = self.readahead.max(rng.one_of(&[8, 32, 256]));
        }
    }

    /// Threads that drop what is cached, and reads that hang.
    fn draw_discards(&mut self, rng: &mut SplitMix64) {
        if rng.percent(30) {
            self.threads.iter_mut().for_each(|t| t.drops = rng.one_of(&[0, 1, 10, 50]));
        }
        if rng.percent(25) {
            let ops = self.ops();
            let from = rng.range(0, ops);
            self.faults.push((from, Fault::Hang(rng.one_of(&[1, 3, 10, 50]))));
            self.faults.push((rng.range(from, ops), Fault::Hang(0)));
            self.faults.sort_by_key(|(at, _)| *at);
        }
    }
}

/// A built-in policy; every third has up to four switches turned.
fn policy(rng: &mut SplitMix64) -> Policy {
    let all: Vec<Policy> = Policy::builtin().map(|(policy, _)| policy).collect();
    let mut policy = rng.one_of(&all);
    if rng.percent(33) {
        let switches: Vec<Switches> = Switches::all().iter().collect();
        for _ in 0..rng.range(1, 4) {
            let switch = rng.one_of(&switches);
            policy = policy.with(switch, !policy.has(switch));
        }
    }
    policy
}
