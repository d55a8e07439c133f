//! Readers of a mapped file beside threads that allocate and free: the reproducer of the aging OOM,
//! `file-anon-mix`.
//!
//! ```text
//!   R processes ──► each maps the whole file for itself
//!                   ──► a load from every page, in order ──► pause ──► again, forever
//!   1 process   ──► after the first pass of every reader: a heap for A threads
//!                   ──► each stores to every page of its share
//!                   ──► all done: unmap ──► pause ──► next round
//! ```
//!
//! File and heap together are larger than the budget, and there is no swap: each round evicts a
//! part of the file, which the readers fault back. All reclaim is direct, by dozens of faulting
//! tasks at once. The reclaimed pages are hot in the address space of every reader, so aging walks
//! the page tables of all of them. The loop before the series gives up when another task is aging;
//! a task that gives up eighteen times during one aging is killed, although gigabytes of pages are
//! clean (`docs/kernel/reclaim.md` §4.5). Here a kill is a result and not an error.
//!
//! The run begins with empty caches, as after the reproducer has created its file and dropped the
//! caches. Processes and threads start one after the other, as fast as they can be created, with a
//! small variation that depends on the seed. Page tables are not charged: at the published kill,
//! file and heap alone filled the budget up to the last 32 pages. Source:
//! `docs/kernel/workloads.md` §3.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use lowtide_core::MemcgId;
use lowtide_core::limits::TABLE_ENTRIES;
use lowtide_sim::costs::Costs;
use lowtide_sim::machine::{
    Ctx, Machine, MachineConfig, MachineError, MachineStat, MappingId, TaskId,
};
use lowtide_sim::spec::{DeviceSpec, MachineSpec};
use lowtide_workload::SplitMix64;

/// Nanoseconds that creating a process takes, and a thread. Guesses: the usual order of magnitude.
/// The actual times are up to twice as long.
const FORK_NS: u64 = 200_000;
const THREAD_NS: u64 = 15_000;

/// The configuration of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixConfig {
    /// Bytes of the file.
    pub file: u64,
    /// Bytes of the heap.
    pub anon: u64,
    /// Processes that read the file.
    pub readers: u32,
    /// Threads that fill the heap.
    pub threads: u32,
    /// Nanoseconds between two passes of a reader.
    pub pause_ns: u64,
    /// Nanoseconds between two rounds.
    pub between_ns: u64,
    /// Rounds of filling and unmapping.
    pub rounds: u32,
    /// Factor by which the machine is slower: 16 at a sixteenth of the size, so that a pass over
    /// memory takes as long as at full size. Pauses do not change (T-mode,
    /// `docs/kernel/workloads.md` §0.3), nor do the costs of scheduling, because the number of
    /// tasks is the same.
    pub slowdown: u32,
    /// Seed of the start times.
    pub seed: u64,
}

impl MixConfig {
    /// The published reproducer in its later form, for a budget of [`MixConfig::MAX`].
    #[must_use]
    pub const fn published() -> Self {
        Self {
            file: 8 << 30,
            anon: 14 << 30,
            readers: 96,
            threads: 96,
            pause_ns: 120_000_000,
            between_ns: 1_000_000_000,
            rounds: 128,
            slowdown: 1,
            seed: 1,
        }
    }

    /// The budget of the published runs in their later form, in bytes.
    pub const MAX: u64 = 16 << 30;
}

/// A setup of the reproducer that was published with its outcome (`docs/kernel/workloads.md`
/// §3(b)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Posting {
    /// The second posting of the series: 44 GiB and 8 GiB in a budget of 48 GiB.
    V2,
    /// The third and the last posting: 14 GiB and 8 GiB in a budget of 16 GiB.
    V3,
}

impl Posting {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::V2, Self::V3];

    /// Its name in the table of published figures.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V3 => "v3_v7",
        }
    }

    /// What the reproducer was told to do.
    #[must_use]
    pub const fn config(self) -> MixConfig {
        let later = MixConfig::published();
        match self {
            Self::V2 => MixConfig { anon: 44 << 30, ..later },
            Self::V3 => later,
        }
    }

    /// The budget, in bytes.
    #[must_use]
    pub const fn max(self) -> u64 {
        match self {
            Self::V2 => 48 << 30,
            Self::V3 => MixConfig::MAX,
        }
    }
}

/// The kind of task whose page could not be allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faulted {
    /// A thread that fills the heap.
    Heap,
    /// A reader of the file.
    File,
}

/// A charge that failed, for which the kernel calls the OOM killer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kill {
    /// Virtual nanoseconds since the caches were dropped.
    pub at_ns: u64,
    /// The task that was charged.
    pub faulted: Faulted,
    /// Nanoseconds for which it had tried.
    pub tried_ns: u64,
    /// Clean pages of the file that were cached at that moment.
    pub clean_file_pages: u64,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct MixResult {
    /// Counters at the end, or at the kill.
    pub stat: MachineStat,
    /// Completed rounds.
    pub rounds: u32,
    /// The kill, if there was one; it ends the run.
    pub killed: Option<Kill>,
    /// Nanoseconds until every reader had completed one pass.
    pub first_pass_ns: u64,
}

#[derive(Debug)]
struct Shared {
    config: MixConfig,
    heap: MappingId,
    rng: SplitMix64,
    /// Readers that have completed at least one pass.
    warm: u32,
    first_pass_ns: u64,
    /// The current round, from 1; 0 before the first.
    round: u32,
    finished: u32,
    /// Threads that have not completed their share of the round.
    busy: u32,
    workers: Vec<TaskId>,
    parent: Option<TaskId>,
    faulted: Faulted,
}

impl Shared {
    /// A time between `nanos` and twice that.
    fn about(&mut self, nanos: u64) -> u64 {
        nanos + self.rng.below(nanos)
    }
}

type Mix = Rc<RefCell<Shared>>;

/// Runs the workload on a machine. `done` counts rounds, for a progress bar.
///
/// # Errors
/// [`MachineError`], except [`MachineError::OutOfMemory`], which is [`MixResult::killed`].
pub fn run(
    machine: &MachineConfig,
    config: &MixConfig,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<MixResult, MachineError> {
    let machine =
        MachineConfig { spec: slowed(machine.spec.clone(), config.slowdown), ..machine.clone() };
    let mut m = Machine::new(&machine)?;
    let page = machine.spec.page;
    let (heap, maps) = {
        let mut world = m.world();
        world.sched.quantum_ns *= u64::from(config.slowdown.max(1));
        let file = world.add_file(config.file / page);
        let parent = world.add_address_space(MemcgId::ROOT);
        let heap = world.map_heap(parent, config.anon / page);
        let maps: Vec<MappingId> = (0..config.readers)
            .map(|_| {
                let process = world.add_address_space(MemcgId::ROOT);
                let open = world.open(file);
                world.map_file(process, open)
            })
            .collect();
        (heap, maps)
    };
    let mix = Rc::new(RefCell::new(Shared {
        config: config.clone(),
        heap,
        rng: SplitMix64::new(config.seed),
        warm: 0,
        first_pass_ns: 0,
        round: 0,
        finished: 0,
        busy: 0,
        workers: Vec::new(),
        parent: None,
        faulted: Faulted::Heap,
    }));
    let mut begins = 0;
    for map in maps {
        begins += mix.borrow_mut().about(FORK_NS);
        let mix = Rc::clone(&mix);
        m.background(move |ctx| reader(ctx, mix, map, begins));
    }
    for number in 0..config.threads {
        let mix = Rc::clone(&mix);
        m.background(move |ctx| worker(ctx, mix, number));
    }
    let parent = Rc::clone(&mix);
    m.client(move |ctx| rounds(ctx, parent));
    let ended = m.run(stop, &mut || done.store(mix.borrow().finished.into(), Relaxed));
    let stat = m.stat();
    let shared = mix.borrow();
    let killed = match ended {
        Ok(()) => None,
        Err(MachineError::OutOfMemory { at_ns }) => Some(Kill {
            at_ns,
            faulted: shared.faulted,
            tried_ns: stat.kernel.oom_tried_ns,
            clean_file_pages: stat.memory.file
                - stat.memory.file_dirty
                - stat.memory.file_writeback,
        }),
        Err(error) => return Err(error),
    };
    Ok(MixResult { rounds: shared.finished, first_pass_ns: shared.first_pass_ns, stat, killed })
}

/// A machine that is slower by a factor, except for switching between tasks.
fn slowed(spec: MachineSpec, times: u32) -> MachineSpec {
    let times = u64::from(times.max(1));
    let Costs { context_switch_ns, wakeup_ns, tick_ns, .. } = spec.costs;
    let device = DeviceSpec {
        read_ns: spec.device.read_ns * times,
        write_ns: spec.device.write_ns * times,
        read_bandwidth: (spec.device.read_bandwidth / times).max(1),
        write_bandwidth: (spec.device.write_bandwidth / times).max(1),
        ..spec.device
    };
    let costs = Costs { context_switch_ns, wakeup_ns, tick_ns, ..spec.costs.times(times) };
    MachineSpec { device, costs, ..spec }
}

/// A reader.
async fn reader(ctx: Ctx, mix: Mix, map: MappingId, begins: u64) -> Result<(), MachineError> {
    ctx.sleep(begins).await;
    let (pages, pause) = {
        let mix = mix.borrow();
        (mix.config.file / ctx.w().page_bytes, mix.config.pause_ns)
    };
    let mut first = true;
    loop {
        ctx.sweep(map, 0, pages, false)
            .await
            .inspect_err(|_| mix.borrow_mut().faulted = Faulted::File)?;
        if std::mem::take(&mut first) {
            ctx.settle().await;
            let mut mix = mix.borrow_mut();
            mix.warm += 1;
            if mix.warm == mix.config.readers {
                mix.first_pass_ns = ctx.now();
                wake(&ctx, mix.parent);
            }
        }
        ctx.sleep(pause).await;
    }
}

/// A thread that fills its share of the heap in every round.
async fn worker(ctx: Ctx, mix: Mix, number: u32) -> Result<(), MachineError> {
    mix.borrow_mut().workers.push(ctx.id);
    let (heap, share) = {
        let mix = mix.borrow();
        (mix.heap, mix.config.anon / ctx.w().page_bytes / u64::from(mix.config.threads))
    };
    for round in 1.. {
        ctx.settle().await;
        while mix.borrow().round < round {
            ctx.block(None).await;
        }
        let swept = ctx.sweep(heap, u64::from(number) * share, share, true).await;
        swept.inspect_err(|_| mix.borrow_mut().faulted = Faulted::Heap)?;
        ctx.settle().await;
        let mut mix = mix.borrow_mut();
        mix.busy -= 1;
        if mix.busy == 0 {
            wake(&ctx, mix.parent);
        }
    }
    Ok(())
}

/// The process that runs the rounds.
async fn rounds(ctx: Ctx, mix: Mix) -> Result<(), MachineError> {
    let config = {
        let mut mix = mix.borrow_mut();
        mix.parent = Some(ctx.id);
        mix.config.clone()
    };
    let (heap, pages) = (mix.borrow().heap, config.anon / ctx.w().page_bytes);
    ctx.settle().await;
    while mix.borrow().warm < config.readers {
        ctx.block(None).await;
    }
    for round in 1..=config.rounds {
        // A thread that is woken before its round goes back to sleep.
        mix.borrow_mut().busy = config.threads;
        mix.borrow_mut().round = round;
        for number in 0..config.threads {
            let takes = mix.borrow_mut().about(THREAD_NS);
            ctx.spend(takes).await;
            let worker = mix.borrow().workers.get(number as usize).copied();
            wake(&ctx, worker);
        }
        ctx.settle().await;
        while mix.borrow().busy > 0 {
            ctx.block(None).await;
        }
        // A large mapping is unmapped table by table, while other tasks run.
        let mut first = 0;
        while first < pages {
            let some = TABLE_ENTRIES.min(pages - first);
            ctx.give_up(heap, first, some).await;
            first += some;
        }
        mix.borrow_mut().finished = round;
        ctx.sleep(config.between_ns).await;
    }
    Ok(())
}

fn wake(ctx: &Ctx, task: Option<TaskId>) {
    if let Some(task) = task {
        ctx.w().sched.wake(task);
    }
}
