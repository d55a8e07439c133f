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
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

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

    /// Of a name that ends with a zero.
    pub(crate) const fn named(name: &'static str) -> Self {
        match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => Self::new(name),
            Err(_) => panic!("a name has no zero"),
        }
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

/// Defines functions that call the next ones of their names, or do something else where there is
/// none, and one that looks all of them up. What an allocator may call is got ([`Next::get`]), all
/// else is found ([`Next::found`]). Optional arguments are behind a semicolon.
macro_rules! next {
    ($(
        $(#[$about:meta])*
        $next:ident.$get:ident: $abi:literal fn $name:ident(
            $($arg:ident: $kind:ty),* $(; $dots:tt $option:ident: $option_kind:ty)?
        ) -> $result:ty, else $else:expr;
    )*) => {
        $(
            pub(crate) static $next: $crate::real::Next =
                $crate::real::Next::named(concat!(stringify!($name), "\0"));

            $(#[$about])*
            pub(crate) unsafe fn $name($($arg: $kind),* $(, $option: $option_kind)?) -> $result {
                type F = unsafe extern $abi fn($($kind),* $(, $dots)?) -> $result;
                match $next.$get() {
                    Some(next) => {
                        // SAFETY: the C library's function of this name, or a wrapper around it.
                        let next = unsafe { std::mem::transmute::<*mut libc::c_void, F>(next) };
                        // SAFETY: the caller's arguments, which are the program's.
                        unsafe { next($($arg),* $(, $option)?) }
                    }
                    #[allow(unused_unsafe, reason = "of some there is nothing to call")]
                    // SAFETY: as above.
                    None => unsafe { $else },
                }
            }
        )*

        /// Finds them all, so that no thread has to later.
        pub(crate) fn look_up() {
            [$(&$next),*].into_iter().for_each($crate::real::Next::look_up);
        }
    };
}
pub(crate) use next;

/// Defines functions that do something before they call the one behind, whose contract they have:
/// that of their name in the module that is called `real` where this is used.
macro_rules! before {
    ($(
        $(#[$about:meta])*
        $abi:literal fn $name:ident($($arg:ident: $kind:ty),*) -> $result:ty, $first:expr;
    )*) => {
        $(
            $(#[$about])*
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern $abi fn $name($($arg: $kind),*) -> $result {
                $first;
                // SAFETY: the program's arguments.
                unsafe { real::$name($($arg),*) }
            }
        )*
    };
}
pub(crate) use before;

/// The same, with those behind. Where the C library has no such function nothing is done, and the
/// program hears so.
macro_rules! before_next {
    ($($name:ident, $next:ident, ($($arg:ident: $kind:ty),*), $first:expr;)*) => {
        mod real {
            use super::*;

            $crate::real::next! {
                $($next.found: "C" fn $name($($arg: $kind),*) -> libc::c_int,
                    else $crate::execs::missing();)*
            }
        }
        pub(crate) use real::look_up;

        $crate::real::before! {
            $("C" fn $name($($arg: $kind),*) -> libc::c_int,
                if real::$next.found().is_some() { $first };)*
        }
    };
}
pub(crate) use before_next;

next! {
    /// `mmap(2)`. On 64-bit Linux `mmap64` is the same function.
    MMAP.get: "C" fn mmap(
        addr: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void,
        else libc::syscall(libc::SYS_mmap, addr, len, prot, flags, fd, offset) as *mut c_void;
    /// `munmap(2)`.
    MUNMAP.get: "C" fn munmap(addr: *mut c_void, len: size_t) -> c_int,
        else libc::syscall(libc::SYS_munmap, addr, len) as c_int;
    /// `mremap(2)`. The last argument counts only with `MREMAP_FIXED` or `MREMAP_DONTUNMAP`.
    MREMAP.get: "C" fn mremap(
        old: *mut c_void, old_len: size_t, new_len: size_t, flags: c_int; ... new: *mut c_void
    ) -> *mut c_void,
        else libc::syscall(libc::SYS_mremap, old, old_len, new_len, flags, new) as *mut c_void;
    /// `remap_file_pages(2)`.
    REMAP_FILE_PAGES.get: "C" fn remap_file_pages(
        addr: *mut c_void, len: size_t, prot: c_int, page: size_t, flags: c_int
    ) -> c_int,
        else libc::syscall(libc::SYS_remap_file_pages, addr, len, prot, page, flags) as c_int;
    /// `mprotect(2)`.
    MPROTECT.get: "C" fn mprotect(addr: *mut c_void, len: size_t, prot: c_int) -> c_int,
        else libc::syscall(libc::SYS_mprotect, addr, len, prot) as c_int;
    /// `pkey_mprotect(2)`.
    PKEY_MPROTECT.get: "C" fn pkey_mprotect(
        addr: *mut c_void, len: size_t, prot: c_int, key: c_int
    ) -> c_int,
        else libc::syscall(libc::SYS_pkey_mprotect, addr, len, prot, key) as c_int;
    /// `madvise(2)`.
    MADVISE.get: "C" fn madvise(addr: *mut c_void, len: size_t, advice: c_int) -> c_int,
        else libc::syscall(libc::SYS_madvise, addr, len, advice) as c_int;
    /// `posix_madvise(3)`, which returns an error number. Before it is found: no advice was given.
    POSIX_MADVISE.get: "C" fn posix_madvise(addr: *mut c_void, len: size_t, advice: c_int) -> c_int,
        else 0;
    /// `mlock(2)`.
    MLOCK.get: "C" fn mlock(addr: *const c_void, len: size_t) -> c_int,
        else libc::syscall(libc::SYS_mlock, addr, len) as c_int;
    /// `mlock2(2)`.
    MLOCK2.get: "C" fn mlock2(addr: *const c_void, len: size_t, flags: c_int) -> c_int,
        else libc::syscall(libc::SYS_mlock2, addr, len, flags) as c_int;
    /// `mlockall(2)`.
    MLOCKALL.get: "C" fn mlockall(flags: c_int) -> c_int,
        else libc::syscall(libc::SYS_mlockall, flags) as c_int;
    /// `open(2)`, with a mode that counts only if a file may be made.
    OPEN.get: "C" fn open(path: *const c_char, flags: c_int; ... mode: mode_t) -> c_int,
        else libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) as c_int;
    /// `openat(2)`, the same.
    OPENAT.get: "C" fn openat(
        dir: c_int, path: *const c_char, flags: c_int; ... mode: mode_t
    ) -> c_int,
        else libc::syscall(libc::SYS_openat, dir, path, flags, mode) as c_int;
    /// `open(2)` without a mode, as checked headers call it.
    OPEN_2.get: "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int,
        else open(path, flags, 0);
    /// `openat(2)`, the same.
    OPENAT_2.get: "C" fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int,
        else openat(dir, path, flags, 0);
    /// `fork(2)`, with all handlers. The system call is given no place for numbers.
    FORK.found: "C" fn fork() -> c_int,
        else libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0_usize, 0_usize, 0_usize, 0_usize)
            as c_int;
}
