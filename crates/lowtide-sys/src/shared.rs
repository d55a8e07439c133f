//! Memory that belongs to a file: mappings of descriptors, and files that are only memory.
//!
//! # Model
//!
//! The pages of a file live in the page cache. A [`SharedMapping`] is a window on some of them:
//! an entry of the page table exists once a page of the window was touched, and it can be taken
//! away without loss, because the page itself stays in the cache. A private mapping starts as the
//! same window, and a first store replaces the page by a copy that belongs to the mapping alone.
//!
//! A *memfd* ([`memfd`]) is a file without a device: its pages exist only in memory (or swap).
//! Holes read as zeroes and take no memory. So a sparse memfd can mirror a file that is larger than
//! memory, and a page of the mirror is given back by punching a hole
//! ([`page_cache::punch`](crate::page_cache::punch)).
//!
//! # One mapping
//!
//! A memfd is seen through one *window*, which is registered with userfaultfd. Its bytes are copied
//! out by `pread(2)`: a second mapping would let a stray load make a page of zeroes in a hole
//! (`docs/decisions/0014-one-mapping.md`).
//!
//! # Fork
//!
//! A child inherits these mappings as any others, unless
//! [`page_cache::dont_fork`](crate::page_cache::dont_fork) says otherwise.
//!
//! # Safety
//!
//! The file maps addresses that the kernel chooses, and unmaps only these, once. It gives out raw
//! pointers only. A caller that makes references from them must know that others change the file
//! while the reference lives only where the references allow it, and that a touch beyond the end of
//! the file is `SIGBUS`.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, MprotectFlags, MremapFlags, MsyncFlags, ProtFlags};

use crate::memory::page_size;

/// What a mapping permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Loads.
    Read,
    /// Loads and stores.
    ReadWrite,
}

impl Rights {
    const fn protection(self) -> ProtFlags {
        match self {
            Self::Read => ProtFlags::READ,
            Self::ReadWrite => ProtFlags::READ.union(ProtFlags::WRITE),
        }
    }
}

/// Where the stores of a mapping go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// To the file (`MAP_SHARED`).
    Shared,
    /// To copies of the pages, which belong to the mapping (`MAP_PRIVATE`).
    Private,
}

/// An owned mapping of a descriptor, unmapped on drop.
///
/// ```
/// use lowtide_sys::shared::{Rights, SharedMapping, Sharing, memfd};
///
/// let file = memfd("example", 1 << 20)?;
/// let window = SharedMapping::map(&file, 0, 1 << 20, Rights::Read, Sharing::Shared, false)?;
/// let alias = SharedMapping::map(&file, 0, 1 << 20, Rights::ReadWrite, Sharing::Shared, false)?;
/// // SAFETY: Both mappings live, the file is that long, and no other thread uses it.
/// unsafe { alias.as_ptr().write_volatile(7) };
/// // SAFETY: As above.
/// assert_eq!(unsafe { window.as_ptr().read_volatile() }, 7);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedMapping {
    base: NonNull<u8>,
    /// A multiple of the page size.
    len: usize,
}

// SAFETY: A mapping is a range of addresses of the process, not of a thread. It gives out raw
// pointers only, and changes nothing after it was made.
unsafe impl Send for SharedMapping {}
// SAFETY: As for `Send`: methods that take `&self` only read fields, and these change under
// `&mut self`.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `len` bytes (rounded up to whole pages) of a descriptor from `offset`, at an address
    /// that the kernel chooses. With `populate` the pages are read and mapped before the call
    /// returns, as far as that is possible.
    ///
    /// The file may be shorter: a touch of a page that lies wholly past its end is `SIGBUS`. Cost
    /// without `populate`: one system call, no matter how long.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for zero bytes, a length beyond the address space, or an offset that is not a
    /// multiple of the page size; else what `mmap(2)` says (`EACCES` when the descriptor was not
    /// opened for this access, `ENODEV` for files that cannot be mapped, `EPERM` for a sealed one).
    pub fn map(
        fd: impl AsFd,
        offset: u64,
        len: usize,
        access: Rights,
        sharing: Sharing,
        populate: bool,
    ) -> io::Result<SharedMapping> {
        let page = page_size();
        let rounded = len
            .checked_next_multiple_of(page)
            .filter(|&n| n > 0 && n <= isize::MAX as usize)
            .ok_or_else(|| invalid(format!("cannot map {len} bytes of a file")))?;
        if !offset.is_multiple_of(page as u64) {
            return Err(invalid(format!(
                "cannot map a file from byte {offset}: the offset must be a multiple of {page}"
            )));
        }
        let mut flags = match sharing {
            Sharing::Shared => MapFlags::SHARED,
            Sharing::Private => MapFlags::PRIVATE,
        };
        flags.set(MapFlags::POPULATE, populate);
        // SAFETY: A null hint without MAP_FIXED cannot replace an existing mapping.
        let start =
            unsafe { mm::mmap(ptr::null_mut(), rounded, access.protection(), flags, fd, offset) }?;
        let base = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped a file at address zero"))?;
        Ok(SharedMapping { base, len: rounded })
    }

    /// The first byte. Valid until drop.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The length in bytes: the requested length, rounded up to whole pages.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a mapping always has at least one page")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Changes what the whole mapping permits. Contents stay; a touch that is not permitted
    /// from now on is `SIGSEGV`.
    ///
    /// # Errors
    ///
    /// What `mprotect(2)` says: `EACCES` for stores to a shared mapping whose descriptor was not
    /// opened for writing.
    pub fn protect(&self, access: Rights) -> io::Result<()> {
        let flags = MprotectFlags::from_bits_retain(access.protection().bits());
        // SAFETY: The addresses are this mapping's, and no contents change.
        Ok(unsafe { mm::mprotect(self.base.as_ptr().cast(), self.len, flags) }?)
    }

    /// Gives the mapping another length (rounded up to whole pages), at the same address or, if
    /// `may_move`, at another. What is in both keeps its contents. Pointers from before are invalid
    /// where the mapping moved or ends.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an impossible length, `ENOMEM` where it cannot grow without moving; the
    /// mapping is as before.
    pub fn resize(&mut self, len: usize, may_move: bool) -> io::Result<()> {
        let rounded = len
            .checked_next_multiple_of(page_size())
            .filter(|&n| n > 0 && n <= isize::MAX as usize)
            .ok_or_else(|| invalid(format!("cannot map {len} bytes of a file")))?;
        let mut flags = MremapFlags::empty();
        flags.set(MremapFlags::MAYMOVE, may_move);
        // SAFETY: The addresses are this mapping's alone; the caller has it exclusively and knows
        // that pointers from before end here.
        let start = unsafe { mm::mremap(self.base.as_ptr().cast(), self.len, rounded, flags) }?;
        self.base = NonNull::new(start.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped a file at address zero"))?;
        self.len = rounded;
        Ok(())
    }

    /// Writes what was stored to `range` (in bytes of the mapping) to the file, and makes it
    /// durable (`MS_SYNC`). Stores that are made meanwhile may be missing. On a private mapping it
    /// does nothing.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a range that is not in the mapping; `EIO` where the device failed.
    pub fn sync(&self, range: Range<usize>) -> io::Result<()> {
        if range.start > range.end || range.end > self.len {
            let len = self.len;
            return Err(invalid(format!("cannot sync {range:?} of a mapping of {len} bytes")));
        }
        let start = range.start / page_size() * page_size();
        // SAFETY: `start` is inside the mapping.
        let at = unsafe { self.base.as_ptr().add(start) };
        // SAFETY: The addresses are this mapping's; no contents change.
        Ok(unsafe { mm::msync(at.cast(), range.end - start, MsyncFlags::SYNC) }?)
    }

    /// The addresses of the mapping, as the modules for faults and pages take them.
    #[inline]
    #[must_use]
    pub fn addresses(&self) -> Range<usize> {
        let start = self.base.as_ptr().addr();
        start..start + self.len
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: `base..base + len` was mapped by `map`, is unmapped only here, and no method of
        // `self` can run any more. Raw pointers given out end their validity here, as documented.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of an owned mapping failed: {unmapped:?}");
    }
}

/// Makes a file of `len` bytes that is only memory: sparse, close-on-exec, not executable where the
/// kernel knows that (6.3), and sealed so that its size can never change. A mapping of it that ends
/// within `len` is therefore never hit by `SIGBUS` for its size.
///
/// `name` appears in `/proc/self/maps`; it needs not be unique. Cost: four system calls.
///
/// # Errors
///
/// `InvalidInput` for a name with a zero byte; else what `memfd_create(2)` and `ftruncate(2)` say
/// (`EMFILE`, `EFBIG`, `ENOSYS` before Linux 3.17).
pub fn memfd(name: &str, len: u64) -> io::Result<File> {
    let plain = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = match rustix::fs::memfd_create(name, plain | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, plain)?,
        other => other?,
    };
    rustix::fs::ftruncate(&fd, len)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(File::from(fd))
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn read(mapping: &SharedMapping, offset: usize) -> u8 {
        assert!(offset < mapping.len());
        // SAFETY: The offset is inside the mapping.
        let byte = unsafe { mapping.as_ptr().add(offset) };
        // SAFETY: The byte is readable, and only this test uses the mapping.
        unsafe { byte.read_volatile() }
    }

    fn write(mapping: &SharedMapping, offset: usize, value: u8) {
        assert!(offset < mapping.len());
        // SAFETY: The offset is inside the mapping.
        let byte = unsafe { mapping.as_ptr().add(offset) };
        // SAFETY: The byte is writable, and only this test uses the mapping.
        unsafe { byte.write_volatile(value) };
    }

    #[test]
    fn two_mappings_of_one_memfd_are_one_memory_and_a_private_one_keeps_its_stores() {
        let page = page_size();
        let file = memfd("alias", 4 * page as u64).unwrap();
        let map = |access, sharing| {
            SharedMapping::map(&file, 0, 4 * page, access, sharing, false).unwrap()
        };
        let window = map(Rights::Read, Sharing::Shared);
        let alias = map(Rights::ReadWrite, Sharing::Shared);
        let private = map(Rights::ReadWrite, Sharing::Private);
        write(&alias, page + 3, 9);
        assert_eq!((read(&window, page + 3), read(&private, page + 3)), (9, 9));
        write(&private, page + 3, 10);
        assert_eq!((read(&window, page + 3), read(&private, page + 3)), (9, 10));
        drop(file);
        assert_eq!(read(&window, page + 3), 9, "a mapping keeps the memory alive");
    }

    #[test]
    fn a_memfd_never_changes_its_size() {
        let file = memfd("sealed", 10_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 10_000);
        assert!(file.set_len(0).is_err(), "a shrunk file would be SIGBUS for its mappings");
        assert!(file.set_len(1 << 20).is_err());
        assert!(file.write_at(&[1], 10_000).is_err());
        file.write_at(&[1], 9_999).unwrap();
    }

    #[test]
    fn a_mapping_starts_at_its_offset_and_is_rounded_up() {
        let page = page_size();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[5; 100], page as u64).unwrap();
        let map = |offset, len| {
            SharedMapping::map(&file, offset, len, Rights::Read, Sharing::Shared, true)
        };
        let mapping = map(page as u64, 100).unwrap();
        assert_eq!(mapping.len(), page);
        assert_eq!((read(&mapping, 99), read(&mapping, 100)), (5, 0));
        for (offset, len) in [(1, page), (0, 0), (0, usize::MAX)] {
            assert_eq!(map(offset, len).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn what_was_stored_survives_another_length_and_other_rights_and_reaches_the_file() {
        let page = page_size();
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 * page as u64).unwrap();
        let whole = |sharing| {
            SharedMapping::map(&file, 0, 4 * page, Rights::ReadWrite, sharing, false).unwrap()
        };
        let (mut shared, mut private) = (whole(Sharing::Shared), whole(Sharing::Private));
        write(&shared, 2 * page, 7);
        write(&private, 3 * page, 8);
        for mapping in [&mut shared, &mut private] {
            mapping.resize(64 * page, true).unwrap();
            mapping.protect(Rights::Read).unwrap();
            assert_eq!(mapping.len(), 64 * page);
        }
        assert_eq!((read(&shared, 2 * page), read(&private, 3 * page)), (7, 8));
        assert_eq!(shared.resize(0, true).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        private.protect(Rights::ReadWrite).unwrap();
        write(&private, 3 * page, 9);
        shared.sync(2 * page + 5..64 * page).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 2 * page as u64).unwrap();
        assert_eq!(byte, [7]);
        let outside = shared.sync(0..65 * page).unwrap_err();
        assert_eq!(outside.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn what_the_descriptor_forbids_cannot_be_mapped() {
        let file = File::open("/proc/self/exe").unwrap();
        let map = |access, sharing| SharedMapping::map(&file, 0, 4096, access, sharing, false);
        let refused = map(Rights::ReadWrite, Sharing::Shared).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        map(Rights::ReadWrite, Sharing::Private).unwrap();
    }
}
