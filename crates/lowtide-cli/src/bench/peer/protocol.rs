//! The protocol between the bench and an mmap peer: JSON, one message per line, one reply to each
//! request.
//!
//! ```text
//!   bench                            peer
//!     │  Prepare{job, …}  ─────────►   reads the trace, makes players' tables: charged outside
//!     │  ◄─────────────────  Done
//!     │  (moves the peer into the memory cgroup)
//!     │  Map  ─────────────────────►   maps the file (fills the heap), starts its threads
//!     │  ◄─────────────────  Done
//!     │  Run{until}  ──────────────►   plays one slice, flushes
//!     │  ◄────────────  Played{slice}
//!     │  Fill{fill}  ──────────────►   or: writes a whole file, flushes
//!     │  ◄────────────  Played{slice}
//!     │  Mapped{program, until}  ──►   or: reads files through mappings
//!     │  ◄────────────  Played{slice}
//!     │  (end of file)  ───────────►   ends
//! ```
//!
//! Any reply may be `Failed` instead.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use lowtide_report::tally::Slice;
use lowtide_workload::heap::AnonZipf;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bench::mapped::Mapped;
use crate::bench::play::job::Job;
use crate::bench::thread_pool::Until;
use crate::bench::write::Fill;

/// `anon-zipf`, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapJob {
    /// Bytes of the heap.
    pub heap: u64,
    /// Threads.
    pub threads: u32,
    /// Operations that store, in percent.
    pub stores: u32,
    /// Seed of the choices.
    pub seed: u64,
}

impl From<HeapJob> for AnonZipf {
    /// Its sizes of time are those of a new one: a player on real memory has its own.
    fn from(job: HeapJob) -> Self {
        let HeapJob { heap, threads, stores, seed } = job;
        Self { heap, threads, stores, seed, ..Self::new(heap, 1.0) }
    }
}

/// A request from the bench.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Prepare for the job without touching the file.
    Prepare {
        /// The job.
        job: Box<Job>,
        /// The file.
        path: PathBuf,
        /// With `MADV_RANDOM`.
        random: bool,
    },
    /// Prepare for a program with a heap without touching the heap.
    PrepareHeap {
        /// The program.
        job: HeapJob,
    },
    /// Map the file, or fill the heap, and start the threads.
    Map,
    /// Play a slice.
    Run {
        /// Its length.
        until: Until,
    },
    /// Write a file from its start to its end.
    Fill {
        /// The file, and the source of its bytes.
        fill: Fill,
        /// Through a mapping instead of the descriptor.
        mapped: bool,
    },
    /// Read files through mappings.
    Mapped {
        /// What is read, and how.
        program: Mapped,
        /// With `MADV_RANDOM`.
        random: bool,
        /// How long.
        until: Until,
    },
}

/// A reply from the peer.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// Success.
    Done,
    /// The result of a slice.
    Played {
        /// The counts, without those that the bench measures itself.
        slice: Box<Slice>,
    },
    /// Failure.
    Failed {
        /// The reason.
        what: String,
    },
}

/// Writes one message.
///
/// # Errors
/// Those of writing, `BrokenPipe` when the other side has ended.
pub fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads one message; `None` when the other side has ended.
///
/// # Errors
/// Those of reading; `InvalidData` for an invalid message.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_pipe_and_its_end_is_none() {
        let slice = Slice { ops: 7, latency: vec![(100, 7)], ..Slice::default() };
        let mut pipe = Vec::new();
        send(&mut pipe, &Request::Run { until: Until::Seconds(0.5) }).unwrap();
        send(&mut pipe, &Reply::Played { slice: Box::new(slice) }).unwrap();
        let mut reader = pipe.as_slice();
        assert!(matches!(
            receive(&mut reader).unwrap(),
            Some(Request::Run { until: Until::Seconds(s) }) if s == 0.5
        ));
        let Some(Reply::Played { slice }) = receive(&mut reader).unwrap() else {
            panic!("a slice was sent")
        };
        assert_eq!((slice.ops, slice.latency), (7, vec![(100, 7)]));
        assert!(receive::<Reply>(&mut reader).unwrap().is_none());
        assert_eq!(
            receive::<Reply>(&mut &b"nonsense\n"[..]).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
}
