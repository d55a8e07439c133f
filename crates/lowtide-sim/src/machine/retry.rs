//! What the retries of faults depend on: how long a fault has no reference to its page, and how
//! long pages stay.
//!
//! ```text
//!   fault    reads, waits ── gives the page up ───── window ─────► looks again
//!   page     inserted ───────────── lifetime ───────────────► evicted
//! ```
//!
//! A fault that looks again misses if its page was evicted in the window. If windows and lifetimes
//! were independent, and its page as old as any, that would be as likely as that a lifetime is
//! shorter than a window: [`RetryTimes::expected_misses`]. They are kept if a client asks for it,
//! as they take 8 bytes a frame.

use hdrhistogram::Histogram;
use lowtide_core::{FolioId, Reclaim};

/// Times of a run, in virtual nanoseconds.
#[derive(Clone, Debug)]
pub struct RetryTimes {
    /// From the moment that a fault gave its page and its lock up until it had a lock again.
    pub window: Histogram<u64>,
    /// From the insertion of a page of a file until it was evicted.
    pub lifetime: Histogram<u64>,
    /// Attempts of the fault that needed most.
    pub most_attempts: u32,
}

impl RetryTimes {
    fn new() -> Self {
        let empty = || Histogram::new_with_max(3_600_000_000_000, 3).expect("the bounds are valid");
        Self { window: empty(), lifetime: empty(), most_attempts: 0 }
    }

    /// How likely it is that a page's lifetime is shorter than a window, both drawn on their own;
    /// 0 if there were no windows, or no evictions.
    #[must_use]
    pub fn expected_misses(&self) -> f64 {
        if self.window.is_empty() || self.lifetime.is_empty() {
            return 0.0;
        }
        let shorter = |window: u64| {
            let below =
                self.lifetime.iter_recorded().take_while(|at| at.value_iterated_to() < window);
            below.map(|at| at.count_since_last_iteration()).sum::<u64>() as f64
        };
        let (mut sum, mut windows) = (0.0, 0);
        for at in self.window.iter_recorded() {
            let count = at.count_since_last_iteration();
            sum += count as f64 * shorter(at.value_iterated_to());
            windows += count;
        }
        sum / windows as f64 / self.lifetime.len() as f64
    }
}

/// The times of a machine, if they are kept, and when each frame was filled.
#[derive(Debug, Default)]
pub struct Retries {
    times: Option<Box<RetryTimes>>,
    inserted: Vec<u64>,
}

impl Retries {
    /// Keeps times from now on; what was kept is forgotten.
    pub fn keep(&mut self) {
        self.times = Some(Box::new(RetryTimes::new()));
    }

    /// What was kept.
    pub fn times(&self) -> Option<RetryTimes> {
        self.times.as_deref().cloned()
    }

    /// A fault that gave its page up looks again after `window` nanoseconds.
    pub(super) fn came_back(&mut self, window: u64) {
        if let Some(times) = &mut self.times {
            times.window.saturating_record(window);
        }
    }

    /// A fault has ended.
    pub(super) fn ended(&mut self, attempts: u32) {
        if let Some(times) = &mut self.times {
            times.most_attempts = times.most_attempts.max(attempts);
        }
    }

    /// A page was inserted.
    pub(super) fn inserted(&mut self, frame: FolioId, now: u64) {
        if self.times.is_none() {
            return;
        }
        if frame.index() >= self.inserted.len() {
            self.inserted.resize(frame.index() + 1, 0);
        }
        self.inserted[frame.index()] = now;
    }

    /// The pages that a reclaim freed are gone.
    pub(super) fn evicted(&mut self, reclaim: &Reclaim, now: u64) {
        let Some(times) = &mut self.times else { return };
        for gone in reclaim.freed() {
            if let Some(&inserted) = self.inserted.get(gone.folio.index()).filter(|&&at| at > 0) {
                times.lifetime.saturating_record(now.saturating_sub(inserted));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Contention, Machine, MachineConfig, MachineStat};
    use super::*;
    use crate::spec::{FaultPath, MachineSpec};
    use lowtide_core::{MemcgId, Policy};
    use std::sync::atomic::AtomicBool;

    #[test]
    fn misses_are_expected_where_windows_are_longer_than_lives() {
        let mut times = RetryTimes::new();
        assert_eq!(times.expected_misses(), 0.0, "nothing is known");
        for ms in [1_u64, 3] {
            times.window.record(ms * 1_000_000).unwrap();
        }
        for ms in [2_u64, 2, 4, 8] {
            times.lifetime.record(ms * 1_000_000).unwrap();
        }
        // Half of the windows are longer than half of the lives.
        assert_eq!(times.expected_misses(), 0.25);
    }

    /// Pages of a file.
    const PAGES: u64 = 512;

    /// Tasks of one process, each of which maps a file, reads it in order and unmaps it, a few
    /// times; with room for `room` pages. `one` file for all, or one each.
    fn storm(
        path: FaultPath,
        device: Option<&str>,
        (tasks, rounds, room, one): (u32, u32, u64, bool),
    ) -> (MachineStat, RetryTimes, Contention) {
        let spec = MachineSpec { cpus: 4, ..MachineSpec::load("laptop").unwrap() };
        let spec = MachineSpec { fault_path: path, readahead: 1 << 20, ..spec };
        let spec = match device {
            Some(device) => spec.on_device(crate::spec::DeviceSpec::preset(device).unwrap()),
            None => spec,
        };
        let config = MachineConfig { spec, policy: Policy::MGLRU, max: Some(room * 4096), seed: 1 };
        let mut m = Machine::new(&config).unwrap();
        let space = m.world().add_address_space(MemcgId::ROOT);
        m.world().retries.keep();
        let mut file = None;
        for _ in 0..tasks {
            let open = {
                let mut world = m.world();
                let old = file.filter(|_| one);
                let new = old.unwrap_or_else(|| match device {
                    Some(_) => world.add_file(PAGES),
                    None => world.add_sparse_file(PAGES),
                });
                file = Some(new);
                world.open(new)
            };
            m.client(async move |ctx| {
                for _ in 0..rounds {
                    let mapping = space.mmap(&ctx, open).await;
                    ctx.access(mapping, 0, PAGES, false).await?;
                    space.munmap(&ctx, mapping).await;
                }
                Ok(())
            });
        }
        m.run(&AtomicBool::new(false), &mut || ()).unwrap();
        let (stat, world) = (m.stat(), m.world());
        assert!(world.rwsems.iter().all(super::super::lock::RwSem::is_free), "{path}");
        let times = world.retries.times().unwrap();
        (stat, times, space.mmap_lock(&world))
    }

    /// D1 to D3, on holes and on a device, with far too little room.
    #[test]
    fn a_fault_ends_at_its_third_attempt_and_misses_only_where_its_page_was_free() {
        for path in FaultPath::ALL {
            for device in [None, Some("nvme"), Some("ramdisk")] {
                let (stat, times, _) = storm(path, device, (24, 3, 600, false));
                let counts = &stat.kernel;
                let (drops, misses) = (counts.retry_mmap_drop, counts.retry_io_miss);
                let what = format!("{path} on {device:?}: {counts:?}");
                assert!(stat.memory.events.pgsteal > 10_000, "{what}");
                assert!(misses <= drops, "{what}");
                assert_eq!(drops > 0, path.retries(), "{what}");
                let most = match path {
                    FaultPath::HoldVma | FaultPath::Hold => 1,
                    _ => 3,
                };
                assert!(times.most_attempts <= most, "{what} {}", times.most_attempts);
                if path.keeps_page() || !path.retries() {
                    assert_eq!(misses, 0, "{what}");
                }
            }
        }
    }

    /// D3: nothing is evicted, so nothing is missed; and each file is read once.
    #[test]
    fn a_single_task_with_room_for_all_misses_nothing() {
        for path in FaultPath::ALL {
            let (stat, ..) = storm(path, Some("nvme"), (1, 5, 4 * PAGES, false));
            let counts = &stat.kernel;
            assert_eq!(counts.retry_io_miss, 0, "{path}");
            assert_eq!(counts.missing + counts.readahead, PAGES, "{path}: {counts:?}");
            assert_eq!(counts.retry_mmap_drop > 0, path.retries(), "{path}: {counts:?}");
        }
    }

    /// A9.2: whoever waits for a page gives a lock up, and D7: one of them reads it.
    #[test]
    fn tasks_that_fault_on_one_page_read_it_once_and_each_gives_a_lock_up() {
        for path in FaultPath::ALL {
            // The window is the file: there is one command, and one wait for each task.
            let (stat, ..) = storm(path, Some("hdd"), (4, 1, 4 * PAGES, true));
            let counts = &stat.kernel;
            assert_eq!(counts.missing + counts.readahead, PAGES, "{path}: {counts:?}");
            assert_eq!(stat.memory.events.pgmajfault, counts.major, "{path}");
            let drops = stat.kernel.retry_mmap_drop;
            assert_eq!(drops >= 4, path.retries(), "{path}: {drops}");
        }
    }

    /// A1, A9.4: which lock the second attempt takes.
    #[test]
    fn only_the_kernels_fault_needs_the_mmap_lock_for_its_second_attempt() {
        for path in FaultPath::ALL {
            let (stat, _, mmap_lock) = storm(path, Some("nvme"), (1, 5, 4 * PAGES, false));
            // Five times mapped, five times unmapped.
            let reading = mmap_lock.acquired - 10;
            let drops = stat.kernel.retry_mmap_drop;
            let expected = if path == FaultPath::MmapLockRetry { drops } else { 0 };
            assert_eq!(reading, expected, "{path}");
        }
    }
}
