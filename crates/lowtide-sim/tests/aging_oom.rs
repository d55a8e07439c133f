//! Promise: the aging OOM of Linux 7.1 happens on the simulated machine, from a seed, with
//! gigabytes (here: a proportionate part) of clean pages at hand; and neither the series nor the
//! classical lists have it (`docs/kernel/workloads.md` §3d, `docs/kernel/reclaim.md` §4.5).
//!
//! At a hundred-and-twenty-eighth of the published size, so that it is short. What is seen at
//! larger sizes and over many seeds is what `lowtide sim file-anon-mix` is for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use lowtide_core::Policy;
use lowtide_sim::MachineConfig;
use lowtide_sim::client::mix::{Faulted, MixConfig, MixResult, run};
use lowtide_sim::spec::MachineSpec;

const PART: u64 = 128;

fn mix(policy: Policy, rounds: u32, seed: u64) -> MixResult {
    let whole = MixConfig::published();
    let config = MixConfig {
        file: whole.file / PART,
        anon: whole.anon / PART,
        slowdown: PART as u32,
        rounds,
        seed,
        ..whole
    };
    let spec = MachineSpec::load("ramdisk").unwrap();
    let machine = MachineConfig { spec, policy, max: Some(MixConfig::MAX / PART), seed };
    let done = AtomicU64::new(0);
    let result = run(&machine, &config, &done, &AtomicBool::new(false)).unwrap();
    assert!(done.load(Relaxed) <= u64::from(result.rounds));
    result
}

/// Rounds within which 7.1 is killed: the others must do them all.
const ROUNDS: u32 = 6;

#[test]
fn aging_kills_7_1_with_a_budget_full_of_clean_pages() {
    let (seed, result) = (1..=6)
        .map(|seed| (seed, mix(Policy::MGLRU_7_1, ROUNDS, seed)))
        .find(|(_, result)| result.killed.is_some_and(|kill| kill.faulted == Faulted::Heap))
        .expect("a task that fills its heap is killed for one of six seeds");
    let memory = &result.stat.memory;
    let kill = result.killed.expect("it is killed");
    assert!(result.rounds < ROUNDS && memory.limits.oom == 1);
    assert!(kill.clean_file_pages * 4 >= memory.max, "{kill:?} of {}", memory.max);
    // Nothing else is charged but what tasks have just been given and not yet mapped, a page each.
    assert_eq!(memory.current, memory.max);
    assert!(memory.max - memory.anon - memory.file <= 96, "{} and {}", memory.anon, memory.file);
    assert_eq!(memory.events.pswpout, 0);
    // The charge did not just fail at once: it has been through its eighteen invocations.
    assert!(kill.tried_ns > 0 && result.stat.kernel.walks > 0);
    let again = mix(Policy::MGLRU_7_1, ROUNDS, seed);
    assert_eq!((again.killed, again.rounds), (result.killed, result.rounds), "from the seed alone");
}

#[test]
fn neither_the_series_nor_the_classical_lists_are_killed() {
    for policy in [Policy::MGLRU, Policy::LRU] {
        let result = mix(policy, ROUNDS, 1);
        let memory = &result.stat.memory;
        assert_eq!(
            (result.killed, result.rounds, memory.limits.oom),
            (None, ROUNDS, 0),
            "{policy}"
        );
        assert!(memory.anon == 0, "{policy}: all of it is unmapped");
        // Each round pushes out what does not fit.
        let excess = memory.max * 6 / 16 * u64::from(ROUNDS - 1);
        assert!(memory.events.pgsteal >= excess, "{policy}: {} of {excess}", memory.events.pgsteal);
        assert!(result.first_pass_ns > 0 && result.first_pass_ns < result.stat.now_ns);
    }
}
