//! References to pages: what a task looks at stays as long as it does.
//!
//! A kernel's reader holds a reference from the lookup to the copy; without it two tasks could take
//! each other's page forever, each evicting what the other has just had read. A fault has one
//! while it waits for its page and while it maps it. In between, where it has no lock either, that
//! depends on the fault path (`fault.rs`). One task holds one page here, whether it is resident
//! already or not. Reclaim puts a page that is held back as it is (`docs/kernel/reclaim.md` §4.1,
//! 9).

use super::sched::TaskId;
use crate::memory::ObjectId;
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
    pub(super) fn set(
        &mut self,
        task: TaskId,
        page: Option<(ObjectId, u64)>,
    ) -> Option<(ObjectId, u64)> {
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
