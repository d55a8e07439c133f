//! What can go wrong, in terms of the caller's request.
//!
//! One enum for building a pager ([`BuildError`]), one for opening a file ([`OpenError`]), one for
//! everything done with an open view ([`Error`]). Each message says what, where and what to do. An
//! I/O error is kept whole, and every thread that waited for the same read gets it.

use crate::tenant::{OomReport, TenantError};
use lowtide_core::{ConfigError, DirtyLimitsError};
use lowtide_io::Refusal;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A pager that cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No budget was given.
    #[error("no budget was given: call `max` with a size such as 256M")]
    NoBudget,
    /// The page size is not one that the engine can count in.
    #[error("pages of {bytes} bytes are not possible: choose a power of two from 512 to 65536")]
    PageSize {
        /// The requested size.
        bytes: usize,
    },
    /// The budget is below what one batch of reclaim needs.
    #[error(
        "a budget of {max_bytes} bytes is too small for pages of {page_bytes} bytes: at least \
         {min_bytes} bytes are needed"
    )]
    BudgetTooSmall {
        /// The requested budget.
        max_bytes: u64,
        /// The page size.
        page_bytes: usize,
        /// The smallest budget with this page size.
        min_bytes: u64,
    },
    /// The budget has more pages than the engine can number.
    #[error(
        "a budget of {max_bytes} bytes is too large for pages of {page_bytes} bytes: choose a \
         larger page, or at most {limit_bytes} bytes"
    )]
    BudgetTooLarge {
        /// The requested budget.
        max_bytes: u64,
        /// The page size.
        page_bytes: usize,
        /// The largest budget with this page size.
        limit_bytes: u64,
    },
    /// The limits or timers for dirty data make no sense.
    #[error("impossible settings for dirty data: {0}")]
    DirtyLimits(#[from] DirtyLimitsError),
    /// The memory for the frames is not available.
    #[error(
        "cannot reserve {bytes} bytes of memory for the page frames: {source}; {}",
        memory_advice(source)
    )]
    Memory {
        /// The requested bytes.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The budget is above the limit of the memory cgroup that this process is in. The kernel would
    /// kill the process when the pages come.
    #[error(
        "a budget of {max_bytes} bytes is above the limit of the memory cgroup {} ({limit_bytes} \
         bytes), and the kernel kills a process that exceeds that: choose a budget that leaves \
         room for the rest of the process, or raise the limit", group.display()
    )]
    AboveLimit {
        /// The requested budget.
        max_bytes: u64,
        /// The limit.
        limit_bytes: u64,
        /// The directory of the cgroup.
        group: PathBuf,
    },
    /// Swap was requested for pages of another size than it can store.
    #[error(
        "swap requires pages of 4096 bytes, but `base_page` is {page_bytes}: remove `swap`, or \
         set `base_page(4096)`"
    )]
    Swap {
        /// The page size.
        page_bytes: usize,
    },
    /// The swap file cannot be made.
    #[error(transparent)]
    SwapFile(#[from] lowtide_swap::CreateError),
    /// io_uring was requested, and this machine refuses it.
    #[error(
        "io_uring was requested but cannot be used: {step} failed: {source} ({hint}); use the \
         engine \"auto\" or \"psync\""
    )]
    IoEngine {
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        source: io::Error,
        /// What usually causes it.
        hint: &'static str,
    },
    /// A background thread cannot be started.
    #[error(
        "cannot start a background thread: {0}; raise the limit on processes, or build without \
         background threads"
    )]
    Thread(io::Error),
}

impl From<Refusal> for BuildError {
    fn from(refusal: Refusal) -> Self {
        let hint = refusal.hint();
        let Refusal { step, source } = refusal;
        Self::IoEngine { step, source, hint }
    }
}

impl BuildError {
    pub(crate) fn from_config(error: ConfigError, max_bytes: u64, page_bytes: usize) -> Self {
        match error {
            ConfigError::BudgetTooSmall { .. } => Self::BudgetTooSmall {
                max_bytes,
                page_bytes,
                min_bytes: lowtide_core::limits::MIN_BUDGET * page_bytes as u64,
            },
            ConfigError::BudgetTooLarge { frames, .. } => Self::BudgetTooLarge {
                max_bytes,
                page_bytes,
                limit_bytes: u64::from(frames) * page_bytes as u64,
            },
        }
    }
}

/// A file that cannot be opened as a view.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The kernel refused.
    #[error("cannot open {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// It is not something with pages.
    #[error("{path} is a {kind}: a view needs a regular file or a block device")]
    Kind {
        /// The file.
        path: PathBuf,
        /// What it is.
        kind: String,
    },
    /// Direct I/O was demanded and is not possible.
    #[error(
        "{path} does not support direct I/O with pages of {page_bytes} bytes ({why}): choose \
         automatic or buffered I/O, or a larger page"
    )]
    NoDirectIo {
        /// The file.
        path: PathBuf,
        /// The page size of the pager.
        page_bytes: usize,
        /// The reason.
        why: String,
    },
    /// Another pager or process uses the file in a way that excludes this open.
    #[error(
        "{path} was locked for {:.1} s: another process or another pager uses it, or one that has \
         just died still has writes in flight; close it there, wait longer \
         (`OpenOptions::lock_timeout`), or open it with `OpenOptions::lock(false)` if you ensure \
         that no other process writes the file", waited.as_secs_f64()
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// How long this open waited for the lock.
        waited: Duration,
    },
    /// The file is to be written while several tenants read it, each with pages of its own.
    #[error(
        "cannot open {path} for writing: {copies} read-only opens hold separate copies of its \
         pages (for another tenant, in another folio order, or as a map); open it for writing \
         first, or close them"
    )]
    Copies {
        /// The file.
        path: PathBuf,
        /// How many spaces of pages it has.
        copies: usize,
    },
    /// The thread that writes the file's device cannot be started.
    #[error(
        "cannot open {path} for writing, because its writer thread cannot be started: {source}; \
         raise the limit on processes"
    )]
    Thread {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The tenant that is to pay for the pages is not available.
    #[error("cannot open {path} for a tenant: {source}")]
    Tenant {
        /// The file.
        path: PathBuf,
        /// What is wrong with the tenant.
        source: TenantError,
    },
    /// The pager met a defect of its own, as [`Error::Poisoned`].
    #[error(
        "cannot open {path}: the pager is poisoned, because a thread panicked while holding its \
         lock. Flushed data is safe. Drop this pager and build a new one"
    )]
    Poisoned {
        /// The file.
        path: PathBuf,
    },
    /// The folio order is impossible.
    #[error(
        "a folio of {bytes} bytes is not possible: the limit is 2 MiB or an eighth of the budget, \
         whichever is less ({limit} bytes here)"
    )]
    FolioOrder {
        /// Bytes of the requested folio.
        bytes: u64,
        /// The largest possible one.
        limit: u64,
    },
    /// The file has more pages than a pager can number.
    #[error(
        "{path} would grow to {bytes} bytes, but with this page size a view has at most {limit}; \
         choose larger pages"
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size, or the size that it was to be created with.
        bytes: u64,
        /// The largest size with this page size.
        limit: u64,
    },
    /// The pager has as many files open as it can number.
    #[error("cannot open {path}: the pager already has {limit} open files, the maximum")]
    TooMany {
        /// The file.
        path: PathBuf,
        /// How many files a pager can have open.
        limit: u32,
    },
    /// The file was created, or exists, but cannot be made as long as requested.
    #[error("cannot extend {path} to {bytes} bytes: {}", reason(source))]
    SetLen {
        /// The file.
        path: PathBuf,
        /// The requested length.
        bytes: u64,
        /// The reason.
        source: Error,
    },
    /// There are no addresses, or no memory, for the translations of its pages, not even without
    /// room to grow.
    #[error(
        "cannot map {path}: {source}; the translations of its pages need 4 bytes of addresses for \
         each page of the file: raise the limit on addresses (`ulimit -v`), or close other files \
         of this pager or open them with a smaller `OpenOptions::growth`"
    )]
    Translation {
        /// The file.
        path: PathBuf,
        /// The kernel's error about the memory for translations.
        source: io::Error,
    },
}

/// An operation on a view that failed. Cheap to clone.
///
/// The message says what, where and what to do; the variants are for programs:
///
/// ```
/// use lowtide::{Size, Error, Pager};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # std::fs::write(&path, vec![0; 8192])?;
/// # let pager = Pager::builder().max(Size::mib(8)).build()?;
/// let view = pager.open(&path)?;
/// match view.page(2) {
///     Err(Error::OutOfRange { .. }) => {}                     // the file has pages 0 and 1
///     other => panic!("{other:?}"),
/// }
/// assert!(matches!(view.write_at(0, b"no"), Err(Error::ReadOnly { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading the file failed.
    #[error("cannot read page {page} of {path}: {source}")]
    Read {
        /// The file.
        path: Arc<PathBuf>,
        /// First page of the read.
        page: u64,
        /// The device's error.
        source: Arc<io::Error>,
    },
    /// An anonymous page cannot be brought back from swap. It stays there, and is tried again at
    /// the next access; [`Region::clear`](crate::Region::clear) gives it up. No other page is
    /// affected.
    #[error("cannot bring page {page} of {path} back from swap: {source}")]
    SwapIn {
        /// The region's name.
        path: Arc<PathBuf>,
        /// The page.
        page: u64,
        /// Why.
        source: Arc<io::Error>,
    },
    /// A page that was read cannot be put where the program's pointer finds it.
    #[error(
        "page {page} of {path} was read but cannot be mapped: {source}; raise the limit on memory \
         (or on the size of tmpfs) of the process"
    )]
    Install {
        /// The file.
        path: Arc<PathBuf>,
        /// First page of the read.
        page: u64,
        /// The kernel's error.
        source: Arc<io::Error>,
    },
    /// Writing the file, or making it durable, failed since this handle last got such an error. The
    /// pages stay dirty and are tried again.
    #[error(
        "cannot write pages {}..{} of {path}: {source}; they stay in memory and are retried until \
         they are written or reverted{}",
        pages.start, pages.end, advice(source)
    )]
    Write {
        /// The file.
        path: Arc<PathBuf>,
        /// The first to the last page that failed; some between may be written.
        pages: Range<u64>,
        /// How many times the file has gone from well to failing since this handle last got an
        /// error: 0 if it is still the same incident.
        incidents: u64,
        /// The device's error.
        source: Arc<io::Error>,
    },
    /// A device did not answer in time.
    #[error(
        "timed out after {} s {what} ({path}): the device is not responding; dirty pages stay \
         in memory and are retried", (waited.as_secs_f64() * 1e3).round() / 1e3
    )]
    Timeout {
        /// The file.
        path: Arc<PathBuf>,
        /// How long it was waited for:
        /// [`PagerBuilder::io_timeout`](crate::PagerBuilder::io_timeout), or
        /// [`PagerBuilder::read_timeout`](crate::PagerBuilder::read_timeout) for a read.
        waited: Duration,
        /// What was waited for.
        what: &'static str,
    },
    /// What was flushed is on disk, but the name of a file that this pager created may not be:
    /// after a power cut the file may be missing. The next flush tries again.
    #[error(
        "{path} is on disk, but its name in the directory cannot be made durable: {source}; flush \
         again"
    )]
    NameNotDurable {
        /// The file.
        path: Arc<PathBuf>,
        /// The error of the directory's file system.
        source: Arc<io::Error>,
    },
    /// The file system refuses to make a hole. What lies before the range, of what was to be
    /// [punched](crate::View::punch), reads as zeroes. What lies behind it is as it was; a device
    /// that failed half-way may have zeroes in a part of the range.
    #[error(
        "cannot punch a hole in {path} at {}..{}: {source}; everything before {} is already \
         zeroed{}",
        bytes.start, bytes.end, bytes.start, advice(source)
    )]
    Punch {
        /// The file.
        path: Arc<PathBuf>,
        /// The part that the file system refused, in bytes.
        bytes: Range<u64>,
        /// The file system's error.
        source: Arc<io::Error>,
    },
    /// The range is beyond the end of the file, or ends there.
    #[error(
        "range {offset}..{} is out of bounds: {path} is {len} bytes long",
        offset.saturating_add(*bytes)
    )]
    OutOfRange {
        /// The file.
        path: Arc<PathBuf>,
        /// Where the range begins, in bytes.
        offset: u64,
        /// Bytes of the range; for a requested page, bytes of a page.
        bytes: u64,
        /// Bytes of the file when it was last looked at.
        len: u64,
    },
    /// The pager met a defect of its own: a thread panicked in the middle of a change. Every call
    /// fails from then on, except reads of pages that are resident. Files are as they were last
    /// written.
    #[error(
        "the pager is poisoned: a thread panicked while holding its lock. Flushed data is safe. \
         Drop this pager and build a new one"
    )]
    Poisoned,
    /// The file was opened for reading only.
    #[error("{path} is open for reading only: open it with `OpenOptions::write(true)`")]
    ReadOnly {
        /// The file.
        path: Arc<PathBuf>,
    },
    /// A tenant is full, or the whole pager, and nothing could be evicted in time. `memory.events`
    /// counts it as `oom`.
    #[error("{}", report.summary())]
    OutOfBudget {
        /// What the full tenant looked like. Its `Display` is what a kernel's log says.
        report: Arc<OomReport>,
    },
    /// The tenant cannot do that.
    #[error(transparent)]
    Tenant(#[from] TenantError),
    /// The thread writes to a page that it holds a guard on.
    #[error(
        "page {page} of {path} is held by a guard of this thread: drop the guard before writing"
    )]
    HeldHere {
        /// The file.
        path: Arc<PathBuf>,
        /// The page.
        page: u64,
    },
    /// A callback of `get_many` wanted a page that is busy: the same call may be reading it, or
    /// another thread has it and may be waiting for a page that the call is reading. Or there was
    /// no room for the page, and other threads may give up theirs only when the call has ended.
    #[error(
        "a callback of `get_many` needs page {page} of {path}, but must not wait for other \
         threads to release it or to make room: copy the bytes that the callback needs, and read \
         or store the page afterwards"
    )]
    Nested {
        /// The file.
        path: Arc<PathBuf>,
        /// The page.
        page: u64,
    },
    /// Another thread held a guard on the page for too long.
    #[error(
        "page {page} of {path} was held by a guard of another thread for {:.1} s: drop guards \
         before waiting for other work", waited.as_secs_f64()
    )]
    HeldElsewhere {
        /// The file.
        path: Arc<PathBuf>,
        /// The page.
        page: u64,
        /// How long the writer waited.
        waited: Duration,
    },
    /// The kernel refuses `membarrier(2)`, which it allowed when the pager was built: a sandbox
    /// (seccomp) was installed since. Without it the pages that readers use are unknown, so nothing
    /// is evicted and nothing is stored to pages in memory; what is resident can be read, and what
    /// is dirty is written.
    #[error(
        "the kernel refuses membarrier(2), which it allowed when the pager was built, so no page \
         can be evicted or stored to: allow the call in the sandbox, or install the sandbox \
         before the first pager is built"
    )]
    NoBarrier,
    /// The system has no memory for a page frame, although the budget has room: broken memory, or
    /// memory that the kernel does not promise. A memory cgroup at its limit kills instead, so a
    /// budget above that limit is refused when the pager is built
    /// ([`BuildError::AboveLimit`]).
    #[error(
        "the system has no memory for a page frame, although the budget has room ({source}): \
         lower the budget with `set_max`, or give the process more memory"
    )]
    NoMemory {
        /// The kernel's error.
        source: Arc<io::Error>,
    },
    /// The file cannot get this length: the file system refuses, or the view has no room for as
    /// many pages ([`OpenOptions::growth`](crate::OpenOptions::growth)). File and view are as they
    /// were.
    #[error("cannot change the length of {path} to {len} bytes: {source}")]
    Grow {
        /// The file.
        path: Arc<PathBuf>,
        /// The requested length.
        len: u64,
        /// The kernel's error.
        source: Arc<io::Error>,
    },
}

/// Why a file does not grow, without the part of the message that says that it does not.
fn reason(error: &Error) -> String {
    match error {
        Error::Grow { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

/// What can be done about a write that fails.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSPC) => ": make room on the file system",
        Some(libc::EDQUOT) => ": raise the quota or remove files",
        Some(libc::EROFS) => ": mount the file system for writing again",
        Some(libc::EIO) => ": look at the kernel's log, the device may be failing",
        _ => "",
    }
}

/// What helps where memory cannot be had.
fn memory_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => {
            "a sandbox refuses that: allow mmap, mprotect and madvise in its seccomp profile"
        }
        _ => "choose a smaller budget, or raise the limit on addresses (`ulimit -v`)",
    }
}

/// A file whose last pages could not be written when the pager was closed.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{path}: {pages} pages could not be written ({}); they will be lost when its last view is \
     dropped",
    cause(source)
)]
#[non_exhaustive]
pub struct Unwritten {
    /// The file.
    pub path: Arc<PathBuf>,
    /// Pages that are not durable, as far as is known.
    pub pages: u64,
    /// Why.
    pub source: Error,
}

/// A pager that was closed, and could not write everything.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the pager was closed with data that could not be written: {}", list(files))]
#[non_exhaustive]
pub struct CloseError {
    /// The lost pages.
    pub files: Vec<Unwritten>,
}

/// Why pages are not written, without the advice for open views.
fn cause(error: &Error) -> String {
    match error {
        Error::Write { source, .. } => format!("{source}{}", advice(source)),
        other => other.to_string(),
    }
}

fn list(files: &[Unwritten]) -> String {
    files.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_engine_is_named_with_the_step_the_cause_and_the_choice() {
        let source = io::Error::from_raw_os_error(libc::EPERM);
        let text = BuildError::from(Refusal { step: "io_uring_setup", source }).to_string();
        for part in ["io_uring_setup failed", "kernel.io_uring_disabled", "\"psync\""] {
            assert!(text.contains(part), "{text}");
        }
    }
}
