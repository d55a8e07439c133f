//! References to pages: a page that a task has waited for stays until the task has used it.
//!
//! Without them two tasks can take each other's page for ever, each evicting what the other has
//! just had read before that one gets a CPU. A kernel's reader holds a reference from the lookup to
//! the copy; one task holds one page here, whether it is resident already or not, and the end of
//! the access releases it. Reclaim puts a page that is held back as it is
//! (`docs/kernel/reclaim.md` §4.1, 9).

use super::sched::TaskId;
use super::watch::PageEvent;
use super::world::World;
use crate::memory::ObjectId;
use crate::pool::UnmapWork;
use lowtide_core::{Reclaim, Task};
use std::collections::BTreeMap;
use std::ops::Range;

/// The page that each task holds.
#[derive(Debug, Default)]
pub(crate) struct Holds(BTreeMap<TaskId, (ObjectId, u64)>);

impl Holds {
    /// Whether any task holds one of some pages. Cost: O(holders), at most the tasks that wait for
    /// a device.
    pub(crate) fn is_held(&self, object: ObjectId, pages: &Range<u64>) -> bool {
        self.0.values().any(|(held, page)| *held == object && pages.contains(page))
    }
}

impl World {
    /// A task holds a page from now on, and releases the one that it held before.
    pub(crate) fn hold(&mut self, task: TaskId, object: ObjectId, page: u64) {
        let before = self.holds.0.insert(task, (object, page));
        self.watched_release(before);
    }

    /// Drops the translations of those victims of a reclaim that no task holds, and compresses
    /// those that go to swap.
    pub(crate) fn unmap_victims(&mut self, reclaim: &mut Reclaim, task: Task) -> UnmapWork {
        let holds = &self.holds;
        self.pool.unmap_victims(reclaim, |object, pages| holds.is_held(object, &pages), task)
    }

    /// A task holds nothing any more.
    pub(crate) fn let_go(&mut self, task: TaskId) {
        let before = self.holds.0.remove(&task);
        self.watched_release(before);
    }

    fn watched_release(&mut self, held: Option<(ObjectId, u64)>) {
        if let Some((object, page)) = held
            && let Some(frame) = self.pool.frame(object, page)
        {
            self.watched(|watch, world| {
                watch.page(world, PageEvent::Released, object, page, frame);
            });
        }
    }
}
