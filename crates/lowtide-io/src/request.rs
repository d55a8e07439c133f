//! The requests that a backend takes, and who owns the memory meanwhile.
//!
//! A request names memory by address, because a frame of the arena is not a Rust object: it is a
//! range that the engine has handed out for this one transfer. The kernel, another thread or a DMA
//! engine writes to it while the requesting thread does other work, so no borrow could describe it.
//! The promise that makes the rest of the module safe is therefore given once, where a request is
//! made:
//!
//! * the memory stays mapped, and the descriptor open, from the making of the request until its
//!   completion has been returned (or, for the calls that wait, until they return);
//! * for a [`Read`] or a [`ReadRun`], no other code reads or writes that memory in between;
//! * for a [`Write`], the memory may be read by others. A store to it during the transfer is
//!   allowed and may or may not reach the file: write-back protects a page before the request,
//!   where that matters.
//!
//! Dropping a [`Batch`](super::Batch) or a [`Writer`](super::Writer) early waits for what is in
//! flight, so the promise ends there at the latest. [`Writer::abandon`](super::Writer::abandon)
//! does not wait: after it the promise never ends. A read that its thread has
//! [left](super::Batch::leave) ends in another thread.
//!
//! # Safety
//!
//! This file opts in to unsafe code for the constructors that take the promise (`unsafe fn`) and
//! for `Send`, which raw pointers do not have by themselves.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;

/// The most bytes that one registered buffer may span: the kernel's limit
/// (`io_uring_register(2)`, `IORING_REGISTER_BUFFERS`: each buffer at most 1 GiB).
pub(super) const REGISTERED_MAX: usize = 1 << 30;

/// One contiguous read from a file into the arena.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// The file, usually opened with `O_DIRECT`.
    pub(super) fd: RawFd,
    /// Where in the file the read starts, in bytes.
    pub(super) offset: u64,
    /// Where the bytes go. With `O_DIRECT`: aligned to the device's logical block.
    pub(super) ptr: *mut u8,
    /// How many bytes are wanted.
    pub(super) len: u32,
    /// Given back in the completion. The backend does not look at it.
    pub(super) user: u64,
}

// SAFETY: the pointer is only an address for the kernel to fill. The promise of `Read::new` covers
// the memory whichever thread passes the address to the kernel.
unsafe impl Send for Read {}

impl Read {
    /// Describes a read of `len` bytes at `offset` into the memory at `ptr`.
    ///
    /// # Safety
    ///
    /// `ptr..ptr + len` is writable memory, and it and `fd` stay so until the completion of this
    /// request is returned; no other code touches that memory in between.
    pub unsafe fn new(fd: RawFd, offset: u64, ptr: *mut u8, len: u32, user: u64) -> Read {
        Read { fd, offset, ptr, len, user }
    }
}

/// One piece of memory in a [`ReadRun`] or a [`Write`]: an address and a length, laid out as the
/// kernel's `iovec`.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Slice(libc::iovec);

// SAFETY: the address is only passed to the kernel, which transfers to or from it; the promise of
// `ReadRun::new` or `Write::new` covers the memory whichever thread does so.
unsafe impl Send for Slice {}

// SAFETY: as above; a shared `Slice` gives away nothing but two numbers.
unsafe impl Sync for Slice {}

impl Slice {
    /// The memory at `ptr`, `len` bytes long. With `O_DIRECT` both must be multiples of the
    /// device's logical block.
    pub fn new(ptr: *const u8, len: usize) -> Slice {
        Slice(libc::iovec { iov_base: ptr.cast_mut().cast(), iov_len: len })
    }

    /// How many bytes the slice spans.
    pub fn bytes(&self) -> usize {
        self.0.iov_len
    }

    /// The first `count` bytes of the slice (`count` at most `len`).
    pub(super) fn head(&self, count: usize) -> Slice {
        Slice::new(self.0.iov_base.cast(), count)
    }

    /// The slice without its first `count` bytes (`count` at most `len`).
    pub(super) fn tail(&self, count: usize) -> Slice {
        Slice::new(self.0.iov_base.cast::<u8>().wrapping_add(count), self.0.iov_len - count)
    }
}

/// One read of a contiguous range of a file into memory anywhere.
///
/// The number of slices is not limited, as for a [`Write`].
#[derive(Debug)]
pub struct ReadRun {
    /// The file, usually opened with `O_DIRECT`.
    pub(super) fd: RawFd,
    /// Where in the file the read starts, in bytes.
    pub(super) offset: u64,
    /// The memory, in file order.
    pub(super) slices: Vec<Slice>,
    /// Given back in the completion. The backend does not look at it.
    pub(super) user: u64,
}

impl ReadRun {
    /// Describes a read at `offset` that fills all `slices`, one after the other.
    ///
    /// # Safety
    ///
    /// Each slice is writable memory, and it and `fd` stay so until the completion of this request
    /// is returned; no other code touches that memory in between.
    pub unsafe fn new(fd: RawFd, offset: u64, slices: Vec<Slice>, user: u64) -> ReadRun {
        ReadRun { fd, offset, slices, user }
    }
}

/// One run of pages to write: contiguous in the file, anywhere in memory.
///
/// The number of slices is not limited; more than `IOV_MAX` are written in several transfers, in
/// order.
#[derive(Debug, Clone)]
pub struct Write {
    /// What the file is called.
    pub(super) path: Arc<PathBuf>,
    /// The file, usually opened with `O_DIRECT`.
    pub(super) fd: RawFd,
    /// Where in the file the run starts, in bytes.
    pub(super) offset: u64,
    /// The memory, in file order.
    pub(super) slices: Vec<Slice>,
    /// Given back in the completion. The backend does not look at it.
    pub(super) user: u64,
}

impl Write {
    /// Describes a write of all `slices`, one after the other, at `offset`.
    ///
    /// # Safety
    ///
    /// Each slice is readable memory, and it and `fd` stay so until the completion of this request
    /// is returned, or until the call that takes it returns, if it is one that waits.
    pub unsafe fn new(
        path: &Arc<PathBuf>,
        fd: RawFd,
        offset: u64,
        slices: Vec<Slice>,
        user: u64,
    ) -> Write {
        Write { path: Arc::clone(path), fd, offset, slices, user }
    }

    /// How many bytes the run spans.
    pub fn bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.bytes() as u64).sum()
    }
}

/// The end of one request of a [`Batch`](super::Batch) or a [`Writer`](super::Writer).
#[derive(Debug)]
pub struct Completion {
    /// The `user` of the request.
    pub user: u64,
    /// Bytes moved. A read that returns fewer bytes than requested has met the end of the file. The
    /// content of the rest of the memory is then undefined (a direct read fills its last block),
    /// and so is all of it after an error. A write moves all or fails, and then any part of it may
    /// have reached the file. A sync moves none.
    pub result: io::Result<u32>,
}

/// The range all frames lie in, for a backend that may register it with the kernel.
///
/// Registering pins the memory: every page of the range becomes resident, is charged to the process
/// at once, and counts against `RLIMIT_MEMLOCK` unless the process has `CAP_IPC_LOCK`. A refusal
/// only costs speed. A child made by `fork` gets a copy of pinned memory at once unless the range
/// is excluded with `MADV_DONTFORK`.
#[derive(Debug, Clone, Copy)]
pub struct Arena {
    base: usize,
    len: usize,
}

impl Arena {
    /// Describes the `len` bytes at `base`.
    ///
    /// # Safety
    ///
    /// While a backend that was given this arena exists, the range stays mapped *to the same
    /// physical pages*: no `munmap`, `mremap`, `MADV_DONTNEED`, `MADV_REMOVE` or hole punched in
    /// it. The kernel writes to the pages that were there when it registered them; a page exchanged
    /// behind its back would silently miss the bytes of every later read.
    pub unsafe fn new(base: *mut u8, len: usize) -> Arena {
        Arena { base: base.addr(), len }
    }

    /// How many bytes the arena spans.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// The arena cut into pieces that the kernel accepts as registered buffers.
    pub(super) fn pieces(&self) -> Vec<libc::iovec> {
        (0..self.len)
            .step_by(REGISTERED_MAX)
            .map(|start| libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(self.base + start),
                iov_len: REGISTERED_MAX.min(self.len - start),
            })
            .collect()
    }

    /// The piece that `ptr..ptr + len` lies in, or `None` when it is not inside exactly one.
    pub(super) fn piece_of(&self, ptr: *const u8, len: usize) -> Option<u16> {
        let start = ptr.addr().checked_sub(self.base)?;
        let end = start.checked_add(len).filter(|&end| end <= self.len && len > 0)?;
        let piece = start / REGISTERED_MAX;
        (piece == (end - 1) / REGISTERED_MAX).then(|| u16::try_from(piece).ok()).flatten()
    }
}

/// Refuses a range that no file can have. Negative offsets would otherwise reach the kernel, where
/// io_uring takes −1 to mean "the current position".
pub(super) fn check_range(offset: u64, len: u64) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_is_registered_in_pieces_of_one_gibibyte() {
        // SAFETY: the range is only used for arithmetic here, no backend sees it.
        let arena =
            unsafe { Arena::new(std::ptr::without_provenance_mut(1 << 40), (5 << 29) + 4096) };
        let lengths: Vec<usize> = arena.pieces().iter().map(|piece| piece.iov_len).collect();
        assert_eq!(lengths, [1 << 30, 1 << 30, (1 << 29) + 4096]);

        let at = |offset: usize| std::ptr::without_provenance::<u8>((1 << 40) + offset);
        assert_eq!(arena.piece_of(at(0), 4096), Some(0));
        assert_eq!(arena.piece_of(at((1 << 30) - 4096), 4096), Some(0));
        assert_eq!(arena.piece_of(at((1 << 30) - 4096), 8192), None, "crosses a piece");
        assert_eq!(arena.piece_of(at(5 << 29), 4096), Some(2));
        assert_eq!(arena.piece_of(at(5 << 29), 8192), None, "beyond the end");
        assert_eq!(
            arena.piece_of(std::ptr::without_provenance(4096), 4096),
            None,
            "before the start"
        );
    }

    #[test]
    fn ranges_beyond_what_a_file_can_hold_are_refused() {
        assert!(check_range(0, u64::from(u32::MAX)).is_ok());
        assert!(check_range(i64::MAX as u64 - 4096, 4096).is_ok());
        assert!(check_range(i64::MAX as u64 - 4095, 4096).is_err());
        assert!(
            check_range(u64::MAX, 4096).is_err(),
            "io_uring would read at the current position"
        );
    }
}
