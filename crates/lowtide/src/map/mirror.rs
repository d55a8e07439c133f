//! `userfault` mode: a mapping whose missing pages this process brings in itself.
//!
//! ```text
//!   program ──► window │ . . A . B . │  a memfd, sparse; registered for missing pages
//!                          ▲ copy      ▲ punch
//!   file ──direct read──► landing      └ eviction
//! ```
//!
//! The window is a *mirror* of the file: a page is there with all its bytes, or it is missing, and
//! a touch of a missing one makes the thread sleep until a server thread has installed it
//! (`server.rs`). Nothing but this process puts pages there, so what is resident is what is
//! charged: the budget is an invariant, as for views.
//!
//! **Young bits.** The window is registered for write protection, too, which only maps use that are
//! stored to (`stores.rs`). It makes the kernel map touched pages alone, without their neighbours.
//! So a page that is present has been touched since it was zapped. The touch that brought the page
//! in does not count ([decision 4](../../../docs/decisions/0004-first-accesses.md)): the first look
//! at such a page, which is *fresh*, only zaps it. So is most of a long window that is read ahead
//! (`sample.rs`).
//!
//! **Eviction** punches a hole. There are no guards: a thread that reads a page while it goes finds
//! it missing at its next load, and waits as for any other.
//!
//! **The end.** The addresses may be the program's own, and become something else later
//! ([`Placed`](super::Placed)), or a part of them may. So whatever touches them holds the right to
//! do so meanwhile (`reach.rs`), and [`Mirror::detach`] and [`Mirror::lend`] wait for it and take
//! it away.
//!
//! **Stores.** Write-back, and swap, take the bytes of resident pages by `pread(2)` from the memfd:
//! no fault that this process would have to serve itself, and nothing that could make a page. There
//! is no second mapping. Whatever reads all memory of a process (a debugger, a core dump) would
//! make zeroes of each missing page there, which the window then shows
//! ([decision 14](../../../docs/decisions/0014-one-mapping.md)).

use super::page_bits::PageBits;
use super::pages::{Arrival, MappedPages, StoredPages};
use super::reach::{Pages, Reach};
use super::sample;
use lowtide_sys::page_cache;
use lowtide_sys::pagemap::{Categories, Pagemap, Query, Region};
use lowtide_sys::shared::{Access, SharedMapping};
use lowtide_sys::userfault::{CopyError, Modes, UserFault};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, RwLockReadGuard};

/// Which pages are mapped.
pub(super) const PRESENT: Query = Query {
    inverted: Categories::empty(),
    required: Categories::PRESENT,
    any: Categories::empty(),
    returned: Categories::PRESENT,
    write_protect: false,
};

thread_local! {
    /// Pages that this thread has installed since it was asked last: threads that waited for
    /// them were woken.
    static INSTALLED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// Pages that this thread brings in for stores: it wakes the threads that wait for them when
    /// the pages are dirty.
    static FOR_STORES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Registers the destructors of these lists (`thread_locals.rs`).
pub(crate) fn register_lists() {
    INSTALLED.with(|_| ());
    FOR_STORES.with(|_| ());
}

/// Whether this thread has installed a page since it last [forgot](forget_installed) what it did.
pub(super) fn has_installed(page: u64) -> bool {
    INSTALLED.with_borrow(|pages| pages.contains(&page))
}

/// Forgets which pages this thread has installed.
pub(super) fn forget_installed() {
    INSTALLED.with_borrow_mut(Vec::clear);
}

/// Whether this thread brings a page in for a store, and answers it later.
fn answers_itself(page: u64) -> bool {
    FOR_STORES.with_borrow(|pages| pages.contains(&page))
}

/// From now on this thread answers for these pages itself, and for no others.
pub(super) fn will_answer(stores: impl Iterator<Item = u64>) {
    FOR_STORES.with_borrow_mut(|pages| {
        pages.clear();
        pages.extend(stores);
    });
}

/// The memory of one map. See the module documentation.
#[derive(Debug)]
pub(crate) struct Mirror {
    memory: File,
    window: Window,
    faults: Arc<UserFault>,
    pagemap: Pagemap,
    page_shift: u32,
    /// The page of the file that the window begins with.
    first: u64,
    pages: u64,
    fresh: PageBits,
    /// Whether being brought in counts as a touch ([`PagerBuilder::young_faults`]).
    ///
    /// [`PagerBuilder::young_faults`]: crate::PagerBuilder::young_faults
    young_faults: bool,
    /// The process that made it.
    process: u32,
    /// What it takes to be stored to, if it may be.
    stored: Option<Stored>,
    /// It may, now.
    writable: AtomicBool,
    /// Where its addresses lead.
    reach: Reach,
    /// The memory is gone.
    closed: AtomicBool,
    /// What was stored cannot be taken from the memory.
    #[cfg(test)]
    pub(super) broken: AtomicBool,
}

/// Where the program sees the memory.
#[derive(Debug)]
pub(super) enum Window {
    /// A mapping that ends with the mirror.
    Own(SharedMapping),
    /// Addresses of the program, which decides what becomes of them.
    Placed(Range<usize>),
}

impl Window {
    fn addresses(&self) -> Range<usize> {
        match self {
            Self::Own(mapping) => mapping.addresses(),
            Self::Placed(addresses) => addresses.clone(),
        }
    }
}

/// What a mirror has that the program stores to.
#[derive(Debug)]
pub(super) struct Stored {
    /// Bytes of the file that the program may store to.
    pub(super) bounds: Range<u64>,
    /// There is no file: pages come from swap, and go there (`heap.rs`).
    pub(super) heap: bool,
}

impl Mirror {
    pub(super) fn new(
        memory: File,
        window: Window,
        faults: Arc<UserFault>,
        pagemap: Pagemap,
        (page_shift, first, young_faults): (u32, u64, bool),
        stored: Option<Stored>,
    ) -> Self {
        let pages = (window.addresses().len() >> page_shift) as u64;
        let fresh = PageBits::new(pages);
        let (reach, closed) = (Reach::new(), AtomicBool::new(false));
        Self {
            memory,
            window,
            faults,
            pagemap,
            page_shift,
            first,
            pages,
            fresh,
            young_faults,
            process: std::process::id(),
            writable: AtomicBool::new(stored.is_some()),
            stored,
            reach,
            closed,
            #[cfg(test)]
            broken: AtomicBool::new(false),
        }
    }

    /// The program's addresses.
    pub(super) fn addresses(&self) -> Range<usize> {
        self.window.addresses()
    }

    /// The page of the file at an address of the window.
    pub(super) fn page_at(&self, address: usize) -> u64 {
        self.first + ((address - self.window.addresses().start) >> self.page_shift) as u64
    }

    /// The addresses of a page.
    pub(super) fn addresses_of(&self, page: u64) -> Range<usize> {
        self.range(page..page + 1)
    }

    /// Whether only user code's faults are served.
    pub(super) fn user_mode_only(&self) -> bool {
        self.faults.user_mode_only()
    }

    /// Whether the program may store to it.
    pub(super) const fn is_stored_to(&self) -> bool {
        self.stored.is_some()
    }

    /// Whether its pages come from swap, and not from a file.
    pub(super) fn is_heap(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.heap)
    }

    /// Pages that there are addresses for.
    pub(super) const fn pages(&self) -> u64 {
        self.pages
    }

    /// Pages of a heap have been given up: what was remembered of them goes, too, and a page that
    /// could not be brought in is as new.
    pub(super) fn forget(&self, pages: Range<u64>) {
        let Some(reach) = self.reach() else { return };
        for own in reach.own(self.clip(pages)) {
            self.zap(self.range(own));
        }
    }

    /// Lets the program store, or ends that.
    pub(super) fn permit(&self, access: Access) -> io::Result<()> {
        match &self.window {
            Window::Own(mapping) => mapping.protect(access)?,
            Window::Placed(_) => return Err(io::ErrorKind::Unsupported.into()),
        }
        self.writable.store(access == Access::ReadWrite, Relaxed);
        Ok(())
    }

    /// Whether the program can store to it now.
    pub(super) fn is_writable(&self) -> bool {
        self.writable.load(Relaxed)
    }

    /// Lets stores to pages go on, and wakes the threads that wait for them.
    pub(super) fn unprotect(&self, pages: Range<u64>) {
        if !self.is_stored_to() {
            return;
        }
        let Some(reach) = self.reach() else { return };
        for own in reach.own(pages) {
            if let Err(error) = self.set_protection(own.clone(), false) {
                tracing::error!(%error, ?own, "a thread that stores to a map cannot go on");
            }
        }
    }

    /// Wakes the threads that wait for a page; they fault again.
    pub(super) fn wake(&self, page: u64) {
        if let Err(error) = self.faults.wake(self.addresses_of(page)) {
            tracing::error!(%error, "a thread that waits for a page cannot be woken");
        }
    }

    fn set_protection(&self, pages: Range<u64>, protect: bool) -> io::Result<()> {
        loop {
            match self.faults.write_protect(self.range(pages.clone()), protect) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::yield_now();
                }
                other => return other,
            }
        }
    }

    /// The right to touch the addresses, if a pointer leads to any.
    fn reach(&self) -> Option<RwLockReadGuard<'_, Pages>> {
        self.reach.get()
    }

    /// Whether no pointer leads to a page any more.
    pub(super) fn is_out_of_reach(&self, page: u64) -> bool {
        self.reach().is_none_or(|reach| !reach.leads_to(page))
    }

    /// Lends pages to the program: `replace` puts other memory at their addresses. If it fails,
    /// nothing changes. Threads that wait for these pages look again.
    pub(super) fn lend(
        &self,
        pages: &Range<u64>,
        replace: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut reach = self.reach.change();
        replace()?;
        reach.lend(pages.clone());
        if let Err(error) = self.faults.wake(self.range(pages.clone())) {
            tracing::error!(%error, "threads that wait for a page of a map cannot be woken");
        }
        Ok(())
    }

    /// Takes the place of what is at the addresses of lent pages, in one step. Nothing can be
    /// touched there before the protection is changed.
    pub(super) fn take_back(&self, pages: &Range<u64>) -> io::Result<()> {
        let mut reach = self.reach.change();
        let (range, from) =
            (self.range(pages.clone()), (pages.start - self.first) << self.page_shift);
        // SAFETY: the program has lent these addresses, and gives them back.
        #[expect(unsafe_code, reason = "another mapping is replaced")]
        let placed = unsafe { SharedMapping::place(&self.memory, from, &range, Access::None) };
        placed?;
        page_cache::dont_fork(range.clone())?;
        page_cache::advise(range.clone(), page_cache::Advice::DontDump)?;
        // SAFETY: the addresses are the map's alone, no page of theirs is in the memory, and a
        // missing one gets what swap has.
        #[expect(unsafe_code, reason = "the mirror decides what its memory contains")]
        let registered =
            unsafe { self.faults.register(range, Modes::MISSING | Modes::WRITE_PROTECT) };
        registered?;
        // As when the window begins.
        self.punch(pages)?;
        reach.take_back(pages);
        Ok(())
    }

    /// Makes pages of the window missing, and gives their memory back.
    fn punch(&self, pages: &Range<u64>) -> io::Result<()> {
        let bytes = |page: u64| (page - self.first) << self.page_shift;
        page_cache::punch(&self.memory, bytes(pages.start)..bytes(pages.end))
    }

    /// The same, of all pages.
    fn punch_all(&self) -> io::Result<()> {
        self.punch(&(self.first..self.first + self.pages))
    }

    /// The window is registered, and the program has no pointer to it yet: nothing is in it.
    /// Whatever reads all memory of a process may have come between mapping and registering, and
    /// made pages of zeroes there: no touch of them would be a message, and no store be noticed.
    pub(super) fn begin(&self) -> io::Result<()> {
        self.punch_all()
    }

    /// No pointer leads here any more: no fault is served. What was stored stays until the mirror
    /// is closed. No-op in a child made by `fork`, where descriptors lead to the parent's memory.
    pub(super) fn detach(&self) {
        let detached = self.detach_and(|| match &self.window {
            Window::Own(mapping) => self.faults.unregister(mapping.addresses()),
            // Whatever is there now is not ours.
            Window::Placed(_) => Ok(()),
        });
        if let Err(error) = detached {
            tracing::error!(%error, "a map stays registered until its memory is gone");
        }
    }

    /// The same, by other means: `replace` puts other memory at the addresses, which has the bytes
    /// of the file. If it fails, nothing changes. Threads that wait for pages look again.
    pub(super) fn detach_and(&self, replace: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if std::process::id() != self.process {
            return Ok(());
        }
        let mut reach = self.reach.change();
        if !reach.attached {
            return Ok(());
        }
        let replaced = replace();
        // The kernel forgets who has to be woken only when the descriptor is closed, so this works
        // for memory that is gone, too.
        reach.attached = matches!(self.window, Window::Placed(_)) && replaced.is_err();
        if !reach.attached
            && let Err(error) = self.faults.wake(self.window.addresses())
        {
            tracing::error!(%error, "threads that wait for a page of a map cannot be woken");
        }
        replaced
    }

    /// Makes each touch of a page `SIGBUS`.
    pub(super) fn poison(&self, page: u64) -> Result<(), CopyError> {
        let Some(_reach) = self.reach().filter(|reach| reach.leads_to(page)) else { return Ok(()) };
        self.faults.poison(self.addresses_of(page)).map(|_| ())
    }

    /// Bytes of memory that the mirror has, as the kernel counts them.
    pub(super) fn memory_bytes(&self) -> u64 {
        rustix::fs::fstat(&self.memory).map_or(0, |stat| stat.st_blocks as u64 * 512)
    }

    /// Pages of the file that are in the window.
    fn clip(&self, pages: Range<u64>) -> Range<u64> {
        pages.start.max(self.first)..pages.end.min(self.first + self.pages)
    }

    fn range(&self, pages: Range<u64>) -> Range<usize> {
        let base = self.window.addresses().start;
        let at = |page: u64| base + ((page - self.first) << self.page_shift) as usize;
        at(pages.start)..at(pages.end)
    }

    /// Which of these pages are mapped, as runs.
    fn present(&self, pages: Range<u64>) -> Vec<Region> {
        let (pages, mut found) = (self.clip(pages), Vec::new());
        if pages.is_empty() || self.closed.load(Relaxed) {
            return found;
        }
        if let Err(error) = self.pagemap.scan(self.range(pages), &PRESENT, &mut found) {
            tracing::error!(%error, "touches of a map cannot be seen");
        }
        found
    }

    /// A thread waits for a page that is there by now: its touch is known, and that the page is
    /// present says nothing more.
    pub(super) fn expect_touch(&self, page: u64) {
        if !self.young_faults && self.clip(page..page + 1) == (page..page + 1) {
            self.fresh.set(page - self.first);
        }
    }

    /// Gives pages their bytes. Returns how many of the window have them, from the first on, and
    /// why it is not all. A program may have stored to those at once.
    fn bring(
        &self,
        first: u64,
        bytes: &[u8],
        how: Arrival,
        watched: bool,
    ) -> (u64, io::Result<()>) {
        let count = (bytes.len() >> self.page_shift) as u64;
        // Pages outside of the window come with a large folio, and no pointer leads to them.
        let pages = self.clip(first..first + count);
        let leads =
            |reach: &RwLockReadGuard<'_, Pages>| pages.clone().all(|page| reach.leads_to(page));
        let Some(_reach) = self.reach().filter(leads) else {
            return (0, Err(io::Error::new(io::ErrorKind::NotConnected, "the map is gone")));
        };
        let touched = how == Arrival::Touched;
        if touched && !self.young_faults {
            pages.clone().for_each(|page| self.fresh.set(page - self.first));
        }
        if how == Arrival::Window {
            sample::others(pages.clone()).for_each(|page| self.fresh.set(page - self.first));
        }
        if touched {
            INSTALLED.with_borrow_mut(|installed| installed.extend(pages.clone()));
        }
        // The first store to a page of a file has to be seen.
        let of_file = self.is_stored_to() && !self.is_heap();
        let protected = of_file || watched;
        // A page that is about to be dirty wakes the threads that wait for it when it is. One that
        // is read ahead is taken out of the page table first, or the touch of a thread that it
        // wakes would not be seen; such a thread's fault is answered by the one that serves it.
        let quiet = !touched || of_file && pages.clone().all(answers_itself);
        let skipped = ((pages.start - first) << self.page_shift) as usize;
        let len = ((pages.end - pages.start) << self.page_shift) as usize;
        let (range, bytes) = (self.range(pages.clone()), &bytes[skipped..skipped + len]);
        let (done, copied) = self.copy(range.start, bytes, (quiet, protected));
        let there = (done >> self.page_shift) as u64;
        let (range, pages) = (range.start..range.start + done, pages.start..pages.start + there);
        // Nothing waits for them: their first touches are to be seen.
        match how {
            Arrival::Ahead if done > 0 => self.zap(range),
            Arrival::Window => sample::samples(pages).for_each(|part| self.zap(self.range(part))),
            Arrival::Touched | Arrival::Ahead => {}
        }
        (there, copied)
    }

    /// Copies bytes to addresses of missing pages. Returns how many, and why not all.
    fn copy(
        &self,
        start: usize,
        bytes: &[u8],
        (quiet, protected): (bool, bool),
    ) -> (usize, io::Result<()>) {
        let mut done = 0;
        while done < bytes.len() {
            let (at, rest) = (start + done, &bytes[done..]);
            let copied = if quiet {
                self.faults.copy_quietly(at, rest, protected)
            } else {
                self.faults.copy(at, rest, protected)
            };
            let gone_on = match copied {
                Ok(copied) => {
                    done += copied;
                    Ok(())
                }
                Err(CopyError::Changing) => {
                    std::thread::yield_now();
                    Ok(())
                }
                Err(CopyError::Present) => {
                    // Memory that could not be given back, perhaps of an older version.
                    let from = (at - self.window.addresses().start) as u64;
                    page_cache::punch(&self.memory, from..from + (1 << self.page_shift))
                }
                Err(error) => Err(io_error(error)),
            };
            if gone_on.is_err() {
                return (done, gone_on);
            }
        }
        (done, Ok(()))
    }

    fn zap(&self, range: Range<usize>) {
        // SAFETY: the window is a shared mapping of a memfd: its pages stay in the page cache, and
        // come back with the next touch.
        #[expect(unsafe_code, reason = "zapping is unsafe for private mappings")]
        let zapped = unsafe { page_cache::zap(range) };
        if let Err(error) = zapped {
            tracing::error!(%error, "touches of a map cannot be seen");
        }
    }
}

impl MappedPages for Mirror {
    fn look(&self, pages: Range<u64>, touched: &mut dyn FnMut(u64)) {
        let Some(reach) = self.reach() else { return };
        for own in reach.own(self.clip(pages)) {
            let found = self.present(own);
            let (Some(first), Some(last)) = (found.first(), found.last()) else { continue };
            let present = first.range().start..last.range().end;
            for region in &found {
                for address in region.range().step_by(1 << self.page_shift) {
                    let page = self.page_at(address);
                    if !self.fresh.take(page - self.first) {
                        touched(page);
                    }
                }
            }
            self.zap(present);
        }
    }

    fn see(&self, pages: Range<u64>, touched: &mut dyn FnMut(u64)) {
        let Some(reach) = self.reach() else { return };
        for region in reach.own(self.clip(pages)).flat_map(|own| self.present(own)) {
            let addresses = region.range().step_by(1 << self.page_shift);
            addresses.for_each(|address| touched(self.page_at(address)));
        }
    }

    fn close(&self) {
        self.detach();
        if std::process::id() != self.process || self.closed.swap(true, Relaxed) {
            return;
        }
        if let Err(error) = self.punch_all() {
            tracing::error!(%error, "the memory of a map is given back later");
        }
    }

    fn stored(&self) -> Option<&dyn StoredPages> {
        self.stored.is_some().then_some(self)
    }

    fn watches(&self) -> bool {
        // A store of a system call to such a page would fail where only user code's faults are
        // served.
        self.is_heap() && !self.user_mode_only()
    }

    fn install(&self, first: u64, bytes: &[u8], how: Arrival, watched: bool) -> io::Result<()> {
        self.bring(first, bytes, how, watched).1
    }

    fn install_run(&self, first: u64, bytes: &[u8], how: Arrival, watched: bool) -> u64 {
        self.bring(first, bytes, how, watched).0
    }

    fn release(&self, pages: Range<u64>) {
        let pages = self.clip(pages);
        if pages.is_empty() || self.closed.load(Relaxed) {
            return;
        }
        if let Err(error) = self.punch(&pages) {
            tracing::error!(%error, "memory of a map cannot be given back");
        }
    }
}

impl StoredPages for Mirror {
    fn bounds(&self) -> Range<u64> {
        self.stored.as_ref().map_or(0..0, |stored| stored.bounds.clone())
    }

    fn protect(&self, pages: Range<u64>) -> io::Result<()> {
        // Without a pointer there are no stores.
        let Some(reach) = self.reach() else { return Ok(()) };
        reach.own(pages).try_for_each(|own| self.set_protection(own, true))
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> io::Result<()> {
        #[cfg(test)]
        if self.broken.load(Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let start = self.first << self.page_shift;
        let end = offset + to.len() as u64;
        assert!(
            start <= offset && end <= start + (self.pages << self.page_shift),
            "bytes that are not in a map are read: {offset}..{end}"
        );
        self.memory.read_exact_at(to, offset - start)
    }
}

fn io_error(error: CopyError) -> io::Error {
    match error {
        CopyError::Io(source) => source,
        CopyError::NoSpace => io::Error::from_raw_os_error(libc::ENOSPC),
        CopyError::NoMemory => io::Error::from_raw_os_error(libc::ENOMEM),
        other => io::Error::other(other),
    }
}
