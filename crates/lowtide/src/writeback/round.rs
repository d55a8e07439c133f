//! Rounds: tickets of one file that are served together.
//!
//! What arrives during a round waits for the next, and all tickets of a round share its writes and
//! its sync:
//!
//! ```text
//!   sweep: begin to write what is dirty ──▶ drain: wait for those writes ──▶ sync, if needed
//! ```
//!
//! The sweep looks at each page once, so threads that go on storing cannot make it endless; at a
//! page that is dirty *and* being written it waits for that write. A run that fails is cut in
//! halves, which are tried again, until each page that cannot be written stands alone: a bad block
//! does not keep its neighbours dirty.

use super::device::Ticket;
use super::ledger::Failure;
use super::page_set::union;
use super::rescue::rescue;
use crate::pool::Pool;
use crate::space::Space;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// The stage of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// What a failed sync may have lost is written again.
    Rescue,
    Sweep,
    /// All runs of the file up to this number have to end.
    Drain(u64),
    Sync,
    Done,
}

/// Tickets of one file that are served together, and those that come next.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) space: Arc<Space>,
    pub(super) now: Vec<Arc<Ticket>>,
    pub(super) next: Vec<Arc<Ticket>>,
    pub(super) stage: Stage,
    /// What is left to sweep.
    pub(super) ranges: VecDeque<Range<u64>>,
    failures: Vec<Failure>,
}

impl Round {
    /// The first of a file, which has not begun.
    pub(super) fn of(ticket: &Arc<Ticket>) -> Self {
        Self {
            space: Arc::clone(&ticket.space),
            now: Vec::new(),
            next: vec![Arc::clone(ticket)],
            stage: Stage::Rescue,
            ranges: VecDeque::new(),
            failures: Vec::new(),
        }
    }

    /// Begins with the tickets that have come.
    pub(super) fn begin(&mut self, pool: &Pool) {
        self.now = std::mem::take(&mut self.next);
        self.ranges = union(self.now.iter().map(|ticket| ticket.pages.clone()));
        self.stage = Stage::Rescue;
        self.failures = Vec::new();
        self.rescue(pool);
    }

    /// Begins to sweep, if nothing has to be rescued, or that could be done now.
    pub(super) fn rescue(&mut self, pool: &Pool) {
        match rescue(pool, &self.space) {
            Ok(false) => return,
            Ok(true) => {}
            Err(failure) => self.failures.push(failure),
        }
        self.stage = Stage::Sweep;
    }

    /// Some of its pages could not be written.
    pub(super) fn note(&mut self, failure: Failure) {
        match self.failures.last_mut() {
            // Neighbours are one failure, so that a device that takes nothing costs no memory.
            Some(last) if last.pages.end == failure.pages.start => {
                last.pages.end = failure.pages.end;
            }
            _ => self.failures.push(failure),
        }
    }

    /// Says to the threads that wait what became of their pages.
    pub(super) fn finish(&mut self) {
        for ticket in self.now.drain(..) {
            let touches =
                |f: &&Failure| f.pages.start < ticket.pages.end && ticket.pages.start < f.pages.end;
            let failure = self.failures.iter().find(touches);
            ticket.finish(failure.cloned().map_or(Ok(()), Err));
        }
    }
}
