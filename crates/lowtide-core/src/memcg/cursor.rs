//! The order in which the groups of a subtree are reclaimed.
//!
//! Reclaimers of one target share a cursor over its subtree, so that each takes a group that no
//! other has taken in this round, and the next one goes on where the last has stopped: pressure is
//! spread over all groups although no single reclaimer visits them all. A walk joins the round that
//! is in progress and ends with it; one that finds the cursor at the end begins a new round, so it
//! sees at least one group. A reclaimer that must not miss anything (the background reclaimer, or
//! one about to give up) walks alone, over all groups. Source: `docs/kernel/reclaim.md` §3.6,
//! `docs/kernel/memcg.md` §10.1.

use super::MemcgTree;
use crate::units::{MemcgId, MemcgSlot};

/// One walk over a subtree.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    /// Alone (a full walk), or with others: then the round that it has joined.
    round: Option<u64>,
    /// The group visited last.
    at: Option<MemcgId>,
    over: bool,
}

impl Cursor {
    /// Begins a walk over the subtree of `top`.
    pub(crate) fn new(tree: &MemcgTree, top: MemcgId, full: bool) -> Self {
        Self { round: (!full).then_some(tree[top].cursor.round), at: None, over: false }
    }

    /// The next group of the walk.
    pub(crate) fn next(&mut self, tree: &mut MemcgTree, top: MemcgId) -> Option<MemcgId> {
        if self.over {
            return None;
        }
        let next = match self.round {
            None => following(tree, top.slot, self.at),
            Some(round) => {
                let shared = tree[top].cursor;
                if shared.round != round {
                    None
                } else {
                    let next = following(tree, top.slot, shared.at);
                    let next = if next.is_none() && self.at.is_none() && shared.at.is_some() {
                        // At the end already, and nothing seen: this walk begins a round.
                        tree[top].cursor.round += 1;
                        self.round = Some(round + 1);
                        following(tree, top.slot, None)
                    } else {
                        next
                    };
                    let id = next.map(|slot| tree.id(slot));
                    let cursor = &mut tree[top].cursor;
                    cursor.at = id;
                    cursor.round += u64::from(id.is_none());
                    next
                }
            }
        };
        self.at = next.map(|slot| tree.id(slot));
        self.over = next.is_none();
        self.at
    }
}

/// The group after `at` in pre-order that has something resident, or the first one. If the
/// group is gone the walk is over. Of many groups most may be idle; each costs a look.
fn following(tree: &MemcgTree, top: MemcgSlot, at: Option<MemcgId>) -> Option<MemcgSlot> {
    let mut next = match at {
        None => Some(top),
        Some(at) if tree.alive(at) && tree.is_below(at.slot, top) => tree.next_in(top, at.slot),
        Some(_) => None,
    };
    while let Some(slot) = next
        && tree[slot].resident == [0; 2]
    {
        next = tree.next_in(top, slot);
    }
    next
}
