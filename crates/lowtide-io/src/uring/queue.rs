//! Many jobs on one ring, at most as many in flight as it was made for.
//!
//! ```text
//!   push ──▶ queued ──stage──▶ slots (staged or in the kernel) ──reap──▶ ended ──▶ sink
//!              ▲                                                  │
//!              └────────────── goes on: interrupted, short ◀──────┘
//! ```
//!
//! The number of a slot is the user data of its entry. Dropping a queue forgets what is queued and
//! waits for what is in the kernel.
//!
//! # Safety
//!
//! This file opts in to unsafe code to stage entries. The argument is always the same: a job names
//! memory that its maker has promised until the job's end, the job stays in its slot until then,
//! and the queue does not go away while the kernel has an entry of it.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use io_uring::squeue::Entry;
use slab::Slab;

use super::super::job::{Job, Step, Work};
use super::cache::Lease;
use super::ring::Ring;

/// A job and the number its maker knows it by.
#[derive(Debug)]
struct Task {
    user: u64,
    work: Work,
}

impl Task {
    /// The entry for what is left of the job. Memory that it names inside the job stays where it is
    /// until the next [`settle`](Job::settle), even if the job moves.
    fn entry(&mut self, ring: &Ring) -> Entry {
        match &mut self.work {
            Work::Read(job) => ring.read_entry(&job.rest()),
            Work::ReadRun(job) => {
                let (fd, offset, slices) = job.rest();
                ring.read_run_entry(fd, offset, slices)
            }
            Work::Write(job) => {
                let (fd, offset, slices) = job.rest();
                ring.write_entry(fd, offset, slices)
            }
            Work::Sync(job) => ring.sync_entry(job.fd),
        }
    }
}

/// The jobs of one user of a ring.
#[derive(Debug)]
pub(crate) struct Queue {
    lease: Lease,
    queued: VecDeque<Task>,
    slots: Slab<Task>,
    capacity: usize,
}

impl Queue {
    /// An empty queue that keeps at most `depth` jobs in flight, or as many as the ring has
    /// entries.
    pub(super) fn new(mut lease: Lease, depth: usize) -> Queue {
        let capacity = depth.min(lease.ring().entries());
        Queue { lease, queued: VecDeque::new(), slots: Slab::new(), capacity }
    }

    /// How many jobs are kept in flight at most.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Jobs pushed and not yet given to a sink.
    pub(crate) fn in_flight(&self) -> usize {
        self.queued.len() + self.slots.len()
    }

    /// Adds a job. Nothing is handed to the kernel yet.
    pub(crate) fn push(&mut self, user: u64, work: Work) {
        self.queued.push_back(Task { user, work });
    }

    /// Hands as many jobs to the kernel as may be in flight, without waiting.
    pub(crate) fn submit(&mut self) {
        self.stage();
        let ring = self.lease.ring();
        if !ring.is_broken() && ring.staged() > 0 {
            ring.enter(0, None);
        }
    }

    /// Waits until at least `min` jobs have ended (or all, if there are fewer), or until the
    /// deadline, and gives the number, the job and the result of each that has ended to `sink`.
    pub(crate) fn wait(
        &mut self,
        min: usize,
        deadline: Option<Instant>,
        mut sink: impl FnMut(u64, &Work, io::Result<u64>),
    ) {
        let mut left = min.min(self.in_flight());
        if self.in_flight() == 0 {
            return;
        }
        loop {
            self.stage();
            let occupied = self.slots.len();
            let timeout =
                deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let late = timeout.is_some_and(|timeout| timeout.is_zero());
            let ring = self.lease.ring();
            if !ring.is_broken() {
                ring.enter(if late { 0 } else { left.min(occupied) }, timeout);
            } else if ring.in_kernel() > 0 {
                ring.outlast();
            } else {
                return self.run_here(sink);
            }
            left = left.saturating_sub(self.reap(&mut sink));
            if left == 0 || late {
                break;
            }
        }
        if !self.queued.is_empty() {
            self.submit();
        }
    }

    /// Moves jobs from the queue to the ring.
    fn stage(&mut self) {
        if self.lease.ring().is_broken() {
            return;
        }
        while self.slots.len() < self.capacity
            && let Some(mut task) = self.queued.pop_front()
        {
            let slot = self.slots.vacant_key();
            let ring = self.lease.ring();
            let entry = task.entry(ring).user_data(slot as u64);
            // SAFETY: the memory is promised until the end of the job. The job is kept in its slot
            // until its entry is reaped, and `drop` waits for entries that the kernel has.
            if !unsafe { ring.stage(&entry) } {
                self.queued.push_front(task);
                return;
            }
            self.slots.insert(task);
        }
    }

    /// Takes what has ended off the ring. Returns how many jobs that ended.
    fn reap(&mut self, sink: &mut impl FnMut(u64, &Work, io::Result<u64>)) -> usize {
        let mut ended = 0;
        while let Some((slot, outcome)) = self.lease.ring().reap() {
            let task = self.slots.try_remove(slot as usize);
            let mut task = task.expect("a completion belongs to an occupied slot");
            match task.work.settle(outcome) {
                Step::Again => self.queued.push_front(task),
                Step::Done(result) => {
                    ended += 1;
                    sink(task.user, &task.work, result);
                }
            }
        }
        ended
    }

    /// Carries every job to its end without the ring, which is broken and has nothing in the
    /// kernel.
    fn run_here(&mut self, mut sink: impl FnMut(u64, &Work, io::Result<u64>)) {
        let slots = std::mem::take(&mut self.slots);
        for mut task in slots.into_iter().map(|(_, task)| task).chain(self.queued.drain(..)) {
            let result = task.work.run();
            sink(task.user, &task.work, result);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.queued.clear();
        loop {
            let ring = self.lease.ring();
            if ring.is_broken() {
                if ring.in_kernel() == 0 {
                    return;
                }
                ring.outlast();
            } else if ring.is_idle() {
                return;
            } else {
                ring.enter(1, None);
            }
            while self.lease.ring().reap().is_some() {}
        }
    }
}
