//! Promise: a heap on the full machine is swapped as on the plain one, to the last counter, and the
//! same seed gives the same run.

use lowtide_core::Policy;
use lowtide_sim::spec::{MachineSpec, SwapSpec};
use lowtide_sim::stream::{self, Stream, StreamSpace};
use lowtide_sim::{MachineConfig, MachineStat, Plain, PlainConfig, PlainSwap};
use lowtide_workload::{Distribution, OpKind, PageOp, SpaceId, SpaceKind, SplitMix64};
use std::sync::atomic::{AtomicBool, AtomicU64};

const HEAP: SpaceId = SpaceId(0);
const PAGES: u64 = 4096;
const BUDGET: u64 = 1024;
const SLOTS: u64 = 16_384;

/// A heap that is stored to as a whole, then used unevenly; parts of it are freed now and then and
/// stored to again.
fn sequence(seed: u64) -> impl Iterator<Item = PageOp> {
    let sampler = Distribution::default().sampler(PAGES, seed).expect("there are pages");
    let mut rng = SplitMix64::new(seed);
    let fill = (0..PAGES).map(|page| PageOp::one(OpKind::Store, HEAP, page));
    let use_it = (0..40_000_u64).flat_map(move |n| {
        let page = sampler.draw(&mut rng);
        if n % 1000 == 999 {
            let first = page.min(PAGES - 16);
            return vec![
                PageOp { kind: OpKind::Free, space: HEAP, page: first, pages: 16 },
                PageOp { kind: OpKind::Store, space: HEAP, page: first, pages: 16 },
            ];
        }
        let kind = if rng.percent(30) { OpKind::Store } else { OpKind::Load };
        vec![PageOp::one(kind, HEAP, page)]
    });
    fill.chain(use_it)
}

/// `cpus` CPUs and as many threads, with a limit of [`BUDGET`] pages.
fn on_the_full_machine(policy: Policy, cpus: u32, seed: u64) -> MachineStat {
    let laptop = MachineSpec::load("laptop").expect("a preset");
    let spec = MachineSpec { cpus, swap: Some(SwapSpec::zram(SLOTS * laptop.page)), ..laptop };
    let config = MachineConfig { max: Some(BUDGET * spec.page), spec, policy, seed };
    let streams =
        (0..u64::from(cpus)).map(|thread| -> Stream { Box::new(sequence(seed + thread).map(Ok)) });
    let spaces = [StreamSpace { kind: SpaceKind::Anon, pages: PAGES }];
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    stream::run(&config, &spaces, streams.collect(), 0, &done, &stop)
        .expect("there is swap for all of it")
        .stat
}

fn on_the_plain_machine(policy: Policy, seed: u64) -> Plain {
    let config = PlainConfig {
        // The full machine publishes by time, and the sequence is over before the first.
        publish_phase: u64::MAX,
        publish_every: u64::MAX,
        metadata: 0,
        swap: Some(PlainSwap::zram(SLOTS)),
        young_faults: true,
        ..PlainConfig::new(policy, BUDGET)
    };
    let mut machine = Plain::new(&config).expect("the budget is possible");
    machine.add_space(SpaceKind::Anon, PAGES);
    for op in sequence(seed) {
        machine.play(&op).expect("there is swap for all of it");
    }
    machine.validate().expect("the engine is sound");
    machine
}

#[test]
fn one_thread_counts_the_same_on_both_machines() {
    for policy in ["mglru", "mglru-7.1", "lru", "tide", "mglru-7.1+S10", "mglru-placement"] {
        let policy: Policy = policy.parse().expect("a policy");
        let (full, plain) = (on_the_full_machine(policy, 1, 7), on_the_plain_machine(policy, 7));
        assert!(full.now_ns < 2_000_000_000, "{policy}: nothing was published");
        let plain = plain.stat();
        let differing: Vec<_> =
            full.memory.events.iter().zip(plain.events.iter()).filter(|(f, p)| f != p).collect();
        assert!(differing.is_empty(), "{policy}: (full, plain) {differing:?}");
        let sizes: Vec<_> =
            full.memory.sizes().zip(plain.sizes()).filter(|(f, p)| f != p).collect();
        assert!(sizes.is_empty(), "{policy}: (full, plain) {sizes:?}");
        assert!(plain.events.pswpin > 1000, "{policy}: the sequence is worth comparing");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_does_not() {
    for policy in [Policy::MGLRU, Policy::LRU] {
        let run = |seed| {
            let stat = on_the_full_machine(policy, 3, seed);
            (stat.now_ns, stat.events, stat.busy_ns, stat.swap_lock, format!("{:?}", stat.memory))
        };
        assert_eq!(run(3), run(3), "{policy}");
        assert_ne!(run(3), run(4), "{policy}");
    }
}
