//! The addresses of the heap that is kept within a budget, and which of them the program has.
//!
//! The runtime serves one *window* of addresses. The program has *blocks* in it: mappings, and
//! large allocations. They are whole pages, they do not overlap, and what lies between them cannot
//! be touched (`PROT_NONE`), as what was unmapped cannot be. A block is taken from the first gap
//! that is large enough.
//!
//! A block that goes is *dying* until its pages are given up: nothing of it is the program's any
//! more, and its addresses are given out only when they are zeroes again.
//!
//! What cannot be kept of the program's memory is *lent* to it: a block whose addresses are in the
//! window, and whose memory is the kernel's (`memory.rs`). When it goes, the window takes its
//! addresses back.
//!
//! The table is in ordinary memory, because a child of `fork` needs it: it has copies of the blocks
//! at the same addresses (`forks.rs`), in memory of the kernel's, and no window. So a block is
//! *live*, lent, or elsewhere.
//!
//! What is in no block is left out of core dumps, which would have 64 GiB of zeroes otherwise.
//!
//! Finding a gap costs a look at each block: there are as many as the program has large blocks.
//!
//! # Safety
//!
//! The table is touched while the lock is held. Of the window's addresses this changes only the
//! protection.

#![allow(unsafe_code)]

use crate::lock::{Lock, Locked};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::{ptr, slice};

/// Blocks that there may be at a time: as many as the kernel's default limit of mappings.
const CAPACITY: usize = 1 << 16;
/// How many of them are not given out: what the program unmaps of others may leave two pieces.
const PIECES: usize = 1 << 10;

/// What a block is to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A mapping.
    Mapped,
    /// What `malloc` returned.
    Allocated,
    /// The program's no more.
    Dying,
}

/// Addresses in the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// While a process forks: where the child finds its copy.
    pub(crate) copy: usize,
    kind: Kind,
    /// Its memory is the kernel's, although its addresses are the window's.
    is_lent: bool,
}

impl Block {
    pub(crate) fn is_dying(&self) -> bool {
        self.kind == Kind::Dying
    }

    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    pub(crate) fn touches(&self, range: &Range<usize>) -> bool {
        self.start < range.end && range.start < self.end
    }
}

/// Where the memory of a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the window: it is kept within the budget.
    Live,
    /// The kernel's, at addresses of the window.
    Lent,
    /// The kernel's, at addresses of a window that a parent had.
    Elsewhere,
}

/// There is no room in the table for the pieces of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full;

/// A part of a block that is dying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) range: Range<usize>,
    pub(crate) place: Place,
}

struct Blocks {
    lock: Lock,
    /// The hull of all windows that this process and its ancestors had. Written once for each.
    low: AtomicUsize,
    span: AtomicUsize,
    /// The program's blocks, and their bytes: changed under the lock, read without it.
    count: AtomicU64,
    bytes: AtomicU64,
    inner: UnsafeCell<Inner>,
}

struct Inner {
    window: Range<usize>,
    /// No block is given out any more.
    is_closed: bool,
    table: *mut Block,
    count: usize,
}

// SAFETY: the inner part is touched under the lock.
unsafe impl Sync for Blocks {}

static BLOCKS: Blocks = Blocks {
    lock: Lock::new(),
    low: AtomicUsize::new(0),
    span: AtomicUsize::new(0),
    count: AtomicU64::new(0),
    bytes: AtomicU64::new(0),
    inner: UnsafeCell::new(Inner {
        window: 0..0,
        is_closed: false,
        table: ptr::null_mut(),
        count: 0,
    }),
};

/// Whether an address may be in a block. No lock.
pub(crate) fn may_have(address: usize) -> bool {
    address.wrapping_sub(BLOCKS.low.load(Ordering::Relaxed)) < BLOCKS.span.load(Ordering::Relaxed)
}

/// Whether a range may touch a block. No lock.
pub(crate) fn may_touch(range: &Range<usize>) -> bool {
    let low = BLOCKS.low.load(Ordering::Relaxed);
    range.start < low.saturating_add(BLOCKS.span.load(Ordering::Relaxed)) && range.end > low
}

/// How many blocks there are, and their bytes. No lock: a summary must not wait for a thread that
/// forks, which waits for the keeper.
pub(crate) fn sum() -> (u64, u64) {
    (BLOCKS.count.load(Ordering::Relaxed), BLOCKS.bytes.load(Ordering::Relaxed))
}

/// The number of blocks and of bytes has changed by this. The caller has the lock.
fn add(count: isize, bytes: isize) {
    BLOCKS.count.fetch_add(count as u64, Ordering::Relaxed);
    BLOCKS.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// The table, while this thread has the lock.
pub(crate) struct Table<'a> {
    /// None in the hands of a thread for which another has the lock.
    _held: Option<Locked<'a>>,
    inner: &'a mut Inner,
}

/// Waits for the lock.
pub(crate) fn lock() -> Table<'static> {
    let held = BLOCKS.lock.lock();
    // SAFETY: the lock is held as long as the reference lives.
    Table { _held: Some(held), inner: unsafe { &mut *BLOCKS.inner.get() } }
}

/// Where the live block ends that has a byte of the window: its offset, from the window's first
/// byte. 0 if there is none, or if a thread has the lock at this moment: one that touches a block
/// meanwhile waits for the caller.
pub(crate) fn end_of(offset: u64) -> u64 {
    let Some(held) = BLOCKS.lock.try_lock() else { return 0 };
    // SAFETY: the lock is held as long as the reference lives.
    let mut table = Table { _held: Some(held), inner: unsafe { &mut *BLOCKS.inner.get() } };
    table.end_of(offset)
}

/// Takes the lock for a thread that forks.
pub(crate) fn lock_for_fork() -> Locked<'static> {
    BLOCKS.lock.lock()
}

/// The table, for which a thread that forks has the lock.
///
/// # Safety
/// That thread waits for the caller, or is the caller.
pub(crate) unsafe fn locked_by_fork() -> Table<'static> {
    // SAFETY: the caller's promise.
    Table { _held: None, inner: unsafe { &mut *BLOCKS.inner.get() } }
}

/// Changes the protection of whole pages; whether the kernel did.
pub(crate) fn protect(range: &Range<usize>, prot: i32) -> bool {
    // SAFETY: the window's addresses, which are the caller's to give or to take.
    let done = unsafe { libc::syscall(libc::SYS_mprotect, range.start, range.len(), prot) };
    done == 0
}

/// Has whole pages in core dumps, or leaves them out. The kernel follows the advice, or ignores it.
pub(crate) fn dump(range: &Range<usize>, is_in: bool) {
    let advice = if is_in { libc::MADV_DODUMP } else { libc::MADV_DONTDUMP };
    // SAFETY: no contents change.
    unsafe { libc::syscall(libc::SYS_madvise, range.start, range.len(), advice) };
}

impl Table<'_> {
    /// From now on blocks are given out of this window, which cannot be touched yet. False if there
    /// is no memory for the table.
    pub(crate) fn begin(&mut self, window: Range<usize>) -> bool {
        if self.inner.table.is_null() {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let (bytes, prot) = (CAPACITY * size_of::<Block>(), libc::PROT_READ | libc::PROT_WRITE);
            // SAFETY: no address is demanded, so this replaces nothing.
            let got = unsafe {
                libc::syscall(libc::SYS_mmap, 0_usize, bytes, prot, flags, -1_isize, 0_usize)
            };
            if got == -1 {
                return false;
            }
            self.inner.table = ptr::with_exposed_provenance_mut(got as usize);
        }
        let (low, span) = (BLOCKS.low.load(Ordering::Relaxed), BLOCKS.span.load(Ordering::Relaxed));
        let hull = if span == 0 {
            window.clone()
        } else {
            low.min(window.start)..(low + span).max(window.end)
        };
        // A reader between the two stores sees a hull that is too small, and has no block yet of
        // what is missing; a second window comes in a child, which has one thread.
        BLOCKS.low.store(hull.start, Ordering::Relaxed);
        BLOCKS.span.store(hull.len(), Ordering::Release);
        self.inner.window = window;
        self.inner.is_closed = false;
        true
    }

    /// All blocks are elsewhere from now on: this is a child.
    pub(crate) fn end(&mut self) {
        self.inner.window = 0..0;
    }

    /// No block is given out any more.
    pub(crate) fn close(&mut self) {
        self.inner.is_closed = true;
    }

    /// Whether blocks are given out.
    pub(crate) fn is_open(&self) -> bool {
        !self.inner.window.is_empty() && !self.inner.is_closed
    }

    /// The addresses behind the last block are the window's no more; which they were.
    pub(crate) fn cut_tail(&mut self) -> Range<usize> {
        let window = self.window();
        let ends = self.all().iter().map(|block| block.end).filter(|end| *end <= window.end);
        let end = ends.max().unwrap_or(window.start).max(window.start);
        self.inner.window = window.start..end;
        end..window.end
    }

    /// Whether a range touches the window that is served.
    pub(crate) fn touches_window(&self, range: &Range<usize>) -> bool {
        range.start < self.inner.window.end && range.end > self.inner.window.start
    }

    /// What of a range is outside of the window: before it, and behind it.
    pub(crate) fn outside(&self, range: &Range<usize>) -> [Range<usize>; 2] {
        let window = &self.inner.window;
        if !self.touches_window(range) {
            return [range.clone(), range.end..range.end];
        }
        let before = range.start..window.start.clamp(range.start, range.end);
        [before, window.end.clamp(range.start, range.end)..range.end]
    }

    /// All blocks, in order.
    pub(crate) fn all(&mut self) -> &mut [Block] {
        if self.inner.table.is_null() {
            return &mut [];
        }
        // SAFETY: the first `count` were written, and the lock is held.
        unsafe { slice::from_raw_parts_mut(self.inner.table, self.inner.count) }
    }

    fn put(&mut self, at: usize, block: Block) -> bool {
        if self.inner.count == CAPACITY {
            return false;
        }
        let place = self.inner.table.wrapping_add(at);
        // SAFETY: there is room for one more; the table has `count` blocks.
        unsafe { ptr::copy(place, place.wrapping_add(1), self.inner.count - at) };
        // SAFETY: as above.
        unsafe { place.write(block) };
        self.inner.count += 1;
        true
    }

    fn take(&mut self, at: usize) {
        self.all().copy_within(at + 1.., at);
        self.inner.count -= 1;
    }

    pub(crate) fn window(&self) -> Range<usize> {
        self.inner.window.clone()
    }

    pub(crate) fn place_of(&self, block: &Block) -> Place {
        match block.is_lent {
            _ if !self.inner.window.contains(&block.start) => Place::Elsewhere,
            true => Place::Lent,
            false => Place::Live,
        }
    }

    /// A new block of whole pages, all zeroes; `None` without room.
    pub(crate) fn allocate(&mut self, len: usize, align: usize, kind: Kind) -> Option<usize> {
        let window = self.window();
        if !self.is_open() || self.inner.count >= CAPACITY - PIECES {
            return None;
        }
        let mut start = window.start.checked_next_multiple_of(align)?;
        let all = self.all();
        let mut at = all.partition_point(|block| block.end <= window.start);
        while at < all.len() && all[at].start < start.checked_add(len)? {
            start = all[at].end.max(start).checked_next_multiple_of(align)?;
            at += 1;
        }
        let end = start.checked_add(len).filter(|end| *end <= window.end)?;
        let range = start..end;
        if !protect(&range, libc::PROT_READ | libc::PROT_WRITE) {
            return None;
        }
        dump(&range, true);
        if !self.put(at, Block { start, end, copy: 0, kind, is_lent: false }) {
            protect(&range, libc::PROT_NONE);
            return None;
        }
        add(1, len.cast_signed());
        Some(start)
    }

    /// What of a range is in the window and in no block, as runs.
    pub(crate) fn gaps(&mut self, range: &Range<usize>) -> Vec<Range<usize>> {
        let window = self.window();
        let (mut at, end) = (range.start.max(window.start), range.end.min(window.end));
        let mut gaps = Vec::new();
        for block in self.all().iter().filter(|block| block.touches(range)) {
            if at < block.start.min(end) {
                gaps.push(at..block.start.min(end));
            }
            at = at.max(block.end);
        }
        if at < end {
            gaps.push(at..end);
        }
        gaps
    }

    /// A gap is lent: a block that the program has put there itself.
    pub(crate) fn put_lent(&mut self, gap: &Range<usize>) -> Result<(), Full> {
        let at = self.all().partition_point(|block| block.end <= gap.start);
        let block =
            Block { start: gap.start, end: gap.end, copy: 0, kind: Kind::Mapped, is_lent: true };
        if !self.put(at, block) {
            return Err(Full);
        }
        add(1, gap.len().cast_signed());
        Ok(())
    }

    /// The live block that begins here is lent.
    pub(crate) fn lend(&mut self, start: usize) {
        if let Some(at) = self.find(start) {
            self.all()[at].is_lent = true;
        }
    }

    fn find(&mut self, start: usize) -> Option<usize> {
        let at = self.all().binary_search_by_key(&start, |block| block.start).ok()?;
        (!self.all()[at].is_dying()).then_some(at)
    }

    /// Bytes of what `malloc` returned.
    pub(crate) fn size_of(&mut self, start: usize) -> Option<usize> {
        let at = self.find(start)?;
        let block = self.all()[at];
        (block.kind == Kind::Allocated).then(|| block.end - block.start)
    }

    /// Whether live blocks have all of a range.
    pub(crate) fn has_all(&mut self, range: &Range<usize>) -> bool {
        let window = self.window();
        self.are_all(range, |block| !block.is_lent && window.contains(&block.start))
    }

    /// Whether blocks have all of a range, wherever their memory is.
    pub(crate) fn has_no_gap(&mut self, range: &Range<usize>) -> bool {
        self.are_all(range, |_| true)
    }

    fn are_all(&mut self, range: &Range<usize>, is_one: impl Fn(&Block) -> bool) -> bool {
        let mut from = range.start;
        for block in self.all() {
            if !block.is_dying() && is_one(block) && block.start <= from && from < block.end {
                from = block.end;
            }
        }
        from >= range.end
    }

    /// Makes a part of a live block longer, with which the block ends, if there is room past its
    /// end. What lies past the end of another part is the program's.
    pub(crate) fn grow(&mut self, old: &Range<usize>, len: usize) -> bool {
        let window = self.window();
        let Some(end) = old.start.checked_add(len) else { return false };
        let all = self.all();
        let at = all.partition_point(|block| block.end <= old.start);
        let Some(block) = all.get(at).copied().filter(|block| block.start <= old.start) else {
            return false;
        };
        let next = all.get(at + 1).map_or(window.end, |next| next.start.min(window.end));
        let is_live = !block.is_dying() && self.place_of(&block) == Place::Live;
        if !is_live || block.end != old.end || end > next || end <= block.end {
            return false;
        }
        let more = block.end..end;
        if !self.is_open() || !protect(&more, libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        dump(&more, true);
        add(0, (end - block.end).cast_signed());
        self.all()[at].end = end;
        true
    }

    /// The first part of a range that belongs to a block: the program gives it up.
    ///
    /// # Errors
    /// The block stays as it is.
    pub(crate) fn kill_first(&mut self, range: &Range<usize>) -> Result<Option<Part>, Full> {
        let all = self.all();
        let mut at = all.partition_point(|block| block.end <= range.start);
        while all.get(at).is_some_and(Block::is_dying) {
            at += 1;
        }
        let Some(&block) = all.get(at).filter(|block| block.start < range.end) else {
            return Ok(None);
        };
        let part = block.start.max(range.start)..block.end.min(range.end);
        let place = self.place_of(&block);
        let dying = Block { start: part.start, end: part.end, kind: Kind::Dying, ..block };
        let pieces = usize::from(block.start < part.start) + usize::from(part.end < block.end);
        if self.inner.count + pieces > CAPACITY {
            return Err(Full);
        }
        self.all()[at] = dying;
        if part.end < block.end {
            self.put(at + 1, Block { start: part.end, ..block });
        }
        if block.start < part.start {
            self.put(at, Block { end: part.start, ..block });
        }
        add(pieces.cast_signed() - 1, -part.len().cast_signed());
        Ok(Some(Part { range: part, place }))
    }

    /// A dying part is gone: its addresses may be given out.
    pub(crate) fn bury(&mut self, part: &Part) {
        let found = self.all().binary_search_by_key(&part.range.start, |block| block.start);
        if let Ok(at) = found
            && self.all()[at].is_dying()
        {
            self.take(at);
        }
    }

    /// See [`end_of`].
    fn end_of(&mut self, offset: u64) -> u64 {
        let window = self.window();
        let at = window.start.saturating_add(usize::try_from(offset).unwrap_or(usize::MAX));
        let block = self.first_live(&(at..window.end)).filter(|part| part.start == at);
        block.map_or(0, |part| (part.end - window.start) as u64)
    }

    /// The first part of a range that belongs to a live block.
    pub(crate) fn first_live(&mut self, range: &Range<usize>) -> Option<Range<usize>> {
        self.first(range, Place::Live)
    }

    /// The first part of a range that belongs to a block at such a place.
    pub(crate) fn first(&mut self, range: &Range<usize>, place: Place) -> Option<Range<usize>> {
        let mut at = self.all().partition_point(|block| block.end <= range.start);
        loop {
            let block = *self.all().get(at).filter(|block| block.start < range.end)?;
            if !block.is_dying() && self.place_of(&block) == place {
                return Some(block.start.max(range.start)..block.end.min(range.end));
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// The table, with a window of 64 pages in which there is no block: one for all tests, since a
    /// process has one. Until it is dropped, the other tests wait.
    fn window() -> (Table<'static>, usize) {
        let mut table = lock();
        if table.window().is_empty() {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: no address is demanded.
            let got =
                unsafe { libc::mmap(ptr::null_mut(), 64 * PAGE, libc::PROT_NONE, flags, -1, 0) };
            let start = got as usize;
            assert!(table.begin(start..start + 64 * PAGE));
        }
        let window = table.window();
        while let Some(part) = table.kill_first(&window).expect("room") {
            table.bury(&part);
        }
        (table, window.start)
    }

    #[test]
    fn blocks_agree_with_a_list_of_pages() {
        let (mut table, low) = window();
        let mut pages = [0_u32; 64];
        let (mut seed, mut names) = (7_u64, 0);
        let mut draw = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        for _ in 0..4000 {
            let page = draw(64);
            let own = |at: &usize| pages[page] != 0 && pages[*at] == pages[page];
            let end = (page..64).take_while(own).last().map_or(0, |last| last + 1);
            assert_eq!(table.end_of((page * PAGE) as u64), (end * PAGE) as u64);
            let (count, align) = (1 + draw(9), 1 << draw(4));
            if draw(2) == 0 {
                let fits = |at: &usize| {
                    (low / PAGE + at).is_multiple_of(align)
                        && at + count <= 64
                        && pages[*at..at + count].iter().all(|page| *page == 0)
                };
                let place = (0..64).find(fits);
                let got = table.allocate(count * PAGE, align * PAGE, Kind::Allocated);
                assert_eq!(got.map(|at| (at - low) / PAGE), place, "the first gap");
                let Some(at) = place else { continue };
                names += 1;
                pages[at..at + count].fill(names);
                assert_eq!(table.size_of(low + at * PAGE), Some(count * PAGE));
                // SAFETY: the block is this test's, and may be stored to.
                unsafe { ptr::with_exposed_provenance_mut::<u8>(low + at * PAGE).write(1) };
            } else {
                let first = draw(64);
                let range = first..(first + count).min(64);
                let whole = low + range.start * PAGE..low + range.end * PAGE;
                let taken = |page: &usize| pages[*page] != 0;
                let expected: Vec<_> = range.clone().filter(taken).collect();
                let mut killed = Vec::new();
                while let Some(part) = table.kill_first(&whole).expect("room") {
                    assert_eq!(part.place, Place::Live);
                    killed.extend((part.range.start - low) / PAGE..(part.range.end - low) / PAGE);
                    assert!(table.first_live(&part.range).is_none(), "it is dying");
                    table.bury(&part);
                }
                assert_eq!(killed, expected);
                pages[range].fill(0);
            }
            let bytes = pages.iter().filter(|page| **page != 0).count() * PAGE;
            let count = table.all().iter().filter(|block| !block.is_dying()).count();
            assert_eq!(sum(), (count as u64, bytes as u64));
        }
    }

    #[test]
    fn what_is_dying_is_not_given_out() {
        let (mut table, _) = window();
        let at = table.allocate(8 * PAGE, PAGE, Kind::Mapped).expect("room");
        let (half, whole) = (at..at + 4 * PAGE, at..at + 8 * PAGE);
        assert!(!table.grow(&half, 16 * PAGE), "what lies past the half is the program's");
        assert!(!table.grow(&whole, 65 * PAGE) && table.grow(&whole, 16 * PAGE));
        let part = table.kill_first(&(at + PAGE..at + 2 * PAGE)).expect("room").expect("a part");
        let end = at + 16 * PAGE;
        assert_eq!(table.allocate(PAGE, PAGE, Kind::Mapped), Some(end), "not what is dying");
        assert!(!table.has_all(&(at..at + 2 * PAGE)) && table.has_all(&(at..at + PAGE)));
        table.bury(&part);
        assert_eq!(table.allocate(PAGE, PAGE, Kind::Mapped), Some(part.range.start));
    }

    #[test]
    fn what_is_lent_is_a_block_and_what_is_in_none_can_be() {
        let (mut table, low) = window();
        let at = table.allocate(16 * PAGE, PAGE, Kind::Mapped).expect("room");
        let end = at + 16 * PAGE;
        assert_eq!(table.allocate(PAGE, PAGE, Kind::Mapped), Some(end));
        let free = end + PAGE..end + 5 * PAGE;
        assert_eq!(table.gaps(&(free.start - PAGE..free.end)), slice::from_ref(&free));
        table.put_lent(&free).expect("room");
        assert_eq!(table.first(&(at..free.end), Place::Lent), Some(free.clone()));
        assert!(table.first_live(&free).is_none() && !table.has_all(&free));
        assert!(!table.grow(&free, 8 * PAGE) && table.gaps(&free).is_empty());
        let part = table.kill_first(&free).expect("room").expect("a part");
        assert_eq!((part.place, &part.range), (Place::Lent, &free));
        table.bury(&part);
        // A page is taken out of the first block, whose rest is one that begins past it.
        let part = table.kill_first(&(at + PAGE..at + 2 * PAGE)).expect("room").expect("a part");
        table.bury(&part);
        table.lend(at + 2 * PAGE);
        assert_eq!(
            table.first(&(low..free.end), Place::Lent),
            Some(at + 2 * PAGE..end),
            "the rest of the block"
        );
        let [before, behind] = table.outside(&(low - PAGE..low + PAGE));
        assert_eq!((before, behind.is_empty()), (low - PAGE..low, true));
    }
}
