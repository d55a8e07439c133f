//! What the kernel does to words of memory without waiting for their pages.
//!
//! Some operations of `futex(2)` (`FUTEX_WAKE_OP`, and all of priority inheritance) touch a word
//! where they may not sleep. Of a page that is out, or protected from stores, they say `EFAULT`,
//! and do not wait for the thread that would bring it in. And when a thread ends, the kernel looks
//! at the robust mutexes that it holds, and is not served at all.
//!
//! * A call of [`syscall`] that fails so has its pages brought in, and is made again.
//! * A mutex with priority inheritance, or a robust one, is the C library's to use, which makes
//!   such calls where nothing can stand in front. Its block is lent to the program
//!   ([`heap::give_back_for`]) when it is made.
//!
//! A program that has a `userfaultfd(2)` of its own registers memory with it, of which the kernel
//! does not take a second registration. So it gets all of its memory, and its files are left alone.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has. `syscall` has as many
//! arguments as the kernel takes; those that the caller has not passed have any value, as in the C
//! library.

#![allow(unsafe_code)]

use crate::interpose::{Errno, pages};
use crate::judge::Reason;
use crate::real::Next;
use crate::{blocks, clones, heap, state};
use libc::{c_char, c_int, c_long, c_void, pthread_mutex_t, pthread_mutexattr_t};
use std::ffi::CStr;
use std::ops::Range;
use std::{mem, ptr};

static SYSCALL: Next = Next::new(c"syscall");
static MUTEX_INIT: Next = Next::new(c"pthread_mutex_init");

/// Finds them, so that no allocator has to later.
pub(crate) fn look_up() {
    SYSCALL.look_up();
    MUTEX_INIT.look_up();
}

/// How often a call is made again whose pages are there. They may leave in between; a word that is
/// not the program's, or a wrong time, is `EFAULT` forever.
const ATTEMPTS: u32 = 64;

type Six = [usize; 6];

/// What `syscall(2)` of the C library does.
fn call(number: c_long, args: Six) -> c_long {
    type F = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    let Some(next) = SYSCALL.found() else {
        Errno::set(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the C library's function, whose arguments are words.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    let [a, b, c, d, e, f] = args;
    // SAFETY: the program's arguments.
    unsafe { next(number, a, b, c, d, e, f) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let args = [a, b, c, d, e, f];
    match number {
        libc::SYS_futex => futex(args),
        libc::SYS_userfaultfd => {
            yield_to_program();
            call(number, args)
        }
        _ if clones::makes_child(number, &args) => clones::make(|| call(number, args)),
        _ => call(number, args),
    }
}

/// A word of a block whose page the kernel may want.
fn page_of(word: usize) -> Option<Range<usize>> {
    let page = pages(ptr::with_exposed_provenance(word), 4);
    (word != 0 && heap::is_live(&page)).then_some(page)
}

fn futex(args: Six) -> c_long {
    let mut result = call(libc::SYS_futex, args);
    for _ in 0..ATTEMPTS {
        if result != -1 || Errno::now() != libc::EFAULT {
            break;
        }
        // The first word, and the second of operations that have one.
        let wanted = [args[0], args[4]].into_iter().filter_map(page_of);
        let mut is_there = false;
        for page in wanted {
            let (at, len) = (page.start, page.len());
            // SAFETY: changes no contents; a page that the program may not store to is refused.
            let got = unsafe {
                libc::madvise(ptr::with_exposed_provenance_mut(at), len, libc::MADV_POPULATE_WRITE)
            };
            is_there |= got == 0;
        }
        if !is_there {
            Errno::set(libc::EFAULT);
            break;
        }
        result = call(libc::SYS_futex, args);
    }
    result
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut pthread_mutex_t,
    attributes: *const pthread_mutexattr_t,
) -> c_int {
    if blocks::may_have(mutex as usize) && is_the_kernels(attributes) {
        let range = pages(mutex.cast::<c_void>(), size_of::<pthread_mutex_t>());
        if let Err(errno) = heap::give_back_for(&range, Reason::Mutex) {
            return errno;
        }
    }
    type F = unsafe extern "C" fn(*mut pthread_mutex_t, *const pthread_mutexattr_t) -> c_int;
    let Some(next) = MUTEX_INIT.found() else { return libc::EAGAIN };
    // SAFETY: the C library's function.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    // SAFETY: the program's arguments.
    unsafe { next(mutex, attributes) }
}

/// Whether the kernel touches mutexes of this kind by itself.
fn is_the_kernels(attributes: *const pthread_mutexattr_t) -> bool {
    if attributes.is_null() {
        return false;
    }
    let (mut protocol, mut robust) = (libc::PTHREAD_PRIO_NONE, libc::PTHREAD_MUTEX_STALLED);
    // SAFETY: the program's attributes, and a place for the answer.
    unsafe { libc::pthread_mutexattr_getprotocol(attributes, &raw mut protocol) };
    // SAFETY: as above.
    unsafe { libc::pthread_mutexattr_getrobust(attributes, &raw mut robust) };
    protocol == libc::PTHREAD_PRIO_INHERIT || robust == libc::PTHREAD_MUTEX_ROBUST
}

/// A file is about to be opened.
///
/// # Safety
/// A path of the program.
pub(crate) unsafe fn note_open(path: *const c_char) {
    // SAFETY: the caller's promise. A path that is not one is refused by the call.
    if !path.is_null() && unsafe { CStr::from_ptr(path) } == c"/dev/userfaultfd" {
        yield_to_program();
    }
}

/// All memory is the program's from now on.
fn yield_to_program() {
    let Some((state, _)) = state::get() else { return };
    let _errno = Errno::save();
    state.leave_alone(Reason::Userfaultfd);
    state.release_for(&(0..usize::MAX), Reason::Userfaultfd);
    // Without memory for it the program hears of it when it registers.
    let _ = heap::end(Reason::Userfaultfd);
}
