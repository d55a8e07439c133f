//! Failing on purpose.
//!
//! What a store does when its device fails is a promise like any other (a failed write keeps the page
//! dirty, a failed read reaches the reader as an error, nothing hangs), and a promise needs a test. The
//! backend asks an injector before each request. An error it returns takes the place of the transfer: the
//! kernel sees nothing of the request, and no memory is touched.
//!
//! The hook is part of every build, so that what is tested is what is shipped. It costs one predictable
//! branch a request, and only misses and write-back make requests.

use std::io;

/// The kind of request an injector is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InjectOp {
    /// A page, or several contiguous ones, read from a file.
    Read,
    /// A run of pages written to a file.
    Write,
    /// Written data made durable (`fdatasync`); offset and length are 0.
    Sync,
}

/// Decides which requests fail. Called from every thread that does I/O, possibly at the same time.
pub trait Inject: Send + Sync {
    /// Returns the error that the request for `len` bytes at `offset` (both in bytes) shall fail with, or
    /// `None` to let it pass. Called once for each request, before the first attempt. It may block, to
    /// play a slow device.
    fn before(&self, op: InjectOp, offset: u64, len: u64) -> Option<io::Error>;
}
