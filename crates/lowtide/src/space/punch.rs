//! Holes: giving parts of a file back to the file system.
//!
//! Whole folios are owned, resident or not, while the file system makes the hole beneath them
//! ([`Owned::take`]); then they are dropped, and the next access finds zeroes on disk. Threads that
//! want them wait, so each page is seen as before or as zeroes. The parts of the range in the
//! folios at its two ends are stored as zeroes, and so is everything where the file system makes no
//! holes.
//!
//! Nothing past the end that is known here is touched: another process may have appended there.

use super::Space;
use super::owned::Owned;
use super::whole::{Parts, has_all};
use crate::error::Error;
use crate::fault::attempt::Attempts;
use crate::pool::Pool;
use crate::store::store;
use lowtide_io::FaultSite;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Pages that are owned at a time: all of them or none, and more would seldom be free at once
/// beside threads that read.
const AT_ONCE: u64 = 64;
/// Zeroes that are stored at a time.
const ZEROES: usize = 1 << 20;

/// Makes a range read as zeroes, as far as it lies in the file. The caller keeps the file from
/// being cut.
pub(crate) fn punch(pool: &Pool, space: &Space, bytes: Range<u64>) -> Result<(), Error> {
    let len = space.len();
    let (start, end) = (bytes.start, bytes.end.min(len));
    if start >= end {
        return Ok(());
    }
    let shift = pool.page_shift + u32::from(space.order);
    let Parts { head, whole, tail } = Parts::of(&(start..end), len, shift);
    store_zeroes(pool, space, head)?;
    let (last, step) = (whole.end << shift, AT_ONCE.max(1 << space.order) << pool.page_shift);
    for at in (whole.start << shift..last).step_by(step as usize) {
        punch_folios(pool, space, at..last.min(at + step), end)?;
    }
    store_zeroes(pool, space, tail)
}

/// Makes a hole of whole folios. They may reach over `end`, where the file ended when the punch
/// began.
fn punch_folios(pool: &Pool, space: &Space, bytes: Range<u64>, end: u64) -> Result<(), Error> {
    let pages = bytes.start >> pool.page_shift..bytes.end >> pool.page_shift;
    let (mut owned, alone) = Attempts::new(pool, space).repeat(|attempts| {
        let owned = Owned::take(pool, space, pages.clone(), pages.clone(), true, attempts)?;
        Ok((owned, attempts.alone_beneath(&bytes)?))
    })?;
    if let Some(zcache) = &space.zcache {
        zcache.forget_range(pages);
    }
    if !has_all(space, end, bytes.end) {
        drop((owned, alone));
        return store_zeroes(pool, space, bytes.start..end);
    }
    let bytes = bytes.start..bytes.end.min(end);
    let punched = space.backing.punch(&pool.backend, bytes.clone());
    drop(alone);
    match punched {
        Ok(()) => {
            space.note_change();
            owned.drop_folios(0);
            Ok(())
        }
        Err(e) if makes_no_holes(&e) => {
            drop(owned);
            pool.fault_sites.mark(FaultSite::PunchStoredZeroes);
            store_zeroes(pool, space, bytes)
        }
        Err(e) => {
            pool.fault_sites.mark(FaultSite::PunchFailed);
            Err(Error::Punch { path: space.path(), bytes, source: Arc::new(e) })
        }
    }
}

fn store_zeroes(pool: &Pool, space: &Space, bytes: Range<u64>) -> Result<(), Error> {
    let count = bytes.end.saturating_sub(bytes.start).min(ZEROES as u64) as usize;
    let zeroes = vec![0; count];
    for at in bytes.clone().step_by(ZEROES) {
        store(pool, space, at, &zeroes[..(bytes.end - at).min(ZEROES as u64) as usize])?;
    }
    Ok(())
}

/// Whether an error of `fallocate(2)` says that this file system, or this file, cannot have holes.
fn makes_no_holes(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV | libc::EINVAL)
    )
}
