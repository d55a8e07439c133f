//! Fidelity: the engine counts what real kernels count.
//!
//! Real Linux kernels performed exact, seeded access sequences in a memory cgroup; `data/ground_truth.csv` has their counters at the
//! end of each run (case, policy, kernel version, number of runs, counter, minimum, median, maximum; in pages or events). Here the same
//! sequences go through the minimal machine of `mini/mod.rs`, with the file pages that the kernel ended with as the budget. (With swap, some pages
//! of memory are neither file nor mapped anonymous memory; there it is the limit less what the kernel used for itself, and less half a charge batch.)
//!
//! Two things make a comparison of single numbers meaningless. The multi-gen LRU of 7.3 is chaotic in the size of memory: a
//! fifth of a percent more of it moves refaults by ten percent either way. And the classical lists depend on the phase of a two-second
//! timer that nobody controls. So a case is run at several capacities within ±32 pages, each with another phase, and the *median*
//! is compared with the kernel's.
//!
//! A third is whether the task is switched out while an aging walks, so that a second aging right after it walks as well. `reclaim.md` §2.5
//! takes that for the rule, and section C does so for each case but `af60`, of which it says nothing; so there every other run goes without.
//!
//! The ordinary test runs five capacities. The whole table, seventeen of them, is printed by
//! `cargo test --release -p lowtide-core --test ground_truth -- --ignored --nocapture`.
#![expect(clippy::print_stdout, reason = "the whole table is a report")]

mod mini;

use lowtide_core::{Events, Lists, Policy};
use lowtide_workload::groundtruth::{ANON_BIT, PAGE_MASK, PublicCase, Swap, WRITE_BIT};
use mini::{Access, Disk, Machine, Setup, SwapDevice};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const CASES: [&str; 8] = ["z1", "z3", "loop", "mix", "w5", "p0", "high", "af60"];

/// The kernels by name, and the policy that is the same. The third is 7.2 with one commit taken back, the one that changed placement,
/// promotion at the second sighting, and what counts as an activation; what came with 7.3 it does not have yet.
const POLICIES: [(&str, &str); 4] = [
    ("lru", "lru"),
    ("mglru-7.1", "mglru-7.1"),
    ("mglru-7.2-without-placement", "mglru-placement-promotion-activate-exec-window-cost-anononly"),
    ("mglru", "mglru"),
];

/// Counters that must agree.
const CHECKED: [&str; 4] = ["workingset_refault_file", "workingset_refault_anon", "pgscan", "pgsteal"];
/// Counters that are printed beside them.
const PRINTED: [&str; 11] = [
    "pgactivate",
    "pgdeactivate",
    "pgrefill",
    "workingset_activate_file",
    "workingset_activate_anon",
    "workingset_restore_file",
    "workingset_restore_anon",
    "pgfault",
    "pgmajfault",
    "pswpin",
    "pswpout",
];

/// Half of what a charge takes in advance, in pages.
const HALF_A_CHARGE_BATCH: i64 = 32;
/// Slots of either swap device: 512 MiB, less the first.
const SWAP_PAGES: u32 = (512 << 8) - 1;
/// Nanoseconds until a write to the asynchronous swap device has ended, where a step of reclaim takes 1000: the writes of a pass end while
/// the next one is under way (§5.4; §9, 54).
const SWAP_LATENCY: u64 = 2_000;

/// How far the median may be from the kernel's, unless it is within the kernel's own spread.
const TOLERANCE: f64 = 0.05;

/// Where the kernel's number hangs on something that neither it nor the machine controls, the range that `reclaim.md` gives, as
/// fractions of the kernel's median; for one counter or, where none is named, for all.
///
/// * `loop` before the new placement: whether the second of two back-to-back agings finds the task switched out decides
///   between 98.3 k and 86 k refaults (§2.5, C); real runs have 87 to 96 k, the machine always visits.
/// * `mix` on classical lists: +0.3 to +8.9 % by the phase of the timer alone (§5.7).
/// * `af60` on classical lists: by the phase alone -9 to +2 % of the file's refaults, and 1.0 k to 2.2 k of the heap's where two runs of the
///   kernel have 1,136 and 1,390 (§5.7).
const RANGES: [(&str, &str, &str, std::ops::RangeInclusive<f64>); 5] = [
    ("loop", "mglru-7.1", "", 0.935..=1.08),
    ("loop", "mglru-7.2-without-placement", "", 0.935..=1.08),
    ("mix", "lru", "", 0.95..=1.09),
    ("af60", "lru", "workingset_refault_file", 0.91..=1.02),
    ("af60", "lru", "workingset_refault_anon", 0.79..=1.75),
];

/// What a kernel counted: minimum, median and maximum of its runs.
#[derive(Clone, Copy, Debug)]
struct Kernel {
    min: f64,
    median: f64,
    max: f64,
}

/// `None` if the kernel's figure is not recorded: without a heap there is nothing to say of it.
fn kernel(case: &str, policy: &str, counter: &str) -> Option<Kernel> {
    let rows = include_str!("data/ground_truth.csv").lines().map(|l| l.split(',').collect::<Vec<_>>());
    let row = rows.into_iter().find(|f| f[0] == case && f[1] == policy && f[4] == counter)?;
    let number = |i: usize| row[i].parse().unwrap();
    Some(Kernel { min: number(5), median: number(6), max: number(7) })
}

/// Pages that a kernel had for data.
fn capacity(case: &str, policy: &str, limit: Option<u64>) -> i64 {
    let pages = |counter| kernel(case, policy, counter).map(|k| k.median as i64);
    match (pages("pages_kernel"), limit) {
        (Some(overhead), Some(max)) => max as i64 - overhead - HALF_A_CHARGE_BATCH,
        _ => pages("pages_file").expect("every case has one of the two"),
    }
}

/// Runs a case once, at `offset` pages from the kernel's capacity, publishing from `phase` (0..1) on.
/// `switched` tells whether the task is switched out during walks.
fn play(case: &str, kernel_policy: &str, policy: Policy, offset: i64, phase: f64, switched: bool) -> Events {
    let public = PublicCase::find(case).expect("a published case");
    let sequence = public.case().expect("a valid case");
    let capacity = capacity(case, kernel_policy, sequence.mem) + offset;
    let mut setup = Setup::new(policy, u64::from(sequence.sequence.file_pages()), capacity as u64);
    setup.heap = u64::from(sequence.sequence.anon_pages());
    setup.swappiness = sequence.swappiness;
    setup.switched_in_walk = switched;
    setup.swap = sequence.swap.map(|swap| match swap {
        Swap::Nvme => SwapDevice { pages: SWAP_PAGES, disk: Disk::Late(SWAP_LATENCY) },
        Swap::Zram => SwapDevice { pages: SWAP_PAGES, disk: Disk::Instant },
    });
    setup.publish_phase = 1 + (phase * setup.publish_every as f64) as u64;
    if policy.lists() == Lists::Classical {
        // Without a few active pages no refault is ever recent (§6.1 step 4); file-system metadata plays that part.
        setup.metadata = 2;
    }
    let [load, store] =
        if case == "p0" { [Access::Read, Access::Write] } else { [Access::Load, Access::Store] };
    let mut machine = Machine::new(setup);
    for op in sequence.ops() {
        let (page, write) = (u64::from(op & PAGE_MASK), op & WRITE_BIT != 0);
        let result = if op & ANON_BIT != 0 {
            machine.heap(page, write)
        } else {
            machine.access(page, if write { store } else { load })
        };
        result.expect("there is always something to reclaim");
    }
    machine.validate();
    machine.events()
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
                        let switched = case != "af60" || i % 2 == 0;
                        let events = play(case, name, policy.parse().unwrap(), offset, at, switched);
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
                let Some(k) = kernel(case, name, counter) else { continue };
                let m = sorted(runs, counter)[runs.len() / 2] as f64;
                let applies = |c: &str| c.is_empty() || c == counter;
                let allowed = RANGES.iter().find(|r| (r.0, r.1) == (*case, *name) && applies(r.2));
                let allowed = allowed.map_or(1.0 - TOLERANCE..=1.0 + TOLERANCE, |r| r.3.clone());
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
                let Some(k) = kernel(case, name, counter) else { continue };
                let values = sorted(runs, counter);
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

/// On a sequence that only reads the file, every miss is either the first of its page or a refault. The heap's first touches read nothing.
#[test]
fn major_faults_are_first_touches_and_refaults() {
    for case in ["mix", "af60"] {
        let ops = PublicCase::find(case).unwrap().case().unwrap().ops();
        let distinct = ops.filter(|op| op & ANON_BIT == 0).collect::<HashSet<_>>().len() as u64;
        for (name, policy) in POLICIES {
            let e = play(case, name, policy.parse().unwrap(), 0, 0.5, true);
            let refaults = e.workingset_refault_file + e.workingset_refault_anon;
            assert_eq!(e.pgmajfault, distinct + refaults, "{case}, {name}");
            assert_eq!(e.pswpin, e.workingset_refault_anon, "{case}, {name}");
        }
    }
}

/// What the placement change of 7.2 is for: a cyclic scan somewhat larger than memory is re-read by less than half.
#[test]
fn the_new_placement_halves_the_refaults_of_a_cyclic_scan() {
    let refaults = |name, policy: Policy| play("loop", name, policy, 0, 0.5, true).workingset_refault_file;
    let (old, new) = (refaults("mglru-7.1", Policy::MGLRU_7_1), refaults("mglru", Policy::MGLRU));
    assert!(2 * new < old, "{new} refaults, and {old} with the placement of 7.1");
}
