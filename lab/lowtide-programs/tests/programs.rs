//! Promise: a program says, does and leaves under `lowtide run` what it does alone, in every mode.

#![allow(clippy::print_stdout, reason = "says what is skipped")]

use lowtide_programs::campaign::{Campaign, Finding, Options, Tally};
use lowtide_programs::difference::Respect;
use lowtide_programs::mode::Mode;
use lowtide_programs::plan::Plan;
use lowtide_programs::stage::Stage;
use std::path::Path;
use std::time::Duration;

/// Programs that are drawn in each run of the tests.
const PROGRAMS: u64 = 24;
/// A play hangs that takes longer, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn stage() -> Stage {
    Stage::build(Path::new(env!("CARGO_TARGET_TMPDIR")), None).expect("what plays need")
}

fn options(seed: u64, programs: u64, most: Option<Duration>) -> Options {
    let modes = Mode::ALL.to_vec();
    Options { seed, programs, most, modes, at_a_time: 4, known: false, limit: LIMIT, findings: 4 }
}

fn say(finding: &Finding) {
    let mode = finding.mode.map_or("alone", Mode::name);
    let Finding { seed, difference, plan, .. } = finding;
    eprintln!("seed {seed:?}: {mode}: {:?}\n{}  {plan}", difference.respect, difference.text);
}

/// A program that hangs alone, as one that exits in a handler may, shows nothing of lowtide.
fn nothing_differs(tally: &Tally) {
    let is_ours =
        |found: &&Finding| found.mode.is_some() || found.difference.respect != Respect::Hang;
    let first = tally.findings.iter().find(is_ours);
    assert!(
        first.is_none(),
        "a program differs: {}",
        first.map(|found| found.difference.text.lines().next().unwrap_or_default()).unwrap_or("")
    );
}

/// Draws for as long as `LOWTIDE_STRESS_SECONDS` says, if it does.
#[test]
fn programs_say_the_same_within_a_budget() {
    let seconds = std::env::var("LOWTIDE_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    let most = seconds.map(Duration::from_secs);
    let programs = if most.is_some() { u64::MAX >> 1 } else { PROGRAMS };
    let stage = stage();
    if !stage.has_namespaces {
        println!("SKIPPED: a full /dev/shm, which takes root: such plans have the usual one");
    }
    let tally = Campaign::new(&stage, options(1, programs, most)).run(say).expect("plays begin");
    nothing_differs(&tally);
    assert!(tally.moved.evicted > 0, "no page of a file has left: {tally:?}");
    assert!(tally.programs >= PROGRAMS.min(programs) || most.is_some(), "{tally:?}");
}

/// A player that says nothing of a wrong byte would make every play equal.
#[test]
fn a_player_whose_memory_is_changed_behind_its_back_says_so() {
    let stage = stage();
    // The model knows nothing of what a mutex leaves in a page that a plan stores to before.
    let plan: Plan =
        "max=1M threshold=64K: map 0 300 rw plain; store 0 0 300 8; spoil 0 7; check 0 0 300"
            .parse()
            .expect("a plan");
    let tally =
        Campaign::new(&stage, options(0, 1, None)).run_plan(&plan, |_| ()).expect("a play begins");
    let found = tally.findings.first().expect("it is found");
    assert!(found.difference.text.contains("page 7, word 3"), "{}", found.difference.text);
}

/// Plans that the fuzzer has found, each of a kind that is fixed. The first: workers of io_uring
/// are threads of the process, too, and it did not end with its last thread of the program.
#[test]
fn what_has_differed_does_not_any_more() {
    let stage = stage();
    for plan in ["max=2M threshold=64K: replace 0 0; end last 0", "max=2M threshold=64K: cut"] {
        let plan: Plan = plan.parse().expect("a plan");
        let tally = Campaign::new(&stage, options(0, 1, None)).run_plan(&plan, say);
        nothing_differs(&tally.expect("a play begins"));
    }
}
