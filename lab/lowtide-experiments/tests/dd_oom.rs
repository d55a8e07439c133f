//! Promise: the throttling OOM of Linux 7.1 happens on the simulated machine with every page of the
//! group dirty or being written, and neither the series nor the classical lists have it
//! (`docs/kernel/workloads.md` §4d, `docs/kernel/reclaim.md` §4.6).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use lowtide_core::Policy;
use lowtide_experiments::client::dd::{DdResult, run};
use lowtide_experiments::programs::writer::Writer;
use lowtide_sim::MachineConfig;
use lowtide_sim::spec::MachineSpec;

fn dd(policy: Policy) -> DdResult {
    let spec = MachineSpec::load("delay-1s").unwrap();
    let machine = MachineConfig { spec, policy, max: None, seed: 1 };
    let done = AtomicU64::new(0);
    let result = run(&machine, &Writer::published(), &done, &AtomicBool::new(false)).unwrap();
    assert!(done.load(Relaxed) <= result.written);
    result
}

#[test]
fn a_writer_is_killed_with_7_1_while_everything_is_dirty_or_being_written() {
    let result = dd(Policy::MGLRU_7_1);
    assert!(result.killed_after_ns.is_some() && result.written < Writer::published().file);
    assert_eq!(result.group.limits.oom, 1);
    assert!(result.unclean() > 0.9, "{}", result.unclean());
    assert_eq!(result.stat.kernel.throttled, 0, "it never sleeps, which is why");
}

#[test]
fn a_writer_finishes_with_the_series_and_with_the_classical_lists() {
    let before = dd(Policy::MGLRU_7_1);
    for policy in [Policy::MGLRU, Policy::LRU, Policy::TIDE] {
        let result = dd(policy);
        assert_eq!((result.killed_after_ns, result.group.limits.oom), (None, 0), "{policy}");
        assert_eq!(result.written, Writer::published().file, "{policy}");
        assert!(
            result.group.events.nr_throttled_congested > 0,
            "{policy}: it waited for the device"
        );
        assert!((1_000_000_000..15_000_000_000).contains(&result.stat.now_ns), "{policy}");
        assert!(
            result.scanned_per_reclaimed() <= before.scanned_per_reclaimed() / 10.0,
            "{policy}: {} and {}",
            result.scanned_per_reclaimed(),
            before.scanned_per_reclaimed()
        );
    }
}
