//! Promise: standard streams of a program under `lowtide run` are as alone: as fast while it has
//! one thread, and complete and whole when it has many.

use std::fs;
use std::process::{Command, Output};

use crate::common::programs::{BUDGET, Files, plain, run, same};
use crate::common::text;

/// Maps a file, puts characters, and does what its second argument says.
const PUTS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef ASKS
#include <stdio_ext.h>
#endif
#ifdef OPENS
#include <dlfcn.h>
#endif
static void map(const char *path) {
    struct stat about;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &about)) exit(9);
    unsigned char *at = mmap(0, about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    unsigned long sum = 0;
    for (long i = 0; i < about.st_size; i += 4096) sum += at[i];
    printf("sum %lu\n", sum);
}
static void puts_some(char c, int lines) {
    for (int i = 0; i < lines; i++) {
        flockfile(stdout);
        for (int j = 0; j < 40; j++) putc(c, stdout);
        putc('\n', stdout);
        funlockfile(stdout);
    }
}
/// Without a lock of its own: no character may get lost.
static void *puts_alone(void *c) {
    for (int i = 0; i < 200000; i++) putc((int)(long)c, stdout);
    return 0;
}
static void *puts_lines(void *c) { return puts_some((int)(long)c, 5000), (void *)0; }
static void in_threads(void *(*work)(void *)) {
    pthread_t all[4];
    for (long i = 0; i < 4; i++) pthread_create(&all[i], 0, work, (void *)('a' + i));
    for (int i = 0; i < 4; i++) pthread_join(all[i], 0);
}
static void how(void) {
    // Bits that the C library's header names: the caller locks; a lock is needed.
    fflush(stdout);
    fprintf(stderr, "locked by caller: %d %d\n", !!(stdin->_flags & 0x8000),
            !!(stdout->_flags & 0x8000));
}
int main(int count, char **args) {
    const char *what = args[2];
#ifdef ASKS
    printf("asked: %d\n", __fsetlocking(stdout, FSETLOCKING_QUERY));
#endif
#ifdef OPENS
    printf("found: %d\n", dlsym(RTLD_DEFAULT, "putc") != 0);
#endif
    map(args[1]);
    puts_some('x', 1000);
    how();
    if (!strcmp(what, "lines")) in_threads(puts_lines);
    if (!strcmp(what, "characters")) in_threads(puts_alone);
    if (!strcmp(what, "child")) {
        fflush(stdout);
        if (!fork()) {
            map(args[1]);
            in_threads(puts_alone);
            how();
            exit(0);
        }
        wait(0);
        puts_some('y', 1000);
    }
    if (!strcmp(what, "again")) {
        if (!freopen(args[3], "w", stdout)) return 8;
        puts_some('z', 1000);
        in_threads(puts_alone);
    }
    if (!strcmp(what, "ends")) {
        puts("the first thread ends");
        pthread_exit(0);
    }
    how();
    return 0;
}
"#;

/// The program, with these options of the compiler.
fn build(files: &Files, name: &str, options: &[&str]) -> Option<String> {
    let (source, path) = (files.path("puts.c"), files.path(name));
    fs::write(&source, PUTS).unwrap();
    let built = Command::new("gcc")
        .args(["-O1", "-w", "-pthread", "-o", &path, &source])
        .args(options)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: gcc is not installed");
        return None;
    }
    Some(path)
}

fn both(files: &Files, program: &str, args: &[&str]) -> (Output, Output) {
    let data = files.data();
    let program = [&[program, data.as_str()], args].concat();
    let with = run(&["--max", BUDGET, "--summary", &files.path("summary")], &program).output();
    (with.unwrap(), plain(program[0]).args(&program[1..]).output().unwrap())
}

/// What it says about its locks, one line each time.
fn locks(output: &Output) -> Vec<String> {
    let lines = text(&output.stderr);
    let of = |line: &str| line.strip_prefix("locked by caller: ").map(str::to_owned);
    lines.lines().filter_map(of).collect()
}

/// How often each character of some was put.
fn counts(bytes: &[u8]) -> Vec<usize> {
    (b'a'..=b'd').map(|c| bytes.iter().filter(|byte| **byte == c).count()).collect()
}

#[test]
fn streams_have_no_locks_before_the_program_has_threads_and_have_them_again_afterwards() {
    let files = Files::new();
    let Some(program) = build(&files, "puts", &[]) else { return };
    let (with, alone) = both(&files, &program, &["lines"]);
    let lines = |output: &Output| {
        let mut lines: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert!(with.status.success() && lines(&with) == lines(&alone), "{}", text(&with.stderr));
    assert_eq!(locks(&alone), ["0 0", "0 0"]);
    assert_eq!(locks(&with), ["1 1", "0 0"]);
}

#[test]
fn no_character_is_lost_when_threads_put_them_at_the_same_time() {
    let files = Files::new();
    let Some(program) = build(&files, "puts", &[]) else { return };
    for _ in 0..3 {
        let (with, alone) = both(&files, &program, &["characters"]);
        assert!(with.status.success() && alone.status.success(), "{}", text(&with.stderr));
        assert_eq!(with.stdout.len(), alone.stdout.len());
        assert_eq!(counts(&with.stdout)[1..], [200_000; 3]);
    }
    // A child of `fork` begins with one thread.
    let (with, alone) = both(&files, &program, &["child"]);
    assert!(with.status.success(), "{}", text(&with.stderr));
    assert_eq!(with.stdout.len(), alone.stdout.len());
    assert_eq!(counts(&with.stdout)[1..], [200_000; 3]);
    assert_eq!(locks(&with), ["1 1", "0 0", "1 1"]);
}

#[test]
fn a_stream_that_is_opened_again_and_a_first_thread_that_ends_are_as_alone() {
    let files = Files::new();
    let Some(program) = build(&files, "puts", &[]) else { return };
    let (out, mut written) = (files.path("out"), Vec::new());
    for output in <[_; 2]>::from(both(&files, &program, &["ends"])) {
        written.push(output);
    }
    same(&written[0], &written[1]);
    let (with, alone) = both(&files, &program, &["again", &out]);
    same(&with, &alone);
    // The second one wrote it last; the first is run again.
    let alone = fs::read(&out).unwrap();
    let args = [program.as_str(), &files.data(), "again", &out];
    assert!(run(&["--max", BUDGET], &args).output().unwrap().status.success());
    let with = fs::read(&out).unwrap();
    assert_eq!((with.len(), counts(&with)), (alone.len(), counts(&alone)));
}

#[test]
fn a_program_that_may_start_threads_by_other_ways_or_decides_itself_keeps_its_locks() {
    let files = Files::new();
    for (name, option) in [("asks", "-DASKS"), ("opens", "-DOPENS")] {
        let Some(program) = build(&files, name, &[option]) else { return };
        let (with, alone) = both(&files, &program, &["none"]);
        same(&with, &alone);
        assert_eq!(locks(&with), ["0 0", "0 0"], "{name}");
    }
}
