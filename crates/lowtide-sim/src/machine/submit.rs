//! Submitting requests, and what happens when they complete.

use super::device::Direction;
use super::files::FileId;
use super::requests::{Purpose, Request};
use super::sched::{Event, TaskId};
use super::watch::{FlushEvent, PageEvent};
use super::world::World;
use lowtide_core::{FolioId, Task};

/// How much longer a read takes that hangs. No task cancels it: in a kernel, a command is cancelled
/// after thirty seconds.
const HANG_NS: u64 = 20_000_000_000;

impl World {
    /// Returns the CPU nanoseconds that it takes of the submitting task.
    fn submit(
        &mut self,
        now: u64,
        file: FileId,
        direction: Direction,
        page: u64,
        pages: u64,
        purpose: Purpose,
    ) -> (u64, u64) {
        let slot = self.requests.add(Request::new(file, purpose));
        let done = self.command(now, file, direction, page, pages);
        if self.device.spec.synchronous && direction == Direction::Read {
            self.complete(slot);
            return (done, done - now);
        }
        (self.in_flight(slot, done), 0)
    }

    /// Gives the device a command. Returns when it will have been served.
    fn command(
        &mut self,
        now: u64,
        file: FileId,
        direction: Direction,
        page: u64,
        pages: u64,
    ) -> u64 {
        let position = self.files[file.0 as usize].position + page * self.page_bytes;
        self.device.submit(now, direction, position, pages * self.page_bytes)
    }

    /// A request completes then, unless it hangs. Returns when it will complete.
    fn in_flight(&mut self, slot: u32, done: u64) -> u64 {
        let hung = self.requests.is_hung(slot);
        self.counts.hung_reads += u64::from(hung);
        let done = if hung { done + HANG_NS } else { done };
        self.sched.at(done, Event::Io(slot));
        done
    }

    /// Keeps a read of pages that have been inserted and locked from the device until `start`.
    pub fn hold_read(
        &mut self,
        start: u64,
        task: TaskId,
        file: FileId,
        first: u64,
        frames: Vec<FolioId>,
    ) {
        let mut request = Request::new(file, Purpose::Read { first, frames });
        request.held_for = Some(task);
        let slot = self.requests.add(request);
        self.sched.at(start, Event::Io(slot));
    }

    /// The time of a request has come: of one that was held, to go to the device; of others, to
    /// complete.
    pub fn due(&mut self, slot: u32) {
        let Some((task, file, first, pages)) = self.requests.release(slot) else {
            return self.complete(slot);
        };
        let now = self.sched.now;
        let done = self.command(now, file, Direction::Read, first, pages);
        let done = self.in_flight(slot, done);
        self.served(task, done);
    }

    /// Submits a read of pages that have been inserted and locked. Returns when they will have
    /// arrived, and the CPU nanoseconds that the device takes of the task that submits: those of
    /// the whole read if it is synchronous, and the pages have arrived then.
    pub fn submit_read(
        &mut self,
        now: u64,
        file: FileId,
        first: u64,
        frames: Vec<FolioId>,
    ) -> (u64, u64) {
        let pages = frames.len() as u64;
        self.submit(now, file, Direction::Read, first, pages, Purpose::Read { first, frames })
    }

    /// Submits a write of pages whose writeback has been started.
    pub fn submit_write(&mut self, now: u64, file: FileId, first: u64, frames: Vec<FolioId>) {
        let pages = frames.len() as u64;
        let sequence = self.requests.next_write();
        self.files[file.0 as usize].allocate(first..first + pages);
        self.files[file.0 as usize].writing.insert(sequence);
        for (page, &frame) in (first..).zip(&frames) {
            self.watched_file(PageEvent::WriteBegan, file, page, frame);
        }
        self.submit(
            now,
            file,
            Direction::Write,
            first,
            pages,
            Purpose::Write { first, frames, sequence },
        );
    }

    /// Submits a flush of the device's cache for a task that has written a file, and that will be
    /// woken.
    pub fn submit_flush(&mut self, file: FileId, task: TaskId) {
        self.requests.flushes += 1;
        let (now, number) = (self.sched.now, self.requests.flushes);
        self.watched(|watch, world| watch.flush(world, FlushEvent::Began, number));
        self.submit(now, file, Direction::Flush, 0, 0, Purpose::Flush { task, number });
    }

    /// A request has completed.
    pub fn complete(&mut self, slot: u32) {
        let Request { file, purpose, failed, .. } = self.requests.take(slot);
        let object = self.files[file.0 as usize].object;
        self.counts.io_errors += u64::from(failed);
        self.device.counts.errors += u64::from(failed);
        match purpose {
            Purpose::Flush { task, number } => {
                let event = if failed {
                    self.files[file.0 as usize].write_errors.failed();
                    self.counts.flush_errors += 1;
                    FlushEvent::Failed(file)
                } else {
                    FlushEvent::Ended
                };
                self.watched(|watch, world| watch.flush(world, event, number));
                self.sched.wake(task);
            }
            Purpose::Read { first, frames } => {
                let mut begins = (first, None);
                for (page, folio) in (first..).zip(frames) {
                    if begins.1 != Some(folio) {
                        begins = (page, Some(folio));
                    }
                    let frame = FolioId(folio.0 + (page - begins.0) as u32);
                    self.pool.memory.set_locked(folio, false);
                    self.forget_refault(folio);
                    let event = if failed { PageEvent::ReadFailed } else { PageEvent::Arrived };
                    self.watched_frame(event, file, page, frame);
                    if failed {
                        // The folio was not seen yet: it leaves as it came, with the first of its
                        // pages, and the tasks that wait for it find it absent.
                        self.files[file.0 as usize].read_failed(page);
                        let gone = self.pool.discard(object, page);
                        debug_assert!(
                            gone,
                            "a page that is still locked is neither written nor isolated between \
                             steps"
                        );
                    }
                    self.wake_page(object, page);
                }
            }
            Purpose::Write { first, frames, sequence } => {
                if failed {
                    self.files[file.0 as usize].write_errors.failed();
                    self.counts.write_errors += 1;
                }
                let mut ended = None;
                for (page, frame) in (first..).zip(frames) {
                    // A large folio has several of these pages; its write ends once.
                    if ended.replace(frame) != Some(frame) {
                        self.pool.engine.end_writeback(frame, !failed, Task::DESCRIPTOR);
                    }
                    if failed {
                        self.files[file.0 as usize].dirty.insert(page);
                    }
                    let event = if failed { PageEvent::WriteFailed } else { PageEvent::Written };
                    self.watched_file(event, file, page, frame);
                }
                self.writeback.ended();
                let entry = &mut self.files[file.0 as usize];
                entry.writing.remove(&sequence);
                let again = std::mem::take(&mut entry.redirtied);
                entry.dirty.extend(again);
                let waiters = std::mem::take(&mut entry.sync_waiters);
                for task in waiters.into_iter().chain(self.writeback.take_room_waiters()) {
                    self.sched.wake(task);
                }
            }
        }
    }
}
