//! How often a policy is killed: the same run with many seeds.
//!
//! Whether a run is killed depends on which task is preempted when, so the start times, which are
//! all that a seed changes, decide it. The share of killed runs has an interval (Wilson's, at
//! 95 %), which says what no kill in N runs means: at most 100·z²/(N + z²) percent, z = 1.96.
//!
//! Runs are independent, and go side by side on the CPUs, seed after seed with all policies, so
//! that an interrupted command has compared its policies over the same seeds.

use lowtide::Policy;
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::{jobs, show};
use lowtide_experiments::client::mix::MixResult;
use lowtide_experiments::published::{Arm, MixOutcome, mix_verdict};
use lowtide_report::columns;
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::json::{COMMIT, VERSION};
use lowtide_report::outcome::MixRow;
use lowtide_report::outcome::SeedsRow;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::row::Row;
use lowtide_report::spread::Spread;
use lowtide_report::verdict::{Closing, CriterionRow};

use super::finished::{Ended, Finished, Setup};
use super::simulated::Plan;
use super::{NAME, SimOptions};
use crate::sim::compare::judged;

/// The 97.5th percentile of the normal distribution.
const Z: f64 = 1.959_963_985;

impl Plan {
    fn setup(&self) -> Setup<'_> {
        Setup {
            lowtide: VERSION,
            commit: COMMIT,
            max_bytes: self.max,
            anon_bytes: self.config.anon,
            file_bytes: self.config.file,
            threads: self.config.threads,
            readers: self.config.readers,
            pause_ns: self.config.pause_ns,
            between_ns: self.config.between_ns,
            rounds: self.config.rounds,
            slowdown: self.config.slowdown,
            machine: &self.machine,
        }
    }

    pub(super) fn ended(&self, result: &MixResult) -> Ended {
        let killed = result.killed;
        Ended {
            rounds: result.rounds,
            killed_with_clean_bytes: killed.map(|kill| kill.clean_file_pages * self.machine.page),
        }
    }

    /// The run in the verdict's form.
    fn outcome(&self, run: &Ended) -> MixOutcome {
        let share = |clean: u64| clean as f64 / self.max.unwrap_or(u64::MAX) as f64;
        MixOutcome {
            rounds: f64::from(run.rounds),
            killed_with_clean: run.killed_with_clean_bytes.map(share),
        }
    }

    /// Whether the published outcome is reproduced over all seeds; nothing if another experiment,
    /// or only a part of its arms, was simulated.
    pub(super) fn verdict(&self, policies: &[Policy], runs: &[Vec<Ended>]) -> Vec<CriterionRow> {
        if !self.is_published() {
            return Vec::new();
        }
        let of = |arm: Arm| -> Vec<MixOutcome> {
            let runs =
                policies.iter().zip(runs).filter(|(policy, _)| Arm::of(**policy) == Some(arm));
            runs.flat_map(|(_, runs)| runs).map(|run| self.outcome(run)).collect()
        };
        let [before, after, classical] = [Arm::Before, Arm::After, Arm::Classical].map(of);
        judged(None, &mix_verdict(&before, &after, &classical))
    }

    fn row_of_seeds(&self, policy: Policy, runs: &[Ended]) -> Row {
        let killed = runs.iter().filter_map(|run| Some((run.rounds, run.killed_with_clean_bytes?)));
        let (rounds, clean): (Vec<_>, Vec<_>) =
            killed.map(|(rounds, bytes)| (f64::from(rounds), bytes as f64)).unzip();
        let (count, kills) = (runs.len() as u32, rounds.len() as u32);
        let any = |values: Vec<f64>| (kills > 0).then(|| Spread::of(values));
        let base = self.setup_row(policy);
        let own = MixRow {
            seeds: Some(SeedsRow {
                first: self.config.seed,
                runs: count,
                rounds: self.config.rounds,
                kills,
                kills_ci95_pct: interval(kills, count).map(|share| 100.0 * share),
                kill_rounds: any(rounds),
                kill_clean_file_bytes: any(clean),
            }),
            ..base.own()
        };
        base.with(own)
    }
}

/// Wilson's interval of a probability: `kills` of `runs`, which is above 0.
fn interval(kills: u32, runs: u32) -> [f64; 2] {
    let n = f64::from(runs);
    let share = f64::from(kills) / n;
    let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt() / (1.0 + Z * Z / n);
    [(middle - half).max(0.0), (middle + half).min(1.0)]
}

/// Simulates every seed under every policy, and prints a row for each policy.
///
/// # Errors
/// Any [`SimError`]; a kill is not an error.
pub(crate) fn run(
    options: &SimOptions,
    plan: &Plan,
    policies: &[Policy],
    seeds: u32,
    parallel: usize,
) -> Result<(), SimError> {
    let common = &options.at_scale.common;
    if common.seed.checked_add(u64::from(seeds) - 1).is_none() {
        return Err(SimError::usage(
            format!("there are fewer than {seeds} seeds from {} on", common.seed),
            "choose a smaller --seed",
        ));
    }
    let setup = plan.setup();
    let file = options.out.as_deref().map(|path| Finished::open(path, &setup)).transpose()?;
    let mut head = plan.head();
    head.run = format!("{seeds} seeds of {}", head.run);
    head.print(common);

    // Seed after seed, each with all policies.
    let count = seeds as usize * policies.len();
    let of = |number: usize| {
        (policies[number % policies.len()], common.seed + (number / policies.len()) as u64)
    };
    let rounds = u64::from(plan.config.rounds);
    let progress = Patient::new("rounds", Unit::Steps, rounds * count as u64);
    let results = jobs::run(count, parallel, progress, |number, done| {
        let (policy, seed) = of(number);
        let name = policy.to_string();
        let known = file.as_ref().and_then(|file| file.get(&name, seed));
        let ended = if let Some(ended) = known {
            ended
        } else {
            interrupt::check(|| format!("simulating {NAME}"))?;
            let result = plan.simulate(policy, seed, done).map_err(|error| {
                SimError::of_machine(policy, error, &format!("simulating {NAME}"))
            })?;
            let ended = plan.ended(&result);
            file.as_ref().map_or(Ok(()), |file| file.append(&name, seed, ended))?;
            ended
        };
        done.store(rounds, std::sync::atomic::Ordering::Relaxed);
        Ok::<_, SimError>(ended)
    });
    let mut runs = vec![Vec::new(); policies.len()];
    let mut cut = Cut::default();
    for (number, result) in results.into_iter().enumerate() {
        runs[number % policies.len()].extend(cut.take(result)?);
    }
    let rows: Vec<Row> = policies
        .iter()
        .zip(&runs)
        .filter(|(_, runs)| !runs.is_empty())
        .map(|(&policy, runs)| plan.row_of_seeds(policy, runs))
        .collect();
    let again = cut.is_cut() && file.is_some();
    let again = again.then(|| "\nthe same command continues from here".to_owned());
    let verdict = if cut.is_cut() { Vec::new() } else { plan.verdict(policies, &runs) };
    let closing = Closing { lines: again.into_iter().collect(), verdict };
    show::results(common, &plan.machine, &rows, columns::MIX_SEEDS, closing, cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kill_in_few_runs_says_little() {
        let near = |found: [f64; 2], expected: [f64; 2]| {
            let pairs = found.iter().zip(expected);
            assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 5e-4), "{found:?}");
        };
        // The textbook's values.
        near(interval(0, 10), [0.0, 0.2775]);
        near(interval(5, 10), [0.2366, 0.7634]);
        near(interval(10, 10), [0.7225, 1.0]);
        near(interval(0, 1000), [0.0, 0.0038]);
    }
}
