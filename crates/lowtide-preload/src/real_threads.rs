//! The functions behind those of threads that this library stands in front of.
//!
//! Constructors of other libraries may start threads before this library is initialised, so each
//! is looked up when it is called first.
//!
//! # Safety
//!
//! As in `real.rs`.

#![allow(unsafe_code)]

use crate::own::{Destructor, Start};
use crate::real::next;
use libc::{c_int, c_void, pthread_attr_t, pthread_t};
use std::process;

next! {
    PTHREAD_CREATE.found: "C" fn pthread_create(
        thread: *mut pthread_t, attributes: *const pthread_attr_t, start: Start, arg: *mut c_void
    ) -> c_int,
        else libc::EAGAIN;
    CXA_THREAD_ATEXIT.found: "C" fn __cxa_thread_atexit_impl(
        destructor: Destructor, object: *mut c_void, library: *mut c_void
    ) -> c_int,
        else -1;
    /// Ends the calling thread by unwinding. Every C library has it.
    PTHREAD_EXIT.found: "C-unwind" fn pthread_exit(value: *mut c_void) -> !,
        else process::abort();
    /// The same.
    THRD_EXIT.found: "C-unwind" fn thrd_exit(value: c_int) -> !,
        else process::abort();
    /// This may end the calling thread.
    PTHREAD_CANCEL.found: "C-unwind" fn pthread_cancel(thread: pthread_t) -> c_int,
        else libc::ESRCH;
}
