//! One budget for a program and all that it starts.
//!
//! The processes of a tree share a table, a file in memory whose path is in their environment. Each
//! budget of each process has a slot there. Its keeper writes what the process *has* and what it
//! *wants*, reads the others, and sets its own limit:
//!
//! ```text
//!   fair   what max-min fairness gives it: who wants less than an even part has what it wants,
//!          and the others divide the rest evenly
//!   limit  = min(fair, budget − what the others have)
//! ```
//!
//! So a process that comes late begins with what is free, and grows as the others come down to
//! their parts: the sum does not exceed the budget meanwhile. Every process computes the same
//! parts from the same table, and no process waits for another.
//!
//! **Who lives.** A slot is a byte of the file that its process has locked
//! ([`lowtide_sys::locks`]). The kernel gives the lock up when the process ends, however it ends;
//! then the slot is free, and what it had is the others'.
//!
//! **The file** is made by the first process that keeps a mapping, and removed by the last one that
//! ends in order. What killed processes leave is removed by the next `lowtide run`.

use lowtide_sys::locks::{is_locked, try_lock};
use lowtide_sys::page_cache::{Advice, advise, dont_fork};
use lowtide_sys::shared::{Access, SharedMapping, Sharing};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, stat};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Budgets of processes that may share.
const SLOTS: usize = 1024;
/// What a process may have at the least, also where the others have everything.
const LEAST: u64 = 256 << 10;
/// How often opening is tried, beside a process that removes the file.
const ATTEMPTS: u32 = 10;

/// A budget of a process. All zeroes is a free slot.
#[derive(Debug, Default)]
#[repr(C)]
struct Slot {
    /// One more than the number of the budget.
    number: AtomicU64,
    wants: AtomicU64,
    has: AtomicU64,
    unused: AtomicU64,
}

const BYTES: usize = SLOTS * size_of::<Slot>();

/// The table, as one process sees it.
#[derive(Debug)]
pub struct Shares {
    path: PathBuf,
    /// Its open file has the locks.
    file: File,
    table: SharedMapping,
    /// Slots of this process, by the number of the budget.
    own: BTreeMap<usize, usize>,
}

impl Shares {
    /// Opens the table, and takes a slot for the first budget.
    ///
    /// # Errors
    /// Those of the file; that all slots are taken.
    pub fn open(path: &Path) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
            let found = fstat(&file)?;
            if found.st_uid != rustix::process::geteuid().as_raw() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            flock(&file, FlockOperation::LockExclusive)?;
            if !stat(path).is_ok_and(|now| (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino))
            {
                // It was removed meanwhile.
                continue;
            }
            if file.metadata()?.len() < BYTES as u64 {
                file.set_len(BYTES as u64)?;
            }
            let table =
                SharedMapping::map(&file, 0, BYTES, Access::ReadWrite, Sharing::Shared, false)?;
            dont_fork(table.addresses())?;
            advise(table.addresses(), Advice::DontDump)?;
            let path = path.to_owned();
            let mut shares = Self { path, file, table, own: BTreeMap::new() };
            shares.join(0)?;
            flock(&shares.file, FlockOperation::Unlock)?;
            return Ok(shares);
        }
        Err(io::Error::other("the table of shares is removed again and again"))
    }

    #[expect(unsafe_code, reason = "memory that other processes change")]
    fn slots(&self) -> &[Slot] {
        // SAFETY: the mapping has this many slots of atomics, of which any bytes are valid, and
        // lives as long as `self`. The file is not cut: only owners of this library open it.
        unsafe { std::slice::from_raw_parts(self.table.as_ptr().cast::<Slot>(), SLOTS) }
    }

    /// Takes a slot for a budget.
    ///
    /// # Errors
    /// Those of the locks; that all slots are taken.
    pub fn join(&mut self, budget: usize) -> io::Result<()> {
        if self.own.contains_key(&budget) {
            return Ok(());
        }
        for at in 0..SLOTS {
            if self.own.values().any(|own| *own == at) || !try_lock(&self.file, byte(at))? {
                continue;
            }
            let slot = &self.slots()[at];
            slot.has.store(0, Relaxed);
            slot.wants.store(0, Relaxed);
            slot.number.store(budget as u64 + 1, Relaxed);
            self.own.insert(budget, at);
            return Ok(());
        }
        Err(io::Error::other("too many processes share a budget"))
    }

    /// Says what this process has of a budget and wants of it, and returns what it may have of
    /// `max` bytes, and how many processes share them.
    pub fn divide(&self, budget: usize, max: u64, wants: u64, has: u64) -> (u64, usize) {
        let Some(&own) = self.own.get(&budget) else { return (max, 1) };
        let slots = self.slots();
        slots[own].wants.store(wants, Relaxed);
        slots[own].has.store(has, Relaxed);
        let (mut all, mut of_others) = (vec![wants], 0_u64);
        for (at, slot) in slots.iter().enumerate() {
            let is_of_it = at != own && slot.number.load(Relaxed) == budget as u64 + 1;
            if is_of_it && is_locked(&self.file, byte(at)).unwrap_or(true) {
                all.push(slot.wants.load(Relaxed));
                of_others = of_others.saturating_add(slot.has.load(Relaxed));
            }
        }
        let fair = part_of_first(max, &all);
        let limit = if all.len() == 1 { max } else { fair.min(max.saturating_sub(of_others)) };
        (limit.max(LEAST.min(max)), all.len())
    }

    /// Its open file. While a process has it open, the slots are taken: a child of `fork` that does
    /// not share closes it.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// The process ends: removes the file if no other uses it.
    pub fn leave(&self) {
        if flock(self.file(), FlockOperation::LockExclusive).is_err() {
            return;
        }
        if is_locked(&self.file, 0..SLOTS as u64).is_ok_and(|is_used| !is_used) {
            let _ = std::fs::remove_file(&self.path);
        }
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// The byte that stands for a slot.
const fn byte(slot: usize) -> std::ops::Range<u64> {
    slot as u64..slot as u64 + 1
}

/// What the first of some processes may have, by max-min fairness, and an even part of what none
/// of them wants.
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
    wants[0] + left / wants.len() as u64
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

    #[test]
    fn processes_come_down_to_their_parts_and_the_sum_stays_within() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        const MAX: u64 = 100 << 20;
        let mut first = Shares::open(&path).unwrap();
        assert_eq!(first.divide(0, MAX, u64::MAX, MAX), (MAX, 1), "alone");
        let second = Shares::open(&path).unwrap();
        // The first has everything yet.
        assert_eq!(second.divide(0, MAX, u64::MAX, 0), (LEAST, 2));
        assert_eq!(first.divide(0, MAX, u64::MAX, MAX), (MAX / 2, 2));
        assert_eq!(first.divide(0, MAX, u64::MAX, 60 << 20), (MAX / 2, 2));
        assert_eq!(second.divide(0, MAX, u64::MAX, 0), (40 << 20, 2));
        first.divide(0, MAX, u64::MAX, 50 << 20);
        assert_eq!(second.divide(0, MAX, u64::MAX, 40 << 20), (50 << 20, 2));
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
}
