//! The player of programs most of whose memory is heap ([`crate::programs::heap`]) on a simulated
//! machine, in virtual time.
//!
//! ```text
//!   group (max), or all of a machine's memory
//!     process ── address space ── heaps, mapped files        shared memory ── a space of its own
//!     workers ── fill ── wait for the others ── pieces of work
//!     services, forever
//! ```
//!
//! *User time* is what steps compute and what their accesses cost where nothing faults; the rest of
//! the processors' time is the system's: faults, reclaim, compression, spinning for locks, switches
//! and daemons. A process that exits gives its heaps up page by page, and its files' mappings as a
//! whole; the one after it maps the files again.
//!
//! Shared memory (tmpfs) is played as a heap that no process owns: it is swapped as heaps are, and
//! an access sets a young bit, where a kernel counts one through the descriptor. A charge that
//! fails ends the run; that is a result and no error. Sources: `docs/kernel/workloads.md` §0.6, 5,
//! 7, 8.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use hdrhistogram::Histogram;
use lowtide_core::MemcgId;
use lowtide_sim::machine::{
    AddressSpace, Ctx, Machine, MachineConfig, MachineError, MachineStat, MappingId, OpenId,
};
use lowtide_sim::spec::{MachineSpec, SwapSpec};

use crate::programs::heap::{Content, HeapProgram, PAGE, Region, Step, Steps, Work};

const SECOND_NS: u64 = 1_000_000_000;
/// Nanoseconds between two looks of a worker that waits for the others.
const LOOK_NS: u64 = 1_000_000;
/// System calls for a file that is opened, read and closed.
const CALLS: u64 = 3;

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct HeapResult {
    /// Counters when the measurement began.
    pub began: MachineStat,
    /// Counters at the end.
    pub ended: MachineStat,
    /// Operations.
    pub ops: u64,
    /// Nanoseconds of each.
    pub latency: Histogram<u64>,
    /// Nanoseconds of processor time in user mode, of all workers and services.
    pub user_ns: u64,
    /// A charge failed, which ended the run.
    pub out_of_memory: bool,
}

impl HeapResult {
    /// Nanoseconds of processor time that was not the program's own.
    #[must_use]
    pub const fn system_ns(&self) -> u64 {
        (self.ended.busy_ns - self.began.busy_ns).saturating_sub(self.user_ns)
    }
}

#[derive(Debug)]
struct Tally {
    ops: u64,
    latency: Histogram<u64>,
    user_ns: u64,
    began: Option<MachineStat>,
    /// Workers that have filled.
    filled: u32,
    /// The next piece of the queue.
    next: u64,
    /// For the progress bar.
    done: u64,
    /// Pages of each region that were touched, up to the last.
    touched: Vec<u64>,
}

impl Tally {
    /// The measurement begins.
    fn begin(&mut self, ctx: &Ctx) {
        (self.ops, self.user_ns) = (0, 0);
        self.latency.reset();
        self.began = Some(MachineStat::of(&ctx.w()));
    }
}

/// Where the regions and files are.
#[derive(Debug)]
struct Places {
    regions: Vec<Region>,
    spaces: Vec<AddressSpace>,
    /// The mapping of each region; that of a file changes when its process exits.
    mappings: RefCell<Vec<MappingId>>,
    /// How each mapped file was opened by its process, by region.
    mapped: Vec<Option<OpenId>>,
    /// The files, opened for access through descriptors.
    opens: Vec<OpenId>,
}

/// Everything that a task of the run needs.
#[derive(Clone, Debug)]
struct Run {
    program: Rc<dyn HeapProgram>,
    places: Rc<Places>,
    tally: Rc<RefCell<Tally>>,
}

/// Plays a program on a machine, whose own `max` must be `None`. `done` counts virtual
/// milliseconds, or pieces of a queue.
///
/// # Errors
/// [`MachineError`], but for [`MachineError::OutOfMemory`], which is a result.
///
/// # Panics
/// When the machine's pages are not of [`PAGE`] bytes.
pub fn play(
    machine: &MachineConfig,
    program: Rc<dyn HeapProgram>,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<HeapResult, MachineError> {
    assert_eq!(machine.spec.page, PAGE, "steps are in pages of that size");
    let mut m = Machine::new(&fitted(machine, &*program))?;
    let group = set_up_group(&m, program.max())?;
    let places = set_up(&m, group, &*program);
    let tally = Tally {
        ops: 0,
        latency: Histogram::new_with_max(3_600 * SECOND_NS, 3).expect("valid bounds"),
        user_ns: 0,
        began: None,
        filled: 0,
        next: 0,
        done: 0,
        touched: vec![0; places.regions.len()],
    };
    let tally = Rc::new(RefCell::new(tally));
    let run = Run { program, places: Rc::new(places), tally: Rc::clone(&tally) };
    for number in 0..run.program.services() {
        let run = run.clone();
        let steps = run.program.service(number);
        m.background_in(group, async move |ctx| run.perform(&ctx, steps).await);
    }
    let work = run.program.work();
    for worker in 0..run.program.workers() {
        let mine = run.clone();
        match work {
            Work::Endless { .. } => {
                m.background_in(group, move |ctx| mine.work_for_ever(ctx, worker));
            }
            Work::Queue { pieces, warm } => {
                m.client_in(group, move |ctx| mine.work_off(ctx, worker, pieces, warm));
            }
        }
    }
    if let Work::Endless { warm, run: length } = work {
        m.client(move |ctx| run.watch(ctx, nanos(warm), nanos(length)));
    }
    let ended = m.run(stop, &mut || done.store(tally.borrow().done, Relaxed));
    let out_of_memory = matches!(ended, Err(MachineError::OutOfMemory { .. }));
    if !out_of_memory {
        ended?;
    }
    let ended = m.stat();
    let tally = tally.borrow();
    Ok(HeapResult {
        // A run that ended while it was filled has measured nothing.
        began: tally.began.clone().unwrap_or_else(|| ended.clone()),
        ended,
        ops: tally.ops,
        latency: tally.latency.clone(),
        user_ns: tally.user_ns,
        out_of_memory,
    })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The machine with no more memory than a group with a limit can notice: twice the limit, and what
/// all of its heaps take when they are compressed. Frames take memory of the host, used or not.
fn fitted(machine: &MachineConfig, program: &dyn HeapProgram) -> MachineConfig {
    let Some(max) = program.max() else { return machine.clone() };
    let MachineSpec { memory, kernel, .. } = machine.spec;
    let percent = machine.spec.swap.as_ref().map_or(0, |swap: &SwapSpec| swap.compressed_percent);
    let compressed = program.heap_bytes() * u64::from(percent) / 100;
    let memory = memory.min(kernel + 2 * (max + compressed));
    MachineConfig { spec: MachineSpec { memory, ..machine.spec.clone() }, ..machine.clone() }
}

/// The group with a limit, or the root.
fn set_up_group(m: &Machine, max: Option<u64>) -> Result<MemcgId, MachineError> {
    let Some(max) = max else { return Ok(MemcgId::ROOT) };
    let engine = &mut m.world().pool.engine;
    let group = engine.create_group(MemcgId::ROOT).expect("the root has room for a group");
    engine.set_max(group, max / PAGE)?;
    Ok(group)
}

/// Files, processes and their regions.
fn set_up(m: &Machine, group: MemcgId, program: &dyn HeapProgram) -> Places {
    let mut world = m.world();
    let files: Vec<_> =
        program.files().into_iter().map(|pages| world.add_file_of(group, pages)).collect();
    let opens = files.iter().map(|&file| world.open(file)).collect();
    let spaces: Vec<AddressSpace> =
        (0..program.processes()).map(|_| world.add_address_space(group)).collect();
    // That of shared memory, which no process needs to exist.
    let of_shared = world.add_address_space(group);
    let regions = program.regions();
    let (mut mappings, mut mapped) = (Vec::new(), Vec::new());
    for region in &regions {
        let space = spaces[region.process as usize];
        let (mapping, open) = match region.content {
            Content::Heap => (world.map_heap(space, region.pages), None),
            Content::Shared => (world.map_heap(of_shared, region.pages), None),
            Content::File { file } | Content::Text { file } => {
                let open = world.open(files[file as usize]);
                let mapping = world.map_file(space, open);
                if matches!(region.content, Content::Text { .. }) {
                    world.set_executable(mapping);
                }
                (mapping, Some(open))
            }
        };
        mappings.push(mapping);
        mapped.push(open);
    }
    Places { regions, spaces, mappings: RefCell::new(mappings), mapped, opens }
}

impl Run {
    /// Fills, and waits until all workers have.
    async fn fill(&self, ctx: &Ctx, worker: u32) -> Result<(), MachineError> {
        self.perform(ctx, self.program.fill(worker)).await?;
        ctx.settle().await;
        self.tally.borrow_mut().filled += 1;
        self.all_filled(ctx).await;
        Ok(())
    }

    async fn all_filled(&self, ctx: &Ctx) {
        while self.tally.borrow().filled < self.program.workers() {
            ctx.sleep(LOOK_NS).await;
        }
    }

    /// A worker with a piece of its own.
    async fn work_for_ever(self, ctx: Ctx, worker: u32) -> Result<(), MachineError> {
        self.fill(&ctx, worker).await?;
        self.perform(&ctx, self.program.piece(worker.into(), worker)).await
    }

    /// A worker that takes pieces from the queue.
    async fn work_off(
        self,
        ctx: Ctx,
        worker: u32,
        pieces: u64,
        warm: u64,
    ) -> Result<(), MachineError> {
        self.fill(&ctx, worker).await?;
        loop {
            let number = {
                let mut tally = self.tally.borrow_mut();
                let number = tally.next;
                if number == pieces {
                    return Ok(());
                }
                tally.next += 1;
                if number == warm {
                    tally.begin(&ctx);
                }
                number
            };
            self.perform(&ctx, self.program.piece(number, worker)).await?;
            self.tally.borrow_mut().done += 1;
        }
    }

    /// Begins the measurement of endless pieces, and ends it with the run.
    async fn watch(self, ctx: Ctx, warm_ns: u64, run_ns: u64) -> Result<(), MachineError> {
        self.all_filled(&ctx).await;
        for (number, time) in [warm_ns, run_ns].into_iter().enumerate() {
            if number == 1 {
                self.tally.borrow_mut().begin(&ctx);
            }
            let end = ctx.now() + time;
            while ctx.now() < end {
                let now = ctx.now();
                ctx.sleep((end - now).min(SECOND_NS / 10)).await;
                self.tally.borrow_mut().done += (ctx.now() - now) / 1_000_000;
            }
        }
        Ok(())
    }

    /// Performs steps until there are no more.
    async fn perform(&self, ctx: &Ctx, steps: Steps) -> Result<(), MachineError> {
        let mut began = ctx.now();
        for step in steps {
            match step {
                Step::Compute(ns) => {
                    self.tally.borrow_mut().user_ns += ns;
                    ctx.spend(ns).await;
                }
                Step::Sleep(ns) => ctx.sleep(ns).await,
                Step::Touch { region, first, pages, store } => {
                    self.touch(ctx, region as usize, first, pages, store).await?;
                }
                Step::Read { file, first, pages } => {
                    ctx.read(self.places.opens[file as usize], first, pages).await?;
                }
                Step::Write { file, first, pages } => {
                    ctx.write(self.places.opens[file as usize], first, pages).await?;
                }
                Step::ReadElsewhere { files, pages } => {
                    let cost = {
                        let costs = &ctx.w().costs;
                        files * CALLS * costs.syscall_ns
                            + pages * (costs.lookup_ns + costs.copy_page_ns)
                    };
                    ctx.spend(cost).await;
                }
                Step::Exit { process } => self.exit(ctx, process).await,
                Step::Begin => {
                    ctx.settle().await;
                    began = ctx.now();
                }
                Step::End => {
                    ctx.settle().await;
                    let took = ctx.now() - began;
                    let mut tally = self.tally.borrow_mut();
                    tally.ops += 1;
                    tally.latency.saturating_record(took);
                }
            }
        }
        Ok(())
    }

    async fn touch(
        &self,
        ctx: &Ctx,
        region: usize,
        first: u64,
        pages: u64,
        store: bool,
    ) -> Result<(), MachineError> {
        let mapping = self.places.mappings.borrow()[region];
        let each = {
            let costs = &ctx.w().costs;
            if pages == 1 { costs.touch_ns } else { costs.touch_sequential_ns }
        };
        {
            let mut tally = self.tally.borrow_mut();
            tally.user_ns += pages * each;
            let touched = &mut tally.touched[region];
            *touched = (*touched).max(first + pages);
        }
        if pages == 1 {
            ctx.access(mapping, first, 1, store).await
        } else {
            ctx.sweep(mapping, first, pages, store).await
        }
    }

    /// A process ends. What it has of its regions goes; the next one maps its files.
    async fn exit(&self, ctx: &Ctx, process: u32) {
        for (number, region) in self.places.regions.iter().enumerate() {
            if region.process != process || region.content == Content::Shared {
                continue;
            }
            let touched = std::mem::take(&mut self.tally.borrow_mut().touched[number]);
            if touched == 0 {
                continue;
            }
            let mapping = self.places.mappings.borrow()[number];
            match self.places.mapped[number] {
                None => ctx.give_up(mapping, 0, touched).await,
                Some(open) => {
                    let space = self.places.spaces[process as usize];
                    space.munmap(ctx, mapping).await;
                    let open = ctx.w().open_again(open);
                    let mapping = space.mmap(ctx, open).await;
                    if matches!(region.content, Content::Text { .. }) {
                        ctx.w().set_executable(mapping);
                    }
                    self.places.mappings.borrow_mut()[number] = mapping;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::heap::{Android, AnonZipf, KernelBuild, SysbenchRo};
    use lowtide_core::Policy;

    const POLICIES: [&str; 3] = ["mglru", "mglru-7.1", "lru"];

    fn played(policy: &str, program: Rc<dyn HeapProgram>, spec: MachineSpec) -> HeapResult {
        let policy = policy.parse::<Policy>().expect("a policy");
        let machine = MachineConfig { spec, policy, max: None, seed: 1 };
        play(&machine, program, &AtomicU64::new(0), &AtomicBool::new(false)).expect("no error")
    }

    fn server(cpus: u32, swap: u64) -> MachineSpec {
        let xeon = MachineSpec::load("xeon-96t").expect("a preset");
        MachineSpec { cpus, memory: 2 << 30, kernel: 0, swap: Some(SwapSpec::zram(swap)), ..xeon }
    }

    #[test]
    fn a_heap_of_four_budgets_is_filled_and_used_and_measured_after_that() {
        for policy in POLICIES {
            let program = AnonZipf {
                warm: Duration::from_millis(50),
                run: Duration::from_millis(200),
                ..AnonZipf::new(8 << 20, 4.0)
            };
            let result = played(policy, Rc::new(program), server(4, 64 << 20));
            assert!(!result.out_of_memory && result.ops > 10_000, "{policy}: {result:?}");
            assert_eq!(result.latency.len(), result.ops, "{policy}");
            let events = result.ended.memory.events;
            assert!(events.pswpin > 1_000 && events.pswpout > 6_144, "{policy}: {events:?}");
            // Nothing but accesses and computing is user time.
            let each = 200 + lowtide_sim::Costs::default().touch_ns;
            let expected = result.ops * each;
            assert!(result.user_ns.abs_diff(expected) < 10 * each, "{policy}: {}", result.user_ns);
            assert!(result.system_ns() > result.user_ns / 10, "{policy}: it swaps");
        }
    }

    /// Heaps of compilers are gone with them: nothing but object files is left, in memory or swap.
    #[test]
    fn compilers_exit_and_leave_object_files_alone() {
        for policy in POLICIES {
            let build = KernelBuild { units: 6, ..KernelBuild::published(0.03) };
            let objects: u64 = (0..build.units).map(|number| build.unit(number).object).sum();
            let result = played(policy, Rc::new(build), server(3, 1 << 30));
            assert!(!result.out_of_memory, "{policy}");
            let (stat, slots) = (&result.ended, (1 << 30) / PAGE);
            assert_eq!(result.ops, 6, "{policy}");
            assert!(stat.memory.events.pswpout > 10_000, "{policy}: {:?}", stat.memory.events);
            let left = stat.memory.anon + (slots - stat.swap_free_pages);
            assert_eq!(left, objects, "{policy}: in memory and in swap");
        }
    }

    #[test]
    fn a_build_without_swap_is_out_of_memory_and_that_is_a_result() {
        let build = KernelBuild { units: 6, ..KernelBuild::published(0.03) };
        let spec = MachineSpec { swap: None, ..server(3, 1 << 30) };
        let result = played("mglru", Rc::new(build), spec);
        assert!(result.out_of_memory && result.ended.kernel.oom == 1);
    }

    #[test]
    fn a_database_swaps_in_what_its_transactions_miss() {
        let program = SysbenchRo {
            rows: 40_000,
            max: 3 << 20,
            warm: Duration::from_millis(200),
            run: Duration::from_millis(500),
            ..SysbenchRo::published(0.04)
        };
        assert!(program.heap_bytes() > 4 * program.max);
        let result = played("mglru", Rc::new(program), server(4, 256 << 20));
        assert!(!result.out_of_memory && result.ops > 100, "{}", result.ops);
        let swapped = result.ended.memory.events.pswpin - result.began.memory.events.pswpin;
        assert!(swapped > result.ops / 2, "{swapped} for {} transactions", result.ops);
    }

    #[test]
    fn apps_are_started_after_a_round_that_is_not_measured() {
        let android = Android { rounds: 1, apps: 6, cached: 2, ..Android::published(0.05) };
        let phone = MachineSpec::load("phone").expect("a preset");
        let kernel = phone.memory - android.memory();
        let result = played("mglru", Rc::new(android), MachineSpec { kernel, ..phone });
        assert!(!result.out_of_memory);
        assert_eq!((result.ops, result.latency.len()), (6, 6));
        assert!(result.latency.min() > 200_000_000, "a launch computes for that long");
        assert!(result.began.now_ns > 6 * 2 * SECOND_NS, "each app is used for two seconds");
        assert!(result.ended.memory.events.pswpout > 0 && result.ended.device.read_bytes > 0);
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let run = |seed| {
            let build = KernelBuild { units: 4, seed, ..KernelBuild::published(0.02) };
            let result = played("lru", Rc::new(build), server(2, 1 << 30));
            (result.ended.now_ns, result.user_ns, format!("{:?}", result.ended.memory))
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}
