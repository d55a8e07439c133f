//! A domain: a set of pages, how much of it is dirty, and how much may be.

use crate::engine::Engine;
use crate::units::MemcgId;

/// How much of a domain is dirty, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirtyState {
    /// Waiting to be written.
    pub dirty: u64,
    /// Being written.
    pub writeback: u64,
}

/// The scale of a domain, in pages. `background <= freerun <= hard`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Thresholds {
    /// Memory that could become dirty.
    pub dirtyable: u64,
    /// Above this the flusher writes.
    pub background: u64,
    /// Up to this, with what is being written, nobody waits.
    pub freerun: u64,
    /// Here everybody waits.
    pub hard: u64,
}

/// A limit that follows its threshold down slowly.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FallingLimit {}

impl Engine {
    /// How much of a group and of what is below it is dirty: exactly, whatever domains see.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn dirty_state(&self, id: MemcgId) -> DirtyState {
        let _ = id;
        DirtyState::default()
    }

    /// How much of a group and of what is below it may be dirty at the moment, without the slack that a limit has that fell a moment ago.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn dirty_thresholds(&self, id: MemcgId) -> Thresholds {
        let _ = id;
        Thresholds::default()
    }
}
