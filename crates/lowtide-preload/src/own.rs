//! Which threads are ours, and how they live beside the program's.
//!
//! Our threads are started like the program's, by the C library, in a process whose locks the
//! program's threads hold: that of the dynamic loader while `dlopen` runs a constructor, that of
//! an allocator while it unmaps memory. Such a thread may wait for ours. So ours need none of these
//! locks:
//!
//! * **Every wrapper passes our threads through** ([`state::get`] knows no state there). Otherwise
//!   a mapping that the standard library makes for them, for the text of a panic, say, would be
//!   a question to the thread that asks it.
//! * **What they do at their end is kept here.** A thread-local with a destructor is registered by
//!   `__cxa_thread_atexit_impl`, for which glibc takes the loader's lock and allocates with the
//!   program's `calloc`. This library has a function of that name (`c_library/gnu.rs`): in our
//!   threads it keeps the list itself, elsewhere it calls the C library's.
//! * **What the standard library looks up, to start its first thread, is looked up at the
//!   beginning** ([`look_up`]): `dlsym` takes the loader's lock.
//! * **The mark is a thread-local without a destructor**, in the memory that every thread has from
//!   its beginning because this library is there from the beginning of the process. So is all
//!   that is thread-local here.
//!
//! A thread that one of ours starts is ours: [`pthread_create`] marks it before the standard
//! library's code runs there. The first one is started by a thread of the program, which
//! counts as ours meanwhile ([`starting`]).
//!
//! # Safety
//!
//! The functions have the contracts of those whose names they have. What is passed to a thread at
//! its start is its own.
//!
//! [`state::get`]: crate::state::get

#![allow(unsafe_code)]

use crate::real_threads as real;
use crate::{state, stdio};
use libc::{c_int, c_void, pthread_attr_t, pthread_t};
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, Ordering};
use std::{ptr, thread};

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
    /// What is to be called at the end of a thread of ours, the last first.
    static ENDINGS: Cell<*mut Ending> = const { Cell::new(ptr::null_mut()) };
}

/// Whether the calling thread is one of ours. Costs a load; takes no lock.
pub(crate) fn is_ours() -> bool {
    IS_OURS.get()
}

/// Threads that `start` starts are ours. Signals of the calling thread are blocked meanwhile, by
/// the caller: a handler of the program would pass through our wrappers.
pub(crate) fn starting<R>(start: impl FnOnce() -> R) -> R {
    let before = IS_OURS.replace(true);
    let result = start();
    IS_OURS.set(before);
    result
}

/// More bytes than any address space has.
const NO_STACK: usize = 1 << 60;

/// Lets the standard library look up what it needs to start threads, while the process has one.
/// There is no call for that alone, so this one asks for a thread that cannot be had.
pub(crate) fn look_up() {
    let refused = starting(|| thread::Builder::new().stack_size(NO_STACK).spawn(|| ()));
    assert!(refused.is_err(), "a thread has a stack of {NO_STACK} bytes");
}

/// How a thread starts.
pub(crate) type Start = extern "C" fn(*mut c_void) -> *mut c_void;

struct Begun {
    start: Start,
    argument: *mut c_void,
}

/// How many threads of ours are known by their numbers. There are ten or so.
const LISTED: usize = 256;

/// The numbers of our threads, as `gettid(2)` gives them. All zeroes is none.
#[derive(Debug)]
pub(crate) struct Threads {
    numbers: [AtomicI32; LISTED],
}

impl Threads {
    pub(crate) fn add(&self, number: i32) {
        self.replace(0, number);
    }

    fn remove(&self, number: i32) {
        self.replace(number, 0);
    }

    fn replace(&self, old: i32, new: i32) {
        let replaced = |place: &AtomicI32| {
            place.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        // One for which there is no room counts as the program's.
        let _: bool = self.numbers.iter().any(replaced);
    }

    /// Whether this is the number of a thread of ours. A thread that is about to end is none.
    pub(crate) fn has(&self, number: i32) -> bool {
        self.numbers.iter().any(|place| place.load(Ordering::Acquire) == number)
    }
}

/// The number of the calling thread.
pub(crate) fn number() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

extern "C" fn begin(begun: *mut c_void) -> *mut c_void {
    IS_OURS.set(true);
    // SAFETY: made by `pthread_create` below, for this thread alone.
    let Begun { start, argument } = *unsafe { Box::from_raw(begun.cast::<Begun>()) };
    let number = number();
    if let Some((state, _)) = state::of_ours() {
        state.threads.add(number);
    }
    let result = start(argument);
    end();
    if let Some((state, _)) = state::of_ours() {
        state.threads.remove(number);
    }
    result
}

/// A thread that one of ours starts is ours; all others are the program's.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    if !is_ours() {
        stdio::before_thread();
        // SAFETY: the program's arguments.
        return unsafe { real::pthread_create(thread, attributes, start, argument) };
    }
    let begun = Box::into_raw(Box::new(Begun { start, argument }));
    // SAFETY: our arguments; the new thread takes what was made for it.
    let failed = unsafe { real::pthread_create(thread, attributes, begin, begun.cast()) };
    if failed != 0 {
        // SAFETY: made above, and no thread has it.
        drop(unsafe { Box::from_raw(begun) });
    }
    failed
}

/// A destructor of a thread-local.
pub(crate) type Destructor = unsafe extern "C" fn(*mut c_void);

struct Ending {
    destructor: Destructor,
    object: *mut c_void,
    before: *mut Ending,
}

/// The destructors of this thread, the last first; those that they register, too.
fn end() {
    loop {
        let last = ENDINGS.get();
        if last.is_null() {
            return;
        }
        // SAFETY: made below, by this thread, and in its list once.
        let Ending { destructor, object, before } = *unsafe { Box::from_raw(last) };
        ENDINGS.set(before);
        // SAFETY: registered for this object, which lives as long as the thread.
        unsafe { destructor(object) };
    }
}

/// Keeps a destructor for the end of the calling thread, which is ours.
pub(crate) fn at_end(destructor: Destructor, object: *mut c_void) {
    let ending = Ending { destructor, object, before: ENDINGS.get() };
    ENDINGS.set(Box::into_raw(Box::new(ending)));
}
