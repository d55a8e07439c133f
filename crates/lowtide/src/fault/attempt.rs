//! Operations that own pages while they wait: attempts that end, and are repeated.
//!
//! A store, a discard and a change of length own translations while they wait for the guards on
//! them, so that no new guards are taken meanwhile. The thread that has such a guard may want one
//! of these pages itself before it drops the guard: it reads another page of the folio, or flushes,
//! or stores behind the page that it has pinned. Each would wait for the other.
//!
//! So nothing is owned for long. An *attempt* takes all that an operation needs, and waits for a
//! *slice* of time. If that is not enough, it gives everything back as it was: translations, the
//! mark that a file is about to be cut, the locks of the file's length and shape. The threads that
//! waited for any of it are woken and have a pause to go on, and the next attempt begins with
//! nothing.
//!
//! ```text
//!   own ── slice ── give back, pause ── own ──── slice ──── give back, pause ── own ────── slice
//! ```
//!
//! Slices become longer: guards that are dropped after a while, but overlap, are outwaited by one
//! that is long enough. The waits as a whole end with the pager's timeout, for guards, and with
//! its deadline for the device, for pages that are being read or written.
//!
//! One thing is kept between attempts: the announcement of a change, while it waits for nothing but
//! writes on their way (`beneath.rs`). No more of them begin meanwhile, so a block that is always
//! dirty, on a device whose writes take longer than a slice, does not keep the change waiting
//! forever . Those writes need nothing that an attempt owns for long. As soon as anything else is
//! in the way, the announcement is given back, too.
//!
//! What remains: a thread that waits for another's guard does so while *it* has guards. Two threads
//! that each pin a page and store to the other's wait for each other until the patience ends.

use super::nested::is_nested;
use crate::error::Error;
use crate::pool::Pool;
use crate::space::Space;
use crate::space::beneath::Change;
use lowtide_io::{Deadline, FaultSite};
use lowtide_pin::translation::Taken;
use std::ops::Range;
use std::time::Duration;

/// The first slice. Most guards are dropped long before it ends.
const SLICE: Duration = Duration::from_millis(1);
/// The longest one: a thread that pins a page and wants others waits this long for each.
const LONGEST: Duration = Duration::from_millis(256);
/// The shortest pause: as long as a flush needs to look at a page again.
const PAUSE: Duration = Duration::from_millis(2);
/// How often writes on their way are looked at.
const LOOK: Duration = Duration::from_micros(50);
/// A pause is at least this part of the slice before it.
const PART: u32 = 4;

/// Why an attempt has ended without success. Everything that it owned is as it was before.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Another thread has a guard on this page.
    Guarded(u64),
    /// Another thread has this page, or it is being written.
    Busy(u64),
    /// Writes of the block with this page are on their way; no more of them begin.
    Beneath(u64),
    /// There is no point in another attempt.
    Failed(Error),
}

impl Stop {
    /// The readers of a page that was locked did not leave (`outwait_readers`). Where the kernel
    /// refuses the barrier it is unknown which there are, and no attempt will learn it.
    pub(crate) const fn held(page: u64, taken: Taken) -> Self {
        if taken.unfenced { Self::Failed(Error::NoBarrier) } else { Self::Guarded(page) }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The attempts of one operation.
#[derive(Debug)]
pub(crate) struct Attempts<'a> {
    pool: &'a Pool,
    space: &'a Space,
    slice: Duration,
    /// When the slice of the attempt ends; it begins with the first wait.
    ends: Option<Deadline>,
    /// The deadline of waits for guards, once one was met.
    guards: Option<Deadline>,
    /// The deadline of waits for busy pages, once one was met.
    device: Option<Deadline>,
    /// A change that waits for the writes on their way. It stays announced between two attempts.
    announced: Option<Change<'a>>,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(pool: &'a Pool, space: &'a Space) -> Self {
        let (ends, guards, device, announced) = (None, None, None, None);
        Self { pool, space, slice: SLICE, ends, guards, device, announced }
    }

    /// Makes attempts until one succeeds.
    ///
    /// # Errors
    /// The error of an attempt; [`Error::HeldElsewhere`], [`Error::NoBarrier`], [`Error::Nested`]
    /// and [`Error::Timeout`] as the last attempt's stop says.
    pub(crate) fn repeat<T>(
        mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<T, Stop>,
    ) -> Result<T, Error> {
        loop {
            match attempt(&mut self) {
                Ok(done) => return Ok(done),
                Err(stop) => self.again(stop)?,
            }
        }
    }

    /// Whether this attempt may go on to wait for a guard.
    pub(crate) fn outwaits_guard(&mut self) -> bool {
        let guards = *self.guards.get_or_insert_with(|| Deadline::after(self.pool.memory_timeout));
        !is_nested() && !guards.has_passed() && self.has_time()
    }

    /// Whether this attempt may go on to wait for a busy page.
    pub(crate) fn outwaits_owner(&mut self) -> bool {
        !is_nested() && !self.device().has_passed() && self.has_time()
    }

    /// Waits until no write into the blocks of a range is on its way; none begins until the result
    /// is dropped.
    pub(crate) fn alone_beneath(&mut self, bytes: &Range<u64>) -> Result<Change<'a>, Stop> {
        let (space, page) = (self.space, bytes.start >> self.pool.page_shift);
        let announced = self.announced.take().filter(|change| change.is_of(bytes));
        let Some(change) = announced.or_else(|| space.beneath.change(bytes)) else {
            // That one may be waiting for what this attempt owns.
            return Err(Stop::Busy(page));
        };
        while !change.is_alone() {
            if !self.outwaits_owner() {
                self.announced = Some(change);
                return Err(Stop::Beneath(page));
            }
            std::thread::sleep(LOOK);
        }
        Ok(change)
    }

    /// The deadline of this operation for busy pages and for writes.
    fn device(&mut self) -> Deadline {
        *self.device.get_or_insert_with(|| Deadline::after(self.pool.io_timeout))
    }

    fn has_time(&mut self) -> bool {
        !self.ends.get_or_insert_with(|| Deadline::after(self.slice)).has_passed()
    }

    /// An attempt has ended, and this thread owns nothing: lets others go on before the next one.
    ///
    /// # Errors
    /// There is no time, or no hope, for another.
    pub(crate) fn again(&mut self, stop: Stop) -> Result<(), Error> {
        if !matches!(stop, Stop::Beneath(_)) {
            // What is waited for now may itself wait for writes.
            self.announced = None;
        }
        let space = self.space;
        let path = || space.path();
        match stop {
            Stop::Failed(error) => return Err(error),
            Stop::Guarded(page) | Stop::Busy(page) | Stop::Beneath(page) if is_nested() => {
                return Err(Error::Nested { path: path(), page });
            }
            Stop::Guarded(page) if self.guards.is_some_and(Deadline::has_passed) => {
                let waited = self.pool.memory_timeout;
                return Err(Error::HeldElsewhere { path: path(), page, waited });
            }
            Stop::Busy(_) | Stop::Beneath(_) if self.device().has_passed() => {
                self.pool.fault_sites.mark(FaultSite::DeadlinePassed);
                let waited = self.pool.io_timeout;
                let what = "waiting for a page that is being read or written";
                return Err(Error::Timeout { path: path(), waited, what });
            }
            Stop::Guarded(_) | Stop::Busy(_) | Stop::Beneath(_) => {}
        }
        std::thread::sleep(PAUSE.max(self.slice / PART));
        self.slice = (2 * self.slice).min(LONGEST);
        self.ends = None;
        Ok(())
    }
}
