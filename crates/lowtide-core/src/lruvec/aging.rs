//! Aging: making generation `max_seq + 1` out of what was accessed.
//!
//! Aging is a job with a beginning, chunks and an end, so that a driver can let other threads in
//! between:
//!
//! ```text
//! begin(seq) ─► next_space() ─► for each table: wants()? ─► young()… ─► table_done() ─► … ─► end()
//!    │              ▲                                                       │                │
//!    │              └───────────────────────────────────────────────────────┘                │
//!    └ None: the walk for seq is over already                 true for exactly one job ◄─────┘
//! ```
//!
//! All jobs for the same `seq` share one cursor over the spaces, so concurrent agers take different
//! spaces. The one that runs off the end has finished the walk and opens the new generation; all
//! others get *false*, even though aging is in progress and they helped. What a reclaimer makes of
//! that answer is the difference between the aging OOM of Linux 7.1 and its fix
//! (`docs/kernel/reclaim.md` §4.5). Source: `docs/kernel/reclaim.md` §2.5.

use super::{Locked, Lruvec};
use crate::engine::Engine;
use crate::limits::{ENTRIES_PER_LINE, TABLE_ENTRIES};
use crate::units::{FolioId, LruType, MemcgId, SpaceId, TableKey};

/// One thread's part in an aging. Made by the reclaim loop; the driver feeds it.
#[derive(Debug)]
pub struct AgeJob {
    memcg: MemcgId,
    seq: u64,
    /// The space being walked is to be walked whole.
    force: bool,
    finished_walk: bool,
    /// Young folios of the table being visited, and whether each is executable. They are treated
    /// together: what becomes of one takes branches that cannot be predicted, and so the load of
    /// the next record would not begin before that of this one has ended.
    found: Vec<(FolioId, bool)>,
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
    /// Begins a job for the generation after `seq`, or `None` if the walk for it is finished.
    pub(crate) fn begin(lru: &Locked<'_>, memcg: MemcgId, seq: u64) -> Option<Self> {
        let over = lru.lv.walk.over(seq);
        (!over).then_some(Self {
            memcg,
            seq,
            force: false,
            finished_walk: false,
            found: Vec::new(),
        })
    }

    /// The next space to walk, or `None` when this job has nothing left to do.
    pub fn next_space(&mut self, engine: &mut Engine) -> Option<SpaceId> {
        if !engine.alive(self.memcg) {
            return None;
        }
        let lv = &mut engine.memcgs[self.memcg].lruvec;
        if self.stale(lv) {
            return None;
        }
        let Some(space) = lv.walk.advance(self.seq) else {
            self.finished_walk = true;
            return None;
        };
        self.force = space.fresh;
        Some(space.id)
    }

    /// Whether it was this job that ran off the end of the walk: when it ends, it opens the
    /// generation, for which it needs the lists' lock. Until then all others find the walk
    /// finished and nothing gained.
    #[must_use]
    pub const fn finished(&self) -> bool {
        self.finished_walk
    }

    /// The walk that this job belongs to is over; it may stop in the middle of a space.
    fn stale(&self, lv: &Lruvec) -> bool {
        lv.gens.max_seq != self.seq || lv.walk.over(self.seq)
    }

    /// Whether the walk should visit memory of a type: not what may not be evicted
    /// (`docs/kernel/reclaim.md` §2.5). It does no harm to visit it all the same.
    #[must_use]
    pub fn visits(&self, engine: &mut Engine, t: LruType) -> bool {
        engine.alive(self.memcg) && engine.locked(self.memcg).evictable_types().contains(&t)
    }

    /// Whether the walk should visit a table. False for all tables once the generation is open.
    #[must_use]
    pub fn wants(&self, engine: &Engine, table: TableKey) -> bool {
        if !engine.alive(self.memcg) {
            return false;
        }
        let lv = &engine.memcgs[self.memcg].lruvec;
        lv.gens.max_seq == self.seq && (self.force || lv.walk.may_contain(self.seq, table))
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
    /// that lead to it. Takes effect by the end of the visit of the table. Cost: O(1).
    pub fn young(&mut self, engine: &mut Engine, folio: FolioId, exec: bool) {
        self.found.push((folio, exec));
        if self.found.len() == TABLE_ENTRIES as usize {
            self.treat(engine);
        }
    }

    /// A table was visited: `young` entries cleared of `entries` slots, empty ones included. Cost:
    /// O(young folios).
    pub fn table_done(&mut self, engine: &mut Engine, table: TableKey, young: u64, entries: u64) {
        self.treat(engine);
        if engine.alive(self.memcg) && young * ENTRIES_PER_LINE >= entries {
            engine.memcgs[self.memcg].lruvec.walk.remember(self.seq + 1, table);
        }
    }

    /// Moves the young folios that were found. The driver may have given its lock up since, so
    /// each is asked again whether it takes part.
    fn treat(&mut self, engine: &mut Engine) {
        let mut found = std::mem::take(&mut self.found);
        if engine.alive(self.memcg) && engine.memcgs[self.memcg].lruvec.gens.max_seq == self.seq {
            engine.accesses.look_at(found.iter().map(|&(folio, _)| folio));
            for &(folio, exec) in &found {
                if self.takes(engine, folio) == Some(folio) {
                    engine.locked(self.memcg).update_gen(folio, exec);
                }
            }
        }
        found.clear();
        self.found = found;
    }

    pub(crate) fn end(&self, engine: &mut Engine, now: u64) -> AgeEnd {
        debug_assert!(self.found.is_empty(), "every visit of a table was reported as done");
        if !self.finished_walk || !engine.alive(self.memcg) {
            return AgeEnd::Done(false);
        }
        match engine.locked(self.memcg).inc_max_seq(self.seq, now) {
            None => AgeEnd::Again,
            Some(opened) => AgeEnd::Done(opened),
        }
    }
}
