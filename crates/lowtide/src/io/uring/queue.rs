//! Many jobs on one ring, at most as many in flight as it was made for.
//!
//! ```text
//!   push ──▶ queued ──stage──▶ slots (staged or in the kernel) ──reap──▶ ended ──▶ sink
//!              ▲                                                  │
//!              └────────────── goes on: interrupted, short ◀──────┘
//! ```
//!
//! The number of a slot is the user data of its entry. Dropping a queue forgets what is queued and waits
//! for what is in the kernel.
//!
//! # Safety
//!
//! This file opts in to unsafe code to stage entries. The argument is always the same: a job names memory
//! that its maker has promised until the job's end, the job stays in its slot until then, and the queue
//! does not go away while the kernel has an entry of it.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;

use io_uring::squeue::Entry;

use super::super::job::{Job, ReadJob, Step, WriteJob};
use super::drawers::Lease;
use super::ring::Ring;

/// A job that can be put on a ring.
pub(super) trait RingJob: Job {
    /// The entry for what is left of the job. Memory that it names inside the job must stay where it is
    /// until the next [`settle`](Job::settle), even if the job moves.
    fn entry(&mut self, ring: &Ring) -> Entry;
}

impl RingJob for ReadJob {
    fn entry(&mut self, ring: &Ring) -> Entry {
        ring.read_entry(&self.rest())
    }
}

impl RingJob for WriteJob {
    fn entry(&mut self, ring: &Ring) -> Entry {
        let (fd, offset, slices, count) = self.rest();
        ring.write_entry(fd, offset, slices, count)
    }
}

/// A job and the number its maker knows it by.
#[derive(Debug)]
struct Task<J> {
    user: u64,
    job: J,
}

/// The jobs of one user of a ring.
#[derive(Debug)]
pub(super) struct Queue<J: RingJob> {
    lease: Lease,
    queued: VecDeque<Task<J>>,
    slots: Vec<Option<Task<J>>>,
    free: Vec<usize>,
    capacity: usize,
}

impl<J: RingJob> Queue<J> {
    /// An empty queue that keeps at most `depth` jobs in flight, or as many as the ring has entries.
    pub(super) fn new(mut lease: Lease, depth: usize) -> Queue<J> {
        let capacity = depth.min(lease.ring().entries());
        Queue { lease, queued: VecDeque::new(), slots: Vec::new(), free: Vec::new(), capacity }
    }

    /// How many jobs are kept in flight at most.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Jobs pushed and not yet given to a sink.
    pub(super) fn in_flight(&self) -> usize {
        self.queued.len() + self.occupied()
    }

    fn occupied(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a job. Nothing is handed to the kernel yet.
    pub(super) fn push(&mut self, user: u64, job: J) {
        self.queued.push_back(Task { user, job });
    }

    /// Hands as many jobs to the kernel as may be in flight, without waiting.
    pub(super) fn submit(&mut self) {
        self.stage();
        let ring = self.lease.ring();
        if !ring.is_broken() && ring.staged() > 0 {
            ring.enter(0);
        }
    }

    /// Waits until at least `min` jobs have ended (or all, if there are fewer), and gives the number and
    /// the result of each that has ended to `sink`.
    pub(super) fn wait(&mut self, min: usize, mut sink: impl FnMut(u64, io::Result<u64>)) {
        let mut left = min.min(self.in_flight());
        if self.in_flight() == 0 {
            return;
        }
        loop {
            self.stage();
            let occupied = self.occupied();
            let ring = self.lease.ring();
            if !ring.is_broken() {
                ring.enter(left.min(occupied));
            } else if ring.in_kernel() > 0 {
                ring.outlast();
            } else {
                return self.run_here(sink);
            }
            left = left.saturating_sub(self.reap(&mut sink));
            if left == 0 {
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
        while self.occupied() < self.capacity
            && let Some(mut task) = self.queued.pop_front()
        {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            let ring = self.lease.ring();
            let entry = task.job.entry(ring).user_data(slot as u64);
            // SAFETY: the memory is promised until the end of the job. The job is kept in its slot until
            // its entry is reaped, and `drop` waits for entries that the kernel has.
            if !unsafe { ring.stage(&entry) } {
                self.free.push(slot);
                self.queued.push_front(task);
                return;
            }
            self.slots[slot] = Some(task);
        }
    }

    /// Takes what has ended off the ring. Returns how many jobs that ended.
    fn reap(&mut self, sink: &mut impl FnMut(u64, io::Result<u64>)) -> usize {
        let mut ended = 0;
        while let Some((slot, outcome)) = self.lease.ring().reap() {
            let slot = slot as usize;
            let mut task = self.slots[slot].take().expect("a completion belongs to an occupied slot");
            self.free.push(slot);
            match task.job.settle(outcome) {
                Step::Again => self.queued.push_front(task),
                Step::Done(result) => {
                    ended += 1;
                    sink(task.user, result);
                }
            }
        }
        ended
    }

    /// Carries every job to its end without the ring, which is broken and has nothing in the kernel.
    fn run_here(&mut self, mut sink: impl FnMut(u64, io::Result<u64>)) {
        let slots = std::mem::take(&mut self.slots);
        self.free.clear();
        for mut task in slots.into_iter().flatten().chain(self.queued.drain(..)) {
            sink(task.user, task.job.run());
        }
    }
}

impl<J: RingJob> Drop for Queue<J> {
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
                ring.enter(1);
            }
            while self.lease.ring().reap().is_some() {}
        }
    }
}
