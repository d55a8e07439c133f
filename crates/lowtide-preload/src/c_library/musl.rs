//! musl.
//!
//! **Our own memory.** The inner names of its allocator are hidden, and `malloc` is the program's
//! if that has one. So the function of this name is looked up in the C library itself. It aligns to
//! 16 bytes; its `aligned_alloc(3)` gives nothing where the program has a `malloc` of its own, so
//! what is aligned to more is a part of a larger block.
//!
//! The standard library in this file calls `malloc` by its name, for threads and the ends of their
//! thread-locals. In this file these names are other functions (`build.rs`): those below.
//!
//! **Thread-locals.** The standard library looks for `__cxa_thread_atexit_impl`, finds none, and
//! has a key of the thread: its lock is held by no thread that waits. Were there a function of that
//! name here, each Rust program would find it.
//!
//! **fork** holds the C library's locks (of the linker, keys, streams, its allocator) only after
//! all handlers before the fork, and gives them back before those after it. Our handlers ask the
//! keeper nothing, as there is no memory to copy. Before version 1.2.2 it did not hold that of its
//! allocator, which a child could then find taken by one of our threads: nothing is kept there.
//!
//! # Safety
//!
//! The functions have the contracts of `malloc(3)` and `pthread_atfork(3)`.

#![allow(unsafe_code)]

use super::Handler;
use crate::forks;
use crate::real::{Next, before, next};
use libc::{c_int, c_void, size_t};
use lowtide_run::elf::CLibrary;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::{mem, ptr};

/// The C library of programs that this library is for.
pub(crate) const OWN: CLibrary = CLibrary::Musl;

/// That of programs that the other one is for.
pub(crate) const OTHER: CLibrary = CLibrary::Gnu;

/// Functions that read are as they were: not one of their ways was tried.
pub(crate) const NOTES_READS: bool = false;

/// What the C library calls `SIGSYNCCALL`.
pub(crate) const RIGHTS_SIGNAL: i32 = 34;

/// A function of the C library itself, whatever stands in front of it.
struct Inner {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

static MALLOC: Inner = Inner::new(c"malloc");
static CALLOC: Inner = Inner::new(c"calloc");
static REALLOC: Inner = Inner::new(c"realloc");
static FREE: Inner = Inner::new(c"free");

impl Inner {
    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Acquire);
        if found.is_null() { self.look_up() } else { found }
    }

    /// Before the program's first instruction: this library is the first that allocates here.
    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: a name that ends. The linker takes each that begins so as its own, which is the
        // C library, and opens nothing.
        let library = unsafe { libc::dlopen(c"libc.so".as_ptr(), libc::RTLD_LAZY) };
        // SAFETY: a library, and a name that ends.
        let found = unsafe { libc::dlsym(library, self.name.as_ptr()) };
        if found.is_null() {
            std::process::abort();
        }
        self.found.store(found, Ordering::Release);
        found
    }
}

pub(crate) unsafe fn malloc(size: size_t) -> *mut c_void {
    type F = unsafe extern "C" fn(size_t) -> *mut c_void;
    // SAFETY: the C library's function of this name.
    let inner = unsafe { mem::transmute::<*mut c_void, F>(MALLOC.get()) };
    // SAFETY: the caller's arguments.
    unsafe { inner(size) }
}

/// Whether programs find another `malloc` by its name. Looked up once.
fn is_replaced() -> bool {
    static REPLACED: AtomicU8 = AtomicU8::new(0);
    const NO: u8 = 1;
    const YES: u8 = 2;
    if REPLACED.load(Ordering::Acquire) == 0 {
        // SAFETY: a name that ends.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, MALLOC.name.as_ptr()) };
        REPLACED.store(if found == MALLOC.get() { NO } else { YES }, Ordering::Release);
    }
    REPLACED.load(Ordering::Acquire) == YES
}

/// The C library's function calls `malloc` by its name, and large blocks are zeroes from the
/// beginning. Of another `malloc` it would take a block that [`free`] does not know.
pub(crate) unsafe fn calloc(count: size_t, size: size_t) -> *mut c_void {
    if is_replaced() {
        let Some(len) = count.checked_mul(size) else { return ptr::null_mut() };
        // SAFETY: any size.
        let block = unsafe { malloc(len) };
        if !block.is_null() {
            // SAFETY: a new block of this size.
            unsafe { block.cast::<u8>().write_bytes(0, len) };
        }
        return block;
    }
    type F = unsafe extern "C" fn(size_t, size_t) -> *mut c_void;
    // SAFETY: the C library's function of this name.
    let inner = unsafe { mem::transmute::<*mut c_void, F>(CALLOC.get()) };
    // SAFETY: the caller's arguments.
    unsafe { inner(count, size) }
}

pub(crate) unsafe fn realloc(old: *mut c_void, size: size_t) -> *mut c_void {
    type F = unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void;
    // SAFETY: the C library's function of this name.
    let inner = unsafe { mem::transmute::<*mut c_void, F>(REALLOC.get()) };
    // SAFETY: the caller's arguments.
    unsafe { inner(old, size) }
}

pub(crate) unsafe fn free(block: *mut c_void) {
    type F = unsafe extern "C" fn(*mut c_void);
    // SAFETY: the C library's function of this name.
    let inner = unsafe { mem::transmute::<*mut c_void, F>(FREE.get()) };
    // SAFETY: the caller's block.
    unsafe { inner(block) }
}

/// A block that is aligned to more than 16 bytes: a part of a larger one, whose address is in the
/// word before it.
pub(crate) unsafe fn memalign(align: size_t, size: size_t) -> *mut c_void {
    let Some(len) = size.checked_add(align) else { return ptr::null_mut() };
    // SAFETY: any size.
    let whole = unsafe { malloc(len) };
    if whole.is_null() {
        return whole;
    }
    // The next address of this kind: both are multiples of 16, so there are 16 bytes between.
    let ahead = align - (whole.addr() & (align - 1));
    // SAFETY: not more than `align`, so within the block, and `size` bytes are behind it.
    let part = unsafe { whole.byte_add(ahead) };
    // SAFETY: a word that is aligned, and within the block.
    let word = unsafe { part.cast::<*mut c_void>().sub(1) };
    // SAFETY: as above.
    unsafe { word.write(whole) };
    part
}

/// Frees a block of [`memalign`].
pub(crate) unsafe fn free_aligned(part: *mut c_void) {
    // SAFETY: within the block, of which this is a part.
    let word = unsafe { part.cast::<*mut c_void>().sub(1) };
    // SAFETY: `memalign` wrote it.
    let whole = unsafe { word.read() };
    // SAFETY: the caller gives it up.
    unsafe { free(whole) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn lowtide_malloc(size: size_t) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { malloc(size) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn lowtide_calloc(count: size_t, size: size_t) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { calloc(count, size) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn lowtide_realloc(old: *mut c_void, size: size_t) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { realloc(old, size) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn lowtide_free(block: *mut c_void) {
    // SAFETY: the caller's block.
    unsafe { free(block) }
}

/// Gives nothing: [`lowtide_free`] cannot know a part of a block. What is aligned to more than 16
/// bytes is from our own allocator, which does not call by this name.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn lowtide_posix_memalign(_: *mut *mut c_void, _: size_t, _: size_t) -> c_int {
    libc::ENOMEM
}

/// Standard streams are left as they are: musl's have one flag for all that locks them.
pub(crate) fn unlock_standard_streams() {}

/// There is nothing to undo.
pub(crate) fn lock_standard_streams() {}

/// It does not matter.
pub(crate) fn has_own_allocator() -> bool {
    false
}

/// A name was not found. The C library keeps that for the next `dlerror(3)` of this thread, which
/// is the program's.
pub(crate) fn forget_missing() {
    // SAFETY: the function has no conditions.
    unsafe { libc::dlerror() };
}

static FORK_ALONE: Next = Next::new(c"_Fork");

/// Why nothing can be kept, if so. The version is not said; the function came with the locks.
pub(crate) fn refusal() -> Option<&'static str> {
    FORK_ALONE.found().is_none().then_some(
        "lowtide: this musl is older than 1.2.2: children of fork(2) find locks that other threads \
         had, and lowtide has threads; nothing is kept within the budget\n",
    )
}

/// What is behind the function below.
mod real {
    use super::{Handler, next};
    use libc::c_int;

    next! {
        PTHREAD_ATFORK.found: "C" fn pthread_atfork(
            before: Handler, parent: Handler, child: Handler
        ) -> c_int,
            else libc::ENOMEM;
    }
}
pub(crate) use real::look_up;

/// Registers handlers of `fork(2)`, without our own before them.
pub(crate) unsafe fn register_atfork(
    before: Handler,
    parent: Handler,
    child: Handler,
    _: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { real::pthread_atfork(before, parent, child) }
}

before! {
    "C" fn pthread_atfork(before: Handler, parent: Handler, child: Handler) -> c_int,
        forks::register();
}
