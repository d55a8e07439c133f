//! The threads of a run: each plays its part of the plan, the faults come with the operations, and
//! every answer of the machine is checked.
//!
//! The machine may refuse a charge, when memory is exhausted, fail a read because the device did,
//! and report that a file is not durable. All of these end the operation, not the thread. A power
//! cut ends the machine: the threads of the next go on with the operations that are left.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use lowtide_core::MemcgId;
use lowtide_sim::machine::{
    AddressSpace, Ctx, Fails, FileId, Machine, MachineError, MappingId, OpenId, Size, World,
};
use lowtide_sim::memory::ObjectId;
use lowtide_workload::{OpKind, SpaceKind, SplitMix64};

use super::checker::Shared;
use super::plan::{Fault, Pattern, Plan, ThreadPlan};

/// How long a thread rests after it was refused memory, and how long a sleep in a plan is, in
/// nanoseconds.
const REST_NS: u64 = 1_000_000;
/// Refusals after which a thread ends: in a kernel, it would have been killed.
const REFUSALS: u32 = 3;
const SLEEP_NS: u64 = 10_000_000;

/// Events of the machine after which threads begin nothing more: where memory is too scarce,
/// everything takes forever.
const EVENTS_MAX: u64 = 20_000;

/// What a run's threads share, on one machine after the other.
#[derive(Debug)]
pub(super) struct Clients {
    plan: Plan,
    checker: Option<Shared>,
    /// Faults to come, the next at the end.
    faults: RefCell<Vec<(u64, Fault)>>,
    begun: Cell<u64>,
    /// Operations that each thread has begun.
    done: Vec<Cell<u64>>,
    /// Pages that the budget may have at most, and those that a machine begins with.
    room: Cell<u64>,
    first: Cell<u64>,
    /// A factor on the device's times.
    slow: Cell<u64>,
    fails: Cell<Fails>,
    /// The size of each file, as the last machine left it.
    sizes: RefCell<Vec<Size>>,
    /// Machines so far.
    machines: Cell<u64>,
    /// The seed of the power cut that ended the last.
    pub(super) cut: Cell<u64>,
    pub(super) counts: Counts,
}

/// What the threads met.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Operations that were refused memory.
    pub(super) refused: Cell<u64>,
    /// Operations that the device failed.
    pub(super) failed: Cell<u64>,
    pub(super) budgets: Budgets,
    pub(super) sizes: Sizes,
    /// Faults carried out.
    pub(super) faults: Cell<u64>,
    /// Syncs that reported that the file is durable.
    pub(super) syncs: Cell<u64>,
    /// Syncs that reported a failure.
    pub(super) failed_syncs: Cell<u64>,
}

/// How the sizes of files were changed.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    pub(super) shorter: Cell<u64>,
    pub(super) longer: Cell<u64>,
    /// Changes, of both kinds, to an end within a page.
    pub(super) partial: Cell<u64>,
    /// Operations that ended with an access past the end.
    pub(super) behind: Cell<u64>,
}

/// How the budget was changed.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    pub(super) lowered: Cell<u64>,
    /// Lowered budgets that usage did not come down to.
    pub(super) unmet: Cell<u64>,
    pub(super) raised: Cell<u64>,
    /// Raised budgets above what the machine began with.
    pub(super) above_first: Cell<u64>,
}

fn more(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

/// A space as one thread has it.
#[derive(Clone, Copy, Debug)]
struct Place {
    file: Option<(FileId, OpenId)>,
    mapping: MappingId,
    object: ObjectId,
    pages: u64,
}

impl Clients {
    /// The threads of a plan, before they have done anything.
    pub(super) fn new(plan: &Plan, checker: Option<Shared>) -> Rc<Self> {
        let mut faults = plan.faults.clone();
        faults.reverse();
        Rc::new(Self {
            plan: plan.clone(),
            checker,
            faults: RefCell::new(faults),
            begun: Cell::new(0),
            done: plan.threads.iter().map(|_| Cell::new(0)).collect(),
            room: Cell::new(0),
            first: Cell::new(0),
            slow: Cell::new(1),
            fails: Cell::new(Fails::default()),
            sizes: RefCell::new(Vec::new()),
            machines: Cell::new(0),
            cut: Cell::new(0),
            counts: Counts::default(),
        })
    }

    /// Sets a machine up and adds the threads, with what they have left to do. The files of every
    /// machine are the same.
    pub(super) fn spawn(self: &Rc<Self>, machine: &mut Machine) {
        let processes = {
            let mut world = machine.world();
            self.prepare(&mut world);
            let processes = set_up(&self.plan, &mut world);
            for (file, size) in world.files.iter_mut().zip(self.sizes.borrow().iter()) {
                (file.pages, file.partial) = (size.pages, size.partial);
            }
            processes
        };
        let life = self.machines.replace(self.machines.get() + 1);
        for (number, thread) in self.plan.threads.iter().enumerate() {
            let mut place = processes[number % processes.len()][thread.space];
            // Read-ahead state is a thread's own, and so are the failures that it has seen.
            if let Some((file, open)) = &mut place.file {
                *open = self.open(&mut machine.world(), *file);
            }
            let rng = SplitMix64::new(self.plan.seed).fork(number as u64 | life << 32);
            let clients = Rc::clone(self);
            machine.client(async move |ctx| clients.play(ctx, number, place, rng).await);
        }
    }

    /// The settings that hold for the whole machine.
    fn prepare(&self, world: &mut World) {
        let room = world.pool.engine.max(MemcgId::ROOT);
        self.room.set(room);
        self.first.set(room.min(self.plan.budget));
        if let Err(error) = world.pool.engine.set_max(MemcgId::ROOT, self.first.get()) {
            world.violated("plan", error.to_string());
        }
        self.expect_max(self.first.get());
        world.device.slow = self.slow.get();
        world.requests.fails = self.fails.get();
        world.pool.engine.set_exact_dirty(self.plan.exact);
        if let Some(limits) = self.plan.dirty
            && let Err(error) = world.pool.engine.set_dirty_limits(MemcgId::ROOT, limits)
        {
            world.violated("plan", error.to_string());
        }
    }

    /// The files that outlive a machine, and the pages of each.
    pub(super) fn files(world: &World) -> Vec<(ObjectId, u64)> {
        world.files.iter().map(|file| (file.object, file.pages)).collect()
    }

    /// The next machine's files have the sizes that this one's have.
    pub(super) fn remember_sizes(&self, world: &World) {
        let sizes =
            world.files.iter().map(|file| Size { pages: file.pages, partial: file.partial });
        *self.sizes.borrow_mut() = sizes.collect();
    }

    fn open(&self, world: &mut World, file: FileId) -> OpenId {
        let open = world.open(file);
        if let Some(Shared(checker)) = &self.checker {
            let object = world.file(file).object;
            checker.borrow_mut().promises.opened(open, object);
        }
        open
    }

    /// Adds a last client to a machine whose others have finished: all goes well again, and
    /// everything is written.
    pub(super) fn finish(self: &Rc<Self>, machine: &mut Machine) {
        let clients = Rc::clone(self);
        {
            let mut world = machine.world();
            world.requests.fails = Fails::default();
            world.device.slow = 1;
        }
        machine.client(async move |ctx| {
            let files = ctx.w().files.len();
            for file in (0..files as u32).map(FileId) {
                let (object, open) = {
                    let mut world = ctx.w();
                    (world.file(file).object, clients.open(&mut world, file))
                };
                // Once more after what was on its way when the device was still failing.
                clients.sync(&ctx, open, object).await?;
                clients.sync(&ctx, open, object).await?;
                let left = ctx.w().file(file).dirty.len();
                if left > 0 {
                    ctx.w().violated(
                        "sync",
                        format!("{left} pages of {file:?} are dirty, and no thread writes to it"),
                    );
                }
            }
            Ok(())
        });
    }

    async fn play(
        &self,
        ctx: Ctx,
        number: usize,
        place: Place,
        mut rng: SplitMix64,
    ) -> Result<(), MachineError> {
        let thread: ThreadPlan = self.plan.threads[number];
        let mut next = rng.below(place.pages);
        let mut scan_left = 0;
        let mut refusals = 0;
        let done = &self.done[number];
        while done.get() < thread.ops {
            if refusals == REFUSALS || ctx.w().sched.handled > EVENTS_MAX {
                break;
            }
            more(&self.begun);
            more(done);
            self.misfortune(&ctx).await;
            ctx.spend(thread.think_ns).await;
            let drawn = rng.below(1000) as u32;
            if drawn < thread.sleeps {
                ctx.sleep(SLEEP_NS).await;
                continue;
            }
            let pages = 1 + rng.below(thread.pages.min(place.pages));
            let first =
                draw(thread.pattern, place.pages, pages, &mut next, &mut scan_left, &mut rng);
            if drawn < thread.sleeps + thread.syncs {
                if let Some((_, open)) = place.file {
                    self.sync(&ctx, open, place.object).await?;
                }
                continue;
            }
            let frees = thread.sleeps + thread.syncs + thread.frees;
            if drawn < frees {
                ctx.give_up(place.mapping, first, pages).await;
                continue;
            }
            let drops = frees + thread.drops;
            if drawn < drops {
                if place.file.is_some() {
                    ctx.drop_cached(place.object, first, pages).await;
                }
                continue;
            }
            let resizes = drops + thread.resizes;
            if drawn >= resizes && drawn < resizes + thread.lazy {
                if place.file.is_none() {
                    ctx.free_lazily(place.mapping, first, pages).await;
                }
                continue;
            }
            if drawn < resizes {
                if let Some((file, open)) = place.file {
                    let size = Size { pages: 1 + rng.below(place.pages), partial: rng.percent(50) };
                    self.resize(&ctx, file, open, size).await?;
                }
                continue;
            }
            let write = rng.percent(thread.writes);
            let kind = match (rng.percent(thread.mapped) || place.file.is_none(), write) {
                (true, false) => OpKind::Load,
                (true, true) => OpKind::Store,
                (false, false) => OpKind::Read,
                (false, true) => OpKind::Write,
            };
            let parts = kind == OpKind::Write && thread.parts > 0 && rng.percent(thread.parts);
            refusals += u32::from(!self.access(&ctx, place, kind, parts, first, pages).await?);
        }
        ctx.settle().await;
        Ok(())
    }

    /// Carries an access out. Returns whether there was memory for it.
    async fn access(
        &self,
        ctx: &Ctx,
        place: Place,
        kind: OpKind,
        parts: bool,
        first: u64,
        pages: u64,
    ) -> Result<bool, MachineError> {
        // A write may read another page first: the one that the file has ended in.
        let failures = || match place.file {
            Some((file, _)) if kind == OpKind::Write => ctx.w().file(file).read_failures,
            _ => self.read_failures(place.object, first, pages),
        };
        let before = failures();
        let result = match (kind, place.file) {
            (OpKind::Read, Some((_, open))) => ctx.read(open, first, pages).await,
            (OpKind::Write, Some((_, open))) if parts => ctx.write_parts(open, first, pages).await,
            (OpKind::Write, Some((_, open))) => ctx.write(open, first, pages).await,
            (OpKind::Load | OpKind::Read, _) => {
                ctx.access(place.mapping, first, pages, false).await
            }
            _ => ctx.access(place.mapping, first, pages, true).await,
        };
        match result {
            Err(MachineError::BeyondEnd { .. }) => {
                more(&self.counts.sizes.behind);
                Ok(true)
            }
            Err(MachineError::OutOfMemory { .. }) => {
                more(&self.counts.refused);
                ctx.sleep(REST_NS).await;
                Ok(false)
            }
            Err(MachineError::Io { .. }) => {
                more(&self.counts.failed);
                if self.checker.is_some() && before == failures() {
                    let what = format!(
                        "{kind} of {pages} pages from {first} on: no read of them has failed since"
                    );
                    ctx.w().violated("device errors", what);
                }
                Ok(true)
            }
            Err(error) => Err(error),
            Ok(()) => Ok(true),
        }
    }

    /// Makes a file shorter or longer.
    async fn resize(
        &self,
        ctx: &Ctx,
        file: FileId,
        open: OpenId,
        size: Size,
    ) -> Result<(), MachineError> {
        let old = ctx.w().file(file).pages;
        match ctx.resize(open, size).await {
            Ok(()) => {
                let sizes = &self.counts.sizes;
                more(if size.pages < old { &sizes.shorter } else { &sizes.longer });
                sizes.partial.set(sizes.partial.get() + u64::from(size.partial));
                Ok(())
            }
            Err(MachineError::OutOfMemory { .. }) => {
                more(&self.counts.refused);
                ctx.sleep(REST_NS).await;
                Ok(())
            }
            Err(MachineError::Io { .. }) => {
                more(&self.counts.failed);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Reads of these pages that have failed so far.
    fn read_failures(&self, object: ObjectId, first: u64, pages: u64) -> u64 {
        let Some(Shared(checker)) = &self.checker else { return 0 };
        let contents = &checker.borrow().contents;
        (first..first + pages).map(|page| contents.truth(object, page).read_failures).sum()
    }

    /// Syncs a file. Returns whether it is durable as it was.
    async fn sync(&self, ctx: &Ctx, open: OpenId, object: ObjectId) -> Result<bool, MachineError> {
        let before: Option<Vec<_>> =
            self.checker.as_ref().map(|Shared(o)| o.borrow().contents.volatile(object).collect());
        let well = match ctx.sync(open).await {
            Ok(()) => true,
            Err(MachineError::WriteBack { .. }) => false,
            Err(error) => return Err(error),
        };
        more(if well { &self.counts.syncs } else { &self.counts.failed_syncs });
        if let (Some(Shared(checker)), Some(before)) = (&self.checker, before) {
            let mut checker = checker.borrow_mut();
            if let Err(what) = checker.promises.synced(open, object, well) {
                ctx.w().violated("sync errors", what);
            }
            if let Err(what) = checker.contents.synced(object, &before, well) {
                ctx.w().violated("sync", what);
            }
        }
        Ok(well)
    }

    /// Changes how the device fails.
    fn fail(&self, ctx: &Ctx, change: impl FnOnce(Fails) -> Fails) {
        self.fails.set(change(self.fails.get()));
        ctx.w().requests.fails = self.fails.get();
    }

    /// Carries out the faults that are due.
    async fn misfortune(&self, ctx: &Ctx) {
        loop {
            let due = {
                let mut faults = self.faults.borrow_mut();
                let due = faults.last().is_some_and(|&(at, _)| at < self.begun.get());
                if due { faults.pop() } else { None }
            };
            let Some((_, fault)) = due else { return };
            more(&self.counts.faults);
            match fault {
                Fault::Slow(times) => {
                    self.slow.set(times);
                    ctx.w().device.slow = times;
                }
                Fault::Fail(n) => {
                    self.fail(ctx, |fails| Fails { reads: n, writes: n, flushes: n, ..fails });
                }
                Fault::FailWrites(n) => self.fail(ctx, |fails| Fails { writes: n, ..fails }),
                Fault::FailFlushes(n) => self.fail(ctx, |fails| Fails { flushes: n, ..fails }),
                Fault::Hang(n) => self.fail(ctx, |fails| Fails { hangs: n, ..fails }),
                Fault::Cut(seed) => {
                    self.cut.set(seed);
                    let at_ns = ctx.now();
                    ctx.w().fail(Err(MachineError::PowerCut { at_ns }));
                    // The machine ends at the end of this turn.
                    ctx.settle().await;
                    ctx.block(None).await;
                }
                Fault::Max(pages) => self.set_max(ctx, pages.min(self.room.get())).await,
            }
        }
    }

    /// Changes the budget.
    async fn set_max(&self, ctx: &Ctx, pages: u64) {
        let before = ctx.w().pool.engine.max(MemcgId::ROOT);
        let budgets = &self.counts.budgets;
        if pages < before {
            more(&budgets.lowered);
        }
        if pages > before {
            more(&budgets.raised);
        }
        if pages > before.max(self.first.get()) {
            more(&budgets.above_first);
        }
        self.expect_max(pages);
        match ctx.set_max(pages).await {
            Ok(true) => {}
            Ok(false) => more(&budgets.unmet),
            Err(error) => ctx.w().fail(Err(error.into())),
        }
    }

    /// The budget is `pages` pages from now on.
    fn expect_max(&self, pages: u64) {
        if let Some(Shared(checker)) = &self.checker {
            checker.borrow_mut().limit = Some(pages);
        }
    }
}

/// Files, heaps and mappings: the places of each process.
fn set_up(plan: &Plan, world: &mut World) -> Vec<Vec<Place>> {
    let files: Vec<Option<FileId>> = plan
        .spaces
        .iter()
        .map(|space| (space.kind == SpaceKind::File).then(|| world.add_file(space.pages)))
        .collect();
    for (space, file) in files.iter().enumerate() {
        if let Some(file) = file.filter(|_| plan.is_large(space)) {
            world.allow_large_folios(file);
        }
    }
    let place = |world: &mut World, into: AddressSpace, space: usize| {
        let pages = plan.spaces[space].pages;
        let (file, mapping) = match files[space] {
            Some(file) => {
                let open = world.open(file);
                (Some((file, open)), world.map_file(into, open))
            }
            None => (None, world.map_heap(into, pages)),
        };
        Place { file, mapping, object: world.mapped_object(mapping), pages }
    };
    (0..plan.processes)
        .map(|_| {
            let into = world.add_address_space(MemcgId::ROOT);
            (0..plan.spaces.len()).map(|space| place(world, into, space)).collect()
        })
        .collect()
}

/// The first of `run` pages, in a space of `pages`.
fn draw(
    pattern: Pattern,
    pages: u64,
    run: u64,
    next: &mut u64,
    scan_left: &mut u64,
    rng: &mut SplitMix64,
) -> u64 {
    const SCAN: u64 = 100;
    let last = pages - run;
    let mut in_order = || {
        let at = if *next > last { 0 } else { *next };
        *next = at + run;
        at
    };
    match pattern {
        Pattern::Uniform => rng.below(last + 1),
        Pattern::Loop => in_order(),
        Pattern::Scan if *scan_left > 0 => {
            *scan_left -= 1;
            in_order()
        }
        Pattern::Skewed | Pattern::Scan => {
            if pattern == Pattern::Scan && rng.percent(1) {
                *scan_left = SCAN;
            }
            let u = rng.below(1 << 32);
            let cubed = (((u * u) >> 32) * u) >> 32;
            ((u128::from(cubed) * u128::from(last + 1)) >> 32) as u64
        }
    }
}
