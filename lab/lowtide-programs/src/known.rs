//! What is known to differ under `lowtide run`, and is not played in the mode in which it does.
//!
//! Each line is a limit that the documentation names. The table is to shrink: with
//! `--known` everything is played, which shows whether a line is still true.

use crate::mode::Mode;
use crate::plan::Plan;

/// An operation, and a word that it says; an empty one is any.
type Trigger = (&'static str, &'static str);

/// Something that differs.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// All of these must be in a plan.
    pub triggers: &'static [Trigger],
    /// Where.
    pub modes: &'static [Mode],
    /// Why, in a few words.
    pub because: &'static str,
}

const fn known(
    triggers: &'static [Trigger],
    modes: &'static [Mode],
    because: &'static str,
) -> Known {
    Known { triggers, modes, because }
}

/// What is known to differ.
pub const KNOWN: &[Known] = &[
    known(&[("timer", "file")], &Mode::ALL, "a first mapping waits for malloc below: documented"),
    known(
        &[("mlockall", ""), ("setuid", "")],
        &Mode::ALL,
        "addresses of lowtide's threads count in RLIMIT_MEMLOCK, which root has not",
    ),
];

impl Known {
    /// Whether a plan has it.
    #[must_use]
    pub fn is_in(&self, plan: &Plan) -> bool {
        self.triggers
            .iter()
            .all(|(name, word)| plan.has(name, Some(*word).filter(|word| !word.is_empty())))
    }
}

impl Plan {
    /// Why the plan is not played in a mode: the first reason.
    #[must_use]
    pub fn known_in(&self, mode: Mode) -> Option<&'static str> {
        let of_way = KNOWN.iter().filter(|known| known.modes.contains(&mode));
        of_way.filter(|known| known.is_in(self)).map(|known| known.because).next()
    }

    /// The plan without operations that are known to differ in all of these modes.
    #[must_use]
    pub fn without_known(mut self, modes: &[Mode]) -> Self {
        let everywhere =
            KNOWN.iter().filter(|known| modes.iter().all(|mode| known.modes.contains(mode)));
        for known in everywhere {
            while known.is_in(&self) {
                let (name, word) = known.triggers[0];
                for script in &mut self.scripts {
                    script.retain(|op| op.name != name || !word.is_empty() && !op.says(word));
                }
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_not_in_the_plan_and_the_rest_is() {
        let text =
            "max=1M threshold=64K: map 0 9 rw; timer 5000 file; timer 5000 maps / end last 2";
        let plan: Plan = text.parse().expect("a plan");
        assert!(Mode::ALL.iter().all(|mode| plan.known_in(*mode).is_some()));
        let rest = plan.without_known(&Mode::ALL);
        assert_eq!(
            rest.to_string(),
            "max=1M threshold=64K: map 0 9 rw; timer 5000 maps / end last 2"
        );
        assert!(Mode::ALL.iter().all(|mode| rest.known_in(*mode).is_none()));
    }
}
