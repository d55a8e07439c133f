//! Promise: under `lowtide run --anon` a program may use a part of its memory in a way in which the
//! kernel cannot wait for pages. It gets that part, finds everything as without lowtide, and the
//! budget holds for the rest, or the program hears that it does not.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use common::programs::{Files, MIB, maps, plain, same};
use common::text;
use lowtide_host::memcg::Memcg;
use serde_json::Value;

/// KiB that a program may have beside what is lent to it, with a budget of 8 MiB.
const MOST: u64 = 8 * 1024 + 9 * 1024;

fn program() -> PathBuf {
    maps().with_file_name("heap_lent")
}

/// Runs a command; `None` where memory without a file cannot be kept.
fn within(files: &Files, options: &[&str], args: &[&str]) -> Option<(Output, Value)> {
    let program = program();
    let all = [&[program.to_str().unwrap()], args].concat();
    let _ = fs::remove_file(files.path("summary"));
    let (output, summaries) = files.within(&[&["--anon"], options].concat(), &all);
    let summary = summaries.last().cloned().unwrap_or_default();
    if output.status.success() && summary["anon"].is_null() {
        eprintln!("SKIPPED: {}", summary["refusal"]);
        return None;
    }
    Some((output, summary))
}

fn alone(args: &[&str]) -> Output {
    plain(program()).args(args).output().unwrap()
}

/// A command does what it does alone, with some KiB beside the budget, and lends for a reason.
fn is_kept(command: &str, lent_kib: u64, reason: Option<&str>) {
    let files = Files::new();
    let most = (MOST + lent_kib).to_string();
    let Some((with, summary)) = within(&files, &[], &[command, &most]) else { return };
    same(&with, &alone(&[command]));
    let anon = &summary["anon"];
    assert!(anon["peak_bytes"].as_u64().unwrap() <= 8 * MIB as u64, "{command}: {anon}");
    assert_eq!(anon["given_back"].as_str(), reason, "{command}: {anon}");
    let said = text(&with.stderr).matches("--max does not hold for some memory").count();
    assert_eq!(said, usize::from(reason.is_some()), "{command}: {}", text(&with.stderr));
    assert_eq!(anon["failure"], Value::Null, "{command}: {anon}");
}

#[test]
fn a_part_of_a_mapping_that_grows_does_not_take_what_lies_past_its_end() {
    is_kept("part", 0, None);
}

#[test]
fn hints_change_nothing_and_a_guard_takes_one_block_out_of_the_budget() {
    is_kept("advice", 0, Some("advised"));
}

#[test]
fn threads_end_on_stacks_of_the_programs_own_which_are_kept_again_when_they_are_gone() {
    is_kept("stacks", 2 * 1024, Some("stack"));
}

#[test]
fn threads_that_free_and_allocate_keep_what_is_theirs() {
    is_kept("blocks", 0, None);
}

#[test]
fn a_mutex_that_inherits_priority_works_beside_forks() {
    is_kept("mutex", 4 * 1024, Some("mutex"));
}

#[test]
fn operations_of_futex_wait_for_pages_that_have_left() {
    is_kept("futex", 0, None);
}

#[test]
fn old_addresses_that_stay_a_mapping_are_the_programs() {
    is_kept("doubled", 0, Some("moved"));
}

#[test]
fn whatever_reads_all_memory_changes_no_byte_and_makes_none() {
    is_kept("read", 0, None);
}

#[test]
fn a_program_that_limits_its_addresses_has_as_many_as_without() {
    let files = Files::new();
    let Some((with, _)) = within(&files, &[], &["limit"]) else { return };
    same(&with, &alone(&["limit"]));
    assert!(text(&with.stderr).contains("no addresses left"), "{}", text(&with.stderr));
}

#[test]
fn a_program_that_serves_page_faults_itself_gets_all_of_its_memory() {
    let files = Files::new();
    let Some((with, summary)) = within(&files, &[], &["userfaultfd"]) else { return };
    same(&with, &alone(&["userfaultfd"]));
    assert_eq!(summary["anon"]["given_back"], "userfaultfd", "{summary}");
}

#[test]
fn a_program_that_has_confined_itself_has_children() {
    let files = Files::new();
    let folder = files.path(".");
    let Some((with, _)) = within(&files, &[], &["chroot", &folder]) else { return };
    same(&with, &alone(&["chroot", &folder]));
}

#[test]
fn a_fork_without_room_in_the_memory_cgroup_fails_and_nobody_is_killed() {
    let files = Files::new();
    let group = match Memcg::create("lowtide-test-fork", 96 << 20) {
        Ok(group) => group,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let summary = files.path("summary");
    let program = program();
    let mut child = plain("sh")
        .args(["-c", "read line; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_lowtide"), "run"])
        .args(["--max", "32M", "--json", "--summary", &summary, "--anon", "--"])
        .args([program.to_str().unwrap(), "room"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    group.add(child.id()).unwrap();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let summary = fs::read_to_string(summary).unwrap_or_default();
    if output.status.success() && !summary.contains("\"anon\":{") {
        return eprintln!("SKIPPED: {summary}");
    }
    assert_eq!(text(&output.stdout), "refused\n", "{:?}: {}", output.status, text(&output.stderr));
}

#[test]
fn a_core_dump_has_the_blocks_and_not_the_addresses_without_any() {
    let files = Files::new();
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.starts_with(['|', '/']) {
        return eprintln!("SKIPPED: cores go to {pattern}");
    }
    let folder = files.path("cores");
    fs::create_dir(&folder).unwrap();
    let (with, _) = within(&files, &[], &["core", &folder]).unwrap();
    assert_eq!(with.status.signal(), Some(6), "{}", text(&with.stderr));
    let Some(core) = fs::read_dir(&folder).unwrap().next() else {
        return eprintln!("SKIPPED: this machine makes no cores");
    };
    let core = core.unwrap();
    let metadata = core.metadata().unwrap();
    assert!(metadata.len() < 128 * MIB as u64, "{} bytes", metadata.len());
    assert!(metadata.blocks() * 512 > 4 * MIB as u64, "{} blocks", metadata.blocks());
    // The words of the block's pages are in it.
    let bytes = fs::read(core.path()).unwrap();
    let page =
        |page: u64| ((page * 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x00c0_ffee).to_le_bytes();
    let has = |wanted: &[u8; 8]| bytes.chunks_exact(8).any(|word| word == wanted);
    assert!((1..1024).step_by(100).all(|number| has(&page(number))), "a page is missing");
}
