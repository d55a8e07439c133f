//! Fidelity: heaps on swap, processes that come and go, and cold starts count what real kernels
//! count.
//!
//! Real kernels performed three jobs (`lowtide_experiments::programs::kernels`: [`Churn`],
//! [`Pool`], [`Cold`]) on emulated CPUs, where time means nothing and counters do, once each. Here
//! the full machine plays the same draws, with the kernel's seed.
//!
//! What the kernel charged to the group for itself was not recorded. By its rules these are the
//! page tables (one for 512 pages of a mapping, and the levels above), stacks and other objects of
//! eight processes or of a pool of 98,304 pages: up to 2 % of the group. So a job is played at five
//! capacities, from the whole limit to 2 % less, and the medians are compared.
//!
//! The heaps of *churn* exceed their memory by little, so what it counts depends on which of its
//! processes run at a time: the two runs of a kernel differ by 10 %, neighbouring capacities here
//! by 15 % either way, seeds by half. So its levels may be off by a quarter; ratios, in which that
//! cancels out, by 15 %, as those of the cold starts. *Pool* repeats to within a percent.
//!
//! `cargo test -p lowtide-experiments --test it heaps -- --nocapture` prints all.
#![expect(clippy::print_stdout, reason = "the table is a report")]

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use lowtide_core::Events;
use lowtide_experiments::client::heap::play;
use lowtide_experiments::programs::heap::{HeapProgram, PAGE};
use lowtide_experiments::programs::kernels::{Churn, Cold, Pool};
use lowtide_sim::MachineConfig;
use lowtide_sim::spec::{MachineSpec, SwapSpec};

/// Linux 7.2, which has the series and the placement change, and its classical lists.
const MGLRU: &str = "mglru-exec-window-cost-anononly";
const CLASSICAL: &str = "lru-exec-window-cost-anononly";

/// Capacities at which a job is played, and thousandths of the limit between two.
const CAPACITIES: u64 = 5;
const STEP: u64 = 5;

/// What a run counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    events: Events,
    read_kib: u64,
}

/// A count, what it was on 7.2 with multi-gen and with classical lists, and how far the medians and
/// their ratio may be away.
type Level = (&'static str, fn(&Counted) -> u64, [f64; 2], (f64, f64));

fn run(policy: &str, program: Rc<dyn HeapProgram>, read_ahead: bool) -> Counted {
    let spec = MachineSpec::load("emulated").expect("a preset");
    // Only the cold starts had read-ahead, and fault-around.
    let (readahead, fault_around) = if read_ahead { (128 << 10, 64 << 10) } else { (0, PAGE) };
    // The kernels' swap but for 7.1, which had a disk: the machine has no swap on disks.
    let swap = Some(SwapSpec::zram(1 << 30));
    let spec = MachineSpec { readahead, fault_around, swap, ..spec };
    let policy = policy.parse().expect("a policy");
    let machine = MachineConfig { spec, policy, max: None, seed: 1 };
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let result = play(&machine, program, &done, &stop).expect("nothing goes wrong in it");
    assert!(!result.out_of_memory, "{policy}");
    let (began, ended) = (&result.began, &result.ended);
    Counted {
        events: ended.memory.events.since(&began.memory.events),
        read_kib: (ended.device.read_bytes - began.device.read_bytes) >> 10,
    }
}

/// Runs of a policy at all capacities: `program` makes the job for thousandths of its limit.
fn runs<P: HeapProgram + 'static>(
    policy: &str,
    program: impl Fn(u64) -> P,
    read_ahead: bool,
) -> Vec<Counted> {
    let one = |step| run(policy, Rc::new(program(1_000 - STEP * step)), read_ahead);
    (0..CAPACITIES).map(one).collect()
}

fn median(runs: &[Counted], of: fn(&Counted) -> u64) -> f64 {
    let mut all: Vec<u64> = runs.iter().map(of).collect();
    all.sort_unstable();
    all[all.len() / 2] as f64
}

/// Compares the medians of multi-gen and classical runs with those of the kernel.
fn compare(job: &str, runs: &[Vec<Counted>; 2], levels: &[Level]) {
    let mut wrong = Vec::new();
    for &(name, of, kernel, (level, ratio)) in levels {
        let here = [0, 1].map(|i| median(&runs[i], of));
        let off = [0, 1].map(|i| here[i] / kernel[i] - 1.0);
        let ratios = [here[1] / here[0], kernel[1] / kernel[0]];
        let line = format!(
            "{job}, {name}: {here:?}, kernel {kernel:?}, off {off:+.3?}, ratios {ratios:.2?}"
        );
        println!("{line}");
        let ratio_off = ratios[0] / ratios[1] - 1.0;
        if off.iter().any(|off| off.abs() > level) || ratio_off.abs() > ratio {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn processes_that_come_and_go_count_what_they_count_in_a_kernel() {
    let churn = |part| {
        let mut job = Churn::new(31);
        job.max = job.max * part / 1_000;
        job
    };
    let both = [MGLRU, CLASSICAL].map(|policy| runs(policy, churn, false));
    let levels: [Level; 5] = [
        ("swapped in", |run| run.events.pswpin, [36_801.0, 38_497.0], (0.25, 0.15)),
        ("swapped out", |run| run.events.pswpout, [138_675.0, 129_168.0], (0.25, 0.15)),
        (
            "file refaults",
            |run| run.events.workingset_refault_file,
            [12_051.0, 16_445.0],
            (0.1, 0.15),
        ),
        ("scanned", |run| run.events.pgscan, [248_148.0, 438_000.0], (0.25, 0.25)),
        ("activated", |run| run.events.pgactivate, [244_237.0, 58_576.0], (0.25, 0.15)),
    ];
    compare("churn", &both, &levels);
}

#[test]
fn the_classical_lists_scan_a_pool_half_as_much_again_for_the_same_swap() {
    let pool = |part| {
        let mut job = Pool::new(32);
        job.max = job.max * part / 1_000;
        job
    };
    let both = [MGLRU, CLASSICAL].map(|policy| runs(policy, pool, false));
    let levels: [Level; 4] = [
        ("swapped in", |run| run.events.pswpin, [37_003.0, 36_991.0], (0.02, 0.02)),
        ("swapped out", |run| run.events.pswpout, [36_999.0, 36_980.0], (0.02, 0.02)),
        ("scanned", |run| run.events.pgscan, [52_167.0, 75_194.0], (0.05, 0.05)),
        ("activated", |run| run.events.pgactivate, [49_670.0, 1_113.0], (0.1, 0.1)),
    ];
    compare("pool", &both, &levels);
}

/// What cold starts gain from 7.1 to 7.2 is the change of placement, and nothing of the series.
#[test]
fn cold_starts_gain_by_placement_and_not_by_the_series() {
    let cold = |part| {
        let mut job = Cold::new(34);
        job.max = job.max * part / 1_000;
        job
    };
    let of = |policy| runs(policy, cold, true);
    let levels: [Level; 2] = [
        ("read, KiB", |run| run.read_kib, [336_548.0, 417_656.0], (0.15, 0.15)),
        ("scanned", |run| run.events.pgscan, [101_932.0, 124_086.0], (0.15, 0.15)),
    ];
    compare("cold", &[of(MGLRU), of(CLASSICAL)], &levels);
    let policies = ["mglru-7.1", "mglru-7.1+series", "mglru-7.1+series+placement"];
    let [before, series, placed] = policies.map(|policy| median(&of(policy), |run| run.read_kib));
    println!("cold, KiB: {before}, kernel 495468; series {series}; and placement {placed}");
    assert!((before / 495_468.0 - 1.0).abs() < 0.15, "{before}");
    assert!((series / before - 1.0).abs() < 0.01, "the series alone: {series}, {before}");
    assert!((placed / before / 0.68 - 1.0).abs() < 0.15, "{placed}, {before}");
}
