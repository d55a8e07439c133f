//! What a group remembers of its limits, and what a task brings to a payment.

use super::advice::MissingMemory;
use super::handler::HighPolicy;
use super::stall_debt::{EvictedFor, LevelStall, StallDebt, TaskDebt};
use crate::auto::Evidence;
use crate::psi::Psi;
use crate::units::{MemcgId, Task};

/// What a group remembers of its limits and what they cost.
#[derive(Debug, Default)]
pub(crate) struct GroupHigh {
    pub(super) policy: HighPolicy,
    pub(super) stall_debt: StallDebt,
    pub(super) stall: LevelStall,
    /// Time of the last refault in this group.
    pub(super) last_refault_ns: Option<u64>,
    pub(super) missing: Option<Box<MissingMemory>>,
    pub(super) psi: Option<Box<Psi>>,
    /// For a limit that sets itself.
    pub(crate) auto: Option<Box<Evidence>>,
    /// The group and limit for which this group was last reclaimed.
    pub(crate) evicted_by: Option<(MemcgId, EvictedFor)>,
}

/// A page came back: what is to be booked once it is known how long a thread had to wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refaulted {
    /// The page belongs to the workingset.
    pub recent: bool,
    /// Pages evicted since it was evicted: with as many more it would have been a hit.
    pub distance: u64,
    /// The level whose limit evicted it, if it was a limit.
    pub(super) by: Option<(MemcgId, EvictedFor)>,
}

impl Refaulted {
    /// Whether some limit had evicted it, rather than the whole pool or a request: only then is
    /// there anything to book.
    #[must_use]
    pub fn is_for_a_limit(&self) -> bool {
        matches!(self.by, Some((_, EvictedFor::High | EvictedFor::Max)))
    }
}

/// The task that pays.
#[derive(Debug)]
pub struct Payer<'a> {
    /// For the reclaims that it makes.
    pub task: Task,
    /// Its debts.
    pub debt: &'a mut TaskDebt,
    /// Its identity, for programs.
    pub number: u64,
    /// Ticks a second of the driver's scheduler.
    pub hz: u64,
    /// It was killed or exits: it must not be delayed.
    pub dying: bool,
}
