//! Turns: warm-up, interleaved rounds, and ratios with their spread.
//!
//! The speed of a machine changes within minutes (other tenants, garbage collection of the device,
//! clock speed). So no system is measured in one piece: all are set up, then take turns in short
//! slices, A B C A B C. The ratio of two systems is computed within each round, in which both had
//! the same conditions; the result is the median over the rounds, with the smallest and the
//! largest.
//!
//! Before that, each system is warmed up to its steady state: its budget is full, the bytes that it
//! reads per operation are stable, and since the budget was full its operations have requested as
//! many bytes as the budget holds (or it has read several times that).

use std::time::{Duration, Instant};

use lowtide_report::interrupt::{self, Cut};
use lowtide_report::out;
use lowtide_report::progress::Patient;
use lowtide_report::rounds::Turns;
use lowtide_report::tally::Slice;

use super::error::BenchError;
use super::system::System;
use super::thread_pool::Until;

/// A budget is full when this share of it, or of the data if that is less, is charged.
const FULL: f64 = 0.9;
/// Bytes that operations must request once the budget is full, as a multiple of the budget.
const BUDGETS_ASKED: u64 = 1;
/// Bytes read from the device that suffice instead, as a multiple of the budget, for a system that
/// reads much more than requested.
const BUDGETS_READ: u64 = 3;
/// Bytes read per operation are stable when two consecutive steps differ by at most this share.
const SETTLED: f64 = 0.1;
/// The longest warm-up of one system.
const WARM_MAX: Duration = Duration::from_secs(30);
/// Seconds of a warm-up step for a budget of 256 MiB; proportionally less for smaller budgets.
const WARM_STEP_SECONDS: f64 = 0.5;

/// An empty row of a system.
fn turns_of(system: &dyn System) -> Turns {
    Turns {
        system: system.name(),
        policy: system.policy(),
        label: system.label(),
        slices: Vec::new(),
    }
}

/// An error when any operation of any slice of a row failed.
///
/// # Errors
/// [`BenchError::Wrong`].
pub fn verdict(row: &Turns) -> Result<(), BenchError> {
    verdict_of(&row.label, &row.sum())
}

fn verdict_of(label: &str, slice: &Slice) -> Result<(), BenchError> {
    match (slice.errors, &slice.first_error) {
        (0, _) => Ok(()),
        (errors, first) => Err(BenchError::Wrong {
            system: label.to_owned(),
            errors,
            first: first.clone().unwrap_or_else(|| "not described".into()),
        }),
    }
}

/// Brings every system into its steady state. Drops a peer that the kernel kills for lack of
/// memory.
///
/// # Errors
/// Those of [`System::run`]; [`BenchError::Wrong`] as soon as an operation fails;
/// [`BenchError::Interrupted`].
pub fn warm_up(
    systems: &mut Vec<Box<dyn System>>,
    max_bytes: u64,
    data_bytes: u64,
    progress: &mut Patient,
) -> Result<(), BenchError> {
    let mut at = 0;
    while let Some(system) = systems.get_mut(at) {
        progress.say(format!("warming up {}", system.label()));
        match warm_up_one(system.as_mut(), max_bytes, data_bytes) {
            Err(killed @ BenchError::PeerKilled { .. }) => {
                progress.clear();
                out::note(killed);
                systems.remove(at);
            }
            done => {
                done?;
                at += 1;
            }
        }
        progress.add(1);
    }
    Ok(())
}

fn warm_up_one(system: &mut dyn System, max_bytes: u64, data_bytes: u64) -> Result<(), BenchError> {
    let label = system.label();
    let begin = Instant::now();
    let share = (max_bytes as f64 / f64::from(256 << 20)).clamp(0.05, 1.0);
    let step = Until::Seconds(WARM_STEP_SECONDS * share);
    let enough = max_bytes.min(data_bytes);
    let (mut asked, mut read, mut last_cost) = (0, 0, f64::INFINITY);
    while begin.elapsed() < WARM_MAX {
        let slice = system.warm(step)?;
        interrupt::check(|| format!("warming up {label}"))?;
        verdict_of(&label, &slice)?;
        if !system.keeps_pages() {
            break;
        }
        if (slice.current_bytes as f64) < FULL * enough as f64 {
            continue;
        }
        asked += slice.asked_bytes;
        read += slice.read_bytes;
        let turned_over = asked >= BUDGETS_ASKED * enough || read >= BUDGETS_READ * enough;
        let cost = slice.read_bytes as f64 / slice.ops.max(1) as f64;
        if turned_over && (cost - last_cost).abs() <= SETTLED * last_cost {
            break;
        }
        last_cost = cost;
    }
    Ok(())
}

/// Runs `rounds` rounds; in round `n` each system has a slice of `until(n)`. A round in which an
/// operation failed is the last. A peer that the kernel kills for lack of memory loses its row.
/// After an interruption, the rows contain the slices that were complete, and `cut` is set.
///
/// # Errors
/// Those of [`System::run`], [`BenchError::Interrupted`] before any row has a slice.
pub fn take_turns(
    systems: &mut Vec<Box<dyn System>>,
    rounds: u32,
    until: impl Fn(u32) -> Until,
    progress: &mut Patient,
    cut: &mut Cut,
) -> Result<Vec<Turns>, BenchError> {
    let mut rows: Vec<Turns> = systems.iter().map(|system| turns_of(system.as_ref())).collect();
    'rounds: for round in 0..rounds {
        let mut at = 0;
        while let (Some(system), Some(row)) = (systems.get_mut(at), rows.get_mut(at)) {
            let what = || format!("measuring {}, round {} of {rounds}", row.label, round + 1);
            progress.say(what());
            match system.run(until(round)) {
                Err(killed @ BenchError::PeerKilled { .. }) => {
                    progress.clear();
                    out::note(killed);
                    systems.remove(at);
                    rows.remove(at);
                }
                slice => {
                    // An interrupted slice is no result, and the interruption may be the cause of
                    // its error.
                    let slice = interrupt::check(what).map_err(Into::into).and(slice);
                    let Some(slice) = cut.take(slice)? else {
                        rows.retain(|row| !row.slices.is_empty());
                        break 'rounds;
                    };
                    row.slices.push(slice);
                    at += 1;
                }
            }
            progress.add(1);
        }
        if rows.iter().any(|row| row.slices.iter().any(|slice| slice.errors > 0)) {
            break;
        }
    }
    cut.refuse_nothing(rows.is_empty())?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_report::rounds::ratio;
    use lowtide_report::spread::Spread;

    /// Returns given rates, one per slice; in one slice (counted from 1) an operation fails, or the
    /// system is killed.
    #[derive(Default)]
    struct Script {
        rates: Vec<u64>,
        fails_in: usize,
        killed_in: usize,
        runs: usize,
    }

    impl System for Script {
        fn name(&self) -> &'static str {
            "script"
        }

        fn run(&mut self, _: Until) -> Result<Slice, BenchError> {
            self.runs += 1;
            if self.runs == self.killed_in {
                return Err(BenchError::PeerKilled { peer: "script", max_bytes: 1 });
            }
            let errors = u64::from(self.runs == self.fails_in);
            Ok(Slice { seconds: 1.0, ops: self.rates[self.runs - 1], errors, ..Slice::default() })
        }
    }

    fn turns(systems: impl IntoIterator<Item = Script>) -> Vec<Turns> {
        let mut systems =
            systems.into_iter().map(|script| Box::new(script) as Box<dyn System>).collect();
        let mut cut = Cut::default();
        take_turns(&mut systems, 3, |_| Until::Seconds(1.0), &mut Patient::steps(0), &mut cut)
            .unwrap()
    }

    fn script(rates: [u64; 3]) -> Script {
        Script { rates: rates.to_vec(), ..Script::default() }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The machine is ten times slower in the second round; the ratio does not care.
        let rows = turns([script([100, 10, 100]), script([200, 20, 300])]);
        let ratio = ratio(&rows[1], &rows[0], Slice::rate);
        assert_eq!(ratio, Spread { median: 2.0, min: 2.0, max: 3.0 });
        assert_eq!(ratio.text(), "2.00 (2.00..3.00)");
    }

    #[test]
    fn a_failing_operation_ends_the_measurement_after_its_round() {
        let rows = turns([Script { fails_in: 2, ..script([1, 1, 1]) }, script([1, 1, 1])]);
        assert!(rows.iter().all(|row| row.slices.len() == 2));
        assert!(matches!(verdict(&rows[0]), Err(BenchError::Wrong { errors: 1, .. })));
        assert!(verdict(&rows[1]).is_ok());
    }

    #[test]
    fn a_peer_that_is_killed_loses_its_row_and_the_others_go_on() {
        let rows = turns([
            script([1, 1, 1]),
            Script { killed_in: 2, ..script([1, 1, 1]) },
            script([5, 5, 5]),
        ]);
        assert_eq!(rows.iter().map(|row| row.slices.len()).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(rows[1].slices[1].ops, 5);
    }
}
