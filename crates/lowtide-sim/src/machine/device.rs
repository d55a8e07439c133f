//! Block devices: a number of commands served at once, each for a time drawn from a distribution,
//! over a shared link.
//!
//! ```text
//!   submit ──► slot free? ──► service time ──┐
//!              (queue depth)                 ├──► later of the two: completed
//!                         link free? ──► transfer at the bandwidth of the direction
//! ```
//!
//! The completion time of a command is known when it is submitted, because slots and link are given
//! out in the order of submission. The service time is the median times a factor from a table of
//! the lognormal distribution's quantiles, in integers: floating-point functions differ between
//! machines. A head that has to move costs a seek for every command that does not continue the one
//! before.

use super::sched::TaskId;
use crate::spec::DeviceSpec;
use lowtide_core::{DeviceId, Engine};
use lowtide_workload::SplitMix64;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// `exp(z * sigma)` in thousandths, `z` and `sigma` in thousandths: 2 to the power of `z * sigma /
/// ln 2` in steps of 1/1024.
const fn lognormal_milli(z_milli: i64, sigma_milli: i64) -> u64 {
    let exponent = z_milli * sigma_milli * 1477 / 1_000_000;
    let (whole, part) = (exponent.div_euclid(1024), exponent.rem_euclid(1024));
    // 2^p is 1 + 0.6565 p + 0.3435 p^2 for p in 0..1: exact at both ends, within 0.3 % between.
    let mantissa = (1 << 20) + 672 * part + 352 * part * part / 1024;
    let power = if whole >= 0 {
        mantissa << (if whole < 20 { whole } else { 20 })
    } else {
        mantissa >> (if whole > -20 { -whole } else { 20 })
    };
    ((power * 1000) >> 20) as u64
}

/// Quantiles of the normal distribution at `1/2 + (i + 1/2) / 128`, in thousandths: its upper half.
const QUANTILES: [i64; 64] = [
    10, 29, 49, 69, 88, 108, 128, 147, 167, 187, 207, 227, 247, 268, 288, 308, 329, 350, 371, 392,
    413, 434, 456, 478, 500, 522, 545, 568, 591, 614, 638, 662, 687, 712, 737, 763, 790, 817, 844,
    873, 902, 932, 962, 994, 1026, 1060, 1095, 1132, 1170, 1209, 1251, 1295, 1342, 1392, 1445,
    1503, 1567, 1637, 1717, 1810, 1921, 2064, 2266, 2660,
];

/// What a device did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounts {
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Nanoseconds in which at least one command was in flight.
    pub busy_ns: u64,
    /// Commands that failed (by injection).
    pub errors: u64,
}

/// Which way data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Read,
    Write,
    Flush,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Device {
    pub spec: DeviceSpec,
    rng: SplitMix64,
    slots: BinaryHeap<Reverse<u64>>,
    link_free: u64,
    busy_until: u64,
    /// Byte after the last command's last.
    head: u64,
    /// A factor on the time of every command.
    pub slow: u64,
    pub counts: DeviceCounts,
}

impl Device {
    pub fn new(spec: DeviceSpec, seed: u64) -> Self {
        let slots = (0..spec.queue_depth).map(|_| Reverse(0)).collect();
        let rng = SplitMix64::new(seed);
        Self {
            spec,
            rng,
            slots,
            link_free: 0,
            busy_until: 0,
            head: 0,
            slow: 1,
            counts: DeviceCounts::default(),
        }
    }

    fn service_ns(&mut self, median: u64) -> u64 {
        let sigma = (self.spec.spread * 1000.0) as i64;
        if sigma == 0 {
            return median;
        }
        let draw = self.rng.below(2 * QUANTILES.len() as u64);
        let z = QUANTILES[(draw / 2) as usize];
        median * lognormal_milli(if draw.is_multiple_of(2) { z } else { -z }, sigma) / 1000
    }

    /// Submits a command at `now`. Returns when it completes. `position` is its first byte on the
    /// device.
    pub fn submit(&mut self, now: u64, direction: Direction, position: u64, bytes: u64) -> u64 {
        let Reverse(slot) = self.slots.pop().expect("a device has at least one slot");
        let start = now.max(slot);
        let (median, bandwidth) = match direction {
            Direction::Read => (self.spec.read_ns, self.spec.read_bandwidth),
            Direction::Write => (self.spec.write_ns, self.spec.write_bandwidth),
            Direction::Flush => (self.spec.flush_ns, self.spec.write_bandwidth),
        };
        let mut service = self.service_ns(median);
        if direction != Direction::Flush && position != self.head {
            service += self.service_ns(self.spec.seek_ns);
        }
        let transfer = (u128::from(bytes) * 1_000_000_000 / u128::from(bandwidth)) as u64;
        let (service, transfer) = (service * self.slow, transfer * self.slow);
        // The link is used in the order of submission, but not before a command has a slot.
        self.link_free = self.link_free.max(start) + transfer;
        let done = (start + service + transfer).max(self.link_free);
        self.slots.push(Reverse(done));
        self.counts.busy_ns += done.saturating_sub(self.busy_until.max(now));
        self.busy_until = self.busy_until.max(done);
        match direction {
            Direction::Read => {
                self.counts.reads += 1;
                self.counts.read_bytes += bytes;
            }
            Direction::Write => {
                self.counts.writes += 1;
                self.counts.write_bytes += bytes;
            }
            Direction::Flush => {}
        }
        if direction != Direction::Flush {
            self.head = position + bytes;
        }
        done
    }
}
/// The machine's device as what writes go to.
#[derive(Debug)]
pub struct Writeback {
    pub(super) device: DeviceId,
    pub(super) flusher: Option<TaskId>,
    /// The flusher sleeps until it is woken.
    pub(super) asleep: bool,
    pub(super) writes_in_flight: u32,
    pub(super) room_waiters: Vec<TaskId>,
}

impl Writeback {
    /// A device that nothing is written to yet.
    pub fn new(engine: &mut Engine) -> Self {
        Self {
            device: engine.add_device(0),
            flusher: None,
            asleep: false,
            writes_in_flight: 0,
            room_waiters: Vec::new(),
        }
    }

    /// Sets the task that writes to it.
    pub const fn has_flusher(&mut self, flusher: TaskId) {
        self.flusher = Some(flusher);
    }

    /// A write command has completed.
    pub const fn ended(&mut self) {
        self.writes_in_flight -= 1;
    }

    /// The tasks that wait for a write command to complete.
    pub fn take_room_waiters(&mut self) -> Vec<TaskId> {
        std::mem::take(&mut self.room_waiters)
    }
}
