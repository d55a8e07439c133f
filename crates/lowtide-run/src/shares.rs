//! One budget for a program and all that it starts.
//!
//! The processes of a tree share a table, a file in memory ([`place`](crate::place)). Each budget
//! of each process has a slot there. Its keeper writes what the process *has*, what it *wants* and
//! what it *may* have, reads the others, and sets its own limit:
//!
//! ```text
//!   fair   what max-min fairness gives it: who wants less than an even part has what it wants, and
//!          a little more, and the others divide the rest evenly
//!   limit  = min(fair, budget − what the others have or may have)
//! ```
//!
//! So a process that comes late begins with what is free, and grows as the others come down to
//! their parts: the sum does not exceed the budget meanwhile. Every process computes the same
//! parts from the same table, and no process waits for another.
//!
//! **Two that grow at once** could both take what is free. So a process writes what it will have
//! *first*, looks again, and takes back what is too much. Of several the one that wrote last sees
//! all others: it cannot have too much, and so they have not together.
//!
//! **Who lives.** A slot is a byte of the file that its process has locked. The kernel gives the
//! lock up when the process ends, however it ends; then the slot is free, and what it had is the
//! others'.
//!
//! **The file** is made by the first process that keeps a mapping, and removed by the last one that
//! ends in order. It grows with the slots that are in use. Where something else removes it (the end
//! of a user's session does), those that have slots look for the one that others would find.

use crate::files::{Files, OfFiles};
use crate::place::TableFile;
use lowtide_sys::page_cache::{Advice, advise, dont_fork};
use lowtide_sys::shared::{Rights, SharedMapping, Sharing};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::thread;
use std::time::{Duration, Instant};

/// Slots by which the file grows, and the most that it has.
const PIECE: usize = 256;
const MOST: usize = 64 * PIECE;
/// What a process gets beyond what it wants at most: it may want more before it looks again.
const ROOM: u64 = 8 << 20;
/// How long a process tries to come to the table while others remove it.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);
/// Time between two looks whether the file is there still.
const LOOK: Duration = Duration::from_secs(1);

/// A budget of a process. All zeroes is a free slot.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Slot {
    /// One more than the number of the budget.
    number: AtomicU64,
    wants: AtomicU64,
    has: AtomicU64,
    /// Its limit, or a larger one that it is about to set.
    may: AtomicU64,
    pub(crate) files: OfFiles,
}

/// What the file begins with, as large as a slot: the first place is no slot.
#[derive(Debug)]
#[repr(C)]
struct Head {
    /// Places that were used so far, this one included.
    used: AtomicUsize,
    unused: [AtomicU64; size_of::<Slot>() / 8 - 1],
}

const _: () = assert!(size_of::<Head>() == size_of::<Slot>());

const fn bytes_of(slots: usize) -> usize {
    slots * size_of::<Slot>()
}

/// The table itself.
#[derive(Debug)]
pub(crate) struct Table {
    file: TableFile,
    mapping: SharedMapping,
}

impl Table {
    #[expect(unsafe_code, reason = "memory that other processes change")]
    fn head(&self) -> &Head {
        // SAFETY: the mapping begins with it, and lives as long as `self`. Any bytes are valid. The
        // file has this many: it is not cut, since only owners of this library open it.
        unsafe { &*self.mapping.as_ptr().cast::<Head>() }
    }

    /// The places that were used so far. The first is none of a process.
    #[expect(unsafe_code, reason = "memory that other processes change")]
    pub(crate) fn slots(&self) -> &[Slot] {
        let used = self.head().used.load(SeqCst).clamp(1, MOST);
        // SAFETY: as above. The file has grown before a place is used.
        unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().cast::<Slot>(), used) }
    }

    /// Whether another process has a slot.
    pub(crate) fn is_taken(&self, slot: usize) -> bool {
        self.file.is_taken(slot)
    }
}

/// The table, as one process sees it.
#[derive(Debug)]
pub struct Shares {
    path: PathBuf,
    table: Arc<Table>,
    /// For threads that say what this process has of files.
    files: Arc<Files>,
    /// Slots of this process, by the number of the budget.
    own: BTreeMap<usize, usize>,
    looked: Instant,
}

impl Shares {
    /// Opens the table, and takes a slot for the first budget.
    ///
    /// # Errors
    /// Those of the file; that there is no room for it; that a process which removes it does not
    /// go on, after a second.
    pub fn open(path: &Path) -> io::Result<Self> {
        let until = Instant::now() + PATIENCE;
        loop {
            let file = TableFile::open(path, bytes_of(PIECE) as u64)?;
            if let Some(shares) = Self::begin(path, file)? {
                return Ok(shares);
            }
            if Instant::now() >= until {
                let why = "a process that removes the table of shares does not go on";
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Takes the first slot; `None` if the file is removed.
    fn begin(path: &Path, file: TableFile) -> io::Result<Option<Self>> {
        if file.is_going() {
            return Ok(None);
        }
        // Longer than the file: what is past its end is not touched before it has grown.
        let (whole, sharing) = (bytes_of(MOST), Sharing::Shared);
        let mapping = SharedMapping::map(file.file(), 0, whole, Rights::ReadWrite, sharing, false)?;
        dont_fork(mapping.addresses())?;
        advise(mapping.addresses(), Advice::DontDump)?;
        let table = Arc::new(Table { file, mapping });
        let (path, own, files) = (path.to_owned(), BTreeMap::new(), Arc::default());
        let mut shares = Self { path, table, files, own, looked: Instant::now() };
        match shares.join(0) {
            Err(_) if shares.table.file.is_going() => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(shares.table.file.is_there().then_some(shares)),
        }
    }

    fn slots(&self) -> &[Slot] {
        self.table.slots()
    }

    /// For threads that say what this process has of files. It says nothing after this has ended.
    pub const fn files(&self) -> &Arc<Files> {
        &self.files
    }

    /// Takes a slot for a budget.
    ///
    /// # Errors
    /// Those of the locks; that there is no room for more slots.
    pub fn join(&mut self, budget: usize) -> io::Result<()> {
        if self.own.contains_key(&budget) {
            return Ok(());
        }
        let own: BTreeSet<usize> = self.own.values().copied().collect();
        for at in (1..MOST).filter(|at| !own.contains(at)) {
            if !self.table.file.take(at)? {
                continue;
            }
            self.table.file.grow(bytes_of((at + 1).next_multiple_of(PIECE)) as u64)?;
            self.table.head().used.fetch_max(at + 1, SeqCst);
            let slot = &self.slots()[at];
            for word in [&slot.has, &slot.wants, &slot.may] {
                word.store(0, SeqCst);
            }
            slot.files.clear();
            slot.number.store(budget as u64 + 1, SeqCst);
            if self.own.is_empty() {
                self.files.set(Some((Arc::clone(&self.table), at)));
            }
            self.own.insert(budget, at);
            return Ok(());
        }
        Err(io::Error::other("too many processes share a budget"))
    }

    /// What other processes want of a budget, and what they have of it, or may have.
    fn of_others(&self, budget: usize, own: usize) -> (Vec<u64>, u64) {
        let (mut wants, mut taken) = (Vec::new(), 0_u64);
        for (at, slot) in self.slots().iter().enumerate().skip(1) {
            let is_of_it = at != own && slot.number.load(SeqCst) == budget as u64 + 1;
            if is_of_it && self.table.is_taken(at) {
                wants.push(slot.wants.load(Relaxed));
                let may = slot.may.load(SeqCst);
                taken = taken.saturating_add(may.max(slot.has.load(Relaxed)));
            }
        }
        (wants, taken)
    }

    /// Says what this process has of a budget and wants of it, and returns what it may have of
    /// `max` bytes from now on, and how many processes share them. If that is less than before,
    /// others count on it only when it has [`settled`](Self::settle) for it.
    ///
    /// Nothing, for a budget without a slot.
    pub fn divide(&self, budget: usize, max: u64, wants: u64, has: u64) -> (u64, usize) {
        let Some(&own) = self.own.get(&budget) else { return (0, 1) };
        let slot = &self.slots()[own];
        slot.wants.store(wants, Relaxed);
        slot.has.store(has, Relaxed);
        let (mut all, taken) = self.of_others(budget, own);
        let sharing = all.len() + 1;
        all.insert(0, wants);
        let fair = if sharing == 1 { max } else { part_of_first(max, &all) };
        let limit = fair.min(max.saturating_sub(taken));
        let before = slot.may.load(SeqCst);
        let limit = if limit <= before { limit } else { self.grow(budget, own, max, limit) };
        (limit, sharing)
    }

    /// Takes up to `limit` bytes, which were free a moment ago.
    fn grow(&self, budget: usize, own: usize, max: u64, limit: u64) -> u64 {
        let may = &self.slots()[own].may;
        let before = may.swap(limit, SeqCst);
        let (_, taken) = self.of_others(budget, own);
        let limit = limit.min(max.saturating_sub(taken)).max(before);
        may.store(limit, SeqCst);
        limit
    }

    /// Says what the limit of this process is now.
    pub fn settle(&self, budget: usize, limit: u64) {
        if let Some(&own) = self.own.get(&budget) {
            self.slots()[own].may.store(limit, SeqCst);
        }
    }

    /// Looks now and then whether other processes would find the file, and goes to the one that
    /// they would find. Returns whether it is another one now: its descriptor, too.
    pub fn follow(&mut self) -> bool {
        if self.looked.elapsed() < LOOK {
            return false;
        }
        self.looked = Instant::now();
        if self.table.file.is_there() {
            return false;
        }
        let Ok(mut other) = Self::open(&self.path) else { return false };
        for (&budget, &own) in &self.own {
            if other.join(budget).is_ok() {
                other.settle(budget, self.slots()[own].may.load(SeqCst));
            }
        }
        let files = other.files.table();
        other.files = Arc::clone(&self.files);
        *self = other;
        self.files.set(files);
        true
    }

    /// Its open file. While a process has it open, the slots are taken: a child of `fork` that does
    /// not share closes it.
    pub fn file(&self) -> &File {
        self.table.file.file()
    }

    /// The process ends: removes the file if no other uses it.
    pub fn leave(&self) {
        self.table.file.remove_if_unused();
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        self.files.set(None);
    }
}

/// What the first of some processes may have, by max-min fairness, and a little of what none of
/// them wants.
fn part_of_first(max: u64, wants: &[u64]) -> u64 {
    let mut sorted = wants.to_vec();
    sorted.sort_unstable();
    let (mut left, mut count) = (max, sorted.len() as u64);
    for want in sorted {
        if want > left / count {
            return wants[0].min(left / count);
        }
        left -= want;
        count -= 1;
        if count == 0 {
            break;
        }
    }
    wants[0] + (left / wants.len() as u64).min(ROOM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wants_little_has_it_and_the_others_divide_the_rest() {
        assert_eq!(part_of_first(100, &[500]), 100);
        assert_eq!(part_of_first(100, &[10]), 100);
        assert_eq!(part_of_first(100, &[500, 500]), 50);
        assert_eq!(part_of_first(100, &[500, 10]), 90);
        assert_eq!(part_of_first(100, &[10, 500]), 10);
        assert_eq!(part_of_first(100, &[20, 30, 500, 500]), 20);
        assert_eq!(part_of_first(100, &[500, 30, 20, 500]), 26);
        assert_eq!(part_of_first(100, &[0, 0]), 50);
    }

    #[test]
    fn parts_never_exceed_the_budget() {
        let mut seed = 3_u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..2000 {
            let mut wants: Vec<u64> = (0..1 + draw(6)).map(|_| draw(200)).collect();
            let mut sum = 0;
            for _ in 0..wants.len() {
                sum += part_of_first(100, &wants);
                wants.rotate_left(1);
            }
            assert!(sum <= 100, "{wants:?}: {sum}");
        }
    }

    const MAX: u64 = 100 << 20;

    #[test]
    fn processes_come_down_to_their_parts_and_the_sum_stays_within() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        let mut first = Shares::open(&path).unwrap();
        assert_eq!(first.divide(0, MAX, u64::MAX, MAX), (MAX, 1), "alone");
        let second = Shares::open(&path).unwrap();
        assert_eq!(second.divide(0, MAX, u64::MAX, 0), (0, 2), "the first has everything yet");
        assert_eq!(first.divide(0, MAX, u64::MAX, 1 << 20), (MAX / 2, 2));
        assert_eq!(second.divide(0, MAX, u64::MAX, 0), (0, 2), "the first has it, or may have it");
        first.settle(0, 60 << 20);
        assert_eq!(second.divide(0, MAX, u64::MAX, 0), (40 << 20, 2));
        first.settle(0, MAX / 2);
        assert_eq!(first.divide(0, MAX, u64::MAX, 55 << 20), (MAX / 2, 2));
        assert_eq!(second.divide(0, MAX, u64::MAX, 40 << 20), (45 << 20, 2), "what the first has");
        // Another budget is another.
        first.join(3).unwrap();
        assert_eq!(first.divide(3, MAX, u64::MAX, 0), (MAX, 1));
        second.leave();
        assert!(path.exists(), "the first is there");
        drop(second);
        assert_eq!(first.divide(0, MAX, u64::MAX, 50 << 20), (MAX, 1), "the other has ended");
        first.leave();
        assert!(!path.exists());
        // A table that was removed is made again.
        drop(first);
        assert_eq!(Shares::open(&path).unwrap().divide(0, MAX, 1, 1).0, MAX);
    }

    #[test]
    fn of_processes_that_find_the_same_bytes_free_only_one_gets_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        let [first, second, third] = [(); 3].map(|()| Shares::open(&path).unwrap());
        first.settle(0, 40 << 20);
        // Both have seen that 60 MiB are free.
        let grow = |shares: &Shares, most| shares.grow(0, shares.own[&0], MAX, most);
        assert_eq!(grow(&second, 50 << 20), 50 << 20);
        assert_eq!(grow(&third, 50 << 20), 10 << 20);
        assert_eq!(third.slots()[third.own[&0]].may.load(SeqCst), 10 << 20);
        // What a process had it keeps, also where others have more than there is.
        first.settle(0, MAX);
        assert_eq!(grow(&third, 20 << 20), 10 << 20);
    }

    #[test]
    fn a_process_that_is_stopped_while_it_removes_the_table_stops_no_other_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        let stopped = TableFile::open(&path, 64).unwrap();
        std::fs::hard_link(&path, dir.path().join("it is there still")).unwrap();
        stopped.remove_if_unused();
        std::fs::hard_link(dir.path().join("it is there still"), &path).unwrap();
        assert_eq!(Shares::open(&path).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(stopped);
        Shares::open(&path).unwrap();
    }

    #[test]
    fn a_table_that_something_else_removed_is_left_for_the_one_that_others_find() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        let mut first = Shares::open(&path).unwrap();
        first.divide(0, MAX, u64::MAX, 0);
        std::fs::remove_file(&path).unwrap();
        let second = Shares::open(&path).unwrap();
        first.looked = Instant::now().checked_sub(LOOK).unwrap();
        assert!(first.follow());
        assert_eq!(second.divide(0, MAX, u64::MAX, 0), (0, 2), "the first has everything yet");
        assert!(!first.follow());
    }

    #[test]
    fn there_is_a_slot_for_each_of_some_thousand_budgets() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        let mut shares = Shares::open(&path).unwrap();
        for budget in 0..3 * PIECE {
            shares.join(budget).unwrap();
            assert_eq!(shares.divide(budget, MAX, MAX, 0), (MAX, 1));
        }
    }
}
