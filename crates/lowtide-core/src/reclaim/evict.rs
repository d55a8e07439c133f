//! One batch of the multi-gen LRU: isolate from the oldest generation, and put back what was not freed.
//!
//! A rejected folio never goes back to the oldest generation, where the next scan would only meet it again. One
//! exception is tried once more at once: a clean, unmapped folio may have missed its rotation after writeback because it was isolated
//! when the write ended. Source: `reclaim.md` §2.10.

use super::invocation::{At, Reclaim};
use super::shrink::{Entry, Fate};
use crate::engine::Engine;
use crate::folio::Flags;
use crate::limits::MIN_NR_GENS;
use crate::lruvec::Locked;
use crate::policy::{Policy, Switches};
use crate::units::LruType;

impl Reclaim {
    /// Fills the batch with up to `folios` folios' worth of scanning.
    pub(super) fn isolate(&mut self, engine: &mut Engine, folios: u64) {
        let exact = engine.policy.has(Switches::S5);
        let mut lru = engine.locked(self.target);
        if exact {
            lru.retire_empty();
        }
        let mut t = lru.type_to_scan();
        let mut total = 0;
        let mut isolated = Vec::new();
        let mut taken = 0;
        for _ in 0..lru.evictable_types().len() {
            let limit = lru.lv.tiers[t as usize].limit();
            let scan = lru.scan(t, limit, folios, &mut isolated);
            let counted = if exact || scan.isolated > 0 || scan.exhausted { scan.scanned } else { 0 };
            total += counted;
            taken += scan.isolated;
            self.pass.file_taken += scan.file_taken;
            if !lru.policy.has(Switches::S10) {
                self.pass.unqueued_dirty += scan.unqueued_dirty;
            }
            if scan.isolated > 0 || (!exact && counted > 0) {
                break;
            }
            t = next_type(lru.policy, t, scan.scanned, counted);
        }
        self.count_scan(lru.events, taken);
        if !exact {
            total += u64::from(lru.retire_empty());
            if lru.evictable_min_seq() + MIN_NR_GENS > lru.lv.gens.max_seq {
                total = 0;
            }
        } else if total > 0 {
            lru.retire_empty();
        }
        self.batch.fill(t, total, isolated);
    }

    /// Puts the rejects of the batch back; a clean few are tried once more.
    pub(super) fn put_back(&mut self, engine: &mut Engine) {
        let mut lru = engine.locked(self.target);
        let mut retry = Vec::new();
        for entry in std::mem::take(&mut self.batch.entries) {
            if entry.fate == Fate::Freed {
                continue;
            }
            if self.batch.first_pass && worth_a_retry(&lru, &entry) {
                retry.push(entry);
                continue;
            }
            let id = entry.folio;
            lru.lv.isolated -= lru.folios[id].pages();
            let t = lru.folios[id].lru_type();
            if lru.placement(id, false) == lru.lv.gens.min_seq[t as usize] {
                let flags = &mut lru.folios[id].flags;
                flags.insert(Flags::ACTIVE);
                flags.clear_refs();
            }
            lru.add(id, false);
        }
        self.count_steal(lru.events, self.batch.stat.reclaimed);
        self.batch.first_pass = false;
        if retry.is_empty() {
            let rotated = self.batch.taken.saturating_sub(self.batch.reclaimed_in_all);
            if lru.policy.has(Switches::COST) {
                lru.cost_of_rotation(self.batch.lru_type, rotated);
            }
            self.after_batch(engine);
        } else {
            self.batch.entries = retry;
            self.at = At::Settle;
        }
    }
}

/// The type to try after a scan that isolated nothing.
fn next_type(policy: Policy, t: LruType, scanned: u64, counted: u64) -> LruType {
    let exact = policy.has(Switches::S5);
    let switch = if policy.has(Switches::S6) { scanned == 0 } else { exact || counted == 0 };
    if switch { t.other() } else { t }
}

fn worth_a_retry(lru: &Locked<'_>, entry: &Entry) -> bool {
    let busy = Flags::ACTIVE | Flags::DIRTY | Flags::WRITEBACK | Flags::MLOCKED;
    !entry.mapped && !lru.folios[entry.folio].flags.intersects(busy)
}
