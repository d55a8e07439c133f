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
//! own ── slice ── give back, pause ── own ──── slice ──── give back, pause ── own ─────── slice …
//! ```
//!
//! Slices become longer: guards that are dropped after a while, but overlap, are outwaited by one
//! that is long enough. The waits as a whole end with the pager's patience, for guards, and with
//! its deadline for the device, for pages that are being read or written.
//!
//! What remains: a thread that waits for another's guard does so while *it* has guards. Two threads
//! that each pin a page and store to the other's wait for each other until the patience ends.

use crate::beneath::Change;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::fault_sites::FaultSite;
use crate::hazard;
use crate::nested::is_nested;
use crate::pool::Pool;
use crate::space::Space;
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
    InHand(u64),
    /// There is no point in another attempt.
    Failed(Error),
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
    /// Until when guards are waited for, once one was met.
    guards: Option<Deadline>,
    /// Until when pages in hand are waited for, once one was met.
    device: Option<Deadline>,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(pool: &'a Pool, space: &'a Space) -> Self {
        Self { pool, space, slice: SLICE, ends: None, guards: None, device: None }
    }

    /// Makes attempts until one succeeds.
    ///
    /// # Errors
    /// That of an attempt; [`Error::HeldElsewhere`], [`Error::NoBarrier`], [`Error::Nested`] and
    /// [`Error::Timeout`] as the last attempt's stop says.
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
        let guards = *self.guards.get_or_insert_with(|| Deadline::after(self.pool.patience));
        !is_nested() && !guards.has_passed() && self.has_time()
    }

    /// Whether this attempt may go on to wait for a page in hand.
    pub(crate) fn outwaits_owner(&mut self) -> bool {
        let device = *self.device.get_or_insert_with(|| Deadline::after(self.pool.io_deadline));
        !is_nested() && !device.has_passed() && self.has_time()
    }

    /// Waits until no direct write into the blocks of a range is on its way; none begins until the
    /// result is dropped.
    pub(crate) fn alone_beneath(&mut self, bytes: &Range<u64>) -> Result<Change<'a>, Stop> {
        let space = self.space;
        let mut announced = None;
        loop {
            if announced.is_none() {
                announced = space.beneath.change(bytes);
            }
            match announced.take_if(|change| change.is_alone()) {
                Some(change) => return Ok(change),
                None if !self.outwaits_owner() => {
                    return Err(Stop::InHand(bytes.start >> self.pool.page_shift));
                }
                None => std::thread::sleep(LOOK),
            }
        }
    }

    fn has_time(&mut self) -> bool {
        !self.ends.get_or_insert_with(|| Deadline::after(self.slice)).has_passed()
    }

    /// An attempt has ended, and this thread owns nothing: lets others go on before the next one.
    ///
    /// # Errors
    /// There is no time, or no hope, for another.
    pub(crate) fn again(&mut self, stop: Stop) -> Result<(), Error> {
        let passed = |deadline: Option<Deadline>| deadline.is_some_and(Deadline::has_passed);
        let path = || self.space.path();
        match stop {
            Stop::Failed(error) => return Err(error),
            Stop::Guarded(_) if hazard::is_refused() => return Err(Error::NoBarrier),
            Stop::Guarded(page) | Stop::InHand(page) if is_nested() => {
                return Err(Error::Nested { path: path(), page });
            }
            Stop::Guarded(page) if passed(self.guards) => {
                let seconds = self.pool.patience.as_secs();
                return Err(Error::HeldElsewhere { path: path(), page, seconds });
            }
            Stop::InHand(_) if passed(self.device) => {
                self.pool.fault_sites.mark(FaultSite::DeadlinePassed);
                let seconds = self.pool.io_deadline.as_secs_f64();
                let what = "waiting for a page that is being read or written";
                return Err(Error::Timeout { path: path(), seconds, what });
            }
            Stop::Guarded(_) | Stop::InHand(_) => {}
        }
        std::thread::sleep(PAUSE.max(self.slice / PART));
        self.slice = (2 * self.slice).min(LONGEST);
        self.ends = None;
        Ok(())
    }
}
