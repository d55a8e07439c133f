//! The aging walk of one lruvec: its spaces, and how far it has come.
//!
//! All jobs for the same generation share this cursor (`aging.rs`). Source:
//! `docs/kernel/reclaim.md` §2.5.

use super::bloom::Filters;
use crate::units::{SpaceId, TableKey};

/// A space in the walk list of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkSpace {
    pub(crate) id: SpaceId,
    /// Added since the last walk: its first visit ignores the filters.
    pub(crate) fresh: bool,
    /// No task ran in it since it was last walked.
    pub(crate) idle: bool,
}

/// Progress of walks in one lruvec.
#[derive(Debug)]
pub(crate) struct WalkState {
    /// Number of the last finished walk.
    seq: u64,
    cursor: usize,
    /// A space was visited in this iteration.
    visited: bool,
    pub(crate) spaces: Vec<WalkSpace>,
    filters: Filters,
}

impl WalkState {
    pub(super) fn new() -> Self {
        Self { seq: 2, cursor: 0, visited: false, spaces: Vec::new(), filters: Filters::default() }
    }

    /// Whether the walk that opens the generation after `seq` is finished.
    pub(super) const fn over(&self, seq: u64) -> bool {
        self.seq >= seq
    }

    /// The next space of the walk for `seq`, as it was before this visit. `None`: that was the
    /// last one, and the walk is finished.
    pub(super) fn advance(&mut self, seq: u64) -> Option<WalkSpace> {
        while self.spaces.get(self.cursor).is_some_and(|space| space.idle) {
            self.cursor += 1;
        }
        let Some(space) = self.spaces.get_mut(self.cursor) else {
            self.seq = seq;
            self.cursor = 0;
            self.visited = false;
            return None;
        };
        let before = *space;
        space.fresh = false;
        self.cursor += 1;
        if !std::mem::replace(&mut self.visited, true) {
            self.filters.reset(seq + 1);
        }
        Some(before)
    }

    /// Notes that a table is worth a visit by the walk for `seq`.
    pub(super) fn remember(&mut self, seq: u64, table: TableKey) {
        self.filters.insert(seq, table);
    }

    /// Whether a table may be worth a visit by the walk for `seq`.
    pub(super) fn may_contain(&self, seq: u64, table: TableKey) -> bool {
        self.filters.may_contain(seq, table)
    }

    pub(crate) fn add_space(&mut self, id: SpaceId) {
        self.spaces.push(WalkSpace { id, fresh: true, idle: false });
    }

    /// Sets whether a space is idle; a walk leaves idle spaces out (`docs/kernel/reclaim.md`
    /// §2.5).
    pub(crate) fn set_idle(&mut self, id: SpaceId, idle: bool) {
        if let Some(space) = self.spaces.iter_mut().find(|s| s.id == id) {
            space.idle = idle;
        }
    }

    pub(crate) fn remove_space(&mut self, id: SpaceId) {
        if let Some(at) = self.spaces.iter().position(|s| s.id == id) {
            self.spaces.remove(at);
            if at < self.cursor {
                self.cursor -= 1;
            }
        }
    }
}
