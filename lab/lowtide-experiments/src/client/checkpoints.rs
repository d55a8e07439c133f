//! Readers and a few updates beside checkpoints: `mixed`.
//!
//! ```text
//!   T threads    ──► a page of one file, zipf popularity ──► 95 %: a load        5 %: a store
//!   1 thread     ──► every 10 s: the whole file is made durable (a checkpoint)
//! ```
//!
//! The file is mapped by one process and advised to be random. What is asked is what a checkpoint
//! does to readers: it writes thousands of single pages at once, and reads wait behind them at the
//! device. So latencies of loads are kept apart: those that met a checkpoint at any time of theirs,
//! and the others.
//!
//! The sizes are the project's own; nothing was published.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use hdrhistogram::Histogram;
use lowtide_core::high::handler::HighPolicy;
use lowtide_core::{MemcgId, MemoryStat};
use lowtide_sim::machine::{
    Ctx, Machine, MachineConfig, MachineError, MachineStat, MappingId, OpenId,
};
use lowtide_workload::{Distribution, Sampler, SplitMix64};

const SECOND_NS: u64 = 1_000_000_000;
/// Sub-streams of kinds begin here; those of pages have the threads' numbers.
const KINDS: u64 = 1 << 32;

/// What is run. Sizes are in bytes, times in virtual nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MixedConfig {
    /// The budget of the group.
    pub max: u64,
    /// The file.
    pub file: u64,
    /// Threads that load and store.
    pub threads: u32,
    /// Accesses that store, in percent.
    pub update_percent: u64,
    /// CPU time of an operation besides its access.
    pub op_ns: u64,
    /// Time between the beginnings of two checkpoints; one that takes longer is followed by the
    /// next at once.
    pub checkpoint_ns: u64,
    /// Time before the measurement.
    pub warm_ns: u64,
    /// Time of the measurement.
    pub run_ns: u64,
    /// Seed of the choices.
    pub seed: u64,
}

impl MixedConfig {
    /// Eight threads on a file of four times the budget.
    #[must_use]
    pub const fn new(max: u64, seed: u64) -> Self {
        Self {
            max,
            file: 4 * max,
            threads: 8,
            update_percent: 5,
            // Guess: what a program does with a record.
            op_ns: 20_000,
            checkpoint_ns: 10 * SECOND_NS,
            warm_ns: 10 * SECOND_NS,
            run_ns: 30 * SECOND_NS,
            seed,
        }
    }
}

/// What a run measured, after the warm-up.
#[derive(Clone, Debug)]
pub struct MixedResult {
    /// The machine's counters when the measurement began.
    pub began: MachineStat,
    /// The same at the end.
    pub ended: MachineStat,
    /// The group at the end.
    pub group: MemoryStat,
    /// Operations.
    pub ops: u64,
    /// Nanoseconds of loads that met a checkpoint.
    pub during: Histogram<u64>,
    /// Nanoseconds of the other loads.
    pub outside: Histogram<u64>,
    /// Nanoseconds of stores.
    pub updates: Histogram<u64>,
    /// Nanoseconds of each checkpoint that ended.
    pub checkpoints: Vec<u64>,
}

#[derive(Debug)]
struct Tally {
    ops: u64,
    during: Histogram<u64>,
    outside: Histogram<u64>,
    updates: Histogram<u64>,
    checkpoints: Vec<u64>,
    /// Odd while a checkpoint is being made.
    phase: u64,
    began: Option<MachineStat>,
    now_ns: u64,
}

type Shared = Rc<RefCell<Tally>>;

/// Runs the workload on a machine, whose own `max` must be `None`. `done` counts virtual
/// milliseconds.
///
/// # Errors
/// [`MachineError`].
///
/// # Panics
/// When the file is smaller than a page, or the machine has no room for a group.
pub fn run(
    machine: &MachineConfig,
    config: &MixedConfig,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<MixedResult, MachineError> {
    let page = machine.spec.page;
    let mut m = Machine::new(machine)?;
    let (group, open, mapping) = {
        let mut world = m.world();
        let group =
            world.pool.engine.create_group(MemcgId::ROOT).expect("the root has room for a group");
        world.pool.engine.set_max(group, config.max / page)?;
        // As in a kernel: nobody pays for having waited.
        world.pool.engine.set_high_policy(group, HighPolicy::Overage);
        let process = world.add_address_space(group);
        let file = world.add_file_of(group, config.file / page);
        let open = world.open(file);
        world.advise_random(open);
        (group, open, world.map_file(process, open))
    };
    let histogram =
        || Histogram::new_with_max(3_600 * SECOND_NS, 3).expect("the bounds are possible");
    let tally = Rc::new(RefCell::new(Tally {
        ops: 0,
        during: histogram(),
        outside: histogram(),
        updates: histogram(),
        checkpoints: Vec::new(),
        phase: 0,
        began: None,
        now_ns: 0,
    }));
    let root = SplitMix64::new(config.seed);
    for thread in 0..u64::from(config.threads) {
        let sampler = Distribution::default()
            .sampler(config.file / page, config.seed)
            .expect("the file has pages");
        let (pages, kinds) = (root.fork(thread), root.fork(KINDS + thread));
        let (config, tally) = (*config, Rc::clone(&tally));
        m.background_in(group, move |ctx| {
            worker(ctx, mapping, sampler, pages, kinds, config, tally)
        });
    }
    let (config, shared) = (*config, Rc::clone(&tally));
    m.background_in(group, move |ctx| checkpoints(ctx, open, config, shared));
    let shared = Rc::clone(&tally);
    m.client_in(MemcgId::ROOT, move |ctx| clock(ctx, config, shared));
    m.run(stop, &mut || done.store(tally.borrow().now_ns / 1_000_000, Relaxed))?;
    let (ended, group) = (m.stat(), m.world().pool.engine.stat(group));
    let tally = tally.borrow();
    Ok(MixedResult {
        began: tally.began.clone().expect("the measurement has begun before it ended"),
        ended,
        group,
        ops: tally.ops,
        during: tally.during.clone(),
        outside: tally.outside.clone(),
        updates: tally.updates.clone(),
        checkpoints: tally.checkpoints.clone(),
    })
}

/// Says when the measurement begins, and ends it.
async fn clock(ctx: Ctx, config: MixedConfig, shared: Shared) -> Result<(), MachineError> {
    let end_ns = config.warm_ns + config.run_ns;
    loop {
        let now = ctx.now();
        {
            let mut tally = shared.borrow_mut();
            tally.now_ns = now;
            if now >= config.warm_ns && tally.began.is_none() {
                tally.began = Some(MachineStat::of(&ctx.w()));
            }
        }
        if now >= end_ns {
            return Ok(());
        }
        let next = if now < config.warm_ns { config.warm_ns } else { end_ns };
        ctx.sleep((next - now).min(SECOND_NS)).await;
    }
}

/// Loads and stores forever.
async fn worker(
    ctx: Ctx,
    mapping: MappingId,
    sampler: Sampler,
    mut pages: SplitMix64,
    mut kinds: SplitMix64,
    config: MixedConfig,
    shared: Shared,
) -> Result<(), MachineError> {
    loop {
        ctx.spend(config.op_ns).await;
        let page = sampler.draw(&mut pages);
        let store = kinds.below(100) < config.update_percent;
        let (began, phase) = (ctx.now(), shared.borrow().phase);
        ctx.access(mapping, page, 1, store).await?;
        let took = ctx.now() - began;
        let mut tally = shared.borrow_mut();
        if tally.began.is_none() {
            continue;
        }
        tally.ops += 1;
        let met = !phase.is_multiple_of(2) || tally.phase != phase;
        let histogram = match (store, met) {
            (true, _) => &mut tally.updates,
            (false, true) => &mut tally.during,
            (false, false) => &mut tally.outside,
        };
        histogram.saturating_record(took);
    }
}

/// Makes checkpoints forever.
async fn checkpoints(
    ctx: Ctx,
    open: OpenId,
    config: MixedConfig,
    shared: Shared,
) -> Result<(), MachineError> {
    let mut due = config.checkpoint_ns;
    loop {
        let now = ctx.now();
        if now < due {
            ctx.sleep(due - now).await;
        }
        let began = ctx.now();
        shared.borrow_mut().phase += 1;
        ctx.sync(open).await?;
        let ended = ctx.now();
        due = ended.max(due + config.checkpoint_ns);
        let mut tally = shared.borrow_mut();
        tally.phase += 1;
        if tally.began.is_some() {
            tally.checkpoints.push(ended - began);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_core::Policy;
    use lowtide_sim::spec::MachineSpec;

    fn mixed(policy: Policy, device: &str, seed: u64) -> MixedResult {
        let text = format!("base = 'laptop'\nmemory = '512M'\ndevice = '{device}'");
        let spec = MachineSpec::from_toml(&text, "small").unwrap();
        let config = MixedConfig {
            warm_ns: 2 * SECOND_NS,
            run_ns: 4 * SECOND_NS,
            checkpoint_ns: SECOND_NS,
            ..MixedConfig::new(16 << 20, seed)
        };
        let machine = MachineConfig { spec, policy, max: None, seed };
        run(&machine, &config, &AtomicU64::new(0), &AtomicBool::new(false)).unwrap()
    }

    #[test]
    fn checkpoints_write_what_was_stored_and_are_told_apart() {
        for policy in [Policy::MGLRU, Policy::LRU] {
            let result = mixed(policy, "sata-ssd", 1);
            let loads = result.during.len() + result.outside.len();
            assert_eq!(loads + result.updates.len(), result.ops, "{policy}");
            let stores = result.updates.len() as f64 / result.ops as f64;
            assert!((0.04..0.06).contains(&stores), "{policy}: {stores}");
            assert!(
                (3..=5).contains(&result.checkpoints.len()),
                "{policy}: {:?}",
                result.checkpoints
            );
            assert!(
                result.during.len() > 100 && result.outside.len() > result.during.len(),
                "{policy}"
            );
            let written = result.ended.device.write_bytes - result.began.device.write_bytes;
            assert!(
                written / 4096 > 1000 && written / 4096 <= result.updates.len() + 4096,
                "{policy}: {written}"
            );
            assert!(
                result.during.value_at_quantile(0.999) > result.outside.value_at_quantile(0.999),
                "{policy}: reads wait behind a checkpoint"
            );
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let run = |seed| {
            let result = mixed(Policy::MGLRU, "nvme", seed);
            (result.ops, result.checkpoints, result.ended.events)
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}
