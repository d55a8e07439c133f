//! The live sample of accesses, from which the pager's miss-ratio curves come
//! ([`lowtide_core::reuse`]).
//!
//! | an access | is learned of by |
//! |---|---|
//! | that misses | the placing of its frame (`allocate.rs`) |
//! | through a descriptor; the first to a page that was read ahead | a bit of the frame |
//! | through a guard or a pointer | the young bit of the translation, at the next look |
//!
//! **A look** visits the pages of the sample, takes their bits, and ends an interval. Young bits
//! are the policy's, so one that a look takes is *kept* in a bit of its frame, where the policy
//! finds it as if it were still in the translation; a kernel does the same for its idle page
//! tracking (`Documentation/admin-guide/mm/idle_page_tracking.rst`). So the sample changes nothing
//! that a policy decides. Pages behind pointers are zapped to see their next touch, as when they
//! age.
//!
//! **Cost.** A look takes 0.1 µs a page of the sample, behind pointers some µs for each eight
//! neighbours, and there are 8192 pages at most, or 2048. The time between two looks is at least
//! [`SELDOM`] times what the last one took, and grows while nothing is accessed. Behind pointers
//! the touches that follow cost the program about as much. On the path of a hit there is nothing; a
//! miss looks up one hash.

use super::{Pool, State, StateGuard};
use crate::pool::reclaim::look;
use crate::space::Space;
use lowtide_core::{FolioId, SpaceId};
use lowtide_pin::translation::State as EntryState;
use lowtide_sys::running;
use std::time::{Duration, Instant};

/// The shortest time between two looks.
const PAUSE_LEAST: Duration = Duration::from_millis(50);
/// The longest, while nothing is accessed.
const PAUSE_MOST: Duration = Duration::from_secs(2);
/// See the module documentation.
const SELDOM: u32 = 100;
/// Pages that are looked at with the lock held, and what one behind a pointer counts as.
const STEP: usize = 256;
const MAPPED: usize = 16;

/// When the sample is looked at.
#[derive(Debug)]
pub(crate) struct Looks {
    due: Instant,
    pause: Duration,
}

impl Looks {
    pub(crate) fn begin() -> Self {
        Self { due: Instant::now() + PAUSE_LEAST, pause: PAUSE_LEAST }
    }

    /// The time until the next look.
    pub(crate) fn left(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Looks, if it is time.
    pub(crate) fn turn<'a>(&mut self, pool: &'a Pool, state: StateGuard<'a>) -> StateGuard<'a> {
        let began = Instant::now();
        if began < self.due {
            return state;
        }
        let ran = running::of_thread();
        let (state, accesses) = sample(pool, state);
        let took = running::of_thread().saturating_sub(ran);
        let pause = if accesses > 0 { PAUSE_LEAST } else { self.pause * 2 };
        self.pause = pause.min(PAUSE_MOST).max(took * SELDOM);
        self.due = Instant::now() + self.pause;
        state
    }
}

/// Looks at all pages of the sample, and ends an interval.
pub(crate) fn look_now<'a>(pool: &'a Pool, state: StateGuard<'a>) -> StateGuard<'a> {
    sample(pool, state).0
}

/// The same. Returns how many pages were accessed.
fn sample<'a>(pool: &'a Pool, mut state: StateGuard<'a>) -> (StateGuard<'a>, usize) {
    let spaces: Vec<SpaceId> = state.reuse.spaces().collect();
    let mut looked = 0;
    for id in spaces {
        let mut from = 0;
        while let Some(space) = state.spaces.get(id.0 as usize).cloned().flatten() {
            let (step, each) =
                if space.mapped.is_some() { (STEP / MAPPED, MAPPED) } else { (STEP, 1) };
            let pages: Vec<u64> = state.reuse.pages(id, from, step).collect();
            let Some(last) = pages.last() else { break };
            from = last + (1 << space.order);
            looked += pages.len() * each;
            let folio = 1 << space.order;
            for run in pages.chunk_by(|a, b| a + folio == *b) {
                let end = (run[run.len() - 1] + folio).min(space.table.pages());
                if space.mapped.is_some() && run[0] < end {
                    look(pool, &space, run[0]..end);
                }
                run.iter().for_each(|&page| look_at(pool, &mut state, &space, page));
            }
            if looked >= STEP {
                looked = 0;
                drop(state);
                state = pool.lock();
                if pool.is_poisoned() {
                    return (state, 0);
                }
            }
        }
    }
    let accesses = state.reuse.noted();
    end_interval(pool, &mut state);
    (state, accesses)
}

fn end_interval(pool: &Pool, state: &mut State) {
    let State { reuse, engine, .. } = state;
    reuse.end_interval(pool.now(), |group| engine.parent(group));
}

/// Notes whether a page, or its folio, was accessed since the last look.
fn look_at(pool: &Pool, state: &mut State, space: &Space, page: u64) {
    let pages = page..(page + (1 << space.order)).min(space.table.pages());
    let resident = |page| match space.table.entry(page).load() {
        EntryState::Resident { frame, young, .. } => Some((frame, young)),
        _ => None,
    };
    if pages.is_empty() {
        return;
    }
    let (marks, mut payer, mut accessed) = (&pool.sample_marks, None, false);
    for page in pages {
        let Some((frame, young)) = resident(page) else { continue };
        accessed |= marks.take_touch(frame);
        if young && space.table.entry(page).clear_young() {
            marks.keep_young(frame);
            accessed = true;
        }
        payer = payer.or_else(|| state.engine.group_of_folio(FolioId(frame)));
    }
    if accessed && let Some(payer) = payer {
        let _ = state.reuse.note((space.id, page), space.kind(), payer, false);
    }
}
