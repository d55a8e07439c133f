//! The device's activity, second by second: the kernel's counters if available, otherwise lowtide's
//! own.
//!
//! `/proc/diskstats` counts all users of the device, as `sar` does for the published samples;
//! lowtide's counters are those of one pager. A directory whose file system has no single device
//! (btrfs, overlay, tmpfs) is not in the kernel's table.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use lowtide::Pager;
use lowtide_bench::datafile::DataFile;
use lowtide_report::row::DeviceSample;

/// Counters at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    requests: u64,
    read_kib: u64,
    busy_ms: Option<u64>,
}

/// The source of the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// A line of the kernel's table.
    Kernel {
        /// Major and minor number.
        number: (u32, u32),
        name: String,
    },
    /// Those of the pager.
    Pager,
}

impl Device {
    /// The device that a file is on.
    pub(crate) fn of(file: &DataFile) -> Self {
        let find = || {
            let device = file.file().metadata().ok()?.dev();
            let number = (rustix::fs::major(device), rustix::fs::minor(device));
            let table = fs::read_to_string("/proc/diskstats").ok()?;
            let name = line_of(&table, number)?.get(2)?.to_string();
            Some(Self::Kernel { number, name })
        };
        find().unwrap_or(Self::Pager)
    }

    /// The name in results: `diskstats:vda`, or `lowtide`.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Kernel { name, .. } => format!("diskstats:{name}"),
            Self::Pager => "lowtide".into(),
        }
    }

    /// The source of its figures, in one line.
    pub(crate) fn about(&self) -> String {
        match self {
            Self::Kernel { name, .. } => {
                format!("{name}, by /proc/diskstats, which counts all of its users")
            }
            Self::Pager => "not in /proc/diskstats: its figures are lowtide's own counters".into(),
        }
    }

    fn read(&self, pager: &Pager) -> Reading {
        let at = Instant::now();
        if let Self::Kernel { number, .. } = self
            && let Ok(table) = fs::read_to_string("/proc/diskstats")
            && let Some(reading) = line_of(&table, *number).and_then(|line| parse(&line, at))
        {
            return reading;
        }
        let io = pager.stat().io;
        Reading { at, requests: io.reads + io.writes, read_kib: io.read_bytes >> 10, busy_ms: None }
    }

    pub(crate) fn watch<'a>(&'a self, pager: &'a Pager) -> Watch<'a> {
        Watch { device: self, pager, last: self.read(pager), samples: Vec::new() }
    }
}

/// Samples, one after the other.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    device: &'a Device,
    pager: &'a Pager,
    last: Reading,
    samples: Vec<DeviceSample>,
}

impl Watch<'_> {
    /// Ends a sample and begins the next. Rates are per second, regardless of its length.
    pub(crate) fn sample(&mut self) {
        let now = self.device.read(self.pager);
        let seconds = now.at.duration_since(self.last.at).as_secs_f64();
        if seconds > 0.0 {
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            self.samples.push(DeviceSample {
                tps: rate(now.requests, self.last.requests),
                read_kib: rate(now.read_kib, self.last.read_kib),
                util_pct: now
                    .busy_ms
                    .zip(self.last.busy_ms)
                    .map(|(now, then)| rate(now, then) / 10.0),
            });
        }
        self.last = now;
    }

    pub(crate) fn end(self) -> Vec<DeviceSample> {
        self.samples
    }
}

/// The fields of the line of a device.
fn line_of(table: &str, (major, minor): (u32, u32)) -> Option<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|fields| {
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
        (number(0), number(1)) == (Some(major), Some(minor))
    })
}

/// Reads and writes done, sectors of 512 bytes read, milliseconds busy: fields 4, 8, 6 and 13 of a
/// line.
fn parse(fields: &[&str], at: Instant) -> Option<Reading> {
    let field = |number: usize| fields.get(number - 1)?.parse::<u64>().ok();
    Some(Reading {
        at,
        requests: field(4)? + field(8)?,
        read_kib: field(6)? / 2,
        busy_ms: Some(field(13)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = " 7 0 loop0 1 0 8 1 0 0 0 0 0 1 1 0 0 0 0 0 0\n 254 0 vda 100 5 4000 70 \
        11 3 900 60 0 450 130\n";

    #[test]
    fn a_line_of_the_kernels_table_is_understood() {
        let line = line_of(TABLE, (254, 0)).unwrap();
        let reading = parse(&line, Instant::now()).unwrap();
        assert_eq!((reading.requests, reading.read_kib, reading.busy_ms), (111, 2000, Some(450)));
        assert_eq!(line_of(TABLE, (8, 0)), None);
        assert!(parse(&line[..9], Instant::now()).is_none(), "a table of a very old kernel");
    }

    #[test]
    fn the_mean_of_samples_knows_how_busy_the_device_was_only_if_all_do() {
        let sample = |tps, util_pct| DeviceSample { tps, read_kib: 4.0 * tps, util_pct };
        let mean = DeviceSample::mean(&[sample(10.0, Some(50.0)), sample(30.0, Some(100.0))]);
        assert_eq!(mean, sample(20.0, Some(75.0)));
        assert_eq!(
            DeviceSample::mean(&[sample(10.0, Some(50.0)), sample(30.0, None)]),
            sample(20.0, None)
        );
        assert_eq!(DeviceSample::mean(&[]), DeviceSample::default());
    }
}
