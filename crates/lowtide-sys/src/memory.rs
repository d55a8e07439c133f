//! Memory from the kernel: private anonymous mappings, for frames and tables.
//!
//! # Model
//!
//! A [`Mapping`] is a run of addresses that belongs to one owner and is given back on drop. It has
//! two parts:
//!
//! ```text
//!   as_ptr()                as_ptr() + committed()             as_ptr() + len()
//!   | committed: read, write | reserved: any touch is SIGSEGV   | guard page |
//! ```
//!
//! [`Mapping::new`] commits everything at once. [`Mapping::reserve`] commits nothing, costs only
//! addresses, and lets a table that grows keep its base address: [`Mapping::commit`] moves the
//! border to the right, never back. Committed memory reads as zeroes and takes physical pages only
//! when it is first written.
//!
//! # Huge pages
//!
//! A random access to memory behind 4 KiB pages pays for a walk of page tables that do not fit a
//! cache; behind 2 MiB pages it mostly does not. So an arena requests them, and starts at a
//! multiple of 2 MiB, because only aligned runs can be huge. The request is a hint:
//! [`Mapping::huge_bytes`] returns what was granted. A comparison with ordinary pages must forbid
//! them instead, because a machine may use them by default ([`HugePages::Never`]).
//!
//! # Fork
//!
//! Every mapping is left out of child processes (`MADV_DONTFORK`). A fork would otherwise make
//! every frame copy-on-write, double the budget in practice, and move frames from under direct I/O
//! in flight.
//!
//! # Safety
//!
//! The file maps, protects and unmaps only address ranges that it obtained from the kernel itself
//! and has not given back. It hands out only a raw pointer, so a caller that makes references from
//! it must ensure that no reference outlives the mapping, lies in the reserved part, or is held
//! while [`Mapping::discard`] runs over it.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::hint::black_box;
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, MprotectFlags, ProtFlags};

/// The size of a huge page in bytes (the PMD size of x86-64, and of arm64 with 4 KiB pages).
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The size in bytes of the pages that the kernel maps. Costs one load after the first call.
#[must_use]
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Which pages should back a [`Mapping`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Request huge pages (`MADV_HUGEPAGE`). The mapping starts at a multiple of 2 MiB.
    Yes,
    /// The machine's setting decides.
    No,
    /// Forbid huge pages (`MADV_NOHUGEPAGE`), for comparisons with ordinary pages.
    Never,
}

/// An owned, private, anonymous mapping, absent from forked children, and unmapped on drop.
///
/// ```
/// use lowtide_sys::memory::{HugePages, Mapping};
///
/// let table = Mapping::reserve(1 << 30)?; // addresses only
/// table.commit(64 << 10)?; // the first 64 KiB may now be used
/// assert_eq!(table.committed(), 64 << 10);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    /// Bytes between `base` and the guard page; a multiple of the page size.
    len: usize,
    /// Bytes from `base` that may be read and written. Only grows. A stale value is only ever too
    /// small.
    committed: AtomicUsize,
}

// SAFETY: A mapping is a range of addresses of the process, not of a thread. Its methods change it
// only through system calls, which the kernel serialises, and through one atomic counter. It gives
// out raw pointers only.
unsafe impl Send for Mapping {}
// SAFETY: As for `Send`: every method takes `&self` and is a system call or an atomic access.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` (rounded up to whole pages) of zeroed memory, all of it committed.
    ///
    /// With [`HugePages::Yes`] the first byte lies at a multiple of 2 MiB. A kernel without huge
    /// pages ignores the wish. Cost: a few system calls, no matter how long; physical pages come
    /// with the first touch.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for zero bytes or a length beyond the address space, else what `mmap(2)` says
    /// (`ENOMEM` when the kernel's overcommit rule, the address space limit or the count of
    /// mappings forbids it).
    pub fn new(bytes: usize, huge: HugePages) -> io::Result<Mapping> {
        let mapping = Mapping::map(bytes, huge, MapFlags::PRIVATE)?;
        mapping.commit(mapping.len)?;
        Ok(mapping)
    }

    /// Reserves `bytes` (rounded up to whole pages) of addresses, at a multiple of 2 MiB, with
    /// nothing committed and the machine's own huge page setting.
    ///
    /// # Errors
    ///
    /// As for [`Mapping::new`].
    pub fn reserve(bytes: usize) -> io::Result<Mapping> {
        Mapping::reserve_with(bytes, HugePages::No)
    }

    /// As [`Mapping::reserve`], with a say in which pages will back what is committed later.
    ///
    /// # Errors
    ///
    /// As for [`Mapping::new`].
    pub fn reserve_with(bytes: usize, huge: HugePages) -> io::Result<Mapping> {
        Mapping::map(bytes, huge, MapFlags::PRIVATE | MapFlags::NORESERVE)
    }

    /// Maps inaccessible memory: too much of it, so that an aligned part can be kept and the rest
    /// trimmed. One page behind it stays mapped without access. It catches overruns, and it keeps
    /// the kernel from merging two neighbours into one line of `smaps`, which would spoil
    /// [`Mapping::huge_bytes`].
    fn map(bytes: usize, huge: HugePages, flags: MapFlags) -> io::Result<Mapping> {
        let page = page_size();
        if bytes == 0 {
            return Err(invalid("a mapping needs at least one byte".into()));
        }
        let too_long =
            || invalid(format!("{bytes} bytes do not fit the address space; ask for less"));
        let len = bytes.checked_next_multiple_of(page).ok_or_else(too_long)?;
        let kept = len.checked_add(page).ok_or_else(too_long)?;
        let total = kept
            .checked_add(HUGE_PAGE_BYTES)
            .filter(|&n| n <= isize::MAX as usize)
            .ok_or_else(too_long)?;

        // SAFETY: A null hint without MAP_FIXED cannot replace an existing mapping.
        let start =
            unsafe { mm::mmap_anonymous(ptr::null_mut(), total, ProtFlags::empty(), flags) }?;
        let start = start.cast::<u8>();
        let lead = start.align_offset(HUGE_PAGE_BYTES);
        if lead > 0 {
            // SAFETY: `start..start + lead` is the head of the range mapped above (`lead` <
            // HUGE_PAGE_BYTES < total), page aligned, and no other thread knows of it yet.
            unsafe { mm::munmap(start.cast(), lead) }?;
        }
        // SAFETY: `lead` < `total`, so the result stays inside the mapped range, which is shorter
        // than isize::MAX.
        let base = unsafe { start.add(lead) };
        let tail = total - lead - kept;
        if tail > 0 {
            // SAFETY: `lead + kept` <= `total`, as `lead` <= HUGE_PAGE_BYTES, so the pointer stays
            // inside the range.
            let end = unsafe { base.add(kept) };
            // SAFETY: `end..end + tail` is the end of the range mapped above, page aligned and
            // unknown to others.
            unsafe { mm::munmap(end.cast(), tail) }?;
        }
        let base = NonNull::new(base)
            .ok_or_else(|| io::Error::other("the kernel mapped memory at address zero"))?;
        let mapping = Mapping { base, len, committed: AtomicUsize::new(0) };

        mapping.advise(0..len, mm::Advice::LinuxDontFork).map_err(|error| {
            let error = io::Error::from(error);
            let what = "keeping it out of child processes, madvise(MADV_DONTFORK)";
            io::Error::new(error.kind(), format!("{what}: {error}"))
        })?;
        match huge {
            // A wish: without huge pages, or where a sandbox refuses it, memory works all the same.
            HugePages::Yes => {
                let _ = mapping.advise(0..len, mm::Advice::LinuxHugepage);
            }
            HugePages::Never => mapping.forbid_huge_pages(0..mapping.len())?,
            HugePages::No => {}
        }
        Ok(mapping)
    }

    /// Makes the first `bytes_from_start` bytes (rounded up to whole pages) readable and writable.
    ///
    /// Idempotent, and growing only: a value below [`Mapping::committed`] does nothing. May be
    /// called by several threads at once. Cost: one system call when the border moves, one atomic
    /// load when it does not.
    ///
    /// # Errors
    ///
    /// `InvalidInput` beyond [`Mapping::len`]; `ENOMEM` when the kernel cannot promise the memory.
    pub fn commit(&self, bytes_from_start: usize) -> io::Result<()> {
        if bytes_from_start > self.len {
            return Err(invalid(format!(
                "cannot commit {bytes_from_start} bytes of a mapping of {} bytes; reserve more at \
                 the start",
                self.len
            )));
        }
        let target = bytes_from_start.next_multiple_of(page_size());
        let from = self.committed.load(Ordering::Acquire);
        if target <= from {
            return Ok(());
        }
        // SAFETY: `from` < `target` <= `len`, so the pointer stays inside the mapping.
        let start = unsafe { self.base.as_ptr().add(from) };
        // SAFETY: `start..start + (target - from)` is page aligned and inside this mapping, and
        // only gains permissions: no pointer that was valid before becomes invalid. A thread that
        // raced here with another target grants the same permissions again.
        unsafe {
            mm::mprotect(start.cast(), target - from, MprotectFlags::READ | MprotectFlags::WRITE)
        }?;
        self.committed.fetch_max(target, Ordering::AcqRel);
        Ok(())
    }

    /// Gives every page of `range` (in bytes, widened to whole pages) physical memory now, contents
    /// unchanged.
    ///
    /// Uses `MADV_POPULATE_WRITE`, and touches each page where the kernel is older than 5.14 or a
    /// sandbox refuses it. Safe beside concurrent readers and writers. Cost: one page fault and one
    /// cleared page each, in one system call.
    ///
    /// # Errors
    ///
    /// `InvalidInput` outside the committed part; `ENOMEM` or `EFAULT` when the kernel refuses
    /// memory for it; `EHWPOISON` for broken memory. A machine that is out of memory kills a
    /// process instead, and so does a memory cgroup at its limit: its pages are charged as they are
    /// touched. The touching of old kernels cannot report anything.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        self.check("populate", &range)?;
        let page = page_size();
        let range = range.start - range.start % page..range.end.next_multiple_of(page);
        loop {
            match self.advise(range.clone(), mm::Advice::LinuxPopulateWrite) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::INVAL | Errno::PERM | Errno::ACCESS | Errno::NOSYS) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.touch(range);
        Ok(())
    }

    /// Writes to every page of a page-aligned, committed range without changing a byte.
    fn touch(&self, range: Range<usize>) {
        debug_assert!(range.end <= self.committed());
        for offset in range.step_by(page_size()) {
            // SAFETY: Every caller keeps `range` within the committed part, so the pointer stays
            // inside the mapping.
            let byte = unsafe { self.base.as_ptr().add(offset) };
            // SAFETY: The byte is mapped readable and writable (it is committed), aligned as any
            // byte is, and lives as long as `self`. Others may be writing it; the access is atomic
            // and leaves the value as it is.
            let byte = unsafe { AtomicU8::from_ptr(byte) };
            // An addition of nothing that the compiler can see through becomes a load, which
            // populates nothing.
            byte.fetch_or(black_box(0), Ordering::Relaxed);
        }
    }

    /// Gives the physical pages of `range` (in bytes) back; the range then reads as zeroes
    /// (`MADV_DONTNEED`).
    ///
    /// The range must be page aligned, because a partly covered page would lose its neighbour's
    /// bytes. A huge page that is partly covered is split. References into the range must not be
    /// held across the call. Pages that are locked in memory, since the program has locked all that
    /// it has (`mlockall(2)`), go too where the kernel can do that (5.18).
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a range that is not page aligned or not committed, and for locked pages
    /// of an older kernel.
    pub fn discard(&self, range: Range<usize>) -> io::Result<()> {
        self.check("discard", &range)?;
        let page = page_size();
        if !range.start.is_multiple_of(page) || !range.end.is_multiple_of(page) {
            return Err(invalid(format!(
                "cannot discard {range:?}: both ends must be multiples of {page} bytes"
            )));
        }
        match self.advise(range.clone(), mm::Advice::LinuxDontNeed) {
            Err(Errno::INVAL) => self.discard_locked(range),
            done => Ok(done?),
        }
    }

    /// As [`Mapping::discard`], of a range that it has checked.
    fn discard_locked(&self, range: Range<usize>) -> io::Result<()> {
        let start = self.base.as_ptr().wrapping_add(range.start).cast();
        // SAFETY: the range belongs to this mapping; the contract of `discard`.
        let done = unsafe { libc::madvise(start, range.len(), libc::MADV_DONTNEED_LOCKED) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Forbids huge pages in a range from now on (`MADV_NOHUGEPAGE`): a page that is touched takes
    /// memory for itself alone. Huge pages that are there stay.
    ///
    /// # Errors
    ///
    /// What `madvise(2)` says. A kernel without huge pages has nothing to forbid.
    pub fn forbid_huge_pages(&self, range: Range<usize>) -> io::Result<()> {
        match self.advise(range, mm::Advice::LinuxNoHugepage) {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The first byte. Valid until drop, for [`Mapping::committed`] bytes.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The length in bytes, committed or not: the requested length, rounded up to whole pages.
    #[inline]
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a mapping always has at least one page")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many bytes from the start may be used. Other threads may be raising it.
    #[inline]
    #[must_use]
    pub fn committed(&self) -> usize {
        self.committed.load(Ordering::Acquire)
    }

    /// How many bytes are backed by huge pages at this moment (`AnonHugePages` of
    /// `/proc/self/smaps`), or 0 when that cannot be read. Walks the page tables of the whole
    /// process: milliseconds, not for hot paths.
    #[must_use]
    pub fn huge_bytes(&self) -> usize {
        let start = self.base.as_ptr().addr();
        std::fs::read_to_string("/proc/self/smaps")
            .map_or(0, |smaps| huge_bytes_in(&smaps, start..start + self.len).min(self.len))
    }

    /// Refuses a range that is inverted or not wholly committed.
    fn check(&self, what: &str, range: &Range<usize>) -> io::Result<()> {
        let committed = self.committed();
        if range.start > range.end || range.end > committed {
            return Err(invalid(format!(
                "cannot {what} {range:?}: only 0..{committed} is committed"
            )));
        }
        Ok(())
    }

    /// `madvise(2)` over a page-aligned range of the mapping. Private, because some advice destroys
    /// contents.
    fn advise(&self, range: Range<usize>, advice: mm::Advice) -> rustix::io::Result<()> {
        debug_assert!(range.start <= range.end && range.end <= self.len);
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: Every caller keeps `range` within 0..len, so the pointer stays inside the
        // mapping.
        let start: *mut c_void = unsafe { self.base.as_ptr().add(range.start) }.cast();
        // SAFETY: The range belongs to this mapping. Advice that discards contents is given only by
        // `discard`, whose contract is that no thread holds references into the range.
        unsafe { mm::madvise(start, range.len(), advice) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base..base + len` and the guard page behind it were mapped by `map`, are
        // unmapped only here, and no method of `self` can run any more. Raw pointers given out end
        // their validity here, as documented.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len + page_size()) };
        debug_assert!(unmapped.is_ok(), "munmap of an owned mapping failed: {unmapped:?}");
    }
}

/// Sums `AnonHugePages` over the areas of `smaps` that overlap `wanted`, no area counting for more
/// than its overlap.
fn huge_bytes_in(smaps: &str, wanted: Range<usize>) -> usize {
    let mut overlap = 0;
    let mut sum = 0;
    for line in smaps.lines() {
        if let Some(area) = area_of(line) {
            overlap = area.end.min(wanted.end).saturating_sub(area.start.max(wanted.start));
        } else if overlap > 0
            && let Some(value) = line.strip_prefix("AnonHugePages:")
            && let Ok(kib) = value.trim().trim_end_matches("kB").trim_end().parse::<usize>()
        {
            sum += (kib << 10).min(overlap);
        }
    }
    sum
}

/// The address range of a header line of `smaps` (`7f00-7f80 rw-p …`), or nothing for the other
/// lines.
fn area_of(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mapping: &Mapping, offset: usize) -> u8 {
        assert!(offset < mapping.committed());
        // SAFETY: The offset is committed, so the pointer stays inside the mapping.
        let byte = unsafe { mapping.as_ptr().add(offset) };
        // SAFETY: The byte is readable, and only this thread knows of the mapping.
        unsafe { byte.read_volatile() }
    }

    fn write(mapping: &Mapping, offset: usize, value: u8) {
        assert!(offset < mapping.committed());
        // SAFETY: The offset is committed, so the pointer stays inside the mapping.
        let byte = unsafe { mapping.as_ptr().add(offset) };
        // SAFETY: The byte is writable, and only this thread knows of the mapping.
        unsafe { byte.write_volatile(value) };
    }

    /// The kernel's flags (`VmFlags:` of `smaps`) for the area that holds `address`.
    fn vm_flags(address: usize) -> String {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in smaps.lines() {
            if let Some(area) = area_of(line) {
                inside = area.contains(&address);
            } else if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.to_owned();
            }
        }
        panic!("no area holds {address:#x}");
    }

    #[test]
    fn new_memory_is_zeroed_writable_aligned_and_kept_from_children() {
        for huge in [HugePages::Yes, HugePages::No, HugePages::Never] {
            let mapping = Mapping::new((4 << 20) + 1, huge).unwrap();
            assert_eq!(mapping.len(), (4 << 20) + page_size());
            assert_eq!(mapping.committed(), mapping.len());
            assert_eq!(mapping.as_ptr().addr() % HUGE_PAGE_BYTES, 0);
            for offset in [0, mapping.len() - 1] {
                assert_eq!(read(&mapping, offset), 0);
                write(&mapping, offset, 7);
                assert_eq!(read(&mapping, offset), 7);
            }
            let flags = vm_flags(mapping.as_ptr().addr());
            assert!(flags.contains(" dc"), "must not be copied on fork: {flags}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert_eq!(Mapping::new(0, HugePages::No).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(Mapping::reserve(usize::MAX).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(
            Mapping::reserve(isize::MAX as usize).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert!(Mapping::reserve(1 << 60).is_err(), "larger than any address space of today");
    }

    #[test]
    fn a_reservation_grows_in_place_and_never_shrinks() {
        let table = Mapping::reserve(1 << 36).unwrap();
        let base = table.as_ptr();
        assert_eq!(table.committed(), 0);
        assert!(table.populate(0..1).is_err(), "nothing is committed yet");
        table.commit(1).unwrap();
        assert_eq!(table.committed(), page_size());
        write(&table, 0, 1);
        table.commit(3 << 20).unwrap();
        write(&table, (3 << 20) - 1, 2);
        table.commit(0).unwrap();
        assert_eq!(table.committed(), 3 << 20);
        assert_eq!((read(&table, 0), read(&table, (3 << 20) - 1)), (1, 2));
        assert_eq!(table.as_ptr(), base);
        assert_eq!(table.commit(table.len() + 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn threads_may_commit_at_once() {
        let table = Mapping::reserve(64 << 20).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    for step in 1..=64 {
                        table.commit((step * 4 + thread) * page_size()).unwrap();
                    }
                });
            }
        });
        assert_eq!(table.committed(), (64 * 4 + 3) * page_size());
        write(&table, table.committed() - 1, 9);
    }

    /// How many bytes of the mapping are resident, according to `mincore(2)`.
    fn resident(mapping: &Mapping) -> usize {
        let page = page_size();
        let mut seen = vec![0u8; mapping.len() / page];
        // SAFETY: The range is the mapping itself and `seen` has one byte a page, as mincore(2)
        // demands.
        let rc =
            unsafe { libc::mincore(mapping.as_ptr().cast(), mapping.len(), seen.as_mut_ptr()) };
        assert_eq!(rc, 0, "{}", io::Error::last_os_error());
        seen.iter().filter(|&&b| b & 1 == 1).count() * page
    }

    #[test]
    fn populate_gives_memory_and_keeps_contents_and_discard_takes_both() {
        let page = page_size();
        let mapping = Mapping::new(64 * page, HugePages::Never).unwrap();
        write(&mapping, 5, 55);
        mapping.populate(0..32 * page - 1).unwrap();
        assert_eq!(resident(&mapping), 32 * page);
        assert_eq!(read(&mapping, 5), 55);
        // What old kernels get instead.
        mapping.touch(0..48 * page);
        assert_eq!(resident(&mapping), 48 * page);
        assert_eq!(read(&mapping, 5), 55);

        assert_eq!(mapping.discard(1..page).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(mapping.discard(0..65 * page).is_err());
        mapping.discard(0..0).unwrap();
        assert_eq!(read(&mapping, 5), 55);
        mapping.discard(0..16 * page).unwrap();
        assert_eq!(resident(&mapping), 32 * page);
        assert_eq!(read(&mapping, 5), 0);

        // SAFETY: locking pages of one's own memory changes none of them.
        assert_eq!(unsafe { libc::mlock(mapping.as_ptr().cast(), 16 * page) }, 0);
        mapping.discard(0..16 * page).unwrap();
        assert_eq!(resident(&mapping), 32 * page);
    }

    #[test]
    fn huge_pages_are_granted_when_asked_and_never_when_forbidden() {
        let ordinary = Mapping::new(8 << 20, HugePages::Never).unwrap();
        ordinary.populate(0..ordinary.len()).unwrap();
        assert_eq!(ordinary.huge_bytes(), 0);
        assert!(vm_flags(ordinary.as_ptr().addr()).contains(" nh"));

        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
            .unwrap_or_default();
        if !(enabled.contains("[madvise]") || enabled.contains("[always]")) {
            eprintln!("SKIPPED: transparent huge pages are off on this machine");
            return;
        }
        let huge = Mapping::new(8 << 20, HugePages::Yes).unwrap();
        assert!(vm_flags(huge.as_ptr().addr()).contains(" hg"));
        assert_eq!(huge.huge_bytes(), 0, "nothing is touched yet");
        huge.populate(0..huge.len()).unwrap();
        // Memory may be too fragmented for all of them; a machine that grants none would defeat the
        // arena.
        assert!(huge.huge_bytes() >= HUGE_PAGE_BYTES, "{} bytes huge", huge.huge_bytes());
        assert_eq!(ordinary.huge_bytes(), 0, "a neighbour's huge pages are not counted");
    }

    #[test]
    fn drop_returns_the_addresses() {
        let mapping = Mapping::new(1 << 20, HugePages::No).unwrap();
        let start = mapping.as_ptr().addr();
        let mine = |smaps: &str| {
            smaps
                .lines()
                .filter_map(area_of)
                .any(|a| a.contains(&start) && a.end - a.start == 1 << 20)
        };
        assert!(mine(&std::fs::read_to_string("/proc/self/smaps").unwrap()));
        drop(mapping);
        assert!(!mine(&std::fs::read_to_string("/proc/self/smaps").unwrap()));
    }

    #[test]
    fn smaps_is_counted_by_overlap() {
        let smaps = "1000-3000 rw-p 00000000 00:00 0 \nSize: 8 kB\nAnonHugePages:         4 kB\n\
                     400000-800000 rw-p 00000000 00:00 0 [anon]\nAnonHugePages:      4096 \
                     kB\nVmFlags: rd\n";
        assert_eq!(huge_bytes_in(smaps, 0x40_0000..0x80_0000), 4 << 20);
        assert_eq!(huge_bytes_in(smaps, 0x60_0000..0x90_0000), 2 << 20);
        assert_eq!(huge_bytes_in(smaps, 0x1000..0x90_0000), (4 << 20) + 4096);
        assert_eq!(huge_bytes_in(smaps, 0x3000..0x4000), 0);
        assert_eq!(huge_bytes_in("", 0..usize::MAX), 0);
    }
}
