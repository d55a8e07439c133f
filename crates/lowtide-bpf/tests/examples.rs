//! The example programs do what their comments promise, and the committed objects are those that
//! their sources give.

use crate::common::Draw;
use lowtide_bpf::{Hook, MapError, Programs};
use lowtide_core::hooks::{DELAY_MAX_NS, LimitHooks, LimitSnapshot, ThrottleAnswer};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOOP: &[u8] = include_bytes!("../../../examples/bpf/noop.bpf.o");
const REFAULT_RECENCY: &[u8] = include_bytes!("../../../examples/bpf/refault_recency.bpf.o");
const PRIORITY: &[u8] = include_bytes!("../../../examples/bpf/priority.bpf.o");
const FAIR_SHARE: &[u8] = include_bytes!("../../../examples/bpf/fair_share.bpf.o");
const PROPOSED: &[u8] = include_bytes!("programs/proposed.bpf.o");
const OWN: &[u8] = include_bytes!("programs/own.bpf.o");
const FEATURES: &[u8] = include_bytes!("programs/features.bpf.o");

const NSEC: u64 = 1_000_000_000;

/// The kernel's penalty for overage, in ticks, before the clamp (`docs/kernel/memcg.md` §6.3).
fn overage_ticks(usage: u64, high: u64, pages: u64, hz: u64) -> u64 {
    if usage <= high {
        return 0;
    }
    let overage = u128::from((usage - high) << 20) / u128::from(high.max(1));
    let ticks = (overage.saturating_mul(overage).saturating_mul(hz.into()) >> 20 >> 14)
        .saturating_mul(pages.into())
        / 64;
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

/// The proposal's delay in ticks (§7.1), from the overage's and from the ticks since the last
/// refault.
fn proposed_ticks(overage: u64, since: Option<u64>, hz: u64) -> u64 {
    let penalty = match since {
        Some(since) if since < hz => (hz / since.max(1)).min(hz / 10),
        _ => 0,
    };
    let total = overage.saturating_add(penalty).min(2 * hz);
    if penalty == 0 && total <= hz / 100 { 0 } else { total }
}

#[test]
fn the_straightforward_computation_has_the_published_values() {
    for (hz, expected) in
        [(100, [0, 2, 15, 63, 143]), (250, [1, 6, 39, 159, 359]), (1000, [6, 25, 159, 639, 1439])]
    {
        let got =
            [101, 102, 105, 110, 115].map(|percent| overage_ticks(256 * percent, 25600, 64, hz));
        assert_eq!(got, expected, "HZ {hz}");
    }
    let penalties =
        [1, 10, 20, 50, 100, 250, 500, 1000].map(|since| proposed_ticks(0, Some(since), 1000));
    assert_eq!(penalties, [100, 100, 50, 20, 10, 4, 2, 0]);
}

#[test]
fn refault_recency_sleeps_exactly_as_long_as_the_proposal() {
    let mut programs = Programs::load(REFAULT_RECENCY, "refault_recency").unwrap();
    let mut draw = Draw(7);
    let (mut asked, mut penalised, mut clamped) = (0u64, 0u64, 0u64);
    for hz in [100, 250, 1000] {
        let tick = NSEC / hz;
        let mut check = |overage: u64, since: Option<u64>, within_tick: u64| {
            let snapshot = LimitSnapshot {
                hz,
                overage_delay_ns: overage.saturating_mul(tick),
                since_refault_ns: since.map_or(u64::MAX, |since| since * tick + within_tick),
                // Not the program's business.
                default_delay_ns: 12345,
                ..LimitSnapshot::default()
            };
            let ticks = proposed_ticks(overage, since, hz);
            assert_eq!(
                programs.throttle(&snapshot),
                ThrottleAnswer::Exactly(ticks * tick),
                "{snapshot:?}"
            );
            asked += 1;
            penalised += u64::from(ticks > overage);
            clamped += u64::from(ticks == 2 * hz);
        };
        // Every distance up to a second and beyond, at both ends of its tick, with overages at the
        // edges of the rules.
        let edges =
            [0, 1, hz / 100, hz / 100 + 1, hz / 10, 2 * hz - 1, 2 * hz, 2 * hz + 1, u64::MAX];
        for since in 0..=hz + 2 {
            for overage in edges {
                check(overage, Some(since), 0);
                check(overage, Some(since), tick - 1);
                check(overage, None, 0);
            }
        }
        for _ in 0..20_000 {
            let bits = draw.below(24);
            let high = draw.below(1 << bits);
            let usage = high + draw.below(high / 4 + 2);
            let overage = overage_ticks(usage, high, 1 + draw.below(600), hz);
            let since = (draw.below(8) != 0).then(|| draw.below(hz * 2) >> draw.below(10));
            check(overage, since, draw.below(tick));
        }
    }
    assert!(
        asked > 60_000 && penalised > 10_000 && clamped > 1000,
        "{asked} {penalised} {clamped}"
    );
    assert_eq!(programs.status()[0].failures, 0);
}

#[test]
fn refault_recency_has_no_opinion_without_ticks() {
    let mut programs = Programs::load(REFAULT_RECENCY, "refault_recency").unwrap();
    for hz in [0, NSEC + 1, u64::MAX] {
        let snapshot = LimitSnapshot { hz, since_refault_ns: 5, ..LimitSnapshot::default() };
        assert_eq!(programs.throttle(&snapshot), ThrottleAnswer::Default);
    }
}

#[test]
fn noop_has_no_opinion() {
    let mut programs = Programs::load(NOOP, "noop").unwrap();
    assert_eq!(programs.throttle(&LimitSnapshot::default()), ThrottleAnswer::Default);
    assert_eq!((programs.name(), programs.license()), ("noop", Some("Dual MIT/Apache-2.0")));
}

#[test]
fn priority_lets_low_wait_longer_and_high_never() {
    let programs = Programs::load(PRIORITY, "priority").unwrap();
    // The engine's clone, and the operator's.
    let mut hooks = programs.clone();
    for (group, priority) in [(1u64, 0u32), (2, 50), (3, 100), (4, 101), (5, u32::MAX)] {
        programs.map_set("priority", &group.to_le_bytes(), &priority.to_le_bytes()).unwrap();
    }
    let mut ask = |group| {
        let snapshot =
            LimitSnapshot { group, default_delay_ns: 1_000_000, ..LimitSnapshot::default() };
        (hooks.throttle(&snapshot), hooks.below_low(&snapshot))
    };
    use ThrottleAnswer::{Default, Exactly};
    assert_eq!(ask(1), (Exactly(11_000_000), None));
    assert_eq!(ask(2), (Exactly(6_000_000), None));
    assert_eq!(ask(3), (Default, None));
    assert_eq!(ask(4), (Exactly(0), Some(true)));
    assert_eq!(ask(5), (Exactly(0), Some(true)));
    assert_eq!(ask(6), (Default, None), "not in the map");
    let waited = |step: u32| programs.map_get("waited_ns", &step.to_le_bytes()).unwrap().unwrap();
    assert_eq!(
        (waited(0), waited(5)),
        (11_000_000u64.to_le_bytes().into(), 6_000_000u64.to_le_bytes().into())
    );
    assert_eq!(programs.map_remove("priority", &4u64.to_le_bytes()), Ok(true));
    assert_eq!(programs.map_remove("priority", &4u64.to_le_bytes()), Ok(false));
    assert_eq!(ask(4), (Default, None));
    let long = LimitSnapshot { group: 1, default_delay_ns: u64::MAX, ..LimitSnapshot::default() };
    assert_eq!(hooks.throttle(&long), Exactly(DELAY_MAX_NS));
}

#[test]
fn operations_on_maps_that_cannot_be_are_named() {
    let programs = Programs::load(PRIORITY, "priority").unwrap();
    assert_eq!(programs.maps(), ["priority", "waited_ns"]);
    let no_map = programs.map_get("prio", &[]).unwrap_err();
    assert_eq!(no_map.to_string(), "priority has no map prio; it has: priority, waited_ns");
    let length = programs.map_set("priority", &[0; 8], &[0; 8]).unwrap_err();
    assert_eq!(length.to_string(), "map priority has values of 4 bytes, not of 8");
    let key = programs.map_get("priority", &[0; 4]).unwrap_err();
    assert!(matches!(key, MapError::Length { what: "key", expected: 8, found: 4, .. }));
    assert!(matches!(programs.map_remove("waited_ns", &[0; 4]), Err(MapError::Array { .. })));
    for group in 0..1024u64 {
        programs.map_set("priority", &group.to_le_bytes(), &[0; 4]).unwrap();
    }
    assert!(matches!(
        programs.map_set("priority", &u64::MAX.to_le_bytes(), &[0; 4]),
        Err(MapError::Full { .. })
    ));
}

/// A number of calls of every hook with drawn snapshots, and everything that can be seen of them.
fn story(programs: &mut Programs, seed: u64) -> Vec<String> {
    let mut draw = Draw(seed);
    let mut seen = Vec::new();
    for _ in 0..2000 {
        let snapshot = LimitSnapshot {
            group: draw.below(4),
            level: draw.below(2) as u32,
            min: draw.below(10),
            elow: draw.below(300),
            emin: draw.below(300),
            nr_over_high: draw.below(300),
            usage: draw.below(400),
            since_refault_ns: draw.below(2 * NSEC),
            overage_delay_ns: draw.below(3 * NSEC),
            default_delay_ns: draw.below(3 * NSEC),
            hz: [100, 250, 1000][draw.below(3) as usize],
            now_ns: draw.below(1000),
            ..LimitSnapshot::default()
        };
        if draw.below(4) == 0 {
            programs.offline(&snapshot);
        } else {
            programs.online(&snapshot);
        }
        let answers = (
            programs.throttle(&snapshot),
            programs.below_low(&snapshot),
            programs.below_min(&snapshot),
            programs.proactive(&snapshot),
        );
        let values: Vec<_> =
            (0..4u32).map(|key| programs.map_get("sums", &key.to_le_bytes())).collect();
        seen.push(format!("{answers:?} {values:?} {:?}", programs.take_requests()));
    }
    seen.push(format!(
        "{:?}",
        programs.status().iter().map(|s| (s.hook, s.runs, s.failures)).collect::<Vec<_>>()
    ));
    seen
}

#[test]
fn equal_snapshots_and_equal_maps_give_equal_answers() {
    for object in [NOOP, REFAULT_RECENCY, PRIORITY, FAIR_SHARE, FEATURES, PROPOSED, OWN] {
        let [one, other] = [1, 2].map(|_| story(&mut Programs::load(object, "story").unwrap(), 11));
        assert_eq!(one, other);
    }
}

#[test]
fn functions_data_loops_and_maps_with_structures_work_as_in_c() {
    let mut programs = Programs::load(FEATURES, "features").unwrap();
    let snapshot = |group, usage| LimitSnapshot {
        group,
        usage,
        min: 3,
        now_ns: 9,
        ..LimitSnapshot::default()
    };
    // table[group % 8] * 2 + calls * 3
    for (calls, (group, entry)) in (1..).zip([(0, 5), (9, 10), (7, 640)]) {
        let expected = ThrottleAnswer::Exactly(entry * 2 + calls * 3);
        assert_eq!(programs.throttle(&snapshot(group, 0)), expected);
    }
    let total: u64 = (0..16).map(|i| i * i).sum();
    for usage in [5, 100, 299, 300] {
        let sum: u64 = (0..usage).map(|i| i ^ 3).sum();
        // No more than the group has.
        assert_eq!(programs.proactive(&snapshot(0, usage)), (sum % total).min(usage));
    }
    let answers: Vec<_> =
        [1, 1, 2, 3, 1].map(|group| programs.below_low(&snapshot(group, 0))).into();
    assert_eq!(
        answers,
        [Some(false), Some(true), Some(false), None, Some(true)],
        "the map has room for two"
    );
    let key = [1u64.to_le_bytes(), 0u64.to_le_bytes()].concat();
    let value = programs.map_get("seen", &key).unwrap().unwrap();
    assert_eq!(
        value[..12],
        [3, 0, 0, 0, 0, 0, 0, 0, 0xef, 0xff, 0xff, 0xff],
        "asked 3 times, -7 - 5 - 5"
    );
    assert_eq!(programs.below_min(&snapshot(1, 0)), Some(true));
    assert_eq!(programs.below_min(&snapshot(1, 0)), Some(false));
    // 9, and then 9 + 9, for the same group.
    assert_eq!(
        programs.take_requests(),
        [lowtide_core::hooks::ReclaimRequest { group: 1, pages: 27 }]
    );
    assert!(programs.status().iter().all(|status| status.failures == 0));
    assert_eq!(programs.status().len(), 4);
    assert!(!programs.switch_on(Hook::ThrottleAtLeast));
}

/// Compiles a source; `None` if there is no compiler here.
fn compile(source: &Path, cpu: &str, to: &Path) -> Option<Vec<u8>> {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let output = Command::new("clang")
        .args([
            "-O2",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-target",
            "bpf",
            &format!("-mcpu={cpu}"),
            "-I",
        ])
        .arg(include)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(to)
        .output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        output => output.unwrap(),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && errors.contains("No available targets") {
        return None;
    }
    assert!(output.status.success(), "{errors}");
    Some(std::fs::read(to).unwrap())
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test must say so")]
fn the_committed_objects_behave_as_their_sources_compiled_now() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let examples: PathBuf = here.join("../../examples/bpf");
    let directory = tempfile::tempdir().unwrap();
    for (name, place, committed) in [
        ("noop", &examples, NOOP),
        ("refault_recency", &examples, REFAULT_RECENCY),
        ("priority", &examples, PRIORITY),
        ("fair_share", &examples, FAIR_SHARE),
        ("features", &here.join("tests/programs"), FEATURES),
        ("proposed", &here.join("tests/programs"), PROPOSED),
        ("own", &here.join("tests/programs"), OWN),
    ] {
        let expected = story(&mut Programs::load(committed, name).unwrap(), 5);
        // 32-bit arithmetic and jumps come with v3.
        for cpu in ["v1", "v2", "v3"] {
            let source = place.join(format!("{name}.bpf.c"));
            let Some(object) = compile(&source, cpu, &directory.path().join("now.o")) else {
                eprintln!(
                    "SKIPPED: there is no clang for BPF here; the committed objects were not \
                     compared with their sources"
                );
                return;
            };
            // Debug information and all.
            let mut now = Programs::load(&object, name).unwrap();
            assert_eq!(story(&mut now, 5), expected, "{name}, {cpu}");
        }
    }
}
