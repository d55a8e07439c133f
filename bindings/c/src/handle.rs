//! Opaque handles.
//!
//! A handle is a box whose address C has. A child of `fork` has the addresses of its parent's
//! handles, but neither the threads nor the memory of its pagers, and a call there would end in
//! SIGSEGV or never. So each handle knows its process: not by `getpid(2)`, which is a system call
//! and more than a hit costs, but by a number that a handler of `fork` makes one greater. A child
//! of a raw `clone(2)`, for which no handler runs, is not noticed.

use crate::code::{Failure, LT_FORKED, Outcome};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Forks between the first process that loaded the library and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
}

/// Something that belongs to the process that made it.
#[derive(Debug)]
pub(crate) struct Own<T> {
    forks: u32,
    it: T,
}

impl<T> Own<T> {
    pub(crate) fn new(it: T) -> Self {
        // No thread waits here for another one, which a child would not have: several that come
        // first register the handler several times, and it counts in larger steps.
        static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
        if !IS_REGISTERED.load(Relaxed) {
            // SAFETY: the handler touches one atomic, which it may in a child. Without memory for
            // the registration children are not noticed, as those of `clone(2)`.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            IS_REGISTERED.store(true, Relaxed);
        }
        Self { forks: FORKS.load(Relaxed), it }
    }

    #[inline]
    fn is_foreign(&self) -> bool {
        self.forks != FORKS.load(Relaxed)
    }
}

/// A structure that C knows by its address alone.
pub(crate) trait Handle: 'static {
    type Inner;
    fn own(&self) -> &Own<Self::Inner>;
    fn into_own(self) -> Own<Self::Inner>;
}

/// Makes a structure around an [`Own`] a handle. The structure itself is written out, because what
/// a macro makes is not in the header.
macro_rules! handle {
    ($name:ident: $inner:ty) => {
        impl crate::handle::Handle for $name {
            type Inner = $inner;

            #[inline]
            fn own(&self) -> &Own<$inner> {
                &self.0
            }

            fn into_own(self) -> Own<$inner> {
                self.0
            }
        }

        impl From<Own<$inner>> for $name {
            fn from(own: Own<$inner>) -> Self {
                Self(own)
            }
        }
    };
}
pub(crate) use handle;

#[cold]
fn foreign() -> Failure {
    Failure::new(LT_FORKED, "a child of fork does not have the handles of its parent: open others")
}

/// What is behind a handle.
///
/// # Safety
/// The pointer is null or a handle that is not closed while the result is used.
#[inline]
pub(crate) unsafe fn of<'a, H: Handle>(handle: *const H, what: &str) -> Outcome<&'a H::Inner> {
    // SAFETY: the caller's promise.
    unsafe { of_or_none(handle) }?.ok_or_else(|| Failure::argument(format!("{what} is null")))
}

/// As [`of`], where null stands for something.
///
/// # Safety
/// As [`of`].
#[inline]
pub(crate) unsafe fn of_or_none<'a, H: Handle>(handle: *const H) -> Outcome<Option<&'a H::Inner>> {
    // SAFETY: the caller's promise.
    let Some(handle) = (unsafe { handle.as_ref() }) else { return Ok(None) };
    let own = handle.own();
    if own.is_foreign() { Err(foreign()) } else { Ok(Some(&own.it)) }
}

/// Gives C a handle of what `make` returns. `out` is null if that fails.
///
/// # Safety
/// `out` is null or a pointer that may be written to.
pub(crate) unsafe fn give<H: Handle + From<Own<H::Inner>>>(
    out: *mut *mut H,
    make: impl FnOnce() -> Outcome<H::Inner>,
) -> Outcome {
    // SAFETY: the caller's promise.
    let Some(out) = (unsafe { out.as_mut() }) else {
        return Err(Failure::argument("there is no place for the handle: `out` is null"));
    };
    *out = std::ptr::null_mut();
    *out = Box::into_raw(Box::new(H::from(Own::new(make()?))));
    Ok(())
}

/// Takes a handle back; `None` for null. A child of `fork` keeps it as it is.
///
/// # Safety
/// The pointer is null or a handle, which is not used any more.
pub(crate) unsafe fn take<H: Handle>(handle: *mut H) -> Outcome<Option<H::Inner>> {
    // SAFETY: the caller's promise.
    match unsafe { handle.as_ref() } {
        None => return Ok(None),
        Some(shared) if shared.own().is_foreign() => return Err(foreign()),
        Some(_) => {}
    }
    // SAFETY: `give` made it from a box, and no one uses it any more.
    let handle = unsafe { Box::from_raw(handle) };
    Ok(Some(handle.into_own().it))
}
