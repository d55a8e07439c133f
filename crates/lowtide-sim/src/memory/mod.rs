//! The simulated kernel's records of pages: the page cache of each object, and the page tables that
//! map it.
//!
//! ```text
//!   object (a file, or a heap)                  address space (a process)
//!     page ─► Cached: resident in a frame,        vma: maps an object
//!             or what is remembered of it           page ─► entry: present, young, writable,
//!               └── vmas that map the object ────►          dirty
//!                                                   table ─► a young bit of its own
//! ```
//!
//! The hardware part is the young bit: every access through a mapping sets it, at the entry and at
//! its table, and only the engine's checks clear it; and the dirty bit, set by every store. For a
//! file page the kernel learns of the first store before it happens (the translation is not
//! writable until then); for a heap page it finds the bit when it drops the translation. There is
//! no translation cache (`docs/kernel/reclaim.md` section C says what one would change: refaults by
//! up to one percent). [`Facts`](lowtide_core::Facts) are answered in `facts.rs`; the aging walk is
//! in `walk.rs`.

mod cached;
mod facts;
mod page_map;
mod table;
mod walk;

pub use cached::Cached;
pub use page_map::PAGES_MAX;
pub use page_map::PageMap;
pub use table::PageTables;
pub use walk::Walk;

use lowtide_core::limits::TABLE_ENTRIES;
use lowtide_core::{Engine, FolioId, LruType, MemcgId, SpaceId};
use table::ROW;

/// The number of an object: a file or a heap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId(pub u32);

/// The number of a mapping of an object into an address space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VmaId(pub u32);

/// A file or a heap.
#[derive(Debug)]
pub struct Object {
    pub lru_type: LruType,
    /// The group that pays for a heap; the task that brings a page of a file in pays for that.
    pub memcg: MemcgId,
    pub pages: PageMap<Cached>,
    pub vmas: Vec<VmaId>,
}

impl Object {
    fn new(lru_type: LruType, memcg: MemcgId) -> Self {
        Self { lru_type, memcg, pages: PageMap::new(Cached::ABSENT), vmas: Vec::new() }
    }
}

/// A mapping of a whole object.
#[derive(Debug)]
pub struct Vma {
    pub object: ObjectId,
    pub ptes: PageTables,
    /// The young bit of each table.
    pub young: Vec<bool>,
    /// Tables end with the object: entries behind its last page do not count as empty ones.
    pub pages: u64,
    pub exec: bool,
    /// Young bits count. Not so after advice that accesses are random (`MADV_RANDOM`): nothing
    /// looks at them, and pages come and go in the order in which they were read.
    pub recency: bool,
}

impl Vma {
    /// Sets the bits of a present page that an access sets, as the hardware does. Returns false if
    /// the page is not mapped, or if it is not `writable` and a store needs it to be.
    #[inline]
    pub fn touch(&mut self, page: u64, store: bool) -> bool {
        let touched = self.ptes.touch(page, store);
        if touched {
            self.young[(page / TABLE_ENTRIES) as usize] = true;
        }
        touched
    }

    /// The same for `pages` pages from `first` on, one after the other until one faults. Returns
    /// how many did not.
    pub fn sweep(&mut self, first: u64, pages: u64, store: bool) -> u64 {
        let end = first + pages;
        let mut page = first;
        while page < end {
            let table = page / TABLE_ENTRIES;
            let wanted = end.min((table + 1) * TABLE_ENTRIES) - page;
            let touched = self.ptes.sweep(page, wanted, store);
            if touched > 0 {
                self.young[table as usize] = true;
            }
            page += touched;
            if touched < wanted {
                break;
            }
        }
        page - first
    }

    /// A page has an entry.
    #[inline]
    fn covers(&mut self, page: u64) {
        let table = (page / TABLE_ENTRIES) as usize;
        if table >= self.young.len() {
            self.young.resize(table + 1, false);
        }
        self.pages = self.pages.max(page + 1);
    }

    /// Entries of a table, those past the end of the object left out.
    pub fn entries(&self, table: u64) -> u64 {
        (self.pages.saturating_sub(table * TABLE_ENTRIES)).min(TABLE_ENTRIES)
    }
}

/// What a mapping had when it went.
#[derive(Clone, Debug, Default)]
pub struct Zapped {
    /// Entries that led to a page.
    pub entries: u64,
    /// The folios of those that were young.
    pub young: Vec<FolioId>,
}

/// Whether a frame's bit is set.
fn is_set(bits: &[u64], frame: FolioId) -> bool {
    bits.get(frame.index() / 64).is_some_and(|word| word & (1 << (frame.index() % 64)) != 0)
}

/// All objects and address spaces of a machine.
#[derive(Debug, Default)]
pub struct Memory {
    pub objects: Vec<Object>,
    pub vmas: Vec<Vma>,
    /// The mappings of each address space, by the engine's number of the space.
    spaces: Vec<Vec<VmaId>>,
    /// Frames whose contents are still on their way, a bit each.
    locked: Vec<u64>,
    /// Where the last reference check found a young bit.
    hit: Option<VmaId>,
    /// Translations that reference checks have looked at, by way of the reverse map.
    looked: u64,
    /// Dirty pages that reclaim meets keep their translations.
    pub keeps_dirty_mapped: bool,
    /// Neighbours that a fault maps are mapped young.
    pub around_is_young: bool,
}

impl Memory {
    /// Adds a file or a heap of a group. It has the number of a space of the engine's, which has no
    /// effect: no task runs in it, so no aging visits it.
    pub fn add_object(
        &mut self,
        engine: &mut Engine,
        lru_type: LruType,
        memcg: MemcgId,
    ) -> ObjectId {
        let space = engine.add_space(memcg);
        engine.set_idle(space, true);
        // Numbers between are those of address spaces, which have no pages of their own.
        let nothing = || Object::new(LruType::File, MemcgId::ROOT);
        self.objects.resize_with(space.0 as usize, nothing);
        self.objects.push(Object::new(lru_type, memcg));
        ObjectId(space.0)
    }

    /// Adds an address space.
    pub fn add_space(&mut self, engine: &mut Engine, memcg: MemcgId) -> SpaceId {
        let space = engine.add_space(memcg);
        let at = space.0 as usize;
        if at >= self.spaces.len() {
            self.spaces.resize_with(at + 1, Vec::new);
        }
        space
    }

    /// Maps an object of `pages` pages, as far as is known, into an address space.
    pub fn map_object(
        &mut self,
        space: SpaceId,
        object: ObjectId,
        pages: u64,
        exec: bool,
    ) -> VmaId {
        let id = VmaId(self.vmas.len() as u32);
        let (ptes, young) = (PageTables::default(), Vec::new());
        self.vmas.push(Vma { object, ptes, young, pages, exec, recency: true });
        self.spaces[space.0 as usize].push(id);
        self.objects[object.0 as usize].vmas.push(id);
        id
    }

    /// The same, as the mapping of a number whose last one is gone.
    pub fn map_object_as(
        &mut self,
        id: VmaId,
        space: SpaceId,
        object: ObjectId,
        pages: u64,
        exec: bool,
    ) {
        let vma = &mut self.vmas[id.0 as usize];
        debug_assert!(vma.young.is_empty(), "the mapping of this number is gone");
        let (ptes, young) = (std::mem::take(&mut vma.ptes), std::mem::take(&mut vma.young));
        *vma = Vma { object, ptes, young, pages, exec, recency: true };
        self.spaces[space.0 as usize].push(id);
        self.objects[object.0 as usize].vmas.push(id);
    }

    /// Drops all entries of a mapping, and the mapping. Cost: O(tables, and mappings of the space
    /// and the object).
    pub fn unmap_object(&mut self, space: SpaceId, id: VmaId) -> Zapped {
        let vma = &mut self.vmas[id.0 as usize];
        let object = &mut self.objects[vma.object.0 as usize];
        object.vmas.retain(|&other| other != id);
        self.spaces[space.0 as usize].retain(|&other| other != id);
        vma.young.clear();
        let mut zapped = Zapped::default();
        vma.ptes.zap(|page, young| {
            zapped.entries += 1;
            zapped.young.extend(object.pages.get(page).frame().filter(|_| young));
        });
        zapped
    }

    #[inline]
    pub fn cached(&self, object: ObjectId, page: u64) -> Cached {
        self.objects[object.0 as usize].pages.get(page)
    }

    /// Returns what was there.
    #[inline]
    pub fn set_cached(&mut self, object: ObjectId, page: u64, cached: Cached) -> Cached {
        std::mem::replace(self.objects[object.0 as usize].pages.entry(page), cached)
    }

    /// Maps a resident page, young.
    pub fn map(&mut self, id: VmaId, page: u64, writable: bool) {
        let vma = &mut self.vmas[id.0 as usize];
        vma.ptes.map(page, writable);
        vma.covers(page);
        vma.young[(page / TABLE_ENTRIES) as usize] = true;
    }

    /// Maps a resident page without its being accessed (fault-around).
    pub fn map_old(&mut self, id: VmaId, page: u64) {
        let vma = &mut self.vmas[id.0 as usize];
        vma.ptes.map_old(page);
        vma.covers(page);
    }

    /// Maps those of the pages from `first` on and before `end` that are resident, have arrived and
    /// are not `page`, as far as `takes` accepts their frames. They are not accessed, but an x86
    /// kernel maps them young all the same, so that such a block of pages lives and dies as one
    /// (`docs/kernel/fault-and-writeback.md` A4). Returns how many those are, mapped before or not.
    pub fn map_around(
        &mut self,
        id: VmaId,
        page: u64,
        (first, end): (u64, u64),
        takes: impl Fn(FolioId) -> bool,
    ) -> u64 {
        let vma = &mut self.vmas[id.0 as usize];
        let mut mapped = 0;
        let mut row = first / ROW * ROW;
        while row < end {
            let Some(cached) = self.objects[vma.object.0 as usize].pages.table(row / TABLE_ENTRIES)
            else {
                row = (row / TABLE_ENTRIES + 1) * TABLE_ENTRIES;
                continue;
            };
            let mut arrived = 0_u64;
            for neighbour in row.max(first)..(row + ROW).min(end) {
                let frame = cached[(neighbour % TABLE_ENTRIES) as usize].frame();
                let there = neighbour != page
                    && frame.is_some_and(|frame| !is_set(&self.locked, frame) && takes(frame));
                arrived |= u64::from(there) << (neighbour - row);
            }
            if arrived != 0 {
                vma.ptes.map_row(row, arrived, self.around_is_young);
                vma.covers(row + (ROW - 1 - u64::from(arrived.leading_zeros())));
                mapped += u64::from(arrived.count_ones());
            }
            row += ROW;
        }
        mapped
    }

    /// Drops all translations of a page. Returns how many there were.
    pub fn unmap(&mut self, object: ObjectId, page: u64) -> u32 {
        let mut dropped = 0;
        for vma in &self.objects[object.0 as usize].vmas {
            dropped += u32::from(self.vmas[vma.0 as usize].ptes.clear(page));
        }
        dropped
    }

    /// Whether a page has a translation.
    #[inline]
    pub fn is_mapped(&self, object: ObjectId, page: u64) -> bool {
        let vmas = &self.objects[object.0 as usize].vmas;
        vmas.iter().any(|vma| self.vmas[vma.0 as usize].ptes.is_present(page))
    }

    /// Whether a page was stored to through a translation that it has.
    pub fn is_dirty(&self, object: ObjectId, page: u64) -> bool {
        let vmas = &self.objects[object.0 as usize].vmas;
        vmas.iter().any(|vma| self.vmas[vma.0 as usize].ptes.get(page).dirty)
    }

    /// Forgets that a page was used and stored to: it is being freed lazily.
    pub fn age_and_clean(&mut self, object: ObjectId, page: u64) {
        for vma in &self.objects[object.0 as usize].vmas {
            self.vmas[vma.0 as usize].ptes.age_and_clean(page);
        }
    }

    /// Stores to a page fault again from now on: it is about to be written.
    pub fn write_protect(&mut self, object: ObjectId, page: u64) {
        for vma in &self.objects[object.0 as usize].vmas {
            self.vmas[vma.0 as usize].ptes.protect(page);
        }
    }

    /// Says whether a frame's contents are still on their way.
    pub fn set_locked(&mut self, frame: FolioId, locked: bool) {
        let (word, bit) = (frame.index() / 64, 1 << (frame.index() % 64));
        if word >= self.locked.len() {
            self.locked.resize(word + 1, 0);
        }
        if locked {
            self.locked[word] |= bit;
        } else {
            self.locked[word] &= !bit;
        }
    }

    /// Whether a frame's contents are still on their way.
    pub fn is_locked(&self, frame: FolioId) -> bool {
        is_set(&self.locked, frame)
    }

    /// How many translations reference checks have looked at since the last call.
    pub const fn take_looked(&mut self) -> u64 {
        std::mem::replace(&mut self.looked, 0)
    }

    /// Bytes that page cache and page tables take.
    pub fn bytes(&self) -> usize {
        let objects: usize = self.objects.iter().map(|o| o.pages.bytes()).sum();
        let vmas: usize = self.vmas.iter().map(|v| v.ptes.bytes() + v.young.capacity()).sum();
        objects + vmas + self.locked.capacity() * 8
    }
}
