//! Promise: `lowtide run` changes nothing that a program does, keeps what it maps of files within
//! the budget, and says before the start if it cannot.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::common::programs::{BUDGET, FILE, Files, MIB, maps, maps_with, plain, run, same};
use crate::common::text;
use serde_json::Value;

#[test]
fn a_program_does_the_same_with_every_kind_of_mapping_within_a_quarter_of_its_data() {
    let commands =
        [("parts", 3), ("copies", 1), ("forks", 1), ("locks", 4), ("threads", 192), ("stores", 2)];
    for way in [&[][..], &["--mode", "pagecache"]] {
        each_command(way, &commands);
    }
}

/// Each command, and how many mappings it makes, alone and within the budget. The last may change
/// the file.
fn each_command(way: &[&str], commands: &[(&str, u64)]) {
    let files = Files::new();
    let data = files.data();
    for &(command, mappings) in commands {
        let program = [maps().to_str().unwrap(), command, &data];
        let (with, summaries) = files.within(way, &program);
        let first = &summaries.last().unwrap()["budgets"][0];
        assert_eq!(first["mappings"], mappings, "{command}: {first}");
        assert!(first["evicted"].as_u64().unwrap() > 0, "{command}: {first}");
        if command == "stores" {
            assert!(maps_with(&["make", &data, &FILE.to_string()]).status.success());
        }
        same(&with, &maps_with(&[command, &data]));
    }
}

#[test]
fn what_is_cached_of_a_file_falls_to_the_budget_again_and_again() {
    let files = Files::new();
    // The program goes on only while the file takes at most the budget and an eighth.
    let most = (9 * MIB).to_string();
    let program = [maps().to_str().unwrap(), "read", &files.data(), "40000", &most];
    let (with, summaries) = files.within(&["--mode", "pagecache"], &program);
    same(&with, &maps_with(&["read", &files.data(), "40000"]));
    let budget = &summaries[0]["budgets"][0];
    assert_eq!(budget["max_bytes"], 8 * MIB);
    assert!(budget["resident_bytes"].as_u64().unwrap() <= 9 * MIB as u64, "{budget}");
    assert!(budget["refaults"].as_u64().unwrap() > 1000, "{budget}");
}

#[test]
fn a_budget_that_sets_itself_is_between_its_bounds_in_each_way() {
    let files = Files::new();
    let (data, summary) = (files.data(), files.path("summary"));
    let program = [maps().to_str().unwrap(), "read", &data, "40000"];
    for mode in ["auto", "pagecache"] {
        let bounds = ["--max", "auto", "--at-least", "1M", "--at-most", "8M", "--stall", "2"];
        let output = ["--mode", mode, "--json", "--summary", &summary];
        let with = run(&[&bounds[..], &output[..]].concat(), &program).output().unwrap();
        same(&with, &maps_with(&["read", &data, "40000"]));
        let text = fs::read_to_string(&summary).unwrap();
        let all: Value = serde_json::from_str(&text).expect("a line of JSON");
        assert_eq!(all["max_bytes"], 8 * MIB);
        let auto = &all["budgets"][0]["auto"];
        assert_eq!(auto["least_bytes"], MIB, "it begins with little: {all}");
        for size in ["limit_bytes", "mean_bytes", "most_bytes"] {
            let bytes = auto[size].as_u64().unwrap();
            assert!((MIB as u64..=8 * MIB as u64).contains(&bytes), "{size}: {all}");
        }
    }
}

#[test]
fn without_a_limit_the_budget_sets_itself_and_says_what_its_upper_bound_is() {
    let files = Files::new();
    let data = files.data();
    let program = [maps().to_str().unwrap(), "read", &data, "2000"];
    for options in [&[][..], &["--max", "auto"], &["--advise"]] {
        let with = run(options, &program).output().unwrap();
        same(&with, &maps_with(&["read", &data, "2000"]));
        let said = text(&with.stderr);
        assert!(said.contains("(7/8 of ") && said.contains("it set itself: "), "{said}");
        assert!(said.contains("16.0 MiB at least"), "{said}");
    }
    let given = run(&["--at-most", "8M"], &program).output().unwrap();
    let said = text(&given.stderr);
    assert!(said.contains("budget: 8.0 MiB, 1 mapping"), "{said}");
}

#[test]
fn a_glob_has_a_budget_of_its_own_and_other_files_are_left_alone_below_the_threshold() {
    let files = Files::new();
    let small = files.path("small.idx");
    let other = files.path("small.dat");
    for path in [&small, &other] {
        assert!(maps_with(&["make", path, "65536"]).status.success());
    }
    let script = "for f; do \"$0\" read \"$f\" 100 || exit 1; done";
    let program = ["sh", "-c", script, maps().to_str().unwrap(), &small, &other, &files.data()];
    let (output, summaries) = files.within(&["--map", "*.idx=1M"], &program);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Neither the shell nor the process with the other small file adopted anything.
    let adopted = summaries.iter().filter(|one| one["budgets"] != Value::Array(Vec::new()));
    let adopted: Vec<_> = adopted.collect();
    let [of_glob, large] = adopted[..] else { panic!("{summaries:?}") };
    assert_eq!(of_glob["budgets"][0]["glob"], "*.idx");
    assert_eq!(of_glob["budgets"][0]["max_bytes"], MIB);
    assert_eq!(of_glob["budgets"][0]["files"][0], small.as_str());
    assert_eq!(large["budgets"][0]["glob"], Value::Null);
    assert_eq!(large["budgets"][0]["files"][0], files.data().as_str());
}

#[test]
fn mappings_that_cannot_be_kept_are_left_alone_and_named_with_the_reason() {
    let files = Files::new();
    let (output, summaries) =
        files.within(&[], &[maps().to_str().unwrap(), "copies", &files.data()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let left = summaries[0]["left_alone"].as_array().unwrap();
    let writable = left.iter().find(|row| row["reason"] == "private_writable").unwrap();
    // The whole of one mapping, and every third page of the other.
    let pages = FILE / 4096;
    assert_eq!(writable["count"], 1 + pages.div_ceil(3), "{writable}");
    assert_eq!(writable["first"], files.data().as_str());
}

#[test]
fn sandboxes_of_a_program_change_how_its_mappings_are_kept_and_not_what_it_reads() {
    let files = Files::new();
    let sandboxed = maps().with_file_name("sandboxed");
    let alone = |what: &str| plain(&sandboxed).args([what, &files.data()]).output().unwrap();
    for (what, forced, automatic) in [
        ("userfaultfd", "userfaultfd", "auto is pagecache"),
        ("scan", "PAGEMAP_SCAN", "auto is pagecache"),
    ] {
        let _ = fs::remove_file(files.path("summary"));
        let (with, summaries) =
            files.within(&[], &[sandboxed.to_str().unwrap(), what, &files.data()]);
        let out = text(&with.stdout);
        if out.contains("SKIPPED") {
            return eprintln!("{out}");
        }
        same(&with, &alone(what));
        let line = |start: &str| {
            out.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{out}"))
        };
        let refused = line("userfault: ");
        assert!(refused.contains(forced) || refused.contains("userfaultfd"), "{refused}");
        assert!(line("auto").starts_with(automatic), "{out}");
        let budget = &summaries[0]["budgets"][0];
        assert!(budget["evicted"].as_u64().unwrap() > 0, "{what}: {summaries:?}");
        // The program has another budget of 4 MiB for the map of its own.
        let most = 14 * MIB as u64;
        assert!(budget["resident_bytes"].as_u64().unwrap() <= most, "{budget}");
    }
}

#[test]
fn programs_that_it_starts_are_followed_unless_they_shall_not_be() {
    let files = Files::new();
    let script = "\"$0\" read \"$1\" 100; \"$0\" read \"$1\" 100";
    let program = ["sh", "-c", script, maps().to_str().unwrap(), &files.data()];
    let adopted = |summaries: &[Value]| {
        let any = |one: &&Value| one["budgets"].as_array().is_some_and(|all| !all.is_empty());
        summaries.iter().filter(any).count()
    };
    let (_, summaries) = files.within(&[], &program);
    assert_eq!(adopted(&summaries), 2, "{summaries:?}");
    let (output, summaries) = files.within(&["--no-follow"], &program);
    assert_eq!(text(&output.stdout).lines().count(), 2);
    assert_eq!(adopted(&summaries), 0, "{summaries:?}");
    // A program that it becomes is still the first one.
    let program = ["sh", "-c", "exec \"$0\" read \"$1\" 100", program[3], program[4]];
    let (_, summaries) = files.within(&["--no-follow"], &program);
    assert_eq!(adopted(&summaries), 1, "{summaries:?}");
}

#[test]
fn libraries_that_were_preloaded_before_are_loaded_still() {
    let files = Files::new();
    let mut command = run(&["--max", BUDGET], &["sh", "-c", "echo $LD_PRELOAD"]);
    // The linker says on standard error that it is not there: that it was looked for is the proof.
    let output = command.env("LD_PRELOAD", "/no/such/first.so:/no/such/second.so");
    let output = output.output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(out.contains("liblowtide_preload.so:/no/such/first.so:/no/such/second.so"), "{out}");
    assert!(err.contains("/no/such/first.so") && err.contains("/no/such/second.so"), "{err}");
    drop(files);
}

/// Maps a file, reads the pages of an eighth of it, and unmaps it before it ends.
const MOMENT: &str = "import mmap, sys\n\
    file = open(sys.argv[1], 'rb'); map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n\
    print(sum(map[at] for at in range(0, 4 << 20, 4096))); map.close(); file.close()";

#[test]
fn a_program_that_lives_for_a_moment_has_a_peak() {
    let files = Files::new();
    if plain("python3").arg("-V").output().is_err() {
        eprintln!("SKIPPED: python3 is not installed");
        return;
    }
    for way in ["userfault", "pagecache"] {
        let program = ["python3", "-c", MOMENT, &files.data()];
        let (with, summaries) = files.within(&["--mode", way, "--force"], &program);
        same(&with, &plain(program[0]).args(&program[1..]).output().unwrap());
        let peak = summaries[0]["budgets"][0]["peak_bytes"].as_u64().unwrap();
        assert!(peak >= 2 * MIB as u64, "{way}: {}", summaries[0]);
    }
}

#[test]
fn a_signal_makes_a_program_say_how_it_stands() {
    let files = Files::new();
    let summary = files.path("summary");
    // It maps the file, then waits for a line on standard input.
    let script = "import mmap,sys\n\
        f=open(sys.argv[1],'rb')\n\
        m=mmap.mmap(f.fileno(),0,access=mmap.ACCESS_READ)\n\
        print(sum(m[::4096]),flush=True)\n\
        sys.stdin.readline()\n";
    if plain("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: python3 is not installed");
        return;
    }
    let options = ["--max", BUDGET, "--json", "--summary", &summary];
    let mut command = run(&options, &["python3", "-c", script, &files.data()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::USR1).unwrap();
    let begin = Instant::now();
    while fs::read_to_string(&summary).unwrap().lines().count() == 0 {
        assert!(begin.elapsed().as_secs() < 60, "no summary came");
        std::thread::yield_now();
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success(), "the signal ended the program");
    assert_eq!(fs::read_to_string(&summary).unwrap().lines().count(), 2, "and one at the end");
}

/// It ends with this code before the program starts, and says all of these words.
fn refused(command: &mut Command, code: i32, words: &[&str]) {
    let output = command.output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
    assert!(output.stdout.is_empty(), "the program was started");
}

#[test]
fn programs_out_of_reach_are_refused_before_they_start() {
    let files = Files::new();
    let source = files.path("x.c");
    fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"runs\"); return 0; }\n")
        .unwrap();
    let program = files.path("static");
    let built = plain("cc").args(["-static", "-o", &program, &source]).output();
    if built.is_ok_and(|output| output.status.success()) {
        refused(
            &mut run(&["--max", "8M"], &[&program]),
            2,
            &["linked statically", "memory cgroup"],
        );
        let script = files.path("script");
        fs::write(&script, format!("#!{program}\n")).unwrap();
        assert!(plain("chmod").args(["+x", &script]).status().unwrap().success());
        refused(&mut run(&["--max", "8M"], &[&script]), 2, &["linked statically"]);
    } else {
        eprintln!("SKIPPED in part: no C compiler that links statically");
    }
    refused(&mut run(&["--max", "8M"], &["no-such-program-here"]), 127, &["not found", "PATH"]);
    refused(&mut run(&["--max", "8M"], &[&source]), 126, &["cannot be executed", &source]);
}

#[test]
fn bad_usage_says_what_to_do() {
    let program = ["true"];
    for (options, words) in [
        (&["--anon", "--max", "8M"][..], &["--anon", "memory cgroup", "zram", "regions"][..]),
        (&["--max", "8M", "--swap", "1G"], &["--swap", "memory cgroup"]),
        (&["--max", "8M", "--mode", "both"], &["auto", "userfault", "pagecache"]),
        (&["--max", "8M", "--high", "9M"], &["--high 9M", "--max 8M"]),
        (&["--max", "1K"], &["1M"]),
        (&["--max", "8M", "--at-most", "9M"], &["--at-most", "--max auto"]),
        (&["--max", "auto", "--at-most", "8M", "--high", "4M"], &["--high", "--max auto"]),
        (&["--max", "auto", "--at-least", "9M", "--at-most", "8M"], &["9M", "8M"]),
        (&["--max", "auto", "--stall", "0"], &["percentage"]),
        (&["--high", "4M"], &["--high", "--max", "size"]),
        (&["--max", "900G", "--map", "x=900G"], &["1800G", "1T"]),
        (&["--max", "8M", "--map", "x"], &["GLOB=SIZE"]),
        (&["--max", "8M", "--summary", "/no/such/dir/x"], &["/no/such/dir/x"]),
        (&["--max", "8M", "--policy", "none"], &["none"]),
        (&["--wat"], &["unexpected argument '--wat'", "Usage: lowtide run"]),
        (&["--max", "8M", "--wat=1"], &["unexpected argument '--wat'", "--help"]),
    ] {
        refused(&mut run(options, &program), 2, words);
    }
    // Behind the program's name everything is the program's.
    let mut passed = plain(env!("CARGO_BIN_EXE_lowtide"));
    let passed = passed.args(["run", "--max", "8M", "echo", "--wat", "--max", "--"]).output();
    assert_eq!(text(&passed.unwrap().stdout), "--wat --max --\n");
    let mut without = run(&["--max", "8M"], &program);
    refused(without.env("LOWTIDE_PRELOAD", "/no/such.so"), 2, &["/no/such.so", "cargo build"]);
    let accepted = run(&["--high", "1G", "--max", "1.2G"], &program).output().unwrap();
    assert!(accepted.status.success(), "{}", text(&accepted.stderr));
}

#[test]
fn the_cost_of_a_start_is_shown() {
    let time = |command: &mut Command| {
        let mut all: Vec<_> = (0..15)
            .map(|_| {
                let begin = Instant::now();
                assert!(command.output().unwrap().status.success());
                begin.elapsed()
            })
            .collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    let with = time(&mut run(&["--max", "8M"], &["true"]));
    let without = time(&mut plain("true"));
    #[allow(clippy::print_stdout, reason = "what this test is for")]
    {
        println!("start of `true`: {with:?} under lowtide run, {without:?} alone");
    }
}
