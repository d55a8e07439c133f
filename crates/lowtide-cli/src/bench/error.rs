//! Everything that can end a benchmark, and which exit code it means.
//!
//! A message says what failed, where, and what to do. What is wrong with single values (a size, a
//! policy, a workload name) is already refused by the argument parser, with the message of the type
//! that would not parse.

use std::io;
use std::path::{Path, PathBuf};

use lowtide::{BuildError, Size};
use lowtide_host::memcg::MemcgError;
use lowtide_proof::error::ProofError;
use lowtide_workload::DistributionError;
use lowtide_workload::trace::TraceFileError;
use thiserror::Error;

use crate::interrupt::{self, CutShort, HandlerError, Interrupted, Interruptible};
use crate::json::ResultsError;
use crate::law::ProgramError;
use crate::table::memory;

/// Why a benchmark ended without a result that can be trusted.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum BenchError {
    /// Options that are fine alone and impossible together, or beyond what the workload can do.
    #[error("{what}; {advice}")]
    Usage {
        /// What does not go.
        what: String,
        /// What to write instead.
        advice: String,
    },
    /// The runtime refuses budget, page size or policy before anything was started.
    #[error("cannot set up lowtide with --max {max} and pages of {page_bytes} bytes: {source}")]
    Setup {
        /// The budget asked for.
        max: Size,
        /// The page asked for, in bytes.
        page_bytes: u64,
        /// The runtime's reason, with its advice.
        source: BuildError,
    },
    /// The workload has nothing to choose from.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
    /// The trace cannot be played, or not be recorded.
    #[error(transparent)]
    Trace(#[from] TraceFileError),
    /// A file or directory does not do what was asked.
    #[error("cannot {action} {}: {source}{}", path.display(), advice_for(source))]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A path that is there and is no file to page.
    #[error("{} is {what}; give a regular file or a block device", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The data files do not fit.
    #[error(
        "{} has {} free and the data files need {}; free some, choose another place with --dir, \
         or make them smaller with --scale or --max",
        path.display(), Size::new(*free), Size::new(*needed)
    )]
    NoSpace {
        /// The directory.
        path: PathBuf,
        /// Bytes needed in addition to what is there.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The device filled up while a data file was written. The unfinished file has been removed.
    #[error(
        "the disk is full: {} could not be made and its beginning has been removed; free space, or \
         choose another place with --dir",
        path.display()
    )]
    DiskFull {
        /// The file.
        path: PathBuf,
    },
    /// Another run uses the data file.
    #[error(
        "{} is in use by another lowtide bench; wait for it, or choose another place with --dir",
        path.display()
    )]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Somebody writes a file of the user's.
    #[error(
        "{} is locked by a program that writes it; wait for that, or read it nevertheless with \
         --no-lock",
        path.display()
    )]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The directory of data files is somebody else's.
    #[error("{} belongs to another user; choose a place of your own with --dir", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// The budgets do not fit into the machine.
    #[error(
        "{systems} systems of {} each need {}, and {} of memory are available; lower --max, or \
         run fewer at a time with --policy and --against",
        Size::new(*each), memory(*needed), memory(*available)
    )]
    NoMemory {
        /// How many systems are alive together.
        systems: usize,
        /// Bytes each of them may use.
        each: u64,
        /// Bytes of all together.
        needed: u64,
        /// Bytes available.
        available: u64,
    },
    /// The runtime failed outside the operations that are counted.
    #[error("lowtide failed to {action}: {source}")]
    Runtime {
        /// What was tried, as a verb and its object.
        action: String,
        /// The runtime's reason.
        source: lowtide::Error,
    },
    /// The runtime does not take a data file.
    #[error(transparent)]
    Open(#[from] lowtide::OpenError),
    /// Something cannot be done with a tenant.
    #[error(transparent)]
    Tenant(#[from] lowtide::TenantError),
    /// A program cannot be used.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A memory cgroup stopped working during the run.
    #[error(transparent)]
    Memcg(#[from] MemcgError),
    /// A peer could not be started, or went away.
    #[error("the peer `{peer}` {what}")]
    Peer {
        /// Which.
        peer: &'static str,
        /// What happened, and what it may mean.
        what: String,
    },
    /// A peer was killed, which the kernel does to a process that cannot live within its budget.
    /// Its row is left out.
    #[error(
        "{peer} left out: it was killed, most likely by the kernel because {} are too little for \
         it; raise --max",
        Size::new(*max_bytes)
    )]
    PeerKilled {
        /// Which.
        peer: &'static str,
        /// Its budget.
        max_bytes: u64,
    },
    /// A worker thread panicked, which is a bug.
    #[error("a worker thread panicked; please report the lines above")]
    Worker,
    /// Operations failed or returned wrong bytes.
    #[error("{system}: {errors} operations failed or returned wrong bytes; the first: {first}")]
    Wrong {
        /// The row.
        system: String,
        /// How many.
        errors: u64,
        /// The first of them.
        first: String,
    },
    /// What was to be measured in memory was not all in memory.
    #[error(
        "{pages} pages were read from the device during `bench hit`; the budget did not hold the \
         data"
    )]
    NotResident {
        /// How many.
        pages: u64,
    },
    /// A promise about durability was not kept.
    #[error(
        "{proof}: {lost} bytes lost and {wrong} wrong; please report this, with the command; the \
         first: {first}"
    )]
    Broken {
        /// Which proof failed.
        proof: &'static str,
        /// Bytes that a flush had promised, and that were older.
        lost: u64,
        /// Bytes that were never written there.
        wrong: u64,
        /// The first of them.
        first: String,
    },
    /// A proof has not seen everything that it is about.
    #[error(
        "no byte was lost or wrong, but this never happened: {missing}; run more cuts with \
         --cuts, or another --seed"
    )]
    Uncovered {
        /// What.
        missing: String,
    },
    /// The results cannot be written.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The signal handler cannot be installed.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// Ctrl-C.
    #[error("{0}; peers, memory cgroups and unfinished files are removed")]
    Interrupted(#[from] Interrupted),
    /// Ctrl-C after some measurements.
    #[error("{0}; peers, memory cgroups and unfinished files are removed")]
    CutShort(#[from] CutShort),
}

impl From<ProofError> for BenchError {
    fn from(error: ProofError) -> Self {
        match error {
            ProofError::File { action, path, source } => Self::file(action, &path, source),
            ProofError::Setup { max, page_bytes, source } => {
                Self::Setup { max, page_bytes, source }
            }
            ProofError::Open(error) => Self::Open(error),
            ProofError::Image(error) => Self::Peer { peer: "power-cut", what: error.to_string() },
            ProofError::Worker => Self::Worker,
        }
    }
}

impl BenchError {
    /// Names file and action of an I/O error. A full device gets its own message.
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::StorageFull {
            Self::DiskFull { path: path.to_owned() }
        } else {
            Self::File { action, path: path.to_owned(), source }
        }
    }

    /// An option that cannot be carried out.
    pub(crate) fn usage(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), advice: advice.into() }
    }

    /// 2 when the command line itself is at fault, else 1; what the signal says for a run that one
    /// ended.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted(_) | Self::CutShort(_) => interrupt::exit_code(),
            // What this machine lacks is not the command line's fault.
            Self::Setup {
                source:
                    BuildError::Memory { .. } | BuildError::IoEngine { .. } | BuildError::Thread(_),
                ..
            } => 1,
            Self::Usage { .. }
            | Self::Trace(TraceFileError::Name { .. })
            | Self::Setup { .. }
            | Self::Distribution(_)
            | Self::Program(_)
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

/// What to do about the usual I/O errors.
fn advice_for(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "; check the path",
        io::ErrorKind::PermissionDenied => {
            "; change its permissions, or choose another place with --dir"
        }
        io::ErrorKind::ReadOnlyFilesystem => "; choose another place with --dir",
        _ => "",
    }
}
