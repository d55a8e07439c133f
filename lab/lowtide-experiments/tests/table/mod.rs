//! Every case on every kernel, at many capacities: the table of `docs/design/fidelity.md`.

use crate::kernels::{CHECKED, KERNELS, Kernel, agrees, kernel};
use lowtide_core::Events;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How a case is run once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Pages more than the kernel had.
    pub(crate) offset: i64,
    /// When the first publication of group statistics comes, as a part of the time between two.
    pub(crate) phase: f64,
    /// The task is switched out during walks.
    pub(crate) switched_in_walk: bool,
}

impl Run {
    /// At the kernel's own capacity.
    pub(crate) const MIDDLE: Self = Self { offset: 0, phase: 0.5, switched_in_walk: true };

    /// The `i`-th of `n` capacities from -32 to +32 pages, each with another phase.
    fn nth(case: &str, i: usize, n: usize) -> Self {
        let at = i as f64 / (n - 1) as f64;
        let switched_in_walk = case != "af60" || i.is_multiple_of(2);
        Self { offset: (64.0 * at) as i64 - 32, phase: at, switched_in_walk }
    }
}

/// The counters of each run of a case on a kernel.
struct Row {
    case: &'static str,
    kernel: &'static str,
    runs: Vec<Events>,
}

/// See the module documentation.
pub(crate) struct Table(Vec<Row>);

impl Table {
    /// Runs every case at `n` capacities, on two threads.
    pub(crate) fn run(
        cases: &[&'static str],
        n: usize,
        play: impl Fn(&str, &str, &str, Run) -> Events + Sync,
    ) -> Self {
        let rows =
            cases.iter().flat_map(|&case| KERNELS.map(|(name, policy)| (case, name, policy)));
        let rows = rows.filter(|(case, name, _)| kernel(case, name, "pgscan").is_some());
        let jobs: Vec<_> = rows.flat_map(|row| (0..n).map(move |i| (row, i))).collect();
        let results: Vec<_> = jobs.iter().map(|_| Mutex::new(Events::default())).collect();
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let job = next.fetch_add(1, Relaxed);
                        let Some(&((case, name, policy), i)) = jobs.get(job) else { break };
                        let events = play(case, name, policy, Run::nth(case, i, n));
                        *results[job].lock().expect("no thread panics with it") = events;
                    }
                });
            }
        });
        let rows = jobs.chunks(n).zip(results.chunks(n)).map(|(jobs, results)| {
            let ((case, kernel, _), _) = jobs[0];
            let runs =
                results.iter().map(|e| *e.lock().expect("no thread panics with it")).collect();
            Row { case, kernel, runs }
        });
        Self(rows.collect())
    }

    /// What does not agree, a line each.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        for row in &self.0 {
            for counter in CHECKED {
                let Some(k) = kernel(row.case, row.kernel, counter) else { continue };
                let median = row.median(counter);
                if !agrees(row.case, row.kernel, counter, k, median as f64) {
                    let (case, name) = (row.case, row.kernel);
                    complaints.push(format!(
                        "{case}, {name}: {counter} is {median}, the kernel has {k:?}"
                    ));
                }
            }
        }
        complaints
    }

    /// The table in Markdown, a section for each case; with `beyond`, only what does not agree to
    /// within the tolerance for counters that must.
    pub(crate) fn markdown(&self, counters: &[&str], beyond: bool) -> String {
        let mut text = String::new();
        let mut case = "";
        for row in &self.0 {
            for counter in counters {
                let Some(k) = kernel(row.case, row.kernel, counter) else { continue };
                if beyond && agrees(row.case, row.kernel, counter, k, row.median(counter) as f64) {
                    continue;
                }
                if case != row.case {
                    case = row.case;
                    text += &format!("\n### {case}\n\n");
                    text += "| kernel | counter | kernel: median [min..max] | lowtide: median \
                        [range] | deviation |\n";
                    text += "|---|---|---:|---:|---:|\n";
                }
                text += &row.line(counter, k);
            }
        }
        text
    }
}

impl Row {
    fn sorted(&self, counter: &str) -> Vec<u64> {
        let value = |e: &Events| e.iter().find(|(name, _)| *name == counter).expect("a counter").1;
        let mut values: Vec<_> = self.runs.iter().map(value).collect();
        values.sort_unstable();
        values
    }

    fn median(&self, counter: &str) -> u64 {
        self.sorted(counter)[self.runs.len() / 2]
    }

    fn line(&self, counter: &str, k: Kernel) -> String {
        let values = self.sorted(counter);
        let (median, least, most) = (values[values.len() / 2], values[0], values[values.len() - 1]);
        if k.max == 0.0 && most == 0 {
            return String::new();
        }
        let deviation = if k.median == 0.0 {
            String::from("–")
        } else {
            format!("{:+.1} %", 100.0 * (median as f64 / k.median - 1.0))
        };
        let (name, Kernel { min, median: kernel, max }) = (self.kernel, k);
        format!(
            "| {name} | {counter} | {kernel:.0} [{min:.0}..{max:.0}] | {median} [{least}..{most}] \
             | {deviation} |\n"
        )
    }
}
