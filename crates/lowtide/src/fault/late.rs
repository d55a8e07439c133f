//! Reads that have a deadline, and what becomes of those that miss it.
//!
//! A thread that wants a page waits for its read until [`PagerBuilder::read_timeout`], and fails
//! with
//! [`Error::Timeout`] then. The device may still write to the frames, so they stay charged and
//! their translations busy, and a thread that wants one of the pages waits for the same read, until
//! its own deadline. When the device answers after all, the worker that has waited for it ends the
//! claims as the thread would have: the pages are resident, or absent again.
//!
//! A late read keeps the pool and the file's records alive. A file whose last view is closed
//! meanwhile is dropped when the read has ended (`close.rs`).
//!
//! **A device that does not answer does not take the budget.** Late reads of one device may have
//! half of the frames (`late_reads.rs`); reads that would begin then fail as those before them
//! have. Nothing is read ahead, or around a miss, where a read of the device is late.
//!
//! Maps and heaps have no such deadline: a load through a pointer has no way to fail but a signal.
//!
//! [`PagerBuilder::read_timeout`]: crate::PagerBuilder::read_timeout

use super::{Access, Claim};
use crate::ahead::marks::Ahead;
use crate::ahead::readahead::note_ahead;
use crate::error::Error;
use crate::pool::Pool;
use crate::space::Space;
use lowtide_io::{Batch, Deadline, End, FaultSite, Left, Read};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The part of the pager's frames that late reads of one device may have: a half.
const PART: u64 = 2;

/// Whether a file may be read without being asked: no read of its device is late.
pub(crate) fn may_read_unasked(pool: &Pool, space: &Space) -> bool {
    pool.late.of(space) == 0
}

/// Whether a read of a file may begin.
///
/// # Errors
/// [`Error::Timeout`]: late reads of its device have as many frames as they may.
pub(crate) fn admit(pool: &Pool, space: &Space) -> Result<(), Error> {
    let late = pool.late.of(space);
    if late > 0 && late >= u64::from(pool.frames) / PART {
        return Err(read_timeout(pool, space));
    }
    Ok(())
}

/// What a late read brings in.
#[derive(Debug)]
struct Late {
    pool: Arc<Pool>,
    space: Arc<Space>,
    /// In the order of the file, each with its first frame.
    claims: Vec<(Claim, u32)>,
    access: Access,
}

impl Late {
    /// The device has answered.
    fn end(self, result: &io::Result<u64>) {
        let Self { pool, space, claims, access } = self;
        let (device, frames) = (space.backing.key().device, pages_of(&claims));
        let mut left = result.as_ref().map_or(0, |&got| got);
        pool.io.note_read(left as u32);
        for (claim, frame) in claims {
            let bytes = claim.pages() << pool.page_shift;
            let got = left.min(bytes);
            left -= got;
            let outcome = match result {
                Ok(_) => Ok(got as u32),
                Err(error) => Err(another(error)),
            };
            if access == Access::Ahead {
                let arrived = outcome.is_ok().then_some(Ahead::Seen);
                note_ahead(&pool, frame..frame + claim.pages() as u32, arrived);
            }
            let to = pool.destination(&space, bytes as usize, frame);
            // The thread that wanted it has an error already.
            drop(pool.resolve(&space, &claim, (frame, Some(&to)), outcome, access));
        }
        pool.late.end(device, frames);
        pool.fault_sites.mark(FaultSite::LateReadEnded);
        if space.is_closed() {
            pool.forget(&space, Deadline::after(Duration::ZERO));
        }
    }
}

fn pages_of(claims: &[(Claim, u32)]) -> u64 {
    claims.iter().map(|(claim, _)| claim.pages()).sum()
}

/// The same error once more.
fn another(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// How long a thread waits for a page of a file to be read. `None`: for as long as that takes.
pub(crate) fn read_limit(pool: &Pool, space: &Space) -> Option<Duration> {
    pool.read_timeout.filter(|_| space.mapped.is_none() && space.anon.is_none())
}

/// A page was not read in time.
pub(crate) fn read_timeout(pool: &Pool, space: &Space) -> Error {
    pool.fault_sites.mark(FaultSite::ReadDeadlinePassed);
    let waited = pool.read_timeout.unwrap_or_default();
    Error::Timeout { path: space.path(), waited, what: "reading a page" }
}

/// Stops waiting for a read of a batch, which brings in `claims`: each with its first frame.
/// They are given up if the read has not begun, and left to it if it has. False if it has
/// ended meanwhile: then they are the caller's, and the next wait returns the result.
pub(crate) fn leave(
    pool: &Pool,
    space: &Space,
    (batch, user): (&mut Batch<'_>, u64),
    access: Access,
    claims: impl FnOnce() -> Vec<(Claim, u32)>,
) -> bool {
    let (owned, space) = (pool.me.upgrade(), pool.lock().spaces[space.id.0 as usize].clone());
    let owned = owned.expect("a thread that reads has its pool");
    let space = space.expect("a file that is read has its records");
    let mut claims = Some(claims);
    let mut take = || claims.take().map_or_else(Vec::new, |claims| claims());
    let late = || {
        let claims = take();
        owned.late.begin(space.backing.key().device, pages_of(&claims));
        let late = Late { pool: owned, space: Arc::clone(&space), claims, access };
        Box::new(move |result| late.end(&result)) as End
    };
    match batch.leave(user, late) {
        Left::Late => true,
        Left::Ended => false,
        Left::Withdrawn => {
            let error = Err(read_timeout(pool, &space));
            for (claim, frame) in take() {
                pool.give_back(frame, claim.order);
                pool.abandon(&space, &claim, &error);
            }
            true
        }
    }
}

/// Reads into a frame, and waits for `limit` at the longest. Returns the claim with what the
/// read has brought.
///
/// # Errors
/// [`Error::Timeout`]; the claim is not the caller's any more.
pub(crate) fn read_in_time(
    pool: &Pool,
    space: &Space,
    (claim, frame): (Claim, u32),
    read: Read,
    access: Access,
    limit: Duration,
) -> Result<(Claim, io::Result<u32>), Error> {
    let mut batch = pool.backend.timed_batch(space.path_ref());
    let mut ended = Vec::with_capacity(1);
    batch.push(read);
    batch.wait_for(1, Some(limit), &mut ended);
    let mut claim = Some(claim);
    if ended.is_empty() {
        let claims = || claim.take().map(|claim| (claim, frame)).into_iter().collect();
        if leave(pool, space, (&mut batch, 0), access, claims) {
            return Err(read_timeout(pool, space));
        }
        batch.wait(1, &mut ended);
    }
    let (claim, ended) = claim.zip(ended.pop()).expect("the read was waited for");
    Ok((claim, ended.result))
}
