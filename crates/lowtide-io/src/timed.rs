//! Reads that their thread can leave: threads of the pager make them.
//!
//! A read that a device has begun cannot be taken back, and the thread that made it cannot go: a
//! system call returns when the device answers, and the kernel keeps a thread that has requests in
//! a ring from ending. So where reads have a deadline, [workers](super::workers) make the calls,
//! and the thread that wants the bytes waits for an answer for as long as it likes.
//!
//! ```text
//!   push ──▶ queued ──▶ started ──▶ ended: into the mailbox of the thread that waits
//!               │          └─leave─▶ late ──▶ ended: given to what was left for it
//!               └─leave─▶ withdrawn: its memory was never touched
//! ```
//!
//! What is left for a late read owns all that the device may still write to, and what has to happen
//! with it in the end. A read that no worker has begun is withdrawn in place of that, and costs no
//! memory.
//!
//! The price is a switch of threads for each read, there and back.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::backend::Backend;
use super::inject::{Inject, Request, carry_out};
use super::job::{Job, Work};
use super::psync::{Mailbox, lock};
use super::workers::Workers;

/// What is to be done when a late read ends. It gets the result.
pub type End = Box<dyn FnOnce(io::Result<u64>) + Send>;

/// Where a read is.
enum Stage {
    Queued,
    Started,
    Late(End),
    Withdrawn,
    /// Its result is in the mailbox, or was given to its [`End`].
    Ended,
}

/// What became of a read that its thread does not wait for any more.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// It will not be made.
    Withdrawn,
    /// The device has it. What was left is called when it ends.
    Late,
    /// It has just ended, and the next wait returns it.
    Ended,
}

/// A read, as a worker has it.
struct Errand {
    user: u64,
    work: Work,
    watched: Option<Watched>,
    stage: Arc<Mutex<Stage>>,
    reply: Arc<Mailbox>,
    workers: Arc<Workers>,
}

/// For an injector.
struct Watched {
    inject: Arc<dyn Inject>,
    path: Arc<PathBuf>,
    number: u64,
}

impl Watched {
    /// Carries a read out as the injector says.
    fn run(&self, work: &mut Work) -> io::Result<u64> {
        let (op, offset, len) = (work.op(), work.offset(), work.wanted());
        let request = Request { op, path: &self.path, offset, len, number: self.number };
        let mut moved = len;
        carry_out(&*self.inject, &request, |limit| {
            limit.into_iter().for_each(|limit| work.shorten(limit));
            moved = work.run()?;
            Ok(())
        })?;
        Ok(moved)
    }
}

impl Errand {
    fn run(mut self) {
        {
            let mut stage = lock(&self.stage);
            if let Stage::Withdrawn = *stage {
                return;
            }
            *stage = Stage::Started;
        }
        let result = match &self.watched {
            None => self.work.run(),
            Some(watched) => watched.run(&mut self.work),
        };
        let mut stage = lock(&self.stage);
        match std::mem::replace(&mut *stage, Stage::Ended) {
            Stage::Late(end) => {
                drop(stage);
                self.workers.find();
                end(result);
            }
            _ => self.reply.put(self.user, self.work, result),
        }
    }
}

/// The reads of one thread.
pub(super) struct TimedQueue<'b> {
    backend: &'b Backend,
    workers: &'b Arc<Workers>,
    /// How many of its reads are made at once, at most.
    depth: usize,
    path: Arc<PathBuf>,
    mailbox: Arc<Mailbox>,
    /// Pushed, and not given to the workers.
    waiting: VecDeque<(u64, Work)>,
    /// Given to the workers, and neither returned nor left.
    flying: Vec<(u64, Arc<Mutex<Stage>>)>,
}

impl fmt::Debug for TimedQueue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedQueue").field("in_flight", &self.in_flight()).finish_non_exhaustive()
    }
}

impl<'b> TimedQueue<'b> {
    pub(super) fn new(
        backend: &'b Backend,
        (workers, depth): (&'b Arc<Workers>, usize),
        path: &Arc<PathBuf>,
    ) -> TimedQueue<'b> {
        let (mailbox, waiting, flying) = (Arc::default(), VecDeque::new(), Vec::new());
        TimedQueue { backend, workers, depth, path: Arc::clone(path), mailbox, waiting, flying }
    }

    pub(super) fn push(&mut self, user: u64, work: Work) {
        self.waiting.push_back((user, work));
    }

    /// Gives as many reads to the workers as may be in flight, without waiting.
    pub(super) fn submit(&mut self) {
        while self.flying.len() < self.depth
            && let Some((user, work)) = self.waiting.pop_front()
        {
            let watched = self.backend.injector().map(|inject| Watched {
                inject: Arc::clone(inject),
                path: Arc::clone(&self.path),
                number: self.backend.next_number(),
            });
            let stage = Arc::new(Mutex::new(Stage::Queued));
            self.flying.push((user, Arc::clone(&stage)));
            let (reply, workers) = (Arc::clone(&self.mailbox), Arc::clone(self.workers));
            let errand = Errand { user, work, watched, stage, reply, workers };
            self.workers.give(Box::new(move || errand.run()));
        }
    }

    /// Waits until at least `min` reads have ended (or all in flight, if there are fewer), or until
    /// the deadline, and gives each that has ended to `sink`. Others start in their place: a caller
    /// that wants more calls again.
    pub(super) fn wait(
        &mut self,
        min: usize,
        deadline: Option<Instant>,
        mut sink: impl FnMut(u64, &Work, io::Result<u64>),
    ) {
        self.submit();
        for (user, work, result) in self.mailbox.take(min.min(self.flying.len()), deadline) {
            self.flying.retain(|(flying, _)| *flying != user);
            sink(user, &work, result);
        }
        self.submit();
    }

    /// Waits for a read no longer. If the device has it, `end` makes what is called with its
    /// result, in another thread.
    ///
    /// # Panics
    /// When there is no such read.
    pub(super) fn leave(&mut self, user: u64, end: impl FnOnce() -> End) -> Left {
        if let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == user) {
            self.waiting.remove(at);
            return Left::Withdrawn;
        }
        let at = self.flying.iter().position(|(flying, _)| *flying == user);
        let at = at.expect("only a read that has not been returned is left");
        let left = {
            let mut stage = lock(&self.flying[at].1);
            let (next, left) = match std::mem::replace(&mut *stage, Stage::Ended) {
                Stage::Queued => (Stage::Withdrawn, Left::Withdrawn),
                Stage::Started => (Stage::Late(end()), Left::Late),
                stage @ (Stage::Late(_) | Stage::Withdrawn | Stage::Ended) => (stage, Left::Ended),
            };
            *stage = next;
            if left == Left::Late {
                self.workers.lose();
            }
            left
        };
        if left != Left::Ended {
            self.flying.swap_remove(at);
        }
        left
    }

    /// Reads pushed, and neither returned nor left.
    pub(super) fn in_flight(&self) -> usize {
        self.waiting.len() + self.flying.len()
    }

    /// How many reads are made at once, at most.
    pub(super) fn capacity(&self) -> usize {
        self.depth
    }
}

impl Drop for TimedQueue<'_> {
    fn drop(&mut self) {
        // A thread that cannot wait has left them.
        self.mailbox.take(self.flying.len(), None);
    }
}
