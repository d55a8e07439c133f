//! The command under test, run as a user runs it: `lowtide`, or `lowtide-lab` in its tests.

#![allow(dead_code, reason = "every test file uses its own part")]

pub(crate) mod names;
pub(crate) mod programs;
pub(crate) mod sim;

use lowtide::Size;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// No test waits longer than this for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// The command.
pub(crate) fn path() -> &'static str {
    let lowtide = option_env!("CARGO_BIN_EXE_lowtide");
    lowtide.or(option_env!("CARGO_BIN_EXE_lowtide-lab")).expect("a package with one of the two")
}

/// The command with these arguments.
pub(crate) fn lowtide(args: &[&str]) -> Command {
    let mut command = Command::new(path());
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it to its end.
pub(crate) fn run(args: &[&str]) -> Output {
    lowtide(args).output().expect("lowtide starts")
}

/// Runs it, demands success, and returns what it wrote with `--json`.
pub(crate) fn results(dir: &Path, args: &[&str]) -> Value {
    let json = dir.join("results.json");
    let mut args = args.to_vec();
    let (dir_text, json_text) = (dir.to_str().unwrap(), json.to_str().unwrap());
    args.extend(["--dir", dir_text, "--json", json_text]);
    let output = run(&args);
    assert!(
        output.status.success(),
        "{args:?}\n{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
}

/// The rows of a result.
pub(crate) fn rows(results: &Value) -> &Vec<Value> {
    results["rows"].as_array().expect("rows is an array")
}

/// What is in `dir`, sorted, without the JSON that [`results`] writes.
pub(crate) fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter(|name| name != "results.json").collect();
    names.sort();
    names
}

/// Bytes as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether this machine lets us make a memory cgroup. Says so if not.
pub(crate) fn memcg_or_skip(test: &str) -> bool {
    let offered = lowtide_host::memcg::offered();
    if let Err(why) = &offered {
        eprintln!("SKIPPED in part: {test}: {why}");
    }
    offered.is_ok()
}

/// lowtide's maps that this machine allows, by the names of their rows. Says which it does not.
pub(crate) fn maps_or_skip(test: &str) -> Vec<&'static str> {
    let mut allowed = vec!["map-userfault", "map-pagecache"];
    allowed.retain(|name| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let pager = lowtide::Pager::builder().max(Size::mib(1)).build().unwrap();
        let way = name.trim_start_matches("map-").parse().unwrap();
        // SAFETY: only this function knows of the file.
        let mapped = unsafe { lowtide::map::MapOptions::new().mode(way).map(&pager, &file) };
        if let Err(why) = &mapped {
            eprintln!("SKIPPED in part: {test}: {why}");
        }
        mapped.is_ok()
    });
    allowed
}

/// Memory cgroups that a process has left behind: their names contain its id.
pub(crate) fn groups_of(pid: u32) -> Vec<String> {
    fn walk(dir: &Path, wanted: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.starts_with("lowtide-") && name.contains(wanted) {
                    found.push(name);
                }
                walk(&entry.path(), wanted, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new("/sys/fs/cgroup"), &format!("-{pid}-"), &mut found);
    found
}

/// A run that is watched while it goes on.
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Starts it.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = lowtide(args).spawn().expect("lowtide starts");
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it prints the line that ends the description of the run: all systems are set up
    /// then.
    pub(crate) fn wait_until_set_up(&mut self) {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            if line.starts_with("run ") {
                return;
            }
            line.clear();
        }
        panic!("the run ended before it began");
    }

    /// Waits until `condition` holds.
    pub(crate) fn wait_until(&mut self, condition: impl Fn() -> bool) {
        let begin = Instant::now();
        while !condition() {
            assert!(begin.elapsed() < PATIENCE, "it never came to that");
            assert!(self.child.try_wait().unwrap().is_none(), "the run ended before that");
            std::thread::yield_now();
        }
    }

    /// Presses Ctrl-C.
    pub(crate) fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }

    /// Asks it to end, as an operator does.
    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end, and returns exit code, the rest of standard output, and standard error.
    pub(crate) fn end_with_output(mut self) -> (Option<i32>, String, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        let output = self.child.wait_with_output().unwrap();
        (output.status.code(), rest, text(&output.stderr))
    }

    /// Waits for its end, and returns exit code and standard error.
    pub(crate) fn end(self) -> (Option<i32>, String) {
        let (code, _, message) = self.end_with_output();
        (code, message)
    }
}
