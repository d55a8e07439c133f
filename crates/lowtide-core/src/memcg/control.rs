//! Creating, moving and removing groups, and setting their limits: in a kernel, writes to the files
//! of a memory cgroup.
//!
//! Setting a limit never evicts. A driver that lowers `max` or `high` reclaims what is above it,
//! with ordinary invocations, until usage has come down or it gives up; charges meanwhile see the
//! new limit. Source: `docs/kernel/memcg.md` §1, 4.

use super::counter::{Kind, UNLIMITED};
use super::{Memcg, MemcgTree};
use crate::engine::{ConfigError, Engine};
use crate::hooks::{LimitHooks, LimitReason};
use crate::limits::MAX_DEPTH;
use crate::lruvec::Published;
use crate::units::{MemcgId, MemcgSlot};

/// The settings of a group, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Hard protection.
    pub min: u64,
    /// Best-effort protection.
    pub low: u64,
    /// Above this, tasks reclaim and are slowed; `u64::MAX` for no limit.
    pub high: u64,
    /// Above this, nothing is charged; `u64::MAX` for no limit.
    pub max: u64,
    /// Pages of swap that the group may use; `u64::MAX` for no limit.
    pub swap_max: u64,
    /// Above as many pages of swap the tasks of the group are slowed down.
    pub swap_high: u64,
}

impl Default for Limits {
    /// Neither limited nor protected.
    fn default() -> Self {
        Self {
            min: 0,
            low: 0,
            high: UNLIMITED,
            max: UNLIMITED,
            swap_max: UNLIMITED,
            swap_high: UNLIMITED,
        }
    }
}

/// Why a group cannot be created, moved or removed. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GroupError {
    /// The group has been removed.
    #[error("the group has been removed")]
    Gone,
    /// There is no room for another one.
    #[error("there are already {} groups, the maximum", MemcgTree::MAX)]
    TooMany,
    /// The tree would have too many levels.
    #[error(
        "a group would be more than {MAX_DEPTH} levels below the root, the maximum depth of a tree"
    )]
    TooDeep,
    /// The root stays where it is.
    #[error("the root group can be neither moved nor removed")]
    Root,
    /// Groups are removed from the bottom up.
    #[error("the group has children: remove them first")]
    HasChildren,
    /// A reclaim has isolated folios of the group.
    #[error("reclaim has isolated pages of the group: try again")]
    Busy,
    /// A group cannot be put below itself.
    #[error("a group cannot be moved below itself")]
    Cycle,
    /// What the group uses does not fit under its new ancestors.
    #[error(
        "{needed} pages do not fit under the new parent, where {margin} are left: reclaim first, \
         or raise max"
    )]
    NoRoom {
        /// Pages that the group uses.
        needed: u64,
        /// Pages that the fullest of its new ancestors has left.
        margin: u64,
    },
}

impl Engine {
    /// Creates a group without limits, the last child of another. Cost: O(1) and a few hundred
    /// bytes.
    ///
    /// # Errors
    /// [`GroupError::Gone`], [`GroupError::TooMany`], [`GroupError::TooDeep`].
    pub fn create_group(&mut self, parent: MemcgId) -> Result<MemcgId, GroupError> {
        if self.memcgs[self.existing(parent)?].depth >= MAX_DEPTH {
            return Err(GroupError::TooDeep);
        }
        let id = self.memcgs.insert(parent.slot, &mut self.folios).ok_or(GroupError::TooMany)?;
        self.levels.begin(id.slot, Some(parent.slot));
        if let Some(lru) = &mut self.memcg_lru {
            lru.insert(id);
        }
        self.tell_life(id, LimitReason::Online);
        Ok(id)
    }

    /// Removes a group without children. What it holds belongs to its parent from now on: folios
    /// keep their age, charges stay where they are, counts are added to the parent's. Cost:
    /// O(folios of the group).
    ///
    /// # Errors
    /// [`GroupError::Gone`], [`GroupError::Root`], [`GroupError::HasChildren`],
    /// [`GroupError::Busy`].
    pub fn remove_group(&mut self, id: MemcgId) -> Result<(), GroupError> {
        let slot = self.existing(id)?;
        let parent = self.memcgs[slot].parent.ok_or(GroupError::Root)?;
        if self.memcgs.children(slot).next().is_some() {
            return Err(GroupError::HasChildren);
        }
        // Folios that wait in batches go to their lists first, so that all are on the lists that
        // are handed over.
        self.drain_all();
        if self.memcgs[slot].lruvec.isolated > 0 {
            return Err(GroupError::Busy);
        }
        self.drain_stocks(slot);
        self.tell_life(id, LimitReason::Offline);
        for kind in Kind::ALL {
            self.memcgs[slot].memory.claims[kind as usize].setting = 0;
        }
        self.memcgs.republish(slot);
        self.reparent(slot, parent);
        self.memcgs.take(slot);
        if let Some(lru) = &mut self.memcg_lru {
            lru.remove(id);
        }
        Ok(())
    }

    /// Moves a group, with everything below it, under another parent, and its charges with it.
    ///
    /// # Errors
    /// [`GroupError::Gone`], [`GroupError::Root`], [`GroupError::Cycle`], [`GroupError::TooDeep`],
    /// [`GroupError::NoRoom`].
    pub fn move_group(&mut self, id: MemcgId, parent: MemcgId) -> Result<(), GroupError> {
        let slot = self.existing(id)?;
        let to = self.existing(parent)?;
        let from = self.memcgs[slot].parent.ok_or(GroupError::Root)?;
        if self.memcgs.is_below(to, slot) {
            return Err(GroupError::Cycle);
        }
        if from == to {
            return Ok(());
        }
        // Only levels that are not above it already are checked; the root, which counts frames,
        // never is.
        let subtree: Vec<_> = self.memcgs.subtree(slot).collect();
        let deepest = subtree.iter().map(|&at| self.memcgs[at].depth).max().unwrap_or_default();
        if self.memcgs[to].depth + 1 + (deepest - self.memcgs[slot].depth) > MAX_DEPTH {
            return Err(GroupError::TooDeep);
        }
        self.drain_stocks(slot);
        let (memory, swap) = (self.memcgs[slot].memory.usage, self.memcgs[slot].swap.usage);
        let gains: Vec<_> =
            self.memcgs.upwards(to).filter(|&at| !self.memcgs.is_below(from, at)).collect();
        let margin =
            gains.iter().map(|&at| self.memcgs[at].memory.margin()).min().unwrap_or(UNLIMITED);
        if margin < memory {
            return Err(GroupError::NoRoom { needed: memory, margin });
        }
        self.move_counts(&subtree, from, to);
        self.memcgs.forget_claims(slot, from);
        self.memcgs.sub(from, memory, memory);
        self.memcgs.sub_swap(from, swap);
        self.memcgs.unlink(slot);
        self.memcgs.link(slot, to);
        self.memcgs.settle_depths(slot);
        self.memcgs.add(to, memory, memory);
        self.memcgs.add_swap(to, swap);
        self.memcgs.republish(slot);
        for at in subtree {
            self.levels.set_parent(at, self.memcgs[at].parent);
        }
        Ok(())
    }

    /// Reclaim counts events of a whole subtree. A group that moves, the first of `subtree`, takes
    /// its own along, so that its old ancestors do not miss them, and its new ones do not take them
    /// for new. Ancestors of both are not concerned.
    fn move_counts(&mut self, subtree: &[MemcgSlot], from: MemcgSlot, to: MemcgSlot) {
        let above = |memcgs: &MemcgTree, one, other| -> Vec<_> {
            memcgs.upwards(one).filter(|&at| !memcgs.is_below(other, at)).collect()
        };
        let published = *self.levels.published(subtree[0]);
        for at in above(&self.memcgs, from, to) {
            self.locked(at).subtree_leaves(&published);
        }
        let mut exact = Published::default();
        for &at in subtree {
            exact.add(&self.locked(at).to_publish());
        }
        for at in above(&self.memcgs, to, from) {
            self.locked(at).subtree_comes(&exact);
        }
    }

    /// Whether a group exists.
    #[must_use]
    pub fn alive(&self, id: MemcgId) -> bool {
        self.memcgs.alive(id)
    }

    /// Groups that there are, the root among them.
    #[must_use]
    pub const fn groups(&self) -> usize {
        self.memcgs.len()
    }

    /// The parent of a group; `None` for the root, and for a group that is gone.
    #[must_use]
    pub fn parent(&self, id: MemcgId) -> Option<MemcgId> {
        if !self.alive(id) {
            return None;
        }
        self.memcgs[id].parent.map(|slot| self.memcgs.id(slot))
    }

    /// The children of a group in the order of their creation.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn children(&self, id: MemcgId) -> impl Iterator<Item = MemcgId> {
        assert!(self.alive(id), "group {} has been removed", id.number());
        self.memcgs.children(id.slot).map(|slot| self.memcgs.id(slot))
    }

    /// A group and everything below it, parents first.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn below(&self, id: MemcgId) -> impl Iterator<Item = MemcgId> {
        assert!(self.alive(id), "group {} has been removed", id.number());
        self.memcgs.subtree(id.slot).map(|slot| self.memcgs.id(slot))
    }

    /// The settings of a group.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn limits(&self, id: MemcgId) -> Limits {
        let Memcg { memory, swap, .. } = &self.memcgs[id];
        let setting = |kind: Kind| memory.claims[kind as usize].setting;
        Limits {
            min: setting(Kind::Min),
            low: setting(Kind::Low),
            high: memory.high,
            max: memory.max,
            swap_max: swap.max,
            swap_high: swap.high,
        }
    }

    /// Sets hard protection, in pages.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn set_min(&mut self, id: MemcgId, pages: u64) {
        self.set_claim(id, Kind::Min, pages);
    }

    /// Sets best-effort protection, in pages.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn set_low(&mut self, id: MemcgId, pages: u64) {
        self.set_claim(id, Kind::Low, pages);
    }

    fn set_claim(&mut self, id: MemcgId, kind: Kind, pages: u64) {
        self.memcgs[id].memory.claims[kind as usize].setting = pages;
        self.memcgs.republish(id.slot);
    }

    /// Sets the level above which tasks reclaim and are slowed, in pages.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn set_high(&mut self, id: MemcgId, pages: u64) {
        let Memcg { memory, high, .. } = &mut self.memcgs[id];
        if let Some(auto) = high.auto.as_mut().filter(|_| pages > memory.high) {
            auto.limit_rises(memory.usage);
        }
        memory.high = pages;
    }

    /// Sets the budget of a group, in pages. Nothing is evicted by this: the driver reclaims what
    /// is above the new budget, until usage has come down to it or it gives up
    /// (`docs/kernel/reclaim.md` §7.2). Until then every charge that does not fit reclaims, and
    /// may fail.
    ///
    /// # Errors
    /// [`ConfigError`] when the budget of the root is impossible: smaller than a batch, or more
    /// than the frames there are. Nothing has changed then.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn set_max(&mut self, id: MemcgId, pages: u64) -> Result<(), ConfigError> {
        if id == MemcgId::ROOT {
            crate::engine::check_budget(pages, self.folios.frames())?;
        }
        self.memcgs[id].memory.set_max(pages);
        Ok(())
    }

    /// Sets how many pages of swap a group may use. What is swapped out already stays.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn set_swap_max(&mut self, id: MemcgId, pages: u64) {
        self.memcgs[id].swap.set_max(pages);
    }

    /// Sets above how many pages of swap the tasks of a group are slowed down, as above `high` of
    /// memory. Nothing is pushed out.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn set_swap_high(&mut self, id: MemcgId, pages: u64) {
        self.memcgs[id].swap.high = pages;
    }

    /// Attaches a program to a group and those below it that have none of their own, in the place
    /// of the one it had. `None` detaches it.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn set_hooks(
        &mut self,
        id: MemcgId,
        hooks: Option<Box<dyn LimitHooks>>,
    ) -> Option<Box<dyn LimitHooks>> {
        std::mem::replace(&mut self.memcgs[id].hooks, hooks)
    }

    fn existing(&self, id: MemcgId) -> Result<MemcgSlot, GroupError> {
        if self.memcgs.alive(id) { Ok(id.slot) } else { Err(GroupError::Gone) }
    }
}

impl MemcgTree {
    /// Adds `below` pages to a group and its ancestors, the root excepted, which gets `root` pages.
    pub(crate) fn add(&mut self, slot: MemcgSlot, below: u64, root: u64) {
        self.change(slot, |group| {
            group.memory.add(if group.parent.is_none() { root } else { below });
        });
    }

    /// The reverse of [`MemcgTree::add`].
    pub(crate) fn sub(&mut self, slot: MemcgSlot, below: u64, root: u64) {
        self.change(slot, |group| {
            group.memory.sub(if group.parent.is_none() { root } else { below });
        });
    }

    /// Adds pages of swap to a group and its ancestors.
    pub(crate) fn add_swap(&mut self, slot: MemcgSlot, pages: u64) {
        self.change(slot, |group| group.swap.add(pages));
    }

    /// The reverse of [`MemcgTree::add_swap`].
    pub(crate) fn sub_swap(&mut self, slot: MemcgSlot, pages: u64) {
        self.change(slot, |group| group.swap.sub(pages));
    }

    /// Publishes the protection of a group and its ancestors again, after a setting has changed.
    pub(crate) fn republish(&mut self, slot: MemcgSlot) {
        self.change(slot, |_| ());
    }

    /// Changes the counters of a group and its ancestors, and what each publishes to its parent.
    #[inline]
    fn change(&mut self, slot: MemcgSlot, each: impl Fn(&mut Memcg)) {
        let mut at = slot;
        loop {
            let group = &mut self[at];
            each(group);
            let Some(parent) = group.parent else { return };
            let grown = group.memory.publish();
            if grown != [0, 0] {
                let claims = &mut self[parent].memory.claims;
                for (claim, grown) in claims.iter_mut().zip(grown) {
                    claim.children = claim.children.wrapping_add_signed(grown);
                }
            }
            at = parent;
        }
    }

    /// A group is about to leave its parent: what it had published there is void.
    fn forget_claims(&mut self, slot: MemcgSlot, parent: MemcgSlot) {
        for kind in Kind::ALL {
            let published = std::mem::take(&mut self[slot].memory.claims[kind as usize].published);
            self[parent].memory.claims[kind as usize].children -= published;
        }
    }
}
