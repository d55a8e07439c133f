//! What can be simulated: the range of every value, and how values must fit each other.
//!
//! A range is one [`Limit`], used twice: where a file is read, and where a finished description is
//! checked. Its two reasons say what would go wrong on either side.

use lowtide_core::Size;

use super::device::DeviceSpec;
use super::error::BadValue;
use super::machine::{MachineSpec, SwapKind, SwapSpec};
use super::number::Whole;

/// What a number counts: how it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Things.
    Count,
    /// Nanoseconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
}

/// The range of one value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// The key, with its table.
    pub(crate) key: &'static str,
    /// The least that is accepted.
    pub(crate) least: u64,
    /// The most that is accepted.
    pub(crate) most: u64,
    /// What it counts.
    pub(crate) unit: Unit,
    /// Why not less.
    pub(crate) below: &'static str,
    /// Why not more.
    pub(crate) above: &'static str,
}

impl Limit {
    /// The value, if it is in range.
    ///
    /// # Errors
    /// [`BadValue`] otherwise.
    pub(crate) fn check(&self, value: i128) -> Result<u64, BadValue> {
        match u64::try_from(value) {
            Ok(value) if value < self.least => Err(self.refuse(value.into(), self.below)),
            Ok(value) if value > self.most => Err(self.refuse(value.into(), self.above)),
            Ok(value) => Ok(value),
            Err(_) => Err(self.refuse(value, if value < 0 { self.below } else { self.above })),
        }
    }

    /// The value of a file if it has one, and otherwise the base's.
    ///
    /// # Errors
    /// [`BadValue`] for a value that is out of range.
    pub(crate) fn take<N, T>(&self, given: Option<N>, base: T) -> Result<T, BadValue>
    where
        N: Into<Whole>,
        T: TryFrom<u64>,
    {
        given.map_or(Ok(base), |given| self.need(given))
    }

    /// The value of a file, as the type that the description has for it.
    ///
    /// # Errors
    /// [`BadValue`] for a value that is out of range.
    pub(super) fn need<N, T>(&self, given: N) -> Result<T, BadValue>
    where
        N: Into<Whole>,
        T: TryFrom<u64>,
    {
        let value = self.check(given.into().0)?;
        T::try_from(value).map_err(|_| self.refuse(value.into(), self.above))
    }

    /// What is said when the key is missing.
    pub(super) fn missing(&self, reason: &str) -> BadValue {
        BadValue { key: self.key.into(), value: None, reason: reason.into(), write: self.range() }
    }

    fn refuse(&self, value: i128, reason: &str) -> BadValue {
        BadValue {
            key: self.key.into(),
            value: Some(match self.unit {
                Unit::Bytes | Unit::BytesPerSecond => size(value),
                Unit::Count | Unit::Nanoseconds => value.to_string(),
            }),
            reason: reason.into(),
            write: self.range(),
        }
    }

    fn range(&self) -> String {
        let (least, most) = (self.least, self.most);
        match self.unit {
            Unit::Count => format!("a whole number from {least} to {most}"),
            Unit::Nanoseconds => format!("nanoseconds from {least} to {most}"),
            Unit::Bytes => format!("a size from {} to {}", Size::new(least), Size::new(most)),
            Unit::BytesPerSecond => {
                format!("a size for each second from {} to {}", Size::new(least), Size::new(most))
            }
        }
    }
}

/// A size in a message, as one writes it in a file: quoted if it has a unit.
fn size(bytes: i128) -> String {
    let Ok(number) = u64::try_from(bytes) else { return bytes.to_string() };
    let text = Size::new(number).to_string();
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text } else { format!("\"{text}\"") }
}

/// The least pages that a machine can run in.
const PAGES_LEAST: u64 = 64;
/// The most: the engine numbers frames in 32 bits, and keeps some numbers for itself.
const PAGES_MOST: u64 = (1 << 32) - (1 << 16);
/// The most swap, as a multiple of memory.
const SWAP_TIMES: u64 = 64;

pub(super) const CPUS: Limit = Limit {
    key: "cpus",
    least: 1,
    most: 4096,
    unit: Unit::Count,
    below: "a machine without a CPU runs nothing",
    above: "no machine of today has that many, and each is simulated",
};
pub(super) const MEMORY: Limit = Limit {
    key: "memory",
    least: PAGES_LEAST * 512,
    most: 16 << 40,
    unit: Unit::Bytes,
    below: "a machine needs some memory to run in",
    above: "every page is simulated, and that many take more memory than the machine that this \
        runs on will have",
};
pub(super) const PAGE: Limit = Limit {
    key: "page",
    least: 512,
    most: 64 << 10,
    unit: Unit::Bytes,
    below: "the engine's base pages have at least 512 bytes",
    above: "the engine's base pages have at most 64K",
};
pub(super) const HZ: Limit = Limit {
    key: "hz",
    least: 1,
    most: 10_000,
    unit: Unit::Count,
    below: "without a scheduler tick no time slice ends",
    above: "a tick of less than 100 µs would be all that the CPUs do",
};
pub(super) const TIMESLICE: Limit = Limit {
    key: "timeslice_ns",
    least: 1_000,
    most: 10_000_000_000,
    unit: Unit::Nanoseconds,
    below: "changing tasks takes longer than that",
    above: "no scheduler lets a task run so long while others wait",
};
pub(super) const READAHEAD: Limit = Limit {
    key: "readahead",
    least: 0,
    most: 16 << 20,
    unit: Unit::Bytes,
    below: "a window has a size; 0 is none",
    above: "larger windows than 16M are no read-ahead of a page cache",
};
pub(super) const FAULT_AROUND: Limit = Limit {
    key: "fault_around",
    least: 0,
    most: 2 << 20,
    unit: Unit::Bytes,
    below: "a window has a size; 0 is none",
    above: "a fault maps what one page table reaches, 2M",
};
pub(super) const KERNEL: Limit = Limit {
    key: "kernel",
    least: 0,
    most: 16 << 40,
    unit: Unit::Bytes,
    below: "the kernel takes memory and brings none",
    above: "that is more memory than can be simulated",
};
pub(super) const SWAP_SIZE: Limit = Limit {
    key: "swap.size",
    least: 64 << 10,
    most: 16 << 40,
    unit: Unit::Bytes,
    below: "that has no pages to speak of; `swap = \"none\"` is no swap",
    above: "every slot is simulated",
};
pub(super) const COMPRESSED_PERCENT: Limit = Limit {
    key: "swap.compressed_percent",
    least: 1,
    most: 100,
    unit: Unit::Count,
    below: "something of a page is always left; pages of zeros are a matter of the workload",
    above: "a page that does not shrink is kept as it is",
};
pub(super) const QUEUE_DEPTH: Limit = Limit {
    key: "device.queue_depth",
    least: 1,
    most: 65_536,
    unit: Unit::Count,
    below: "a device that serves no command never answers",
    above: "no device has that many commands",
};
pub(super) const OPTIMAL_IO: Limit = Limit {
    key: "device.optimal_io",
    least: 0,
    most: READAHEAD.most / 2,
    unit: Unit::Bytes,
    below: "a transfer has a size; 0 is unknown",
    above: "twice as much is read ahead, and larger windows than 16M are no read-ahead",
};
pub(super) const READ_BANDWIDTH: Limit = bandwidth("device.read_bandwidth");
pub(super) const WRITE_BANDWIDTH: Limit = bandwidth("device.write_bandwidth");
pub(super) const READ: Limit = latency("device.read_ns");
pub(super) const WRITE: Limit = latency("device.write_ns");
pub(super) const SEEK: Limit = latency("device.seek_ns");
pub(super) const FLUSH: Limit = latency("device.flush_ns");

const fn bandwidth(key: &'static str) -> Limit {
    Limit {
        key,
        least: 1 << 10,
        most: 16 << 40,
        unit: Unit::BytesPerSecond,
        below: "nothing would ever arrive",
        above: "no memory is so fast, let alone a device",
    }
}

const fn latency(key: &'static str) -> Limit {
    Limit {
        key,
        least: 0,
        most: 100_000_000_000,
        unit: Unit::Nanoseconds,
        below: "no device answers before the request",
        above: "a device that takes longer than 100 s counts as dead",
    }
}

/// The largest spread: at 2, one command in a hundred takes a hundred times the median.
const SPREAD_MOST: f64 = 2.0;

/// Checks a whole machine.
///
/// # Errors
/// [`BadValue`] for the first value that cannot be, or does not fit the others.
pub(super) fn check_machine(machine: &MachineSpec) -> Result<(), BadValue> {
    check_label("name", &machine.name, 1)?;
    check_label("about", &machine.about, 0)?;
    CPUS.check(machine.cpus.into())?;
    MEMORY.check(machine.memory.into())?;
    HZ.check(machine.hz.into())?;
    TIMESLICE.check(machine.timeslice_ns.into())?;
    PAGE.check(machine.page.into())?;
    let page = machine.page;
    if !page.is_power_of_two() {
        return Err(BadValue {
            write: "a power of two from 512 to 64K".into(),
            ..PAGE.refuse(page.into(), "addresses are split into page and offset by bits")
        });
    }
    check_pages(machine)?;
    READAHEAD.check(machine.readahead.into())?;
    if !machine.readahead.is_multiple_of(page) {
        return Err(BadValue {
            write: format!("0 or a multiple of the page, {}", Size::new(page)),
            ..READAHEAD.refuse(machine.readahead.into(), "whole pages are read")
        });
    }
    FAULT_AROUND.check(machine.fault_around.into())?;
    if machine.fault_around != 0
        && (machine.fault_around < page || !machine.fault_around.is_power_of_two())
    {
        return Err(BadValue {
            write: format!("0, or a power of two from the page ({}) to 2M", Size::new(page)),
            ..FAULT_AROUND
                .refuse(machine.fault_around.into(), "the window is aligned to its own size")
        });
    }
    check_device(&machine.device)?;
    machine.swap.as_ref().map_or(Ok(()), |swap| check_swap(swap, machine))?;
    machine.costs.validate()
}

/// The name and the line about it are printed in tables.
fn check_label(key: &str, label: &str, least: usize) -> Result<(), BadValue> {
    let length = label.chars().count();
    if (least..=200).contains(&length) && !label.chars().any(char::is_control) {
        return Ok(());
    }
    Err(BadValue {
        key: key.into(),
        value: Some(format!("{:?}", label.chars().take(40).collect::<String>())),
        reason: "it is printed in one line of a table".into(),
        write: format!("{least} to 200 printable characters"),
    })
}

/// Memory, in pages: enough to run in after the kernel took its part, and few enough for the
/// engine.
fn check_pages(machine: &MachineSpec) -> Result<(), BadValue> {
    let page = machine.page;
    let least = PAGES_LEAST * page;
    if machine.memory < least {
        return Err(BadValue {
            write: format!("at least {}", Size::new(least)),
            ..MEMORY.refuse(machine.memory.into(), "a machine needs at least 64 pages to run in")
        });
    }
    if machine.memory / page > PAGES_MOST {
        return Err(BadValue {
            write: format!(
                "at most {} with pages of {}",
                Size::new(PAGES_MOST * page),
                Size::new(page)
            ),
            ..MEMORY.refuse(machine.memory.into(), "the engine numbers page frames in 32 bits")
        });
    }
    KERNEL.check(machine.kernel.into())?;
    if machine.kernel > machine.memory - least {
        return Err(BadValue {
            write: format!(
                "at most {}, with memory = {}",
                Size::new(machine.memory - least),
                size(machine.memory.into())
            ),
            ..KERNEL.refuse(machine.kernel.into(), "it leaves fewer than 64 pages to run in")
        });
    }
    Ok(())
}

/// Checks a device.
///
/// # Errors
/// [`BadValue`] for the first value that cannot be.
pub(super) fn check_device(device: &DeviceSpec) -> Result<(), BadValue> {
    check_label("device.name", &device.name, 1)?;
    QUEUE_DEPTH.check(device.queue_depth.into())?;
    READ.check(device.read_ns.into())?;
    WRITE.check(device.write_ns.into())?;
    READ_BANDWIDTH.check(device.read_bandwidth.into())?;
    WRITE_BANDWIDTH.check(device.write_bandwidth.into())?;
    SEEK.check(device.seek_ns.into())?;
    FLUSH.check(device.flush_ns.into())?;
    OPTIMAL_IO.check(device.optimal_io.into())?;
    if !(0.0..=SPREAD_MOST).contains(&device.spread) {
        return Err(BadValue {
            key: "device.spread".into(),
            value: Some(format!("{:?}", device.spread)),
            reason: "it is the standard deviation of the logarithm of the service time".into(),
            write: format!("a number from 0 (always the same) to {SPREAD_MOST}"),
        });
    }
    Ok(())
}

fn check_swap(swap: &SwapSpec, machine: &MachineSpec) -> Result<(), BadValue> {
    SWAP_SIZE.check(swap.size.into())?;
    COMPRESSED_PERCENT.check(swap.compressed_percent.into())?;
    let most = machine.memory.saturating_mul(SWAP_TIMES);
    if swap.size > most {
        let reason = match swap.kind {
            SwapKind::Zram => "compressed pages live in memory, and no contents shrink so far",
            SwapKind::Device => {
                "with more than 64 times the memory in swap nothing comes back in time"
            }
        };
        return Err(BadValue {
            write: format!(
                "at most {}, with memory = {}",
                Size::new(most),
                size(machine.memory.into())
            ),
            ..SWAP_SIZE.refuse(swap.size.into(), reason)
        });
    }
    Ok(())
}
