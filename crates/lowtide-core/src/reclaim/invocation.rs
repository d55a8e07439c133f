//! One invocation of reclaim, as a state machine that the driver steps.
//!
//! ```text
//!   Pass ─► Group ─► Slice ─► (Walk ─► WalkEnd) ─► Settle ─► Unmapped ─► PutBack ─► LruvecEnd
//!    ▲       │ ▲      ▲             after aging │   ▲  the driver drops    │ │           │
//!    │       │ │      ├─────────────────────────┘   │  translations        │ │           │
//!    │       │ │      │                             └──── clean retry ─────┘ │           │
//!    │       │ │      └────────────────────── next batch ────────────────────┘           │
//!    │       │ └──────────────────────────── next group ─────────────────────────────────┘
//!    │       ├─► Done
//!    └───────┘ next priority
//! ```
//!
//! A slice that finds nothing, or whose budget is used up, goes to LruvecEnd at once.
//!
//! The machine holds no reference to the engine: each [`Reclaim::step`] borrows it for as long as
//! the lock is held, so other threads run between steps. An invocation starts at priority 12, where
//! a pass may scan 1/4096 of the lists, and ends when its goal is met or priority 0 has been tried.
//! If nothing at all was reclaimed it starts over, once for each thing that it had spared. Source:
//! `docs/kernel/reclaim.md` §3.6.

use super::batch::{Batch, Freed, Victim};
use super::classical_loop::ClassicalLoop;
use super::mglru_loop::MglruLoop;
use super::throttle::{PassCounts, ThrottleReason};
use super::tide_loop::TideLoop;
use crate::counters::Events;
use crate::engine::Engine;
use crate::high::Spared;
use crate::high::stall_debt::EvictedFor;
use crate::limits::DEF_PRIORITY;
use crate::lruvec::{AgeEnd, AgeJob, Facts, Preparation};
use crate::memcg::{Cursor, Protection, Requeue, Round};
use crate::policy::Lists;
use crate::units::{MemcgId, MemcgSlot, Task};
use std::collections::VecDeque;

/// Why memory is reclaimed, for the counters and for what the thread may wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A task that found no free page.
    Direct,
    /// The background reclaimer.
    Kswapd,
    /// Memory was requested in advance.
    Proactive,
}

/// What the driver has to do before the next step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Feed young bits to [`Reclaim::age_job`] until its [`AgeJob::next_space`] is `None`.
    Walk,
    /// For each of [`Reclaim::victims`]: drop its translations unless it is in use, begin to write
    /// it if it goes to swap and is dirty, and set the outcome. Those that were unmapped may not be
    /// mapped again until the next step.
    Unmap,
    /// [`Reclaim::freed`] are gone: store their shadows and reuse their frames. They are already
    /// uncharged, and anonymous contents are in their slots.
    Freed,
    /// Dirty pages are in the way: wake the flushers.
    WakeFlushers,
    /// Sleep for at most this many nanoseconds.
    Throttle(ThrottleReason, u64),
    /// Release the lock for a moment.
    Yield,
    /// The invocation is over: [`Reclaim::reclaimed`] has the result.
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum At {
    Pass,
    Group,
    Slice,
    WalkEnd,
    Settle,
    Unmapped,
    PutBack,
    LruvecEnd,
    Done,
}

/// The order in which groups are visited.
#[derive(Clone, Debug)]
enum Walk {
    /// All groups below the target, in turn.
    Subtree(Cursor),
    /// A whole machine, by the memcg LRU.
    Machine(Round),
}

/// One invocation of reclaim. See the module documentation.
///
/// Once begun it must be stepped to [`Step::Done`]: an invocation that is dropped half-way takes
/// the folios it has isolated, or the aging it was to complete, with it. It holds no isolated
/// folios when it returns [`Step::Walk`], [`Step::Throttle`], [`Step::Yield`] or [`Step::Done`].
#[derive(Debug)]
pub struct Reclaim {
    /// The group that is to shrink, with everything below it.
    pub(super) target: MemcgId,
    /// The group whose lists are being looked at.
    pub(super) group: MemcgSlot,
    /// Its name: it may be removed between two steps.
    group_id: MemcgId,
    /// What protects it from this invocation.
    pub(super) protection: Protection,
    cursor: Walk,
    /// The driver's time at the last step.
    now: u64,
    pub(super) goal: u64,
    pub(super) reason: Reason,
    /// The kind of limit for which folios are evicted.
    pub(super) cause: EvictedFor,
    pub(super) task: Task,
    /// The task may wait for a device.
    pub(super) may_io: bool,
    pub(super) priority: u32,
    passes: u32,
    pub(super) isolations: u32,
    pub(super) sorted: u64,
    pub(super) reclaimed: u64,
    /// This thread owns a walk context: look-around promotes as the aging walk does.
    pub(super) walking: bool,
    full_walk: bool,
    /// A group was spared, in part or as a whole, for its `low`.
    pub(super) low_skipped: bool,
    /// Nothing else is left: `low` does not count any more.
    pub(super) override_low: bool,
    pub(super) force_deactivate: bool,
    pub(super) skipped_deactivate: bool,
    pub(super) at: At,
    pub(super) pending: VecDeque<Step>,
    pub(super) job: Option<AgeJob>,
    pub(super) batch: Batch,
    pub(super) pass: PassCounts,
    pub(super) mglru: MglruLoop,
    pub(super) classical: ClassicalLoop,
    pub(super) tide: TideLoop,
    /// What the pass over the classical lists has decided beforehand.
    pub(super) prepared: Option<Preparation>,
    /// The driver's lock is one that others wait for while classical lists are looked at.
    pub(super) shares_lock: bool,
    /// Pages of active lists looked at since the lock was last offered.
    pub(super) held_for: u64,
    /// The driver wants it to end.
    gives_up: bool,
    /// Groups whose anonymous memory swap has refused.
    refused: Vec<MemcgId>,
}

impl Reclaim {
    /// An invocation that is to free `goal` pages of a group.
    #[must_use]
    pub fn new(target: MemcgId, goal: u64, reason: Reason, task: Task) -> Self {
        Self {
            target,
            group: target.slot,
            group_id: target,
            protection: Protection::default(),
            cursor: Walk::Subtree(Cursor::default()),
            now: 0,
            goal,
            reason,
            cause: match reason {
                Reason::Proactive => EvictedFor::Proactive,
                Reason::Direct if target != MemcgId::ROOT => EvictedFor::Max,
                Reason::Direct | Reason::Kswapd => EvictedFor::Global,
            },
            task,
            may_io: true,
            priority: DEF_PRIORITY,
            passes: 0,
            isolations: 0,
            sorted: 0,
            reclaimed: 0,
            walking: false,
            full_walk: false,
            low_skipped: false,
            override_low: false,
            force_deactivate: false,
            skipped_deactivate: false,
            at: At::Pass,
            pending: VecDeque::new(),
            job: None,
            batch: Batch::default(),
            pass: PassCounts::default(),
            mglru: MglruLoop::default(),
            classical: ClassicalLoop::default(),
            tide: TideLoop::default(),
            prepared: None,
            shares_lock: false,
            held_for: 0,
            gives_up: false,
            refused: Vec::new(),
        }
    }

    /// Also returns [`Step::Yield`] between the batches of the classical lists, as it does between
    /// those of the multi-gen LRU. For drivers with one lock for everything, also for work that
    /// the kernel does without a lock. Counters are the same.
    #[must_use]
    pub const fn sharing_the_lock(mut self) -> Self {
        self.shares_lock = true;
        self
    }

    /// The same invocation for a task that may not begin any I/O, because it allocates on behalf of
    /// a device (the kernel's `GFP_NOIO`). Anonymous memory is freed only if it is unmapped, clean
    /// and in the swap cache; so no victim has to be written.
    #[must_use]
    pub const fn without_io(mut self) -> Self {
        self.may_io = false;
        self
    }

    /// Ends the invocation at the next step that holds no isolated folio: the driver has no more
    /// time for it.
    pub const fn give_up(&mut self) {
        self.gives_up = true;
    }

    /// The group that is being looked at.
    pub const fn group(&self) -> MemcgId {
        self.group_id
    }

    /// Swap has refused anonymous memory of the group that is being looked at: until the invocation
    /// ends only its file memory is. In a kernel whose swap device is full, passes look at it again
    /// and again; a driver that compresses each page before it is refused cannot afford that.
    pub fn swap_refused(&mut self, engine: &mut Engine) {
        if engine.alive(self.group_id) && !self.refused.contains(&self.group_id) {
            engine.memcgs[self.group_id].lruvec.swap_refused = true;
            self.refused.push(self.group_id);
        }
    }

    fn forget_refusals(&mut self, engine: &mut Engine) {
        for group in self.refused.drain(..) {
            if engine.alive(group) {
                engine.memcgs[group].lruvec.swap_refused = false;
            }
        }
    }

    /// The same invocation on behalf of a group that is above its `high`.
    #[must_use]
    pub(crate) const fn for_high(mut self) -> Self {
        self.cause = EvictedFor::High;
        self
    }

    /// The group that is to shrink.
    #[must_use]
    pub const fn target(&self) -> MemcgId {
        self.target
    }

    /// Pages reclaimed so far.
    #[must_use]
    pub const fn reclaimed(&self) -> u64 {
        self.reclaimed
    }

    /// Passes over the group begun so far. One step may contain many, if they find nothing; the
    /// driver accounts for the cost of a pass besides the folios it looks at.
    #[must_use]
    pub const fn passes(&self) -> u32 {
        self.passes
    }

    /// Attempts to isolate folios so far, successful or not. A pass that gives up before does not
    /// need the lists' lock: that is how a reclaimer can try again and again while another waits
    /// for that lock.
    #[must_use]
    pub const fn isolations(&self) -> u32 {
        self.isolations
    }

    /// Pages looked at so far that were moved within the lists without being isolated (`pgrefill`):
    /// no `pgscan`, but work all the same.
    #[must_use]
    pub const fn sorted(&self) -> u64 {
        self.sorted
    }

    /// The aging job to feed after [`Step::Walk`].
    ///
    /// # Panics
    /// When the last step was another one.
    pub fn age_job(&mut self) -> &mut AgeJob {
        self.job.as_mut().expect("there is an aging job after Step::Walk only")
    }

    /// The folios to unmap after [`Step::Unmap`].
    pub fn victims(&mut self) -> &mut [Victim] {
        &mut self.batch.victims
    }

    /// The folios freed, after [`Step::Freed`].
    #[must_use]
    pub fn freed(&self) -> &[Freed] {
        &self.batch.freed
    }

    /// Continues until the driver has something to do. `now` is the driver's time in nanoseconds.
    ///
    /// After [`Step::Done`] every further step is `Done`. Cost: at most one batch (64 folios
    /// isolated, 4096 looked at), or 4096 folios moved by an aging.
    ///
    /// # Panics
    /// When a victim was reported as [`Unmapped::Done`](super::Unmapped::Done) although it had
    /// become dirty, written or unevictable before its translations were dropped, or was never
    /// written to swap: the driver's protocol is broken, and going on would lose data.
    pub fn step<F: Facts>(&mut self, engine: &mut Engine, facts: &mut F, now: u64) -> Step {
        self.now = now;
        loop {
            if let Some(step) = self.pending.pop_front() {
                return step;
            }
            if !engine.alive(self.group_id) || !engine.alive(self.target) {
                self.group_is_gone(engine);
            }
            if self.gives_up && matches!(self.at, At::Pass | At::Group | At::Slice | At::LruvecEnd)
            {
                debug_assert!(
                    !self.batch.isolated() && self.job.is_none(),
                    "nothing is isolated between slices"
                );
                self.clear_congestion(engine);
                self.at = At::Done;
            }
            match self.at {
                At::Pass => self.begin_pass(engine),
                At::Group => self.next_group(engine),
                At::Slice => match engine.policy.lists() {
                    Lists::MultiGen => {
                        if self.mglru_slice(engine) {
                            self.at = At::WalkEnd;
                            return Step::Walk;
                        }
                    }
                    Lists::Classical => self.classical_slice(engine, facts),
                    Lists::Tide => self.tide_slice(engine, facts),
                },
                At::WalkEnd => match self.job.as_ref().map(|job| job.end(engine, now)) {
                    Some(AgeEnd::Again) => return Step::Yield,
                    end => {
                        self.job = None;
                        self.aged(engine, end == Some(AgeEnd::Done(true)));
                    }
                },
                At::Settle => {
                    self.at = At::Unmapped;
                    if self.judge(engine, facts) {
                        return Step::Unmap;
                    }
                }
                At::Unmapped => {
                    self.at = At::PutBack;
                    if self.conclude(engine, facts) {
                        return Step::Freed;
                    }
                }
                At::PutBack => match engine.policy.lists() {
                    Lists::MultiGen => self.put_back(engine),
                    Lists::Classical => self.classical_put_back(engine),
                    Lists::Tide => self.tide_put_back(engine),
                },
                At::LruvecEnd => self.end_group(engine),
                At::Done => {
                    self.forget_refusals(engine);
                    engine.spare_batch = std::mem::take(&mut self.batch);
                    return Step::Done;
                }
            }
        }
    }

    fn begin_pass(&mut self, engine: &mut Engine) {
        self.pass = PassCounts::default();
        if self.passes == 0 {
            self.batch = std::mem::take(&mut engine.spare_batch);
        }
        self.passes += 1;
        engine.drain(self.task.cpu);
        match engine.policy.lists() {
            Lists::MultiGen => {}
            Lists::Classical => self.prepare_classical(engine),
            Lists::Tide => self.prepare_tide(engine),
        }
        let full = self.full_walk || self.reason == Reason::Kswapd;
        self.cursor = match &mut engine.memcg_lru {
            Some(lru)
                if self.target == MemcgId::ROOT && engine.policy.lists() == Lists::MultiGen =>
            {
                Walk::Machine(Round::new(lru))
            }
            _ => Walk::Subtree(Cursor::new(&engine.memcgs, self.target, full)),
        };
        self.at = At::Group;
    }

    /// Goes to the next group of the subtree that is not protected, or ends the pass.
    fn next_group(&mut self, engine: &mut Engine) {
        let partial = !self.full_walk && self.reason != Reason::Kswapd;
        let enough = self.abort();
        let next = match &mut self.cursor {
            Walk::Subtree(_) if partial && self.reclaimed >= self.goal => None,
            Walk::Subtree(cursor) => cursor.next(&mut engine.memcgs, self.target),
            Walk::Machine(_) if enough => None,
            Walk::Machine(round) => engine.memcg_lru.as_ref().and_then(|lru| round.next(lru)),
        };
        let Some(id) = next else {
            self.end_pass(engine);
            return;
        };
        (self.group, self.group_id) = (id.slot, id);
        self.protection = engine.memcgs.protect(self.target, id.slot);
        let spared = if id == self.target {
            Spared::default()
        } else {
            engine.ask_protection(id.slot, &self.protection, self.now)
        };
        if spared.min {
            self.requeue(engine, Requeue::Young);
            return;
        }
        if spared.low {
            let tail = engine.memcg_lru.as_ref().is_some_and(|lru| lru.at_tail(id.slot));
            if self.whole_machine() && !tail {
                self.requeue(engine, Requeue::Tail);
                return;
            }
            if !self.whole_machine() && !self.override_low {
                self.low_skipped = true;
                return;
            }
            engine.memcgs.raise(id.slot, |events| &mut events.low);
        }
        self.walking = self.reason != Reason::Direct;
        match engine.policy.lists() {
            Lists::MultiGen => self.begin_mglru(engine),
            Lists::Classical => self.begin_classical(engine),
            Lists::Tide => self.begin_tide(engine),
        }
    }

    /// One group's lists have been looked at enough.
    fn end_group(&mut self, engine: &mut Engine) {
        if self.whole_machine() {
            let sizable = engine.locked(self.group).evictable_size() >> self.priority > 0;
            let tail = engine.memcg_lru.as_ref().is_some_and(|lru| lru.at_tail(self.group));
            let to = match (self.mglru.rotate, sizable, tail) {
                (true, ..) | (false, false, true) => Requeue::Young,
                (false, true, _) => Requeue::Stay,
                (false, false, false) => Requeue::Tail,
            };
            self.requeue(engine, to);
        }
        self.at = At::Group;
    }

    /// Whether a whole machine is reclaimed, in the order of the memcg LRU.
    pub(super) const fn whole_machine(&self) -> bool {
        matches!(self.cursor, Walk::Machine(_))
    }

    /// Decides when the current group is visited again.
    fn requeue(&self, engine: &mut Engine, to: Requeue) {
        if let (Walk::Machine(_), Some(lru)) = (&self.cursor, &mut engine.memcg_lru) {
            lru.visited(self.group_id, to);
        }
    }

    /// The group, or the target from below which it was moved away, was removed since the last
    /// step. None of its folios are isolated, so the next group follows; if it was the target, the
    /// invocation ends.
    fn group_is_gone(&mut self, engine: &Engine) {
        debug_assert!(
            !self.batch.isolated(),
            "a group is not removed while folios of it are isolated"
        );
        self.job = None;
        self.group = self.target.slot;
        self.group_id = self.target;
        self.at = if engine.alive(self.target) { At::Group } else { At::Done };
        if self.at == At::Done {
            self.group_id = MemcgId::ROOT;
        }
    }

    /// Pages of a size that this pass may scan of the group, before they are shifted by the
    /// priority.
    pub(super) fn unprotected(&mut self, size: u64) -> u64 {
        let (scan, by_low) = self.protection.scale(size, self.override_low);
        self.low_skipped |= by_low;
        scan
    }

    fn end_pass(&mut self, engine: &mut Engine) {
        if !self.whole_machine() {
            self.throttle_after_pass(engine);
        }
        let lowest = u32::from(self.reason == Reason::Kswapd);
        self.at = At::Pass;
        if self.reclaimed >= self.goal || self.priority == lowest {
            self.end_invocation(engine);
        } else {
            self.priority -= 1;
        }
    }

    fn end_invocation(&mut self, engine: &mut Engine) {
        if engine.policy.lists() == Lists::Classical {
            engine.locked(self.target).snapshot_activations();
        }
        self.clear_congestion(engine);
        self.priority = DEF_PRIORITY;
        self.at = At::Pass;
        if self.reclaimed > 0 {
            self.at = At::Done;
        } else if !self.full_walk {
            // In the kernel a full walk visits the groups that a partial one left to others. Here,
            // where a budget may be no bigger than a batch, what was left to others is
            // what waits in their batches.
            self.full_walk = true;
            engine.drain_all();
        } else if self.skipped_deactivate && !self.force_deactivate {
            self.force_deactivate = true;
        } else if self.low_skipped && !self.override_low {
            self.force_deactivate = false;
            self.override_low = true;
        } else {
            self.at = At::Done;
        }
    }

    /// Whether the lruvec loop has done enough.
    pub(super) fn abort(&self) -> bool {
        const COMPACT_GAP: u64 = 2;
        self.reclaimed >= self.goal.max(COMPACT_GAP)
    }

    pub(super) fn count_scan(&self, engine: &mut Engine, pages: u64) {
        engine.totals.pgscan += pages;
        let events = &mut engine.memcgs[self.group].events;
        events.pgscan += pages;
        *match self.reason {
            Reason::Direct => &mut events.pgscan_direct,
            Reason::Kswapd => &mut events.pgscan_kswapd,
            Reason::Proactive => &mut events.pgscan_proactive,
        } += pages;
    }

    pub(super) fn count_steal(&self, events: &mut Events, pages: u64) {
        events.pgsteal += pages;
        *match self.reason {
            Reason::Direct => &mut events.pgsteal_direct,
            Reason::Kswapd => &mut events.pgsteal_kswapd,
            Reason::Proactive => &mut events.pgsteal_proactive,
        } += pages;
    }
}
