//! What a flusher does without being asked for a certain file.

use super::AGE_INTERVAL;
use super::device::Ticket;
use super::worker::Worker;
use crate::fault_sites::FaultSite;
use crate::space::Space;
use lowtide_core::MemcgId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause after a look that found nothing to write.
const REST: Duration = Duration::from_millis(10);
/// Time between looks for files that are to be tried again.
const LOOK: Duration = Duration::from_millis(50);
/// Pages of one piece of work, where nothing else is said.
const PAGES: u64 = 1024;

/// A piece of work: pages to write, wherever they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Of this group and below it.
    group: MemcgId,
    /// So many pages at most.
    pages: u64,
    /// Only of files that have been dirty since before this time.
    older_than: Option<u64>,
    /// Something was found.
    found: bool,
}

impl Work {
    pub(super) const fn for_group(group: MemcgId) -> Self {
        Self { group, pages: PAGES, older_than: None, found: false }
    }
}

impl Worker<'_> {
    /// Takes note of what was asked for, besides tickets.
    pub(super) fn take_note(&mut self, rung: bool, groups: &[MemcgId]) {
        if rung {
            self.rest_until = None;
        }
        for &group in groups {
            if !self.asked.contains(&group) {
                self.asked.push(group);
            }
        }
    }

    /// Looks at files from time to time: has one been dirty for long, is one to be tried again?
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        if now < self.look_at {
            return;
        }
        self.look_at = now + AGE_INTERVAL;
        for space in self.files(MemcgId::ROOT) {
            let mut ledger = crate::sync::lock(&space.ledger);
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

    /// Takes tickets for files that nobody has open.
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

    /// Begins some of the work in hand, or the next piece. Returns false if there is none.
    pub(super) fn write_for_work(&mut self) -> bool {
        let Some(mut work) = self.work.take().or_else(|| self.next_work()) else { return false };
        let now = Instant::now();
        let files = self.files(work.group);
        for step in 0..files.len() {
            let space = &files[(self.turn + step) % files.len()];
            let ledger = crate::sync::lock(&space.ledger);
            let wanted = work.older_than.is_none_or(|then| ledger.dirty_since.is_some_and(|at| at <= then))
                && ledger.retry_at().is_none_or(|at| at <= now);
            let mut at = ledger.cursor;
            drop(ledger);
            if !wanted {
                continue;
            }
            let from = at;
            let (_, mut pages) = self.write_from(space, &mut at, work.pages, None);
            if pages == 0 && from > 0 {
                at = 0;
                (_, pages) = self.write_from(space, &mut at, work.pages, None);
            }
            let mut ledger = crate::sync::lock(&space.ledger);
            ledger.cursor = at;
            if pages == 0 {
                // All of it has been looked at.
                ledger.dirty_since = None;
                continue;
            }
            drop(ledger);
            self.turn = (self.turn + step) % files.len();
            work.found = true;
            work.pages = work.pages.saturating_sub(pages);
            if work.pages > 0 {
                self.work = Some(work);
            }
            return true;
        }
        if work.found {
            // Perhaps there is other work.
            return true;
        }
        self.rest_until = Some(now + REST);
        false
    }

    /// What is to be done now.
    fn next_work(&mut self) -> Option<Work> {
        if self.rest_until.is_some_and(|rest| Instant::now() < rest) || !self.pool.background {
            return None;
        }
        if let Some(group) = self.asked.pop() {
            return Some(Work::for_group(group));
        }
        let now = self.pool.now();
        let mut state = self.pool.lock();
        let (dirty, max) = (state.engine.dirty(), state.engine.max(MemcgId::ROOT));
        let Some(work) = state.engine.flusher_work(self.device.id, now) else {
            // Until the engine says what to do.
            let much = Work { pages: PAGES.min(dirty), ..Work::for_group(MemcgId::ROOT) };
            let old = Work { older_than: now.checked_sub(30_000_000_000), pages: u64::MAX, ..much };
            return if dirty > max / 10 { Some(much) } else { old.older_than.map(|_| old) };
        };
        Some(Work {
            group: work.group.unwrap_or(MemcgId::ROOT),
            pages: work.pages.max(1),
            older_than: work.older_than,
            found: false,
        })
    }
}
