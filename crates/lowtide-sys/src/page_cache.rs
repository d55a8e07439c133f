//! The page cache of one file or mapping: what is in it, how pages leave it and return.
//!
//! # Model
//!
//! A page of a file leaves memory in two steps. First every mapping must give it up: *zapping*
//! removes the entries of the page table and moves their accessed and dirty bits to the page. Then
//! the cache drops it, if it is clean and idle; a dirty page must be written back before.
//!
//! | call | mappings | page cache | contents |
//! |---|---|---|---|
//! | [`zap`] | this one gives pages up | keeps them | kept if shared, **lost** if private |
//! | [`drop_cached`] | all keep theirs | drops clean, idle, unmapped pages | kept |
//! | [`pageout`] | gives up pages of this process alone | writes back, drops | kept |
//! | [`punch`] | all give the range up | drops it | **lost**: a hole reads as zeroes |
//!
//! The order for one clean page is zap, then drop; `pageout` does both, at a higher price, and only
//! for files that this user may write or owns. On a memfd there is no device: `drop_cached` does
//! nothing, `pageout` needs swap, and `punch` is how memory is given back.
//!
//! A page that `write(2)` brought in can be part of a larger folio. A cache drops folios whole, so
//! a range that covers a part of one drops nothing there.
//!
//! # Safety
//!
//! Advice that keeps contents is safe for any address. [`zap`] may destroy contents and is unsafe.
//! All calls that write, write to structures of this file.

#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{Access, AtFlags, FallocateFlags, accessat};
use rustix::io::Errno;
use rustix::mm;

use crate::call::{address, length};
use crate::memory::page_size;
use crate::pagemap::mincore;
use crate::shared::{self, SharedMapping, Sharing};

/// The number of `cachestat(2)`, the same on every architecture that numbers new calls alike.
const SYS_CACHESTAT: libc::c_long = 451;

/// Bytes of a file that are mapped at a time to be counted.
const COUNTED_AT_ONCE: u64 = 64 << 20;

/// How a range of memory will be used. None of these changes contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// As the kernel thinks best.
    Normal,
    /// At random: no reading ahead. Neighbours that are cached are still mapped with a fault.
    Random,
    /// From front to back: read ahead far.
    Sequential,
    /// The pages are not needed soon: first to go (Linux 5.4).
    Cold,
    /// No huge pages.
    NoHugePages,
    /// Huge pages where they fit.
    HugePages,
    /// Not part of a core dump.
    DontDump,
    /// Part of it again.
    DoDump,
}

/// How much of a part of a file the page cache has, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CacheStat {
    /// In memory.
    pub cached: u64,
    /// In memory and changed.
    pub dirty: u64,
    /// Being written back.
    pub writeback: u64,
    /// Once in memory, evicted since, and remembered.
    pub evicted: u64,
    /// Those of the evicted whose return would count as a refault of the working set.
    pub recently_evicted: u64,
}

/// Drops the clean, idle, unmapped pages of a part of a file from the page cache
/// (`POSIX_FADV_DONTNEED`); `len` 0 means to the end. Only whole pages, and whole folios, inside
/// the range. The kernel starts writing dirty pages back and keeps them.
///
/// Reports no count: compare [`cachestat`].
///
/// # Errors
///
/// `EINVAL` or `ESPIPE` for what has no page cache.
pub fn drop_cached(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    let len = std::num::NonZeroU64::new(len);
    Ok(rustix::fs::fadvise(fd, offset, len, rustix::fs::Advice::DontNeed)?)
}

/// Starts reading a part of a file into the page cache, and does not wait
/// (`POSIX_FADV_WILLNEED`); `len` 0 means to the end. The kernel reads at most its own window (a
/// size of the device's) in one call. Pages come in as folios of the smallest size.
///
/// # Errors
///
/// `EINVAL` or `ESPIPE` for what has no page cache.
pub fn read_ahead(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    let len = std::num::NonZeroU64::new(len);
    Ok(rustix::fs::fadvise(fd, offset, len, rustix::fs::Advice::WillNeed)?)
}

/// Starts to write the dirty pages of a part of a file, and does not wait for them
/// (`sync_file_range(2)`); `len` 0 means to the end. It may wait for room in the device's queue. It
/// makes nothing durable.
///
/// # Errors
///
/// `InvalidInput` for an impossible range; what the kernel says of earlier writes (`EIO`,
/// `ENOSPC`).
pub fn start_writing_range(fd: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    let number = |n: u64| {
        libc::off64_t::try_from(n).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("no file has a byte {n}"))
        })
    };
    let (offset, len, how) = (number(offset)?, number(len)?, libc::SYNC_FILE_RANGE_WRITE);
    let fd = fd.as_fd().as_raw_fd();
    // The C library's function is one in which a thread may be cancelled, and so unwound.
    // SAFETY: The call takes numbers only.
    let failed = unsafe { libc::syscall(libc::SYS_sync_file_range, fd, offset, len, how) } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Removes the entries of the page table for `range` (addresses, whole pages) in this process. On a
/// shared mapping the next touch maps the page of the file again, and dirty bits move to the page.
///
/// # Safety
///
/// On a **private** mapping of a file, changed pages return to the file's contents; anonymous
/// memory returns to zeroes: there no reference into the range may exist, and its contents must
/// not be needed. On a shared mapping nothing changes for readers.
///
/// # Errors
///
/// `ENOMEM` for addresses without memory, `EINVAL` for locked memory or a start inside a page.
pub unsafe fn zap(range: Range<usize>) -> io::Result<()> {
    let len = length("zap", &range)?;
    // SAFETY: The caller accepts what this does to the memory.
    Ok(unsafe { mm::madvise(address(range.start), len, mm::Advice::LinuxDontNeed) }?)
}

/// Writes back and drops the pages of `range` that only this process maps (`MADV_PAGEOUT`, Linux
/// 5.4). On memory without a file, swaps out. Pages that other processes map stay.
///
/// # Errors
///
/// As [`advise`]. Files that this user neither owns nor may write are passed over silently.
pub fn pageout(range: Range<usize>) -> io::Result<()> {
    keep("page out", range, mm::Advice::LinuxPageOut)
}

/// Reads and maps every page of `range` (`MADV_POPULATE_READ`, Linux 5.14), and returns when that
/// is done.
///
/// # Errors
///
/// `EINVAL` before Linux 5.14, `EFAULT` where a touch would be `SIGBUS`, `EHWPOISON` for poisoned
/// pages, `ENOMEM` for addresses without memory.
pub fn populate_read(range: Range<usize>) -> io::Result<()> {
    loop {
        match keep("populate", range.clone(), mm::Advice::LinuxPopulateRead) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Starts reading `range` of a file mapping into the page cache, and does not wait
/// (`MADV_WILLNEED`).
///
/// # Errors
///
/// As [`advise`].
pub fn will_need(range: Range<usize>) -> io::Result<()> {
    keep("prefetch", range, mm::Advice::WillNeed)
}

/// Keeps `range` from children of `fork(2)`: there a touch is `SIGSEGV`.
///
/// # Errors
///
/// As [`advise`].
pub fn dont_fork(range: Range<usize>) -> io::Result<()> {
    keep("keep from children", range, mm::Advice::LinuxDontFork)
}

/// Says how `range` (addresses, whole pages) will be used.
///
/// # Errors
///
/// `ENOMEM` for addresses without memory, `EINVAL` for a start inside a page or advice that this
/// kernel does not know.
pub fn advise(range: Range<usize>, advice: Advice) -> io::Result<()> {
    let advice = match advice {
        Advice::Normal => mm::Advice::Normal,
        Advice::Random => mm::Advice::Random,
        Advice::Sequential => mm::Advice::Sequential,
        Advice::Cold => mm::Advice::LinuxCold,
        Advice::NoHugePages => mm::Advice::LinuxNoHugepage,
        Advice::HugePages => mm::Advice::LinuxHugepage,
        Advice::DontDump => mm::Advice::LinuxDontDump,
        Advice::DoDump => mm::Advice::LinuxDoDump,
    };
    keep("advise on", range, advice)
}

/// Gives advice that keeps contents.
fn keep(what: &str, range: Range<usize>, advice: mm::Advice) -> io::Result<()> {
    let len = length(what, &range)?;
    // SAFETY: Every caller gives advice that changes no byte that a thread of this process reads.
    Ok(unsafe { mm::madvise(address(range.start), len, advice) }?)
}

/// Bytes that the kernel reads ahead of a stream of a file, at most: `read_ahead_kb` of its device.
/// Opens a file of `/sys`.
///
/// # Errors
///
/// That of `fstat(2)`, `ENOENT` where the file is on no device that has one, as in overlays, or
/// without `/sys`.
pub fn kernel_read_ahead(file: impl AsFd) -> io::Result<u64> {
    let device = rustix::fs::fstat(file)?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let disk = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    // A part of a disk has the queue of the disk.
    let part = format!("/sys/dev/block/{major}:{minor}/../queue/read_ahead_kb");
    let text = std::fs::read_to_string(disk).or_else(|_| std::fs::read_to_string(part))?;
    let kib: u64 = text.trim().parse().map_err(io::Error::other)?;
    Ok(kib << 10)
}

/// How much of `len` bytes of a file from `offset` the page cache has; `len` 0 means to the end.
/// Needs no mapping. Costs one system call that walks the cached part of the range.
///
/// # Errors
///
/// `Unsupported` before Linux 6.5; `PermissionDenied` for files that this user neither owns nor may
/// write (since 6.14); `EBADF`, `EOPNOTSUPP` for files of huge pages.
pub fn cachestat(fd: impl AsFd, offset: u64, len: u64) -> io::Result<CacheStat> {
    let range = [offset, len];
    let mut stat = CacheStat::default();
    // SAFETY: The call reads two 64-bit fields, writes the five of `CacheStat`, and touches nothing
    // else.
    let failed = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_fd().as_raw_fd(),
            range.as_ptr(),
            &raw mut stat,
            0 as libc::c_uint,
        )
    } != 0;
    if failed {
        let error = io::Error::last_os_error();
        return Err(match Errno::from_io_error(&error) {
            Some(Errno::NOSYS) => io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel cannot report its page cache (cachestat, Linux 6.5)",
            ),
            _ => error,
        });
    }
    Ok(stat)
}

/// How many pages of a file the page cache has, by [`cachestat`], or where the kernel has no such
/// call by `mincore(2)` on a mapping made for it. That costs some nanoseconds for each page of the
/// file, cached or not.
///
/// # Errors
///
/// `PermissionDenied` for files that this user neither owns nor may write, where the kernel tells
/// such users nothing; those of `mmap(2)`.
pub fn cached_pages(fd: impl AsFd) -> io::Result<u64> {
    match cachestat(&fd, 0, 0) {
        Ok(stat) => Ok(stat.cached),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => count_resident(fd.as_fd()),
        Err(error) => Err(error),
    }
}

fn count_resident(fd: BorrowedFd<'_>) -> io::Result<u64> {
    if !is_visible(fd) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let len = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or_default();
    let (mut cached, mut resident) = (0, Vec::new());
    for offset in (0..len).step_by(COUNTED_AT_ONCE as usize) {
        let part = (len - offset).min(COUNTED_AT_ONCE) as usize;
        let mapping =
            SharedMapping::map(fd, offset, part, shared::Rights::Read, Sharing::Shared, false)?;
        resident.clear();
        resident.resize(mapping.len() / page_size(), 0);
        mincore(mapping.addresses(), &mut resident)?;
        cached += resident.iter().filter(|byte| **byte & 1 == 1).count() as u64;
    }
    Ok(cached)
}

/// Whether the kernel says what its page cache has of a file, and pages it out for this user:
/// who owns the file or may write it. To others `mincore(2)` says that all of it is cached.
#[must_use]
pub fn is_visible(fd: impl AsFd) -> bool {
    let owner = rustix::fs::fstat(&fd).map(|stat| stat.st_uid);
    if owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw()) {
        return true;
    }
    let itself = AtFlags::EMPTY_PATH | AtFlags::EACCESS;
    accessat(fd, c"", Access::WRITE_OK, itself).is_ok()
}

/// Makes a part of a file a hole: its memory (and space on a device) is given back, and it reads as
/// zeroes. The size of the file stays. Parts of pages at the ends are overwritten with zeroes.
///
/// # Errors
///
/// `EOPNOTSUPP` where the file system has no holes, `EPERM` for a file sealed against writing,
/// `InvalidInput` for an empty or descending range.
pub fn punch(fd: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let len = range.end.checked_sub(range.start).filter(|&len| len > 0).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("cannot punch {range:?}: it is empty"))
    })?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    loop {
        match rustix::fs::fallocate(&fd, flags, range.start, len) {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::{Rights, memfd};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const PAGES: usize = 64;

    /// A file on a disk whose pages are clean and each a folio of its own, and a mapping of it;
    /// nothing where the machine cannot show what the cache does.
    fn file_on_disk() -> Option<(File, SharedMapping)> {
        let page = page_size();
        let file = tempfile::tempfile().unwrap();
        if rustix::fs::fstatfs(&file).unwrap().f_type == 0x0102_1994 {
            eprintln!("SKIPPED: the temporary directory is not on a disk");
            return None;
        }
        for n in 0..PAGES {
            file.write_at(&vec![n as u8 + 1; page], (n * page) as u64).unwrap();
        }
        file.sync_all().unwrap();
        match cachestat(&file, 0, 0) {
            Ok(stat) => assert_eq!((stat.cached, stat.dirty), (PAGES as u64, 0)),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                eprintln!("SKIPPED: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        let len = PAGES * page;
        let map = SharedMapping::map(&file, 0, len, Rights::Read, Sharing::Shared, false).unwrap();
        Some((file, map))
    }

    fn first_byte(map: &SharedMapping, page: usize) -> u8 {
        assert!(page < PAGES);
        // SAFETY: The page is inside the mapping.
        let byte = unsafe { map.as_ptr().add(page * page_size()) };
        // SAFETY: The byte is readable.
        unsafe { byte.read_volatile() }
    }

    fn cached(file: &File) -> u64 {
        cachestat(file, 0, 0).unwrap().cached
    }

    #[test]
    fn a_mapped_page_is_dropped_only_after_it_was_zapped() {
        let Some((file, map)) = file_on_disk() else { return };
        drop_cached(&file, 0, 0).unwrap();
        assert_eq!(cached(&file), 0, "no page was mapped");
        populate_read(map.addresses()).unwrap();
        assert_eq!(cached(&file), PAGES as u64);
        drop_cached(&file, 0, 0).unwrap();
        assert_eq!(cached(&file), PAGES as u64, "mapped pages stay");
        // SAFETY: The mapping is shared, so its contents are kept.
        unsafe { zap(map.addresses()) }.unwrap();
        assert_eq!(cached(&file), PAGES as u64, "zapping alone drops nothing");
        drop_cached(&file, 0, 0).unwrap();
        assert_eq!(cached(&file), 0);
        let mut resident = vec![1; PAGES];
        mincore(map.addresses(), &mut resident).unwrap();
        assert!(resident.iter().all(|byte| byte & 1 == 0));
        assert_eq!((first_byte(&map, 0), first_byte(&map, PAGES - 1)), (1, PAGES as u8));
    }

    #[test]
    fn paging_out_drops_mapped_pages_and_keeps_contents() {
        let Some((file, map)) = file_on_disk() else { return };
        drop_cached(&file, 0, 0).unwrap();
        populate_read(map.addresses()).unwrap();
        pageout(map.addresses()).unwrap();
        assert!(cached(&file) < PAGES as u64, "the kernel dropped none of {PAGES} idle pages");
        assert_eq!((first_byte(&map, 0), first_byte(&map, PAGES - 1)), (1, PAGES as u8));
    }

    #[test]
    fn cached_pages_are_counted_alike_with_and_without_cachestat() {
        let Some((file, map)) = file_on_disk() else { return };
        drop_cached(&file, 0, 0).unwrap();
        first_byte(&map, 7);
        // Neighbours may have come, too.
        let cached = cached(&file);
        assert!(cached >= 1);
        assert_eq!(cached_pages(&file).unwrap(), cached);
        assert_eq!(count_resident(file.as_fd()).unwrap(), cached);
    }

    #[test]
    fn dirty_pages_are_counted() {
        let Some((file, _map)) = file_on_disk() else { return };
        file.write_at(&[9], 5 * page_size() as u64).unwrap();
        let stat = cachestat(&file, 5 * page_size() as u64, page_size() as u64).unwrap();
        assert_eq!(stat.cached, 1);
        assert_eq!(stat.dirty + stat.writeback, 1);
    }

    #[test]
    fn dirty_pages_are_written_on_request() {
        let Some((file, _map)) = file_on_disk() else { return };
        file.write_at(&[9; 100], 0).unwrap();
        assert_eq!(cachestat(&file, 0, 0).unwrap().dirty, 1);
        start_writing_range(&file, 0, page_size() as u64).unwrap();
        assert_eq!(cachestat(&file, 0, 0).unwrap().dirty, 0, "it is on its way");
        let error = start_writing_range(&file, u64::MAX, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn punching_gives_memory_back_and_leaves_zeroes() {
        let page = page_size() as u64;
        let file = memfd("punch", 8 * page).unwrap();
        file.write_at(&vec![3; 8 * page as usize], 0).unwrap();
        let before = rustix::fs::fstat(&file).unwrap().st_blocks;
        punch(&file, 2 * page..4 * page).unwrap();
        let after = rustix::fs::fstat(&file).unwrap();
        assert_eq!((before - after.st_blocks) as u64 * 512, 2 * page);
        assert_eq!(after.st_size as u64, 8 * page);
        let mut byte = [1];
        file.read_exact_at(&mut byte, 2 * page).unwrap();
        assert_eq!(byte, [0]);
        file.read_exact_at(&mut byte, 4 * page).unwrap();
        assert_eq!(byte, [3]);
        let empty = punch(&file, page..page).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn advice_reaches_the_kernel() {
        let page = page_size();
        let file = memfd("advice", page as u64).unwrap();
        let map = SharedMapping::map(&file, 0, page, Rights::Read, Sharing::Shared, false).unwrap();
        dont_fork(map.addresses()).unwrap();
        for advice in [Advice::Sequential, Advice::Random, Advice::DontDump, Advice::NoHugePages] {
            advise(map.addresses(), advice).unwrap();
        }
        will_need(map.addresses()).unwrap();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", map.addresses().start);
        let flags = smaps
            .lines()
            .skip_while(|line| !line.starts_with(&start))
            .find(|line| line.starts_with("VmFlags:"))
            .unwrap();
        for flag in [" rr", " dc", " dd", " nh"] {
            assert!(flags.contains(flag), "{flag} in {flags}");
        }
        advise(map.addresses(), Advice::Normal).unwrap();
        let unmapped = map.addresses();
        drop(map);
        assert!(advise(unmapped.start..unmapped.start - 1, Advice::Normal).is_err());
    }
}
