//! Which request suffers what.
//!
//! A plan has rules ("each fifth write fails with `EIO`") and may add faults at random. It is asked
//! once for each request, in the order in which they reach the disk; the same seed gives the same
//! faults in that order. Which thread's request comes when is up to the scheduler, so a run of
//! several threads is not repeated to the letter.

use lowtide::instruments::InjectOp;
use lowtide_workload::SplitMix64;
use std::collections::HashMap;
use std::fmt;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// The device cannot.
    Eio,
    /// The file system is full.
    Enospc,
    /// The user's share of it is.
    Edquot,
    /// The file system has become read-only.
    Erofs,
    /// The file system cannot do that to a file.
    Eopnotsupp,
    /// The first transfer moves a part only; of a write perhaps nothing.
    Short,
    /// It comes later than requests made after it.
    Late,
    /// It waits until the disk is released.
    Hang,
    /// The disk says that it is done, and has done nothing. No program can bear that: it is what a
    /// proof must notice.
    Lie,
    /// A file is made shorter, and the bytes past its end, as far as its last sector goes, are
    /// still there when it is longer again after a cut. That is a lie, too.
    Tail,
}

impl Fault {
    /// All of them that a disk may suffer and be honest.
    pub const HONEST: &'static [Self] = &[
        Self::Eio,
        Self::Enospc,
        Self::Edquot,
        Self::Erofs,
        Self::Eopnotsupp,
        Self::Short,
        Self::Late,
        Self::Hang,
    ];

    /// What an operation can suffer on a disk that is honest. A read finds no full disk; what moves
    /// no bytes has no parts; and only holes are unknown to some file systems.
    #[must_use]
    pub const fn of(op: InjectOp) -> &'static [Self] {
        match op {
            InjectOp::Read => &[Self::Eio, Self::Short, Self::Late, Self::Hang],
            InjectOp::Write => &[
                Self::Eio,
                Self::Enospc,
                Self::Edquot,
                Self::Erofs,
                Self::Short,
                Self::Late,
                Self::Hang,
            ],
            InjectOp::Punch => &[
                Self::Eio,
                Self::Enospc,
                Self::Edquot,
                Self::Erofs,
                Self::Eopnotsupp,
                Self::Late,
                Self::Hang,
            ],
            // Syncs, lengths and names.
            _ => &[Self::Eio, Self::Enospc, Self::Edquot, Self::Erofs, Self::Late, Self::Hang],
        }
    }

    /// The error number, if it is an error.
    #[must_use]
    pub const fn errno(self) -> Option<i32> {
        match self {
            Self::Eio => Some(libc::EIO),
            Self::Enospc => Some(libc::ENOSPC),
            Self::Edquot => Some(libc::EDQUOT),
            Self::Erofs => Some(libc::EROFS),
            Self::Eopnotsupp => Some(libc::EOPNOTSUPP),
            Self::Short | Self::Late | Self::Hang | Self::Lie | Self::Tail => None,
        }
    }

    /// What it is called in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eio => "EIO",
            Self::Enospc => "ENOSPC",
            Self::Edquot => "EDQUOT",
            Self::Erofs => "EROFS",
            Self::Eopnotsupp => "EOPNOTSUPP",
            Self::Short => "short",
            Self::Late => "late",
            Self::Hang => "hang",
            Self::Lie => "lie",
            Self::Tail => "tail",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which requests suffer what. An empty plan is a good disk.
#[derive(Clone, Debug)]
pub struct Plan {
    rules: Vec<(InjectOp, u64, Fault)>,
    random: Vec<(InjectOp, u64)>,
    rng: SplitMix64,
    asked: HashMap<InjectOp, u64>,
}

impl Default for Plan {
    fn default() -> Self {
        Self::new()
    }
}

impl Plan {
    /// A good disk.
    #[must_use]
    pub fn new() -> Self {
        Self {
            rules: Vec::new(),
            random: Vec::new(),
            rng: SplitMix64::new(0),
            asked: HashMap::new(),
        }
    }

    /// Each `n`-th operation of a kind suffers a fault (`n` of 0: none does). The first rule that
    /// applies counts.
    #[must_use]
    pub fn every(mut self, op: InjectOp, n: u64, fault: Fault) -> Self {
        self.rules.push((op, n, fault));
        self
    }

    /// One in `n` operations of a kind, chosen at random, suffers a fault that is chosen at random
    /// among those it can suffer.
    #[must_use]
    pub fn sometimes(mut self, op: InjectOp, n: u64) -> Self {
        self.random.push((op, n));
        self
    }

    /// The seed of all that is random.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.rng = SplitMix64::new(seed);
        self
    }

    /// What the next request suffers.
    pub(super) fn next(&mut self, op: InjectOp) -> Option<Fault> {
        let asked = self.asked.entry(op).or_default();
        *asked += 1;
        let due =
            |&&(of, n, _): &&(InjectOp, u64, Fault)| of == op && n > 0 && asked.is_multiple_of(n);
        if let Some(&(_, _, fault)) = self.rules.iter().find(due) {
            return Some(fault);
        }
        let n = self.random.iter().find(|(of, _)| *of == op)?.1;
        if n == 0 || self.rng.below(n) > 0 {
            return None;
        }
        let faults = Fault::of(op);
        Some(faults[self.rng.below(faults.len() as u64) as usize])
    }

    /// The plan's source of randomness.
    pub(super) fn rng(&mut self) -> &mut SplitMix64 {
        &mut self.rng
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_count_each_kind_by_itself_and_the_first_that_applies_counts() {
        let mut plan = Plan::new().every(InjectOp::Write, 4, Fault::Hang).every(
            InjectOp::Write,
            2,
            Fault::Eio,
        );
        let writes: Vec<_> = (0..4)
            .map(|_| {
                assert_eq!(plan.next(InjectOp::Read), None);
                plan.next(InjectOp::Write)
            })
            .collect();
        assert_eq!(writes, [None, Some(Fault::Eio), None, Some(Fault::Hang)]);
    }

    #[test]
    fn a_random_plan_reaches_every_fault_and_is_repeated_by_its_seed() {
        let draw = |seed| {
            let mut plan = Plan::new().sometimes(InjectOp::Sync, 3).seed(seed);
            (0..2000).map(|_| plan.next(InjectOp::Sync)).collect::<Vec<_>>()
        };
        let drawn = draw(7);
        assert!(Fault::of(InjectOp::Sync).iter().all(|&fault| drawn.contains(&Some(fault))));
        assert!((500..900).contains(&drawn.iter().flatten().count()));
        assert_eq!(drawn, draw(7));
        assert_ne!(drawn, draw(8));
    }
}
