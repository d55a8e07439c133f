//! What slots are on: the interface, and the file without a name.
//!
//! The file is opened with `O_TMPFILE` and `O_EXCL`, so that it never has a name and never gets
//! one: when the last descriptor closes, for whatever reason, its space is free. File systems
//! without that (some network and overlay file systems) get a file that is created with a random
//! name for its owner only and unlinked at once; if the process is killed between these two calls,
//! an empty file stays.
//!
//! A file must not be larger than the process may write (`ulimit -f`): the first page beyond would
//! be the end of the process, by `SIGXFSZ`, long after the file was made. So that is looked at
//! before.
//!
//! With `O_DIRECT` the pages bypass the page cache, where each would take its memory twice. If the
//! file system refuses that, or the device's blocks are larger than a page, which a trial write
//! finds out, the file is buffered.

use super::buffers::AlignedBuffer;
use crate::error::CreateError;
use crate::source::PAGE_BYTES;
use rustix::fs::{Advice, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes at offsets, like a file or a device. Offsets and lengths are multiples of
/// [`PAGE_BYTES`], and buffers begin at multiples of it.
pub trait Backing: Send + Sync {
    /// Writes some or all of the bytes, as `pwrite(2)`. Returns how many.
    ///
    /// # Errors
    /// As the device says. [`TimedOut`](io::ErrorKind::TimedOut): the bytes may still be written,
    /// until [`is_settled`](Backing::is_settled).
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Reads some or all of the bytes, as `pread(2)`. Returns how many; 0 at the end of the file.
    ///
    /// # Errors
    /// As the device says.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Whether no write that has timed out may still reach the device.
    fn is_settled(&self) -> bool {
        true
    }

    /// Gives the space of a range back. It may read as anything afterwards.
    ///
    /// # Errors
    /// As the file system says.
    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()>;
}

/// A file without a name, which ends with the process.
#[derive(Debug)]
pub struct UnlinkedFile {
    file: File,
    direct: bool,
}

/// What refuses `O_TMPFILE`: file systems without it, and kernels that take it for a directory.
const NO_TMPFILE: [Errno; 4] = [Errno::OPNOTSUPP, Errno::ISDIR, Errno::NOENT, Errno::INVAL];

impl UnlinkedFile {
    /// Creates a file in a directory, which is to have up to `bytes`.
    ///
    /// # Errors
    /// [`CreateError::Io`]; [`CreateError::Limit`].
    pub fn create(dir: &Path, bytes: u64) -> Result<UnlinkedFile, CreateError> {
        if let Some(limit) = getrlimit(Resource::Fsize).current.filter(|limit| *limit < bytes) {
            return Err(CreateError::Limit { bytes, limit });
        }
        let failed = |source| CreateError::Io { action: "create", dir: dir.to_owned(), source };
        let tried = |source| CreateError::Io { action: "write", dir: dir.to_owned(), source };
        if let Ok(file) = open(dir, OFlags::DIRECT) {
            let direct = UnlinkedFile { file, direct: true };
            if direct.trial().is_ok() {
                return Ok(direct);
            }
        }
        // Not directly, then, or not at all: the second trial knows.
        let file = open(dir, OFlags::empty()).map_err(failed)?;
        // The kernel must not read ahead by itself: most of it would be wasted.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        let buffered = UnlinkedFile { file, direct: false };
        buffered.trial().map_err(tried)?;
        Ok(buffered)
    }

    /// Whether the pages bypass the page cache.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.direct
    }

    fn trial(&self) -> io::Result<()> {
        let mut page = AlignedBuffer::new(PAGE_BYTES);
        write_all(self, page.bytes(), 0)?;
        self.file.set_len(0)
    }
}

/// Opens a file without a name, or one whose name is gone at once.
fn open(dir: &Path, flags: OFlags) -> io::Result<File> {
    let owner = Mode::RUSR | Mode::WUSR;
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
    match rustix::fs::open(dir, flags | OFlags::TMPFILE, owner) {
        Ok(fd) => return Ok(fd.into()),
        Err(error) if NO_TMPFILE.contains(&error) => {}
        Err(error) => return Err(error.into()),
    }
    open_and_unlink(dir, flags, owner)
}

/// Opens a file with a name that no other file has, and removes the name.
fn open_and_unlink(dir: &Path, flags: OFlags, owner: Mode) -> io::Result<File> {
    let random = RandomState::new().build_hasher().finish();
    let path = dir.join(format!(".lowtide-swap-{random:016x}"));
    let opened = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::NOFOLLOW, owner);
    if !matches!(opened, Err(Errno::EXIST)) {
        // Some file systems create the file before they refuse a flag.
        let unlinked = rustix::fs::unlink(&path);
        if opened.is_ok() {
            unlinked?;
        }
    }
    Ok(opened?.into())
}

impl Backing for UnlinkedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(&self.file, bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.file, bytes, offset)
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, hole, offset, bytes)?)
    }
}

/// Writes all of the bytes.
pub(super) fn write_all(backing: &impl Backing, bytes: &[u8], offset: u64) -> io::Result<()> {
    let write = |done: usize| backing.write_at(&bytes[done..], offset + done as u64);
    move_all(bytes.len(), io::ErrorKind::WriteZero, write)
}

/// Reads all of the bytes; the end of the file is an error.
pub(super) fn read_all(backing: &impl Backing, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    let len = bytes.len();
    let read = |done: usize| backing.read_at(&mut bytes[done..], offset + done as u64);
    move_all(len, io::ErrorKind::UnexpectedEof, read)
}

/// Calls `step` with the number of bytes that it has moved until these are `len`; a step that moves
/// none is an error.
fn move_all(
    len: usize,
    none: io::ErrorKind,
    mut step: impl FnMut(usize) -> io::Result<usize>,
) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        match step(done) {
            Ok(0) => return Err(none.into()),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    #[cfg_attr(miri, ignore = "opens files")]
    fn the_file_has_no_name_and_is_for_its_owner_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = UnlinkedFile::create(dir.path(), 1 << 20).expect("a file");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
        let data = file.file.metadata().expect("metadata");
        assert_eq!((data.mode() & 0o7777 & !0o600, data.nlink(), data.len()), (0, 0, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens files")]
    fn the_file_takes_pages_and_gives_space_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = UnlinkedFile::create(dir.path(), 1 << 20).expect("a file");
        let mut buffer = AlignedBuffer::new(64 * PAGE_BYTES);
        buffer.bytes().fill(7);
        write_all(&file, buffer.bytes(), 64 * 4096).expect("a write");
        let blocks = |file: &UnlinkedFile| file.file.metadata().expect("metadata").blocks();
        let before = blocks(&file);
        assert!(before >= 64 * 8, "{before} blocks of 512 bytes");
        buffer.bytes().fill(0);
        let n = Backing::read_at(&file, buffer.bytes(), 64 * 4096).expect("a read");
        assert!(n > 0 && buffer.bytes()[..n].iter().all(|&byte| byte == 7));
        match file.punch(64 * 4096, 64 * 4096) {
            Ok(()) => assert!(blocks(&file) < before, "{before} → {}", blocks(&file)),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens files")]
    fn without_o_tmpfile_the_name_is_gone_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
        let owner = Mode::RUSR | Mode::WUSR;
        let file = open_and_unlink(dir.path(), flags, owner).expect("a file");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
        let data = file.metadata().expect("metadata");
        assert_eq!((data.mode() & 0o7777 & !0o600, data.nlink(), data.len()), (0, 0, 0));
        let file = UnlinkedFile { file, direct: false };
        file.trial().expect("it can be written");
        // A flag that is refused leaves no name, either.
        let refused = open_and_unlink(dir.path(), flags | OFlags::DIRECTORY, owner);
        assert!(refused.is_err(), "a regular file is no directory");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens files")]
    fn a_directory_that_does_not_exist_is_an_error_that_names_it() {
        let error = UnlinkedFile::create(Path::new("/no such directory"), 1).expect_err("no file");
        assert!(error.to_string().contains("/no such directory"), "{error}");
    }
}
