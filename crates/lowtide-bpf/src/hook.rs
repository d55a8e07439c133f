//! The hooks that a program can implement, and the meaning of the number it returns.
//!
//! A program returns 64 bits, and every value is either an answer or no opinion; none is an error.

use crate::ops::Call;
use lowtide_core::hooks::{DELAY_MAX_NS, LimitSnapshot, ThrottleAnswer};
use std::fmt;

const NS_PER_MS: u64 = 1_000_000;

/// A question, by the section that a program for it lies in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hook {
    /// `memcg/throttle`: how long the task is to sleep, whatever the built-in policy says.
    Throttle,
    /// `memcg/throttle_at_least`: how long the task is to sleep at least.
    ThrottleAtLeast,
    /// `memcg/charged`: how long the task is to sleep at least, after each batch that it charged,
    /// whether or not its group is above `high`.
    Charged,
    /// `memcg/below_low`: whether the group is to be spared while others have something.
    BelowLow,
    /// `memcg/below_min`: whether the group is to be spared altogether.
    BelowMin,
    /// `memcg/proactive`: pages to reclaim in advance.
    Proactive,
    /// `memcg/online`: a group was created.
    Online,
    /// `memcg/offline`: a group is about to be removed.
    Offline,
}

impl Hook {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Throttle,
        Self::ThrottleAtLeast,
        Self::Charged,
        Self::BelowLow,
        Self::BelowMin,
        Self::Proactive,
        Self::Online,
        Self::Offline,
    ];

    /// Those that answer how long a task sleeps. An object may have one of them.
    pub(crate) const THROTTLES: [Self; 3] = [Self::Throttle, Self::ThrottleAtLeast, Self::Charged];

    /// The section that a program for it lies in.
    #[must_use]
    pub const fn section(self) -> &'static str {
        match self {
            Self::Throttle => "memcg/throttle",
            Self::ThrottleAtLeast => "memcg/throttle_at_least",
            Self::Charged => "memcg/charged",
            Self::BelowLow => "memcg/below_low",
            Self::BelowMin => "memcg/below_min",
            Self::Proactive => "memcg/proactive",
            Self::Online => "memcg/online",
            Self::Offline => "memcg/offline",
        }
    }

    /// Whether the program returns something.
    pub(crate) const fn answers(self) -> bool {
        !matches!(self, Self::Online | Self::Offline)
    }

    pub(crate) fn of_section(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hook| hook.section() == name)
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.section())
    }
}

/// A throttle's number: nanoseconds, at most [`DELAY_MAX_NS`]; negative for no opinion. An
/// operation's: 32 bits of milliseconds.
pub(crate) fn throttle_answer(hook: Hook, call: Call, r0: u64) -> ThrottleAnswer {
    if call != Call::Snapshot {
        let ns = u64::from(r0 as u32) * NS_PER_MS;
        return ThrottleAnswer::AtLeast(ns.min(DELAY_MAX_NS));
    }
    match u64::try_from(r0 as i64) {
        Err(_) => ThrottleAnswer::Default,
        Ok(ns) if hook == Hook::Throttle => ThrottleAnswer::Exactly(ns.min(DELAY_MAX_NS)),
        Ok(ns) => ThrottleAnswer::AtLeast(ns.min(DELAY_MAX_NS)),
    }
}

/// A protection's number, of which the low 32 bits count (it is an `int` in C): 0 no, positive yes,
/// negative no opinion. An operation's is a `bool`, whose false is no opinion: the built-in test
/// follows.
pub(crate) const fn protection_answer(call: Call, r0: u64) -> Option<bool> {
    if !matches!(call, Call::Snapshot) {
        return if r0 as u8 == 0 { None } else { Some(true) };
    }
    match r0 as i32 {
        ..0 => None,
        0 => Some(false),
        _ => Some(true),
    }
}

/// A proactive reclaim's number: pages, at most what the group uses; negative for none.
pub(crate) fn proactive_answer(snapshot: &LimitSnapshot, r0: u64) -> u64 {
    u64::try_from(r0 as i64).map_or(0, |pages| pages.min(snapshot.usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_an_answer_within_bounds() {
        use ThrottleAnswer::{AtLeast, Default, Exactly};
        let throttle_answer = |hook, r0| throttle_answer(hook, Call::Snapshot, r0);
        let protection_answer = |r0| protection_answer(Call::Snapshot, r0);
        assert_eq!(throttle_answer(Hook::Throttle, 5), Exactly(5));
        assert_eq!(throttle_answer(Hook::ThrottleAtLeast, 5), AtLeast(5));
        assert_eq!(throttle_answer(Hook::Charged, 5), AtLeast(5));
        assert_eq!(throttle_answer(Hook::Throttle, i64::MAX as u64), Exactly(DELAY_MAX_NS));
        assert_eq!(throttle_answer(Hook::Throttle, u64::MAX), Default);
        assert_eq!(protection_answer(u64::MAX), None);
        assert_eq!(protection_answer(0xffff_ffff), None, "-1 as a 32-bit number");
        assert_eq!(protection_answer(0), Some(false));
        assert_eq!(protection_answer(7), Some(true));
        let snapshot = LimitSnapshot { usage: 100, ..LimitSnapshot::default() };
        assert_eq!(proactive_answer(&snapshot, 50), 50);
        assert_eq!(proactive_answer(&snapshot, u64::MAX >> 1), 100);
        assert_eq!(proactive_answer(&snapshot, u64::MAX), 0);
    }

    #[test]
    fn operations_answer_in_milliseconds_and_in_truth_values() {
        use ThrottleAnswer::AtLeast;
        let call = Call::Operation { arguments: 3 };
        let delay = |r0| throttle_answer(Hook::Charged, call, r0);
        assert_eq!(delay(0), AtLeast(0));
        assert_eq!(delay(30), AtLeast(30_000_000));
        assert_eq!(delay(7 << 32 | 30), AtLeast(30_000_000), "32 bits count");
        assert_eq!(delay(u64::MAX), AtLeast(DELAY_MAX_NS), "not negative");
        assert_eq!(protection_answer(call, 0), None);
        assert_eq!(protection_answer(call, 1), Some(true));
        assert_eq!(protection_answer(call, 1 << 8), None, "8 bits count");
    }
}
