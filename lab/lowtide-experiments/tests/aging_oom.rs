//! Promise: the aging OOM of Linux 7.1 happens on the simulated machine, from a seed, with
//! gigabytes (here: a proportionate part) of clean pages at hand; and neither the series nor the
//! classical lists have it (`docs/kernel/workloads.md` §3d, `docs/kernel/reclaim.md` §4.5).
//!
//! Most of it at a hundred-and-twenty-eighth of the published size, so that it is short; that the
//! policies which were published as survivors are survivors at larger sizes, too, takes two rounds
//! of four seeds. More of either is what `lowtide-lab sim file-anon-mix` is for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use lowtide_core::Policy;
use lowtide_experiments::client::mix::{Faulted, MixConfig, MixResult, run};
use lowtide_sim::MachineConfig;
use lowtide_sim::spec::MachineSpec;

const PART: u64 = 128;

fn mix(policy: Policy, part: u64, rounds: u32, seed: u64) -> MixResult {
    let whole = MixConfig::published();
    let config = MixConfig {
        file: whole.file / part,
        anon: whole.anon / part,
        slowdown: part as u32,
        rounds,
        seed,
        ..whole
    };
    let spec = MachineSpec::load("ramdisk").unwrap();
    let machine = MachineConfig { spec, policy, max: Some(MixConfig::MAX / part), seed };
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
        .map(|seed| (seed, mix(Policy::MGLRU_7_1, PART, ROUNDS, seed)))
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
    let again = mix(Policy::MGLRU_7_1, PART, ROUNDS, seed);
    assert_eq!((again.killed, again.rounds), (result.killed, result.rounds), "from the seed alone");
}

#[test]
fn neither_the_series_nor_the_classical_lists_are_killed() {
    for policy in [Policy::MGLRU, Policy::LRU] {
        let result = mix(policy, PART, ROUNDS, 1);
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

/// Rounds of the larger machines: the first evicts a part of the file, the second what readers
/// have fetched back.
const FEW: u32 = 2;

/// Published: 3,867,681 pages scanned for 1,612,151 reclaimed, 2.4. Where reclaimers do not keep up
/// with readers they find everything young, and scan hundreds of pages for one.
fn survives(policy: Policy, part: u64) {
    for seed in [1, 2, 3, 42] {
        let result = mix(policy, part, FEW, seed);
        let events = &result.stat.memory.events;
        assert_eq!((result.killed, result.rounds), (None, FEW), "{policy} 1/{part} seed {seed}");
        assert!(
            events.pgscan < 6 * events.pgsteal,
            "{policy} 1/{part} seed {seed}: {} scanned for {}",
            events.pgscan,
            events.pgsteal
        );
    }
}

#[test]
fn the_series_survives_at_a_sixty_fourth() {
    survives(Policy::MGLRU, 64);
    survives("mglru-7.1+series".parse().unwrap(), 64);
}

#[test]
fn the_series_survives_at_a_thirty_second() {
    survives(Policy::MGLRU, 32);
}

#[test]
fn the_classical_lists_survive_at_a_sixty_fourth() {
    survives(Policy::LRU, 64);
}
