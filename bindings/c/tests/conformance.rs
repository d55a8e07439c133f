//! The library, installed as a program in C finds it: by pkg-config, header and linker. The program
//! in `tests/c` checks each function; here it is compiled and run, against the shared and the
//! static library, and under the tools that see what C does wrong with memory.
#![allow(clippy::print_stdout, reason = "says what is skipped, and what was measured")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The folder that the library is installed in, once for all tests.
fn installed() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        let mut install = Command::new(Path::new(HERE).join("install"));
        let said = run(install.arg("--debug").arg(folder.path())).stdout;
        let said = String::from_utf8(said).unwrap();
        for words in ["export PKG_CONFIG_PATH=", "export LD_LIBRARY_PATH="] {
            let path = folder.path().display();
            assert!(said.contains(&format!("{words}{path}/lib")), "{words}: {said}");
        }
        folder
    };
    FOLDER.get_or_init(make).path()
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Whether a tool is there; says so if not.
fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        println!("SKIPPED: no {tool}");
    }
    found
}

/// What pkg-config says, word by word.
fn flags(arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(arguments).arg("lowtide");
    command.env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"));
    let text = String::from_utf8(run(&mut command).stdout).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

/// Compiles a source of this package; the program is in the folder.
fn compile(folder: &Path, source: &str, options: &[&str], linked: &[String]) -> PathBuf {
    let program = folder.join("program");
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    command.args(options).args(flags(&["--cflags"])).arg(Path::new(HERE).join(source));
    command.args(linked).arg("-o").arg(&program);
    run(&mut command);
    program
}

/// Runs a program that is linked against the shared library; returns what it printed.
fn output(command: &mut Command) -> String {
    command.env("LD_LIBRARY_PATH", installed().join("lib"));
    let text = String::from_utf8(run(command).stdout).unwrap();
    text.lines().filter(|line| line.starts_with("SKIPPED")).for_each(|line| println!("{line}"));
    text
}

fn checks(text: &str) -> u64 {
    let line = text.lines().last().and_then(|line| line.strip_suffix(" checks"));
    line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no checks: {text}"))
}

fn has_all() -> bool {
    ["cc", "pkg-config"].into_iter().all(has)
}

#[test]
fn each_function_does_what_the_header_says() {
    if !has_all() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "tests/c/conformance.c", &[], &flags(&["--libs"]));
    let count = checks(&output(Command::new(program).arg(dir.path())));
    assert!(count > 2000, "{count}");
}

#[test]
fn the_static_library_needs_what_pkg_config_says() {
    if !has_all() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Without the shared one beside it the linker takes the static one.
    let mut linked = flags(&["--libs", "--static"]);
    let ours = linked.iter_mut().find(|word| *word == "-llowtide").expect("the library is linked");
    *ours = installed().join("lib/liblowtide.a").display().to_string();
    let program = compile(dir.path(), "tests/c/conformance.c", &[], &linked);
    let text = run(Command::new(program).arg(dir.path()).env_remove("LD_LIBRARY_PATH")).stdout;
    assert!(checks(&String::from_utf8(text).unwrap()) > 2000);
}

#[test]
fn valgrind_finds_no_error_and_no_leak() {
    if !has_all() || !has("valgrind") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "tests/c/conformance.c", &[], &flags(&["--libs"]));
    // Addresses and leaks. It does not know that `PAGEMAP_SCAN` writes its results, and takes what
    // follows from them for uninitialised, and what the compiler computes early and does not use.
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--undef-value-errors=no"]);
    command.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
    command.args([program.as_os_str(), dir.path().as_os_str()]).arg("pagecache");
    assert!(checks(&output(&mut command)) > 2000);
}

#[test]
fn address_sanitizer_finds_no_error() {
    if !has_all() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = "tests/c/conformance.c";
    let options = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let program = compile(dir.path(), source, &options, &flags(&["--libs"]));
    assert!(checks(&output(Command::new(program).arg(dir.path()))) > 2000);
}

#[test]
fn the_header_is_one_for_cpp_too() {
    if !has_all() || !has("c++") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("a.cpp");
    let text = "#include <lowtide.h>\nint main() { return lt_strerror(LT_OK) == nullptr; }\n";
    std::fs::write(&source, text).unwrap();
    let program = dir.path().join("program");
    let mut command = Command::new("c++");
    command.args(["-std=c++17", "-Wall", "-Wextra", "-Werror"]).args(flags(&["--cflags"]));
    command.arg(&source).args(flags(&["--libs"])).arg("-o").arg(&program);
    run(&mut command);
    output(&mut Command::new(program));
}

#[test]
fn the_first_program_of_the_readme_sums_a_file_within_its_budget() {
    if !has_all() {
        return;
    }
    let readme = std::fs::read_to_string(Path::new(HERE).join("README.md")).unwrap();
    let program = readme.split("```c\n").nth(1).unwrap().split("```").next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (source, file) = (dir.path().join("a.c"), dir.path().join("file"));
    std::fs::write(&source, program).unwrap();
    std::fs::write(&file, vec![3; 64 << 20]).unwrap();
    let program = compile(dir.path(), source.to_str().unwrap(), &[], &flags(&["--libs"]));
    let text = output(Command::new(&program).arg(&file));
    let numbers: Vec<u64> =
        text.split(|c: char| !c.is_ascii_digit()).flat_map(str::parse).collect();
    let [sum, resident, len] = numbers[..] else { panic!("{text}") };
    assert_eq!((sum, len), (3 * (64 << 20), 64 << 20));
    assert!((1..=32 << 20).contains(&resident), "{text}");
    let mut command = Command::new(&program);
    command.arg(dir.path().join("none")).env("LD_LIBRARY_PATH", installed().join("lib"));
    let failed = command.output().unwrap();
    let said = String::from_utf8(failed.stderr).unwrap();
    assert!(failed.status.code() == Some(1) && said.contains("-1"), "{said}");
}

#[test]
fn experts_of_a_model_are_read_within_a_quarter_of_its_size() {
    if !has_all() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = compile(dir.path(), "examples/weights.c", &[], &flags(&["--libs"]));
    let model = dir.path().join("model");
    let weights = |arguments: &[&str]| output(Command::new(&program).arg(&model).args(arguments));
    weights(&["make", "32"]);
    let (within, plain) = (weights(&["run", "8", "100"]), weights(&["plain", "100"]));
    let sum = |text: &str| text.lines().next().map(str::to_owned);
    assert_eq!(sum(&within), sum(&plain), "{within}{plain}");
    let rest = |text: &str| -> u64 {
        let line = text.lines().nth(1).and_then(|line| line.split(' ').next());
        line.and_then(|kib| kib.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    assert!((1..=8 << 10).contains(&rest(&within)), "{within}");
    assert!(rest(&plain) > 16 << 10, "{plain}");
    println!("within: {within}plain: {plain}");
}
