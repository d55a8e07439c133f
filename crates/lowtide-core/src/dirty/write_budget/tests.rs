//! The budget on a model of a device: one queue, served in order, reads behind whatever was
//! submitted before.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// A device and its two users: a flusher that keeps as much in flight as it may, in runs of 1 MiB,
/// and a reader that waits a millisecond between two reads.
struct Model {
    budget: WriteBudget,
    now: u64,
    /// When the device has served all that it has.
    free_at: u64,
    bytes_per_s: u64,
    read_ns: u64,
    /// When each was submitted, and when it will be served.
    in_flight: VecDeque<(u64, u64)>,
    /// The read in flight, submitted and served, or when the next one comes.
    read: Option<(u64, u64)>,
    next_read: u64,
    latencies: Vec<u64>,
    written: u64,
}

impl Model {
    fn new(bytes_per_s: u64, read_ns: u64) -> Self {
        Self {
            budget: WriteBudget::new(0),
            now: 0,
            free_at: 0,
            bytes_per_s,
            read_ns,
            in_flight: VecDeque::new(),
            read: None,
            next_read: 0,
            latencies: Vec::new(),
            written: 0,
        }
    }

    fn serve(&mut self, ns: u64) -> u64 {
        self.free_at = self.free_at.max(self.now) + ns;
        self.free_at
    }

    /// Lets time pass in steps of 50 µs.
    fn run(&mut self, ms: u64, writing: bool, reading: bool) {
        (self.latencies, self.written) = (Vec::new(), 0);
        let end = self.now + ms * MS;
        while self.now < end {
            self.now += MS / 20;
            while let Some((submitted, _)) =
                self.in_flight.pop_front_if(|(_, done)| *done <= self.now)
            {
                self.written += MIB;
                self.budget.write_took(self.now - submitted);
                self.budget.write_done(MIB, self.now);
            }
            if let Some((submitted, _)) = self.read.take_if(|(_, served)| *served <= self.now) {
                let latency = self.now - submitted;
                self.latencies.push(latency);
                self.budget.read_done(latency, self.now);
                self.next_read = self.now + MS;
            }
            let max = self.budget.in_flight_max(self.now);
            assert!((WriteBudget::FLOOR..=64 * MIB).contains(&max), "a budget of {max}");
            assert!(
                self.budget.in_flight_max_waited(self.now) >= max.max(WriteBudget::FLOOR_WAITED)
            );
            while writing && (self.in_flight.len() as u64 + 1) * MIB <= max {
                let done = self.serve(MIB * 1000 * MS / self.bytes_per_s);
                self.in_flight.push_back((self.now, done));
            }
            if reading && self.read.is_none() && self.now >= self.next_read {
                self.read = Some((self.now, self.serve(self.read_ns)));
            }
        }
    }

    fn quartile(&mut self) -> u64 {
        let at = self.latencies.len() / 4;
        *self.latencies.select_nth_unstable(at).1
    }
}

const DEVICES: [(u64, u64); 4] =
    [(100 << 20, 8 * MS), (500 << 20, 150_000), (2 << 30, 80_000), (8 << 30, 60_000)];

#[test]
fn without_reads_the_device_is_busy_for_fifty_milliseconds() {
    for (bytes_per_s, read_ns) in DEVICES {
        let mut model = Model::new(bytes_per_s, read_ns);
        model.run(2_000, true, false);
        model.run(2_000, true, false);
        assert!(model.written >= bytes_per_s * 2 * 98 / 100, "{} of {bytes_per_s}", model.written);
        let (max, busy) = (model.budget.in_flight_max(model.now), bytes_per_s / 20);
        let expected = busy.clamp(4 * MIB, 64 * MIB);
        assert!(max.abs_diff(expected) <= expected / 5, "{max} of {expected}");
    }
}

#[test]
fn reads_do_not_starve_and_neither_do_writes() {
    for (bytes_per_s, read_ns) in DEVICES {
        let mut model = Model::new(bytes_per_s, read_ns);
        model.run(1_000, false, true);
        let unloaded = model.quartile();
        model.run(2_000, true, false);
        // A flood of writes, and then reads.
        model.run(1_000, true, true);
        model.run(4_000, true, true);
        let run_ns = WriteBudget::FLOOR * 1000 * MS / bytes_per_s;
        // At best a read waits for the one run that is the least.
        let bound = model.budget.target_ns().max(unloaded + 2 * run_ns) * 3 / 2;
        let quartile = model.quartile();
        assert!(
            quartile <= bound,
            "{bytes_per_s}: {quartile} ns, unloaded {unloaded}, bound {bound}"
        );
        let left = bytes_per_s * 4 / 4;
        assert!(model.written >= left, "{bytes_per_s}: {} bytes written", model.written);
        // Without the budget, reads would wait for all that keeps the device busy.
        let (max, full) =
            (model.budget.in_flight_max(model.now), (bytes_per_s / 20).clamp(4 * MIB, 64 * MIB));
        assert!(max < full || full == 4 * MIB, "{max} of {full}");
    }
}

#[test]
fn the_budget_comes_back_when_reads_are_over() {
    let mut model = Model::new(2 << 30, 80_000);
    model.run(1_000, false, true);
    model.run(5_000, true, true);
    let squeezed = model.budget.in_flight_max(model.now);
    model.run(1_000, true, false);
    let free = model.budget.in_flight_max(model.now);
    assert!(squeezed < 16 * MIB && free == 64 * MIB, "{squeezed}, then {free}");
}

/// A device that takes any number of writes and needs a second for each: 4 MiB in flight would be 4
/// MiB a second.
#[test]
fn a_long_latency_is_no_small_bandwidth() {
    for informed in [true, false] {
        let (mut budget, mut in_flight, mut written) = (WriteBudget::new(0), VecDeque::new(), 0);
        for now in (0..20_000).map(|ms| ms * MS) {
            while in_flight.pop_front_if(|done| *done <= now).is_some() {
                budget.write_done(MIB, now);
                if informed {
                    budget.write_took(1000 * MS);
                }
                written += MIB;
            }
            while (in_flight.len() as u64 + 1) * MIB <= budget.in_flight_max(now) {
                in_flight.push_back(now + 1000 * MS);
            }
        }
        assert_eq!(written > 800 * MIB, informed, "{} MiB in 20 s", written / MIB);
    }
}

#[test]
fn a_device_that_became_slower_is_learned_without_writes() {
    let mut model = Model::new(1 << 30, 100_000);
    model.run(1_000, false, true);
    assert_eq!(model.budget.target_ns(), FASTEST_TARGET);
    model.read_ns = 5 * MS;
    model.run(10_000, true, true);
    assert_eq!(model.budget.target_ns(), FASTEST_TARGET, "slow reads beside writes are no news");
    model.run(10_000, false, true);
    assert!(model.budget.target_ns() > 18 * MS, "{}", model.budget.target_ns());
}

proptest! {
    #[test]
    fn whatever_happens_the_budget_is_within_bounds(
        events in prop::collection::vec((0..4_u8, any::<u64>(), 0..10_000_000_000_u64), 1..300),
    ) {
        let (mut budget, mut now) = (WriteBudget::new(0), 0);
        for (kind, value, later) in events {
            now += later;
            match kind {
                0 => budget.read_done(value, now),
                1 => budget.write_done(value, now),
                2 => budget.write_took(value),
                _ => {}
            }
            let max = budget.in_flight_max(now);
            prop_assert!((WriteBudget::FLOOR..=64 * MIB).contains(&max));
        }
    }
}
