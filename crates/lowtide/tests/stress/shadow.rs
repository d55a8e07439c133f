//! What each record of a file may be at any moment.
//!
//! A file is cut into records that lie within pages. Each change of a record is a *step*; its
//! *version* is the number of the step that stored it, and 0 is zeroes. A record's bytes follow
//! from file, place and version. A thread that changes a record has its *turn*. A reader notes the
//! last step that had ended before it read and the last that had begun afterwards: the record must
//! be, whole, what it was after one of the steps between.
//!
//! After some operations it is unknown which of several versions a record is (a store that failed,
//! while a discard runs): then the step's version is [`ANY`] until a thread with the turn has
//! looked.

use super::plan::mix;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A version that is not known.
pub(crate) const ANY: u64 = u64::MAX;
/// Steps that a record remembers for its readers.
const MEMORY: u64 = 8;

/// State that only the thread whose turn it is reads and changes.
#[derive(Debug)]
pub(crate) struct Turn {
    step: u64,
    pub(crate) version: u64,
    /// Steps since the last one that is surely durable, that one included, and their versions.
    log: Vec<(u64, u64)>,
}

impl Turn {
    /// The version after the last step that has ended.
    pub(crate) fn before(&self) -> u64 {
        self.log.last().map_or(0, |(_, version)| *version)
    }
}

/// A record's past.
#[derive(Debug)]
pub(crate) struct Record {
    turn: Mutex<Turn>,
    begun: AtomicU64,
    ended: AtomicU64,
    durable: AtomicU64,
    history: [AtomicU64; MEMORY as usize],
}

impl Record {
    pub(crate) fn new(version: u64) -> Self {
        let record = Self {
            turn: Mutex::new(Turn { step: version, version, log: vec![(version, version)] }),
            begun: AtomicU64::new(version),
            ended: AtomicU64::new(version),
            durable: AtomicU64::new(version),
            history: [const { AtomicU64::new(0) }; MEMORY as usize],
        };
        record.history[(version % MEMORY) as usize].store(version, SeqCst);
        record
    }

    /// Waits for the turn, or takes it only if it is free.
    pub(crate) fn turn(&self, wait: bool) -> Option<MutexGuard<'_, Turn>> {
        if !wait {
            return self.turn.try_lock().ok();
        }
        Some(self.turn.lock().unwrap_or_else(|failed| {
            // A thread has failed in the middle of its turn. What it stored is not in the log.
            let mut turn = PoisonError::into_inner(failed);
            self.found(&mut turn, ANY);
            turn
        }))
    }

    /// The version that the next stored step has.
    pub(crate) fn next(turn: &Turn) -> u64 {
        turn.step + 1
    }

    /// A step begins.
    pub(crate) fn begin(&self, turn: &mut Turn, version: u64) {
        turn.step += 1;
        turn.version = version;
        self.history[(turn.step % MEMORY) as usize].store(version, SeqCst);
        self.begun.store(turn.step, SeqCst);
    }

    /// It ends.
    pub(crate) fn end(&self, turn: &mut Turn) {
        let durable = self.durable.load(SeqCst);
        if let Some(last) = turn.log.iter().rposition(|(step, _)| *step <= durable) {
            turn.log.drain(..last);
        }
        turn.log.push((turn.step, turn.version));
        self.ended.store(turn.step, SeqCst);
    }

    /// Both: the record was found to be a version.
    pub(crate) fn found(&self, turn: &mut Turn, version: u64) {
        self.begin(turn, version);
        self.end(turn);
    }

    /// Versions that the record may have when what is in memory is lost.
    pub(crate) fn on_disk(&self, turn: &Turn) -> Vec<u64> {
        let durable = self.durable.load(SeqCst);
        let first = turn.log.iter().rposition(|(step, _)| *step <= durable).unwrap_or(0);
        turn.log[first..].iter().map(|(_, version)| *version).collect()
    }

    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(SeqCst)
    }

    /// What had ended before a flush is durable.
    pub(crate) fn is_durable(&self, step: u64) {
        self.durable.fetch_max(step, SeqCst);
    }

    /// Versions that a reader may see that began when `least` had ended; `None` if any.
    pub(crate) fn possible(&self, least: u64) -> Option<Vec<u64>> {
        let most = self.begun.load(SeqCst);
        let steps = least..=most;
        let seen: Vec<u64> = steps
            .map(|step| self.history[(step % MEMORY) as usize].load(SeqCst))
            .take(64)
            .collect();
        let overwritten = self.begun.load(SeqCst) - least >= MEMORY - 1;
        (!overwritten && !seen.contains(&ANY)).then_some(seen)
    }
}

/// Turns of neighbouring records.
pub(crate) type Turns<'a> = Vec<(u64, MutexGuard<'a, Turn>)>;

/// All records of a file or a region.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// A number of the file's own; of one with [`PACKS`], half of the records compress.
    pub(crate) number: u64,
    /// Bytes of a record.
    pub(crate) size: u64,
    pub(crate) records: Vec<Record>,
}

impl Shadow {
    /// Records that bytes touch.
    pub(crate) fn records_of(&self, bytes: &Range<u64>) -> Range<u64> {
        let total = self.records.len() as u64;
        (bytes.start / self.size).min(total)..bytes.end.div_ceil(self.size).min(total)
    }

    /// The steps that have ended, for a check of what is read from now on.
    pub(crate) fn least(&self, bytes: Range<u64>) -> Vec<u64> {
        self.records_of(&bytes).map(|index| self.records[index as usize].ended()).collect()
    }

    /// Compares bytes that were read with what they may be. Returns the first record that is wrong,
    /// and what is wrong with it.
    pub(crate) fn wrong(&self, at: u64, bytes: &[u8], least: &[u64]) -> Option<(u64, String)> {
        let range = at..at + bytes.len() as u64;
        let mut right = vec![0; self.size as usize];
        for (index, &least) in self.records_of(&range).zip(least) {
            let Some(due) = self.records[index as usize].possible(least) else { continue };
            let begin = index * self.size;
            let from = begin.max(range.start);
            let to = (begin + self.size).min(range.end);
            let found = &bytes[(from - at) as usize..(to - at) as usize];
            let seen = due.iter().any(|version| {
                content(self.number, index, *version, &mut right);
                right[(from - begin) as usize..(to - begin) as usize] == *found
            });
            if !seen {
                return Some((index, describe(self.number, index, found, &due)));
            }
        }
        None
    }

    /// Turns of records. `None` if another thread has one and `wait` is not set.
    pub(crate) fn turns(&self, records: Range<u64>, wait: bool) -> Option<Turns<'_>> {
        let records = records.start..records.end.min(self.records.len() as u64);
        records.map(|index| Some((index, self.records[index as usize].turn(wait)?))).collect()
    }

    /// A record whose last step may have been done or not is what `bytes` say, if they could be
    /// read.
    pub(crate) fn settle(&self, index: u64, turn: &mut Turn, bytes: Option<&[u8]>, how: &str) {
        let candidates = [turn.before(), turn.version];
        let found = bytes.map_or(ANY, |bytes| {
            let version = version_of(self.number, index, bytes);
            if candidates.contains(&ANY) || version.is_some_and(|v| candidates.contains(&v)) {
                return version.unwrap_or(ANY);
            }
            assert!(
                is_mixture(self.number, index, bytes, &candidates),
                "{how}: {}",
                describe(self.number, index, bytes, &candidates)
            );
            ANY
        });
        self.records[index as usize].found(turn, found);
    }
}

/// In a number: of each two records one compresses.
pub(crate) const PACKS: u64 = 1 << 15;

/// A record's bytes.
pub(crate) fn content(file: u64, index: u64, version: u64, into: &mut [u8]) {
    if version == 0 {
        into.fill(0);
        return;
    }
    let tag = mix(file << 48 ^ index.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 1);
    let base = mix(tag ^ version);
    let step = if file & PACKS != 0 && tag & 1 == 0 { 0 } else { 0xD6E8_FEB8_6659_FD93 };
    for (i, word) in into.chunks_mut(8).enumerate() {
        let value = match i {
            0 => version,
            1 => tag,
            _ => base.wrapping_add((i as u64).wrapping_mul(step)),
        };
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
}

/// The version that whole bytes of a record are.
pub(crate) fn version_of(file: u64, index: u64, bytes: &[u8]) -> Option<u64> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Some(0);
    }
    let version = u64::from_le_bytes(bytes[..8].try_into().ok()?);
    let mut right = vec![0; bytes.len()];
    content(file, index, version, &mut right);
    (right == bytes).then_some(version)
}

/// Whether each byte is that of one of the versions: what is left of a page that was stored to
/// while it was written.
pub(crate) fn is_mixture(file: u64, index: u64, bytes: &[u8], versions: &[u64]) -> bool {
    let mut matched = vec![false; bytes.len()];
    let mut right = vec![0; bytes.len()];
    for &version in versions {
        if version == ANY {
            return true;
        }
        content(file, index, version, &mut right);
        for (matched, (a, b)) in matched.iter_mut().zip(right.iter().zip(bytes)) {
            *matched |= a == b;
        }
    }
    matched.iter().all(|m| *m)
}

/// What is wrong with a record, in words.
pub(crate) fn describe(file: u64, index: u64, bytes: &[u8], due: &[u64]) -> String {
    let found = match version_of(file, index, bytes) {
        Some(0) => "zeroes".into(),
        Some(version) => format!("version {version}"),
        None if bytes.len() >= 16 => {
            let word =
                |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
            format!("no version: begins with {:#x} {:#x}", word(0), word(8))
        }
        None => "no version".into(),
    };
    format!("file {file} record {index}: {found}; due is one of {due:?}")
}
