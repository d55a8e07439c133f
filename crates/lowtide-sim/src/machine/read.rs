//! Reading and writing through the descriptor.

use super::ctx::Ctx;
use super::ended::MachineError;
use super::files::{FileId, OpenId};
use super::readahead::Window;
use super::resize::Size;
use super::sched::TaskId;
use super::watch::PageEvent;
use super::window::{count_use, marked_window, read_window, write_order};
use super::world::World;
use crate::memory::ObjectId;
use lowtide_core::FolioId;

/// The state of a page of which a part is to be kept.
#[derive(Debug)]
pub(super) enum Part {
    /// It is there, until the next await.
    There(FolioId),
    /// Time has passed: it may be there now.
    Again,
}

/// A read through the descriptor that is under way.
#[derive(Debug)]
struct Reading {
    open: OpenId,
    object: ObjectId,
    /// Its first page.
    first: u64,
    /// The folio that was marked accessed last.
    accessed: Option<FolioId>,
    /// The page whose mark was met last. A reader keeps its page while it reads ahead and does not
    /// look for the mark again: reclaim may have met the page since, and left its own.
    ahead_of: Option<u64>,
}

/// A write through the descriptor that is under way.
#[derive(Debug)]
struct Writing {
    file: FileId,
    object: ObjectId,
    /// Whether pages are replaced as a whole.
    whole: bool,
}

impl World {
    /// Cached pages directly before `idx`, `n` at most.
    fn cached_before(&self, object: ObjectId, idx: u64, n: u64) -> u64 {
        (1..=n.min(idx)).take_while(|back| self.pool.frame(object, idx - back).is_some()).count()
            as u64
    }

    /// The window that a reader opens which misses page `page` and wants all before `end`.
    fn window_of_missing(&mut self, reading: &Reading, page: u64, end: u64) -> Window {
        let open = reading.open.0 as usize;
        let mut readahead = self.opens[open].readahead;
        let cached = |n| self.cached_before(reading.object, page, n);
        let window = readahead.missing(page, end - page, cached);
        self.opens[open].readahead = readahead;
        window
    }

    /// The window that a reader opens which finds the mark on the folio of page `page` and wants
    /// all before `end`. `None` if there is no mark, or nothing to read ahead.
    fn window_of_mark(
        &mut self,
        reading: &Reading,
        (page, folio): (u64, FolioId),
        end: u64,
    ) -> Option<Window> {
        if reading.ahead_of == Some(page) || !self.pool.engine.take_readahead(folio) {
            return None;
        }
        // What counts is where the folio begins that has the mark.
        let at = self.pool.extent(folio).0.start;
        let window = marked_window(self, reading.open, reading.object, at, end - at);
        self.counts.marked_hits += 1;
        self.counts.marked_windows += u64::from(window.is_some());
        self.counts.marked_window_pages += window.map_or(0, |window| window.size);
        window
    }

    /// Copies a page that is there to its reader. Returns the time that takes of the task.
    fn copy_out(
        &mut self,
        reader: TaskId,
        reading: &mut Reading,
        (page, folio): (u64, FolioId),
    ) -> u64 {
        self.counts.accesses += 1;
        count_use(self, folio, page);
        let open = reading.open.0 as usize;
        self.watched_file(PageEvent::Loaded, self.opens[open].file, page, folio);
        self.let_go(reader);
        let task = self.engine_task(reader, false);
        let readahead = &mut self.opens[open].readahead;
        let again = page == reading.first && readahead.last() == Some(page);
        readahead.read_to(page);
        // A folio is accessed once, however many of its pages a read takes.
        if !again && reading.accessed.replace(folio) != Some(folio) {
            self.pool.mark_accessed(folio, task);
        }
        self.costs.lookup_ns + self.costs.copy_page_ns
    }

    /// The folio of a page that is to be written: the one that was `found`, or else a new one of
    /// up to `1 << order` pages, which are charged already. `None` if what was found is gone, or
    /// another task has been faster: then nothing is charged any more.
    fn folio_to_write(
        &mut self,
        writer: TaskId,
        object: ObjectId,
        page: u64,
        (found, order): (Option<FolioId>, u8),
    ) -> Option<FolioId> {
        let now = self.pool.frame(object, page);
        if found.is_some() {
            return now;
        }
        let memcg = self.memcg(writer);
        if now.is_some() {
            self.pool.engine.uncharge(memcg, 1 << order);
            return None;
        }
        let task = self.engine_task(writer, false);
        let pool = &mut self.pool;
        let large = !pool.any_resident(object, page..page + (1 << order));
        let inserted = large.then(|| pool.insert_large(order, object, page, false, memcg, task));
        Some(if let Some((folio, _)) = inserted.flatten() {
            folio
        } else {
            pool.engine.uncharge(memcg, (1 << order) - 1);
            pool.insert(object, page, false, memcg, task).0
        })
    }

    /// Copies a page from its writer, into the folio that was found or a new one. Returns the time
    /// that takes of the task, and whether it has to balance what is dirty; `None` if the page has
    /// to be looked for again.
    fn copy_in(
        &mut self,
        writer: TaskId,
        writing: &Writing,
        page: u64,
        (found, order): (Option<FolioId>, u8),
    ) -> Option<(u64, bool)> {
        let entry = self.file(writing.file);
        if entry.resizing || page >= entry.pages {
            if found.is_none() {
                let memcg = self.memcg(writer);
                self.pool.engine.uncharge(memcg, 1 << order);
            }
            return None;
        }
        let folio = self.folio_to_write(writer, writing.object, page, (found, order))?;
        self.counts.accesses += 1;
        count_use(self, folio, page);
        let owes = self.set_dirty(writer, writing.file, page, folio);
        let event = if writing.whole { PageEvent::Stored } else { PageEvent::Patched };
        self.watched_file(event, writing.file, page, folio);
        let costs = &self.costs;
        let new = if found.is_none() { costs.new_page() } else { 0 };
        Some((new + costs.lookup_ns + costs.copy_page_ns + costs.mark_dirty_ns, owes))
    }
}

impl Ctx {
    /// Waits until a page's contents have arrived, or it is gone, and holds it.
    pub async fn wait_page(&self, object: ObjectId, page: u64) {
        self.w().hold(self.id, object, page);
        self.settle().await;
        let wait = {
            let mut world = self.w();
            let still = world.pool.frame(object, page).is_some_and(|f| world.is_locked(f));
            if !still {
                return;
            }
            let id = self.id;
            world.page_waiters.entry((object, page)).or_default().push(id);
            drop(world);
            self.wait_begins(object, page)
        };
        self.block(None).await;
        self.wait_ends(wait.as_ref());
    }

    /// Reads pages through the descriptor: each is looked up, waited for, marked accessed and
    /// copied. Behind the end of the file there is nothing to read.
    pub async fn read(&self, open: OpenId, first: u64, pages: u64) -> Result<(), MachineError> {
        let result = self.read_pages(open, first, pages).await;
        self.w().let_go(self.id);
        self.settle_limits().await;
        result
    }

    async fn read_pages(&self, open: OpenId, first: u64, pages: u64) -> Result<(), MachineError> {
        let (file, object, failures) = {
            let mut world = self.w();
            let file = world.opens[open.0 as usize].file;
            let entry = world.file(file);
            (file, entry.object, entry.read_failures)
        };
        let syscall = self.w().costs.syscall_ns;
        self.spend(syscall).await;
        let mut reading = Reading { open, object, first, accessed: None, ahead_of: None };
        let mut waited = false;
        let mut page = first;
        loop {
            // The file may have been made shorter meanwhile.
            let end = self.w().file(file).pages.min(first + pages);
            if page >= end {
                break;
            }
            let found = self.w().pool.frame(object, page);
            let Some(folio) = found else {
                if self.w().file(file).failed_since(page, failures) {
                    return Err(MachineError::Io { at_ns: self.now() });
                }
                self.w().hold(self.id, object, page);
                let window = self.w().window_of_missing(&reading, page, end);
                read_window(self, file, window, Some(page), page..end, false).await?;
                continue;
            };
            let marked = self.w().window_of_mark(&reading, (page, folio), end);
            if let Some(window) = marked {
                reading.ahead_of = Some(page);
                self.w().hold(self.id, object, page);
                read_window(self, file, window, None, page..end, false).await?;
                // The page may have been given up meanwhile.
                continue;
            }
            if self.w().is_locked(folio) {
                waited = true;
                self.wait_page(object, page).await;
                // It may have been given up, or never have arrived.
                continue;
            }
            let cost = self.w().copy_out(self.id, &mut reading, (page, folio));
            self.spend(cost).await;
            page += 1;
        }
        self.w().counts.major += u64::from(waited);
        Ok(())
    }

    /// Writes whole pages through the descriptor. Pages that are not cached are not read.
    pub async fn write(&self, open: OpenId, first: u64, pages: u64) -> Result<(), MachineError> {
        self.write_some_of(open, first, pages, true).await
    }

    /// Writes a part of each of some pages through the descriptor. Pages that are not cached are
    /// read first.
    pub async fn write_parts(
        &self,
        open: OpenId,
        first: u64,
        pages: u64,
    ) -> Result<(), MachineError> {
        self.write_some_of(open, first, pages, false).await
    }

    async fn write_some_of(
        &self,
        open: OpenId,
        first: u64,
        pages: u64,
        whole: bool,
    ) -> Result<(), MachineError> {
        let result = self.write_pages(open, first, pages, whole).await;
        self.w().let_go(self.id);
        self.settle_limits().await;
        result
    }

    /// Makes a file at least `pages` pages long, for a write of the last of them. Returns false if
    /// that took time, so that it may be shorter again.
    async fn extend(&self, open: OpenId, file: FileId, pages: u64) -> Result<bool, MachineError> {
        if self.wait_resized(file).await {
            return Ok(false);
        }
        let behind_a_part = {
            let mut world = self.w();
            let entry = world.file(file);
            let behind_a_part = entry.partial && pages > entry.pages;
            if !behind_a_part && pages >= entry.pages {
                (entry.pages, entry.partial) = (pages, false);
            }
            behind_a_part
        };
        if behind_a_part {
            self.resize(open, Size { pages: pages - 1, partial: false }).await?;
        }
        Ok(!behind_a_part)
    }

    /// Looks for a page of which a part is to be kept: reads it if it is not cached, or waits for
    /// it.
    pub(super) async fn part(
        &self,
        file: FileId,
        page: u64,
        failures: u64,
    ) -> Result<Part, MachineError> {
        let (object, found) = {
            let mut world = self.w();
            let object = world.file(file).object;
            (object, world.pool.frame(object, page))
        };
        match found {
            Some(frame) if !self.w().is_locked(frame) => return Ok(Part::There(frame)),
            Some(_) => self.wait_page(object, page).await,
            None => {
                if self.w().file(file).failed_since(page, failures) {
                    return Err(MachineError::Io { at_ns: self.now() });
                }
                self.w().hold(self.id, object, page);
                let window = Window::page(page);
                read_window(self, file, window, Some(page), page..page + 1, false).await?;
            }
        }
        Ok(Part::Again)
    }

    async fn write_pages(
        &self,
        open: OpenId,
        first: u64,
        pages: u64,
        whole: bool,
    ) -> Result<(), MachineError> {
        let (file, object, failures) = {
            let mut world = self.w();
            let file = world.opens[open.0 as usize].file;
            let entry = world.file(file);
            if !entry.partial && !entry.resizing {
                entry.pages = entry.pages.max(first + pages);
            }
            (file, entry.object, entry.read_failures)
        };
        let syscall = self.w().costs.syscall_ns;
        self.spend(syscall).await;
        let writing = Writing { file, object, whole };
        let mut page = first;
        while page < first + pages {
            if !self.extend(open, file, page + 1).await? {
                continue;
            }
            if !whole && matches!(self.part(file, page, failures).await?, Part::Again) {
                continue;
            }
            let found = self.w().pool.frame(object, page);
            if found.is_some_and(|frame| self.w().is_locked(frame)) {
                self.wait_page(object, page).await;
                continue;
            }
            let order = write_order(&mut self.w(), file, page, first + pages);
            if found.is_none() && !self.charge_pages(1 << order, false).await {
                return Err(MachineError::OutOfMemory { at_ns: self.now() });
            }
            let written = self.w().copy_in(self.id, &writing, page, (found, order));
            let Some((cost, owes)) = written else { continue };
            self.spend(cost).await;
            page += 1;
            if owes {
                self.w().let_go(self.id);
                self.balance_dirty(file).await;
            }
        }
        Ok(())
    }
}
