//! The path of a file that a program uses.
//!
//! Threads of the program ask for it: in a handler of a signal that has interrupted `malloc`, and
//! in a child of a raw `clone(2)`, where another thread's locks stay taken. So paths are on the
//! stack, and nothing is allocated.

use rustix::fs::{CWD, readlinkat_raw};
use std::io::{Cursor, Write};
use std::ops::Deref;

/// Bytes of the longest path that the kernel names.
const PATH_MAX: usize = libc::PATH_MAX as usize;
/// Bytes of the name of a descriptor in /proc.
const NAME_MAX: usize = 40;

/// A path, without memory of an allocator.
#[derive(Clone)]
pub(crate) struct FilePath {
    len: usize,
    bytes: [u8; PATH_MAX],
}

impl Deref for FilePath {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The path of an open file of this thread, as the kernel names it; empty without /proc.
#[inline(never)]
pub(crate) fn path_of(fd: i32) -> FilePath {
    let mut path = FilePath { len: 0, bytes: [0; PATH_MAX] };
    let mut name = Cursor::new([0; NAME_MAX]);
    if write!(name, "/proc/thread-self/fd/{fd}").is_ok() {
        let written = name.position() as usize;
        let link = readlinkat_raw(CWD, &name.get_ref()[..written], &mut path.bytes);
        path.len = link.unwrap_or(0);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_as_the_kernel_names_it_and_of_no_file_empty() {
        use std::os::fd::AsRawFd;
        use std::os::unix::ffi::OsStrExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        let expected = file.path().canonicalize().unwrap();
        assert_eq!(&path_of(file.as_file().as_raw_fd())[..], expected.as_os_str().as_bytes());
        assert_eq!(path_of(-1).len(), 0);
    }
}
