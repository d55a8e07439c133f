//! Read-ahead: noticing that a file is read in order, and reading what comes next before it is
//! requested.
//!
//! # Streams
//!
//! A view remembers a few *streams*: places of requests for pages that were not in memory. A miss
//! that goes on where a stream has stopped is a step of it; any other miss begins a new stream in
//! the place of the one that was used least recently. The second step in a row starts read-ahead.
//! Misses at random places take two such steps practically never, so random access reads nothing
//! ahead, and the hit path has no part in this.
//!
//! Programs also read in order in blocks, and within a block in any order: the rows of a matrix,
//! four side by side. Through a pointer each page is a miss of its own then, before or behind the
//! last one. So there a miss *near* the end of a stream belongs to it, too, and a stream of which
//! most pages were missed goes forward.
//!
//! ```text
//!   rows of four pages, side by side:   | 0 4 8 12 | 1 5 9 13 | 2 6 10 14 | 3 7 11 15 | 16 20 ...
//! ```
//!
//! # Windows
//!
//! ```text
//!        window k         window k + 1
//!   ...|M───────────────|M───────────────────────────────|
//!       ▲ reader          being read ahead
//! ```
//!
//! The first page of each window carries a *mark*: when it is touched, the next window is
//! requested, so that a whole window is on its way while the reader uses the one before. Sizes are
//! those of the kernel: the first is twice or four times the request, each next one twice or four
//! times the last, up to the limit. A mark is a number in the view. It is compared only where an
//! access takes the slow path anyway, and the first access to a page that was read ahead does,
//! because the page is not young.
//!
//! Behind a pointer a page that was read ahead is used without a word to this process. So the first
//! page of a long window is left out there: the fault at it is the mark. That costs one read of a
//! page for each window, and without it each window would be read while the reader waits for it.
//!
//! # Usefulness
//!
//! Each frame has a bit that says "read ahead, and not used". The first access clears it and counts
//! a page as used; an eviction that finds it counts the page as wasted. A stream that finds more
//! than an eighth of a window wasted since its last request halves its limit, and one that finds
//! nothing wasted doubles it again: what was lost may have been another stream's. Below four pages
//! it stops, and tries again after a thousand pages.
//!
//! The first access to a page that was read ahead counts for it as much as the access that brings a
//! page in: it is not reported to the policy. So a policy sees a page that was read once in the
//! same way, whether it was read ahead or not, and a scan does not push out pages that are used
//! again and again. [`room_ahead`] is how much may be read ahead when memory is full.

use super::marks::Ahead;
use crate::fault::Access;
use crate::fault::late::may_read_unasked;
use crate::pool::payer::Payer;
use crate::pool::{Pool, State};
use crate::space::Space;
use crate::view::unfenced;
use lowtide_core::{Limits, MemcgId};
use lowtide_pin::translation::State as EntryState;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The largest window, in bytes, unless the user wants another. With two windows under way, one
/// thread keeps a device busy that needs some megabytes of requests to reach its full rate.
pub(crate) const WINDOW_BYTES: u64 = 8 << 20;
/// Streams that a view follows at a time.
const STREAMS: usize = 8;
/// Behind pointers, pages before or past the end of a stream that are near it.
const NEAR: u64 = 32;
/// Misses near each other that make a stream, if they are half of the pages there.
const DENSE: u64 = 12;
/// Steps in order that make a stream.
const STEPS: u32 = 2;
/// The smallest window that is worth a request, in pages.
const WINDOW_MIN: u64 = 4;
/// Pages in order after which a stream that had stopped reading ahead tries again.
const REST_PAGES: u64 = 1000;
/// Windows are at most this part of a budget.
const BUDGET_PART: u64 = 16;
/// Pages of a window, behind pointers, from which on its first page is worth a fault.
const GAP_MIN: u64 = 128;
/// No page has this number.
const NONE: u64 = u64::MAX;

/// One place where a file is read in order.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// The page after the last one that was requested.
    next: u64,
    /// Misses in a row that went on where the last one stopped.
    steps: u32,
    /// The first page that was missed, and how many were since.
    first: u64,
    missed: u64,
    /// The pages that were read ahead and may still be in use: the last window and the one before.
    ahead: Range<u64>,
    /// Pages of the last window.
    size: u64,
    /// Largest window, in pages; 0 while the stream rests.
    limit: u64,
    /// Pages until the end of a rest.
    rest: u64,
    /// [`Space::wasted_pages`] at the last request.
    wasted: u64,
    /// When it was used last.
    used: u64,
}

/// The order in which one view is read, as far as it is known.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    /// Largest window, in pages; 0 is off.
    max: u64,
    /// Pages that are there are used unseen, so the mark is a page that is left out.
    gaps: bool,
    /// Off for now.
    paused: AtomicBool,
    /// For each stream, the page whose first access requests the next window.
    marks: [AtomicU64; STREAMS],
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    all: [Stream; STREAMS],
    clock: u64,
}

/// The first window of a stream whose requests have `request` pages.
fn first_window(request: u64, max: u64) -> u64 {
    let pages = request.next_power_of_two();
    let window = match pages {
        n if n <= max / 32 => 4 * n,
        n if n <= max / 4 => 2 * n,
        _ => max,
    };
    window.min(max)
}

/// The window after one of `size` pages.
fn next_window(size: u64, max: u64) -> u64 {
    match size {
        n if n < max / 16 => 4 * n,
        n if n <= max / 2 => 2 * n,
        _ => max,
    }
}

impl ReadAhead {
    /// With windows of at most `max` pages.
    pub(crate) fn new(max: u64) -> Self {
        let max = if max < WINDOW_MIN { 0 } else { max };
        Self {
            max,
            gaps: false,
            paused: AtomicBool::new(false),
            marks: [const { AtomicU64::new(NONE) }; STREAMS],
            streams: Mutex::default(),
        }
    }

    /// The same for pages that are used through a pointer.
    pub(crate) fn behind_pointer(max: u64) -> Self {
        Self { gaps: true, ..Self::new(max) }
    }

    /// The same settings, and no streams.
    pub(crate) fn another(&self) -> Self {
        Self { gaps: self.gaps, ..Self::new(self.max) }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.max == 0 || self.paused.load(Relaxed)
    }

    /// Reads nothing ahead until [`ReadAhead::resume`].
    pub(crate) fn pause(&self) {
        self.paused.store(true, Relaxed);
    }

    pub(crate) fn resume(&self) {
        self.paused.store(false, Relaxed);
    }

    /// A request touches pages that are resident or on their way, or misses one that was left out.
    /// Returns the range to read ahead now. Cost: a few loads, unless a mark is among the pages.
    #[inline]
    pub(crate) fn touched(
        &self,
        request: &Range<u64>,
        pool: &Pool,
        space: &Space,
    ) -> Option<Range<u64>> {
        let marked = self.marks.iter().position(|mark| request.contains(&mark.load(Relaxed)))?;
        self.at_mark(marked, request, pool, space)
    }

    #[cold]
    fn at_mark(
        &self,
        index: usize,
        request: &Range<u64>,
        pool: &Pool,
        space: &Space,
    ) -> Option<Range<u64>> {
        let mut streams = lowtide_pin::sync::lock(&self.streams);
        if !request.contains(&self.marks[index].load(Relaxed)) {
            // Another thread was faster.
            return None;
        }
        self.marks[index].store(NONE, Relaxed);
        let stream = streams.touch(index);
        stream.next = stream.next.max(request.end);
        self.next(index, stream, request, pool, space)
    }

    /// The page `at` of a request is absent. Returns the range to read ahead now, which begins
    /// behind the request.
    pub(crate) fn missed(
        &self,
        request: &Range<u64>,
        at: u64,
        pool: &Pool,
        space: &Space,
    ) -> Option<Range<u64>> {
        let mut streams = lowtide_pin::sync::lock(&self.streams);
        // Past the end of a window goes on a reader that used all of it without a miss.
        let goes_on = |s: &Stream| {
            let behind = !s.ahead.is_empty() && s.ahead.end == at;
            (request.start..=at).contains(&s.next) || s.ahead.contains(&at) || behind
        };
        let pages = request.end - request.start;
        let near =
            |s: &Stream| self.gaps && s.missed > 0 && at < s.next + NEAR && s.next < at + NEAR;
        let goes_on = streams.all.iter().position(goes_on);
        let Some(index) = goes_on.or_else(|| streams.all.iter().position(near)) else {
            let index = streams.oldest();
            self.marks[index].store(NONE, Relaxed);
            let wasted = space.wasted_pages.load(Relaxed);
            let (first, next, limit) = (request.start, request.end, self.max);
            let begun = Stream { first, next, limit, wasted, missed: pages, ..Stream::default() };
            *streams.touch(index) = begun;
            streams.all[index].used = streams.clock;
            return None;
        };
        let stream = streams.touch(index);
        stream.missed += pages;
        stream.first = stream.first.min(request.start);
        if goes_on.is_some() {
            stream.steps = stream.steps.saturating_add(1);
            stream.next = request.end;
        } else if stream.next <= at {
            stream.next = request.end;
            let is_dense = stream.missed * 2 >= stream.next - stream.first;
            stream.steps = if stream.missed >= DENSE && is_dense { STEPS } else { 0 };
        } else {
            return None;
        }
        if stream.steps < STEPS {
            return None;
        }
        self.step(index, stream, (request, at), pool, space)
    }

    /// A stream misses a page, `at`, and reads ahead unless it rests.
    fn step(
        &self,
        index: usize,
        stream: &mut Stream,
        (request, at): (&Range<u64>, u64),
        pool: &Pool,
        space: &Space,
    ) -> Option<Range<u64>> {
        if stream.limit == 0 {
            stream.rest = stream.rest.saturating_sub(request.end - request.start);
            if stream.rest > 0 {
                return None;
            }
            (stream.limit, stream.size) = (self.max, 0);
        }
        if stream.ahead.contains(&at) {
            // It was requested and is not there, for want of room: the next window is half of this
            // one.
            stream.size /= 4;
        }
        stream.ahead = request.end..request.end;
        self.next(index, stream, request, pool, space)
    }

    /// The window behind those that were requested, and its mark.
    fn next(
        &self,
        index: usize,
        stream: &mut Stream,
        request: &Range<u64>,
        pool: &Pool,
        space: &Space,
    ) -> Option<Range<u64>> {
        let wasted = space.wasted_pages.load(Relaxed);
        let lost = wasted - std::mem::replace(&mut stream.wasted, wasted);
        if lost * 8 > stream.size.max(WINDOW_MIN) {
            stream.limit /= 2;
        } else if lost == 0 && stream.size >= stream.limit {
            stream.limit = (stream.limit * 2).min(self.max);
        }
        if stream.limit < WINDOW_MIN {
            (stream.limit, stream.rest, stream.ahead) = (0, REST_PAGES, 0..0);
            return None;
        }
        let limit = stream.limit.min(window_limit(pool, space));
        if limit < WINDOW_MIN {
            // The budget has become too small for windows.
            (stream.size, stream.ahead) = (0, 0..0);
            return None;
        }
        stream.size = match stream.size {
            0 => first_window(request.end - request.start, limit),
            size => next_window(size, limit),
        };
        let start = stream.ahead.end.max(request.end);
        let window = start..(start + stream.size).min(space.pages());
        if window.is_empty() {
            return None;
        }
        stream.ahead = stream.ahead.end - stream.ahead.end.min(stream.size)..window.end;
        stream.ahead.start = stream.ahead.start.max(request.start);
        self.marks[index].store(window.start, Relaxed);
        let gap = self.gaps && window.end - window.start >= GAP_MIN;
        Some(window.start + u64::from(gap)..window.end)
    }
}

impl Streams {
    fn touch(&mut self, index: usize) -> &mut Stream {
        self.clock += 1;
        self.all[index].used = self.clock;
        &mut self.all[index]
    }

    fn oldest(&self) -> usize {
        (0..STREAMS).min_by_key(|&index| self.all[index].used).unwrap_or(0)
    }
}

/// Pages of a window in a view with this option (`None`: the default).
pub(crate) fn window_pages(pool: &Pool, wanted: Option<u64>) -> u64 {
    // Without background threads the reader itself would wait for pages that it did not request.
    let default = if pool.background { WINDOW_BYTES } else { 0 };
    wanted.unwrap_or(default) >> pool.page_shift
}

/// The largest window that the budgets of a file's tenant and of those above allow now.
fn window_limit(pool: &Pool, space: &Space) -> u64 {
    budget_of(pool, space) / BUDGET_PART
}

/// Pages of the smallest budget among those of a file's tenant and of the tenants above.
pub(crate) fn budget_of(pool: &Pool, space: &Space) -> u64 {
    let state = pool.lock();
    let group = state.group_of(Payer::Space(space.id));
    let above = std::iter::successors(group, |&id| state.engine.parent(id));
    above.map(|id| limit_of(&state, id)).min().unwrap_or(0)
}

/// What a group may have without paying for it.
fn limit_of(state: &State, group: MemcgId) -> u64 {
    let Limits { high, max, .. } = state.engine.limits(group);
    high.min(max)
}

/// Pages that may be read around a miss, which brings in up to `wanted`.
pub(crate) fn room_around(pool: &Pool, space: &Space, wanted: u64) -> u64 {
    wanted.min(window_limit(pool, space)).min(room_ahead(pool, space))
}

/// Pages that may be read ahead for a file now: what is free in its tenant and above, and an
/// eighth of its tenant's clean pages, which are evicted for them if need be, or of its anonymous
/// ones for a region; none on a device that does not answer.
pub(crate) fn room_ahead(pool: &Pool, space: &Space) -> u64 {
    if !may_read_unasked(pool, space) {
        return 0;
    }
    let state = pool.lock();
    let Some(group) = state.group_of(Payer::Space(space.id)) else { return 0 };
    let stat = state.engine.stat(group);
    if space.anon.is_some() {
        return free_pages(&state, group) + stat.anon / 8;
    }
    free_pages(&state, group) + stat.file.saturating_sub(stat.file_dirty + stat.file_writeback) / 8
}

/// Pages that may be charged to a group without making room for them.
pub(crate) fn free_pages(state: &State, group: MemcgId) -> u64 {
    let above = std::iter::successors(Some(group), |&id| state.engine.parent(id));
    let room = |id| limit_of(state, id).saturating_sub(state.engine.usage(id));
    above.map(room).min().unwrap_or(0)
}

/// Notes an access to a page that is resident and pinned, in the state that was seen; `waited` for
/// a read of another thread.
#[inline]
pub(crate) fn note_access(
    pool: &Pool,
    space: &Space,
    page: u64,
    seen: EntryState,
    access: Access,
    waited: bool,
) {
    let EntryState::Resident { frame, young, .. } = seen else { return };
    let first = first_use(pool, space, page, frame);
    if !first {
        count_read(pool, space, access, waited);
    }
    if !access.is_mapped() {
        pool.sample_marks.touch(frame);
    }
    let young = access.is_mapped() && !young && (!first || pool.young_faults);
    if access.is_mapped() || access == Access::Descriptor {
        space.table.note_read(page, seen, young, || !first && unfenced::pays(space, page));
    }
}

/// Whether an access is the first use of a page that was read ahead, which it counts.
#[inline]
pub(crate) fn first_use(pool: &Pool, space: &Space, page: u64, frame: u32) -> bool {
    let Some(ahead) = pool.unused.take(frame) else { return false };
    pool.io.counts.ahead_used.fetch_add(1, Relaxed);
    if let Some(anon) = &space.anon {
        anon.ahead_ended(true);
    }
    space.around.touched(page);
    // Behind a pointer the sample has it since it came in. Of a heap this may be a later touch.
    let is_noted = space.mapped.is_some() && (space.anon.is_none() || ahead != Ahead::Unseen);
    if !is_noted {
        pool.sample_marks.touch(frame);
    }
    true
}

/// Notes the touch of a page that a program reaches through a pointer.
pub(crate) fn note_touch(pool: &Pool, space: &Space, page: u64) {
    let Some(entry) = space.table.get(page) else { return };
    note_access(pool, space, page, entry.load(), Access::Mapped, false);
}

/// Counts a read of a page that is no first use of one read ahead.
#[inline]
pub(crate) fn count_read(pool: &Pool, space: &Space, access: Access, missed: bool) {
    match access {
        Access::Mapped | Access::Stored | Access::Descriptor if missed => pool.io.note_miss(),
        Access::Mapped | Access::Stored | Access::Descriptor => pool.io.note_hit(space),
        Access::Patched | Access::Replaced | Access::Ahead => {}
    }
}

/// Pages that were read ahead are about to be published, or cannot be.
pub(crate) fn note_ahead(pool: &Pool, frames: Range<u32>, arrived: Option<Ahead>) {
    for frame in frames.clone() {
        pool.unused.take(frame);
        if let Some(ahead) = arrived {
            pool.unused.set(frame, ahead);
        }
    }
    if arrived.is_some() {
        pool.io.counts.ahead_pages.fetch_add(u64::from(frames.end - frames.start), Relaxed);
    }
}

/// Frames lose their pages, the first of which is `page`: by eviction, or because a region gave
/// them up.
pub(crate) fn note_evicted(pool: &Pool, space: &Space, page: u64, frames: Range<u32>) {
    let taken = frames.filter_map(|frame| pool.unused.take(frame)).map(Ahead::wasted);
    if let Some(wasted) = taken.reduce(|sum, wasted| sum + wasted) {
        if let Some(anon) = &space.anon {
            anon.ahead_ended(false);
        }
        // Only of folios of one page.
        space.around.evicted(page);
        space.wasted_pages.fetch_add(wasted, Relaxed);
        pool.io.counts.ahead_wasted.fetch_add(wasted, Relaxed);
    }
}
