//! What can be wrong with a status page.

use std::io;
use std::path::PathBuf;

/// Why there is no status page, or why it cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// The process has no page.
    #[error(
        "process {pid} ({program}) has no status page: start it with `lowtide run`, or let it \
         publish one (`Pager::publish_status`). A program under `lowtide run` has one from the \
         first mapping that is kept"
    )]
    NotUnderLowtide {
        /// Its number.
        pid: u32,
        /// Its name.
        program: String,
    },
    /// The process is another user's.
    #[error(
        "process {pid} belongs to user {uid}, and a status page is for its own user only: run \
         this as that user (`sudo -u '#{uid}' ...`)"
    )]
    OtherUser {
        /// Its number.
        pid: u32,
        /// The user.
        uid: u32,
    },
    /// The page has a format that this version does not know.
    #[error(
        "the status page of process {pid} has format {version}, and this lowtide reads formats up \
         to {}: use the lowtide that the process was started with, or a newer one",
        crate::VERSION
    )]
    Newer {
        /// The process.
        pid: u32,
        /// The version of its page.
        version: u32,
    },
    /// The page was being written at every attempt: its writer was stopped, or had no room.
    #[error(
        "the status page of process {pid} is not complete: its writer was stopped in the middle, \
         or the file system is full. Try again"
    )]
    Unfinished {
        /// The process.
        pid: u32,
    },
    /// The file is no status page.
    #[error("{path} is no status page ({what}): remove it", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The folder of the pages is not this user's own.
    #[error(
        "{path} {what}: status pages are neither written nor read there. Remove it, or let its \
         owner do so",
        path = path.display()
    )]
    Refused {
        /// The folder or the file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// No folder takes a page.
    #[error("no folder for status pages: neither /dev/shm nor $XDG_RUNTIME_DIR nor /tmp takes one")]
    NoPlace,
    /// There is no `/proc`, or it is of other processes.
    #[error("/proc does not show this process, so no status page can be written or judged")]
    NoProc,
    /// The status is larger than a page, even without tenants.
    #[error(
        "a status of {bytes} bytes does not fit into a page of {} bytes",
        crate::PAGE_BYTES_MAX
    )]
    TooLarge {
        /// Bytes of its text.
        bytes: usize,
    },
    /// The file system refused.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Its error.
        source: io::Error,
    },
}
