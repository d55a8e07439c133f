//! Promise: a test fails when a name in the JSON of results is removed or renamed, in either world.
//!
//! `json_names.txt` lists the fields of the rows of every simulation, `json_names_bench.txt` those
//! of measurements on real memory: of lowtide's own rows, since peers are not on every machine. A
//! change to them changes an interface, which CHANGELOG.md must mention; `LOWTIDE_WRITE_NAMES=1`
//! writes the files again.

use crate::common::names::{Names, add, pin};
use crate::common::{results, rows, run, text};
use serde_json::Value;

/// The shortest run of each workload that has all of its fields.
fn runs(trace: &str) -> Vec<(&'static str, Vec<&str>)> {
    vec![
        ("zipf", vec!["zipf", "--ops", "10k", "--size", "4M", "--max", "1M"]),
        (
            "zipf on a machine",
            vec!["zipf", "--ops", "10k", "--size", "4M", "--max", "1M", "--machine", "laptop"],
        ),
        ("uniform", vec!["uniform", "--ops", "10k", "--size", "4M", "--max", "1M"]),
        ("loop", vec!["loop", "--ops", "10k", "--size", "4M", "--max", "1M"]),
        ("trace", vec!["trace", trace, "--max", "1M"]),
        ("trace on a machine", vec!["trace", trace, "--machine", "laptop"]),
        ("trace with curves", vec!["trace", trace, "--mrc", "--advise", "0.5"]),
    ]
}

/// The same on real memory.
const MEASURED: [(&str, &[&str]); 4] = [
    ("ycsb-a", &["ycsb-a", "--scale", "1.5"]),
    ("random-read", &["random-read"]),
    ("scan", &["scan", "--stride", "3"]),
    ("gather", &["gather", "--row", "512"]),
];

#[test]
fn the_names_of_simulated_fields_are_those_in_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.csv");
    std::fs::write(&trace, "op,space,page,pages\nload,file:a,0,300\nstore,anon:b,0,9\n").unwrap();
    let mut all = Names::new();
    for (workload, arguments) in runs(trace.to_str().unwrap()) {
        let output = run(&[&["sim"], &arguments[..], &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        let results: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = all.entry(workload).or_default();
        rows(&results).iter().for_each(|row| add(row, "", found));
        if workload == "trace with curves" {
            add(&results["machine"], "machine", found);
        }
    }
    let title = "In every row of a workload or trace, but those of curves";
    pin(&all, title, &["trace with curves"], "json_names.txt");
}

#[test]
fn the_names_of_measured_fields_are_those_in_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Names::new();
    for (workload, arguments) in MEASURED {
        let small = ["--max", "1M", "--rounds", "2", "--policy", "mglru", "--against", "none"];
        let results =
            results(dir.path(), &[&["bench"], arguments, &small, &["--ops", "600"]].concat());
        let found = all.entry(workload).or_default();
        rows(&results).iter().for_each(|row| add(row, "", found));
    }
    pin(&all, "In every row of a workload", &[], "json_names_bench.txt");
}
