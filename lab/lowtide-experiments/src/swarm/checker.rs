//! The checker of a run: keeps the model of contents, runs the checks, and ends the run at the
//! first thing that is wrong.
//!
//! | looked at | what |
//! |---|---|
//! | every event of a page | contents: no update is lost, nothing is read that was not written |
//! | every sync | the file is durable if it says so; every failure was reported once |
//! | every power cut | nothing acknowledged is lost |
//! | every batch of victims | they are clean, arrived and untouched (I13, I14) |
//! | every folio freed | the device has what was in it (I14) |
//! | every turn | usage and dirty pages within limits (I29), sleeps bounded (I24), progress |
//! | every n turns | all of `checks.rs`; counters and generations only grow (I2, I33) |
//! | every charge that fails | that the budget is full, and that nothing could have been evicted |
//!
//! The last does not hold for policies without the repairs of 7.2: what they give up too early is
//! counted. It holds for all others. An aging by one task can still make others give up
//! (`docs/kernel/reclaim.md` §4.5), but that takes a machine on which a walk outlasts eighteen
//! tries while nothing is in use: the few thousand pages and threads of a plan are no such machine,
//! however slow its walks are. `tests/aging_oom.rs` has one.

use std::cell::RefCell;
use std::rc::Rc;

use lowtide_core::{
    Events, Flags, FolioId, Freed, Lists, MemcgId, Policy, Sequences, Switches, Victim,
};
use lowtide_sim::machine::{FlushEvent, PageEvent, Watch, World};
use lowtide_sim::memory::ObjectId;

use super::checks;
use super::contents::Contents;
use super::plan::Plan;
use super::progress::Progress;
use super::promises::Promises;
use super::sabotage::Bug;

/// The longest nap of a reclaimer, in nanoseconds (`docs/kernel/reclaim.md` §0).
const NAP_NS: u64 = 100_000_000;

/// Whether a policy never reports memory to be exhausted while something can be evicted. Before S4
/// and S8, an aging by one task made the others give up (`docs/kernel/reclaim.md` §4.5); before
/// S10, S11 and S15 no task waited for the device (§4.6).
fn must_find_memory(policy: Policy) -> bool {
    let needed = Switches::S4 | Switches::S8 | Switches::S10 | Switches::S11 | Switches::S15;
    policy.lists() != Lists::MultiGen || policy.has(needed)
}

/// Commands that the device was given.
const fn requests(world: &World) -> u64 {
    let counts = &world.device.counts;
    counts.reads + counts.writes
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Checker {
    pub(super) contents: Contents,
    pub(super) promises: Promises,
    bug: Option<Bug>,
    every: u64,
    must_find_memory: bool,
    pub(super) turns: u64,
    progress: Progress,
    pub(super) checks: u64,
    /// Threads that write at once at most.
    writers: u64,
    /// Highest hard limit for dirty pages so far, where writers see exact figures.
    most_dirty: Option<u64>,
    /// Usage and limit after the last turn.
    usage: (u64, u64),
    /// What the budget was set to last.
    pub(super) limit: Option<u64>,
    /// Cached pages that were dropped.
    pub(super) dropped: u64,
    /// Folios of several pages that were evicted.
    pub(super) large: u64,
    /// Pages of heaps that were freed lazily, and that reclaim dropped.
    pub(super) lazily_dropped: u64,
    /// Pages of files that became holes, though not by a new size.
    pub(super) holes: u64,
    /// Ends of pages that were zeroed, and stores to parts of pages.
    pub(super) tails: u64,
    pub(super) parts: u64,
    /// Charges that failed although pages could have been evicted, by a policy that is known for
    /// it.
    pub(super) premature_oom: u64,
    events: Events,
    sequences: Option<Sequences>,
}

impl Checker {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            contents: Contents::default(),
            promises: Promises::default(),
            bug: plan.bug,
            every: plan.check,
            must_find_memory: must_find_memory(plan.policy),
            turns: 0,
            progress: Progress::default(),
            checks: 0,
            writers: plan.threads.len() as u64,
            most_dirty: plan.exact.then_some(0),
            usage: (0, u64::MAX),
            limit: None,
            dropped: 0,
            lazily_dropped: 0,
            large: 0,
            holes: 0,
            tails: 0,
            parts: 0,
            premature_oom: 0,
            events: Events::default(),
            sequences: None,
        }
    }

    /// The power goes; the next machine starts with what is left of these files.
    ///
    /// # Errors
    /// What is left though it must not be.
    pub(super) fn power_cut(&mut self, files: &[(ObjectId, u64)], seed: u64) -> Result<(), String> {
        self.contents.cut(files, seed)?;
        self.promises = Promises::default();
        self.progress = Progress::since(self.turns);
        self.most_dirty = self.most_dirty.map(|_| 0);
        self.usage = (0, u64::MAX);
        self.limit = None;
        self.events = Events::default();
        self.sequences = None;
        Ok(())
    }

    /// What is cheap enough for every turn.
    fn glance(&mut self, world: &mut World) {
        let engine = &world.pool.engine;
        let (usage, max) = (engine.usage(MemcgId::ROOT), engine.max(MemcgId::ROOT));
        if let Some(limit) = self.limit.filter(|&limit| limit != max) {
            world.violated("budget", format!("it is {max} pages and was set to {limit}"));
        }
        // Above the limit nothing is charged, so usage can only fall. What came in before the limit
        // was lowered in this very turn was below the old one.
        let (before, limit_before) = std::mem::replace(&mut self.usage, (usage, max));
        if usage > max && usage > before && max >= limit_before {
            world.violated(
                "limit",
                format!("usage rose from {before} to {usage} pages, above {max}"),
            );
        }
        let counts = world.counts;
        if counts.throttled_ns > counts.throttled * NAP_NS {
            let longest = counts.throttled_ns / counts.throttled.max(1);
            world.violated("naps", format!("reclaimers slept for {longest} ns on average"));
        }
        if counts.dirty_throttled_ns > counts.dirty_pauses * checks::PAUSE_NS {
            let longest = counts.dirty_throttled_ns / counts.dirty_pauses.max(1);
            world.violated("pauses", format!("writers were held back for {longest} ns on average"));
        }
        self.dirty_limit(world);
        if let Err(what) = self.progress.turn(self.turns, counts.accesses, requests(world)) {
            let clients = world.clients;
            world.violated("liveness", format!("{clients} clients got at no page in {what}"));
        }
    }

    /// Writers that see exact figures stop at the hard limit. Together they look after a sixteenth
    /// of it at the latest, and then each after eight pages; only that much more may be dirty. For
    /// the tasks that filled a limit before it fell the old one counts: the highest so far. (With
    /// published figures there is no such bound: between two publications no task knows how much is
    /// dirty.)
    fn dirty_limit(&mut self, world: &mut World) {
        const LOOK_OFTEN: u64 = 8;
        let Some(most) = &mut self.most_dirty else { return };
        let engine = &world.pool.engine;
        *most = engine.dirty_thresholds(MemcgId::ROOT).hard.max(*most);
        let slack = (*most / 16).max(1) + (LOOK_OFTEN + 1) * self.writers;
        let (limit, unclean) = (*most, engine.dirty_state(MemcgId::ROOT).unclean());
        if unclean > limit + slack {
            world.violated(
                "dirty limit",
                format!(
                    "{unclean} pages are dirty or being written, above {limit} and a slack of \
                    {slack}"
                ),
            );
        }
    }

    /// Everything.
    pub(super) fn check(&mut self, world: &mut World) {
        self.checks += 1;
        for (name, check) in checks::ALL {
            if let Err(what) = check(world) {
                world.violated(name, what);
                return;
            }
        }
        let events = world.pool.engine.stat(MemcgId::ROOT).events;
        for ((name, now), (_, before)) in events.iter().zip(self.events.iter()) {
            if now < before {
                world.violated("counters", format!("{name} fell from {before} to {now}"));
            }
        }
        self.events = events;
        let now = world.pool.engine.sequences(MemcgId::ROOT);
        if let Some(before) = self.sequences.replace(now)
            && (now.max_seq < before.max_seq || (0..2).any(|t| now.min_seq[t] < before.min_seq[t]))
        {
            world.violated("generations", format!("{before:?} became {now:?}"));
        }
    }
}

/// The checker as the machine has it; the run's threads use it too.
#[derive(Clone, Debug)]
pub(super) struct Shared(pub(super) Rc<RefCell<Checker>>);

impl Watch for Shared {
    fn turn(&mut self, world: &mut World) {
        let mut this = self.0.borrow_mut();
        this.turns += 1;
        if let Some(bug) = this.bug {
            bug.turn(world, this.turns, this.usage.1);
        }
        this.glance(world);
        if this.turns.is_multiple_of(this.every) {
            this.check(world);
        }
    }

    fn page(
        &mut self,
        world: &mut World,
        event: PageEvent,
        object: ObjectId,
        page: u64,
        frame: FolioId,
    ) {
        let mut this = self.0.borrow_mut();
        if event == PageEvent::WriteFailed {
            this.promises.failed(object);
        }
        if this.bug == Some(Bug::PartAlone) && event == PageEvent::Patched {
            this.contents.garble(frame);
        }
        this.parts += u64::from(event == PageEvent::Patched);
        let reached = matches!(event, PageEvent::Loaded | PageEvent::Stored | PageEvent::Patched);
        let end = world.files.iter().find(|file| file.object == object).map(|file| file.pages);
        if reached && end.is_some_and(|end| page >= end) {
            world.violated("ends", format!("page {page} of {object:?} is past its end: {event:?}"));
        }
        // What a bug leaves undone has not happened.
        let undone = this.bug == Some(Bug::TailKept) && event == PageEvent::TailZeroed;
        if !undone && let Err(what) = this.contents.on(event, object, page, frame, world.sched.now)
        {
            world.violated("contents", what);
        }
        if let Some(bug) = this.bug {
            bug.page(world, event, object, page, frame);
        }
    }

    fn flush(&mut self, world: &mut World, event: FlushEvent, number: u64) {
        let mut this = self.0.borrow_mut();
        if let FlushEvent::Failed(file) = event {
            this.promises.failed(world.file(file).object);
        }
        this.contents.flush(event, number);
    }

    fn victims(&mut self, world: &mut World, victims: &[Victim]) {
        for victim in victims {
            let flags = world
                .pool
                .engine
                .folio(victim.folio)
                .map_or(Flags::empty(), lowtide_core::Folio::flags);
            let (object, page) = (ObjectId(victim.owner.space.0), victim.owner.page);
            let mut pages = world.pool.extent(victim.folio).0;
            let wrong = if flags
                .intersects(Flags::DIRTY | Flags::WRITEBACK | Flags::MLOCKED | Flags::LRU)
            {
                "has the wrong flags"
            } else if world.is_locked(victim.folio) {
                "is still being read"
            } else if pages.any(|page| checks::is_young(world, object, page)) {
                "was just used"
            } else {
                continue;
            };
            world.violated(
                "victims",
                format!("page {page} of {object:?} is to go and {wrong}: {flags:?}"),
            );
        }
    }

    fn freed(&mut self, world: &mut World, freed: &[Freed]) {
        let mut this = self.0.borrow_mut();
        for gone in freed {
            let object = ObjectId(gone.owner.space.0);
            this.large += u64::from(gone.order > 0);
            for (offset, page) in (0..1 << gone.order).zip(gone.owner.page..) {
                let frame = FolioId(gone.folio.0 + offset);
                let result = if gone.shadow.is_some() {
                    this.contents.freed(object, page, frame)
                } else {
                    this.lazily_dropped += 1;
                    this.contents.lazily_dropped(object, page, frame)
                };
                if let Err(what) = result {
                    world.violated("evictions", what);
                }
            }
        }
        if let Some(bug) = this.bug {
            bug.freed(world, freed);
        }
    }

    fn dropped(&mut self, world: &mut World, object: ObjectId, page: u64, frame: FolioId) {
        let mut this = self.0.borrow_mut();
        this.dropped += 1;
        if let Err(what) = this.contents.freed(object, page, frame) {
            world.violated("discards", what);
        }
        if let Some(bug) = this.bug {
            bug.dropped(world, object, page);
        }
    }

    fn given_up(&mut self, world: &mut World, object: ObjectId, page: u64) {
        let mut this = self.0.borrow_mut();
        let file = world.files.iter().find(|file| file.object == object);
        this.holes += u64::from(file.is_some_and(|file| page < file.pages));
        let before = this.contents.truth(object, page).device;
        this.contents.given_up(object, page, file.is_some());
        if let Some(file) = file
            && this.bug == Some(Bug::HoleKept)
            && page < file.pages
        {
            this.contents.keep_on_device(object, page, before);
        }
    }

    fn freed_lazily(&mut self, object: ObjectId, page: u64) {
        self.0.borrow_mut().contents.freed_lazily(object, page);
    }

    fn resized(&mut self, world: &mut World, object: ObjectId, pages: u64, tail: Option<u64>) {
        let mut this = self.0.borrow_mut();
        if let Some(page) = tail {
            this.tails += 1;
            this.contents.tail_to_be_zeroed(object, page);
        }
        if let Some(bug) = this.bug {
            bug.resized(world, object, pages);
        }
    }

    fn out_of_memory(&mut self, world: &mut World, since: u64) {
        let mut this = self.0.borrow_mut();
        let engine = &world.pool.engine;
        let (usage, max) = (engine.usage(MemcgId::ROOT), engine.max(MemcgId::ROOT));
        if usage < max {
            world.violated("out of memory", format!("{usage} pages are used, and {max} may be"));
        }
        // What was in use a moment ago may have been in use whenever the reclaimer came along.
        let idle = |folio: &FolioId| {
            let frames = folio.0..folio.0 + (1 << world.pool.extent(*folio).1);
            frames.map(FolioId).all(|frame| this.contents.last_event(frame) < since)
        };
        let evictable = checks::evictable(world).filter(idle).count();
        if evictable == 0 {
            return;
        }
        if !this.must_find_memory {
            this.premature_oom += 1;
            return;
        }
        let stat = world.pool.engine.stat(MemcgId::ROOT);
        world.violated(
            "out of memory",
            format!(
                "{evictable} of {} pages could be evicted: {} dirty, {} being written, {} \
                 anonymous",
                stat.current, stat.file_dirty, stat.file_writeback, stat.anon
            ),
        );
    }
}
