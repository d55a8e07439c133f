//! Planted bugs: a swarm that does not find them is worth nothing.
//!
//! Each undoes something that the driver does right, in the moment after it was done, through the
//! same hooks that the checks use. So all of them are in this file, and a machine without a watcher
//! has none.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

use lowtide_core::{Flags, FolioId, Freed, MemcgId, Task};
use lowtide_sim::machine::{File, PageEvent, TaskId, World};
use lowtide_sim::memory::ObjectId;

/// A bug that can be planted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Bug {
    /// Stores go on without a fault while a page is being written.
    NoProtect,
    /// A store does not make the page dirty.
    NoDirty,
    /// A page that becomes dirty while it is being written is not written again.
    LoseRedirty,
    /// A failed write counts as a write.
    ForgetFailure,
    /// A failed write is never reported.
    ErrorLost,
    /// Sync does not wait for pages that are being written.
    SyncForgetsWriting,
    /// Sync returns before the device has flushed its cache.
    FlushLies,
    /// A page is charged that never comes to be.
    LeakCharge,
    /// The translation of an evicted page stays.
    StaleTranslation,
    /// One of the tasks that wait for a page is not woken.
    ForgetWaiter,
    /// A budget that was raised stays as it was.
    RaiseIgnored,
    /// Dropping a clean page takes a dirty one of the same file along.
    DropDirty,
    /// A read that hangs is taken for one that has arrived.
    Impatient,
    /// A file that is made shorter keeps a page past its end.
    TruncateKeeps,
    /// What is past the end of a file in its last page is not zeroed.
    TailKept,
    /// A hole reads what was there before.
    HoleKept,
    /// A store to a part of a page does not keep the rest.
    PartAlone,
    /// What happens depends on something other than the seed.
    Chance,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::NoProtect,
        Self::NoDirty,
        Self::LoseRedirty,
        Self::ForgetFailure,
        Self::ErrorLost,
        Self::SyncForgetsWriting,
        Self::FlushLies,
        Self::LeakCharge,
        Self::StaleTranslation,
        Self::ForgetWaiter,
        Self::RaiseIgnored,
        Self::DropDirty,
        Self::Impatient,
        Self::TruncateKeeps,
        Self::TailKept,
        Self::HoleKept,
        Self::PartAlone,
        Self::Chance,
    ];

    /// The name on the command line and in a plan.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoProtect => "no-protect",
            Self::NoDirty => "no-dirty",
            Self::LoseRedirty => "lose-redirty",
            Self::ForgetFailure => "forget-failure",
            Self::ErrorLost => "error-lost",
            Self::SyncForgetsWriting => "sync-forgets-writing",
            Self::FlushLies => "flush-lies",
            Self::LeakCharge => "leak-charge",
            Self::StaleTranslation => "stale-translation",
            Self::ForgetWaiter => "forget-waiter",
            Self::RaiseIgnored => "raise-ignored",
            Self::DropDirty => "drop-dirty",
            Self::Impatient => "impatient",
            Self::TruncateKeeps => "truncate-keeps",
            Self::TailKept => "tail-kept",
            Self::HoleKept => "hole-kept",
            Self::PartAlone => "part-alone",
            Self::Chance => "chance",
        }
    }

    /// After something happened to a page.
    pub(super) fn page(
        self,
        world: &mut World,
        event: PageEvent,
        object: ObjectId,
        page: u64,
        frame: FolioId,
    ) {
        let file = world.files.iter().position(|file| file.object == object);
        match (self, event, file) {
            (Self::NoProtect, PageEvent::WriteBegan, _) => {
                for vma in world.pool.memory.objects[object.0 as usize].vmas.clone() {
                    let ptes = &mut world.pool.memory.vmas[vma.0 as usize].ptes;
                    if ptes.get(page).present {
                        ptes.map(page, true);
                    }
                }
            }
            (Self::NoDirty, PageEvent::Stored | PageEvent::Patched, Some(file))
                if page.is_multiple_of(7) =>
            {
                clean(world, frame);
                world.files[file].dirty.remove(&page);
            }
            (Self::LoseRedirty, PageEvent::Written, Some(file)) => {
                world.files[file].redirtied.clear();
            }
            (Self::ForgetFailure, PageEvent::WriteFailed, Some(file)) => {
                clean(world, frame);
                world.files[file].dirty.remove(&page);
            }
            // As if it had been reported to all.
            (Self::ErrorLost, PageEvent::WriteFailed, Some(file)) => {
                let File { write_errors, .. } = &mut world.files[file];
                for open in world.opens.iter_mut().filter(|open| open.file.0 as usize == file) {
                    write_errors.check(&mut open.errors);
                }
            }
            (Self::SyncForgetsWriting, PageEvent::WriteBegan, Some(file)) => {
                world.files[file].writing.clear();
            }
            (Self::ForgetWaiter, PageEvent::Arrived, _) => {
                if let Some(waiters) = world.page_waiters.get_mut(&(object, page))
                    && waiters.len() > 1
                {
                    waiters.pop();
                }
            }
            (Self::LeakCharge, PageEvent::Arrived, _) if page % 64 == 63 => {
                // Without a frame: there may be no room for it, and then there is no bug this time.
                let _full = world.pool.engine.try_charge(MemcgId::ROOT, 1);
            }
            _ => {}
        }
    }

    /// After folios have gone.
    pub(super) fn freed(self, world: &mut World, freed: &[Freed]) {
        if self == Self::StaleTranslation
            && let Some(last) = freed.last()
        {
            let object = &world.pool.memory.objects[last.owner.space.0 as usize];
            if let Some(&vma) = object.vmas.first() {
                world.pool.memory.map_old(vma, last.owner.page);
            }
        }
    }

    /// In the moment in which a file has got another size.
    pub(super) fn resized(self, world: &mut World, object: ObjectId, pages: u64) {
        if self == Self::TruncateKeeps
            && world.pool.frame(object, pages).is_none()
            && world.pool.engine.try_charge(MemcgId::ROOT, 1).is_ok()
        {
            // As if it had been read since.
            let task = Task::DESCRIPTOR;
            world.pool.insert(object, pages, false, MemcgId::ROOT, task);
        }
    }

    /// After a clean page of a file was dropped.
    pub(super) fn dropped(self, world: &mut World, object: ObjectId, page: u64) {
        if self != Self::DropDirty {
            return;
        }
        let Some(file) = world.files.iter().position(|file| file.object == object) else { return };
        let next = world.files[file].dirty.range(page..).next().copied();
        if let Some(next) = next
            && world.pool.discard(object, next)
        {
            world.files[file].dirty.remove(&next);
        }
    }

    /// After a turn. Before it, the budget was `max` pages.
    pub(super) fn turn(self, world: &mut World, turns: u64, max: u64) {
        if self == Self::RaiseIgnored && world.pool.engine.max(MemcgId::ROOT) > max {
            let _refused = world.pool.engine.set_max(MemcgId::ROOT, max);
        }
        if self == Self::Impatient {
            let hung: Vec<_> = world.requests.hung().collect();
            for (file, page, frame) in hung {
                let object = world.file(file).object;
                world.pool.memory.set_locked(frame, false);
                world.wake_page(object, page);
            }
        }
        if self == Self::FlushLies {
            let waiting: Vec<TaskId> = world.requests.flushing().collect();
            waiting.into_iter().for_each(|task| world.sched.wake(task));
        }
        if self == Self::Chance && turns.is_multiple_of(1000) {
            world.device.counts.read_bytes += RandomState::new().hash_one(turns) % 2;
        }
    }
}

/// Makes a dirty folio clean without writing it.
fn clean(world: &mut World, frame: FolioId) {
    let busy = world.pool.engine.folio(frame).is_some_and(|f| f.flags().contains(Flags::WRITEBACK));
    if !busy && world.pool.engine.start_writeback(frame) {
        world.pool.engine.end_writeback(frame, true, Task::DESCRIPTOR);
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No bug has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown bug `{given}`; bugs are {}", Bug::ALL.map(Bug::name).join(", "))]
pub struct UnknownBug {
    /// The name that was given.
    pub given: String,
}

impl FromStr for Bug {
    type Err = UnknownBug;

    fn from_str(text: &str) -> Result<Self, UnknownBug> {
        Self::ALL
            .into_iter()
            .find(|bug| bug.name() == text)
            .ok_or_else(|| UnknownBug { given: text.into() })
    }
}
