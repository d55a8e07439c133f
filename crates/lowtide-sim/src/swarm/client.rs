//! The threads of a run: each plays its part of the plan, the faults come with the operations, and every answer of the machine is checked.
//!
//! What the machine may refuse is a charge, when memory is exhausted, and a read that the device failed. Both end the operation, not
//! the thread.

use super::contents::Truth;
use super::overseer::Shared;
use super::plan::{Fault, Pattern, Plan, ThreadPlan};
use crate::machine::{AddressSpace, Ctx, FileId, Machine, MachineError, MappingId, OpenId, World};
use crate::memory::ObjectId;
use lowtide_core::MemcgId;
use lowtide_workload::{OpKind, SpaceKind, SplitMix64};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// How long a thread rests after it was refused memory, and how long a sleep in a plan is, in nanoseconds.
const REST_NS: u64 = 1_000_000;
/// Refusals after which a thread ends: in a kernel, it would have been killed.
const REFUSALS: u32 = 3;
const SLEEP_NS: u64 = 10_000_000;

/// Events of the machine after which no thread begins anything: where memory is too scarce, everything takes for ever.
const EVENTS_MAX: u64 = 20_000;

/// What a run's threads share.
#[derive(Debug)]
pub(super) struct Crew {
    overseer: Option<Shared>,
    faults: RefCell<Vec<(u64, Fault)>>,
    begun: Cell<u64>,
    budget: u64,
    pub(super) counts: Counts,
}

/// What the threads met.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Operations that were refused memory.
    pub(super) refused: Cell<u64>,
    /// Operations that the device failed.
    pub(super) failed: Cell<u64>,
    /// Lowered budgets that usage did not come down to.
    pub(super) unmet: Cell<u64>,
    /// Faults carried out.
    pub(super) faults: Cell<u64>,
    /// Syncs whose result was checked page by page.
    pub(super) syncs: Cell<u64>,
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

impl Crew {
    /// Sets a machine up for a plan and adds its threads.
    pub(super) fn muster(plan: &Plan, machine: &mut Machine, overseer: Option<Shared>) -> Rc<Self> {
        let mut faults = plan.faults.clone();
        // Taken from the end.
        faults.reverse();
        let budget = machine.world().pool.engine.max(MemcgId::ROOT);
        let crew = Rc::new(Self {
            overseer,
            faults: RefCell::new(faults),
            begun: Cell::new(0),
            budget,
            counts: Counts::default(),
        });
        let processes = set_up(plan, &mut machine.world());
        for (number, thread) in plan.threads.iter().enumerate() {
            let mut place = processes[number % processes.len()][thread.space];
            // Read-ahead state is a thread's own.
            if let Some((file, open)) = &mut place.file {
                *open = machine.world().open(*file);
            }
            let rng = SplitMix64::new(plan.seed).fork(number as u64);
            let (thread, crew) = (*thread, Rc::clone(&crew));
            machine.client(move |ctx| async move { crew.play(ctx, thread, place, rng).await });
        }
        crew
    }

    /// Adds a last client to a machine whose others have finished: all goes well again, and everything is written.
    pub(super) fn finish(self: &Rc<Self>, machine: &mut Machine) {
        let crew = Rc::clone(self);
        {
            let mut world = machine.world();
            world.requests.fail_one_in = 0;
            world.device.slow = 1;
        }
        machine.client(move |ctx| async move {
            let files = ctx.w().files.len();
            for file in (0..files as u32).map(FileId) {
                let object = ctx.w().file(file).object;
                crew.sync(&ctx, file, object).await;
                // Once more for what was on its way when the device was still failing.
                crew.sync(&ctx, file, object).await;
                let left = ctx.w().file(file).dirty.len();
                if left > 0 {
                    ctx.w().violated(
                        "sync",
                        format!("{left} pages of {file:?} are dirty, and nobody writes to it"),
                    );
                }
            }
            Ok(())
        });
    }

    async fn play(
        &self,
        ctx: Ctx,
        thread: ThreadPlan,
        place: Place,
        mut rng: SplitMix64,
    ) -> Result<(), MachineError> {
        let mut next = rng.below(place.pages);
        let mut scan_left = 0;
        let mut refusals = 0;
        for _ in 0..thread.ops {
            if refusals == REFUSALS || ctx.w().sched.handled > EVENTS_MAX {
                break;
            }
            self.begun.set(self.begun.get() + 1);
            self.misfortune(&ctx).await;
            ctx.spend(thread.think_ns).await;
            let dice = rng.below(1000) as u32;
            if dice < thread.sleeps {
                ctx.sleep(SLEEP_NS).await;
                continue;
            }
            let pages = 1 + rng.below(thread.pages.min(place.pages));
            let first = draw(thread.pattern, place.pages, pages, &mut next, &mut scan_left, &mut rng);
            if dice < thread.sleeps + thread.syncs {
                if let Some((file, _)) = place.file {
                    self.sync(&ctx, file, place.object).await;
                }
                continue;
            }
            if dice < thread.sleeps + thread.syncs + thread.frees {
                ctx.give_up(place.mapping, first, pages).await;
                continue;
            }
            let write = rng.percent(thread.writes);
            let kind = match (rng.percent(thread.mapped) || place.file.is_none(), write) {
                (true, false) => OpKind::Load,
                (true, true) => OpKind::Store,
                (false, false) => OpKind::Read,
                (false, true) => OpKind::Write,
            };
            refusals += u32::from(!self.access(&ctx, place, kind, first, pages).await?);
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
        first: u64,
        pages: u64,
    ) -> Result<bool, MachineError> {
        let failures = self.read_failures(place.object, first, pages);
        let result = match (kind, place.file) {
            (OpKind::Read, Some((_, open))) => ctx.read(open, first, pages).await,
            (OpKind::Write, Some((_, open))) => ctx.write(open, first, pages).await,
            (OpKind::Load | OpKind::Read, _) => ctx.access(place.mapping, first, pages, false).await,
            _ => ctx.access(place.mapping, first, pages, true).await,
        };
        match result {
            Err(MachineError::OutOfMemory { .. }) => {
                more(&self.counts.refused);
                ctx.sleep(REST_NS).await;
                Ok(false)
            }
            Err(MachineError::Io { .. }) => {
                more(&self.counts.failed);
                if self.overseer.is_some() && failures == self.read_failures(place.object, first, pages) {
                    let what =
                        format!("{kind} of {pages} pages from {first} on: no read of them has failed since");
                    ctx.w().violated("device errors", what);
                }
                Ok(true)
            }
            Err(error) => Err(error),
            Ok(()) => Ok(true),
        }
    }

    /// Reads of these pages that have failed so far.
    fn read_failures(&self, object: ObjectId, first: u64, pages: u64) -> u64 {
        let Some(Shared(overseer)) = &self.overseer else { return 0 };
        let contents = &overseer.borrow().contents;
        (first..first + pages).map(|page| contents.truth(object, page).read_failures).sum()
    }

    /// Syncs a file. Afterwards the device has all that was stored before, except what it failed to write.
    async fn sync(&self, ctx: &Ctx, file: FileId, object: ObjectId) {
        let Some(Shared(overseer)) = &self.overseer else { return ctx.sync(file).await };
        let behind = |(_, truth): &(usize, Truth)| truth.device != truth.latest;
        let before: Vec<(usize, Truth)> =
            overseer.borrow().contents.pages(object).iter().copied().enumerate().filter(behind).collect();
        ctx.sync(file).await;
        more(&self.counts.syncs);
        for (page, then) in before {
            let now = overseer.borrow().contents.truth(object, page as u64);
            if now.device < then.latest && now.write_failures == then.write_failures {
                let Truth { latest, .. } = then;
                let what = format!(
                    "{file:?} was synced, and page {page} is on the device as of {} and not {latest}",
                    now.device
                );
                ctx.w().violated("sync", what);
                return;
            }
        }
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
                Fault::Slow(times) => ctx.w().device.slow = times,
                Fault::Fail(one_in) => ctx.w().requests.fail_one_in = one_in,
                Fault::Max(pages) => match ctx.set_max(pages.min(self.budget)).await {
                    Ok(true) => {}
                    Ok(false) => more(&self.counts.unmet),
                    Err(error) => ctx.w().fail(Err(error.into())),
                },
            }
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
