//! The path of a file that is mapped, and which `--map` names it.
//!
//! A glob with a slash is compared with the whole path, one without a slash with the file's name.
//! `*` stands for slashes too. The C library's `fnmatch(3)` compares.
//!
//! Threads of the program call this: in a handler of a signal that has interrupted `malloc`, and in
//! a child of a raw `clone(2)`, where another thread's locks stay taken. So paths are on the stack,
//! and nothing is allocated for those of up to 255 bytes.
//!
//! # Safety
//!
//! `fnmatch` gets two strings that end with a zero and live until it returns.

#![allow(unsafe_code)]

use lowtide_run::settings::Settings;
use rustix::fs::{CWD, readlinkat_raw};
use rustix::path::Arg;
use std::ffi::CStr;
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

/// Number of the first `--map` that names this path.
pub(crate) fn budget_of(settings: &Settings, path: &[u8]) -> Option<usize> {
    settings.maps.iter().position(|(glob, _)| matches(glob.as_encoded_bytes(), path))
}

fn matches(glob: &[u8], path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let subject = if glob.contains(&b'/') { path } else { name };
    let compare = |glob: &CStr, subject: &CStr| {
        // SAFETY: the module's header.
        unsafe { libc::fnmatch(glob.as_ptr(), subject.as_ptr(), 0) }
    };
    let compared =
        glob.into_with_c_str(|glob| subject.into_with_c_str(|subject| Ok(compare(glob, subject))));
    compared == Ok(0)
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
    fn a_glob_names_a_file_by_its_name_or_by_its_path() {
        for (glob, path, expected) in [
            ("*.sst", "/data/db/0001.sst", true),
            ("*.sst", "/data/db.sst/log", false),
            ("/data/*", "/data/db/0001.sst", true),
            ("/data/*.log", "/data/db/0001.sst", false),
            ("[0-9]*", "/data/db/0001.sst", true),
            ("", "/data", false),
        ] {
            assert_eq!(matches(glob.as_bytes(), path.as_bytes()), expected, "{glob} {path}");
        }
    }

    #[test]
    fn a_path_is_as_the_kernel_names_it_and_of_no_file_empty() {
        use std::os::fd::AsRawFd;
        use std::os::unix::ffi::OsStrExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        let expected = file.path().canonicalize().unwrap();
        assert_eq!(&path_of(file.as_file().as_raw_fd())[..], expected.as_os_str().as_bytes());
        assert_eq!(path_of(-1).len(), 0);
    }

    #[test]
    fn the_first_glob_counts() {
        let mut settings = Settings::new(1);
        settings.maps = vec![("*.a".into(), 1), ("x*".into(), 2)];
        assert_eq!(budget_of(&settings, b"/d/x.a"), Some(0));
        assert_eq!(budget_of(&settings, b"/d/x.b"), Some(1));
        assert_eq!(budget_of(&settings, b"/d/y.b"), None);
    }
}
