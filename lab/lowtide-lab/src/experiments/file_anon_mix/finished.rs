//! The file of finished runs, from which a command over many seeds continues.
//!
//! A line is a JSON object: everything that the run's result depends on (`setup`, the policy and
//! the seed), and the result. A line is written at once when its run ends. A command skips the runs
//! of which the file has a line with its own setup, so lines of other sizes, machines and versions
//! may stand in the same file and are left alone.
//!
//! A line without its end, of a command that was killed while it wrote, is removed. Anything else
//! that is no such line is an error: then the file is another's, and nothing is written to it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use lowtide_sim::spec::MachineSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

/// How every line begins.
const BEGINS: &[u8] = br#"{"setup":"#;

/// A file of finished runs that cannot be used.
#[derive(Debug, Error)]
pub(crate) enum FinishedError {
    /// It cannot be opened, read or written.
    #[error("cannot {what} {}: {source}; name another file with --out", path.display())]
    File {
        /// What failed.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// Another command writes to it.
    #[error(
        "another command appends to {}; wait for it, or name another file with --out",
        path.display()
    )]
    Busy { path: PathBuf },
    /// It has something else in it.
    #[error(
        "line {line} of {} is not a finished run of file-anon-mix; name another file with --out",
        path.display()
    )]
    Foreign {
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

/// What the results of all runs depend on, but for policy and seed. Whole numbers only, so that
/// text and value are the same thing; the machine has its own.
#[derive(Debug, Serialize)]
pub(crate) struct Setup<'a> {
    pub(crate) lowtide: &'static str,
    pub(crate) commit: Option<&'static str>,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) anon_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) threads: u32,
    pub(crate) readers: u32,
    pub(crate) pause_ns: u64,
    pub(crate) between_ns: u64,
    pub(crate) rounds: u32,
    pub(crate) slowdown: u32,
    pub(crate) machine: &'a MachineSpec,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Completed rounds.
    pub(crate) rounds: u32,
    /// Bytes of clean file pages at the kill that ended it, if one did.
    pub(crate) killed_with_clean_bytes: Option<u64>,
}

#[derive(Serialize)]
struct LineOut<'a> {
    setup: &'a Setup<'a>,
    policy: &'a str,
    seed: u64,
    #[serde(flatten)]
    ended: Ended,
}

#[derive(Deserialize)]
struct LineIn {
    setup: Value,
    policy: String,
    seed: u64,
    #[serde(flatten)]
    ended: Ended,
}

/// The file, open and locked.
#[derive(Debug)]
pub(crate) struct Finished<'a> {
    setup: &'a Setup<'a>,
    path: &'a Path,
    file: Mutex<File>,
    /// Results that it had, by policy and seed.
    known: Runs,
}

impl<'a> Finished<'a> {
    /// Opens the file, or creates it, and reads the runs of this setup.
    ///
    /// # Errors
    /// [`FinishedError`].
    pub(crate) fn open(path: &'a Path, setup: &'a Setup<'a>) -> Result<Self, FinishedError> {
        let failed =
            |what| move |source| FinishedError::File { what, path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).read(true).append(true).open(path).map_err(failed("open"))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => FinishedError::Busy { path: path.to_owned() },
            TryLockError::Error(source) => failed("lock")(source),
        })?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed("read"))?;
        let (known, whole) = read(&text, setup)
            .map_err(|line| FinishedError::Foreign { path: path.to_owned(), line })?;
        if whole < text.len() {
            file.set_len(whole as u64).map_err(failed("shorten"))?;
        }
        Ok(Self { setup, path, file: Mutex::new(file), known })
    }

    /// The result of a run that has been finished.
    pub(crate) fn get(&self, policy: &str, seed: u64) -> Option<Ended> {
        self.known.get(&(policy.to_owned(), seed)).copied()
    }

    /// Appends the result of a run, in one write.
    ///
    /// # Errors
    /// [`FinishedError::File`].
    pub(crate) fn append(
        &self,
        policy: &str,
        seed: u64,
        ended: Ended,
    ) -> Result<(), FinishedError> {
        let line = LineOut { setup: self.setup, policy, seed, ended };
        let written = serde_json::to_vec(&line).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).write_all(&text)
        });
        written.map_err(|source| FinishedError::File {
            what: "append to",
            path: self.path.to_owned(),
            source,
        })
    }
}

/// Finished runs by policy and seed.
type Runs = BTreeMap<(String, u64), Ended>;

/// The runs of a setup by policy and seed, and the bytes of all whole lines; or the number of a
/// line that is none.
fn read(text: &[u8], setup: &Setup<'_>) -> Result<(Runs, usize), usize> {
    // Read back as it is from the file: what a number loses there, it loses here as well.
    let own: Option<Value> =
        serde_json::to_string(setup).ok().and_then(|text| serde_json::from_str(&text).ok());
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    let mut known = BTreeMap::new();
    let mut lines = 0;
    for line in text[..whole].split_inclusive(|&byte| byte == b'\n') {
        lines += 1;
        let LineIn { setup, policy, seed, ended } =
            serde_json::from_slice(line).map_err(|_| lines)?;
        if Some(setup) == own {
            known.insert((policy, seed), ended);
        }
    }
    let rest = &text[whole..];
    let same = rest.len().min(BEGINS.len());
    if rest[..same] == BEGINS[..same] { Ok((known, whole)) } else { Err(lines + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn setup(machine: &MachineSpec, rounds: u32) -> Setup<'_> {
        Setup {
            lowtide: "1",
            commit: None,
            max_bytes: Some(1 << 30),
            anon_bytes: 1,
            file_bytes: 2,
            threads: 3,
            readers: 4,
            pause_ns: 5,
            between_ns: 6,
            rounds,
            slowdown: 7,
            machine,
        }
    }

    const KILLED: Ended = Ended { rounds: 3, killed_with_clean_bytes: Some(4096) };
    const WHOLE: Ended = Ended { rounds: 20, killed_with_clean_bytes: None };

    #[test]
    fn finished_runs_are_found_again_and_those_of_another_setup_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs");
        let machine = MachineSpec::load("ramdisk").unwrap();
        let (one, other) = (setup(&machine, 20), setup(&machine, 40));
        {
            let file = Finished::open(&path, &one).unwrap();
            assert_eq!(file.get("lru", 1), None);
            file.append("lru", 1, WHOLE).unwrap();
            file.append("mglru-7.1", u64::MAX, KILLED).unwrap();
            let busy = Finished::open(&path, &one).unwrap_err();
            assert!(matches!(busy, FinishedError::Busy { .. }), "{busy}");
        }
        Finished::open(&path, &other).unwrap().append("lru", 1, KILLED).unwrap();
        let file = Finished::open(&path, &one).unwrap();
        assert_eq!(file.get("lru", 1), Some(WHOLE));
        assert_eq!(file.get("mglru-7.1", u64::MAX), Some(KILLED));
        assert_eq!(file.get("mglru-7.1", 1), None);
        drop(file);
        assert_eq!(Finished::open(&path, &other).unwrap().get("lru", 1), Some(KILLED));
    }

    #[test]
    fn an_unfinished_line_is_removed_and_a_foreign_file_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs");
        let machine = MachineSpec::load("ramdisk").unwrap();
        let setup = setup(&machine, 20);
        Finished::open(&path, &setup).unwrap().append("lru", 1, WHOLE).unwrap();
        let whole = fs::read(&path).unwrap();
        for cut in [1, 9, whole.len() - 1] {
            fs::write(&path, [&whole, &whole[..cut]].concat()).unwrap();
            let file = Finished::open(&path, &setup).unwrap();
            file.append("lru", 2, KILLED).unwrap();
            drop(file);
            let file = Finished::open(&path, &setup).unwrap();
            assert_eq!((file.get("lru", 1), file.get("lru", 2)), (Some(WHOLE), Some(KILLED)));
        }
        for (text, line) in [("a letter", 1), ("{}\n", 1), ("a\nb", 1)] {
            fs::write(&path, text).unwrap();
            let error = Finished::open(&path, &setup).unwrap_err();
            assert!(error.to_string().contains(&format!("line {line} of")), "{text}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
