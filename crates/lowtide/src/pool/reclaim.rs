//! Reclaim on real memory: answers the engine's questions and carries out its steps.
//!
//! A batch of victims goes through three moves, all under the pool's lock, so isolation is never
//! visible to others:
//!
//! 1. Each victim's translations are *locked*, unless one of them is young, dirty, busy or locked
//!    already.
//! 2. One `membarrier` for the whole batch, if a page of it may have readers without a fence; then
//!    every hazard slot of every thread is read. A victim that some slot names is in use: its
//!    translations are unlocked again.
//!    A victim that is anonymous is compressed now, while the lock is given back (`swap/out.rs`):
//!    the one case in which folios are isolated and the lock is free.
//! 3. The others are gone: the engine computes what is to be remembered of them, which takes the
//!    place of their translations, and their frames are free. Some are compressed, from copies,
//!    when nothing is isolated any more (`zcache/leaving.rs`).
//!
//! [`hazard`] shows why that is safe. The lock is offered to others between batches, and in
//! an aging walk every few microseconds.

use super::{Pool, State, StateGuard, end_orphans};
use crate::ahead::readahead::{note_evicted, note_touch};
use crate::space::Space;
use crate::swap::{fill_reserves, swap_out};
use crate::zcache::Leaving;
use lowtide_core::limits::{LOOK_AROUND_MAX, SWAP_CLUSTER_MAX, TABLE_ENTRIES};
use lowtide_core::{
    AgeJob, Engine, Facts, Folio, FolioId, FolioState, Freed, MemcgId, Reason, Reclaim, References,
    Shadow, Step, TableKey, Task, Unmapped, Victim, Window,
};
use lowtide_io::{Deadline, FaultSite};
use lowtide_pin::hazard;
use lowtide_pin::translation::{Entry, State as EntryState, Taken};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What the aging walk does per acquisition of the lock, in looks at hints of two nanoseconds each.
const WALK_CHUNK: u64 = 4096;
/// What a visit of a table of translations counts as.
const VISIT: u64 = 256;
/// Batches in a row, all of whose pages are pinned, after which an invocation gives up: it waits
/// for the guards instead.
const PINNED_BATCHES: u32 = 16;

/// Pages that one [`piece`] is to free at most: the lock is held for a few dozen microseconds at a
/// time.
pub(crate) const PIECE: u64 = 256;

/// The translations of all open spaces, as the engine looks at them.
pub(crate) struct Translations<'a> {
    pub(crate) spaces: &'a [Option<Arc<Space>>],
    pub(crate) pool: &'a Pool,
    looked: Looked,
}

/// Batches of an invocation, all of whose pages swap has refused, after which it leaves the
/// anonymous pages of their group alone, if there are pages of files instead.
const REFUSED_BATCHES: u64 = 2;

/// Pages of maps that were looked at together, as runs: by space, and in order. One look at a run
/// costs what one look at a page does.
#[derive(Debug, Default)]
struct Looked(Vec<(u32, Range<u64>)>);

impl Looked {
    fn of(mut pages: Vec<(u32, Range<u64>)>) -> Self {
        pages.sort_unstable_by_key(|(id, run)| (*id, run.start));
        pages.dedup_by(|next, run| {
            let joins = next.0 == run.0 && next.1.start == run.1.end;
            if joins {
                run.1.end = next.1.end;
            }
            joins
        });
        Self(pages)
    }

    fn has(&self, space: u32, page: u64) -> bool {
        let behind = self.0.partition_point(|(id, run)| (*id, run.start) <= (space, page));
        let run = behind.checked_sub(1).map(|at| &self.0[at]);
        run.is_some_and(|(id, run)| *id == space && run.contains(&page))
    }
}

impl<'a> Translations<'a> {
    pub(crate) fn new(spaces: &'a [Option<Arc<Space>>], pool: &'a Pool) -> Self {
        Self { spaces, pool, looked: Looked::default() }
    }

    fn entries(&self, folio: &Folio) -> impl Iterator<Item = &Entry> {
        let owner = folio.owner();
        let space = self.spaces[owner.space.0 as usize].as_deref();
        space.into_iter().flat_map(move |space| space.entries(owner.page, folio.order()))
    }
}

/// The frames of a folio.
fn folio_frames(id: FolioId, folio: &Folio) -> Range<u32> {
    id.0..id.0 + (1 << folio.order())
}

const fn table_key(space: &Space, table: u64) -> TableKey {
    TableKey((space.id.0 as u64) << 40 | table)
}

impl Facts for Translations<'_> {
    fn state(&mut self, _id: FolioId, folio: &Folio) -> FolioState {
        let locked = self.entries(folio).any(|e| !matches!(e.load(), EntryState::Resident { .. }));
        FolioState { locked, mapped: true }
    }

    fn gather<'a>(&mut self, folios: impl Iterator<Item = &'a Folio>) {
        let mut of_maps = Vec::new();
        let mut words = 0;
        for folio in folios {
            let owner = folio.owner();
            let space = self.spaces.get(owner.space.0 as usize).and_then(Option::as_deref);
            let Some(space) = space else { continue };
            if space.mapped.is_some() {
                of_maps.push((owner.space.0, owner.page..owner.page + folio.pages()));
            }
            // Each entry is on a line of its own, read soon, one after the other: here the reads
            // do not wait for each other.
            words += usize::from(matches!(
                space.entries(owner.page, 0).next().map(Entry::load),
                Some(EntryState::Resident { .. })
            ));
        }
        std::hint::black_box(words);
        self.looked = Looked::of(of_maps);
        for (id, run) in &self.looked.0 {
            if let Some(space) = self.spaces[*id as usize].as_deref() {
                look(self.pool, space, run.clone());
            }
        }
    }

    fn references(&mut self, id: FolioId, folio: &Folio) -> References {
        let owner = folio.owner();
        if let Some(space) = self.spaces[owner.space.0 as usize].as_deref()
            && !self.looked.has(owner.space.0, owner.page)
        {
            look(self.pool, space, owner.page..owner.page + folio.pages());
        }
        let marks = &self.pool.sample_marks;
        let frames = folio_frames(id, folio);
        let is_young = |(entry, frame): &(&Entry, u32)| {
            let kept = marks.take_young(*frame);
            entry.clear_young() || kept
        };
        let young = self.entries(folio).zip(frames).filter(is_young).count();
        // One mapping: several young entries of a large folio are one reference to it.
        References { young: u32::from(young > 0), exec: false }
    }

    fn slot_given_up(&mut self, _id: FolioId, folio: &Folio) {
        let owner = folio.owner();
        if let Some(space) = self.spaces[owner.space.0 as usize].as_deref() {
            self.pool.void.note(space, owner.page);
        }
    }

    fn look_around(
        &mut self,
        _id: FolioId,
        folio: &Folio,
        visit: &mut dyn FnMut(FolioId) -> bool,
    ) -> Option<Window> {
        let owner = folio.owner();
        let space = self.spaces[owner.space.0 as usize].as_deref()?;
        let table = owner.page / TABLE_ENTRIES;
        let (first, end) = window(owner.page, space.table.pages());
        let own = owner.page..owner.page + folio.pages();
        look(self.pool, space, first..end);
        let (window, marks) =
            ((first..end).zip(space.table.slice(first..end)), &self.pool.sample_marks);
        for (_, entry) in window.filter(|(page, _)| !own.contains(page)) {
            if let EntryState::Resident { frame, young, .. } = entry.load()
                && (young || marks.is_young(frame))
                && visit(FolioId(frame))
            {
                entry.clear_young();
                marks.take_young(frame);
            }
        }
        Some(Window { table: table_key(space, table), entries: end - first })
    }
}

/// At most 64 entries around a page: its whole table if that is no longer, else centred on the page
/// and clipped to the table.
fn window(page: u64, pages: u64) -> (u64, u64) {
    let table = page / TABLE_ENTRIES * TABLE_ENTRIES;
    let end = (table + TABLE_ENTRIES).min(pages);
    if end - table <= LOOK_AROUND_MAX {
        return (table, end);
    }
    let half = LOOK_AROUND_MAX / 2;
    let first = page.saturating_sub(half).max(table).min(end - LOOK_AROUND_MAX);
    (first, first + LOOK_AROUND_MAX)
}

/// Batches of an invocation from which nothing could go.
struct Stuck {
    /// Those in a row whose pages are all pinned.
    pinned: u32,
    /// The group whose batches swap refuses, and how many of them.
    refused: (MemcgId, u64),
}

impl Stuck {
    /// Counts the batch that was just unmapped, and ends what goes nowhere.
    fn note(&mut self, reclaim: &mut Reclaim, engine: &mut Engine, nothing_stored: bool) {
        if reclaim.victims().iter().any(|v| v.outcome != Unmapped::Pinned) {
            self.pinned = 0;
        } else if !nothing_stored {
            self.pinned += 1;
        } else if self.refused.0 == reclaim.group() {
            self.refused.1 += 1;
        } else {
            self.refused = (reclaim.group(), 1);
        }
        // Guards are dropped at any moment; swap has room when something else has happened, and
        // file pages of the group, or pages of others, can go now.
        if self.refused.1 >= REFUSED_BATCHES && self.have_all_been_tried(reclaim, engine) {
            reclaim.swap_refused(engine);
            self.refused.1 = 0;
        }
        if self.pinned >= PINNED_BATCHES {
            reclaim.give_up();
        }
    }

    /// Whether no anonymous page of the group is worth a try any more. Those that swap refuses are
    /// together, since it has taken those that were between them: where there is nothing else to
    /// evict, as many batches are tried as the group has pages for.
    fn have_all_been_tried(&self, reclaim: &Reclaim, engine: &mut Engine) -> bool {
        engine.has_file(reclaim.target())
            || self.refused.1 * SWAP_CLUSTER_MAX >= engine.stat(self.refused.0).anon
    }
}

impl Pool {
    /// Runs an invocation to its end. Returns the lock, which it releases in between, and the
    /// pages reclaimed.
    pub(crate) fn reclaim<'a>(
        &'a self,
        state: StateGuard<'a>,
        reclaim: Reclaim,
    ) -> (StateGuard<'a>, u64) {
        self.reclaim_until(state, reclaim, Deadline::after(Duration::MAX))
    }

    /// The same, but not for long after a deadline.
    pub(crate) fn reclaim_until<'a>(
        &'a self,
        mut state: StateGuard<'a>,
        reclaim: Reclaim,
        deadline: Deadline,
    ) -> (StateGuard<'a>, u64) {
        // Without threads in the background everything happens in the order of the calls, as in the
        // simulator: a flusher that was woken then writes when the invocation pauses, so it must
        // not pause more often.
        let mut reclaim = if self.background { reclaim.sharing_the_lock() } else { reclaim };
        let mut stuck = Stuck { pinned: 0, refused: (reclaim.group(), 0) };
        // Without a flusher in the background this thread writes, which takes the lock: when
        // nothing is isolated any more.
        let mut flush = false;
        let mut leaving = Leaving::new(self);
        loop {
            if self.is_poisoned() {
                return (state, reclaim.reclaimed());
            }
            let State { engine, spaces, .. } = &mut *state;
            let step = self
                .miss_clock
                .engine(|| reclaim.step(engine, &mut Translations::new(spaces, self), self.now()));
            let isolated = matches!(step, Step::Unmap | Step::Freed | Step::WakeFlushers);
            if !isolated && std::mem::take(&mut flush) {
                drop(state);
                self.write_back_below(MemcgId::ROOT);
                state = self.lock();
            }
            if !isolated && leaving.len() > 0 {
                drop(state);
                leaving.store();
                state = self.lock();
            }
            match step {
                Step::Unmap => {
                    let victims = reclaim.victims();
                    unmap(self, &state.spaces, victims);
                    let nothing_stored;
                    (state, nothing_stored) = swap_out(self, state, victims);
                    stuck.note(&mut reclaim, &mut state.engine, nothing_stored);
                }
                Step::Freed => self.release(&mut state, reclaim.freed(), &mut leaving),
                Step::Walk => state = self.walk(state, reclaim.age_job()),
                Step::WakeFlushers => {
                    self.fault_sites.mark(FaultSite::ReclaimWokeFlushers);
                    self.io.counts.flusher_wakes.fetch_add(1, Relaxed);
                    if self.background {
                        self.ask_to_flush(&mut state, MemcgId::ROOT);
                    } else {
                        flush = true;
                    }
                }
                Step::Throttle(_, nanos) => {
                    self.fault_sites.mark(FaultSite::ReclaimThrottled);
                    let time = Duration::from_nanos(nanos);
                    state = state.wait(|guard| self.freed.wait(guard, time));
                }
                Step::Yield => {
                    if deadline.has_passed() {
                        reclaim.give_up();
                    }
                    drop(state);
                    std::thread::yield_now();
                    state = self.lock();
                }
                Step::Done => {
                    if !self.void.is_empty() {
                        drop(state);
                        self.void.free();
                        state = self.lock();
                    }
                    return (end_orphans(self, state), reclaim.reclaimed());
                }
            }
        }
    }

    /// Unmaps folios that the engine has freed, and gives their frames back.
    fn release(&self, state: &mut State, freed: &[Freed], leaving: &mut Leaving<'_>) {
        let State { frames, spaces, zcaches, .. } = state;
        let space_of = |gone: &Freed| {
            spaces[gone.owner.space.0 as usize].as_ref().expect("a folio's space is open")
        };
        // Before their bytes are gone.
        let mut taken = leaving.len();
        freed.iter().for_each(|gone| leaving.take(zcaches, space_of(gone), gone));
        release_mapped(spaces, freed.iter().map(|gone| (gone.owner, gone.order)));
        for gone in freed {
            let space = space_of(gone);
            let shadow = gone.shadow.map_or(0, Shadow::to_bits);
            if shadow == 0 {
                space.anon().lazy.remove(gone.owner.page);
            }
            if leaving.is(taken, gone.owner) {
                taken += 1;
            } else {
                for entry in space.entries(gone.owner.page, gone.order) {
                    if entry.evict(shadow) {
                        self.waits.complete(entry, &Ok(()));
                    }
                }
            }
            let gone_frames = gone.folio.0..gone.folio.0 + (1 << gone.order);
            note_evicted(self, space, gone.owner.page, gone_frames);
            frames.free(gone.folio.0, gone.order);
        }
        fill_reserves(self, state);
        self.freed.wake_all();
    }

    /// Feeds an aging job: visits every table that may have young entries and that the job wants.
    fn walk<'a>(&'a self, mut state: StateGuard<'a>, job: &mut AgeJob) -> StateGuard<'a> {
        while let Some(id) = job.next_space(&mut state.engine) {
            let Some(space) = state.spaces[id.0 as usize].clone() else { continue };
            let mut looks = 0;
            for pages in space.table.used() {
                let table = pages.start / TABLE_ENTRIES;
                let hint = space.table.hint(pages.start);
                let key = table_key(&space, table);
                if space.mapped.is_some() && job.wants(&state.engine, key) {
                    let first = table * TABLE_ENTRIES;
                    look(self, &space, first..first + TABLE_ENTRIES);
                    looks += VISIT;
                }
                looks += 1;
                if looks >= WALK_CHUNK {
                    looks = 0;
                    drop(state);
                    state = self.lock();
                }
                if !hint.take_young() {
                    continue;
                }
                if !job.wants(&state.engine, key) {
                    hint.note_young();
                    continue;
                }
                walk_table(self, &mut state, (&space, table, key), job);
                looks += VISIT;
            }
        }
        state
    }
}

/// One bounded reclaim of a group, and a moment without the lock.
pub(crate) fn piece<'a>(
    pool: &'a Pool,
    state: StateGuard<'a>,
    id: MemcgId,
    goal: u64,
    reason: Reason,
) -> (StateGuard<'a>, u64) {
    let (state, reclaimed) = pool.reclaim(state, Reclaim::new(id, goal, reason, Task::DESCRIPTOR));
    drop(state);
    (pool.lock(), reclaimed)
}

fn walk_table(
    pool: &Pool,
    state: &mut State,
    (space, table, key): (&Space, u64, TableKey),
    job: &mut AgeJob,
) {
    let marks = &pool.sample_marks;
    let first = table * TABLE_ENTRIES;
    let entries = space.table.slice(first..first + TABLE_ENTRIES);
    let (mut young, mut last, mut left_young) = (0, None, false);
    for entry in entries {
        let EntryState::Resident { frame, young: is_young, .. } = entry.load() else { continue };
        if !is_young && !marks.is_young(frame) {
            continue;
        }
        let Some(folio) = job.takes(&state.engine, FolioId(frame)) else {
            left_young = true;
            continue;
        };
        entry.clear_young();
        marks.take_young(frame);
        young += 1;
        if last.replace(folio) != Some(folio) {
            job.young(&mut state.engine, folio, false);
        }
    }
    if left_young {
        space.table.hint(first).note_young();
    }
    job.table_done(&mut state.engine, key, young, entries.len() as u64);
}

/// Learns which pages of a file were touched through a pointer, if there are pointers to it.
pub(super) fn look(pool: &Pool, space: &Space, pages: Range<u64>) {
    if let Some(mapped) = &space.mapped {
        mapped.look(pages, &mut |page| note_touch(pool, space, page));
    }
}

/// Gives back the memory of folios that programs reach through pointers, before their frames are
/// free: so what is resident never exceeds what is charged. Neighbours go together.
fn release_mapped(
    spaces: &[Option<Arc<Space>>],
    folios: impl Iterator<Item = (lowtide_core::Owner, u8)>,
) {
    let mut gone: Vec<_> = folios
        .filter_map(|(owner, order)| {
            let space = spaces[owner.space.0 as usize].as_deref()?;
            space.mapped.as_ref().map(|_| (owner.space.0, owner.page, 1_u64 << order))
        })
        .collect();
    gone.sort_unstable();
    for run in gone.chunk_by(|a, b| a.0 == b.0 && a.1 + a.2 == b.1) {
        let (id, first, _) = run[0];
        let (_, last, pages) = run[run.len() - 1];
        let space = spaces[id as usize].as_deref().expect("a folio's space is open");
        let mapped = space.mapped.as_ref().expect("only such are here");
        mapped.release(first..last + pages);
    }
}

/// Decides which victims are not in use, and leaves exactly their translations locked.
fn unmap(pool: &Pool, spaces: &[Option<Arc<Space>>], victims: &mut [Victim]) {
    let entries = |v: &Victim| {
        let space = spaces[v.owner.space.0 as usize].as_deref().expect("a folio's space is open");
        space.entries(v.owner.page, v.order)
    };
    // Saying of a page that it may have readers without a fence is never wrong.
    let unlock = |victim: &Victim, count: usize, unfenced: bool| {
        for (entry, frame) in entries(victim).zip(victim.folio.0..).take(count) {
            if entry.unlock(Taken { unfenced, ..Taken::idle(frame) }) {
                pool.waits.complete(entry, &Ok(()));
            }
        }
    };
    let mut unfenced = false;
    for victim in victims.iter_mut() {
        let lock = |e: &Entry| e.try_lock_for_eviction().ok();
        let mut own = false;
        let locked = entries(victim).map_while(lock).inspect(|taken| own |= taken.unfenced).count();
        if locked < 1 << victim.order {
            unlock(victim, locked, own);
        } else if own && hazard::is_refused() {
            // Its readers are unknown; those of others are not.
            unlock(victim, locked, own);
            victim.outcome = Unmapped::Pinned;
        } else {
            unfenced |= own;
            victim.outcome = Unmapped::Done;
        }
    }
    let mut slots = hazard::Slots::default();
    hazard::scan(&mut slots, unfenced);
    for victim in victims.iter_mut().filter(|v| v.outcome == Unmapped::Done) {
        if entries(victim).any(|e| slots.hold(&(e.address()..=e.address()))) {
            unlock(victim, 1 << victim.order, slots.are_unknown());
            victim.outcome = Unmapped::Pinned;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_was_looked_at_if_a_run_of_its_space_has_it() {
        let pages = [(3, 1..2), (1, 7..8), (1, 5..6), (1, 20..24), (3, 0..1), (1, 6..7)];
        let looked = Looked::of(pages.to_vec());
        assert_eq!(looked.0, [(1, 5..8), (1, 20..24), (3, 0..2)]);
        let seen = |space: u32| (0..30).filter(|&p| looked.has(space, p)).collect::<Vec<_>>();
        assert_eq!(seen(1), [5, 6, 7, 20, 21, 22, 23]);
        assert_eq!(seen(3), [0, 1]);
        assert!(seen(0).is_empty() && seen(2).is_empty() && seen(4).is_empty());
    }
}
