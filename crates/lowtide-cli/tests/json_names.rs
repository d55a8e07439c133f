//! Promise: a test fails when a name in the JSON of a simulation is removed or renamed.
//!
//! `json_names.txt` lists the fields of the rows of every workload. A change to it
//! changes an interface, which CHANGELOG.md must mention; `LOWTIDE_WRITE_NAMES=1` writes the file
//! again.

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

#[test]
fn the_names_of_all_fields_are_those_in_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.csv");
    std::fs::write(&trace, "op,space,page,pages\nload,file:a,0,300\nstore,anon:b,0,9\n").unwrap();
    let mut all: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (workload, arguments) in runs(trace.to_str().unwrap()) {
        let output = run(&[&["sim"], &arguments[..], &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        let results: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = all.entry(workload).or_default();
        rows(&results).iter().for_each(|row| names(row, "", found));
        if workload == "trace with curves" {
            names(&results["machine"], "machine", found);
        }
    }
    let mut workloads = all.values();
    let first = workloads.next().unwrap().clone();
    let common: BTreeSet<String> = all
        .iter()
        .filter(|(name, _)| **name != "trace with curves")
        .fold(first, |common, (_, names)| common.intersection(names).cloned().collect());
    let mut list = String::from("# In every row of a workload or trace, but those of curves\n");
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
