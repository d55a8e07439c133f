//! Which engine is used, and why.
//!
//! io_uring is part of every current kernel and still often out of reach: containers forbid it with
//! a seccomp filter (`EPERM` or `ENOSYS`), distributions with `kernel.io_uring_disabled`, old
//! kernels lack it. So it is tried when a backend is opened: set up, probed for its operations, and
//! made to carry out one no-op. The decision is recorded in a sentence that reports and `lowtide
//! doctor` show.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::inject::{Inject, Numbers};
use super::request::Arena;
use super::uring::Refusal;
use crate::fault_sites::FaultSites;

/// How reads and writes reach the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum IoEngine {
    /// io_uring where it works, otherwise system calls.
    #[default]
    Auto,
    /// io_uring, or an error: one ring for each thread that overlaps transfers. A miss by itself is
    /// a `pread`.
    Uring,
    /// `pread` and `pwritev`, with a few threads to overlap them.
    Psync,
}

impl fmt::Display for IoEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            IoEngine::Auto => "auto",
            IoEngine::Uring => "uring",
            IoEngine::Psync => "psync",
        })
    }
}

/// A name that is no I/O engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no I/O engine is called \"{name}\": use auto, uring or psync")]
#[non_exhaustive]
pub struct UnknownIoEngine {
    /// The name that was given.
    pub name: String,
}

impl FromStr for IoEngine {
    type Err = UnknownIoEngine;

    /// Parses the names that [`Display`](fmt::Display) writes.
    ///
    /// # Errors
    ///
    /// [`UnknownIoEngine`] for any other name.
    fn from_str(name: &str) -> Result<IoEngine, UnknownIoEngine> {
        match name {
            "auto" => Ok(IoEngine::Auto),
            "uring" => Ok(IoEngine::Uring),
            "psync" => Ok(IoEngine::Psync),
            _ => Err(UnknownIoEngine { name: name.to_owned() }),
        }
    }
}

/// What to open a backend with.
#[derive(Clone)]
pub struct Options {
    /// The engine to use.
    pub engine: IoEngine,
    /// The most reads that one batch keeps in flight (1 … 4096).
    pub depth: u32,
    /// The range of all frames, if it may be registered with the kernel.
    pub arena: Option<Arena>,
    /// Decides what becomes of requests, in tests.
    pub inject: Option<Arc<dyn Inject>>,
    /// Where faults are counted.
    pub sites: Arc<FaultSites>,
    /// Numbers the requests that the injector sees.
    pub numbers: Numbers,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            engine: IoEngine::Auto,
            depth: 128,
            arena: None,
            inject: None,
            sites: Arc::default(),
            numbers: Numbers::default(),
        }
    }
}

impl Refusal {
    /// What usually lies behind it, and what can be done about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self.source.raw_os_error() {
            Some(libc::ENOSYS) => "this kernel has no io_uring, or a seccomp filter hides it",
            Some(libc::EPERM | libc::EACCES) => {
                "a seccomp filter forbids it, or the sysctl kernel.io_uring_disabled is set"
            }
            Some(libc::ENOMEM) => {
                "RLIMIT_MEMLOCK is too small for a ring on this kernel: raise `ulimit -l`"
            }
            Some(libc::EMFILE | libc::ENFILE) => "too many open files: raise `ulimit -n`",
            Some(libc::EOPNOTSUPP | libc::EINVAL) => "this kernel's io_uring is too old",
            _ => "see io_uring_setup(2)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn names_survive_a_round_trip() {
        for engine in [IoEngine::Auto, IoEngine::Uring, IoEngine::Psync] {
            assert_eq!(engine.to_string().parse(), Ok(engine));
        }
        let error = "aio".parse::<IoEngine>().unwrap_err();
        assert_eq!(error.to_string(), "no I/O engine is called \"aio\": use auto, uring or psync");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let refusal =
            Refusal { step: "io_uring_setup", source: io::Error::from_raw_os_error(libc::EPERM) };
        assert!(refusal.to_string().starts_with("io_uring_setup failed"), "{refusal}");
        assert!(refusal.hint().contains("kernel.io_uring_disabled"), "{}", refusal.hint());
    }
}
