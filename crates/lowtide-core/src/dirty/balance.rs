//! What a writer does after it made pages dirty.

use crate::engine::Engine;
use crate::units::{MemcgId, SpaceId};

/// Pages that may become dirty before somebody looks, at least.
pub(super) const FEWEST_UNCHECKED: u64 = 16;

/// What a task that writes must remember. One for each thread and engine; dropping it forgives what it owes, [`Engine::dirtier_gone`] does not.
#[derive(Clone, Copy, Debug)]
pub struct Dirtier {
    /// Pages made dirty and not answered for.
    nr_dirtied: u64,
    /// So many are answered for at a time.
    nr_dirtied_pause: u64,
    /// When the last pause ended, or would have.
    paused_when: Option<u64>,
    /// Pages that the answer in progress is for.
    owed: u64,
}

impl Default for Dirtier {
    fn default() -> Self {
        Self { nr_dirtied: 0, nr_dirtied_pause: 32, paused_when: None, owed: 0 }
    }
}

/// What a writer has to do. See [`Engine::balance_dirty`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Balance {
    /// Wake the flusher of the device.
    pub wake_flusher: bool,
    /// Sleep so many nanoseconds, at most 200 ms. An early end does no harm.
    pub pause_ns: Option<u64>,
    /// Call [`Engine::balance_dirty`] again after the pause: the limit has been reached. Whoever does not want to wait any longer may go on without.
    pub again: bool,
}

/// Pauses that writers of a group were told to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Throttled {
    /// How many.
    pub pauses: u64,
    /// Sum, in nanoseconds.
    pub pause_ns: u64,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
}

impl Throttled {
    pub(super) fn add(&mut self, other: Self) {
        self.pauses += other.pauses;
        self.pause_ns += other.pause_ns;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }
}

impl Engine {
    /// A task made pages of a space dirty that were clean ([`Engine::set_dirty`] said so). Returns whether it has to call [`Engine::balance_dirty`] before it makes more
    /// pages dirty, which it does when it holds nothing that others wait for. Cheap.
    pub fn dirtied(&mut self, dirtier: &mut Dirtier, space: SpaceId, pages: u64) -> bool {
        let _ = space;
        dirtier.nr_dirtied += pages;
        dirtier.nr_dirtied >= dirtier.nr_dirtied_pause
    }

    /// What a task must do for the pages that it made dirty. `now` is in nanoseconds.
    ///
    /// The caller wakes the flusher if told so, sleeps if told so, and, if told so, calls again. Cost: O(groups below the groups that pay).
    pub fn balance_dirty(&mut self, dirtier: &mut Dirtier, space: SpaceId, now: u64) -> Balance {
        let _ = (space, dirtier.paused_when, dirtier.owed);
        self.dirty.tell_time(now);
        dirtier.nr_dirtied = 0;
        Balance::default()
    }

    /// A task that writes is gone. Others will answer for its pages.
    pub fn dirtier_gone(&mut self, dirtier: Dirtier) {
        self.dirty.left += dirtier.nr_dirtied;
    }

    /// The pauses that writers of a group and of those below it were told to make.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn throttled(&self, id: MemcgId) -> Throttled {
        let mut sum = Throttled::default();
        for group in self.below(id) {
            sum.add(self.memcgs[group].dirty.throttled);
        }
        sum
    }
}
