//! How a file is mapped.

use crate::memory::{Kind, Memory};
use crate::seal::{self, MapIfSafeError};
use crate::{Mmap, MmapMut, MmapRaw};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, RawFd};

/// A descriptor, as [`MmapAsRawDesc`] gives it.
#[derive(Debug)]
pub struct MmapRawDescriptor(RawFd);

/// What can be mapped: a descriptor, or a reference to something that has one.
pub trait MmapAsRawDesc {
    /// Its descriptor.
    fn as_raw_desc(&self) -> MmapRawDescriptor;
}

impl MmapAsRawDesc for RawFd {
    fn as_raw_desc(&self) -> MmapRawDescriptor {
        MmapRawDescriptor(*self)
    }
}

impl<T: AsRawFd> MmapAsRawDesc for &T {
    fn as_raw_desc(&self) -> MmapRawDescriptor {
        MmapRawDescriptor(self.as_raw_fd())
    }
}

/// How a map may change its length.
#[derive(Clone, Copy, Debug, Default)]
pub struct RemapOptions {
    may_move: bool,
}

impl RemapOptions {
    /// The map stays where it is, or keeps its length.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the map may move to other addresses.
    #[must_use]
    pub fn may_move(mut self, may_move: bool) -> Self {
        self.may_move = may_move;
        self
    }

    pub(crate) const fn moves(self) -> bool {
        self.may_move
    }
}

/// How a file is mapped. By default: all of it.
///
/// # Safety
/// The calls that map a file are unsafe because other processes, and other parts of this one, can
/// change the file or make it shorter while references to its bytes live.
#[derive(Clone, Debug, Default)]
pub struct MmapOptions {
    offset: u64,
    len: Option<usize>,
    huge: Option<u8>,
    stack: bool,
    populate: bool,
    no_reserve_swap: bool,
}

const READ: i32 = libc::PROT_READ;
const WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const EXECUTE: i32 = libc::PROT_READ | libc::PROT_EXEC;

/// A length that a slice can have.
fn valid(len: u64) -> io::Result<usize> {
    let too_long =
        || io::Error::new(io::ErrorKind::InvalidData, "memory map length overflows isize");
    isize::try_from(len).map_err(|_| too_long()).map(|len| len as usize)
}

#[expect(clippy::needless_pass_by_value, reason = "as in memmap2")]
impl MmapOptions {
    /// The whole file.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where in the file the map begins, in bytes (default 0).
    pub fn offset(&mut self, offset: u64) -> &mut Self {
        self.offset = offset;
        self
    }

    /// Bytes of the map (default: up to the end of the file; of memory without a file none).
    pub fn len(&mut self, len: usize) -> &mut Self {
        self.len = Some(len);
        self
    }

    /// Memory without a file that is suitable for a stack (`MAP_STACK`).
    pub fn stack(&mut self) -> &mut Self {
        self.stack = true;
        self
    }

    /// Memory without a file in huge pages of `2^bits` bytes (default: the system's).
    pub fn huge(&mut self, page_bits: Option<u8>) -> &mut Self {
        // Bits of zero are the system's size.
        self.huge = Some(page_bits.unwrap_or(0));
        self
    }

    /// Brings pages in before the call returns (`MAP_POPULATE`). Of a map that is kept within the
    /// budget, as many as there is room for are on their way then.
    pub fn populate(&mut self) -> &mut Self {
        self.populate = true;
        self
    }

    /// Sets no swap aside (`MAP_NORESERVE`).
    pub fn no_reserve_swap(&mut self) -> &mut Self {
        self.no_reserve_swap = true;
        self
    }

    /// Means something on Windows only.
    pub fn no_probe_handle(&mut self) -> &mut Self {
        self
    }

    fn flags(&self) -> i32 {
        let mut flags = 0;
        if self.populate {
            flags |= libc::MAP_POPULATE;
        }
        if self.no_reserve_swap {
            flags |= libc::MAP_NORESERVE;
        }
        flags
    }

    fn file_len(&self, file: RawFd) -> io::Result<usize> {
        if let Some(len) = self.len {
            return valid(len as u64);
        }
        // SAFETY: the descriptor is the caller's, and stays open: the file is not dropped.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(open(file)?) });
        let len = file.metadata()?.len();
        let rest = len.checked_sub(self.offset).ok_or_else(|| {
            let text = "memory map offset is larger than length";
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        valid(rest)
    }

    fn memory(&self, file: RawFd, access: i32, sharing: i32, keep: bool) -> io::Result<Memory> {
        let len = self.file_len(file)?;
        // SAFETY: the caller's descriptor is open during the call.
        let file = unsafe { BorrowedFd::borrow_raw(open(file)?) };
        Memory::of_file(
            file,
            self.offset,
            len,
            Kind { access, flags: sharing | self.flags(), keep },
        )
    }

    /// Maps the file for reading.
    ///
    /// # Errors
    /// What the kernel refuses; `InvalidData` for an offset past the end, or a length that no slice
    /// has; `InvalidInput` for a budget that makes no sense.
    ///
    /// # Safety
    /// See the [type](Self).
    pub unsafe fn map<T: MmapAsRawDesc>(&self, file: T) -> io::Result<Mmap> {
        self.memory(file.as_raw_desc().0, READ, libc::MAP_SHARED, true).map(Mmap)
    }

    /// Maps the file for reading and executing. Not within the budget.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    ///
    /// # Safety
    /// See the [type](Self).
    pub unsafe fn map_exec<T: MmapAsRawDesc>(&self, file: T) -> io::Result<Mmap> {
        self.memory(file.as_raw_desc().0, EXECUTE, libc::MAP_SHARED, false).map(Mmap)
    }

    /// Maps the file for reading and writing.
    ///
    /// # Errors
    /// As [`map`](Self::map); `PermissionDenied` for a descriptor without the right to write.
    ///
    /// # Safety
    /// See the [type](Self).
    pub unsafe fn map_mut<T: MmapAsRawDesc>(&self, file: T) -> io::Result<MmapMut> {
        self.memory(file.as_raw_desc().0, WRITE, libc::MAP_SHARED, true).map(MmapMut)
    }

    /// Maps the file; stores are the map's own. Not within the budget.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    ///
    /// # Safety
    /// See the [type](Self).
    pub unsafe fn map_copy<T: MmapAsRawDesc>(&self, file: T) -> io::Result<MmapMut> {
        self.memory(file.as_raw_desc().0, WRITE, libc::MAP_PRIVATE, false).map(MmapMut)
    }

    /// As [`map_copy`](Self::map_copy), for reading until [`Mmap::make_mut`].
    ///
    /// # Errors
    /// As [`map`](Self::map).
    ///
    /// # Safety
    /// See the [type](Self).
    pub unsafe fn map_copy_read_only<T: MmapAsRawDesc>(&self, file: T) -> io::Result<Mmap> {
        self.memory(file.as_raw_desc().0, READ, libc::MAP_PRIVATE, true).map(Mmap)
    }

    /// Maps a file that no process can change: a memfd that is sealed against writing and
    /// shrinking, or a file under fs-verity.
    ///
    /// # Errors
    /// [`MapIfSafeError`] says whether the file can be changed, or cannot be mapped.
    pub fn map_if_safe<T: MmapAsRawDesc>(&self, file: T) -> Result<Mmap, MapIfSafeError> {
        let file = file.as_raw_desc().0;
        let len = self.file_len(file).map_err(MapIfSafeError::failed)?;
        seal::check(file, self.offset, len)?;
        let memory = self.memory(file, READ, libc::MAP_SHARED, true);
        memory.map(Mmap).map_err(MapIfSafeError::failed)
    }

    /// Memory without a file. Not within the budget.
    ///
    /// # Errors
    /// What the kernel refuses; `InvalidData` for a length that no slice has.
    pub fn map_anon(&self) -> io::Result<MmapMut> {
        let len = valid(self.len.unwrap_or(0) as u64)?;
        let mut flags = self.flags();
        if self.stack {
            flags |= libc::MAP_STACK;
        }
        if let Some(bits) = self.huge {
            flags |= libc::MAP_HUGETLB;
            flags |= (i32::from(bits) & libc::MAP_HUGE_MASK) << libc::MAP_HUGE_SHIFT;
        }
        Memory::anonymous(len, flags).map(MmapMut)
    }

    /// Maps the file for reading and writing, without references to its bytes.
    ///
    /// # Errors
    /// As [`map_mut`](Self::map_mut).
    pub fn map_raw<T: MmapAsRawDesc>(&self, file: T) -> io::Result<MmapRaw> {
        self.memory(file.as_raw_desc().0, WRITE, libc::MAP_SHARED, true).map(MmapRaw)
    }

    /// Maps the file for reading, without references to its bytes.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn map_raw_read_only<T: MmapAsRawDesc>(&self, file: T) -> io::Result<MmapRaw> {
        self.memory(file.as_raw_desc().0, READ, libc::MAP_SHARED, true).map(MmapRaw)
    }
}

/// A descriptor that is open now.
fn open(file: RawFd) -> io::Result<RawFd> {
    // SAFETY: the call takes any number.
    if unsafe { libc::fcntl(file, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}
