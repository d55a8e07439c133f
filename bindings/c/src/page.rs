//! Pages that stay where they are: pins.
//!
//! A guard of Rust is three words, and a hit costs a few nanoseconds, which an allocation would
//! double. So the guard lives in a structure of the caller, and unpinning takes it out of there.
//!
//! C copies structures. A second unpin, through a copy, would vacate a slot that is another pin's
//! by now, whose page could then change under its reader. So each pin has a number that no other
//! pin gets, and each thread a list of its own pins that live; the last ones are unpinned first,
//! mostly. The number names the thread, too: a guard is a slot of its thread.

use crate::code::{Failure, LT_WRONG_THREAD, Outcome, call};
use crate::sized;
use lowtide::Page;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A page that is pinned: its bytes stay where they are, and as they are. Read `data` and `len`;
/// the rest is the library's. Before it is used first, set `size` to its sizeof and the rest to
/// zero. The structure may be moved and copied: all copies are one pin, which is unpinned once.
#[repr(C)]
pub struct lt_page {
    /// sizeof(lt_page).
    pub size: usize,
    /// The bytes: always a whole page, with zeroes past the end of the file. Null if no page is
    /// pinned.
    pub data: *const c_void,
    /// Bytes of a page.
    pub len: usize,
    /// The library's.
    pub pin: usize,
    /// The library's.
    pub guard: [usize; 3],
}

const _: () = assert!(size_of::<Page<'static>>() <= size_of::<[usize; 3]>());
const _: () = assert!(align_of::<Page<'static>>() <= align_of::<usize>());

/// Bits of a pin's number that count the pins of its thread; those above are the thread's.
const COUNT_BITS: u32 = 40;

thread_local! {
    /// The number of the pin that this thread made last.
    static LAST: Cell<usize> = const { Cell::new(0) };
    /// The pins of this thread that live. It is gone before other destructors of the thread are,
    /// which may unpin: what is not in it any more is not checked.
    static LIVE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A number for a new pin of this thread; never zero.
#[inline]
fn begin() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(1);
    let last = match LAST.get() {
        0 => THREADS.fetch_add(1, Relaxed) << COUNT_BITS,
        last => last,
    };
    LAST.set(last + 1);
    let _ = LIVE.try_with(|live| live.borrow_mut().push(last + 1));
    last + 1
}

/// The pin with this number lives no more.
#[inline]
fn end(pin: usize) -> Outcome {
    if pin >> COUNT_BITS != LAST.get() >> COUNT_BITS {
        let text = "another thread pinned the page: unpin it there";
        return Err(Failure::new(LT_WRONG_THREAD, text));
    }
    let found = LIVE.try_with(|live| {
        let mut live = live.borrow_mut();
        let at = live.iter().rposition(|other| *other == pin);
        at.map(|at| live.swap_remove(at)).is_some()
    });
    if found.unwrap_or(true) {
        return Ok(());
    }
    Err(Failure::argument("the page is not pinned any more: a copy of this structure was unpinned"))
}

/// The caller's structure, which pins nothing.
///
/// # Safety
/// The pointer is null or one to as many bytes as the structure says that it has, which were set to
/// zero or are of ours.
pub(crate) unsafe fn place<'a>(page: *mut lt_page) -> Outcome<&'a mut lt_page> {
    if page.is_null() {
        return Err(Failure::argument("there is no place for the page: the pointer is null"));
    }
    // SAFETY: the caller's promise.
    unsafe { sized::at_least_ours(page) }?;
    // SAFETY: it is as large as ours.
    let page = unsafe { &mut *page };
    if !page.data.is_null() {
        return Err(Failure::argument("the structure has a page pinned: unpin it before"));
    }
    Ok(page)
}

/// Puts a guard into the caller's structure.
#[inline]
pub(crate) fn put(place: &mut lt_page, page: Page<'_>) {
    (place.data, place.len) = (page.as_ptr().cast(), page.len());
    place.pin = begin();
    // SAFETY: there is room for a guard, at an address that fits. Its lifetime is forgotten: the
    // header says that a view is closed after its pages are unpinned.
    unsafe {
        place.guard.as_mut_ptr().cast::<Page<'_>>().write(page);
    }
}

/// Gives a page back that lt_view_pin, lt_view_try_pin or lt_region_pin has pinned; the structure
/// can be used again. A structure without a page, or null, is no error.
///
/// EINVAL: a copy of the structure was unpinned before; nothing changes. LT_WRONG_THREAD: another
/// thread pinned it, which may have ended, and it stays pinned.
/// Threads: the one that pinned the page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_unpin(page: *mut lt_page) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let Some(page) = (unsafe { page.as_mut() }) else { return Ok(()) };
        if page.data.is_null() {
            return Ok(());
        }
        end(page.pin)?;
        page.data = std::ptr::null();
        // SAFETY: `put` has written a guard here, and its number lived until now.
        drop(unsafe { page.guard.as_mut_ptr().cast::<Page<'_>>().read() });
        Ok(())
    })
}
