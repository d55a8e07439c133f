//! When a simulation has reproduced a published experiment: sign and size of every effect, as
//! ratios between arms, and what each arm reads for an operation.
//!
//! ```text
//!   effect       tells arms apart: where one arm stands for all of them, it fails
//!   agreement    what arms have in common, or one of them has: one arm alone may meet it
//!   unpublished  words without a figure, or nothing: shown, and counted nowhere
//! ```
//!
//! A simulator whose arms are all the same shows no effect. So each rule is applied once more for
//! each arm with that one in place of all ([`apart`]): an effect that it meets then has a range
//! that is *too wide*, which is the outcome wherever it was met.
//!
//! Ratios, because rates depend on a device and a CPU that others do not have. What an operation
//! reads does not depend on them, so it is compared as it is, arm by arm: a ratio of two arms can
//! be right when both read what no program asked for, or when neither does. A gain beyond the range
//! is no success but a sign that the model exaggerates: it is *suspicious*.
//!
//! The refaults of the classical lists are not compared with those of the others. The last posting,
//! the only one with classical lists, counted two thirds fewer refaults in the other arms than the
//! bytes that they read say, and the earlier postings do not: the ratio of the counters is one of
//! two ways to count. One criterion of the page needs a second run, on a device with a quarter of
//! the bandwidth, where the gain must be larger; it is not among these. Source:
//! `docs/kernel/workloads.md` §1(d), (e).

/// What was measured of one arm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Operations.
    pub ops: f64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// KiB read from the device.
    pub read: f64,
    /// KiB written to the device.
    pub written: f64,
    /// Refaults of file pages.
    pub refault_file: f64,
    /// Refaults of anonymous pages.
    pub refault_anon: f64,
    /// Charges that failed.
    pub oom: f64,
}

impl Measured {
    /// KiB read for an operation.
    fn read_each(&self) -> f64 {
        self.read / self.ops
    }
}

/// What a criterion says of the arms. See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They differ.
    Effect,
    /// They are alike, or one is as it was published.
    Agreement,
    /// Nothing that was published.
    Unpublished,
}

impl Kind {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Effect => "effect",
            Self::Agreement => "agreement",
            Self::Unpublished => "unpublished",
        }
    }
}

/// How a criterion came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In the range.
    Reproduced,
    /// Outside of it.
    NotReproduced,
    /// More than was published, by too much to be believed.
    Suspicious,
    /// One arm in place of all would be in the range, too.
    TooWide,
    /// There is nothing to reproduce.
    NotPublished,
}

impl Outcome {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::NotReproduced => "not reproduced",
            Self::Suspicious => "suspicious",
            Self::TooWide => "too wide",
            Self::NotPublished => "not published",
        }
    }
}

/// One condition of the verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criterion {
    /// What is compared, in words.
    pub what: &'static str,
    /// What it says of the arms.
    pub kind: Kind,
    /// What was measured.
    pub value: f64,
    /// The least that counts as reproduced.
    pub least: f64,
    /// The most that counts as reproduced.
    pub most: f64,
    /// The same in the postings.
    pub published: &'static str,
    /// What follows.
    pub outcome: Outcome,
}

impl Criterion {
    /// The same where more than the most is not a failure to reproduce, but too good.
    fn or_suspicious(self) -> Self {
        if self.value > self.most { Self { outcome: Outcome::Suspicious, ..self } } else { self }
    }
}

type Words = &'static str;
type Range = (f64, f64);

/// In range, or not: a value that is no number never is.
fn within(kind: Kind, what: Words, value: f64, range: Range, published: Words) -> Criterion {
    let (least, most) = range;
    let outcome = match kind {
        Kind::Unpublished => Outcome::NotPublished,
        _ if (least..=most).contains(&value) => Outcome::Reproduced,
        _ => Outcome::NotReproduced,
    };
    Criterion { what, kind, value, least, most, published, outcome }
}

/// A criterion that tells arms apart.
pub(super) fn effect(what: Words, value: f64, range: Range, published: Words) -> Criterion {
    within(Kind::Effect, what, value, range, published)
}

/// A criterion of what arms have in common, or of one arm.
pub(super) fn agreement(what: Words, value: f64, range: Range, published: Words) -> Criterion {
    within(Kind::Agreement, what, value, range, published)
}

/// A figure beside a range that is ours, with what the postings say instead of one.
pub(super) fn unpublished(what: Words, value: f64, range: Range, instead: Words) -> Criterion {
    within(Kind::Unpublished, what, value, range, instead)
}

/// Applies a rule to arms, of which some may be missing, and once more for each arm with that one
/// in place of all: an effect that is met then is met by nothing.
pub(super) fn apart<T: Copy, const N: usize>(
    arms: [Option<T>; N],
    rule: impl Fn([Option<T>; N]) -> Vec<Criterion>,
) -> Vec<Criterion> {
    let mut criteria = rule(arms);
    for one in arms.into_iter().flatten() {
        let alike = rule(arms.map(|arm| arm.map(|_| one)));
        for (criterion, alone) in criteria.iter_mut().zip(alike) {
            let is_met = |it: &Criterion| it.outcome == Outcome::Reproduced;
            if criterion.kind == Kind::Effect && is_met(criterion) && is_met(&alone) {
                criterion.outcome = Outcome::TooWide;
            }
        }
    }
    criteria
}

/// Every criterion that can be decided from these arms. Those that need the classical lists are
/// left out without them.
#[must_use]
pub fn verdict(
    before: &Measured,
    after: &Measured,
    classical: Option<&Measured>,
) -> Vec<Criterion> {
    apart([Some(before), Some(after), classical], |arms| {
        let [Some(before), Some(after), classical] = arms else { return Vec::new() };
        let mut criteria = of_the_change(before, after);
        if let Some(classical) = classical {
            criteria.extend(of_the_classical_lists(after, classical));
        }
        let arms: Vec<&Measured> = [before, after].into_iter().chain(classical).collect();
        criteria.extend(of_what_stays(&arms));
        criteria
    })
}

/// The effect of the change, and what the arms before and after it read.
fn of_the_change(before: &Measured, after: &Measured) -> Vec<Criterion> {
    let ratio = |of: fn(&Measured) -> f64| of(after) / of(before);
    let [gain, read] = ["operations per second, after / before", "read, after / before"];
    let (files, refaults) = ("file refaults, after / before", ratio(|arm| arm.refault_file));
    let [was, is] = ["KiB read for an operation, before", "KiB read for an operation, after"];
    vec![
        effect(gain, ratio(|arm| arm.ops_per_s), (1.15, 1.5), "1.27 to 1.36").or_suspicious(),
        effect(read, ratio(|arm| arm.read), (0.55, 0.80), "0.64 to 0.70"),
        effect(files, refaults, (0.40, 0.70), "0.47 to 0.57"),
        agreement(was, before.read_each(), (26.0, 28.0), "26.4 to 27.6"),
        agreement(is, after.read_each(), (17.0, 19.0), "17.0 to 18.9"),
    ]
}

/// The classical lists, compared with the arm after the change.
fn of_the_classical_lists(after: &Measured, classical: &Measured) -> [Criterion; 3] {
    let ratio = |of: fn(&Measured) -> f64| of(classical) / of(after);
    let [gain, read] = ["operations per second, classical / after", "read, classical / after"];
    let each = "KiB read for an operation, classical";
    [
        effect(gain, ratio(|arm| arm.ops_per_s), (1.07, 1.28), "1.14"),
        effect(read, ratio(|arm| arm.read), (0.65, 0.88), "0.754"),
        agreement(each, classical.read_each(), (13.0, 16.0), "14.2"),
    ]
}

/// What no arm changes; the first arm is the one before.
fn of_what_stays(arms: &[&Measured]) -> [Criterion; 3] {
    let most = |of: fn(&Measured) -> f64| arms.iter().map(|arm| of(arm)).fold(0.0, f64::max);
    let apart = |arm: &&Measured| (arm.written / arms[0].written - 1.0).abs();
    // Nothing written before is no distance at all, NaN: a fold with `max` would pass it over.
    let further = |a: f64, b: f64| if b.is_nan() || b > a { b } else { a };
    [
        agreement(
            "written, distance of any arm from before",
            arms.iter().map(apart).fold(0.0, further),
            (0.0, 0.15),
            "0.00 to 0.12",
        ),
        agreement(
            "anonymous refaults, most of any arm",
            most(|arm| arm.refault_anon),
            (0.0, 0.0),
            "0",
        ),
        agreement("out of memory, most of any arm", most(|arm| arm.oom), (0.0, 0.0), "0"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Arm, published};
    use super::*;

    /// What the last posting says.
    fn posted(arm: Arm) -> Measured {
        let rows = published(arm);
        let row = rows.last().unwrap();
        let count = |name: &str| row.stat[name] as f64;
        Measured {
            ops: 6e6,
            ops_per_s: row.ops_per_s.unwrap(),
            read: count("pgpgin"),
            written: count("pgpgout"),
            refault_file: count("workingset_refault_file"),
            ..Measured::default()
        }
    }

    fn outcomes(before: &Measured, after: &Measured, classical: Option<&Measured>) -> Vec<Outcome> {
        verdict(before, after, classical).into_iter().map(|criterion| criterion.outcome).collect()
    }

    #[test]
    fn the_published_figures_reproduce_themselves() {
        let [before, after, classical] = [Arm::Before, Arm::After, Arm::Classical].map(posted);
        assert_eq!(outcomes(&before, &after, Some(&classical)), [Outcome::Reproduced; 11]);
        assert_eq!(outcomes(&before, &after, None), [Outcome::Reproduced; 8]);
    }

    /// The mutation that each rule must notice: one arm stands for all of them.
    #[test]
    fn one_arm_in_place_of_all_meets_no_effect() {
        let arms = [Arm::Before, Arm::After, Arm::Classical].map(posted);
        for one in arms {
            for criterion in verdict(&one, &one, Some(&one)) {
                let effect = criterion.kind == Kind::Effect;
                assert!(!effect || criterion.outcome == Outcome::NotReproduced, "{criterion:?}");
            }
        }
    }

    #[test]
    fn an_effect_that_one_arm_meets_is_too_wide_and_an_agreement_is_not() {
        let found = apart([Some(1.0), Some(1.2)], |arms| {
            let [Some(a), Some(b)] = arms else { return Vec::new() };
            vec![
                effect("wide", b / a, (1.0, 1.3), "1.2"),
                effect("narrow", b / a, (1.1, 1.3), "1.2"),
                agreement("alike", b / a, (0.7, 1.3), "1.2"),
            ]
        });
        let outcomes: Vec<Outcome> = found.iter().map(|criterion| criterion.outcome).collect();
        assert_eq!(outcomes, [Outcome::TooWide, Outcome::Reproduced, Outcome::Reproduced]);
    }

    #[test]
    fn too_much_is_suspicious_where_more_is_better() {
        let (before, mut after) = (posted(Arm::Before), posted(Arm::After));
        after.ops_per_s = before.ops_per_s * 1.51;
        assert_eq!(outcomes(&before, &after, None)[0], Outcome::Suspicious);
        after.read = before.read * 0.3;
        assert_eq!(outcomes(&before, &after, None)[1], Outcome::NotReproduced);
    }

    /// Both arms may read a half more than was published, and every ratio is still right.
    #[test]
    fn what_an_operation_reads_is_compared_arm_by_arm() {
        let [before, after, classical] = [Arm::Before, Arm::After, Arm::Classical].map(posted);
        let more = |arm: Measured| Measured { read: 1.5 * arm.read, ..arm };
        let (before, after, classical) = (more(before), more(after), more(classical));
        let found = verdict(&before, &after, Some(&classical));
        let wrong: Vec<&str> = found
            .iter()
            .filter(|criterion| criterion.outcome != Outcome::Reproduced)
            .map(|criterion| criterion.what)
            .collect();
        assert!(
            wrong.iter().all(|what| what.starts_with("KiB read for an operation")),
            "{wrong:?}"
        );
        assert_eq!(wrong.len(), 3);
    }

    #[test]
    fn each_condition_of_the_classical_lists_counts() {
        let (before, after) = (posted(Arm::Before), posted(Arm::After));
        let good = posted(Arm::Classical);
        for (at, broken) in [
            (5, Measured { ops_per_s: after.ops_per_s * 0.99, ..good }),
            (6, Measured { read: after.read * 0.6, ops: good.ops * 0.8, ..good }),
            (7, Measured { ops: good.ops * 0.8, ..good }),
            (8, Measured { written: before.written * 1.2, ..good }),
            (9, Measured { refault_anon: 1.0, ..good }),
            (10, Measured { oom: 1.0, ..good }),
        ] {
            let found = outcomes(&before, &after, Some(&broken));
            let wrong: Vec<usize> =
                (0..found.len()).filter(|&i| found[i] != Outcome::Reproduced).collect();
            assert_eq!(wrong, [at]);
        }
    }

    #[test]
    fn nothing_measured_reproduces_nothing() {
        let nothing = Measured::default();
        let found = outcomes(&nothing, &nothing, Some(&nothing));
        assert_eq!(found[..9], [Outcome::NotReproduced; 9]);
    }
}
