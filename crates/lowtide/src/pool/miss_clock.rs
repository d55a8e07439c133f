//! Where the time of a miss goes, measured on request.
//!
//! ```text
//!   a miss of one page, in its own thread
//!   |── allocate ─────────────────────────|── read ──|── publish ──|
//!     wait for the lock, charge, (reclaim),            translation,
//!     frame, insertion                                 copy to a map
//! ```
//!
//! Beside that, of all threads: for how long the pool's lock is held (`pool_lock.rs`), and for how
//! long the engine works under it. A miss by itself submits its read and waits for it in one call
//! of the kernel, so these two are one part.
//!
//! Each part costs a look at the clock, which is part of what is measured. While nothing is
//! measured, a part costs a load.

use super::lock::{LockClock, LockTimes, nanos_since};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Times of the misses that were measured. See
/// [`Pager::miss_times`](crate::Pager::miss_times).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct MissTimes {
    /// Pages that were brought in, by calls for one page and for many, and ahead of use.
    pub misses: u64,
    /// Misses of one page, in the thread that needed it. The next three are theirs.
    pub single: u64,
    /// Nanoseconds until they had a frame: the wait for the lock, the charge with its reclaim, the
    /// insertion.
    pub allocate_ns: u64,
    /// Nanoseconds of their reads, from the request to its end.
    pub read_ns: u64,
    /// Nanoseconds from there until other threads could use the page.
    pub publish_ns: u64,
    /// The lock that all threads share, at all times that it was taken.
    pub lock: LockTimes,
    /// Nanoseconds that the engine took under that lock: charges, insertions, steps of reclaim with
    /// their looks at translations.
    pub engine_ns: u64,
}

impl MissTimes {
    /// The times measured since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            misses: self.misses - before.misses,
            single: self.single - before.single,
            allocate_ns: self.allocate_ns - before.allocate_ns,
            read_ns: self.read_ns - before.read_ns,
            publish_ns: self.publish_ns - before.publish_ns,
            lock: LockTimes {
                acquired: self.lock.acquired - before.lock.acquired,
                held_ns: self.lock.held_ns - before.lock.held_ns,
                waited_ns: self.lock.waited_ns - before.lock.waited_ns,
            },
            engine_ns: self.engine_ns - before.engine_ns,
        }
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct MissClock {
    is_on: AtomicBool,
    pub(crate) lock: LockClock,
    misses: AtomicU64,
    single: AtomicU64,
    allocate_ns: AtomicU64,
    read_ns: AtomicU64,
    publish_ns: AtomicU64,
    engine_ns: AtomicU64,
}

impl MissClock {
    /// From now on misses are measured, or not.
    pub(crate) fn set(&self, on: bool) {
        self.is_on.store(on, Relaxed);
        self.lock.set(on);
    }

    pub(crate) fn times(&self) -> MissTimes {
        MissTimes {
            misses: self.misses.load(Relaxed),
            single: self.single.load(Relaxed),
            allocate_ns: self.allocate_ns.load(Relaxed),
            read_ns: self.read_ns.load(Relaxed),
            publish_ns: self.publish_ns.load(Relaxed),
            lock: self.lock.times(),
            engine_ns: self.engine_ns.load(Relaxed),
        }
    }

    fn now(&self) -> Option<Instant> {
        self.is_on.load(Relaxed).then(Instant::now)
    }

    /// Pages have come in together.
    pub(crate) fn note_misses(&self, pages: u64) {
        if self.is_on.load(Relaxed) {
            self.misses.fetch_add(pages, Relaxed);
        }
    }

    /// A miss of one page begins.
    pub(crate) fn begin(&self) -> Laps<'_> {
        Laps { clock: self, since: self.now() }
    }

    /// Does what the engine does under the lock.
    pub(crate) fn engine<R>(&self, work: impl FnOnce() -> R) -> R {
        if !self.lock.is_inside() {
            return work();
        }
        let since = Instant::now();
        let result = work();
        // One acquisition of two is looked into.
        self.engine_ns.fetch_add(2 * nanos_since(since), Relaxed);
        result
    }
}

/// The parts of one miss, one behind the other.
pub(crate) struct Laps<'a> {
    clock: &'a MissClock,
    /// When the part began, if it is measured.
    since: Option<Instant>,
}

impl Laps<'_> {
    /// There is a frame.
    pub(crate) fn allocated(&mut self) {
        self.lap(|clock| &clock.allocate_ns);
    }

    /// The read has ended.
    pub(crate) fn read(&mut self) {
        self.lap(|clock| &clock.read_ns);
    }

    /// The page is there, for all threads.
    pub(crate) fn published(mut self, pages: u64) {
        if self.since.is_some() {
            self.clock.misses.fetch_add(pages, Relaxed);
            self.clock.single.fetch_add(1, Relaxed);
            self.lap(|clock| &clock.publish_ns);
        }
    }

    fn lap(&mut self, part: impl FnOnce(&MissClock) -> &AtomicU64) {
        if let Some(since) = self.since {
            let now = Instant::now();
            let took = u64::try_from((now - since).as_nanos()).unwrap_or(u64::MAX);
            part(self.clock).fetch_add(took, Relaxed);
            self.since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::lock::TimedGuard;
    use std::time::Duration;

    const NAP: Duration = Duration::from_millis(5);

    #[test]
    fn each_part_is_counted_where_it_is_requested_and_nothing_otherwise() {
        let clock = MissClock::default();
        let miss = |clock: &MissClock| {
            let mut laps = clock.begin();
            std::thread::sleep(NAP);
            laps.allocated();
            std::thread::sleep(2 * NAP);
            laps.read();
            laps.published(4);
        };
        miss(&clock);
        clock.note_misses(3);
        assert_eq!(clock.engine(|| 7), 7);
        assert_eq!(clock.times(), MissTimes::default(), "it was not requested");
        clock.set(true);
        miss(&clock);
        let before = clock.times();
        assert_eq!((before.misses, before.single), (4, 1));
        assert!(before.allocate_ns >= 5_000_000 && before.read_ns >= 10_000_000, "{before:?}");
        clock.note_misses(3);
        let mutex = std::sync::Mutex::new(());
        for _ in 0..20 {
            let _guard = TimedGuard::lock(&mutex, &clock.lock);
            clock.engine(|| std::thread::sleep(NAP));
        }
        let since = clock.times().since(&before);
        assert_eq!((since.misses, since.single, since.read_ns), (3, 0, 0));
        let half = 40_000_000..400_000_000;
        assert!(half.contains(&since.engine_ns), "{since:?}");
    }
}
