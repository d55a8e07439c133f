//! The functions that the program calls instead of the C library's.
//!
//! Each does what the C library's function does, with the same arguments, and before or after that
//! what is ours. The order matters. What the program takes away (`munmap`, a new mapping at the
//! same place, `mprotect` of a private mapping to writable, `mlock`) is forgotten *before* the
//! call, so that the keeper never touches an address that has become something else. What it makes
//! is adopted *after* the call.
//!
//! Anonymous memory takes the first way out: no lock, no allocation, no system call of ours. This
//! makes it safe for allocators, which map and unmap under their own locks, and for the time before
//! this library is initialised. A guard against re-entrance is not needed: nothing that is ours
//! maps a file through these functions.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has. Arguments are passed on as
//! they are; descriptors are borrowed for the time of the call, while the program's own call uses
//! them.

#![allow(unsafe_code)]

use crate::judge::{self, Kind, Reason, Verdict};
use crate::line::{Answer, New, Question};
use crate::modes::Why;
use crate::quiet::Quiet;
use crate::real::before;
use crate::state::{self, State};
use crate::{keeper, last, mirrors, own, paths, real};
use libc::{c_int, c_void, off_t, size_t};
use lowtide_run::globs;
use lowtide_run::settings::Settings;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// Linux's `errno`, which what we do after a call of the program must not change.
pub(crate) struct Errno {
    value: c_int,
    place: *mut c_int,
}

impl Errno {
    /// Says why a call failed.
    pub(crate) fn set(value: c_int) {
        let mut errno = Self::save();
        errno.value = value;
    }

    /// Why the last call failed.
    pub(crate) fn now() -> c_int {
        Self::save().value
    }

    pub(crate) fn save() -> Self {
        // SAFETY: the function has no conditions.
        let place = unsafe { libc::__errno_location() };
        // SAFETY: the place is this thread's, and valid while it lives.
        Self { value: unsafe { *place }, place }
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above; a pointer is not `Send`, so this is the same thread.
        unsafe { *self.place = self.value };
    }
}

/// The pages that a range of bytes touches, as the kernel rounds it.
pub(crate) fn pages(addr: *const c_void, len: usize) -> Range<usize> {
    let page = rustix::param::page_size();
    let start = addr as usize & !(page - 1);
    let end = (addr as usize).saturating_add(len).saturating_add(page - 1) & !(page - 1);
    start..end.max(start)
}

/// Whether an address is one of a page. The kernel refuses calls with others, and so they change
/// nothing.
fn is_of_page(addr: *const c_void) -> bool {
    (addr as usize).is_multiple_of(rustix::param::page_size())
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let served = state::get().filter(|_| flags & libc::MAP_FIXED == 0 || is_of_page(addr));
    if flags & libc::MAP_FIXED != 0
        && let Some((state, _)) = served
    {
        state.release(&pages(addr, len));
    }
    let is_of_file = flags & libc::MAP_ANONYMOUS == 0 && fd >= 0 && len > 0;
    let Some((state, settings)) = served.filter(|_| is_of_file) else {
        // SAFETY: the program's arguments.
        return unsafe { real::mmap(addr, len, prot, flags, fd, offset) };
    };
    let wanted = consider(state, settings, len, prot, flags, fd);
    // More than the budget cannot be populated; it would be dropped again as it comes in. A mirror
    // is populated when it is there.
    let fits = len as u64 <= settings.max;
    let is_late = wanted.is_ok() && (settings.mode.mirrors() || !fits);
    let populates = is_late && fits && flags & libc::MAP_POPULATE != 0;
    let is_stored = prot & libc::PROT_WRITE != 0;
    let flags = if is_late { flags & !libc::MAP_POPULATE } else { flags };
    // SAFETY: the program's arguments; populating is a wish.
    let got = unsafe { real::mmap(addr, len, prot, flags, fd, offset) };
    if got != libc::MAP_FAILED {
        let _errno = Errno::save();
        let handed = wanted.and_then(|(kind, identity)| {
            let (range, offset, thread) = (pages(got, len), offset as u64, own::number());
            hand_over(state, New { range, offset, kind, fd, thread, identity, is_stored })
        });
        if let Err(Verdict::Leave(reason)) = handed {
            state.left.add(reason, len as u64, || paths::path_of(fd));
        }
        if populates {
            // SAFETY: the program's new mapping, whose contents do not change.
            unsafe { real::madvise(got, len, libc::MADV_POPULATE_READ) };
        }
    }
    got
}

/// The same: on 64-bit Linux offsets have one size.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the program's arguments.
    unsafe { mmap(addr, len, prot, flags, fd, offset) }
}

/// Whether a mapping that is about to be made is to be adopted.
fn consider(
    state: &State,
    settings: &Settings,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
) -> Result<(Kind, judge::Identity), Verdict> {
    // SAFETY: the program passes this descriptor to `mmap`. If it is not open, the calls with it
    // fail, and so does `mmap`.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let identity = judge::of_file(file)?;
    if (len as u64) < settings.threshold
        && (settings.maps.is_empty() || globs::budget_of(settings, &paths::path_of(fd)).is_none())
    {
        return Err(Verdict::Leave(Reason::Small));
    }
    if let Some(reason) = state.left_alone() {
        return Err(Verdict::Leave(reason));
    }
    match judge::of_flags(prot, flags) {
        Verdict::Adopt(kind) => Ok((kind, identity)),
        other => Err(other),
    }
}

/// Hands a mapping to the keeper.
fn hand_over(state: &'static State, new: New) -> Result<(), Verdict> {
    let (range, is_private) = (new.range.clone(), new.kind == Kind::PrivateReadOnly);
    // A handler that jumps must not come between the keeper's answer and what is noted of it.
    let _quiet = Quiet::begin();
    let asked = state.line.ask_or_start(Question::Keep(new), keeper::begin);
    last::prepare(state);
    note(state, asked, range, is_private).map_err(Verdict::Leave)
}

/// Remembers the addresses of what the keeper has, if it has answered so.
fn note(
    state: &State,
    answer: Result<Answer, Reason>,
    range: Range<usize>,
    is_private: bool,
) -> Result<(), Reason> {
    match answer? {
        Answer::Done => {}
        Answer::Left(reason) => return Err(reason),
        Answer::Ticket(_) => return Err(Reason::Broken),
    }
    state.ranges.insert(&range, is_private).map_err(|_| {
        state.line.ask(Question::Forget(range));
        Reason::Resources
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: size_t,
    new_len: size_t,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let is_refused = !is_of_page(old) || flags & libc::MREMAP_FIXED != 0 && !is_of_page(new);
    let Some((state, _)) = state::get().filter(|_| !is_refused) else {
        // SAFETY: the program's arguments.
        return unsafe { real::mremap(old, old_len, new_len, flags, new) };
    };
    if flags & libc::MREMAP_FIXED != 0 {
        state.release(&pages(new, new_len));
    }
    if old_len == 0 {
        // A second mapping of the same pages: of the file's, and not of a mirror's.
        turn(state, &pages(old, 1), Why::Moved);
    }
    let range = pages(old, old_len);
    let _quiet = state.ranges.touches(&range, false).then(Quiet::begin);
    let is_private = state.ranges.touches(&range, true);
    let ticket =
        state.ranges.remove(&range).and_then(|gone| match state.line.ask(Question::Detach(gone)) {
            Some(Answer::Ticket(ticket)) if ticket > 0 => Some(ticket),
            _ => None,
        });
    // SAFETY: the program's arguments.
    let got = unsafe { real::mremap(old, old_len, new_len, flags, new) };
    if let Some(ticket) = ticket {
        let _errno = Errno::save();
        // It stays where it was if the call failed, and also if it is to.
        let now = if got == libc::MAP_FAILED { range.clone() } else { pages(got, new_len) };
        let stays = got != libc::MAP_FAILED && flags & libc::MREMAP_DONTUNMAP != 0;
        let places = stays.then_some((range, false)).into_iter().chain([(now, true)]);
        for (range, is_last) in places {
            let asked = Question::Attach { ticket, range: range.clone(), is_last };
            let attached = state.line.ask(asked).ok_or(Reason::Broken);
            let bytes = range.len() as u64;
            if let Err(reason) = note(state, attached, range, is_private) {
                state.left.add(reason, bytes, Vec::new);
            }
        }
    }
    got
}

/// What is mirrored of these addresses becomes the kernel's mapping, and stays that.
fn turn(state: &State, range: &Range<usize>, why: Why) {
    if mirrors::may_come() && state.ranges.touches(range, false) {
        let _errno = Errno::save();
        state.line.ask(Question::Turn { range: range.clone(), why });
    }
}

/// What a new protection means for addresses that are adopted.
fn protect(addr: *mut c_void, len: usize, prot: c_int) {
    let Some((state, _)) = state::get() else { return };
    let range = pages(addr, len);
    if prot != libc::PROT_READ {
        turn(state, &range, Why::Protected);
    }
    if prot & libc::PROT_EXEC != 0 {
        state.release_for(&range, Reason::Executable);
    } else if prot & libc::PROT_WRITE != 0 && state.ranges.touches(&range, true) {
        state.release_for(&range, Reason::Writable);
    }
}

/// What the kernel may be asked to read in advance of a mapping. Where all of it is kept, nothing:
/// the runtime reads it, within the budget. Otherwise no more than half of the budget, of which the
/// rest would be evicted for it.
fn in_advance(addr: *mut c_void, len: usize, is_will_need: bool) -> Option<usize> {
    let Some((state, settings)) = state::get().filter(|_| is_will_need) else { return Some(len) };
    let range = pages(addr, len);
    let kept = state.ranges.bytes_in(&range);
    if kept == 0 {
        return Some(len);
    }
    let _errno = Errno::save();
    let answer = state.line.ask(Question::WillNeed(range.clone()));
    if is_of_page(addr) && kept == range.len() && matches!(answer, Some(Answer::Done)) {
        return None;
    }
    Some(len.min((settings.max / 2) as usize))
}

/// What the program says about the order in which it reads: `random` or not.
const fn order(advice: c_int) -> Option<bool> {
    match advice {
        libc::MADV_RANDOM => Some(true),
        libc::MADV_NORMAL | libc::MADV_SEQUENTIAL => Some(false),
        _ => None,
    }
}

/// What advice means for mirrors, of which the kernel knows nothing. Reading ahead is ours. Some
/// advice is the same for the mirror's memory: pages that are not needed come back as they were.
/// What changes more, such as what children inherit, is for the program's own mapping.
fn advise_mirrors(addr: *mut c_void, len: usize, advice: c_int) {
    let Some((state, _)) = state::get().filter(|_| mirrors::may_come()) else { return };
    let range = pages(addr, len);
    match advice {
        libc::MADV_NORMAL
        | libc::MADV_RANDOM
        | libc::MADV_SEQUENTIAL
        | libc::MADV_DONTNEED
        | libc::MADV_DONTDUMP
        | libc::MADV_DODUMP
        | libc::MADV_WILLNEED
        | libc::MADV_POPULATE_READ => {}
        _ => turn(state, &range, Why::Advised),
    }
}

/// What the kernel is to be advised. It reads nothing ahead of what is adopted, whatever the
/// program says: the runtime does, as advised. Both functions have the same numbers for it.
fn advise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    advise_mirrors(addr, len, advice);
    let Some(random) = order(advice) else { return advice };
    let Some((state, settings)) = state::get() else { return advice };
    let range = pages(addr, len);
    if settings.keep_read_ahead || state.ranges.bytes_in(&range) < range.len().max(1) {
        return advice;
    }
    let _errno = Errno::save();
    state.line.ask(Question::Advise { range, random });
    libc::MADV_RANDOM
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn madvise(addr: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let Some(len) = in_advance(addr, len, advice == libc::MADV_WILLNEED) else { return 0 };
    let advice = advise(addr, len, advice);
    // SAFETY: the program's arguments; other advice about reading ahead changes no contents.
    unsafe { real::madvise(addr, len, advice) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn posix_madvise(addr: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let Some(len) = in_advance(addr, len, advice == libc::POSIX_MADV_WILLNEED) else { return 0 };
    let advice = advise(addr, len, advice);
    // SAFETY: the program's arguments; other advice about reading ahead changes no contents.
    unsafe { real::posix_madvise(addr, len, advice) }
}

/// Locked memory stays: it is not ours any more.
fn locked(range: &Range<usize>) {
    if let Some((state, _)) = state::get() {
        state.release_for(range, Reason::Locked);
    }
}

/// All memory is locked, if the program wants that: what there is, and what comes.
fn lock_all(flags: c_int) {
    if flags & libc::MCL_CURRENT != 0 {
        locked(&(0..usize::MAX));
    }
    if flags & libc::MCL_FUTURE != 0
        && let Some((state, _)) = state::get()
    {
        state.leave_alone(Reason::Locked);
    }
}

/// Addresses are about to show nothing, or something else.
fn released(range: &Range<usize>) {
    if let Some((state, _)) = state::get() {
        state.release(range);
    }
}

/// Addresses are about to show other pages of the file.
fn remapped(range: &Range<usize>) {
    if let Some((state, _)) = state::get() {
        turn(state, range, Why::Moved);
        state.release(range);
    }
}

before! {
    "C" fn munmap(addr: *mut c_void, len: size_t) -> c_int, released(&pages(addr, len));
    "C" fn remap_file_pages(
        addr: *mut c_void, len: size_t, prot: c_int, page: size_t, flags: c_int
    ) -> c_int, remapped(&pages(addr, len));
    "C" fn mprotect(addr: *mut c_void, len: size_t, prot: c_int) -> c_int,
        protect(addr, len, prot);
    "C" fn pkey_mprotect(addr: *mut c_void, len: size_t, prot: c_int, key: c_int) -> c_int,
        protect(addr, len, prot);
    "C" fn mlock(addr: *const c_void, len: size_t) -> c_int, locked(&pages(addr, len));
    "C" fn mlock2(addr: *const c_void, len: size_t, flags: c_int) -> c_int,
        locked(&pages(addr, len));
    "C" fn mlockall(flags: c_int) -> c_int, lock_all(flags);
}
