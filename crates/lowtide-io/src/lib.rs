//! Reads of missed pages and writes of dirty ones: two interchangeable engines behind one
//! interface, and an injector that makes them fail on purpose.
//!
//! | file | concept |
//! |---|---|
//! | `request` | the requests: reads, runs to write, completions, and who owns the memory |
//! | `job` | one request carried to its end: interruptions, short transfers, the end of the file |
//! | `backend` | the interface that the runtime uses |
//! | `overlap` | many requests of one thread: [`Batch`] for reads, [`Writer`] for the rest |
//! | `choose` | which engine is used here, and why |
//! | `uring` | io_uring: one ring for each thread, the frames registered once and shared |
//! | `psync` | system calls in the calling thread, and a few threads to overlap them |
//! | `timed` | reads with a deadline, by threads of the pager |
//! | `bounded` | calls of other kinds that can be left, for the swap file |
//! | `workers` | threads that make blocking calls for others |
//! | `deadline` | a moment at which an operation gives up, or never |
//! | `inject` | failing on purpose, so that tests see what a broken device does |
//! | `fault_sites` | how often each place that handles a failing device was reached |
//!
//! A request names memory by address, so the crate knows neither pages nor files: who owns which
//! memory is a promise of the caller, given once for each request (`request`).
#![deny(unsafe_code)]
// The theory at the head of a file names what only the file has.
#![allow(rustdoc::private_intra_doc_links)]

mod backend;
mod bounded;
mod choose;
mod deadline;
mod fault_sites;
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

pub use backend::Backend;
pub use bounded::Bounded;
pub use choose::{IoEngine, Options, UnknownIoEngine};
pub use deadline::Deadline;
pub use fault_sites::{FaultSite, FaultSites};
pub use inject::{Gate, Inject, InjectOp, Numbers, Request, Verdict, carry_out};
pub use overlap::{Batch, Writer};
pub use request::{Arena, Completion, Read, ReadRun, Slice, Write};
pub use timed::{End, Left};
pub use uring::Refusal;
