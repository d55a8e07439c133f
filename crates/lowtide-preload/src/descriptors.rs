//! The table of descriptors of our threads, and the program's standard error, which is not in it.
//!
//! # Safety
//!
//! A text is written, of its length; a thread leaves a table of which it owns nothing.

#![allow(unsafe_code)]

use crate::tasks::Tasks;
use crate::{own, state};
use lowtide_sys::descriptors::{duplicate, make_own_empty};
use lowtide_sys::room;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::getpid;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Gives the calling thread, and those that it starts, the room ([`lowtide_sys::room`]).
///
/// # Errors
/// Those of [`make_own_empty`].
pub(crate) fn make_own() -> io::Result<()> {
    // SAFETY: the thread owns no descriptor yet; those of the program stay open in its own table.
    unsafe { make_own_empty() }?;
    room::settle();
    Ok(())
}

/// The program's standard error, in the table of a thread of ours, for the time of a message: a
/// program that closes it means that others read its end. The kernel duplicates it; where a sandbox
/// forbids that, or the first thread has ended, the file is opened through /proc, to write at its
/// end.
fn standard_error() -> Option<OwnedFd> {
    duplicate(getpid().as_raw_nonzero().get(), libc::STDERR_FILENO).ok().or_else(|| {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOCTTY;
        let is_ours =
            |number: i32| state::of_ours().is_some_and(|(state, _)| state.threads.has(number));
        let of = |number: i32| {
            let path = format!("/proc/self/task/{number}/fd/2");
            (!is_ours(number)).then(|| open(path, flags, Mode::empty()).ok())?
        };
        Tasks::open()?.find(of).ok()?
    })
}

/// Writes to the program's standard error, as far as it takes anything. Not by way of the standard
/// library: when this process was forked, another thread may have had the lock that is taken there.
pub(crate) fn say(text: &[u8]) {
    if !own::is_ours() {
        write(libc::STDERR_FILENO, text);
    } else if let Some(error) = standard_error() {
        write(error.as_raw_fd(), text);
    }
}

fn write(to: i32, text: &[u8]) {
    let mut rest = text;
    while !rest.is_empty() {
        // SAFETY: the text, and its length.
        match unsafe { libc::write(to, rest.as_ptr().cast(), rest.len()) } {
            written @ 1.. => rest = &rest[written as usize..],
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}
