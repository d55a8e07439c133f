//! The compressed tier: pages in memory, each in the smallest form that it has.
//!
//! A store belongs to one tenant. Its memory is whole pages from that tenant's source
//! ([`PageSource`]), divided among classes of objects ([`blocks`](crate::blocks)); what is known of
//! each page is in a table split into shards ([`entries`](crate::entries)).
//!
//! **Locks.** A shard, then a class; never two shards, never two classes, and neither while a page
//! is compressed, decompressed or hashed, or while the source is called. What happens under them is
//! copying one object of at most 4 KiB and moving some words.
//!
//! **Storing** takes three short locks: an entry is reserved; the object is put into a block with
//! that entry as its owner; the entry is published. In between the entry belongs to this thread.
//! **Loading** takes the shard and, inside, the class, and copies the object out. So an object that
//! is moved or replaced in the background is found at its old or at its new place, and never
//! between.

use crate::blocks::{Class, NoRoom, Pages, Place};
use crate::classes::{CLASSES, class_of, shared_max};
use crate::codec::{self, Form, Packing, Scratch};
use crate::cold::{self, Dictionary, Encoders};
use crate::entries::{CHUNK_BYTES, Object, Shard, State, hash};
use crate::error::{Corrupt, Fault, Rejected};
use crate::figures::StoreStat;
use crate::handle::{Handle, SHARD_BITS, SHARDS};
use crate::lock::lock;
use crate::source::PageSource;
use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// The clock advances once in this many uses of a shard, so that threads do not share it all the
/// time.
const TICK: u32 = 16;

/// Limits of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// The most pages of memory that it takes from its source; see
    /// [`CompressedStore::set_limit`].
    pub memory: usize,
    /// The most pages that may be stored, those of one word included; at most [`Handle::MAX`].
    /// Tables take 44 bytes for each.
    pub slots: u32,
    /// Whether pages that do not compress are kept as they are. They take as much memory as they
    /// give back, so an owner that wants memory from its store refuses them.
    pub raw: bool,
    /// How pages are compressed when they are stored.
    pub packing: Packing,
    /// Whether pages are found by their tags, no two of which are alike: by
    /// [`take`](CompressedStore::take) and [`forget`](CompressedStore::forget).
    pub by_tag: bool,
}

impl Default for StoreLimits {
    fn default() -> StoreLimits {
        StoreLimits {
            memory: usize::MAX,
            slots: Handle::MAX,
            raw: true,
            packing: Packing::Quick,
            by_tag: false,
        }
    }
}

/// A page that was not used for long; see [`CompressedStore::coldest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cold {
    /// Where it is.
    pub handle: Handle,
    /// What [`store_tagged`](CompressedStore::store_tagged) was given.
    pub tag: u64,
    /// Bytes that it takes, without what its block loses.
    pub bytes: usize,
}

/// What several threads change is on lines of its own.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// What the tables take, and the pages that the source was charged for them.
#[derive(Debug, Default)]
struct Tables {
    bytes: usize,
    pages: usize,
}

/// What takes 50 KiB before anything is stored: made then, since most tenants store nothing.
struct Parts<P> {
    classes: Box<[Apart<Mutex<Class<P>>>]>,
    shards: Box<[Apart<Mutex<Shard>>]>,
}

/// Pages of one tenant, compressed in memory. All methods may be called from all threads.
pub struct CompressedStore<S: PageSource> {
    pub(crate) source: S,
    pub(crate) encoders: Encoders,
    parts: OnceLock<Parts<S::Page>>,
    limits: StoreLimits,
    limit: AtomicUsize,
    memory: Apart<AtomicUsize>,
    peak: AtomicUsize,
    stored: Apart<AtomicU32>,
    tables: Mutex<Tables>,
    clock: AtomicU32,
    pub(crate) age: Mutex<crate::age::Boundaries>,
    pub(crate) compacting: Mutex<()>,
    pub(crate) compacted: AtomicU64,
    pub(crate) recompressed: AtomicU64,
    rejected: AtomicU64,
    corrupt: AtomicU64,
}

impl<S: PageSource> CompressedStore<S> {
    /// An empty store. It takes no page before something is stored.
    #[must_use]
    pub fn new(source: S, limits: StoreLimits) -> CompressedStore<S> {
        let limits = StoreLimits { slots: limits.slots.min(Handle::MAX), ..limits };
        let page_bytes = source.page_bytes();
        let level = match limits.packing {
            Packing::Quick => cold::COLD,
            Packing::Tight => cold::QUICK,
        };
        CompressedStore {
            source,
            encoders: Encoders::new(level, page_bytes),
            parts: OnceLock::new(),
            limits,
            limit: AtomicUsize::new(limits.memory),
            memory: Apart(AtomicUsize::new(0)),
            peak: AtomicUsize::new(0),
            stored: Apart(AtomicU32::new(0)),
            tables: Mutex::default(),
            clock: AtomicU32::new(0),
            age: Mutex::default(),
            compacting: Mutex::new(()),
            compacted: AtomicU64::new(0),
            recompressed: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
        }
    }

    /// Where the pages come from.
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// Stores a page and returns its handle, with which it can be loaded any number of times until
    /// it is freed.
    ///
    /// Takes a page of memory if no block has room.
    ///
    /// # Errors
    /// [`Rejected`]; nothing was kept, and the page is the caller's as before.
    pub fn store(&self, page: &[u8]) -> Result<Handle, Rejected> {
        self.store_tagged(page, 0)
    }

    /// As [`store`](CompressedStore::store), with a word of the caller's (which page it is, for
    /// example) that [`coldest`](CompressedStore::coldest) returns.
    ///
    /// # Errors
    /// [`Rejected`]; nothing was kept, and the page is the caller's as before.
    pub fn store_tagged(&self, page: &[u8], tag: u64) -> Result<Handle, Rejected> {
        self.store_with(page, tag, None)
    }

    /// As [`store_tagged`](CompressedStore::store_tagged), with what pages of its kind have in
    /// common; of use where pages are packed [tightly](Packing::Tight).
    ///
    /// # Errors
    /// [`Rejected`]; nothing was kept, and the page is the caller's as before.
    pub fn store_with(
        &self,
        page: &[u8],
        tag: u64,
        with: Option<&Dictionary>,
    ) -> Result<Handle, Rejected> {
        self.try_store(page, tag, with).inspect_err(|_| {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn try_store(
        &self,
        page: &[u8],
        tag: u64,
        with: Option<&Dictionary>,
    ) -> Result<Handle, Rejected> {
        if page.len() != self.source.page_bytes() {
            return Err(Rejected::Size { bytes: page.len() });
        }
        let handle = self.reserve(tag)?;
        let state = match codec::same_filled(page) {
            Some(word) => Ok(State::Same(word)),
            None => {
                codec::with_scratch(page.len(), |scratch| self.keep(handle, (page, with), scratch))
            }
        };
        let mut shard = self.shard(handle.shard());
        match state {
            Ok(state) => {
                let stamp = self.now(&mut shard);
                shard.publish(handle.index(), state, stamp);
                Ok(handle)
            }
            Err(error) => {
                shard.cancel(handle.index());
                drop(shard);
                self.stored.0.fetch_sub(1, Ordering::AcqRel);
                Err(error)
            }
        }
    }

    fn pack<'a>(
        &self,
        scratch: &'a mut Scratch,
        page: &'a [u8],
        with: Option<&Dictionary>,
    ) -> (Form, &'a [u8]) {
        match self.limits.packing {
            Packing::Quick => scratch.pack(page, shared_max(page.len()), None),
            Packing::Tight => scratch.pack(page, page.len() / 10 * 7, Some((&self.encoders, with))),
        }
    }

    fn keep(
        &self,
        owner: Handle,
        (page, with): (&[u8], Option<&Dictionary>),
        scratch: &mut Scratch,
    ) -> Result<State, Rejected> {
        let (form, bytes) = self.pack(scratch, page, with);
        if form == Form::Raw && !self.limits.raw {
            return Err(Rejected::Incompressible);
        }
        let checksum = codec::checksum(bytes);
        let place = self.place(owner, bytes)?;
        let len = bytes.len() as u16;
        Ok(State::Object(Object { checksum, place, len, form, tried: false }))
    }

    /// Whether there are tables of pages, stored or gone.
    #[must_use]
    pub fn has_tables(&self) -> bool {
        self.shards().any(|number| self.shard(number).bytes() > 0)
    }

    /// Gives back the tables of shards in which nothing is stored.
    pub fn shrink_tables(&self) {
        for number in self.shards() {
            let chunks = self.shard(number).shrink();
            lock(&self.tables).bytes -= chunks * CHUNK_BYTES;
        }
        loop {
            {
                let mut tables = lock(&self.tables);
                let needed = tables.bytes.div_ceil(self.source.page_bytes());
                if tables.pages <= needed {
                    return;
                }
                tables.pages -= 1;
            }
            self.source.uncharge_table();
        }
    }

    /// Counts bytes of the caller's as bytes of tables, for which the source is charged. False if
    /// there is no room.
    pub fn charge(&self, bytes: usize) -> bool {
        self.charge_tables(bytes)
    }

    /// Bytes of the caller's are gone.
    pub fn uncharge(&self, bytes: usize) {
        lock(&self.tables).bytes -= bytes;
    }

    /// How many bytes a page would take, without storing it. `None` if it does not compress.
    pub fn packed_len(&self, page: &[u8], with: Option<&Dictionary>) -> Option<usize> {
        if codec::same_filled(page).is_some() {
            return Some(0);
        }
        codec::with_scratch(page.len(), |scratch| {
            let (form, bytes) = self.pack(scratch, page, with);
            (form != Form::Raw).then_some(bytes.len())
        })
    }

    /// Bytes that a stored page takes, without what its block loses. `None` if nothing is stored.
    pub fn len_of(&self, handle: Handle) -> Option<usize> {
        match self.shard(handle.shard()).get(handle.index())?.state {
            State::Object(object) => Some(usize::from(object.len)),
            _ => Some(0),
        }
    }

    /// Pages that are stored, or are about to be.
    pub fn len(&self) -> usize {
        self.stored.0.load(Ordering::Acquire) as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Loads a page and marks it as used. The page stays stored.
    ///
    /// # Errors
    /// [`Corrupt`] when its contents are not what was stored, or nothing is stored; then `page`
    /// may have been overwritten with bytes that mean nothing.
    pub fn load(&self, handle: Handle, page: &mut [u8]) -> Result<(), Corrupt> {
        self.read(handle, page, true)
    }

    /// As [`load`](CompressedStore::load), and the page stays as cold as it is: for writing it
    /// to the file.
    ///
    /// # Errors
    /// As [`load`](CompressedStore::load).
    pub fn peek(&self, handle: Handle, page: &mut [u8]) -> Result<(), Corrupt> {
        self.read(handle, page, false)
    }

    fn read(&self, handle: Handle, page: &mut [u8], touch: bool) -> Result<(), Corrupt> {
        self.try_read(handle, page, touch).map_err(|fault| {
            self.corrupt.fetch_add(1, Ordering::Relaxed);
            Corrupt { handle, fault }
        })
    }

    fn try_read(&self, handle: Handle, page: &mut [u8], touch: bool) -> Result<(), Fault> {
        if page.len() != self.source.page_bytes() {
            return Err(Fault::Buffer(page.len()));
        }
        let mut shard = self.shard(handle.shard());
        let state = shard.get(handle.index()).ok_or(Fault::Missing)?.state;
        let object = match state {
            State::Object(object) => object,
            State::Same(word) => {
                drop(shard);
                codec::fill(page, word);
                return Ok(());
            }
            State::Free(_) | State::Reserved => return Err(Fault::Missing),
        };
        if touch {
            let stamp = self.now(&mut shard);
            shard.touch(handle.index(), stamp);
        }
        if object.form == Form::Raw {
            self.class(object.place.class).read(object.place, page);
            drop(shard);
            return verify(&object, page);
        }
        codec::with_scratch(page.len(), |scratch| {
            let bytes = &mut scratch.object[..usize::from(object.len)];
            self.class(object.place.class).read(object.place, bytes);
            drop(shard);
            verify(&object, bytes)?;
            codec::unpack(object.form, bytes, page, None).then_some(()).ok_or(Fault::Undecodable)
        })
    }

    /// Frees a page. Its handle may be given to another one at once.
    ///
    /// # Panics
    /// When nothing is stored behind the handle: it was freed twice, or comes from another store.
    pub fn free(&self, handle: Handle) {
        self.remove(self.shard(handle.shard()), handle);
    }

    fn remove(&self, mut shard: MutexGuard<'_, Shard>, handle: Handle) {
        let state = shard.remove(handle.index()).unwrap_or_else(|| {
            panic!("{handle} is freed, and nothing is stored there");
        });
        let gone = match state {
            State::Object(object) => self.class(object.place.class).remove(object.place),
            _ => None,
        };
        drop(shard);
        self.give_back(gone);
        self.stored.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Loads the page with a tag, with the dictionary that it was stored with if there was one, and
    /// frees it. `None` if there is none.
    ///
    /// # Errors
    /// As [`load`](CompressedStore::load). The page is gone in any case.
    pub fn take(
        &self,
        tag: u64,
        page: &mut [u8],
        with: Option<&Dictionary>,
    ) -> Option<Result<(), Corrupt>> {
        let number = shard_of(tag);
        let mut shard = self.shard(number);
        let index = shard.find(tag)?;
        let taken = codec::with_scratch(page.len(), |scratch| {
            let state = shard.remove(index).expect("it was just found");
            let (mut object, mut gone) = (None, None);
            if let State::Object(found) = state {
                let mut class = self.class(found.place.class);
                class.read(found.place, &mut scratch.object[..usize::from(found.len)]);
                gone = class.remove(found.place);
                object = Some(found);
            }
            drop(shard);
            self.give_back(gone);
            self.stored.0.fetch_sub(1, Ordering::AcqRel);
            match (object, state) {
                (Some(object), _) => {
                    let bytes = &scratch.object[..usize::from(object.len)];
                    verify(&object, bytes)?;
                    let whole = codec::unpack(object.form, bytes, page, with);
                    whole.then_some(()).ok_or(Fault::Undecodable)
                }
                (None, State::Same(word)) => {
                    codec::fill(page, word);
                    Ok(())
                }
                (None, _) => Err(Fault::Missing),
            }
        });
        Some(taken.map_err(|fault| {
            self.corrupt.fetch_add(1, Ordering::Relaxed);
            Corrupt { handle: Handle::new(number, index), fault }
        }))
    }

    /// Frees the page with a tag. Returns whether there was one.
    pub fn forget(&self, tag: u64) -> bool {
        let number = shard_of(tag);
        let shard = self.shard(number);
        let Some(index) = shard.find(tag) else { return false };
        self.remove(shard, Handle::new(number, index));
        true
    }

    /// Frees the pages with certain tags. Cost: a look at all that are stored.
    pub fn forget_all(&self, goes: impl Fn(u64) -> bool) {
        for number in self.shards() {
            let gone: Vec<u64> = self.shard(number).tags().filter(|&tag| goes(tag)).collect();
            for tag in gone {
                self.forget(tag);
            }
        }
    }

    /// Up to `n` pages in the order of their last use, the coldest first, for writing them to the
    /// file. Pages of one word are not among them: they take no memory.
    ///
    /// The pages stay stored. Write back like this: [`peek`](CompressedStore::peek), write, make
    /// the page's owner refer to the file, [`free`](CompressedStore::free). A page may be loaded
    /// or freed by another thread meanwhile, if the caller allows that; then `peek` fails.
    #[must_use]
    pub fn coldest(&self, n: usize) -> Vec<Cold> {
        let now = self.clock.load(Ordering::Relaxed);
        let mut all: Vec<(u32, Cold)> = Vec::new();
        for number in self.shards() {
            let shard = self.shard(number);
            let cold = shard.by_use().take(n).filter_map(|(index, entry)| {
                let State::Object(object) = entry.state else { return None };
                let handle = Handle::new(number, index);
                let cold = Cold { handle, tag: entry.tag, bytes: usize::from(object.len) };
                Some((now.wrapping_sub(entry.stamp), cold))
            });
            all.extend(cold);
        }
        // The clock may have advanced since: such a stamp is the newest.
        let age = |age: u32| if age > u32::MAX / 2 { 0 } else { age };
        all.sort_by_key(|(since, _)| std::cmp::Reverse(age(*since)));
        all.into_iter().take(n).map(|(_, cold)| cold).collect()
    }

    /// The most pages of memory that the store takes. Below what it has, nothing is lost: pages
    /// that need memory are rejected until enough was freed.
    pub fn set_limit(&self, memory: usize) {
        self.limit.store(memory, Ordering::Release);
    }

    /// Pages of memory that the store has now.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.memory.0.load(Ordering::Acquire)
    }

    /// Figures. Takes each shard's lock for a moment.
    #[must_use]
    pub fn stat(&self) -> StoreStat {
        let pages = |pages: usize| pages as u64;
        let mut stat = StoreStat {
            memory: pages(self.memory()),
            memory_peak: pages(self.peak.load(Ordering::Relaxed)),
            memory_limit: pages(self.limit.load(Ordering::Relaxed)),
            compacted: self.compacted.load(Ordering::Relaxed),
            recompressed: self.recompressed.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
            ..StoreStat::default()
        };
        for number in self.shards() {
            let shard = self.shard(number);
            stat.add(&shard.sums);
            stat.table_bytes += shard.bytes() as u64;
        }
        stat.table_pages = pages(lock(&self.tables).pages);
        stat
    }

    fn reserve(&self, tag: u64) -> Result<Handle, Rejected> {
        let full = Rejected::Slots { slots: self.limits.slots };
        let more = |stored| (stored < self.limits.slots).then_some(stored + 1);
        let count = &self.stored.0;
        count.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).map_err(|_| full)?;
        let first = if self.limits.by_tag { shard_of(tag) } else { turn() as usize };
        let shards = || (0..SHARDS).map(|n| (first + n) % SHARDS);
        let free = |number| Some(Handle::new(number, self.shard(number).reserve(tag)?));
        // In one shard the table grows; if it cannot, an entry of another one does as well.
        let own = free(first % SHARDS).or_else(|| self.grow(first % SHARDS, tag));
        let found = own.or_else(|| {
            let others = || shards().filter(|_| !self.limits.by_tag);
            others().find_map(free).or_else(|| others().find_map(|n| self.grow(n, tag)))
        });
        found.ok_or_else(|| {
            count.fetch_sub(1, Ordering::AcqRel);
            let most = (Handle::MAX + 1) >> SHARD_BITS;
            let grows = shards().any(|number| self.shard(number).may_grow(most));
            if grows { Rejected::NoMemory { used: self.memory() } } else { full }
        })
    }

    /// An entry of a shard whose entries are all in use: it gets more of them, if the source has
    /// room for them.
    fn grow(&self, number: usize, tag: u64) -> Option<Handle> {
        let most = (Handle::MAX + 1) >> SHARD_BITS;
        if !self.shard(number).may_grow(most) || !self.charge_tables(CHUNK_BYTES) {
            return None;
        }
        let mut shard = self.shard(number);
        if shard.may_grow(most) {
            shard.grow();
        } else {
            // Another thread has done it meanwhile.
            lock(&self.tables).bytes -= CHUNK_BYTES;
        }
        Some(Handle::new(number, shard.reserve(tag)?))
    }

    /// Counts bytes of tables, in pages that the source is charged. False if there is no room.
    fn charge_tables(&self, bytes: usize) -> bool {
        loop {
            {
                let mut tables = lock(&self.tables);
                if tables.bytes + bytes <= tables.pages * self.source.page_bytes() {
                    tables.bytes += bytes;
                    return true;
                }
            }
            if !self.source.charge_table() {
                return false;
            }
            lock(&self.tables).pages += 1;
        }
    }

    /// Puts an object into a block of its class, which gets another page if none has room.
    pub(crate) fn place(&self, owner: Handle, bytes: &[u8]) -> Result<Place, Rejected> {
        let number = class_of(bytes.len(), self.source.page_bytes()) as u8;
        if let Ok(place) = self.class(number).put(owner.to_bits(), bytes) {
            return Ok(place);
        }
        let page = self.take_page()?;
        let mut class = self.class(number);
        match class.put(owner.to_bits(), bytes) {
            // Another thread has made room meanwhile.
            Ok(place) => {
                drop(class);
                self.give_back(Some(vec![page]));
                Ok(place)
            }
            Err(NoRoom) => {
                class.grow(page);
                Ok(class.put(owner.to_bits(), bytes).expect("a page more is room"))
            }
        }
    }

    fn take_page(&self) -> Result<S::Page, Rejected> {
        let limit = self.limit.load(Ordering::Acquire);
        let more = |used: usize| (used < limit).then_some(used + 1);
        let count = &self.memory.0;
        let used = count
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .map_err(|used| Rejected::Limit { used, limit })?;
        let Some(page) = self.source.take() else {
            count.fetch_sub(1, Ordering::AcqRel);
            return Err(Rejected::NoMemory { used });
        };
        self.peak.fetch_max(used + 1, Ordering::Relaxed);
        Ok(page)
    }

    /// Drops pages of a block, for which the caller has no lock. Returns their number.
    pub(crate) fn give_back(&self, pages: Option<Pages<S::Page>>) -> usize {
        let count = pages.as_ref().map_or(0, Vec::len);
        drop(pages);
        if count > 0 {
            self.memory.0.fetch_sub(count, Ordering::AcqRel);
        }
        count
    }

    fn parts(&self) -> &Parts<S::Page> {
        self.parts.get_or_init(|| {
            let page_bytes = self.source.page_bytes();
            let class = |number| Apart(Mutex::new(Class::new(number, page_bytes)));
            let shard = |_| Apart(Mutex::new(Shard::new(self.limits.by_tag)));
            Parts {
                classes: (0..CLASSES).map(class).collect(),
                shards: (0..SHARDS).map(shard).collect(),
            }
        })
    }

    /// The shards, if there are any yet.
    pub(crate) fn shards(&self) -> Range<usize> {
        0..self.parts.get().map_or(0, |parts| parts.shards.len())
    }

    pub(crate) fn shard(&self, number: usize) -> MutexGuard<'_, Shard> {
        lock(&self.parts().shards[number].0)
    }

    pub(crate) fn class(&self, number: u8) -> MutexGuard<'_, Class<S::Page>> {
        lock(&self.parts().classes[usize::from(number)].0)
    }

    /// The clock of uses, at a use of a shard.
    fn now(&self, shard: &mut Shard) -> u32 {
        shard.uses = shard.uses.wrapping_add(1);
        let ticks = shard.uses.is_multiple_of(TICK);
        if ticks { self.advance() } else { self.clock.load(Ordering::Relaxed) }
    }

    /// Advances the clock of uses. Returns its new value.
    pub(crate) fn advance(&self) -> u32 {
        self.clock.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }
}

impl<S: PageSource> fmt::Debug for CompressedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressedStore").field("stat", &self.stat()).finish_non_exhaustive()
    }
}

pub(crate) fn verify(object: &Object, bytes: &[u8]) -> Result<(), Fault> {
    let found = codec::checksum(bytes);
    let expected = object.checksum;
    (found == expected).then_some(()).ok_or(Fault::Checksum { expected, found })
}

/// The shard in which a page is found by its tag.
const fn shard_of(tag: u64) -> usize {
    hash(tag) as usize % SHARDS
}

/// The shard that this thread begins with: the next one each time, and another one in each thread.
fn turn() -> u32 {
    static THREADS: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static TURN: Cell<u32> = Cell::new(THREADS.fetch_add(5, Ordering::Relaxed));
    }
    // In a destructor of a thread that ends, any number will do.
    TURN.try_with(|turn| turn.replace(turn.get().wrapping_add(1))).unwrap_or(0)
}
