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
fn runs() -> Vec<(&'static str, Vec<&'static str>)> {
    let both = "mglru-7.1,mglru";
    let ycsb = |name| vec![name, "--scale", "0.002", "--ops", "1k", "--policy", "mglru"];
    vec![
        ("ycsb-a", ycsb("ycsb-a")),
        ("ycsb-b", [ycsb("ycsb-b"), vec!["--timing"]].concat()),
        ("ycsb-c", ycsb("ycsb-c")),
        ("wt", vec!["wt", "--ops", "1k", "--policy", "mglru"]),
        ("tenants", vec!["tenants", "--scale", "0.004", "--seconds", "5", "--policy", both]),
        (
            "high-thrash",
            vec!["high-thrash", "--seconds", "1", "--threads", "2", "--policy", "mglru"],
        ),
        ("circles", vec!["circles", "--seconds", "1", "--policy", "mglru"]),
        ("noisy-neighbour", vec!["noisy-neighbour", "--seconds", "1", "--policy", "mglru"]),
        (
            "file-anon-mix",
            vec!["file-anon-mix", "--scale", "0.0078125", "--rounds", "1", "--seed", "12"],
        ),
        (
            "file-anon-mix over seeds",
            [
                vec!["file-anon-mix", "--scale", "0.0078125", "--rounds", "2"],
                vec!["--seed", "12", "--seeds", "1", "--policy", "mglru-7.1"],
            ]
            .concat(),
        ),
        (
            "mmap-thrash",
            vec!["mmap-thrash", "--scale", "0.02", "--seconds", "1", "--policy", "mglru"],
        ),
        ("fio-mmap", vec!["fio-mmap", "--scale", "0.01", "--seconds", "1", "--policy", "mglru"]),
        (
            "anon-zipf",
            vec!["anon-zipf", "--max", "1M", "--ratio", "2", "--seconds", "1", "--policy", "mglru"],
        ),
        (
            "sysbench-ro",
            vec!["sysbench-ro", "--scale", "0.02", "--seconds", "1", "--policy", "mglru-7.1"],
        ),
        ("kernel-build", vec!["kernel-build", "--scale", "0.01", "--policy", "mglru-7.1"]),
        ("android", vec!["android", "--scale", "0.02", "--rounds", "1", "--policy", "mglru-7.1"]),
        ("dd-oom", vec!["dd-oom", "--policy", both]),
        ("fill", vec!["fill", "--max", "16M", "--policy", "mglru"]),
        (
            "mixed",
            vec!["mixed", "--max", "16M", "--seconds", "2", "--checkpoint", "1s", "--threads", "2"],
        ),
        ("corpus", vec!["corpus", "--trace", "loop-8k", "--half", "all", "--scale", "0.02"]),
        ("scaling", vec!["scaling", "--scale", "0.02", "--cpus", "1,2", "--hold", "150"]),
        ("swarm", vec!["swarm", "2", "--seed", "1"]),
    ]
}

/// The same on real memory.
const MEASURED: [(&str, &[&str]); 9] = [
    ("depth", &["depth", "--depth", "2", "--max", "1M", "--seconds", "0.1", "--rounds", "1"]),
    (
        "in-order",
        &["in-order", "--io-size", "64K", "--max", "1M", "--seconds", "0.5", "--rounds", "1"],
    ),
    ("hit", &["hit", "--size", "1M", "--ops", "100", "--rounds", "1"]),
    ("fill", &["fill", "--max", "8M", "--scale", "1.5", "--rounds", "1"]),
    ("dd-oom", &["dd-oom", "--max", "2M", "--size", "4M", "--delay", "50ms"]),
    ("mixed", &["mixed", "--max", "4M", "--scale", "2", "--checkpoint", "200ms", "--rounds", "1"]),
    ("anon-zipf", &["anon-zipf", "--max", "2M", "--ratio", "2", "--seconds", "1", "--rounds", "1"]),
    ("tenants", &["tenants", "--scale", "0.0005", "--seconds", "0.5"]),
    (
        "slow device",
        &["ycsb-c", "--max", "1M", "--ops", "600", "--rounds", "1", "--device-delay", "read=1us"],
    ),
];

#[test]
fn the_names_of_simulated_fields_are_those_in_the_list() {
    let mut all = Names::new();
    for (workload, arguments) in runs() {
        let output = run(&[&["sim"], &arguments[..], &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        let results: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = all.entry(workload).or_default();
        rows(&results).iter().for_each(|row| add(row, "", found));
    }
    let apart = ["corpus", "scaling", "swarm", "file-anon-mix over seeds"];
    pin(&all, "In every row of a workload", &apart, "json_names.txt");
}

#[test]
fn the_names_of_measured_fields_are_those_in_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.csv");
    std::fs::write(&trace, "op,space,page,pages\nload,file:a,0,300\nload,file:a,0,9\n").unwrap();
    let replay = ["replay", "--trace", trace.to_str().unwrap(), "--max", "1M", "--rounds", "2"];
    let mut all = Names::new();
    for (workload, arguments) in MEASURED.into_iter().chain([("replay", &replay[..])]) {
        let results = results(dir.path(), &[&["bench"], arguments].concat());
        let found = all.entry(workload).or_default();
        let is_ours = |row: &&Value| {
            let system = row["system"].as_str().unwrap_or_default();
            system.starts_with("lowtide") || system == "view"
        };
        rows(&results).iter().filter(is_ours).for_each(|row| add(row, "", found));
        assert!(!found.is_empty(), "{workload} has a row of lowtide's");
    }
    pin(&all, "In every row of a workload", &["hit"], "json_names_bench.txt");
}
