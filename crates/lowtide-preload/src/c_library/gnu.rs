//! The C library of GNU.
//!
//! # Safety
//!
//! The functions have the contracts of `malloc(3)` and `pthread_atfork(3)`, and of the functions
//! whose names they have.

#![allow(unsafe_code)]

use super::Handler;
use crate::own::{self, Destructor};
use crate::real::Next;
use crate::{forks, real_threads, stdio};
use libc::{c_char, c_int, c_void, size_t};
use lowtide_run::elf::CLibrary;
use std::{mem, ptr};

/// The C library of programs that this library is for.
pub(crate) const OWN: CLibrary = CLibrary::Gnu;

/// That of programs that the other one is for.
pub(crate) const OTHER: CLibrary = CLibrary::Musl;

/// The functions that read are among those that this library stands in front of.
pub(crate) const NOTES_READS: bool = true;

/// What the C library calls `SIGSETXID`.
pub(crate) const RIGHTS_SIGNAL: i32 = 33;

unsafe extern "C" {
    fn __libc_malloc(size: size_t) -> *mut c_void;
    fn __libc_calloc(count: size_t, size: size_t) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: size_t) -> *mut c_void;
    fn __libc_memalign(align: size_t, size: size_t) -> *mut c_void;
    fn __libc_free(block: *mut c_void);
    fn __fsetlocking(stream: *mut Stream, kind: c_int) -> c_int;
    static mut _IO_2_1_stdin_: Stream;
    static mut _IO_2_1_stdout_: Stream;
}

/// A `FILE`, of which only the address is used.
#[repr(C)]
struct Stream {
    _opaque: [usize; 0],
}

pub(crate) unsafe fn malloc(size: size_t) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { __libc_malloc(size) }
}

pub(crate) unsafe fn calloc(count: size_t, size: size_t) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { __libc_calloc(count, size) }
}

pub(crate) unsafe fn realloc(old: *mut c_void, size: size_t) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { __libc_realloc(old, size) }
}

/// As `aligned_alloc(3)`.
pub(crate) unsafe fn memalign(align: size_t, size: size_t) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { __libc_memalign(align, size) }
}

pub(crate) unsafe fn free(block: *mut c_void) {
    // SAFETY: the caller's block.
    unsafe { __libc_free(block) }
}

/// Frees a block of [`memalign`].
pub(crate) unsafe fn free_aligned(block: *mut c_void) {
    // SAFETY: the caller's block.
    unsafe { __libc_free(block) }
}

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
    first.addr() == __libc_malloc as *const () as usize
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

static FCLOSE: Next = Next::new(c"fclose");
static FREOPEN: Next = Next::new(c"freopen");
static FREOPEN64: Next = Next::new(c"freopen64");

/// Finds what closes a stream.
pub(crate) fn look_up_streams() {
    for next in [&FCLOSE, &FREOPEN, &FREOPEN64] {
        next.look_up();
    }
}

/// A stream that is closed has its locks: the C library forgets meanwhile that it has none, and
/// would give back what it has not taken.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fclose(stream: *mut Stream) -> c_int {
    type F = unsafe extern "C" fn(*mut Stream) -> c_int;
    let Some(next) = FCLOSE.found() else { return libc::EOF };
    if standard_streams().contains(&stream) {
        stdio::give_up();
    }
    // SAFETY: the C library's function, or a wrapper around it.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    // SAFETY: the program's argument.
    unsafe { next(stream) }
}

/// The same, of one that is opened again.
unsafe fn reopen(
    next: &Next,
    path: *const c_char,
    mode: *const c_char,
    stream: *mut Stream,
) -> *mut Stream {
    type F = unsafe extern "C" fn(*const c_char, *const c_char, *mut Stream) -> *mut Stream;
    let Some(next) = next.found() else { return ptr::null_mut() };
    // SAFETY: the C library's function, or a wrapper around it.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    let had_none = standard_streams().contains(&stream) && stdio::give_up();
    // SAFETY: the caller's arguments.
    let opened = unsafe { next(path, mode, stream) };
    if had_none {
        stdio::go_on();
    }
    opened
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut Stream,
) -> *mut Stream {
    // SAFETY: the program's arguments.
    unsafe { reopen(&FREOPEN, path, mode, stream) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut Stream,
) -> *mut Stream {
    // SAFETY: the program's arguments.
    unsafe { reopen(&FREOPEN64, path, mode, stream) }
}

static REGISTER_ATFORK: Next = Next::new(c"__register_atfork");

/// Registers handlers of `fork(2)`, without our own before them.
pub(crate) unsafe fn register_atfork(
    before: Handler,
    parent: Handler,
    child: Handler,
    object: *mut c_void,
) -> c_int {
    type F = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;
    let Some(next) = REGISTER_ATFORK.found() else { return libc::ENOMEM };
    // SAFETY: the C library's function, or a wrapper around it.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    // SAFETY: the caller's arguments.
    unsafe { next(before, parent, child, object) }
}

/// What `pthread_atfork(3)` calls, which is a part of each program.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __register_atfork(
    before: Handler,
    parent: Handler,
    child: Handler,
    object: *mut c_void,
) -> c_int {
    forks::register();
    // SAFETY: the program's arguments.
    unsafe { register_atfork(before, parent, child, object) }
}

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
    unsafe { real_threads::cxa_thread_atexit(destructor, object, library) }
}
