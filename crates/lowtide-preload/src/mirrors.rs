//! Mirrors in the place of the program's mappings: putting them there, taking them away, and what a
//! child of `fork` finds.
//!
//! The program's own mapping is not given up: it is hidden while a mirror has its addresses
//! (`lowtide/map/run/cover.rs`).
//!
//! **fork.** A child has no thread that serves its faults. The mirror is not inherited
//! (`MADV_DONTFORK`), the hidden mapping is. A handler of `pthread_atfork(3)` moves it back, in the
//! child, before `fork` returns there: the child sees the kernel's mapping. The table is locked
//! while a process forks, so that no child finds a half-made cover. Where the handler does not run,
//! the same is done by `clones.rs`; in a child that was made past the C library the addresses are a
//! hole, a touch of which is `SIGSEGV`. `vfork` and `posix_spawn` share the memory of their parent,
//! whose threads go on.
//!
//! While the lock is held nothing is allocated: an allocator may hold its own locks while the
//! process forks.
//!
//! # Safety
//!
//! The addresses of an entry are the program's mapping of a file, for loads only; the keeper
//! uncovers it before the program changes it. The table is touched by the thread that has the lock.

#![allow(unsafe_code)]

use crate::budgets::Subject;
use crate::descriptors;
use crate::lock::{Lock, Locked};
use crate::modes::Why;
use crate::state;
use lowtide::Pager;
use lowtide::map::run::{Aside, Cover, Placed, keep_room};
use lowtide::map::{MapError, MapOptions};
use lowtide_run::leases;
use lowtide_status::printable;
use std::cell::{Cell, UnsafeCell};
use std::error::Error;
use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Mirrors that there may be at a time.
const CAPACITY: usize = 4096;
/// Pages that cannot be brought in, of which each is named.
const COMPLAINTS: usize = 8;

/// All covers. In ordinary memory: a child needs it.
struct Table {
    lock: Lock,
    count: AtomicUsize,
    entries: UnsafeCell<[Cover; CAPACITY]>,
}

// SAFETY: the entries are touched under the lock.
unsafe impl Sync for Table {}

static TABLE: Table = Table {
    lock: Lock::new(),
    count: AtomicUsize::new(0),
    entries: UnsafeCell::new([Cover::NONE; CAPACITY]),
};

/// Whether anything is covered.
pub(crate) fn are_any() -> bool {
    TABLE.count.load(Ordering::Acquire) > 0
}

/// Whether anything is covered, or may be at any time.
pub(crate) fn may_come() -> bool {
    are_any()
        || state::get()
            .is_some_and(|(state, settings)| settings.mode.mirrors() && state.ranges.are_any())
}

/// Takes the lock for a thread that forks (`forks.rs`).
pub(crate) fn lock_for_fork() -> Locked<'static> {
    TABLE.lock.lock()
}

/// The child begins; its thread has the lock.
pub(crate) fn in_child(held: &mut Locked<'_>) {
    held.in_child();
    let count = TABLE.count.swap(0, Ordering::AcqRel);
    // SAFETY: this is the only thread, and has the lock.
    let entries = unsafe { &*TABLE.entries.get() };
    for cover in &entries[..count] {
        // What cannot be moved back is a hole: a touch is `SIGSEGV`, never another content.
        // SAFETY: a hole is there, since mirrors are not inherited.
        let _ = unsafe { cover.take_off() };
    }
    leases::begin_in_child();
}

/// The table, while no process forks.
pub(crate) struct Covers {
    held: Locked<'static>,
}

/// Waits until no thread forks.
pub(crate) fn lock() -> Covers {
    Covers { held: TABLE.lock.lock() }
}

impl Covers {
    fn entries(&mut self) -> &mut [Cover; CAPACITY] {
        let _ = &self.held;
        // SAFETY: the lock is held by this, which is borrowed.
        unsafe { &mut *TABLE.entries.get() }
    }

    /// Puts a mirror where the program's mapping is.
    ///
    /// # Errors
    /// A step and the kernel's error, or that there are too many; the program's mapping is where it
    /// was.
    fn cover(mut self, subject: &Subject, mirror: Aside) -> Result<(), MapError> {
        keep_room();
        let count = TABLE.count.load(Ordering::Relaxed);
        let Some(slot) = self.entries().get_mut(count) else {
            let source = io::Error::from_raw_os_error(libc::ENOSPC);
            return Err(MapError::Kernel { step: "the table of mirrors", source });
        };
        // SAFETY: the program's mapping, whose file does not change; no process forks.
        *slot = unsafe { Cover::put(mirror, subject.mapped(), end) }?;
        TABLE.count.store(count + 1, Ordering::Release);
        Ok(())
    }

    /// Puts the program's mapping back.
    fn uncover(mut self, subject: &Subject) {
        let start = subject.range.start;
        let count = TABLE.count.load(Ordering::Relaxed);
        let entries = self.entries();
        let Some(at) = entries[..count].iter().position(|cover| cover.start() == start) else {
            return;
        };
        // SAFETY: covered above.
        unsafe { entries[at].take_off_surely(subject.mapped(), end) };
        entries[at] = entries[count - 1];
        TABLE.count.store(count - 1, Ordering::Release);
    }
}

/// A mirror in the place of a mapping of the program, which comes back when this is dropped.
pub(crate) struct Mirrored {
    placed: Placed,
    /// Its file is the keeper's descriptor, with the lease.
    subject: Subject,
    /// It is there still.
    covers: Cell<bool>,
}

/// Puts a mirror in the place of a mapping.
///
/// # Errors
/// Why not; the program's mapping is where it was.
pub(crate) fn begin(
    options: &MapOptions,
    pager: &Pager,
    subject: &Subject,
) -> Result<Mirrored, (Why, Box<dyn Error>)> {
    let put = |mirror| lock().cover(subject, mirror);
    // SAFETY: the program's mapping of this file, for loads. The keeper has a lease on the file,
    // and drops the mirror before it gives that up, and before the program changes the mapping.
    let placed = unsafe { options.serve(pager, subject.file.as_fd(), subject.range.clone(), put) };
    match placed {
        Ok(placed) => Ok(Mirrored { placed, subject: subject.clone(), covers: Cell::new(true) }),
        Err(error) => Err((why_not(&error), error.into())),
    }
}

/// Whether a mirror is out of the question here, or only something is used up now.
fn why_not(error: &(dyn Error + 'static)) -> Why {
    let chain = std::iter::successors(Some(error), |error: &&(dyn Error + 'static)| {
        let error: &(dyn Error + 'static) = *error;
        error.source()
    });
    let code = |error: &(dyn Error + 'static)| match error.downcast_ref::<Arc<io::Error>>() {
        Some(shared) => shared.raw_os_error(),
        None => error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error),
    };
    match chain.filter_map(code).next() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOSPC | libc::EAGAIN) => {
            Why::Resources
        }
        _ => Why::Unavailable,
    }
}

impl Mirrored {
    /// The first page that could not be brought in, and why.
    pub(crate) fn first_error(&self) -> Option<String> {
        self.placed.error().map(|error| error.to_string())
    }

    /// The program's mapping is back when this returns, and the lease is given up. Who serves the
    /// mirror is waited for when this is dropped: what the program reads meanwhile is to be watched
    /// already.
    pub(crate) fn end(&self) {
        if !self.covers.replace(false) {
            return;
        }
        let subject = &self.subject;
        // Locked before the pager's threads are kept away: one that forks may wait for them.
        let covers = lock();
        let _ = self.placed.end(|| {
            covers.uncover(subject);
            Ok(())
        });
        leases::give_up(subject.file.as_fd());
    }
}

/// Says that a page cannot be brought in, before the thread that touches it gets the signal. Not of
/// all pages of a device that is gone.
pub(crate) fn complain(error: &dyn Error) {
    static SAID: AtomicUsize = AtomicUsize::new(0);
    if SAID.fetch_add(1, Ordering::Relaxed) < COMPLAINTS {
        let error = printable(&error.to_string());
        descriptors::say(format!("lowtide: a touch of a page is SIGBUS: {error}\n").as_bytes());
    }
}

impl Deref for Mirrored {
    type Target = Placed;

    fn deref(&self) -> &Placed {
        &self.placed
    }
}

impl Drop for Mirrored {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends a program that would read old data.
fn end() -> ! {
    descriptors::say(
        b"lowtide: a mapping cannot be given back to the kernel (out of memory); the program ends, \
          since it would read old data\n",
    );
    std::process::abort();
}
