//! Rows in parallel: each policy's simulation runs on one thread and is independent of the others,
//! so results do not depend on the parallelism.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use lowtide_report::exit::Failure;
use lowtide_report::interrupt::{self, Interrupted};
use lowtide_report::out;
use lowtide_report::progress::Patient;
use lowtide_report::threads::{self, Stop};

use super::error::SimError;

/// Interval at which progress is checked.
const TICK: Duration = Duration::from_millis(100);

/// Time limit for jobs to react to Ctrl-C.
const GRACE: Duration = Duration::from_millis(600);

/// Runs `count` jobs, `parallel` at a time, and returns their results in the order of their
/// numbers. Each job receives its number and a counter, which it advances; the sum of all counters
/// is the bar's position.
///
/// Jobs check for Ctrl-C themselves. If a job does not react in time, because it is still creating
/// a large machine, the process ends here, with the same message and exit code, and leaves nothing
/// behind.
///
/// # Panics
/// If a job panics, or the threads cannot be started.
pub fn run<T: Send>(
    count: usize,
    parallel: usize,
    mut progress: Patient,
    job: impl Fn(usize, &AtomicU64) -> T + Sync,
) -> Vec<T> {
    let done: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<T>> = (0..count).map(|_| None).collect();
    let (sender, receiver) = channel();
    let works = (0..parallel.clamp(1, count.max(1))).map(|_| {
        let (sender, job, done, next) = (sender.clone(), &job, &done, &next);
        move || {
            loop {
                let number = next.fetch_add(1, Relaxed);
                let Some(counter) = done.get(number) else { break };
                // The receiver lives longer than the thread.
                let _ = sender.send((number, job(number, counter)));
            }
        }
    });
    // All threads have a sender of their own before this one is dropped.
    let works: Vec<_> = works.collect();
    drop(sender);
    let collect = || {
        let mut interrupted = Duration::ZERO;
        loop {
            match receiver.recv_timeout(TICK) {
                Ok((number, result)) => results[number] = Some(result),
                Err(RecvTimeoutError::Timeout) => {
                    progress.set(done.iter().map(|counter| counter.load(Relaxed)).sum());
                    interrupted += if interrupt::requested() { TICK } else { Duration::ZERO };
                    if interrupted > GRACE {
                        drop(progress);
                        let error =
                            SimError::from(Interrupted { during: "while setting up".into() });
                        out::note(format_args!("error: {error}"));
                        std::process::exit(error.exit_code().into());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    };
    if let Err(error) = threads::run(&Stop::default(), works, collect) {
        std::panic::resume_unwind(Box::new(error.to_string()));
    }
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_report::progress::Unit;

    #[test]
    fn results_keep_the_order_of_their_jobs() {
        for parallel in [0, 1, 2, 100] {
            let progress = Patient::new("", Unit::Steps, 5);
            let squares = run(5, parallel, progress, |number, done| {
                done.fetch_add(1, Relaxed);
                number * number
            });
            assert_eq!(squares, [0, 1, 4, 9, 16]);
        }
        assert!(run(0, 4, Patient::new("", Unit::Steps, 0), |number, _| number).is_empty());
    }
}
