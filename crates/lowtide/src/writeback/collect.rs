//! Finding dirty pages, and beginning to write them.
//!
//! Finding them costs a look at one byte for 512 pages and at the translations of tables that have some. A page's write begins under the pool's lock: its
//! translation becomes clean, and its folio goes from dirty to *writeback*. From then on a store makes both dirty again, and reclaim leaves the
//! folio alone, so the run can be written without any lock.

use super::RUN_BYTES;
use crate::fault_sites::FaultSite;
use crate::io::Slice;
use crate::pool::{Pool, State};
use crate::reclaim::entries_of;
use crate::space::Space;
use crate::translation::{Entry, State as EntryState, Taken};
use lowtide_core::limits::TABLE_ENTRIES;
use lowtide_core::{Flags, FolioId, Task};
use std::ops::Range;

/// log2 of the bytes of a page of the kernel's cache.
pub(super) const CACHE_SHIFT: u32 = 12;

/// A folio under writeback.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    folio: FolioId,
    page: u64,
    order: u8,
}

impl InFlight {
    const fn end(&self) -> u64 {
        self.page + (1 << self.order)
    }
}

/// The pages of a run.
pub(super) fn pages_of(run: &[InFlight]) -> Range<u64> {
    run.first().map_or(0, |f| f.page)..run.last().map_or(0, InFlight::end)
}

/// Folios that are to be written now.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In file order.
    pub(super) folios: Vec<InFlight>,
    pub(super) pages: u64,
    /// The page at which the search stopped is dirty, but is being written or stored to at the moment.
    pub(super) blocked: bool,
}

impl Found {
    /// Cuts what was found into contiguous runs of at most [`RUN_BYTES`], or one folio.
    pub(super) fn into_runs(self, page_bytes: usize) -> Vec<Vec<InFlight>> {
        let longest = (RUN_BYTES / page_bytes as u64).max(1);
        let mut runs: Vec<Vec<InFlight>> = Vec::new();
        for folio in self.folios {
            match runs.last_mut() {
                Some(run)
                    if pages_of(run).end == folio.page && folio.end() - pages_of(run).start <= longest =>
                {
                    run.push(folio);
                }
                _ => runs.push(vec![folio]),
            }
        }
        runs
    }
}

/// What came of a page that seemed to be dirty.
enum Begun {
    Started(InFlight),
    /// It was dealt with meanwhile.
    Clean,
    /// It was stored to while it was being written.
    StillWritten,
}

impl Pool {
    /// Begins to write up to `most` dirty pages from page `at` on, and before `end`; `at` moves on. What is being stored to, or is being written already, is
    /// passed by, or, if all pages are wanted (`each`), stopped at.
    pub(super) fn collect(&self, space: &Space, at: &mut u64, end: u64, most: u64, each: bool) -> Found {
        let mut found = Found::default();
        let end = end.min(space.table.pages());
        while *at < end && found.pages < most && !found.blocked {
            let table = *at / TABLE_ENTRIES * TABLE_ENTRIES;
            let whole = table + TABLE_ENTRIES;
            if at.is_multiple_of(TABLE_ENTRIES) && !space.table.hint(*at).take_dirty() {
                *at = whole.min(end);
                continue;
            }
            let mut state = self.lock();
            let mut left_dirty = false;
            while *at < whole.min(end) && found.pages < most {
                let page = *at;
                let busy = match space.table.get(page).map(Entry::load) {
                    Some(EntryState::Resident { frame, dirty: true, .. }) => {
                        match begin(&mut state, space, page, frame) {
                            Begun::Started(started) => {
                                *at = started.end() - 1;
                                found.pages += 1 << started.order;
                                found.folios.push(started);
                                false
                            }
                            Begun::Clean => false,
                            Begun::StillWritten => {
                                self.fault_sites.mark(FaultSite::DirtyAgainWhileWritten);
                                true
                            }
                        }
                    }
                    // What was stored before is there; what is being stored now follows.
                    Some(EntryState::Locked { dirty: true, .. }) => true,
                    _ => false,
                };
                left_dirty |= busy;
                if busy && each {
                    found.blocked = true;
                    break;
                }
                *at += 1;
            }
            drop(state);
            if left_dirty || *at < whole.min(space.table.pages()) {
                space.table.hint(table).note_dirty();
            }
        }
        found
    }

    /// The memory of a run that is written past the page cache, and what goes through it: the block in which the file ends, if it ends within one.
    ///
    /// That block is a page of the kernel's cache at least. Making the file longer touches that page in the cache, whatever a base page is, and must not meet a
    /// direct write to it.
    pub(super) fn cut_run(&self, run: &[InFlight], len: u64) -> (Vec<Slice>, Option<Tail>) {
        let mut slices: Vec<Slice> = Vec::with_capacity(run.len());
        let mut tail: Option<Tail> = None;
        let block = (self.page_bytes() as u64).max(1 << CACHE_SHIFT);
        let direct_end = len & !(block - 1);
        for f in run {
            let start = f.page << self.page_shift;
            let whole = (self.page_bytes() as u64) << f.order;
            let bytes = whole.min(len.saturating_sub(start));
            let direct = bytes.min(direct_end.saturating_sub(start));
            if direct > 0 {
                slices.push(Slice::new(self.frame_ptr(f.folio.0), direct as usize));
            }
            if direct < bytes {
                let tail = tail.get_or_insert_with(|| Tail { offset: start + direct, pieces: Vec::new() });
                let frame = f.folio.0 + (direct >> self.page_shift) as u32;
                tail.pieces.push((frame, (bytes - direct) as usize));
            }
        }
        (slices, tail)
    }

    /// Copies the part of a run that goes through the page cache.
    pub(super) fn copy_tail(&self, tail: &Tail) -> Vec<u8> {
        let mut copy = vec![0; tail.pieces.iter().map(|(_, bytes)| bytes).sum()];
        let mut rest = &mut copy[..];
        for &(frame, bytes) in &tail.pieces {
            let (piece, behind) = rest.split_at_mut(bytes);
            rest = behind;
            // SAFETY: the folio is under writeback, so its frames stay, which are neighbours; a concurrent store may be seen in part, but then its page is dirty again
            // and is written again. The copy is of plain bytes.
            #[expect(unsafe_code, reason = "frames are shared memory behind a protocol")]
            unsafe {
                std::ptr::copy_nonoverlapping(self.frame_ptr(frame), piece.as_mut_ptr(), bytes);
            }
        }
        copy
    }

    /// Ends the write of a run: its folios are clean, unless they were stored to again, or dirty if it failed.
    pub(super) fn end_run(&self, space: &Space, run: &[InFlight], written: bool) {
        if !written {
            // While the folios are still under writeback, so that reclaim cannot come in between; and not under the pool's lock, which a
            // store that has the page locked may be waiting for.
            for page in pages_of(run) {
                self.make_dirty(space, page, false);
            }
        }
        let mut state = self.lock();
        for f in run {
            state.engine.end_writeback(f.folio, written, Task::DESCRIPTOR);
        }
        drop(state);
        self.freed.notify_all();
    }

    /// Makes a resident page dirty, its folio too if `tell` says that the engine does not know. Returns false if it is not resident.
    pub(super) fn make_dirty(&self, space: &Space, page: u64, tell: bool) -> bool {
        let Some(entry) = space.table.get(page) else { return false };
        loop {
            match entry.try_lock_for_store() {
                Ok(taken) => {
                    if tell {
                        let mut state = self.lock();
                        if let Some(folio) = state.engine.folio_of(FolioId(taken.frame)) {
                            state.engine.set_dirty(folio);
                        }
                    }
                    self.unlock(space, page, entry, Taken { dirty: true, ..taken });
                    return true;
                }
                Err(EntryState::Locked { .. }) => std::thread::yield_now(),
                Err(_) => return false,
            }
        }
    }
}

/// The part of a run that goes through the page cache.
#[derive(Debug)]
pub(super) struct Tail {
    /// Where in the file.
    pub(super) offset: u64,
    /// First frames, and how many bytes of them and of those behind them.
    pieces: Vec<(u32, usize)>,
}

/// Turns the folio of a dirty page from dirty to writeback.
fn begin(state: &mut State, space: &Space, page: u64, frame: u32) -> Begun {
    let Some(folio) = state.engine.folio_of(FolioId(frame)) else { return Begun::Clean };
    let Some((order, first, flags)) =
        state.engine.folio(folio).map(|f| (f.order(), f.owner().page, f.flags()))
    else {
        return Begun::Clean;
    };
    debug_assert!((first..first + (1 << order)).contains(&page));
    if flags.contains(Flags::WRITEBACK) {
        return Begun::StillWritten;
    }
    if !state.engine.start_writeback(folio) {
        return Begun::Clean;
    }
    for (entry, page) in entries_of(space, first, order).zip(first..) {
        // A store that found the page dirty does not tell the engine. If one has it now, or had it a moment ago, what
        // it writes may miss this write-back: the folio is dirty again.
        if !entry.clear_dirty() && is_dirty(entry) {
            state.engine.set_dirty(folio);
            space.table.hint(page).note_dirty();
        }
    }
    Begun::Started(InFlight { folio, page: first, order })
}

fn is_dirty(entry: &Entry) -> bool {
    matches!(entry.load(), EntryState::Resident { dirty: true, .. } | EntryState::Locked { dirty: true, .. })
}
