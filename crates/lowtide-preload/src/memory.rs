//! Memory without a file that is kept within the budget: what the keeper does with it.
//!
//! One region of the runtime (`lowtide::map`, without a file) is the window of which the program
//! gets blocks (`blocks.rs`). It has more addresses than memory: pages come with touches, and leave
//! for swap.
//!
//! A child of `fork`, and a program that does to such memory what cannot be done to it, get
//! *copies* of the blocks in the kernel's memory. They are made while nothing is stored to the
//! blocks (`MapMut::freeze`), so they are of one moment.
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

use crate::blocks::{self, Block};
use crate::budgets::Budgets;
use crate::heap::READ_WRITE;
use crate::judge::Reason;
use lowtide::map::{Frozen, MapMut, MapOptions, MapReport};
use lowtide::{Error, Tenant};
use serde::Serialize;
use std::cell::UnsafeCell;
use std::error::Error as AnyError;
use std::ops::Range;
use std::{io, mem, ptr};

/// Addresses of the window. The runtime takes 32 KiB of memory for each GiB of them.
const WINDOW: usize = 64 << 30;
/// Memory that is left to the machine when a child gets a copy.
const SPARE: u64 = 64 << 20;

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
    /// Why all of it was given to the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) given_back: Option<&'static str>,
    /// The first page that could not be brought in, by kind: its touch was `SIGBUS`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<&'static str>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// Parts of blocks that the program has protected, and how, when the last copies were made. A child
/// reads it, so it is not the keeper's alone. Under the table's lock.
struct Protected(UnsafeCell<Vec<Protection>>);

/// A range that is not to be loaded from and stored to, and what is permitted there.
type Protection = (Range<usize>, i32);

// SAFETY: it is touched by the thread that has the table's lock, or for which that thread waits.
unsafe impl Sync for Protected {}

static PROTECTED: Protected = Protected(UnsafeCell::new(Vec::new()));

/// The window.
pub(crate) struct Memory {
    map: MapMut,
    start: usize,
    tenant: Tenant,
    max: u64,
    /// While a process forks.
    frozen: Option<Frozen>,
    forks: u64,
    /// What is left of it after it was given to the kernel.
    ended: Option<HeapFigures>,
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
        let mut map = MapOptions::new().tenant(&tenant).len(WINDOW).map_anon(tenant.pager())?;
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
        if !blocks::protect(&window, libc::PROT_NONE) || !blocks::lock().begin(window) {
            return Err(io::Error::last_os_error().into());
        }
        Ok(Self { map, start, tenant, max, frozen: None, forks: 0, ended: None })
    }

    fn part(&self, range: &Range<usize>) -> Range<usize> {
        range.start - self.start..range.end - self.start
    }

    /// Makes whole pages zeroes that take no memory.
    pub(crate) fn discard(&mut self, range: &Range<usize>) -> Result<(), Reason> {
        if self.ended.is_some() {
            return Err(Reason::NoHeap);
        }
        let part = self.part(range);
        self.map.discard(part).map_err(|_| Reason::Broken)
    }

    /// Copies all blocks.
    fn copy(&self, all: &mut [Block]) -> io::Result<Frozen> {
        let live = |block: &&mut Block| {
            !block.is_dying() && (self.start..self.start + WINDOW).contains(&block.start)
        };
        let parts: Vec<_> =
            all.iter_mut().filter(live).map(|b| self.part(&(b.start..b.end))).collect();
        let frozen = self.map.freeze(&parts)?;
        let protected = protections(&(self.start..self.start + WINDOW))?;
        // SAFETY: the caller has the table, so no other thread reads or writes this.
        unsafe { *PROTECTED.0.get() = protected };
        let mut failed = None;
        for block in all.iter_mut().filter(live) {
            let result = copy_of(block.end - block.start).and_then(|copy| {
                block.copy = copy;
                let offset = block.start - self.start;
                frozen.for_each_page(offset..block.end - self.start, |at, bytes| {
                    let to = ptr::with_exposed_provenance_mut::<u8>(copy + (at - offset));
                    // SAFETY: the copy has a page there, which only this thread knows.
                    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
                    Ok(())
                })
            });
            if let Err(error) = result {
                failed = Some(error);
                break;
            }
        }
        match failed {
            Some(error) => {
                drop_copies(all);
                Err(error)
            }
            None => Ok(frozen),
        }
    }

    /// Whether the machine has memory for a copy.
    pub(crate) fn fits(&self) -> bool {
        let MapReport { resident_bytes, swapped_bytes, .. } = self.map.report();
        let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        kib.is_none_or(|kib| resident_bytes + swapped_bytes + SPARE <= kib << 10)
    }

    /// A process is about to fork: the thread that does has the table.
    ///
    /// # Errors
    /// There is no memory for a copy, or a page cannot be read.
    pub(crate) fn fork(&mut self) -> Result<(), Reason> {
        if self.ended.is_some() {
            return Ok(());
        }
        // SAFETY: the thread that forks has the lock, and waits.
        let mut table = unsafe { blocks::locked_by_fork() };
        let window = self.start..self.start + WINDOW;
        if table.first_live(&window).is_none() {
            return Ok(());
        }
        self.frozen = Some(self.copy(table.all()).map_err(|_| Reason::Resources)?);
        self.forks += 1;
        Ok(())
    }

    /// The child has its copies.
    pub(crate) fn forked(&mut self) {
        if self.frozen.take().is_some() {
            // SAFETY: the thread that forked has the lock.
            drop_copies(unsafe { blocks::locked_by_fork() }.all());
        }
    }

    /// Makes all blocks the kernel's, at the same addresses; their MiB.
    ///
    /// # Errors
    /// There is no memory for that, or a page cannot be read: they stay as they are.
    pub(crate) fn give_back(&mut self, reason: Reason) -> Result<u32, Reason> {
        if self.ended.is_some() {
            return Ok(0);
        }
        let mut table = blocks::lock();
        let figures = HeapFigures { given_back: Some(reason.name()), ..self.figures() };
        let bytes = figures.bytes;
        let frozen = self.copy(table.all()).map_err(|_| Reason::Resources)?;
        let replaced = frozen.replace(|| {
            restore(table.all());
            Ok(())
        });
        table.end();
        drop(table);
        drop(frozen);
        if replaced.is_err() {
            give_up("a heap cannot be given back to the kernel");
        }
        // The pages are needed no more. The addresses are the program's.
        let _ = self.map.discard(0..WINDOW);
        self.ended = Some(figures);
        Ok((bytes >> 20) as u32)
    }

    fn figures(&self) -> HeapFigures {
        let (blocks, bytes) = blocks::sum();
        let MapReport { resident_bytes, swapped_bytes, faults, .. } = self.map.report();
        let swap = self.tenant.swap_stat().unwrap_or_default();
        let stat = self.tenant.stat().ok();
        let file = self.tenant.pager().swap_file();
        let error = self.map.error();
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
            given_back: None,
            failure: error.as_ref().map(name_of),
            error: error.map(|error| error.to_string()),
        }
    }

    /// Whether the program has, or had, any of it.
    pub(crate) fn was_used(&self) -> bool {
        let of_map = || blocks::sum().0 > 0 || self.map.report().faults > 0;
        self.ended.is_some() || of_map()
    }

    /// What happened so far.
    pub(crate) fn summary(&self) -> HeapFigures {
        self.ended.clone().unwrap_or_else(|| self.figures())
    }
}

impl Drop for Memory {
    /// The keeper has failed. Nothing else may take the addresses.
    fn drop(&mut self) {
        if self.ended.is_none() {
            give_up("the thread that keeps memory within the budget failed");
        }
    }
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
        // SAFETY: a mapping of ours that no thread knows.
        unsafe { libc::syscall(libc::SYS_munmap, mem::take(&mut block.copy), len) };
    }
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
        let parts = protected
            .iter()
            .map(|(range, prot)| (range.start.max(block.start)..range.end.min(block.end), *prot));
        let mut parts = parts.filter(|(part, _)| !part.is_empty());
        if moved == -1 || !parts.all(|(part, prot)| blocks::protect(&part, prot)) {
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

/// Parts of a range that the program has protected, and how.
///
/// # Errors
/// Those of reading `/proc/self/maps`.
pub(crate) fn protections(within: &Range<usize>) -> io::Result<Vec<Protection>> {
    let text = std::fs::read_to_string("/proc/self/maps")?;
    let line = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let bits = [(b'r', libc::PROT_READ), (b'w', libc::PROT_WRITE), (b'x', libc::PROT_EXEC)];
        let has = |(at, (letter, _)): &(usize, (u8, i32))| rest.as_bytes().get(*at) == Some(letter);
        let prot = bits.into_iter().enumerate().filter(has).fold(0, |all, (_, (_, bit))| all | bit);
        (within.start < end && start < within.end && prot != READ_WRITE)
            .then_some((start..end, prot))
    };
    Ok(text.lines().filter_map(line).collect())
}
