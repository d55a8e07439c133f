//! A file of the storm: its views, its shadow, and operations that know what must come of them.
//!
//! Turns of records are taken in ascending order, so threads cannot block each other here. A thread
//! that holds a guard takes turns only if they are free: the owner of the turn may be waiting for
//! the guard.

use super::plan::{FilePlan, Plan, Rng};
use super::shadow::{ANY, Record, Shadow, Turn, Turns, content, describe, is_mixture, version_of};
use lowtide::advanced::OpenAdvanced as _;
use lowtide::{Error, OpenError, OpenOptions, Pager, Tenant, View};
use std::fs::File;
use std::ops::{Deref, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError, RwLock};

/// What is open of a file.
#[derive(Debug)]
pub(crate) struct Views {
    /// Two opens for writing, a clone of the first, and one that only reads.
    pub(crate) writers: [View; 3],
    pub(crate) reader: View,
}

#[derive(Debug)]
pub(crate) struct StormFile {
    shadow: Shadow,
    path: PathBuf,
    pub(crate) page: u64,
    pub(crate) order: u8,
    /// A thread that closes and opens it has it alone.
    pub(crate) views: RwLock<Option<Views>>,
    /// Held by the thread that changes the length.
    length: Mutex<()>,
    /// Bytes when the last change of length had ended.
    len: AtomicU64,
    /// The fewest bytes that it ever had.
    shortest: AtomicU64,
    /// The first page that was never stored to, in a file that begins as a hole.
    frontier: AtomicU64,
    pub(crate) fair: bool,
}

/// A store in a callback, or of a thread that has a guard.
const INSIDE: &str = "a store that may not wait";

/// What became of an operation that may be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Done,
    /// Another thread had a turn, or there is nothing to do it to.
    NotNow,
    /// An error that the device explains.
    Refused,
}

/// Bytes of pages, aligned for the file.
fn read_disk(path: &Path, at: u64, bytes: usize) -> Vec<u8> {
    let file = File::open(path).expect("the file is there");
    let (mut buffer, mut got) = (vec![0; bytes], 0);
    while got < bytes {
        match file.read_at(&mut buffer[got..], at + got as u64) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) => panic!("the file cannot be read: {error}"),
        }
    }
    buffer
}

impl Deref for StormFile {
    type Target = Shadow;

    fn deref(&self) -> &Shadow {
        &self.shadow
    }
}

impl StormFile {
    pub(crate) fn new(plan: &Plan, number: u64, of: &FilePlan, dir: &Path) -> Self {
        let path = dir.join(format!("storm{number}"));
        let (page, size) = (plan.page as u64, (plan.page as u64 / plan.records).max(64));
        let per_page = page / size;
        let total = of.pages * per_page;
        // A length that is no multiple of a page, and perhaps not of a sector.
        let begins = if of.short { total / 3 } else { total - total.min(1) };
        let version = u64::from(!of.hole);
        let mut bytes = vec![0; (begins * size) as usize];
        if !of.hole {
            for (index, record) in (0..).zip(bytes.chunks_mut(size as usize)) {
                content(number, index, 1, record);
            }
            std::fs::write(&path, &bytes).expect("the file can be written");
        }
        let records =
            (0..total).map(|index| Record::new(if index < begins { version } else { 0 })).collect();
        Self {
            shadow: Shadow { number, size, records },
            path,
            page,
            order: of.order,
            views: RwLock::new(None),
            length: Mutex::new(()),
            len: AtomicU64::new(begins * size),
            shortest: AtomicU64::new(begins * size),
            frontier: AtomicU64::new(if of.hole { 0 } else { u64::MAX }),
            fair: plan.behaviour.is_fair(),
        }
    }

    /// Opens it, with folios of an order.
    pub(crate) fn open(
        &self,
        pager: &Pager,
        tenant: Option<&Tenant>,
        order: u8,
    ) -> Result<Views, OpenError> {
        let mut options =
            OpenOptions::new().create_with_len(self.len.load(SeqCst)).folio_order(order);
        if let Some(tenant) = tenant {
            options = options.tenant(tenant);
        }
        let first = options.open(pager, &self.path)?;
        let second = options.open(pager, &self.path)?;
        let reader = OpenOptions::new().open(pager, &self.path)?;
        Ok(Views { writers: [first.clone(), first, second], reader })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len.load(SeqCst)
    }

    /// Pages that exist, a partial last one included.
    pub(crate) fn pages(&self) -> u64 {
        self.len().div_ceil(self.page)
    }

    /// Where a record is, in words.
    fn place(&self, index: u64) -> String {
        let (page, size, len) = (index * self.size / self.page, self.size, self.len());
        let shortest = self.shortest.load(SeqCst);
        format!(
            "page {page}, order {}, records of {size} bytes; the file has {len} bytes, and had \
             {shortest} at least",
            self.order
        )
    }

    /// Whether bytes may have been past the end at some time since the file began.
    pub(crate) fn was_shorter(&self, end: u64) -> bool {
        end > self.shortest.load(SeqCst)
    }

    /// The first page that was never stored to, in a file that begins as a hole.
    pub(crate) fn border(&self) -> Option<u64> {
        let border = self.frontier.load(SeqCst);
        (border < self.pages()).then_some(border)
    }

    /// A page to work on: half of the time one of few, so that threads meet. In a file that is a
    /// hole, one near the border of what was stored.
    pub(crate) fn some_page(&self, rng: &mut Rng) -> u64 {
        let pages = self.pages().max(1);
        let frontier = self.frontier.load(SeqCst);
        if frontier < pages && !rng.one_in(4) {
            let near = (2 << self.order).min(frontier + 1);
            return (frontier + 2).saturating_sub(1 + rng.below(near + 2)).min(pages - 1);
        }
        if rng.one_in(2) { rng.below(pages.div_ceil(16)) } else { rng.below(pages) }
    }

    fn records_of_page(&self, page: u64) -> Range<u64> {
        let per_page = self.page / self.size;
        page * per_page..(page + 1) * per_page
    }

    /// Compares bytes that were read with what they may be.
    pub(crate) fn check(&self, at: u64, bytes: &[u8], least: &[u64], how: &str) {
        let end = at + bytes.len() as u64;
        if let Some((index, what)) = self.wrong(at, bytes, least) {
            panic!("{how}: {what} ({})", self.place(index));
        }
        let known = self.records.len() as u64 * self.size;
        if end > known {
            let behind = &bytes[(known.max(at) - at) as usize..];
            assert!(
                behind.iter().all(|byte| *byte == 0),
                "{how}: bytes past the end are not zeroes"
            );
        }
    }

    /// Whether the device explains an error; fails if not.
    pub(crate) fn refused(&self, error: &Error, how: &str) -> Came {
        let explained = match error {
            Error::Read { .. }
            | Error::Write { .. }
            | Error::Timeout { .. }
            | Error::Grow { .. } => !self.fair,
            Error::Punch { .. } | Error::NameNotDurable { .. } => !self.fair,
            Error::OutOfBudget { .. } => !self.fair,
            _ => false,
        };
        assert!(explained, "{how} of file {}: {error}", self.number);
        Came::Refused
    }

    /// Stores to records `wanted`, and again what `around` bytes on either side hold.
    pub(crate) fn store(
        &self,
        view: &View,
        wanted: Range<u64>,
        around: [u64; 2],
        wait: bool,
    ) -> Came {
        let first = wanted.start.saturating_sub(u64::from(around[0] > 0));
        let end = wanted.end + u64::from(around[1] > 0);
        let Some(mut turns) = self.turns(first..end, wait) else { return Came::NotNow };
        let len = self.len();
        turns.retain(|(index, _)| (index + 1) * self.size <= len);
        if turns.last().is_none_or(|(last, _)| *last + 1 < wanted.end) {
            return Came::NotNow;
        }
        self.store_in_turn(view, turns, &wanted, around, if wait { "a store" } else { INSIDE })
    }

    fn store_in_turn(
        &self,
        view: &View,
        mut turns: Turns<'_>,
        wanted: &Range<u64>,
        around: [u64; 2],
        how: &str,
    ) -> Came {
        let mut bytes = Vec::with_capacity(turns.len() * self.size as usize);
        let mut at = wanted.start * self.size;
        let mut buffer = vec![0; self.size as usize];
        for (index, turn) in &mut turns {
            let record = &self.records[*index as usize];
            if wanted.contains(index) {
                let version = Record::next(turn);
                record.begin(turn, version);
                content(self.number, *index, version, &mut buffer);
                bytes.extend_from_slice(&buffer);
            } else if turn.version != ANY {
                content(self.number, *index, turn.version, &mut buffer);
                if *index < wanted.start {
                    let n = around[0].min(self.size - 1);
                    at -= n;
                    bytes.extend_from_slice(&buffer[(self.size - n) as usize..]);
                } else {
                    bytes.extend_from_slice(&buffer[..around[1].min(self.size - 1) as usize]);
                }
            }
        }
        let came = match view.write_at(at, &bytes) {
            Ok(()) => Came::Done,
            Err(error) => {
                let came = match error {
                    Error::Nested { .. } | Error::HeldHere { .. } if how == INSIDE => Came::Refused,
                    error => self.refused(&error, how),
                };
                for (index, turn) in turns.iter_mut().filter(|(index, _)| wanted.contains(index)) {
                    self.settle(view, *index, turn, "a store that failed");
                }
                return came;
            }
        };
        for (index, turn) in turns.iter_mut().filter(|(index, _)| wanted.contains(index)) {
            self.records[*index as usize].end(turn);
        }
        let frontier = self.frontier.load(SeqCst);
        if frontier != u64::MAX {
            let behind = (wanted.end * self.size).div_ceil(self.page);
            self.frontier.fetch_max(behind, SeqCst);
        }
        came
    }

    /// Looks which version a record is whose last step may have been done or not.
    fn settle(&self, view: &View, index: u64, turn: &mut Turn, how: &str) {
        let mut bytes = vec![0; self.size as usize];
        let read = view.read_at(index * self.size, &mut bytes).is_ok();
        self.shadow.settle(index, turn, read.then_some(&bytes), how);
    }

    /// Makes the file longer by storing past its end; what lies between is a hole.
    pub(crate) fn grow(&self, view: &View, rng: &mut Rng) -> Came {
        let Ok(_length) = self.length.try_lock() else { return Came::NotNow };
        let (len, total) = (self.len() / self.size, self.records.len() as u64);
        if len >= total {
            return Came::NotNow;
        }
        let first = (len + rng.pick(&[0, 0, 1, 7, 300])).min(total - 1);
        let end = (first + 1 + rng.below(20)).min(total);
        let Some(turns) = self.turns(first..end, true) else { return Came::NotNow };
        let came = self.store_in_turn(view, turns, &(first..end), [0, 0], "growing");
        let now = if came == Came::Done { end * self.size } else { view.len().max(self.len()) };
        // A failed one may have made the file longer, by any part of it.
        self.len.fetch_max(now / self.size * self.size, SeqCst);
        came
    }

    /// Makes the file longer or shorter. What it loses reads as zeroes when it is longer again.
    pub(crate) fn set_len(&self, view: &View, rng: &mut Rng) -> Came {
        let Ok(_length) = self.length.try_lock() else { return Came::NotNow };
        let (len, total) = (self.len() / self.size, self.records.len() as u64);
        if rng.one_in(2) {
            let new = (len + rng.below(40)).min(total);
            return match view.set_len(new * self.size) {
                Ok(()) => {
                    self.len.store(new * self.size, SeqCst);
                    Came::Done
                }
                Err(error) => self.refused(&error, "making a file longer"),
            };
        }
        let new = len - rng.below(1 + len.min(200) / 2);
        let Some(mut turns) = self.turns(new..len, true) else { return Came::NotNow };
        for (index, turn) in &mut turns {
            self.records[*index as usize].begin(turn, ANY);
        }
        self.shortest.fetch_min(new * self.size, SeqCst);
        // Half of the time what goes was stored a moment ago, and is longer again a moment later.
        let again = self.fair && new < len && rng.one_in(2);
        if again {
            let _ = view.write_at(new * self.size, &vec![0xEE; self.size as usize]);
        }
        let cut = view.set_len(new * self.size);
        if cut.is_ok() {
            self.len.store(new * self.size, SeqCst);
        }
        if again && cut.is_ok() && view.set_len(len * self.size).is_ok() {
            self.len.store(len * self.size, SeqCst);
            let mut bytes = vec![1; ((len - new) * self.size) as usize];
            let read = view.read_at(new * self.size, &mut bytes);
            let zeroes = bytes.iter().all(|byte| *byte == 0);
            assert!(
                zeroes || read.is_err(),
                "what was cut off is there when the file is longer again"
            );
        }
        for (index, turn) in &mut turns {
            let before = turn.before();
            self.records[*index as usize].found(turn, if cut.is_ok() { 0 } else { before });
        }
        cut.map_or_else(|error| self.refused(&error, "making a file shorter"), |()| Came::Done)
    }

    /// Makes records read as zeroes.
    pub(crate) fn punch(&self, view: &View, wanted: Range<u64>) -> Came {
        let Some(mut turns) = self.turns(wanted, true) else { return Came::NotNow };
        let len = self.len();
        turns.retain(|(index, _)| (index + 1) * self.size <= len);
        let Some(first) = turns.first().map(|(index, _)| *index) else { return Came::NotNow };
        let bytes = first * self.size..(first + turns.len() as u64) * self.size;
        for (index, turn) in &mut turns {
            self.records[*index as usize].begin(turn, 0);
        }
        let punched = view.punch(bytes);
        for (index, turn) in &mut turns {
            match &punched {
                Ok(()) => self.records[*index as usize].end(turn),
                Err(_) => self.settle(view, *index, turn, "a hole that was not made"),
            }
        }
        punched.map_or_else(|error| self.refused(&error, "making a hole"), |()| Came::Done)
    }

    /// Flushes everything.
    pub(crate) fn flush(&self, view: &View) -> Came {
        let ended: Vec<u64> = self.records.iter().map(Record::ended).collect();
        if let Err(error) = view.flush() {
            return self.refused(&error, "a flush");
        }
        self.records.iter().zip(ended).for_each(|(record, step)| record.is_durable(step));
        Came::Done
    }

    /// Flushes some pages, and compares them with what is in the file then.
    pub(crate) fn flush_and_look(&self, view: &View, pages: Range<u64>) -> Came {
        let records =
            self.records_of_page(pages.start).start..self.records_of_page(pages.end).start;
        let Some(mut turns) = self.turns(records, true) else { return Came::NotNow };
        if let Err(error) = view.flush_range(pages.start * self.page..pages.end * self.page) {
            return self.refused(&error, "a flush of a range");
        }
        let length = ((pages.end - pages.start) * self.page) as usize;
        let bytes = read_disk(&self.path, pages.start * self.page, length);
        for ((index, turn), bytes) in turns.iter_mut().zip(bytes.chunks(self.size as usize)) {
            if turn.version != ANY && version_of(self.number, *index, bytes) != Some(turn.version) {
                let what = describe(self.number, *index, bytes, &[turn.version]);
                panic!("on disk after a flush that said Ok: {what} (order {})", self.order);
            }
            let record = &self.records[*index as usize];
            record.is_durable(record.ended());
        }
        Came::Done
    }

    /// Discards pages, and finds out what they are now: what the file holds, and that is something
    /// that was written.
    pub(crate) fn discard(&self, view: &View, pages: Range<u64>, everything: bool) -> Came {
        let Ok(_length) = self.length.try_lock() else { return Came::NotNow };
        let pages = if everything { 0..self.pages() } else { pages };
        let records =
            self.records_of_page(pages.start).start..self.records_of_page(pages.end).start;
        let Some(mut turns) = self.turns(records, true) else { return Came::NotNow };
        // A flush that ends while the discard runs may have been before it or behind it.
        let mut possible = Vec::with_capacity(turns.len());
        for (index, turn) in &mut turns {
            let record = &self.records[*index as usize];
            possible.push(record.on_disk(turn));
            record.begin(turn, ANY);
        }
        let page = view.page_size() as u64;
        let asked = if everything { 0..u64::MAX } else { pages.start * page..pages.end * page };
        let came = match view.revert(asked) {
            Ok(_) => Came::Done,
            Err(error) => self.refused(&error, "a discard"),
        };
        // Folios that lie in the range as a whole are gone, so memory is what the file is.
        let folio = 1_u64 << self.order;
        let whole = pages.start.next_multiple_of(folio)..pages.end / folio * folio;
        let mut bytes = vec![0; self.size as usize];
        for ((index, turn), candidates) in turns.iter_mut().zip(possible) {
            let at = *index * self.size;
            if at + self.size > self.len() {
                self.records[*index as usize].found(turn, 0);
                continue;
            }
            let record = &self.records[*index as usize];
            if view.read_at(at, &mut bytes).is_err() {
                record.end(turn);
                continue;
            }
            if came == Came::Done && whole.contains(&(at / self.page)) {
                let disk = read_disk(&self.path, at, self.size as usize);
                assert!(
                    disk == bytes,
                    "a discard said Ok, and a page holds what the file does not: {} in memory, {} \
                     on disk",
                    describe(self.number, *index, &bytes, &candidates),
                    describe(self.number, *index, &disk, &candidates)
                );
            }
            let version = version_of(self.number, *index, &bytes);
            let known = version.is_some_and(|v| candidates.contains(&v));
            assert!(
                known || is_mixture(self.number, *index, &bytes, &candidates),
                "after a discard: {}",
                describe(self.number, *index, &bytes, &candidates)
            );
            record.found(turn, if known { version.unwrap_or(ANY) } else { ANY });
        }
        came
    }

    /// Closes all views and opens the file again, with folios of another order. What was stored is
    /// on the disk in between.
    pub(crate) fn reopen(&self, pager: &Pager, tenant: Option<&Tenant>, order: u8) -> Came {
        let Ok(mut views) = self.views.try_write() else { return Came::NotNow };
        let Some(open) = views.take() else { return Came::NotNow };
        let flushed = match open.writers[0].flush() {
            Ok(()) => Came::Done,
            Err(error) => self.refused(&error, "the flush before closing"),
        };
        drop(open);
        if flushed == Came::Done {
            self.look_at_disk("after the file was closed");
        }
        *views = Some(
            self.open(pager, tenant, order).expect("a file that was open can be opened again"),
        );
        flushed
    }

    /// Compares the whole file with the shadow. No thread may use it meanwhile.
    pub(crate) fn look_at_disk(&self, when: &str) {
        let bytes = std::fs::read(&self.path).expect("the file can be read");
        assert_eq!(bytes.len() as u64, self.len(), "{when}: the length of file {}", self.number);
        for (index, bytes) in (0..).zip(bytes.chunks(self.size as usize)) {
            let record = &self.records[index as usize];
            let turn = record.turn(true).expect("it was waited for");
            if turn.version != ANY && version_of(self.number, index, bytes) != Some(turn.version) {
                let what = describe(self.number, index, bytes, &[turn.version]);
                panic!("on disk {when}: {what} ({})", self.place(index));
            }
            record.is_durable(record.ended());
        }
    }

    /// For the end: writes everything, however many flushes that takes, and compares. A deadline of
    /// some milliseconds may pass many times on a busy disk before a flush comes through.
    pub(crate) fn finish(&self) {
        let views = self.views.read().unwrap_or_else(PoisonError::into_inner);
        let Some(views) = &*views else { return };
        let view = &views.writers[0];
        let flushed = (0..2000).map(|_| view.flush()).find(|flushed| flushed.is_ok() || self.fair);
        assert!(
            matches!(flushed, Some(Ok(()))),
            "the device is well again, and a flush says {flushed:?}"
        );
        self.look_at_disk("after the last flush");
    }
}
