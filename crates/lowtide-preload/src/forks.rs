//! What a child of `fork` finds of memory that is kept: copies of blocks (`memory.rs`) and the
//! program's own mappings in the place of mirrors (`mirrors.rs`).
//!
//! Our handlers are the first that are registered, so before the fork they run last, and after it
//! first: an allocator that has memory in blocks takes its locks before the copy is made, and finds
//! them in the child. To be the first, this library stands in front of the function that registers.
//!
//! Between the handler before the fork and the one after it stores to blocks wait. So this thread
//! must not store to one: its signals are blocked, and it must not have its stack there.
//!
//! Meanwhile it has the turn to ask the keeper, and then the lock of the blocks, in this order: the
//! keeper takes that lock for what other threads ask. So what changes blocks, or gives them up,
//! waits until the fork is over.
//!
//! # Safety
//!
//! The handlers run in the thread that forks, in the order of `pthread_atfork(3)`.

#![allow(unsafe_code)]

use crate::interpose::Errno;
use crate::line::{Answer, Question};
use crate::settings::Settings;
use crate::state::{self, State};
use crate::{blocks, memory, mirrors, real_memory};
use libc::{c_int, c_void};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Signals of the thread that forks, and whether its child has copies. Under the table's lock.
struct Forking {
    signals: MaybeUninit<libc::sigset_t>,
    has_failed: bool,
}

struct Place(UnsafeCell<Forking>);

// SAFETY: touched by the thread that forks, which has the lock of the blocks.
unsafe impl Sync for Place {}

static FORKING: Place =
    Place(UnsafeCell::new(Forking { signals: MaybeUninit::zeroed(), has_failed: false }));

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// From now on children of `fork` find what they should: registers the handlers, before all others.
pub(crate) fn watch() {
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        let object = ptr::null_mut();
        // SAFETY: the functions are of this kind, and live as long as the process: a preloaded
        // library is never unloaded.
        unsafe {
            real_memory::register_atfork(
                Some(before_fork),
                Some(after_fork),
                Some(in_child),
                object,
            );
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __register_atfork(
    before: Option<extern "C" fn()>,
    parent: Option<extern "C" fn()>,
    child: Option<extern "C" fn()>,
    object: *mut c_void,
) -> c_int {
    watch();
    // SAFETY: the program's arguments.
    unsafe { real_memory::register_atfork(before, parent, child, object) }
}

/// The state, where memory without a file is kept.
fn kept() -> Option<(&'static State, &'static Settings)> {
    state::get().filter(|(_, settings)| settings.anon)
}

extern "C" fn before_fork() {
    if let Some((state, _)) = kept() {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set is written.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: the first set was written, the second is written now.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
        state.line.hold();
        blocks::lock_for_fork();
        let asked = state.line.ask_held(Question::Fork);
        let has_failed = matches!(asked, Some(Answer::Left(_)));
        // SAFETY: this thread has the lock.
        unsafe { *FORKING.0.get() = Forking { signals: before, has_failed } };
    }
    mirrors::before_fork();
}

extern "C" fn after_fork() {
    mirrors::after_fork();
    if let Some((state, _)) = kept() {
        let _ = state.line.ask_held(Question::Forked);
        end(|| state.line.release());
    }
}

extern "C" fn in_child() {
    mirrors::in_child();
    if kept().is_none() {
        return;
    }
    // SAFETY: this thread has the lock, and is the only one.
    if unsafe { (*FORKING.0.get()).has_failed } {
        memory::give_up("there is no memory for a child's copy of the heap");
    }
    // SAFETY: as above.
    let mut table = unsafe { blocks::locked_by_fork() };
    memory::restore(table.all());
    table.end();
    // The turn is free: the kernel has wiped it.
    end(|| ());
}

/// Gives back what the handler before the fork took.
fn end(release_turn: impl FnOnce()) {
    // SAFETY: this thread has the lock.
    let signals = unsafe { (*FORKING.0.get()).signals };
    blocks::unlock();
    release_turn();
    // SAFETY: the mask that this thread had: written, or zeroes, which are a set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, signals.as_ptr(), ptr::null_mut()) };
}

/// Refuses where the child's copy could not be made: the program hears of it as of a lack of
/// memory.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fork() -> c_int {
    if let Some((state, _)) = kept() {
        let here = ptr::from_ref(&state).addr();
        let has_stack = blocks::may_have(here) && blocks::lock().touches_window(&(here..here + 1));
        let asked = || {
            let _errno = Errno::save();
            state.line.ask(Question::Fits)
        };
        if has_stack || matches!(asked(), Some(Answer::Left(_))) {
            let why = "lowtide: fork: no memory for the child's copy of what is kept within the \
                budget, or the thread has its stack there\n";
            // SAFETY: the text, and its length.
            let _ = unsafe { libc::write(2, why.as_ptr().cast(), why.len()) };
            Errno::set(libc::ENOMEM);
            return -1;
        }
    }
    // SAFETY: the program's call.
    unsafe { real_memory::fork() }
}
