//! The functions behind those of threads that this library stands in front of.
//!
//! Constructors of other libraries may start threads before this library is initialised, so each
//! is looked up when it is called first.
//!
//! # Safety
//!
//! As in `real.rs`.

#![allow(unsafe_code)]

use crate::own::Start;
use crate::real::Next;
use libc::{c_int, c_void, pthread_attr_t, pthread_t};
use std::{mem, process};

static PTHREAD_CREATE: Next = Next::new(c"pthread_create");
static CXA_THREAD_ATEXIT: Next = Next::new(c"__cxa_thread_atexit_impl");
static PTHREAD_EXIT: Next = Next::new(c"pthread_exit");
static THRD_EXIT: Next = Next::new(c"thrd_exit");
static PTHREAD_CANCEL: Next = Next::new(c"pthread_cancel");

/// Finds them all, so that no thread has to later: looking up takes the loader's lock.
pub(crate) fn look_up() {
    let all = [&PTHREAD_CREATE, &CXA_THREAD_ATEXIT, &PTHREAD_EXIT, &THRD_EXIT, &PTHREAD_CANCEL];
    for next in all {
        next.look_up();
    }
}

/// `pthread_create(3)`.
pub(crate) unsafe fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    type F =
        unsafe extern "C" fn(*mut pthread_t, *const pthread_attr_t, Start, *mut c_void) -> c_int;
    let Some(next) = PTHREAD_CREATE.found() else { return libc::EAGAIN };
    // SAFETY: the module's header.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    // SAFETY: the caller's arguments.
    unsafe { next(thread, attributes, start, argument) }
}

/// `__cxa_thread_atexit_impl` of the C library.
pub(crate) unsafe fn cxa_thread_atexit(
    destructor: unsafe extern "C" fn(*mut c_void),
    object: *mut c_void,
    library: *mut c_void,
) -> c_int {
    type F =
        unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, *mut c_void) -> c_int;
    let Some(next) = CXA_THREAD_ATEXIT.found() else { return -1 };
    // SAFETY: the module's header.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    // SAFETY: the caller's arguments.
    unsafe { next(destructor, object, library) }
}

/// Defines a function that ends the calling thread by unwinding.
macro_rules! end {
    ($(#[$about:meta])* $name:ident, $next:ident, $kind:ty) => {
        $(#[$about])*
        pub(crate) unsafe fn $name(value: $kind) -> ! {
            type F = unsafe extern "C-unwind" fn($kind) -> !;
            // Every C library has it.
            let Some(next) = $next.found() else { process::abort() };
            // SAFETY: the module's header.
            let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
            // SAFETY: the caller's argument.
            unsafe { next(value) }
        }
    };
}

end!(
    /// `pthread_exit(3)`.
    pthread_exit, PTHREAD_EXIT, *mut c_void
);
end!(
    /// `thrd_exit`.
    thrd_exit, THRD_EXIT, c_int
);

/// `pthread_cancel(3)`, which may end the calling thread.
pub(crate) unsafe fn pthread_cancel(thread: pthread_t) -> c_int {
    type F = unsafe extern "C-unwind" fn(pthread_t) -> c_int;
    let Some(next) = PTHREAD_CANCEL.found() else { return libc::ESRCH };
    // SAFETY: the module's header.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    // SAFETY: the caller's argument.
    unsafe { next(thread) }
}
