//! How many bytes of writes may be in flight on a device so that it is busy, and reads do not
//! starve.
//!
//! A device with 64 MiB of writes in its queue is no faster than one with 4, and a read that
//! arrives then waits for all of them. So the driver keeps no more in flight than this budget,
//! which is set once a *window* of 100 ms from what was measured in it:
//!
//! * Reads in the window, and a quarter of them or fewer were served within the *target*: writes
//!   are in their way. Half the budget.
//! * Otherwise the budget grows, in eight windows at most, to what keeps the device busy: what it
//!   writes in 50 ms, or in twice the time that a write takes at best (a disk at the far end of a
//!   network); 4 to 64 MiB.
//!
//! The target is four times the duration of a read without writes, and a millisecond at least. That
//! duration is learned: a window in which reads were faster than ever lowers it at once; only a
//! window without writes can raise it. The lower quartile is used rather than a mean, because a few
//! slow reads say nothing about the queue, and rather than the smallest, because one read that a
//! cache served says nothing either.
//!
//! A run of 1 MiB is the least: below that writes would be cut into pieces and the device would be
//! slow for all. Writes that a thread waits for (a sync) keep at least 4 MiB in flight: a
//! checkpoint has to end, too. This is ours; a kernel leaves it to its I/O scheduler.

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// Length of a window in ns.
const WINDOW: u64 = 100 * MS;
/// How long writes that are in flight should keep the device busy, in ns.
const BUSY: u64 = 50 * MS;
/// What they are at least and at most, in bytes.
const BUSY_BYTES: std::ops::RangeInclusive<u64> = 4 * MIB..=64 * MIB;
/// The target is this many times the latency without writes, and [`FASTEST_TARGET`] at least.
const SLOWER: u64 = 4;
const FASTEST_TARGET: u64 = MS;
/// Reads of a window that are remembered: the last ones.
const READS: usize = 256;

/// The budget of one device. See the module documentation. Times are in nanoseconds
/// since any beginning, and do not go back.
#[derive(Clone, Debug)]
pub struct WriteBudget {
    max: u64,
    window: u64,
    /// Latencies of reads in this window; `seen` counts them.
    reads: Vec<u64>,
    seen: usize,
    /// Bytes written in this window.
    written: u64,
    /// Bytes a second.
    bandwidth: u64,
    /// The duration of a read without writes.
    unloaded: Option<u64>,
    /// What the fastest write took.
    fastest_write: Option<u64>,
}

impl WriteBudget {
    /// Bytes of one run: the least that may be in flight.
    pub const FLOOR: u64 = MIB;
    /// The least for writes that a thread waits for, in bytes.
    pub const FLOOR_WAITED: u64 = 4 * MIB;

    /// The budget of a device before any measurement.
    #[must_use]
    pub const fn new(now: u64) -> Self {
        Self {
            max: *BUSY_BYTES.start(),
            window: now,
            reads: Vec::new(),
            seen: 0,
            written: 0,
            bandwidth: 0,
            unloaded: None,
            fastest_write: None,
        }
    }

    /// A read was served `latency_ns` after it was submitted.
    pub fn read_done(&mut self, latency_ns: u64, now: u64) {
        self.close_windows(now);
        if self.reads.len() < READS {
            self.reads.push(latency_ns);
        } else {
            self.reads[self.seen % READS] = latency_ns;
        }
        self.seen += 1;
    }

    /// Some bytes were written.
    pub fn write_done(&mut self, bytes: u64, now: u64) {
        self.close_windows(now);
        self.written = self.written.saturating_add(bytes);
    }

    /// A write was served `latency_ns` after it was submitted. To be called in addition to
    /// [`WriteBudget::write_done`]; without it a device with a long latency and a deep queue is
    /// taken for a slow one.
    pub fn write_took(&mut self, latency_ns: u64) {
        self.fastest_write =
            Some(self.fastest_write.map_or(latency_ns, |fastest| fastest.min(latency_ns)));
    }

    /// Bytes of writes that may be in flight while no thread waits for them.
    #[must_use]
    pub fn in_flight_max(&mut self, now: u64) -> u64 {
        self.close_windows(now);
        self.max
    }

    /// The same while a thread waits for them.
    #[must_use]
    pub fn in_flight_max_waited(&mut self, now: u64) -> u64 {
        self.in_flight_max(now).max(Self::FLOOR_WAITED)
    }

    /// What a read may take before writes are held back.
    #[must_use]
    pub fn target_ns(&self) -> u64 {
        self.unloaded
            .map_or(FASTEST_TARGET, |latency| latency.saturating_mul(SLOWER))
            .max(FASTEST_TARGET)
    }

    fn close_windows(&mut self, now: u64) {
        let passed = now.saturating_sub(self.window) / WINDOW;
        if passed == 0 {
            return;
        }
        self.window += passed * WINDOW;
        self.close_window();
        // Nothing happened in those that followed.
        (1..passed.min(8)).for_each(|_| self.grow());
    }

    fn close_window(&mut self) {
        let wrote = self.written > 0;
        if wrote {
            // A window may have been idle in part, so what is more is believed sooner than what is
            // less.
            let sample = std::mem::take(&mut self.written).saturating_mul(1000 * MS / WINDOW);
            if sample > self.bandwidth {
                self.bandwidth += (sample - self.bandwidth).div_ceil(2);
            } else {
                self.bandwidth -= (self.bandwidth - sample) / 16;
            }
        }
        let latency = self.quartile();
        self.reads.clear();
        self.seen = 0;
        if latency.is_some_and(|latency| self.slow(latency, wrote)) {
            self.max = (self.max / 2).max(Self::FLOOR);
        } else {
            self.grow();
        }
    }

    /// Whether writes are in the way of reads; learns what reads take without them.
    fn slow(&mut self, latency: u64, wrote: bool) -> bool {
        let unloaded = *self.unloaded.get_or_insert(latency);
        self.unloaded = Some(match latency.checked_sub(unloaded) {
            None => latency,
            Some(more) if !wrote => unloaded + more / 8,
            Some(_) => unloaded,
        });
        wrote && latency > self.target_ns()
    }

    fn quartile(&mut self) -> Option<u64> {
        let at = self.reads.len().checked_sub(1)? / 4;
        Some(*self.reads.select_nth_unstable(at).1)
    }

    fn grow(&mut self) {
        let busy_for =
            self.fastest_write.map_or(BUSY, |fastest| fastest.saturating_mul(2).max(BUSY));
        let bytes = u128::from(self.bandwidth) * u128::from(busy_for) / u128::from(1000 * MS);
        let busy =
            u64::try_from(bytes).unwrap_or(u64::MAX).clamp(*BUSY_BYTES.start(), *BUSY_BYTES.end());
        self.max = (self.max + busy / 8).min(busy);
    }
}

#[cfg(test)]
mod tests;
