//! The bench's side of a peer that uses the kernel's page cache: a child process, its memory
//! cgroup, and the requests to it.
//!
//! The order matters (see `lowtide_host::memcg`): the child prepares itself, is moved into a new
//! group whose limit is the budget, and only then touches its file. So the budget is charged for
//! every page of the file, but not for the child's code and tables, as with lowtide. All systems
//! have the same budget.
//!
//! On drop the child is ended and then the group is removed, also after an error.

use std::io::{self, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use lowtide_host::itself;
use lowtide_host::memcg::Memcg;
use lowtide_host::usage::ProcIo;
use lowtide_report::interrupt;
use lowtide_report::tally::Slice;
use serde::Serialize;

use super::protocol::{Reply, receive, send};
use crate::error::BenchError;
use crate::system::add_device_kib;

/// Interval at which a wait for the child checks for Ctrl-C.
const POLL: Duration = Duration::from_millis(50);
/// Prefixes of the counters of `memory.stat` that only grow; the others are levels.
const COUNTERS: [&str; 4] = ["pg", "pswp", "workingset_", "thp_"];
/// Fatal signals with a common cause.
const SIGKILL: i32 = 9;
const SIGBUS: i32 = 7;

/// A child in its own memory cgroup.
pub struct Process {
    name: &'static str,
    max_bytes: u64,
    child: Child,
    requests: Option<ChildStdin>,
    replies: Receiver<io::Result<Reply>>,
    /// Removed after the child has ended: fields are dropped after `drop` has run.
    group: Memcg,
}

impl Process {
    /// Starts a child with a budget of `max_bytes`. The child handles `ready` before it is moved
    /// into its group.
    ///
    /// # Errors
    /// [`BenchError::Memcg`] when the group cannot be created, [`BenchError::Peer`] when the child
    /// cannot prepare itself, [`BenchError::PeerKilled`] when the budget is too small even for
    /// that, [`BenchError::Interrupted`].
    pub fn start(
        name: &'static str,
        max_bytes: u64,
        ready: Option<&impl Serialize>,
    ) -> Result<Self, BenchError> {
        let broken = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| BenchError::Peer {
                peer: name,
                what: format!("{what}: {error}"),
            }
        };
        let group = Memcg::create(name, max_bytes)?;
        let mut child = Command::new(itself::path())
            .arg("peer-mmap")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C at a terminal goes to the whole process group; ending the peer is the bench's
            // task.
            .process_group(0)
            .spawn()
            .map_err(broken("cannot be started"))?;
        let requests = child.stdin.take();
        let replies = listen(&mut child);
        let mut peer = Self { name, max_bytes, child, requests, replies, group };
        if let Some(request) = ready {
            peer.ask(request)?;
        }
        peer.group.add(peer.child.id())?;
        Ok(peer)
    }

    /// Lets the child's pages go to swap.
    ///
    /// # Errors
    /// [`BenchError::Memcg`].
    pub fn allow_swap(&self) -> Result<(), BenchError> {
        Ok(self.group.allow_swap()?)
    }

    /// Requests a slice, and adds the kernel's counters for it.
    ///
    /// # Errors
    /// Those of [`ask`](Self::ask); [`BenchError::Memcg`].
    pub fn play(&mut self, request: &impl Serialize) -> Result<Slice, BenchError> {
        let pid = self.child.id();
        let (stat, io) = (self.group.stat()?, ProcIo::read(pid).unwrap_or_default());
        let Reply::Played { mut slice } = self.ask(request)? else {
            return Err(self.error("answered a question that was not asked".into()));
        };
        let moved = ProcIo::read(pid).unwrap_or_default().since(io);
        slice.read_bytes = moved.read_bytes;
        slice.write_bytes = moved.write_bytes;
        slice.stat = self
            .group
            .stat()?
            .into_iter()
            .filter(|(counter, _)| COUNTERS.iter().any(|prefix| counter.starts_with(prefix)))
            .map(|(counter, now)| {
                let before = stat.get(&counter).copied().unwrap_or(0);
                (counter, now.saturating_sub(before))
            })
            .collect();
        add_device_kib(&mut slice);
        slice.current_bytes = self.group.usage()?;
        Ok(*slice)
    }

    /// Sends a request, and waits for the reply.
    ///
    /// # Errors
    /// [`BenchError::Peer`] when the reply is a failure, or there is none;
    /// [`BenchError::PeerKilled`], [`BenchError::Interrupted`].
    pub fn ask(&mut self, request: &impl Serialize) -> Result<Reply, BenchError> {
        let sent = self.requests.as_mut().map_or(Ok(()), |to| send(to, request));
        if sent.is_err() {
            return Err(self.gone());
        }
        loop {
            match self.replies.recv_timeout(POLL) {
                Ok(Ok(Reply::Failed { what })) => return Err(self.error(what)),
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(error)) => return Err(self.error(format!("does not answer: {error}"))),
                Err(RecvTimeoutError::Timeout) => {
                    interrupt::check(|| format!("running {}", self.name))?;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
            }
        }
    }

    const fn error(&self, what: String) -> BenchError {
        BenchError::Peer { peer: self.name, what }
    }

    /// Why the child has ended.
    fn gone(&mut self) -> BenchError {
        match self.child.wait() {
            Ok(status) => obituary(self.name, self.max_bytes, status),
            Err(error) => self.error(error.to_string()),
        }
    }
}

/// An explanation of a peer's end for the user.
fn obituary(peer: &'static str, max_bytes: u64, status: ExitStatus) -> BenchError {
    let what = match status.signal() {
        Some(SIGKILL) => return BenchError::PeerKilled { peer, max_bytes },
        Some(SIGBUS) => {
            "was ended by SIGBUS, which is how mmap reports that a page cannot be read: was the \
             file truncated, or \
             does the device fail?"
                .into()
        }
        _ => format!("ended early ({status})"),
    };
    BenchError::Peer { peer, what }
}

/// A thread that reads the child's replies, so that a wait can check for Ctrl-C. It ends with the
/// child.
fn listen(child: &mut Child) -> Receiver<io::Result<Reply>> {
    let (sender, receiver) = channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(reply) = receive(&mut output).transpose() {
                let last = reply.is_err();
                if sender.send(reply).is_err() || last {
                    return;
                }
            }
        });
    }
    receiver
}

impl Drop for Process {
    fn drop(&mut self) {
        self.requests = None;
        // It may be in the middle of a slice whose result is no longer needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_died_says_why() {
        let said = |status| obituary("mmap", 1 << 20, ExitStatus::from_raw(status)).to_string();
        assert!(said(SIGBUS).contains("truncated"));
        assert!(said(SIGKILL).contains("1M is too little") && said(SIGKILL).contains("--max"));
        assert!(said(0x100).contains("exit status: 1"));
    }
}
