//! Waiting for a page that another thread reads in, evicts or stores to.
//!
//! There is no lock in a translation entry, only a bit that says "a thread waits". A thread that
//! waits registers a *waiter* for the entry under the lock of the entry's bucket, and sets that bit
//! there. The thread that changes the entry sees the bit in the value that it replaced, takes the
//! waiter out under the same lock and completes it with a result. So a wake-up cannot be lost, an
//! entry without waiters costs its owner nothing, and an I/O error reaches every thread that waited
//! for the read.

use crate::error::Error;
use lowtide_pin::translation::{Entry, State};
use std::sync::{Arc, OnceLock};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

const BUCKETS: usize = 64;
/// Time between two checks whether waiting still makes sense.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
struct Waiter {
    result: OnceLock<Result<(), Error>>,
}

#[derive(Debug, Default)]
struct Bucket {
    waiters: Mutex<Vec<(usize, Arc<Waiter>)>>,
    completed: Condvar,
}

/// All threads that wait for an entry of a pager.
#[derive(Debug)]
pub(crate) struct WaitTable {
    buckets: Box<[Bucket]>,
}

impl WaitTable {
    pub(crate) fn new() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| Bucket::default()).collect() }
    }

    fn bucket(&self, entry: &Entry) -> &Bucket {
        // Entries are four bytes apart.
        &self.buckets[(entry.address() >> 2).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58]
    }

    /// Waits until the owner of a busy or locked entry is done with it. Returns at once if the
    /// entry is no longer in the state that was seen: what the caller may hold while it waits
    /// depends on that state.
    ///
    /// # Errors
    /// The error of the read that was waited for; that of `check`, which is called from time to
    /// time, and about `within` from now if that is soon.
    pub(crate) fn wait(
        &self,
        entry: &Entry,
        seen: State,
        within: Option<Duration>,
        check: impl Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        check()?;
        let bucket = self.bucket(entry);
        let mut waiters = lowtide_pin::sync::lock(&bucket.waiters);
        if !entry.set_waiters(seen) {
            return Ok(());
        }
        let addr = entry.address();
        let waiter = match waiters.iter().find(|(a, _)| *a == addr) {
            Some((_, waiter)) => Arc::clone(waiter),
            None => {
                let waiter = Arc::new(Waiter::default());
                waiters.push((addr, Arc::clone(&waiter)));
                waiter
            }
        };
        loop {
            if let Some(result) = waiter.result.get() {
                return result.clone();
            }
            (waiters, _) = bucket
                .completed
                .wait_timeout(waiters, within.map_or(LOOK, |within| within.min(LOOK)))
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            check()?;
        }
    }

    /// Wakes all threads that wait for an entry. Call after the entry was changed from a value with
    /// the waiters bit. A thread that began to wait for the entry's next owner in between is woken,
    /// too, and has to look again: so the result must be `Ok`.
    pub(crate) fn complete(&self, entry: &Entry, result: &Result<(), Error>) {
        self.end(entry, || true, result);
    }

    /// Ends an owned state of an entry and wakes the threads that waited for that, and no others.
    /// `change` returns whether there are any.
    pub(crate) fn end(
        &self,
        entry: &Entry,
        change: impl FnOnce() -> bool,
        result: &Result<(), Error>,
    ) {
        let bucket = self.bucket(entry);
        let mut waiters = lowtide_pin::sync::lock(&bucket.waiters);
        if change()
            && let Some(at) = waiters.iter().position(|(a, _)| *a == entry.address())
        {
            let (_, waiter) = waiters.swap_remove(at);
            let first = waiter.result.set(result.clone()).is_ok();
            assert!(first, "two results for the threads that waited for one read");
            bucket.completed.notify_all();
        }
    }
}
