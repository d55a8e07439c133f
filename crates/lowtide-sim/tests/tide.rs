//! What `tide` does with a loop, a scan and a change of phase.

use lowtide_core::Policy;
use lowtide_sim::{Plain, PlainConfig};
use lowtide_workload::{OpKind, SpaceKind};

fn misses(pages: u64, accesses: impl IntoIterator<Item = u64>) -> u64 {
    let mut machine = Plain::new(&PlainConfig::new(Policy::TIDE, pages)).expect("a budget");
    let space = machine.add_space(SpaceKind::File, 0);
    for page in accesses {
        machine.access(OpKind::Load, space, page).expect("clean pages can go");
    }
    machine.validate().expect("the engine is sound");
    machine.counts().misses
}

#[test]
fn a_loop_a_ninth_larger_than_memory_keeps_most_of_itself() {
    let loops = misses(900, (0..20_000).map(|i| i % 1_000));
    // Of the 19 rounds after the first, OPT misses a tenth.
    assert!(loops < 1_000 + 19 * 1_000 / 5, "{loops}");
}

#[test]
fn a_scan_displaces_nothing() {
    let hot = || (0..5_000).map(|i| i * 7 % 800);
    let scanned = misses(1_000, hot().chain(1_000..9_000).chain(hot()));
    assert!(scanned < 8_000 + 800 + 150, "{scanned}");
}

#[test]
fn a_phase_is_learned_within_few_memories_of_misses() {
    let phase = |from: u64| (0..20_000).map(move |i| from + i * 7 % 800);
    let both = misses(1_000, phase(0).chain(phase(800)));
    assert!(both < 1_600 + 2_000, "{both}");
}

#[test]
fn a_memory_of_32_pages_loses_one_page_at_a_time() {
    // 24 pages in use, and one that is new at every fourth access.
    let accesses = (0..40_000_u64).map(|i| if i % 4 == 0 { 1_000 + i } else { i * 5 % 24 });
    let missed = misses(32, accesses);
    assert!(missed < 10_000 + 500, "{missed}");
}
