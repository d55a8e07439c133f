//! Why a program was not started, and what to do.

use std::io;
use std::path::PathBuf;

use lowtide::Size;
use lowtide_watch::address::ListenError;
use lowtide_watch::companion::CompanionError;
use lowtide_watch::file::FileError;
use thiserror::Error;

/// A program that was not started.
#[derive(Debug, Error)]
pub(crate) enum RunError {
    /// No program was named.
    #[error("no program; give one after `--`: lowtide run --max 1G -- PROGRAM ARGS")]
    NoProgram,
    /// The limits contradict each other.
    #[error(
        "--high {} is above --max {}; lower it, or leave it out",
        Size::new(*high),
        Size::new(*max)
    )]
    HighAboveMax {
        /// In bytes.
        high: u64,
        /// In bytes.
        max: u64,
    },
    /// An option of a budget that sets itself.
    #[error("{option} is for a budget that sets itself; give --max auto, or no --max")]
    NotAuto { option: &'static str },
    /// Two ways to say when pages go.
    #[error(
        "--high is for a fixed budget, and --max auto, which is the default, sets it itself; leave \
         --high out, or give --max a size"
    )]
    AutoHigh,
    /// The bounds contradict each other.
    #[error(
        "--at-least {} is above the upper bound, {}; lower it, leave it out, or give --at-most",
        Size::new(*least),
        Size::new(*most).short()
    )]
    LeastAboveMost {
        /// In bytes.
        least: u64,
        /// In bytes.
        most: u64,
    },
    /// No pager can have that many pages.
    #[error(
        "--max and the budgets of --map are {} together; all of them must be below 1T",
        Size::new(*bytes)
    )]
    TooMuch {
        /// In bytes.
        bytes: u64,
    },
    /// An option of memory without a file, which is not kept any more.
    #[error(
        "{option}: `lowtide run` keeps files, not heaps; for a heap larger than its memory, limit \
         the program with a memory cgroup that has swap or zram, or use the library's regions and \
         allocator in the program"
    )]
    Heap { option: &'static str },
    #[error(
        "cannot write the summary to {}: {source}; give --summary a file in an existing directory",
        path.display()
    )]
    Summary { path: PathBuf, source: io::Error },
    /// The file for the recording cannot be made.
    #[error(
        "the file for the recording, {}, cannot be made: {source}; give --record a file in a \
         directory that you may write to",
        path.display()
    )]
    Record { path: PathBuf, source: io::Error },
    /// The list of warm pages cannot be saved when the program ends.
    #[error(
        "the list of warm pages, {}, could not be saved: {source}; give --warm a file in a \
         directory that you may write to",
        path.display()
    )]
    Warm { path: PathBuf, source: io::Error },
    /// Metrics cannot be served.
    #[error("--metrics: {0}")]
    Listen(#[from] ListenError),
    /// Metrics cannot be exported.
    #[error("--metrics-file: {0}")]
    MetricsFile(#[from] FileError),
    /// The process that would do it cannot be started.
    #[error("{0}")]
    Companion(CompanionError),
    /// The library is not there.
    #[error(
        "the library {file} was not found in {looked}; build it {build} and put it next to this \
         command, or set {variable} to its path"
    )]
    NoLibrary {
        file: &'static str,
        /// Where it was looked for.
        looked: String,
        /// How it is made.
        build: &'static str,
        /// The variable for its path.
        variable: &'static str,
    },
    /// The dynamic linker cannot express its path.
    #[error(
        "the path of the library, {}, has a blank or a colon, which LD_PRELOAD cannot express; \
         copy it elsewhere and set {variable} to its path",
        path.display()
    )]
    LibraryPath {
        path: PathBuf,
        /// The variable for it.
        variable: &'static str,
    },
    /// There is no such program.
    #[error("{program}: not found; give a path, or a name that is in PATH")]
    NotFound {
        /// What the caller named.
        program: String,
    },
    /// It is there, but cannot be executed.
    #[error("{}: cannot be executed: {source}; {}", path.display(), remedy(source))]
    CannotExecute { path: PathBuf, source: io::Error },
    /// It would run, but not as wanted.
    #[error("{0}; with --force it is started all the same")]
    Lack(#[from] Lack),
}

/// What a program would run without.
#[derive(Debug, Error)]
pub(crate) enum Lack {
    #[error("{}: {why}, so lowtide cannot see its mappings; {advice}", path.display())]
    Reach { path: PathBuf, why: &'static str, advice: &'static str },
    /// The library for musl.
    #[error(
        "{}: it uses the C library musl, and {why}, or use its build for glibc",
        path.display()
    )]
    Musl {
        path: PathBuf,
        /// Why there is none.
        why: Box<RunError>,
    },
    /// More than mappings of files of a program of musl.
    #[error(
        "{option}: {} uses the C library musl, and of such programs only file mappings are kept \
         within the budget; leave {option} out, or use its build for glibc",
        path.display()
    )]
    GlibcOnly { option: &'static str, path: PathBuf },
    #[error("nothing that a program maps can be kept within a budget on this machine: {why}")]
    Files { why: String },
    #[error(
        "--mode userfault is not available on this machine: {why}; leave it out, and files are \
         kept in `pagecache` mode"
    )]
    Exact { why: String },
}

impl RunError {
    /// As `env(1)` and `nice(1)`: 127 for a program that was not found, 126 for one that cannot be
    /// executed; 2 for bad usage, and for a program that is out of reach.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            RunError::NotFound { .. } => 127,
            RunError::CannotExecute { .. } => 126,
            _ => 2,
        }
    }
}

/// What helps where a file cannot be executed.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::IsADirectory => "name a program in it",
        io::ErrorKind::PermissionDenied => "check its permissions",
        _ => "check its format",
    }
}
