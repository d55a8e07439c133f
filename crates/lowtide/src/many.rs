//! Many pages at once: hits are served as they are found, misses overlap up to the configured depth.
//!
//! One thread keeps several claims. Two rules keep that from ever becoming a deadlock: a thread that owns claims never waits for
//! another thread's page or for a frame before it has resolved its own; and a page that is in other hands is put off
//! until the end.

use crate::error::Error;
use crate::fault::{Access, Claim, Miss};
use crate::hazard;
use crate::high::{Pay, Stall};
use crate::io::{Batch, Completion};
use crate::pool::Pool;
use crate::space::Space;
use crate::translation::State as EntryState;
use std::cell::Cell;

thread_local! {
    static PIPELINES: Cell<u32> = const { Cell::new(0) };
}

/// Calls of this thread that may have reads in flight. While there are any, the thread must not wait for a page in other hands.
pub(crate) fn pipelines() -> u32 {
    PIPELINES.get()
}

/// Reads in flight for one call. Dropping it, even in a panic, resolves them all.
struct Pipeline<'p> {
    pool: &'p Pool,
    space: &'p Space,
    batch: Batch<'p>,
    /// In flight, by the number that the completion carries.
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    done: Vec<Completion>,
    young: bool,
}

#[derive(Debug)]
struct Pending {
    /// Position in the caller's list.
    index: usize,
    page: u64,
    claim: Claim,
    frame: u32,
    stall: Option<Stall>,
}

impl<'p> Pipeline<'p> {
    fn new(pool: &'p Pool, space: &'p Space, young: bool) -> Self {
        let batch = pool.backend.batch(space.path_ref());
        PIPELINES.set(PIPELINES.get() + 1);
        Self { pool, space, batch, pending: Vec::new(), free: Vec::new(), done: Vec::new(), young }
    }

    /// Reads that are not resolved: with the device, or arrived and not yet looked at.
    fn in_flight(&self) -> usize {
        self.pending.len() - self.free.len()
    }

    /// Reads to wait for at a time: waking for each costs more than it brings.
    fn quarter(&self) -> usize {
        (self.batch.capacity() / 4).max(1)
    }

    /// Makes room for another read, if need be.
    fn make_room(&mut self, each: impl FnMut(usize, u64, Option<u32>)) -> Result<(), Error> {
        if self.in_flight() < self.batch.capacity() {
            return Ok(());
        }
        self.reap(self.quarter(), each)
    }

    /// Resolves everything in flight, or everything up to the first error.
    fn finish(&mut self, mut each: impl FnMut(usize, u64, Option<u32>)) -> Result<(), Error> {
        while self.in_flight() > 0 {
            self.reap(self.in_flight(), &mut each)?;
        }
        Ok(())
    }

    fn push(&mut self, pending: Pending) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.pending.push(None);
            self.pending.len() - 1
        });
        self.batch.push(self.pool.read_request(self.space, &pending.claim, pending.frame, slot as u64));
        self.pending[slot] = Some(pending);
        if self.in_flight().is_multiple_of(self.quarter()) {
            // The device begins while this thread prepares more.
            self.batch.submit();
        }
    }

    /// Waits for at least `min` reads and resolves all that have ended. `each` sees the pages that came in, still held, with their frames; without a
    /// frame, if a store has taken the page already.
    fn reap(&mut self, min: usize, mut each: impl FnMut(usize, u64, Option<u32>)) -> Result<(), Error> {
        self.batch.wait(min, &mut self.done);
        let mut first_error = Ok(());
        while let Some(completion) = self.done.pop() {
            let slot = completion.user as usize;
            let Some(p) = self.pending[slot].take() else { continue };
            self.free.push(slot);
            let entry = self.space.table.entry(p.page);
            // Held before it is published, so that it is still there when the caller looks.
            let held = hazard::hold(entry.address());
            let resolved = self.pool.resolve(self.space, &p.claim, p.frame, completion.result, self.young);
            self.pool.stall_ends(p.stall, (self.pool.page_bytes() as u64) << p.claim.order);
            match resolved {
                Ok(()) => {
                    // A store may have come first; then the page is put off like any other in hand.
                    let frame = match entry.load() {
                        EntryState::Resident { frame, .. } => Some(frame),
                        _ => None,
                    };
                    each(p.index, p.page, frame);
                }
                Err(e) if first_error.is_ok() => first_error = Err(e),
                Err(_) => {}
            }
            drop(held);
        }
        first_error
    }
}

/// Who called `get_many`, and the pages that it has yet to be shown one by one.
struct Caller<'p, F> {
    pool: &'p Pool,
    each: F,
    put_off: Vec<(usize, u64)>,
}

impl<F: FnMut(usize, &[u8])> Caller<'_, F> {
    /// Shows a page that is held, or puts it off if it is in other hands.
    fn show(&mut self, index: usize, page: u64, frame: Option<u32>) {
        match frame {
            Some(frame) => (self.each)(index, self.pool.bytes(frame)),
            None => self.put_off.push((index, page)),
        }
    }
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            // Errors were reported, or nobody is left to hear of them.
            drop(self.finish(|_, _, _| ()));
        }
        PIPELINES.set(PIPELINES.get() - 1);
    }
}

impl Pool {
    /// Brings in pages, and shows each to `each` while it is held. Pages may repeat; the order is that of arrival.
    pub(crate) fn read_many(
        &self,
        space: &Space,
        pages: impl IntoIterator<Item = u64>,
        each: impl FnMut(usize, &[u8]),
    ) -> Result<(), Error> {
        if self.owes() {
            self.settle_high()?;
        }
        let mut caller = Caller { pool: self, each, put_off: Vec::new() };
        let mut pipeline: Option<Pipeline<'_>> = None;
        for (index, page) in pages.into_iter().enumerate() {
            let entry = self.entry(space, page)?;
            if let Ok(pinned) = entry.pin() {
                if !pinned.young {
                    space.table.set_young(page, pinned.seen());
                }
                caller.show(index, page, Some(pinned.frame));
                continue;
            }
            let Miss::Claimed(mut claimed) = self.claim(space, page, entry) else {
                caller.put_off.push((index, page));
                continue;
            };
            let pipe = pipeline.get_or_insert_with(|| Pipeline::new(self, space, self.young_faults));
            if let Some((frame, stall)) = self.frames_now(space, page, &mut claimed, Access::Mapped) {
                pipe.push(Pending { index, page, claim: claimed, frame, stall });
                pipe.make_room(|index, page, frame| caller.show(index, page, frame))?;
            } else {
                // No frame without waiting, and waiting is not allowed while others may need what this thread has in flight.
                self.abandon(space, &claimed, &Ok(()));
                caller.put_off.push((index, page));
                pipe.finish(|index, page, frame| caller.show(index, page, frame))?;
            }
        }
        if let Some(mut pipe) = pipeline {
            pipe.finish(|index, page, frame| caller.show(index, page, frame))?;
            drop(pipe);
        }
        for (index, page) in std::mem::take(&mut caller.put_off) {
            let (frame, _held) = self.hold_page(space, page, Access::Mapped)?;
            caller.show(index, page, Some(frame));
        }
        // A call may have brought in much.
        if self.owes() { self.settle_high() } else { Ok(()) }
    }

    /// Brings absent pages in without using them: they are placed as read ahead, not as accessed.
    pub(crate) fn read_ahead(
        &self,
        space: &Space,
        pages: impl IntoIterator<Item = u64>,
    ) -> Result<(), Error> {
        let mut pipe = Pipeline::new(self, space, false);
        for page in pages {
            let Some(entry) = space.table.get(page) else { break };
            if !matches!(entry.load(), EntryState::Absent { .. }) {
                continue;
            }
            let Miss::Claimed(mut claimed) = self.claim(space, page, entry) else { continue };
            match self.frames_now(space, page, &mut claimed, Access::Descriptor) {
                Some((frame, stall)) => pipe.push(Pending { index: 0, page, claim: claimed, frame, stall }),
                None => {
                    // A hint is not worth waiting for.
                    self.abandon(space, &claimed, &Ok(()));
                    break;
                }
            }
            pipe.make_room(|_, _, _| ())?;
        }
        let finished = pipe.finish(|_, _, _| ());
        drop(pipe);
        // Whoever reads ahead does so for many: it evicts, and does not sleep.
        finished.and(self.settle(Pay::Reclaim))
    }
}
