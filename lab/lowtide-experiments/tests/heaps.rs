//! Fidelity: heaps on swap, processes that come and go, and cold starts count what real kernels
//! count.
//!
//! Real kernels performed three jobs (`lowtide_experiments::programs::kernels`: [`Churn`],
//! [`Pool`], [`Cold`]) on emulated CPUs, where time means nothing and counters do. Here the full
//! machine plays them. What the kernel used for itself is not known, and the heaps of *churn*
//! exceed their memory by so little that counts depend on it; so *ratios* are compared, of the
//! classical lists to the multi-gen LRU of the same kernel, as medians of a few seeds.
//! `docs/design/fidelity.md` has the figures and what deviates.
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

/// What a run counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    events: Events,
    read_kib: u64,
}

fn run(policy: &str, program: Rc<dyn HeapProgram>, read_ahead: bool) -> Counted {
    let spec = MachineSpec::load("emulated").expect("a preset");
    // Only the cold starts had read-ahead, and fault-around.
    let (readahead, fault_around) = if read_ahead { (128 << 10, 64 << 10) } else { (0, PAGE) };
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

/// A ratio of counts, and what it was of real kernels.
type Ratio = (&'static str, fn(&Counted) -> u64, f64);

/// Compares the medians of ratios of two policies with those of kernels: within 15 %.
fn compare(job: &str, pairs: &[(Counted, Counted)], ratios: &[Ratio]) {
    let mut wrong = Vec::new();
    for &(name, of, kernel) in ratios {
        let ratio = |(above, below): &(Counted, Counted)| of(above) as f64 / of(below) as f64;
        let mut all: Vec<f64> = pairs.iter().map(ratio).collect();
        all.sort_by(f64::total_cmp);
        let median = all[all.len() / 2];
        println!("{job}, {name}: {median:.2} {all:.2?}, kernels {kernel:.2}");
        if (median / kernel - 1.0).abs() > 0.15 {
            wrong.push(format!("{job}, {name}: {median:.2}, kernels {kernel:.2}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn pairs<P: HeapProgram + 'static>(
    program: impl Fn(u64) -> P,
    seeds: &[u64],
    (above, below): (&str, &str),
    read_ahead: bool,
) -> Vec<(Counted, Counted)> {
    let one = |policy: &str, seed| run(policy, Rc::new(program(seed)), read_ahead);
    seeds.iter().map(|&seed| (one(above, seed), one(below, seed))).collect()
}

/// Processes that share a file, with a capacity at which about as many pages are swapped out as in
/// the kernel.
#[test]
fn the_multi_gen_lru_refaults_text_that_processes_share() {
    let churn = |seed| {
        let mut churn = Churn::new(seed);
        churn.max = 28_000 * PAGE;
        churn
    };
    let pairs = pairs(churn, &[31, 32, 33, 34, 35], (CLASSICAL, MGLRU), false);
    for (_, mglru) in &pairs {
        let (file, anon) =
            (mglru.events.workingset_refault_file, mglru.events.workingset_refault_anon);
        // A quarter of all its refaults in the kernel.
        assert!(file * 8 > file + anon, "{file} of the file, {anon} of heaps");
    }
    let ratios: [Ratio; 3] = [
        ("file refaults", |run| run.events.workingset_refault_file, 1.36),
        ("swapped out", |run| run.events.pswpout, 0.93),
        ("scanned", |run| run.events.pgscan, 1.77),
    ];
    compare("churn", &pairs, &ratios);
    // 1.05 in kernels. It differs too much from seed to seed to be demanded.
    for (classical, mglru) in &pairs {
        let swapped_in = classical.events.pswpin as f64 / mglru.events.pswpin as f64;
        println!("churn, swapped in: {swapped_in:.2}");
    }
}

#[test]
fn the_classical_lists_scan_a_pool_half_as_much_again_for_the_same_swap() {
    let pairs = pairs(Pool::new, &[32, 33, 34], (CLASSICAL, MGLRU), false);
    let ratios: [Ratio; 3] = [
        ("swapped in", |run| run.events.pswpin, 1.00),
        ("swapped out", |run| run.events.pswpout, 1.00),
        ("scanned", |run| run.events.pgscan, 1.44),
    ];
    compare("pool", &pairs, &ratios);
    let steps = pairs[0].0.events.pswpin;
    assert!(steps.abs_diff(36_991) < 1_000, "the kernel swapped 36,991 pages in: {steps}");
}

/// What cold starts gain from 7.1 to 7.2 is the change of placement, and nothing of the series.
#[test]
fn cold_starts_gain_by_placement_and_not_by_the_series() {
    let seeds = &[34, 35, 36];
    let placed = pairs(Cold::new, seeds, ("mglru-7.1+series+placement", "mglru-7.1"), true);
    compare("cold, series and placement", &placed, &[("read", |run| run.read_kib, 0.68)]);
    let series = pairs(Cold::new, seeds, ("mglru-7.1+series", "mglru-7.1"), true);
    for (after, before) in series {
        let ratio = after.read_kib as f64 / before.read_kib as f64;
        assert!((0.99..1.01).contains(&ratio), "the series alone: {ratio}");
    }
}
