//! Write-back: dirty pages to the file, in contiguous runs.
//!
//! The way of a page: its translation is dirty and its folio too. Under the pool's lock the writer clears the one and turns the other
//! into *writeback*; from then on a store makes both dirty again, and reclaim leaves the folio alone. The run is written without any lock. When the write has
//! ended the folio is clean, or, if the write failed, both are dirty as before, and the error is recorded for every
//! handle of the file to learn of once.
//!
//! Finding dirty pages costs a look at one byte for 512 pages and at the translations of tables that have some.
//! One thread at a time writes a file, so runs are long and in order.

use crate::error::Error;
use crate::io::{Slice, Write};
use crate::pool::{Pool, State};
use crate::reclaim::entries_of;
use crate::space::Space;
use crate::translation::{Entry, State as EntryState, Taken};
use lowtide_core::limits::TABLE_ENTRIES;
use lowtide_core::{FolioId, MemcgId, Task};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pages of one batch of runs under writeback.
const BATCH_PAGES: u64 = 1024;
/// The flusher stops when one page in so many is dirty.
const FEW_DIRTY: u64 = 20;

/// A folio under writeback.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    folio: FolioId,
    frame: u32,
    page: u64,
    order: u8,
}

impl Pool {
    pub(crate) fn wake_flushers(&self) {
        if self.background {
            self.flusher.ring();
        } else {
            self.write_back_some();
        }
    }

    /// Writes what is dirty now in all files; errors are recorded for the handles.
    pub(crate) fn write_back_all(&self) {
        let spaces: Vec<_> = self.lock().spaces.iter().flatten().cloned().collect();
        for space in spaces {
            self.write_back(&space);
        }
    }

    /// Writes a batch of what is dirty, of the first file that has something to write and that nobody else writes. Returns the number of pages.
    ///
    /// Each time it goes on in the file where it stopped, so that no part of it waits for ever.
    pub(crate) fn write_back_some(&self) -> u64 {
        self.write_back_below(MemcgId::ROOT)
    }

    /// As [`Pool::write_back_some`], of the files whose pages are charged to a group or below it.
    pub(crate) fn write_back_below(&self, group: MemcgId) -> u64 {
        let spaces: Vec<_> = {
            let state = self.lock();
            let within = |s: &&Arc<Space>| state.engine.is_within(state.engine.group_of_space(s.id), group);
            state.spaces.iter().flatten().filter(within).cloned().collect()
        };
        for space in spaces {
            let Ok(_one_at_a_time) = space.writing.try_lock() else { continue };
            let mut at = space.written_to.load(Relaxed);
            let mut written = self.write_batch(&space, &mut at);
            if written == 0 {
                at = 0;
                written = self.write_batch(&space, &mut at);
            }
            space.written_to.store(at, Relaxed);
            if written > 0 {
                return written;
            }
        }
        0
    }

    /// Writes until few pages are dirty, once at least: what the flusher does when it is woken.
    pub(crate) fn write_back_until_few(&self) {
        while self.write_back_some() > 0 {
            let (dirty, max) = self.dirty_and_max();
            if dirty <= max / FEW_DIRTY {
                break;
            }
        }
    }

    fn dirty_and_max(&self) -> (u64, u64) {
        let state = self.lock();
        (state.engine.dirty(), state.engine.max(MemcgId::ROOT))
    }

    /// Writes each page of a file that is dirty when its turn comes, once.
    pub(crate) fn write_back(&self, space: &Space) {
        let _one_at_a_time = crate::sync::lock(&space.writing);
        let mut at = 0;
        while self.write_batch(space, &mut at) > 0 {}
    }

    /// Writes up to [`BATCH_PAGES`] dirty pages from page `at` on. Returns how many.
    fn write_batch(&self, space: &Space, at: &mut u64) -> u64 {
        let batch = self.collect(space, at);
        if batch.is_empty() {
            return 0;
        }
        let pages = batch.iter().map(|f| 1 << f.order).sum();
        let runs: Vec<&[InFlight]> = batch.chunk_by(|a, b| a.page + (1 << a.order) == b.page).collect();
        let results = self.write_runs(space, &runs);
        for (run, result) in runs.iter().zip(results) {
            self.end_run(space, run, result);
        }
        self.freed.notify_all();
        pages
    }

    /// Takes dirty folios in file order and turns them from dirty to writeback.
    fn collect(&self, space: &Space, at: &mut u64) -> Vec<InFlight> {
        let mut batch = Vec::new();
        let mut pages = 0;
        let end = space.table.pages();
        while *at < end && pages < BATCH_PAGES {
            let table = *at / TABLE_ENTRIES;
            let table_end = ((table + 1) * TABLE_ENTRIES).min(end);
            if at.is_multiple_of(TABLE_ENTRIES) && !space.table.hint(*at).take_dirty() {
                *at = table_end;
                continue;
            }
            let mut state = self.lock();
            let mut left_dirty = false;
            while *at < table_end && pages < BATCH_PAGES {
                let page = *at;
                *at += 1;
                let Some(entry) = space.table.get(page) else { break };
                match entry.load() {
                    EntryState::Resident { frame, dirty: true, .. } => {
                        match begin(&mut state, space, page, frame) {
                            Some(started) => {
                                *at = started.page + (1 << started.order);
                                pages += 1 << started.order;
                                batch.push(started);
                            }
                            None => left_dirty = true,
                        }
                    }
                    // Being stored to: it will be dirty.
                    EntryState::Locked { .. } => left_dirty = true,
                    _ => {}
                }
            }
            if left_dirty || *at < table_end {
                space.table.hint(table * TABLE_ENTRIES).note_dirty();
            }
        }
        batch
    }

    fn write_runs(&self, space: &Space, runs: &[&[InFlight]]) -> Vec<io::Result<()>> {
        let len = space.len();
        let cut = |run: &[InFlight]| self.cut_run(run, len);
        let cuts: Vec<_> = runs.iter().map(|run| cut(run)).collect();
        let writes: Vec<_> = cuts
            .iter()
            .zip(runs)
            .map(|((slices, _), run)| {
                let (path, slices) = (space.path_ref(), slices.clone());
                let offset = run[0].page << self.page_shift;
                // SAFETY: the folios are under writeback, so their frames are neither evicted nor given back before `end_run`; the
                // space keeps its descriptor open. A concurrent store may reach the file or not: its page is dirty again.
                #[expect(unsafe_code, reason = "the promise about the frames is given where they are taken")]
                unsafe {
                    Write::new(path, space.backing.write_fd(), offset, slices, 0)
                }
            })
            .collect();
        let mut results = self.backend.write_runs(writes);
        for ((_, tail), result) in cuts.iter().zip(&mut results) {
            if let (Some(tail), Ok(())) = (tail, &result) {
                *result = self.write_tail(space, tail);
            }
        }
        for ((slices, _), result) in cuts.iter().zip(&results) {
            if result.is_ok() {
                self.io.writes.fetch_add(1, Relaxed);
                self.io.write_bytes.fetch_add(slices.iter().map(|s| s.len() as u64).sum(), Relaxed);
            }
        }
        results
    }

    /// The memory of a run's whole blocks, and what is left of its last page where the file ends within it.
    fn cut_run(&self, run: &[InFlight], len: u64) -> (Vec<Slice>, Option<Tail>) {
        let mut slices = Vec::with_capacity(run.len());
        let mut tail = None;
        for f in run {
            let start = f.page << self.page_shift;
            let whole = (self.page_bytes() as u64) << f.order;
            let bytes = whole.min(len.saturating_sub(start));
            // The end of a file need not be the end of a block; the rest goes through the page cache.
            let blocks = if bytes == whole { bytes } else { bytes & !(self.page_bytes() as u64 - 1) };
            if blocks > 0 {
                slices.push(Slice::new(self.frame_ptr(f.frame), blocks as usize));
            }
            if blocks < bytes {
                let frame = f.frame + (blocks >> self.page_shift) as u32;
                tail = Some(Tail { frame, offset: start + blocks, bytes: (bytes - blocks) as usize });
            }
        }
        (slices, tail)
    }

    fn write_tail(&self, space: &Space, tail: &Tail) -> io::Result<()> {
        let mut copy = vec![0; tail.bytes];
        // SAFETY: the folio is under writeback, so its frame stays; a concurrent store may be seen in part, but then its page is dirty again
        // and is written again. The copy is of plain bytes.
        #[expect(unsafe_code, reason = "frames are shared memory behind a protocol")]
        unsafe {
            std::ptr::copy_nonoverlapping(self.frame_ptr(tail.frame), copy.as_mut_ptr(), tail.bytes);
        }
        let slices = vec![Slice::new(copy.as_ptr(), copy.len())];
        // SAFETY: `copy` and the space's descriptor outlive the call.
        #[expect(unsafe_code, reason = "the promise about the memory is given here")]
        let write = unsafe { Write::new(space.path_ref(), space.buffered_fd(), tail.offset, slices, 0) };
        self.backend.write_run(write)
    }

    fn end_run(&self, space: &Space, run: &[InFlight], result: io::Result<()>) {
        if result.is_err() {
            // While the folios are still under writeback, so that reclaim cannot come in between; and not under the pool's lock, which a
            // store that has the page locked may be waiting for.
            for page in run.iter().flat_map(|f| f.page..f.page + (1 << f.order)) {
                self.make_dirty(space, page);
            }
        }
        let mut state = self.lock();
        for f in run {
            state.engine.end_writeback(f.folio, result.is_ok(), Task::DESCRIPTOR);
        }
        drop(state);
        if let Err(error) = result {
            tracing::warn!(path = %space.path().display(), page = run[0].page, %error, "write-back failed; the pages stay dirty");
            space.errors.record(error);
        }
    }

    /// Makes a resident page's translation dirty again.
    fn make_dirty(&self, space: &Space, page: u64) {
        let Some(entry) = space.table.get(page) else { return };
        loop {
            match entry.try_lock_for_store() {
                Ok(taken) => return self.unlock(space, page, entry, Taken { dirty: true, ..taken }),
                Err(EntryState::Locked { .. }) => std::thread::yield_now(),
                Err(_) => return,
            }
        }
    }

    /// Writes what is dirty, waits for what others write, makes it durable, and tells the handle of errors since it last asked.
    pub(crate) fn flush(&self, space: &Space, seen: &AtomicU64) -> Result<(), Error> {
        if !space.is_writable() {
            return Ok(());
        }
        self.write_back(space);
        if let Err(error) = self.backend.sync(space.path_ref(), space.buffered_fd()) {
            space.errors.record(error);
        }
        match space.errors.check_and_advance(seen) {
            None => Ok(()),
            Some(source) => Err(Error::Write { path: space.path(), source: Arc::clone(&source) }),
        }
    }
}

/// The part of a run's last page that is no whole page.
#[derive(Debug)]
struct Tail {
    frame: u32,
    offset: u64,
    bytes: usize,
}

/// Turns the folio of a dirty page from dirty to writeback. `None` if it cannot be written now.
fn begin(state: &mut State, space: &Space, page: u64, frame: u32) -> Option<InFlight> {
    let folio = state.engine.folio_of(FolioId(frame))?;
    let (order, first) = {
        let f = state.engine.folio(folio)?;
        (f.order(), f.owner().page)
    };
    debug_assert!((first..first + (1 << order)).contains(&page));
    if !state.engine.start_writeback(folio) {
        return None;
    }
    for (entry, page) in entries_of(space, first, order).zip(first..) {
        // A store that found the page dirty does not tell the engine. If one has it now, or had it a moment ago, what
        // it writes may miss this write-back: the folio is dirty again.
        if !entry.clear_dirty() && is_dirty(entry) {
            state.engine.set_dirty(folio);
            space.table.hint(page).note_dirty();
        }
    }
    Some(InFlight { folio, frame: folio.0, page: first, order })
}

fn is_dirty(entry: &Entry) -> bool {
    matches!(entry.load(), EntryState::Resident { dirty: true, .. } | EntryState::Locked { dirty: true, .. })
}
