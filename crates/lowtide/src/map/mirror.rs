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
//! ([`Placed`](super::run::Placed)). What is there then is not the mirror's: zapping it would lose
//! bytes, and a page that is installed there would be another's. So whatever touches addresses
//! holds the right to do so meanwhile ([`Mirror::reach`]), and [`Mirror::detach`] waits for it and
//! takes it away.
//!
//! **Stores.** Write-back, and swap, take the bytes of resident pages by `pread(2)` from the memfd:
//! no fault that this process would have to serve itself, and nothing that could make a page. There
//! is no second mapping. Whatever reads all memory of a process (a debugger, a core dump) would
//! make zeroes of each missing page there, which the window then shows
//! ([decision 14](../../../docs/decisions/0014-one-mapping.md)).

use super::page_bits::PageBits;
use super::pages::{Arrival, MappedPages, StoredPages};
use super::sample;
use super::space::{PageTables, scan};
use lowtide_sys::page_cache;
use lowtide_sys::pagemap::{Categories, Query, Region};
use lowtide_sys::room::Own;
use lowtide_sys::shared::{Rights, SharedMapping};
use lowtide_sys::tell;
use lowtide_sys::userfault::{CopyError, UserFault};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

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
    memory: Own<File>,
    window: Window,
    faults: Arc<Own<UserFault>>,
    pagemap: PageTables,
    page_shift: u32,
    /// The page of the file that the window begins with.
    first: u64,
    pages: u64,
    fresh: PageBits,
    /// Whether being brought in counts as a touch ([`young_faults`]).
    ///
    /// [`young_faults`]: crate::advanced::PagerAdvanced::young_faults
    young_faults: bool,
    /// The process that made it.
    process: u32,
    /// What it takes to be stored to, if it may be.
    stored: Option<Stored>,
    /// It may, now.
    writable: AtomicBool,
    /// It is where the program sees it.
    arrived: AtomicBool,
    /// A pointer leads to it.
    attached: RwLock<bool>,
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
    /// Addresses of the program, which decides what becomes of them. Until the memory is put there
    /// it is mapped aside, at this address.
    Placed(Range<usize>, usize),
}

impl Window {
    fn addresses(&self) -> Range<usize> {
        match self {
            Self::Own(mapping) => mapping.addresses(),
            Self::Placed(addresses, _) => addresses.clone(),
        }
    }

    /// Where the memory is when its faults begin to be served.
    fn first_addresses(&self) -> Range<usize> {
        match self {
            Self::Own(mapping) => mapping.addresses(),
            Self::Placed(addresses, aside) => *aside..aside + addresses.len(),
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
        memory: Own<File>,
        window: Window,
        faults: Arc<Own<UserFault>>,
        pagemap: PageTables,
        (page_shift, first, young_faults): (u32, u64, bool),
        stored: Option<Stored>,
    ) -> Self {
        let pages = (window.addresses().len() >> page_shift) as u64;
        let fresh = PageBits::new(pages);
        let (attached, closed) = (RwLock::new(true), AtomicBool::new(false));
        let arrived = AtomicBool::new(matches!(window, Window::Own(_)));
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
            arrived,
            attached,
            closed,
            #[cfg(test)]
            broken: AtomicBool::new(false),
        }
    }

    /// The program's addresses.
    pub(super) fn addresses(&self) -> Range<usize> {
        self.window.addresses()
    }

    /// Where the memory is when its faults begin to be served.
    pub(super) fn first_addresses(&self) -> Range<usize> {
        self.window.first_addresses()
    }

    /// It is where the program sees it from now on, if it was moved there, and in any case nothing
    /// is left where it was: whatever reads all memory of a process may wait for a page there.
    pub(super) fn arrive(&self, is_there: bool) {
        self.arrived.store(is_there, Release);
        if let Err(error) = self.faults.with(|faults| faults.wake(self.first_addresses())) {
            tell!(error, %error, "who waits for a page of a map that was moved cannot be woken");
        }
    }

    /// Whether it is where the program sees it. If not, what a thread touched there was another.
    pub(super) fn has_arrived(&self) -> bool {
        self.arrived.load(Acquire)
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
        self.faults.fact(UserFault::user_mode_only)
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
        let Some(_reach) = self.reach() else { return };
        let own = self.clip(pages);
        if !own.is_empty() {
            self.zap(self.range(own));
        }
    }

    /// Lets the program store, or ends that.
    pub(super) fn permit(&self, access: Rights) -> io::Result<()> {
        match &self.window {
            Window::Own(mapping) => mapping.protect(access)?,
            Window::Placed(..) => return Err(io::ErrorKind::Unsupported.into()),
        }
        self.writable.store(access == Rights::ReadWrite, Relaxed);
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
        let Some(_reach) = self.reach() else { return };
        if let Err(error) = self.set_protection(pages.clone(), false) {
            tell!(error, %error, ?pages, "a thread that stores to a map cannot go on");
        }
    }

    /// Wakes the threads that wait for a page; they fault again.
    pub(super) fn wake(&self, page: u64) {
        if let Err(error) = self.faults.with(|faults| faults.wake(self.addresses_of(page))) {
            tell!(error, %error, "a thread that waits for a page cannot be woken");
        }
    }

    fn set_protection(&self, pages: Range<u64>, protect: bool) -> io::Result<()> {
        let range = self.range(pages);
        self.faults.with(|faults| faults.write_protect(range, protect))
    }

    /// The right to touch the addresses, if a pointer leads to any.
    fn reach(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let attached = self.attached.read().unwrap_or_else(PoisonError::into_inner);
        attached.then_some(attached)
    }

    /// Whether no pointer leads to it any more.
    pub(super) fn is_detached(&self) -> bool {
        self.reach().is_none()
    }

    /// Makes pages of the window missing, and gives their memory back.
    fn punch(&self, pages: &Range<u64>) -> io::Result<()> {
        let bytes = |page: u64| (page - self.first) << self.page_shift;
        let bytes = bytes(pages.start)..bytes(pages.end);
        self.memory.with(|memory| page_cache::punch(memory, bytes))
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
            Window::Own(mapping) => {
                self.faults.with(|faults| faults.unregister(mapping.addresses()))
            }
            // Whatever is there now is not ours.
            Window::Placed(..) => Ok(()),
        });
        if let Err(error) = detached {
            tell!(error, %error, "a map stays registered until its memory is gone");
        }
    }

    /// The same, by other means: `replace` puts other memory at the addresses, which has the bytes
    /// of the file. If it fails, nothing changes. Threads that wait for pages look again.
    pub(super) fn detach_and(&self, replace: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if std::process::id() != self.process {
            return Ok(());
        }
        let mut attached = self.attached.write().unwrap_or_else(PoisonError::into_inner);
        if !*attached {
            return Ok(());
        }
        let replaced = replace();
        // The kernel forgets who has to be woken only when the descriptor is closed, so this works
        // for memory that is gone, too.
        *attached = matches!(self.window, Window::Placed(..)) && replaced.is_err();
        if !*attached
            && let Err(error) = self.faults.with(|faults| faults.wake(self.window.addresses()))
        {
            tell!(error, %error, "threads that wait for a page of a map cannot be woken");
        }
        replaced
    }

    /// Makes each touch of a page `SIGBUS`.
    pub(super) fn poison(&self, page: u64) -> Result<(), CopyError> {
        let Some(_reach) = self.reach() else { return Ok(()) };
        self.fault(|faults| faults.poison(self.addresses_of(page))).map(|_| ())
    }

    /// Bytes of memory that the mirror has, as the kernel counts them.
    pub(super) fn memory_bytes(&self) -> u64 {
        let stat = self.memory.with(|memory| Ok(rustix::fs::fstat(memory)?));
        stat.map_or(0, |stat| stat.st_blocks as u64 * 512)
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

    /// Answers faults.
    fn fault<R: Send>(
        &self,
        answer: impl FnOnce(&UserFault) -> Result<R, CopyError> + Send,
    ) -> Result<R, CopyError> {
        self.faults.with(|faults| Ok(answer(faults))).unwrap_or_else(|e| Err(CopyError::Io(e)))
    }

    /// Which of these pages are mapped, as runs.
    fn present(&self, pages: Range<u64>) -> Vec<Region> {
        let (pages, mut found) = (self.clip(pages), Vec::new());
        if pages.is_empty() || self.closed.load(Relaxed) {
            return found;
        }
        if let Err(error) = scan(&self.pagemap, self.range(pages), &PRESENT, &mut found) {
            tell!(error, %error, "touches of a map cannot be seen");
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
        let Some(_reach) = self.reach() else {
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
        let (done, copied) = self.put(range.start, bytes, (quiet, protected));
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
    fn put(
        &self,
        start: usize,
        bytes: &[u8],
        (quiet, protected): (bool, bool),
    ) -> (usize, io::Result<()>) {
        let mut done = 0;
        while done < bytes.len() {
            let (at, rest) = (start + done, &bytes[done..]);
            let copied = if quiet {
                self.fault(|faults| faults.copy_quietly(at, rest, protected))
            } else {
                self.fault(|faults| faults.copy(at, rest, protected))
            };
            let gone_on = match copied {
                Ok(copied) => {
                    done += copied;
                    Ok(())
                }
                Err(CopyError::Present) => {
                    // Memory that could not be given back, perhaps of an older version.
                    let from = (at - self.window.addresses().start) as u64;
                    let page = from..from + (1 << self.page_shift);
                    self.memory.with(|memory| page_cache::punch(memory, page))
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
            tell!(error, %error, "touches of a map cannot be seen");
        }
    }
}

impl MappedPages for Mirror {
    fn look(&self, pages: Range<u64>, touched: &mut dyn FnMut(u64)) {
        let Some(_reach) = self.reach() else { return };
        let found = self.present(pages);
        let (Some(first), Some(last)) = (found.first(), found.last()) else { return };
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

    fn see(&self, pages: Range<u64>, touched: &mut dyn FnMut(u64)) {
        let Some(_reach) = self.reach() else { return };
        for region in self.present(pages) {
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
            tell!(error, %error, "the memory of a map is given back later");
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

    fn copy(&self, page: u64, to: &mut [u8]) -> bool {
        let is_there = self.clip(page..page + 1) == (page..page + 1);
        is_there && !self.closed.load(Relaxed) && self.read(page << self.page_shift, to).is_ok()
    }

    fn release(&self, pages: Range<u64>) {
        let pages = self.clip(pages);
        if pages.is_empty() || self.closed.load(Relaxed) {
            return;
        }
        if let Err(error) = self.punch(&pages) {
            tell!(error, %error, "memory of a map cannot be given back");
        }
    }
}

impl StoredPages for Mirror {
    fn bounds(&self) -> Range<u64> {
        self.stored.as_ref().map_or(0..0, |stored| stored.bounds.clone())
    }

    fn protect(&self, pages: Range<u64>) -> io::Result<()> {
        // Without a pointer there are no stores.
        let Some(_reach) = self.reach() else { return Ok(()) };
        self.set_protection(pages, true)
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
        self.memory.with(|memory| memory.read_exact_at(to, offset - start))
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
