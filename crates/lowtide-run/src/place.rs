//! Where the table of shares is: its file, and what killed programs have left of theirs.
//!
//! The file's name is in the environment, with the number of the user who made it. A process of
//! another user may not open it, so the processes of each user have a file of their own, whose name
//! differs in that number alone: a program with two users has two budgets, and not one for each
//! process. The file is in memory, or in `/tmp` where memory has no room: a file that is there
//! already comes first, so that all find the same one.
//!
//! **Room is promised when the file is made** (`fallocate(2)`): the table is written through a
//! mapping, and a store for which the kernel has no page is `SIGBUS`.
//!
//! **The gate.** Bytes of the file stand for the slots of the table, and their locks for processes
//! ([`lowtide_sys::locks`]). To remove the file a process locks all of them, with one more, the
//! gate: that fails while any other has a slot. One that comes meanwhile finds the gate locked, or
//! the file gone when it has its slot, and begins again. No process waits for another without end,
//! also if that is stopped where it has the gate.

use lowtide_sys::locks::{is_locked, try_lock};
use rustix::fs::{Access, FallocateFlags, Mode, OFlags, access, fallocate, fstat, open, stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Folders in memory, or that are emptied now and then.
const FOLDERS: [&str; 2] = ["/dev/shm", "/tmp"];
/// What names of these files begin with.
const PREFIX: &str = "lowtide-run-";
/// The byte that is locked while the file is removed: past those of all slots.
const GATE: u64 = 1 << 32;

/// A path for a new table, which the first process that takes a slot makes; `None` where there is
/// no folder for it. Removes what is left of programs that were killed.
#[must_use]
pub fn new_path() -> Option<PathBuf> {
    let may = |folder: &&&Path| access(**folder, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    let folders = FOLDERS.map(Path::new);
    folders.iter().filter(may).for_each(|folder| remove_left(folder));
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let (prefix, process) = (prefix_of(geteuid().as_raw()), std::process::id());
    folders.iter().find(may).map(|folder| folder.join(format!("{prefix}{process}-{since:x}")))
}

fn prefix_of(user: u32) -> String {
    format!("{PREFIX}{user}-")
}

/// Removes files that no process has a share in: root those of all users, since its programs make
/// them, too. A process that comes to use one makes it again.
fn remove_left(folder: &Path) {
    let user = geteuid();
    let prefix = if user.is_root() { PREFIX.to_owned() } else { prefix_of(user.as_raw()) };
    let is_ours = |name: &OsStr| name.as_encoded_bytes().starts_with(prefix.as_bytes());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_ours(&entry.file_name())
            && let Ok(left) = TableFile::at(entry.path(), OFlags::NONBLOCK)
        {
            left.remove_if_unused();
        }
    }
}

/// Where a process of this user looks for the table of a path, one after the other.
fn places(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let rest = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    let Some((_, rest)) = rest else { return vec![path.to_owned()] };
    let name = format!("{}{rest}", prefix_of(geteuid().as_raw()));
    let mut places = vec![path.with_file_name(&name)];
    places.extend(FOLDERS.map(|folder| Path::new(folder).join(&name)));
    places.dedup();
    places
}

/// The file of a table, open. Its locks are this open file's.
#[derive(Debug)]
pub(crate) struct TableFile {
    path: PathBuf,
    file: File,
}

impl TableFile {
    /// Opens the file that other processes of this user share, or makes one of `bytes` bytes.
    ///
    /// # Errors
    /// Those of making it; that there is no room for it.
    pub(crate) fn open(path: &Path, bytes: u64) -> io::Result<Self> {
        let places = places(path);
        if let Some(found) = places.iter().find_map(|place| Self::there(place, bytes).ok()) {
            return Ok(found);
        }
        let mut failure = None;
        for place in places {
            match Self::at(place, OFlags::CREATE).and_then(|made| made.with(bytes)) {
                Ok(made) => return Ok(made),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }

    fn there(path: &Path, bytes: u64) -> io::Result<Self> {
        Self::at(path.to_owned(), OFlags::empty())?.with(bytes)
    }

    fn at(path: PathBuf, more: OFlags) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | more;
        let file = File::from(open(&path, flags, Mode::RUSR | Mode::WUSR)?);
        Ok(Self { path, file })
    }

    /// The same with `bytes` bytes at least, if it is this user's.
    fn with(self, bytes: u64) -> io::Result<Self> {
        if fstat(&self.file)?.st_uid != geteuid().as_raw() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.grow(bytes).inspect_err(|_| self.remove_if_unused())?;
        Ok(self)
    }

    /// Ensures that the file has this many bytes, which can be written.
    ///
    /// # Errors
    /// Those of `fallocate(2)`: there is no room.
    pub(crate) fn grow(&self, bytes: u64) -> io::Result<()> {
        if self.file.metadata()?.len() >= bytes {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            // Not a file system in memory: its pages are there before they have a place on a disk.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.file.set_len(bytes),
            done => Ok(done?),
        }
    }

    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Whether another process is about to remove the file.
    pub(crate) fn is_going(&self) -> bool {
        is_locked(&self.file, GATE..GATE + 1).unwrap_or(false)
    }

    /// Whether its path leads to it still: a process that comes would find it.
    pub(crate) fn is_there(&self) -> bool {
        let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let (own, found) = (fstat(&self.file).map(identity), stat(&self.path).map(identity));
        own.is_ok() && own == found
    }

    /// Takes the byte of a slot; whether no other process has it.
    ///
    /// # Errors
    /// Those of the lock.
    pub(crate) fn take(&self, slot: usize) -> io::Result<bool> {
        try_lock(&self.file, byte(slot))
    }

    /// Whether another process has a slot.
    pub(crate) fn is_taken(&self, slot: usize) -> bool {
        is_locked(&self.file, byte(slot)).unwrap_or(true)
    }

    /// Removes the file, unless another process has a slot. No slot can be taken after that.
    pub(crate) fn remove_if_unused(&self) {
        if try_lock(&self.file, 0..GATE + 1).unwrap_or(false) && self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The byte that stands for a slot.
const fn byte(slot: usize) -> Range<u64> {
    slot as u64..slot as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_process_uses_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let own = prefix_of(geteuid().as_raw());
        let path = |name: &str| dir.path().join(format!("{own}{name}"));
        for name in ["used", "unused"] {
            fs::write(path(name), [0; 64]).unwrap();
        }
        let of_another = dir.path().join(format!("{PREFIX}4711-left"));
        fs::write(&of_another, [0; 64]).unwrap();
        fs::write(dir.path().join("another"), "").unwrap();
        let used = File::options().write(true).open(path("used")).unwrap();
        assert!(try_lock(&used, 7..8).unwrap());
        remove_left(dir.path());
        assert!(path("used").exists() && !path("unused").exists());
        assert!(dir.path().join("another").exists());
        assert_eq!(of_another.exists(), !geteuid().is_root());
    }

    #[test]
    fn each_user_has_a_table_of_a_path_which_all_of_its_processes_find() {
        let own = geteuid().as_raw();
        let of_another = PathBuf::from(format!("/dev/shm/{PREFIX}4711-12-ab"));
        let name = format!("{PREFIX}{own}-12-ab");
        let expected = FOLDERS.map(|folder| Path::new(folder).join(&name));
        assert_eq!(places(&of_another), expected);
        assert_eq!(places(Path::new("/x/table")), [Path::new("/x/table")]);
    }
}
