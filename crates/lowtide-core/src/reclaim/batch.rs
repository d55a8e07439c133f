//! A batch: the folios that one step of reclaim isolated, and what becomes of each.
//!
//! It is filled by the loops, judged and concluded by the shrinker (`shrink.rs`), and unmapped by
//! the driver in between. It keeps its memory from one batch to the next, in the engine.

use crate::lruvec::Shadow;
use crate::units::{FolioId, LruType, Owner};

/// The outcome for a victim's translations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmapped {
    /// They are gone, no thread can reach the folio any more, and nothing had to be written.
    Done,
    /// They are gone, and writing the folio to its slots was begun
    /// ([`Engine::start_writeback`](crate::Engine::start_writeback)), or has even ended
    /// ([`Engine::end_writeback`](crate::Engine::end_writeback)). If it has ended by the next step,
    /// the folio is freed then, or kept after a failure. For anonymous memory only.
    Writing,
    /// The folio is pinned.
    Pinned,
    /// The folio was accessed, dirtied or locked in the meantime; its translations are as before. A
    /// store to one that had been freed lazily is reported first
    /// ([`Engine::set_dirty`](crate::Engine::set_dirty)).
    Raced,
}

/// A folio that may be freed if its translations can be dropped.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    /// The folio, by its first frame.
    pub folio: FolioId,
    /// log2 of its base pages.
    pub order: u8,
    /// Where its translations are.
    pub owner: Owner,
    /// It goes to swap: its translations become references to its slots, of which it has one for
    /// each page, new or from before. If it is dirty when they are gone, including stores that only
    /// the translations had recorded ([`Engine::set_dirty`](crate::Engine::set_dirty)), then call
    /// [`Engine::start_writeback`](crate::Engine::start_writeback), begin the write, and report
    /// [`Unmapped::Writing`].
    pub to_swap: bool,
    /// To be set by the driver; [`Unmapped::Raced`] until then.
    pub outcome: Unmapped,
}

/// A folio that is gone.
#[derive(Clone, Copy, Debug)]
pub struct Freed {
    /// Its first frame, free from now on.
    pub folio: FolioId,
    /// log2 of its base pages.
    pub order: u8,
    /// Where it was.
    pub owner: Owner,
    /// The shadow to be stored there, for each of its pages. `None` for memory that was freed
    /// lazily: its contents are zeroes from now on.
    pub shadow: Option<Shadow>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Put back as it is.
    Keep,
    /// Put back among the young.
    Activate,
    /// A victim: freed if the driver can unmap it.
    Unmap,
    Freed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(super) folio: FolioId,
    pub(super) fate: Fate,
    pub(super) mapped: bool,
    /// It had been freed lazily when it was judged.
    pub(super) lazy: bool,
}

/// What one pass over a batch counted, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShrinkStat {
    pub(super) dirty: u64,
    pub(super) unqueued_dirty: u64,
    pub(super) congested: u64,
    pub(super) writeback: u64,
    pub(super) immediate: u64,
    pub(super) reclaimed: u64,
}

/// The folios that one batch isolated, and what becomes of them.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(super) lru_type: LruType,
    /// Pages scanned to fill it.
    pub(super) scanned: u64,
    /// Pages isolated.
    pub(super) taken: u64,
    /// As they were isolated. Kept for its memory, as the next lists are.
    folios: Vec<FolioId>,
    pub(super) entries: Vec<Entry>,
    pub(super) victims: Vec<Victim>,
    pub(super) freed: Vec<Freed>,
    /// Young neighbours of the folio being judged that are to be activated.
    pub(super) neighbours: Vec<FolioId>,
    pub(super) stat: ShrinkStat,
    pub(super) reclaimed_in_all: u64,
    /// Pages whose write to swap was begun.
    pub(super) written: u64,
    pub(super) first_pass: bool,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            lru_type: LruType::File,
            scanned: 0,
            taken: 0,
            folios: Vec::new(),
            entries: Vec::new(),
            victims: Vec::new(),
            freed: Vec::new(),
            neighbours: Vec::new(),
            stat: ShrinkStat::default(),
            reclaimed_in_all: 0,
            written: 0,
            first_pass: true,
        }
    }
}

impl Batch {
    /// A batch of these folios, which came from [`memory`](Self::memory).
    pub(super) fn fill(&mut self, lru_type: LruType, scanned: u64, folios: Vec<FolioId>) {
        let entry = |&folio| Entry { folio, fate: Fate::Keep, mapped: false, lazy: false };
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        entries.extend(folios.iter().map(entry));
        *self = Self {
            lru_type,
            scanned,
            folios,
            entries,
            victims: std::mem::take(&mut self.victims),
            freed: std::mem::take(&mut self.freed),
            neighbours: std::mem::take(&mut self.neighbours),
            ..Self::default()
        };
    }

    /// Where to put the folios of the next batch: the memory of the last one's.
    pub(super) fn memory(&mut self) -> Vec<FolioId> {
        let mut folios = std::mem::take(&mut self.folios);
        folios.clear();
        folios
    }

    pub(super) fn isolated(&self) -> bool {
        !self.entries.is_empty()
    }
}
