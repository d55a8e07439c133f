//! Dirty pages: when they are written, by whom, and who waits.
//!
//! ```text
//!                            background         freerun        threshold
//!   dirty + under writeback ─────┼─────────────────┼───────────────┼──►
//!                                 flusher writes    writers pause   writers stop
//! ```
//!
//! The thresholds are shares of what the group's page cache could hold, and they are computed from *published* statistics, up to two seconds old
//! (`reclaim.md` §5.6), so dirty memory swings rather than hovers. Besides, everything that has been dirty for half a minute is written,
//! and whatever is dirty when reclaim asks for it. Sync writes a file and waits. Runs of neighbouring pages are
//! written with one command.
//!
//! The pauses of writers are simpler than the kernel's (no bandwidth estimate): see `COVERAGE.md`. Source: `fault-and-writeback.md` B1-B11.

use super::ctx::Ctx;
use super::files::FileId;
use super::sched::TaskId;
use super::world::World;
use lowtide_core::limits::PUBLISH_INTERVAL_NS;
use lowtide_core::{FolioId, MemcgId};

/// Nanoseconds between two looks for old dirty pages, and the age at which they are old.
const INTERVAL_NS: u64 = 5_000_000_000;
const EXPIRE_NS: u64 = 30_000_000_000;
/// Percent of the dirtyable memory.
const BACKGROUND_PERCENT: u64 = 10;
const DIRTY_PERCENT: u64 = 20;
/// Pages of one write command at most: 1 MiB of 4 KiB pages.
const RUN_MAX: u64 = 256;
/// Write commands in flight, so that reads find a slot: so many, or as many as the device serves at once.
const IN_FLIGHT: u32 = 64;
/// Nanoseconds that a writer is held back at a time.
const PAUSE_NS: u64 = 10_000_000;
/// Dirtied pages after which a writer looks at the thresholds.
const CHECK_EVERY: u64 = 32;

/// What the last publication said, and what has been asked of the flusher.
#[derive(Debug, Default)]
pub(crate) struct Writeback {
    pub(crate) flusher: Option<TaskId>,
    asleep: bool,
    /// Pages that reclaim asked to have written.
    asked: u64,
    dirty: u64,
    writing: u64,
    file: u64,
    writes_in_flight: u32,
    room_waiters: Vec<TaskId>,
}

impl Writeback {
    /// A write command has completed.
    pub(crate) const fn ended(&mut self) {
        self.writes_in_flight -= 1;
    }

    /// Those who wait for room in the device's queue.
    pub(crate) fn take_room_waiters(&mut self) -> Vec<TaskId> {
        std::mem::take(&mut self.room_waiters)
    }
}

impl World {
    /// A resident page has new contents.
    pub(crate) fn set_dirty(&mut self, file: FileId, page: u64, frame: FolioId) {
        if !self.pool.engine.set_dirty(frame) {
            return;
        }
        let now = self.sched.now;
        let entry = self.file(file);
        if entry.dirty.is_empty() {
            entry.dirtied_at = now;
        }
        entry.dirty.insert(page);
    }

    /// Reclaim met nothing but dirty pages: everything dirty now is to be written.
    pub(crate) fn wake_flusher(&mut self) {
        self.counts.flusher_wakes += 1;
        self.writeback.asked = self.pool.engine.dirty();
        self.rouse_flusher();
    }

    fn rouse_flusher(&mut self) {
        if let Some(task) = self.writeback.flusher
            && std::mem::take(&mut self.writeback.asleep)
        {
            self.sched.wake(task);
        }
    }

    /// Dirtyable pages: the page cache of the group, and what it may still grow by.
    fn dirtyable(&self) -> u64 {
        let engine = &self.pool.engine;
        self.writeback.file + engine.max(MemcgId::ROOT).saturating_sub(engine.usage(MemcgId::ROOT))
    }

    fn over_background(&self) -> bool {
        self.writeback.dirty * 100 > self.dirtyable() * BACKGROUND_PERCENT
    }

    /// Whether writers must wait; half-way between the thresholds is free.
    fn over_freerun(&self) -> bool {
        let dirty = self.writeback.dirty + self.writeback.writing;
        dirty * 200 > self.dirtyable() * (BACKGROUND_PERCENT + DIRTY_PERCENT)
    }

    fn publish(&mut self) {
        self.pool.engine.publish();
        let stat = self.pool.engine.stat(MemcgId::ROOT);
        self.writeback.dirty = stat.file_dirty;
        self.writeback.writing = stat.file_writeback;
        self.writeback.file = stat.inactive_file + stat.active_file;
        if self.over_background() {
            self.rouse_flusher();
        }
    }

    /// Takes the next run of dirty pages of a file from `from` on and starts its writeback.
    fn next_run(&mut self, file: FileId, from: u64) -> Option<(u64, Vec<FolioId>)> {
        let object = self.file(file).object;
        let mut run: Option<(u64, Vec<FolioId>)> = None;
        let mut at = from;
        loop {
            let next = self.file(file).dirty.range(at..).next().copied();
            let Some(page) = next else { break };
            if let Some((first, frames)) = &run
                && (page != first + frames.len() as u64 || frames.len() as u64 >= RUN_MAX)
            {
                break;
            }
            self.file(file).dirty.remove(&page);
            at = page + 1;
            // A page that is dirty again while it is being written waits for the end of that write.
            match self.pool.start_writeback(object, page) {
                Some(frame) => match &mut run {
                    Some((_, frames)) => frames.push(frame),
                    None => run = Some((page, vec![frame])),
                },
                None => {
                    let again = self.pool.frame(object, page).is_some_and(|f| self.pool.is_dirty(f));
                    if again {
                        self.file(file).redirtied.push(page);
                        self.file(file).deferred += 1;
                    }
                    if run.is_some() {
                        break;
                    }
                }
            }
        }
        run
    }
}

impl Ctx {
    /// Publishes group statistics for ever.
    pub(crate) async fn publisher(self) {
        loop {
            self.sleep(PUBLISH_INTERVAL_NS).await;
            let mut world = self.w();
            if world.clients == 0 {
                return;
            }
            world.publish();
        }
    }

    /// The flusher's life.
    pub(crate) async fn flusher(self) {
        let mut looked_at = 0;
        loop {
            let work = {
                let mut guard = self.w();
                let world = &mut *guard;
                if world.clients == 0 {
                    return;
                }
                let now = world.sched.now;
                let asked = std::mem::take(&mut world.writeback.asked);
                if asked > 0 {
                    Some(asked)
                } else if world.over_background() {
                    // Enough to be below again, as far as the published figures tell.
                    let surplus = world.writeback.dirty - world.dirtyable() * BACKGROUND_PERCENT / 100;
                    world.writeback.dirty = world.writeback.dirty.saturating_sub(surplus.max(1024));
                    Some(surplus.max(1024))
                } else if now >= looked_at + INTERVAL_NS {
                    looked_at = now;
                    let old =
                        |f: &&super::files::File| !f.dirty.is_empty() && now >= f.dirtied_at + EXPIRE_NS;
                    let old: u64 = world.files.iter().filter(old).map(|f| f.dirty.len() as u64).sum();
                    (old > 0).then_some(old)
                } else {
                    None
                }
            };
            match work {
                Some(pages) => self.write_some(pages).await,
                None => {
                    self.settle().await;
                    self.w().writeback.asleep = true;
                    self.block(Some(INTERVAL_NS)).await;
                    self.w().writeback.asleep = false;
                }
            }
        }
    }

    /// Writes about so many dirty pages of all files, the longest dirty file first.
    async fn write_some(&self, pages: u64) {
        let mut left = pages;
        let mut files: Vec<FileId> = {
            let world = self.w();
            let mut dirty: Vec<_> =
                world.files.iter().enumerate().filter(|(_, f)| !f.dirty.is_empty()).collect();
            dirty.sort_by_key(|(_, f)| f.dirtied_at);
            dirty.into_iter().map(|(i, _)| FileId(i as u32)).rev().collect()
        };
        while let Some(file) = files.pop() {
            let mut wrapped = false;
            while left > 0 {
                let cursor = self.w().file(file).cursor;
                match self.write_run(file, cursor).await {
                    Some((end, written)) => {
                        left = left.saturating_sub(written);
                        self.w().file(file).cursor = end;
                    }
                    None if wrapped || cursor == 0 => break,
                    None => {
                        wrapped = true;
                        self.w().file(file).cursor = 0;
                    }
                }
            }
            let mut world = self.w();
            let now = world.sched.now;
            world.file(file).dirtied_at = now;
        }
    }

    /// Writes the next run of a file from `from` on. Returns where it ended and how many pages it had.
    async fn write_run(&self, file: FileId, from: u64) -> Option<(u64, u64)> {
        loop {
            self.settle().await;
            let id = self.id;
            let most = self.w().device.spec.queue_depth.max(IN_FLIGHT);
            if self.w().writeback.writes_in_flight < most {
                break;
            }
            self.w().writeback.room_waiters.push(id);
            self.block(None).await;
        }
        let (cost, result) = {
            let mut guard = self.w();
            let world = &mut *guard;
            let (first, frames) = world.next_run(file, from)?;
            let pages = frames.len() as u64;
            let now = world.sched.local(self.id);
            world.submit_write(now, file, first, frames);
            world.writeback.writes_in_flight += 1;
            (
                world.costs.submit_io_ns + pages * (world.costs.writeback_page_ns + world.costs.io_page_ns),
                (first + pages, pages),
            )
        };
        self.spend(cost).await;
        Some(result)
    }

    /// Makes a file durable as it is now: writes what is dirty, waits for every write that has begun, flushes the device.
    pub(crate) async fn sync(&self, file: FileId) {
        let (waiting, deferred) = {
            let mut world = self.w();
            let entry = world.file(file);
            (!entry.redirtied.is_empty(), entry.deferred)
        };
        self.write_all(file).await;
        self.wait_written(file).await;
        // What was being written, and had become dirty again, could not be begun before that write had ended.
        if waiting || self.w().file(file).deferred > deferred {
            self.write_all(file).await;
            self.wait_written(file).await;
        }
        self.flush_device(file).await;
    }

    /// Begins to write every dirty page of a file, once.
    async fn write_all(&self, file: FileId) {
        let mut at = 0;
        while let Some((end, _)) = self.write_run(file, at).await {
            at = end;
        }
    }

    /// Waits for the end of every write to a file that has begun.
    async fn wait_written(&self, file: FileId) {
        let last = self.w().requests.last_write();
        loop {
            self.settle().await;
            {
                let mut world = self.w();
                let id = self.id;
                let entry = world.file(file);
                if entry.writing.first().is_none_or(|&first| first > last) {
                    break;
                }
                entry.sync_waiters.push(id);
            }
            self.block(None).await;
        }
    }

    /// After pages have been dirtied: holds the writer back while too much is dirty.
    pub(crate) async fn balance_dirty(&self, dirtied: u64) {
        {
            let mut world = self.w();
            let task = world.sched.task(self.id);
            task.dirtied += dirtied;
            if task.dirtied < CHECK_EVERY {
                return;
            }
            task.dirtied = 0;
        }
        while self.w().over_freerun() {
            {
                let mut world = self.w();
                world.rouse_flusher();
                world.counts.dirty_pauses += 1;
                world.counts.dirty_throttled_ns += PAUSE_NS;
            }
            self.sleep(PAUSE_NS).await;
        }
    }
}
