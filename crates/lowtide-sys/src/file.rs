//! Facts about files, above all those that direct I/O needs.
//!
//! Direct I/O (`O_DIRECT`) moves bytes between a device and the program's own memory, past the page
//! cache. In exchange it has rules: the memory address, the file offset and the length must be
//! multiples of values that depend on file system and device ([`DirectAlign`]), and some file
//! systems refuse it altogether. `statx(2)` reports the rules since Linux 6.1 (`STATX_DIOALIGN`);
//! before that the logical block size of the device is used, from which the rules usually come.
//!
//! # Safety
//!
//! The one unsafe call asks a block device for its size with an `ioctl` whose only effect is to
//! write an integer to memory that `rustix` provides for it. It is made only on a descriptor that
//! is a block device according to `fstat`.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::ioctl::{self, Getter, Opcode};
use thiserror::Error;

/// Asks a block device for its size in bytes. Its number is made with the size of `size_t`, but it
/// writes a `u64`.
const BLKGETSIZE64: Opcode = ioctl::opcode::read::<usize>(0x12, 114);

/// The alignment to assume for a file whose device is unknown: the smallest logical block of disks.
const DIRECT_ALIGN_GUESS: usize = 512;

/// The rules of direct I/O on one file. Both values are powers of two, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectAlign {
    /// Addresses of buffers must be multiples of this.
    pub memory: usize,
    /// File offsets and lengths must be multiples of this.
    pub offset: usize,
}

/// The kind of file behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// A directory.
    Directory,
    /// Anything else: a pipe, socket, character device.
    Other,
}

/// How to [`open`] a file. Start from one of the constructors and set the rest by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Create the file when it is not there (mode 0666 without the umask). Needs `write`.
    pub create: bool,
    /// Create the file, and fail if it is there. Needs `write`.
    pub create_new: bool,
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
}

impl OpenMode {
    /// For reading only, through the page cache.
    pub const READ: OpenMode =
        OpenMode { read: true, write: false, create: false, create_new: false, direct: false };
    /// For reading and writing an existing file, through the page cache.
    pub const READ_WRITE: OpenMode = OpenMode { write: true, ..OpenMode::READ };

    /// The same mode past the page cache.
    #[must_use]
    pub const fn direct(self) -> OpenMode {
        OpenMode { direct: true, ..self }
    }

    /// The same mode, for writing too, creating the file, which must not be there.
    #[must_use]
    pub const fn create_new(self) -> OpenMode {
        OpenMode { write: true, create_new: true, ..self }
    }

    /// The same mode, for writing too, creating the file when it is not there.
    #[must_use]
    pub const fn create(self) -> OpenMode {
        OpenMode { write: true, create: true, ..self }
    }
}

/// Why [`open`] failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file system, or this file, takes no direct I/O.
    #[error(
        "{path} cannot be opened for direct I/O; put it on another file system, or open it \
         without direct I/O"
    )]
    DirectRefused {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened this way at all.
    #[error("cannot open {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> io::Error {
        let kind = match &error {
            OpenError::DirectRefused { .. } => io::ErrorKind::Unsupported,
            OpenError::Io { source, .. } => source.kind(),
        };
        io::Error::new(kind, error)
    }
}

/// Opens a file, close-on-exec, as `mode` says. Never waits for another process to open a pipe or a
/// line, and never gets a controlling terminal: the descriptor tells what kind of file it is.
///
/// # Errors
///
/// [`OpenError::DirectRefused`] when the same open would be valid without `direct`. The kernel
/// finds that out last, so with `create` an empty file may have been made by then; it is left
/// alone, as another process may own it.
pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<File, OpenError> {
    let path = path.as_ref();
    let mut options = OpenOptions::new();
    options.read(mode.read).write(mode.write).create(mode.create).create_new(mode.create_new);
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    flags.set(OFlags::DIRECT, mode.direct);
    options.custom_flags(flags.bits().cast_signed());
    let opened = options.open(path).and_then(|file| {
        // Opening is not to wait; what is done with the descriptor later may.
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
        Ok(file)
    });
    opened.map_err(|source| {
        // The standard library refuses impossible modes itself, without an errno: those are not the
        // file's fault.
        let refused = mode.direct && source.raw_os_error() == Some(Errno::INVAL.raw_os_error());
        let path = path.to_owned();
        if refused { OpenError::DirectRefused { path } } else { OpenError::Io { path, source } }
    })
}

/// Opens the file of a descriptor once more, whatever its names are by now: a new description, with
/// a mode, a position and locks of its own. Needs `/proc`.
///
/// # Errors
///
/// As [`open`]; `ENOENT` where there is no `/proc`.
pub fn reopen(fd: impl AsFd, mode: OpenMode) -> Result<File, OpenError> {
    open(path_of(fd), OpenMode { create: false, create_new: false, ..mode })
}

/// A path that leads to the file of a descriptor, in this thread and those that share its table of
/// descriptors, while the descriptor is open. Needs `/proc`.
#[must_use]
pub fn path_of(fd: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/thread-self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// The rules of direct I/O on this file, or `None` when there is none (a file system that refuses
/// it, a directory, a pipe).
///
/// Where the kernel does not report them (before 6.1, and some file systems), the result is the
/// logical block size of the device, or 512 bytes without a device, if the file can be opened for
/// direct I/O. That is a guess: the first read has the last word.
///
/// # Errors
///
/// What `fstat(2)` or `statx(2)` says about the descriptor.
pub fn direct_alignment(fd: impl AsFd) -> io::Result<Option<DirectAlign>> {
    let fd = fd.as_fd();
    let stat = rustix::fs::fstat(fd)?;
    let kind = kind_of(&stat);
    if !matches!(kind, FileKind::Regular | FileKind::Block) {
        return Ok(None);
    }
    match rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(said) if StatxFlags::from_bits_retain(said.stx_mask).contains(StatxFlags::DIOALIGN) => {
            let (memory, offset) =
                (said.stx_dio_mem_align as usize, said.stx_dio_offset_align as usize);
            return Ok((memory > 0 && offset > 0).then_some(DirectAlign { memory, offset }));
        }
        // Kernels before 4.11 have no statx at all.
        Ok(_) | Err(Errno::NOSYS) => {}
        Err(error) => return Err(error.into()),
    }
    // Without /proc it cannot be tried here.
    if let Err(OpenError::DirectRefused { .. }) = reopen(fd, OpenMode::READ.direct()) {
        return Ok(None);
    }
    let block = match kind {
        FileKind::Block => Some(rustix::fs::ioctl_blksszget(fd)? as usize),
        _ => logical_block_of(stat.st_dev),
    };
    let block = block.unwrap_or(DIRECT_ALIGN_GUESS);
    Ok(Some(DirectAlign { memory: block, offset: block }))
}

/// The logical block size in bytes of the device that holds a file system, if it is one that sysfs
/// knows.
fn logical_block_of(device: u64) -> Option<usize> {
    let node =
        format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    // A partition has no queue of its own; its parent directory is the disk.
    [format!("{node}/queue/logical_block_size"), format!("{node}/../queue/logical_block_size")]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
        .filter(|&bytes: &usize| bytes.is_power_of_two())
}

/// The size in bytes of a regular file or a block device. Leaves the file's position alone.
///
/// # Errors
///
/// `InvalidInput` for what has no size (a directory, a pipe), else what `fstat(2)` or the device
/// says.
pub fn size(fd: impl AsFd) -> io::Result<u64> {
    let fd = fd.as_fd();
    let stat = rustix::fs::fstat(fd)?;
    match kind_of(&stat) {
        FileKind::Regular => Ok(u64::try_from(stat.st_size).unwrap_or(0)),
        FileKind::Block => {
            // SAFETY: BLKGETSIZE64 is documented to write one `u64` to the address it is given and
            // to change nothing else; the number and the type agree.
            let size = unsafe { Getter::<BLKGETSIZE64, u64>::new() };
            // SAFETY: `fd` is an open block device, and the getter provides memory for the answer.
            Ok(unsafe { ioctl::ioctl(fd, size) }?)
        }
        kind => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "a descriptor of kind {kind:?} has no size; give a regular file or a block device"
            ),
        )),
    }
}

/// What the descriptor refers to.
///
/// # Errors
///
/// What `fstat(2)` says about the descriptor.
pub fn kind(fd: impl AsFd) -> io::Result<FileKind> {
    Ok(kind_of(&rustix::fs::fstat(fd)?))
}

fn kind_of(stat: &rustix::fs::Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::Regular,
        FileType::BlockDevice => FileKind::Block,
        FileType::Directory => FileKind::Directory,
        _ => FileKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};
    use std::os::unix::fs::FileExt;

    #[test]
    fn the_alignment_reported_is_one_that_direct_reads_accept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, vec![7u8; 64 << 10]).unwrap();
        let file = match open(&path, OpenMode::READ.direct()) {
            Ok(file) => file,
            Err(OpenError::DirectRefused { .. }) => {
                eprintln!("SKIPPED: this file system refuses direct I/O");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let align = direct_alignment(&file).unwrap().expect("it was opened for direct I/O");
        assert!(align.memory.is_power_of_two() && align.offset.is_power_of_two());

        // A page-aligned buffer, used at the smallest address, offset and length that the answer
        // allows.
        let buffer = crate::memory::Mapping::new(1 << 20, crate::memory::HugePages::Never).unwrap();
        assert!(align.memory + align.offset <= buffer.len());
        // SAFETY: `memory` + `offset` bytes are inside the mapping, committed and zeroed, and known
        // only here.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(buffer.as_ptr(), align.memory + align.offset) };
        let read = file.read_at(&mut bytes[align.memory..], align.offset as u64).unwrap();
        assert_eq!(read, align.offset);
        assert!(bytes[align.memory..].iter().all(|&b| b == 7));
    }

    #[test]
    fn what_takes_no_direct_io_is_told_apart_from_what_is_not_there() {
        let refused = open("/proc/self/status", OpenMode::READ.direct()).unwrap_err();
        assert!(matches!(refused, OpenError::DirectRefused { .. }), "{refused}");
        assert_eq!(io::Error::from(refused).kind(), io::ErrorKind::Unsupported);

        let status = open("/proc/self/status", OpenMode::READ).unwrap();
        assert_eq!(direct_alignment(&status).unwrap(), None);

        let absent = open("/nonexistent/file", OpenMode::READ.direct()).unwrap_err();
        assert!(matches!(&absent, OpenError::Io { source, .. }
                if source.kind() == io::ErrorKind::NotFound));
        assert!(absent.to_string().contains("/nonexistent/file"));

        let impossible = OpenMode { create: true, ..OpenMode::READ.direct() };
        assert!(matches!(open("/tmp", impossible), Err(OpenError::Io { .. })));
    }

    #[test]
    fn modes_grant_what_they_say() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        assert!(open(&path, OpenMode::READ_WRITE).is_err(), "nothing to open yet");
        open(&path, OpenMode::READ.create()).unwrap().write_all(b"abc").unwrap();
        assert!(open(&path, OpenMode::READ).unwrap().write_all(b"x").is_err());
        let mut text = String::new();
        open(&path, OpenMode::READ_WRITE).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc", "opening for creation does not truncate");
    }

    #[test]
    fn a_pipe_is_opened_at_once_and_blocks_later_as_others_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
        let pipe = open(&path, OpenMode::READ).unwrap();
        assert_eq!(kind(&pipe).unwrap(), FileKind::Other);
        assert!(!rustix::fs::fcntl_getfl(&pipe).unwrap().contains(OFlags::NONBLOCK));
    }

    #[test]
    fn a_file_is_opened_again_when_its_name_is_another_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"first").unwrap();
        let file = open(&path, OpenMode::READ).unwrap();
        std::fs::write(dir.path().join("g"), b"second").unwrap();
        std::fs::rename(dir.path().join("g"), &path).unwrap();
        let mut text = String::new();
        reopen(&file, OpenMode::READ_WRITE).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "first");
        assert!(open(&path, OpenMode::READ.create_new()).is_err(), "it is there");
    }

    #[test]
    fn size_and_kind_of_files_directories_and_pipes() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[0; 12345]).unwrap();
        let position = file.stream_position().unwrap();
        assert_eq!(size(&file).unwrap(), 12345);
        assert_eq!(file.stream_position().unwrap(), position);
        assert_eq!(kind(&file).unwrap(), FileKind::Regular);

        let directory = File::open("/").unwrap();
        assert_eq!(kind(&directory).unwrap(), FileKind::Directory);
        assert_eq!(size(&directory).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(direct_alignment(&directory).unwrap(), None);

        let (pipe, _writer) = io::pipe().unwrap();
        assert_eq!(kind(&pipe).unwrap(), FileKind::Other);
    }

    #[test]
    fn block_devices_have_a_size_and_an_alignment() {
        let mut asked = 0;
        for entry in std::fs::read_dir("/sys/class/block").into_iter().flatten().flatten() {
            let Ok(device) = File::open(Path::new("/dev").join(entry.file_name())) else {
                continue;
            };
            let Ok(sectors) = std::fs::read_to_string(entry.path().join("size")) else { continue };
            assert_eq!(kind(&device).unwrap(), FileKind::Block);
            assert_eq!(size(&device).unwrap(), sectors.trim().parse::<u64>().unwrap() * 512);
            if let Some(align) = direct_alignment(&device).unwrap() {
                assert!(align.offset >= 512 && align.offset.is_power_of_two());
            }
            asked += 1;
        }
        if asked == 0 {
            eprintln!("SKIPPED: no block device here may be read");
        }
    }

    #[test]
    fn a_thread_with_descriptors_of_its_own_reopens_its_own_file() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["program", "thread"].map(|name| dir.path().join(name));
        paths.iter().for_each(|path| std::fs::write(path, path.to_str().unwrap()).unwrap());
        let of_program = File::open(&paths[0]).unwrap();
        let number = of_program.as_raw_fd();
        let path = paths[1].clone();
        let read = std::thread::spawn(move || {
            // SAFETY: The call takes a number; the thread owns no descriptor yet.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
            let own = File::open(&path).unwrap();
            // SAFETY: The number is the program's file in this thread's copy of the table, which
            // nothing here uses.
            assert_eq!(unsafe { libc::dup2(own.as_raw_fd(), number) }, number);
            // SAFETY: The duplicate is this thread's.
            let own = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
            let mut text = String::new();
            reopen(own, OpenMode::READ).unwrap().read_to_string(&mut text).unwrap();
            text
        });
        assert_eq!(read.join().unwrap(), paths[1].to_str().unwrap());
    }
}
