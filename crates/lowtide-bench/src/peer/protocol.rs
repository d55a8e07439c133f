//! The protocol between the bench and a peer: JSON, one message per line, one reply to each
//! request.
//!
//! ```text
//!   bench                            peer
//!     │  Prepare{job, …}  ─────────►   reads the trace, makes players' tables: charged outside
//!     │  ◄─────────────────  Done
//!     │  (moves the peer into the memory cgroup)
//!     │  Open  ────────────────────►   opens or maps the file, starts its threads
//!     │  ◄─────────────────  Done
//!     │  Run{until}  ──────────────►   plays one slice, flushes
//!     │  ◄────────────  Played{slice}
//!     │  (end of file)  ───────────►   ends
//! ```
//!
//! Any reply may be `Failed` instead. A command with other peers has requests of its own.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use lowtide_report::tally::Slice;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::play::job::Job;
use crate::thread_pool::Until;

/// How a peer reaches the bytes of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// A mapping, without any `madvise`.
    Mapping,
    /// A mapping with `MADV_RANDOM`.
    RandomMapping,
    /// `pread` through the page cache.
    Buffered,
    /// `pread` past it.
    Direct,
}

/// A request from the bench.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Prepare for the job without touching the file.
    Prepare {
        job: Box<Job>,
        path: PathBuf,
        /// How the file is read.
        reach: Reach,
    },
    /// Open or map the file, and start the threads.
    Open,
    /// Play a slice.
    Run { until: Until },
}

/// A reply from the peer.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Done,
    /// The result of a slice.
    Played {
        /// The counts, without those that the bench measures itself.
        slice: Box<Slice>,
    },
    Failed {
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
