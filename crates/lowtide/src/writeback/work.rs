//! What a flusher writes on its own, without a request for a certain file.
//!
//! The engine decides what (`lowtide-core`, `dirty/flusher.rs`): a number of pages of a group,
//! because too much is dirty or because reclaim met nothing else, or everything in files that have
//! been dirty for long. This file finds those pages. Files take turns, a run each, and each goes on
//! where it stopped the last time; one in which something has failed lately is left alone.
//!
//! **Age.** The time at which a page becomes dirty is not recorded. From time to time the flusher
//! looks which files have dirty pages, and a file's age is the time since it was first seen so. So
//! a page is written at the latest after the age at which it is old, and two intervals between
//! looks.

use super::device::Ticket;
use super::worker::Worker;
use crate::pool::{Pool, State};
use crate::space::Space;
use lowtide_core::{FlushReason, FlushWork, MemcgId};
use lowtide_io::FaultSite;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between looks for files that are to be tried again.
const LOOK: Duration = Duration::from_millis(50);
/// Time between looks at files' ages where age does not matter.
const SELDOM: Duration = Duration::from_secs(3600);
/// Pages that a thread writes for itself where there is no flusher.
const PAGES: u64 = 1024;

/// Why a flusher is awake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wake {
    /// Another thread woke it, and may have shortened the pause of a file.
    Woken,
    Timer,
}

/// A piece of work: pages to write, wherever they are.
#[derive(Debug)]
pub(super) struct Work {
    files: Vec<Arc<Space>>,
    /// The file whose turn it is.
    turn: usize,
    /// The most pages to write.
    pages: u64,
    /// Pages begun in this lap through the files.
    lap: u64,
    /// Each file is written from its beginning to its end: up to where the one in turn is.
    whole: Option<u64>,
}

impl Worker<'_> {
    /// Looks at files from time to time: since when are they dirty, is one to be tried again?
    pub(super) fn look(&mut self, wake: Wake) {
        let now = Instant::now();
        if now < self.look_at && !(wake == Wake::Woken && now >= self.looked + LOOK) {
            return;
        }
        self.looked = now;
        self.look_at = now + self.until_next_look();
        for space in self.files(MemcgId::ROOT) {
            let mut ledger = lowtide_pin::sync::lock(&space.ledger);
            if ledger.dirty_since.is_none() && space.table.may_be_dirty() {
                ledger.dirty_since = Some(self.pool.now());
            }
            let retry = ledger.retry_at();
            drop(ledger);
            match retry {
                Some(at) if at <= now => {
                    if !self.serves(&space) {
                        self.pool.fault_sites.mark(FaultSite::RetryAfterBackoff);
                        self.accept(&Ticket::new(&space, 0..u64::MAX));
                    }
                    self.look_at = self.look_at.min(now + LOOK);
                }
                Some(at) => self.look_at = self.look_at.min(at.max(now + LOOK)),
                None => {}
            }
        }
    }

    /// The time until the engine wants to look for old data, which it does only when the files'
    /// ages are known.
    fn until_next_look(&self) -> Duration {
        let state = self.pool.lock();
        let Some(at) = state.engine.next_flush(self.device.id) else { return SELDOM };
        let left = at.saturating_sub(self.pool.now());
        Duration::from_nanos(if left > 0 { left } else { state.engine.dirty_timers().interval_ns })
    }

    /// Takes tickets for files that are not open.
    pub(super) fn accept_orphans(&mut self) {
        for space in self.files(MemcgId::ROOT) {
            if space.is_orphan() && !self.serves(&space) {
                self.accept(&Ticket::new(&space, 0..u64::MAX));
            }
        }
    }

    /// Files of this device that a group pays for.
    fn files(&self, group: MemcgId) -> Vec<Arc<Space>> {
        let state = self.pool.lock();
        if !state.engine.alive(group) {
            return Vec::new();
        }
        let ours = |s: &&Arc<Space>| {
            s.device.get().is_some_and(|device| Arc::ptr_eq(device, self.device))
                && state.engine.is_within(state.engine.group_of_space(s.id), group)
        };
        state.spaces.iter().flatten().filter(ours).cloned().collect()
    }

    /// Takes some pages of a group as the work in hand.
    pub(super) fn take_work_for(&mut self, group: MemcgId) {
        let files = self.files(group);
        let turn = self.turn % files.len().max(1);
        self.work = Some(Work { files, turn, pages: PAGES, lap: 0, whole: None });
    }

    /// Begins a run of the work in hand, or of the next piece. Returns false if there is nothing to
    /// do.
    pub(super) fn write_for_work(&mut self) -> bool {
        let Some(mut work) = self.work.take().or_else(|| self.next_work()) else { return false };
        let Some(space) = work.files.get(work.turn).cloned() else {
            // A lap is over. If it brought nothing, there is no more.
            if work.whole.is_none() && std::mem::take(&mut work.lap) > 0 && work.pages > 0 {
                work.turn = 0;
                self.work = Some(work);
            }
            return true;
        };
        let resting = lowtide_pin::sync::lock(&space.ledger).rests(Instant::now());
        let pages = match &mut work.whole {
            _ if resting => 0,
            Some(at) => self.write_from(&space, at, work.pages, None).1,
            None => self.write_next(&space, work.pages),
        };
        work.lap += pages;
        work.pages = work.pages.saturating_sub(pages);
        let stays = work.whole.is_some_and(|at| !resting && at < space.table.pages());
        if !stays {
            work.turn += 1;
            self.turn = work.turn;
            if let Some(at) = &mut work.whole {
                *at = 0;
            }
        }
        if work.pages > 0 {
            self.work = Some(work);
        }
        true
    }

    /// Begins the next run of a file, from where the last one ended; at the end of the file it goes
    /// on at the beginning.
    fn write_next(&mut self, space: &Arc<Space>, most: u64) -> u64 {
        let from = lowtide_pin::sync::lock(&space.ledger).cursor;
        let mut at = from;
        let (_, mut pages) = self.write_from(space, &mut at, most, None);
        if pages == 0 && from > 0 {
            at = 0;
            (_, pages) = self.write_from(space, &mut at, most, None);
        }
        lowtide_pin::sync::lock(&space.ledger).cursor = at;
        pages
    }

    /// What is to be done now.
    fn next_work(&mut self) -> Option<Work> {
        if !self.pool.background {
            return None;
        }
        let work = {
            let mut state = self.pool.lock();
            let work = state.engine.flusher_work(self.device.id, self.pool.now());
            let running = work.is_some() || self.in_flight() > 0;
            if running != self.running {
                // Under the same acquisition of the lock: a thread that makes pages dirty after
                // this look sees that it has to wake the flusher.
                state.engine.set_writing(self.device.id, running);
                self.running = running;
            }
            work?
        };
        let FlushWork { reason, group, pages, older_than } = work;
        let mut files = self.files(group.unwrap_or(MemcgId::ROOT));
        if reason == FlushReason::Periodic {
            files.retain(|space| {
                let mut ledger = lowtide_pin::sync::lock(&space.ledger);
                let old = ledger
                    .dirty_since
                    .is_some_and(|since| older_than.is_none_or(|then| since <= then));
                if old {
                    ledger.dirty_since = None;
                }
                old
            });
            return Some(Work { files, turn: 0, pages: u64::MAX, lap: 0, whole: Some(0) });
        }
        let turn = self.turn % files.len().max(1);
        Some(Work { files, turn, pages, lap: 0, whole: None })
    }
}

impl Pool {
    /// Reports to the flushers that a group's dirty pages keep reclaim from going on. No-op where
    /// there are none.
    pub(crate) fn ask_to_flush(&self, state: &mut State, group: MemcgId) {
        if self.background {
            let asked = state.engine.ask_to_flush(group);
            for device in self.devices.all().iter().filter(|device| asked.contains(&device.id)) {
                device.wake();
            }
        }
    }

    /// Ensures that dirty pages of a group become clean: wakes the flushers, or, without background
    /// threads, writes some in this thread. Returns the pages written here.
    pub(crate) fn write_back_below(&self, group: MemcgId) -> u64 {
        if self.background {
            self.ask_to_flush(&mut self.lock(), group);
            return 0;
        }
        self.devices.all().iter().map(|device| self.write_some(device, group)).sum()
    }

    /// As [`Pool::write_back_below`], for a thread that can do nothing else until something is
    /// clean: files in which something has failed are tried again soon.
    pub(crate) fn write_back_urgently(&self, group: MemcgId) -> u64 {
        for space in self.lock().spaces.iter().flatten() {
            lowtide_pin::sync::lock(&space.ledger).retry_soon();
        }
        let written = self.write_back_below(group);
        for device in self.devices.all() {
            device.wake();
        }
        written
    }

    /// Wakes the flusher of a file's device, for writers that have made much dirty.
    pub(crate) fn wake_flusher_of(&self, space: &Space) {
        if let Some(device) = space.device.get() {
            device.wake();
        }
    }
}
