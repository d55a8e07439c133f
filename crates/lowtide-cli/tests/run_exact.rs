//! Promise: `lowtide run --mode userfault` keeps mappings of files that do not change within an
//! exact budget, changes nothing that a program does, never shows old data, and says which mappings
//! it keeps in the other way, and why.

use std::fs;

use crate::common::programs::{Files, MIB, maps, maps_with, plain, same};
use crate::common::text;
use serde_json::Value;

/// What a budget of 8 MiB may be exceeded by: nothing. What mirrors take is counted by the kernel.
const MOST: u64 = 8 * MIB as u64;

/// Runs the program in `userfault` mode; `None` where that is not available.
fn exactly(files: &Files, program: &[&str]) -> Option<(std::process::Output, Vec<Value>)> {
    let (output, summaries) = files.within(&["--mode", "userfault"], program);
    let because = |one: &Value| one["pagecache_because"].as_array().cloned().unwrap_or_default();
    let missing = |row: &Value| row["reason"] == "unavailable" || row["reason"] == "no_lease";
    if let Some(row) = summaries.iter().flat_map(because).find(missing) {
        eprintln!("SKIPPED: {row} {}", summaries[0]["refusal"]);
        return None;
    }
    Some((output, summaries))
}

/// The mapping is read in order until it is the kernel's, at random until it is a mirror, and in
/// order again.
#[test]
fn a_mapping_is_kept_in_the_way_that_is_the_better_one_for_how_it_is_used() {
    let files = Files::new();
    let (data, out) = (files.data(), files.path("ways"));
    let program = [maps().to_str().unwrap(), "turns", &data, &out];
    let ways = |options: &[&str]| {
        let (with, summaries) = files.within(options, &program);
        same(&with, &maps_with(&["turns", &data, &files.path("alone")]));
        (fs::read_to_string(&out).unwrap(), summaries.last().unwrap().clone())
    };
    let (found, last) = ways(&[]);
    if found == "file" {
        return eprintln!("SKIPPED: {last}");
    }
    assert_eq!(found, "mirror file mirror file", "{last}");
    assert_eq!(because(&last, "turned_in_order"), 1, "{last}");
    assert_eq!(
        (&last["mappings"]["userfault"], &last["mappings"]["pagecache"]),
        (&1.into(), &1.into())
    );
    let _ = fs::remove_file(files.path("summary"));
    assert_eq!(ways(&["--mode", "pagecache"]).0, "file");
}

/// How many mappings were kept in `pagecache` mode for a reason.
fn because(summary: &Value, reason: &str) -> u64 {
    let rows = summary["pagecache_because"].as_array().unwrap();
    rows.iter().find(|row| row["reason"] == reason).map_or(0, |row| row["count"].as_u64().unwrap())
}

#[test]
fn mappings_of_a_file_that_does_not_change_have_an_exact_budget_and_the_same_bytes() {
    let files = Files::new();
    let (data, copy) = (files.data(), files.path("copy"));
    for (command, mappings) in [
        ("read", 1),
        ("threads", 192),
        ("children", 0),
        ("copies", 1),
        ("calls", 1),
        ("pieces", 3),
        ("again", 2),
    ] {
        let program = match command {
            "read" => vec!["read", &data, "40000"],
            "calls" => vec!["calls", &data, &copy],
            other => vec![other, &data],
        };
        let whole = [&[maps().to_str().unwrap()], &program[..]].concat();
        let Some((with, summaries)) = exactly(&files, &whole) else { return };
        same(&with, &maps_with(&program));
        let last = summaries.last().unwrap();
        let mirrored = last["mappings"]["userfault"].as_u64().unwrap();
        assert!(mirrored == mappings || mappings == 0 && mirrored > 0, "{command}: {last}");
        let budget = &last["budgets"][0];
        if ["read", "threads", "children"].contains(&command) {
            assert!(budget["peak_bytes"].as_u64().unwrap() <= MOST, "{command}: {last}");
        }
        assert!(budget["evicted"].as_u64().unwrap() > 0, "{command}: {last}");
        if command == "pieces" {
            let reasons = ["turned_cut", "turned_moved"];
            assert_eq!(reasons.map(|reason| because(last, reason)), [1; 2], "{last}");
        }
        if command == "again" {
            assert_eq!(because(last, "turned_moved"), 2, "{last}");
        }
        if command == "copies" {
            assert_eq!(
                because(last, "turned_cut") + because(last, "turned_protected"),
                1,
                "{last}"
            );
        }
        let _ = fs::remove_file(&copy);
    }
}

#[test]
fn a_file_that_is_opened_for_writing_or_cut_shows_no_old_data() {
    for command in ["opens", "others"] {
        let files = Files::new();
        let program = [maps().to_str().unwrap(), command, &files.data()];
        let Some((with, summaries)) = exactly(&files, &program) else { return };
        let last = summaries.last().unwrap();
        assert!(because(last, "turned_opened_for_writing") > 0, "{command}: {last}");
        if command == "opens" {
            assert_eq!(because(last, "open_for_writing"), 3, "{command}: {last}");
        }
        assert!(maps_with(&["make", &files.data(), &(32 * MIB).to_string()]).status.success());
        same(&with, &maps_with(&[command, &files.data()]));
    }
}

#[test]
fn mappings_that_may_change_the_file_are_kept_in_the_other_way_and_named_with_the_reason() {
    let files = Files::new();
    let fresh = || {
        assert!(maps_with(&["make", &files.data(), &(32 * MIB).to_string()]).status.success());
    };
    for (command, reason, count) in [("stores", "shared_writable", 1), ("parts", "turned_cut", 0)] {
        fresh();
        let program = [maps().to_str().unwrap(), command, &files.data()];
        let Some((with, summaries)) = exactly(&files, &program) else { return };
        let last = summaries.last().unwrap();
        assert_eq!(because(last, reason), count, "{command}: {last}");
        assert!(because(last, "open_for_writing") > 0, "{command}: {last}");
        assert_eq!(last["mappings"]["userfault"], 0, "{command}: {last}");
        fresh();
        same(&with, &maps_with(&[command, &files.data()]));
    }
}

#[test]
fn where_page_faults_cannot_be_served_for_all_the_other_way_is_taken_and_the_reason_is_named() {
    let files = Files::new();
    let sandboxed = maps().with_file_name("sandboxed");
    for (what, word) in [("userfaultfd", "userfaultfd"), ("privilege", "EFAULT")] {
        let program = [sandboxed.to_str().unwrap(), what, &files.data()];
        let _ = fs::remove_file(files.path("summary"));
        let (with, summaries) = files.within(&["--mode", "userfault"], &program);
        if text(&with.stdout).contains("SKIPPED") {
            eprintln!("{}", text(&with.stdout));
            continue;
        }
        let last = summaries.last().unwrap();
        assert_eq!(because(last, "unavailable"), 1, "{last}");
        assert!(last["refusal"].as_str().unwrap().contains(word), "{last}");
        assert!(last["budgets"][0]["evicted"].as_u64().unwrap() > 0, "{last}");
        let alone = plain(&sandboxed).args([what, &files.data()]).output().unwrap();
        same(&with, &alone);
    }
}

#[test]
fn an_open_without_waiting_never_fails_because_of_mappings_of_the_program_itself() {
    let files = Files::new();
    let program = [maps().to_str().unwrap(), "waitless", &files.data()];
    let Some((with, summaries)) = exactly(&files, &program) else { return };
    same(&with, &maps_with(&["waitless", &files.data()]));
    let last = summaries.last().unwrap();
    assert!(because(last, "turned_opened_for_writing") > 0, "{last}");
}

/// A mirror takes the addresses of a mapping twice: the program's own would fail.
#[test]
fn a_program_whose_addresses_are_limited_has_them_and_is_kept_in_the_other_way() {
    let files = Files::new();
    let (data, summary) = (files.data(), files.path("summary"));
    let options = ["run", "--max", "8M", "--json", "--summary", &summary, "--mode", "userfault"];
    let last = || -> Value {
        let text = fs::read_to_string(&summary).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    };
    // 640 MiB of addresses, and 256 MiB of mappings.
    let mut limited = plain("sh");
    limited.args(["-c", "ulimit -v 655360; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_lowtide")]);
    limited.args(options).arg("--").arg(maps()).args(["hoard", &data]);
    let output = limited.output().unwrap();
    if text(&output.stderr).contains("--force") {
        return eprintln!("SKIPPED: {}", text(&output.stderr));
    }
    same(&output, &maps_with(&["hoard", &data]));
    let line = last();
    assert_eq!(because(&line, "few_addresses"), 64, "{line}");
    assert_eq!(line["mappings"]["userfault"], 0, "{line}");
    assert!(line["budgets"][0]["evicted"].as_u64().unwrap() > 0, "{line}");
    fs::remove_file(&summary).unwrap();
    // It limits itself later, when there is a mirror, and maps the file six times more.
    let mut limits = plain(env!("CARGO_BIN_EXE_lowtide"));
    limits.args(options).arg("--").arg(maps()).args(["limits", &data]);
    same(&limits.output().unwrap(), &maps_with(&["limits", &data]));
    let line = last();
    if because(&line, "no_lease") > 0 {
        return eprintln!("SKIPPED: {line}");
    }
    assert_eq!((because(&line, "few_addresses"), &line["mappings"]["userfault"]), (6, &1.into()));
}
