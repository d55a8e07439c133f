//! A directory that looks like a mounted memory cgroup hierarchy: a directory for each tenant, the
//! kernel's files in it.
//!
//! A round visits every tenant, takes its texts under the pool's lock (one tenant at a time), and
//! writes those that have changed since the last round. A file is written under another name and
//! renamed, so that readers see an old text or a new one and never half of one. Directories of
//! tenants that are gone, were renamed or moved are removed, unless they have other files in them.
//!
//! An error (a full disk, a missing permission) stops neither the pager nor the rest of the round.
//! It is kept until a round succeeds, and what failed is tried again in the next one.
//!
//! Names of directories are names of tenants. `%` and two hexadecimal digits stand for each byte
//! that could confuse a file system: what is neither a letter nor a digit nor one of `-_.,+=@:` and
//! blank, a dot in front, and the first letter of what looks like one of the files. A name that
//! would be too long for a file system is cut, and a hash of all of it appended.

use super::files::TenantFile;
use crate::pool::Pool;
use crate::swap::Kept;
use lowtide_core::{Engine, MemcgId};
use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The file that a text is written to before it gets its name. No tenant's directory has this name,
/// because of the dot.
const TEMPORARY: &str = ".new";
/// Time between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Bytes that a name has in a directory at most; file systems allow 255.
const NAME_BYTES: usize = 200;

/// A round of exports that did not succeed in everything. The pager goes on.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "cannot {action} {path}: {source}; {others} other files or directories failed too in this \
     round. All are tried again"
)]
#[non_exhaustive]
pub struct ExportError {
    /// The attempted action.
    pub action: &'static str,
    /// The first file or directory concerned.
    pub path: PathBuf,
    /// The kernel's error.
    pub source: Arc<io::Error>,
    /// How many more failed.
    pub others: u64,
}

/// Keeps a directory up to date. One round runs at a time.
#[derive(Debug)]
pub(crate) struct Exporter {
    dir: PathBuf,
    /// What is in the directory.
    done: Mutex<Done>,
    /// The result of the last round.
    last: Mutex<Option<ExportError>>,
    /// The pager is closing: the background thread's round ends where it is. Changes under
    /// `wakeup_lock`.
    closing: AtomicBool,
    wakeup_lock: Mutex<()>,
    wakeup: Condvar,
}

#[derive(Debug, Default)]
struct Done {
    /// The tree that `tenants` is, by `Names::changes`.
    tree: Option<u64>,
    tenants: Vec<(MemcgId, PathBuf)>,
    /// Texts as they were written, by directory. `None`: not written, or not well.
    written: HashMap<PathBuf, [Option<Box<str>>; TenantFile::ALL.len()]>,
}

/// The first error of a round, and how many followed.
#[derive(Debug, Default)]
struct Trouble(Option<ExportError>);

impl Trouble {
    /// Keeps an error; returns whether there was none.
    fn check(&mut self, action: &'static str, path: &Path, result: io::Result<()>) -> bool {
        let Err(source) = result else { return true };
        match &mut self.0 {
            Some(first) => first.others += 1,
            None => {
                let (path, source) = (path.to_owned(), Arc::new(source));
                self.0 = Some(ExportError { action, path, source, others: 0 });
            }
        }
        false
    }
}

impl Exporter {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            done: Mutex::default(),
            last: Mutex::default(),
            closing: AtomicBool::new(false),
            wakeup_lock: Mutex::default(),
            wakeup: Condvar::new(),
        }
    }

    /// The result of the last round.
    pub(crate) fn last_error(&self) -> Option<ExportError> {
        lowtide_pin::sync::lock(&self.last).clone()
    }

    /// Rounds until the pager closes: the work of the background thread.
    pub(crate) fn run(&self, pool: &Pool) {
        while !self.closing.load(Relaxed) {
            if let Err(error) = self.round(pool) {
                tracing::debug!(%error, "export");
            }
            let lock = lowtide_pin::sync::lock(&self.wakeup_lock);
            if !self.closing.load(Relaxed) {
                drop(
                    self.wakeup
                        .wait_timeout(lock, INTERVAL)
                        .unwrap_or_else(PoisonError::into_inner),
                );
            }
        }
    }

    /// Ends [`Exporter::run`].
    pub(crate) fn close(&self) {
        let _lock = lowtide_pin::sync::lock(&self.wakeup_lock);
        self.closing.store(true, Relaxed);
        self.wakeup.notify_all();
    }

    /// Brings the directory up to date. Cost: O(tenants), and a write for each text that has
    /// changed.
    pub(crate) fn round(&self, pool: &Pool) -> Result<(), ExportError> {
        let mut done = lowtide_pin::sync::lock(&self.done);
        let mut trouble = Trouble::default();
        if let Err(defect) = pool.check() {
            // The files keep the last figures that were whole.
            trouble.check("export to", &self.dir, Err(defect.into()));
            return self.ends(trouble);
        }
        done.learn_tree(pool, &self.dir);
        done.remove_others(&mut trouble, &self.closing);
        let Done { tenants, written, .. } = &mut *done;
        for (id, dir) in tenants {
            if self.closing.load(Relaxed) {
                break;
            }
            let kept = Kept::of(pool, *id);
            let texts = {
                let mut state = pool.lock();
                if pool.is_poisoned() || !state.engine.alive(*id) {
                    // The next round sees what has changed.
                    continue;
                }
                TenantFile::ALL.map(|file| file.text(&mut state, *id, pool, kept))
            };
            if !written.contains_key(dir) {
                if !trouble.check("create", dir, fs::create_dir_all(&*dir)) {
                    continue;
                }
                written.insert(dir.clone(), Default::default());
            }
            let old = written.get_mut(dir).expect("it was inserted");
            for ((file, text), old) in TenantFile::ALL.into_iter().zip(texts).zip(old) {
                if old.as_deref() == Some(&text) {
                    continue;
                }
                let path = dir.join(file.name());
                let well = trouble.check("write", &path, replace(dir, &path, &text));
                *old = well.then(|| text.into());
            }
        }
        self.ends(trouble)
    }

    /// Keeps the result of a round.
    fn ends(&self, trouble: Trouble) -> Result<(), ExportError> {
        let result = trouble.0.map_or(Ok(()), Err);
        *lowtide_pin::sync::lock(&self.last) = result.clone().err();
        result
    }
}

impl Done {
    /// Lists the tenants, parents first, if the tree has changed.
    fn learn_tree(&mut self, pool: &Pool, top: &Path) {
        let state = pool.lock();
        if self.tree == Some(state.names.changes()) {
            return;
        }
        self.tree = Some(state.names.changes());
        let engine: &Engine = &state.engine;
        self.tenants = vec![(MemcgId::ROOT, top.to_owned())];
        let mut at = 0;
        while let Some((id, dir)) = self.tenants.get(at).cloned() {
            let named =
                engine.children(id).filter_map(|child| Some((child, state.names.get(child)?)));
            self.tenants.extend(named.map(|(child, name)| (child, dir.join(escape(&name)))));
            at += 1;
        }
    }

    /// Removes the directories of tenants that are not there any more, the deepest first.
    fn remove_others(&mut self, trouble: &mut Trouble, closing: &AtomicBool) {
        let wanted: std::collections::HashSet<_> =
            self.tenants.iter().map(|(_, dir)| dir).collect();
        let mut others: Vec<_> =
            self.written.keys().filter(|dir| !wanted.contains(dir)).cloned().collect();
        others.sort_by_key(|dir| std::cmp::Reverse(dir.components().count()));
        for dir in others {
            if closing.load(Relaxed) {
                return;
            }
            for file in TenantFile::ALL {
                // What cannot be removed keeps its directory from being removed, which is reported.
                let _ = fs::remove_file(dir.join(file.name()));
            }
            if trouble.check("remove", &dir, unless_missing(fs::remove_dir(&dir))) {
                self.written.remove(&dir);
            }
        }
    }
}

/// Writes a text under another name and renames it.
fn replace(dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    let temporary = dir.join(TEMPORARY);
    let write = || fs::write(&temporary, text);
    let written = match write() {
        // The directory was removed.
        Err(e) if e.kind() == ErrorKind::NotFound => fs::create_dir_all(dir).and_then(|()| write()),
        written => written,
    };
    let result = written.and_then(|()| fs::rename(&temporary, path));
    if result.is_err() {
        // It may be half a text, and the disk may be full of such.
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The name of a tenant's directory.
fn escape(name: &str) -> String {
    use std::fmt::Write as _;
    let looks_like_a_file = name.starts_with("memory.");
    let mut escaped = String::with_capacity(name.len());
    for (at, c) in name.char_indices() {
        let strange = !(c.is_alphanumeric() || "-_.,+=@: ".contains(c))
            || (at == 0 && (c == '.' || looks_like_a_file));
        if strange {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(escaped, "%{byte:02X}");
            }
        } else {
            escaped.push(c);
        }
    }
    if escaped.len() > NAME_BYTES {
        escaped.truncate(escaped.floor_char_boundary(NAME_BYTES - 17));
        // A percent sign that two hexadecimal digits do not follow appears in no other name.
        let _ = write!(escaped, "%~{:015x}", hash(name) >> 4);
    }
    escaped
}

/// FNV-1a: the same in every run and every version.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_stay_and_strange_ones_are_escaped() {
        assert_eq!(escape("index-7 (eu)"), "index-7 %28eu%29");
        assert_eq!(escape("größe"), "größe");
        assert_eq!(
            (escape("."), escape(".."), escape("a.b")),
            ("%2E".into(), "%2E.".into(), "a.b".into())
        );
        assert_eq!(escape("memory.stat"), "%6Demory.stat", "it would be taken for the file");
        assert_eq!(escape("100%\n"), "100%25%0A");
        assert_eq!(
            escape("\u{202E}"),
            "%E2%80%AE",
            "what turns the direction of text is no letter"
        );
    }

    #[test]
    fn long_names_are_cut_and_stay_different() {
        let (a, b) = ("ü".repeat(300) + "a", "ü".repeat(300) + "b");
        assert!(escape(&a).len() <= NAME_BYTES && escape(&a) != escape(&b));
        assert!(escape(&"%".repeat(300)).len() <= NAME_BYTES);
        assert_eq!(escape(&"x".repeat(NAME_BYTES)).len(), NAME_BYTES, "what fits is not cut");
    }
}
