//! Mirrors in the place of the program's mappings: putting them there, taking them away, and what a
//! child of `fork` finds.
//!
//! ```text
//!              program's addresses        elsewhere
//!   mapped     the program's mapping
//!   covered    a mirror (a memfd)         the program's mapping, hidden, touched by no thread
//!   uncovered  the program's mapping
//! ```
//!
//! The program's own mapping is not given up. It *moves* (`MREMAP_DONTUNMAP`), and the mirror takes
//! its addresses; moving it back uncovers it, in one call that other threads see as one step. So it
//! is the same mapping afterwards, with all its rights, whatever became of the program's
//! descriptor.
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
//! The addresses of an entry are the program's mapping of a file, for loads only, which is known to
//! no thread yet when it is covered; the keeper uncovers it before the program changes it. The
//! table is touched by the thread that has the lock.

#![allow(unsafe_code)]

use crate::budgets::Subject;
use crate::descriptors;
use crate::leases;
use crate::lock::{Lock, Locked};
use crate::ways::Why;
use libc::c_long;
use lowtide::Pager;
use lowtide::map::MapOptions;
use lowtide::map::run::Placed;
use lowtide_sys::shared::memfd;
use std::cell::UnsafeCell;
use std::error::Error;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Mirrors that there may be at a time.
const CAPACITY: usize = 4096;
/// Pages that cannot be brought in, of which each is named.
const COMPLAINTS: usize = 8;
/// How often uncovering is tried.
const ATTEMPTS: u32 = 1000;

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    len: usize,
    /// Where the program's mapping is.
    hidden: usize,
}

/// All covers. In ordinary memory: a child needs it.
struct Table {
    lock: Lock,
    count: AtomicUsize,
    entries: UnsafeCell<[Entry; CAPACITY]>,
}

// SAFETY: the entries are touched under the lock.
unsafe impl Sync for Table {}

static TABLE: Table = Table {
    lock: Lock::new(),
    count: AtomicUsize::new(0),
    entries: UnsafeCell::new([Entry { start: 0, len: 0, hidden: 0 }; CAPACITY]),
};

/// Whether anything is covered.
pub(crate) fn are_any() -> bool {
    TABLE.count.load(Ordering::Acquire) > 0
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
    for entry in &entries[..count] {
        // What cannot be moved back is a hole: a touch is `SIGSEGV`, never another content.
        let _ = move_back(entry);
    }
    leases::begin_in_child();
}

/// In one step, as other threads see it.
fn move_back(entry: &Entry) -> io::Result<()> {
    let flags = c_long::from(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    let (from, to) = (entry.hidden as *mut libc::c_void, entry.start as *mut libc::c_void);
    // SAFETY: the hidden mapping is ours, and at the address is its mirror, or a hole in a child.
    let moved = unsafe { libc::syscall(libc::SYS_mremap, from, entry.len, entry.len, flags, to) };
    if moved == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
    fn entries(&mut self) -> &mut [Entry; CAPACITY] {
        let _ = &self.held;
        // SAFETY: the lock is held by this, which is borrowed.
        unsafe { &mut *TABLE.entries.get() }
    }

    /// Puts a mapping of `memory` where the program's mapping is.
    ///
    /// # Errors
    /// A step and the kernel's error, or that there are too many; the program's mapping is where it
    /// was.
    pub(crate) fn cover(
        mut self,
        range: &Range<usize>,
        memory: &File,
    ) -> Result<(), (&'static str, io::Error)> {
        let count = TABLE.count.load(Ordering::Relaxed);
        let (at, len) = (range.start as *mut libc::c_void, range.len());
        let Some(slot) = self.entries().get_mut(count) else {
            return Err(("the table of mirrors", io::Error::from_raw_os_error(libc::ENOSPC)));
        };
        let flags = c_long::from(libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP);
        let none = ptr::null_mut::<libc::c_void>();
        // SAFETY: the program's mapping, which no thread knows yet.
        let hidden = unsafe { libc::syscall(libc::SYS_mremap, at, len, len, flags, none) };
        if hidden == -1 {
            let error = io::Error::last_os_error();
            return Err(("mremap(MREMAP_DONTUNMAP) of a file (Linux 5.13)", error));
        }
        let entry = Entry { start: range.start, len, hidden: hidden as usize };
        // Whole words: of a shorter argument on the stack the rest is not defined.
        let [prot, fd, flags, offset, advice] = [
            libc::PROT_READ,
            memory.as_raw_fd(),
            libc::MAP_SHARED | libc::MAP_FIXED,
            0,
            libc::MADV_DONTFORK,
        ]
        .map(c_long::from);
        // SAFETY: replaces what is left of the program's mapping.
        let mapped = unsafe { libc::syscall(libc::SYS_mmap, at, len, prot, flags, fd, offset) };
        let not_inherited = || {
            // SAFETY: changes what children have of the new mapping.
            let done = unsafe { libc::syscall(libc::SYS_madvise, at, len, advice) };
            done != -1
        };
        if mapped == -1 || !not_inherited() {
            let error = io::Error::last_os_error();
            restore(&entry);
            let step = if mapped == -1 { "mmap(2)" } else { "madvise(MADV_DONTFORK)" };
            return Err((step, error));
        }
        *slot = entry;
        TABLE.count.store(count + 1, Ordering::Release);
        Ok(())
    }

    /// Puts the program's mapping back.
    pub(crate) fn uncover(mut self, start: usize) {
        let count = TABLE.count.load(Ordering::Relaxed);
        let entries = self.entries();
        let Some(at) = entries[..count].iter().position(|entry| entry.start == start) else {
            return;
        };
        restore(&entries[at]);
        entries[at] = entries[count - 1];
        TABLE.count.store(count - 1, Ordering::Release);
    }
}

/// A mirror in the place of a mapping of the program, which comes back when this is dropped.
pub(crate) struct Mirrored {
    placed: Placed,
    /// The keeper's descriptor, with the lease.
    file: Rc<OwnedFd>,
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
    let range = subject.range.clone();
    let memory = memfd("lowtide", range.len() as u64).map_err(|e| (Why::Resources, e.into()))?;
    lock().cover(&range, &memory).map_err(|(step, error)| {
        // What a kernel lacks, or a sandbox refuses, it will not have later.
        let is_lacking = matches!(
            error.raw_os_error(),
            Some(libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::EACCES)
        );
        let why = if is_lacking { Why::Unavailable } else { Why::Resources };
        (why, format!("{step}: {error}").into())
    })?;
    // SAFETY: the memory is new and sparse, its mapping is at these addresses, which no thread
    // knows yet, and is not inherited. The keeper has a lease on the file, and drops the mirror
    // before it gives that up, and before the program changes the mapping.
    let placed = unsafe { options.serve(pager, subject.file.as_fd(), memory, range.clone()) };
    match placed {
        Ok(placed) => Ok(Mirrored { placed, file: Rc::clone(&subject.file) }),
        Err(error) => {
            lock().uncover(range.start);
            Err((why_not(&error), error.into()))
        }
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
}

/// Says that a page cannot be brought in, before the thread that touches it gets the signal. Not of
/// all pages of a device that is gone.
pub(crate) fn complain(error: &dyn Error) {
    static SAID: AtomicUsize = AtomicUsize::new(0);
    if SAID.fetch_add(1, Ordering::Relaxed) < COMPLAINTS {
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
        let start = self.placed.addresses().start;
        // Locked before the pager's threads are kept away: the thread that forks may wait for them.
        let covers = lock();
        let _ = self.placed.end(|| {
            covers.uncover(start);
            Ok(())
        });
        leases::give_up(self.file.as_fd());
    }
}

/// Moves the program's mapping back. The kernel may lack memory for a moment. A program that went
/// on with a mirror that no thread serves, or which shows an old version of the file, would read
/// wrong data: it ends instead.
fn restore(entry: &Entry) {
    for _ in 0..ATTEMPTS {
        if move_back(entry).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    descriptors::say(
        b"lowtide: a mapping cannot be given back to the kernel (out of memory, or of mappings: \
          vm.max_map_count); the program ends, since it would read old data\n",
    );
    std::process::abort();
}
