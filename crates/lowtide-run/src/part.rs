//! One process's part of a budget that it shares ([`Shares`]), from look to look.
//!
//! A process says what it *wants*: as much as it could use, or what it has, if it has brought
//! nothing in for a while. It sets its limit to the part that it gets. A limit comes down in
//! steps, since a thread of the process may wait for the one that lowers it.
//!
//! The keeper of `lowtide run` and a thread of the Python package look as often as [`pause`] says,
//! so both share by the same rule.

use crate::shares::Shares;
use std::time::{Duration, Instant};

/// Time between two looks at what others have, alone and beside others. Each looks at all others,
/// so where there are many, it is longer.
const ALONE: Duration = Duration::from_millis(100);
const BESIDE: Duration = Duration::from_millis(20);
const MANY: usize = 8;
/// A process that brought nothing in for this time wants no more than it has.
const QUIET: Duration = Duration::from_secs(2);
/// A limit comes down by at most this beyond what is in memory.
const STEP: u64 = 8 << 20;
/// What it wants at most, beyond twice what it has: one that uses nothing leaves the others all.
const GROWTH: u64 = 16 << 20;
/// What a process has at the least, also where the others have everything, or there is no slot for
/// it: with nothing it could not go on.
const LEAST: u64 = 256 << 10;

/// A budget of this process.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its number in the table.
    number: usize,
    max: u64,
    /// What this process may have now.
    bytes: u64,
    /// Pages that had come in, and when that changed last.
    faults: (u64, Instant),
}

/// What a process sees of itself at a look.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Pages that have come in so far.
    pub faults: u64,
    /// Bytes in memory.
    pub has: u64,
    /// Bytes that it could use.
    pub could_use: u64,
}

impl Part {
    /// All of a budget, until the first look.
    #[must_use]
    pub fn whole(number: usize, max: u64) -> Self {
        Self { number, max, bytes: max, faults: (0, Instant::now()) }
    }

    /// The first part of a process that has nothing yet, and may want everything. Where the budget
    /// has no slot, it is the least that a process can have.
    #[must_use]
    pub fn first(number: usize, max: u64, shares: &Shares) -> Self {
        let (part, _) = shares.divide(number, max, max, 0);
        let bytes = part.max(LEAST).min(max);
        shares.settle(number, bytes);
        Self { bytes, ..Self::whole(number, max) }
    }

    /// The whole budget, in bytes.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// What this process may have of it now, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Says what the process has, and has `set` set its new part as a limit, if it is another one;
    /// `set` returns whether that was possible. Returns how many processes share the budget.
    pub fn look(&mut self, shares: &Shares, seen: Seen, set: impl FnOnce(u64) -> bool) -> usize {
        let Seen { faults, has, could_use } = seen;
        let now = Instant::now();
        if faults != self.faults.0 {
            self.faults = (faults, now);
        }
        let is_quiet = now.duration_since(self.faults.1) >= QUIET;
        let wants = if is_quiet { has } else { could_use.min(2 * has + GROWTH).max(has) };
        let (part, sharing) = shares.divide(self.number, self.max, wants, has);
        // From the limit, and not only from what is in memory: that may be unable to go.
        let step = has.min(self.bytes).saturating_sub(STEP);
        let part = part.max(LEAST).max(step).min(self.max);
        if part != self.bytes && set(part) {
            self.bytes = part;
        }
        shares.settle(self.number, self.bytes);
        sharing
    }
}

/// Time until the next look, where this number of processes share a budget.
#[must_use]
pub fn pause(sharing: usize) -> Duration {
    if sharing <= 1 { ALONE } else { BESIDE * (1 + sharing / MANY) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 100 << 20;

    fn seen(faults: u64, has: u64) -> Seen {
        Seen { faults, has, could_use: u64::MAX }
    }

    #[test]
    fn a_limit_comes_down_in_steps_to_what_is_fair_and_stays_where_it_cannot_be_set() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table");
        let shares = Shares::open(&path).unwrap();
        let mut part = Part::first(0, MAX, &shares);
        assert_eq!((part.bytes(), part.max()), (MAX, MAX), "alone");
        assert_eq!(part.look(&shares, seen(1, MAX), |_| panic!("nothing changes")), 1);
        let other = Shares::open(&path).unwrap();
        let second = Part::first(0, MAX, &other);
        assert!(second.bytes() < 1 << 20, "the first has everything yet");
        assert_eq!(part.look(&shares, seen(2, MAX), |_| false), 2);
        assert_eq!(part.bytes(), MAX, "the limit could not be set");
        part.look(&shares, seen(3, MAX), |bytes| bytes == MAX - STEP);
        assert_eq!(part.bytes(), MAX - STEP);
        // Also where nothing of it can go.
        part.look(&shares, seen(4, MAX), |_| true);
        assert_eq!(part.bytes(), MAX - 2 * STEP);
        part.look(&shares, seen(4, MAX / 2), |_| true);
        assert_eq!(part.bytes(), MAX / 2);
        assert!(pause(1) > pause(2) && pause(100) > pause(2));
    }

    #[test]
    fn a_process_that_uses_nothing_leaves_the_others_all_but_a_little() {
        let dir = tempfile::tempdir().unwrap();
        let [parent, worker] = [(); 2].map(|()| Shares::open(&dir.path().join("table")).unwrap());
        let [mut idle, mut busy] = [&parent, &worker].map(|shares| Part::first(0, MAX, shares));
        let mut has = 0;
        // It waits for its worker, with the whole file mapped.
        for look in 0..40 {
            idle.look(&parent, seen(1, 0), |_| true);
            busy.look(&worker, seen(look, has), |_| true);
            has = busy.bytes();
        }
        assert_eq!((idle.bytes(), busy.bytes()), (GROWTH, MAX - GROWTH));
    }
}
