//! Threads that read pages of one file at random, one for each CPU, from a device that never makes
//! them wait: where a lock becomes the limit, `scaling`.
//!
//! ```text
//!   N CPUs x { a page, chosen at random ── read(), a copy ── the next }
//!   a file of four budgets on a ramdisk: three of four reads miss, and each miss evicts a page
//! ```
//!
//! A miss is charged, brought in, and makes another page go. That is the same engine in either way
//! of locking:
//!
//! * [`Locking::Lruvec`], the kernel's: charges and insertions are batched for each CPU, and
//!   reclaim takes the lock of the lruvec for as long as it looks at folios and isolates them. The
//!   costs are those of `costs.rs`. (Draining an insertion batch takes that lock in a kernel, too,
//!   once in 31 pages; it is not in the model.)
//! * [`Locking::Pool`], the runtime's: one lock for all of the engine, held for a given time at
//!   each miss. The time is measured on a real machine, and given.
//!
//! A task that comes while a lock is held waits and spends CPU time. The runtime's threads sleep
//! instead, which changes who computes meanwhile, and not how many misses a second the lock lets
//! pass: with a time `h` under the lock and `t` beside it, `n` CPUs make `min(n / (h + t), 1 / h)`,
//! if they never come at the same time, and less otherwise.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lowtide_core::MemcgId;
use lowtide_sim::machine::{Contention, Ctx, Machine, MachineConfig, MachineError, OpenId};
use lowtide_sim::spec::MachineSpec;
use lowtide_workload::SplitMix64;

use super::thrash::fitted;

/// Bytes of the file for each byte of the budget.
const BUDGETS: u64 = 4;
/// Misses that are measured, and for each CPU.
const MISSES: u64 = 20_000;
const MISSES_EACH: u64 = 400;
/// How often the measurement looks whether it is over.
const LOOK_NS: u64 = 20_000;

/// Which lock a miss takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// The kernel's, of the lruvec, for the work of reclaim.
    Lruvec,
    /// One for everything, held for this time at each miss.
    Pool(Duration),
}

/// The threads.
#[derive(Clone, Copy, Debug)]
pub struct Scaling {
    /// CPUs, and as many threads.
    pub cpus: u32,
    /// Their lock.
    pub locking: Locking,
    /// Budget in bytes.
    pub max: u64,
    /// Seed of the choices.
    pub seed: u64,
}

/// The measurements of a run.
#[derive(Clone, Copy, Debug)]
pub struct ScalingResult {
    /// Misses in the measured time.
    pub misses: u64,
    /// The measured virtual time.
    pub time: Duration,
    /// The lock in this time.
    pub lock: Contention,
}

impl ScalingResult {
    /// Misses a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.misses as f64 / self.time.as_secs_f64()
    }

    /// The share of the time in which the lock was held.
    #[must_use]
    pub fn occupancy(&self) -> f64 {
        self.lock.held_ns as f64 / self.time.as_nanos() as f64
    }

    /// Nanoseconds that a miss waited for the lock, on average.
    #[must_use]
    pub fn waited_ns(&self) -> f64 {
        self.lock.waited_ns as f64 / self.misses.max(1) as f64
    }
}

/// Runs the threads on a machine, whose own `max` must be `None` and whose CPUs are replaced.
///
/// # Errors
/// [`MachineError`].
///
/// # Panics
/// When the machine has no room for a group.
pub fn run(
    machine: &MachineConfig,
    scaling: &Scaling,
    stop: &AtomicBool,
) -> Result<ScalingResult, MachineError> {
    let page = machine.spec.page;
    let spec = MachineSpec { cpus: scaling.cpus, ..machine.spec.clone() };
    let mut m = Machine::new(&fitted(&MachineConfig { spec, ..machine.clone() }, scaling.max))?;
    let pages = BUDGETS * scaling.max / page;
    let (group, open) = {
        let mut world = m.world();
        if let Locking::Pool(hold) = scaling.locking {
            world.lock_pool(u64::try_from(hold.as_nanos()).unwrap_or(u64::MAX));
        }
        let engine = &mut world.pool.engine;
        let group = engine.create_group(MemcgId::ROOT).expect("the root has room for a group");
        engine.set_max(group, scaling.max / page)?;
        let file = world.add_file(pages);
        (group, world.open(file))
    };
    let misses = Rc::new(Cell::new(0));
    for cpu in 0..scaling.cpus {
        let (rng, misses) = (SplitMix64::new(scaling.seed ^ u64::from(cpu) << 32), misses.clone());
        m.background_in(group, move |ctx| read_for_ever(ctx, open, pages, rng, misses));
    }
    let measured = Rc::new(Cell::new(None));
    let (result, counted) = (Rc::clone(&measured), misses);
    let warm = 2 * scaling.max / page;
    let run = MISSES + MISSES_EACH * u64::from(scaling.cpus);
    m.client(async move |ctx| {
        let until = async |end: u64| {
            while counted.get() < end {
                ctx.sleep(LOOK_NS).await;
            }
            (counted.get(), ctx.now(), ctx.w().lock_of_misses())
        };
        let (began, ended) = (until(warm).await, until(warm + run).await);
        result.set(Some(ScalingResult {
            misses: ended.0 - began.0,
            time: Duration::from_nanos(ended.1 - began.1),
            lock: ended.2.since(&began.2),
        }));
        Ok(())
    });
    m.run(stop, &mut || ())?;
    Ok(measured.get().expect("a run that ends was measured"))
}

/// A thread, which never ends.
async fn read_for_ever(
    ctx: Ctx,
    open: OpenId,
    pages: u64,
    mut rng: SplitMix64,
    misses: Rc<Cell<u64>>,
) -> Result<(), MachineError> {
    let object = {
        let mut world = ctx.w();
        let file = world.opens[open.0 as usize].file;
        world.file(file).object
    };
    loop {
        let page = rng.below(pages);
        let is_there = ctx.w().pool.frame(object, page).is_some();
        misses.set(misses.get() + u64::from(!is_there));
        ctx.read(open, page, 1).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_core::Policy;

    fn play(cpus: u32, locking: Locking) -> ScalingResult {
        let spec = MachineSpec::load("ramdisk").unwrap();
        let machine = MachineConfig { spec, policy: Policy::MGLRU, max: None, seed: 1 };
        let scaling = Scaling { cpus, locking, max: 16 << 20, seed: 1 };
        run(&machine, &scaling, &AtomicBool::new(false)).unwrap()
    }

    fn pool(nanos: u64) -> Locking {
        Locking::Pool(Duration::from_nanos(nanos))
    }

    /// The closed form: `1 / (h + t)` with one CPU, `1 / h` with many.
    #[test]
    fn one_lock_lets_as_many_misses_pass_as_its_time_under_the_lock_says() {
        let free = 1e9 / play(1, pool(0)).rate();
        for hold in [300.0, 2_000.0] {
            let one = play(1, pool(hold as u64));
            assert!((one.rate() * (hold + free) / 1e9 - 1.0).abs() < 0.02, "{hold}: {one:?}");
            let many = play(96, pool(hold as u64));
            assert!((many.rate() * hold / 1e9 - 1.0).abs() < 0.03, "{hold}: {many:?}");
            assert!(many.occupancy() > 0.97, "{hold}: {many:?}");
            let (waited, cycle) = (many.waited_ns(), 96.0 * hold - free - hold);
            assert!((waited / cycle - 1.0).abs() < 0.05, "{hold}: {waited}, {cycle}");
        }
    }

    #[test]
    fn few_cpus_hardly_meet_at_the_lock_and_the_same_seed_gives_the_same() {
        let (one, four) = (play(1, pool(100)), play(4, pool(100)));
        assert!((3.6..4.05).contains(&(four.rate() / one.rate())), "{one:?}, {four:?}");
        assert_eq!((one.lock.contended, one.waited_ns()), (0, 0.0));
        assert_eq!(format!("{:?}", play(4, pool(100))), format!("{four:?}"));
    }

    #[test]
    fn the_lock_of_an_lruvec_is_held_for_reclaim_alone() {
        let (one, many) = (play(1, Locking::Lruvec), play(64, Locking::Lruvec));
        assert!(one.occupancy() > 0.0 && one.occupancy() < 0.2, "{one:?}");
        assert!(many.occupancy() > one.occupancy(), "{many:?}");
        assert!(many.rate() > 2.0 * one.rate(), "{one:?}, {many:?}");
    }
}
