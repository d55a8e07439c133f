//! Memory without a file that is kept within the budget: what the program's threads do with it.
//!
//! Large anonymous mappings and large allocations are blocks of the window that the keeper has made
//! (`memory.rs`). Taking one is a matter of the table (`blocks.rs`). Giving one up asks the keeper,
//! who makes its pages zeroes. Whatever cannot be done to such memory makes the blocks that it
//! concerns the kernel's first, at the same addresses ([`give_back_for`]); standard error and the
//! summary say why. Where that is not possible, for want of memory, the program's call fails with
//! `ENOMEM`, before it has changed anything.
//!
//! # Safety
//!
//! Addresses of blocks are the program's, who calls these functions as it would call the C
//! library's.

#![allow(unsafe_code)]

use crate::blocks::{self, Full, Kind, Part, Place};
use crate::interpose::Errno;
use crate::judge::Reason;
use crate::line::{Answer, Question};
use crate::state::{self, State};
use crate::{descriptors, keeper, protections, real, real_memory};
use libc::{c_int, c_void};
use lowtide_run::settings::Settings;
use std::io::Write;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Allocations of this size and more are blocks; none are before [`begin`], and none are where the
/// program has another allocator than the C library's: what that maps is.
static THRESHOLD: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Bytes that are moved before the place where they were is given up.
const STRIDE: usize = 4 << 20;

/// `MADV_COLLAPSE` of Linux 6.1.
const MADV_COLLAPSE: c_int = 25;

/// State of the heap in this process.
const UNTRIED: u32 = 0;
const TRIED: u32 = 1;

/// The protection of blocks.
pub(crate) const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Makes the window. Called at the beginning, where no allocator has a lock: it starts threads.
pub(crate) fn begin(state: &State, settings: &Settings) {
    if state.heap.swap(TRIED, Ordering::AcqRel) != UNTRIED {
        return;
    }
    let begun = state.line.ask_or_start(Question::Heap, keeper::begin);
    if matches!(begun, Ok(Answer::Done)) && real_memory::malloc_is_the_c_librarys() {
        THRESHOLD.store(settings.threshold.max(1) as usize, Ordering::Relaxed);
    }
}

/// Whether an allocation of this size is not the C library's. Almost always it is.
pub(crate) fn is_large(size: usize) -> bool {
    size >= THRESHOLD.load(Ordering::Relaxed)
}

fn whole_pages(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(rustix::param::page_size()).filter(|len| *len > 0)
}

/// A new block of zeroes; `None` where the kernel's memory is to be taken, which is counted.
pub(crate) fn allocate(len: usize, align: usize, kind: Kind) -> Option<usize> {
    let (state, settings) = state::get().filter(|(_, settings)| settings.anon)?;
    let len = whole_pages(len)?;
    if state.heap.load(Ordering::Acquire) == UNTRIED && kind == Kind::Allocated {
        // A child of `fork`. It is not in an allocator now.
        let _errno = Errno::save();
        begin(state, settings);
    }
    let reason = if let Some(reason) = state.left_alone() {
        reason
    } else {
        let mut table = blocks::lock();
        if let Some(got) = table.allocate(len, align.max(rustix::param::page_size()), kind) {
            return Some(got);
        }
        if table.is_open() { Reason::Addresses } else { Reason::NoHeap }
    };
    state.left.add(reason, len as u64, Vec::new);
    if reason == Reason::Addresses {
        say_once(reason);
    }
    None
}

/// Bytes of what an allocation returned, if it is a block.
pub(crate) fn size_of(block: *const c_void) -> Option<usize> {
    if !blocks::may_have(block as usize) {
        return None;
    }
    blocks::lock().size_of(block as usize)
}

/// Gives a part of a block up, which is dying.
fn bury(part: &Part) {
    let Range { start, end } = part.range;
    let question = match part.place {
        Place::Live => {
            // From now on a touch is `SIGSEGV`, and no page comes in.
            blocks::protect(&part.range, libc::PROT_NONE);
            blocks::dump(&part.range, false);
            Some(Question::Discard { start, end })
        }
        Place::Lent => Some(Question::TakeBack { start, end }),
        Place::Elsewhere => {
            // SAFETY: the kernel's memory, where a block was that the program gives up.
            unsafe { real::munmap(ptr::with_exposed_provenance_mut(start), end - start) };
            None
        }
    };
    if let Some(question) = question {
        let asked = state::get().and_then(|(state, _)| state.line.ask(question));
        if !matches!(asked, Some(Answer::Done)) {
            // What is there may be anything: nothing of it is given out again.
            return;
        }
    }
    blocks::lock().bury(part);
}

/// Gives up what belongs to blocks in a range.
pub(crate) fn release(range: &Range<usize>) {
    let _errno = Errno::save();
    let mut at = range.start;
    while at < range.end {
        let part = blocks::lock().kill_first(&(at..range.end));
        // Without room in the table the rest of a block stays the program's.
        let Ok(Some(part)) = part else { return };
        // What is buried may be another thread's block at once: it is not looked at again.
        at = part.range.end;
        bury(&part);
    }
}

/// `munmap(2)` of a range that may have blocks.
pub(crate) fn unmap(range: &Range<usize>) -> c_int {
    let mut at = range.start;
    let mut result = 0;
    while at < range.end {
        let first = {
            let mut table = blocks::lock();
            table.kill_first(&(at..range.end)).map(|part| {
                let until = part.as_ref().map_or(range.end, |part| part.range.start);
                (part, table.outside(&(at..until)))
            })
        };
        let Ok((part, rest)) = first else {
            Errno::set(libc::ENOMEM);
            return -1;
        };
        for rest in rest.into_iter().filter(|rest| !rest.is_empty()) {
            let start = ptr::with_exposed_provenance_mut(rest.start);
            // SAFETY: the program's arguments, without what is kept here.
            result = unsafe { real::munmap(start, rest.len()) }.min(result);
        }
        at = part.as_ref().map_or(range.end, |part| part.range.end);
        if let Some(part) = part {
            let _errno = Errno::save();
            bury(&part);
        }
    }
    result
}

/// Makes what is live in a range zeroes. Whether it was possible.
pub(crate) fn discard(range: &Range<usize>) -> bool {
    let mut at = range.start;
    while at < range.end {
        let live = blocks::lock().first_live(&(at..range.end));
        let Some(live) = live else { return true };
        let question = Question::Discard { start: live.start, end: live.end };
        let asked = state::get().and_then(|(state, _)| state.line.ask(question));
        if !matches!(asked, Some(Answer::Done)) {
            return false;
        }
        at = live.end;
    }
    true
}

/// Whether a range touches memory that is kept.
pub(crate) fn is_live(range: &Range<usize>) -> bool {
    blocks::may_touch(range) && blocks::lock().first_live(range).is_some()
}

/// Lends all blocks, and makes no more.
///
/// # Errors
/// As [`give_back_for`].
pub(crate) fn end(reason: Reason) -> Result<(), c_int> {
    lend(Question::End { reason }, reason)
}

/// Makes the live blocks that a range touches the kernel's, at the same addresses. What the program
/// does next to them works as usual; the budget holds no more for them.
///
/// # Errors
/// `ENOMEM`: all is as before.
pub(crate) fn give_back_for(range: &Range<usize>, reason: Reason) -> Result<(), c_int> {
    if !is_live(range) {
        return Ok(());
    }
    let Range { start, end } = *range;
    lend(Question::GiveBack { start, end, gaps: false, reason }, reason)
}

/// The same, and all other addresses of the window in the range, for what the program puts there.
///
/// # Errors
/// As there.
pub(crate) fn make_place(range: &Range<usize>, reason: Reason) -> Result<(), c_int> {
    if !blocks::may_touch(range) || !blocks::lock().touches_window(range) {
        return Ok(());
    }
    let Range { start, end } = *range;
    lend(Question::GiveBack { start, end, gaps: true, reason }, reason)
}

fn lend(question: Question, reason: Reason) -> Result<(), c_int> {
    let Some((state, _)) = state::get() else { return Ok(()) };
    let _errno = Errno::save();
    match state.line.ask(question) {
        Some(Answer::Ticket(pages)) => {
            if pages > 0 {
                let bytes = u64::from(pages) * rustix::param::page_size() as u64;
                state.left.add(reason, bytes, Vec::new);
                say_once(reason);
            }
            Ok(())
        }
        Some(Answer::Left(_)) => Err(libc::ENOMEM),
        // Without a keeper nothing is kept.
        Some(Answer::Done) | None => Ok(()),
    }
}

/// A budget does not end in silence.
pub(crate) fn say_once(reason: Reason) {
    static SAID: [AtomicBool; Reason::ALL.len()] =
        [const { AtomicBool::new(false) }; Reason::ALL.len()];
    if !SAID[reason as usize].swap(true, Ordering::Relaxed) {
        let _errno = Errno::save();
        let (line, len) = said(reason);
        descriptors::say_first(&line[..len]);
    }
}

/// The line that says so. It is written with one call, or that of another process would come
/// between; and it is made without `malloc`, which calls this.
fn said(reason: Reason) -> ([u8; LINE], usize) {
    let mut line = [0_u8; LINE];
    let mut rest = &mut line[..];
    // What does not fit is left out.
    let _ = writeln!(rest, "lowtide: --max does not hold for some memory: {}", reason.text());
    let len = LINE - rest.len();
    (line, len)
}

/// Bytes of the longest such line.
const LINE: usize = 160;

/// The kernel's memory is about to be replaced, or to move: what was a block of a parent's window
/// there is none any more.
pub(crate) fn forget(range: &Range<usize>) {
    if !blocks::may_touch(range) {
        return;
    }
    let mut table = blocks::lock();
    while let Some(part) = table.first(range, Place::Elsewhere) {
        match table.kill_first(&part) {
            Ok(Some(part)) => table.bury(&part),
            Ok(None) | Err(Full) => return,
        }
    }
}

/// Memory at addresses that the program demands, in place of what is there: where it is, or why
/// the call fails. `None` if the kernel is to make it.
pub(crate) fn fixed(
    range: &Range<usize>,
    prot: c_int,
    is_anonymous: bool,
) -> Option<Result<usize, c_int>> {
    if !blocks::may_touch(range) {
        return None;
    }
    let covered = {
        let mut table = blocks::lock();
        let live = table.first_live(range).is_some();
        if !live && !table.touches_window(range) {
            drop(table);
            forget(range);
            return None;
        }
        live && table.has_all(range)
    };
    let _errno = Errno::save();
    if is_anonymous && covered && discard(range) && blocks::protect(range, prot) {
        return Some(Ok(range.start));
    }
    // Nothing is there as yet that the program's mapping could not replace.
    make_place(range, Reason::Fixed).err().map(Err)
}

/// `mremap(2)` of a block. `None` if the kernel is to do it, with memory that is elsewhere.
pub(crate) fn remap(
    old: &Range<usize>,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> Option<Result<usize, c_int>> {
    let (touches_window, has_gaps) = {
        let mut table = blocks::lock();
        (table.touches_window(old), !table.has_no_gap(old))
    };
    if !touches_window || old.is_empty() {
        forget(old);
        return None;
    }
    if has_gaps {
        // Nothing of the program's is there.
        return Some(Err(libc::EFAULT));
    }
    let Some(len) = whole_pages(new_len) else { return Some(Err(libc::EINVAL)) };
    let plain = flags & !libc::MREMAP_MAYMOVE == 0 && blocks::lock().has_all(old);
    // What the program has protected cannot be copied, or becomes longer with its protection.
    if !plain || len > old.len() && is_protected(old) {
        let lent = give_back_for(old, Reason::Moved);
        return Some(lent.and_then(|()| move_lent(old, len, flags, new)));
    }
    if len <= old.len() {
        release(&(old.start + len..old.end));
        return Some(Ok(old.start));
    }
    if blocks::lock().grow(old, len) {
        return Some(Ok(old.start));
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return Some(Err(libc::ENOMEM));
    }
    let new = allocate(len, 1, Kind::Mapped).or_else(|| kernels(len));
    let Some(new) = new else { return Some(Err(libc::ENOMEM)) };
    shift(old, new);
    Some(Ok(new))
}

/// `mremap(2)` of memory at addresses of the window that is the kernel's by now. It leaves the
/// window in a step that leaves no hole, in which the kernel could put something else.
fn move_lent(
    old: &Range<usize>,
    len: usize,
    flags: c_int,
    new: *mut c_void,
) -> Result<usize, c_int> {
    let call = |at: usize, old_len: usize, len: usize, flags: c_int, to: *mut c_void| {
        let at = ptr::with_exposed_provenance_mut(at);
        // SAFETY: the program's memory, and addresses that it has named, or none.
        let got = unsafe { real::mremap(at, old_len, len, flags, to) };
        if got == libc::MAP_FAILED { Err(Errno::now()) } else { Ok(got as usize) }
    };
    let keeps = flags & libc::MREMAP_DONTUNMAP != 0;
    if keeps {
        // The addresses stay a mapping of the program's, which the kernel empties.
        return call(old.start, old.len(), len, flags, new);
    }
    if flags & (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) == 0 {
        if len > old.len() {
            return Err(libc::ENOMEM);
        }
        release(&(old.start + len..old.end));
        return Ok(old.start);
    }
    let leave = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
    let away = call(old.start, old.len(), old.len(), leave, ptr::null_mut())?;
    let there = if len == old.len() && flags & libc::MREMAP_FIXED == 0 {
        Ok(away)
    } else {
        call(away, old.len(), len, flags, new)
    };
    match there {
        Ok(there) => {
            release(old);
            Ok(there)
        }
        Err(errno) => {
            let back = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let to = ptr::with_exposed_provenance_mut(old.start);
            call(away, old.len(), old.len(), back, to)?;
            Err(errno)
        }
    }
}

/// Whether the program has protected a part of a range, as far as is known.
fn is_protected(range: &Range<usize>) -> bool {
    let _errno = Errno::save();
    let question = Question::IsPlain { start: range.start, end: range.end };
    let asked = state::get().and_then(|(state, _)| state.line.ask(question));
    !matches!(asked, Some(Answer::Done))
}

/// The kernel's memory.
fn kernels(len: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: no address is demanded.
    let got = unsafe { real::mmap(ptr::null_mut(), len, READ_WRITE, flags, -1, 0) };
    (got != libc::MAP_FAILED).then_some(got as usize)
}

/// Copies a block elsewhere, and gives it up piece by piece.
pub(crate) fn shift(old: &Range<usize>, new: usize) {
    let mut at = old.start;
    while at < old.end {
        let end = old.end.min((at + STRIDE).next_multiple_of(STRIDE));
        let from = ptr::with_exposed_provenance::<u8>(at);
        let to = ptr::with_exposed_provenance_mut::<u8>(new + (at - old.start));
        // SAFETY: both are memory of the program, as long, and do not overlap.
        unsafe { ptr::copy_nonoverlapping(from, to, end - at) };
        release(&(at..end));
        at = end;
    }
}

/// Makes an allocation shorter or longer where it is.
pub(crate) fn resize(block: usize, old: usize, len: usize) -> bool {
    match whole_pages(len) {
        Some(len) if len <= old => {
            release(&(block + len..block + old));
            true
        }
        Some(len) => blocks::lock().grow(&(block..block + old), len),
        None => false,
    }
}

/// `madvise(2)` of a range with memory that is kept: what it returns. `None` if the kernel may be
/// asked.
pub(crate) fn advise(range: &Range<usize>, advice: c_int) -> Option<Result<(), c_int>> {
    if !is_live(range) {
        return None;
    }
    match advice {
        // Free pages may be zeroes at any time, so they are at once.
        libc::MADV_DONTNEED | libc::MADV_FREE => {
            let done = {
                let _errno = Errno::save();
                discard(range)
            };
            Some(if done { advise_outside(range, advice) } else { Err(libc::ENOMEM) })
        }
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => None,
        // Hints. The runtime decides what comes in and goes.
        libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_WILLNEED
        | libc::MADV_COLD
        | libc::MADV_PAGEOUT
        | libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_MERGEABLE
        | libc::MADV_UNMERGEABLE
        | libc::MADV_DOFORK
        | MADV_COLLAPSE => Some(advise_outside(range, advice)),
        // The window is a mapping as others are.
        libc::MADV_DONTDUMP | libc::MADV_DODUMP => {
            protections::note_secrets();
            None
        }
        // What changes more is for the kernel's memory.
        _ => give_back_for(range, Reason::Advised).err().map(Err),
    }
}

/// Advises the kernel about its own memory: before and behind the window, and what is lent.
fn advise_outside(range: &Range<usize>, advice: c_int) -> Result<(), c_int> {
    let outside = blocks::lock().outside(range);
    let mut at = range.start;
    let lent = std::iter::from_fn(|| {
        let part = blocks::lock().first(&(at..range.end), Place::Lent)?;
        at = part.end;
        Some(part)
    });
    for part in outside.into_iter().chain(lent).filter(|part| !part.is_empty()) {
        let start = ptr::with_exposed_provenance_mut(part.start);
        // SAFETY: the program's arguments, without what is kept here.
        if unsafe { real::madvise(start, part.len(), advice) } != 0 {
            return Err(Errno::now());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_one_line() {
        for reason in Reason::ALL {
            let (line, len) = said(reason);
            let text = std::str::from_utf8(&line[..len]).unwrap();
            assert!(text.starts_with("lowtide: ") && text.contains(reason.text()), "{text}");
            assert_eq!(text.find('\n'), Some(len - 1), "{text}");
        }
    }
}
