//! Failing on purpose.
//!
//! A store promises what it does when its device fails: a failed write keeps the page dirty, a
//! failed read reaches the reader as an error, nothing hangs. Such promises need tests. The backend
//! therefore asks an injector for a verdict before each request:
//!
//! | verdict | what the request does |
//! |---|---|
//! | pass | goes to the kernel |
//! | fail | ends with the error; the kernel sees nothing of it, and no memory is touched |
//! | short | its first transfer moves at most n bytes; the rest follows, as after any short one |
//! | later | starts after a delay; requests behind it overtake it |
//! | pretend | succeeds and is not carried out, as with a disk that lies |
//! | hang | starts when the gate is opened, as with a device that has stopped answering |
//!
//! A request that is held up here counts as *in flight*: a thread that waits for it waits until its
//! own deadline, and a thread that drops it must wait or leak its memory, as if the kernel had it.
//!
//! The hook is part of every build, so that what is tested is what is shipped. It costs one
//! predictable branch a request, and only misses and write-back make requests.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::psync::lock;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum InjectOp {
    /// A page, or several contiguous ones, read from a file.
    Read,
    /// A run of pages written to a file.
    Write,
    /// Written data made durable (`fdatasync`); offset and length are 0.
    Sync,
    /// The file made longer; the offset is the new length, the length 0.
    Extend,
    /// The file made shorter; the offset is the new length, the length 0.
    Shrink,
    /// A hole made in the file.
    Punch,
    /// The name of a file that was made, made durable: by a sync of its directory, or of the file
    /// system. Offset and length are 0.
    Name,
}

impl InjectOp {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Read, Self::Write, Self::Sync, Self::Extend, Self::Shrink, Self::Punch, Self::Name];

    /// What it is called in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Extend => "extend",
            Self::Shrink => "shrink",
            Self::Punch => "punch",
            Self::Name => "name",
        }
    }
}

/// A request that an injector decides about.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The verdict.
    pub op: InjectOp,
    /// The file, under the name it was opened by.
    pub path: &'a Path,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// Its number, which no other request of the pager has; `before` and `after` get the same.
    pub number: u64,
}

/// What shall become of a request.
#[derive(Debug)]
pub enum Verdict {
    /// It is carried out.
    Pass,
    /// It ends well and is not carried out.
    Pretend,
    /// It fails with this error and is not carried out.
    Fail(io::Error),
    /// Its first transfer moves at most this many bytes; the rest is requested again, in the same
    /// request. With 0 a write fails with [`WriteZero`](io::ErrorKind::WriteZero), and a read finds
    /// the end of the file. Direct I/O continues only from a multiple of the device's logical
    /// block. A request that moves no bytes passes.
    Short(u64),
    /// It starts after this delay. [`Duration::MAX`] is never.
    Later(Duration),
    /// It starts when the gate is opened.
    Hang(Gate),
}

/// Numbers the requests of one pager that an injector decides about, from whatever part of the
/// pager they come. Clones go on with the same numbers.
#[derive(Clone, Debug, Default)]
pub struct Numbers(Arc<AtomicU64>);

impl Numbers {
    /// One that no other request has.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// Decides what becomes of requests. Called from every thread that does I/O, possibly at the same
/// time. A pager calls it with the program's descriptors: for a thread of its own that has others,
/// another one does that ([`room::outside`](lowtide_sys::room::outside)).
pub trait Inject: Send + Sync {
    /// Returns the verdict for a request. Called once for each, before the first attempt. It may
    /// block, to play a device whose queue is full: then it holds up the calling thread and
    /// everything that the thread has in flight.
    fn before(&self, request: &Request<'_>) -> Verdict;

    /// Called when the request has ended: with `Ok`, or with an error number (0 for an error that
    /// has none). Called once for each, after a [`Verdict::Fail`] too, by the thread that waits for
    /// the request.
    fn after(&self, request: &Request<'_>, result: Result<(), i32>) {
        let _ = (request, result);
    }
}

/// What a hanging request waits for. All clones are the same gate; once opened it stays open.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Releases all requests that wait at the gate, now and later.
    pub fn open(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }

    /// Whether it was opened.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *lock(&self.0.0)
    }

    /// Waits until it is opened.
    fn wait(&self) {
        let mut open = lock(&self.0.0);
        while !*open {
            open = self.0.1.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_open() { "Gate(open)" } else { "Gate(closed)" })
    }
}

/// The result as [`Inject::after`] gets it.
pub(super) fn errno<T>(result: &io::Result<T>) -> Result<(), i32> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => Err(error.raw_os_error().unwrap_or(0)),
    }
}

/// When a request that was held up may start.
#[derive(Debug)]
pub(super) enum Start {
    /// At a time; without one, never.
    At(Option<Instant>),
    /// When a gate is open.
    Opened(Gate),
}

impl Start {
    /// After a delay.
    pub(super) fn after(delay: Duration) -> Start {
        Start::At(Instant::now().checked_add(delay))
    }

    /// Whether it may start now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        match self {
            Start::At(due) => due.is_some_and(|due| due <= now),
            Start::Opened(gate) => gate.is_open(),
        }
    }

    /// Waits until it may start.
    fn wait(&self) {
        match self {
            Start::At(Some(due)) => {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            Start::At(None) => Gate::new().wait(),
            Start::Opened(gate) => gate.wait(),
        }
    }
}

/// Gets the verdict for a request that cannot overlap with others, and carries it out in the
/// calling thread. `act` gets what its first transfer may move at most, if there is a limit.
pub fn carry_out(
    inject: &dyn Inject,
    request: &Request<'_>,
    act: impl FnOnce(Option<u64>) -> io::Result<()>,
) -> io::Result<()> {
    let result = match inject.before(request) {
        Verdict::Fail(error) => Err(error),
        Verdict::Pretend => Ok(()),
        Verdict::Pass => act(None),
        Verdict::Short(limit) => act(Some(limit)),
        Verdict::Later(delay) => {
            Start::after(delay).wait();
            act(None)
        }
        Verdict::Hang(gate) => {
            gate.wait();
            act(None)
        }
    };
    inject.after(request, errno(&result));
    result
}
