//! Limits that set themselves: the thread that samples tenants, asks their controllers, and carries
//! out what these decide (`lowtide-core`, `auto/`).
//!
//! Four times a second, for each tenant with such a limit:
//!
//! ```text
//!   sample   usage, what was waited for pages that the limit had evicted, cold reads
//!   decide   AutoLimit::tick
//!   apply    the tenant's `high`; what is above it is evicted, in pieces
//!   trim     memory of frames that no page needs goes back to the system
//! ```
//!
//! **`high`, not `max`.** A charge at `max` may fail, when guards pin what is there; one above
//! `high` never does, so a controller that errs costs time and no operation. `max` stays what it
//! is: the bound that holds at every instant. The root has a `high` for this alone. A thread pays
//! for being above it with reclaim before its next miss, as for any `high`, and does not sleep for
//! stall that it causes: the controller answers that with memory.
//!
//! **Unseen waits.** Where the kernel brings pages in (`pagecache` mode), it is known afterwards
//! that a page came back, and not how long a thread waited. It counts as `UNSEEN_NS` (`auto.rs`).
//!
//! **Idle** is a tenant into which nothing comes, while the process uses next to no processor, or
//! while none of its pages is accessed that is in the live sample (`looks.rs`).

use super::auto::bounds_of;
use super::reclaim::{PIECE, piece};
use super::service::Service;
use super::{Pool, State, StateGuard};
use crate::events;
use crate::tenant::TenantError;
use crate::thread_locals;
use lowtide_core::auto::{AutoBounds, AutoCause, AutoStep, Sample};
use lowtide_core::{MemcgId, Reason};
use lowtide_sys::running;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two samples.
const TICK: Duration = Duration::from_millis(250);
/// A process that uses a smaller part of one processor than this does nothing.
const IDLE_PART: u32 = 50;
/// The time in which pages are accessed that are in use now, and in which an idle tenant has none.
const ACTIVE_NS: u64 = 10_000_000_000;
/// Reclaims without a result after which what is left cannot be evicted now. The first ones age.
const FRUITLESS: u32 = 4;
/// How long a tick evicts at the most.
const EVICTING: Duration = Duration::from_millis(100);

/// What a subscriber is to know when the lock is free.
struct Move {
    tenant: String,
    before: u64,
    usage: u64,
    step: AutoStep,
}

/// The thread of a pager that sets limits: started for the first one.
#[derive(Debug)]
pub(crate) struct Setter {
    stop: Mutex<bool>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Service for Setter {
    fn close(&self) -> Vec<JoinHandle<()>> {
        *lowtide_pin::sync::lock(&self.stop) = true;
        self.wake.notify_all();
        lowtide_pin::sync::lock(&self.thread).take().into_iter().collect()
    }
}

impl Setter {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`TenantError::NoThread`].
    pub(crate) fn start(pool: &Arc<Pool>) -> Result<Arc<Self>, TenantError> {
        let (stop, wake, thread) = Default::default();
        let setter = Arc::new(Self { stop, wake, thread });
        let (this, of_thread) = (Arc::clone(&setter), Arc::clone(pool));
        let started = thread_locals::spawn("lowtide-auto", move || this.run(&of_thread));
        let started = started.map_err(|error| TenantError::NoThread { kind: error.kind() })?;
        *lowtide_pin::sync::lock(&setter.thread) = Some(started);
        Ok(setter)
    }

    fn run(&self, pool: &Pool) {
        let (mut looked, mut used) = (Instant::now(), running::of_process());
        loop {
            let stop = lowtide_pin::sync::lock(&self.stop);
            let waited = self.wake.wait_timeout_while(stop, TICK, |stop| !*stop);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 || pool.is_poisoned() {
                return;
            }
            let (passed, now) = (looked.elapsed(), running::of_process());
            let is_idle = now.saturating_sub(used) * IDLE_PART < passed;
            set_limits(pool, is_idle);
            // What this took is not the program's.
            (looked, used) = (Instant::now(), running::of_process());
        }
    }
}

/// One tick of all limits that set themselves.
fn set_limits(pool: &Pool, is_idle: bool) {
    let mut state = pool.lock();
    let all: Vec<MemcgId> = state.autos.keys().copied().collect();
    if all.is_empty() {
        return;
    }
    let mut moves = Vec::new();
    for id in all {
        if pool.is_poisoned() {
            return;
        }
        if state.autos.contains_key(&id) && state.engine.alive(id) {
            state = set_limit(pool, state, id, is_idle, &mut moves);
        }
    }
    drop(pool.trim(state));
    for Move { tenant, before, usage, step } in moves {
        events::moved(&tenant, before, usage, &step, pool.page_shift);
    }
}

fn set_limit<'a>(
    pool: &'a Pool,
    mut state: StateGuard<'a>,
    id: MemcgId,
    is_idle: bool,
    moves: &mut Vec<Move>,
) -> StateGuard<'a> {
    let now = pool.now();
    let step = {
        let State { engine, autos, names, reuse, .. } = &mut *state;
        let Some(auto) = autos.get_mut(&id) else { return state };
        let events = engine.stat(id).events;
        let refaults = events.refaults();
        let reads = events.pgmajfault;
        let came_back = refaults - std::mem::replace(&mut auto.refaults, refaults);
        let came = reads.saturating_sub(std::mem::replace(&mut auto.reads, reads));
        let mut waited = engine.take_waiting(id);
        waited.note_cold(came.saturating_sub(waited.refaults()));
        let before = auto.limit();
        let bounds = bounds_of(&auto.limits, pool.page_shift);
        let most = bounds.most.min(engine.max(id));
        auto.controller.set_bounds(AutoBounds { most, ..bounds });
        let usage = engine.usage(id);
        let active = reuse.active(id, now.saturating_sub(ACTIVE_NS));
        auto.figures.refaults += came_back;
        auto.figures.waited_ns += waited.total_ns();
        let step = auto.controller.tick(&Sample {
            now_ns: now,
            usage,
            waited: &waited,
            active,
            is_idle: came == 0 && (is_idle || active == Some(0)),
            is_stuck: std::mem::take(&mut auto.stuck),
        });
        auto.figures.note(now, usage, before, &step);
        if step.limit != before {
            engine.set_high(id, step.limit);
            if events::moves_wanted() {
                moves.push(Move { tenant: names.path(engine, id), before, usage, step });
            }
        }
        step
    };
    carry_out(pool, state, id, &step)
}

/// Evicts what is above the limit, and what is to go back.
fn carry_out<'a>(
    pool: &'a Pool,
    mut state: StateGuard<'a>,
    id: MemcgId,
    step: &AutoStep,
) -> StateGuard<'a> {
    let began = Instant::now();
    let (mut fruitless, mut given) = (0, 0);
    while state.engine.alive(id) && began.elapsed() < EVICTING {
        let over = state.engine.usage(id).saturating_sub(step.limit);
        let (goal, reason) = match step.cause {
            AutoCause::Idle => (step.give_back.saturating_sub(given), Reason::Proactive),
            _ => (over, Reason::Direct),
        };
        if goal == 0 {
            break;
        }
        let reclaimed;
        (state, reclaimed) = piece(pool, state, id, goal.min(PIECE), reason);
        given += reclaimed;
        fruitless = if reclaimed == 0 { fruitless + 1 } else { 0 };
        if fruitless > FRUITLESS {
            let stuck = over > 0 && step.cause != AutoCause::Idle;
            if let Some(auto) = state.autos.get_mut(&id) {
                auto.stuck = stuck;
            }
            break;
        }
    }
    state
}
