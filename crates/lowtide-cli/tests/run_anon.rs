//! Promise: `lowtide run --anon` keeps large memory without a file within the budget, changes
//! nothing that a program does, and says what it leaves to the kernel, and why.

mod common;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::programs::{Files, MIB, maps, plain, run, same};
use common::text;
use serde_json::Value;

/// KiB that the program and the library take beside the budget of 8 MiB: their own heap, stacks,
/// the sample of accesses, the status page, and 2 MiB of tables for the window. The program
/// measures itself.
const BESIDE_KIB: usize = 8 * 1024;

fn heaps() -> PathBuf {
    maps().with_file_name("heaps")
}

/// Runs a command of the test program; `None` where memory without a file cannot be kept.
fn kept(files: &Files, options: &[&str], args: &[&str]) -> Option<(Output, Value)> {
    kept_of(&heaps(), files, options, args)
}

fn kept_of(
    program: &Path,
    files: &Files,
    options: &[&str],
    args: &[&str],
) -> Option<(Output, Value)> {
    let all = [&[program.to_str().unwrap()], args].concat();
    let _ = fs::remove_file(files.path("summary"));
    let (output, summaries) = files.within(&[&["--anon"], options].concat(), &all);
    // The first process is the last that says something.
    let summary = summaries.last().cloned().unwrap_or_default();
    if summary["anon"].is_null() {
        eprintln!("SKIPPED: {}", summary["refusal"]);
        return None;
    }
    Some((output, summary))
}

fn alone(args: &[&str]) -> Output {
    plain(heaps()).args(args).output().unwrap()
}

fn left(summary: &Value, reason: &str) -> u64 {
    let rows = summary["left_alone"].as_array().unwrap();
    rows.iter().find(|row| row["reason"] == reason).map_or(0, |row| row["count"].as_u64().unwrap())
}

#[test]
fn a_heap_of_small_allocations_is_not_kept_which_is_said_while_it_runs_and_counted() {
    let files = Files::new();
    let args = ["small", &(40 * MIB).to_string()];
    let Some((with, summary)) = kept(&files, &[], &args) else { return };
    same(&with, &alone(&args));
    let said = text(&with.stderr);
    assert_eq!(said.matches("--max does not hold").count(), 1, "{said}");
    assert!(said.contains("small allocations") && said.contains("--threshold"), "{said}");
    let outside = summary["anon"]["outside_peak_bytes"].as_u64().unwrap();
    assert!((40 * MIB as u64..80 * MIB as u64).contains(&outside), "{summary}");
    let kept = summary["anon"]["kept_peak_bytes"].as_u64().unwrap();
    assert!(kept < 4 * MIB as u64, "{summary}");
}

#[test]
fn memory_of_four_budgets_keeps_its_bytes_within_the_budget() {
    let files = Files::new();
    let (bytes, most) = ((32 * MIB).to_string(), (8 * 1024 + BESIDE_KIB).to_string());
    let Some((with, summary)) = kept(&files, &[], &["fill", &bytes, &most]) else { return };
    same(&with, &alone(&["fill", &bytes]));
    let anon = &summary["anon"];
    assert!(anon["peak_bytes"].as_u64().unwrap() <= 8 * MIB as u64, "{anon}");
    assert!(anon["refaults"].as_u64().unwrap() > 0, "{anon}");
    // All of it, though it is gone at the end.
    assert!(anon["kept_peak_bytes"].as_u64().unwrap() >= 31 * MIB as u64, "{anon}");
    assert_eq!((&anon["blocks"], &anon["swapped_bytes"]), (&0.into(), &0.into()), "{anon}");
}

#[test]
fn compressed_pages_are_counted_as_kept_and_not_as_what_the_budget_does_not_hold() {
    let (files, bytes) = (Files::new(), (256 * MIB).to_string());
    let summary = files.path("summary");
    let options = ["--anon", "--max", "64M", "--json", "--summary", &summary];
    // Tables of a larger budget are larger, too.
    let most = (64 * 1024 + 2 * BESIDE_KIB).to_string();
    let program = heaps();
    let args = [program.to_str().unwrap(), "fill", &bytes, &most];
    let output = run(&options, &args).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let summary: Value = serde_json::from_str(&fs::read_to_string(summary).unwrap()).unwrap();
    if summary["anon"].is_null() {
        eprintln!("SKIPPED: {}", summary["refusal"]);
        return;
    }
    let outside = summary["anon"]["outside_peak_bytes"].as_u64().unwrap();
    assert!(outside <= (BESIDE_KIB * 1024 + 4 * MIB) as u64, "{summary}");
}

#[test]
fn every_way_to_allocate_map_and_change_memory_does_what_it_does_without() {
    let files = Files::new();
    let path = files.path("direct");
    for args in
        [&["allocations"][..], &["parts"], &["forks"], &["threads"], &["direct", &path], &["fixed"]]
    {
        let Some((with, summary)) = kept(&files, &[], args) else { return };
        same(&with, &alone(args));
        let anon = &summary["anon"];
        assert!(anon["refaults"].as_u64().unwrap() > 0, "{args:?}: {anon}");
        assert!(anon["peak_bytes"].as_u64().unwrap() <= 8 * MIB as u64, "{args:?}: {anon}");
        assert_eq!(anon["given_back"], Value::Null, "{args:?}: {anon}");
        if args[0] == "forks" {
            assert!(anon["forks"].as_u64().unwrap() > 20, "{anon}");
        }
    }
}

#[test]
fn what_cannot_be_kept_is_the_kernels_and_named_with_the_reason() {
    let files = Files::new();
    let path = files.path("file");
    for (args, reason) in [
        (&["locked"][..], "locked"),
        (&["file", &path], "fixed_address"),
        (&["moved"], "moved"),
        (&["wiped"], "advised"),
    ] {
        let Some((with, summary)) = kept(&files, &[], args) else { return };
        same(&with, &alone(args));
        assert_eq!(summary["anon"]["given_back"], reason, "{summary}");
        assert!(left(&summary, reason) > 0, "{summary}");
        assert_eq!(left(&summary, "unavailable"), 0, "what came later is kept: {summary}");
    }
    let Some((with, summary)) = kept(&files, &[], &["kinds"]) else { return };
    same(&with, &alone(&["kinds"]));
    let reasons = ["executable", "not_readable", "special"];
    assert_eq!(reasons.map(|reason| left(&summary, reason)), [1, 1, 2], "{summary}");
}

/// What was a hang, lost bytes or another protection once: a fork beside what other threads do,
/// addresses of no page, memory that is protected, and a process that may have no more memory.
#[test]
fn corners_that_few_programs_reach_are_as_without() {
    let (files, program) = (Files::new(), maps().with_file_name("heap_corners"));
    for (command, given_back) in [
        ("callers", None),
        ("busy", Some("locked")),
        ("unaligned", None),
        ("protected", Some("moved")),
        ("narrow", None),
    ] {
        let Some((with, summary)) = kept_of(&program, &files, &[], &[command]) else { return };
        same(&with, &plain(&program).arg(command).output().unwrap());
        assert!(text(&with.stdout).lines().count() > 0, "{command}: {}", text(&with.stderr));
        assert_eq!(summary["anon"]["given_back"].as_str(), given_back, "{command}: {summary}");
    }
}

#[test]
fn what_does_not_compress_goes_to_a_file_or_ends_the_program_with_the_reason() {
    let files = Files::new();
    let bytes = (24 * MIB).to_string();
    let swap = files.path(".");
    let Some((with, summary)) = kept(&files, &["--swap", &swap], &["random", &bytes]) else {
        return;
    };
    same(&with, &alone(&["random", &bytes]));
    assert!(summary["anon"]["refaults"].as_u64().unwrap() > 0, "{summary}");
    for options in [&[][..], &["--swap", "0"], &["--swap", "1M"]] {
        let Some((with, summary)) = kept(&files, options, &["random", &bytes]) else { return };
        assert_eq!(with.status.signal(), Some(7), "{options:?}: {}", text(&with.stderr));
        assert_eq!(summary["anon"]["failure"], "out_of_budget", "{options:?}: {summary}");
        assert!(summary["anon"]["error"].as_str().unwrap().contains("budget"), "{summary}");
    }
}

#[test]
fn where_page_faults_cannot_be_served_the_program_runs_and_the_reason_is_named() {
    let files = Files::new();
    let sandboxed = maps().with_file_name("sandboxed");
    let program = [sandboxed.to_str().unwrap(), "userfaultfd", &files.data()];
    // The sandbox is the program's own. One that it starts is in it from the beginning.
    let (with, summaries) = files.within(&["--anon"], &program);
    if text(&with.stdout).contains("SKIPPED") {
        return eprintln!("{}", text(&with.stdout));
    }
    same(&with, &plain(&sandboxed).args(&program[1..]).output().unwrap());
    assert!(summaries[0]["budgets"][0]["evicted"].as_u64().unwrap() > 0, "{summaries:?}");
}

#[test]
fn files_and_memory_share_a_budget() {
    let files = Files::new();
    let script = "import mmap,sys,os\n\
        f=open(sys.argv[1],'rb')\n\
        m=mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ)\n\
        b=bytearray(16<<20)\n\
        for i in range(0,len(b),4096): b[i:i+4]=i.to_bytes(4,'little')\n\
        s=sum(m[::4096])\n\
        assert all(int.from_bytes(b[i:i+4],'little')==i for i in range(0,len(b),4096))\n\
        print(s,len(b))\n";
    let Ok(without) = plain("python3").args(["-c", script, &files.data()]).output() else {
        return eprintln!("SKIPPED: python3 is not installed");
    };
    for way in [&[][..], &["--mode", "userfault"]] {
        let _ = fs::remove_file(files.path("summary"));
        let options = [&["--anon"], way].concat();
        let (with, summaries) = files.within(&options, &["python3", "-c", script, &files.data()]);
        same(&with, &without);
        let Some(anon) = summaries.last().map(|one| &one["anon"]).filter(|one| !one.is_null())
        else {
            return eprintln!("SKIPPED: {summaries:?}");
        };
        let budget = &summaries.last().unwrap()["budgets"][0];
        assert!(budget["evicted"].as_u64().unwrap() > 0, "{budget}");
        assert!(anon["peak_bytes"].as_u64().unwrap() <= 8 * MIB as u64, "{anon}");
    }
}

#[test]
fn programs_with_large_heaps_say_the_same() {
    let files = Files::new();
    let source = files.path("x.c");
    fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"runs\"); return 0; }\n")
        .unwrap();
    let lines = files.path("lines");
    let all: String = (0..300_000_u64)
        .map(|n| format!("{:016x}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    fs::write(&lines, all).unwrap();
    let swap = files.path(".");
    let swap = swap.as_str();
    for program in [
        &["sort", "-S", "64M", "--parallel=2", &lines][..],
        &["awk", "{ a[$1] = NR } END { n = 0; for (k in a) n += a[k]; print n }", &lines],
        &["gcc", "-O2", "-S", "-o", "-", &source],
        &["git", "hash-object", &lines],
        &["python3", "-c", "import numpy as n; a = n.arange(6_000_000.); print((a * 2 + a).sum())"],
    ] {
        let without = plain(program[0]).args(&program[1..]).output();
        let Some(without) = without.ok().filter(|output| output.status.success()) else {
            eprintln!("SKIPPED: {program:?} does not work here");
            continue;
        };
        // Some of it does not compress.
        let (with, _) = files.within(&["--anon", "--swap", swap], program);
        same(&with, &without);
    }
}

#[test]
fn memory_without_a_file_has_one_way() {
    let output =
        run(&["--max", "8M", "--anon", "--mode", "pagecache"], &["true"]).output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    // One thing to do, and it is enough.
    assert!(
        message.contains("leave --mode out") && !message.contains("--mode userfault"),
        "{message}"
    );
    assert!(message.contains("--anon"), "{message}");
    let output = run(&["--max", "8M", "--anon"], &["true"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() || said.contains("is not available on this machine"), "{said}");
    let output = run(&["--max", "8M", "--anon", "--swap", "/no/such"], &["true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}
