//! Promise: a test fails when a name in the JSON of a simulation is removed or renamed.
//!
//! `json_names.txt` lists the fields of the rows of every workload. A change to it
//! changes an interface, which CHANGELOG.md must mention; `LOWTIDE_WRITE_NAMES=1` writes the file
//! again.

#[path = "../../../crates/lowtide-cli/tests/common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use common::{rows, run, text};
use serde_json::Value;

/// The names of all fields, those of objects within objects after a dot.
fn names(value: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name =
                    if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                names(value, &name, found);
                found.insert(name);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| names(item, prefix, found)),
        _ => {}
    }
}

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
        ("high-thrash", vec!["high-thrash", "--seconds", "1", "--threads", "2"]),
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

#[test]
fn the_names_of_all_fields_are_those_in_the_list() {
    let mut all: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (workload, arguments) in runs() {
        let output = run(&[&["sim"], &arguments[..], &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        let results: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = all.entry(workload).or_default();
        rows(&results).iter().for_each(|row| names(row, "", found));
    }
    let mut workloads = all.values();
    let first = workloads.next().unwrap().clone();
    let common: BTreeSet<String> = all
        .iter()
        .filter(|(name, _)| {
            !["corpus", "scaling", "swarm", "file-anon-mix over seeds"].contains(name)
        })
        .fold(first, |common, (_, names)| common.intersection(names).cloned().collect());
    let mut list = String::from("# In every row of a workload\n");
    common.iter().for_each(|name| writeln!(list, "{name}").unwrap());
    for (workload, names) in &all {
        writeln!(list, "\n# {workload}").unwrap();
        let own = names.iter().filter(|name| !common.contains(*name));
        own.for_each(|name| writeln!(list, "{name}").unwrap());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/json_names.txt");
    if std::env::var_os("LOWTIDE_WRITE_NAMES").is_some() {
        std::fs::write(&path, &list).unwrap();
    }
    let pinned = std::fs::read_to_string(&path).unwrap();
    for (now, then) in list.lines().zip(pinned.lines()) {
        assert_eq!(now, then, "left: now, right: pinned in tests/json_names.txt");
    }
    assert_eq!(list, pinned);
}
