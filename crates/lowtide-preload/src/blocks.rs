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
//! The table is in ordinary memory, because a child of `fork` needs it: it has copies of the blocks
//! at the same addresses (`forks.rs`), in memory of the kernel's, and no window. So a block is
//! *live*, or it is the kernel's.
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
}

impl Block {
    pub(crate) fn is_dying(&self) -> bool {
        self.kind == Kind::Dying
    }
}

/// A part of a block that is dying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) range: Range<usize>,
    /// It is in the window that is served.
    pub(crate) is_live: bool,
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
    inner: UnsafeCell::new(Inner { window: 0..0, table: ptr::null_mut(), count: 0 }),
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
        true
    }

    /// All blocks are the kernel's from now on.
    pub(crate) fn end(&mut self) {
        self.inner.window = 0..0;
    }

    /// Whether blocks are given out.
    pub(crate) fn is_live(&self) -> bool {
        !self.inner.window.is_empty()
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

    fn window(&self) -> Range<usize> {
        self.inner.window.clone()
    }

    fn is_in_window(&self, block: &Block) -> bool {
        self.inner.window.contains(&block.start)
    }

    /// A new block of whole pages, all zeroes; `None` without room.
    pub(crate) fn allocate(&mut self, len: usize, align: usize, kind: Kind) -> Option<usize> {
        let window = self.window();
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
        if !self.put(at, Block { start, end, copy: 0, kind }) {
            protect(&range, libc::PROT_NONE);
            return None;
        }
        add(1, len.cast_signed());
        Some(start)
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

    /// Whether a block begins here, or contains all of a range.
    pub(crate) fn has_all(&mut self, range: &Range<usize>) -> bool {
        let mut from = range.start;
        for block in self.all() {
            if block.start <= from && from < block.end && !block.is_dying() {
                from = block.end;
            }
        }
        from >= range.end
    }

    /// Makes a live block longer, if there is room behind it: its end and its new end.
    pub(crate) fn grow(&mut self, start: usize, len: usize) -> bool {
        let window = self.window();
        let Some(end) = start.checked_add(len) else { return false };
        let all = self.all();
        let at = all.partition_point(|block| block.end <= start);
        let Some(block) = all.get(at).copied().filter(|block| block.start <= start) else {
            return false;
        };
        let next = all.get(at + 1).map_or(window.end, |next| next.start.min(window.end));
        if block.is_dying() || !window.contains(&start) || end > next || end <= block.end {
            return false;
        }
        if !protect(&(block.end..end), libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        add(0, (end - block.end).cast_signed());
        self.all()[at].end = end;
        true
    }

    /// The first part of a range that belongs to a block: the program gives it up.
    pub(crate) fn kill_first(&mut self, range: &Range<usize>) -> Option<Part> {
        let all = self.all();
        let mut at = all.partition_point(|block| block.end <= range.start);
        while all.get(at).is_some_and(Block::is_dying) {
            at += 1;
        }
        let block = *all.get(at).filter(|block| block.start < range.end)?;
        let part = block.start.max(range.start)..block.end.min(range.end);
        let is_live = self.is_in_window(&block);
        let dying = Block { start: part.start, end: part.end, copy: 0, kind: Kind::Dying };
        let pieces = usize::from(block.start < part.start) + usize::from(part.end < block.end);
        if self.inner.count + pieces > CAPACITY {
            return None;
        }
        self.all()[at] = dying;
        if part.end < block.end {
            self.put(at + 1, Block { start: part.end, ..block });
        }
        if block.start < part.start {
            self.put(at, Block { end: part.start, ..block });
        }
        add(pieces.cast_signed() - 1, -part.len().cast_signed());
        Some(Part { range: part, is_live })
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

    /// The first part of a range that belongs to a live block.
    pub(crate) fn first_live(&mut self, range: &Range<usize>) -> Option<Range<usize>> {
        let window = self.window();
        let all = self.all();
        let at = all.partition_point(|block| block.end <= range.start);
        let live = |block: &&Block| !block.is_dying() && window.contains(&block.start);
        let block = all[at..].iter().take_while(|block| block.start < range.end).find(live)?;
        Some(block.start.max(range.start)..block.end.min(range.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// A window of 64 pages of this test's own, and the table.
    fn window() -> (Table<'static>, usize) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: no address is demanded.
        let got = unsafe { libc::mmap(ptr::null_mut(), 64 * PAGE, libc::PROT_NONE, flags, -1, 0) };
        let start = got as usize;
        let mut table = lock();
        assert!(table.begin(start..start + 64 * PAGE));
        (table, start)
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
                while let Some(part) = table.kill_first(&whole) {
                    assert!(part.is_live);
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
        // What is dying is not given out.
        while let Some(part) = table.kill_first(&(low..low + 64 * PAGE)) {
            table.bury(&part);
        }
        let at = table.allocate(8 * PAGE, PAGE, Kind::Mapped).expect("room");
        assert!(!table.grow(at, 65 * PAGE) && table.grow(at, 16 * PAGE));
        let part = table.kill_first(&(at + PAGE..at + 2 * PAGE)).expect("a part");
        assert_ne!(table.allocate(PAGE, PAGE, Kind::Mapped), Some(part.range.start));
        assert!(!table.has_all(&(at..at + 2 * PAGE)) && table.has_all(&(at..at + PAGE)));
        table.bury(&part);
        assert_eq!(table.allocate(PAGE, PAGE, Kind::Mapped), Some(part.range.start));
        let [before, behind] = table.outside(&(low - PAGE..low + PAGE));
        assert_eq!((before, behind.is_empty()), (low - PAGE..low, true));
    }
}
