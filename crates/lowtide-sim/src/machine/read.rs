//! Reading and writing through the descriptor.

use super::ctx::Ctx;
use super::ended::MachineError;
use super::files::{FileId, OpenId};
use super::readahead::Window;
use super::resize::Size;
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

impl World {
    /// Cached pages directly before `idx`, `n` at most.
    fn cached_before(&self, object: ObjectId, idx: u64, n: u64) -> u64 {
        (1..=n.min(idx)).take_while(|back| self.pool.frame(object, idx - back).is_some()).count()
            as u64
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
        let mut waited = false;
        let mut accessed = None;
        // A reader keeps its page while it reads ahead and does not look for the mark again:
        // reclaim may have met the page since, and left its own.
        let mut ahead_of = None;
        let mut page = first;
        loop {
            // The file may have been made shorter meanwhile.
            let end = self.w().file(file).pages.min(first + pages);
            if page >= end {
                break;
            }
            let (frame, marked) = {
                let mut guard = self.w();
                let world = &mut *guard;
                let frame = world.pool.frame(object, page);
                let look =
                    |frame| ahead_of != Some(page) && world.pool.engine.take_readahead(frame);
                (frame, frame.is_some_and(look))
            };
            let Some(frame) = frame else {
                if self.w().file(file).failed_since(page, failures) {
                    return Err(MachineError::Io { at_ns: self.now() });
                }
                let window = {
                    let mut guard = self.w();
                    let world = &mut *guard;
                    world.hold(self.id, object, page);
                    let mut readahead = world.opens[open.0 as usize].readahead;
                    let window = readahead
                        .missing(page, end - page, |n| world.cached_before(object, page, n));
                    world.opens[open.0 as usize].readahead = readahead;
                    window
                };
                read_window(self, file, window, Some(page), page..end, false).await?;
                continue;
            };
            if marked {
                let window = {
                    let mut guard = self.w();
                    let world = &mut *guard;
                    // What counts is where the folio begins that has the mark.
                    let at = world.pool.extent(frame).0.start;
                    let window = marked_window(world, open, object, at, end - at);
                    world.counts.marked_hits += 1;
                    world.counts.marked_windows += u64::from(window.is_some());
                    world.counts.marked_window_pages += window.map_or(0, |window| window.size);
                    window
                };
                if let Some(window) = window {
                    ahead_of = Some(page);
                    self.w().hold(self.id, object, page);
                    read_window(self, file, window, None, page..end, false).await?;
                    // The page may have been given up meanwhile.
                    continue;
                }
            }
            if self.w().is_locked(frame) {
                waited = true;
                self.wait_page(object, page).await;
                // It may have been given up, or never have arrived.
                continue;
            }
            let cost = {
                let mut guard = self.w();
                let world = &mut *guard;
                world.counts.accesses += 1;
                count_use(world, frame, page);
                world.watched_file(PageEvent::Loaded, file, page, frame);
                world.let_go(self.id);
                let task = world.engine_task(self.id, false);
                let readahead = &mut world.opens[open.0 as usize].readahead;
                let again = page == first && readahead.last() == Some(page);
                readahead.read_to(page);
                // A folio is accessed once, however many of its pages a read takes.
                if !again && accessed.replace(frame) != Some(frame) {
                    world.pool.mark_accessed(frame, task);
                }
                world.costs.lookup_ns + world.costs.copy_page_ns
            };
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
            let (cost, owes) = {
                let mut guard = self.w();
                let world = &mut *guard;
                let entry = world.file(file);
                if entry.resizing || page >= entry.pages {
                    if found.is_none() {
                        let memcg = world.memcg(self.id);
                        world.pool.engine.uncharge(memcg, 1 << order);
                    }
                    continue;
                }
                let frame = match (found, world.pool.frame(object, page)) {
                    (None, None) => {
                        let task = world.engine_task(self.id, false);
                        let memcg = world.memcg(self.id);
                        let pool = &mut world.pool;
                        let large = !pool.any_resident(object, page..page + (1 << order));
                        let inserted = large
                            .then(|| pool.insert_large(order, object, page, false, memcg, task));
                        if let Some((frame, _)) = inserted.flatten() {
                            frame
                        } else {
                            pool.engine.uncharge(memcg, (1 << order) - 1);
                            pool.insert(object, page, false, memcg, task).0
                        }
                    }
                    (None, Some(_)) => {
                        let memcg = world.memcg(self.id);
                        world.pool.engine.uncharge(memcg, 1 << order);
                        continue;
                    }
                    (Some(_), None) => continue,
                    (Some(_), Some(frame)) => frame,
                };
                world.counts.accesses += 1;
                count_use(world, frame, page);
                let owes = world.set_dirty(self.id, file, page, frame);
                let event = if whole { PageEvent::Stored } else { PageEvent::Patched };
                world.watched_file(event, file, page, frame);
                let new = if found.is_none() { world.costs.new_page() } else { 0 };
                (
                    new + world.costs.lookup_ns
                        + world.costs.copy_page_ns
                        + world.costs.mark_dirty_ns,
                    owes,
                )
            };
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
