//! The C library of GNU.
//!
//! # Safety
//!
//! The functions have the contracts of `malloc(3)` and `pthread_atfork(3)`, and of the functions
//! whose names they have.

#![allow(unsafe_code)]

use super::Handler;
use crate::own::{self, Destructor};
use crate::real::{before, next};
use crate::{forks, real_threads, stdio};
use libc::{c_char, c_int, c_void, size_t};
use lowtide_run::elf::CLibrary;

/// The C library of programs that this library is for.
pub(crate) const OWN: CLibrary = CLibrary::Gnu;

/// That of programs that the other one is for.
pub(crate) const OTHER: CLibrary = CLibrary::Musl;

/// The functions that read are among those that this library stands in front of.
pub(crate) const NOTES_READS: bool = true;

/// What the C library calls `SIGSETXID`.
pub(crate) const RIGHTS_SIGNAL: i32 = 33;

unsafe extern "C" {
    #[link_name = "__libc_malloc"]
    pub(crate) fn malloc(size: size_t) -> *mut c_void;
    #[link_name = "__libc_calloc"]
    pub(crate) fn calloc(count: size_t, size: size_t) -> *mut c_void;
    #[link_name = "__libc_realloc"]
    pub(crate) fn realloc(old: *mut c_void, size: size_t) -> *mut c_void;
    /// As `aligned_alloc(3)`.
    #[link_name = "__libc_memalign"]
    pub(crate) fn memalign(align: size_t, size: size_t) -> *mut c_void;
    #[link_name = "__libc_free"]
    pub(crate) fn free(block: *mut c_void);
    fn __fsetlocking(stream: *mut Stream, kind: c_int) -> c_int;
    static mut _IO_2_1_stdin_: Stream;
    static mut _IO_2_1_stdout_: Stream;
}

/// A `FILE`, of which only the address is used.
#[repr(C)]
struct Stream {
    _opaque: [usize; 0],
}

/// What frees a block of [`memalign`].
pub(crate) use free as free_aligned;

/// A name was not found. Nothing is to be done: what the program looks up next is its own.
pub(crate) fn forget_missing() {}

/// Why nothing can be kept, if so.
pub(crate) fn refusal() -> Option<&'static str> {
    None
}

/// Whether all that is loaded allocates with the C library's `malloc`.
pub(crate) fn has_own_allocator() -> bool {
    // SAFETY: the name ends with a zero.
    let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
    first.addr() == malloc as *const () as usize
}

const INTERNAL: c_int = 1;
const BY_CALLER: c_int = 2;

/// Standard input and output are not locked by each of their functions from now on. Standard error
/// has no buffer, so its lock costs nothing beside the call.
pub(crate) fn unlock_standard_streams() {
    for stream in standard_streams() {
        // SAFETY: a stream of the C library's, which is there as long as the process.
        unsafe { __fsetlocking(stream, BY_CALLER) };
    }
}

fn standard_streams() -> [*mut Stream; 2] {
    [&raw mut _IO_2_1_stdin_, &raw mut _IO_2_1_stdout_]
}

/// They are again.
pub(crate) fn lock_standard_streams() {
    for stream in standard_streams() {
        // SAFETY: as above.
        unsafe { __fsetlocking(stream, INTERNAL) };
    }
}

/// What is behind the functions below.
mod real {
    use super::{Handler, Stream, next};
    use libc::{c_char, c_int, c_void};

    next! {
        FCLOSE.found: "C" fn fclose(stream: *mut Stream) -> c_int, else libc::EOF;
        FREOPEN.found: "C" fn freopen(
            path: *const c_char, mode: *const c_char, stream: *mut Stream
        ) -> *mut Stream,
            else std::ptr::null_mut();
        FREOPEN64.found: "C" fn freopen64(
            path: *const c_char, mode: *const c_char, stream: *mut Stream
        ) -> *mut Stream,
            else std::ptr::null_mut();
        /// Registers handlers of `fork(2)`, without our own before them.
        REGISTER_ATFORK.found: "C" fn __register_atfork(
            before: Handler, parent: Handler, child: Handler, object: *mut c_void
        ) -> c_int,
            else libc::ENOMEM;
    }
}
pub(crate) use real::{__register_atfork as register_atfork, look_up};

before! {
    /// A stream that is closed has its locks: the C library forgets meanwhile that it has none, and
    /// would give back what it has not taken.
    "C" fn fclose(stream: *mut Stream) -> c_int,
        if standard_streams().contains(&stream) { stdio::give_up(); };
    /// What `pthread_atfork(3)` calls, which is a part of each program.
    "C" fn __register_atfork(
        before: Handler, parent: Handler, child: Handler, object: *mut c_void
    ) -> c_int, forks::register();
}

/// Defines functions that open a stream again, of which the same is true.
macro_rules! reopen {
    ($($name:ident)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name(
                path: *const c_char,
                mode: *const c_char,
                stream: *mut Stream,
            ) -> *mut Stream {
                let had_none = standard_streams().contains(&stream) && stdio::give_up();
                // SAFETY: the program's arguments.
                let opened = unsafe { real::$name(path, mode, stream) };
                if had_none {
                    stdio::go_on();
                }
                opened
            }
        )*
    };
}

reopen! { freopen freopen64 }

/// Registers a destructor of a thread-local. The standard library in this file calls it by this
/// name, as every C++ runtime does.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __cxa_thread_atexit_impl(
    destructor: Destructor,
    object: *mut c_void,
    library: *mut c_void,
) -> c_int {
    if own::is_ours() {
        own::at_end(destructor, object);
        return 0;
    }
    // SAFETY: the program's arguments.
    unsafe { real_threads::__cxa_thread_atexit_impl(destructor, object, library) }
}
