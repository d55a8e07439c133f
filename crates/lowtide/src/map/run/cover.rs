//! Covering a mapping of the program by a mirror, and uncovering it.
//!
//! ```text
//!              program's addresses        elsewhere
//!   mapped     the program's mapping      a mirror (a memfd), *aside*
//!   covered    the mirror                 the program's mapping, hidden, touched by no thread
//!   uncovered  the program's mapping
//! ```
//!
//! The program's own mapping is not given up. It *moves* (`MREMAP_DONTUNMAP`), and leaves another
//! of the same file; over that one moves the mirror, whose faults are served already. Moving the
//! program's mapping back uncovers it. So it is the same mapping afterwards, with all its rights,
//! whatever became of the program's descriptor. Each move is one step, as other threads see it, and
//! shows them the same bytes. So threads may use the addresses meanwhile, as long as the file does
//! not change.
//!
//! A process that has as many mappings as it may have (`vm.max_map_count`) cannot move one: the
//! kernel wants room for the pieces of what is replaced. So some [room is kept](keep_room) for
//! that, mappings that are given up then. They are not inherited, so that children have room, too.
//! If the program takes it first, the file is mapped again over the mirror, which is one mapping
//! for another, with the same rights: a file that is mirrored is open for reading only.
//!
//! **fork.** The mirror is not inherited (`MADV_DONTFORK`), the hidden mapping is. A host ensures
//! that no process forks while a cover is half made, and uncovers in the child before the program
//! goes on there: until then the addresses are a hole, a touch of which is `SIGSEGV`.
//!
//! The calls are made as such, past functions of their names: a host may stand in front of those.
//! Nothing is allocated, so a host may hold locks that an allocator waits for.

use super::placed::Aside;
use crate::map::error::MapError;
use lowtide_sys::page_cache;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// How often uncovering is tried, a millisecond apart.
const ATTEMPTS: u32 = 1000;

/// The mapping of the program, as its file says it.
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'file> {
    /// A descriptor of the file, for reading.
    pub file: BorrowedFd<'file>,
    /// Where in the file the first page is.
    pub offset: u64,
    /// It is private (`MAP_PRIVATE`).
    pub is_private: bool,
}

/// Mappings that are kept: to move one takes up to six.
const ROOM: usize = 8;

/// Where they are, and whose: zero without any.
static ROOM_AT: AtomicUsize = AtomicUsize::new(0);
static ROOM_OF: AtomicU32 = AtomicU32::new(0);

/// A mapping of the program under a mirror: plain numbers, of which a child has a copy.
#[derive(Clone, Copy, Debug)]
pub struct Cover {
    start: usize,
    len: usize,
    /// Where the program's mapping is.
    hidden: usize,
}

/// What a host does where a mapping cannot be put back: it ends the process, which would read wrong
/// data from a mirror that no thread serves, or that shows an old version of the file.
pub type Lost = fn() -> !;

impl Cover {
    /// No mapping.
    pub const NONE: Self = Self { start: 0, len: 0, hidden: 0 };

    /// Puts a mirror where the program's mapping is.
    ///
    /// # Errors
    /// The step that failed. The program's mapping is where it was.
    ///
    /// # Safety
    /// The addresses are one mapping of the program's, of that file, whole pages, for loads; the
    /// mirror is of the same pages. The file does not change while it is there. The process does
    /// not fork before this returns.
    #[expect(unsafe_code, reason = "what is at the addresses is replaced")]
    pub unsafe fn put(aside: Aside, mapped: Mapped<'_>, lost: Lost) -> Result<Self, MapError> {
        let (range, start) = (aside.addresses(), aside.goes_to());
        let (at, len) = (start as *mut libc::c_void, range.len());
        let failed = |step| MapError::Kernel { step, source: io::Error::last_os_error() };
        let flags = libc::c_long::from(libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP);
        let none = ptr::null_mut::<libc::c_void>();
        // SAFETY: what stays behind is a mapping of the same pages.
        let hidden = unsafe { libc::syscall(libc::SYS_mremap, at, len, len, flags, none) };
        if hidden == -1 {
            return Err(failed("mremap(MREMAP_DONTUNMAP) of a file (Linux 5.13)"));
        }
        let cover = Self { start, len, hidden: hidden as usize };
        let flags = libc::c_long::from(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
        let from = range.start as *mut libc::c_void;
        // SAFETY: replaces what has stayed behind by a mirror of the same pages.
        let done = unsafe { libc::syscall(libc::SYS_mremap, from, len, len, flags, at) };
        if done == -1 {
            let error = failed("mremap(2) of a mirror");
            // SAFETY: what is at the addresses has the same bytes.
            unsafe { cover.take_off_surely(mapped, lost) };
            return Err(error);
        }
        aside.note_put();
        // What threads had touched is mapped there, and could not be dropped from the page cache.
        // SAFETY: a mapping of a file to which nothing was stored.
        drop(unsafe { page_cache::zap(cover.hidden..cover.hidden + len) });
        Ok(cover)
    }

    /// The first address.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// Puts the program's mapping back, in one step, as other threads see it.
    ///
    /// # Errors
    /// The kernel's; then nothing has changed.
    ///
    /// # Safety
    /// The mapping is covered: its mirror is at the addresses, or a hole in a child.
    #[expect(unsafe_code, reason = "what is at the addresses is replaced")]
    pub unsafe fn take_off(&self) -> io::Result<()> {
        let flags = libc::c_long::from(libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
        let (from, to) = (self.hidden as *mut libc::c_void, self.start as *mut libc::c_void);
        // SAFETY: the hidden mapping belongs to this; the caller's promise.
        let moved = unsafe { libc::syscall(libc::SYS_mremap, from, self.len, self.len, flags, to) };
        if moved == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Maps the file again over the mirror, in one step, as other threads see it.
    ///
    /// # Errors
    /// The kernel's; then nothing has changed.
    ///
    /// # Safety
    /// As [`take_off`](Self::take_off), and it is the file of the program's mapping.
    #[expect(unsafe_code, reason = "what is at the addresses is replaced")]
    unsafe fn replace(&self, mapped: Mapped<'_>) -> io::Result<()> {
        let sharing = if mapped.is_private { libc::MAP_PRIVATE } else { libc::MAP_SHARED };
        let [prot, flags, fd] =
            [libc::PROT_READ, sharing | libc::MAP_FIXED, mapped.file.as_raw_fd()]
                .map(libc::c_long::from);
        let (at, len, offset) = (self.start as *mut libc::c_void, self.len, mapped.offset);
        // SAFETY: what is there is the mirror, or a hole; the caller's promise.
        let done = unsafe { libc::syscall(libc::SYS_mmap, at, len, prot, flags, fd, offset) };
        if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The same, by either way, tried for a second: the kernel may lack memory for a moment.
    ///
    /// # Safety
    /// As [`take_off`](Self::take_off), and it is the file of the program's mapping.
    #[expect(unsafe_code, reason = "what is at the addresses is replaced")]
    pub unsafe fn take_off_surely(&self, mapped: Mapped<'_>, lost: Lost) {
        // SAFETY: the caller's promise.
        let take_off = || unsafe { self.take_off() };
        if take_off().is_ok() {
            return;
        }
        give_room_up();
        if take_off().is_ok() {
            return;
        }
        // One mapping less. From here on it is the file that comes back.
        // SAFETY: the hidden mapping belongs to this.
        unsafe { libc::syscall(libc::SYS_munmap, self.hidden as *mut libc::c_void, self.len) };
        for _ in 0..ATTEMPTS {
            // SAFETY: the caller's promise.
            if unsafe { self.replace(mapped) }.is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        lost();
    }
}

/// Keeps some mappings that nothing uses, for the one that is to be put back when there are no
/// others; children have none of them. Where the kernel refuses them there is no such room.
#[expect(unsafe_code, reason = "memory of its own is mapped")]
pub fn keep_room() {
    if ROOM_OF.swap(process::id(), SeqCst) == process::id() && ROOM_AT.load(SeqCst) != 0 {
        return;
    }
    ROOM_AT.store(0, SeqCst);
    let page = lowtide_sys::memory::page_size();
    let (len, kind) = (ROOM * page, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let [none, flags, fd, offset, advice] =
        [libc::PROT_NONE, kind, -1, 0, libc::MADV_DONTFORK].map(libc::c_long::from);
    let nowhere = ptr::null_mut::<libc::c_void>();
    // SAFETY: new memory, where nothing is.
    let at = unsafe { libc::syscall(libc::SYS_mmap, nowhere, len, none, flags, fd, offset) };
    if at == -1 {
        return;
    }
    // SAFETY: what children have of this memory, which nothing uses.
    unsafe { libc::syscall(libc::SYS_madvise, at, len, advice) };
    // Neighbours with different rights are mappings of their own.
    for second in (page..len).step_by(2 * page) {
        let (of, read) = (at as usize + second, libc::c_long::from(libc::PROT_READ));
        // SAFETY: a page of that memory.
        unsafe { libc::syscall(libc::SYS_mprotect, of, page, read) };
    }
    ROOM_AT.store(at as usize, SeqCst);
}

/// Gives them up, for the mapping that is put back now.
#[expect(unsafe_code, reason = "memory of its own is unmapped")]
fn give_room_up() {
    // A child has a copy of the numbers, and may have something else there.
    if ROOM_OF.load(SeqCst) == process::id() {
        let at = ROOM_AT.swap(0, SeqCst);
        let len = ROOM * lowtide_sys::memory::page_size();
        if at != 0 {
            // SAFETY: mapped by `keep_room`, and used by nothing.
            unsafe { libc::syscall(libc::SYS_munmap, at, len) };
        }
    }
}
