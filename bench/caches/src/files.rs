//! Data files: made for one run, in a folder that goes with it.
//!
//! Records state their number and version, so every read is checked, and after a workload with
//! updates the versions of all records add up to the number of updates: none was lost.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use lowtide_host::file::{drop_page_cache, free_bytes};
use lowtide_workload::record::{self, Payload, RECORD_BYTES};
use tempfile::TempDir;

use crate::error::Error;
use crate::threads::STOP;

/// Bytes that are read or written at a time.
const CHUNK: usize = 1 << 20;

/// The files of a run: equal when they are made.
pub struct Files {
    dir: TempDir,
    contents: Payload,
    bytes: u64,
    /// The files, each with the sum of the versions in it.
    made: Vec<(PathBuf, u64)>,
}

impl Files {
    /// Makes `count` files of `bytes`, of such records, in a new folder within `dir`.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::File`], [`Error::Interrupted`]. What was made is removed.
    pub fn make(dir: &Path, contents: Payload, bytes: u64, count: usize) -> Result<Self, Error> {
        let free = free_bytes(dir).map_err(|error| Error::file("examine", dir, error))?;
        let needed = bytes * count as u64;
        // Some file systems do not count.
        if let Some(free) = free.filter(|free| *free < needed) {
            let (free, needed) = (free >> 20, needed.div_ceil(1 << 20));
            return Err(Error::Full { dir: dir.to_owned(), free, needed });
        }
        let folder = tempfile::Builder::new().prefix("lowtide-caches-").tempdir_in(dir);
        let folder = folder.map_err(|error| Error::file("make a folder in", dir, error))?;
        let mut files = Self { dir: folder, contents, bytes, made: Vec::new() };
        for number in 0..count {
            let path = files.dir.path().join(format!("{number}.data"));
            files.fill(&path)?;
            files.made.push((path, 0));
        }
        Ok(files)
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The path of a file; the first if there are fewer.
    pub fn path(&self, number: usize) -> &Path {
        &self.made.get(number).unwrap_or(&self.made[0]).0
    }

    fn fill(&self, path: &Path) -> Result<(), Error> {
        let failed = |error| Error::file("write", path, error);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        let mut chunk = vec![0; CHUNK];
        for at in (0..self.bytes).step_by(CHUNK) {
            stop()?;
            let part = &mut chunk[..(self.bytes - at).min(CHUNK as u64) as usize];
            let (slots, _) = part.as_chunks_mut::<RECORD_BYTES>();
            for (key, slot) in (at / RECORD_BYTES as u64..).zip(slots) {
                record::fill_with(self.contents, key, 0, slot);
            }
            file.write_all(part).map_err(failed)?;
        }
        file.sync_all().map_err(failed)?;
        drop_page_cache(&file).map_err(failed)
    }

    /// Checks all records of a file, and that there were `updates` since the last time.
    ///
    /// # Errors
    /// [`Error::Wrong`], [`Error::File`], [`Error::Interrupted`].
    pub fn check(&mut self, number: usize, updates: u64, system: &str) -> Result<(), Error> {
        let wrong = |what: String| Error::Wrong { system: system.to_owned(), what };
        let path = self.path(number).to_owned();
        let failed = |error| Error::file("read", &path, error);
        let mut file = File::open(&path).map_err(failed)?;
        drop_page_cache(&file).map_err(failed)?;
        let (mut chunk, mut sum) = (vec![0; CHUNK], 0);
        for at in (0..self.bytes).step_by(CHUNK) {
            stop()?;
            let part = &mut chunk[..(self.bytes - at).min(CHUNK as u64) as usize];
            file.read_exact(part).map_err(failed)?;
            let (slots, _) = part.as_chunks::<RECORD_BYTES>();
            for (key, slot) in (at / RECORD_BYTES as u64..).zip(slots) {
                let version = record::verify(key, slot);
                sum += version.map_err(|error| wrong(format!("on the device: {error}")))?;
            }
        }
        drop_page_cache(&file).map_err(failed)?;
        let before = std::mem::replace(&mut self.made[number].1, sum);
        if sum - before == updates {
            return Ok(());
        }
        Err(wrong(format!("{updates} updates were made, and the file has {}", sum - before)))
    }
}

/// # Errors
/// [`Error::Interrupted`] once a signal has come.
pub fn stop() -> Result<(), Error> {
    if STOP.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_lost_update_and_a_torn_record_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::make(dir.path(), Payload::Random, 1 << 20, 1).unwrap();
        files.check(0, 0, "test").unwrap();
        let file = OpenOptions::new().write(true).open(files.path(0)).unwrap();
        let mut slot = [0; RECORD_BYTES];
        record::fill(5, 1, &mut slot);
        file.write_all_at(&slot, 5 * 1024).unwrap();
        files.check(0, 1, "test").unwrap();
        assert!(files.check(0, 1, "test").is_err(), "an update is missing");
        file.write_all_at(&slot[..100], 7 * 1024).unwrap();
        assert!(files.check(0, 0, "test").is_err(), "record 7 is torn");
    }

    #[test]
    fn a_folder_without_room_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            Files::make(dir.path(), Payload::Random, 1 << 60, 1),
            Err(Error::Full { .. })
        ));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
