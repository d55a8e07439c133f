//! One batch of the multi-gen LRU: isolate from the oldest generation, and put back what was not
//! freed.
//!
//! A rejected folio never goes back to the oldest generation, where the next scan would meet it
//! again. One exception is tried once more at once: a clean, unmapped folio may have missed its
//! rotation after writeback because it was isolated when the write ended. Source:
//! `docs/kernel/reclaim.md` §2.10.

use super::batch::{Entry, Fate};
use super::invocation::{At, Reclaim};
use crate::engine::Engine;
use crate::folio::Flags;
use crate::limits::MIN_NR_GENS;
use crate::lruvec::{Locked, waits_for_write};
use crate::policy::{Policy, Switches};
use crate::units::{FolioId, LruType};

impl Reclaim {
    /// Fills the batch with up to `folios` folios' worth of scanning.
    pub(super) fn isolate(&mut self, engine: &mut Engine, folios: u64) {
        self.isolations += 1;
        let exact = engine.policy.has(Switches::S5);
        let mut lru = engine.locked(self.group);
        if exact {
            lru.retire_empty();
        }
        let first = lru.type_to_scan();
        let mut t = first;
        let mut total = 0;
        let mut isolated = self.batch.memory();
        let mut taken = 0;
        for _ in 0..lru.evictable_types().len() {
            let limit = lru.tier_limit(t, total == 0 && t == first);
            let scan = lru.scan(t, limit, folios, self.may_io, &mut isolated);
            let counted =
                if exact || scan.isolated > 0 || scan.exhausted { scan.scanned } else { 0 };
            total += counted;
            taken += scan.isolated;
            self.sorted += scan.sorted;
            self.count_for_wake(t, &scan);
            if scan.isolated > 0 || (!exact && counted > 0) {
                break;
            }
            t = next_type(lru.policy, t, scan.scanned, counted);
        }
        self.count_scan(engine, taken);
        let mut lru = engine.locked(self.group);
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
        let mut lru = engine.locked(self.group);
        let mut retry = Vec::new();
        let mut entries = std::mem::take(&mut self.batch.entries);
        for entry in entries.drain(..) {
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
            let forced =
                !lru.policy.has(Switches::REJECTS) && !waits_for_write(lru.folios[id].flags);
            if forced || lru.placement(id, false) == lru.lv.gens.min_seq[t as usize] {
                let flags = &mut lru.folios[id].flags;
                flags.insert(Flags::ACTIVE);
                flags.clear_refs();
            }
            lru.add(id, false);
            debug_assert!(
                not_oldest(&lru, id),
                "{id:?} was rejected and is at the eviction end again"
            );
        }
        self.count_steal(lru.events, self.batch.stat.reclaimed);
        self.batch.first_pass = false;
        self.batch.entries = entries;
        if retry.is_empty() {
            let rotated = self.batch.taken.saturating_sub(self.batch.reclaimed_in_all);
            if lru.policy.has(Switches::COST) {
                lru.cost_of_shrinking(self.batch.lru_type, self.batch.written, rotated);
            }
            self.after_batch(engine);
        } else {
            self.batch.entries = retry;
            self.at = At::Settle;
        }
    }
}

/// Whether a folio is where the next scan will not meet it: above the oldest generation, which may
/// be met only when there are just two, and then nothing of the type is scanned.
fn not_oldest(lru: &Locked<'_>, id: FolioId) -> bool {
    let t = lru.folios[id].lru_type();
    let oldest = lru.lv.gens.window(t).next();
    lru.lv.gens.count(t) == MIN_NR_GENS || lru.folios[id].flags.generation() != oldest
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

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/kernel/reclaim.md` §2.10 and §9, 11.
    #[test]
    fn the_other_type_is_tried_only_if_nothing_was_scanned_since_s6() {
        let switched = |policy, scanned, counted| {
            next_type(policy, LruType::File, scanned, counted) == LruType::Anon
        };
        let before = Policy::MGLRU.with(Switches::S6, false);
        assert!(switched(Policy::MGLRU, 0, 0) && !switched(Policy::MGLRU, 9, 9));
        assert!(
            switched(before, 9, 9),
            "with exact counts, but without S6, every fruitless scan switched"
        );
        assert!(switched(Policy::MGLRU_7_1, 9, 0), "7.1 took a fruitless scan for an empty one");
    }
}
