//! Pages that stay where they are: pins.
//!
//! A guard of Rust is three words, and a hit costs a few nanoseconds, which an allocation would
//! double. So the guard lives in a structure of the caller, and unpinning takes it out of there.
//! A guard is a slot of its thread, so the structure also has a mark of the thread.

use crate::code::{Failure, LT_WRONG_THREAD, Outcome, call};
use lowtide::Page;
use std::ffi::{c_int, c_void};

/// A page that is pinned: its bytes stay where they are, and as they are. Read `data` and `len`;
/// the rest is the library's. Set it to zero before it is used first.
#[repr(C)]
pub struct lt_page {
    /// The bytes: always a whole page, with zeroes past the end of the file. Null if no page is
    /// pinned.
    pub data: *const c_void,
    /// Bytes of a page.
    pub len: usize,
    /// The library's.
    pub thread: usize,
    /// The library's.
    pub guard: [usize; 3],
}

const _: () = assert!(size_of::<Page<'static>>() <= size_of::<[usize; 3]>());
const _: () = assert!(align_of::<Page<'static>>() <= align_of::<usize>());

thread_local! {
    static MARK: u8 = const { 0 };
}

/// A number that no other thread has at this time, and never zero.
#[inline]
fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// The caller's structure, which pins nothing.
///
/// # Safety
/// The pointer is null or one to such a structure, which was set to zero or is one of ours.
pub(crate) unsafe fn place<'a>(page: *mut lt_page) -> Outcome<&'a mut lt_page> {
    // SAFETY: the caller's promise.
    match unsafe { page.as_mut() } {
        None => Err(Failure::argument("there is no place for the page: the pointer is null")),
        Some(page) if !page.data.is_null() => {
            Err(Failure::argument("the structure has a page pinned: unpin it, or set it to zero"))
        }
        Some(page) => Ok(page),
    }
}

/// Puts a guard into the caller's structure.
#[inline]
pub(crate) fn put(place: &mut lt_page, page: Page<'_>) {
    (place.data, place.len) = (page.as_ptr().cast(), page.len());
    place.thread = this_thread();
    // SAFETY: there is room for a guard, at an address that fits. Its lifetime is forgotten: the
    // header says that a view is closed after its pages are unpinned.
    unsafe {
        place.guard.as_mut_ptr().cast::<Page<'_>>().write(page);
    }
}

/// Gives a page back that lt_pin, lt_try_pin or lt_region_pin has pinned; the structure can be used
/// again. A structure without a page, or null, is no error.
///
/// LT_WRONG_THREAD: another thread pinned it, and it stays pinned.
/// Threads: the one that pinned the page.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lt_unpin(page: *mut lt_page) -> c_int {
    call(|| {
        // SAFETY: the caller follows the header.
        let Some(page) = (unsafe { page.as_mut() }) else { return Ok(()) };
        if page.data.is_null() {
            return Ok(());
        }
        if page.thread != this_thread() {
            let text = "another thread pinned the page: unpin it there";
            return Err(Failure::new(LT_WRONG_THREAD, text));
        }
        page.data = std::ptr::null();
        // SAFETY: `put` has written a guard here, and `data` says that it is still there.
        drop(unsafe { page.guard.as_mut_ptr().cast::<Page<'_>>().read() });
        Ok(())
    })
}
