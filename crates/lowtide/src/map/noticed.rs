//! Files whose mappings are watched, and how their pages are charged: when they are noticed to have
//! come in, which evicts others, or before they are read ahead.

use super::pages::MappedPages;
use super::run::manner::Counted;
use super::run::noted::Noted;
use super::streams::Streams;
use super::watched::Watched;
use crate::ahead::marks::Ahead;
use crate::ahead::readahead::{first_use, note_ahead};
use crate::fault::nested::Nested;
use crate::fault::{Access, Claim, Miss};
use crate::pool::Pool;
use crate::pool::payer::{Effort, Payer};
use crate::space::Space;
use crate::view::Open;
use lowtide_pin::translation::{Entry, State};
use lowtide_sys::page_cache;
use lowtide_sys::tell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// Pages that are charged together. Of a window, the device reads some while others are evicted for
/// the next.
pub(super) const TOGETHER: u64 = 64;

/// A file whose mappings are watched.
#[derive(Debug)]
pub(super) struct WatchedFile {
    pub(super) space: Arc<Space>,
    pub(super) watched: Arc<Watched>,
    /// Pages that were noticed to have come in.
    pub(super) admitted: AtomicU64,
    /// In which manner.
    pub(super) came: Counted,
    /// Where it is read in order. Only the thread uses it.
    pub(super) streams: Mutex<Streams>,
    /// What is read of it through descriptors.
    pub(super) noted: Noted,
    /// Pages that the program will need soon.
    pub(super) wishes: Mutex<Vec<Range<u64>>>,
    /// Pages that the kernel reads ahead of a stream, once that is known (`kernel_ahead`).
    pub(super) kernel_ahead: OnceLock<u64>,
    /// Keeps the file open. Taken only on drop.
    pub(super) open: Option<Open>,
}

impl WatchedFile {
    /// Pages that the kernel reads ahead of a stream of this file, at most; where that is not
    /// known, all. Only the thread asks: it has a table of descriptors of its own.
    pub(super) fn kernel_ahead(&self) -> u64 {
        *self.kernel_ahead.get_or_init(|| {
            let bytes = self.watched.file().with(|file| page_cache::kernel_read_ahead(file));
            bytes.map_or(u64::MAX, |bytes| bytes >> self.watched.page_shift)
        })
    }
}

impl Drop for WatchedFile {
    /// The last mapping is gone: so are its pages, from the cache and from the engine.
    fn drop(&mut self) {
        self.watched.close();
        drop(self.open.take());
        self.watched.end();
    }
}

/// Charges the pages of a file that came in since the last look. Returns whether many came in, one
/// behind the other, of which no stream was known: the look came late.
pub(super) fn notice(pool: &Pool, file: &WatchedFile) -> bool {
    let mut present: Vec<Range<u64>> = Vec::new();
    if let Err(error) = file.watched.present(0..u64::MAX, &mut present) {
        tell!(error, %error, "pages of a map cannot be seen");
    }
    let mut runs: Vec<Range<u64>> = Vec::new();
    for pages in present {
        admit(pool, file, pages, |page| match runs.last_mut() {
            Some(run) if run.end == page => run.end += 1,
            _ => runs.push(page..page + 1),
        });
    }
    runs.iter().for_each(|run| file.came.run(run, pool, &file.space));
    let mut streams = lowtide_pin::sync::lock(&file.streams);
    let was_late = runs.iter().any(|run| streams.could_follow(run));
    // Before pages that are known to be there nothing is to be read: a stream has passed.
    let is_known = |page| file.space.table.get(page).is_some_and(|entry| !is_absent(entry));
    runs.retain(|run| !is_known(run.end));
    streams.came_in(&runs);
    was_late
}

/// Charges those of some pages that are absent, as far as there is room, and then calls `arrive`
/// with the pages up to there, whose end it returns.
pub(super) fn charge_step(
    pool: &Pool,
    file: &WatchedFile,
    window: Range<u64>,
    access: Access,
    arrive: impl FnOnce(Range<u64>),
) -> u64 {
    let _nested = Nested::begin();
    let (space, is_mapped) = (&*file.space, access == Access::Mapped);
    let claim = |page: u64| match pool.claim(space, page, space.table.get(page)?) {
        Miss::Claimed(claim) => Some(claim),
        Miss::Resident(..) | Miss::Busy(_) => None,
    };
    let claims: Vec<Claim> = window.clone().filter_map(claim).collect();
    let mut charged = Vec::with_capacity(claims.len());
    let mut state = pool.lock();
    for claim in &claims {
        let result;
        (state, result) =
            pool.charge(state, Payer::Space(space.id), 1, access.task(), Effort::Reclaim);
        let Ok(group) = result else { break };
        let new = claim.new_folio(space, access);
        let Some(placed) = pool.place(&mut state, space, &new, group) else { break };
        charged.push(placed);
    }
    drop(state);
    let rest = &claims[charged.len()..];
    rest.iter().for_each(|claim| pool.abandon(space, claim, &Ok(())));
    let end = rest.first().map_or(window.end, |claim| claim.page);
    arrive(window.start..end);
    for (claim, (frame, stall)) in claims.iter().zip(charged) {
        if access == Access::Ahead {
            note_ahead(pool, frame..frame + 1, Some(Ahead::Seen));
        } else {
            file.admitted.fetch_add(1, Relaxed);
        }
        if is_mapped {
            file.watched.admitted(claim.page);
        }
        let entry = space.table.entry(claim.page);
        if entry.finish_read(frame, is_mapped && pool.young_faults) {
            pool.waits.complete(entry, &Ok(()));
        }
        let bytes = pool.page_bytes() as u64;
        match access {
            Access::Ahead => pool.stall_ends(stall, bytes),
            _ => pool.unseen_stall_ends(stall, bytes),
        }
    }
    end
}

/// Charges pages that are there, and calls `note` with those that are new. Those that there is no
/// room for are dropped.
pub(super) fn admit(
    pool: &Pool,
    file: &WatchedFile,
    mut pages: Range<u64>,
    mut note: impl FnMut(u64),
) {
    let is_new = |page: &u64| file.space.table.get(*page).is_some_and(is_absent);
    while !pages.is_empty() {
        let end = pages.end.min(pages.start + TOGETHER);
        let new: Vec<u64> = (pages.start..end).filter(is_new).collect();
        if let [first, .., last] = new[..] {
            charge_step(pool, file, first..last + 1, Access::Mapped, drop);
        }
        // Alone, a page waits for room.
        for page in new {
            if !is_new(&page) || admit_one(pool, file, page) {
                note(page);
            }
        }
        pages.start = end;
    }
}

fn is_absent(entry: &Entry) -> bool {
    matches!(entry.load(), State::Absent { .. })
}

/// Charges a page, and returns whether it is new.
fn admit_one(pool: &Pool, file: &WatchedFile, page: u64) -> bool {
    let space = &*file.space;
    let Some(entry) = space.table.get(page) else { return false };
    let Miss::Claimed(mut claim) = pool.claim(space, page, entry) else { return false };
    match pool.frames_for(space, page, &mut claim, Access::Mapped) {
        Ok(Some((frame, stall))) => {
            file.watched.admitted(page);
            file.admitted.fetch_add(1, Relaxed);
            if entry.finish_read(frame, pool.young_faults) {
                pool.waits.complete(entry, &Ok(()));
            }
            pool.unseen_stall_ends(stall, pool.page_bytes() as u64);
        }
        Ok(None) => {}
        Err(_) => file.watched.release(page..page + 1),
    }
    true
}

/// Notes that a page of a handed stream was touched. The look that comes later may find it gone
/// from the page table, with others of its folio.
pub(super) fn note_first_use(pool: &Pool, file: &WatchedFile, page: u64) {
    let entry = file.space.table.get(page).map(Entry::load);
    if let Some(State::Resident { frame, .. }) = entry
        && first_use(pool, &file.space, page, frame)
    {
        file.watched.admitted(page);
    }
}
