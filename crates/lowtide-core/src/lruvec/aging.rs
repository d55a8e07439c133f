//! Aging: making generation `max_seq + 1` out of what was accessed.
//!
//! Aging is a job with a beginning, chunks and an end, so that a driver can let other threads in
//! between:
//!
//! ```text
//!   begin(seq) ──► next_space() ──► for each table: wants()? ─► young()… ─► table_done() ──► … ──► end()
//!      │               ▲ └──────────────────────────────────────────────────────┘             │
//!      └ None: the walk for seq is over already                     true for exactly one job ─┘
//! ```
//!
//! All jobs for the same `seq` share one cursor over the spaces, so concurrent agers take different
//! spaces. The one that runs off the end has finished the walk and opens the new generation; all
//! others get *false*, even though aging is in progress and they helped. What a reclaimer makes of
//! that answer is the difference between the aging OOM of Linux 7.1 and its fix
//! (`docs/kernel/reclaim.md` §4.5). Source: `docs/kernel/reclaim.md` §2.5.

use super::Locked;
use super::bloom::Filters;
use crate::engine::Engine;
use crate::limits::ENTRIES_PER_LINE;
use crate::units::{FolioId, LruType, MemcgId, SpaceId, TableKey};

/// A space in the walk list of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkSpace {
    pub(crate) id: SpaceId,
    /// Added since the last walk: its first visit ignores the filters.
    pub(crate) fresh: bool,
    /// Nobody ran in it since it was walked last.
    pub(crate) idle: bool,
}

/// Progress of walks in one lruvec.
#[derive(Debug)]
pub(crate) struct WalkState {
    /// Number of the last finished walk.
    seq: u64,
    cursor: usize,
    /// A space was visited in this iteration.
    visited: bool,
    pub(crate) spaces: Vec<WalkSpace>,
    filters: Filters,
}

impl WalkState {
    pub(super) fn new() -> Self {
        Self { seq: 2, cursor: 0, visited: false, spaces: Vec::new(), filters: Filters::default() }
    }

    pub(super) fn remember(&mut self, seq: u64, table: TableKey) {
        self.filters.insert(seq, table);
    }

    pub(crate) fn add_space(&mut self, id: SpaceId) {
        self.spaces.push(WalkSpace { id, fresh: true, idle: false });
    }

    /// A walk leaves out a space in which nobody has run since it was walked last
    /// (`docs/kernel/reclaim.md` §2.5).
    pub(crate) fn set_idle(&mut self, id: SpaceId, idle: bool) {
        if let Some(space) = self.spaces.iter_mut().find(|s| s.id == id) {
            space.idle = idle;
        }
    }

    pub(crate) fn remove_space(&mut self, id: SpaceId) {
        if let Some(at) = self.spaces.iter().position(|s| s.id == id) {
            self.spaces.remove(at);
            if at < self.cursor {
                self.cursor -= 1;
            }
        }
    }
}

/// One thread's part in an aging. Made by the reclaim loop; the driver feeds it.
#[derive(Debug)]
pub struct AgeJob {
    memcg: MemcgId,
    seq: u64,
    /// The space being walked is to be walked whole.
    force: bool,
    finished_walk: bool,
}

/// How an aging job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AgeEnd {
    /// The quota of one lock hold is used up: release the lock for a moment and end the job again.
    Again,
    /// Whether *this* job opened the new generation.
    Done(bool),
}

impl AgeJob {
    /// The next space to walk, or `None` when this job has nothing left to do.
    pub fn next_space(&mut self, engine: &mut Engine) -> Option<SpaceId> {
        if !engine.alive(self.memcg) {
            return None;
        }
        let lv = &mut engine.memcgs[self.memcg].lruvec;
        if self.stale(lv) {
            return None;
        }
        let walk = &mut lv.walk;
        while walk.spaces.get(walk.cursor).is_some_and(|space| space.idle) {
            walk.cursor += 1;
        }
        match walk.spaces.get_mut(walk.cursor) {
            None => {
                walk.seq = self.seq;
                walk.cursor = 0;
                walk.visited = false;
                self.finished_walk = true;
                None
            }
            Some(space) => {
                self.force = std::mem::take(&mut space.fresh);
                let id = space.id;
                walk.cursor += 1;
                if !std::mem::replace(&mut walk.visited, true) {
                    walk.filters.reset(self.seq + 1);
                }
                Some(id)
            }
        }
    }

    /// Whether it was this job that ran off the end of the walk: when it ends, it opens the
    /// generation, for which it needs the lists' lock. Until then all others find the walk
    /// finished and nothing gained.
    #[must_use]
    pub const fn finished(&self) -> bool {
        self.finished_walk
    }

    /// The walk that this job belongs to is over; it may stop in the middle of a space.
    fn stale(&self, lv: &super::Lruvec) -> bool {
        lv.gens.max_seq != self.seq || lv.walk.seq >= self.seq
    }

    /// Whether the walk should visit memory of a type: not what may not be evicted
    /// (`docs/kernel/reclaim.md` §2.5). It does no harm to visit it all the same.
    #[must_use]
    pub fn visits(&self, engine: &mut Engine, t: LruType) -> bool {
        engine.alive(self.memcg) && engine.locked(self.memcg).evictable_types().contains(&t)
    }

    /// Whether the walk should visit a table. False for all tables once the generation has been
    /// opened by somebody.
    #[must_use]
    pub fn wants(&self, engine: &Engine, table: TableKey) -> bool {
        if !engine.alive(self.memcg) {
            return false;
        }
        let lv = &engine.memcgs[self.memcg].lruvec;
        lv.gens.max_seq == self.seq && (self.force || lv.walk.filters.may_contain(self.seq, table))
    }

    /// The folio that a young entry leads to, given any of its frames, if it takes part: it belongs
    /// to this group and is on its lists. The driver clears the young bit only if so.
    #[must_use]
    pub fn takes(&self, engine: &Engine, frame: FolioId) -> Option<FolioId> {
        let id = engine.folios.of_frame(frame)?;
        let f = &engine.folios[id];
        (f.memcg == self.memcg.slot && f.flags().generation().is_some()).then_some(id)
    }

    /// A young entry was found and cleared. For a large folio, call once for each run of entries
    /// that lead to it. Cost: O(1).
    pub fn young(&mut self, engine: &mut Engine, folio: FolioId, exec: bool) {
        if !engine.alive(self.memcg) {
            return;
        }
        let lv = &engine.memcgs[self.memcg].lruvec;
        if lv.gens.max_seq == self.seq && self.takes(engine, folio) == Some(folio) {
            engine.locked(self.memcg).update_gen(folio, exec);
        }
    }

    /// A table was visited: `young` entries cleared of `entries` slots, empty ones included.
    pub fn table_done(&mut self, engine: &mut Engine, table: TableKey, young: u64, entries: u64) {
        if engine.alive(self.memcg) && young * ENTRIES_PER_LINE >= entries {
            engine.memcgs[self.memcg].lruvec.walk.filters.insert(self.seq + 1, table);
        }
    }

    pub(crate) fn end(&self, engine: &mut Engine, now: u64) -> AgeEnd {
        if !self.finished_walk || !engine.alive(self.memcg) {
            return AgeEnd::Done(false);
        }
        match engine.locked(self.memcg).inc_max_seq(self.seq, now) {
            None => AgeEnd::Again,
            Some(opened) => AgeEnd::Done(opened),
        }
    }
}

impl Locked<'_> {
    /// Begins a job for the generation after `seq`, or `None` if the walk for it is finished.
    pub(crate) fn age_begin(&mut self, memcg: MemcgId, seq: u64) -> Option<AgeJob> {
        let over = self.lv.walk.seq >= seq;
        (!over).then_some(AgeJob { memcg, seq, force: false, finished_walk: false })
    }
}
