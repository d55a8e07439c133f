//! What an over-limit task does before it goes on: reclaim from the levels that are over, then
//! sleep.
//!
//! [`OverLimit`] is the handler as a value that the driver steps, as it steps a
//! [`Charge`](crate::Charge): it returns what to do next, the driver does that and reports the
//! result, with the levels as they are then. A task makes up to 16 passes without progress:
//!
//! 1. For each level above its high, from the task's group up: one event `high` and one reclaim (in
//!    the first pass of the `N` pages that the task charged, then of 32). For each level above its
//!    swap high: one event of swap.
//! 2. Compute the delay from the levels as they are now, 2 s at most. If it is at most 10 ms: done.
//! 3. If anything was reclaimed, or passes are left: the next pass. Otherwise sleep; done.
//!
//! | policy | delay | differs in |
//! |---|---|---|
//! | `overage` | the kernel's | |
//! | `refault-recency` | overage, the patch's penalty | with one: no other pass, no 10 ms rule |
//! | `stall-debt` | overage, the debt that is due | counts in nanoseconds, so ticks do not matter |
//!
//! Reclaim comes before the delay is computed: a task that could bring its group below the limit
//! does not sleep for having been above it. A dying task stops at once: it must be able to give its
//! memory back. When a pass finds no level over, there is nothing to reclaim, but a penalty or a
//! debt may still be due; the passes without progress are then skipped.
//!
//! A program that is attached to the group is called once, when the built-in policy has decided;
//! [`apply`] is the only place where its answer becomes a delay. A delay that it requests is slept
//! even if it is short.
//!
//! The roots of trees have no limits: `levels` go from the task's group up to the last one below
//! the root. Only a controller ([`auto`](crate::auto)) may give one a `high`. Source:
//! `docs/kernel/memcg.md` §6.2, 6.4, 7.1, 8.5, 16 (9-12).

use super::{overage, recency};
use crate::hooks::{DELAY_MAX_NS, ThrottleAnswer};
use crate::limits::{MAX_RECLAIM_RETRIES, SWAP_CLUSTER_MAX};
use crate::policy::PolicyError;
use crate::units::NS_PER_SEC;
use std::fmt;
use std::str::FromStr;

/// Nanoseconds up to which a sleep is not worth it.
pub const NOT_WORTH_NS: u64 = 10_000_000;

/// What a task pays for being over a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[non_exhaustive]
pub enum HighPolicy {
    /// The kernel's: the square of the overage.
    Overage,
    /// The proposed patch's: overage, and how recent the last refault is.
    RefaultRecency,
    /// Ours: overage, and the stall that the task has caused.
    #[default]
    StallDebt,
}

impl HighPolicy {
    /// All policies, with a line about each.
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Overage, "the kernel's: sleep by the square of the overage"),
        (Self::RefaultRecency, "a proposed patch: overage, and a penalty for recent refaults"),
        (Self::StallDebt, "overage, and sleep for the refault stall that the task caused"),
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Overage => "overage",
            Self::RefaultRecency => "refault-recency",
            Self::StallDebt => "stall-debt",
        }
    }
}

impl fmt::Display for HighPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for HighPolicy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let found = Self::ALL.into_iter().find(|(policy, _)| policy.name() == text);
        found.map(|(policy, _)| policy).ok_or_else(|| PolicyError::UnknownHigh(text.to_owned()))
    }
}

/// One level as it is now, in pages. No limit is [`NO_LIMIT`](crate::hooks::NO_LIMIT).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LevelView {
    /// Identity of the group.
    pub id: u64,
    /// Pages charged.
    pub usage: u64,
    /// Its `memory.high`.
    pub high: u64,
    /// Pages in swap.
    pub swap_usage: u64,
    /// Its `memory.swap.high`.
    pub swap_high: u64,
    /// Its `memory.high` is set by a controller ([`auto`](crate::auto)), which answers an overage
    /// with memory: tasks reclaim for it, and do not sleep.
    pub is_auto: bool,
}

/// What the handler has to know of the task, as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskFacts {
    /// It was killed, exits, or is an OOM victim.
    pub dying: bool,
    /// Ticks a second of the driver's scheduler.
    pub hz: u64,
    /// Nanoseconds since the last refault in its group; `u64::MAX` if there was none.
    pub since_refault_ns: u64,
    /// The result of [`TaskDebt::owed`](super::stall_debt::TaskDebt::owed).
    pub owed_ns: u64,
}

/// The delays that a program sees in its snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delays {
    /// The kernel's penalty for overage, at most 2 s.
    pub overage_ns: u64,
    /// What the built-in policy decided; 0 if it does not sleep.
    pub default_ns: u64,
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HighStep {
    /// Count one event `high` of this level (an index into `levels`), reclaim from it as a memory
    /// stall, and report the pages.
    Reclaim {
        /// Index into the levels of this call.
        level: usize,
        /// Pages.
        goal: u64,
    },
    /// Count one swap event `high` of this level, and call again.
    SwapEvent {
        /// Index into the levels of this call.
        level: usize,
    },
    /// Pay the debts ([`TaskDebt::pay`](super::stall_debt::TaskDebt::pay)) with this time, sleep
    /// for it as throttle, killable, and call again.
    Sleep {
        /// Nanoseconds, at most 2 s.
        ns: u64,
        /// What it is for.
        cause: SleepCause,
    },
    /// The task goes on.
    Done,
}

/// What a sleep is for: the largest part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SleepCause {
    /// Overage.
    Overage,
    /// A recent refault.
    RefaultRecency,
    /// Unpaid stall.
    StallDebt,
    /// A program requested it.
    Hook,
}

/// One handling of an over-limit task. See the file's documentation.
#[derive(Clone, Copy, Debug)]
pub struct OverLimit {
    policy: HighPolicy,
    pages_over: u64,
    first: bool,
    retries: u32,
    reclaimed: u64,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The next level that may be over.
    Memory(usize),
    Swap(usize),
    End,
}

impl OverLimit {
    /// Begins: takes the pages that the task charged over the limit, and leaves 0.
    #[must_use]
    pub fn new(policy: HighPolicy, pages_over: &mut u64) -> Self {
        let pages_over = std::mem::take(pages_over);
        Self {
            policy,
            pages_over,
            first: true,
            retries: MAX_RECLAIM_RETRIES,
            reclaimed: 0,
            at: At::Memory(0),
        }
    }

    /// The next step. `levels` go from the task's group upward, without the root, and `task` is as
    /// things are now; `reclaimed` is the result of the reclaim that the last call returned;
    /// `hook` is called at most once in a handling: the program of the first level's group, which
    /// may be inherited.
    pub fn next(
        &mut self,
        levels: &[LevelView],
        task: &TaskFacts,
        reclaimed: Option<u64>,
        hook: impl FnOnce(Delays) -> ThrottleAnswer,
    ) -> HighStep {
        self.reclaimed = self.reclaimed.saturating_add(reclaimed.unwrap_or(0));
        loop {
            if self.at == At::End || self.starts_pass() && task.dying {
                self.at = At::End;
                return HighStep::Done;
            }
            if let Some(step) = self.pass(levels) {
                return step;
            }
            let delay = self.delay(levels, task);
            if !delay.is_final && self.again(levels) {
                continue;
            }
            self.at = At::End;
            if task.dying {
                return HighStep::Done;
            }
            return delay.sleep(hook);
        }
    }

    fn starts_pass(&self) -> bool {
        self.at == At::Memory(0)
    }

    /// The next thing to do in this pass.
    fn pass(&mut self, levels: &[LevelView]) -> Option<HighStep> {
        if let At::Memory(from) = self.at {
            if let Some(level) = (from..levels.len()).find(|&i| levels[i].usage > levels[i].high) {
                self.at = At::Memory(level + 1);
                let goal = if self.first && self.pages_over > 0 {
                    self.pages_over
                } else {
                    SWAP_CLUSTER_MAX
                };
                return Some(HighStep::Reclaim { level, goal });
            }
            self.at = At::Swap(0);
        }
        let At::Swap(from) = self.at else { return None };
        let level = (from..levels.len()).find(|&i| levels[i].swap_usage > levels[i].swap_high)?;
        self.at = At::Swap(level + 1);
        Some(HighStep::SwapEvent { level })
    }

    /// Begins another pass, if there may be one.
    fn again(&mut self, levels: &[LevelView]) -> bool {
        let progress = std::mem::take(&mut self.reclaimed) > 0;
        if !progress {
            if self.retries == 0 {
                return false;
            }
            self.retries -= 1;
        }
        let idle = |l: &LevelView| l.usage <= l.high && l.swap_usage <= l.swap_high;
        if levels.iter().all(idle) {
            // Seventeen passes over nothing.
            return false;
        }
        (self.first, self.at) = (false, At::Memory(0));
        true
    }

    /// The delay of the policy for the levels as they are.
    fn delay(&self, levels: &[LevelView], task: &TaskFacts) -> Delay {
        let fixed = levels.iter().filter(|level| !level.is_auto);
        let memory = fixed.map(|l| overage::overage(l.usage, l.high)).max().unwrap_or(0);
        let swap =
            levels.iter().map(|l| overage::overage(l.swap_usage, l.swap_high)).max().unwrap_or(0);
        let (hz, extra, cause) = match self.policy {
            HighPolicy::Overage => (task.hz, 0, SleepCause::Overage),
            HighPolicy::RefaultRecency => {
                let penalty = recency::penalty(task.since_refault_ns, task.hz);
                (task.hz, penalty, SleepCause::RefaultRecency)
            }
            HighPolicy::StallDebt => (NS_PER_SEC, task.owed_ns, SleepCause::StallDebt),
        };
        let overage = overage::penalty(memory, swap, self.pages_over, hz);
        let sum = overage.saturating_add(extra).min(overage::clamp_ticks(hz));
        let unconditional = self.policy == HighPolicy::RefaultRecency && extra > 0;
        let sum_ns = overage::ticks_to_ns(sum, hz).min(DELAY_MAX_NS);
        let worth = sum_ns > NOT_WORTH_NS || unconditional;
        Delay {
            overage_ns: overage::ticks_to_ns(overage, hz).min(DELAY_MAX_NS),
            ns: if worth { sum_ns } else { 0 },
            cause: if extra > overage { cause } else { SleepCause::Overage },
            is_final: unconditional || !worth,
        }
    }
}

/// What the built-in policy decided after a pass.
struct Delay {
    overage_ns: u64,
    ns: u64,
    cause: SleepCause,
    /// No further pass, whatever was reclaimed.
    is_final: bool,
}

impl Delay {
    fn sleep(self, hook: impl FnOnce(Delays) -> ThrottleAnswer) -> HighStep {
        let answer = hook(Delays { overage_ns: self.overage_ns, default_ns: self.ns });
        let ns = apply(answer, self.ns);
        let cause = if ns == self.ns { self.cause } else { SleepCause::Hook };
        if ns == 0 { HighStep::Done } else { HighStep::Sleep { ns, cause } }
    }
}

/// The delay that comes of a program's answer and the built-in policy's delay: nanoseconds, never
/// more than 2 s.
#[must_use]
pub const fn apply(answer: ThrottleAnswer, default_ns: u64) -> u64 {
    let ns = match answer {
        ThrottleAnswer::Exactly(ns) => ns,
        ThrottleAnswer::AtLeast(ns) if ns > default_ns => ns,
        ThrottleAnswer::AtLeast(_) | ThrottleAnswer::Default => default_ns,
    };
    if ns < DELAY_MAX_NS { ns } else { DELAY_MAX_NS }
}

#[cfg(test)]
mod tests;
