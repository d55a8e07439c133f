//! What is known to differ under `lowtide run`, and is not played in the way in which it does.
//!
//! Each line is a limit that the documentation names. The table is to shrink: with
//! `--known` everything is played, which shows whether a line is still true.

use crate::plan::Plan;
use crate::way::Way;

/// An operation, and a word that it says; an empty one is any.
type Trigger = (&'static str, &'static str);

/// Something that differs.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// All of these must be in a plan.
    pub triggers: &'static [Trigger],
    /// Where.
    pub ways: &'static [Way],
    /// Why, in a few words.
    pub because: &'static str,
}

const ANON: &[Way] = &[Way::Anon, Way::AnonSwap];

const fn known(triggers: &'static [Trigger], ways: &'static [Way], because: &'static str) -> Known {
    Known { triggers, ways, because }
}

/// What is known to differ.
pub const KNOWN: &[Known] = &[
    known(&[("get", "process")], ANON, "what another process stores is not noticed: documented"),
    known(&[("clone", "")], ANON, "a child of a raw clone has no window: documented"),
    known(&[("timer", "file")], &Way::ALL, "a first mapping waits for malloc below: documented"),
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
    /// Why the plan is not played in a way: the first reason.
    #[must_use]
    pub fn known_in(&self, way: Way) -> Option<&'static str> {
        let of_way = KNOWN.iter().filter(|known| known.ways.contains(&way));
        of_way.filter(|known| known.is_in(self)).map(|known| known.because).next()
    }

    /// The plan without operations that are known to differ in all of these ways.
    #[must_use]
    pub fn without_known(mut self, ways: &[Way]) -> Self {
        let everywhere =
            KNOWN.iter().filter(|known| ways.iter().all(|way| known.ways.contains(way)));
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
    fn what_is_known_in_each_way_is_not_in_the_plan_and_the_rest_is() {
        let text = "max=1M threshold=64K: map 0 9 rw; get 0 0 9 0 process; clone / end last 2";
        let plan: Plan = text.parse().expect("a plan");
        assert!(plan.known_in(Way::Anon).is_some() && plan.known_in(Way::Userfault).is_none());
        assert_eq!(plan.clone().without_known(&Way::ALL), plan, "nothing differs in all ways");
        let anon = plan.without_known(&[Way::Anon]);
        assert_eq!(anon.to_string(), "max=1M threshold=64K: map 0 9 rw / end last 2");
    }
}
