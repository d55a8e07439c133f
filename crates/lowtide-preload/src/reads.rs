//! Reads of large files, and writes, as the program's threads note them (`--files`). Without that
//! option they are only counted, so that the summary can say what is left to the kernel.
//!
//! ```text
//!   read returns ──► table: which file is this descriptor? ──► ring ──► the keeper (`reading.rs`)
//!                        │ not known yet
//!                        └──► a look at the file; if it is large, a question to the keeper
//! ```
//!
//! **The table** has a word for each descriptor: nothing is known, its reads are left alone, or the
//! keeper's number of the file, with the page that was noted last. Nothing says when a number is
//! used again for another file, but for the calls of `opens.rs`, which clear the word. The keeper
//! looks at all descriptors now and then, and clears what is not true any more. Until then reads
//! may be noted of another file or of none: that costs a read of the device, and never a byte. Of a
//! file that is too small the word counts what is written to it, and when that may have made it
//! large, it is looked at again.
//!
//! **A page that is written** is in memory, and wanted, as one that is read is. What cannot be
//! dropped until the device has it is the concern of `behind.rs`.
//!
//! **The ring** has one word for a note: the file, the first page, and how many. To note is to draw
//! a ticket and to store the word in its place, whatever is there. So it waits for nothing, can be
//! interrupted, killed or begun again by a handler at every instruction, and what does not fit is
//! lost: the oldest. The keeper counts it.
//!
//! **The question** is asked once for a large file, at the first read of a descriptor: when it is
//! answered the keeper has the file open, so the program may close it. The thread waits for no more
//! than [`PATIENCE`]: a handler that reads, in a thread that was interrupted in `malloc`, must not
//! wait for a keeper that allocates.
//!
//! All of it is in memory that a fork wipes. The keeper is started at the beginning, and in a child
//! before `fork` returns, since a read may be made where no thread can be started.
//!
//! # Safety
//!
//! Descriptors are borrowed for system calls that change nothing but how the kernel reads ahead.

#![allow(unsafe_code)]

use crate::interpose::Errno;
use crate::judge;
use crate::line::{Answer, Question};
use crate::state::{self, State};
use crate::{behind, c_library, keeper, last, own, paths};
use libc::{FILE, c_int, off_t, ssize_t};
use lowtide_run::globs;
use lowtide_run::settings::Settings;
use rustix::fs::{FileType, OFlags, Stat, fcntl_getfl, fstat};
use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use std::time::Duration;

/// Descriptors that are known by their numbers. Reads of others are seen by the keeper alone.
pub(crate) const DESCRIPTORS: usize = 4096;
/// Notes that wait at most.
const NOTES: usize = 8192;
/// How long a read waits for the keeper.
const PATIENCE: Duration = Duration::from_millis(100);

/// In the table: nothing is known.
const UNKNOWN: u64 = 0;
/// In the table: its reads are left alone.
const LEFT: u64 = FILE;
/// In the table: the same, until the keeper has time.
const LATE: u64 = FILE | 1 << FILE_BITS;
/// In the table: the file is too small. The word counts bytes that were written to it since.
const GROWS: u64 = FILE - 1;
/// In the table, where reads are not kept: they are counted.
const COUNTED: u64 = 1;
/// The part of a word that says which file it is: one more than the keeper's number.
const FILE: u64 = (1 << FILE_BITS) - 1;
const FILE_BITS: u32 = 16;
const PAGE_BITS: u32 = 34;
const COUNT_BITS: u32 = 64 - FILE_BITS - PAGE_BITS;

/// Files that have numbers.
pub(crate) const FILES: usize = GROWS as usize - 1;

/// A read of a file, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// The keeper's number of the file.
    pub(crate) file: usize,
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl Note {
    /// As a word, which is not zero. What has no place in it is left out.
    const fn pack(self) -> Option<u64> {
        if self.file >= FILES || self.first >> PAGE_BITS != 0 || self.count >> COUNT_BITS != 0 {
            return None;
        }
        let (file, first) = (self.file as u64 + 1, self.first);
        Some(file | first << FILE_BITS | self.count << (FILE_BITS + PAGE_BITS))
    }

    fn unpack(word: u64) -> Option<Self> {
        let file = (word & FILE).checked_sub(1)? as usize;
        let first = word >> FILE_BITS & ((1 << PAGE_BITS) - 1);
        Some(Self { file, first, count: word >> (FILE_BITS + PAGE_BITS) })
    }
}

/// What the program's threads note. All zeroes is: nothing.
#[derive(Debug)]
pub(crate) struct Noted {
    table: [AtomicU64; DESCRIPTORS],
    ring: [AtomicU64; NOTES],
    /// Tickets that were drawn.
    drawn: AtomicU64,
    /// Those of them that the keeper has looked at.
    taken: AtomicU64,
    /// Notes that were overwritten.
    lost: AtomicU64,
    /// Bytes that were read and are not kept, and those that were written.
    unkept: [AtomicU64; 2],
    /// What was written.
    pub(crate) written: behind::Written,
    /// The keeper sleeps until it is rung.
    sleeps: AtomicU32,
}

impl Noted {
    fn word(&self, fd: c_int) -> Option<&AtomicU64> {
        self.table.get(usize::try_from(fd).ok()?)
    }

    /// Nothing is known of a descriptor from now on.
    pub(crate) fn clear(&self, fd: c_int) {
        if let Some(word) = self.word(fd) {
            word.store(UNKNOWN, Relaxed);
        }
    }

    /// The keeper has time: what it did not answer may be asked again.
    pub(crate) fn clear_late(&self) {
        for word in &self.table {
            if word.load(Relaxed) == LATE {
                let _ = word.compare_exchange(LATE, UNKNOWN, Relaxed, Relaxed);
            }
        }
    }

    /// The file with this number is another one from now on.
    pub(crate) fn clear_file(&self, file: usize) {
        for word in &self.table {
            let known = word.load(Relaxed);
            if known & FILE == file as u64 + 1 {
                let _ = word.compare_exchange(known, UNKNOWN, Relaxed, Relaxed);
            }
        }
    }

    /// Puts a note into the ring; whether the keeper sleeps.
    fn put(&self, note: Note) -> bool {
        let Some(word) = note.pack() else { return false };
        let ticket = self.drawn.fetch_add(1, Relaxed);
        self.ring[ticket as usize % NOTES].store(word, Release);
        self.sleeps.load(SeqCst) != 0 && self.sleeps.swap(0, SeqCst) != 0
    }

    /// Calls `each` with the notes since the last call; how many there were.
    pub(crate) fn take(&self, mut each: impl FnMut(Note)) -> usize {
        let (drawn, taken) = (self.drawn.load(Acquire), self.taken.load(Relaxed));
        let first = taken.max(drawn.saturating_sub(NOTES as u64));
        self.lost.fetch_add(first - taken, Relaxed);
        for ticket in first..drawn {
            // One that is not stored yet is found a round later.
            if let Some(note) = Note::unpack(self.ring[ticket as usize % NOTES].swap(0, Acquire)) {
                each(note);
            }
        }
        self.taken.store(drawn, Relaxed);
        (drawn - first) as usize
    }

    /// Notes that were lost.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Bytes of large files that were read, and written, where they are not kept.
    pub(crate) fn unkept(&self) -> Unkept {
        let [read, written] = [Way::Read, Way::Written].map(|way| &self.unkept[way as usize]);
        Unkept { read: read.load(Relaxed), written: written.load(Relaxed) }
    }

    /// The keeper is about to sleep until it is rung. Returns whether there is something to do.
    pub(crate) fn sleep(&self) -> bool {
        self.sleeps.store(1, SeqCst);
        self.drawn.load(SeqCst) != self.taken.load(Relaxed)
    }
}

/// Bytes of a stream that are noted together: to ask where it is costs more than a small read.
const STREAM: usize = 16 << 10;

thread_local! {
    /// The stream that this thread has read last, and bytes of it that were not noted.
    static GIVEN: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// What was done with bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Written,
}

/// Bytes of large files that are not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unkept {
    pub(crate) read: u64,
    pub(crate) written: u64,
}

/// Where that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At the descriptor's own place, which is behind it now.
    Place,
    /// From this byte on; a negative one is the descriptor's own place.
    At(off_t),
}

/// Reads are noted. Set before the program's first instruction.
static WANTED: AtomicBool = AtomicBool::new(false);

/// The state, if reads are noted.
fn noting() -> Option<(&'static State, &'static Settings)> {
    if WANTED.load(Relaxed) { state::get() } else { None }
}

/// Starts the keeper, if reads are kept, before the program's first instruction or before `fork`
/// returns in a child.
pub(crate) fn begin() {
    WANTED.store(c_library::NOTES_READS, Relaxed);
    start();
}

/// The same in a child.
pub(crate) fn start() {
    if let Some((state, _)) = noting().filter(|(_, settings)| settings.files) {
        let _errno = Errno::save();
        let _ = state.line.ask_or_start(Question::Nothing, keeper::begin);
        last::prepare(state);
    }
}

/// The program has opened a file, or whatever it is.
pub(crate) fn opened(fd: c_int) {
    if let Some((state, _)) = noting() {
        state.noted.clear(fd);
    }
}

/// A read or a write has returned. `end` says where it was made.
#[inline]
pub(crate) fn done(fd: c_int, got: ssize_t, end: End, way: Way) {
    if got > 0 && WANTED.load(Relaxed) {
        note(fd, got as u64, end, way);
    }
}

unsafe extern "C" {
    pub(crate) fn fileno_unlocked(stream: *mut FILE) -> c_int;
}

/// A stream of the C library has given bytes out, which it read before, or just now; or it has
/// taken bytes, which it writes now, or later.
#[inline]
pub(crate) fn stream_done(stream: *mut FILE, bytes: usize, way: Way) {
    if bytes > 0 && WANTED.load(Relaxed) {
        note_stream(stream, bytes, way);
    }
}

fn note_stream(stream: *mut FILE, bytes: usize, way: Way) {
    let (of, before) = GIVEN.get();
    let before = if of == stream.addr() { before } else { 0 };
    let all = before.saturating_add(bytes);
    if all < STREAM {
        GIVEN.set((stream.addr(), all));
        return;
    }
    GIVEN.set((stream.addr(), 0));
    let _errno = Errno::save();
    // SAFETY: the program has just used it.
    let fd = unsafe { fileno_unlocked(stream) };
    note(fd, all as u64, End::Place, way);
}

fn note(fd: c_int, got: u64, end: End, way: Way) {
    let Some((state, settings)) = noting() else { return };
    let Some(word) = state.noted.word(fd) else { return };
    let mut known = word.load(Relaxed);
    if known & FILE == LEFT || (settings.files && !state.line.is_kept()) {
        return;
    }
    if known & FILE == GROWS {
        if way == Way::Read {
            return;
        }
        let written = (known >> FILE_BITS) + got;
        if written < settings.threshold {
            word.store(GROWS | written << FILE_BITS, Relaxed);
            return;
        }
        known = UNKNOWN;
    }
    let _errno = Errno::save();
    if known == UNKNOWN {
        known = judge(state, settings, fd);
        word.store(known, Relaxed);
        if [LEFT, GROWS].contains(&(known & FILE)) {
            return;
        }
    }
    if !settings.files {
        state.noted.unkept[way as usize].fetch_add(got, Relaxed);
        return;
    }
    let Some(end) = end_of(fd, got, end) else {
        // It is no file any more.
        word.store(UNKNOWN, Relaxed);
        return;
    };
    let page = rustix::param::page_size() as u64;
    let (first, behind) = ((end - got) / page, end.div_ceil(page));
    // A page that is read or written in small parts is noted once.
    let noted = (behind - 1) << FILE_BITS;
    if behind - first == 1 && known & !FILE == noted {
        return;
    }
    word.store(known & FILE | noted, Relaxed);
    let file = (known & FILE) as usize - 1;
    let mut at = first;
    while at < behind {
        let count = (behind - at).min((1 << COUNT_BITS) - 1);
        if state.noted.put(Note { file, first: at, count }) {
            state.line.ring();
        }
        at += count;
    }
    if way == Way::Written {
        // Whole pages: what a small write makes dirty.
        state.noted.written.add(fd, (behind - first) * page, settings.max);
    }
}

/// The byte behind what was read or written.
fn end_of(fd: c_int, got: u64, end: End) -> Option<u64> {
    let place = match end {
        End::At(offset) if offset >= 0 => offset.saturating_add_unsigned(got),
        // SAFETY: asks for a number.
        End::At(_) | End::Place => unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) },
    };
    u64::try_from(place).ok().filter(|end| *end >= got)
}

/// Whether reads and writes of a descriptor are noted, of which nothing is known, as a word of the
/// table.
fn judge(state: &State, settings: &Settings, fd: c_int) -> u64 {
    // SAFETY: the program has just used it. If it is closed, the calls fail.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let Some(stat) = fstat(file).ok().filter(is_regular) else { return LEFT };
    let is_large = u64::try_from(stat.st_size).is_ok_and(|size| size >= settings.threshold);
    let is_named = || globs::budget_of(settings, &paths::path_of(fd)).is_some();
    if !is_large && (settings.maps.is_empty() || !is_named()) {
        return GROWS;
    }
    let Ok(identity) = judge::of_file(file) else { return LEFT };
    let flags = fcntl_getfl(file).unwrap_or(OFlags::DIRECT);
    if flags.contains(OFlags::DIRECT) {
        return LEFT;
    }
    if !settings.files {
        return COUNTED;
    }
    let asked = Question::Read { fd, thread: own::number(), identity };
    match state.line.ask_within(asked, PATIENCE) {
        Some(Answer::Ticket(number)) => {
            // The advice belongs to the open file, which others may have, and outlives this
            // process: as of a standard stream, which it has from its parent.
            let is_read = flags & OFlags::RWMODE != OFlags::WRONLY;
            if is_read && !settings.keep_read_ahead && fd > libc::STDERR_FILENO {
                // SAFETY: advice that changes no byte.
                unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_RANDOM) };
            }
            u64::from(number)
        }
        Some(_) => LEFT,
        None => LATE,
    }
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wiped;
    use std::thread;

    fn noted() -> &'static Noted {
        // SAFETY: zeroes are such a value, and the memory is never unmapped.
        unsafe { wiped::map::<Noted>(1).expect("memory").as_ref() }
    }

    // SAFETY: atomics.
    unsafe impl wiped::Zeroed for Noted {}

    #[test]
    fn notes_are_words_and_come_back() {
        for note in [
            Note { file: 0, first: 0, count: 1 },
            Note { file: FILES - 1, first: (1 << 34) - 1, count: (1 << 14) - 1 },
        ] {
            assert_eq!(Note::unpack(note.pack().expect("it fits")), Some(note));
        }
        assert_eq!(Note { file: 1, first: 1 << 34, count: 1 }.pack(), None);
        assert_eq!(Note { file: FILES, first: 1, count: 1 }.pack(), None);
        assert_eq!(Note::unpack(0), None);
    }

    #[test]
    fn what_does_not_fit_is_lost_the_oldest_first_and_counted() {
        let noted = noted();
        for first in 0..NOTES as u64 + 10 {
            noted.put(Note { file: 3, first, count: 1 });
        }
        let mut found = Vec::new();
        assert_eq!(noted.take(|note| found.push(note.first)), NOTES);
        assert_eq!(found, (10..NOTES as u64 + 10).collect::<Vec<_>>());
        assert_eq!(noted.lost(), 10);
        assert_eq!(noted.take(|note| panic!("{note:?}")), 0);
    }

    #[test]
    fn threads_note_at_the_same_time_and_the_keeper_is_rung_once() {
        let noted = noted();
        assert!(!noted.sleep());
        let rung = AtomicU32::new(0);
        thread::scope(|scope| {
            for file in 0..4 {
                let rung = &rung;
                scope.spawn(move || {
                    for first in 0..1000 {
                        rung.fetch_add(noted.put(Note { file, first, count: 2 }).into(), Relaxed);
                    }
                });
            }
        });
        assert_eq!(rung.into_inner(), 1);
        assert!(noted.sleep(), "there is something to do");
        let mut sums = [0; 4];
        assert_eq!(noted.take(|note| sums[note.file] += note.first), 4000);
        assert_eq!(sums, [999 * 500; 4]);
    }
}
