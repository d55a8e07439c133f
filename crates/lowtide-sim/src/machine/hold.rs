//! References to pages: what a task looks at stays as long as it does.
//!
//! A kernel's reader holds a reference from the lookup to the copy; without it two tasks could take
//! each other's page forever, each evicting what the other has just had read. A fault has one
//! while it waits for its page and while it maps it. In between, where it has no lock either, that
//! depends on the fault path (`fault.rs`). One task holds one page here, whether it is resident
//! already or not. Reclaim puts a page that is held back as it is (`docs/kernel/reclaim.md` §4.1,
//! 9).

use super::sched::TaskId;
use super::watch::PageEvent;
use super::world::World;
use crate::memory::ObjectId;
use crate::pool::UnmapWork;
use lowtide_core::{Reclaim, Task};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

/// The page that each task holds, and the pages that are held, each as often as tasks hold it.
#[derive(Debug, Default)]
pub struct Holds {
    by_task: BTreeMap<TaskId, (ObjectId, u64)>,
    pages: BTreeMap<(ObjectId, u64), u32>,
}

impl Holds {
    /// Whether any task holds one of some pages. Cost: O(log of holders).
    pub fn is_held(&self, object: ObjectId, pages: &Range<u64>) -> bool {
        self.pages.range((object, pages.start)..(object, pages.end)).next().is_some()
    }

    /// Sets what a task holds. Returns what it held before.
    fn set(&mut self, task: TaskId, page: Option<(ObjectId, u64)>) -> Option<(ObjectId, u64)> {
        let before = match page {
            Some(page) => {
                *self.pages.entry(page).or_default() += 1;
                self.by_task.insert(task, page)
            }
            None => self.by_task.remove(&task),
        };
        if let Some(page) = before
            && let Entry::Occupied(mut holders) = self.pages.entry(page)
        {
            *holders.get_mut() -= 1;
            if *holders.get() == 0 {
                holders.remove();
            }
        }
        before
    }
}

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
