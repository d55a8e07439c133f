//! The compressed clean pages of one tenant.

use super::clock::{Clock, Times};
use super::common::Common;
use super::frames::{Source, takes_too_much};
use super::kept::Kept;
use super::size::ZcacheSize;
use super::stat::ZcacheStat;
use crate::pool::{Pool, State, StateGuard};
use crate::swap::{budget_of, owner, tag};
use lowtide_core::zcache::{
    DROPPED, Governor, Intake, Measured, ROUNDS, TIMED, Tries, hash, is_sampled, make_room,
};
use lowtide_core::{MemcgId, Owner, SpaceId, ZswapEvents};
use lowtide_pin::sync::lock;
use lowtide_swap::{CompressedStore, Dictionary, Packing, PageSource, Rejected, StoreLimits};
use lowtide_sys::tell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

/// Frames that moving pages together is to free then.
const COMPACTED: usize = 8;

/// See the module documentation. Dropped without the pool's lock.
#[derive(Debug)]
pub(crate) struct Zcache {
    /// Before `place`, so that all frames are back when the place ends.
    store: CompressedStore<Source>,
    clock: Clock,
    intake: Intake,
    stored: AtomicU64,
    loaded: AtomicU64,
    incompressible: AtomicU64,
    /// Pages stored and loaded that its group's counters have.
    counted: Mutex<(u64, u64)>,
    /// Frames that it may have.
    target: AtomicU64,
    /// Which pages are in the sample.
    mask: u64,
    /// Dictionaries that may still be made.
    dictionaries: AtomicUsize,
    /// Those that are to be made.
    to_make: Mutex<Vec<Arc<Common>>>,
    is_measured: bool,
    deciding: Mutex<Deciding>,
    place: Place,
}

#[derive(Debug)]
struct Deciding {
    governor: Governor,
    times: Times,
    tries: Tries,
}

/// A place among the [`Zcaches`](super::Zcaches). Given up on drop.
#[derive(Debug)]
struct Place {
    pool: Weak<Pool>,
    index: usize,
}

impl Zcache {
    /// That of a group. `None` where nothing is compressed. Called with
    /// [`Pool::opening`], so that one thread at a time makes one.
    pub(crate) fn of(pool: &Pool, group: MemcgId) -> Option<Arc<dyn Kept>> {
        if pool.zcache_size == ZcacheSize::None {
            return None;
        }
        let mut state = pool.lock();
        if let Some(found) = state.zcaches.find(group) {
            drop(state);
            return Some(found);
        }
        let index = state.zcaches.begin(group);
        let budget = budget_of(&state, group);
        let target = match pool.zcache_size {
            ZcacheSize::None | ZcacheSize::Measured => 0,
            ZcacheSize::Sixteenths(part) => budget * part / 16,
        };
        let governor = Governor::new(budget);
        drop(state);
        let source = Source { pool: Weak::clone(&pool.me), index, page_bytes: pool.page_bytes() };
        let limits = StoreLimits {
            memory: target as usize,
            raw: false,
            packing: Packing::Tight,
            by_tag: true,
            ..StoreLimits::default()
        };
        let cache: Arc<dyn Kept> = Arc::new(Self {
            store: CompressedStore::new(source, limits),
            clock: Clock::new(),
            intake: Intake::new(pool.page_shift, pool.now()),
            stored: AtomicU64::new(0),
            loaded: AtomicU64::new(0),
            incompressible: AtomicU64::new(0),
            counted: Mutex::default(),
            target: AtomicU64::new(target),
            mask: governor.mask(),
            dictionaries: Common::most(pool.page_bytes(), budget << pool.page_shift).into(),
            to_make: Mutex::default(),
            is_measured: pool.zcache_size == ZcacheSize::Measured,
            deciding: Mutex::new(Deciding {
                governor,
                times: Times::default(),
                tries: Tries::default(),
            }),
            place: Place { pool: Weak::clone(&pool.me), index },
        });
        pool.lock().zcaches.settle(index, &cache);
        Some(cache)
    }

    /// The same for a map. Sizes are judged by what an access costs, and accesses through pointers
    /// are not counted: only where the size was chosen maps have it.
    pub(crate) fn of_map(pool: &Pool, group: MemcgId) -> Option<Arc<dyn Kept>> {
        matches!(pool.zcache_size, ZcacheSize::Sixteenths(_)).then(|| Self::of(pool, group))?
    }

    /// Whether nothing is to be stored.
    fn is_closed(&self) -> bool {
        self.target.load(Relaxed) == 0
    }

    /// Takes the memory of a dictionary, if there is room for another.
    fn charge_dictionary(&self, bytes: usize) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        let may = self.dictionaries.fetch_update(Relaxed, Relaxed, one_less).is_ok();
        let charged = may && self.store.charge(bytes);
        self.dictionaries.fetch_add(usize::from(may && !charged), Relaxed);
        charged
    }

    /// Stores a page; the coldest make room. Returns its size as it is kept.
    fn keep(
        &self,
        owner: Owner,
        bytes: &[u8],
        with: Option<&Dictionary>,
    ) -> Result<usize, Rejected> {
        let try_it = || {
            let handle = self.store.store_with(bytes, tag(owner), with)?;
            Ok(self.store.len_of(handle).unwrap_or(0))
        };
        let no_room = |done: &Result<usize, Rejected>| {
            matches!(done, Err(Rejected::Limit { .. } | Rejected::NoMemory { .. }))
        };
        let mut done = try_it();
        if no_room(&done) {
            self.drop_coldest(make_room(self.store.len()));
            done = try_it();
        }
        if no_room(&done) {
            self.store.compact(COMPACTED);
            done = try_it();
        }
        done
    }

    fn drop_coldest(&self, count: usize) -> usize {
        let coldest = self.store.coldest(count);
        coldest.iter().filter(|cold| self.store.forget(cold.tag)).count()
    }

    fn decide(&self, pool: &Pool, nanos: f64) {
        let budget = {
            let state = pool.lock();
            budget_of(&state, state.zcaches.group(self.place.index))
        };
        let stat = self.store.stat();
        let mut deciding = lock(&self.deciding);
        let Deciding { governor, times, tries, .. } = &mut *deciding;
        *times = self.clock.take(nanos, times);
        if !self.intake.begin(budget) {
            return;
        }
        let memory = stat.memory + stat.table_pages;
        let target = self.target.load(Relaxed);
        let compressed = self.stored.load(Relaxed) + self.incompressible.load(Relaxed);
        let target = governor.decide(&Measured {
            budget,
            evicted: self.intake.offered(),
            nanos,
            waited: times.waited,
            counts: self.clock.counts(self.loaded.load(Relaxed), compressed, times.waited / nanos),
            costs: times.costs,
            ratio: tries.ratio(pool.page_bytes() as f64, stat.stored, memory, target),
            kept: tries.kept(),
        });
        self.target.store(target, Relaxed);
        self.store.set_limit(target as usize);
    }
}

impl Kept for Zcache {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn wants(&self, owner: Owner, collects: bool, now: &dyn Fn() -> u64) -> bool {
        let (offered, is_wanted) = self.intake.offer(owner, self.is_closed(), collects, now);
        let hash = hash(owner);
        if is_sampled(hash, self.mask) {
            lock(&self.deciding).governor.evicted(hash, offered);
        }
        is_wanted
    }

    fn store(&self, owner: Owner, bytes: &[u8], common: &Arc<Common>) {
        let with = common.get();
        let closed = self.is_closed();
        let size = match closed {
            true => {
                // A processor that does this seldom takes long the first time.
                self.store.packed_len(bytes, with);
                self.clock.stores.time(true, || self.store.packed_len(bytes, with), |_| true)
            }
            false => {
                let timed = self.intake.is_timed();
                match self.clock.stores.time(timed, || self.keep(owner, bytes, with), |_| true) {
                    Ok(size) => Some(size),
                    Err(Rejected::Incompressible) => None,
                    // There is no room: that says nothing of the page.
                    Err(_) => return,
                }
            }
        };
        self.intake.note(owner, size.is_some());
        self.stored.fetch_add(u64::from(!closed && size.is_some()), Relaxed);
        self.incompressible.fetch_add(u64::from(size.is_none()), Relaxed);
        if closed || self.intake.is_timed() {
            lock(&self.deciding).tries.add(size);
        }
        if size.is_some() && common.collects() {
            let may = self.dictionaries.load(Relaxed) > 0;
            if common.add(bytes, may, |bytes| self.charge_dictionary(bytes)) {
                lock(&self.to_make).push(Arc::clone(common));
            }
        }
    }

    fn missed(&self, owner: Owner) {
        self.clock.note_miss();
        let hash = hash(owner);
        if is_sampled(hash, self.mask) {
            lock(&self.deciding).governor.missed(hash, self.intake.offered());
        }
    }

    fn load(&self, owner: Owner, to: &mut [u8], with: Option<&Dictionary>) -> bool {
        if self.store.is_empty() {
            return false;
        }
        let timed = self.loaded.load(Relaxed).is_multiple_of(TIMED);
        let take = || self.store.take(tag(owner), to, with);
        let taken = self.clock.loads.time(timed, take, Option::is_some);
        let Some(result) = taken else { return false };
        if let Err(error) = result {
            let page = owner.page;
            tell!(error, %error, page, "a compressed page is read from its file again");
            return false;
        }
        self.loaded.fetch_add(1, Relaxed);
        true
    }

    fn forget(&self, owner: Owner) {
        if !self.store.is_empty() {
            self.store.forget(tag(owner));
        }
    }

    fn forget_range(&self, space: SpaceId, pages: Range<u64>) {
        if self.store.is_empty() {
            return;
        }
        let at = |page| tag(Owner { space, page });
        if pages.end.saturating_sub(pages.start) <= DROPPED as u64 {
            for page in pages {
                self.store.forget(at(page));
            }
        } else {
            let goes = |of| owner(of).space == space && pages.contains(&owner(of).page);
            self.store.forget_all(goes);
        }
    }

    fn file_ends(&self, charged: usize) {
        self.store.uncharge(charged);
        self.dictionaries.fetch_add(usize::from(charged > 0), Relaxed);
        self.store.shrink_tables();
    }

    fn adapt(&self) {
        let Some(pool) = self.place.pool.upgrade() else { return };
        if !pool.background {
            self.maintain();
        }
        if self.is_measured
            && let Some(nanos) = self.intake.is_due(pool.now())
        {
            self.decide(&pool, nanos as f64);
        }
        let mut over = {
            let state = pool.lock();
            takes_too_much(&state, state.zcaches.group(self.place.index))
        };
        for _ in 0..ROUNDS {
            let is_small = self.store.memory() <= self.target.load(Relaxed) as usize;
            let has_tables = self.is_closed() && self.store.has_tables();
            if !over && is_small && !has_tables {
                return;
            }
            self.shrink();
            over = false;
        }
    }

    fn maintain(&self) {
        let page_bytes = self.store.source().page_bytes();
        for common in std::mem::take(&mut *lock(&self.to_make)) {
            common.make(page_bytes);
        }
    }

    fn shrink(&self) {
        // What is dropped leaves holes in many blocks. While these can be closed nothing more goes.
        if self.store.compact(COMPACTED) == 0 {
            let dropped = self.drop_coldest(2 * DROPPED);
            if self.store.compact(COMPACTED) + dropped == 0 {
                // Pages of one word take tables alone.
                self.store.forget_all(|_| true);
            }
        }
        if self.store.is_empty() {
            self.store.shrink_tables();
        }
    }

    fn count(&self) {
        let Some(pool) = self.place.pool.upgrade() else { return };
        let Ok(mut state) = pool.lock_sound() else { return };
        let mut counted = lock(&self.counted);
        let (stored, loaded) = (self.stored.load(Relaxed), self.loaded.load(Relaxed));
        let mut events = ZswapEvents::stored(stored - counted.0);
        events.zswpin = loaded - counted.1;
        *counted = (stored, loaded);
        let group = state.zcaches.group(self.place.index);
        state.engine.count_zswap(group, &events);
    }

    fn add_to(&self, sum: &mut ZcacheStat, page_shift: u32) {
        let stat = self.store.stat();
        sum.pages += stat.stored;
        sum.orig_bytes += stat.stored << page_shift;
        sum.compressed_bytes += stat.compressed_bytes;
        sum.memory_bytes += stat.memory << page_shift;
        sum.table_bytes += stat.table_pages << page_shift;
        sum.target_bytes += self.target.load(Relaxed) << page_shift;
        sum.stored += self.stored.load(Relaxed);
        sum.loaded += self.loaded.load(Relaxed);
        sum.incompressible += self.incompressible.load(Relaxed);
        sum.corrupt += stat.corrupt;
    }
}

impl Drop for Zcache {
    fn drop(&mut self) {
        self.count();
    }
}

/// Does what takes long, in the thread that reclaims ahead of need.
pub(crate) fn maintain<'a>(pool: &'a Pool, state: StateGuard<'a>) -> StateGuard<'a> {
    let caches = state.zcaches.all(|_| true);
    if caches.is_empty() {
        return state;
    }
    drop(state);
    for cache in caches {
        cache.maintain();
    }
    pool.lock()
}

/// Frees frames of the stores of a group and those below it, where reclaim finds nothing else.
/// Returns how many.
pub(crate) fn give_up<'a>(
    pool: &'a Pool,
    state: StateGuard<'a>,
    group: MemcgId,
) -> (StateGuard<'a>, u64) {
    let within = |state: &State| state.zcaches.frames_of(|of| state.engine.is_within(of, group));
    let before = within(&state);
    if before == 0 {
        return (state, 0);
    }
    let caches = state.zcaches.all(|of| state.engine.is_within(of, group));
    drop(state);
    for cache in &caches {
        cache.shrink();
    }
    drop(caches);
    let state = pool.lock();
    let after = within(&state);
    (state, before.saturating_sub(after))
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let Ok(mut state) = pool.lock_sound() else { return };
        let (tables, group) = state.zcaches.end(self.index);
        state.engine.uncharge(group, tables.len() as u64);
        for frame in tables {
            state.frames.free(frame, 0);
        }
        drop(state);
        pool.freed.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use crate::{OpenOptions, Pager, Size};
    use lowtide_core::FolioId;

    #[test]
    fn a_compressed_page_that_was_overwritten_is_read_from_its_file_again() {
        let page =
            |number: u64| format!("page {number}; ").into_bytes().repeat(600)[..4096].to_vec();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), (0..512).flat_map(page).collect::<Vec<_>>()).unwrap();
        let builder = Pager::builder().max(Size::mib(1)).zcache_sixteenths(8).background(false);
        let pager = builder.build().unwrap();
        let options = OpenOptions::new().read_ahead(Size::new(0));
        let view = options.open(&pager, file.path()).unwrap();
        let read = || (0..512).for_each(|n| assert!(view.page(n).unwrap()[..] == page(n), "{n}"));
        (0..4).for_each(|_| read());
        let pool = &pager.inner.pool;
        {
            let state = pool.lock();
            for frame in (0..pool.frames).filter(|&f| state.engine.folio_of(FolioId(f)).is_none()) {
                // One bit of every few compressed pages; frames without memory have none.
                for at in (0..4096).step_by(512) {
                    // SAFETY: the frame is free or a store's. No thread uses a store now, and none
                    // takes a frame while this one has the lock.
                    #[expect(unsafe_code, reason = "plays broken memory")]
                    unsafe {
                        *pool.frame_ptr(frame).wrapping_add(at) ^= 1;
                    }
                }
            }
        }
        read();
        let stat = pager.root().zcache_stat().unwrap();
        assert!(stat.corrupt > 10, "{stat:?}");
        read();
        pager.validate().unwrap();
    }
}
