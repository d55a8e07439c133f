//! What a child of `fork` finds of memory that is kept: copies of blocks (`memory.rs`) and the
//! program's own mappings in the place of mirrors (`mirrors.rs`).
//!
//! Our handlers are the first that are registered, so before the fork they run last, and after it
//! first: an allocator that has memory in blocks takes its locks before the copy is made, and finds
//! them in the child. To be the first, this library stands in front of the function that registers
//! (`c_library.rs`).
//!
//! Between the handler before the fork and the one after it stores to blocks wait. So this thread
//! must not store to one: it has locks of ours, so no handler of a signal runs (`quiet.rs`), and it
//! must not have its stack there.
//!
//! **Locks**, in the order in which they are taken, and given back in the reverse one:
//!
//! 1. The C library's list of all streams, which its `fork` takes after all handlers. A thread that
//!    writes all streams out has it, and may wait for a page of a buffer, which does not come while
//!    stores wait. So it is taken first: the owner may take it again. In the child the C library
//!    makes it free.
//! 2. The turn to ask the keeper, then the lock of the blocks, in this order: the keeper takes that
//!    lock for what other threads ask. So what changes blocks, or gives them up, waits until the
//!    fork is over.
//! 3. The table of mirrors.
//!
//! Of what the C library's `fork` takes besides, its allocator's locks are of memory that is never
//! kept (its own mappings), so a thread that has one waits for no page. Its lock of the name
//! services is held while their configuration is read, which is once in a process and after it was
//! changed; with an allocator whose small blocks are kept (`--anon`) its owner could wait for a
//! page then. That lock cannot be taken from outside.
//!
//! **Mappings of files** that were adopted are adopted in the child, too (`inherited.rs`), when all
//! handlers have run and `fork` is about to return there.
//!
//! # Safety
//!
//! The handlers run in the thread that forks, in the order of `pthread_atfork(3)`.

#![allow(unsafe_code)]

use crate::interpose::Errno;
use crate::judge::Reason;
use crate::line::{Answer, Question};
use crate::lock::Locked;
use crate::ranges::Entry;
use crate::state::{self, State};
use crate::{
    blocks, c_library, descriptors, heap, inherited, memory, mirrors, reads, real_memory,
    real_threads,
};
use libc::c_int;
use lowtide_run::settings::Settings;
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a thread that forks has meanwhile.
struct Forking {
    /// Where memory without a file is kept: the turn, and the blocks.
    heap: Option<(Locked<'static>, Locked<'static>)>,
    covers: Locked<'static>,
    /// What is adopted.
    ranges: Vec<Entry>,
    /// There is no copy for the child.
    has_failed: bool,
    has_streams: bool,
}

struct Place(UnsafeCell<Option<Forking>>);

// SAFETY: touched by the thread that forks, which has the lock of the covers.
unsafe impl Sync for Place {}

static FORKING: Place = Place(UnsafeCell::new(None));

/// What this process has of its parent's mappings, and whether the parent had mirrors, until `fork`
/// returns in it.
struct Inherited(UnsafeCell<(Vec<Entry>, bool)>);

// SAFETY: touched by the only thread of a child: in a handler, and before `fork` returns.
unsafe impl Sync for Inherited {}

static INHERITED: Inherited = Inherited(UnsafeCell::new((Vec::new(), false)));

thread_local! {
    /// The copy for the child of this thread's fork could not be made.
    static HAS_FAILED: Cell<bool> = const { Cell::new(false) };
}

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// From now on children of `fork` find what they should: registers the handlers, before all others.
pub(crate) fn watch() {
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        let object = ptr::null_mut();
        // SAFETY: the functions are of this kind, and live as long as the process: a preloaded
        // library is never unloaded.
        unsafe {
            c_library::register_atfork(Some(before_fork), Some(after_fork), Some(in_child), object);
        }
    }
}

/// The state, where memory without a file is kept.
fn kept() -> Option<(&'static State, &'static Settings)> {
    state::get().filter(|(_, settings)| settings.anon)
}

extern "C" fn before_fork() {
    // With a keeper the process has threads, and the C library resets the list in the child.
    let with_keeper = kept().filter(|(state, _)| state.line.is_kept());
    let has_streams = with_keeper.is_some();
    if has_streams {
        real_threads::lock_streams();
    }
    let mut has_failed = false;
    let heap = kept().map(|(state, _)| {
        let turn = state.line.hold();
        let blocks = blocks::lock_for_fork();
        let asked = state.line.ask_held(&turn, Question::Fork);
        has_failed = matches!(asked, Some(Answer::Left(_)));
        HAS_FAILED.set(has_failed);
        (turn, blocks)
    });
    let covers = mirrors::lock_for_fork();
    let ranges = state::get().map(|(state, _)| state.ranges.all()).unwrap_or_default();
    let forking = Forking { heap, covers, ranges, has_failed, has_streams };
    // SAFETY: this thread has the lock.
    unsafe { *FORKING.0.get() = Some(forking) };
}

/// Takes what [`before_fork`] left.
fn forking() -> Option<Forking> {
    // SAFETY: this thread has the lock.
    unsafe { (*FORKING.0.get()).take() }
}

extern "C" fn after_fork() {
    let Some(Forking { heap, covers, has_streams, .. }) = forking() else { return };
    drop(covers);
    if let Some((turn, blocks)) = heap {
        if let Some((state, _)) = kept() {
            let _ = state.line.ask_held(&turn, Question::Forked);
        }
        drop(blocks);
        drop(turn);
    }
    if has_streams {
        real_threads::unlock_streams();
    }
}

extern "C" fn in_child() {
    let Some(Forking { heap, mut covers, ranges, has_failed, .. }) = forking() else { return };
    let had_mirrors = mirrors::are_any();
    mirrors::in_child(&mut covers);
    state::note_whole();
    // SAFETY: as above.
    unsafe { *INHERITED.0.get() = (ranges, had_mirrors) };
    let Some((turn, blocks)) = heap else { return };
    if has_failed {
        // The program has not seen this child: `fork` fails in its parent.
        // SAFETY: ends the child without running anything.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: this thread has the lock, and is the only one.
    let mut table = unsafe { blocks::locked_by_fork() };
    memory::restore(table.all());
    table.end();
    drop(blocks);
    // It is free already: the kernel has wiped it.
    drop(turn);
}

/// Refuses where the child's copy could not be made: the program hears of it as of a lack of
/// memory.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fork() -> c_int {
    if let Some((state, _)) = kept() {
        let here = ptr::from_ref(&state).addr();
        // A stack of the program's own is lent to it: this thread stores to it meanwhile.
        let stack = heap::give_back_for(&(here..here + 1), Reason::Stack);
        let asked = || {
            let _errno = Errno::save();
            state.line.ask(Question::Fits)
        };
        if stack.is_err() || matches!(asked(), Some(Answer::Left(_))) {
            return refuse();
        }
    }
    HAS_FAILED.set(false);
    // SAFETY: the program's call.
    let child = unsafe { real_memory::fork() };
    if child > 0 && HAS_FAILED.replace(false) {
        // It has ended, or is about to; another thread may have waited for it, too.
        // SAFETY: no place for the status is needed.
        while unsafe { libc::waitpid(child, ptr::null_mut(), 0) } < 0 && Errno::now() == libc::EINTR
        {
        }
        return refuse();
    }
    if child == 0 {
        // SAFETY: as above.
        let (all, had_mirrors) = std::mem::take(unsafe { &mut *INHERITED.0.get() });
        inherited::begin(&all, had_mirrors);
        reads::start();
    }
    child
}

/// What the program hears of a copy that cannot be made.
fn refuse() -> c_int {
    let why = "lowtide: fork: no memory for the child's copy of what is kept within the budget\n";
    descriptors::say_first(why.as_bytes());
    Errno::set(libc::ENOMEM);
    -1
}
