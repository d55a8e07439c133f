//! The controller in closed loop with a memory that it limits: an exact LRU, accesses that cost
//! time, refaults that cost more.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

const MS: u64 = 1_000_000;
/// The driver's tick.
const TICK: u64 = 250 * MS;
/// What a program computes between two accesses.
const THINK_NS: u64 = 40_000;
const TARGET: u32 = 10_000;

/// Least-recently-used pages: a list in arrays, and evictions as a clock.
struct Memory {
    /// Neighbours of each page in memory: towards the newest, towards the oldest.
    links: HashMap<u64, (u64, u64)>,
    newest: u64,
    oldest: u64,
    evicted_at: HashMap<u64, u64>,
    evictions: u64,
}

const NONE: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Hit,
    Cold,
    /// No limit had evicted it.
    GivenBack,
    Refault {
        distance: u64,
    },
}

impl Memory {
    fn new() -> Self {
        let (links, evicted_at) = (HashMap::new(), HashMap::new());
        Self { links, newest: NONE, oldest: NONE, evicted_at, evictions: 0 }
    }

    fn usage(&self) -> u64 {
        self.links.len() as u64
    }

    fn unlink(&mut self, page: u64) -> bool {
        let Some((newer, older)) = self.links.remove(&page) else { return false };
        match self.links.get_mut(&newer) {
            Some(link) => link.1 = older,
            None => self.newest = older,
        }
        match self.links.get_mut(&older) {
            Some(link) => link.0 = newer,
            None => self.oldest = newer,
        }
        true
    }

    fn push(&mut self, page: u64) {
        if let Some(link) = self.links.get_mut(&self.newest) {
            link.0 = page;
        } else {
            self.oldest = page;
        }
        self.links.insert(page, (NONE, self.newest));
        self.newest = page;
    }

    fn evict_to(&mut self, limit: u64) {
        while self.usage() > limit {
            let page = self.oldest;
            self.unlink(page);
            self.evictions += 1;
            self.evicted_at.insert(page, self.evictions);
        }
    }

    /// Gives pages back that the limit allows.
    fn give_back(&mut self, pages: u64) {
        for _ in 0..pages {
            let page = self.oldest;
            self.unlink(page);
            self.evictions += 1;
            self.evicted_at.insert(page, NONE);
        }
    }

    fn access(&mut self, page: u64, limit: u64) -> Access {
        if self.unlink(page) {
            self.push(page);
            return Access::Hit;
        }
        let found = match self.evicted_at.remove(&page) {
            None => Access::Cold,
            Some(NONE) => Access::GivenBack,
            Some(then) => Access::Refault { distance: self.evictions - then + 1 },
        };
        self.push(page);
        self.evict_to(limit);
        found
    }
}

/// What a program reads.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Nine of ten accesses to a tenth of the pages, the others to all.
    Skewed(u64),
    Uniform(u64),
    Loop(u64),
    /// Never the same page.
    Fresh,
    Nothing,
}

impl Load {
    /// Pages accessed in ten seconds, or nearly.
    const fn active(self) -> u64 {
        match self {
            Self::Skewed(pages) | Self::Uniform(pages) | Self::Loop(pages) => pages,
            Self::Fresh => 10 * NS_PER_SEC / THINK_NS,
            Self::Nothing => 0,
        }
    }
}

struct World {
    memory: Memory,
    auto: AutoLimit,
    evidence: Evidence,
    now: u64,
    random: u64,
    at: u64,
    miss_ns: u64,
    /// Limits at the ticks.
    limits: Vec<u64>,
}

impl World {
    fn new(least: u64, most: u64, miss_ns: u64) -> Self {
        let bounds = AutoBounds { least, most, target: TARGET };
        let auto = AutoLimit::new(bounds, 0, 0);
        Self {
            memory: Memory::new(),
            auto,
            evidence: Evidence::default(),
            now: 0,
            random: 1,
            at: 0,
            miss_ns,
            limits: vec![],
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    fn next(&mut self, load: Load) -> Option<u64> {
        self.at += 1;
        Some(match load {
            Load::Skewed(pages) if self.random(10) > 0 => self.random(pages / 10),
            Load::Skewed(pages) | Load::Uniform(pages) => self.random(pages),
            Load::Loop(pages) => self.at % pages.max(1),
            Load::Fresh => (1 << 40) + self.at,
            Load::Nothing => return None,
        })
    }

    /// Plays a load for some seconds; the share of the time that was waited, in millionths, in the
    /// second half.
    fn play(&mut self, load: Load, seconds: u64) -> u64 {
        let (mut waited_late, begin, end) = (0, self.now, self.now + seconds * NS_PER_SEC);
        while self.now < end {
            let tick_end = self.now + TICK;
            let mut cold = 0;
            while self.now < tick_end {
                let Some(page) = self.next(load) else {
                    self.now = tick_end;
                    break;
                };
                let evictions = self.memory.evictions;
                let found = self.memory.access(page, self.auto.limit());
                self.evidence.evicted(self.memory.evictions - evictions);
                self.now += THINK_NS + if found == Access::Hit { 0 } else { self.miss_ns };
                match found {
                    Access::Refault { distance } => {
                        self.evidence.note(self.memory.usage(), distance, self.miss_ns);
                    }
                    Access::Cold | Access::GivenBack => cold += 1,
                    Access::Hit => {}
                }
            }
            let mut waiting = self.evidence.take();
            waiting.note_cold(cold);
            if self.now > begin + (end - begin) / 2 {
                waited_late += waiting.total_ns();
            }
            let sample = Sample {
                now_ns: self.now,
                usage: self.memory.usage(),
                waited: &waiting,
                active: Some(load.active()),
                is_idle: matches!(load, Load::Nothing),
                is_stuck: false,
            };
            let before = self.auto.limit();
            let step = self.auto.tick(&sample);
            if step.limit > before {
                self.evidence.limit_rises(self.memory.usage());
            }
            let AutoBounds { least, most, .. } = self.auto.bounds();
            assert!((least..=most).contains(&step.limit), "{step:?}");
            assert_eq!(step.limit, self.auto.limit());
            let evictions = self.memory.evictions;
            self.memory.evict_to(step.limit);
            self.evidence.evicted(self.memory.evictions - evictions);
            self.memory.give_back(step.give_back.min(self.memory.usage()));
            self.limits.push(step.limit);
        }
        waited_late * MILLION / (seconds * NS_PER_SEC / 2)
    }

    /// The smallest and the largest limit of the last seconds.
    fn range(&self, seconds: u64) -> (u64, u64) {
        let ticks = (seconds * NS_PER_SEC / TICK) as usize;
        let last = &self.limits[self.limits.len().saturating_sub(ticks)..];
        (*last.iter().min().unwrap(), *last.iter().max().unwrap())
    }
}

#[test]
fn it_settles_where_the_target_is_held_and_stays_there() {
    for miss_ns in [20_000, 100_000, 5 * MS] {
        let mut world = World::new(256, 8192, miss_ns);
        world.play(Load::Uniform(2000), 60);
        let share = world.play(Load::Uniform(2000), 240);
        let (low, high) = world.range(120);
        assert!((1800..=2600).contains(&low), "{miss_ns}: {low} {high}");
        assert!(high <= low + low / 4, "a limit cycle: {low} {high}");
        assert!(share <= 2 * u64::from(TARGET), "{miss_ns}: {share}");
    }
}

#[test]
fn a_slow_device_gets_more_memory_than_a_fast_one() {
    let limit = |miss_ns| {
        let mut world = World::new(64, 8192, miss_ns);
        world.play(Load::Skewed(4000), 300);
        world.range(60).0
    };
    let (fast, slow) = (limit(1_000), limit(5 * MS));
    assert!(
        fast < 800,
        "nine of ten accesses are hits with 400 pages, and a miss costs 1 us: {fast}"
    );
    assert!(slow > 3000, "a miss costs 5 ms: {slow}");
}

#[test]
fn a_phase_is_followed_within_seconds_up_and_within_two_minutes_down() {
    let mut world = World::new(64, 8192, 100_000);
    world.play(Load::Uniform(500), 60);
    let (_, small) = world.range(10);
    assert!(small <= 700, "{small}");
    let before = world.auto.limit();
    world.play(Load::Uniform(4000), 3);
    assert!(world.auto.limit() >= 3000, "{before} grew to {}", world.auto.limit());
    world.play(Load::Uniform(4000), 60);
    world.play(Load::Uniform(500), 120);
    let (_, again) = world.range(10);
    assert!(again <= 700, "{again}");
}

#[test]
fn cold_pages_and_loops_over_more_than_the_most_get_no_memory() {
    for load in [Load::Fresh, Load::Loop(20_000), Load::Uniform(200_000)] {
        let mut world = World::new(128, 4096, 100_000);
        world.play(load, 60);
        assert!(world.range(59).1 <= 160, "{load:?}: {:?}", world.range(59));
    }
}

#[test]
fn a_loop_for_which_only_the_full_size_helps_gets_it() {
    let mut world = World::new(64, 4096, 100_000);
    world.play(Load::Loop(3000), 10);
    let share = world.play(Load::Loop(3000), 120);
    assert!(world.range(60).0 >= 2900, "{:?}", world.range(60));
    assert!(share <= 3 * u64::from(TARGET), "{share}");
}

#[test]
fn memory_that_was_held_for_a_hopeless_load_goes_back() {
    let mut world = World::new(64, 4096, 100_000);
    world.play(Load::Uniform(3000), 60);
    assert!(world.auto.limit() > 2000);
    world.play(Load::Loop(50_000), 180);
    assert!(world.auto.limit() < 200, "{}", world.auto.limit());
}

#[test]
fn an_idle_program_keeps_its_limit_and_gives_its_memory_back() {
    let mut world = World::new(64, 4096, 100_000);
    world.play(Load::Uniform(1000), 90);
    let limit = world.auto.limit();
    world.play(Load::Nothing, 120);
    assert_eq!(world.range(119), (limit, limit));
    assert!(world.memory.usage() <= 80, "{}", world.memory.usage());
    // It comes back without a growth.
    world.play(Load::Uniform(1000), 5);
    assert!(world.range(4).1 <= limit + limit / 4, "{:?} after {limit}", world.range(4));
}

#[test]
fn probes_below_the_knee_become_rare() {
    let mut world = World::new(64, 8192, 100_000);
    let mut growths = vec![];
    for _ in 0..4 {
        let from = world.limits.len();
        world.play(Load::Loop(1000), 300);
        let grown = world.limits[from..].windows(2).filter(|pair| pair[1] > pair[0]).count();
        growths.push(grown);
    }
    assert!(growths[3] <= 2 && growths[0] >= growths[3], "{growths:?}");
}

/// A limit that was probed for long is held for ten minutes. That is no reason to keep it when the
/// program has gone on to something smaller.
#[test]
fn a_smaller_phase_ends_what_was_learned_of_a_large_one() {
    let mut world = World::new(64, 8192, 100_000);
    world.play(Load::Loop(3000), 1800);
    assert!(world.range(60).0 >= 2900, "{:?}", world.range(60));
    world.play(Load::Uniform(500), 150);
    assert!(world.range(10).1 <= 700, "{:?}", world.range(10));
}

#[test]
fn what_comes_and_goes_every_half_minute_is_held_in_the_end() {
    let mut world = World::new(64, 8192, 100_000);
    for _ in 0..24 {
        world.play(Load::Uniform(4000), 10);
        world.play(Load::Uniform(500), 20);
    }
    assert!(world.range(150).0 >= 2900, "{:?}", world.range(150));
}

fn sample(now_ns: u64, usage: u64, waited: &Waiting) -> Sample<'_> {
    Sample { now_ns, usage, waited, active: None, is_idle: false, is_stuck: false }
}

#[test]
fn what_cannot_be_evicted_raises_the_limit_as_far_as_the_most() {
    let bounds = AutoBounds { least: 64, most: 1000, target: TARGET };
    let mut auto = AutoLimit::new(bounds, 100, 0);
    let waited = Waiting::default();
    let mut sample = sample(TICK, 400, &waited);
    sample.is_stuck = true;
    assert_eq!((auto.tick(&sample).cause, auto.limit()), (AutoCause::Stuck, 400));
    sample.usage = 4000;
    sample.now_ns += TICK;
    auto.tick(&sample);
    assert_eq!(auto.limit(), 1000);
}

#[derive(Clone, Debug)]
struct Noise {
    dt: u64,
    usage: u64,
    waited: Vec<(u64, u64)>,
    is_idle: bool,
    is_stuck: bool,
    bounds: Option<(u64, u64)>,
}

fn noise() -> impl Strategy<Value = Noise> {
    let waited = prop::collection::vec((0..1_u64 << 41, 0..10 * NS_PER_SEC), 0..4);
    let bounds = prop::option::weighted(0.1, (0..1_u64 << 40, 0..1_u64 << 40));
    (0..20 * NS_PER_SEC, 0..1_u64 << 40, waited, any::<bool>(), any::<bool>(), bounds).prop_map(
        |(dt, usage, waited, is_idle, is_stuck, bounds)| Noise {
            dt,
            usage,
            waited,
            is_idle,
            is_stuck,
            bounds,
        },
    )
}

proptest! {
    /// Whatever is reported: no panic, within the bounds, still while idle, and no step down by
    /// more than the fastest rate unless the bounds say so.
    #[test]
    fn bounds_hold_whatever_is_reported(
        noises in prop::collection::vec(noise(), 1..200),
        target in 0_u32..2_000_000,
    ) {
        let bounds = AutoBounds { least: 100, most: 1 << 30, target };
        let mut auto = AutoLimit::new(bounds, 5000, 0);
        let mut now_ns = 0;
        for noise in noises {
            now_ns += noise.dt;
            if let Some((least, most)) = noise.bounds {
                auto.set_bounds(AutoBounds { least, most, target });
            }
            let mut waited = Waiting::default();
            noise.waited.iter().for_each(|(needed, ns)| waited.note(*needed, *ns));
            let before = auto.limit();
            let Noise { usage, is_idle, is_stuck, .. } = noise;
            let active = Some(usage / 2);
            let sample = Sample { now_ns, usage, waited: &waited, active, is_idle, is_stuck };
            let step = auto.tick(&sample);
            let AutoBounds { least, most, .. } = auto.bounds();
            prop_assert!((least..=most).contains(&step.limit));
            prop_assert!(step.give_back <= usage.saturating_sub(least));
            if is_idle && waited.total_ns() == 0 {
                prop_assert_eq!(step.limit, before);
            }
            prop_assert!(step.limit >= before - before / 7 - 1, "{} {:?}", before, step);
            prop_assert!(is_stuck || step.limit <= 3 * before + 2, "{} {:?}", before, step);
        }
    }

    /// All threads wait all the time, for pages that more memory would keep: the limit grows with
    /// every tick, whatever came before.
    #[test]
    fn it_always_grows_while_threads_wait_for_what_fits(
        calm in 0_u64..400,
        limit in 64_u64..10_000,
    ) {
        let bounds = AutoBounds { least: 64, most: 100_000, target: TARGET };
        let mut auto = AutoLimit::new(bounds, limit, 0);
        let (mut now_ns, none) = (0, Waiting::default());
        for _ in 0..calm {
            now_ns += TICK;
            let usage = auto.limit();
            auto.tick(&sample(now_ns, usage, &none));
        }
        for _ in 0..40 {
            now_ns += TICK;
            let before = auto.limit();
            let mut waited = Waiting::default();
            waited.note(100_000, TICK);
            auto.tick(&sample(now_ns, before, &waited));
            prop_assert!(auto.limit() > before || before == 100_000);
        }
        prop_assert_eq!(auto.limit(), 100_000);
    }
}
