//! The path of a file that is mapped, and which `--map` names it.
//!
//! A glob with a slash is compared with the whole path, one without a slash with the file's name.
//! `*` stands for slashes too. The C library's `fnmatch(3)` compares.
//!
//! # Safety
//!
//! `fnmatch` gets two strings that end with a zero and live until it returns.

#![allow(unsafe_code)]

use crate::settings::Settings;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

/// Number of the first `--map` that names this path.
pub(crate) fn budget_of(settings: &Settings, path: &[u8]) -> Option<usize> {
    settings.maps.iter().position(|(glob, _)| matches(glob.as_bytes(), path))
}

fn matches(glob: &[u8], path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let subject = if glob.contains(&b'/') { path } else { name };
    let (Ok(glob), Ok(subject)) = (CString::new(glob), CString::new(subject)) else {
        return false;
    };
    // SAFETY: the module's header.
    unsafe { libc::fnmatch(glob.as_ptr(), subject.as_ptr(), 0) == 0 }
}

/// The path of an open file of this thread, as the kernel names it; empty without /proc.
pub(crate) fn path_of(fd: i32) -> Vec<u8> {
    let link = std::fs::read_link(format!("/proc/thread-self/fd/{fd}"));
    link.map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default()
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
    fn the_first_glob_counts() {
        let mut settings = Settings::new(1);
        settings.maps = vec![("*.a".into(), 1), ("x*".into(), 2)];
        assert_eq!(budget_of(&settings, b"/d/x.a"), Some(0));
        assert_eq!(budget_of(&settings, b"/d/x.b"), Some(1));
        assert_eq!(budget_of(&settings, b"/d/y.b"), None);
    }
}
