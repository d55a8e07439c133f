//! Many pages at once: hits are served as they are found, misses overlap, and absent neighbours are
//! read together.
//!
//! One thread keeps several claims (`pipeline.rs`). Two rules keep that from ever becoming a
//! deadlock: a thread that owns claims never waits for another thread's page or for a frame before
//! it has resolved its own; and a page that is busy in another thread is deferred until everything
//! in flight has been resolved. Deferred pages are served before many more are read, or the pages
//! that have come in would be evicted before they are used.

use crate::ahead::around::Advice;
use crate::ahead::readahead::{note_access, room_ahead, room_around};
use crate::anon::{ZEROES, bring_together};
use crate::error::Error;
use crate::fault::late;
use crate::fault::nested::is_nested;
use crate::fault::pipeline::Pipeline;
use crate::fault::{Access, Miss};
use crate::pool::Pool;
use crate::pool::high::Pay;
use crate::space::{Space, head_of};
use lowtide_core::Task;
use lowtide_pin::translation::State as EntryState;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Pages that may be deferred at a time.
const DEFERRED_MAX: usize = 64;

thread_local! {
    /// Translation of the page that this thread read last through a descriptor: several reads of
    /// one page in a row count once.
    static LAST_READ: Cell<usize> = const { Cell::new(0) };
}

/// The caller's closure, and the pages that it has yet to get one by one.
struct Caller<F> {
    each: F,
    deferred: Vec<(usize, u64)>,
}

impl<F: FnMut(usize, u64, u32)> Caller<F> {
    /// Shows a page that is pinned, or defers it if it is busy in another thread.
    fn show(&mut self, index: usize, page: u64, frame: Option<u32>) {
        match frame {
            Some(frame) => (self.each)(index, page, frame),
            None => self.deferred.push((index, page)),
        }
    }

    /// Shows the deferred pages, waiting for each. The thread owns no claims.
    fn serve(&mut self, pool: &Pool, space: &Space, access: Access) -> Result<(), Error> {
        for (index, page) in std::mem::take(&mut self.deferred) {
            let (frame, _held) = pool.hold_page(space, page, access)?;
            (self.each)(index, page, frame);
        }
        Ok(())
    }
}

impl Pool {
    /// Brings in pages, and shows each to `each` while it is pinned: its position, its number, its
    /// frame. Pages may repeat; the order is that of arrival.
    pub(crate) fn read_many(
        &self,
        space: &Space,
        pages: impl IntoIterator<Item = u64>,
        access: Access,
        each: impl FnMut(usize, u64, u32),
    ) -> Result<(), Error> {
        self.check()?;
        if self.owes() {
            self.settle_high()?;
        }
        let mut caller = Caller { each, deferred: Vec::new() };
        let mut pages = pages.into_iter().enumerate();
        // Tried once and not available then, the next one last.
        let mut again: Vec<(usize, u64)> = Vec::new();
        let mut pipeline: Option<Pipeline<'_>> = None;
        loop {
            let next = again.pop().or_else(|| pages.next());
            let refused = pipeline.as_ref().is_some_and(Pipeline::has_refused);
            if next.is_none() || refused || caller.deferred.len() >= DEFERRED_MAX {
                again.extend(next);
                if let Some(pipe) = pipeline.take() {
                    let (refused, stuck) =
                        pipe.into_refused(|index, page, frame| caller.show(index, page, frame))?;
                    again.extend(refused);
                    if stuck {
                        caller.deferred.extend(again.pop());
                    }
                }
                caller.serve(self, space, access)?;
                if again.is_empty() && next.is_none() {
                    break;
                }
                continue;
            }
            let Some((index, page)) = next else { break };
            let entry = self.entry(space, page)?;
            if let Ok(pinned) = entry.pin() {
                note_access(self, space, page, pinned.seen(), access, false);
                caller.show(index, page, Some(pinned.frame));
                if let Some(pipe) = &mut pipeline {
                    pipe.pass_hit(|index, page, frame| caller.show(index, page, frame))?;
                }
                continue;
            }
            late::admit(self, space)?;
            match self.claim(space, page, entry) {
                Miss::Claimed(claim) => {
                    let pipe = pipeline.get_or_insert_with(|| Pipeline::new(self, space, access));
                    pipe.add(index, page, claim, |index, page, frame| {
                        caller.show(index, page, frame);
                    })?;
                }
                Miss::Busy(_) if pipeline.as_mut().is_some_and(|pipe| pipe.extend(index, page)) => {
                }
                Miss::Resident(..) | Miss::Busy(_) => caller.deferred.push((index, page)),
            }
        }
        // A call may have brought in much.
        if self.owes() { self.settle_high() } else { Ok(()) }
    }

    /// Copies the bytes from `offset` on into `to`, all of it. Each page counts as accessed through
    /// a descriptor, but for the one that this thread has read last in the same way.
    ///
    /// # Errors
    /// As [`View::read_at`](crate::View::read_at); some of `to` may have been written then.
    pub(crate) fn copy_out(
        &self,
        space: &Space,
        offset: u64,
        to: &mut [MaybeUninit<u8>],
    ) -> Result<(), Error> {
        self.check()?;
        if to.is_empty() {
            return Ok(());
        }
        let (first, last) =
            (offset >> self.page_shift, (offset + to.len() as u64 - 1) >> self.page_shift);
        let (page_bytes, last_read) = (self.page_bytes(), LAST_READ.get());
        let mut copy = |page: u64, frame| {
            let start = page << self.page_shift;
            let at = offset.saturating_sub(start) as usize;
            let done = start.saturating_sub(offset) as usize;
            let part = &mut to[done..];
            let n = part.len().min(page_bytes - at);
            part[..n].write_copy_of_slice(&self.bytes(frame)[at..at + n]);
            let entry = space.table.entry(page).address();
            let folio = head_of(frame, space.order);
            if last_read != entry && self.accesses.record(folio) {
                self.lock().engine.mark_accessed(folio, Task::DESCRIPTOR);
            }
            if page == last {
                LAST_READ.set(entry);
            }
        };
        if first == last {
            let (frame, _held) = self.hold_page(space, first, Access::Descriptor)?;
            copy(first, frame);
            return Ok(());
        }
        self.read_many(space, first..=last, Access::Descriptor, |_, page, frame| copy(page, frame))
    }

    /// Brings absent pages in without using them, as far as there is
    /// [room](room_ahead): they are placed as read ahead, not as accessed.
    pub(crate) fn read_ahead(
        &self,
        space: &Space,
        pages: impl IntoIterator<Item = u64>,
    ) -> Result<(), Error> {
        let read = self.read_unasked(space, pages);
        // A thread that reads ahead does so for many: it evicts, and does not sleep.
        read.and(self.settle(Pay::Reclaim))
    }

    /// The same, and what is owed for it is paid later.
    fn read_unasked(
        &self,
        space: &Space,
        pages: impl IntoIterator<Item = u64>,
    ) -> Result<(), Error> {
        self.check()?;
        if !late::may_read_unasked(self, space) {
            return Ok(());
        }
        let mut pipe = Pipeline::new(self, space, Access::Ahead);
        let mut room = room_ahead(self, space);
        for page in pages {
            let Some(entry) = space.table.get(page) else { break };
            if !matches!(entry.load(), EntryState::Absent { .. }) {
                continue;
            }
            let Miss::Claimed(claim) = self.claim(space, page, entry) else { continue };
            room = room.saturating_sub(claim.pages());
            pipe.add(0, page, claim, |_, _, _| ())?;
            if pipe.has_refused() || room == 0 {
                // A hint is not worth waiting for.
                break;
            }
        }
        pipe.into_refused(|_, _, _| ()).map(drop)
    }

    /// A thread is about to bring in a page that is absent, and has claimed nothing. Reads its
    /// neighbours with it, where that was measured to be useful (`around.rs`): then the page is
    /// there like one that was read ahead.
    pub(crate) fn read_around(&self, space: &Space, page: u64) {
        let is_heap = space.anon.is_some() && space.mapped.is_some();
        if space.order > 0 || space.anon.is_some() && !is_heap || is_nested() {
            return;
        }
        let around = &space.around;
        let is = |page: u64, wanted: fn(EntryState) -> bool| {
            space.table.get(page).is_some_and(|entry| wanted(entry.load()))
        };
        let absent = |&page: &u64| is(page, |state| matches!(state, EntryState::Absent { .. }));
        let block = match around.missed(page, space.pages(), |other| !absent(&other)) {
            Advice::Read(block) => block,
            Advice::Look(region) => {
                if let Some(mapped) = &space.mapped {
                    let _steady = self.lock();
                    mapped.see(region, &mut |page| around.touched(page));
                }
                around.block_of(page)
            }
        };
        let alone = block.end - block.start == 1;
        let block = if is_heap && alone { around.guess(page) } else { block };
        let size = block.end - block.start;
        if size == 1 || room_around(self, space, size) < size {
            return;
        }
        let before = (block.start..page).rev().take_while(absent).count() as u64;
        let behind = (page + 1..block.end.min(space.pages())).take_while(absent).count() as u64;
        let (first, end) = (page - before, page + 1 + behind);
        if end - first == 1 {
            return;
        }
        if is_heap {
            // As far as the slots of the pages allow.
            let came = bring_together(self, space, first..end, Some(page), &mut { ZEROES });
            around.spend(page, came.saturating_sub(1));
            return self.note_around(space, page, first..end);
        }
        around.spend(page, end - first - 1);
        // What cannot be read says so to the thread that needs it, which also pays.
        drop(self.read_unasked(space, first..end));
        self.note_around(space, page, first..end);
    }

    /// These pages were read around a miss of `page`.
    fn note_around(&self, space: &Space, page: u64, pages: Range<u64>) {
        let frame = |page: u64| match space.table.get(page).map(|entry| entry.load()) {
            Some(EntryState::Resident { frame, .. }) => Some(frame),
            _ => None,
        };
        let others = || pages.clone().filter(|&other| other != page);
        space.around.arrived(page, others().filter(|&other| frame(other).is_some()));
        // Other threads may have used a page, or evicted it, before it was noted here.
        for other in others() {
            match frame(other) {
                Some(frame) if self.unused.is_set(frame) => {}
                Some(_) => space.around.touched(other),
                None => space.around.evicted(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, Pager, Size};
    use std::sync::Arc;

    #[test]
    fn a_page_that_was_used_before_it_was_noted_as_read_around_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pager = Pager::builder().max(Size::mib(1)).background(false).build().unwrap();
        let path = dir.path().join("file");
        let view = OpenOptions::new().create_with_len(64 * 4096).open(&pager, path).unwrap();
        let pool = &pager.inner.pool;
        let space: Arc<Space> = pool.lock().spaces.iter().flatten().next().unwrap().clone();
        space.around.missed(7, 64, |_| true);
        drop(pool.read_unasked(&space, 0..12));
        drop(view.page(3).unwrap());
        pool.note_around(&space, 7, 0..16);
        let noted: Vec<u64> = (0..16).filter(|&page| space.around.is_open(page)).collect();
        assert_eq!(noted, [0, 1, 2, 4, 5, 6, 8, 9, 10, 11]);
    }
}
