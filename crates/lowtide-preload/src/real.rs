//! The functions that this library stands in front of: what the program would have called.
//!
//! They are found with `dlsym(RTLD_NEXT)`, so another preloaded library that wraps the same
//! functions is called by this one as it would have been called by the program. `dlsym` allocates,
//! and an allocator may map memory before it can allocate. So the functions are looked up once,
//! when this library is initialised. Until then the wrappers make the system call themselves.
//!
//! # Safety
//!
//! A pointer that `dlsym` returns for one of these names is a function of the C library, or of a
//! wrapper around it, with the type that POSIX and Linux give it. Every function here has the
//! contract of the function that it calls; its arguments come from the program, unchanged.

#![allow(unsafe_code)]

use crate::c_library;
use libc::{c_char, c_int, c_void, mode_t, off_t, size_t};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::{mem, ptr};

/// A function that was found, null before it is looked up, or [`MISSING`].
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

/// No address of a function: the name is missing, and is not looked for again. To look takes the
/// loader's lock, and allocates if there is nothing.
const MISSING: *mut c_void = ptr::without_provenance_mut(1);

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    pub(crate) fn look_up(&self) {
        let name: *const c_char = self.name.as_ptr();
        // SAFETY: the name ends with a zero. The wrappers are the library's own symbols, which
        // RTLD_NEXT skips.
        let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, name) };
        if found.is_null() {
            c_library::forget_missing();
            found = MISSING;
        }
        self.found.store(found, Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<*mut c_void> {
        let found = self.found.load(Ordering::Acquire);
        (!found.is_null() && found != MISSING).then_some(found)
    }

    /// As [`get`](Self::get), and looks it up first, if need be.
    pub(crate) fn found(&self) -> Option<*mut c_void> {
        if self.found.load(Ordering::Acquire).is_null() {
            self.look_up();
        }
        self.get()
    }
}

static MMAP: Next = Next::new(c"mmap");
static MUNMAP: Next = Next::new(c"munmap");
static MREMAP: Next = Next::new(c"mremap");
static REMAP_FILE_PAGES: Next = Next::new(c"remap_file_pages");
static MPROTECT: Next = Next::new(c"mprotect");
static PKEY_MPROTECT: Next = Next::new(c"pkey_mprotect");
static MADVISE: Next = Next::new(c"madvise");
static POSIX_MADVISE: Next = Next::new(c"posix_madvise");
static MLOCK: Next = Next::new(c"mlock");
static MLOCK2: Next = Next::new(c"mlock2");
static MLOCKALL: Next = Next::new(c"mlockall");
static OPEN: Next = Next::new(c"open");
static OPENAT: Next = Next::new(c"openat");
static OPEN_2: Next = Next::new(c"__open_2");
static OPENAT_2: Next = Next::new(c"__openat_2");
static FORK: Next = Next::new(c"fork");

/// Finds them all. Called once, before the program's first instruction.
pub(crate) fn look_up() {
    let all = [
        &MMAP,
        &MUNMAP,
        &MREMAP,
        &REMAP_FILE_PAGES,
        &MPROTECT,
        &PKEY_MPROTECT,
        &MADVISE,
        &POSIX_MADVISE,
        &MLOCK,
        &MLOCK2,
        &MLOCKALL,
        &OPEN,
        &OPENAT,
        &OPEN_2,
        &OPENAT_2,
        &FORK,
    ];
    for next in all {
        next.look_up();
    }
}

/// `mmap(2)`. On 64-bit Linux `mmap64` is the same function.
pub(crate) unsafe fn mmap(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    type F = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;
    match MMAP.get() {
        Some(next) => {
            // SAFETY: the module's header.
            let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
            // SAFETY: the caller's arguments, which are the program's.
            unsafe { next(addr, len, prot, flags, fd, offset) }
        }
        // SAFETY: as above.
        None => unsafe {
            libc::syscall(libc::SYS_mmap, addr, len, prot, flags, fd, offset) as *mut c_void
        },
    }
}

/// Defines a function that returns an `int` and calls the next one of its name.
macro_rules! next {
    ($(#[$about:meta])* $name:ident, $next:ident, $call:ident, $($arg:ident: $kind:ty),*) => {
        $(#[$about])*
        pub(crate) unsafe fn $name($($arg: $kind),*) -> c_int {
            type F = unsafe extern "C" fn($($kind),*) -> c_int;
            match $next.get() {
                Some(next) => {
                    // SAFETY: the module's header.
                    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
                    // SAFETY: the caller's arguments, which are the program's.
                    unsafe { next($($arg),*) }
                }
                // SAFETY: as above.
                None => unsafe { libc::syscall(libc::$call, $($arg),*) as c_int },
            }
        }
    };
}

/// Defines functions of these names that do something before they call the C library's, whose
/// contracts they have, and one that looks all of them up. Where the C library has no such function
/// nothing is done, and the program hears so.
macro_rules! before {
    ($($name:ident, $next:ident, ($($arg:ident: $kind:ty),*), $first:expr;)*) => {
        $(
            static $next: $crate::real::Next = {
                let name = concat!(stringify!($name), "\0").as_bytes();
                match std::ffi::CStr::from_bytes_with_nul(name) {
                    Ok(name) => $crate::real::Next::new(name),
                    Err(_) => panic!("a name has no zero"),
                }
            };

            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name($($arg: $kind),*) -> libc::c_int {
                type F = unsafe extern "C" fn($($kind),*) -> libc::c_int;
                let Some(next) = $next.found() else { return $crate::execs::missing() };
                $first;
                // SAFETY: the C library's function of this name.
                let next = unsafe { std::mem::transmute::<*mut libc::c_void, F>(next) };
                // SAFETY: the program's arguments.
                unsafe { next($($arg),*) }
            }
        )*

        /// Finds them all. Called once, before the program's first instruction.
        pub(crate) fn look_up() {
            [$(&$next),*].into_iter().for_each($crate::real::Next::look_up);
        }
    };
}
pub(crate) use before;

next!(
    /// `munmap(2)`.
    munmap, MUNMAP, SYS_munmap, addr: *mut c_void, len: size_t
);
next!(
    /// `remap_file_pages(2)`.
    remap_file_pages, REMAP_FILE_PAGES, SYS_remap_file_pages,
    addr: *mut c_void, len: size_t, prot: c_int, page: size_t, flags: c_int
);
next!(
    /// `mprotect(2)`.
    mprotect, MPROTECT, SYS_mprotect, addr: *mut c_void, len: size_t, prot: c_int
);
next!(
    /// `pkey_mprotect(2)`.
    pkey_mprotect, PKEY_MPROTECT, SYS_pkey_mprotect,
    addr: *mut c_void, len: size_t, prot: c_int, key: c_int
);
next!(
    /// `madvise(2)`.
    madvise, MADVISE, SYS_madvise, addr: *mut c_void, len: size_t, advice: c_int
);
next!(
    /// `mlock(2)`.
    mlock, MLOCK, SYS_mlock, addr: *const c_void, len: size_t
);
next!(
    /// `mlock2(2)`.
    mlock2, MLOCK2, SYS_mlock2, addr: *const c_void, len: size_t, flags: c_int
);
next!(
    /// `mlockall(2)`.
    mlockall, MLOCKALL, SYS_mlockall, flags: c_int
);

/// `open(2)`, with a mode that counts only if a file may be made.
pub(crate) unsafe fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    type F = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
    match OPEN.get() {
        Some(next) => {
            // SAFETY: the module's header.
            let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
            // SAFETY: the caller's arguments, which are the program's.
            unsafe { next(path, flags, mode) }
        }
        // SAFETY: as above.
        None => unsafe {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) as c_int
        },
    }
}

/// `openat(2)`, the same.
pub(crate) unsafe fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    type F = unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
    match OPENAT.get() {
        Some(next) => {
            // SAFETY: the module's header.
            let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
            // SAFETY: the caller's arguments, which are the program's.
            unsafe { next(dir, path, flags, mode) }
        }
        // SAFETY: as above.
        None => unsafe { libc::syscall(libc::SYS_openat, dir, path, flags, mode) as c_int },
    }
}

/// `open(2)` without a mode, as checked headers call it.
pub(crate) unsafe fn open_2(path: *const c_char, flags: c_int) -> c_int {
    type F = unsafe extern "C" fn(*const c_char, c_int) -> c_int;
    // SAFETY: the caller's arguments, which are the program's.
    let Some(next) = OPEN_2.get() else { return unsafe { open(path, flags, 0) } };
    // SAFETY: the module's header.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    // SAFETY: as above.
    unsafe { next(path, flags) }
}

/// `openat(2)`, the same.
pub(crate) unsafe fn openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    type F = unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;
    // SAFETY: the caller's arguments, which are the program's.
    let Some(next) = OPENAT_2.get() else { return unsafe { openat(dir, path, flags, 0) } };
    // SAFETY: the module's header.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    // SAFETY: as above.
    unsafe { next(dir, path, flags) }
}

/// `posix_madvise(3)`, which returns an error number. Before it is found: no advice was given.
pub(crate) unsafe fn posix_madvise(addr: *mut c_void, len: size_t, advice: c_int) -> c_int {
    type F = unsafe extern "C" fn(*mut c_void, size_t, c_int) -> c_int;
    let Some(next) = POSIX_MADVISE.get() else { return 0 };
    // SAFETY: the module's header.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    // SAFETY: the caller's arguments, which are the program's.
    unsafe { next(addr, len, advice) }
}

/// `mremap(2)`. The last argument counts only with `MREMAP_FIXED` or `MREMAP_DONTUNMAP`.
pub(crate) unsafe fn mremap(
    old: *mut c_void,
    old_len: size_t,
    new_len: size_t,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    type F = unsafe extern "C" fn(*mut c_void, size_t, size_t, c_int, ...) -> *mut c_void;
    match MREMAP.get() {
        Some(next) => {
            // SAFETY: the module's header.
            let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
            // SAFETY: the caller's arguments, which are the program's.
            unsafe { next(old, old_len, new_len, flags, new) }
        }
        // SAFETY: as above.
        None => unsafe {
            libc::syscall(libc::SYS_mremap, old, old_len, new_len, flags, new) as *mut c_void
        },
    }
}

/// `fork(2)`, with all handlers.
pub(crate) unsafe fn fork() -> c_int {
    type F = unsafe extern "C" fn() -> c_int;
    let Some(next) = FORK.found() else {
        // SAFETY: the program's call; no place for numbers is given.
        return unsafe {
            libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0_usize, 0_usize, 0_usize, 0_usize)
                as c_int
        };
    };
    // SAFETY: the module's header.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    // SAFETY: the program's call.
    unsafe { next() }
}
