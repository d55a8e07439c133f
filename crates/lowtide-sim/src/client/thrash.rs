//! Threads that thrash above `memory.high`, as in the proposal of a penalty by refault recency; and
//! a neighbour on the same device.
//!
//! ```text
//!   thrashers (group: high 150 MiB, no max)      neighbour (group: no limit)
//!     for ever: load a uniformly chosen byte       for ever: read 4 KiB of its own file
//!     of a mapped file of 200 MiB                  past the cache, think
//!                 └───────────── one device ────────────┘
//! ```
//!
//! The memory of the machine is plenty: what is evicted is evicted for the limit, and all of it is
//! wanted again. Nothing is written. Who watches looks at the device once a second, as `sar` does.
//!
//! A run goes under its law from its first access, so the time before the measurement must be long
//! enough for every page to have been touched and for the prices to have settled. Source:
//! `docs/kernel/workloads.md` §10(b). Threads are not pinned: a task keeps its CPU as long as
//! nobody else wants that.

use crate::machine::{
    Ctx, FileId, Machine, MachineConfig, MachineError, MachineStat, MappingId, OpenId,
};
use crate::memory::ObjectId;
use hdrhistogram::Histogram;
use lowtide_core::MemcgId;
use lowtide_core::high::handler::HighPolicy;
use lowtide_core::hooks::LimitHooks;
use lowtide_workload::SplitMix64;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const SECOND_NS: u64 = 1_000_000_000;
/// CPU time of an iteration besides its load: a random number and a loop. Guess.
const ITERATION_NS: u64 = 20;

/// What is run. Sizes are in bytes, times in virtual nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrashConfig {
    /// The file that is touched.
    pub file: u64,
    /// `memory.high` of the group that touches it.
    pub high: u64,
    /// Threads that touch it, of one process.
    pub threads: u32,
    /// Whether the kernel reads ahead; else the mapping is advised to be random.
    pub readahead: bool,
    /// What threads pay for being over the limit.
    pub high_policy: HighPolicy,
    /// Who else uses the device.
    pub neighbour: Option<Neighbour>,
    /// Time before the measurement.
    pub warm_ns: u64,
    /// Time of the measurement: whole seconds, at least one.
    pub run_ns: u64,
    /// Seed of the choices.
    pub seed: u64,
}

/// A well-behaved user of the same device: one read after another, with a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Size of its file.
    pub file: u64,
    /// Pause after each read.
    pub think_ns: u64,
}

impl Default for Neighbour {
    /// A gigabyte, and a millisecond: alone, it keeps the published disk an eighth busy.
    fn default() -> Self {
        Self { file: 1 << 30, think_ns: 1_000_000 }
    }
}

impl ThrashConfig {
    /// The published experiment, 30 seconds of it after a minute.
    #[must_use]
    pub const fn published(high_policy: HighPolicy, readahead: bool, seed: u64) -> Self {
        Self {
            file: 200 << 20,
            high: 150 << 20,
            threads: 1,
            readahead,
            high_policy,
            neighbour: None,
            warm_ns: 60 * SECOND_NS,
            run_ns: 30 * SECOND_NS,
            seed,
        }
    }
}

/// The device in one second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sample {
    /// Commands.
    pub commands: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Nanoseconds in which it was busy.
    pub busy_ns: u64,
}

/// What a neighbour got.
#[derive(Clone, Debug)]
pub struct NeighbourResult {
    /// Reads.
    pub ops: u64,
    /// Nanoseconds of each.
    pub latency: Histogram<u64>,
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct ThrashResult {
    /// Counters when the measurement began.
    pub began: MachineStat,
    /// Counters at the end.
    pub ended: MachineStat,
    /// The device, second by second.
    pub samples: Vec<Sample>,
    /// Iterations of each thread.
    pub iterations: Vec<u64>,
    /// What the neighbour got, if there was one.
    pub neighbour: Option<NeighbourResult>,
}

impl ThrashResult {
    /// Iterations of all threads.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.iterations.iter().sum()
    }

    /// Nanoseconds that tasks slept for being over a limit, all together.
    #[must_use]
    pub const fn slept_ns(&self) -> u64 {
        self.ended.kernel.high_sleep_ns - self.began.kernel.high_sleep_ns
    }
}

#[derive(Debug)]
struct Tally {
    iterations: Vec<u64>,
    ops: u64,
    latency: Histogram<u64>,
    began: Option<MachineStat>,
    samples: Vec<Sample>,
}

impl Tally {
    fn new(threads: u32) -> Self {
        Self {
            iterations: vec![0; threads as usize],
            ops: 0,
            latency: Histogram::new_with_max(3_600 * SECOND_NS, 3)
                .expect("the bounds are possible"),
            began: None,
            samples: Vec::new(),
        }
    }

    /// The measurement begins.
    fn begin(&mut self, stat: MachineStat) {
        self.iterations.fill(0);
        self.ops = 0;
        self.latency.reset();
        self.began = Some(stat);
    }
}

/// Runs the experiment. `hooks` is a program for the limited group, beside its law. `done` counts
/// virtual milliseconds.
///
/// # Errors
/// [`MachineError`].
///
/// # Panics
/// When the file is smaller than a page, or the measurement shorter than a second.
pub fn run(
    machine: &MachineConfig,
    config: &ThrashConfig,
    hooks: Option<Box<dyn LimitHooks>>,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<ThrashResult, MachineError> {
    assert!(config.run_ns >= SECOND_NS, "there is a second to measure");
    let page = machine.spec.page;
    let mut m = Machine::new(machine)?;
    let tally = Rc::new(RefCell::new(Tally::new(config.threads)));
    let root = SplitMix64::new(config.seed);
    let (group, mapping) = set_up(&m, config, page, hooks);
    for number in 0..config.threads {
        let (tally, rng) = (Rc::clone(&tally), root.fork(u64::from(number)));
        let bytes = config.file;
        m.background_in(group, move |ctx| {
            thrasher(ctx, mapping, bytes, page, rng, number as usize, tally)
        });
    }
    if let Some(neighbour) = config.neighbour {
        let (group, place) = set_up_neighbour(&m, neighbour, page);
        let (tally, rng) = (Rc::clone(&tally), root.fork(u64::from(u32::MAX)));
        m.background_in(group, move |ctx| {
            good_neighbour(ctx, place, neighbour.think_ns, rng, tally)
        });
    }
    let (warm_ns, seconds) = (config.warm_ns, config.run_ns / SECOND_NS);
    let now = Rc::new(RefCell::new(0));
    let (told, seen) = (Rc::clone(&now), Rc::clone(&tally));
    m.client(move |ctx| sar(ctx, warm_ns, seconds, told, seen));
    m.run(stop, &mut || done.store(*now.borrow(), Relaxed))?;
    let ended = m.stat();
    let tally = tally.borrow();
    Ok(ThrashResult {
        began: tally.began.clone().expect("the measurement has begun before it ended"),
        ended,
        samples: tally.samples.clone(),
        iterations: tally.iterations.clone(),
        neighbour: config
            .neighbour
            .map(|_| NeighbourResult { ops: tally.ops, latency: tally.latency.clone() }),
    })
}

/// The thrashers' group, and the file as their process maps it.
fn set_up(
    m: &Machine,
    config: &ThrashConfig,
    page: u64,
    hooks: Option<Box<dyn LimitHooks>>,
) -> (MemcgId, MappingId) {
    let mut world = m.world();
    let engine = &mut world.pool.engine;
    let group = engine.create_group(MemcgId::ROOT).expect("the root has room for a group");
    engine.set_high(group, config.high / page);
    engine.set_high_policy(group, config.high_policy);
    engine.set_hooks(group, hooks);
    let process = world.add_address_space(group);
    let file = world.add_file(config.file.div_ceil(page));
    let open = world.open(file);
    // The kernel of the published samples.
    world.count_misses_as_before_7(open);
    if !config.readahead {
        world.advise_random(open);
    }
    (group, world.map_file(process, open))
}

/// What the neighbour reads.
#[derive(Clone, Copy, Debug)]
struct Place {
    file: FileId,
    open: OpenId,
    pages: u64,
}

fn set_up_neighbour(m: &Machine, neighbour: Neighbour, page: u64) -> (MemcgId, Place) {
    let mut world = m.world();
    let group =
        world.pool.engine.create_group(MemcgId::ROOT).expect("the root has room for two groups");
    let pages = neighbour.file / page;
    let file = world.add_file(pages);
    let open = world.open(file);
    world.advise_random(open);
    (group, Place { file, open, pages })
}

/// Loads for ever.
async fn thrasher(
    ctx: Ctx,
    mapping: MappingId,
    bytes: u64,
    page: u64,
    mut rng: SplitMix64,
    number: usize,
    tally: Rc<RefCell<Tally>>,
) -> Result<(), MachineError> {
    loop {
        ctx.spend(ITERATION_NS).await;
        ctx.access(mapping, rng.below(bytes) / page, 1, false).await?;
        tally.borrow_mut().iterations[number] += 1;
    }
}

/// Reads for ever, keeping nothing.
async fn good_neighbour(
    ctx: Ctx,
    place: Place,
    think_ns: u64,
    mut rng: SplitMix64,
    tally: Rc<RefCell<Tally>>,
) -> Result<(), MachineError> {
    let object: ObjectId = ctx.w().file(place.file).object;
    loop {
        let began = ctx.now();
        let page = rng.below(place.pages);
        ctx.read(place.open, page, 1).await?;
        ctx.w().pool.discard(object, page);
        ctx.settle().await;
        let took = ctx.now() - began;
        {
            let mut tally = tally.borrow_mut();
            tally.ops += 1;
            tally.latency.saturating_record(took);
        }
        ctx.sleep(think_ns).await;
    }
}

/// Looks at the device every second, and ends the run.
async fn sar(
    ctx: Ctx,
    warm_ns: u64,
    seconds: u64,
    told: Rc<RefCell<u64>>,
    tally: Rc<RefCell<Tally>>,
) -> Result<(), MachineError> {
    while ctx.now() < warm_ns {
        ctx.sleep((warm_ns - ctx.now()).min(SECOND_NS)).await;
        *told.borrow_mut() = ctx.now() / 1_000_000;
    }
    let began = MachineStat::of(&ctx.w());
    let mut last = began.device;
    tally.borrow_mut().begin(began);
    for second in 1..=seconds {
        let due = warm_ns + second * SECOND_NS;
        let now = ctx.now();
        ctx.sleep(due.saturating_sub(now)).await;
        let device = ctx.w().device.counts;
        tally.borrow_mut().samples.push(Sample {
            commands: device.reads + device.writes - last.reads - last.writes,
            read_bytes: device.read_bytes - last.read_bytes,
            busy_ns: device.busy_ns - last.busy_ns,
        });
        last = device;
        *told.borrow_mut() = ctx.now() / 1_000_000;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::MachineSpec;
    use lowtide_core::Policy;
    use lowtide_core::hooks::{LimitSnapshot, ThrottleAnswer};

    fn thrash(policy: Policy, config: &ThrashConfig) -> ThrashResult {
        let spec = MachineSpec::load("thrash").expect("a preset");
        let machine = MachineConfig { spec, policy, max: None, seed: config.seed };
        run(&machine, config, None, &AtomicU64::new(0), &AtomicBool::new(false))
            .expect("nothing can fail")
    }

    /// Six seconds after forty: pages that nobody has touched yet are rare, and prices have
    /// settled.
    fn short(
        policy: Policy,
        high_policy: HighPolicy,
        readahead: bool,
        neighbour: bool,
    ) -> ThrashResult {
        let published = ThrashConfig::published(high_policy, readahead, 42);
        let config = ThrashConfig {
            neighbour: neighbour.then(Neighbour::default),
            warm_ns: 40 * SECOND_NS,
            run_ns: 6 * SECOND_NS,
            ..published
        };
        thrash(policy, &config)
    }

    fn mean(result: &ThrashResult, of: fn(&Sample) -> u64) -> u64 {
        result.samples.iter().map(of).sum::<u64>() / result.samples.len() as u64
    }

    fn busy_percent(result: &ThrashResult) -> f64 {
        mean(result, |sample| sample.busy_ns) as f64 / 1e7
    }

    fn neighbours_reads(result: &ThrashResult) -> u64 {
        result.neighbour.as_ref().expect("there is one").ops
    }

    /// `docs/kernel/workloads.md` §10(d).
    #[test]
    fn overage_alone_leaves_the_device_to_the_thrasher() {
        let result = short(Policy::MGLRU_7_1, HighPolicy::Overage, true, false);
        assert!(busy_percent(&result) >= 85.0, "{}", busy_percent(&result));
        assert_eq!(result.slept_ns(), 0, "it never stays above the limit");
        assert_eq!(result.samples.len(), 6);
        assert!(result.ops() > 6 * 1000);
        let patched = short(Policy::MGLRU_7_1, HighPolicy::RefaultRecency, true, false);
        let [before, after] =
            [&result, &patched].map(|result| mean(result, |sample| sample.read_bytes));
        assert!(before >= 20 * after, "{before} {after}");
        assert!(patched.ops() < result.ops() / 10, "it costs the thrasher its progress");
    }

    /// `docs/kernel/workloads.md` §10(b): the fingerprint.
    #[test]
    fn the_patch_without_read_ahead_reads_single_pages_in_whole_batches_of_64() {
        let result =
            thrash(Policy::MGLRU, &ThrashConfig::published(HighPolicy::RefaultRecency, false, 42));
        assert!(result.samples.iter().all(|sample| sample.read_bytes == 4096 * sample.commands));
        let whole =
            result.samples.iter().filter(|sample| sample.commands.is_multiple_of(64)).count();
        assert!(whole >= 20, "{:?}", result.samples);
        let tps = mean(&result, |sample| sample.commands);
        assert!((400..=700).contains(&tps), "{tps}");
    }

    /// The target of the law is a tenth.
    #[test]
    fn stall_debt_keeps_the_device_at_a_tenth_with_and_without_read_ahead_and_for_many_threads() {
        for (readahead, threads) in [(true, 1), (false, 1), (true, 16)] {
            let published = ThrashConfig::published(HighPolicy::StallDebt, readahead, 42);
            let config = ThrashConfig {
                threads,
                warm_ns: 30 * SECOND_NS,
                run_ns: 10 * SECOND_NS,
                ..published
            };
            let result = thrash(Policy::MGLRU, &config);
            let busy = busy_percent(&result);
            assert!((5.0..=11.0).contains(&busy), "{readahead}, {threads} threads: {busy}");
            assert_eq!(result.iterations.len(), threads as usize);
            assert!(result.iterations.iter().all(|&n| n > 0), "nobody starves");
        }
    }

    #[test]
    fn a_neighbour_has_more_of_the_device_the_less_the_thrasher_has() {
        let [overage, ours] = [HighPolicy::Overage, HighPolicy::StallDebt]
            .map(|high_policy| neighbours_reads(&short(Policy::MGLRU, high_policy, true, true)));
        let config = ThrashConfig {
            threads: 0,
            neighbour: Some(Neighbour::default()),
            warm_ns: SECOND_NS,
            run_ns: 6 * SECOND_NS,
            ..ThrashConfig::published(HighPolicy::Overage, true, 42)
        };
        let alone = neighbours_reads(&thrash(Policy::MGLRU, &config));
        assert!(overage < ours * 3 / 4, "{overage} {ours}");
        assert!(ours < alone && ours > alone * 9 / 10, "{ours} {alone}");
    }

    /// A program that lets everybody sleep for 50 ms.
    #[derive(Debug)]
    struct Fifty;

    impl LimitHooks for Fifty {
        fn throttle(&mut self, _: &LimitSnapshot) -> ThrottleAnswer {
            ThrottleAnswer::Exactly(50_000_000)
        }
    }

    #[test]
    fn a_program_decides_for_the_limited_group() {
        let spec = MachineSpec::load("thrash").expect("a preset");
        let machine = MachineConfig { spec, policy: Policy::MGLRU, max: None, seed: 1 };
        let published = ThrashConfig::published(HighPolicy::Overage, false, 1);
        let config = ThrashConfig { warm_ns: 10 * SECOND_NS, run_ns: 2 * SECOND_NS, ..published };
        let hooks: Box<dyn LimitHooks> = Box::new(Fifty);
        let result =
            run(&machine, &config, Some(hooks), &AtomicU64::new(0), &AtomicBool::new(false))
                .unwrap();
        let sleeps = result.ended.kernel.high_sleeps - result.began.kernel.high_sleeps;
        assert!(sleeps > 10, "{sleeps}");
        assert_eq!(result.slept_ns(), sleeps * 50_000_000);
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let run = |seed| {
            let published = ThrashConfig::published(HighPolicy::StallDebt, true, seed);
            let config = ThrashConfig {
                neighbour: Some(Neighbour::default()),
                warm_ns: 5 * SECOND_NS,
                run_ns: SECOND_NS,
                ..published
            };
            let result = thrash(Policy::MGLRU, &config);
            (
                result.samples.clone(),
                result.iterations.clone(),
                result.ended.events,
                neighbours_reads(&result),
            )
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}
