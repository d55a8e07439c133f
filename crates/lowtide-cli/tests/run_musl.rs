//! Promise: a program of musl under `lowtide run` does the same within its budget as one of glibc,
//! and programs of both that start each other each have the library that is made for them, or run
//! without one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::common::programs::{Files, MIB, plain, run, same};
use crate::common::text;
use serde_json::Value;

const TARGET: &str = "x86_64-unknown-linux-musl";
/// Its name is part of the interface: the command looks for it, and programs that start others.
const LIBRARY: &str = "liblowtide_preload-musl.so";
const DATA: usize = 64 * MIB;
const BUDGET: u64 = 8 * MIB as u64;

/// Maps a file in a thread and in a child, says what is in it, and starts the rest of its line.
const WALK: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
static const unsigned char *map;
static size_t len;
static unsigned long sum(void) {
    unsigned long all = 0;
    for (size_t i = 0; i < len; i++) all = all * 31 + map[i];
    return all;
}
/// The first mapping is made on the small stack of a thread.
static void *walk(void *path) {
    struct stat about;
    int fd = open(path, O_RDONLY);
    if (fstat(fd, &about)) return "no file";
    len = about.st_size;
    map = mmap(0, len, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return "no mapping";
    printf("thread: %lx\n", sum());
    return 0;
}
static void wait_for(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    printf("status %d\n", status);
    fflush(stdout);
}
int main(int count, char **args) {
    pthread_t thread;
    void *failed;
    pid_t child;
    pthread_create(&thread, 0, walk, args[1]);
    pthread_join(thread, &failed);
    if (failed) return puts(failed), 1;
    printf("first: %lx\n", sum());
    fflush(stdout);
    if (!(child = fork())) {
        printf("child: %lx\n", sum());
        exit(0);
    }
    wait_for(child);
    // All threads, those of the library among them, take part in this.
    printf("rights: %d\n", setegid(getegid()));
    printf("shell: %d\n", system("echo from the shell"));
    fflush(stdout);
    if (count > 2) {
        if (!(child = fork())) {
            execv(args[2], args + 2);
            _exit(errno);
        }
        wait_for(child);
    }
    return 0;
}
"#;

/// Says which library is loaded.
const STARTED: &str = r#"
#include <stdio.h>
#include <string.h>
int main(int count, char **args) {
    static char all[1 << 20];
    FILE *maps = fopen("/proc/self/maps", "r");
    all[fread(all, 1, sizeof all - 1, maps)] = 0;
    printf("%s, %d arguments of %s\n", strstr(all, "liblowtide_preload-musl") ? "musl's"
           : strstr(all, "liblowtide_preload") ? "glibc's" : "none", count, strrchr(args[0], '/'));
    return 7;
}
"#;

/// Starts it, by the function that its first argument names.
const STARTS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(int count, char **all) {
    char *how = all[1], *path = all[2], *args[] = {path, "x", 0};
    pid_t child = -1;
    int status = 0;
    if (!strcmp(how, "posix_spawn")) posix_spawn(&child, path, 0, 0, args, environ);
    else if (!strcmp(how, "system")) return WEXITSTATUS(system(path)) != 7;
    else if (!(child = vfork())) {
        if (!strcmp(how, "execve")) execve(path, args, environ);
        if (!strcmp(how, "execvp")) execvp(path, args);
        if (!strcmp(how, "execl")) execl(path, path, "x", (char *)0);
        _exit(errno);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) != 7;
}
"#;

/// A program that is built for one of the two, if its compiler is there.
fn build(files: &Files, compiler: &str, name: &str, source: &str) -> Option<String> {
    let (path, source_path) = (files.path(name), files.path("x.c"));
    fs::write(&source_path, source).unwrap();
    let built =
        plain(compiler).args(["-O1", "-pthread", "-o", &path, &source_path]).output().ok()?;
    assert!(built.status.success(), "{compiler}: {}", text(&built.stderr));
    Some(path)
}

/// The same program for musl and for glibc. Without the first a test is not done.
fn build_both(files: &Files, name: &str, source: &str) -> Option<[String; 2]> {
    let musl = build(files, "musl-gcc", &format!("{name}-musl"), source);
    let glibc = build(files, "gcc", &format!("{name}-glibc"), source);
    if musl.is_none() || glibc.is_none() {
        eprintln!("SKIPPED: gcc and musl-gcc are not both installed");
    }
    Some([musl?, glibc?])
}

/// Builds the library for musl, once. None where Rust's standard library for it is not installed.
fn library() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = plain("rustc").args(["--print", "target-libdir", "--target", TARGET]).output();
        let folder = PathBuf::from(text(&folder.ok()?.stdout).trim());
        if !folder.join("self-contained/libunwind.a").is_file() {
            eprintln!("SKIPPED: no standard library for musl (rustup target add {TARGET})");
            return None;
        }
        let profile = Path::new(env!("CARGO_BIN_EXE_lowtide")).parent().unwrap();
        let mut build = plain(env!("CARGO"));
        build.args(["build", "-q", "-p", "lowtide-preload", "--target", TARGET]);
        build.arg("--manifest-path");
        build.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml"));
        build.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        build.env_remove("RUSTFLAGS");
        build.env("CARGO_ENCODED_RUSTFLAGS", "-C\x1ftarget-feature=-crt-static");
        build.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER", "musl-gcc");
        build.env("CC_x86_64_unknown_linux_musl", "musl-gcc");
        assert!(build.status().expect("cargo starts").success(), "it does not build for musl");
        let made = profile.parent().unwrap().join(TARGET).join(profile.file_name().unwrap());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(LIBRARY);
        // Not while another process has it.
        let copy = path.with_extension(std::process::id().to_string());
        fs::copy(made.join("liblowtide_preload.so"), &copy).unwrap();
        fs::rename(&copy, &path).unwrap();
        Some(path)
    });
    built.as_deref()
}

fn within(options: &[&str], library: &Path, program: &[&str]) -> Command {
    let mut command = run(&[&["--max", "8M"], options].concat(), program);
    command.env("LOWTIDE_PRELOAD_MUSL", library);
    command
}

/// Runs each of several programs in the chain that their line is; what came out, and the summaries.
fn walk(files: &Files, library: &Path, options: &[&str], line: &[&str]) -> (Output, Vec<Value>) {
    let summary = files.path("summary");
    let options = [&["--json", "--summary", &summary], options].concat();
    let output = within(&options, library, line).output().unwrap();
    let lines = fs::read_to_string(&summary).unwrap_or_default();
    (output, lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

#[test]
fn a_program_of_musl_keeps_to_its_budget_and_so_do_programs_that_it_starts() {
    let files = Files::new();
    let Some([musl, glibc]) = build_both(&files, "walk", WALK) else { return };
    let Some(library) = library() else { return };
    let data = files.path("large");
    // Bytes of which each depends on its place.
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    fs::write(&data, (0..DATA).map(|_| next()).collect::<Vec<u8>>()).unwrap();
    let line = [musl.as_str(), &data, &glibc, &data, &musl, &data];
    let without = plain(line[0]).args(&line[1..]).output().unwrap();
    assert_eq!(text(&without.stdout).matches("from the shell").count(), 3, "{without:?}");
    for way in ["pagecache", "userfault"] {
        let (with, summaries) = walk(&files, library, &["--mode", way], &line);
        if way == "userfault" && !with.status.success() && with.stdout.is_empty() {
            eprintln!("SKIPPED in part: {}", text(&with.stderr));
            continue;
        }
        same(&with, &without);
        // Three programs and a child of each, which shared what was there.
        assert_eq!(summaries.len(), 6, "{summaries:?}");
        for (name, count) in [("walk-musl", 4), ("walk-glibc", 2)] {
            let are = |one: &&Value| one["program"] == name;
            assert_eq!(summaries.iter().filter(are).count(), count, "{summaries:?}");
        }
        for summary in &summaries {
            let budget = &summary["budgets"][0];
            assert_eq!(budget["mappings"], 1, "{summary}");
            assert!(budget["evicted"].as_u64().unwrap() > 0, "{summary}");
            // What mirrors take is exact.
            let is_exact = summary["mappings"]["userfault"] == 1;
            assert!(!is_exact || budget["peak_bytes"].as_u64().unwrap() <= BUDGET, "{summary}");
        }
        let mirrored = summaries.iter().filter(|one| one["mappings"]["userfault"] == 1).count();
        assert_eq!(mirrored, if way == "userfault" { 6 } else { 0 }, "{summaries:?}");
    }
}

#[test]
fn each_program_that_is_started_has_the_library_that_is_made_for_it() {
    let files = Files::new();
    let Some(starts) = build_both(&files, "starts", STARTS) else { return };
    let Some(started) = build_both(&files, "started", STARTED) else { return };
    let Some(library) = library() else { return };
    let names = ["musl's", "glibc's"];
    for (by, starts) in starts.iter().enumerate() {
        for (of, started) in started.iter().enumerate() {
            for way in ["execve", "execvp", "posix_spawn", "execl", "system"] {
                let output = within(&[], library, &[starts, way, started]).output().unwrap();
                let said = text(&output.stdout);
                // What a C library starts by itself has the list of its parent; the shell of this
                // machine is of glibc, and would hand the library on that it has.
                let is_unseen = way == "execl" || way == "system" && by == 0;
                if is_unseen && by != of {
                    let is_served = said.contains("glibc's") || said.contains("musl's");
                    // The linker of glibc passes over the library for musl; not the other way.
                    let runs = by == 0 && output.status.success() && !is_served;
                    assert!(runs || by == 1, "{way}: {output:?}");
                    continue;
                }
                assert!(output.status.success(), "{starts} {way} {started}: {output:?}");
                assert!(said.contains(names[of]), "{starts} {way} {started}: {said}");
                assert!(!text(&output.stderr).contains("LD_PRELOAD"), "{output:?}");
            }
        }
    }
}

#[test]
fn other_libraries_stay_in_the_list_when_the_c_library_changes() {
    let files = Files::new();
    let Some(starts) = build_both(&files, "starts", STARTS) else { return };
    let Some(library) = library() else { return };
    let says = "#include <stdio.h>\n#include <stdlib.h>\n\
        int main(void) { puts(getenv(\"LD_PRELOAD\")); return 7; }";
    let Some(says) = build_both(&files, "says", says) else { return };
    let other = files.path("other.so");
    fs::write(files.path("x.c"), "int other;\n").unwrap();
    let bare = ["-shared", "-nostdlib", "-fPIC", "-o", &other, &files.path("x.c")];
    assert!(plain("gcc").args(bare).status().unwrap().success());
    for (starts, says, name) in
        [(&starts[0], &says[1], "preload.so:"), (&starts[1], &says[0], "preload-musl.so")]
    {
        let mut command = within(&[], library, &[starts, "execve", says]);
        let output = command.env("LD_PRELOAD", &other).output().unwrap();
        let list = text(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(list.matches("liblowtide").count(), 1, "{list}");
        assert!(list.contains(name) && list.trim_end().ends_with("/other.so"), "{list}");
    }
}

#[test]
fn without_its_library_or_with_heaps_a_program_of_musl_is_refused_unless_it_shall_run() {
    let files = Files::new();
    let Some([started, _]) = build_both(&files, "started", STARTED) else { return };
    let script = files.path("script");
    fs::write(&script, format!("#!{started}\n")).unwrap();
    assert!(plain("chmod").args(["+x", &script]).status().unwrap().success());
    let missing = Path::new("/no/such.so");
    for program in [&started, &script] {
        let refused = within(&[], missing, &[program]).output().unwrap();
        let message = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{message}");
        for word in ["musl", "LOWTIDE_PRELOAD_MUSL", "/no/such.so", "run-kernels.md", "--force"] {
            assert!(message.contains(word), "`{word}` is not in: {message}");
        }
        assert!(refused.stdout.is_empty(), "the program was started");
        let forced = within(&["--force"], missing, &[program]).output().unwrap();
        assert_eq!(forced.status.code(), Some(7), "{forced:?}");
        assert!(text(&forced.stdout).starts_with("none"), "{forced:?}");
    }
    let refused = within(&["--files"], missing, &[&started]).output().unwrap();
    let message = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("--files") && message.contains("musl"), "{message}");
    assert!(refused.stdout.is_empty(), "the program was started");
}
