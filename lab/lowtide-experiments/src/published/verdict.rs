//! When a simulation has reproduced the published experiment: sign and size of every effect, as
//! ratios between arms, and what each arm reads for an operation.
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

/// How a criterion came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// In the range.
    Reproduced,
    /// Outside of it.
    NotReproduced,
    /// More than was published, by too much to be believed.
    Suspicious,
}

impl Outcome {
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::NotReproduced => "not reproduced",
            Self::Suspicious => "suspicious",
        }
    }
}

/// One condition of the verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criterion {
    /// What is compared, in words.
    pub what: &'static str,
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
    /// In range, or not: a value that is no number never is.
    pub(super) fn within(
        what: &'static str,
        value: f64,
        (least, most): (f64, f64),
        published: &'static str,
    ) -> Self {
        let inside = (least..=most).contains(&value);
        let outcome = if inside { Outcome::Reproduced } else { Outcome::NotReproduced };
        Self { what, value, least, most, published, outcome }
    }

    /// The same where more than the most is not a failure to reproduce, but too good.
    fn or_suspicious(self) -> Self {
        if self.value > self.most { Self { outcome: Outcome::Suspicious, ..self } } else { self }
    }
}

/// Every criterion that can be decided from these arms. Those that need the classical lists are
/// left out without them.
#[must_use]
pub fn verdict(
    before: &Measured,
    after: &Measured,
    classical: Option<&Measured>,
) -> Vec<Criterion> {
    let mut criteria = of_the_change(before, after);
    if let Some(classical) = classical {
        criteria.extend(of_the_classical_lists(after, classical));
    }
    let arms: Vec<&Measured> = [before, after].into_iter().chain(classical).collect();
    criteria.extend(of_what_stays(&arms));
    criteria
}

/// The effect of the change, and what the arms before and after it read.
fn of_the_change(before: &Measured, after: &Measured) -> Vec<Criterion> {
    let gain = after.ops_per_s / before.ops_per_s;
    let what = "operations per second, after / before";
    vec![
        Criterion::within(what, gain, (1.15, 1.5), "1.27 to 1.36").or_suspicious(),
        Criterion::within(
            "read, after / before",
            after.read / before.read,
            (0.55, 0.80),
            "0.64 to 0.70",
        ),
        Criterion::within(
            "file refaults, after / before",
            after.refault_file / before.refault_file,
            (0.40, 0.70),
            "0.47 to 0.57",
        ),
        Criterion::within(
            "KiB read for an operation, before",
            before.read_each(),
            (26.0, 28.0),
            "26.4 to 27.6",
        ),
        Criterion::within(
            "KiB read for an operation, after",
            after.read_each(),
            (17.0, 19.0),
            "17.0 to 18.9",
        ),
    ]
}

/// The classical lists, compared with the arm after the change.
fn of_the_classical_lists(after: &Measured, classical: &Measured) -> [Criterion; 3] {
    [
        Criterion::within(
            "operations per second, classical / after",
            classical.ops_per_s / after.ops_per_s,
            (1.0, 1.3),
            "1.14",
        ),
        Criterion::within(
            "read, classical / after",
            classical.read / after.read,
            (0.65, 0.95),
            "0.754",
        ),
        Criterion::within(
            "KiB read for an operation, classical",
            classical.read_each(),
            (13.0, 16.0),
            "14.2",
        ),
    ]
}

/// What no arm changes; the first arm is the one before.
fn of_what_stays(arms: &[&Measured]) -> [Criterion; 3] {
    let most = |of: fn(&Measured) -> f64| arms.iter().map(|arm| of(arm)).fold(0.0, f64::max);
    let apart = |arm: &&Measured| (arm.written / arms[0].written - 1.0).abs();
    // Nothing written before is no distance at all, NaN: a fold with `max` would pass it over.
    let further = |a: f64, b: f64| if b.is_nan() || b > a { b } else { a };
    [
        Criterion::within(
            "written, distance of any arm from before",
            arms.iter().map(apart).fold(0.0, further),
            (0.0, 0.15),
            "0.00 to 0.12",
        ),
        Criterion::within(
            "anonymous refaults, most of any arm",
            most(|arm| arm.refault_anon),
            (0.0, 0.0),
            "0",
        ),
        Criterion::within("out of memory, most of any arm", most(|arm| arm.oom), (0.0, 0.0), "0"),
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

    #[test]
    fn no_effect_is_not_reproduced() {
        let before = posted(Arm::Before);
        let found = outcomes(&before, &before, None);
        assert_eq!(found[..3], [Outcome::NotReproduced; 3]);
        assert_eq!(found[3..5], [Outcome::Reproduced, Outcome::NotReproduced], "27.6 twice");
        assert_eq!(found[5..], [Outcome::Reproduced; 3], "what should stay the same did");
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
