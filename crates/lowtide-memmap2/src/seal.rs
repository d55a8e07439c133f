//! Which files no process can change, so that mapping them is safe.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// `STATX_ATTR_VERITY` of `statx(2)`: the file's blocks are checked against a hash, and the file
/// cannot be written.
const VERITY: u64 = 0x10_0000;

/// Why a file is not mapped by [`MmapOptions::map_if_safe`](crate::MmapOptions::map_if_safe). It
/// becomes an [`io::Error`] by `?`.
pub struct MapIfSafeError(Why);

#[derive(Debug)]
enum Why {
    NotSafe(io::Error),
    Failed(io::Error),
}

impl MapIfSafeError {
    fn unsafe_because(text: impl Into<String>) -> Self {
        let text = format!("fd is not safe to map: {}", text.into());
        Self(Why::NotSafe(io::Error::new(io::ErrorKind::InvalidInput, text)))
    }

    pub(crate) fn failed(error: io::Error) -> Self {
        Self(Why::Failed(error))
    }

    /// Whether the system has no such files. Never, on Linux.
    #[must_use]
    pub fn not_supported(&self) -> bool {
        false
    }

    /// Whether a process could change the file, or what is to be mapped is not in it.
    #[must_use]
    pub fn not_safe(&self) -> bool {
        matches!(self.0, Why::NotSafe(_))
    }

    /// Whether the file is safe, and cannot be mapped.
    #[must_use]
    pub fn map_failed(&self) -> bool {
        matches!(self.0, Why::Failed(_))
    }
}

impl fmt::Display for MapIfSafeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Why::NotSafe(error) | Why::Failed(error)) = &self.0;
        fmt::Display::fmt(error, f)
    }
}

impl fmt::Debug for MapIfSafeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Error for MapIfSafeError {}

impl From<MapIfSafeError> for io::Error {
    fn from(error: MapIfSafeError) -> Self {
        let (Why::NotSafe(error) | Why::Failed(error)) = error.0;
        error
    }
}

/// Whether these bytes of the file can be neither changed nor cut off.
pub(crate) fn check(file: RawFd, offset: u64, len: usize) -> Result<(), MapIfSafeError> {
    // SAFETY: the call takes any number, and changes nothing.
    let seals = unsafe { libc::fcntl(file, libc::F_GET_SEALS) };
    let needed = libc::F_SEAL_SHRINK | libc::F_SEAL_WRITE;
    if seals >= 0 && seals & needed != needed {
        let text = "a memfd needs the seals F_SEAL_SHRINK and F_SEAL_WRITE";
        return Err(MapIfSafeError::unsafe_because(text));
    }
    // SAFETY: the caller's descriptor is open during the call.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    let flags = rustix::fs::AtFlags::EMPTY_PATH;
    let stat = rustix::fs::statx(file, "", flags, rustix::fs::StatxFlags::SIZE)
        .map_err(|error| MapIfSafeError::unsafe_because(format!("statx(2): {error}")))?;
    if seals < 0 && stat.stx_attributes.bits() & VERITY == 0 {
        return Err(MapIfSafeError::unsafe_because("it is no memfd, and has no fs-verity"));
    }
    let end = offset.checked_add(len as u64);
    if end.is_none_or(|end| end > stat.stx_size) {
        let text = format!("{len} bytes at {offset} are not in a file of {}", stat.stx_size);
        return Err(MapIfSafeError::unsafe_because(text));
    }
    Ok(())
}
