//! `fill`: a file of four budgets, written from start to end and made durable: the share of the
//! device's bandwidth that a writer achieves, and how evenly it is throttled.
//!
//! The time is from the first write to the end of the flush, so nothing is gained by deferring
//! writes. On a real machine other programs write the same file: `dd` with direct I/O, which uses
//! no cache and shows the device's own speed, and `pwrite` and `mmap` through the kernel's page
//! cache in a memory cgroup of the same budget. A simulated device's speed is known.

use crate::experiments::writing::WrittenRow;
use clap::Args;
use clap::builder::ArgPredicate::IsPresent;
use lowtide_bench::error::BenchError;
use lowtide_bench::options::chosen;
use lowtide_experiments::programs::writer::Writer;
use lowtide_report::columns::{Columns, counted, label, number, p99, whole};
use lowtide_report::row::{DeviceFigures, Row, RowLatency};
use lowtide_report::span::Span;
use lowtide_report::spread::Spread;
use lowtide_report::table::us;

use super::Sizes;
use super::writing::{Beside, Writing, Written};
use crate::bench::write::FillPeer;

#[derive(Debug, Args)]
pub(crate) struct Fill {
    #[command(flatten)]
    sizes: Sizes,
}

/// The programs beside lowtide.
#[derive(Debug, Args)]
pub(crate) struct Peers {
    /// Systems to compare with; pwrite and mmap need a memory cgroup
    #[arg(long, value_name = "PEER,PEER", value_enum, value_delimiter = ',',
          default_value = "dd,pwrite,mmap",
          default_value_ifs = [("device_delay", IsPresent, "none"),
                               ("device_bandwidth", IsPresent, "none")])]
    against: Vec<FillPeer>,
}

impl Beside for Peers {
    fn peers(&self) -> Result<Vec<FillPeer>, BenchError> {
        chosen(&self.against, FillPeer::None)
    }
}

impl Writing for Fill {
    const NAME: &str = "fill";
    const ABOUT: &str = "a file of four budgets written from start to end and made durable";
    const HELP: &str = "\
Examples:
  lowtide-lab bench fill --against dd --rounds 7
  lowtide-lab sim fill --max 64M --policy mglru,lru";
    const MACHINE: &str = "laptop";
    const POLICIES: &str = "mglru,mglru-7.1,lru";
    const DELAY: Option<Span> = None;
    const ROUNDS: &str = "3";
    const KILL_IS_RESULT: bool = false;
    const COLUMNS: Columns = Columns::named(
        1,
        &[
            ("policy", label),
            ("MiB/s", |row| row.own::<WrittenRow>().mib_per_s.map_or_else(String::new, rate)),
            ("device MiB/s", |row| number(row.device.device_write_mib_per_s)),
            ("part of it", |row| {
                let part = row
                    .own::<WrittenRow>()
                    .mib_per_s
                    .zip(row.device.device_write_mib_per_s)
                    .map(|(rate, device)| rate.median / device);
                part.map_or_else(String::new, |part| format!("{part:.3}"))
            }),
            ("write() mean µs", |row| {
                row.latency_us.map_or_else(String::new, |latency| us(latency.mean()))
            }),
            ("p99", p99),
            ("p99.9", |row| row.latency_us.and_then(RowLatency::p999).map_or_else(String::new, us)),
            ("pauses", |row| number(row.kernel.dirty_pauses.map(|pauses| pauses as f64))),
            ("pauses ms", |row| number(row.kernel.dirty_throttled_ms)),
            ("nap ms", |row| number(row.kernel.throttled_ms)),
            ("flusher wakes", |row| number(row.kernel.flusher_wakes.map(|wakes| wakes as f64))),
            ("pgscan", |row| counted(row, "pgscan", whole)),
            ("pgsteal", |row| counted(row, "pgsteal", whole)),
        ],
    );
    type Peers = Peers;

    fn writer(&self) -> Writer {
        self.sizes.writer(Writer::fill(self.sizes.max))
    }

    fn rows(&self, written: Written, _: bool) -> Vec<Row> {
        vec![{
            let base = written.row;
            let own = WrittenRow { mib_per_s: Some(written.mib_per_s), ..base.own() };
            Row {
                latency_us: written.latency.map(RowLatency::Whole),
                device: DeviceFigures {
                    device_write_mib_per_s: written.device_write_mib_per_s,
                    ..base.device
                },
                ..base
            }
            .with(own)
        }]
    }
}

/// The median, and the extremes if there are several values.
fn rate(rate: Spread) -> String {
    let range = if rate.min < rate.max { format!(" {}", rate.range()) } else { String::new() };
    format!("{:.1}{range}", rate.median)
}
