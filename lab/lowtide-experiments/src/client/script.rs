//! The player of scripts ([`crate::programs::script`]) on a simulated machine, in virtual time.
//!
//! Each actor is a group with one process, and each of its threads is a task that never ends. One
//! more task samples the device once a second, as `sar` does, and ends the run. A call hits if its
//! page is resident and unlocked. Threads are not pinned: a task keeps its CPU until another task
//! needs it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use hdrhistogram::Histogram;
use lowtide_core::high::handler::HighPolicy;
use lowtide_core::hooks::LimitHooks;
use lowtide_core::limits::PUBLISH_INTERVAL_NS;
use lowtide_core::{MemcgId, Reason, Reclaim};
use lowtide_sim::machine::{
    Ctx, Machine, MachineConfig, MachineError, MachineStat, MappingId, OpenId,
};
use lowtide_sim::memory::ObjectId;

use crate::programs::script::{Actor, Call, Choices, Script};

const SECOND_NS: u64 = 1_000_000_000;
/// Pages that are reclaimed in advance at a time.
const ADVANCE_PAGES: u64 = 256;

/// How threads of groups that exceed their `high` are throttled.
#[derive(Debug, Default)]
pub struct Throttle {
    /// One of lowtide's throttle policies.
    pub policy: HighPolicy,
    /// A program that adjusts its decisions, and decides about protection and reclaim in advance:
    /// of the group of all actors if the script has a budget, otherwise of that with a `high`.
    pub hooks: Option<Box<dyn LimitHooks>>,
}

/// The work of an actor.
#[derive(Clone, Debug)]
pub struct Done {
    /// Calls of each thread.
    pub ops: Vec<u64>,
    /// Pages of these calls that were resident.
    pub hits: u64,
    /// Nanoseconds of each call, if the actor is timed.
    pub latency: Histogram<u64>,
}

impl Done {
    /// No work yet.
    ///
    /// # Panics
    /// Never: the bounds of the histogram are valid.
    #[must_use]
    pub fn new(threads: u32) -> Self {
        Self {
            ops: vec![0; threads as usize],
            hits: 0,
            latency: Histogram::new_with_max(3_600 * SECOND_NS, 3).expect("valid bounds"),
        }
    }

    /// Calls of all threads.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.ops.iter().sum()
    }

    /// The share of calls whose page was resident.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        if self.calls() == 0 { 0.0 } else { self.hits as f64 / self.calls() as f64 }
    }

    fn reset(&mut self) {
        self.ops.fill(0);
        self.hits = 0;
        self.latency.reset();
    }
}

/// The device during a second, or during the rest of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Nanoseconds.
    pub ns: u64,
    /// Commands.
    pub commands: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Nanoseconds in which it was busy.
    pub busy_ns: u64,
}

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct Played {
    /// Counters when the measurement began.
    pub began: MachineStat,
    /// Counters at the end.
    pub ended: MachineStat,
    /// The device, second by second.
    pub samples: Vec<Sample>,
    /// The actors, in the script's order.
    pub actors: Vec<Done>,
}

impl Played {
    /// Total nanoseconds that tasks slept because of `high`.
    #[must_use]
    pub const fn slept_ns(&self) -> u64 {
        self.ended.kernel.high_sleep_ns - self.began.kernel.high_sleep_ns
    }
}

#[derive(Debug)]
struct Tally {
    actors: Vec<Done>,
    samples: Vec<Sample>,
    began: Option<MachineStat>,
}

/// The file of a task.
#[derive(Clone, Copy, Debug)]
struct Place {
    object: ObjectId,
    open: OpenId,
    mapping: MappingId,
}

/// Plays a script. `done` counts virtual milliseconds.
///
/// # Errors
/// [`MachineError`].
///
/// # Panics
/// When a file is smaller than a page.
pub fn play(
    machine: &MachineConfig,
    script: &Script,
    throttle: Throttle,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<Played, MachineError> {
    let page = machine.spec.page;
    let mut m = Machine::new(machine)?;
    let actors = script.actors.iter().map(|actor| Done::new(actor.threads)).collect();
    let tally = Rc::new(RefCell::new(Tally { actors, samples: Vec::new(), began: None }));
    let mut hooks = throttle.hooks;
    let advances = hooks.as_ref().is_some_and(|hooks| hooks.is_proactive());
    let mut hooked = None;
    let parent = match script.max {
        Some(max) => {
            let engine = &mut m.world().pool.engine;
            let parent = engine.create_group(MemcgId::ROOT).expect("the root has room");
            engine.set_max(parent, max / page)?;
            // Before the groups of the actors are created, so that it knows of them.
            engine.set_hooks(parent, hooks.take());
            hooked = Some(parent);
            parent
        }
        None => MemcgId::ROOT,
    };
    for (number, actor) in script.actors.iter().enumerate() {
        let hooks = if actor.high.is_some() { hooks.take() } else { None };
        let has_hooks = hooks.is_some();
        let (group, place) = set_up(&m, parent, actor, page, throttle.policy, hooks);
        if has_hooks {
            hooked = Some(group);
        }
        for thread in 0..actor.threads {
            let choices = script.choices(actor, thread, actor.file.div_ceil(page));
            let (actor, tally) = (actor.clone(), Rc::clone(&tally));
            let report = move |hit: bool, took: Option<u64>| {
                let done = &mut tally.borrow_mut().actors[number];
                done.ops[thread as usize] += 1;
                done.hits += u64::from(hit);
                if let Some(took) = took {
                    done.latency.saturating_record(took);
                }
            };
            m.background_in(group, move |ctx| perform(ctx, actor, place, choices, report));
        }
    }
    if let Some(group) = hooked.filter(|_| advances) {
        m.background(move |ctx| advance(ctx, group));
    }
    let (warm_ns, run_ns) = (nanos(script.warm), nanos(script.run));
    let now = Rc::new(RefCell::new(0));
    let (millis, seen) = (Rc::clone(&now), Rc::clone(&tally));
    m.client(move |ctx| watch(ctx, warm_ns, run_ns, millis, seen));
    m.run(stop, &mut || done.store(*now.borrow(), Relaxed))?;
    let ended = m.stat();
    let tally = tally.borrow();
    Ok(Played {
        began: tally.began.clone().expect("a measurement begins before it ends"),
        ended,
        samples: tally.samples.clone(),
        actors: tally.actors.clone(),
    })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// An actor's group, with a process that has its file open and mapped.
fn set_up(
    m: &Machine,
    parent: MemcgId,
    actor: &Actor,
    page: u64,
    policy: HighPolicy,
    hooks: Option<Box<dyn LimitHooks>>,
) -> (MemcgId, Place) {
    let mut world = m.world();
    let engine = &mut world.pool.engine;
    let group = engine.create_group(parent).expect("there is room for a few groups");
    engine.set_low(group, actor.low / page);
    if let Some(bytes_per_s) = actor.io_max {
        world.groups.io_max.set(group, bytes_per_s);
    }
    let engine = &mut world.pool.engine;
    if let Some(high) = actor.high {
        engine.set_high(group, high / page);
        engine.set_high_policy(group, policy);
        if hooks.is_some() {
            engine.set_hooks(group, hooks);
        }
    }
    let process = world.add_address_space(group);
    let file = world.add_file(actor.file.div_ceil(page));
    let open = world.open(file);
    let mapping = world.map_file(process, open);
    match actor.call {
        Call::Load { around: true } => world.count_misses_as_before_7(open),
        Call::LoadRandom => world.advise_mapping_random(mapping),
        Call::Load { around: false } | Call::ReadOnce => world.advise_random(open),
        Call::Read { .. } => {}
    }
    (group, Place { object: world.file(file).object, open, mapping })
}

/// A thread of an actor, which never ends. Reports for each call whether it hit and, if timed, its
/// duration.
async fn perform(
    ctx: Ctx,
    actor: Actor,
    place: Place,
    mut choices: Choices,
    report: impl Fn(bool, Option<u64>),
) -> Result<(), MachineError> {
    let (work_ns, pause_ns) = (nanos(actor.work), nanos(actor.pause));
    loop {
        if work_ns > 0 {
            ctx.spend(work_ns).await;
        }
        let page = choices.choose();
        let hit = {
            let world = ctx.w();
            let frame = world.pool.frame(place.object, page);
            frame.is_some_and(|frame| !world.is_locked(frame))
        };
        let began = ctx.now();
        match actor.call {
            Call::Load { .. } | Call::LoadRandom => {
                ctx.access(place.mapping, page, 1, false).await?;
            }
            Call::Read { pages } => ctx.read(place.open, page, pages).await?,
            Call::ReadOnce => {
                ctx.read(place.open, page, 1).await?;
                ctx.w().pool.discard(place.object, page);
                ctx.settle().await;
            }
        }
        report(hit, actor.timed.then(|| ctx.now() - began));
        if pause_ns > 0 {
            ctx.sleep(pause_ns).await;
        }
    }
}

/// Reclaims what a group's program asks for in advance, as the runtime does: at an interval, until
/// it is done or nothing more can be found. Never ends.
async fn advance(ctx: Ctx, group: MemcgId) -> Result<(), MachineError> {
    loop {
        ctx.sleep(PUBLISH_INTERVAL_NS).await;
        let now = ctx.now();
        let mut left = ctx.w().pool.engine.ask_proactive(group, now);
        while left > 0 {
            let task = ctx.w().engine_task(ctx.id, false);
            let goal = left.min(ADVANCE_PAGES);
            let reclaimed = ctx.reclaim(Reclaim::new(group, goal, Reason::Proactive, task)).await;
            if reclaimed == 0 {
                break;
            }
            left = left.saturating_sub(reclaimed);
        }
    }
}

/// Starts the measurement when the machine is warm, samples the device every second, and ends the
/// run.
async fn watch(
    ctx: Ctx,
    warm_ns: u64,
    run_ns: u64,
    millis: Rc<RefCell<u64>>,
    tally: Rc<RefCell<Tally>>,
) -> Result<(), MachineError> {
    while ctx.now() < warm_ns {
        ctx.sleep((warm_ns - ctx.now()).min(SECOND_NS)).await;
        *millis.borrow_mut() = ctx.now() / 1_000_000;
    }
    let began = MachineStat::of(&ctx.w());
    let mut last = began.device;
    {
        let mut tally = tally.borrow_mut();
        tally.actors.iter_mut().for_each(Done::reset);
        tally.began = Some(began);
    }
    let mut passed = 0;
    while passed < run_ns {
        let ns = (run_ns - passed).min(SECOND_NS);
        passed += ns;
        let now = ctx.now();
        ctx.sleep((warm_ns + passed).saturating_sub(now)).await;
        let device = ctx.w().device.counts;
        tally.borrow_mut().samples.push(Sample {
            ns,
            commands: device.reads + device.writes - last.reads - last.writes,
            read_bytes: device.read_bytes - last.read_bytes,
            busy_ns: device.busy_ns - last.busy_ns,
        });
        last = device;
        *millis.borrow_mut() = ctx.now() / 1_000_000;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::script::Order;
    use lowtide_core::Policy;
    use lowtide_core::hooks::{LimitSnapshot, ThrottleAnswer};
    use lowtide_sim::spec::MachineSpec;

    /// A group whose file is a third larger than its `high`, and a reader that keeps nothing.
    fn script(seed: u64) -> Script {
        let thrasher = Actor {
            name: "thrasher".into(),
            low: 0,
            high: Some(15 << 20),
            io_max: None,
            file: 20 << 20,
            threads: 2,
            order: Order::Uniform,
            call: Call::Load { around: false },
            work: Duration::from_nanos(20),
            pause: Duration::ZERO,
            timed: false,
            stream: 0,
        };
        let reader = Actor {
            name: "reader".into(),
            high: None,
            threads: 1,
            call: Call::ReadOnce,
            pause: Duration::from_millis(1),
            timed: true,
            stream: u32::MAX,
            ..thrasher
        };
        Script {
            max: None,
            memory: 40 << 20,
            actors: vec![thrasher, reader],
            warm: Duration::from_secs(2),
            run: Duration::from_millis(1_500),
            seed,
        }
    }

    fn played(seed: u64, throttle: Throttle) -> Played {
        let spec = MachineSpec::load("thrash").expect("a preset");
        let machine = MachineConfig { spec, policy: Policy::MGLRU, max: None, seed };
        play(&machine, &script(seed), throttle, &AtomicU64::new(0), &AtomicBool::new(false))
            .expect("nothing can fail")
    }

    /// A program that lets every task sleep for 50 ms.
    #[derive(Debug)]
    struct Fifty;

    impl LimitHooks for Fifty {
        fn throttle(&mut self, _: &LimitSnapshot) -> ThrottleAnswer {
            ThrottleAnswer::Exactly(50_000_000)
        }
    }

    #[test]
    fn a_program_decides_for_the_group_that_has_a_high() {
        let result =
            played(1, Throttle { policy: HighPolicy::Overage, hooks: Some(Box::new(Fifty)) });
        let sleeps = result.ended.kernel.high_sleeps - result.began.kernel.high_sleeps;
        assert!(sleeps > 10, "{sleeps}");
        assert_eq!(result.slept_ns(), sleeps * 50_000_000);
    }

    /// A program that wants a thousand pages back, each time it is asked.
    #[derive(Debug)]
    struct Thousand;

    impl LimitHooks for Thousand {
        fn proactive(&mut self, _: &LimitSnapshot) -> u64 {
            1000
        }
    }

    #[test]
    fn a_program_has_pages_reclaimed_in_advance() {
        let result =
            played(1, Throttle { policy: HighPolicy::Overage, hooks: Some(Box::new(Thousand)) });
        let stolen = |stat: &MachineStat| stat.memory.events.pgsteal_proactive;
        let before = played(1, Throttle { policy: HighPolicy::Overage, hooks: None });
        assert_eq!(stolen(&before.ended), 0);
        // Asked once, after two of three and a half seconds.
        let pages = stolen(&result.ended);
        assert!((1000..1256).contains(&pages), "{pages}");
        assert!(result.actors[0].hits < before.actors[0].hits, "what is reclaimed is missed");
    }

    #[test]
    fn what_is_counted_is_what_was_done_in_the_measured_time() {
        let Played { actors, samples, began, ended } = played(1, Throttle::default());
        let lengths: Vec<u64> = samples.iter().map(|sample| sample.ns).collect();
        assert_eq!(lengths, [1_000_000_000, 500_000_000]);
        let commands: u64 = samples.iter().map(|sample| sample.commands).sum();
        assert_eq!(commands, ended.device.reads - began.device.reads);
        let [thrasher, reader] = &actors[..] else { panic!("two actors") };
        assert_eq!((thrasher.ops.len(), thrasher.latency.len()), (2, 0));
        assert!(thrasher.hits > 0 && thrasher.hits < thrasher.calls());
        assert_eq!((reader.hits, reader.latency.len()), (0, reader.calls()), "it keeps nothing");
        assert!(reader.calls() > 100 && reader.calls() < 1_500);
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let run = |seed| {
            let result = played(seed, Throttle::default());
            let calls: Vec<_> = result.actors.iter().map(|done| done.ops.clone()).collect();
            (result.samples, calls, result.ended.events)
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}
