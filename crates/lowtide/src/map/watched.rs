//! `pagecache` mode: the kernel's own mapping of a file, watched and trimmed.
//!
//! The pages are those of the kernel's page cache, so everything works as usual: system calls on
//! the memory, stores, writes through descriptors, other processes, `fork`. lowtide only looks and
//! takes away:
//!
//! | the engine wants to know or do | what is done |
//! |---|---|
//! | which pages came in | scan the page tables for pages that are present (`watch.rs`) |
//! | which were touched again | zap them, and see which are present at the next look |
//! | evict a page | zap it, then `posix_fadvise(DONTNEED)` |
//!
//! A page stays in memory as long as any process maps it, so the last one drops it. The others see
//! in their page tables that they are not the last, and do not try: `posix_fadvise(2)` waits for
//! every processor before it gives such a page up as in use (`lru_add_drain_all`), half a
//! millisecond where all are busy.
//!
//! None of this loses a byte. Only pages that the scan shows as pages of a file are zapped: should
//! the program have put other memory there without our notice, it is not of a file, and stays. A
//! dirty page is not dropped: it is written, and goes then (`sweep.rs`).
//!
//! **Neighbours.** A fault maps up to 16 cached neighbours of the page, which look as if they had
//! been touched. Where a mapping can be registered for asynchronous write protection
//! (`userfaultfd(2)`, for mappings that may become writable) the kernel maps the page alone, and
//! young bits are exact; elsewhere they are coarse. [`Map::report`](super::Map::report) says which.
//!
//! **Without page tables** (no `PAGEMAP_SCAN`, no `/proc`) it is seen what the page cache has
//! (`mincore(2)`), and not what is mapped. Then touches cannot be seen, pages leave by
//! `MADV_PAGEOUT` in the order in which they came (`copy.rs`), and nothing is read ahead, since it
//! cannot be seen how far a reader has come.

use super::copy::{Copies, cut, without};
use super::handed::Handed;
use super::mirror::PRESENT;
use super::page_bits::PageBits;
use super::pages::{Arrival, MappedPages};
use super::run::company::Company;
use super::space::{PageTables, scan};
use lowtide_sys::page_cache::{self, CacheStat};
use lowtide_sys::pagemap::{Categories, Query, Region, mincore};
use lowtide_sys::room::Own;
use lowtide_sys::tell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard};

/// Pages that are mapped, and pages that are swapped out: with what they are of.
pub(super) const IN_USE: Query = Query {
    required: Categories::empty(),
    any: Categories::PRESENT.union(Categories::SWAPPED),
    returned: Categories::PRESENT.union(Categories::SWAPPED).union(Categories::FILE),
    ..PRESENT
};

/// Whether a region that [`IN_USE`] finds has pages of a file, which may be zapped.
pub(super) fn is_of_file(region: &Region) -> bool {
    region.categories() == Categories::PRESENT.union(Categories::FILE)
}

/// Bytes that are requested with one call: a kernel reads no more than its own window at a time,
/// and forgets the rest.
const PREFETCH: u64 = 128 << 10;
/// Bytes of a part of a mapping that is asked about at a time, without page tables.
const PART: usize = 64 << 20;
/// Bytes of the largest folio that a page cache makes of a file.
const FOLIO_MAX: u64 = 2 << 20;

/// One mapping: addresses, and the page of the file that they begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) addresses: Range<usize>,
    pub(super) first: u64,
    /// Of whom it is: what one takes over twice is forgotten twice.
    pub(super) owner: u64,
}

impl Mapping {
    /// The addresses of pages of the file, as far as they are in the mapping.
    pub(super) fn addresses_of(&self, pages: &Range<u64>, page_shift: u32) -> Range<usize> {
        let count = (self.addresses.len() >> page_shift) as u64;
        let at = |page: u64| {
            let within = page.clamp(self.first, self.first + count) - self.first;
            self.addresses.start + (within << page_shift) as usize
        };
        at(pages.start)..at(pages.end)
    }
}

/// All mappings of one file. See the module documentation.
#[derive(Debug)]
pub(crate) struct Watched {
    file: Arc<Own<File>>,
    /// None where they cannot be scanned.
    pagemap: Option<PageTables>,
    pub(super) page_shift: u32,
    young_faults: bool,
    state: Mutex<State>,
    /// Nothing is charged for the file any more.
    ended: AtomicBool,
    /// Pages were dirty at the last look.
    dirty: AtomicBool,
    /// What other processes have of it.
    pub(super) company: Company,
}

/// What the program's calls change.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) mappings: Vec<Mapping>,
    /// Mappings with stores of their own, which are never zapped (`copy.rs`).
    copies: Copies,
    fresh: PageBits,
    /// Pages that other processes had mapped, too, when they were taken out of this one's page
    /// table.
    pub(super) elsewhere: PageBits,
    /// The last pages that were given back, one run behind the other.
    gone: Range<u64>,
    /// What is handed to the kernel, for each stream.
    pub(super) handed: Vec<Handed>,
    /// Parts of the file, of [`FOLIO_MAX`] bytes, that were handed since they were dropped.
    pub(super) folios: PageBits,
    /// The parts that were dropped last.
    pub(super) dropped: VecDeque<u64>,
    closed: bool,
}

impl State {
    /// Whether a page of the file is mapped at one address of this process, at most.
    pub(super) fn is_mapped_once(&self) -> bool {
        self.mappings.len() == 1 && self.copies.mappings().next().is_none()
    }
}

impl Watched {
    pub(super) fn new(
        file: Arc<Own<File>>,
        pagemap: Option<PageTables>,
        page_shift: u32,
        young_faults: bool,
        company: Company,
    ) -> Self {
        let state = Mutex::new(State::default());
        let (ended, dirty) = Default::default();
        Self { file, pagemap, page_shift, young_faults, state, ended, dirty, company }
    }

    pub(super) const fn file(&self) -> &Arc<Own<File>> {
        &self.file
    }

    /// Whether it is seen which pages are touched, and not only which are cached.
    pub(super) const fn sees_touches(&self) -> bool {
        self.pagemap.is_some()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lowtide_pin::sync::lock(&self.state)
    }

    /// Some pages of the file are dirty now, or none.
    pub(super) fn note_dirty(&self, any: bool) {
        self.dirty.store(any, Relaxed);
    }

    /// Watches a mapping from now on.
    pub(super) fn add(&self, mapping: Mapping) {
        let mut state = self.state();
        self.make_fresh(&mut state, &mapping);
        state.mappings.push(mapping);
    }

    /// Watches a mapping whose pages are never zapped: a private one that may be stored to, or any
    /// without page tables.
    pub(super) fn add_copies(&self, mapping: Mapping) {
        let mut state = self.state();
        self.make_fresh(&mut state, &mapping);
        state.copies.add(mapping);
    }

    fn make_fresh(&self, state: &mut State, mapping: &Mapping) {
        let end = mapping.first + (mapping.addresses.len() >> self.page_shift) as u64;
        if end > state.fresh.pages() {
            state.fresh.grow(end);
            state.elsewhere.grow(end);
            state.folios.grow(end.div_ceil(self.folio()));
        }
    }

    /// Looks at addresses of an owner no more, and takes nothing away there for it: when this
    /// returns, and no other owner has them, the program may put other memory there. Returns those
    /// that are watched no more.
    pub(super) fn forget(&self, gone: &Range<usize>, owner: u64) -> Vec<Range<usize>> {
        let mut state = self.state();
        let mut forgotten = cut(&mut state.mappings, gone, owner, self.page_shift);
        forgotten.extend(cut(state.copies.mappings_mut(), gone, owner, self.page_shift));
        for other in state.mappings.iter().chain(state.copies.mappings()) {
            forgotten = without(forgotten, &other.addresses);
        }
        forgotten
    }

    /// Whether no mapping is watched.
    pub(super) fn is_unmapped(&self) -> bool {
        let state = self.state();
        state.mappings.is_empty() && state.copies.mappings().next().is_none()
    }

    /// Those of `pages` that are mapped now, as runs, for one mapping after the other.
    pub(super) fn present(&self, pages: Range<u64>, runs: &mut Vec<Range<u64>>) -> io::Result<()> {
        let state = self.state();
        let mut found = Vec::new();
        for mapping in state.mappings.iter().chain(state.copies.mappings()) {
            found.clear();
            let addresses = mapping.addresses_of(&pages, self.page_shift);
            if addresses.is_empty() {
                continue;
            }
            let Some(pagemap) = &self.pagemap else {
                self.cached(mapping, addresses, runs)?;
                continue;
            };
            scan(pagemap, addresses, &IN_USE, &mut found)?;
            let regions = found.iter().filter(|region| is_of_file(region));
            runs.extend(regions.map(|region| self.pages_of(mapping, region.range())));
        }
        Ok(())
    }

    /// Pages of the page cache, as runs. Cost: a few nanoseconds for each page of those parts of
    /// the mapping of which anything is cached.
    fn cached(
        &self,
        mapping: &Mapping,
        addresses: Range<usize>,
        runs: &mut Vec<Range<u64>>,
    ) -> io::Result<()> {
        let mut resident = Vec::new();
        for start in addresses.clone().step_by(PART) {
            let part = start..start.saturating_add(PART).min(addresses.end);
            let pages = self.pages_of(mapping, part.clone());
            if self.cachestat(&pages).is_ok_and(|stat| stat.cached == 0) {
                continue;
            }
            resident.clear();
            resident.resize((pages.end - pages.start) as usize, 0);
            mincore(part, &mut resident)?;
            let mut at = pages.start;
            for run in resident.chunk_by(|one, next| one & 1 == next & 1) {
                let end = at + run.len() as u64;
                if run[0] & 1 == 1 {
                    runs.push(at..end);
                }
                at = end;
            }
        }
        Ok(())
    }

    /// Asks the kernel to read pages, and does not wait for them. They come in one by one, and not
    /// in large folios, of which no part could be dropped.
    pub(super) fn prefetch(&self, pages: &Range<u64>) {
        let step = (PREFETCH >> self.page_shift).max(1);
        for first in pages.clone().step_by(step as usize) {
            let (start, end) = (first, (first + step).min(pages.end));
            let (start, end) = (start << self.page_shift, end << self.page_shift);
            if let Err(error) =
                self.file.with(|file| page_cache::read_ahead(file, start, end - start))
            {
                tell!(debug, %error, "nothing is read ahead");
            }
        }
    }

    /// A page that has come in was noticed: its being present is no second touch.
    pub(super) fn admitted(&self, page: u64) {
        if !self.young_faults {
            self.state().fresh.set(page);
        }
    }

    /// Drops what is cached, unless other processes pay for pages of it, and nothing any more: the
    /// last mapping is gone.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.mappings.clear();
        state.copies = Copies::default();
        state.closed = true;
        if self.company.end() == 0
            && let Err(error) = self.drop_cached(0..0)
        {
            tell!(debug, %error, "pages of a file stay cached");
        }
    }

    /// Notes that the engine knows none of its pages any more.
    pub(super) fn end(&self) {
        self.ended.store(true, Release);
    }

    /// Whether the engine knows none of its pages any more, and never will.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    /// Drops what has stayed of pages that were dropped now, since they are of folios that begin in
    /// `gone`, before them: a folio goes as a whole.
    fn drop_folios(&self, gone: Range<u64>, now: Range<u64>) {
        if self.cachestat(&now).is_ok_and(|stat| stat.cached > 0) {
            let first = now.start.saturating_sub(self.folio()).max(gone.start);
            if let Err(error) = self.drop_cached(first..now.end) {
                tell!(error, %error, "pages of a map cannot be dropped");
            }
        }
    }

    /// Whether some of these pages wait to be written, or for the end of that.
    pub(super) fn are_dirty(&self, pages: &Range<u64>) -> bool {
        self.dirty.load(Relaxed)
            && self.cachestat(pages).is_ok_and(|stat| stat.dirty + stat.writeback > 0)
    }

    /// What the page cache has of some pages.
    pub(super) fn cachestat(&self, pages: &Range<u64>) -> io::Result<CacheStat> {
        let (start, end) = (pages.start << self.page_shift, pages.end << self.page_shift);
        self.file.with(|file| page_cache::cachestat(file, start, end - start))
    }

    /// Pages of the largest folio.
    pub(super) const fn folio(&self) -> u64 {
        FOLIO_MAX >> self.page_shift
    }

    /// Drops cached pages that no engine knows of.
    pub(super) fn drop_cached(&self, pages: Range<u64>) -> io::Result<()> {
        let (start, end) = (pages.start << self.page_shift, pages.end << self.page_shift);
        self.file.with(|file| page_cache::drop_cached(file, start, end - start))
    }

    /// Drops pages for which there is no room, as far as nothing uses them.
    pub(super) fn drop_uncharged(&self, pages: Range<u64>) {
        if let Err(error) = self.drop_cached(pages) {
            tell!(error, %error, "pages of a file cannot be dropped");
        }
    }

    fn pages_of(&self, mapping: &Mapping, addresses: Range<usize>) -> Range<u64> {
        let page =
            |at: usize| mapping.first + ((at - mapping.addresses.start) >> self.page_shift) as u64;
        page(addresses.start)..page(addresses.end)
    }

    /// Notes which pages other processes map, too. One that this process maps twice looks the same,
    /// so nothing is noted of a file with several mappings.
    fn note_elsewhere(&self, state: &State, mapping: &Mapping, found: &[Region]) {
        let Some(pagemap) = self.pagemap.as_ref().filter(|_| state.is_mapped_once()) else {
            return;
        };
        let mut entries = Vec::new();
        for region in found.iter().filter(|region| is_of_file(region)) {
            if pagemap.with(|map| map.entries(region.range(), &mut entries)).is_err() {
                entries.clear();
            }
            for (page, entry) in self.pages_of(mapping, region.range()).zip(&entries) {
                if entry.is_present() && !entry.is_exclusive() {
                    state.elsewhere.set(page);
                } else {
                    state.elsewhere.take(page);
                }
            }
        }
    }

    /// Drops pages, but for those that other processes map, too: the kernel drops none, and
    /// waits for every processor first.
    fn drop_unshared(&self, state: &State, pages: &Range<u64>) {
        let mut at = pages.start;
        while at < pages.end {
            let is_shared = |page: &u64| state.is_mapped_once() && state.elsewhere.take(*page);
            let end = (at..pages.end).find(is_shared).unwrap_or(pages.end);
            if end > at
                && let Err(error) = self.drop_cached(at..end)
            {
                tell!(error, %error, "pages of a map cannot be dropped");
            }
            at = end + 1;
        }
    }

    /// Takes pages out of the page tables; calls `each` with those that were there.
    pub(super) fn zap(&self, state: &State, pages: &Range<u64>, mut each: impl FnMut(Range<u64>)) {
        let Some(pagemap) = &self.pagemap else { return };
        let mut found = Vec::new();
        for mapping in &state.mappings {
            let addresses = mapping.addresses_of(pages, self.page_shift);
            if addresses.is_empty() {
                continue;
            }
            found.clear();
            if let Err(error) = scan(pagemap, addresses, &IN_USE, &mut found) {
                tell!(error, %error, "touches of a map cannot be seen");
            }
            let (Some(first), Some(last)) = (found.first(), found.last()) else { continue };
            let all = first.range().start..last.range().end;
            self.note_elsewhere(state, mapping, &found);
            let zapped = if found.iter().all(is_of_file) {
                // One call is worth many, though it loses a touch that is made meanwhile.
                take_out(all)
            } else {
                let of_file = found.iter().filter(|region| is_of_file(region));
                of_file.map(Region::range).try_for_each(take_out)
            };
            if let Err(error) = zapped {
                tell!(error, %error, "touches of a map cannot be seen");
            }
            for region in found.iter().filter(|region| is_of_file(region)) {
                each(self.pages_of(mapping, region.range()));
            }
        }
    }
}

/// Takes addresses out of the page tables.
fn take_out(addresses: Range<usize>) -> io::Result<()> {
    // SAFETY: a scan has just found nothing but pages of a file here, in a mapping that the program
    // has not taken back: it calls `forget` before it does, which waits for this. Shared pages keep
    // their bytes, and private ones have none of their own while they are pages of the file;
    // mappings to which the program may store privately are not watched.
    #[expect(unsafe_code, reason = "zapping is unsafe for private mappings")]
    unsafe {
        page_cache::zap(addresses)
    }
}

impl MappedPages for Watched {
    fn look(&self, pages: Range<u64>, touched: &mut dyn FnMut(u64)) {
        let state = self.state();
        self.zap(&state, &pages, |present| {
            present.filter(|page| !state.fresh.take(*page)).for_each(&mut *touched);
        });
    }

    fn install(&self, _: u64, _: &[u8], _: Arrival, _: bool) -> io::Result<()> {
        // The kernel has.
        Ok(())
    }

    fn install_run(&self, _: u64, _: &[u8], _: Arrival, _: bool) -> u64 {
        0
    }

    fn release(&self, pages: Range<u64>) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        if self.drop_handed(&mut state, &pages) {
            return;
        }
        self.zap(&state, &pages, |_| ());
        state.copies.page_out(self.pagemap.as_ref(), &pages, self.page_shift);
        if self.are_dirty(&pages) || self.company.may_leave(&pages) {
            // To drop dirty ones is to write them, and to wait for the device. `sweep.rs` does.
            return;
        }
        self.drop_unshared(&state, &pages);
        if state.gone.end == pages.start {
            state.gone.end = pages.end;
            self.drop_folios(state.gone.clone(), pages);
        } else {
            state.gone = pages;
        }
    }
}
