//! Reads of missed pages and writes of dirty ones: two interchangeable engines behind one
//! interface.
//!
//! | file | concept |
//! |---|---|
//! | `request` | the requests: reads, runs to write, completions, and who owns the memory |
//! | `job` | one request carried to its end: interruptions, short transfers, the end of the file |
//! | `backend` | the interface that the rest of the runtime uses |
//! | `overlap` | many requests of one thread: `Batch` for reads, `Writer` for writes and syncs |
//! | `choose` | which engine is used here, and why |
//! | `uring` | io_uring: one ring for each thread, the frames registered once and shared |
//! | `psync` | system calls in the calling thread, and a few threads to overlap them |
//! | `timed` | reads with a deadline, by threads of the pager |
//! | `bounded` | calls of other kinds that can be left, for the swap file |
//! | `workers` | threads that make blocking calls for others |
//! | `inject` | failing on purpose, so that tests see what a broken device does |

mod backend;
mod bounded;
mod choose;
mod inject;
mod job;
mod overlap;
mod psync;
mod request;
mod timed;
mod uring;
mod workers;

#[cfg(test)]
mod tests;

pub(crate) use backend::Backend;
pub(crate) use bounded::Bounded;
pub(crate) use choose::Options;
pub use choose::{IoEngine, UnknownIoEngine};
#[cfg(feature = "instruments")]
pub use inject::{Gate, Verdict};
pub use inject::{Inject, InjectOp, Request};
pub(crate) use inject::{Numbers, carry_out};
pub(crate) use overlap::{Batch, Writer};
pub(crate) use request::{Arena, Completion, Read, ReadRun, Slice, Write};
pub(crate) use timed::{End, Left};
