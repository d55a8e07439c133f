//! The engine with the memory it manages: the part of a kernel that both machines share.
//!
//! A pool implements how a page comes in once it has been charged, how it is mapped, dirtied and
//! written, and how it goes. It has no notion of time: the plain machine (`plain/`) does all of
//! this within one access, the full machine (`machine/`) in steps, with other tasks in between.

use crate::frames::Frames;
use crate::memory::{Cached, Memory, ObjectId, VmaId};
use crate::unused::Unused;
use crate::zram::Zram;
use lowtide_core::high::Refaulted;
use lowtide_core::{
    AccessCounts, ConfigError, Engine, EngineConfig, Flags, Folio, FolioId, Lists, LruType,
    MemcgId, Owner, Reclaim, SpaceId, Task, Unmapped, Victim,
};
use std::ops::Range;
use std::sync::Arc;

/// The work of unmapping the victims of a batch, which determines its cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnmapWork {
    /// Translations dropped.
    pub translations: u64,
    /// Pages of heaps that were stored to since they came.
    pub stored: u64,
    /// Pages compressed.
    pub compressed: u64,
    /// Pages that were found to hold zeros, so that there was nothing to compress.
    pub zeros: u64,
}

/// The pool of frames, the engine that decides about them, and their content.
#[derive(Debug)]
pub struct Pool {
    pub engine: Engine,
    pub memory: Memory,
    pub zram: Zram,
    /// Frames that read-ahead has filled and that nothing has used since.
    pub unused: Unused,
    accesses: Arc<AccessCounts>,
    frames: Frames,
}

impl Pool {
    /// An empty pool with as many frames as the budget has pages.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(config: &EngineConfig) -> Result<Self, ConfigError> {
        if config.frames > Cached::FRAMES_MAX {
            return Err(ConfigError::BudgetTooLarge {
                pages: config.max,
                frames: Cached::FRAMES_MAX,
            });
        }
        let engine = Engine::new(config)?;
        let accesses = engine.accesses();
        Ok(Self {
            engine,
            memory: Memory::default(),
            zram: Zram::default(),
            unused: Unused::default(),
            accesses,
            frames: Frames::new(config.frames),
        })
    }

    /// Whether accesses through the descriptor move folios between lists at once.
    pub fn classical(&self) -> bool {
        self.engine.policy().lists() == Lists::Classical
    }

    /// Whether an object is a heap.
    pub fn is_anon(&self, object: ObjectId) -> bool {
        self.memory.objects[object.0 as usize].lru_type == LruType::Anon
    }

    /// Whether a folio is dirty.
    pub fn is_dirty(&self, frame: FolioId) -> bool {
        self.engine.folio(frame).is_some_and(|f| f.flags().contains(Flags::DIRTY))
    }

    /// Whether a folio is being written.
    pub fn is_writing(&self, frame: FolioId) -> bool {
        self.engine.folio(frame).is_some_and(|f| f.flags().contains(Flags::WRITEBACK))
    }

    /// The frame of a resident page.
    #[inline]
    pub fn frame(&self, object: ObjectId, page: u64) -> Option<FolioId> {
        self.memory.cached(object, page).frame()
    }

    /// Whether one of some pages is resident.
    pub fn any_resident(&self, object: ObjectId, mut pages: Range<u64>) -> bool {
        pages.any(|page| self.frame(object, page).is_some())
    }

    /// Makes a page resident that has been charged. With `refault`, what is remembered of it
    /// counts; a page whose former contents are not needed (it is overwritten as a whole) is no
    /// refault.
    ///
    /// # Panics
    /// When there is no free frame: what is charged has one.
    pub fn insert(
        &mut self,
        object: ObjectId,
        page: u64,
        refault: bool,
        memcg: MemcgId,
        task: Task,
    ) -> (FolioId, Option<Refaulted>) {
        let frame = self.frames.take(0).expect("what is charged has a frame");
        let refaulted = self.enter(frame, 0, object, page, refault, memcg, task);
        (frame, refaulted)
    }

    /// Makes 2^order pages resident in one folio, as [`Pool::insert`] does one. `page` is a
    /// multiple of that, and none of them is resident. `None` if no such block of frames is free:
    /// then they come in smaller ones.
    ///
    /// The shadow of the last of them that was evicted counts for all.
    pub fn insert_large(
        &mut self,
        order: u8,
        object: ObjectId,
        page: u64,
        refault: bool,
        memcg: MemcgId,
        task: Task,
    ) -> Option<(FolioId, Option<Refaulted>)> {
        let frame = self.frames.take(order)?;
        Some((frame, self.enter(frame, order, object, page, refault, memcg, task)))
    }

    #[expect(clippy::too_many_arguments, reason = "each is a separate fact about the folio")]
    fn enter(
        &mut self,
        frame: FolioId,
        order: u8,
        object: ObjectId,
        page: u64,
        refault: bool,
        memcg: MemcgId,
        task: Task,
    ) -> Option<Refaulted> {
        let mut shadow = None;
        for page in page..page + (1 << order) {
            let was = self.memory.set_cached(object, page, Cached::resident(frame));
            shadow = was.shadow().or(shadow);
        }
        let shadow = shadow.filter(|_| refault);
        let lru_type = self.memory.objects[object.0 as usize].lru_type;
        let owner = Owner { space: SpaceId(object.0), page };
        self.engine.insert(frame, owner, order, lru_type, memcg, shadow, task)
    }

    /// The pages of a folio, and which of its frames one of them is in.
    pub fn extent(&self, folio: FolioId) -> (Range<u64>, u8) {
        let folio = self.engine.folio(folio).expect("a resident page has a folio");
        let first = folio.owner().page;
        (first..first + folio.pages(), folio.order())
    }

    /// The frame of a page of a folio.
    pub fn frame_in(&self, folio: FolioId, page: u64) -> FolioId {
        FolioId(folio.0 + (page - self.extent(folio).0.start) as u32)
    }

    /// Files may have large folios from now on.
    pub fn allow_large(&mut self) {
        self.frames.join();
    }

    /// Makes a page resident that was swapped out and has been charged: in the swap cache, not
    /// mapped.
    ///
    /// # Panics
    /// When there is no free frame, or the page is not in swap.
    pub fn swap_in(&mut self, object: ObjectId, page: u64, memcg: MemcgId, task: Task) -> FolioId {
        let frame = self.frames.take(0).expect("what is charged has a frame");
        let shadow = self.memory.cached(object, page).shadow();
        let owner = Owner { space: SpaceId(object.0), page };
        self.engine.swap_in(frame, owner, 0, memcg, shadow, task);
        self.zram.drop_page(object);
        self.memory.set_cached(object, page, Cached::resident(frame));
        frame
    }

    /// Counts an access through the descriptor.
    #[inline]
    pub fn mark_accessed(&mut self, frame: FolioId, task: Task) {
        if self.accesses.record(frame) {
            self.engine.mark_accessed(frame, task);
        }
    }

    /// Drops the translations of those victims of a reclaim that are not `held`, and compresses
    /// those that go to swap.
    pub fn unmap_victims(
        &mut self,
        reclaim: &mut Reclaim,
        held: impl Fn(ObjectId, Range<u64>) -> bool,
        task: Task,
    ) -> UnmapWork {
        let mut work = UnmapWork::default();
        for victim in reclaim.victims() {
            let (object, page) = (ObjectId(victim.owner.space.0), victim.owner.page);
            let pages = self.engine.folio(victim.folio).map_or(1, Folio::pages);
            if held(object, page..page + pages) {
                continue;
            }
            let stored = self.is_anon(object) && self.memory.is_dirty(object, page);
            if stored && !victim.to_swap {
                // It was freed lazily, and stored to since.
                self.engine.set_dirty(victim.folio);
                continue;
            }
            work.stored += u64::from(stored);
            work.translations += u64::from(self.memory.unmap(object, page));
            victim.outcome = Unmapped::Done;
            if self.begin_swap_out(victim, stored) {
                self.engine.end_writeback(victim.folio, true, task);
                *if self.zram.is_zeros(object) { &mut work.zeros } else { &mut work.compressed } +=
                    1;
            }
        }
        work
    }

    /// Takes the frames that a reclaim freed, and remembers their pages. Returns how many.
    pub fn take_freed(&mut self, reclaim: &Reclaim) -> u64 {
        let mut pages = 0;
        for gone in reclaim.freed() {
            let object = ObjectId(gone.owner.space.0);
            for page in gone.owner.page..gone.owner.page + (1 << gone.order) {
                let left = gone.shadow.map_or(Cached::ABSENT, Cached::gone);
                self.memory.set_cached(object, page, left);
            }
            if self.is_anon(object) && gone.shadow.is_some() {
                self.zram.keep(object);
            }
            self.frames.put(gone.folio, gone.order);
            pages += 1 << gone.order;
        }
        pages
    }

    /// Begins to write a dirty page. Returns its frame, or `None` if it is not dirty or is being
    /// written already.
    pub fn start_writeback(&mut self, object: ObjectId, page: u64) -> Option<FolioId> {
        let frame = self.frame(object, page)?;
        if !self.engine.start_writeback(frame) {
            return None;
        }
        self.memory.write_protect(object, page);
        Some(frame)
    }

    /// Gives a page up, with all that is remembered of it, in swap too. Returns false if it cannot
    /// go at the moment: it is being written, or isolated.
    pub fn discard(&mut self, object: ObjectId, page: u64) -> bool {
        let cached = self.memory.cached(object, page);
        if let Some(frame) = cached.frame() {
            let (extent, order) = self.extent(frame);
            if self.is_writing(frame) || !self.engine.remove(frame) {
                return false;
            }
            for (offset, page) in (0..).zip(extent) {
                self.unused.take(FolioId(frame.0 + offset));
                self.memory.unmap(object, page);
                self.memory.set_cached(object, page, Cached::ABSENT);
            }
            self.frames.put(frame, order);
            return true;
        } else if cached.is_gone() && self.is_anon(object) {
            self.engine.free_swap(self.memory.objects[object.0 as usize].memcg, 1);
            self.zram.drop_page(object);
        }
        self.memory.unmap(object, page);
        self.memory.set_cached(object, page, Cached::ABSENT);
        true
    }

    /// Writes a victim of reclaim that goes to swap, if its slot has other contents, to a device
    /// that takes it at once: the folio may be freed. Its translations have been dropped, and
    /// `stored` is whether there was a store through one. Returns whether there was anything to
    /// write.
    pub fn begin_swap_out(&mut self, victim: &mut Victim, stored: bool) -> bool {
        if !victim.to_swap {
            return false;
        }
        if stored {
            self.engine.set_dirty(victim.folio);
        }
        let begun = self.is_dirty(victim.folio) && self.engine.start_writeback(victim.folio);
        if begun {
            victim.outcome = Unmapped::Writing;
        }
        begun
    }

    /// Whether every one of `slots` slots of swap is free or has one page. Cost: O(pages of heaps).
    ///
    /// # Errors
    /// Where they are, if they are not.
    pub fn validate_swap(&self, slots: u64) -> Result<(), String> {
        let heaps = self.memory.objects.iter().filter(|o| o.lru_type == LruType::Anon);
        let tables =
            heaps.flat_map(|o| (0..o.pages.tables()).filter_map(|table| o.pages.table(table)));
        let gone = tables.flatten().filter(|cached: &&Cached| cached.is_gone()).count() as u64;
        let (free, cached) =
            (self.engine.free_swap_pages(), self.engine.stat(MemcgId::ROOT).swapcached);
        if free + cached + gone == slots {
            return Ok(());
        }
        Err(format!(
            "of {slots} slots, {free} are free, {cached} are held in memory, {gone} by pages that \
             are not"
        ))
    }

    /// Adds an object that is mapped once, into an address space that there is.
    pub fn add_mapped(
        &mut self,
        process: SpaceId,
        lru_type: LruType,
        pages: u64,
    ) -> (ObjectId, VmaId) {
        let object = self.memory.add_object(&mut self.engine, lru_type, MemcgId::ROOT);
        (object, self.memory.map_object(process, object, pages, false))
    }

    /// Frames there are.
    pub const fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Free frames.
    pub const fn free_frames(&self) -> usize {
        self.frames.free()
    }

    /// Bytes of memory that the simulation of this pool takes.
    pub fn bytes(&self) -> usize {
        self.engine.metadata_bytes() + self.memory.bytes() + self.frames.bytes()
    }
}
