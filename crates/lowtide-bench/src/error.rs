//! Every error that ends a benchmark, and its exit code.
//!
//! A message says what failed, where, and what to do. The argument parser already rejects single
//! values that do not parse (a size, a policy, a workload name), with the message of their type.

use std::io;
use std::path::{Path, PathBuf};

use lowtide::{BuildError, Size};
use lowtide_host::memcg::MemcgError;
use lowtide_report::exit::Failure;
use lowtide_report::interrupt::{self, CutShort, HandlerError, Interrupted, Interruptible};
use lowtide_report::json::ResultsError;
use lowtide_report::table::memory;
use lowtide_report::threads::ThreadError;
use lowtide_workload::DistributionError;
use lowtide_workload::trace::TraceFileError;
use thiserror::Error;

/// Why a benchmark ended without a result that can be trusted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BenchError {
    /// Options that are valid alone but not together, or that the workload does not support.
    #[error("{what}; {advice}")]
    Usage {
        what: String,
        /// What to write instead.
        advice: String,
    },
    /// The runtime rejects the budget, the page size or the policy before anything starts.
    #[error("cannot set up lowtide with --max {max} and pages of {page_bytes} bytes: {source}")]
    Setup {
        max: Size,
        /// The requested page size, in bytes.
        page_bytes: u64,
        /// The runtime's reason, with its advice.
        source: BuildError,
    },
    /// The workload's distribution has no items.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
    /// The trace cannot be replayed or recorded.
    #[error(transparent)]
    Trace(#[from] TraceFileError),
    /// An operation on a file or directory failed.
    #[error("cannot {action} {}: {source}{}", path.display(), advice_for(source))]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The path exists, but is not a file that can be paged.
    #[error("{} is {what}; give a regular file or a block device", path.display())]
    NotAFile { path: PathBuf, what: &'static str },
    /// The data files do not fit on the disk.
    #[error(
        "{} has {} free, but the data files need {}; free some space, choose another directory \
         with --dir, or make the files smaller with --scale or --max",
        path.display(), Size::new(*free), Size::new(*needed)
    )]
    NoSpace {
        path: PathBuf,
        /// Bytes needed in addition to the files that exist.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The device filled up while a data file was written. The unfinished file has been removed.
    #[error(
        "the disk is full: {} could not be created, and the unfinished file was removed; free \
         some space, or choose another directory with --dir",
        path.display()
    )]
    DiskFull { path: PathBuf },
    /// Another run uses the data file.
    #[error(
        "{} is in use by another lowtide bench; wait until that ends, or choose another directory \
         with --dir",
        path.display()
    )]
    Busy { path: PathBuf },
    /// The file system has no locks, as some network file systems.
    #[error(
        "cannot lock {}: {source}; if files cannot be locked there, give --no-lock, and let no \
         other lowtide bench use that directory at the same time",
        path.display()
    )]
    NoLocks { path: PathBuf, source: io::Error },
    /// Another program has locked the user's file for writing.
    #[error(
        "{} is locked by a program that writes it; wait until that ends, or read the file anyway \
         with --no-lock",
        path.display()
    )]
    Locked { path: PathBuf },
    /// The directory of data files belongs to another user.
    #[error("{} belongs to another user; choose your own directory with --dir", path.display())]
    Foreign { path: PathBuf },
    /// The budgets exceed the machine's available memory.
    #[error(
        "{systems} systems of {} each need {}, but only {} of memory is available; lower --max, \
         or run fewer systems at a time with --policy and --against",
        Size::new(*each), memory(*needed), memory(*available)
    )]
    NoMemory {
        /// Number of systems that run together.
        systems: usize,
        /// Budget of each, in bytes.
        each: u64,
        /// Bytes that all of them need.
        needed: u64,
        /// Bytes available.
        available: u64,
    },
    /// The runtime failed outside the measured operations.
    #[error("lowtide failed to {action}: {source}")]
    Runtime {
        /// What was tried, as a verb and its object.
        action: String,
        source: lowtide::Error,
    },
    /// The runtime cannot open a data file.
    #[error(transparent)]
    Open(#[from] lowtide::OpenError),
    /// The runtime cannot map a data file.
    #[error(transparent)]
    Map(#[from] lowtide::map::MapError),
    /// An operation on a tenant failed.
    #[error(transparent)]
    Tenant(#[from] lowtide::TenantError),
    /// A memory cgroup stopped working during the run.
    #[error(transparent)]
    Memcg(#[from] MemcgError),
    /// A peer could not be started, or ended unexpectedly.
    #[error("the peer `{peer}` {what}")]
    Peer {
        peer: &'static str,
        /// What happened, and what it may mean.
        what: String,
    },
    /// A peer was killed; the kernel kills a process that cannot stay within its budget.
    /// Its row is left out.
    #[error(
        "{peer} left out: it was killed, most likely by the kernel because {} is too little \
         memory for it; raise --max",
        Size::new(*max_bytes)
    )]
    PeerKilled { peer: &'static str, max_bytes: u64 },
    /// Threads could not be started, or panicked.
    #[error(transparent)]
    Threads(#[from] ThreadError),
    /// Operations failed or returned wrong bytes.
    #[error("{system}: {errors} operations failed or returned wrong bytes; the first: {first}")]
    Wrong {
        system: String,
        errors: u64,
        /// The first of them.
        first: String,
    },
    /// A workload that another command adds failed in its own way.
    #[error(transparent)]
    Own(Box<dyn std::error::Error + Send + Sync>),
    /// The results cannot be written.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The signal handler cannot be installed.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    #[error("{0}; peers, memory cgroups and unfinished files are removed")]
    Interrupted(#[from] Interrupted),
    /// Ctrl-C after some measurements.
    #[error("{0}; peers, memory cgroups and unfinished files are removed")]
    CutShort(#[from] CutShort),
}

impl BenchError {
    /// Names file and action of an I/O error. A full device gets its own message.
    pub fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::StorageFull {
            Self::DiskFull { path: path.to_owned() }
        } else {
            Self::File { action, path: path.to_owned(), source }
        }
    }

    /// An option that cannot be used.
    pub fn usage(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), advice: advice.into() }
    }
}

impl Failure for BenchError {
    /// 2 if the command line is wrong, the signal's code if a signal ended the run, otherwise 1.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted(_) | Self::CutShort(_) => interrupt::exit_code(),
            // The command line is valid; this machine lacks something.
            Self::Setup {
                source:
                    BuildError::Memory { .. } | BuildError::IoEngine { .. } | BuildError::Thread(_),
                ..
            } => 1,
            Self::Usage { .. }
            | Self::Trace(TraceFileError::Name { .. })
            | Self::Setup { .. }
            | Self::Distribution(_)
            | Self::Results(ResultsError::Place { .. }) => 2,
            _ => 1,
        }
    }
}

impl Interruptible for BenchError {
    fn into_interrupted(self) -> Result<Interrupted, Self> {
        match self {
            Self::Interrupted(interrupted) => Ok(interrupted),
            error => Err(error),
        }
    }
}

/// Advice for common I/O errors.
fn advice_for(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "; check the path",
        io::ErrorKind::PermissionDenied => {
            "; change its permissions, or choose another directory with --dir"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; choose another directory with --dir",
        _ => "",
    }
}
