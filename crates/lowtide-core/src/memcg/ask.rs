//! What a driver with many groups asks: whose a space is, what a full group has left.
//!
//! None of it decides anything. Source: `docs/kernel/memcg.md` §4.3, 6.2, 11, 13.

use crate::engine::Engine;
use crate::stat::MemcgEvents;
use crate::units::MemcgId;

impl Engine {
    /// Whether a group is another one or below it. False when either is gone. Cost: O(depth).
    #[must_use]
    pub fn is_within(&self, id: MemcgId, top: MemcgId) -> bool {
        self.alive(id) && self.alive(top) && self.memcgs.is_below(id.slot, top.slot)
    }

    /// Pages that may still be charged to a group before it is full itself; its ancestors may have
    /// less.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn margin(&self, id: MemcgId) -> u64 {
        self.memcgs[id].memory.margin()
    }

    /// Limit events of a group and those below it: `memory.events`. Cost: O(1).
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn limit_events(&self, id: MemcgId) -> MemcgEvents {
        self.memcgs[id].limits
    }

    /// Charges that met the limit of a group so far, tries with a whole batch among them: what the
    /// kernel's log calls `failcnt`.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn failcnt(&self, id: MemcgId) -> u64 {
        self.memcgs[id].memory.failcnt
    }

    /// Counts `oom`: a driver gives up a [patient](crate::Charge::patient) charge, or the lowering
    /// of a limit. Nothing happens when the group is gone.
    pub fn count_oom(&mut self, id: MemcgId) {
        if self.alive(id) {
            self.memcgs.raise(id.slot, |events| &mut events.oom);
        }
    }

    /// Gives what was charged in advance to a group and those below it back to the counters.
    /// Nothing happens when the group is gone.
    pub fn drain_stocks_of(&mut self, id: MemcgId) {
        if self.alive(id) {
            self.drain_stocks(id.slot);
        }
    }

    /// Whether waiting can help a charge that a full group refuses: something below it is resident
    /// and not under hard protection, so what is held, dirty or being written now may be
    /// evicted later. Cost: O(groups below).
    #[must_use]
    pub fn may_become_reclaimable(&mut self, full: MemcgId) -> bool {
        if !self.alive(full) {
            return true;
        }
        let below: Vec<_> = self.memcgs.subtree(full.slot).collect();
        below.into_iter().any(|slot| {
            let resident: u64 = self.memcgs[slot].resident.iter().sum();
            resident > 0 && !self.memcgs.protect(full, slot).below_min()
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::Policy;
    use crate::testing::filled;
    use crate::units::{LruType, MemcgId};

    #[test]
    fn waiting_helps_only_where_something_unprotected_is_resident() {
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        assert!(engine.may_become_reclaimable(MemcgId::ROOT));
        let empty = engine.create_group(MemcgId::ROOT).unwrap();
        assert!(!engine.may_become_reclaimable(empty), "nothing will ever come out of it");
    }

    #[test]
    fn an_event_of_a_group_that_is_gone_is_counted_nowhere() {
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        let gone = engine.create_group(MemcgId::ROOT).unwrap();
        engine.remove_group(gone).unwrap();
        engine.count_oom(gone);
        let limits = engine.stat(MemcgId::ROOT).limits;
        assert_eq!((limits.high, limits.oom), (0, 0));
        assert!(!engine.is_within(gone, MemcgId::ROOT));
    }
}
