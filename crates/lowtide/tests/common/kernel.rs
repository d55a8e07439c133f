//! Loads and stores by the kernel: what would be a signal in the program is an error of a call.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// A file without a name, through which the kernel copies.
#[derive(Debug)]
pub(crate) struct Kernel(File);

impl Kernel {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempfile().expect("a file can be made"))
    }

    /// Copies from memory, wherever it is. None if the kernel cannot read all of it.
    pub(crate) fn load(&self, at: *const u8, bytes: &mut [u8]) -> Option<()> {
        let fd = self.0.as_raw_fd();
        #[expect(unsafe_code, reason = "memory that may be gone")]
        // SAFETY: the kernel checks the addresses, and what is there is bytes.
        let written = unsafe { libc::pwrite(fd, at.cast(), bytes.len(), 0) };
        let all = written == bytes.len().cast_signed();
        all.then(|| self.0.read_exact_at(bytes, 0).expect("it was written"))
    }

    /// Copies into memory that the caller has for itself. None if the kernel cannot store all of
    /// it; then it may have stored a part.
    pub(crate) fn store(&self, at: *mut u8, bytes: &[u8]) -> Option<()> {
        self.0.write_all_at(bytes, 0).expect("the file can be written");
        #[expect(unsafe_code, reason = "memory that may be gone")]
        // SAFETY: the kernel checks the addresses, which are the caller's.
        let read = unsafe { libc::pread(self.0.as_raw_fd(), at.cast(), bytes.len(), 0) };
        (read == bytes.len().cast_signed()).then_some(())
    }
}
