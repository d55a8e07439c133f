//! This program's own file: a command starts itself again for peers, and the library of
//! `lowtide run` lies beside it.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Its path: as /proc says, or without it by the name that it was started by (`AT_EXECFN`).
#[must_use]
pub fn path() -> PathBuf {
    env::current_exe().unwrap_or_else(|_| {
        let named = rustix::param::linux_execfn().to_bytes();
        let path = PathBuf::from(OsStr::from_bytes(named));
        path.canonicalize().unwrap_or(path)
    })
}
