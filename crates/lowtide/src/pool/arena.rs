//! The memory of frames, as addresses: which there are, and how far they can be touched.
//!
//! A pager lives in the process of a program, whose limits count memory that could be written
//! (`RLIMIT_DATA`), and addresses (`RLIMIT_AS`, and `RLIMIT_MEMLOCK` for `mlockall(2)`, which also
//! brings in all that can be touched). So there are no addresses before the first frame needs
//! memory, or a view wants to know where frames are: a pager of which only maps are used has none.
//! They are reserved for the whole budget, without access, and become writable from the start up to
//! the last frame that was used: the allocator gives out the lowest that is free.

use lowtide_sys::memory::{HUGE_PAGE_BYTES, HugePages, Mapping};
use std::io;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// See the module documentation. Memory is given and taken under the pool's lock.
#[derive(Debug)]
pub(crate) struct Arena {
    bytes: usize,
    /// Where the first frame is; null before a frame has memory. It is loaded without order: a
    /// thread has the number of a frame from one that had stored this before.
    base: AtomicPtr<u8>,
    mapping: OnceLock<Mapping>,
    /// Up to this byte there may be huge pages.
    huge: AtomicUsize,
}

impl Arena {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self {
            bytes,
            base: AtomicPtr::new(ptr::null_mut()),
            mapping: OnceLock::new(),
            huge: AtomicUsize::new(bytes),
        }
    }

    /// Bytes of all frames.
    pub(crate) const fn len(&self) -> usize {
        self.bytes
    }

    /// The address of a byte, which must not be touched before it is [populated](Self::populate).
    #[inline]
    pub(crate) fn at(&self, byte: usize) -> *mut u8 {
        self.base.load(Relaxed).wrapping_add(byte)
    }

    /// Where the first frame is, from now on; null if there are no addresses.
    pub(crate) fn base(&self) -> *mut u8 {
        self.mapping().map_or(ptr::null_mut(), Mapping::as_ptr)
    }

    fn mapping(&self) -> io::Result<&Mapping> {
        if let Some(mapping) = self.mapping.get() {
            return Ok(mapping);
        }
        let behind = self.huge.load(Relaxed);
        let huge = if behind > 0 { HugePages::Yes } else { HugePages::Never };
        let made = Mapping::reserve_with(self.bytes, huge)?;
        if behind < self.bytes {
            made.forbid_huge_pages(behind..made.len())?;
        }
        let mapping = self.mapping.get_or_init(|| made);
        self.base.store(mapping.as_ptr(), Relaxed);
        Ok(mapping)
    }

    /// Gives bytes memory. They can be touched from now on.
    ///
    /// # Errors
    /// The kernel's: it has no memory, or no more addresses for this process.
    pub(crate) fn populate(&self, range: Range<usize>) -> io::Result<()> {
        let mapping = self.mapping()?;
        mapping.commit(range.end.next_multiple_of(HUGE_PAGE_BYTES).min(mapping.len()))?;
        mapping.populate(range)
    }

    /// Takes the memory of whole pages, which read as zeroes then.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn discard(&self, range: Range<usize>) -> io::Result<()> {
        self.mapping.get().map_or(Ok(()), |mapping| mapping.discard(range))
    }

    /// From now on no page from a byte on gets more memory than it needs.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn forbid_huge_pages(&self, from: usize) -> io::Result<()> {
        self.huge.fetch_min(from, Relaxed);
        self.mapping.get().map_or(Ok(()), |made| made.forbid_huge_pages(from..made.len()))
    }

    /// Bytes that huge pages back.
    pub(crate) fn huge_bytes(&self) -> usize {
        self.mapping.get().map_or(0, Mapping::huge_bytes)
    }
}
