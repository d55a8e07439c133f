//! Promise: what a program reads into memory that `lowtide run --anon` keeps is there, by whatever
//! route of the C library, and whatever the kernel does with the program's pages meanwhile.

mod common;

use std::path::PathBuf;

use common::programs::{Files, maps, plain, same};
use common::text;
use serde_json::Value;

fn program() -> PathBuf {
    maps().with_file_name("pinned")
}

/// Runs a command of the test program, alone and within a budget; the summary of the latter.
fn kept(files: &Files, args: &[&str]) -> Option<Value> {
    let program = program();
    let all = [&[program.to_str().unwrap()], args].concat();
    let without = plain(&program).args(args).output().unwrap();
    if text(&without.stdout).contains("SKIPPED") {
        eprintln!("{}", text(&without.stdout));
        return None;
    }
    let (with, summaries) = files.within(&["--anon"], &all);
    same(&with, &without);
    assert!(!text(&with.stdout).contains("is not what"), "{}", text(&with.stdout));
    let summary = summaries.last().cloned().unwrap_or_default();
    if summary["anon"].is_null() {
        eprintln!("SKIPPED: {}", summary["refusal"]);
        return None;
    }
    Some(summary)
}

/// Nothing was given back, and memory came and went meanwhile.
fn stayed(summary: &Value) {
    let anon = &summary["anon"];
    assert_eq!(anon["given_back"], Value::Null, "{anon}");
    assert!(anon["refaults"].as_u64().unwrap() > 0, "{anon}");
}

#[test]
fn what_a_file_server_answers_late_is_there() {
    let files = Files::new();
    let dir = files.path("mounted");
    std::fs::create_dir(&dir).unwrap();
    if let Some(summary) = kept(&files, &["server", &dir]) {
        stayed(&summary);
    }
}

#[test]
fn what_a_device_stores_past_the_page_tables_is_there() {
    let files = Files::new();
    let path = files.path("direct");
    if let Some(summary) = kept(&files, &["direct", &path]) {
        stayed(&summary);
    }
}

#[test]
fn what_a_cipher_of_the_kernel_decrypts_in_place_is_there() {
    kept(&Files::new(), &["cipher"]);
}

#[test]
fn memory_of_asynchronous_reads_is_the_kernels_if_a_device_may_store_to_it() {
    let files = Files::new();
    let path = files.path("direct");
    if let Some(summary) = kept(&files, &["asynchronous", &path]) {
        assert_eq!(summary["anon"]["given_back"], "pinned", "{summary}");
    }
}

/// With two arguments of 1 nothing is made, and a kernel that has the call says `EFAULT`.
const RINGS: &str = "import ctypes\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    for call in (425, 206 if __import__('platform').machine() == 'x86_64' else 0):\n\
    \x20   libc.syscall(call, 1, 1)\n\
    \x20   print(__import__('errno').errorcode[ctypes.get_errno()])\n";

#[test]
fn rings_are_refused_unless_they_are_allowed() {
    let files = Files::new();
    let python = ["python3", "-c", RINGS];
    let Ok(without) = plain("python3").args(["-c", RINGS]).output() else {
        return eprintln!("SKIPPED: python3 is not installed");
    };
    let (with, summaries) = files.within(&["--anon", "--swap", &files.path(".")], &python);
    assert_eq!(text(&with.stdout), "ENOSYS\nENOSYS\n", "{}", text(&with.stderr));
    assert!(!summaries.is_empty());
    let (with, _) = files.within(&["--anon", "--allow-io-uring"], &python);
    same(&with, &without);
    let (with, _) = files.within(&[], &python);
    same(&with, &without);
}
