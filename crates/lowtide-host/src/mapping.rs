//! Shared mappings of files: the usual way to page, with which lowtide is compared.
//!
//! A [`FileMapping`] leaves every decision to the kernel: which pages stay (the page cache's
//! reclaim), how much is read around a fault ([`Advice`]), when a dirty page is written. A read of
//! a page that cannot be loaded, or that lies past the end of a file that has shrunk, is not an
//! error but the signal SIGBUS.
//!
//! # Safety
//!
//! The file maps and unmaps only ranges that it obtained from the kernel. It hands out a raw
//! pointer, never a slice: other processes may change the file, and therefore the bytes, at any
//! time, so a caller that makes references from the pointer must know that none does.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{self, MapFlags, MsyncFlags, ProtFlags};

/// What a [`FileMapping`] may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading; a write is SIGSEGV.
    ReadOnly,
    /// Reading and writing; writes reach the file.
    Writable,
}

/// How the kernel should expect a [`FileMapping`] to be used (`madvise(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The default: a fault reads the device's read-ahead window around it.
    Normal,
    /// A fault reads one page. The kernel also learns less about what is in use from faults that
    /// hit the cache.
    Random,
    /// Read far ahead, and drop pages soon after they were used.
    Sequential,
}

/// An owned shared mapping of the start of a file, unmapped on drop. Unmapping does not wait for
/// dirty pages; call [`FileMapping::msync`] for that.
#[derive(Debug)]
pub struct FileMapping {
    base: NonNull<u8>,
    /// The requested bytes; the mapping ends at the end of the page that holds the last.
    len: usize,
}

// SAFETY: A mapping belongs to the process, not to a thread, and is changed by system calls only.
unsafe impl Send for FileMapping {}
// SAFETY: As for `Send`; every method takes `&self` and gives out at most a raw pointer.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps the first `len` bytes of `file`. The file may be closed afterwards.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for zero bytes or more than the file has (touching those would be SIGBUS),
    /// `EACCES` when the file was not opened for what `access` needs, else what `mmap(2)` says.
    pub fn map_shared(file: &File, len: usize, access: Access) -> io::Result<FileMapping> {
        let size = lowtide_sys::file::size(file)?;
        if len == 0 || len as u64 > size {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "cannot map {len} bytes of a file of {size} bytes; map between 1 and {size}"
                ),
            ));
        }
        let prot = match access {
            Access::ReadOnly => ProtFlags::READ,
            Access::Writable => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: A null hint without MAP_FIXED cannot replace an existing mapping.
        let base = unsafe { mm::mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("the kernel mapped the file at address zero"))?;
        Ok(FileMapping { base, len })
    }

    /// Advises the kernel on the use of the whole mapping.
    ///
    /// # Errors
    ///
    /// What `madvise(2)` says; none is expected for these three.
    pub fn advise(&self, advice: Advice) -> io::Result<()> {
        let advice = match advice {
            Advice::Normal => mm::Advice::Normal,
            Advice::Random => mm::Advice::Random,
            Advice::Sequential => mm::Advice::Sequential,
        };
        // SAFETY: The range is this mapping, and none of the three kinds of advice changes contents
        // or access.
        Ok(unsafe { mm::madvise(self.base.as_ptr().cast(), self.len, advice) }?)
    }

    /// Writes every dirty page of the mapping to the device and waits (`MS_SYNC`).
    ///
    /// # Errors
    ///
    /// `EIO` or `ENOSPC` when a page could not be written.
    pub fn msync(&self) -> io::Result<()> {
        // SAFETY: The range is this mapping, and MS_SYNC without MS_INVALIDATE changes no contents.
        Ok(unsafe { mm::msync(self.base.as_ptr().cast(), self.len, MsyncFlags::SYNC) }?)
    }

    /// The first byte. Valid until drop, for [`FileMapping::len`] bytes, as long as the file does
    /// not shrink.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The requested length in bytes.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "an empty mapping cannot be made")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: The range was mapped by `map_shared` and is unmapped only here; the kernel rounds
        // the length up to the page that the mapping ends with.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap of an owned mapping failed: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn file(contents: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(contents, 0).unwrap();
        file
    }

    #[test]
    fn reads_the_file_under_every_advice() {
        let mapping = FileMapping::map_shared(&file(b"low tide"), 8, Access::ReadOnly).unwrap();
        for advice in [Advice::Normal, Advice::Random, Advice::Sequential] {
            mapping.advise(advice).unwrap();
            // SAFETY: All eight bytes are mapped readable, and no other process has the file.
            let bytes = unsafe { std::slice::from_raw_parts(mapping.as_ptr(), mapping.len()) };
            assert_eq!(bytes, b"low tide");
        }
    }

    #[test]
    fn writes_reach_the_file() {
        let file = file(&[0; 5000]);
        let mapping = FileMapping::map_shared(&file, 5000, Access::Writable).unwrap();
        // SAFETY: The offset is below the mapping's length.
        let byte = unsafe { mapping.as_ptr().add(4999) };
        // SAFETY: The byte is mapped writable, and only this thread knows of the mapping.
        unsafe { byte.write(42) };
        mapping.msync().unwrap();
        drop(mapping);
        let mut byte = [0];
        file.read_exact_at(&mut byte, 4999).unwrap();
        assert_eq!(byte, [42]);
    }

    #[test]
    fn what_would_be_sigbus_is_refused() {
        let file = file(b"x");
        for len in [0, 2, usize::MAX] {
            let error = FileMapping::map_shared(&file, len, Access::ReadOnly).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
    }

    #[test]
    fn a_read_only_file_cannot_be_mapped_writable() {
        let named = tempfile::NamedTempFile::new().unwrap();
        named.as_file().set_len(4096).unwrap();
        let file = File::open(named.path()).unwrap();
        let error = FileMapping::map_shared(&file, 4096, Access::Writable).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
