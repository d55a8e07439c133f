//! A descriptor in a process that may close it.
//!
//! A daemon closes all descriptors, those of libraries too, and the numbers become files of its
//! own. To write a page into such a file would destroy it, and to close it would be no better. So
//! before a descriptor is used, the file behind it is compared with the one that was opened. A
//! process that closes and opens descriptors between the comparison and the write is not guarded
//! against; `lowtide run` has a table of descriptors that no program can close.

use rustix::fs::{Stat, fstat};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};

/// An open file, and which one it is.
#[derive(Debug)]
pub(crate) struct Held {
    fd: Option<OwnedFd>,
    file: (u64, u64),
}

impl Held {
    /// Takes a descriptor that was just opened.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, rustix::io::Errno> {
        let file = of(&fstat(&fd)?);
        Ok(Self { fd: Some(fd), file })
    }

    /// The descriptor, and what the kernel says of its file, if it is still the one that was
    /// opened.
    pub(crate) fn get(&self) -> Option<(BorrowedFd<'_>, Stat)> {
        let fd = self.fd.as_ref()?;
        let stat = fstat(fd).ok()?;
        (of(&stat) == self.file).then(|| (fd.as_fd(), stat))
    }

    /// Device and number of the file.
    pub(crate) const fn file(&self) -> (u64, u64) {
        self.file
    }
}

/// Device and number.
pub(crate) const fn of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.get().is_none()
            && let Some(fd) = self.fd.take()
        {
            // The program's by now: it stays open.
            let _ = fd.into_raw_fd();
        }
    }
}
