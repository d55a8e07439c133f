//! What tasks do with the pages that they hold (`hold.rs`), and what reclaim may not do with them.

use super::sched::TaskId;
use super::watch::PageEvent;
use super::world::World;
use crate::memory::ObjectId;
use crate::pool::UnmapWork;
use lowtide_core::{Reclaim, Task};

impl World {
    /// A task holds a page from now on, and releases the one that it held before.
    pub fn hold(&mut self, task: TaskId, object: ObjectId, page: u64) {
        let before = self.holds.set(task, Some((object, page)));
        self.watched_release(before);
    }

    /// Drops the translations of those victims of a reclaim that no task holds, and compresses
    /// those that go to swap.
    pub fn unmap_victims(&mut self, reclaim: &mut Reclaim, task: Task) -> UnmapWork {
        let holds = &self.holds;
        self.pool.unmap_victims(reclaim, |object, pages| holds.is_held(object, &pages), task)
    }

    /// A task holds nothing any more.
    pub fn let_go(&mut self, task: TaskId) {
        let before = self.holds.set(task, None);
        self.watched_release(before);
    }

    fn watched_release(&mut self, held: Option<(ObjectId, u64)>) {
        if let Some((object, page)) = held
            && let Some(folio) = self.pool.frame(object, page)
        {
            let frame = self.pool.frame_in(folio, page);
            self.watched(|watch, world| {
                watch.page(world, PageEvent::Released, object, page, frame);
            });
        }
    }
}
