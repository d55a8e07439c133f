//! Conformance: what the simulator says is what the product does.
//!
//! One sequence of accesses is played twice by one thread: on the plain machine, and on the real
//! runtime with a real file, real memory and real I/O. Every counter of the engine must come out
//! the same, to the last one. The runtime runs without its background threads, with young bits set
//! by faults as a kernel sets them, and both publish group statistics at the same operations.
//!
//! Dirty pages are written at the same points of the sequence, by `flush` and by `sync`, and are
//! few enough in between that neither side's flusher acts on its own.

use lowtide::advanced::PagerAdvanced as _;
use lowtide::{OpenOptions, Pager, Policy, Size, View};
use lowtide_core::MemoryStat;
use lowtide_sim::{Plain, PlainConfig};
use lowtide_workload::{Distribution, OpKind, SpaceId, SpaceKind, SplitMix64};
use std::io::Write as _;

const PAGE: usize = 4096;
const FILE_PAGES: u64 = 4096;
const BUDGET: u64 = 1024;
const OPS: u64 = 60_000;
const PUBLISH_EVERY: u64 = 5_000;
const SYNC_EVERY: u64 = 500;
/// The runtime looks at its sample of accesses, which the simulator has none of: no counter may
/// show it.
const LOOK_EVERY: u64 = 70;

/// What a sequence is made of.
#[derive(Clone, Copy, Debug)]
struct Mix {
    /// Percent of operations through the descriptor.
    descriptor: u32,
    /// Percent of writes among them.
    writes: u32,
    /// Percent of accesses that continue a scan.
    scan: u32,
    /// Writes replace whole pages.
    whole: bool,
}

const LOADS: Mix = Mix { descriptor: 0, writes: 0, scan: 0, whole: false };
const READS: Mix = Mix { descriptor: 100, writes: 0, scan: 0, whole: false };
const BOTH: Mix = Mix { descriptor: 40, writes: 0, scan: 20, whole: false };
const UPDATES: Mix = Mix { descriptor: 40, writes: 10, scan: 20, whole: false };
const REPLACEMENTS: Mix = Mix { whole: true, ..UPDATES };

fn sequence(mix: Mix) -> impl Iterator<Item = (OpKind, u64)> {
    let sampler = Distribution::default().sampler(FILE_PAGES, 7).expect("there are pages");
    let mut rng = SplitMix64::new(42);
    let mut at = 0;
    (0..OPS).map(move |_| {
        let descriptor = rng.percent(mix.descriptor);
        let kind = match (descriptor, rng.percent(mix.writes)) {
            (false, _) => OpKind::Load,
            (true, false) => OpKind::Read,
            (true, true) => OpKind::Write,
        };
        let page = if rng.percent(mix.scan) {
            at = (at + 1) % FILE_PAGES;
            at
        } else {
            sampler.draw(&mut rng)
        };
        (kind, page)
    })
}

fn in_the_simulator(policy: Policy, mix: Mix) -> (MemoryStat, u64) {
    let config = PlainConfig {
        publish_every: u64::MAX,
        publish_phase: u64::MAX,
        always_mapped: true,
        metadata: 0,
        ..PlainConfig::new(policy, BUDGET)
    };
    let mut machine = Plain::new(&config).expect("the budget is possible");
    let space = machine.add_space(SpaceKind::File, FILE_PAGES);
    for (n, (kind, page)) in (1..).zip(sequence(mix)) {
        if kind == OpKind::Write {
            // A store makes its page resident first, and that access counts as none.
            machine.update(space, page).expect("clean pages can go");
        } else {
            machine.access(kind, space, page).expect("clean pages can go");
        }
        if n % SYNC_EVERY == 0 {
            sync(&mut machine, space);
        }
        if n % PUBLISH_EVERY == 0 {
            machine.publish();
        }
    }
    machine.validate().expect("the engine is sound");
    (machine.stat(), machine.counts().misses)
}

fn sync(machine: &mut Plain, space: SpaceId) {
    for page in 0..FILE_PAGES {
        machine.access(OpKind::Sync, space, page).expect("writing takes no memory");
    }
}

fn in_the_runtime(policy: Policy, mix: Mix) -> MemoryStat {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    for page in 0..FILE_PAGES {
        file.write_all(&[page as u8; PAGE]).expect("room for 16 MiB");
    }
    let pager = Pager::builder()
        .zcache(false)
        .max(Size::new(BUDGET * PAGE as u64))
        .policy(policy)
        .background(false)
        .young_faults(policy != Policy::TIDE)
        .build()
        .expect("a pager");
    let view: View = OpenOptions::new().write(true).open(&pager, file.path()).expect("the file");
    let mut buf = [0; PAGE];
    for (n, (kind, page)) in (1..).zip(sequence(mix)) {
        match kind {
            OpKind::Load => assert_eq!(view.page(page).expect("a read")[0], page as u8),
            OpKind::Write => {
                let bytes = if mix.whole { PAGE } else { PAGE / 2 };
                view.write_at(page * PAGE as u64, &[page as u8; PAGE][..bytes]).expect("a write");
            }
            _ => {
                view.read_at(page * PAGE as u64, &mut buf).expect("a read");
                assert_eq!(buf[PAGE - 1], page as u8);
            }
        }
        if n % SYNC_EVERY == 0 {
            view.flush().expect("a flush");
        }
        if n % PUBLISH_EVERY == 0 {
            pager.publish();
        }
        if n % LOOK_EVERY == 0 {
            pager.root().curve().expect("the pager is sound");
        }
    }
    pager.validate().expect("the pager is sound");
    pager.stat().memory
}

fn same_counters(mix: Mix) {
    for policy in ["mglru", "mglru-7.1", "lru", "tide", "mglru-7.1+S10", "mglru-placement"] {
        let policy: Policy = policy.parse().expect("a policy");
        let ((simulated, misses), real) =
            (in_the_simulator(policy, mix), in_the_runtime(policy, mix));
        // What a fault is differs: the runtime has none on resident pages, and counts every miss as
        // a major one.
        if mix.whole {
            // A page that is replaced as a whole is not read, and that is no major fault.
            assert!(real.events.pgmajfault < misses, "{policy}, {mix:?}: misses");
        } else {
            assert_eq!(misses, real.events.pgmajfault, "{policy}, {mix:?}: misses");
        }
        let pairs = simulated.events.iter().zip(real.events.iter());
        let differing: Vec<_> =
            pairs.filter(|(s, r)| s != r && !matches!(s.0, "pgfault" | "pgmajfault")).collect();
        assert!(differing.is_empty(), "{policy}, {mix:?}: (simulated, real) {differing:?}");
        let sizes: Vec<_> = simulated.sizes().zip(real.sizes()).filter(|(s, r)| s != r).collect();
        assert!(sizes.is_empty(), "{policy}, {mix:?}: (simulated, real) {sizes:?}");
        assert!(
            simulated.events.workingset_refault_file > 1000,
            "{policy}: the sequence is worth comparing"
        );
    }
}

#[test]
fn loads_through_a_mapping_count_the_same() {
    same_counters(LOADS);
}

#[test]
fn reads_through_the_descriptor_count_the_same() {
    same_counters(READS);
}

#[test]
fn a_mixture_with_scans_counts_the_same() {
    same_counters(BOTH);
}

#[test]
fn updates_and_flushes_count_the_same() {
    same_counters(UPDATES);
}

#[test]
fn replaced_pages_count_the_same() {
    same_counters(REPLACEMENTS);
}
