//! Threads that map, read and unmap a file each: the retry storm, `mmap-thrash`.
//!
//! ```text
//!   one process, one mmap lock, one group (high, max, no swap)
//!     N x { map ── a load from every page, in order ── unmap ── round done }  forever
//! ```
//!
//! The files are holes, so no task waits for a device: what is measured is the time between the end
//! of a fault's I/O, when it gives its page up, and its next look, for which it may need the mmap
//! lock. Each mapping and unmapping takes that for writing, and under the kernel's fault path so
//! does, for reading, every fault that looks a second time; one that finds its page gone reads a
//! whole window with the lock held, and is throttled with it held if the group is above its `high`
//! (`docs/kernel/memcg.md` §6). Meanwhile all others wait, and their pages go.
//!
//! Threads are not pinned, and have one priority: the noisy ones of the variant with noise take
//! turns with the others on all CPUs, where the published ones have a CPU in common with one
//! thread each and go before it. Source: `docs/kernel/workloads.md` §9.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use lowtide_core::high::handler::HighPolicy;
use lowtide_core::{MemcgId, MemoryStat};
use lowtide_sim::machine::{
    AddressSpace, Contention, Ctx, Machine, MachineConfig, MachineError, MachineStat, OpenId,
    RetryTimes,
};
use lowtide_sim::spec::MachineSpec;
use lowtide_workload::SplitMix64;

use crate::programs::mapping::MapThrash;

const SECOND_NS: u64 = 1_000_000_000;
/// Nanoseconds that creating a thread takes, up to twice as long. Guess: the usual order of
/// magnitude.
const THREAD_NS: u64 = 15_000;

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct ThrashResult {
    /// Counters when the measurement began.
    pub began: MachineStat,
    /// Counters at the end.
    pub ended: MachineStat,
    /// The group at the end.
    pub group: MemoryStat,
    /// Rounds of each thread.
    pub rounds: Vec<u64>,
    /// What retries depended on.
    pub times: RetryTimes,
    /// The mmap lock, in the measured time.
    pub mmap_lock: Contention,
}

#[derive(Debug)]
struct Tally {
    rounds: Vec<u64>,
    began: Option<(MachineStat, Contention)>,
}

/// Runs the threads on a machine, whose own `max` must be `None`. `done` counts virtual
/// milliseconds.
///
/// # Errors
/// [`MachineError`].
///
/// # Panics
/// When the machine has no room for a group.
pub fn run(
    machine: &MachineConfig,
    thrash: &MapThrash,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<ThrashResult, MachineError> {
    let page = machine.spec.page;
    let mut m = Machine::new(&fitted(machine, thrash.max))?;
    let (group, space) = {
        let mut world = m.world();
        let engine = &mut world.pool.engine;
        let group = engine.create_group(MemcgId::ROOT).expect("the root has room for a group");
        engine.set_max(group, thrash.max / page)?;
        engine.set_high(group, thrash.high / page);
        // As in a kernel.
        engine.set_high_policy(group, HighPolicy::Overage);
        (group, world.add_address_space(group))
    };
    let threads = thrash.threads as usize;
    let tally = Rc::new(RefCell::new(Tally { rounds: vec![0; threads], began: None }));
    let mut rng = SplitMix64::new(thrash.seed);
    for thread in 0..threads {
        let (thrash, counted) = (*thrash, Rc::clone(&tally));
        let created = THREAD_NS * thread as u64 + rng.below(THREAD_NS);
        let file = m.world().add_sparse_file(thrash.file / page);
        let open = m.world().open(file);
        m.background_in(group, async move |ctx| {
            ctx.sleep(created).await;
            read_for_ever(ctx, space, open, thrash, || counted.borrow_mut().rounds[thread] += 1)
                .await
        });
        if thrash.noise {
            m.background_in(group, move |ctx| make_noise(ctx, created));
        }
    }
    let now = Rc::new(RefCell::new(0));
    let (millis, seen) = (Rc::clone(&now), Rc::clone(&tally));
    let times = (nanos(thrash.warm), nanos(thrash.run));
    m.client(move |ctx| watch(ctx, space, times, millis, seen));
    m.run(stop, &mut || done.store(*now.borrow(), Relaxed))?;
    let ended = m.stat();
    let tally = tally.borrow();
    let (began, lock) = tally.began.clone().expect("a measurement begins before it ends");
    let world = m.world();
    Ok(ThrashResult {
        began,
        ended,
        group: world.pool.engine.stat(group),
        rounds: tally.rounds.clone(),
        times: world.retries.times().expect("they are kept since the measurement began"),
        mmap_lock: space.mmap_lock(&world).since(&lock),
    })
}

/// The machine with no more memory than a group of `max` bytes can notice: twice that, as its
/// frames take memory of the host, used or not.
pub(super) fn fitted(machine: &MachineConfig, max: u64) -> MachineConfig {
    let MachineSpec { memory, kernel, .. } = machine.spec;
    let memory = memory.min(kernel + 2 * max);
    MachineConfig { spec: MachineSpec { memory, ..machine.spec.clone() }, ..machine.clone() }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A thread, which never ends.
async fn read_for_ever(
    ctx: Ctx,
    space: AddressSpace,
    mut open: OpenId,
    thrash: MapThrash,
    mut round: impl FnMut(),
) -> Result<(), MachineError> {
    let pages = {
        let mut world = ctx.w();
        let file = world.opens[open.0 as usize].file;
        world.file(file).pages
    };
    loop {
        let mapping = space.mmap(&ctx, open).await;
        ctx.access(mapping, 0, pages, false).await?;
        space.munmap(&ctx, mapping).await;
        if thrash.noise {
            open = ctx.w().open_again(open);
        }
        round();
        // The end of a system call.
        ctx.settle_limits().await;
    }
}

/// A noisy thread, which never ends.
async fn make_noise(ctx: Ctx, created: u64) -> Result<(), MachineError> {
    ctx.sleep(created).await;
    loop {
        ctx.spend(nanos(MapThrash::NOISE_WORK)).await;
        ctx.sleep(nanos(MapThrash::NOISE_SLEEP)).await;
    }
}

/// Starts the measurement when the time for it has come, and ends the run.
async fn watch(
    ctx: Ctx,
    space: AddressSpace,
    (warm_ns, run_ns): (u64, u64),
    millis: Rc<RefCell<u64>>,
    tally: Rc<RefCell<Tally>>,
) -> Result<(), MachineError> {
    let until = async |end: u64| {
        while ctx.now() < end {
            ctx.sleep((end - ctx.now()).min(SECOND_NS / 10)).await;
            *millis.borrow_mut() = ctx.now() / 1_000_000;
        }
    };
    until(warm_ns).await;
    {
        let mut world = ctx.w();
        world.retries.keep();
        let mut tally = tally.borrow_mut();
        tally.rounds.fill(0);
        tally.began = Some((MachineStat::of(&world), space.mmap_lock(&world)));
    }
    until(warm_ns + run_ns).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_core::Policy;
    use lowtide_sim::spec::FaultPath;

    /// Fifteen threads on eight CPUs, whose windows together are as large as their memory.
    fn storm(fault_path: FaultPath) -> ThrashResult {
        let server = MachineSpec::load("x86-256c").expect("a preset");
        let spec = MachineSpec { cpus: 8, fault_path, ..server };
        let thrash = MapThrash {
            warm: Duration::from_millis(100),
            run: Duration::from_millis(200),
            ..MapThrash::published(0.03)
        };
        let machine = MachineConfig { spec, policy: Policy::MGLRU, max: None, seed: 1 };
        run(&machine, &thrash, &AtomicU64::new(0), &AtomicBool::new(false)).expect("no error")
    }

    /// `docs/kernel/workloads.md` §9(d): which retries miss.
    #[test]
    fn retries_under_the_mmap_lock_miss_and_others_do_not() {
        for path in [FaultPath::MmapLockRetry, FaultPath::VmaLockRetry, FaultPath::Hold] {
            let result = storm(path);
            let count = |of: fn(&MachineStat) -> u64| of(&result.ended) - of(&result.began);
            let drops = count(|stat| stat.kernel.retry_mmap_drop);
            let misses = count(|stat| stat.kernel.retry_io_miss);
            assert_eq!(drops > 0, path != FaultPath::Hold, "{path}: {drops}");
            assert_eq!(misses > 0, path == FaultPath::MmapLockRetry, "{path}: {misses}");
            assert_eq!(!result.times.window.is_empty(), drops > 0, "{path}");
            assert_eq!(result.rounds.len(), 15);
            assert!(result.rounds.iter().sum::<u64>() > 0, "{path}: no round");
            assert!(result.times.lifetime.len() > 1_000, "{path}: pages are evicted");
            assert_eq!(result.ended.device.reads, 0, "{path}: holes");
        }
    }
}
