//! Promise: a program under `lowtide run` waits for nothing that it would not have waited for
//! alone: it ends when it would have ended, and so do others that wait for what it gives up. At
//! every instruction it may fork, open a library, end a thread, or run a handler of a signal.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::programs::{BUDGET, Files, maps, plain, run, same};
use crate::common::text;

/// A program that has not ended by then waits forever: alone each takes a second or so.
const PATIENCE: Duration = Duration::from_secs(90);

/// The options of each mode.
const MODES: [&[&str]; 2] = [&["--mode", "pagecache"], &["--mode", "userfault"]];

/// The program of these tests, `examples/waits.rs` of lowtide-programs.
fn waits() -> String {
    maps().with_file_name("waits").to_str().unwrap().to_owned()
}

/// The library that does something while it is opened.
fn constructor() -> String {
    maps().with_file_name("libconstructor.so").to_str().unwrap().to_owned()
}

/// What came out of a command, which has to end.
fn ends(command: &mut Command) -> Output {
    let shown = format!("{command:?}");
    // Its children end with it: they have the pipes, too.
    command.process_group(0);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = rustix::process::Pid::from_child(&child);
    let (done, is_done) = mpsc::channel();
    let waits = thread::spawn(move || {
        let output = child.wait_with_output().unwrap();
        let _ = done.send(());
        output
    });
    let in_time = is_done.recv_timeout(PATIENCE).is_ok();
    if !in_time {
        // Its number is its own until this process waits for it.
        let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
    }
    let output = waits.join().unwrap();
    assert!(in_time, "it waits forever: {shown}\n{}", text(&output.stderr));
    output
}

fn alone(args: &[&str]) -> Output {
    ends(plain(waits()).args(args))
}

/// The program under `lowtide run`, with a budget and these options.
fn under(files: &Files, options: &[&str], args: &[&str]) -> Command {
    let waits = waits();
    let program = [&[waits.as_str()], args].concat();
    let summary = files.path("summary");
    run(&[&["--max", BUDGET, "--summary", &summary], options].concat(), &program)
}

/// What comes out of it.
fn within(files: &Files, options: &[&str], args: &[&str]) -> Output {
    ends(&mut under(files, options, args))
}

/// Runs a command alone and in each mode.
fn in_each_mode(files: &Files, args: &[&str]) {
    let alone = alone(args);
    for mode in MODES {
        same(&within(files, mode, args), &alone);
    }
}

#[test]
fn a_handler_may_exit_or_jump_while_its_thread_maps_and_unmaps() {
    let files = Files::new();
    for _ in 0..3 {
        in_each_mode(&files, &["exit-in-handler", &files.data()]);
    }
    in_each_mode(&files, &["jumps", &files.data()]);
}

#[test]
fn a_collector_may_map_while_threads_stand_still_in_handlers() {
    let files = Files::new();
    in_each_mode(&files, &["stop-the-world", &files.data()]);
}

#[test]
fn a_child_with_the_memory_of_its_parent_may_be_killed_at_any_time() {
    let files = Files::new();
    in_each_mode(&files, &["killed-child", &files.data()]);
}

#[test]
fn a_child_that_is_forked_during_the_first_mapping_maps_files_itself() {
    let files = Files::new();
    for delay in (0..16).map(|step| (step * 400).to_string()) {
        let args = ["first-map", &files.data(), &delay];
        let alone = alone(&args);
        for mode in MODES {
            same(&within(&files, mode, &args), &alone);
        }
    }
}

#[test]
fn a_child_of_a_raw_clone_maps_files_whatever_lock_another_thread_had() {
    let files = Files::new();
    in_each_mode(&files, &["raw-children", &files.data()]);
}

#[test]
fn a_library_may_map_its_first_file_while_it_is_opened() {
    let files = Files::new();
    for command in ["open", "open-in-child"] {
        let args = [command, "-", &constructor()];
        let alone = ends(plain(waits()).args(args).env("CONSTRUCTOR_FILE", files.data()));
        for mode in MODES {
            let mut command = under(&files, mode, &args);
            same(&ends(command.env("CONSTRUCTOR_FILE", files.data())), &alone);
        }
    }
}

#[test]
fn another_thread_may_map_the_first_file_while_a_library_is_opened_and_maps_one() {
    let files = Files::new();
    let args = ["open-beside", &files.data(), &constructor()];
    let with_file = |command: &mut Command| {
        ends(command.env("CONSTRUCTOR_FILE", files.data()).env("CONSTRUCTOR_PAUSES", "1"))
    };
    let alone = with_file(plain(waits()).args(args));
    for mode in MODES {
        same(&with_file(&mut under(&files, mode, &args)), &alone);
    }
}

#[test]
fn a_process_ends_with_its_last_thread_as_it_would_alone() {
    let files = Files::new();
    for command in ["last-thread", "last-limited", "cancelled", "bare-end"] {
        in_each_mode(&files, &[command, &files.data()]);
    }
}

#[test]
fn what_a_program_closes_is_closed_for_those_who_read_the_other_end() {
    let files = Files::new();
    let go = files.path("go");
    for mode in MODES {
        let waits = waits();
        let args = [waits.as_str(), "quiet", &files.data(), &go];
        let mut command = run(&[&["--max", BUDGET], mode].concat(), &args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let [out, error]: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        let (done, is_done) = mpsc::channel();
        let reader = thread::spawn(move || {
            let ends = [out, error].map(|mut end| end.read_to_end(&mut Vec::new()).is_ok());
            let _ = done.send(());
            ends
        });
        let in_time = is_done.recv_timeout(PATIENCE).is_ok();
        // It lives until now.
        assert!(child.try_wait().unwrap().is_none(), "{mode:?}");
        fs::write(&go, "").unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(reader.join().unwrap(), [true, true]);
        assert!(in_time, "{mode:?}: the pipe was open as long as the process lived");
        fs::remove_file(&go).unwrap();
    }
}

#[test]
fn the_lock_of_a_file_ends_with_the_programs_descriptor_and_mapping() {
    let files = Files::new();
    let shown = |output: Output| {
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let args = ["lock", &files.path("locked")];
    let make = || {
        let _ = fs::remove_file(files.path("locked"));
        fs::copy(files.data(), files.path("locked")).unwrap();
    };
    make();
    let alone = shown(alone(&args));
    assert!(alone.contains("afterwards: true"), "{alone}");
    for mode in MODES {
        make();
        assert_eq!(shown(within(&files, mode, &args)), alone, "{mode:?}");
    }
}

#[test]
fn a_file_system_can_be_unmounted_soon_after_its_files_are_unmapped() {
    let files = Files::new();
    let script = "set -e; cd \"$1\"; shift; mount --make-rprivate /; mkdir -p mounted\n\
        truncate -s 16M image; mkfs.ext4 -q -F image; mount -o loop image mounted\n\
        head -c 4M data > mounted/data; set +e; \"$@\"; code=$?\n\
        umount -l mounted 2> /dev/null; rm image; exit $code";
    let data = files.data();
    let folder = std::path::Path::new(&data).parent().unwrap();
    let mounted = |program: &[&str]| {
        let mut command = plain("unshare");
        command.args(["-m", "bash", "-c", script, "bash"]).arg(folder).args(program);
        ends(&mut command)
    };
    let waits = waits();
    let program = [waits.as_str(), "umount", "mounted/data", "mounted"];
    let alone = mounted(&program);
    if !alone.status.success() {
        eprintln!("SKIPPED: nothing can be mounted here: {}", text(&alone.stderr));
        return;
    }
    for mode in MODES {
        let start = [env!("CARGO_BIN_EXE_lowtide"), "run", "--max", BUDGET];
        same(&mounted(&[&start, mode, &["--"], &program].concat()), &alone);
    }
}

#[test]
fn a_panic_of_our_thread_is_reported_with_its_stack_and_the_program_goes_on() {
    let files = Files::new();
    let args = ["panic", &files.data()];
    let alone = alone(&args);
    if !alone.status.success() {
        eprintln!("SKIPPED: this kernel takes no filter");
        return;
    }
    for mode in MODES {
        let waits = waits();
        let program = [&[waits.as_str()], &args[..]].concat();
        let mut command = run(&[&["--max", BUDGET], mode].concat(), &program);
        let with = ends(command.env("RUST_BACKTRACE", "1"));
        same(&with, &alone);
        let said = text(&with.stderr);
        assert!(said.contains("panicked at") && said.contains("lowtide-run"), "{said}");
    }
}

#[test]
fn a_traced_program_is_served_without_pages_that_its_tracer_would_wait_for() {
    if plain("strace").arg("-V").output().is_err() {
        eprintln!("SKIPPED: strace is not installed");
        return;
    }
    let files = Files::new();
    let args = ["write", &files.data()];
    maps();
    let mut command = plain("strace");
    command.args(["-f", "-o", "/dev/null", env!("CARGO_BIN_EXE_lowtide"), "run"]);
    command.args(["--max", BUDGET, "--mode", "userfault", "--"]).arg(waits()).args(args);
    let with = ends(&mut command);
    same(&with, &alone(&args));
    let said = text(&with.stderr);
    assert_eq!(said.matches("would wait forever").count(), 1, "{said}");
}
