//! Effective protection: how much of a group is protected from a reclaim for another.
//!
//! Protection is relative to the *target* of a reclaim. The target itself is never protected, a
//! child of the target has its own setting, and further down the protection of a parent is shared
//! among the children in proportion to what they claim and use; the rest goes to those that use
//! more than they claim, in proportion to that. So no group can give away more than it has, and
//! nothing is lost.
//!
//! It answers two questions. Is the group *below* its protection (effective >= usage)? Then `min`
//! takes it out of reclaim, and `low` does unless there is nothing else. And if not, how much of it
//! may be scanned? The unprotected part. Source: `docs/kernel/memcg.md` §5,
//! `docs/kernel/reclaim.md` §7.4.

use super::counter::Kind;
use super::{Counter, MemcgTree};
use crate::limits::SWAP_CLUSTER_MAX;
use crate::units::{MemcgId, MemcgSlot};

/// Effective protection of one group for one reclaim, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Protection {
    pub(crate) min: u64,
    pub(crate) low: u64,
    pub(crate) usage: u64,
}

impl Protection {
    /// Protected altogether.
    pub(crate) const fn below_min(&self) -> bool {
        self.min > 0 && self.min >= self.usage
    }

    /// Protected as long as others have something.
    pub(crate) const fn below_low(&self) -> bool {
        self.low > 0 && self.low >= self.usage
    }

    /// Pages out of `size` that a reclaim may scan, before they are shifted by the priority.
    /// `override_low`: best-effort protection no longer counts. Returns whether `low` was what
    /// spared the rest.
    pub(crate) fn scale(&self, size: u64, override_low: bool) -> (u64, bool) {
        if self.min == 0 && self.low == 0 {
            return (size, false);
        }
        let by_low = !override_low && self.low > self.min;
        let spared = if by_low { self.low } else { self.min };
        let usage = self.usage.max(spared);
        let part = u128::from(size) * u128::from(spared) / (u128::from(usage) + 1);
        ((size - part as u64).max(SWAP_CLUSTER_MAX), by_low)
    }
}

/// The share of one child in its parent's effective protection `of_parent`.
fn share(child: &Counter, parent: &Counter, kind: Kind, of_parent: u64) -> u64 {
    let claims = parent.claims[kind as usize].children;
    let protected = child.usage.min(child.claims[kind as usize].setting);
    if claims > of_parent {
        return (u128::from(protected) * u128::from(of_parent) / u128::from(claims)) as u64;
    }
    if of_parent > claims && parent.usage > claims && child.usage > protected {
        let unprotected = parent.usage - claims;
        let floating = u128::from(of_parent - claims);
        let more = (child.usage - protected).min(unprotected);
        return protected + (floating * u128::from(more) / u128::from(unprotected)) as u64;
    }
    protected
}

impl MemcgTree {
    /// Computes what protects a group from a reclaim for `target`, and remembers it in the groups
    /// on the way. O(depth), of the stack, too: [`MAX_DEPTH`](crate::limits::MAX_DEPTH) bounds
    /// both.
    pub(crate) fn protect(&mut self, target: MemcgId, slot: MemcgSlot) -> Protection {
        if slot == target.slot {
            return Protection { usage: self[slot].memory.usage, ..Protection::default() };
        }
        let parent = self[slot].parent.expect("a group below the target has a parent");
        if parent != target.slot {
            self.protect(target, parent);
        }
        let above = self[parent].memory;
        let group = &mut self[slot].memory;
        if group.usage > 0 {
            for kind in Kind::ALL {
                group.claims[kind as usize].effective = if parent == target.slot {
                    group.claims[kind as usize].setting
                } else {
                    share(group, &above, kind, above.claims[kind as usize].effective)
                };
            }
        }
        let effective = |kind: Kind| group.claims[kind as usize].effective;
        Protection { min: effective(Kind::Min), low: effective(Kind::Low), usage: group.usage }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(usage: u64, low: u64) -> Counter {
        let mut counter = Counter::new(u64::MAX);
        counter.add(usage);
        counter.claims[Kind::Low as usize].setting = low;
        counter
    }

    /// Shares of two children under a parent that has `of_parent`.
    fn shares(children: [(u64, u64); 2], of_parent: u64) -> [u64; 2] {
        let children = children.map(|(usage, low)| counter(usage, low));
        let mut parent = counter(children.iter().map(|c| c.usage).sum(), of_parent);
        parent.claims[Kind::Low as usize].children =
            children.iter().map(|c| c.usage.min(c.claims[Kind::Low as usize].setting)).sum();
        children.map(|child| share(&child, &parent, Kind::Low, of_parent))
    }

    /// `docs/kernel/memcg.md` §5.2, the first vector.
    #[test]
    fn what_is_claimed_beyond_the_parents_protection_is_shared_in_proportion() {
        assert_eq!(shares([(3072, 2048), (2048, 4096)], 3072), [1536, 1536]);
    }

    /// `docs/kernel/memcg.md` §5.2, the second vector.
    #[test]
    fn unclaimed_protection_goes_to_groups_that_use_more_than_they_claim() {
        assert_eq!(shares([(3072, 1024), (2048, 0)], 4096), [2560, 1536]);
    }

    #[test]
    fn protection_is_taken_off_before_the_shift_and_never_leaves_less_than_a_cluster() {
        let p = Protection { min: 0, low: 750, usage: 1000 };
        assert_eq!(p.scale(1000, false), (1000 - 1000 * 750 / 1001, true));
        assert_eq!(p.scale(1000, true), (1000, false), "low is overridden, and there is no min");
        assert_eq!(Protection { min: 999, low: 0, usage: 1000 }.scale(1000, false).0, 32);
        assert_eq!(Protection::default().scale(7, false), (7, false), "unprotected is unchanged");
    }
}
