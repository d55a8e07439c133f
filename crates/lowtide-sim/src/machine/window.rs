//! Reading a window: its pages come into the cache, folio by folio, and their reads are in flight
//! when this is done.
//!
//! ```text
//!   pages   . . # # . . . . . . . .      # cached already
//!   folios  1 1     4       2   1 1      as large as order and alignment allow (large files only)
//!   reads   ───     ─────────────────    one command for each run of neighbours
//! ```
//!
//! A page that is a hole of its file needs no command: it is filled with zeros at once, by the task
//! that reads, and is up to date when it is inserted.
//!
//! A file with large folios gets them from windows that a mark has opened: each window in a row has
//! larger ones. The first that does not fit, because one of its pages is cached or no block of
//! frames is free, ends that: the rest of the window comes in single pages. Source:
//! `docs/kernel/fault-and-writeback.md` A6.5, A6.6.

use super::ctx::Ctx;
use super::ended::MachineError;
use super::files::{FileId, OpenId};
use super::readahead::Window;
use super::watch::PageEvent;
use super::world::World;
use crate::memory::ObjectId;
use lowtide_core::{FolioId, MemcgId, Reclaim, Task};
use std::ops::Range;

/// Pages on their way that lie next to each other: the first, and the folio of each.
type Run = Option<(u64, Vec<FolioId>)>;

/// Counts a page that is on its way from the device: `asked` for or read ahead, and whether it
/// had been in memory before.
fn count_arrival(world: &mut World, frame: FolioId, asked: bool, again: bool) {
    if asked {
        world.pool.unused.take(frame);
        world.counts.missing += 1;
        world.counts.missing_again += u64::from(again);
    } else {
        world.pool.unused.set(frame);
        world.counts.readahead += 1;
    }
}

/// Counts the pages that read-ahead brought in for nothing, of those that a reclaim freed.
pub(super) fn count_unused(world: &mut World, reclaim: &Reclaim) {
    for gone in reclaim.freed() {
        for frame in gone.folio.0..gone.folio.0 + (1 << gone.order) {
            let unused = world.pool.unused.take(FolioId(frame));
            world.counts.readahead_unused += u64::from(unused);
        }
    }
}

/// Counts the first use of a page that was read ahead.
pub(super) fn count_use(world: &mut World, folio: FolioId, page: u64) {
    let frame = world.pool.frame_in(folio, page);
    world.counts.readahead_used += u64::from(world.pool.unused.take(frame));
}

/// The window that an access opens which met the mark at page `at`, with `pages` pages requested
/// from there on.
pub(super) fn marked_window(
    world: &mut World,
    open: OpenId,
    object: ObjectId,
    at: u64,
    pages: u64,
) -> Option<Window> {
    let mut readahead = world.opens[open.0 as usize].readahead;
    let window = readahead.mark_met(at, pages, |n| {
        (at + 1..=at + n).find(|&p| world.pool.frame(object, p).is_none())
    });
    world.opens[open.0 as usize].readahead = readahead;
    window
}

/// log2 of the pages of the folio that a write of the pages from `page` on and before `end`
/// makes, if `page` is not cached.
pub(super) fn write_order(world: &mut World, file: FileId, page: u64, end: u64) -> u8 {
    if !world.file(file).large {
        return 0;
    }
    let whole = Window { start: page, size: end - page, mark: None, order: u32::MAX };
    let object = world.file(file).object;
    let most = whole.folio_order(page, end);
    let fits = |order: &u8| !world.pool.any_resident(object, page..page + (1 << order));
    (0..=most).rev().find(fits).unwrap_or(0)
}

/// Inserts the pages of a folio of a window, locked. Returns the folio, and whether it had been
/// in memory before; `None` if that cannot be, any more.
fn insert_locked(
    world: &mut World,
    object: ObjectId,
    page: u64,
    order: u8,
    (memcg, task): (MemcgId, Task),
) -> Option<(FolioId, bool)> {
    if world.pool.any_resident(object, page..page + (1 << order)) {
        return None;
    }
    let (frame, refaulted) = if order == 0 {
        world.pool.insert(object, page, true, memcg, task)
    } else {
        world.pool.insert_large(order, object, page, true, memcg, task)?
    };
    let again = refaulted.is_some();
    world.note_refault(frame, refaulted);
    world.pool.memory.set_locked(frame, true);
    Some((frame, again))
}

/// Adds a folio to a run, which is submitted before if the folio does not continue it. Returns
/// the time that takes of the task.
fn read_with(
    world: &mut World,
    ctx: &Ctx,
    file: FileId,
    run: &mut Run,
    (span, folio): (Range<u64>, FolioId),
) -> u64 {
    let mut copied = 0;
    if let Some((first, frames)) =
        run.take_if(|(first, frames)| *first + frames.len() as u64 != span.start)
    {
        copied = world.submit_read_of(ctx.id, file, first, frames);
    }
    let frames = &mut run.get_or_insert((span.start, Vec::new())).1;
    frames.extend(std::iter::repeat_n(folio, span.count()));
    copied
}

/// Fills a page that is a hole and has been inserted. Returns the time that takes of the task.
fn fill_hole(world: &mut World, file: FileId, page: u64, folio: FolioId) -> u64 {
    world.pool.memory.set_locked(folio, false);
    world.forget_refault(folio);
    world.watched_file(PageEvent::Arrived, file, page, folio);
    world.costs.zero_page()
}

/// Brings in the pages of a window that are not cached, as reads in flight. `wanted` is the
/// page that the window is for; it alone is worth an out-of-memory error. The others are
/// brought in as long as there is room for them after one reclaim. `request` is what the task
/// has asked for: whatever else is read was read ahead.
pub(super) async fn read_window(
    ctx: &Ctx,
    file: FileId,
    window: Window,
    wanted: Option<u64>,
    request: Range<u64>,
    in_lru_fault: bool,
) -> Result<(), MachineError> {
    let (object, pages, mut large) = {
        let mut world = ctx.w();
        let file = world.file(file);
        (file.object, file.pages, file.large)
    };
    let end = (window.start + window.size).min(pages);
    let mut run = None;
    let mut room = true;
    let mut page = window.start;
    while page < end {
        let is_wanted = wanted == Some(page);
        let order = if large { window.folio_order(page, end) } else { 0 };
        let span = page..page + (1 << order);
        if !room && !is_wanted {
            page += 1;
            continue;
        }
        if ctx.w().pool.any_resident(object, span.clone()) {
            if order == 0 {
                submit(ctx, file, &mut run).await;
                page += 1;
            }
            large = false;
            continue;
        }
        if is_wanted && !ctx.charge(in_lru_fault).await {
            submit(ctx, file, &mut run).await;
            return Err(MachineError::OutOfMemory { at_ns: ctx.now() });
        }
        if !is_wanted && !ctx.charge_readahead(1 << order, in_lru_fault).await {
            submit(ctx, file, &mut run).await;
            room = false;
            continue;
        }
        let cost = {
            let world = &mut *ctx.w();
            let (memcg, task) = (world.memcg(ctx.id), world.engine_task(ctx.id, in_lru_fault));
            if page >= world.file(file).pages {
                // The file was made shorter while this task reclaimed.
                world.pool.engine.uncharge(memcg, 1 << order);
                break;
            }
            let inserted = insert_locked(world, object, page, order, (memcg, task));
            let Some((folio, again)) = inserted else {
                // Another task brought it in while this one reclaimed, or no block is free.
                world.pool.engine.uncharge(memcg, 1 << order);
                page += u64::from(order == 0);
                large = false;
                continue;
            };
            if window.mark.is_some_and(|mark| span.contains(&mark)) {
                world.pool.engine.mark_readahead(folio);
            }
            let now = world.sched.local(ctx.id);
            for (frame, page) in (folio.0..).map(FolioId).zip(span.clone()) {
                world.retries.inserted(frame, now);
                count_arrival(world, frame, request.contains(&page), again);
            }
            if world.file(file).is_hole(page) {
                fill_hole(world, file, page, folio)
            } else {
                read_with(world, ctx, file, &mut run, (span.clone(), folio))
                    + world.costs.read_page() * (1 << order)
            }
        };
        ctx.spend(cost).await;
        page = span.end;
    }
    submit(ctx, file, &mut run).await;
    Ok(())
}

async fn submit(ctx: &Ctx, file: FileId, run: &mut Run) {
    let Some((first, frames)) = run.take() else { return };
    let cost = {
        let mut world = ctx.w();
        world.submit_read_of(ctx.id, file, first, frames) + world.costs.submit_io_ns
    };
    ctx.spend(cost).await;
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, MachineConfig, MachineStat};
    use crate::spec::MachineSpec;
    use lowtide_core::Policy;
    use std::sync::atomic::AtomicBool;

    const PAGES: u64 = 4_096;

    /// Reads a file in order, twice, with room for half of it, writing a page here and there.
    /// Returns the counts, and the pages of the largest folio that was left.
    fn scan(large: bool) -> (MachineStat, u64) {
        let spec = MachineSpec { readahead: 1 << 20, ..MachineSpec::load("laptop").unwrap() };
        let config =
            MachineConfig { spec, policy: Policy::MGLRU, max: Some(PAGES / 2 * 4096), seed: 1 };
        let mut m = Machine::new(&config).unwrap();
        let (file, open) = {
            let mut world = m.world();
            let file = world.add_file(PAGES);
            if large {
                world.allow_large_folios(file);
            }
            (file, world.open(file))
        };
        m.client(async move |ctx| {
            for _ in 0..2 {
                for page in (0..PAGES).step_by(4) {
                    ctx.read(open, page, 4).await?;
                    if page % 128 == 0 {
                        ctx.write(open, page, 3).await?;
                    }
                }
            }
            ctx.sync(open).await
        });
        m.run(&AtomicBool::new(false), &mut || ()).unwrap();
        let stat = m.stat();
        let mut world = m.world();
        let object = world.file(file).object;
        let folios = (0..PAGES).filter_map(|page| world.pool.frame(object, page));
        let largest = folios.map(|folio| world.pool.extent(folio).0.count() as u64).max().unwrap();
        let resident = (0..PAGES).filter(|&page| world.pool.frame(object, page).is_some()).count();
        assert_eq!(resident + world.pool.free_frames(), world.pool.frames());
        assert!(world.file(file).dirty.is_empty());
        drop(world);
        (stat, largest)
    }

    #[test]
    fn windows_of_a_reader_in_order_come_in_larger_and_larger_folios() {
        let ((small, one), (large, many)) = (scan(false), scan(true));
        assert_eq!(one, 1);
        assert!((16..=256).contains(&many), "{many} pages");
        for stat in [&small, &large] {
            let counts = &stat.kernel;
            assert!(counts.missing < 64, "read ahead of the reader: {counts:?}");
            assert!(counts.readahead_used * 10 > counts.readahead * 9, "{counts:?}");
        }
    }

    #[test]
    fn only_the_dirty_pages_of_a_large_folio_are_written() {
        for large in [false, true] {
            // Three pages at 32 places, once or twice.
            let pages = scan(large).0.device.write_bytes / 4096;
            assert!((96..=192).contains(&pages), "large: {large}, {pages} pages");
        }
    }
}
