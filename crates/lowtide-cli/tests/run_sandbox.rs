//! Promise: on a kernel that lacks a call, and in a sandbox that refuses one, `lowtide run` keeps
//! the budget in another way, or says at the start what it cannot do, and does not start the
//! program. It is never silent.
//!
//! Kernels are played by refusing what they lack, for the command and for the program that it
//! becomes (`examples/refused.rs` of lowtide-programs). The table of `docs/run-kernels.md` is
//! the one below, as it was played.

use std::fmt::{self, Display};
use std::fs;
use std::path::Path;
use std::process::Output;

use crate::common::programs::{BUDGET, Files, MIB, maps, maps_with, run, same, without};
use crate::common::text;
use serde_json::Value;

use Outcome::{Blind, Exact, Kept, Refused};

/// What becomes of a program.
#[derive(Clone, Copy)]
enum Outcome {
    /// Its file, which does not change, is kept exactly.
    Exact,
    /// It is kept, and it is seen which pages it touches.
    Kept,
    /// It is kept, and it is not seen which pages it touches.
    Blind,
    /// It is not started; the message names this.
    Refused(&'static str),
}

impl Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exact => f.write_str("exact"),
            Kept => f.write_str("kept"),
            Blind => f.write_str("kept, blind"),
            Refused(lack) => write!(f, "refused: `{lack}`"),
        }
    }
}

/// The options of each column.
const MODES: [&[&str]; 2] = [&[], &["--mode", "userfault"]];

/// Where; the calls that are refused there, with what they return; what becomes of the program in
/// each mode.
type Row = (&'static str, &'static [&'static str], [Outcome; 2]);

const SCAN: Outcome = Refused("PAGEMAP_SCAN");
const SERVED: Outcome = Refused("userfaultfd(2)");
const TRUTH: Outcome = Refused("it cannot be seen");

const ROWS: [Row; 12] = [
    ("Linux 6.7 and later, root", &[], [Exact; 2]),
    ("the same, a user or a container without `userfaultfd`", &["userfaultfd=1"], [Kept, SERVED]),
    ("Linux 6.5, 6.6", &["scan=25"], [Blind, SCAN]),
    ("Linux 5.13 to 6.4", &["scan=25", "cachestat=38"], [Blind, SCAN]),
    ("Linux 5.9 to 5.12", &["scan=25", "cachestat=38", "dontunmap=22"], [Blind, SCAN]),
    (
        "Linux before 5.9",
        &["scan=25", "cachestat=38", "dontunmap=22", "close_range=38"],
        [Blind, SCAN],
    ),
    ("gVisor", &["scan=25", "mincore=0"], [TRUTH; 2]),
    ("no `MADV_WIPEONFORK`", &["wipe=22"], [Refused("MADV_WIPEONFORK"); 2]),
    ("no `MADV_DONTFORK`", &["dontfork=1"], [Refused("MADV_DONTFORK"); 2]),
    (
        "neither `close_range` nor `unshare`",
        &["close_range=1", "unshare=1"],
        [Refused("close_range(2)"); 2],
    ),
    ("no `MREMAP_DONTUNMAP`", &["dontunmap=22"], [Kept, Refused("MREMAP_DONTUNMAP")]),
    ("no `membarrier`, no `getrandom`", &["membarrier=38", "getrandom=38"], [Exact; 2]),
];

/// `lowtide run` where these calls are refused: what came out, and the summaries.
fn refused(
    files: &Files,
    calls: &[&str],
    options: &[&str],
    program: &[&str],
) -> Option<(Output, Vec<Value>)> {
    let summary = files.path("summary");
    let _ = fs::remove_file(&summary);
    let all = [&["--max", BUDGET, "--json", "--summary", &summary], options].concat();
    let output = without(calls, &run(&all, program)).output().unwrap();
    if text(&output.stdout).contains("SKIPPED") {
        eprintln!("{}", text(&output.stdout));
        return None;
    }
    let lines = fs::read_to_string(&summary).unwrap_or_default();
    let lines = lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
    Some((output, lines.collect()))
}

/// The program is not started, and the reason is one line with these words.
fn is_not_started(output: &Output, words: &[&str]) {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    assert_eq!(error.lines().count(), 1, "{error}");
    for word in words.iter().chain(&["--force"]) {
        assert!(error.contains(word), "{word} is not in {error}");
    }
}

/// Its files were kept within a budget, and that was counted. How fast the loop is on this machine
/// is not judged here.
fn is_kept(summary: &Value, is_exact: bool) {
    let budget = &summary["budgets"][0];
    assert!(budget["evicted"].as_u64().unwrap() > 0, "{summary}");
    let peak = budget["peak_bytes"].as_u64().unwrap();
    let most = if is_exact { 8 * MIB as u64 + 1 } else { 24 * MIB as u64 };
    assert!((4 * MIB as u64..most).contains(&peak), "{summary}");
    assert_eq!(summary["mappings"]["userfault"], u64::from(is_exact), "{summary}");
}

#[test]
fn each_kernel_and_sandbox_keeps_the_budget_or_says_at_the_start_that_it_cannot() {
    let files = Files::new();
    let (maps, data) = (maps().to_str().unwrap(), files.data());
    let program = [maps, "read", &data, "8000"];
    let alone = maps_with(&program[1..]);
    for (place, calls, outcomes) in ROWS {
        for (options, outcome) in MODES.into_iter().zip(outcomes) {
            let Some((with, summaries)) = refused(&files, calls, options, &program) else { return };
            let Refused(lack) = outcome else {
                same(&with, &alone);
                assert_eq!(text(&with.stderr), "", "{place} {options:?}");
                is_kept(&summaries[0], matches!(outcome, Exact));
                // Where it is not, although the default takes it where it can, the reason is there.
                if options.is_empty() && !matches!(outcome, Exact) {
                    assert!(summaries[0]["inexact"].is_string(), "{place}: {}", summaries[0]);
                }
                continue;
            };
            is_not_started(&with, &[lack]);
            let options = [options, &["--force"]].concat();
            let Some((forced, summaries)) = refused(&files, calls, &options, &program) else {
                return;
            };
            same(&forced, &alone);
            assert!(text(&forced.stderr).contains(lack), "{}", text(&forced.stderr));
            if !matches!(outcomes[0], Refused(_)) {
                is_kept(&summaries[0], matches!(outcomes[0], Exact));
            }
        }
    }
}

#[test]
fn the_documented_table_is_the_one_that_was_played() {
    let mut table = "| where | default | `--mode userfault` |\n|---|---|---|\n".to_owned();
    for (place, _, [files, exact]) in ROWS {
        table += &format!("| {place} | {files} | {exact} |\n");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/run-kernels.md");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains(&table), "docs/run-kernels.md does not have\n{table}");
}

#[test]
fn stores_are_kept_and_counted_without_cachestat() {
    // What was stored is checked, so each has a file of its own.
    let alone = maps_with(&["stores", &Files::new().data()]);
    let files = Files::new();
    let program = [maps().to_str().unwrap(), "stores", &files.data()];
    let Some((with, summaries)) = refused(&files, &["cachestat=38"], &[], &program) else { return };
    same(&with, &alone);
    let budget = &summaries[0]["budgets"][0];
    assert!(budget["peak_bytes"].as_u64().unwrap() > 0, "{budget}");
}
