//! A block device, and the presets.
//!
//! ## The model
//!
//! A device serves up to `queue_depth` commands at once; others wait in order. A command of *n*
//! bytes takes
//!
//! ```text
//!   (read_ns or write_ns) x spread
//! + seek_ns, unless it continues the last command
//! + n / bandwidth
//! ```
//!
//! where `spread` is a factor drawn for each command, with median 1, and the bandwidth is that of
//! the whole device, shared by what it transfers at the moment. So a device saturates in commands
//! at `queue_depth / read_ns`, and in bytes at its bandwidth. `queue_depth` is therefore what the
//! device *works on* at once (chips, heads), not how many commands its interface holds: a rotating
//! disk has one.
//!
//! ## The figures
//!
//! Each has its source: a section of `docs/kernel/workloads.md` with that page's mark, *data sheet*
//! for what data sheets of such devices typically say, or *guess*.

use serde::Serialize;

use super::error::BadValue;
use super::limits;

/// A block device. Times are in nanoseconds, sizes in bytes; see the head of the file for how they
/// work together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceSpec {
    /// What it is called in results.
    pub name: String,
    /// Commands that are served at once: 1 to 65,536.
    pub queue_depth: u32,
    /// Median time to serve a small read that does not wait, without its transfer.
    pub read_ns: u64,
    /// The same for a write, until the device reports it done (which need not mean durable).
    pub write_ns: u64,
    /// Standard deviation of the natural logarithm of the service time, 0 to 2; 0 is always the
    /// median.
    pub spread: f64,
    /// Bytes per second that reads transfer at most, all together.
    pub read_bandwidth: u64,
    /// The same for writes.
    pub write_bandwidth: u64,
    /// The additional time of a command that does not begin where the last one ended.
    pub seek_ns: u64,
    /// Time to make everything durable that was reported written.
    pub flush_ns: u64,
    /// Served by the CPU that submits: the task does not sleep and no interrupt comes. True for
    /// memory that poses as a disk.
    pub synchronous: bool,
    /// The transfer size that it says is best for it, in bytes; 0 if it says none, as most disks. A
    /// kernel reads ahead up to twice as much.
    pub optimal_io: u64,
}

/// Name and maker of a preset.
pub(super) type Preset<T> = (&'static str, fn() -> T);

const PRESETS: &[Preset<DeviceSpec>] = &[
    ("nvme", DeviceSpec::nvme),
    ("nvme-gen4", DeviceSpec::nvme_gen4),
    ("sata-ssd", DeviceSpec::sata_ssd),
    ("hdd", DeviceSpec::hdd),
    ("ramdisk", DeviceSpec::ramdisk),
    ("network", DeviceSpec::network),
    ("ufs", DeviceSpec::ufs),
    ("disk-250", DeviceSpec::disk_250),
    ("delay-1s", DeviceSpec::delay_1s),
];

impl DeviceSpec {
    /// The names that [`DeviceSpec::preset`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// The device of that name; `None` if there is none. Names are compared without regard to case,
    /// and `_` counts as `-`.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace('_', "-");
        PRESETS.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
    }

    /// Checks that the device can be simulated.
    ///
    /// # Errors
    /// [`BadValue`] for the first value that cannot be.
    pub fn validate(&self) -> Result<(), BadValue> {
        limits::check_device(self)
    }

    /// The largest read-ahead window that a kernel chooses for it, in bytes, with pages of `page`:
    /// 128 KiB, or twice the optimal transfer if that is more (`docs/design/fidelity.md`, the
    /// database).
    #[must_use]
    pub const fn read_ahead(&self, page: u64) -> u64 {
        const LEAST: u64 = 128 << 10;
        let twice = self.optimal_io.saturating_mul(2);
        let twice = if page == 0 { twice } else { twice - twice % page };
        if twice > LEAST { twice } else { LEAST }
    }

    /// The NVMe disk of the published evaluation.
    pub(super) fn nvme() -> Self {
        Self {
            name: "nvme".into(),
            // Data sheet: some 600 to 700 thousand small reads a second, at the latency below.
            queue_depth: 48,
            // §0.4 [A]: 32 KiB take 90 µs at an idle queue, of which the transfer is 18.
            read_ns: 72_000,
            // Data sheet: into a protected cache.
            write_ns: 20_000,
            // Guess.
            spread: 0.2,
            // §1 [D]: the runs saturate at 1.6 to 1.7 GiB/s.
            read_bandwidth: 1_690 << 20,
            // Data sheet, of disks with that read bandwidth.
            write_bandwidth: 1_000 << 20,
            seek_ns: 0,
            // Guess: there is nothing to flush, but the request takes a round trip.
            flush_ns: 50_000,
            synchronous: false,
            optimal_io: 0,
        }
    }

    /// A current NVMe disk on four lanes of PCIe 4.
    fn nvme_gen4() -> Self {
        Self {
            name: "nvme-gen4".into(),
            // Data sheet: a million small reads a second.
            queue_depth: 64,
            // Data sheet.
            read_ns: 60_000,
            // Data sheet.
            write_ns: 12_000,
            // Guess.
            spread: 0.2,
            // Data sheet, 6.8 and 4 GB/s.
            read_bandwidth: 6_500 << 20,
            write_bandwidth: 3_800 << 20,
            seek_ns: 0,
            // Guess.
            flush_ns: 50_000,
            synchronous: false,
            optimal_io: 0,
        }
    }

    /// A solid-state disk behind SATA.
    fn sata_ssd() -> Self {
        Self {
            name: "sata-ssd".into(),
            // Data sheet: some 95 thousand small reads a second, at the latency below; the
            // interface would hold 32 commands.
            queue_depth: 10,
            // Data sheet: some 10 thousand reads a second one after another.
            read_ns: 95_000,
            // Data sheet.
            write_ns: 35_000,
            // Guess.
            spread: 0.3,
            // Data sheet: what the interface carries.
            read_bandwidth: 530 << 20,
            write_bandwidth: 490 << 20,
            seek_ns: 0,
            // Guess: no protected cache.
            flush_ns: 1_500_000,
            synchronous: false,
            optimal_io: 0,
        }
    }

    /// A rotating disk with 7200 turns a minute. That it may serve its queue in a better order is
    /// not modelled.
    pub(super) fn hdd() -> Self {
        Self {
            name: "hdd".into(),
            // One set of heads.
            queue_depth: 1,
            // Guess: electronics.
            read_ns: 100_000,
            write_ns: 100_000,
            // Guess: between neighbouring tracks and the whole way.
            spread: 0.3,
            // Data sheet, middle of the disk.
            read_bandwidth: 170 << 20,
            write_bandwidth: 170 << 20,
            // Data sheet: 8.3 ms of average seek and half a turn, 4.2 ms.
            seek_ns: 12_500_000,
            // Guess: a turn and a seek for what is in the cache.
            flush_ns: 16_000_000,
            synchronous: false,
            optimal_io: 0,
        }
    }

    /// Memory that poses as a disk. The submitting CPU copies.
    pub(super) fn ramdisk() -> Self {
        Self {
            name: "ramdisk".into(),
            // As many as there are CPUs to copy.
            queue_depth: 4_096,
            // Guess: a cold copy of 4 KiB and its bookkeeping, so that a miss of fio adds up (§6
            // [D]; see `costs`).
            read_ns: 900,
            write_ns: 900,
            spread: 0.0,
            // Guess: what the memory of a server gives to copies.
            read_bandwidth: 40 << 30,
            write_bandwidth: 40 << 30,
            seek_ns: 0,
            flush_ns: 0,
            synchronous: true,
            optimal_io: 0,
        }
    }

    /// A disk behind a network, as clouds rent them. That rented disks are throttled in commands
    /// per second is not modelled.
    fn network() -> Self {
        Self {
            name: "network".into(),
            // Guess, so that some 64 thousand commands a second are possible.
            queue_depth: 32,
            // Guess: a round trip and a disk.
            read_ns: 500_000,
            // Guess: a round trip and two copies.
            write_ns: 700_000,
            // Guess: networks have tails.
            spread: 0.5,
            // Guess, 250 MB/s, as the disk of §10 [S] has.
            read_bandwidth: 250_000_000,
            write_bandwidth: 250_000_000,
            seek_ns: 0,
            // Guess: what was reported written is durable, but the request takes a round trip.
            flush_ns: 500_000,
            synchronous: false,
            optimal_io: 0,
        }
    }

    /// The disk of the published thrash of `memory.high`: 250 MB/s in requests of 64 KiB, one after
    /// another.
    pub(super) fn disk_250() -> Self {
        Self {
            name: "disk-250".into(),
            // §10 [S]: it saturates near 250 MB/s, which one request after another gives.
            queue_depth: 1,
            // §10 (c): 0.137 ms of 4 KiB (533 a second, 7.3 % busy) and 0.271 of 73 (3,350 a
            // second, 90.7 %), so that 64 KiB take 0.25 ms (b).
            read_ns: 125_000,
            // Guess.
            write_ns: 125_000,
            // Guess: busy time hardly varies between the samples.
            spread: 0.1,
            // §10, as for `read_ns`.
            read_bandwidth: 524_000_000,
            write_bandwidth: 524_000_000,
            seek_ns: 0,
            // Guess.
            flush_ns: 1_500_000,
            synchronous: false,
            optimal_io: 0,
        }
    }

    /// The loop device behind a delaying mapper of the published throttling OOM: reads come at
    /// once, and every write ends a second after it was submitted, however many there are.
    pub(super) fn delay_1s() -> Self {
        Self {
            name: "delay-1s".into(),
            // §4 [P]: a delay and no rate, so no command waits for another.
            queue_depth: 65_536,
            // §4 [P].
            read_ns: 0,
            write_ns: 1_000_000_000,
            spread: 0.0,
            // As above: no transfer takes any time to speak of.
            read_bandwidth: 16 << 40,
            write_bandwidth: 16 << 40,
            seek_ns: 0,
            // Guess: an empty write, which is delayed like any other.
            flush_ns: 1_000_000_000,
            synchronous: false,
            optimal_io: 0,
        }
    }

    /// The flash of a phone.
    pub(super) fn ufs() -> Self {
        Self {
            name: "ufs".into(),
            // §8 [A].
            queue_depth: 8,
            // §8 [A]: 4 KiB take 120 µs and 128 KiB take 350, so 7.4 µs of the first and 237.4 of
            // the second are transfer.
            read_ns: 112_600,
            // Guess.
            write_ns: 150_000,
            // Guess.
            spread: 0.3,
            // §8 [A], see above.
            read_bandwidth: 526 << 20,
            // Guess: phones write at a third of what they read.
            write_bandwidth: 180 << 20,
            seek_ns: 0,
            // Guess.
            flush_ns: 2_000_000,
            synchronous: false,
            optimal_io: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time of a read of `bytes` at an idle queue, in µs.
    fn idle_read_us(device: &DeviceSpec, bytes: u64) -> u64 {
        (device.read_ns + bytes * 1_000_000_000 / device.read_bandwidth) / 1_000
    }

    #[test]
    fn presets_have_their_names_and_can_be_simulated() {
        for name in DeviceSpec::names() {
            let device = DeviceSpec::preset(name).unwrap();
            assert_eq!(device.name, name);
            device.validate().unwrap();
        }
        assert_eq!(DeviceSpec::preset("SATA_SSD"), DeviceSpec::preset("sata-ssd"));
        assert_eq!(DeviceSpec::preset("floppy"), None);
    }

    #[test]
    fn a_kernel_reads_twice_the_optimal_transfer_ahead_but_not_less_than_128_kib() {
        for (optimal_io, read_ahead) in
            [(0, 128 << 10), (64 << 10, 128 << 10), (2 << 20, 4 << 20), (99_999, 196_608)]
        {
            let device = DeviceSpec { optimal_io, ..DeviceSpec::nvme() };
            assert_eq!(device.read_ahead(4096), read_ahead, "{optimal_io}");
        }
    }

    /// `docs/kernel/workloads.md` §0.4, §8 and §10.
    #[test]
    fn idle_reads_take_what_the_facts_say() {
        assert_eq!(idle_read_us(&DeviceSpec::nvme(), 32 << 10), 90);
        assert_eq!(idle_read_us(&DeviceSpec::ufs(), 4 << 10), 120);
        assert_eq!(idle_read_us(&DeviceSpec::ufs(), 128 << 10), 350);
        assert_eq!(idle_read_us(&DeviceSpec::disk_250(), 64 << 10), 250);
        assert_eq!(idle_read_us(&DeviceSpec::disk_250(), 4 << 10), 132);
    }
}
