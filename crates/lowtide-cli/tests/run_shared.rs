//! Promise: the budget of `lowtide run` is that of a program and of all that it starts: processes
//! divide it, and a child of `fork` keeps to it with what it has from its parent.

use std::fs;

use crate::common::programs::{Files, MIB, maps, plain, run, same};
use crate::common::text;
use serde_json::Value;

/// The budget of these tests.
const MAX: u64 = 8 * MIB as u64;

/// Two processes that read a file at the same time; the parts that they had at their ends.
fn parts(options: &[&str]) -> Vec<u64> {
    let files = Files::new();
    let script = "\"$0\" read \"$1\" 60000 & \"$0\" read \"$1\" 60000 & wait";
    let program = ["sh", "-c", script, maps().to_str().unwrap(), &files.data()];
    let (output, summaries) = files.within(options, &program);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let budgets = summaries.iter().filter_map(|line| line["budgets"].get(0));
    let parts: Vec<u64> = budgets.map(|one| one["part_bytes"].as_u64().unwrap()).collect();
    assert_eq!(parts.len(), 2, "{summaries:?}");
    parts
}

#[test]
fn processes_divide_the_budget_unless_each_shall_have_one() {
    // The first that ends still shares with the other, which then has all of it.
    let shared = parts(&[]);
    assert!(shared.iter().any(|part| *part <= MAX * 3 / 4), "{shared:?}");
    assert!(shared.iter().all(|part| *part <= MAX), "{shared:?}");
    assert_eq!(parts(&["--per-process"]), [MAX, MAX]);
}

#[test]
fn a_child_keeps_to_the_budget_with_what_it_has_from_its_parent() {
    let files = Files::new();
    let waits = maps().with_file_name("waits");
    let program = [waits.to_str().unwrap(), "inherited", &files.data()];
    let alone = plain(&waits).args(&program[1..]).output().unwrap();
    let pagecache = ["--mode", "pagecache"];
    for options in [&[][..], &pagecache, &["--per-process"]] {
        let _ = fs::remove_file(files.path("summary"));
        let (with, summaries) = files.within(options, &program);
        same(&with, &alone);
        let adopted = |line: &Value| line["budgets"][0]["evicted"].as_u64().unwrap_or_default();
        // The child's is the first: its parent waits for it.
        assert!(adopted(&summaries[0]) > 1000, "{options:?}: {summaries:?}");
        let resident = summaries[0]["budgets"][0]["resident_bytes"].as_u64().unwrap();
        assert!(resident <= 2 * MAX, "{options:?}: {summaries:?}");
        if options == pagecache {
            continue;
        }
        if summaries[0]["inexact"].is_string() {
            eprintln!("SKIPPED in part: {}", summaries[0]["inexact"]);
            continue;
        }
        // The child has mirrors of its own, and the two have one budget together.
        assert_eq!(summaries[0]["mappings"]["userfault"], 1, "{options:?}: {summaries:?}");
        let peak = summaries[0]["budgets"][0]["peak_bytes"].as_u64().unwrap();
        assert!(peak <= MAX, "{options:?}: {summaries:?}");
    }
}

#[test]
fn the_table_of_shares_goes_with_the_last_process() {
    let files = Files::new();
    let tables = || -> Vec<_> {
        let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("lowtide-run-")).collect()
    };
    let program = [maps().to_str().unwrap(), "read", &files.data(), "100"];
    let mut child =
        run(&["--max", "8M", "--summary", &files.path("summary")], &program).spawn().unwrap();
    // The command becomes the program, so its number is in the name.
    let number = format!("-{}-", child.id());
    assert!(child.wait().unwrap().success());
    let left: Vec<_> = tables().into_iter().filter(|name| name.contains(&number)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn where_memory_has_no_room_for_the_table_no_program_ends_and_the_budget_is_shared_elsewhere() {
    let files = Files::new();
    let fill = "mount --make-rprivate / && mount -t tmpfs -o size=64K tmpfs /dev/shm || exit 99\n\
        head -c 1M /dev/zero > /dev/shm/full 2> /dev/null; exec \"$@\"";
    let (data, summary) = (files.data(), files.path("summary"));
    maps();
    for mode in ["pagecache", "auto"] {
        let mut command = plain("unshare");
        command.args(["-m", "sh", "-c", fill, "sh", env!("CARGO_BIN_EXE_lowtide"), "run"]);
        command.args(["--max", "8M", "--mode", mode, "--json", "--summary", &summary, "--"]);
        let output = command.arg(maps()).args(["read", &data, "1000"]).output().unwrap();
        if output.status.code() == Some(99) || text(&output.stderr).contains("unshare") {
            return eprintln!("SKIPPED: no other /dev/shm: {}", text(&output.stderr));
        }
        assert!(output.status.success(), "{output:?}");
        let line: Value = serde_json::from_str(&fs::read_to_string(&summary).unwrap()).unwrap();
        assert!(line["refusal"].is_null(), "{line}");
        fs::remove_file(&summary).unwrap();
    }
}
