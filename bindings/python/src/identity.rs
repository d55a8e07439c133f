//! Which file it is.
//!
//! Device and number tell a file from all others that exist at the time. But a file system gives
//! the number of a deleted file out again, ext4 at once: a file that was replaced has it. So
//! the birth time belongs to it (`statx(2)`; some file systems have none), and for those who only
//! read, the length and the time of the last change.

use crate::errors::OrRaise;
use lowtide_sys::shared::{Rights, SharedMapping, Sharing};
use pyo3::prelude::*;
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Device, number, birth; bytes, last change. Times are in nanoseconds.
pub(crate) type Identity = (u64, u64, Option<i128>, u64, i128);

fn of(folder: BorrowedFd<'_>, path: &Path, flags: AtFlags) -> io::Result<Identity> {
    let found = statx(folder, path, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let ns = |sec: i64, nsec: u32| i128::from(sec) * 1_000_000_000 + i128::from(nsec);
    let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    let born = has_birth.then(|| ns(found.stx_btime.tv_sec, found.stx_btime.tv_nsec));
    let changed = ns(found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec);
    let device = makedev(found.stx_dev_major, found.stx_dev_minor);
    Ok((device, found.stx_ino, born, found.stx_size, changed))
}

/// That of an open file.
pub(crate) fn of_file(file: impl AsFd) -> io::Result<Identity> {
    of(file.as_fd(), Path::new(""), AtFlags::EMPTY_PATH)
}

/// That of the file at a path.
pub(crate) fn of_path(path: &Path) -> io::Result<Identity> {
    of(CWD, path, AtFlags::empty())
}

/// Whether two are of one file, which may have been written to.
pub(crate) fn is_same(one: &Identity, other: &Identity) -> bool {
    (one.0, one.1, one.2) == (other.0, other.1, other.2)
}

/// That of the file at a path, for the package.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "made of an object of Python's")]
pub(crate) fn identity(path: PathBuf) -> PyResult<Identity> {
    of_path(&path).or_raise()
}

/// Device and number of a file as `/proc/self/maps` has them: some file systems have others there
/// than `stat` says. Found by mapping it, which leaves the locks of the program as they are.
pub(crate) fn as_mapped(file: impl AsFd) -> io::Result<(u64, u64)> {
    let map = SharedMapping::map(file, 0, 1, Rights::Read, Sharing::Shared, false)?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let number = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let is_it = (hex(start)?..hex(end)?).contains(&(map.addresses().start as u64));
        let (major, minor) = fields.nth(2)?.split_once(':')?;
        let device = makedev(hex(major)? as u32, hex(minor)? as u32);
        Some((device, fields.next()?.parse().ok()?)).filter(|_| is_it)
    };
    let found = maps.lines().find_map(number);
    found.ok_or_else(|| io::Error::other("a new mapping is not among those of the process"))
}
