//! One process that plays a plan, and what came of it.
//!
//! A play has a folder of its own, a process group of its own, and a time limit. A play is over
//! when its process has ended and no process has its standard output any more: children count.

use crate::mode::Mode;
use crate::plan::Plan;
use crate::stage::Stage;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How often a process is looked at whose output is complete.
const LOOK: Duration = Duration::from_micros(200);
/// How often, and after which pauses, a play that does not end is looked at.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// Becomes a program that has a `/dev/shm` of its own, which is full.
const WITHOUT_ROOM: [&str; 6] = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    "mount -t tmpfs -o size=64k tmpfs /dev/shm; cat /dev/zero >/dev/shm/full 2>&-; exec \"$@\"",
    "sh",
];

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Not in its time.
    Never {
        /// Each of its threads slept whenever it was looked at: it waits for something. One that is
        /// only slow, on a busy machine, runs or wants to.
        is_idle: bool,
        /// Where its threads were.
        places: Vec<String>,
    },
}

/// What came of a play.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How the first process ended.
    pub end: End,
    /// What it and its children said, sorted.
    pub lines: Vec<String>,
    /// Standard error, without what lowtide says.
    pub complaints: Vec<String>,
    /// What lowtide says there.
    pub messages: Vec<String>,
    /// Files that it left: their length, and a hash of their bytes.
    pub files: BTreeMap<String, (u64, u64)>,
    /// What left memory and came back under lowtide.
    pub moved: Moved,
}

/// Pages, of all processes of a play that have said so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    /// Pages that were evicted.
    pub evicted: u64,
    /// Pages that came in again.
    pub refaulted: u64,
}

/// Plays a plan, under lowtide if there is a mode.
///
/// # Errors
/// The process does not start, or its folder cannot be made.
pub fn play(
    stage: &Stage,
    plan: &Plan,
    mode: Option<Mode>,
    limit: Duration,
) -> io::Result<Outcome> {
    let folder = tempfile::Builder::new().prefix("play-").tempdir_in(stage.folder())?;
    let summary = tempfile::NamedTempFile::new_in(stage.folder())?;
    let mut words: Vec<OsString> = Vec::new();
    if plan.is_shm_full && stage.has_namespaces {
        words.extend(WITHOUT_ROOM.map(OsString::from));
    }
    if let Some(mode) = mode {
        let (max, threshold) = (format!("{}M", plan.max), format!("{}K", plan.threshold));
        words.push(stage.lowtide.clone().into());
        words.extend(["run", "--max", &max, "--threshold", &threshold].map(OsString::from));
        words.extend(mode.options().iter().map(OsString::from));
        words.extend(["--json", "--summary"].map(OsString::from));
        words.extend([summary.path().into(), "--".into()]);
    }
    words.extend([stage.player().into(), stage.data().into(), plan.scripts_text().into()]);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command.env("PLAYER_PLUGIN", stage.plugin()).env_remove("LD_PRELOAD");
    command.current_dir(folder.path()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (said, complained, end) = watch(&mut child, limit)?;
    let lines = |bytes: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
    };
    let mut said = lines(&said);
    said.sort_unstable();
    let (messages, complaints) =
        lines(&complained).into_iter().partition(|line| line.starts_with("lowtide: "));
    let moved = moved(&fs::read_to_string(summary.path()).unwrap_or_default());
    Ok(Outcome { end, lines: said, complaints, messages, files: files(folder.path())?, moved })
}

/// Reads to the end in a thread of its own.
fn read_all(
    mut from: impl Read + Send + 'static,
    to: &mpsc::Sender<(usize, Vec<u8>)>,
    number: usize,
) {
    let to = to.clone();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is what there is.
        let _ = from.read_to_end(&mut bytes);
        let _ = to.send((number, bytes));
    });
}

/// Waits for the end, and ends what does not end itself: what came from its pipes, and how it
/// ended. It leads a process group.
///
/// # Errors
/// The process cannot be waited for.
pub fn watch(child: &mut Child, limit: Duration) -> io::Result<(Vec<u8>, Vec<u8>, End)> {
    let begin = Instant::now();
    let (sender, receiver) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        read_all(out, &sender, 0);
    }
    if let Some(err) = child.stderr.take() {
        read_all(err, &sender, 1);
    }
    drop(sender);
    let mut all = [Vec::new(), Vec::new()];
    let mut end = None;
    loop {
        match receiver.recv_timeout(limit.saturating_sub(begin.elapsed())) {
            Ok((number, bytes)) => all[number] = bytes,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) if end.is_none() => {
                end = Some(never(child.id()));
                kill(child)?;
            }
            // The whole group has been killed: its pipes are closed.
            Err(mpsc::RecvTimeoutError::Timeout) => thread::sleep(LOOK),
        }
    }
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if end.is_none() && begin.elapsed() >= limit {
            end = Some(never(child.id()));
            kill(child)?;
        }
        thread::sleep(LOOK);
    };
    let end = end.unwrap_or_else(|| match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(code),
        (None, signal) => End::Signal(signal.unwrap_or_default()),
    });
    let [said, complained] = all;
    Ok((said, complained, end))
}

/// Ends a play with all its processes.
fn kill(child: &mut Child) -> io::Result<()> {
    // Its group has its number. It may be gone.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    child.kill()
}

/// A play that did not end in its time.
fn never(group: u32) -> End {
    let mut is_idle = true;
    for _ in 0..LOOKS {
        is_idle &= threads(group).iter().all(|thread| !thread.wants_to_run);
        thread::sleep(PAUSE);
    }
    End::Never { is_idle, places: threads(group).into_iter().map(|thread| thread.place).collect() }
}

/// A thread of a play.
struct Place {
    wants_to_run: bool,
    /// For people.
    place: String,
}

/// State and group of `/proc/PID/stat`: what comes after the name in parentheses.
fn state_and_group(stat: &str) -> Option<(&str, &str)> {
    let mut after = stat.rsplit_once(')')?.1.split_whitespace();
    let state = after.next()?;
    Some((state, after.nth(1)?))
}

/// The threads of a process group.
fn threads(group: u32) -> Vec<Place> {
    let mut all = Vec::new();
    let group = group.to_string();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        if state_and_group(&stat).is_none_or(|(_, of)| of != group) {
            continue;
        }
        let tasks = fs::read_dir(process.path().join("task"));
        for task in tasks.into_iter().flatten().flatten() {
            let of = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let stat = of("stat");
            let place = format!(
                "process {} thread {} {}: {}, syscall {}",
                process.file_name().to_string_lossy(),
                task.file_name().to_string_lossy(),
                of("comm").trim(),
                of("wchan").trim(),
                of("syscall").split_whitespace().next().unwrap_or("?"),
            );
            let wants_to_run = state_and_group(&stat).is_some_and(|(state, _)| state == "R");
            all.push(Place { wants_to_run, place });
        }
    }
    all
}

/// What a play left in its folder.
fn files(folder: &Path) -> io::Result<BTreeMap<String, (u64, u64)>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        let bytes = fs::read(entry.path())?;
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let name = entry.file_name().to_string_lossy().into_owned();
        all.insert(name, (bytes.len() as u64, hasher.finish()));
    }
    Ok(all)
}

/// What the summaries say of pages.
fn moved(summaries: &str) -> Moved {
    let mut moved = Moved::default();
    for line in summaries.lines() {
        let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        for budget in line["budgets"].as_array().into_iter().flatten() {
            moved.evicted += budget["evicted"].as_u64().unwrap_or(0);
            moved.refaulted += budget["refaults"].as_u64().unwrap_or(0);
        }
    }
    moved
}
