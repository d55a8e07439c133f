//! How many bytes of writes may be in flight on a device so that reads do not starve.

/// The budget of one device. Time is in nanoseconds. See the module documentation.
#[derive(Clone, Debug)]
pub struct WriteBudget {
    max: u64,
}

impl WriteBudget {
    /// Bytes of one run: no budget is smaller.
    pub const FLOOR: u64 = 1 << 20;

    /// A device about which nothing is known.
    #[must_use]
    pub const fn new(_now: u64) -> Self {
        Self { max: 4 << 20 }
    }

    /// A read was served.
    pub fn read_done(&mut self, latency_ns: u64, now: u64) {
        let _ = (latency_ns, now);
    }

    /// A write was served.
    pub fn write_done(&mut self, bytes: u64, now: u64) {
        let _ = (bytes, now);
    }

    /// Bytes of background writes that may be in flight.
    #[must_use]
    pub fn in_flight_max(&mut self, now: u64) -> u64 {
        let _ = now;
        self.max
    }

    /// The same for writes that somebody waits for: never less than for background writes.
    #[must_use]
    pub fn in_flight_max_waited(&mut self, now: u64) -> u64 {
        let _ = now;
        self.max.max(8 << 20)
    }
}
