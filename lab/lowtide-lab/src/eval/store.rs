//! The folder of results: a file for each experiment, complete or not there.
//!
//! ```text
//!   NAME.json      what the experiment wrote, with `eval` (what it is a result of) and `figures`
//!   .NAME.part     what is being written; taken for nothing, and overwritten
//!   .lock          one evaluation at a time
//! ```
//!
//! A result is written under another name and renamed, so a file that is there was written to its
//! end. Whether it is of this command is decided by what its result depends on, in words: version,
//! commit, and command lines with their seeds. A file that cannot be read, or has other words, is
//! made again.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lowtide_report::json::{COMMIT, VERSION};
use serde_json::{Value, json};

use super::error::EvalError;

/// The folder, which this process alone uses.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    /// Locked while it is open.
    _lock: File,
}

impl Store {
    /// Opens the folder, or makes it.
    ///
    /// # Errors
    /// [`EvalError::Place`], [`EvalError::Busy`].
    pub(super) fn open(dir: &Path) -> Result<Self, EvalError> {
        let failed = |source| EvalError::Place { path: dir.to_owned(), source };
        fs::create_dir_all(dir).map_err(failed)?;
        let lock = File::create(dir.join(".lock")).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => EvalError::Busy { path: dir.to_owned() },
            TryLockError::Error(source) => failed(source),
        })?;
        Ok(Self { dir: dir.to_owned(), _lock: lock })
    }

    /// The result of an experiment, if there is one of these command lines.
    pub(super) fn complete(&self, name: &str, lines: &[Vec<String>]) -> Option<Value> {
        complete(&self.dir, name, lines)
    }

    /// Where an experiment writes its own result.
    pub(super) fn part(&self, name: &str) -> PathBuf {
        self.dir.join(format!(".{name}.part"))
    }

    /// Keeps a result.
    ///
    /// # Errors
    /// [`EvalError::Write`].
    pub(super) fn keep(&self, name: &str, result: &Value) -> Result<(), EvalError> {
        let mut text = serde_json::to_vec_pretty(result).map_err(|error| EvalError::Write {
            path: self.dir.join(format!("{name}.json")),
            source: error.into(),
        })?;
        text.push(b'\n');
        self.write(&format!("{name}.json"), &text)
    }

    /// Writes a file, or leaves what was there.
    ///
    /// # Errors
    /// [`EvalError::Write`].
    pub(super) fn write(&self, name: &str, text: &[u8]) -> Result<(), EvalError> {
        let path = self.dir.join(name);
        let failed = |source| EvalError::Write { path: path.clone(), source };
        let put = || -> io::Result<()> {
            let begun = self.part(name);
            let mut file = File::create(&begun)?;
            file.write_all(text)?;
            file.sync_all()?;
            fs::rename(begun, &path)
        };
        put().map_err(failed)
    }

    /// Removes what an experiment has begun to write.
    pub(super) fn forget_part(&self, name: &str) {
        // Nothing takes it for a result, whether or not it can be removed.
        let _ = fs::remove_file(self.part(name));
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// What a result depends on.
pub(super) fn fingerprint(lines: &[Vec<String>]) -> Value {
    let lines: Vec<String> = lines.iter().map(|words| words.join(" ")).collect();
    json!({ "lowtide": VERSION, "commit": COMMIT, "commands": lines })
}

/// The result of an experiment in a folder, if there is one of these command lines.
pub(super) fn complete(dir: &Path, name: &str, lines: &[Vec<String>]) -> Option<Value> {
    let text = fs::read(dir.join(format!("{name}.json"))).ok()?;
    let value: Value = serde_json::from_slice(&text).ok()?;
    (value.pointer("/eval/of") == Some(&fingerprint(lines))).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(words: &str) -> Vec<Vec<String>> {
        vec![words.split(' ').map(Into::into).collect()]
    }

    #[test]
    fn only_a_whole_result_of_the_same_command_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (mine, other) = (lines("lowtide-lab sim a"), lines("lowtide-lab sim a --seed 2"));
        assert!(store.complete("a", &mine).is_none());
        let result = json!({ "rows": [{}], "eval": { "of": fingerprint(&mine) } });
        store.keep("a", &result).unwrap();
        assert_eq!(store.complete("a", &mine), Some(result));
        assert!(store.complete("a", &other).is_none(), "another seed");
        let path = store.path("a.json");
        let whole = fs::read(&path).unwrap();
        for damaged in [&b""[..], &whole[..whole.len() / 2], b"{}", b"\xff"] {
            fs::write(&path, damaged).unwrap();
            assert!(store.complete("a", &mine).is_none());
        }
    }

    #[test]
    fn what_was_begun_is_no_result_and_one_evaluation_uses_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let mine = lines("lowtide-lab sim a");
        let result = json!({ "eval": { "of": fingerprint(&mine) } });
        fs::write(store.part("a"), result.to_string()).unwrap();
        assert!(store.complete("a", &mine).is_none());
        assert!(matches!(Store::open(dir.path()), Err(EvalError::Busy { .. })));
        drop(store);
        Store::open(dir.path()).unwrap();
    }
}
