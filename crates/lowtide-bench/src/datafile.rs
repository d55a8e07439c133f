//! Data files: created once, complete or absent, used by one run at a time, kept for the next.
//!
//! A file is written under a temporary name (`….partial`), synced and then renamed, so a file with
//! a final name is complete; an interruption, an error or a full disk removes the partial file. The
//! name states content and size (`records-1G-2.data` is the second 1 GiB file of records), and the
//! bytes contain their position and checksum, so a file is validated by its name, its length and a
//! sample of its bytes, without other metadata.
//!
//! Every run holds a lock (`flock(2)`) on its files. Two runs on one file would give wrong results,
//! because caches of the same file do not see each other's updates. A user's file is locked only
//! against writers. The run owns the lock; its pagers take no locks, as several of them may read
//! one file.
//!
//! The same fact determines the number of files of a run; see `plan.rs`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use lowtide::Size;
use lowtide_host::file as facts;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::{interrupt, out};

use super::content::{Content, UNIT_BYTES};
use super::error::BenchError;

/// Bytes per write: large enough for any device, small enough to react to Ctrl-C.
const CHUNK_BYTES: usize = 1 << 20;
/// Prefix of the names of files that are never kept.
const SCRATCH: &str = "scratch-";
/// Units of a file that are checked before it is reused, evenly spaced from the first to the last.
const SAMPLES: u64 = 16;

/// A file that a run can use: it exists, and is complete and locked.
#[derive(Debug)]
pub struct DataFile {
    path: PathBuf,
    bytes: u64,
    /// Holds the lock; read-only.
    file: File,
    /// Removed on drop.
    disposable: bool,
}

impl DataFile {
    /// A user's file, and its content.
    ///
    /// # Errors
    /// [`BenchError::File`] when it cannot be read, [`BenchError::NotAFile`] for a directory, pipe
    /// or character device, [`BenchError::Locked`] when a program writes it.
    pub fn of_user(path: &Path, locking: Locking) -> Result<(Self, Content), BenchError> {
        let file = File::open(path).map_err(|source| BenchError::file("open", path, source))?;
        let kind = file
            .metadata()
            .map_err(|source| BenchError::file("examine", path, source))?
            .file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let what =
                if kind.is_dir() { "a directory" } else { "neither a file nor a block device" };
            return Err(BenchError::NotAFile { path: path.to_owned(), what });
        }
        if locking == Locking::Locked
            && matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
        {
            return Err(BenchError::Locked { path: path.to_owned() });
        }
        let bytes = lowtide_sys::file::size(&file)
            .map_err(|source| BenchError::file("find the size of", path, source))?;
        let mut unit = [0; UNIT_BYTES];
        let content = match file.read_exact_at(&mut unit, 0) {
            Ok(()) => Content::recognise(&unit),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Content::Unknown,
            Err(source) => return Err(BenchError::file("read", path, source)),
        };
        Ok((Self { path: path.to_owned(), bytes, file, disposable: false }, content))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is kept after the run.
    pub const fn is_kept(&self) -> bool {
        !self.disposable
    }

    /// The open file, for reading.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Drops the file from the kernel's page cache, so that the first reads come from the device.
    ///
    /// # Errors
    /// [`BenchError::File`].
    pub fn drop_page_cache(&self) -> Result<(), BenchError> {
        facts::drop_page_cache(&self.file)
            .map_err(|source| BenchError::file("drop the page cache of", &self.path, source))
    }
}

impl Drop for DataFile {
    fn drop(&mut self) {
        if self.disposable {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether files are locked while a run uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// They are locked.
    Locked,
    /// They are not locked: `--no-lock`.
    Unlocked,
}

/// Whether other runs can use a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The run keeps its content valid.
    Lasting,
    /// The run rewrites it. It has a different name, is always created, and is never kept.
    Scratch,
}

/// The directory of data files. Drop it after the files: it removes a directory that it created if
/// that is empty.
#[derive(Debug)]
pub struct DataDir {
    dir: PathBuf,
    made_dir: bool,
    keep: bool,
    locking: Locking,
}

impl DataDir {
    /// Opens `dir`, or the default directory, and creates it if necessary. With `keep`, files stay
    /// for the next run.
    ///
    /// # Errors
    /// [`BenchError::File`] when the directory cannot be created, [`BenchError::NotAFile`] when the
    /// path is not a directory, [`BenchError::Foreign`] when the default directory belongs to
    /// another user.
    pub fn open(dir: Option<&Path>, keep: bool, locking: Locking) -> Result<Self, BenchError> {
        let path = dir.map_or_else(default_dir, Path::to_owned);
        let made_dir = match fs::DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(source) => return Err(BenchError::file("make the directory", &path, source)),
        };
        let found =
            fs::metadata(&path).map_err(|source| BenchError::file("examine", &path, source))?;
        if !found.is_dir() {
            return Err(BenchError::file(
                "use as --dir",
                &path,
                io::ErrorKind::NotADirectory.into(),
            ));
        }
        if dir.is_none() && found.uid() != rustix::process::geteuid().as_raw() {
            return Err(BenchError::Foreign { path });
        }
        if locking == Locking::Locked && !made_dir {
            remove_leftovers(&path);
        }
        Ok(Self { dir: path, made_dir, keep, locking })
    }

    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Finds or creates `count` files of `bytes` bytes (a multiple of [`UNIT_BYTES`]) with this
    /// content.
    ///
    /// # Errors
    /// [`BenchError::Busy`], [`BenchError::NoSpace`] before anything is written,
    /// [`BenchError::DiskFull`] or [`BenchError::File`] later, [`BenchError::Interrupted`].
    pub fn prepare(
        &self,
        content: Content,
        bytes: u64,
        count: usize,
        purpose: Purpose,
    ) -> Result<Vec<DataFile>, BenchError> {
        let keep = self.keep && purpose == Purpose::Lasting;
        let prefix = if purpose == Purpose::Scratch { SCRATCH } else { "" };
        let name = format!("{prefix}{}-{}", content.name(), Size::new(bytes));
        let mut paths = Vec::with_capacity(count);
        let mut found = Vec::with_capacity(count);
        for n in 1..=count {
            let path = self.dir.join(format!("{name}-{n}.data"));
            let file = self.find(&path, content, bytes, purpose)?;
            // A file for this run alone has a scratch name, in case the run is killed.
            let once = file.is_none() && !keep && purpose == Purpose::Lasting;
            paths.push(if once {
                self.dir.join(format!("{SCRATCH}{name}-{n}.data"))
            } else {
                path
            });
            found.push(file);
        }
        let missing = found.iter().filter(|file| file.is_none()).count() as u64;
        let needed = missing.saturating_mul(bytes);
        self.check_free(needed)?;
        let mut progress = Patient::new("making data files", Unit::Bytes, needed);
        let mut files = Vec::with_capacity(count);
        for (path, file) in paths.iter().zip(found) {
            files.push(match file {
                Some(file) => file,
                None => make(path, bytes, (keep, self.locking), |file| {
                    write_content(content, bytes, file, &mut progress)
                })?,
            });
        }
        Ok(files)
    }

    /// An empty, locked file of this name for a run to write. It is never complete: it is removed
    /// on drop or, after a kill, by the next run with that name.
    ///
    /// # Errors
    /// [`BenchError::Busy`], [`BenchError::File`].
    pub fn scratch(&self, name: &str) -> Result<Scratch, BenchError> {
        Partial::create(&self.dir.join(format!("{name}.data")), self.locking).map(Scratch)
    }

    /// Fails if the directory has less than `needed` free bytes, as far as its file system says.
    ///
    /// # Errors
    /// [`BenchError::NoSpace`].
    pub fn check_free(&self, needed: u64) -> Result<(), BenchError> {
        let free = facts::free_bytes(&self.dir)
            .map_err(|source| BenchError::file("examine", &self.dir, source))?;
        match free {
            Some(free) if needed > free => {
                Err(BenchError::NoSpace { path: self.dir.clone(), needed, free })
            }
            _ => Ok(()),
        }
    }

    /// A complete file of an earlier run. Removes a file whose content does not match its name, and
    /// a scratch file, which only a killed run leaves behind.
    fn find(
        &self,
        path: &Path,
        content: Content,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<Option<DataFile>, BenchError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(BenchError::file("open", path, source)),
        };
        lock(&file, path, self.locking)?;
        if purpose == Purpose::Lasting {
            if sample_is_right(&file, content, bytes) {
                return Ok(Some(DataFile {
                    path: path.to_owned(),
                    bytes,
                    file,
                    disposable: !self.keep,
                }));
            }
            out::note(format_args!("{} is damaged and is made again", path.display()));
        }
        fs::remove_file(path).map_err(|source| BenchError::file("remove", path, source))?;
        Ok(None)
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if self.made_dir {
            // Fails while the directory contains files; then it stays.
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

/// Creates a file with `write`, which receives it empty. A failure leaves no file.
fn make(
    path: &Path,
    bytes: u64,
    (keep, locking): (bool, Locking),
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<DataFile, BenchError> {
    let mut partial = Partial::create(path, locking)?;
    let written = write(&mut partial.file);
    interrupt::check(|| format!("making the data file {}", path.display()))?;
    written
        .and_then(|()| partial.file.sync_data())
        .map_err(|source| BenchError::file("write", path, source))?;
    let file = partial.complete(path)?;
    Ok(DataFile { path: path.to_owned(), bytes, file, disposable: !keep })
}

/// A temporary file that a run writes. Its name ends with `.data.partial`.
#[derive(Debug)]
pub struct Scratch(Partial);

impl Scratch {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The open file.
    pub const fn file(&self) -> &File {
        &self.0.file
    }
}

/// An incomplete file under its temporary name. Removed on drop.
#[derive(Debug)]
struct Partial {
    path: PathBuf,
    file: File,
    complete: bool,
}

impl Partial {
    fn create(path: &Path, locking: Locking) -> Result<Self, BenchError> {
        let partial = path.with_extension("data.partial");
        match File::open(&partial) {
            // Left by a run that was killed, unless another run still writes it.
            Ok(old) => {
                lock(&old, &partial, locking)?;
                fs::remove_file(&partial)
                    .map_err(|source| BenchError::file("remove", &partial, source))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(BenchError::file("open", &partial, source)),
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&partial)
            .map_err(|source| BenchError::file("make", &partial, source))?;
        let partial = Self { path: partial, file, complete: false };
        lock(&partial.file, &partial.path, locking)?;
        Ok(partial)
    }

    /// Renames the file to its final name. The lock stays, as it is on the file, not on the name.
    fn complete(mut self, path: &Path) -> Result<File, BenchError> {
        let file =
            self.file.try_clone().map_err(|source| BenchError::file("open", path, source))?;
        fs::rename(&self.path, path).map_err(|source| BenchError::file("rename", path, source))?;
        self.complete = true;
        Ok(file)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.complete {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The user's `lowtide-bench-UID` in the temporary directory, or in `/var/tmp` if the former is in
/// memory, which would make the measurement meaningless.
fn default_dir() -> PathBuf {
    let temporary = std::env::temp_dir();
    let in_memory = matches!(facts::fs_name(&temporary).as_deref(), Ok("tmpfs" | "ramfs"));
    let base = if in_memory { PathBuf::from("/var/tmp") } else { temporary };
    base.join(format!("lowtide-bench-{}", rustix::process::geteuid().as_raw()))
}

/// Removes files that killed runs have left in the directory: scratch files and unfinished files.
/// Files of other runs are locked and stay. Nothing depends on the removal, so a file that cannot
/// be removed is left to the run that needs its name.
fn remove_leftovers(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let unfinished = name.ends_with(".data.partial");
        let scratch = name.starts_with(SCRATCH) && name.ends_with(".data");
        if (unfinished || scratch) && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let path = entry.path();
            if File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
                let _ = fs::remove_file(&path);
            }
        }
    }
}

fn lock(file: &File, path: &Path, locking: Locking) -> Result<(), BenchError> {
    if locking == Locking::Unlocked {
        return Ok(());
    }
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(BenchError::Busy { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => {
            Err(BenchError::NoLocks { path: path.to_owned(), source })
        }
    }
}

fn sample_is_right(file: &File, content: Content, bytes: u64) -> bool {
    let last = (bytes / UNIT_BYTES as u64).saturating_sub(1);
    lowtide_sys::file::size(file).is_ok_and(|size| size == bytes)
        && (0..SAMPLES).all(|n| {
            let index = (u128::from(last) * u128::from(n) / u128::from(SAMPLES - 1)) as u64;
            let mut unit = [0; UNIT_BYTES];
            file.read_exact_at(&mut unit, index * UNIT_BYTES as u64).is_ok()
                && content.check(index, &unit)
        })
}

/// Writes the whole content. An interruption stops it early without an error.
fn write_content(
    content: Content,
    bytes: u64,
    out: &mut impl Write,
    progress: &mut Patient,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    while offset < bytes && !interrupt::requested() {
        let len = usize::try_from(bytes - offset).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        content.fill(offset, &mut chunk[..len]);
        out.write_all(&chunk[..len])?;
        offset += len as u64;
        progress.add(len as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn data_dir(dir: &Path) -> DataDir {
        DataDir::open(Some(dir), true, Locking::Locked).unwrap()
    }

    #[test]
    fn a_complete_file_is_used_again_and_a_damaged_one_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = data_dir(dir.path());
        let inode = |file: &DataFile| file.file().metadata().unwrap().ino();
        let first = data_dir.prepare(Content::Records, 64 << 10, 2, Purpose::Lasting).unwrap();
        let inodes: Vec<u64> = first.iter().map(inode).collect();
        drop(first);
        assert_eq!(names(dir.path()), ["records-64K-1.data", "records-64K-2.data"]);

        let damaged =
            OpenOptions::new().write(true).open(dir.path().join("records-64K-2.data")).unwrap();
        damaged.write_all_at(&[1; 10], (64 << 10) - 500).unwrap();
        let second = data_dir.prepare(Content::Records, 64 << 10, 2, Purpose::Lasting).unwrap();
        assert_eq!(inode(&second[0]), inodes[0]);
        assert!(sample_is_right(second[1].file(), Content::Records, 64 << 10));
    }

    #[test]
    fn two_runs_do_not_share_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let _used =
            data_dir(dir.path()).prepare(Content::Blocks, 8 << 10, 1, Purpose::Lasting).unwrap();
        let error = data_dir(dir.path())
            .prepare(Content::Blocks, 8 << 10, 1, Purpose::Lasting)
            .unwrap_err();
        assert!(matches!(error, BenchError::Busy { .. }), "{error}");
        let unlocked = DataDir::open(Some(dir.path()), true, Locking::Unlocked).unwrap();
        assert!(unlocked.prepare(Content::Blocks, 8 << 10, 1, Purpose::Lasting).is_ok());
    }

    #[test]
    fn a_file_that_somebody_writes_is_read_only_without_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let used =
            data_dir(dir.path()).prepare(Content::Blocks, 8 << 10, 1, Purpose::Lasting).unwrap();
        let path = used[0].path();
        assert!(matches!(DataFile::of_user(path, Locking::Locked), Err(BenchError::Locked { .. })));
        assert!(DataFile::of_user(path, Locking::Unlocked).is_ok());
    }

    #[test]
    fn a_disk_that_fills_up_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let full = |file: &mut File| {
            file.write_all(&[1; 4096])?;
            Err(io::ErrorKind::StorageFull.into())
        };
        let error =
            make(&dir.path().join("x.data"), 8192, (true, Locking::Locked), full).unwrap_err();
        assert!(matches!(error, BenchError::DiskFull { .. }), "{error}");
        assert!(error.to_string().contains("--dir"), "{error}");
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn too_little_space_is_said_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let error =
            data_dir(dir.path()).prepare(Content::Words, 1 << 60, 3, Purpose::Lasting).unwrap_err();
        assert!(matches!(error, BenchError::NoSpace { .. }), "{error}");
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn a_partial_file_of_a_killed_run_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("words-8K-1.data.partial"), b"half").unwrap();
        let files =
            data_dir(dir.path()).prepare(Content::Words, 8 << 10, 1, Purpose::Lasting).unwrap();
        assert_eq!(names(dir.path()), ["words-8K-1.data"]);
        assert!(sample_is_right(files[0].file(), Content::Words, 8 << 10));
    }

    #[test]
    fn the_next_run_removes_what_a_killed_one_has_left_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let kept =
            data_dir(dir.path()).prepare(Content::Words, 8 << 10, 1, Purpose::Lasting).unwrap();
        let once = DataDir::open(Some(dir.path()), false, Locking::Locked).unwrap();
        let running = once.prepare(Content::Words, 16 << 10, 1, Purpose::Lasting).unwrap();
        for name in
            ["scratch-words-32K-1.data", "blocks-1G-1.data.partial", "notes.txt", "scratch-list"]
        {
            fs::write(dir.path().join(name), b"left").unwrap();
        }
        drop(data_dir(dir.path()));
        let stay = ["notes.txt", "scratch-list", "scratch-words-16K-1.data", "words-8K-1.data"];
        assert_eq!(names(dir.path()), stay);
        drop((running, kept, once));
        assert_eq!(names(dir.path()), ["notes.txt", "scratch-list", "words-8K-1.data"]);
    }

    #[test]
    fn without_keep_files_and_directory_go() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("made");
        let data_dir = DataDir::open(Some(&dir), false, Locking::Locked).unwrap();
        let files = data_dir.prepare(Content::Words, 8 << 10, 2, Purpose::Lasting).unwrap();
        assert_eq!(names(&dir).len(), 2);
        drop(files);
        drop(data_dir);
        assert!(!dir.exists());
    }

    #[test]
    fn a_scratch_file_is_always_made_and_never_kept() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("scratch-blocks-8K-1.data"), [7; 8 << 10]).unwrap();
        let files =
            data_dir(dir.path()).prepare(Content::Blocks, 8 << 10, 1, Purpose::Scratch).unwrap();
        assert!(sample_is_right(files[0].file(), Content::Blocks, 8 << 10));
        drop(files);
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn only_files_and_block_devices_are_data() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            DataFile::of_user(dir.path(), Locking::Locked),
            Err(BenchError::NotAFile { .. })
        ));
        assert!(matches!(
            DataFile::of_user(Path::new("/dev/null"), Locking::Locked),
            Err(BenchError::NotAFile { .. })
        ));
        assert!(matches!(
            DataFile::of_user(&dir.path().join("absent"), Locking::Locked),
            Err(BenchError::File { .. })
        ));
    }
}
