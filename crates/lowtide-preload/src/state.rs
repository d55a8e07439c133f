//! The one state of a process, and the settings that it was started with.

#![allow(unsafe_code)]

use crate::judge::Reason;
use crate::last::Last;
use crate::left::Left;
use crate::line::{Line, Question};
use crate::own::{self, Threads};
use crate::quiet::Quiet;
use crate::ranges::Ranges;
use crate::reads::Noted;
use crate::wiped::{self, Zeroed};
use lowtide_run::settings::Settings;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// What is known. All zeroes is: nothing.
#[derive(Debug)]
pub(crate) struct State {
    /// Addresses of adopted mappings.
    pub(crate) ranges: Ranges,
    /// The way to the keeper.
    pub(crate) line: Line,
    /// Mappings that were left to the kernel.
    pub(crate) left: Left,
    /// Why nothing is adopted any more, one more than its number.
    left_alone: AtomicU32,
    /// The process began with this library, or by `fork(3)` with its handlers.
    pub(crate) whole: AtomicU32,
    /// Reads of files.
    pub(crate) noted: Noted,
    /// Our threads.
    pub(crate) threads: Threads,
    /// The end of a process whose first thread has ended.
    pub(crate) last: Last,
    /// The first thread, as the C library names it.
    first_thread: AtomicUsize,
}

// SAFETY: atomics, locks of which zero is the free state, counters, and memory that is written
// before it is read.
unsafe impl Zeroed for State {}

static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());
static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The state and the settings, once the library is initialised and if it has anything to do. None
/// in our own threads: every wrapper passes them through (`own.rs`).
pub(crate) fn get() -> Option<(&'static State, &'static Settings)> {
    if own::is_ours() { None } else { of_ours() }
}

/// The same, for our own threads, too.
pub(crate) fn of_ours() -> Option<(&'static State, &'static Settings)> {
    let state = STATE.load(Ordering::Acquire);
    if state.is_null() {
        return None;
    }
    // SAFETY: it was mapped by `begin` and is never unmapped; zeroes are a state, so a fork does
    // not invalidate it.
    Some((unsafe { &*state }, SETTINGS.get()?))
}

/// From now on mappings are served. Called once.
pub(crate) fn begin(settings: Settings) {
    if SETTINGS.set(settings).is_ok()
        && let Some(state) = wiped::map::<State>(1)
    {
        STATE.store(state.as_ptr(), Ordering::Release);
        note_whole();
    }
}

/// The locks of the libraries below are as they should be: nothing was copied while another thread
/// had them. Called by the first thread.
pub(crate) fn note_whole() {
    if let Some((state, _)) = of_ours() {
        // SAFETY: the function has no conditions.
        let this = unsafe { libc::pthread_self() };
        state.first_thread.store(this as usize, Ordering::Release);
        state.whole.store(1, Ordering::Release);
    }
}

impl State {
    /// Whether this is the thread that the process began with.
    pub(crate) fn is_first_thread(&self, thread: libc::pthread_t) -> bool {
        self.first_thread.load(Ordering::Acquire) == thread as usize
    }

    /// Nothing is adopted from now on.
    pub(crate) fn leave_alone(&self, reason: Reason) {
        self.left_alone.store(reason as u32 + 1, Ordering::Relaxed);
    }

    /// Whether nothing is adopted any more, and why.
    pub(crate) fn left_alone(&self) -> Option<Reason> {
        let number = self.left_alone.load(Ordering::Relaxed).checked_sub(1)?;
        Reason::ALL.get(number as usize).copied()
    }

    /// Addresses of which the program is about to change what is there: the keeper leaves them
    /// alone when this returns. Says whether any were adopted.
    pub(crate) fn release(&self, range: &Range<usize>) -> bool {
        let _quiet = self.ranges.touches(range, false).then(Quiet::begin);
        let Some(gone) = self.ranges.remove(range) else { return false };
        self.line.ask(Question::Forget(gone));
        true
    }

    /// The same, for a mapping that stays, but cannot be served any more.
    pub(crate) fn release_for(&self, range: &Range<usize>, reason: Reason) {
        let bytes = self.ranges.bytes_in(range) as u64;
        if self.release(range) {
            self.left.add(reason, bytes, Vec::new);
        }
    }
}
