//! Which pages of a mapping are present, and which were written: `PAGEMAP_SCAN`.
//!
//! # Model
//!
//! Since Linux 6.7 an `ioctl` on `/proc/self/pagemap` walks the page tables of a range and reports
//! runs of pages by [`Categories`]. A [`Query`] selects pages by a formula over the categories:
//!
//! ```text
//!   c         = the page's categories XOR inverted
//!   selected  = (c has all of `required`)  and  (`any` is empty, or c has one of `any`)
//!   reported  = categories AND returned; neighbours with equal ones are one region
//! ```
//!
//! With [`Query::write_protect`] the walk also protects the selected pages, atomically with looking
//! at each: the way to collect what was written since the last collection. That needs memory which
//! is registered for asynchronous write protection ([`crate::userfault`]).
//!
//! # What an entry says
//!
//! `WRITTEN` means *not write-protected by userfaultfd*, so in memory without such protection all
//! pages are, even those that do not exist. Measured on Linux 6.18, for a shared mapping of a memfd
//! registered for missing pages and asynchronous write protection:
//!
//! | page | categories, without `WPALLOWED` |
//! |---|---|
//! | never touched, never protected | `WRITTEN` |
//! | never touched, protected | `SWAPPED` |
//! | inserted protected, or protected later | `PRESENT`, `FILE` |
//! | then stored to | `PRESENT`, `FILE`, `WRITTEN` |
//! | protected, then zapped (not stored to) | `SWAPPED` |
//! | stored to, then zapped | `WRITTEN` |
//! | zapped, then loaded from | as before zapping |
//! | protected, then punched (not stored to) | `SWAPPED`: the mark outlives the page |
//! | stored to, then punched | `WRITTEN` |
//! | punched, then inserted unprotected | `PRESENT`, `FILE`, `WRITTEN` |
//!
//! The mark of a protected page without memory is a special entry, and the scan calls it `SWAPPED`.
//!
//! # Without it
//!
//! [`mincore`] works on every kernel, but says only whether the *page cache* has a page, not
//! whether it is mapped here, so it sees no accesses.
//!
//! # Safety
//!
//! The walk writes to memory that a vector owns and has reserved, as many regions as the call was
//! allowed to. Write protection changes no contents; where it is not asynchronous the kernel
//! refuses it.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use bitflags::bitflags;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, opcode};

use crate::call::{address, exchange, length};
use crate::memory::page_size;

const SCAN: Opcode = opcode::read_write::<Argument>(b'f', 16);
const WRITE_PROTECT_MATCHING: u64 = 1;
const CHECK_ASYNC: u64 = 1 << 1;
/// How many regions one call may report. Bounds the memory that is reserved ahead.
const REGIONS_A_CALL: usize = 512;

bitflags! {
    /// What the page tables say about a page.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[repr(transparent)]
    pub struct Categories: u64 {
        /// In memory that is registered for asynchronous write protection.
        const WPALLOWED = 1;
        /// Not write-protected by userfaultfd.
        const WRITTEN = 1 << 1;
        /// Of a file or of shared memory.
        const FILE = 1 << 2;
        /// Mapped.
        const PRESENT = 1 << 3;
        /// Swapped out, or only a mark without memory.
        const SWAPPED = 1 << 4;
        /// The shared page of zeroes.
        const PFNZERO = 1 << 5;
        /// Part of a huge entry.
        const HUGE = 1 << 6;
        /// Soft-dirty (only on kernels with that option).
        const SOFT_DIRTY = 1 << 7;
    }
}

/// Which pages a scan selects, and what it says and does about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Categories that count when they are absent.
    pub inverted: Categories,
    /// Categories that a page must have, all of them.
    pub required: Categories,
    /// Categories of which a page must have one, unless this is empty.
    pub any: Categories,
    /// Categories that are reported.
    pub returned: Categories,
    /// Protect the selected pages from writing.
    pub write_protect: bool,
}

/// A run of selected pages with equal (reported) categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Region {
    start: u64,
    end: u64,
    categories: Categories,
}

impl Region {
    /// The addresses: whole pages.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The reported categories of every page in the range.
    #[must_use]
    pub fn categories(&self) -> Categories {
        self.categories
    }
}

/// The argument of the request, as the kernel defines it.
#[repr(C)]
struct Argument {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_max: u64,
    pages_max: u64,
    inverted: Categories,
    required: Categories,
    any: Categories,
    returned: Categories,
}

/// The page tables of this process.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
}

impl Pagemap {
    /// Opens `/proc/self/pagemap`.
    ///
    /// # Errors
    ///
    /// What `open(2)` says: `NotFound` without `/proc`, `PermissionDenied` where a sandbox hides
    /// it. Success does not mean that the kernel can scan: see [`Pagemap::available`].
    pub fn open() -> io::Result<Pagemap> {
        Ok(Pagemap { file: File::open("/proc/self/pagemap")? })
    }

    /// Whether this kernel and sandbox allow scans. Costs an `open` and one scan of one page.
    #[must_use]
    pub fn available() -> bool {
        Pagemap::open().is_ok_and(|map| map.can_scan())
    }

    /// The same, with a descriptor that is there. Costs one scan of one page.
    #[must_use]
    pub fn can_scan(&self) -> bool {
        let all = Query { returned: Categories::PRESENT, ..Query::default() };
        // Any page of the process will do, such as this one of the stack.
        let here = (&raw const all).addr();
        let page = here - here % page_size();
        self.scan(page..page + page_size(), &all, &mut Vec::new()).is_ok()
    }

    /// Walks `range` (addresses, whole pages) to its end and appends the selected regions, in
    /// ascending order, to `found`. Addresses without memory are passed over. Needs the mmap lock
    /// shared; other threads may fault meanwhile, so the result is a snapshot of each page, not of
    /// all.
    ///
    /// Cost: one system call for every 512 regions. Memory of `found` grows with the regions; a
    /// caller that must bound it scans in parts.
    ///
    /// # Errors
    ///
    /// `ENOTTY` before Linux 6.7, `EINVAL` for ranges that are not whole pages; with
    /// `write_protect`, `EPERM` when a part of the range is not registered for asynchronous write
    /// protection. What was found before an error stays in `found`.
    pub fn scan(
        &self,
        range: Range<usize>,
        query: &Query,
        found: &mut Vec<Region>,
    ) -> io::Result<()> {
        length("scan", &range)?;
        let protect = WRITE_PROTECT_MATCHING | CHECK_ASYNC;
        let mut at = range.start as u64;
        // The kernel makes room for as many as the call requests: for a few pages, few.
        let most = (range.len() / page_size()).clamp(1, REGIONS_A_CALL);
        while at < range.end as u64 {
            found.reserve(most);
            let room = &mut found.spare_capacity_mut()[..most];
            let mut argument = Argument {
                size: size_of::<Argument>() as u64,
                flags: if query.write_protect { protect } else { 0 },
                start: at,
                end: range.end as u64,
                walk_end: 0,
                regions: room.as_mut_ptr().expose_provenance() as u64,
                regions_max: most as u64,
                pages_max: 0,
                inverted: query.inverted,
                required: query.required,
                any: query.any,
                returned: query.returned,
            };
            // SAFETY: The structure is that of the request. It names memory for as many regions as
            // it says, which the vector owns and which holds no value yet.
            let count = match unsafe { exchange(self.file.as_fd(), SCAN, &mut argument) } {
                Ok(count) => count.min(most),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            // SAFETY: The kernel has written `count` regions behind the vector's end, within its
            // capacity. Any bits make a region.
            unsafe { found.set_len(found.len() + count) };
            if argument.walk_end <= at {
                return Err(io::Error::other("the scan of page tables makes no progress"));
            }
            at = argument.walk_end;
        }
        Ok(())
    }
}

impl AsFd for Pagemap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What the page table of this process has for a page (`/proc/PID/pagemap`, *Examining Process Page
/// Tables* of the kernel's documentation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry(u64);

impl Entry {
    /// Whether the page is mapped here.
    #[must_use]
    pub const fn is_present(self) -> bool {
        self.0 >> 63 & 1 == 1
    }

    /// Whether it is mapped here and nowhere else.
    #[must_use]
    pub const fn is_exclusive(self) -> bool {
        self.0 >> 56 & 1 == 1
    }
}

impl Pagemap {
    /// Reads the entries of `range` (addresses, whole pages), one for each page, into `entries`.
    /// Needs no privilege: without it the kernel hides only where a page lies.
    ///
    /// Cost: a system call for each 64 pages.
    ///
    /// # Errors
    ///
    /// What `pread(2)` says; `UnexpectedEof` past the end of the address space.
    pub fn entries(&self, range: Range<usize>, entries: &mut Vec<Entry>) -> io::Result<()> {
        const AT_A_TIME: usize = 64;
        let (first, end) = (range.start / page_size(), range.end.div_ceil(page_size()));
        entries.clear();
        for first in (first..end).step_by(AT_A_TIME) {
            let mut bytes = [0; 8 * AT_A_TIME];
            let bytes = &mut bytes[..(end - first).min(AT_A_TIME) * 8];
            self.file.read_exact_at(bytes, first as u64 * 8)?;
            let words = bytes.chunks_exact(8).map(|word| {
                let mut entry = [0; 8];
                entry.copy_from_slice(word);
                Entry(u64::from_ne_bytes(entry))
            });
            entries.extend(words);
        }
        Ok(())
    }
}

/// Whether the page cache (or anonymous memory) has each page of `range`: bit 0 of the page's byte
/// in `resident`. For a memfd or a file, a page counts that is cached and not mapped here. Not for
/// files that this user neither owns nor may write: there the kernel says that all is resident.
///
/// # Errors
///
/// `InvalidInput` when `resident` has not one byte for each page; `ENOMEM` for addresses without
/// memory; `EINVAL` for a start inside a page.
pub fn mincore(range: Range<usize>, resident: &mut [u8]) -> io::Result<()> {
    let len = length("inspect", &range)?;
    let pages = len.div_ceil(page_size());
    if resident.len() != pages {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} bytes cannot describe {pages} pages; give one for each", resident.len()),
        ));
    }
    // SAFETY: The call reads page tables only, and writes one byte a page to a slice that has them.
    let failed = unsafe { libc::mincore(address(range.start), len, resident.as_mut_ptr()) } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Page faults of this process since it began, and what they and other reads brought in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Without a wait for a device.
    pub minor: u64,
    /// With one.
    pub major: u64,
    /// Bytes that devices read for this process, for whatever purpose.
    pub read_bytes: u64,
}

/// Counts the page faults of all threads of this process (`getrusage(2)`).
#[must_use]
pub fn page_faults() -> Faults {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: The call fills the structure, which is one of plain integers.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) } != 0;
    debug_assert!(!failed, "getrusage of the process itself cannot fail");
    // SAFETY: All zeroes are a value of it, should the call have written nothing.
    let usage = unsafe { usage.assume_init() };
    let count = |faults: libc::c_long| u64::try_from(faults).unwrap_or(0);
    // Linux counts in sectors, whatever the blocks of a file system are.
    let read_bytes = count(usage.ru_inblock) << 9;
    Faults { minor: count(usage.ru_minflt), major: count(usage.ru_majflt), read_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{HugePages, Mapping};
    use crate::shared::{Rights, SharedMapping, Sharing, memfd};

    fn written_pages(mapping: &Mapping) -> Range<usize> {
        let start = mapping.as_ptr().addr();
        start..start + mapping.len()
    }

    #[test]
    fn a_scan_reports_every_run_of_touched_pages_however_many() {
        if !Pagemap::available() {
            eprintln!("SKIPPED: this kernel cannot scan page tables");
            return;
        }
        let page = page_size();
        // More runs than one call reports.
        let pages = 3 * REGIONS_A_CALL * 2;
        let mapping = Mapping::new(pages * page, HugePages::Never).unwrap();
        let range = written_pages(&mapping);
        for n in (0..pages).step_by(2) {
            mapping.populate(n * page..(n + 1) * page).unwrap();
        }
        let map = Pagemap::open().unwrap();
        let mut found = Vec::new();
        let present = Query {
            required: Categories::PRESENT,
            returned: Categories::PRESENT | Categories::FILE,
            ..Query::default()
        };
        map.scan(range.clone(), &present, &mut found).unwrap();
        let wanted: Vec<_> = (0..pages)
            .step_by(2)
            .map(|n| (range.start + n * page..range.start + (n + 1) * page, Categories::PRESENT))
            .collect();
        let got: Vec<_> = found.iter().map(|r| (r.range(), r.categories())).collect();
        assert_eq!(got, wanted);

        let absent = Query { inverted: Categories::PRESENT, ..present };
        found.clear();
        map.scan(range.clone(), &absent, &mut found).unwrap();
        assert_eq!(found.len(), pages / 2);
        assert_eq!(found[0].range().start, range.start + page);

        let mut resident = vec![0; pages];
        mincore(range.clone(), &mut resident).unwrap();
        assert!(resident.iter().enumerate().all(|(n, &byte)| (byte & 1 == 1) == (n % 2 == 0)));
        let short = mincore(range, &mut resident[1..]).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn protecting_by_a_scan_is_refused_where_no_write_would_be_seen() {
        if !Pagemap::available() {
            eprintln!("SKIPPED: this kernel cannot scan page tables");
            return;
        }
        let mapping = Mapping::new(page_size(), HugePages::Never).unwrap();
        mapping.populate(0..1).unwrap();
        let query = Query {
            required: Categories::PRESENT,
            returned: Categories::PRESENT,
            write_protect: true,
            ..Query::default()
        };
        let map = Pagemap::open().unwrap();
        let refused = map.scan(written_pages(&mapping), &query, &mut Vec::new()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn entries_say_whether_a_page_is_mapped_and_whether_elsewhere_too() {
        let len = 70 * page_size();
        let memory = memfd("entries", len as u64).unwrap();
        let map = || SharedMapping::map(&memory, 0, len, Rights::Read, Sharing::Shared, false);
        let (one, other) = (map().unwrap(), map().unwrap());
        let pagemap = Pagemap::open().unwrap();
        let mut entries = Vec::new();
        let mut of = |mapping: &SharedMapping| {
            pagemap.entries(mapping.addresses(), &mut entries).unwrap();
            assert_eq!(entries.len(), 70);
            (entries[0].is_present(), entries[69].is_present(), entries[69].is_exclusive())
        };
        assert_eq!(of(&one), (false, false, false));
        let last = |mapping: &SharedMapping| {
            let page = mapping.addresses().end - page_size();
            crate::page_cache::populate_read(page..page + page_size()).unwrap();
        };
        last(&one);
        assert_eq!(of(&one), (false, true, true));
        last(&other);
        assert_eq!(of(&one), (false, true, false));
        drop(other);
        assert_eq!(of(&one), (false, true, true));
    }
}
