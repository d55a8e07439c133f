//! Dirty pages: which of them are written together, and waiting until they are.
//!
//! Runs of neighbouring pages are written with one command. Sync writes a file and waits.
//! `flusher.rs` begins writes without a request, `balance.rs` throttles writers, and the engine
//! decides how much may be dirty.
//!
//! Source: `docs/kernel/fault-and-writeback.md` B2, B11.

use super::ctx::Ctx;
use super::files::FileId;
use super::sched::TaskId;
use super::world::World;
use lowtide_core::FolioId;

/// Pages of one write command at most: 1 MiB of 4 KiB pages.
const RUN_MAX: u64 = 256;
/// Write commands in flight for each that the device serves at once: it is never idle while there
/// is something to write, and a read never waits for many. Devices that serve one at a time get a
/// few, whatever this says.
const IN_FLIGHT_FOR_EACH: u32 = 2;
const IN_FLIGHT_LEAST: u32 = 4;

impl World {
    /// A resident page has new contents, which a task has stored. Returns whether the task must now
    /// answer for what it has dirtied.
    pub fn set_dirty(&mut self, task: TaskId, file: FileId, page: u64, frame: FolioId) -> bool {
        let (extent, order) = self.pool.extent(frame);
        let clean = self.pool.engine.set_dirty(frame);
        // Of a large folio that is dirty already, another page may be: only those are written.
        if !clean && order == 0 {
            return false;
        }
        let now = self.sched.now;
        let entry = &mut self.files[file.0 as usize];
        if entry.dirty.is_empty() {
            (entry.dirtied_at, entry.queued_at) = (now, now);
        }
        entry.dirty.insert(page);
        let dirtier = &mut self.sched.task(task).dirtier;
        let pages = extent.end - extent.start;
        clean && self.pool.engine.dirtied(dirtier, entry.space(), pages)
    }

    /// The pages to be written of the folio of a dirty page.
    fn dirty_of_folio(&mut self, file: FileId, page: u64) -> Vec<u64> {
        let object = self.file(file).object;
        match self.pool.frame(object, page).map(|folio| self.pool.extent(folio)) {
            Some((extent, order)) if order > 0 => {
                self.file(file).dirty.range(extent).copied().collect()
            }
            _ => vec![page],
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
            let pages = self.dirty_of_folio(file, page);
            // The dirty pages of a large folio are written by one command, wherever they are in it.
            let begins = pages.first().map_or(page, |&first| first);
            let joined = pages.iter().zip(begins..).all(|(&page, next)| page == next);
            if run.is_some() && !(joined && begins == page) {
                break;
            }
            let entry = self.file(file);
            for page in &pages {
                entry.dirty.remove(page);
            }
            at = pages.last().map_or(page, |last| last + 1);
            // A page that is dirty again while it is being written waits for the end of that write.
            match self.pool.start_writeback(object, page) {
                Some(frame) => {
                    let frames = std::iter::repeat_n(frame, pages.len());
                    run.get_or_insert_with(|| (begins, Vec::new())).1.extend(frames);
                    if !joined {
                        break;
                    }
                }
                None => {
                    let again =
                        self.pool.frame(object, page).is_some_and(|f| self.pool.is_dirty(f));
                    if again {
                        let entry = self.file(file);
                        entry.deferred += pages.len() as u64;
                        entry.redirtied.extend(pages);
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
    /// Waits until a write command completes. Returns false, at once, if there is none.
    pub(super) async fn wait_for_room(&self) -> bool {
        self.settle().await;
        {
            let mut world = self.w();
            if world.writeback.writes_in_flight == 0 {
                return false;
            }
            world.writeback.room_waiters.push(self.id);
        }
        self.block(None).await;
        true
    }

    /// Writes the next run of a file from `from` on. Returns where it ended and how many pages it
    /// had.
    pub(super) async fn write_run(&self, file: FileId, from: u64) -> Option<(u64, u64)> {
        loop {
            self.settle().await;
            let full = {
                let world = self.w();
                let most =
                    (world.device.spec.queue_depth * IN_FLIGHT_FOR_EACH).max(IN_FLIGHT_LEAST);
                world.writeback.writes_in_flight >= most
            };
            if !full {
                break;
            }
            self.wait_for_room().await;
        }
        let (cost, result) = {
            let world = &mut *self.w();
            let (first, frames) = world.next_run(file, from)?;
            let pages = frames.len() as u64;
            let folios = frames.chunk_by(|a, b| a == b).count() as u64;
            let now = world.sched.local(self.id);
            world.submit_write(now, file, first, frames);
            world.writeback.writes_in_flight += 1;
            (
                world.costs.submit_io_ns
                    + folios * (world.costs.writeback_page_ns + world.costs.io_page_ns),
                (first + pages, pages),
            )
        };
        self.spend(cost).await;
        Some(result)
    }
}
