//! Promise: a program that is started by another one under `lowtide run`, and that the library
//! cannot be loaded into, runs as it would have run alone, by whatever function it is started. All
//! others have the library.

use std::fs;
use std::process::{Command, Output};

use crate::common::programs::{Files, plain, run, same};
use crate::common::text;

/// What is started: says what it has of its environment, which descriptor is the next, and `errno`.
const STARTED: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **args) {
    int error = errno;
    const char *list = getenv("LD_PRELOAD");
    int is_with = list && strstr(list, "liblowtide_preload.so");
    const char *other = list && strstr(list, "other.so") ? " and another" : "";
    printf("%s library%s, descriptor %d, errno %d, %d arguments, LAST=%s\n",
           is_with ? "with" : "without", other, dup(0), error, count,
           getenv("LAST") ? getenv("LAST") : "");
    return 7;
}
"#;

/// What starts it, by the function that its first argument names.
const STARTS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static char *how, *path, *name, *args[] = {"started", "x", 0};
static int is(const char *other) { return !strcmp(how, other); }
static void become(void) {
    if (is("execve")) execve(path, args, environ);
    if (is("execv")) execv(path, args);
    if (is("execvp")) execvp(name, args);
    if (is("execvpe")) execvpe(name, args, environ);
    if (is("fexecve")) fexecve(open(path, O_RDONLY), args, environ);
    if (is("named")) fexecve(open(path, O_PATH | O_CLOEXEC), args, environ);
    if (is("execveat")) execveat(AT_FDCWD, path, args, environ, 0);
    if (is("empty")) execveat(open(path, O_RDONLY), "", args, environ, AT_EMPTY_PATH);
}
static void handler(int signal) {
    (void)signal;
    execve(path, args, environ);
    _exit(errno);
}
int main(int count, char **all) {
    pid_t child = -1;
    int status = 0, error = 0;
    (void)count;
    how = all[1], path = all[2], name = strrchr(path, '/') + 1;
    errno = 0;
    if (is("posix_spawn")) error = posix_spawn(&child, path, 0, 0, args, environ);
    else if (is("posix_spawnp")) error = posix_spawnp(&child, name, 0, 0, args, environ);
    else if (is("fork")) {
        signal(SIGUSR2, handler);
        if (!(child = fork())) raise(SIGUSR2);
    } else if (!(child = vfork())) {
        become();
        _exit(errno);
    }
    if (!error) waitpid(child, &status, 0);
    printf("%s: error %d, status %d, descriptor %d\n", how, error, WEXITSTATUS(status), dup(0));
    return 0;
}
"#;

const WAYS: [&str; 11] = [
    "execve",
    "execv",
    "execvp",
    "execvpe",
    "fexecve",
    "named",
    "execveat",
    "empty",
    "posix_spawn",
    "posix_spawnp",
    "fork",
];

/// A compiler and what it is to make; its options.
fn build(files: &Files, name: &str, text: &str, command: &[&str]) -> Option<String> {
    let (source, path) = (files.path(&format!("{name}.c")), files.path(name));
    fs::write(&source, text).unwrap();
    let mut compiler = plain(command[0]);
    compiler.args(&command[1..]).args(["-o", &path, &source]);
    let is_built = compiler.output().is_ok_and(|output| output.status.success());
    if !is_built {
        eprintln!("SKIPPED in part: nothing builds by {command:?}");
    }
    is_built.then_some(path)
}

fn script(files: &Files, name: &str, text: &str) -> String {
    let path = files.path(name);
    fs::write(&path, text).unwrap();
    assert!(plain("chmod").args(["+x", &path]).status().unwrap().success());
    path
}

/// Programs that end at once with the library, as this machine can build them, and scripts that
/// they interpret.
fn hindered(files: &Files) -> Vec<String> {
    let all = [
        build(files, "asan", STARTED, &["gcc", "-fsanitize=address"]),
        build(files, "musl", STARTED, &["musl-gcc"]),
    ];
    let mut all: Vec<String> = all.into_iter().flatten().collect();
    if let Some(first) = all.first() {
        all.push(script(files, "script", &format!("#! {first} -x\n")));
    }
    all
}

fn finish(files: &Files, command: &mut Command) -> Output {
    let folder = files.path("");
    let path = format!("{folder}none:{folder}:{}", std::env::var("PATH").unwrap());
    command.env("PATH", path).env("LAST", "1").env("ASAN_OPTIONS", "detect_leaks=0");
    command.output().unwrap()
}

fn alone(files: &Files, program: &[&str]) -> Output {
    finish(files, plain(program[0]).args(&program[1..]))
}

fn within(files: &Files, program: &[&str]) -> Output {
    finish(files, &mut run(&["--max", "8M"], program))
}

#[test]
fn programs_that_fail_with_the_library_are_started_without_it_by_every_function() {
    let files = Files::new();
    let Some(starts) = build(&files, "starts", STARTS, &["gcc"]) else { return };
    for program in hindered(&files) {
        for way in WAYS {
            // The interpreter of a script is given a path to its descriptor.
            let command = [starts.as_str(), way, &program];
            let without = alone(&files, &command);
            assert!(text(&without.stdout).contains("status 7") || way == "named", "{without:?}");
            same(&within(&files, &command), &without);
        }
    }
}

#[test]
fn shells_env_and_python_start_them_too() {
    let files = Files::new();
    let spawn = "import os,sys\n\
        p=os.posix_spawn(sys.argv[1],['x'],os.environ)\n\
        print(os.waitstatus_to_exitcode(os.waitpid(p,0)[1]))";
    let call = "import subprocess,sys\nprint(subprocess.run([sys.argv[1]]).returncode)";
    for program in hindered(&files) {
        for command in [
            &["sh", "-c", "\"$0\"; echo $?", &program][..],
            &["bash", "-c", "\"$0\"; echo $?", &program],
            &["sh", "-c", "env \"$0\"; echo $?", &program],
            &["sh", "-c", "echo \"$0\" | xargs env A=1 sh -c '\"$0\" || echo $?'", &program],
            &["python3", "-c", spawn, &program],
            &["python3", "-c", call, &program],
        ] {
            if plain(command[0]).args(["-c", ""]).output().is_err() {
                eprintln!("SKIPPED in part: {} is not installed", command[0]);
                continue;
            }
            let without = alone(&files, command);
            assert!(text(&without.stdout).ends_with("7\n"), "{without:?}");
            same(&within(&files, command), &without);
        }
    }
}

#[test]
fn all_other_programs_have_the_library_and_failures_are_the_same() {
    let files = Files::new();
    let Some(starts) = build(&files, "starts", STARTS, &["gcc"]) else { return };
    let Some(started) = build(&files, "started", STARTED, &["gcc"]) else { return };
    let shut = files.path("shut");
    fs::write(&shut, fs::read(&started).unwrap()).unwrap();
    for way in WAYS {
        let output = within(&files, &[&starts, way, &started]);
        let said = text(&output.stdout);
        assert!(said.contains("with library, desc") && said.contains("status 7"), "{output:?}");
        assert!(said.contains("errno 0"), "{output:?}");
        for missing in [&files.path("missing"), &shut, &files.path("")] {
            let command = [starts.as_str(), way, missing];
            same(&within(&files, &command), &alone(&files, &command));
        }
    }
}

#[test]
fn of_the_environment_nothing_else_changes_however_long_it_is() {
    let files = Files::new();
    let Some(starts) = build(&files, "starts", STARTS, &["gcc"]) else { return };
    let options = &["gcc", "-shared", "-nostdlib"];
    let Some(other) = build(&files, "other.so", "int other;\n", options) else { return };
    for program in hindered(&files) {
        for (count, way) in [(0, "execve"), (2000, "execve"), (2000, "posix_spawn")] {
            let mut command = run(&["--max", "8M"], &[&starts, way, &program]);
            for number in 0..count {
                command.env(format!("VARIABLE_{number}"), "x");
            }
            // The sanitizer takes another library before itself then.
            let checks = "detect_leaks=0:verify_asan_link_order=0";
            command.env("LD_PRELOAD", &other).env("ASAN_OPTIONS", checks).env("LAST", "1");
            let output = command.output().unwrap();
            let said = text(&output.stdout);
            assert!(said.contains("without library and another"), "{output:?}");
            assert!(said.contains("LAST=1") && said.contains("status 7"), "{output:?}");
        }
    }
}
