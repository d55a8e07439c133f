//! The lruvec loop of `tide`.
//!
//! A pass may decide about as many pages of a group as are not protected, shifted by the priority,
//! shared between the types by what reclaim of each has cost (`lruvec/cost.rs`, as for the
//! classical lists). The type with more left goes next. A pass ends when its goal is met, so that a
//! small memory loses one page at a time.
//!
//! What was isolated and could not go (dirty, pinned, being read, refused by swap) goes back to the
//! young end of its queue, without a count. It counts as met in vain for the rest of the pass: when
//! the whole surplus of SMALL is such, pages of MAIN go instead, and the other way round. When a
//! write that reclaim waits for ends, the folio goes to the old end of its queue.

use super::batch::Fate;
use super::invocation::{At, Reclaim, Step};
use crate::engine::Engine;
use crate::limits::MIN_LRU_BATCH;
use crate::lruvec::{Balance, Facts, Hand, Queue, Quota, scan_targets};
use crate::units::LruType;

/// Pages that one slice decides about at most.
const SLICE: u64 = 1024;

/// State of one run through the loop.
#[derive(Debug)]
pub(super) struct TideLoop {
    /// How the pass shares its scan between the types.
    balance: Balance,
    /// Pages to decide about, by type.
    left: [u64; 2],
    /// Pages met in vain, by type, of SMALL and of MAIN.
    vain: [[u64; 2]; 2],
}

impl Default for TideLoop {
    fn default() -> Self {
        Self { balance: Balance::Nothing, left: [0; 2], vain: [[0; 2]; 2] }
    }
}

impl Reclaim {
    /// Decides, from the costs of the whole subtree, how the types share the scan of a pass.
    pub(super) fn prepare_tide(&mut self, engine: &mut Engine) {
        self.tide.balance = engine.locked(self.target).share_by_cost(self.priority);
    }

    pub(super) fn begin_tide(&mut self, engine: &mut Engine) {
        let lru = engine.locked(self.group);
        lru.lv.tide.iter_mut().for_each(|lists| lists.look());
        let sizes = LruType::ALL.map(|t| lru.lv.tide[t as usize].pages());
        let sizes = sizes.map(|size| [self.unprotected(size), 0]);
        let left = scan_targets(sizes, self.priority, self.tide.balance).map(|of| of[0]);
        self.tide = TideLoop { balance: self.tide.balance, left, vain: [[0; 2]; 2] };
        self.at = At::Slice;
    }

    /// Decides about pages until a batch is isolated or the loop is over.
    pub(super) fn tide_slice<F: Facts>(&mut self, engine: &mut Engine, facts: &mut F) {
        let [anon, file] = self.tide.left;
        let t = if anon > file { LruType::Anon } else { LruType::File };
        let left = self.tide.left[t as usize];
        if left == 0 || self.reclaimed >= self.goal {
            self.at = At::LruvecEnd;
            return;
        }
        engine.drain(self.task.cpu);
        self.isolations += 1;
        let quota = Quota {
            isolate: left.min(MIN_LRU_BATCH).min(self.goal - self.reclaimed),
            decide: left.min(SLICE),
            vain: self.tide.vain[t as usize],
        };
        let mut lru = engine.locked(self.group);
        let found = Hand::new(&mut lru, t, facts).take(quota);
        self.sorted += found.sorted;
        self.tide.left[t as usize] = if found.decided == 0 && !found.unfinished {
            0
        } else {
            left.saturating_sub(found.decided)
        };
        self.count_scan(engine, found.isolated);
        if !found.folios.is_empty() {
            self.batch.fill(t, found.decided, found.folios);
            self.at = At::Settle;
        } else if self.shares_lock {
            self.pending.push_back(Step::Yield);
        }
    }

    /// Puts what could not go back, oldest first.
    pub(super) fn tide_put_back(&mut self, engine: &mut Engine) {
        let mut lru = engine.locked(self.group);
        let t = self.batch.lru_type;
        let mut entries = std::mem::take(&mut self.batch.entries);
        for entry in entries.drain(..) {
            if entry.fate == Fate::Freed {
                continue;
            }
            let f = &mut lru.folios[entry.folio];
            f.flags.set_refs_field(0);
            let (pages, main) = (f.pages(), Queue::of(f.flags) == Queue::Main);
            self.tide.vain[t as usize][usize::from(main)] += pages;
            lru.lv.isolated -= pages;
            lru.add(entry.folio, false);
        }
        self.batch.entries = entries;
        let reclaimed = self.batch.stat.reclaimed;
        self.count_steal(lru.events, reclaimed);
        let rotated = self.batch.scanned.saturating_sub(reclaimed);
        lru.cost_of_shrinking(t, self.batch.written, rotated);
        self.at = At::Slice;
        if self.shares_lock {
            self.pending.push_back(Step::Yield);
        }
    }
}
