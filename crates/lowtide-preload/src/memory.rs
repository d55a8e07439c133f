//! Memory without a file that is kept within the budget: what the keeper does with it.
//!
//! One region of the runtime (`lowtide::map`, without a file) is the window of which the program
//! gets blocks (`blocks.rs`). It has more addresses than memory: pages come with touches, and leave
//! for swap.
//!
//! A child of `fork` gets *copies* of the blocks in the kernel's memory, and so does a program that
//! does to a block what cannot be done to it: the block is *lent* to it, at its addresses, and the
//! budget holds for the others. Copies are made while nothing is stored to the blocks
//! (`MapMut::freeze`), so they are of one moment. When a lent block goes, the window takes its
//! addresses back.
//!
//! A copy is one mapping that may be stored to, until it is in its place: only then its parts are
//! protected as the program has protected those of the block. Before Linux 6.17 `mremap(2)` does
//! not move a range of several protections.
//!
//! # Safety
//!
//! Copies are mappings of ours that no thread knows, until they take the blocks' addresses. The
//! table of blocks belongs to a thread that waits for the keeper meanwhile.

#![allow(unsafe_code)]

use crate::blocks::{self, Block, Place, Table};
use crate::budgets::{AutoFigures, Budgets};
use crate::heap::READ_WRITE;
use crate::judge::Reason;
use crate::outside::Outside;
use crate::protections::{Protection, Protections};
use crate::room::Room;
use lowtide::map::run::{Frozen, NotFrozen, arena_bytes, with_blocks};
use lowtide::map::{MapMut, MapOptions, MapReport};
use lowtide::{Error, Tenant};
use serde::Serialize;
use std::cell::UnsafeCell;
use std::error::Error as AnyError;
use std::ops::Range;
use std::time::{Duration, Instant};
use std::{io, mem, ptr};

/// Addresses of the window. The runtime takes 32 KiB of memory for each GiB of them.
pub(crate) const WINDOW: usize = 64 << 30;

/// Time between two counts of what is kept, where blocks are given up.
const COUNT: Duration = Duration::from_millis(10);

/// What happened to memory without a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct HeapFigures {
    /// The budget, which mappings of files share.
    pub(crate) max_bytes: u64,
    /// Mappings and allocations that are kept now.
    pub(crate) blocks: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Of these, in memory.
    pub(crate) resident_bytes: u64,
    /// The most that the budget had to pay for at a time, of files, too, compressed pages included.
    pub(crate) peak_bytes: u64,
    /// In swap, as they were.
    pub(crate) swapped_bytes: u64,
    /// Memory that compressed pages take.
    pub(crate) stored_bytes: u64,
    /// Bytes of the swap file.
    pub(crate) file_bytes: u64,
    /// How many times larger the pages were than the memory that they take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
    /// Page faults that were served.
    pub(crate) faults: u64,
    /// Pages that came back from swap.
    pub(crate) refaults: u64,
    /// Copies that children of `fork` got.
    pub(crate) forks: u64,
    /// The most of blocks that had been touched, in memory or in swap, that was seen.
    pub(crate) kept_peak_bytes: u64,
    /// Memory without a file that is not kept: small allocations, stacks, a child's copies.
    pub(crate) outside_bytes: u64,
    /// The most of it that was seen.
    pub(crate) outside_peak_bytes: u64,
    /// Why some of it was given to the kernel first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) given_back: Option<&'static str>,
    /// How much was given to it, for any reason.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) given_back_bytes: u64,
    /// The first page that could not be brought in, by kind: its touch was `SIGBUS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<&'static str>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// What became of a budget that sets itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auto: Option<AutoFigures>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
const fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// Parts of blocks that the program has protected, and how, when the last copies were made. A child
/// reads it, so it is not the keeper's alone. Under the table's lock.
struct Protected(UnsafeCell<Vec<Protection>>);

// SAFETY: it is touched by the thread that has the table's lock, or for which that thread waits.
unsafe impl Sync for Protected {}

static PROTECTED: Protected = Protected(UnsafeCell::new(Vec::new()));

/// The region behind the window.
enum Held {
    Thawed(MapMut),
    /// While a process forks, or a block is lent.
    Frozen(Frozen),
    /// Between the two.
    Neither,
}

/// The window.
pub(crate) struct Memory {
    held: Held,
    start: usize,
    tenant: Tenant,
    max: u64,
    forks: u64,
    protections: Protections,
    room: Room,
    outside: Outside,
    /// The most that was counted of what is kept, and when it was counted last.
    kept_peak: u64,
    counted: Instant,
    given_back: Option<Reason>,
    given_back_bytes: u64,
}

fn name_of(error: &Error) -> &'static str {
    match error {
        Error::OutOfBudget { .. } => "out_of_budget",
        Error::SwapIn { .. } => "swap_in",
        _ => "other",
    }
}

impl Memory {
    /// Makes the window, of which nothing can be touched yet.
    ///
    /// # Errors
    /// The runtime's, or that system calls could not use the memory.
    pub(crate) fn new(budgets: &mut Budgets) -> Result<Self, Box<dyn AnyError>> {
        let (tenant, max) = budgets.common()?;
        let options = MapOptions::new().tenant(&tenant).len(WINDOW);
        let options = with_blocks(options, blocks::end_of);
        let mut map = options.map_anon(tenant.pager())?;
        if !map.serves_system_calls() {
            return Err(
                "a system call on a page that is not in memory would fail with EFAULT: the \
                 kernel serves only faults of user code here (`sysctl \
                 vm.unprivileged_userfaultfd=1`, or a right to open /dev/userfaultfd)"
                    .into(),
            );
        }
        let start = map.as_mut_ptr().expose_provenance();
        let window = start..start + WINDOW;
        blocks::dump(&window, false);
        if !blocks::protect(&window, libc::PROT_NONE) || !blocks::lock().begin(window) {
            return Err(io::Error::last_os_error().into());
        }
        let protections = Protections::open()?;
        let (held, room, outside) = (Held::Thawed(map), Room::open(), Outside::open());
        let (forks, given_back, given_back_bytes) = Default::default();
        Ok(Self {
            held,
            start,
            tenant,
            max,
            forks,
            protections,
            room,
            outside,
            kept_peak: 0,
            counted: Instant::now(),
            given_back,
            given_back_bytes,
        })
    }

    fn part(&self, range: &Range<usize>) -> Range<usize> {
        range.start - self.start..range.end - self.start
    }

    /// Makes whole pages zeroes that take no memory.
    pub(crate) fn discard(&mut self, range: &Range<usize>) -> Result<(), Reason> {
        if self.counted.elapsed() >= COUNT {
            self.count_kept();
        }
        let part = self.part(range);
        let Held::Thawed(map) = &mut self.held else { return Err(Reason::Broken) };
        map.clear(part).map_err(|_| Reason::Broken)
    }

    /// The addresses of a lent block, which is dying, are the window's again.
    pub(crate) fn take_back(&mut self, range: &Range<usize>) -> Result<(), Reason> {
        let part = self.part(range);
        let Held::Thawed(map) = &mut self.held else { return Err(Reason::Broken) };
        // SAFETY: the part was lent, and is the program's no more.
        let taken = unsafe { map.take_back(part) };
        taken.map_err(|_| {
            // Its addresses are lost, and its memory is not.
            let flags =
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            let (at, len, prot) = (range.start, range.len(), libc::PROT_NONE);
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_mmap, at, len, prot, flags, -1_isize, 0_usize) };
            Reason::Broken
        })
    }

    /// Whether nothing of a range is protected, or left out of core dumps.
    pub(crate) fn is_plain(&self, range: &Range<usize>) -> bool {
        self.protections.within(range).is_ok_and(|parts| parts.is_empty())
    }

    fn freeze(&mut self, parts: &[Range<usize>]) -> io::Result<&Frozen> {
        let (held, result) = match mem::replace(&mut self.held, Held::Neither) {
            Held::Thawed(map) => match map.freeze(parts) {
                Ok(frozen) => (Held::Frozen(frozen), Ok(())),
                Err(NotFrozen { map, source }) => (Held::Thawed(map), Err(source)),
            },
            other => (other, Err(io::ErrorKind::WouldBlock.into())),
        };
        self.held = held;
        result?;
        self.frozen().ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    const fn frozen(&self) -> Option<&Frozen> {
        if let Held::Frozen(frozen) = &self.held { Some(frozen) } else { None }
    }

    fn thaw(&mut self) {
        self.held = match mem::replace(&mut self.held, Held::Neither) {
            Held::Frozen(frozen) => Held::Thawed(frozen.thaw()),
            other => other,
        };
    }

    fn report(&self) -> (MapReport, Option<Error>) {
        match &self.held {
            Held::Thawed(map) => (map.report(), map.error()),
            Held::Frozen(frozen) => (frozen.report(), frozen.error()),
            Held::Neither => unreachable!("it is one of both between two calls"),
        }
    }

    /// Freezes blocks and copies them: those with these numbers in the table.
    fn copy(&mut self, table: &mut Table<'_>, numbers: &[usize]) -> io::Result<()> {
        let window = self.start..self.start + WINDOW;
        let all = table.all();
        let parts: Vec<_> = numbers.iter().map(|at| self.part(&all[*at].range())).collect();
        let protected = self.protections.within(&window)?;
        let frozen = self.freeze(&parts)?;
        // SAFETY: the caller has the table, so no other thread reads or writes this.
        unsafe { *PROTECTED.0.get() = protected };
        let result = numbers.iter().zip(parts).try_for_each(|(at, part)| {
            let copy = copy_of(part.len())?;
            all[*at].copy = copy;
            let offset = part.start;
            frozen.for_each_page(part, |page, bytes| {
                let to = ptr::with_exposed_provenance_mut::<u8>(copy + (page - offset));
                // SAFETY: the copy has a page there, which only this thread knows.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
                Ok(())
            })
        });
        if result.is_err() {
            drop_copies(all);
            self.thaw();
        }
        result
    }

    /// Whether there is memory for copies of all blocks, and everything else that they take.
    pub(crate) fn fits(&self) -> bool {
        let (MapReport { resident_bytes, swapped_bytes, .. }, _) = self.report();
        let addresses = || {
            // As many as the copies take, for a moment.
            let len = (blocks::sum().1 as usize).max(1);
            let made = copy_of(len);
            made.map(|at| drop_copy(at, len)).is_ok()
        };
        self.room.has(resident_bytes + swapped_bytes)
            && addresses()
            && self.protections.within(&(self.start..self.start + WINDOW)).is_ok()
    }

    /// A process is about to fork: the thread that does has the table.
    ///
    /// # Errors
    /// There is no memory for a copy, or a page cannot be read.
    pub(crate) fn fork(&mut self) -> Result<(), Reason> {
        // SAFETY: the thread that forks has the lock, and waits.
        let mut table = unsafe { blocks::locked_by_fork() };
        let live = live_blocks(&mut table, &(self.start..self.start + WINDOW));
        if live.is_empty() {
            return Ok(());
        }
        self.copy(&mut table, &live).map_err(|_| Reason::Resources)?;
        self.forks += 1;
        Ok(())
    }

    /// The child has its copies.
    pub(crate) fn forked(&mut self) {
        if self.frozen().is_some() {
            // SAFETY: the thread that forked has the lock.
            drop_copies(unsafe { blocks::locked_by_fork() }.all());
            self.thaw();
        }
    }

    /// Lends the blocks that a range touches, with the bytes that they have; and with `gaps` all
    /// other addresses of the window in the range. Returns their pages.
    ///
    /// # Errors
    /// There is no memory for that, or a page cannot be read: they stay as they are.
    pub(crate) fn give_back(
        &mut self,
        range: &Range<usize>,
        gaps: bool,
        reason: Reason,
    ) -> Result<u32, Reason> {
        let mut table = blocks::lock();
        let live = live_blocks(&mut table, range);
        let gaps = if gaps { table.gaps(range) } else { Vec::new() };
        if live.is_empty() && gaps.is_empty() {
            return Ok(0);
        }
        self.copy(&mut table, &live).map_err(|_| Reason::Resources)?;
        let mut bytes = 0;
        for at in live {
            let block = table.all()[at];
            self.lend(&block.range(), || {
                restore(&mut table.all()[at..=at]);
                Ok(())
            });
            table.lend(block.start);
            bytes += block.range().len();
        }
        for gap in &gaps {
            if table.put_lent(gap).is_err() {
                self.thaw();
                return Err(Reason::Resources);
            }
            // What the program puts there comes next; until then it cannot be touched.
            self.lend(gap, || Ok(()));
        }
        self.thaw();
        if bytes > 0 {
            self.given_back.get_or_insert(reason);
            self.given_back_bytes += bytes as u64;
        }
        Ok((bytes / rustix::param::page_size()) as u32)
    }

    /// Gives all blocks back, and makes no more.
    ///
    /// # Errors
    /// As [`give_back`](Self::give_back).
    pub(crate) fn end(&mut self, reason: Reason) -> Result<u32, Reason> {
        let pages = self.give_back(&(self.start..self.start + WINDOW), false, reason)?;
        blocks::lock().close();
        Ok(pages)
    }

    /// Gives the addresses up that no block has used yet, past the last one.
    ///
    /// # Errors
    /// The kernel's: the addresses stay.
    pub(crate) fn cut_tail(&mut self) -> Result<(), Reason> {
        let mut table = blocks::lock();
        self.freeze(&[]).map_err(|_| Reason::Resources)?;
        let tail = table.cut_tail();
        if !tail.is_empty() {
            self.lend(&tail, || {
                drop_copy(tail.start, tail.len());
                Ok(())
            });
        }
        self.thaw();
        Ok(())
    }

    /// Lends a part of the frozen window. `replace` does not fail, or ends the program.
    fn lend(&mut self, range: &Range<usize>, replace: impl FnOnce() -> io::Result<()>) {
        let part = self.part(range);
        if let Held::Frozen(frozen) = &mut self.held {
            // SAFETY: the map is used by its addresses alone, by the program, whose memory is put
            // there; it is never dropped while the program lives.
            let lent = unsafe { frozen.lend(part, replace) };
            // Pages that could not be given up take room until the end.
            debug_assert!(lent.is_ok(), "{lent:?}");
        }
    }

    /// Looks now and then at what is not kept.
    pub(crate) fn tick(&mut self) {
        if self.outside.is_due() {
            self.outside.tick(self.charged(), self.max, self.given_back_bytes);
            self.count_kept();
        }
    }

    /// Bytes of lowtide's own memory that the budget holds: pages that are compressed, or free, and
    /// the tables that say where they are.
    fn charged(&self) -> u64 {
        let swap = self.tenant.swap_stat().unwrap_or_default();
        arena_bytes(self.tenant.pager()) + swap.table_bytes + swap.slot_bytes
    }

    /// Counts what is kept.
    fn count_kept(&mut self) {
        let pages = self.tenant.stat().map_or(0, |stat| stat.anon);
        let resident = pages * rustix::param::page_size() as u64;
        let kept = resident + self.tenant.swap_usage().unwrap_or_default();
        self.kept_peak = self.kept_peak.max(kept);
        self.counted = Instant::now();
    }

    /// What happened so far.
    pub(crate) fn summary(&mut self) -> HeapFigures {
        self.count_kept();
        let (outside_bytes, outside_peak_bytes) = self.outside.figures(self.charged());
        let (blocks, bytes) = blocks::sum();
        let (MapReport { resident_bytes, swapped_bytes, faults, .. }, error) = self.report();
        let swap = self.tenant.swap_stat().unwrap_or_default();
        let stat = self.tenant.stat().ok();
        let file = self.tenant.pager().swap_file();
        HeapFigures {
            max_bytes: self.max,
            blocks,
            bytes,
            resident_bytes,
            peak_bytes: self.tenant.peak().unwrap_or_default(),
            swapped_bytes,
            stored_bytes: swap.memory_bytes,
            file_bytes: file
                .map_or(0, |file| u64::from(file.used) * rustix::param::page_size() as u64),
            ratio: swap.ratio(),
            faults,
            refaults: stat.map_or(0, |stat| stat.events.workingset_refault_anon),
            forks: self.forks,
            kept_peak_bytes: self.kept_peak,
            outside_bytes,
            outside_peak_bytes,
            given_back: self.given_back.map(Reason::name),
            given_back_bytes: self.given_back_bytes,
            failure: error.as_ref().map(name_of),
            error: error.map(|error| error.to_string()),
            auto: AutoFigures::of(&self.tenant),
        }
    }

    /// Whether the program has, or had, any of it.
    pub(crate) fn was_used(&self) -> bool {
        self.given_back.is_some() || blocks::sum().0 > 0 || self.report().0.faults > 0
    }
}

impl Drop for Memory {
    /// The keeper has failed. Nothing else may take the addresses.
    fn drop(&mut self) {
        give_up("the thread that keeps memory within the budget failed");
    }
}

/// Numbers of the live blocks that touch a range.
fn live_blocks(table: &mut Table<'_>, range: &Range<usize>) -> Vec<usize> {
    let count = table.all().len();
    let mut live = Vec::new();
    for at in 0..count {
        let block = table.all()[at];
        if block.touches(range) && !block.is_dying() && table.place_of(&block) == Place::Live {
            live.push(at);
        }
    }
    live
}

/// Memory for a copy. What is not stored to takes none.
fn copy_of(len: usize) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: no address is demanded, so this replaces nothing.
    let got = unsafe {
        libc::syscall(libc::SYS_mmap, 0_usize, len, READ_WRITE, flags, -1_isize, 0_usize)
    };
    if got == -1 { Err(io::Error::last_os_error()) } else { Ok(got as usize) }
}

fn drop_copies(all: &mut [Block]) {
    for block in all.iter_mut().filter(|block| block.copy != 0) {
        let len = block.end - block.start;
        drop_copy(mem::take(&mut block.copy), len);
    }
}

fn drop_copy(start: usize, len: usize) {
    // SAFETY: addresses of ours that no thread uses.
    unsafe { libc::syscall(libc::SYS_munmap, start, len) };
}

/// Puts each copy where its block is, in one step, and protects its parts. Allocates nothing: a
/// child calls it before `fork` returns there.
pub(crate) fn restore(all: &mut [Block]) {
    // SAFETY: the caller has the table, so no other thread reads or writes this.
    let protected = unsafe { &*PROTECTED.0.get() };
    for block in all.iter_mut().filter(|block| block.copy != 0) {
        let (from, len) = (mem::take(&mut block.copy), block.end - block.start);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the copy is ours, and at the addresses is what it is a copy of, or a hole in a
        // child.
        let moved = unsafe { libc::syscall(libc::SYS_mremap, from, len, len, flags, block.start) };
        let is_whole = protected.iter().all(|part| part.apply(&block.range()));
        if moved == -1 || !is_whole {
            give_up("a copy of a heap cannot be put in its place");
        }
    }
}

/// The program would read wrong data, or hang: it ends instead.
pub(crate) fn give_up(why: &str) -> ! {
    for text in ["lowtide: ", why, "; the program ends\n"] {
        // SAFETY: the text, and its length.
        let _ = unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
    std::process::abort();
}
