//! Promise: a program under `lowtide run` that uses up what a process may have, or gives up what it
//! may do, goes on as it would have gone on alone, and its budget holds.

use crate::common::programs::{BUDGET, Files, maps, plain, run, same};
use crate::common::text;

const MODES: [&[&str]; 2] = [&["--mode", "pagecache"], &["--mode", "auto"]];

fn waits() -> String {
    maps().with_file_name("waits").to_str().unwrap().to_owned()
}

#[test]
fn with_as_many_mappings_as_there_may_be_a_mirror_becomes_the_kernels_mapping_again() {
    let files = Files::new();
    let (waits, data) = (waits(), files.data());
    let program = [waits.as_str(), "crowded", &data];
    let alone = plain(&waits).args(&program[1..]).output().unwrap();
    for mode in MODES {
        let options = [&["--max", BUDGET, "--summary", "/dev/null"], mode].concat();
        same(&run(&options, &program).output().unwrap(), &alone);
    }
}

#[test]
fn a_worker_that_becomes_another_user_keeps_to_the_budget() {
    let files = Files::new();
    let (waits, data) = (waits(), files.data());
    let program = [waits.as_str(), "worker", &data];
    for mode in MODES {
        let options = [&["--max", BUDGET, "--summary", "/dev/null"], mode].concat();
        let output = run(&options, &program).output().unwrap();
        let said = text(&output.stdout);
        if said.starts_with("SKIPPED") {
            return eprintln!("{said}");
        }
        assert!(output.status.success(), "{}", text(&output.stderr));
        let cached = said.strip_suffix(" MiB are cached\n").and_then(|most| most.parse().ok());
        let cached: u64 = cached.expect("a number");
        // A file of 32 MiB, and a budget of 8.
        assert!(cached <= 16, "{mode:?}: {said}");
    }
}
