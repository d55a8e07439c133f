//! Which files `--map` names.
//!
//! A glob with a slash is compared with the whole path, one without a slash with the file's name.
//! `*` stands for slashes too. The C library's `fnmatch(3)` compares.
//!
//! Threads of the program call this: in a handler of a signal that has interrupted `malloc`, and in
//! a child of a raw `clone(2)`, where another thread's locks stay taken. So nothing is allocated
//! for globs and paths of up to 255 bytes.
//!
//! # Safety
//!
//! `fnmatch` gets two strings that end with a zero and live until it returns.

#![allow(unsafe_code)]

use crate::settings::Settings;
use rustix::path::Arg;
use std::ffi::CStr;

/// The number of the first `--map` that names this path.
pub fn budget_of(settings: &Settings, path: &[u8]) -> Option<usize> {
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
