//! Promise: with `lowtide run --files` the page cache of what a program reads and writes stays
//! within the budget and an eighth of it, what is read often stays in memory, and every read
//! returns what it returns without.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::{Output, Stdio};

use crate::common::programs::{MIB, maps, plain, run, same};
use crate::common::text;
use serde_json::Value;

/// Bytes of the file, the budget, and the budget with an eighth of it.
const FILE: usize = 128 * MIB;
const BUDGET: &str = "16M";
const MOST: usize = 18 * MIB;

fn program() -> PathBuf {
    maps().with_file_name("reads")
}

/// A folder with a file of words that are known.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new(bytes: usize) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let files = Self { dir };
        files.make("data", bytes);
        files
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn make(&self, name: &str, bytes: usize) {
        let made = plain(program()).args(["make", &self.path(name), &bytes.to_string()]).status();
        assert!(made.unwrap().success());
    }

    /// Runs a command of the test program with `--files` and these options.
    fn within(&self, options: &[&str], args: &[&str]) -> (Output, Vec<Value>) {
        let summary = self.path("summary");
        let all = ["--files", "--max", BUDGET, "--json", "--summary", &summary];
        let (program, all) = (program(), [&all, options].concat());
        let output = run(&all, &[&[program.to_str().unwrap()], args].concat()).output().unwrap();
        let said = text(&output.stderr);
        assert!(!said.contains("panicked"), "{said}");
        let lines = fs::read_to_string(&summary).unwrap_or_default();
        let lines = lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
        (output, lines.collect())
    }

    /// The same command alone.
    fn alone(args: &[&str]) -> Output {
        plain(program()).args(args).output().unwrap()
    }

    /// A command that goes on only while at most this much is cached does the same as alone,
    /// without; its summary.
    fn bounded(&self, options: &[&str], command: &str, most: usize) -> Value {
        let data = self.path("data");
        let (with, summaries) = self.within(options, &[command, &data, &most.to_string()]);
        same(&with, &Self::alone(&[command, &data]));
        summaries.last().expect("a summary").clone()
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn what_is_read_at_random_stays_within_the_budget_and_an_eighth() {
    let files = Files::new(FILE);
    let summary = files.bounded(&[], "random", MOST);
    let budget = &summary["budgets"][0];
    assert_eq!(budget["read_files"], 1, "{summary}");
    assert_eq!(budget["mappings"], 0, "{summary}");
    assert_eq!(budget["files"][0], files.path("data").as_str());
    assert!(number(&budget["evicted"]) > 1000, "{summary}");
    assert!(number(&budget["refaults"]) > 100, "{summary}");
    // No more than one look misses.
    assert!(number(&budget["peak_bytes"]) < 32 * MIB as u64, "{summary}");
}

#[test]
fn what_is_read_in_order_by_the_c_library_stays_within_it_too() {
    let files = Files::new(FILE);
    for options in [&[][..], &["--keep-read-ahead"]] {
        let summary = files.bounded(options, "stream", MOST);
        assert_eq!(summary["budgets"][0]["read_files"], 1, "{summary}");
    }
    let summary = files.bounded(&[], "stream", MOST);
    assert!(number(&summary["read_ahead_pages"]) > 1000, "nothing was read ahead: {summary}");
    // By calls that no wrapper sees.
    let summary = files.bounded(&[], "lines", MOST);
    assert_eq!(summary["budgets"][0]["read_files"], 1, "{summary}");
}

#[test]
fn what_is_written_stays_within_it_and_goes_to_the_device_soon() {
    let files = Files::new(MIB);
    for options in [&[][..], &["--keep-read-ahead"]] {
        let summary = files.bounded(options, "fill", MOST);
        assert_eq!(summary["budgets"][0]["read_files"], 1, "{summary}");
    }
}

#[test]
fn pages_that_are_read_again_and_again_stay_among_all_others() {
    let files = Files::new(FILE);
    // A quarter of the budget is hot.
    files.bounded(&[], "hot", 90);
}

#[test]
fn a_file_that_is_mapped_and_read_is_counted_once() {
    let files = Files::new(FILE / 4);
    let summary = files.bounded(&[], "mapped", MOST);
    let budget = &summary["budgets"][0];
    assert_eq!((&budget["mappings"], &budget["read_files"]), (&1.into(), &1.into()), "{summary}");
    assert!(number(&budget["resident_bytes"]) <= MOST as u64, "{summary}");
    // Were pages counted twice, half of the budget would be cached.
    assert!(number(&budget["peak_bytes"]) > 14 * MIB as u64, "{summary}");
}

#[test]
fn children_of_fork_read_within_the_same_budget() {
    let files = Files::new(FILE / 4);
    let data = files.path("data");
    let (with, summaries) = files.within(&[], &["forks", &data, &MOST.to_string()]);
    same(&with, &Files::alone(&["forks", &data]));
    let readers = summaries.iter().filter(|one| one["budgets"][0]["read_files"] == 1);
    assert_eq!(readers.count(), 3, "{summaries:?}");
}

#[test]
fn a_file_may_be_cut_and_written_while_it_is_read() {
    let files = Files::new(FILE / 8);
    let (with, _) = files.within(&[], &["cut", &files.path("data")]);
    assert!(with.status.success(), "{}", text(&with.stderr));
    assert!(text(&with.stdout).starts_with("random "));
}

#[test]
fn numbers_of_descriptors_may_be_used_again() {
    let files = Files::new(FILE / 8);
    files.make("small", MIB / 16);
    files.make("large", 2 * MIB);
    for other in ["small", "large"] {
        let args = ["numbers", &files.path("data"), &files.path(other)];
        let (with, _) = files.within(&[], &args);
        same(&with, &Files::alone(&args));
    }
}

#[test]
fn a_handler_may_read_whatever_it_interrupts() {
    let files = Files::new(FILE / 8);
    let args = ["handler", &files.path("data")];
    let (with, summaries) = files.within(&[], &args);
    same(&with, &Files::alone(&args));
    assert_eq!(summaries[0]["budgets"][0]["read_files"], 1, "{summaries:?}");
}

#[test]
fn files_that_are_closed_at_once_are_kept_within_the_budget() {
    let files = Files::new(MIB);
    for (what, within) in [("many", false), ("many", true), ("build", false), ("build", true)] {
        let (path, most) = (files.path(&format!("{what} {within}")), MOST.to_string());
        fs::create_dir(&path).unwrap();
        let output = if within {
            files.within(&[], &[what, &path, "40", &most]).0
        } else {
            Files::alone(&[what, &path, "40"])
        };
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), format!("{what} 40\n"));
    }
}

#[test]
fn files_below_the_threshold_are_left_alone_unless_a_glob_names_them() {
    let files = Files::new(2 * MIB);
    let data = files.path("data");
    for (options, read_files) in [
        (&["--threshold", "4M"][..], Value::Null),
        (&["--threshold", "4M", "--map", "dat*=1M"], 1.into()),
        (&["--threshold", "4M", "--map", "*.x=1M"], Value::Null),
    ] {
        let (with, summaries) = files.within(options, &["random", &data]);
        same(&with, &Files::alone(&["random", &data]));
        assert_eq!(summaries[0]["budgets"][0]["read_files"], read_files, "{options:?}");
    }
    // And without the option nothing is.
    let reads = [program().to_str().unwrap().to_owned(), "random".to_owned(), data];
    let reads: Vec<&str> = reads.iter().map(String::as_str).collect();
    let output = run(&["--max", BUDGET, "--json"], &reads).output().unwrap();
    let summary: Value = serde_json::from_str(&text(&output.stderr)).unwrap();
    assert_eq!(summary["budgets"], Value::Array(Vec::new()), "{summary}");
}

#[test]
fn what_is_read_and_not_kept_is_told() {
    let files = Files::new(4 * MIB);
    files.make("small", MIB / 2);
    let reads = |command: &str, name: &str| {
        let (path, program) = (files.path(name), program());
        let program = [program.to_str().unwrap(), command, &path];
        let output = run(&["--max", BUDGET], &program).output().unwrap();
        same(&output, &Files::alone(&program[1..]));
        text(&output.stderr)
    };
    for command in ["random", "stream"] {
        let said = reads(command, "data");
        assert!(said.contains("of large files, not mapped: with --files"), "{command}: {said}");
        // Files below the threshold are left alone with that option, too.
        let said = reads(command, "small");
        assert!(
            said.contains("no file mapping") && !said.contains("large files"),
            "{command}: {said}"
        );
    }
    let said = reads("fill", "filled");
    assert!(said.contains("MiB of large files, wrote 9"), "{said}");
    // Of a process that is not the first only if it is more than the budget.
    let both = format!(
        "{0} stream {1}; {0} stream {2}; :",
        program().display(),
        files.path("data"),
        files.path("small")
    );
    for (budget, says) in [("1M", 1), ("5M", 0)] {
        let output = run(&["--max", budget], &["sh", "-c", &both]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(said.matches("  it read ").count(), says, "{budget}: {said}");
    }
}

#[test]
fn an_open_file_that_others_have_keeps_the_kernels_read_ahead() {
    let files = Files::new(16 * MIB);
    let mut file = fs::File::open(files.path("data")).unwrap();
    let options = ["--files", "--max", BUDGET, "--summary", "/dev/null"];
    let mut command = run(&options, &["head", "-c", "4194304"]);
    command.stdin(file.try_clone().unwrap()).stdout(Stdio::null());
    assert!(command.status().unwrap().success());
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    // Reads in order, by the open file that the program had.
    file.seek(SeekFrom::Start(8 * MIB as u64)).unwrap();
    for _ in 0..4 {
        file.read_exact(&mut [0; 4096]).unwrap();
    }
    let cached = lowtide_sys::page_cache::cached_pages(&file).unwrap();
    assert!(cached > 8, "{cached} pages: nothing is read ahead any more");
}
