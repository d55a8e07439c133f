//! Fidelity: the engine counts what real kernels count.
//!
//! Real Linux kernels performed exact, seeded access sequences in a memory cgroup; `../../lowtide-core/tests/data/ground_truth.csv` has their counters at the
//! end of each run (case, policy, kernel version, number of runs, counter, minimum, median, maximum; in pages or events). Here the same
//! sequences go through the minimal machine of `mini/mod.rs`, with the file pages that the kernel ended with as the budget.
//!
//! Two things make a comparison of single numbers meaningless. The multi-gen LRU of 7.3 is chaotic in the size of memory: a
//! fifth of a percent more of it moves refaults by ten percent either way. And the classical lists depend on the phase of a two-second
//! timer that nobody controls. So a case is run at several capacities within ±32 pages, each with another phase, and the *median*
//! is compared with the kernel's.
//!
//! The ordinary test runs five capacities. The whole table, seventeen of them, is printed by
//! `cargo test --release -p lowtide-core --test ground_truth -- --ignored --nocapture`.
#![expect(clippy::print_stdout, reason = "the whole table is a report")]

use lowtide_core::{Events, Policy};
use lowtide_sim::{Plain, PlainConfig};
use lowtide_workload::groundtruth::{PAGE_MASK, PublicCase, WRITE_BIT};
use lowtide_workload::{OpKind, SpaceKind};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The cases without anonymous memory.
const CASES: [&str; 7] = ["z1", "z3", "loop", "mix", "w5", "p0", "high"];

/// The kernels by name, and the policy that is the same. The third is 7.2 with one commit taken back, the one that changed placement,
/// promotion at the second sighting, and what counts as an activation; what came with 7.3 it does not have yet.
const POLICIES: [(&str, &str); 4] = [
    ("lru", "lru"),
    ("mglru-7.1", "mglru-7.1"),
    ("mglru-7.2-without-placement", "mglru-placement-promotion-activate-exec-window-cost-anononly"),
    ("mglru", "mglru"),
];

const REFAULTS: &str = "workingset_refault_file";
/// Counters that must agree.
const CHECKED: [&str; 3] = [REFAULTS, "pgscan", "pgsteal"];
/// Counters that are printed beside them.
const PRINTED: [&str; 5] =
    ["pgactivate", "pgdeactivate", "pgrefill", "workingset_activate_file", "workingset_restore_file"];

/// How far the median may be from the kernel's, unless it is within the kernel's own spread.
const TOLERANCE: f64 = 0.05;

/// Where the kernel's number hangs on something that neither it nor the machine controls, the range that `reclaim.md` gives, as
/// fractions of the kernel's median.
///
/// * `loop` before the new placement: whether the second of two back-to-back agings finds the task switched out decides
///   between 98.3 k and 86 k refaults (§2.5, C); real runs have 87 to 96 k, the machine always visits.
/// * `mix` on classical lists: +0.3 to +8.9 % by the phase of the timer alone (§5.7).
const RANGES: [(&str, &str, std::ops::RangeInclusive<f64>); 3] = [
    ("loop", "mglru-7.1", 0.935..=1.08),
    ("loop", "mglru-7.2-without-placement", 0.935..=1.08),
    ("mix", "lru", 0.95..=1.09),
];

/// What a kernel counted: minimum, median and maximum of its runs.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    min: f64,
    median: f64,
    max: f64,
}

fn kernel(case: &str, policy: &str, counter: &str) -> Kernel {
    let rows = include_str!("../../lowtide-core/tests/data/ground_truth.csv")
        .lines()
        .map(|l| l.split(',').collect::<Vec<_>>());
    let row = rows.into_iter().find(|f| f[0] == case && f[1] == policy && f[4] == counter);
    let number = |i: usize| row.as_ref().expect("every counter of every case is there")[i].parse().unwrap();
    Kernel { min: number(5), median: number(6), max: number(7) }
}

/// Runs a case once, at `offset` pages from the kernel's capacity, publishing from `phase` (0..1) on.
fn play(case: &str, kernel_policy: &str, policy: Policy, offset: i64, phase: f64) -> Events {
    let public = PublicCase::find(case).expect("a published case");
    let sequence = public.case().expect("a valid case");
    let capacity = kernel(case, kernel_policy, "pages_file").median as i64 + offset;
    let mut config = PlainConfig::new(policy, capacity as u64);
    config.publish_phase = 1 + (phase * config.publish_every as f64) as u64;
    let [load, store] =
        if case == "p0" { [OpKind::Read, OpKind::Write] } else { [OpKind::Load, OpKind::Store] };
    let mut machine = Plain::new(&config).expect("the budget is big enough");
    let space = machine.add_space(SpaceKind::File, u64::from(sequence.sequence.file_pages()));
    for op in sequence.ops() {
        let kind = if op & WRITE_BIT == 0 { load } else { store };
        machine.access(kind, space, u64::from(op & PAGE_MASK)).expect("there is always something clean");
    }
    machine.validate().expect("the engine is sound");
    machine.stat().events
}

/// Every case on every kernel, with the counters of each run.
struct Table(Vec<(&'static str, &'static str, Vec<Events>)>);

impl Table {
    /// Runs everything at `n` capacities from -32 to +32 pages. Cost: about 30 ms a run, on two threads.
    fn run(n: usize) -> Self {
        let rows = CASES.iter().flat_map(|&case| POLICIES.map(|(name, policy)| (case, name, policy)));
        let jobs: Vec<_> = rows.flat_map(|row| (0..n).map(move |i| (row, i))).collect();
        let results: Vec<_> = jobs.iter().map(|_| Mutex::new(Events::default())).collect();
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let job = next.fetch_add(1, Relaxed);
                        let Some(&((case, name, policy), i)) = jobs.get(job) else { break };
                        let at = i as f64 / (n - 1) as f64;
                        let offset = (64.0 * at) as i64 - 32;
                        let events = play(case, name, policy.parse().unwrap(), offset, at);
                        *results[job].lock().unwrap() = events;
                    }
                });
            }
        });
        let rows = jobs.chunks(n).zip(results.chunks(n)).map(|(jobs, results)| {
            let ((case, name, _), _) = jobs[0];
            (case, name, results.iter().map(|e| *e.lock().unwrap()).collect())
        });
        Self(rows.collect())
    }

    /// What is wrong, a line each.
    fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        for (case, name, runs) in &self.0 {
            for counter in CHECKED {
                let (k, m) = (kernel(case, name, counter), sorted(runs, counter)[runs.len() / 2] as f64);
                let allowed = RANGES.iter().find(|r| (r.0, r.1) == (*case, *name));
                let allowed = allowed.map_or(1.0 - TOLERANCE..=1.0 + TOLERANCE, |r| r.2.clone());
                if !allowed.contains(&(m / k.median)) && !(k.min..=k.max).contains(&m) {
                    complaints.push(format!("{case}, {name}: {counter} is {m}, the kernel has {k:?}"));
                }
            }
        }
        complaints
    }

    fn print(&self) {
        println!("{:28} {:24} {:>22} {:>7} {:>15}", "case, kernel", "counter", "kernel", "median", "range");
        for (case, name, runs) in &self.0 {
            for counter in CHECKED.into_iter().chain(PRINTED) {
                let (k, values) = (kernel(case, name, counter), sorted(runs, counter));
                let m = values[values.len() / 2];
                if k.max == 0.0 && m == 0 {
                    continue;
                }
                println!(
                    "{case:4} {name:28} {counter:24} {:>7} [{:>6}..{:>6}] {m:>7} [{:>6}..{:>6}] {:>+6.1} %",
                    k.median,
                    k.min,
                    k.max,
                    values[0],
                    values[values.len() - 1],
                    100.0 * (m as f64 / k.median - 1.0)
                );
            }
        }
    }
}

fn sorted(runs: &[Events], counter: &str) -> Vec<u64> {
    let value = |e: &Events| e.iter().find(|(name, _)| *name == counter).expect("a counter of the engine").1;
    let mut values: Vec<_> = runs.iter().map(value).collect();
    values.sort_unstable();
    values
}

#[test]
fn the_engine_counts_what_kernels_count() {
    let complaints = Table::run(5).complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
#[ignore = "a minute; prints the whole table"]
fn the_whole_table_of_seventeen_capacities() {
    let table = Table::run(17);
    table.print();
    let complaints = table.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

/// On a sequence that only reads, every miss is either the first of its page or a refault.
#[test]
fn major_faults_are_first_touches_and_refaults() {
    let ops = PublicCase::find("mix").unwrap().case().unwrap().ops();
    let distinct = ops.collect::<HashSet<_>>().len() as u64;
    for (name, policy) in POLICIES {
        let e = play("mix", name, policy.parse().unwrap(), 0, 0.5);
        assert_eq!(e.pgmajfault, distinct + e.workingset_refault_file, "{name}");
    }
}

/// What the placement change of 7.2 is for: a cyclic scan somewhat larger than memory is re-read by less than half.
#[test]
fn the_new_placement_halves_the_refaults_of_a_cyclic_scan() {
    let refaults = |name, policy: Policy| play("loop", name, policy, 0, 0.5).workingset_refault_file;
    let (old, new) = (refaults("mglru-7.1", Policy::MGLRU_7_1), refaults("mglru", Policy::MGLRU));
    assert!(2 * new < old, "{new} refaults, and {old} with the placement of 7.1");
}
