//! The table of requests in flight. `submit.rs` fills it.

use super::files::FileId;
use super::sched::TaskId;
use lowtide_core::FolioId;
use lowtide_workload::prng::mix64;

/// What happens at the end of a request.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Pages that have frames and wait for their contents.
    Read { first: u64, frames: Vec<FolioId> },
    /// Pages under writeback.
    Write { first: u64, frames: Vec<FolioId>, sequence: u64 },
    /// What has been written is to be durable; a task waits for it.
    Flush { task: TaskId, number: u64 },
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) file: FileId,
    pub(super) purpose: Purpose,
    pub(super) failed: bool,
    /// It takes longer than it should.
    hung: bool,
    /// The task that submitted it, while its group may not read yet.
    pub(super) held_for: Option<TaskId>,
}

impl Request {
    pub(super) const fn new(file: FileId, purpose: Purpose) -> Self {
        Self { file, purpose, failed: false, hung: false, held_for: None }
    }
}

/// One command in n fails, at no regular distance, and one read in n hangs; 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fails {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub hangs: u64,
}

/// The table of requests in flight.
#[derive(Debug, Default)]
pub struct Requests {
    slots: Vec<Option<Request>>,
    free: Vec<u32>,
    pub in_flight: u32,
    pub fails: Fails,
    submitted: u64,
    writes: u64,
    pub(super) flushes: u64,
}

impl Requests {
    pub(super) fn add(&mut self, mut request: Request) -> u32 {
        self.in_flight += 1;
        self.submitted += 1;
        let one_in = match request.purpose {
            Purpose::Read { .. } => self.fails.reads,
            Purpose::Write { .. } => self.fails.writes,
            Purpose::Flush { .. } => self.fails.flushes,
        };
        request.failed = one_in > 0 && mix64(self.submitted).is_multiple_of(one_in);
        let reads = matches!(request.purpose, Purpose::Read { .. });
        request.hung = reads
            && self.fails.hangs > 0
            && mix64(!self.submitted).is_multiple_of(self.fails.hangs);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(request);
        slot
    }

    pub(super) fn next_write(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    /// The number of the last write submitted.
    pub const fn last_write(&self) -> u64 {
        self.writes
    }

    /// Pages that are being read, and those that are being written.
    pub fn pages_in_flight(&self) -> (usize, usize) {
        let mut pages = (0, 0);
        for request in self.slots.iter().flatten() {
            match &request.purpose {
                Purpose::Read { frames, .. } => pages.0 += frames.len(),
                Purpose::Write { frames, .. } => pages.1 += frames.len(),
                Purpose::Flush { .. } => {}
            }
        }
        pages
    }

    /// The frames that reads which hang are to fill, and the pages that these will be.
    pub fn hung(&self) -> impl Iterator<Item = (FileId, u64, FolioId)> {
        self.slots.iter().flatten().filter(|request| request.hung).flat_map(|request| {
            let (first, frames) = match &request.purpose {
                Purpose::Read { first, frames } => (*first, frames.as_slice()),
                _ => (0, &[][..]),
            };
            (first..).zip(frames).map(|(page, &frame)| (request.file, page, frame))
        })
    }

    /// Tasks that wait for flushes of the device's cache.
    pub fn flushing(&self) -> impl Iterator<Item = TaskId> {
        self.slots.iter().flatten().filter_map(|request| match request.purpose {
            Purpose::Flush { task, .. } => Some(task),
            _ => None,
        })
    }

    /// A request is no longer held. Returns which task it is for and what it reads; `None` if it
    /// was not held.
    pub(super) fn release(&mut self, slot: u32) -> Option<(TaskId, FileId, u64, u64)> {
        let request = self.slots[slot as usize].as_mut()?;
        let task = request.held_for.take()?;
        match &request.purpose {
            Purpose::Read { first, frames } => {
                Some((task, request.file, *first, frames.len() as u64))
            }
            Purpose::Write { .. } | Purpose::Flush { .. } => None,
        }
    }

    pub(super) fn is_hung(&self, slot: u32) -> bool {
        self.slots[slot as usize].as_ref().is_some_and(|request| request.hung)
    }

    pub(super) fn take(&mut self, slot: u32) -> Request {
        self.in_flight -= 1;
        self.free.push(slot);
        self.slots[slot as usize].take().expect("a request completes once")
    }
}
