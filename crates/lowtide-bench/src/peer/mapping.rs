//! The mmap peer's access to its data: a shared mapping of the file, and its descriptor.
//!
//! A store into a mapping is atomic only up to a machine word, so readers and writers of one record
//! must exclude each other. lowtide does that itself for each page; a program that uses a mapping
//! needs its own locks. Here they are striped: record `n` is guarded by reader-writer lock
//! `n mod 4096`, so readers wait only for a writer of the same stripe. Workloads that never write
//! use no locks.
//!
//! # Safety
//!
//! References are made from the mapping's pointer. They are sound as long as (1) their range is
//! inside the mapping, which every method asserts; (2) no thread writes the bytes while a shared
//! reference to them lives, and no other thread accesses them while they are written. Within the
//! process, the stripes ensure (2), unless there is only one thread or no writer; against other
//! processes, the data file is locked for this run. If a process truncates the file nevertheless,
//! the next access raises SIGBUS: it ends this process, and the bench reports it.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use memmap2::{Advice, MmapOptions, MmapRaw};

use crate::access::{AccessError, DataAccess};
use crate::content::UNIT_BYTES;

/// Number of locks. Enough that 32 threads rarely contend; a power of two, so that a mask finds the
/// stripe.
const STRIPES: u64 = 4096;

/// The use of a mapping.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    /// Whether the job writes.
    pub writes: bool,
    /// Whether more than one thread accesses it.
    pub shared: bool,
    /// `MADV_RANDOM`.
    pub random: bool,
}

/// One thread's access to a mapping.
#[derive(Clone)]
pub struct MappingAccess {
    mapping: Arc<MmapRaw>,
    file: Arc<File>,
    stripes: Option<Arc<[RwLock<()>]>>,
}

impl MappingAccess {
    /// Maps the first `len` bytes of the file at `path`.
    ///
    /// # Errors
    /// Those of opening and mapping; `InvalidInput` for more bytes than the file has, which would
    /// be SIGBUS.
    pub fn open(path: &Path, len: usize, how: Use) -> io::Result<Self> {
        let file = File::options().read(true).write(how.writes).open(path)?;
        if len as u64 > lowtide_sys::file::size(&file)? {
            let why = "the file is shorter than its data; remove it, and the next run makes it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut options = MmapOptions::new();
        let options = options.len(len);
        let mapping = match how.writes {
            true => options.map_raw(&file),
            false => options.map_raw_read_only(&file),
        }?;
        if how.random {
            mapping.advise(Advice::Random)?;
        }
        let stripes =
            (how.writes && how.shared).then(|| (0..STRIPES).map(|_| RwLock::new(())).collect());
        Ok(Self { mapping: Arc::new(mapping), file: Arc::new(file), stripes })
    }

    /// The lock of the record at `offset`, if there are locks.
    ///
    /// # Panics
    /// When locks are needed and the range is not inside one record: one stripe would not guard it.
    #[inline]
    fn stripe(&self, offset: u64, len: usize) -> Option<&RwLock<()>> {
        let stripes = self.stripes.as_ref()?;
        let unit = UNIT_BYTES as u64;
        assert!(
            offset % unit + len as u64 <= unit,
            "{len} bytes at {offset} are not inside one record"
        );
        Some(&stripes[((offset / unit) % STRIPES) as usize])
    }

    /// The address of a range.
    ///
    /// # Panics
    /// When the range is not inside the mapping.
    #[inline]
    fn address(&self, offset: u64, len: usize) -> *mut u8 {
        let inside =
            offset.checked_add(len as u64).is_some_and(|end| end <= self.mapping.len() as u64);
        assert!(inside, "{len} bytes at {offset} are not inside the mapping");
        // SAFETY: The offset is inside the mapping, as just asserted, so the sum stays in the same
        // allocation.
        unsafe { self.mapping.as_mut_ptr().add(offset as usize) }
    }

    /// The bytes of a range.
    ///
    /// # Safety
    /// No thread writes the range while the reference lives.
    #[inline]
    unsafe fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        // SAFETY: `address` asserts that the whole range is mapped, and it stays mapped as long as
        // `self`; the caller keeps writers away; any bytes are valid `u8`.
        unsafe { std::slice::from_raw_parts(self.address(offset, len), len) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Safety
    /// The mapping is writable, and no other thread accesses the range meanwhile.
    unsafe fn put(&self, offset: u64, bytes: &[u8]) {
        let to = self.address(offset, bytes.len());
        // SAFETY: `address` asserts that the destination is mapped, the caller that it is writable
        // and ours; the source is a live slice outside the mapping, as no reference into a range
        // that is written may live.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

impl DataAccess for MappingAccess {
    #[inline]
    fn load<R>(
        &mut self,
        offset: u64,
        len: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, AccessError> {
        let _shared = self
            .stripe(offset, len)
            .map(|lock| lock.read().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: Writers hold the stripe's lock exclusively, or there is no other thread, or no
        // writer.
        Ok(look(unsafe { self.bytes(offset, len) }))
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        let _own = self
            .stripe(offset, bytes.len())
            .map(|lock| lock.write().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: Only jobs that write call `store`, and their mapping is writable. The lock
        // excludes other threads, or there are none.
        unsafe { self.put(offset, bytes) };
        Ok(())
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), AccessError> {
        Ok(self.file.read_exact_at(bytes, offset)?)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        Ok(self.file.write_all_at(bytes, offset)?)
    }

    fn modify(
        &mut self,
        offset: u64,
        bytes: &mut [u8],
        change: impl FnOnce(&mut [u8]) -> bool,
    ) -> Result<(), AccessError> {
        let len = bytes.len();
        let _own = self
            .stripe(offset, len)
            .map(|lock| lock.write().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: The lock excludes writers, or there is one thread.
        bytes.copy_from_slice(unsafe { self.bytes(offset, len) });
        if change(bytes) {
            // SAFETY: The mapping of a job that writes is writable, and the lock, still held,
            // excludes other threads.
            unsafe { self.put(offset, bytes) };
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), AccessError> {
        Ok(self.mapping.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_workload::record::{RECORD_BYTES, fill, update, verify};

    fn records(count: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut slot = [0; RECORD_BYTES];
        for key in 0..count {
            fill(key, 0, &mut slot);
            file.as_file().write_all_at(&slot, key * RECORD_BYTES as u64).unwrap();
        }
        file
    }

    #[test]
    fn readers_never_see_half_an_update() {
        let file = records(4);
        let how = Use { writes: true, shared: true, random: true };
        let access = MappingAccess::open(file.path(), 4 * RECORD_BYTES, how).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let mut access = access.clone();
                scope.spawn(move || {
                    for n in 0..20_000_u64 {
                        let key = n % 4;
                        let mut slot = [0; RECORD_BYTES];
                        access
                            .modify(key * 1024, &mut slot, |bytes| {
                                update(key, bytes.first_chunk_mut().unwrap()).is_ok()
                            })
                            .unwrap();
                        let found = access
                            .load(key * 1024, RECORD_BYTES, |bytes| verify(key, bytes))
                            .unwrap();
                        assert!(found.is_ok(), "{found:?}");
                    }
                });
            }
        });
        let mut access = access;
        access.flush().unwrap();
        let versions: u64 = (0..4)
            .map(|key| {
                let mut slot = [0; RECORD_BYTES];
                access.read(key * 1024, &mut slot).unwrap();
                verify(key, &slot).unwrap()
            })
            .sum();
        assert_eq!(versions, 40_000, "under the lock no update is lost");
    }

    #[test]
    #[should_panic(expected = "not inside the mapping")]
    fn a_range_beyond_the_mapping_is_refused() {
        let file = records(1);
        let how = Use { writes: false, shared: false, random: false };
        let mut access = MappingAccess::open(file.path(), RECORD_BYTES, how).unwrap();
        let _ = access.load(1000, 100, <[u8]>::len);
    }
}
