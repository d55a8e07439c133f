//! Promise: the examples on the pages about machines and traces work unchanged, and the pages
//! describe every key and column.

use std::fs;
use std::path::Path;

use crate::common::{rows, run, text};
use serde_json::Value;

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)).unwrap()
}

/// The code blocks of a page in a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    page.split(&start).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

fn json(args: &[&str]) -> Value {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every key of a table, including nested tables.
fn keys(value: &Value, found: &mut Vec<String>) {
    for (key, value) in value.as_object().unwrap() {
        found.push(key.clone());
        if value.is_object() {
            keys(value, found);
        }
    }
}

#[test]
fn the_machine_on_its_page_can_be_simulated_and_every_key_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let page = page("machines.md");
    let [example] = blocks(&page, "toml").try_into().unwrap();
    let path = dir.path().join("old-laptop.toml");
    fs::write(&path, example).unwrap();
    let zipf = [
        "sim", "zipf", "--ops", "2k", "--size", "4M", "--max", "1M", "--policy", "mglru", "--json",
    ];
    let results = json(&[zipf.as_slice(), &["--machine", path.to_str().unwrap()]].concat());
    let machine = &results["machine"];
    assert_eq!(
        (&machine["name"], &machine["memory"]),
        (&"old-laptop".into(), &(8_u64 << 30).into())
    );
    assert_eq!(machine["costs"]["minor_fault_ns"], 1500);
    let mut all = Vec::new();
    keys(machine, &mut all);
    assert!(all.len() > 50, "{all:?}");
    for key in all.iter().map(String::as_str).chain(["base"]) {
        assert!(page.contains(&format!("| `{key}` |")), "{key} is not explained");
    }
    let defaults = json(&[zipf.as_slice(), &["--machine", "laptop"]].concat());
    for cost in all.iter().filter(|key| key.ends_with("_ns")) {
        let Some(default) = defaults["machine"]["costs"][cost].as_u64() else { continue };
        let row = page.lines().find(|line| line.starts_with(&format!("| `{cost}` |"))).unwrap();
        let said: String =
            row.split('|').nth(2).unwrap().chars().filter(char::is_ascii_digit).collect();
        assert_eq!(said, default.to_string(), "{cost}");
    }
}

#[test]
fn a_machine_is_printed_as_a_file_that_describes_it() {
    let dir = tempfile::tempdir().unwrap();
    let zipf = [
        "sim", "zipf", "--ops", "2k", "--size", "4M", "--max", "1M", "--policy", "mglru", "--json",
    ];
    for name in ["phone", "xeon-96t"] {
        let output = run(&["list", "machines", "--toml", name]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let path = dir.path().join("copy.toml");
        fs::write(&path, &output.stdout).unwrap();
        // All but the command itself.
        let [copy, original] = [path.to_str().unwrap(), name].map(|machine| {
            let mut of = json(&[zipf.as_slice(), &["--machine", machine]].concat());
            assert!(of["command"].take().as_str().is_some_and(|said| said.ends_with(machine)));
            of
        });
        assert_eq!(copy, original);
    }
    let output = run(&["list", "machines", "--toml", "xenon"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean `xeon-96t`?"), "{}", text(&output.stderr));
    assert_eq!(run(&["list", "policies", "--toml", "hdd"]).status.code(), Some(2));
}

#[test]
fn the_traces_on_their_page_can_be_played_and_every_column_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let page = page("traces.md");
    let examples = blocks(&page, "csv");
    assert_eq!(examples.len(), 1);
    for (example, (page_bytes, touched)) in examples.iter().zip([(4096, 4)]) {
        let path = dir.path().join("example.csv");
        fs::write(&path, example).unwrap();
        let results = json(&[
            "sim",
            "trace",
            path.to_str().unwrap(),
            "--max",
            "1M",
            "--policy",
            "mglru",
            "--json",
        ]);
        let row = &rows(&results)[0];
        assert_eq!(
            (&row["page_bytes"], &row["footprint_pages"]),
            (&page_bytes.into(), &touched.into())
        );
    }
    for column in examples[0].lines().nth(1).unwrap().split(',') {
        assert!(page.contains(&format!("| `{column}` |")), "{column} is not explained");
    }
    for format in lowtide_workload::trace::Format::ALL {
        assert!(page.contains(format.name()), "{format} is not on the page");
    }
}
