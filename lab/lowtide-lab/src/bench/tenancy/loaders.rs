//! Threads that load pages until they are stopped, and their counts.
//!
//! Every load verifies one kilobyte of the page. Counts are read while the threads run, so the
//! measurement does not wait for a thread that a limit makes sleep for seconds.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lowtide::View;
use lowtide_bench::content::{Content, UNIT_BYTES};
use lowtide_bench::error::BenchError;
use lowtide_report::interrupt;
use lowtide_report::threads::{self, Stop, ThreadError};

/// Pages of a read-around window: 128 KiB, aligned, as the kernel's for a mapping.
pub(crate) const WINDOW_PAGES: u64 = 32;
/// Interval at which a measurement checks for its end or an interruption.
const TICK: Duration = Duration::from_millis(20);

/// Counts of one thread, on a separate cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Count {
    ops: AtomicU64,
    misses: AtomicU64,
}

impl Count {
    /// Counts one operation, and the number of its misses.
    pub(crate) fn done(&self, missed: impl Into<u64>) {
        // Only the thread itself writes.
        self.ops.store(self.ops.load(Relaxed) + 1, Relaxed);
        let missed = missed.into();
        if missed > 0 {
            self.misses.store(self.misses.load(Relaxed) + missed, Relaxed);
        }
    }

    /// Operations.
    pub(crate) fn ops(&self) -> u64 {
        self.ops.load(Relaxed)
    }

    /// Misses of these operations.
    pub(crate) fn misses(&self) -> u64 {
        self.misses.load(Relaxed)
    }
}

/// The state that the threads of a run share: the stop flag, and the first error.
#[derive(Debug, Default)]
pub(crate) struct Loaders {
    stop: Stop,
    errors: AtomicU64,
    first_error: Mutex<Option<String>>,
}

impl Loaders {
    /// Whether threads should stop.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.is_requested()
    }

    /// Stops them.
    pub(crate) fn stop(&self) {
        self.stop.request();
    }

    /// Counts a failure, and stops all threads.
    pub(crate) fn fail(&self, error: &dyn std::fmt::Display) {
        self.errors.fetch_add(1, Relaxed);
        self.first_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(|| error.to_string());
        self.stop();
    }

    /// Sleeps for `time` or until the threads are stopped.
    pub(crate) fn pause(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.stopped() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(TICK));
        }
    }

    /// Runs one thread for each of `steps`, which repeats its step until the threads are stopped,
    /// while the caller runs `beside`. The threads are stopped when that returns, or earlier when a
    /// step fails.
    ///
    /// # Errors
    /// Those of [`threads::run`]; a failed step is an error of [`verdict`](Self::verdict).
    pub(crate) fn run<S, E, B>(
        &self,
        steps: impl IntoIterator<Item = S>,
        beside: impl FnOnce() -> B,
    ) -> Result<B, ThreadError>
    where
        S: FnMut() -> Result<(), E> + Send,
        E: std::fmt::Display,
    {
        let works = steps.into_iter().map(|mut step| {
            move || {
                while !self.stopped() {
                    if let Err(error) = step() {
                        self.fail(&error);
                    }
                }
            }
        });
        let beside = || {
            let result = beside();
            self.stop();
            result
        };
        threads::run(&self.stop, works, beside).map(|(result, _)| result)
    }

    /// Runs each of `works` once on its own thread, and returns their results.
    ///
    /// # Errors
    /// Those of [`threads::run`].
    pub(crate) fn once<W, T>(
        &self,
        works: impl IntoIterator<Item = W>,
    ) -> Result<Vec<T>, ThreadError>
    where
        W: FnOnce() -> T + Send,
        T: Send,
    {
        threads::run(&self.stop, works, || ()).map(|((), results)| results)
    }

    /// Waits for a time, and calls `tick` after each second and at the end. Returns early when a
    /// thread has failed.
    pub(crate) fn watch(&self, time: Duration, mut tick: impl FnMut()) {
        let begin = Instant::now();
        let mut next = Duration::from_secs(1);
        while !self.stopped() {
            let passed = begin.elapsed();
            if passed >= time {
                break;
            }
            if passed >= next && time - passed > Duration::from_millis(500) {
                tick();
                next += Duration::from_secs(1);
            }
            std::thread::sleep(
                TICK.min(time - passed)
                    .min(next.saturating_sub(passed).max(Duration::from_millis(1))),
            );
        }
        tick();
    }

    /// The end of a run.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`], and [`BenchError::Wrong`] for errors of threads.
    pub(crate) fn verdict(&self, system: &str) -> Result<(), BenchError> {
        interrupt::check(|| format!("running {system}"))?;
        match self.errors.load(Relaxed) {
            0 => Ok(()),
            errors => Err(BenchError::Wrong {
                system: system.to_owned(),
                errors,
                first: self
                    .first_error
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone()
                    .unwrap_or_else(|| "not described".into()),
            }),
        }
    }
}

/// Pages per request while memory is filled.
const FILL_PAGES: usize = 256;

/// Reads the first `bytes` of a file at the device's speed.
///
/// # Errors
/// [`BenchError::Runtime`], [`BenchError::Interrupted`].
pub(crate) fn fill(view: &View, bytes: u64) -> Result<(), BenchError> {
    let pages: Vec<u64> = (0..(bytes / view.page_size() as u64).min(view.page_count())).collect();
    for chunk in pages.chunks(FILL_PAGES) {
        interrupt::check(|| "filling memory".into())?;
        view.get_many(chunk, |_, _| ())
            .map_err(|source| BenchError::Runtime { action: "fill memory".into(), source })?;
    }
    Ok(())
}

/// Loads a page and verifies a kilobyte of it.
///
/// # Errors
/// lowtide's error as text, or the position of wrong bytes.
pub(crate) fn load(view: &View, page: u64, unit: u64) -> Result<(), String> {
    let bytes = view.page(page).map_err(|error| error.to_string())?;
    check(&bytes, page, unit)
}

/// Like [`load`], but a miss reads the whole window around the page, as the kernel does for a
/// mapping. Returns whether it missed.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_around(view: &View, page: u64, unit: u64) -> Result<bool, String> {
    if view.is_resident(page) {
        return load(view, page, unit).map(|()| false);
    }
    let first = page - page % WINDOW_PAGES;
    let mut pages = [0; WINDOW_PAGES as usize];
    let window = &mut pages[..(view.page_count() - first).min(WINDOW_PAGES) as usize];
    window.iter_mut().zip(first..).for_each(|(at, page)| *at = page);
    let mut found = Ok(());
    view.get_many(window, |index, bytes| {
        if first + index as u64 == page {
            found = check(bytes, page, unit);
        }
    })
    .map_err(|error| error.to_string())?;
    found.map(|()| true)
}

/// Reads `pages` pages at once, as far as the file goes, and verifies the first kilobyte of each.
/// Returns the number of misses.
///
/// # Errors
/// As [`load`].
pub(crate) fn load_many(view: &View, first: u64, pages: u64) -> Result<u64, String> {
    let pages: Vec<u64> = (first..(first + pages).min(view.page_count())).collect();
    let missing = pages.iter().filter(|&&page| !view.is_resident(page)).count();
    let mut found = Ok(());
    view.get_many(&pages, |index, bytes| {
        if found.is_ok() {
            found = check(bytes, pages[index], 0);
        }
    })
    .map_err(|error| error.to_string())?;
    found.map(|()| missing as u64)
}

fn check(bytes: &[u8], page: u64, unit: u64) -> Result<(), String> {
    let (units, _) = bytes.as_chunks::<UNIT_BYTES>();
    let right = units
        .get(unit as usize)
        .is_some_and(|found| Content::Blocks.check(page * units.len() as u64 + unit, found));
    if right {
        Ok(())
    } else {
        Err(format!("page {page} holds wrong bytes in its kilobyte {unit}"))
    }
}
