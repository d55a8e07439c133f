//! The lruvec loop of the classical lists.
//!
//! A pass first decides what it may deactivate and how to share the scan between the types, then
//! visits the four lists in rounds, 32 pages at a time, until the counts are used up or, the goal
//! being met, what is left has been brought back into proportion. Small numbers are not rounded up:
//! a list of 10,000 pages gives 2 pages at priority 12. Source: `docs/kernel/reclaim.md` §5.2-5.4.

use super::batch::Fate;
use super::invocation::{At, Reason, Reclaim, Step};
use super::throttle::ThrottleReason;
use crate::engine::Engine;
use crate::folio::Flags;
use crate::limits::SWAP_CLUSTER_MAX;
use crate::lruvec::{Facts, Locked, scan_targets};
use crate::units::LruType;

/// The lists in the order in which a round visits them.
const ROUND: [(LruType, bool); 4] =
    [(LruType::Anon, false), (LruType::Anon, true), (LruType::File, false), (LruType::File, true)];

/// Pages of active lists that are looked at per acquisition of a shared lock.
const SHARE: u64 = 1024;

/// State of one run through the loop.
#[derive(Debug, Default)]
pub(super) struct ClassicalLoop {
    may_deactivate: [bool; 2],
    targets: [[u64; 2]; 2],
    left: [[u64; 2]; 2],
    /// Position in the round.
    at: usize,
    /// The shares were brought back into proportion already.
    adjusted: bool,
    /// Pages reclaimed before this pass began.
    reclaimed_before: u64,
    waited_for_isolated: bool,
}

impl ClassicalLoop {
    fn sum(&self, t: LruType) -> u64 {
        self.left[t as usize].iter().sum()
    }

    /// Active anonymous pages alone do not keep the loop going.
    fn work_left(&self) -> bool {
        self.left[LruType::Anon as usize][0] > 0 || self.sum(LruType::File) > 0
    }

    /// Spends `n` pages of a list's count and moves on to the next list.
    fn take(&mut self, t: LruType, active: bool, n: u64) {
        self.left[t as usize][usize::from(active)] -= n;
        self.at += 1;
    }

    /// The goal is met with work left on both types: ends the smaller, and shortens the larger to
    /// the same proportion.
    fn bring_into_proportion(&mut self) {
        let (anon, file) = (self.sum(LruType::Anon), self.sum(LruType::File));
        let (small, large) = if file > anon {
            (LruType::Anon, LruType::File)
        } else {
            (LruType::File, LruType::Anon)
        };
        let original: u64 = self.targets[small as usize].iter().sum();
        let percent = self.sum(small) * 100 / (original + 1);
        self.left[small as usize] = [0; 2];
        for a in 0..2 {
            let target = self.targets[large as usize][a];
            let scanned = target - self.left[large as usize][a];
            self.left[large as usize][a] =
                (target * (100 - percent.min(100)) / 100).saturating_sub(scanned);
        }
        self.adjusted = true;
    }
}

impl Reclaim {
    /// Decides, from the sizes and costs of the whole subtree, what a pass may deactivate and how
    /// the types share its scan.
    pub(super) fn prepare_classical(&mut self, engine: &mut Engine) {
        let page_bytes = engine.page_bytes;
        let mut lru = engine.locked(self.target);
        self.prepared = Some(lru.prepare_pass(self.priority, self.force_deactivate, page_bytes));
    }

    pub(super) fn begin_classical(&mut self, engine: &mut Engine) {
        let prepared =
            self.prepared.expect("a pass over classical lists begins with a preparation");
        let lru = engine.locked(self.group);
        let sizes =
            LruType::ALL.map(|t| [false, true].map(|active| lru.lv.classical.size(t, active)));
        let sizes = sizes.map(|of| of.map(|size| self.unprotected(size)));
        let targets = scan_targets(sizes, self.priority, prepared.balance);
        self.classical = ClassicalLoop {
            may_deactivate: prepared.may_deactivate,
            targets,
            left: targets,
            reclaimed_before: self.reclaimed,
            ..ClassicalLoop::default()
        };
        self.at = At::Slice;
    }

    /// Visits lists until a batch is isolated or the loop is over.
    pub(super) fn classical_slice<F: Facts>(&mut self, engine: &mut Engine, facts: &mut F) {
        loop {
            if self.classical.at == ROUND.len() {
                self.classical.at = 0;
                let reclaimed = self.reclaimed - self.classical.reclaimed_before;
                if reclaimed >= self.goal && !self.classical.adjusted {
                    if self.classical.sum(LruType::File) == 0
                        || self.classical.sum(LruType::Anon) == 0
                    {
                        break;
                    }
                    self.classical.bring_into_proportion();
                }
            }
            if self.classical.at == 0 && !self.classical.work_left() {
                break;
            }
            let (t, active) = ROUND[self.classical.at];
            let n = self.classical.left[t as usize][usize::from(active)].min(SWAP_CLUSTER_MAX);
            if n == 0 {
                self.classical.at += 1;
                continue;
            }
            engine.drain(self.task.cpu);
            if active {
                self.classical.take(t, active, n);
                if self.classical.may_deactivate[t as usize] {
                    self.isolations += 1;
                    let sorted = shrink_active(&mut engine.locked(self.group), t, n, facts);
                    self.sorted += sorted;
                    self.held_for += sorted;
                    if self.shares_lock && self.held_for >= SHARE {
                        self.held_for = 0;
                        self.pending.push_back(Step::Yield);
                        return;
                    }
                } else {
                    self.skipped_deactivate = true;
                }
                continue;
            }
            if self.too_many_isolated(engine, t) {
                if !std::mem::replace(&mut self.classical.waited_for_isolated, true) {
                    self.sleep(engine, ThrottleReason::Isolated);
                    return;
                }
                // Waited once in vain: leave this list alone in this pass.
                self.classical.left[t as usize][0] = 0;
                continue;
            }
            self.classical.take(t, active, n);
            let mut out = self.batch.memory();
            self.isolations += 1;
            let looked_at = engine.locked(self.group).isolate_classical(t, false, n, &mut out);
            self.count_scan(engine, looked_at);
            if !out.is_empty() {
                self.batch.fill(t, looked_at, out);
                self.at = At::Settle;
                return;
            }
        }
        self.age_anon(engine, facts);
        self.at = At::LruvecEnd;
    }

    /// Whether other reclaimers have isolated so much that taking more would leave nothing to look
    /// at (`docs/kernel/reclaim.md` §4.4). The kernel's threshold is one eighth of a whole node;
    /// here, where the lists may be tiny, one batch of another reclaimer is never too much.
    fn too_many_isolated(&self, engine: &mut Engine, t: LruType) -> bool {
        let lru = engine.locked(self.group);
        let inactive = lru.lv.classical.size(t, false);
        self.reason != Reason::Kswapd && lru.lv.isolated > (inactive >> 3).max(SWAP_CLUSTER_MAX)
    }

    /// Anonymous memory is aged if there is swap at all, be it full (`docs/kernel/reclaim.md` §5.3,
    /// 7.5).
    fn age_anon<F: Facts>(&mut self, engine: &mut Engine, facts: &mut F) {
        let page_bytes = engine.page_bytes;
        let mut lru = engine.locked(self.group);
        if lru.swap.total_pages > 0 && lru.inactive_is_low(LruType::Anon, page_bytes) {
            self.isolations += 1;
            self.sorted += shrink_active(&mut lru, LruType::Anon, SWAP_CLUSTER_MAX, facts);
        }
    }

    /// Puts the rejects of an inactive batch back, oldest first, each to the head of its list.
    pub(super) fn classical_put_back(&mut self, engine: &mut Engine) {
        let mut lru = engine.locked(self.group);
        let mut entries = std::mem::take(&mut self.batch.entries);
        for entry in entries.drain(..) {
            if entry.fate != Fate::Freed {
                lru.put_back_classical(entry.folio);
            }
        }
        self.batch.entries = entries;
        let reclaimed = self.batch.stat.reclaimed;
        self.count_steal(lru.events, reclaimed);
        let rotated = self.batch.scanned.saturating_sub(reclaimed);
        lru.cost_of_shrinking(self.batch.lru_type, self.batch.written, rotated);
        self.at = At::Slice;
        if self.shares_lock {
            self.held_for = 0;
            self.pending.push_back(Step::Yield);
        }
    }
}

/// Moves folios from the tail of an active list to the head of the inactive one; only referenced
/// executable file memory stays (`docs/kernel/reclaim.md` §5.4).
/// Returns the pages that it looked at.
fn shrink_active<F: Facts>(lru: &mut Locked<'_>, t: LruType, pages: u64, facts: &mut F) -> u64 {
    let mut batch = Vec::with_capacity(pages as usize);
    let looked_at = lru.isolate_classical(t, true, pages, &mut batch);
    lru.events.pgrefill += looked_at;
    let mut rotated = 0;
    facts.gather(batch.iter().map(|id| &lru.folios[*id]));
    for id in batch {
        let refs = facts.references(id, &lru.folios[id]);
        let f = &mut lru.folios[id];
        if refs.young > 0 && refs.exec && t == LruType::File {
            rotated += f.pages();
        } else if !f.flags.contains(Flags::MLOCKED) {
            f.flags.remove(Flags::ACTIVE);
            f.flags.insert(Flags::WORKINGSET);
            lru.events.pgdeactivate += f.pages();
        }
        lru.put_back_classical(id);
    }
    lru.cost_of_rotation(t, rotated);
    looked_at
}
