//! The mapping behind a handle.
//!
//! The kernel maps whole pages; a handle shows `len` bytes from somewhere in the first page on. A
//! handle without bytes has a mapping of one byte that is not shown, so that every handle has an
//! address.
//!
//! A mapping of a file may be *kept*: adopted by the pager of the process. Before anything is done
//! to it that the pager must not see (unmapping, moving, locking, private stores), it is forgotten.
//!
//! A child of `fork` has its parent's handles, but for it they are plain mappings: what is kept is
//! the parent's, and its lock may be that of a thread which the child does not have.

use crate::budget;
use crate::options::RemapOptions;
use lowtide::map::{Adopted, MapFile, MapOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a mapping is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// `PROT_READ` and others.
    pub(crate) access: i32,
    /// `MAP_SHARED` and others.
    pub(crate) flags: i32,
    /// Whether it may come under the budget.
    pub(crate) keep: bool,
}

/// Addresses of this process.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The first byte that is shown.
    start: *mut u8,
    /// Bytes that are shown.
    len: usize,
    /// Stores are the mapping's own.
    private: bool,
    /// The process that made it.
    process: u32,
    /// Touched in that process alone.
    kept: ManuallyDrop<Mutex<Option<Kept>>>,
}

/// What the pager knows of a mapping.
#[derive(Debug)]
struct Kept {
    adopted: Adopted,
    /// To adopt it again at other addresses.
    file: MapFile,
    /// Where in the file the first page is.
    offset: u64,
}

// SAFETY: the addresses belong to the process, and no thread has a part in them; what threads may
// do with the bytes is the handle's to say.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

fn page_size() -> usize {
    rustix::param::page_size()
}

impl Memory {
    /// Maps a part of a file.
    pub(crate) fn of_file(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        kind: Kind,
    ) -> io::Result<Self> {
        let before = (offset % page_size() as u64) as usize;
        let first = offset - before as u64;
        let pager = if kind.keep && len > 0 { budget::pager()? } else { None };
        // All of it at once would be more than the budget.
        let populate = kind.flags & libc::MAP_POPULATE != 0;
        let flags = kind.flags & if pager.is_some() { !libc::MAP_POPULATE } else { !0 };
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        let base = map(before.checked_add(len), kind.access, flags, fd, first)?;
        let start = base.wrapping_add(before);
        let private = flags & libc::MAP_PRIVATE != 0;
        let memory = Self::plain(start, len, private);
        let Some(pager) = pager else { return Ok(memory) };
        // What cannot be kept (a device, a file of another user) is a plain mapping.
        if let Ok(file) = MapFile::of(file) {
            memory.keep(&pager, file, first);
        }
        if populate {
            memory.advise(0, len, libc::MADV_WILLNEED)?;
        }
        Ok(memory)
    }

    /// Maps memory without a file.
    pub(crate) fn anonymous(len: usize, flags: i32) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = map(Some(len), access, flags, -1, 0)?;
        Ok(Self::plain(start, len, true))
    }

    fn plain(start: *mut u8, len: usize, private: bool) -> Self {
        let (process, kept) = (std::process::id(), ManuallyDrop::new(Mutex::new(None)));
        Self { start, len, private, process, kept }
    }

    /// Keeps it from now on, if that is possible.
    fn keep(&self, pager: &lowtide::Pager, file: MapFile, first: u64) {
        if let Some(mut kept) = self.kept() {
            *kept = self.adopt(pager, file, first).ok();
        }
    }

    fn adopt(&self, pager: &lowtide::Pager, file: MapFile, first: u64) -> io::Result<Kept> {
        let addresses = self.addresses();
        let base = ptr::with_exposed_provenance::<u8>(addresses.start);
        let options = MapOptions::new().offset(first);
        // SAFETY: the addresses are a mapping of this file: shared, or private without the right to
        // store. All that ends that (`Drop`, `remap`, `forget`) ends the adoption before.
        let adopted = unsafe { options.adopt_file(pager, &file, base, addresses.len()) };
        let adopted = adopted.map_err(io::Error::from)?;
        Ok(Kept { adopted, file, offset: first })
    }

    /// What is kept of it; `None` in a process that has it from its parent.
    fn kept(&self) -> Option<MutexGuard<'_, Option<Kept>>> {
        let is_own = self.process == std::process::id();
        is_own.then(|| self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the adoption, if there is one: from now on this is a plain mapping.
    pub(crate) fn forget(&self) {
        drop(self.kept().and_then(|mut kept| kept.take()));
    }

    /// The first byte that is shown.
    pub(crate) const fn start(&self) -> *mut u8 {
        self.start
    }

    /// Bytes that are shown.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether stores are the mapping's own.
    pub(crate) const fn is_private(&self) -> bool {
        self.private
    }

    /// The whole pages of the mapping.
    fn addresses(&self) -> Range<usize> {
        let at = self.start.expose_provenance();
        let start = at / page_size() * page_size();
        start..(at + self.len).max(start + 1).next_multiple_of(page_size())
    }

    /// The whole pages of a part, in bytes.
    fn part(&self, offset: usize, len: usize) -> io::Result<Range<usize>> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        let Some(end) = end else {
            let text = format!("{len} bytes at {offset} are not in a map of {} bytes", self.len);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let at = self.start.addr();
        Ok((at + offset) / page_size() * page_size()..(at + end).next_multiple_of(page_size()))
    }

    /// `msync(2)` of a part.
    pub(crate) fn flush(&self, offset: usize, len: usize, flags: i32) -> io::Result<()> {
        let part = self.part(offset, len)?;
        // SAFETY: it writes what was stored, and changes no byte.
        check(unsafe { libc::msync(at(part.start), part.len(), flags) })
    }

    /// `mprotect(2)` of all of it.
    pub(crate) fn protect(&self, access: i32) -> io::Result<()> {
        let all = self.addresses();
        // SAFETY: the handle that a caller makes of it permits no more than the new rights.
        check(unsafe { libc::mprotect(at(all.start), all.len(), access) })
    }

    /// `madvise(2)` of a part. What is read ahead of a kept mapping is the pager's business.
    pub(crate) fn advise(&self, offset: usize, len: usize, advice: i32) -> io::Result<()> {
        let part = self.part(offset, len)?;
        if let Some(kept) = self.kept()
            && let Some(kept) = &*kept
        {
            let adopted = &kept.adopted;
            let is_done = match advice {
                libc::MADV_NORMAL | libc::MADV_SEQUENTIAL => adopted.advise(part.clone(), false),
                libc::MADV_RANDOM => adopted.advise(part.clone(), true),
                libc::MADV_WILLNEED => adopted.will_need(part.clone()),
                _ => false,
            };
            if is_done {
                return Ok(());
            }
        }
        advise(part, advice)
    }

    /// `mlock(2)` of all of it, which cannot be evicted any more.
    pub(crate) fn lock(&self) -> io::Result<()> {
        self.forget();
        let all = self.addresses();
        // SAFETY: it brings pages in, and changes no byte.
        check(unsafe { libc::mlock(at(all.start), all.len()) })
    }

    /// `munlock(2)` of all of it.
    pub(crate) fn unlock(&self) -> io::Result<()> {
        let all = self.addresses();
        // SAFETY: it changes no byte.
        check(unsafe { libc::munlock(at(all.start), all.len()) })
    }

    /// `mremap(2)`.
    ///
    /// # Safety
    /// Nothing refers to the bytes behind the new end, or, if it moves, to any.
    pub(crate) unsafe fn remap(&mut self, len: usize, how: RemapOptions) -> io::Result<()> {
        let all = self.addresses();
        let before = self.start.addr() - all.start;
        let bytes = before.checked_add(len).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?.max(1);
        let flags = if how.moves() { libc::MREMAP_MAYMOVE } else { 0 };
        let kept = self.kept().and_then(|mut kept| kept.take());
        let again = kept.map(|Kept { adopted, file, offset }| {
            drop(adopted);
            (file, offset)
        });
        // SAFETY: the caller's promise; nothing else is at the old addresses.
        let base = unsafe { libc::mremap(at(all.start), all.len(), bytes, flags) };
        let moved = if base == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            self.start = base.cast::<u8>().wrapping_add(before);
            self.len = len;
            Ok(())
        };
        if let Some((file, offset)) = again
            && let Ok(Some(pager)) = budget::pager()
        {
            self.keep(&pager, file, offset);
        }
        moved
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.forget();
        let all = self.addresses();
        // SAFETY: the handle is gone, and with it all that referred to the bytes.
        unsafe {
            libc::munmap(at(all.start), all.len());
        }
    }
}

fn at(address: usize) -> *mut libc::c_void {
    ptr::with_exposed_provenance_mut(address)
}

fn check(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn advise(part: Range<usize>, advice: i32) -> io::Result<()> {
    // SAFETY: a caller that gives advice which drops bytes promises that it may.
    check(unsafe { libc::madvise(at(part.start), part.len(), advice) })
}

fn map(
    bytes: Option<usize>,
    access: i32,
    flags: i32,
    file: i32,
    offset: u64,
) -> io::Result<*mut u8> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let bytes = bytes.ok_or_else(invalid)?.max(1);
    let offset = libc::off64_t::try_from(offset).map_err(|_| invalid())?;
    // SAFETY: the kernel chooses addresses where nothing is.
    let base = unsafe { libc::mmap64(ptr::null_mut(), bytes, access, flags, file, offset) };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base.cast()) }
}
