//! Pages of mapped files that the kernel has, and that no tenant is charged for.
//!
//! | how they came in | why they are not charged |
//! |---|---|
//! | by `read(2)`, by read-ahead, for another process | no page table says so |
//! | read ahead, and evicted meanwhile | a page that is being read cannot be dropped |
//! | stored to, and evicted | a page that is not written yet cannot be dropped |
//! | evicted while another thread touched them | they are mapped again, and no scan is due |
//! | were there before the mapping: read, written, or in use | no fault brought them in |
//! | any, of a file that a mirror shows | what is charged is the mirror |
//!
//! So *cached* and *charged* pages of each file are counted, and compared:
//!
//! * **Many in excess** (a sixteenth of the budget) are dropped at once.
//! * **An overrun** (a quarter of what is charged) comes where threads touch pages faster than they
//!   are noticed, as many processes that share cached pages do. All pages are taken out of the page
//!   table, and what is not touched again at once is dropped: a touch waits for the device then.
//! * **A few** may be on their way: brought in, and noticed by the next scan. Those by which the
//!   excess never fell below the room that the budget has left, for longer than a scan takes to
//!   come, have *stayed*. What is mapped of them is charged, what is dirty is written, the others
//!   are dropped. What still stays is in use elsewhere: it is counted as such, and tried again,
//!   more and more seldom.
//!
//! Pages that lie in room that nothing else takes do no harm, and stay; beside a mirror nothing
//! does, which would be in memory twice.
//!
//! **Dirty pages** in excess are written, and the next look drops them: so what was evicted is
//! written behind, and what is charged, and stored to again and again, is not.
//!
//! **Cost.** While all is well a comparison is one `cachestat(2)` and a look at each translation of
//! the file, for at most a fiftieth of a processor, or a third while there are many in excess. What
//! it waits for devices counts as nothing: a thread of its own does (`sweeper.rs`). To drop a page
//! that does not go waits for every processor, half a millisecond where all are busy.

use super::noticed::notice;
use super::sweeper::Swept;
use crate::ahead::readahead::budget_of;
use crate::pool::Pool;
use crate::pool::payer::Payer;
use crate::space::Space;
use lowtide_core::MemcgId;
use lowtide_pin::translation::State;
use lowtide_sys::page_cache::{
    CacheStat, cached_pages, cachestat, drop_cached, start_writing_range,
};
use lowtide_sys::running;
use lowtide_sys::tell;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The shortest time between two comparisons while there are many in excess.
const SWEEP_LEAST: Duration = Duration::from_millis(1);
/// The same, while the number of cached pages changes.
const SWEEP: Duration = Duration::from_millis(10);
/// The same, while it does not.
const SWEEP_MAX: Duration = Duration::from_millis(500);
/// The longest time while a file has dirty pages.
const SWEEP_DIRTY: Duration = Duration::from_millis(50);
/// A comparison is due when this number of times the processor's time of the last one has gone by.
const SELDOM: u32 = 50;
/// The same while there are many in excess.
const SELDOM_EXCESS: u32 = 2;
/// Excess of cached pages over charged ones, as a part of the budget, that is dropped at once.
const EXCESS_PART: u64 = 16;
/// The same by which the file is overrun, as a part of what is charged.
const OVERRUN_PART: u64 = 4;
/// The longest time between two tries against an overrun, while they do not help.
const OVERRUN_MAX: Duration = Duration::from_secs(1);
/// The longest time that is spent on dropping pages of a file, each time.
const SWEEP_TIME: Duration = Duration::from_millis(10);
/// Pages that are dropped with one call.
const SWEEP_RUN: u64 = 1 << 18;
/// Pages that are not dropped before all of them are written.
const FEW: u64 = 32;
/// An excess that has not gone after this time has stayed: a scan comes sooner.
const STAYED: Duration = Duration::from_millis(250);
/// The longest time between two tries to drop what does not go.
const STAYED_MAX: Duration = Duration::from_secs(16);

/// What of a file is cached without a charge.
#[derive(Debug)]
struct Uncharged {
    /// The page with which dropping goes on; 0 where all of the file is to be looked at.
    swept: u64,
    /// Since when there have been pages for which there is no room, and how long they may be there.
    since: Option<Instant>,
    patience: Duration,
    /// From when on the pages of an overrun may be taken again, and the last pause before that.
    again: Instant,
    pause: Duration,
}

impl Default for Uncharged {
    fn default() -> Self {
        let (again, pause) = (Instant::now(), Duration::ZERO);
        Self { swept: 0, since: None, patience: STAYED, again, pause }
    }
}

impl Uncharged {
    /// Some pages have no room, or none. Returns whether there were any all the time for longer
    /// than they may be.
    fn have_stayed(&mut self, any: bool) -> bool {
        if !any {
            (self.since, self.patience) = (None, STAYED);
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() >= self.patience
    }

    /// The pages of an overrun were taken. Where that did not help, the next try comes later: other
    /// programs may use them.
    fn taken(&mut self, helped: bool) {
        self.pause = if helped { Duration::ZERO } else { (self.pause * 2).max(SWEEP) };
        self.pause = self.pause.min(OVERRUN_MAX);
        self.again = Instant::now() + self.pause;
    }

    /// They were dropped, as far as that was possible. Fewer are worth another try soon.
    fn tried(&mut self, fewer: bool) {
        self.since = None;
        self.patience = if fewer { STAYED } else { (self.patience * 2).min(STAYED_MAX) };
    }
}

/// Room of tenants that nothing charged takes, and what of it was given to other files.
struct Rooms<'a> {
    pool: &'a Pool,
    given: HashMap<MemcgId, u64>,
}

impl Rooms<'_> {
    /// Gives room to pages of a file. Returns those for which there is none.
    fn without(&mut self, space: &Space, pages: u64) -> u64 {
        if pages == 0 {
            return 0;
        }
        let state = self.pool.lock();
        let group = state.group_of(Payer::Space(space.id));
        let payers = || std::iter::successors(group, |&id| state.engine.parent(id));
        let left = |id| {
            let given = self.given.get(&id).copied().unwrap_or_default();
            state.engine.margin(id).saturating_sub(given)
        };
        let room = payers().map(left).min().unwrap_or_default().min(pages);
        payers().for_each(|id| *self.given.entry(id).or_default() += room);
        pages - room
    }
}

/// When cached and charged pages are compared.
#[derive(Debug)]
pub(super) struct Sweeps {
    /// Pages that were cached.
    cached: u64,
    pause: Duration,
    /// By the number of a file's space.
    uncharged: HashMap<u32, Uncharged>,
}

impl Sweeps {
    pub(super) fn new() -> Self {
        Self { cached: 0, pause: SWEEP, uncharged: HashMap::new() }
    }

    /// Compares. Returns the time until the next comparison.
    pub(super) fn tick(&mut self, pool: &Pool, files: &[Swept]) -> Duration {
        let (began, mut cached, mut dirty, mut excess) = (running::of_thread(), 0, false, false);
        let mut rooms = Rooms { pool, given: HashMap::new() };
        // Of files that are read all may have an excess at a time.
        let readers = files.iter().filter(|file| file.is_read()).count().max(1) as u64;
        self.uncharged.retain(|id, _| files.iter().any(|file| file.space.id.0 == *id));
        for file in files {
            let uncharged = self.uncharged.entry(file.space.id.0).or_default();
            let part = EXCESS_PART * if file.is_read() { readers } else { 1 };
            let part = budget_of(pool, &file.space) / part;
            let (stat, many) = sweep((file, uncharged), part, &mut rooms);
            cached += stat.cached;
            dirty |= stat.dirty + stat.writeback > 0;
            excess |= many;
        }
        let changed = cached != std::mem::replace(&mut self.cached, cached);
        let longest = if dirty { SWEEP_DIRTY } else { SWEEP_MAX };
        self.pause = if changed { SWEEP } else { (self.pause * 2).min(longest) };
        let (least, seldom) =
            if excess { (SWEEP_LEAST, SELDOM_EXCESS) } else { (self.pause, SELDOM) };
        least.max(running::of_thread().saturating_sub(began) * seldom)
    }
}

/// What is cached of a file, and dirty. Before Linux 6.5 no call says how much is dirty: all that
/// is cached may be.
fn cached_of(space: &Space) -> io::Result<CacheStat> {
    space.backing.with_reader(|file| {
        cachestat(file, 0, 0).or_else(|_| {
            let cached = cached_pages(file)?;
            Ok(CacheStat { cached, dirty: cached, ..CacheStat::default() })
        })
    })
}

/// Drops pages that are cached and not charged, if there are many, more than `part`, or they have
/// stayed. Returns what is cached, and whether there were many.
fn sweep(
    (file, uncharged): (&Swept, &mut Uncharged),
    part: u64,
    rooms: &mut Rooms<'_>,
) -> (CacheStat, bool) {
    let space = &*file.space;
    let Ok(stat) = cached_of(space) else { return (CacheStat::default(), false) };
    file.note_dirty(stat.dirty + stat.writeback > 0);
    let charged = file.charged(rooms.pool);
    file.note_cached(stat.cached, charged, part);
    let excess = stat.cached.saturating_sub(charged);
    let without_room = if file.is_mirror() { excess } else { rooms.without(space, excess) };
    let elsewhere = space.elsewhere_pages.load(Relaxed).min(excess);
    space.elsewhere_pages.store(elsewhere, Relaxed);
    let many = excess - elsewhere > part;
    let stayed = uncharged.have_stayed(without_room > 0);
    if let Some(file) = file.watched.as_ref().filter(|_| stayed).and_then(Weak::upgrade) {
        notice(rooms.pool, &file);
    }
    let overrun = excess.saturating_sub(elsewhere + stat.dirty + stat.writeback);
    if overrun > (charged / OVERRUN_PART).max(2 * part) && Instant::now() >= uncharged.again {
        file.zap();
        drop(drop_pages(space, 0..0));
        let left = cached_of(space).map_or(0, |left| left.cached);
        uncharged.taken(left + overrun / 2 < stat.cached);
    } else if many || stayed {
        let wanted = file.wanted(charged / 2);
        drop_gaps(file, &mut uncharged.swept, &wanted);
        let left = || cached_of(space).map_or(0, |stat| stat.cached.saturating_sub(charged));
        if !wanted.is_empty() && left() > part + elsewhere {
            drop_gaps(file, &mut uncharged.swept, &file.wanted(0));
        }
    }
    if (many && file.is_read()) || (stayed && uncharged.patience > STAYED) {
        drop_folios(file, file.charged(rooms.pool) + if stayed { 0 } else { part });
    }
    if stayed && uncharged.swept == 0 {
        // What was mapped of them is charged since.
        let (left, charged) = (cached_of(space).unwrap_or(stat), file.charged(rooms.pool));
        uncharged.tried(left.cached.saturating_sub(charged) < excess);
        let idle = left.cached.saturating_sub(left.dirty + left.writeback);
        space.elsewhere_pages.store(idle.saturating_sub(charged), Relaxed);
    }
    (stat, many)
}

/// Drops pages of a file, as far as nothing uses them, and has those written that are dirty. Of a
/// few pages that are not all written none is dropped yet: the next look finds them.
fn drop_pages(space: &Space, pages: Range<u64>) -> io::Result<()> {
    let (start, few) = (space.offset(pages.start), (1..=FEW).contains(&(pages.end - pages.start)));
    let len = space.offset(pages.end) - start;
    space.backing.with_reader(|file| {
        let stat = cachestat(file, start, len).ok();
        if stat.is_some_and(|stat| stat.cached == 0) {
            return Ok(());
        }
        if stat.is_some_and(|stat| stat.dirty > 0) {
            start_writing_range(file, start, len)?;
        }
        if few && stat.is_some_and(|stat| stat.dirty + stat.writeback > 0) {
            return Ok(());
        }
        drop_cached(file, start, len)
    })
}

/// Drops what is cached of a file that a mirror is to show, where nothing has to be written first.
pub(super) fn drop_at_once(space: &Space) {
    let stat = space.backing.with_reader(|file| cachestat(file, 0, 0));
    if !stat.is_ok_and(|stat| stat.dirty + stat.writeback > 0) {
        drop(drop_pages(space, 0..0));
    }
}

/// Drops all that is cached of a file, if more than this number of pages is clean: of folios that
/// are charged in part.
fn drop_folios(file: &Swept, most: u64) {
    let Ok(stat) = cached_of(&file.space) else { return };
    let clean = stat.cached.saturating_sub(stat.dirty + stat.writeback);
    if clean > most
        && let Err(error) = drop_pages(&file.space, 0..0)
    {
        tell!(debug, %error, "pages of a file stay cached");
    }
}

/// Drops what is cached between charged pages, and is not wanted. Goes on where it ended the last
/// time, for a moment: there may be as many gaps as pages, and one with pages that other processes
/// map takes half a millisecond where all processors are busy.
fn drop_gaps(file: &Swept, swept: &mut u64, wanted: &[Range<u64>]) {
    let (space, began) = (&*file.space, Instant::now());
    let (table, mirror) = (&space.table, file.is_mirror());
    let pages = table.pages();
    let mut from = std::mem::take(swept);
    while from < pages {
        if began.elapsed() >= SWEEP_TIME {
            *swept = from;
            return;
        }
        let end = (from + SWEEP_RUN).min(pages);
        let known = |page: &u64| {
            !mirror && !matches!(table.entry(*page).load(), State::Absent { .. })
                || wanted.iter().any(|window| window.contains(page))
        };
        let gap = (from..end).find(known).unwrap_or(end);
        if gap > from && drop_pages(space, from..gap).is_err() {
            return;
        }
        from = (gap..end).find(|page| !known(page)).unwrap_or(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_go_is_tried_more_and_more_seldom_until_there_is_room() {
        let mut uncharged = Uncharged::default();
        assert!(!uncharged.have_stayed(false) && !uncharged.have_stayed(true));
        let mut waits = |fewer| {
            uncharged.since = Some(Instant::now() - uncharged.patience);
            assert!(uncharged.have_stayed(true));
            uncharged.tried(fewer);
            uncharged.patience / STAYED.as_millis() as u32
        };
        let millisecond = Duration::from_millis(1);
        assert_eq!(
            [false, false, true, false].map(&mut waits),
            [2, 4, 1, 2].map(|n| n * millisecond)
        );
        for _ in 0..9 {
            waits(false);
        }
        assert_eq!(uncharged.patience, STAYED_MAX);
        assert!(!uncharged.have_stayed(false));
        assert_eq!((uncharged.since, uncharged.patience), (None, STAYED));
    }

    #[test]
    fn tries_against_an_overrun_come_later_while_they_do_not_help() {
        let mut uncharged = Uncharged::default();
        let mut pauses = |helped: &[bool]| {
            helped.iter().for_each(|helped| uncharged.taken(*helped));
            uncharged.pause
        };
        assert_eq!(pauses(&[false, false]), 2 * SWEEP);
        assert_eq!(pauses(&[false; 20]), OVERRUN_MAX);
        assert_eq!(pauses(&[true]), Duration::ZERO);
    }
}
