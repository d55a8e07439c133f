//! What write-back knows about one file: what is durable, what failed, which handles know of it.
//!
//! A page that was written is not durable yet: that takes a sync that began after the write had
//! ended. So written pages are *unsynced* until then. A sync that fails says nothing about which of
//! them it lost, and the next one may succeed without them. They become *suspect*, and each has to
//! be written again before a sync counts (`rescue.rs`). Pages whose own write failed are *failed*;
//! they are dirty.
//!
//! ```text
//!              write ends          sync begins          sync ends
//!   dirty ──────────────▶ unsynced ───────────▶ syncing ─────────▶ (durable)
//!     ▲ └──▶ failed ──┐      └──────────┐          │ fails
//!     │               │ again           ▼          ▼
//!     └───────────────┴──────────── suspect ◀──────┘
//! ```
//!
//! **Incidents.** Handles do not get each failed write but each *incident*: it begins with the
//! first failure of a file in which everything is well, and ends when nothing of it is failed or
//! suspect. Each handle has a cursor into the count of incidents, so it gets each once; an incident
//! that no handle has seen is reported to the handle that opens the file next
//! (`docs/kernel/fault-and-writeback.md` §B11).
//!
//! **Retries.** After a failure the file is left alone for a while: 100 ms, then twice as long each
//! time, 5 s at most. Only a flush does not wait for that; and while a thread waits for room that
//! dirty pages take, the pauses stay short.

use super::page_set::PageSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// First pause after a failure, and the longest.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Rounds in a row without a page written after which a file counts as one that cannot be written.
const HOPELESS_ROUNDS: u32 = 3;
/// Failed requests in a row after which runs are not cut any more: the device takes nothing.
const HOPELESS: u32 = 16;

/// See the module documentation. Its lock comes after the pool's.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    unsynced: PageSet,
    syncing: PageSet,
    suspect: PageSet,
    failed: PageSet,
    /// A sync failed, and none has succeeded since.
    sync_failed: bool,
    /// Syncs that have ever failed.
    failed_syncs: u64,
    incidents: Incidents,
    retry: Option<Retry>,
    failures_in_a_row: u32,
    /// Rounds in a row that have failed, with nothing written in between.
    rounds_failed: u32,
    /// Rounds that have ever failed.
    all_rounds_failed: u64,
    /// Since when something has been dirty, as far as was noticed; the engine's time.
    pub(super) dirty_since: Option<u64>,
    /// Page up to which background write-back came.
    pub(super) cursor: u64,
}

#[derive(Clone, Copy, Debug)]
struct Retry {
    at: Instant,
    pause: Duration,
}

/// What handles get to see.
#[derive(Debug, Default)]
struct Incidents {
    count: u64,
    under_way: bool,
    reported: bool,
    last: Option<Failure>,
}

/// Pages that could not be written, or not be made durable, and why.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) pages: Range<u64>,
    pub(crate) source: Arc<io::Error>,
}

/// What a handle gets: the last incident, and how many there were.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) incidents: u64,
    pub(crate) last: Failure,
}

impl Ledger {
    /// A write has ended well.
    pub(super) fn written(&mut self, pages: Range<u64>) {
        self.unsynced.insert(pages.clone());
        self.failures_in_a_row = 0;
        self.rounds_failed = 0;
        if !self.suspect.is_empty() {
            self.suspect.remove(pages.clone());
        }
        if !self.failed.is_empty() {
            self.failed.remove(pages);
            self.settle();
        }
    }

    /// A write has failed for good; its pages are dirty again.
    pub(super) fn write_failed(&mut self, failure: Failure, now: Instant) {
        self.failed.insert(failure.pages.clone());
        self.fail(failure, now);
    }

    /// Whether a failed run of several pages should be cut and tried again, so that the good ones
    /// among them are written.
    pub(super) fn worth_cutting(&mut self) -> bool {
        self.failures_in_a_row += 1;
        self.failures_in_a_row < HOPELESS
    }

    /// Whether a sync is needed for everything written so far to be durable.
    pub(super) fn needs_sync(&self) -> bool {
        self.sync_failed || !self.unsynced.is_empty()
    }

    /// A sync begins: it covers what was written until now.
    pub(super) fn sync_begins(&mut self) {
        self.syncing.absorb(&mut self.unsynced);
    }

    /// The sync has ended well.
    pub(super) fn synced(&mut self) {
        self.syncing = PageSet::default();
        self.sync_failed = false;
        self.settle();
    }

    /// The sync has failed: nothing that was written since the last good one counts.
    pub(super) fn sync_failure(&mut self, source: Arc<io::Error>, now: Instant) {
        self.suspect.absorb(&mut self.syncing);
        self.suspect.absorb(&mut self.unsynced);
        self.sync_failed = true;
        self.failed_syncs += 1;
        let runs = self.suspect.runs();
        let pages = runs.first().map_or(0, |r| r.start)..runs.last().map_or(0, |r| r.end);
        self.fail(Failure { pages, source }, now);
    }

    /// How often a sync has failed. A write during which this has grown is repeated: parts of it
    /// may have reached the device before the sync failed.
    pub(super) const fn failed_syncs(&self) -> u64 {
        self.failed_syncs
    }

    /// Pages that have to be written again although they were written.
    pub(super) fn suspects(&self) -> Vec<Range<u64>> {
        self.suspect.runs()
    }

    /// Suspect pages could not be written again.
    pub(super) fn still_suspect(&mut self, failure: Failure, now: Instant) {
        self.fail(failure, now);
    }

    /// Suspect pages are dirty now: writing them is as good as with all dirty pages.
    pub(super) fn dirty_again(&mut self, pages: Range<u64>) {
        self.suspect.remove(pages.clone());
        self.failed.insert(pages);
    }

    /// The user of the file does not want these pages' contents any more.
    pub(crate) fn discarded(&mut self, pages: Range<u64>) {
        for set in [&mut self.failed, &mut self.suspect] {
            set.remove(pages.clone());
        }
        self.settle();
    }

    /// Pages whose last write failed, or that have to be written again.
    pub(crate) fn failed_pages(&self) -> u64 {
        self.failed.len() + self.suspect.len()
    }

    /// Whether everything that was ever written is durable.
    pub(crate) fn is_settled(&self) -> bool {
        let durable = self.unsynced.is_empty() && self.syncing.is_empty();
        durable && self.failed_pages() == 0 && !self.sync_failed
    }

    /// The failure, if the file was tried several times in a row and nothing of it could be
    /// written: a thread that waits for room need not wait for this file.
    pub(crate) fn hopeless(&self) -> Option<Failure> {
        let failing = self.incidents.under_way && self.rounds_failed >= HOPELESS_ROUNDS;
        self.incidents.last.clone().filter(|_| failing)
    }

    /// How often a round of writes or a sync has failed so far.
    pub(crate) const fn failed_rounds(&self) -> u64 {
        self.all_rounds_failed
    }

    /// When the file may be tried again, if something has failed.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry.map(|retry| retry.at)
    }

    /// Whether nothing is written now without a request: something failed a moment ago, or a
    /// round has to write again what a sync may have lost, and waits for writes to end.
    pub(super) fn rests(&self, now: Instant) -> bool {
        self.retry_at().is_some_and(|at| at > now) || !self.suspect.is_empty()
    }

    /// A thread waits for the file's pages: it is tried again after the shortest pause.
    pub(super) fn retry_soon(&mut self) {
        if let Some(retry) = &mut self.retry {
            retry.at -= retry.pause - RETRY_PAUSES.0;
            retry.pause = RETRY_PAUSES.0;
        }
    }

    fn fail(&mut self, failure: Failure, now: Instant) {
        // All failures of one round are one.
        if self.retry.is_none_or(|retry| retry.at <= now) {
            let (first, longest) = RETRY_PAUSES;
            let pause = self.retry.map_or(first, |retry| (retry.pause * 2).min(longest));
            self.retry = Some(Retry { at: now + pause, pause });
            self.rounds_failed += 1;
            self.all_rounds_failed += 1;
        }
        let incidents = &mut self.incidents;
        if !incidents.under_way {
            incidents.count += 1;
            incidents.under_way = true;
            incidents.reported = false;
            incidents.last = Some(failure);
        } else if let Some(last) = &mut incidents.last {
            last.pages =
                last.pages.start.min(failure.pages.start)..last.pages.end.max(failure.pages.end);
        }
    }

    /// Ends the incident if nothing of it is left.
    fn settle(&mut self) {
        if self.failed_pages() == 0 && !self.sync_failed {
            self.incidents.under_way = false;
            self.retry = None;
            (self.failures_in_a_row, self.rounds_failed) = (0, 0);
        }
    }

    /// The cursor of a handle that is made now.
    pub(crate) fn cursor(&self) -> u64 {
        let unreported = self.incidents.count > 0 && !self.incidents.reported;
        self.incidents.count - u64::from(unreported)
    }

    /// What happened since the cursor was last moved; moves it.
    pub(crate) fn report(&mut self, cursor: &mut u64) -> Option<Report> {
        let behind = self.incidents.count - std::mem::replace(cursor, self.incidents.count);
        if behind == 0 {
            return None;
        }
        self.incidents.reported = true;
        Some(Report { incidents: behind, last: self.incidents.last.clone()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(pages: Range<u64>) -> Failure {
        Failure { pages, source: Arc::new(io::Error::from_raw_os_error(libc::EIO)) }
    }

    #[test]
    fn an_incident_is_reported_once_to_each_cursor_and_to_a_later_one_only_if_no_other_got_it() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        let (mut one, mut two) = (ledger.cursor(), ledger.cursor());
        ledger.write_failed(failure(3..5), now);
        ledger.write_failed(failure(9..10), now);
        let mut late = ledger.cursor();
        let report = ledger.report(&mut late).unwrap();
        assert_eq!((report.incidents, report.last.pages), (1, 3..10));
        assert!(ledger.report(&mut one).is_some() && ledger.report(&mut one).is_none());
        assert_eq!(ledger.report(&mut ledger.cursor()).map(drop), None, "it has been reported");
        ledger.written(3..4);
        ledger.write_failed(failure(3..4), now);
        assert!(ledger.report(&mut one).is_none(), "it is the same incident until all is written");
        ledger.written(0..10);
        ledger.write_failed(failure(7..8), now);
        assert!(ledger.report(&mut one).is_some(), "another");
        assert_eq!(ledger.report(&mut two).unwrap().incidents, 2);
        ledger.discarded(7..8);
        assert!(ledger.retry_at().is_none() && ledger.failed_pages() == 0);
    }

    #[test]
    fn after_a_failed_sync_everything_written_since_the_last_good_one_is_suspect() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.written(0..4);
        ledger.sync_begins();
        ledger.synced();
        assert!(ledger.is_settled());
        ledger.written(10..12);
        ledger.sync_begins();
        ledger.written(20..21);
        ledger.sync_failure(failure(0..0).source, now);
        assert_eq!(ledger.suspects(), [10..12, 20..21]);
        ledger.dirty_again(10..12);
        ledger.written(10..12);
        ledger.written(20..21);
        assert!(ledger.needs_sync() && !ledger.is_settled());
        let mut cursor = 0;
        assert_eq!(ledger.report(&mut cursor).unwrap().last.pages, 10..21);
        ledger.sync_begins();
        ledger.synced();
        assert!(ledger.is_settled());
    }

    #[test]
    fn pauses_double_with_each_round_of_failures_and_end_with_success() {
        let mut ledger = Ledger::default();
        let mut now = Instant::now();
        for pause in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            for page in 0..3 {
                ledger.write_failed(failure(page..page + 1), now);
            }
            assert_eq!(ledger.retry_at(), Some(now + Duration::from_millis(pause)));
            now = ledger.retry_at().unwrap();
        }
        ledger.write_failed(failure(0..1), now);
        ledger.retry_soon();
        assert_eq!(ledger.retry_at(), Some(now + RETRY_PAUSES.0), "a thread waits");
        ledger.written(0..3);
        assert_eq!(ledger.retry_at(), None);
        ledger.write_failed(failure(0..1), now);
        assert_eq!(ledger.retry_at(), Some(now + RETRY_PAUSES.0));
    }
}
