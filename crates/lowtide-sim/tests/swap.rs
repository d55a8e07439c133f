//! What a user of the plain machine relies on when a trace has heaps: they come back from swap,
//! cost memory only when stored to, and leave no slot behind.

use lowtide_core::Policy;
use lowtide_sim::{Plain, PlainConfig, PlainSwap, PlayError};
use lowtide_workload::{OpKind, SpaceId, SpaceKind};

const POLICIES: [&str; 4] = ["mglru", "mglru-7.1", "lru", "tide"];
const HEAP: SpaceId = SpaceId(0);
const FILE: SpaceId = SpaceId(1);

fn policies() -> impl Iterator<Item = Policy> {
    POLICIES.into_iter().map(|policy| policy.parse().expect("a policy"))
}

/// A machine with a heap of 600 pages, a file of 600, and memory for 512.
fn machine(policy: Policy, swap: Option<PlainSwap>) -> Plain {
    let config = PlainConfig { swap, metadata: 0, ..PlainConfig::new(policy, 512) };
    let mut machine = Plain::new(&config).expect("the budget is possible");
    assert_eq!(machine.add_space(SpaceKind::Anon, 600), HEAP);
    assert_eq!(machine.add_space(SpaceKind::File, 600), FILE);
    machine
}

fn both(pages: u64) -> [PlainSwap; 2] {
    [PlainSwap::zram(pages), PlainSwap::disk(pages)]
}

fn all(machine: &mut Plain, kind: OpKind, space: SpaceId) -> Result<(), PlayError> {
    (0..600).try_for_each(|page| machine.access(kind, space, page).map(drop))
}

/// `docs/kernel/reclaim.md` §9, 54: an anonymous-only group lives as long as writes end while it
/// reclaims.
#[test]
fn a_heap_larger_than_memory_lives_in_swap() {
    for (policy, swap) in policies().flat_map(|policy| both(600).map(|swap| (policy, swap))) {
        let mut machine = machine(policy, Some(swap));
        for round in 0..4 {
            let kind = if round % 2 == 0 { OpKind::Store } else { OpKind::Load };
            all(&mut machine, kind, HEAP).expect("there is swap for all of it");
            all(&mut machine, OpKind::Load, FILE).expect("the heap can go");
        }
        machine.validate().unwrap_or_else(|e| panic!("{policy} on {swap:?}: {e}"));
        let stat = machine.stat();
        let e = stat.events;
        assert!(e.pswpout > 0 && e.pswpin > 0, "{policy} on {swap:?}");
        assert_eq!(e.pswpin, e.workingset_refault_anon, "{policy} on {swap:?}");
        let synchronous = swap.latency_ns.is_none();
        assert!(
            !synchronous || stat.swapcached == 0,
            "{policy}: synchronous swap keeps no second copies"
        );
    }
}

#[test]
fn a_heap_larger_than_memory_and_swap_is_out_of_memory() {
    for (policy, swap) in policies().flat_map(|policy| both(70).map(|swap| (policy, swap))) {
        let mut machine = machine(policy, Some(swap));
        let error = all(&mut machine, OpKind::Store, HEAP).expect_err("582 pages at most fit");
        let PlayError::OutOfMemory { swap: Some(free), .. } = error else {
            panic!("{policy}: {error}")
        };
        // The multi-gen LRU leaves the last 63 slots alone.
        assert!(free < 64, "{policy} on {swap:?}: {free}");
        assert!(error.to_string().contains("--swap"), "{error}");
        machine.validate().unwrap_or_else(|e| panic!("{policy} on {swap:?}: {e}"));
    }
}

#[test]
fn without_swap_heaps_stay_and_the_error_says_what_would_help() {
    for policy in policies() {
        let mut machine = machine(policy, None);
        let error = all(&mut machine, OpKind::Store, HEAP).expect_err("512 pages fit");
        assert!(
            matches!(error, PlayError::OutOfMemory { anon: 512, swap: None, .. }),
            "{policy}: {error}"
        );
        assert!(
            error.to_string().contains("give its 512 anonymous pages somewhere to go with --swap")
        );
        assert_eq!(machine.stat().events.pswpout, 0);
    }
}

/// A page that was never stored to is the page of zeros: one fault, no memory. The store that comes
/// later faults again.
#[test]
fn a_heap_costs_memory_when_it_is_stored_to() {
    let mut machine = machine(Policy::MGLRU, None);
    all(&mut machine, OpKind::Load, HEAP).expect("zeros cost nothing");
    all(&mut machine, OpKind::Load, HEAP).expect("zeros cost nothing");
    assert_eq!(
        (machine.stat().anon, machine.stat().events.pgfault, machine.counts().misses),
        (0, 600, 600)
    );
    machine.access(OpKind::Store, HEAP, 7).expect("there is room");
    assert_eq!(
        (machine.stat().anon, machine.stat().events.pgfault, machine.counts().misses),
        (1, 601, 600)
    );
}

/// With an asynchronous device a page that was read in and not stored to keeps its slot, and need
/// not be written again.
#[test]
fn a_page_that_is_only_loaded_is_written_once() {
    for policy in policies() {
        let config = PlainConfig {
            swap: Some(PlainSwap::disk(1200)),
            swappiness: 201,
            metadata: 0,
            ..PlainConfig::new(policy, 512)
        };
        let mut machine = Plain::new(&config).expect("the budget is possible");
        machine.add_space(SpaceKind::Anon, 600);
        all(&mut machine, OpKind::Store, HEAP).expect("there is swap");
        for _ in 0..10 {
            all(&mut machine, OpKind::Load, HEAP).expect("there is swap");
        }
        let e = machine.stat().events;
        assert!(
            e.pswpout <= 600 && e.pswpin > 1000,
            "{policy}: {} out, {} in",
            e.pswpout,
            e.pswpin
        );
    }
}

#[test]
fn a_heap_that_is_freed_gives_all_of_its_slots_back() {
    for (policy, swap) in policies().flat_map(|policy| both(600).map(|swap| (policy, swap))) {
        let mut machine = machine(policy, Some(swap));
        for _ in 0..3 {
            all(&mut machine, OpKind::Store, HEAP).expect("there is swap for all of it");
            all(&mut machine, OpKind::Free, HEAP).expect("freeing takes no memory");
            machine.validate().unwrap_or_else(|e| panic!("{policy} on {swap:?}: {e}"));
            assert_eq!(
                (machine.stat().anon, machine.stat().swapcached),
                (0, 0),
                "{policy} on {swap:?}"
            );
        }
    }
}

/// Swap that is not needed changes nothing, and neither does its speed.
#[test]
fn files_alone_count_the_same_with_and_without_swap() {
    for policy in policies() {
        let events = |swap| {
            let mut machine = machine(policy, swap);
            for n in 0..20_000_u64 {
                let kind = if n % 7 == 0 { OpKind::Store } else { OpKind::Load };
                machine.access(kind, FILE, n * n % 599).expect("clean pages can go");
            }
            machine.stat().events
        };
        let without = events(None);
        for swap in both(600) {
            assert!(events(Some(swap)).iter().eq(without.iter()), "{policy} with {swap:?}");
        }
    }
}
