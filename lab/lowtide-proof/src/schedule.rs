//! What the disk does in one cycle, before its power is cut.
//!
//! A disk that only fails finds other bugs than one that only comes late, and most bugs need quiet
//! around them. So each cycle has a fault plan of its own. A hanging request costs the deadline of
//! the thread that waits for it, so there are few.

use std::str::FromStr;

use lowtide::instruments::InjectOp::{Extend, Name, Punch, Read, Shrink, Sync, Write};
use lowtide_workload::SplitMix64;
use thiserror::Error;

use crate::disk::{Fault, Plan};

/// What a disk can claim to have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Some syncs.
    Sync,
    /// Some writes.
    Write,
    /// Cutting files off.
    Shrink,
    /// Zeroes between a new end and the next sector.
    Tail,
    /// Holes.
    Punch,
    /// Making names durable.
    Name,
}

impl Lie {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Sync, Self::Write, Self::Shrink, Self::Tail, Self::Punch, Self::Name];

    /// What it is called on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "lost-sync",
            Self::Write => "lost-write",
            Self::Shrink => "lost-shrink",
            Self::Tail => "lost-tail",
            Self::Punch => "lost-punch",
            Self::Name => "lost-name",
        }
    }
}

/// There is no such lie.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no disk lies like that; there are {}", Lie::ALL.map(Lie::name).join(", "))]
pub struct UnknownLie;

impl FromStr for Lie {
    type Err = UnknownLie;

    fn from_str(name: &str) -> Result<Self, UnknownLie> {
        Self::ALL.into_iter().find(|lie| lie.name() == name).ok_or(UnknownLie)
    }
}

/// The plan of a cycle.
#[must_use]
pub fn plan(rng: &mut SplitMix64, lie: Option<Lie>) -> Plan {
    let plan = match lie {
        Some(Lie::Sync) => return Plan::new().every(Sync, 3, Fault::Lie),
        Some(Lie::Write) => return Plan::new().every(Write, 25, Fault::Lie),
        Some(Lie::Shrink) => return Plan::new().every(Shrink, 1, Fault::Lie),
        Some(Lie::Tail) => return Plan::new().every(Shrink, 1, Fault::Tail),
        Some(Lie::Punch) => return Plan::new().every(Punch, 1, Fault::Lie),
        Some(Lie::Name) => return Plan::new().every(Name, 1, Fault::Lie),
        None => Plan::new(),
    };
    // There are few names.
    let plan = if rng.below(3) == 0 { plan } else { plan.sometimes(Name, 2) };
    let plan = match rng.below(32) {
        // Nothing but the cut.
        0..6 => plan,
        // Out of order and in parts.
        6..12 => plan
            .every(Write, 3, Fault::Late)
            .every(Write, 4, Fault::Short)
            .every(Read, 5, Fault::Late)
            .every(Read, 3, Fault::Short)
            .every(Sync, 2, Fault::Late),
        // The file system refuses to change the file, or is slow about it.
        12..14 => plan.sometimes(Extend, 3).sometimes(Shrink, 2).sometimes(Punch, 2),
        // Writes fail.
        14..20 => plan.every(Write, 9, Fault::Eio).every(Write, 5, Fault::Late),
        // Syncs fail.
        20..25 => plan.every(Sync, 2, Fault::Eio).every(Write, 7, Fault::Late),
        // The file system is full, or read-only, or the device is broken, and nothing gets through.
        25 => plan.every(Write, 1, Fault::Enospc).every(Extend, 1, Fault::Enospc),
        26 => plan.every(Write, 2, Fault::Edquot).every(Extend, 2, Fault::Edquot),
        27 => plan.every(Write, 1, Fault::Erofs).every(Sync, 1, Fault::Erofs),
        // It stops answering.
        28 => plan.every(Write, 31, Fault::Hang).every(Sync, 4, Fault::Hang),
        // Everything at once.
        _ => plan
            .sometimes(Read, 40)
            .sometimes(Write, 20)
            .sometimes(Sync, 4)
            .sometimes(Extend, 3)
            .sometimes(Shrink, 3)
            .sometimes(Punch, 3),
    };
    plan.seed(rng.next_u64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lie_has_a_name_that_is_understood() {
        for lie in Lie::ALL {
            assert_eq!(lie.name().parse(), Ok(lie));
        }
        let error = "lost-sector".parse::<Lie>().unwrap_err().to_string();
        assert!(error.contains("lost-sync, lost-write"), "{error}");
    }
}
