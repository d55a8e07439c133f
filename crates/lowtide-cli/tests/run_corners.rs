//! Promise: whatever becomes of a program under `lowtide run`, and of its files and their device,
//! is what would have become of it alone, in both ways: it ends as it would have, reads no wrong
//! byte, and leaves nothing behind. What a way needs and a machine does not have is named.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::programs::{BUDGET, FILE, Files, MIB, maps, maps_with, plain, run, same};
use crate::common::text;
use serde_json::Value;

/// The options of each way.
const WAYS: [&[&str]; 2] = [&["--mode", "pagecache"], USERFAULT];
const USERFAULT: &[&str] = &["--mode", "userfault"];
/// Of every processor that lowtide runs on.
const SIGBUS: i32 = 7;
/// What a file takes of a budget of 8 MiB in each way, and what it may exceed that by in moments.
const MOST: [u64; 2] = [10 * MIB as u64, 8 * MIB as u64];

/// Whether this machine gives the way. A run that says otherwise shows it.
fn is_available(files: &Files, way: &[&str]) -> bool {
    let program = [maps().to_str().unwrap(), "read", &files.data(), "100"];
    let (_, summaries) = files.within(way, &program);
    fs::remove_file(files.path("summary")).unwrap();
    let first = &summaries[0];
    let available = way != USERFAULT || first["mappings"]["userfault"] == 1;
    if !available {
        eprintln!("SKIPPED: {way:?}: {}", first["pagecache_because"]);
    }
    available
}

/// The ways that this machine gives.
fn ways(files: &Files) -> impl Iterator<Item = (&'static [&'static str], u64)> {
    let available = WAYS.map(|way| is_available(files, way));
    WAYS.into_iter().zip(MOST).zip(available).filter_map(|(way, there)| there.then_some(way))
}

/// No process has a file of the folder open or mapped, and there are only these files in it.
fn nothing_is_left(files: &Files, expected: &[&str]) {
    let data = files.data();
    let folder = Path::new(&data).parent().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "summary")
        .collect();
    names.sort_unstable();
    assert_eq!(names, expected);
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let name = process.file_name();
        if !name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            continue;
        }
        let maps = fs::read_to_string(process.path().join("maps")).unwrap_or_default();
        assert!(!maps.contains(folder.to_str().unwrap()), "process {name:?} has a mapping");
        for open in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let target = fs::read_link(open.path()).unwrap_or_default();
            assert!(!target.starts_with(folder), "process {name:?} has {target:?} open");
        }
    }
}

fn make(files: &Files) {
    assert!(maps_with(&["make", &files.data(), &FILE.to_string()]).status.success());
}

#[test]
fn a_program_that_dies_or_becomes_another_keeps_its_status_and_leaves_nothing_behind() {
    let files = Files::new();
    let maps = maps().to_str().unwrap();
    for (way, _) in ways(&files) {
        for (command, signal) in [("abort", 6), ("kill", 9)] {
            let (output, summaries) = files.within(way, &[maps, command, &files.data()]);
            assert_eq!(output.status.signal(), Some(signal), "{}", text(&output.stderr));
            assert!(summaries.is_empty(), "a process that is ended says nothing: {summaries:?}");
            nothing_is_left(&files, &["data"]);
        }
        let program = [maps, "exec", &files.data(), "sh", "-c", "exit 7"];
        let (output, _) = files.within(way, &program);
        assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
        // What it becomes is served, too.
        let program = [maps, "exec", &files.data(), maps, "read", &files.data(), "5000"];
        let _ = fs::remove_file(files.path("summary"));
        let (output, summaries) = files.within(way, &program);
        same(&output, &maps_with(&["read", &files.data(), "5000"]));
        assert_eq!(summaries[0]["budgets"][0]["mappings"], 1, "{summaries:?}");
        let (output, _) = files.within(way, &["sh", "-c", "kill -TERM $$"]);
        assert_eq!(output.status.signal(), Some(15));
        nothing_is_left(&files, &["data"]);
        let _ = fs::remove_file(files.path("summary"));
    }
}

#[test]
fn a_daemon_goes_on_in_the_background_with_a_budget_of_its_own() {
    let files = Files::new();
    let (alone, within) = (files.path("alone"), files.path("within"));
    let maps_path = maps().to_str().unwrap();
    let begin = Instant::now();
    let wait_for = |what: &str, is_there: &dyn Fn() -> bool| {
        while !is_there() {
            assert!(begin.elapsed().as_secs() < 240, "{what} does not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    for (way, most) in ways(&files) {
        let (with, _) = files.within(way, &[maps_path, "daemon", &files.data(), &within]);
        wait_for("what the daemon read", &|| Path::new(&within).exists());
        // One summary of the process that was started, one of the daemon.
        let lines = || fs::read_to_string(files.path("summary")).unwrap();
        wait_for("the daemon's summary", &|| lines().lines().count() == 2);
        for line in lines().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let budget = &line["budgets"][0];
            assert!(budget["evicted"].as_u64().unwrap() > 0, "{line}");
            assert!(budget["resident_bytes"].as_u64().unwrap() <= most, "{line}");
            // What it inherits is kept as what it maps.
            let other = if way == USERFAULT { "pagecache" } else { "userfault" };
            assert_eq!(line["mappings"][other], 0, "{line}");
        }
        same(&with, &maps_with(&["daemon", &files.data(), &alone]));
        wait_for("what the daemon reads alone", &|| Path::new(&alone).exists());
        let [within, alone] = [&within, &alone].map(|path| {
            let read = fs::read_to_string(path).unwrap();
            fs::remove_file(path).unwrap();
            read
        });
        assert_eq!(within, alone);
        wait_for("the end of the daemon", &|| {
            std::panic::catch_unwind(|| nothing_is_left(&files, &["data"])).is_ok()
        });
        fs::remove_file(files.path("summary")).unwrap();
    }
}

#[test]
fn children_that_map_files_begin_anew_while_threads_of_the_program_fault() {
    let files = Files::new();
    for (way, _) in ways(&files) {
        let program = [maps().to_str().unwrap(), "children", &files.data()];
        let (with, _) = files.within(way, &program);
        same(&with, &maps_with(&["children", &files.data()]));
        nothing_is_left(&files, &["data"]);
    }
}

#[test]
fn a_file_that_shrinks_under_its_mapping_is_sigbus_as_without() {
    let files = Files::new();
    for (way, _) in ways(&files) {
        for command in ["shrink", "cut"] {
            make(&files);
            let program = [maps().to_str().unwrap(), command, &files.data()];
            let _ = fs::remove_file(files.path("summary"));
            let (with, summaries) = files.within(way, &program);
            let last = summaries.last().unwrap();
            assert!(last["budgets"][0]["evicted"].as_u64().unwrap() > 0, "{last}");
            if command == "cut" {
                let mirrors = if way != USERFAULT { 0 } else { 2 };
                assert_eq!(last["mappings"]["userfault"], mirrors, "{last}");
            }
            make(&files);
            same(&with, &maps_with(&[command, &files.data()]));
        }
        nothing_is_left(&files, &["data"]);
    }
}

#[test]
fn more_mappings_than_there_are_descriptors_for_are_kept_in_part_and_the_shortage_is_named() {
    let files = Files::new();
    let summary = files.path("summary");
    for (way, _) in ways(&files) {
        let mut command = plain("sh");
        command.args(["-c", "ulimit -n 48; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_lowtide")]);
        command.args(["run", "--max", BUDGET, "--json", "--summary", &summary]).args(way);
        command.arg("--").arg(maps()).args(["hoard", &files.data()]);
        let output = command.output().unwrap();
        same(&output, &maps_with(&["hoard", &files.data()]));
        let line: Value = serde_json::from_str(&fs::read_to_string(&summary).unwrap()).unwrap();
        fs::remove_file(&summary).unwrap();
        let count = |rows: &Value, reasons: &[&str]| -> u64 {
            let rows = rows.as_array().unwrap().iter();
            let of = rows.filter(|row| reasons.contains(&row["reason"].as_str().unwrap()));
            of.map(|row| row["count"].as_u64().unwrap()).sum()
        };
        let left = count(&line["left_alone"], &["resources", "not_opened", "refused"]);
        assert!(left > 0, "48 descriptors are not enough: {line}");
        assert_eq!(count(&line["pagecache_because"], &["unavailable"]), 0, "{line}");
        if way == USERFAULT {
            assert!(line["mappings"]["userfault"].as_u64().unwrap() > 0, "{line}");
        }
    }
}

/// A command that begins with a private mount of a small device with the file on it, of which only
/// the beginning is left, and then runs a program. `$FILE` is the file's name.
fn on_a_broken_device(files: &Files, program: &[&str]) -> Command {
    let script = "set -e; cd \"$1\"; shift; mount --make-rprivate /; mkdir -p mounted\n\
        truncate -s 48M image; mkfs.ext4 -q -F -b 4096 -O ^has_journal image\n\
        mount -o loop image mounted; cp data mounted/data; sync mounted/data\n\
        dd if=mounted/data iflag=nocache count=0 status=none; truncate -s 12M image\n\
        set +e; \"$@\"; code=$?; umount -l mounted; rm image; rmdir mounted; exit $code";
    let data = files.data();
    let folder = Path::new(&data).parent().unwrap();
    let mut command = plain("unshare");
    command.args(["-m", "bash", "-c", script, "bash"]).arg(folder).args(program);
    command
}

#[test]
fn pages_that_the_device_cannot_read_are_sigbus_as_without_and_the_message_has_the_reason() {
    let files = Files::new();
    let (maps, command) = (maps().to_str().unwrap(), env!("CARGO_BIN_EXE_lowtide"));
    let broken = [maps, "broken", "mounted/data"];
    let whole = |options: &[&'static str], program: &[&str]| -> Output {
        let start = [&[command, "run", "--max", BUDGET], options, &["--"], program].concat();
        on_a_broken_device(&files, &start).output().unwrap()
    };
    let alone = on_a_broken_device(&files, &broken).output().unwrap();
    if !alone.status.success() {
        eprintln!("SKIPPED: no device can be broken here: {}", text(&alone.stderr));
        return;
    }
    assert!(text(&alone.stdout).contains("pages cannot be read in round 1"), "{alone:?}");
    for (way, _) in ways(&files) {
        let with = whole(&[way, &["--json"]].concat(), &broken);
        same(&with, &alone);
        let said = text(&with.stderr);
        let line = said.lines().find(|line| line.starts_with('{')).expect("a summary");
        let line: Value = serde_json::from_str(line).unwrap();
        let with = whole(way, &[&broken[..], &["touch"]].concat());
        // The shell gives the signal as its code.
        assert_eq!(with.status.code(), Some(128 + SIGBUS), "{}", text(&with.stderr));
        assert_eq!(text(&with.stdout), text(&alone.stdout));
        if way == USERFAULT {
            assert_eq!(line["mappings"]["userfault"], 1, "{line}");
            let error = line["error"].as_str().expect("the reason");
            assert!(error.contains("os error 5") && error.contains("data"), "{error}");
            let said = text(&with.stderr);
            let message = said.lines().find(|line| line.contains("SIGBUS")).expect("a message");
            assert!(message.contains("os error 5") && message.contains("data"), "{message}");
        }
        nothing_is_left(&files, &["data"]);
    }
}

#[test]
fn without_proc_the_program_works_and_its_mapping_is_kept_by_what_is_cached() {
    let files = Files::new();
    let hidden = "mount -t tmpfs none /proc && exec \"$@\"";
    let summary = files.path("summary");
    for way in WAYS {
        make(&files);
        let mut command = plain("unshare");
        command.args(["-m", "sh", "-c", hidden, "sh", env!("CARGO_BIN_EXE_lowtide"), "run"]);
        // `userfault` mode is refused otherwise. The library is found beside the command.
        command.args(["--max", BUDGET, "--json", "--summary", &summary, "--force"]).args(way);
        command.arg("--").arg(maps()).args(["parts", &files.data()]);
        let Ok(output) = command.output() else {
            return eprintln!("SKIPPED: /proc cannot be hidden without `unshare`");
        };
        if text(&output.stderr).contains("unshare") || text(&output.stderr).contains("mount:") {
            eprintln!("SKIPPED: /proc cannot be hidden here: {}", text(&output.stderr));
            return;
        }
        make(&files);
        same(&output, &maps_with(&["parts", &files.data()]));
        let line: Value = serde_json::from_str(&fs::read_to_string(&summary).unwrap()).unwrap();
        assert!(line["budgets"][0]["evicted"].as_u64().unwrap() > 0, "{line}");
        assert_eq!(line["read_ahead_pages"], 0, "{line}");
        assert_eq!(line["program"], "maps", "{line}");
        assert!(line["device_read_bytes"].as_u64().unwrap() > 0, "{line}");
        if way == USERFAULT {
            assert_eq!(line["mappings"]["userfault"], 0, "{line}");
            let because = line["pagecache_because"].to_string();
            assert!(because.contains("no_lease") || because.contains("unavailable"), "{line}");
        }
        fs::remove_file(&summary).unwrap();
    }
}

#[test]
fn a_program_that_gives_rights_up_has_none_left_in_any_thread_and_is_told_so() {
    let files = Files::new();
    make(&files);
    // It may change its user, who must find its file.
    let folder = Path::new(&files.data()).parent().unwrap().to_owned();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let command = ["rights", &files.data()];
    let alone = maps_with(&command);
    for (way, _) in ways(&files) {
        let program = [&[maps().to_str().unwrap()], &command[..]].concat();
        let (output, summaries) = files.within(way, &program);
        same(&output, &alone);
        let left = summaries[0]["left_alone"].as_array().unwrap();
        assert!(left.iter().any(|kind| kind["reason"] == "rights"), "{summaries:?}");
        fs::remove_file(files.path("summary")).unwrap();
    }
}

#[test]
fn a_program_without_a_mapping_leaves_nothing_behind_either() {
    let files = Files::new();
    for way in WAYS {
        let options = [&["--max", BUDGET], way].concat();
        let output = run(&options, &["true"]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        nothing_is_left(&files, &["data"]);
    }
}
