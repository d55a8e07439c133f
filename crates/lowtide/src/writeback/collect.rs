//! Finding dirty pages, and beginning to write them.
//!
//! Finding them costs a look at one byte for 512 pages and at the translations of tables that have
//! some. A folio's write begins under the pool's lock: its translations become clean, and it goes
//! from dirty to *writeback*. From then on a store makes both dirty again, and reclaim leaves the
//! folio alone, so the run can be written without any lock.
//!
//! # What a dirty translation means
//!
//! Under the pool's lock, translation and folio agree:
//!
//! > **Under the pool's lock, a translation that is dirty belongs to a folio that is dirty or being
//! > written.**
//!
//! A page becomes dirty in three places, and each changes both under one acquisition of the lock: a
//! store to a resident page (`store/overwrite.rs`), while it has the translation locked; a write
//! that failed and a sync that failed (here). A store to an absent page (`store/fill.rs`) makes the
//! folio dirty first, while its translations are busy, and each translation when its bytes have
//! arrived.
//!
//! > **A folio's write begins only when none of its translations is busy.**
//!
//! A busy page has no bytes yet: of a large folio that is being filled, the first pages are dirty
//! while the frames of the others still have their former content. Such a folio is passed by, the
//! note that something is dirty stays, and the next look finds it. A page that a store has locked
//! is no obstacle. If it is clean, the store has not reported it to the engine yet, and will when
//! this thread has released the lock. If it is dirty, it stays so and the folio is dirty again at
//! once: what was stored before is in this write, and what is being stored now follows in another.
//!
//! # Behind a pointer
//!
//! The pages of a map are stored to without a call, and being write-protected is their clean bit
//! (`map/stores.rs`). So the protection is set again under the acquisition of the lock that made
//! them clean, and their bytes are copied afterwards, from the map's memory. A map may begin and
//! end within pages: the bytes around it belong to others. They are not written, which takes the
//! page cache. Nor is what lies past the end of a file that others have cut.
//!
//! A dirty translation whose folio is neither dirty nor being written would never be written and
//! never leave memory. That would be a defect of ours; it is logged and repaired where it is met.

use crate::map::{Landing, StoredPages};
use crate::pool::{Pool, State};
use crate::space::Space;
use crate::space::beneath::BLOCK;
use lowtide_core::limits::TABLE_ENTRIES;
use lowtide_core::{Flags, FolioId, Task};
use lowtide_io::{FaultSite, Slice};
use lowtide_pin::translation::{Entry, State as EntryState};
use lowtide_sys::tell;
use std::io;
use std::ops::Range;

/// Longest run: a device gains nothing from longer ones, and reads wait behind them.
pub(super) const RUN_BYTES: u64 = 1 << 20;

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
    /// The page at which the search stopped is dirty, but is being written or stored to at the
    /// moment, or its folio is being filled.
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
                    if pages_of(run).end == folio.page
                        && folio.end() - pages_of(run).start <= longest =>
                {
                    run.push(folio);
                }
                _ => runs.push(vec![folio]),
            }
        }
        runs
    }
}

/// The result for the folio of a dirty page.
enum Begun {
    Started(InFlight),
    /// Another time: it is still being written. The page behind it.
    StillWritten(u64),
    /// Another time: it is being filled, or stored to where pages must not change. The page behind
    /// it.
    StillStored(u64),
}

/// Begins to write up to `most` dirty pages from page `at` on, and before `end`; `at` moves on.
/// What is being stored to, or is being written already, is passed by, or, if all pages are
/// wanted (`each`), stopped at.
pub(super) fn collect(
    pool: &Pool,
    space: &Space,
    at: &mut u64,
    end: u64,
    most: u64,
    each: bool,
) -> Found {
    let mut found = Found::default();
    let end = end.min(space.table.pages());
    while *at < end && found.pages < most && !found.blocked {
        let table = *at / TABLE_ENTRIES * TABLE_ENTRIES;
        let whole = table + TABLE_ENTRIES;
        if at.is_multiple_of(TABLE_ENTRIES) && !space.table.hint(*at).take_dirty() {
            *at = whole.min(end);
            continue;
        }
        let Ok(mut state) = pool.lock_sound() else {
            *at = end;
            break;
        };
        let mut left_dirty = false;
        let begun_before = found.folios.len();
        while *at < whole.min(end) && found.pages < most {
            let page = *at;
            let busy = match space.table.get(page).map(Entry::load) {
                // It is about to be cut off, or will be found again.
                Some(EntryState::Resident { dirty: true, .. }) if space.is_cut(page) => {
                    left_dirty = true;
                    false
                }
                Some(EntryState::Resident { frame, dirty: true, .. }) => {
                    let begun = begin(&mut state, space, page, frame);
                    if matches!(begun, Begun::StillWritten(_)) {
                        pool.fault_sites.mark(FaultSite::DirtyAgainWhileWritten);
                    }
                    match begun {
                        Begun::Started(started) => {
                            *at = started.end() - 1;
                            found.pages += 1 << started.order;
                            found.folios.push(started);
                            false
                        }
                        Begun::StillWritten(end) | Begun::StillStored(end) => {
                            if !each {
                                *at = end - 1;
                            }
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
        if let Some(stored) = space.stored() {
            protect(&mut state, space, stored, &found.folios[begun_before..]);
        }
        drop(state);
        if left_dirty || *at < whole.min(space.table.pages()) {
            space.table.hint(table).note_dirty();
        }
    }
    found
}

/// Lets stores to pages whose write begins be noticed again.
fn protect(state: &mut State, space: &Space, stored: &dyn StoredPages, begun: &[InFlight]) {
    for together in begun.chunk_by(|a, b| a.end() == b.page) {
        let pages = pages_of(together);
        let Err(error) = stored.protect(pages.clone()) else { continue };
        tell!(error, path = %space.path().display(), ?pages, %error, "stores to a map cannot \
            be seen: its pages stay dirty");
        for f in together {
            state.engine.set_dirty(f.folio);
            for (entry, page) in space.entries(f.page, f.order).zip(f.page..) {
                let kept = entry.set_dirty();
                assert!(kept, "page {page} left memory although the pool's lock was held");
                space.table.hint(page).note_dirty();
            }
        }
    }
}

/// What of a run is written past the page cache.
pub(super) enum Direct {
    /// Frames, which stay as they are or become dirty again.
    Frames(Vec<Slice>),
    /// A number of bytes of a map, from the run's first page on: of a copy ([`copy_direct`]).
    Map(usize),
}

impl Direct {
    /// Its bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Frames(slices) => slices.iter().map(Slice::bytes).sum(),
            Self::Map(len) => *len,
        }
    }
}

/// What of a run is written past the page cache, and what goes through it: the block in which the
/// file ends, if it ends within one. Both may be nothing, of a map.
///
/// That block is a page of the kernel's cache at least. Making the file longer touches that
/// page in the cache, whatever a base page is, and must not meet a direct write to it.
pub(super) fn cut_run(pool: &Pool, space: &Space, run: &[InFlight]) -> (Direct, Option<Tail>) {
    let block = (pool.page_bytes() as u64).max(BLOCK);
    if let Some(stored) = space.stored() {
        return cut_stored(pool, space, stored, run, block);
    }
    let len = space.len();
    let mut slices: Vec<Slice> = Vec::with_capacity(run.len());
    let mut tail: Option<Tail> = None;
    let direct_end = len & !(block - 1);
    for f in run {
        let start = f.page << pool.page_shift;
        let whole = (pool.page_bytes() as u64) << f.order;
        let bytes = whole.min(len.saturating_sub(start));
        let direct = bytes.min(direct_end.saturating_sub(start));
        if direct > 0 {
            slices.push(Slice::new(pool.frame_ptr(f.folio.0), direct as usize));
        }
        if direct < bytes {
            let tail = tail.get_or_insert_with(|| Tail::at(start + direct));
            let frame = f.folio.0 + (direct >> pool.page_shift) as u32;
            tail.pieces.push((frame, (bytes - direct) as usize));
            tail.len += (bytes - direct) as usize;
        }
    }
    (Direct::Frames(slices), tail)
}

/// The same, for pages of a map. What shares a page with bytes of others goes through the page
/// cache.
fn cut_stored(
    pool: &Pool,
    space: &Space,
    stored: &dyn StoredPages,
    run: &[InFlight],
    block: u64,
) -> (Direct, Option<Tail>) {
    let (pages, bounds) = (pages_of(run), stored.bounds());
    // A file that is shorter is not made longer, as with a mapping of the kernel.
    let size = space.backing.size().unwrap_or(u64::MAX);
    let start = (pages.start << pool.page_shift).max(bounds.start);
    let end = (pages.end << pool.page_shift).min(bounds.end).min(size);
    let whole = start.is_multiple_of(block);
    let direct_end = if whole { (end & !(block - 1)).max(start) } else { start };
    let rest = end.saturating_sub(direct_end) as usize;
    let tail = (rest > 0).then(|| Tail { len: rest, ..Tail::at(direct_end) });
    (Direct::Map((direct_end - start) as usize), tail)
}

/// Copies the part of a map's run that is written past the page cache: `len` bytes. A device reads
/// the copy, so the pages may be stored to meanwhile wherever that is.
///
/// # Errors
/// As [`StoredPages::read`].
pub(super) fn copy_direct(space: &Space, offset: u64, len: usize) -> io::Result<Landing> {
    let mut copy = Landing::take(len);
    let stored = space.stored().expect("the run of a map");
    stored.read(offset, &mut copy.as_mut_slice()[..len])?;
    Ok(copy)
}

/// Copies the part of a run that goes through the page cache. `None` if a store has a page of it
/// locked at the moment: the flusher does not wait for stores, and tries again.
///
/// # Errors
/// As [`StoredPages::read`].
pub(super) fn copy_tail(pool: &Pool, space: &Space, tail: &Tail) -> io::Result<Option<Vec<u8>>> {
    let mut copy = vec![0; tail.len];
    if let Some(stored) = space.stored() {
        stored.read(tail.offset, &mut copy)?;
        return Ok(Some(copy));
    }
    let frames = tail
        .pieces
        .iter()
        .flat_map(|&(frame, bytes)| (frame..).take(bytes.div_ceil(pool.page_bytes())));
    let pages = tail.offset >> pool.page_shift..;
    for ((page, frame), piece) in pages.zip(frames).zip(copy.chunks_mut(pool.page_bytes())) {
        // As any reader: no store begins while the page is pinned.
        let Ok(pinned) = space.table.entry(page).pin() else { return Ok(None) };
        assert!(pinned.frame == frame, "page {page} changed its frame while it was being written");
        piece.copy_from_slice(&pool.bytes(frame)[..piece.len()]);
    }
    Ok(Some(copy))
}

/// Ends the write of a run: its folios are clean, unless they were stored to again, or dirty if
/// it failed.
pub(super) fn end_run(pool: &Pool, space: &Space, run: &[InFlight], written: bool) {
    let Ok(mut state) = pool.lock_sound() else { return };
    for f in run {
        if !written {
            for (entry, page) in space.entries(f.page, f.order).zip(f.page..) {
                let kept = entry.set_dirty();
                assert!(kept, "page {page} left memory while it was being written");
                space.table.hint(page).note_dirty();
            }
        }
        let flags = state.engine.folio(f.folio).map(lowtide_core::Folio::flags);
        let begun = flags.is_some_and(|flags| flags.contains(Flags::WRITEBACK));
        assert!(begun, "the write of page {} ends, which has not begun", f.page);
        state.engine.end_writeback(f.folio, written, Task::DESCRIPTOR);
    }
    drop(state);
    pool.freed.wake_all();
}

/// Makes a page and its folio dirty, if it is in memory. Returns whether it is.
pub(super) fn make_dirty(pool: &Pool, space: &Space, page: u64) -> bool {
    let Ok(mut state) = pool.lock_sound() else { return false };
    let Some(entry) = space.table.get(page) else { return false };
    let (EntryState::Resident { frame, .. } | EntryState::Locked { frame, .. }) = entry.load()
    else {
        return false;
    };
    // It stays there: evicting and discarding take the lock.
    let folio = state.folio_of(space, page, frame);
    state.engine.set_dirty(folio);
    let kept = entry.set_dirty();
    assert!(kept, "page {page} left memory although the pool's lock was held");
    space.table.hint(page).note_dirty();
    true
}

/// The part of a run that goes through the page cache.
#[derive(Debug)]
pub(super) struct Tail {
    /// Where in the file.
    pub(super) offset: u64,
    /// Its bytes.
    len: usize,
    /// First frames, and how many bytes of them and of those behind them. None for a map.
    pieces: Vec<(u32, usize)>,
}

impl Tail {
    const fn at(offset: u64) -> Self {
        Self { offset, len: 0, pieces: Vec::new() }
    }

    /// Which bytes of the file.
    pub(super) fn bytes(&self) -> Range<u64> {
        self.offset..self.offset + self.len as u64
    }
}

/// Turns the folio of a dirty page from dirty to writeback.
fn begin(state: &mut State, space: &Space, page: u64, frame: u32) -> Begun {
    let folio = state.folio_of(space, page, frame);
    let f = *state.engine.folio(folio).expect("it was just found");
    let (order, first, flags) = (f.order(), f.owner().page, f.flags());
    let entries = space.entries(first, order);
    let end = first + (1 << order);
    if flags.contains(Flags::WRITEBACK) {
        return Begun::StillWritten(end);
    }
    let stable = space.is_stable();
    let moves = |e: &Entry| match e.load() {
        EntryState::Busy => true,
        EntryState::Locked { .. } => stable,
        _ => false,
    };
    if entries.clone().any(moves) {
        return Begun::StillStored(end);
    }
    if state.engine.set_dirty(folio) {
        tell!(error, path = %space.path().display(), page, "a dirty page was not known to be \
            dirty; it is written now");
    }
    let started = state.engine.start_writeback(folio);
    assert!(started, "{folio:?} is dirty and not being written, and its write cannot begin");
    for (entry, page) in entries.zip(first..) {
        // A store that found the page dirty does not report it to the engine. If a store has the
        // page now, or had it a moment ago, its bytes may miss this write-back: the folio is dirty
        // again.
        if !entry.clear_dirty() && is_dirty(entry) {
            state.engine.set_dirty(folio);
            space.table.hint(page).note_dirty();
        }
    }
    Begun::Started(InFlight { folio, page: first, order })
}

fn is_dirty(entry: &Entry) -> bool {
    matches!(
        entry.load(),
        EntryState::Resident { dirty: true, .. } | EntryState::Locked { dirty: true, .. }
    )
}
