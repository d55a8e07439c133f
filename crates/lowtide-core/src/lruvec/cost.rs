//! What reclaim of each type has cost, and how that balances scans between the types.
//!
//! A page that is written or comes back costs 32, a page that was looked at in vain costs 1. The
//! type that costs more is scanned less: each cost is weighted between one third and two thirds
//! before swappiness. Costs decay, both by half, when they exceed a quarter of the lists.
//!
//! Until 7.2 the events were added as they happened; since 7.3 reclaim pulls *published* counters
//! when it prepares a pass, so costs move in steps of two seconds. Source: `docs/kernel/reclaim.md`
//! §5.2 step 1, 5.3.

use super::Locked;
use super::levels::Published;
use crate::limits::{DEF_PRIORITY, MAX_SWAPPINESS, SWAP_CLUSTER_MAX, SWAPPINESS_ANON_ONLY};
use crate::policy::Switches;
use crate::units::LruType;

/// Accumulated cost of each type.
#[derive(Debug, Default)]
pub(crate) struct CostModel {
    cost: [u64; 2],
    /// Pages looked at in vain, ever.
    pub(super) rotated: [u64; 2],
    /// Pages that came back, or were written by reclaim, ever.
    pub(super) io: [u64; 2],
    rotated_pulled: [u64; 2],
    io_pulled: [u64; 2],
}

/// How the scan of one pass is shared between the types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Balance {
    /// Each list by its size.
    Equal,
    Only(LruType),
    /// Anonymous memory alone was requested, and there is no swap for it.
    Nothing,
    /// By these shares.
    Fraction {
        share: [u64; 2],
        of: u64,
    },
}

/// The decisions before a pass over the classical lists (`docs/kernel/reclaim.md` §5.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preparation {
    pub(crate) may_deactivate: [bool; 2],
    pub(crate) balance: Balance,
}

impl CostModel {
    /// Takes over what a group below had cost that is gone: what is published of a group and of
    /// those below never falls by that.
    pub(crate) fn inherit(&mut self, gone: &Self) {
        for t in 0..2 {
            self.rotated[t] += gone.rotated[t];
            self.io[t] += gone.io[t];
        }
    }
}

/// What a published count has grown by. Counts of a group that has left again before it was
/// published may be missing.
fn since(now: u64, before: u64) -> u64 {
    (now.wrapping_sub(before) as i64).max(0) as u64
}

impl Locked<'_> {
    /// Reclaim looked at `rotated` pages of a type in vain.
    pub(crate) fn cost_of_rotation(&mut self, t: LruType, rotated: u64) {
        self.cost_of_shrinking(t, 0, rotated);
    }

    /// Reclaim wrote `written` pages of a type, and looked at `rotated` pages in vain (those
    /// written among them).
    pub(crate) fn cost_of_shrinking(&mut self, t: LruType, written: u64, rotated: u64) {
        self.lv.cost.io[t as usize] += written;
        self.lv.cost.rotated[t as usize] += rotated;
        self.cost_event(t, written * SWAP_CLUSTER_MAX + rotated);
    }

    /// A page of the workingset had to be read again.
    pub(super) fn cost_of_refault(&mut self, t: LruType, pages: u64) {
        self.lv.cost.io[t as usize] += pages;
        self.cost_event(t, pages * SWAP_CLUSTER_MAX);
    }

    /// A group that was below, of which this was published, is moved elsewhere with what it has
    /// cost. What it cost since this group looked still counts for this group.
    pub(crate) fn subtree_leaves(&mut self, gone: &Published) {
        self.shift_counts(u64::wrapping_sub, gone);
    }

    /// A group that has cost this is moved below. It did so elsewhere: only what follows counts.
    pub(crate) fn subtree_comes(&mut self, new: &Published) {
        self.shift_counts(u64::wrapping_add, new);
    }

    /// Changes what is published, and what of it was seen, so that the difference stays: all that
    /// is used of either. What was seen may be less than what leaves.
    fn shift_counts(&mut self, shift: fn(u64, u64) -> u64, by: &Published) {
        let p = self.levels.published_mut(self.slot);
        let (cost, seen) = (&mut self.lv.cost, &mut self.lv.classical.activations_seen);
        for t in LruType::ALL.map(|t| t as usize) {
            for count in [&mut p.io[t], &mut cost.io_pulled[t]] {
                *count = shift(*count, by.io[t]);
            }
            for count in [&mut p.rotated[t], &mut cost.rotated_pulled[t]] {
                *count = shift(*count, by.rotated[t]);
            }
            for count in [&mut p.activations[t], &mut seen[t]] {
                *count = shift(*count, by.activations[t]);
            }
        }
    }

    fn cost_event(&mut self, t: LruType, cost: u64) {
        if self.policy.has(Switches::COST) {
            return;
        }
        let limit = self.levels.published(self.slot).lru_size() / 4;
        let c = &mut self.lv.cost.cost;
        c[t as usize] += cost;
        if c[0] + c[1] > limit {
            *c = [c[0] / 2, c[1] / 2];
        }
    }

    fn pull_costs(&mut self) {
        if !self.policy.has(Switches::COST) {
            return;
        }
        let p = *self.levels.published(self.slot);
        let c = &mut self.lv.cost;
        for t in 0..2 {
            c.cost[t] += since(p.io[t], c.io_pulled[t]) * SWAP_CLUSTER_MAX
                + since(p.rotated[t], c.rotated_pulled[t]);
        }
        (c.io_pulled, c.rotated_pulled) = (p.io, p.rotated);
        while c.cost[0] + c.cost[1] > p.lru_size() / 4 {
            c.cost = [c.cost[0] / 2, c.cost[1] / 2];
        }
    }

    /// Decides what a pass at `priority` may deactivate and how it shares its scan.
    pub(crate) fn prepare_pass(
        &mut self,
        priority: u32,
        force_deactivate: bool,
        page_bytes: u64,
    ) -> Preparation {
        self.pull_costs();
        let may_deactivate = LruType::ALL.map(|t| {
            force_deactivate || self.workingset_changes(t) || self.inactive_is_low(t, page_bytes)
        });
        let trim = self.levels.published(self.slot).inactive(LruType::File) >> priority != 0
            && !may_deactivate[LruType::File as usize];
        Preparation { may_deactivate, balance: self.balance(priority, trim) }
    }

    /// How a pass of `tide` shares its scan: by the same costs, and without the rule that spares
    /// anonymous memory while there is inactive file memory.
    pub(crate) fn share_by_cost(&mut self, priority: u32) -> Balance {
        self.pull_costs();
        self.balance(priority, false)
    }

    fn balance(&self, priority: u32, trim_cache: bool) -> Balance {
        let s = self.lv.swappiness;
        let anon_only = s == SWAPPINESS_ANON_ONLY;
        if anon_only && self.policy.has(Switches::ANONONLY) {
            return if self.can_swap() { Balance::Only(LruType::Anon) } else { Balance::Nothing };
        }
        if !self.can_swap() || s == 0 {
            return Balance::Only(LruType::File);
        }
        if anon_only {
            return Balance::Only(LruType::Anon);
        }
        if priority == 0 {
            return Balance::Equal;
        }
        if trim_cache {
            return Balance::Only(LruType::File);
        }
        let s = u64::from(s);
        let [anon, file] = self.lv.cost.cost;
        let total = anon + file;
        let (a, f) = (total + anon, total + file);
        let sum = a + f;
        let anon_share = s * (sum + 1) / (a + 1);
        let file_share = (u64::from(MAX_SWAPPINESS) - s) * (sum + 1) / (f + 1);
        Balance::Fraction { share: [anon_share, file_share], of: anon_share + file_share }
    }
}

/// Pages to scan of each list, by type and activity, of what is not protected of it. No small
/// number is rounded up (`docs/kernel/reclaim.md` §5.3).
pub(crate) fn scan_targets(sizes: [[u64; 2]; 2], priority: u32, balance: Balance) -> [[u64; 2]; 2] {
    debug_assert!(priority <= DEF_PRIORITY);
    LruType::ALL.map(|t| {
        sizes[t as usize].map(|size| {
            let scan = size >> priority;
            match balance {
                Balance::Equal => scan,
                Balance::Only(only) if only == t => scan,
                Balance::Only(_) | Balance::Nothing => 0,
                Balance::Fraction { share, of } => scan * share[t as usize] / of.max(1),
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::policy::Policy;
    use crate::testing::filled;
    use crate::units::MemcgId;

    /// `docs/kernel/reclaim.md` §9, 40: events halve once since they are small, a pull halves until
    /// the costs fit.
    #[test]
    fn costs_decay_once_an_event_or_until_they_fit() {
        let event_driven: Policy = "lru-cost".parse().unwrap();
        for (policy, cost) in [(event_driven, [0, 500]), (Policy::LRU, [0, 7])] {
            let mut engine = filled(policy, 31, LruType::File);
            engine.publish();
            engine.locked(MemcgId::ROOT).cost_of_rotation(LruType::File, 1000);
            engine.publish();
            let mut lru = engine.locked(MemcgId::ROOT);
            lru.pull_costs();
            assert_eq!(lru.lv.cost.cost, cost, "{policy}: the lists have 31 pages");
        }
    }

    #[test]
    fn what_a_group_has_cost_stays_when_it_is_removed_and_goes_with_it_when_it_moves() {
        let mut engine = filled(Policy::LRU, 31, LruType::File);
        let upper = engine.create_group(MemcgId::ROOT).unwrap();
        let [moved, removed] = [(); 2].map(|()| engine.create_group(upper).unwrap());
        for group in [moved, removed] {
            engine.locked(group.slot).cost_of_shrinking(LruType::File, 20, 100);
        }
        let pull = |engine: &mut Engine| {
            engine.publish();
            let mut lru = engine.locked(upper.slot);
            lru.pull_costs();
            (lru.lv.cost.io_pulled, lru.lv.cost.rotated_pulled)
        };
        assert_eq!(pull(&mut engine), ([0, 40], [0, 200]));
        engine.remove_group(removed).unwrap();
        assert_eq!(pull(&mut engine), ([0, 40], [0, 200]));
        engine.move_group(moved, MemcgId::ROOT).unwrap();
        assert_eq!(pull(&mut engine), ([0, 20], [0, 100]));
        engine.locked(upper.slot).cost_of_shrinking(LruType::File, 1, 0);
        assert_eq!(pull(&mut engine), ([0, 21], [0, 100]));
    }

    /// One publication later its whole history would be a cost of a moment, beside which nothing
    /// that has happened there counts.
    #[test]
    fn what_a_group_has_cost_elsewhere_does_not_count_where_it_is_moved_to() {
        let mut engine = filled(Policy::LRU, 31, LruType::File);
        let [old, new] = [(); 2].map(|()| engine.create_group(MemcgId::ROOT).unwrap());
        let top = engine.create_group(old).unwrap();
        let low = engine.create_group(top).unwrap();
        let pull = |engine: &mut Engine, publish, of: MemcgId| {
            if publish {
                engine.publish();
            }
            let mut lru = engine.locked(of.slot);
            // Nothing decays.
            lru.levels.published_mut(of.slot).size = [[1 << 30; 2]; 2];
            lru.pull_costs();
            lru.lv.cost.cost
        };
        let shrink = |engine: &mut Engine, group: MemcgId, written, rotated| {
            engine.locked(group.slot).cost_of_shrinking(LruType::Anon, written, rotated);
            *engine.locked(group.slot).events.activate(LruType::Anon) += 1;
        };
        shrink(&mut engine, low, 100, 300);
        assert_eq!(pull(&mut engine, true, old), [3500, 0]);
        assert_eq!(pull(&mut engine, true, new), [0, 0]);
        // Some of it is published and not seen, and some not even published.
        shrink(&mut engine, low, 1, 2);
        engine.publish();
        engine.locked(new.slot).snapshot_activations();
        shrink(&mut engine, low, 10, 20);
        shrink(&mut engine, new, 0, 7);
        shrink(&mut engine, old, 0, 5);
        engine.move_group(top, new).unwrap();
        assert!(!engine.locked(new.slot).workingset_changes(LruType::Anon));
        assert_eq!(pull(&mut engine, false, new), [0, 0]);
        assert_eq!(pull(&mut engine, false, old), [3534, 0], "this was for the old group");
        assert_eq!(pull(&mut engine, true, new), [7, 0]);
        assert_eq!(pull(&mut engine, true, old), [3539, 0]);
        shrink(&mut engine, low, 0, 4);
        assert_eq!(pull(&mut engine, true, new), [11, 0]);
        assert_eq!(pull(&mut engine, true, old), [3539, 0]);
        let root = pull(&mut engine, true, MemcgId::ROOT);
        assert_eq!(root, [111 * 32 + 338, 0], "it has been below the root all the time");
    }

    #[test]
    fn the_type_that_costs_more_is_scanned_less_but_never_less_than_a_third() {
        let mut engine = filled(Policy::LRU, 0, LruType::File);
        let lru = engine.locked(MemcgId::ROOT);
        lru.swap.free_pages = 1;
        lru.lv.swappiness = 100;
        let mut share = |cost| {
            lru.lv.cost.cost = cost;
            let Balance::Fraction { share, of } = lru.balance(12, false) else {
                panic!("nothing else applies")
            };
            share[LruType::Anon as usize] as f64 / of as f64
        };
        assert!((share([500, 500]) - 0.5).abs() < 0.01);
        assert!((share([1_000_000, 0]) - 1.0 / 3.0).abs() < 0.01);
        assert!((share([0, 1_000_000]) - 2.0 / 3.0).abs() < 0.01);
    }

    #[test]
    fn anon_only_finds_nothing_when_anonymous_memory_can_go_nowhere() {
        let mut engine = filled(Policy::LRU, 31, LruType::File);
        engine.set_swappiness(MemcgId::ROOT, SWAPPINESS_ANON_ONLY);
        let lru = engine.locked(MemcgId::ROOT);
        assert_eq!(lru.balance(0, false), Balance::Nothing);
        assert_eq!(scan_targets([[31; 2]; 2], 0, Balance::Nothing), [[0; 2]; 2]);
    }
}
