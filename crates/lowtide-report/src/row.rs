//! A row of a result, as in the JSON: of both worlds, real and simulated. The names are an
//! interface: fields may be added, but not renamed.
//!
//! Fields that do not apply are omitted: the plain machine has no time, so its rows have no
//! `seconds` and no latency. What both worlds can measure has one name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use lowtide::{Pager, Policy, Stat};
use lowtide_core::{Events, MemoryStat};
use lowtide_sim::statistics::Spread as WorkerSpread;
use lowtide_sim::{MachineStat, PlainCounts};
use serde::{Serialize, Serializer};

use crate::json::LatencyUs;
use crate::known::known;
use crate::parts::{Part, Parts};
use crate::spread::Spread;

/// Counters by their kernel names, in the kernel's units: events in pages or occurrences, `pgpgin`
/// and `pgpgout` in KiB, sizes in bytes.
pub type Counters = BTreeMap<Cow<'static, str>, u64>;

/// See the module documentation. An experiment has what only it says in a part of its own
/// ([`Parts`]), whose fields are among these in the JSON.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(remote = "Self")]
pub struct Row {
    /// The workload's name.
    pub workload: &'static str,
    /// The program of the workload, if `bench` and `sim` have different programs with the same
    /// name.
    pub program: Option<&'static str>,
    /// The trace, as it was named.
    pub trace: Option<String>,
    /// `sim`; `real` for published results, which were measured.
    pub world: &'static str,
    /// `lowtide` or `published`.
    pub system: &'static str,
    /// The posting of a published row.
    pub source: Option<&'static str>,
    /// The policy; empty for another program, and `null` in the JSON.
    #[serde(serialize_with = "or_null")]
    pub policy: String,
    /// The simulated machine's name.
    #[serde(serialize_with = "or_none")]
    pub machine: String,
    /// The budget; absent when it is all of the machine's memory.
    pub max_bytes: Option<u64>,
    /// Bytes of data: of a trace, of the pages that it touches.
    pub data_bytes: Option<u64>,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Threads of the workload.
    pub threads: u32,
    /// The seed.
    pub seed: Option<u64>,
    /// The size of the experiment relative to the published one, if it is scaled.
    pub scale: Option<f64>,
    /// Seconds: virtual ones in a simulation.
    pub seconds: Option<f64>,
    /// Operations.
    pub ops: Option<u64>,
    /// Operations per second.
    pub ops_per_s: Option<f64>,
    /// Latency of an operation, in microseconds.
    pub latency_us: Option<RowLatency>,
    /// Accesses to pages.
    pub accesses: Option<u64>,
    /// Accesses to pages that were not resident.
    pub misses: Option<u64>,
    /// The share of such accesses; 0 if there were none.
    pub miss_ratio: Option<f64>,
    /// Operations that the device failed.
    pub errors: Option<u64>,
    /// Charges that failed, each of which would have been an out-of-memory kill.
    pub oom: Option<u64>,
    /// Completed rounds.
    pub rounds: Option<u32>,
    /// Ratios to another row.
    pub ratio: Option<Ratio>,
    /// The kernel's side: locks, waiting, swap, limits.
    #[serde(flatten)]
    pub kernel: KernelFigures,
    /// The device.
    #[serde(flatten)]
    pub device: DeviceFigures,
    /// What is known of a run on real memory, and of the speed of a simulation.
    #[serde(flatten)]
    pub measured: MeasuredFigures,
    /// Counters.
    pub stat: Counters,
    /// The rest.
    #[serde(flatten)]
    pub parts: Parts,
}

/// The kernel's side of a row: locks, waiting, swap, limits.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KernelFigures {
    /// Nodes that the machine is divided into, if there are several.
    pub nodes: Option<u32>,
    /// Total time that tasks spun for the lock of the lists.
    pub lruvec_lock_ms: Option<f64>,
    /// Total time that tasks spun for the lock of swap slots.
    pub swap_lock_ms: Option<f64>,
    /// Processor seconds that programs computed, on a simulated machine.
    pub user_s: Option<f64>,
    /// Processor seconds of everything else: faults, reclaim, compression, locks, switches.
    pub system_s: Option<f64>,
    /// Bytes of pages in swap at the end, as they were before compression.
    pub swap_bytes: Option<u64>,
    /// Memory that compressed pages took at the end.
    pub zram_bytes: Option<u64>,
    /// Number of pauses by dirty throttling.
    pub dirty_pauses: Option<u64>,
    /// `memory.high` of the group.
    pub high_bytes: Option<u64>,
    /// `memory.swap.high` of each tenant.
    pub swap_high_bytes: Option<u64>,
    /// Total time that reclaim slept; or that tasks above a limit slept, in experiments about
    /// limits.
    pub throttled_ms: Option<f64>,
    /// Total time that dirty throttling paused writers.
    pub dirty_throttled_ms: Option<f64>,
    /// Wakings of the flusher by reclaim.
    pub flusher_wakes: Option<u64>,
    /// Retried faults whose page was not in the cache any more.
    pub retry_io_miss: Option<u64>,
    /// Times that a fault gave a lock up and was to be retried.
    pub retry_mmap_drop: Option<u64>,
    /// The longest pause by dirty throttling since a real system began.
    pub longest_pause_ms: Option<f64>,
}

/// The device of a row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeviceFigures {
    /// The device's largest write bandwidth.
    pub device_write_mib_per_s: Option<f64>,
    /// The share of the time in which the device was busy.
    pub device_util_pct: Option<f64>,
    /// What was read from it, per virtual second.
    pub device_read_kib_per_s: Option<f64>,
    /// Commands of the device per virtual second.
    pub device_tps: Option<f64>,
    /// The device, second by second.
    pub samples: Option<Vec<DeviceSample>>,
    /// The source of a real device's figures: `diskstats:NAME`, which counts all users, or
    /// `lowtide`.
    pub device_source: Option<String>,
    /// Reads that lowtide itself requested of a real device, per second.
    pub own_reads_per_s: Option<f64>,
    /// KiB that lowtide itself read from it, per second.
    pub own_read_kib_per_s: Option<f64>,
    /// Bytes written to a real device.
    pub device_write_bytes: Option<u64>,
    /// Write requests to a real device.
    pub device_writes: Option<u64>,
    /// Mean bytes of such a request.
    pub bytes_per_write: Option<f64>,
    /// Artificial delays of a real device.
    pub slowed: Option<String>,
    /// Bytes read from a real device.
    pub device_read_bytes: Option<u64>,
    /// The same for each byte that was requested; 0 if none was.
    pub read_amplification: Option<f64>,
    /// Bytes read from a real device for each row.
    pub device_bytes_per_row: Option<f64>,
    /// Reads of a real device per second.
    pub iops: Option<f64>,
}

/// A row's run on real memory, and the speed of its simulation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MeasuredFigures {
    /// Different pages that a trace touches.
    pub footprint_pages: Option<u64>,
    /// Records of a call, on real memory.
    pub batch: Option<u32>,
    /// Contents checked and found correct, on real memory.
    pub verified: Option<u64>,
    /// The part of the seconds that the flush took, or what it took after them, on real memory.
    pub flush_seconds: Option<f64>,
    /// CPU seconds of a real system, in user and kernel mode.
    pub cpu_seconds: Option<f64>,
    /// Bytes dirty or under writeback before the last flush, on real memory.
    pub dirty_bytes: Option<u64>,
    /// The largest sampled value of those bytes.
    pub dirty_max_bytes: Option<u64>,
    /// Operations that have no meaning on real memory and were skipped.
    pub ignored: Option<u64>,
    /// Pages from one read of a scan to the next, if not one.
    pub stride: Option<u64>,
    /// Bytes of rows that are read.
    pub row_bytes: Option<u64>,
    /// How rows are chosen.
    pub skew: Option<&'static str>,
    /// Reads in flight.
    pub depth: Option<u32>,
    /// Memory that a real system needs in addition to the budget.
    pub metadata_bytes: Option<u64>,
    /// Most bytes that a real system had in the page cache at the end of a turn.
    pub cached_max_bytes: Option<u64>,
    /// Operations per second of each round.
    pub round_ops_per_s: Option<Vec<f64>>,
    /// Speed relative to another real system, round by round.
    pub speed_ratio: Option<Spread>,
    /// CPU seconds of the simulation on the host.
    pub host_seconds: Option<f64>,
    /// Simulated accesses to pages per second of one core of the host.
    pub accesses_per_s: Option<f64>,
    /// Bytes of real memory for each page of data.
    pub bytes_per_page: Option<f64>,
}

known!(Row, DeviceSample, Workers);

/// How evenly equal workers were served.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TenantsRow {
    /// Jain's index of fairness between workers.
    pub jain: Option<f64>,
    /// Operations of the workers.
    pub workers: Option<Workers>,
    /// Operations by their latency in seconds.
    pub latency_buckets: Option<Vec<Bucket>>,
}

/// A device in one second, as `sar` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(remote = "Self")]
pub struct DeviceSample {
    /// Commands.
    pub tps: f64,
    /// KiB read.
    pub read_kib: f64,
    /// Busy, in percent; absent where only lowtide's own counters are known.
    pub util_pct: Option<f64>,
}

impl DeviceSample {
    /// The mean, or `None` without values.
    pub fn mean(samples: &[Self]) -> Self {
        let n = samples.len().max(1) as f64;
        let mean = |of: fn(&Self) -> f64| samples.iter().map(of).sum::<f64>() / n;
        let known = !samples.is_empty() && samples.iter().all(|sample| sample.util_pct.is_some());
        Self {
            tps: mean(|sample| sample.tps),
            read_kib: mean(|sample| sample.read_kib),
            util_pct: known.then(|| mean(|sample| sample.util_pct.unwrap_or_default())),
        }
    }
}

/// A neighbour on the same device.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NeighbourRow {
    /// Reads per virtual second.
    pub ops_per_s: f64,
    /// The same when it uses the device alone.
    pub alone_ops_per_s: f64,
    /// Latency of a read, in virtual microseconds.
    pub latency_us: LatencyUs,
    /// Operations of the row's own workload per second beside it.
    pub thrasher_ops_per_s: f64,
}

/// Operations of equal workers, as far as they are known.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(remote = "Self")]
pub struct Workers {
    /// The mean per worker.
    pub mean: Option<f64>,
    /// The 95 % confidence interval of the mean.
    pub ci95: Option<[f64; 2]>,
    /// The sample standard deviation.
    pub stdev: Option<f64>,
    /// The smallest number of a worker.
    pub least: Option<f64>,
    /// The largest number of a worker.
    pub most: Option<f64>,
    /// The number of each worker, grouped by tenant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<u64>,
}

impl Workers {
    /// The results of a run.
    fn of(spread: &WorkerSpread, requests: Vec<u64>) -> Self {
        Self {
            mean: Some(spread.mean),
            ci95: Some([spread.mean - spread.ci95, spread.mean + spread.ci95]),
            stdev: Some(spread.stdev),
            least: Some(spread.least),
            most: Some(spread.most),
            requests,
        }
    }
}

/// Operations with at least this latency, and less than that of the next bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Seconds.
    pub from_s: u64,
    /// Operations.
    pub ops: u64,
}

impl Bucket {
    /// The buckets with these bounds.
    pub fn all(bounds: &[u64], counts: &[u64]) -> Vec<Self> {
        bounds.iter().zip(counts).map(|(&from_s, &ops)| Self { from_s, ops }).collect()
    }
}

/// A latency, as far as it is known.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum RowLatency {
    /// Simulated.
    Whole(LatencyUs),
    /// Published: the mean alone.
    Mean {
        /// Microseconds.
        mean: f64,
    },
}

impl RowLatency {
    /// The mean.
    pub const fn mean(self) -> f64 {
        match self {
            Self::Whole(latency) => latency.mean,
            Self::Mean { mean } => mean,
        }
    }

    /// The 99.9th percentile, if it is known.
    pub const fn p999(self) -> Option<f64> {
        match self {
            Self::Whole(latency) => Some(latency.p999),
            Self::Mean { .. } => None,
        }
    }

    /// The 99th percentile, if it is known.
    pub const fn p99(self) -> Option<f64> {
        match self {
            Self::Whole(latency) => Some(latency.p99),
            Self::Mean { .. } => None,
        }
    }
}

/// A row relative to another.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// The policy of the other row.
    pub to: String,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Bytes read.
    pub pgpgin: f64,
    /// Refaults of file pages.
    pub workingset_refault_file: f64,
}

impl Row {
    /// A row of lowtide's on real memory.
    pub fn real(
        workload: &'static str,
        pager: &Pager,
        policy: Policy,
        threads: u32,
        seed: u64,
    ) -> Self {
        Self {
            workload,
            world: "real",
            system: "lowtide",
            policy: policy.to_string(),
            page_bytes: pager.page_size() as u64,
            threads,
            seed: Some(seed),
            ..Self::default()
        }
    }

    /// This row with a part, instead of one of its type.
    #[must_use]
    pub fn with<T: Part>(mut self, part: T) -> Self {
        self.parts.set(part);
        self
    }

    /// A part of its own; the default if it has none of the type.
    #[must_use]
    pub fn own<T: Part + Clone + Default>(&self) -> T {
        self.parts.get().cloned().unwrap_or_default()
    }

    /// A figure of a part, if the row has the part.
    pub fn of<T: Part, V>(&self, figure: impl FnOnce(&T) -> V) -> Option<V> {
        self.parts.get().map(figure)
    }

    /// A counter; 0 if the row has none with that name.
    pub fn count(&self, name: &str) -> u64 {
        self.stat.get(name).copied().unwrap_or(0)
    }

    /// This row with the results of `ops` operations on a full machine, between two readings of its
    /// counters.
    pub fn on_machine(self, began: Option<&MachineStat>, ended: &MachineStat, ops: u64) -> Self {
        let since = |count: fn(&MachineStat) -> u64| count(ended) - began.map_or(0, count);
        let seconds = since(|stat| stat.now_ns) as f64 / 1e9;
        let rate = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        let (read, written) =
            (since(|stat| stat.device.read_bytes), since(|stat| stat.device.write_bytes));
        let events = ended.memory.events;
        let events = began.map_or(events, |began| events.since(&began.memory.events));
        let row = Self {
            seconds: Some(seconds),
            ops: Some(ops),
            ops_per_s: Some(rate(ops as f64)),
            errors: Some(since(|stat| stat.kernel.io_errors)),
            oom: Some(since(|stat| stat.kernel.oom)),
            stat: counters(&events, &ended.memory, read, written),
            device: DeviceFigures {
                device_util_pct: Some(rate(since(|stat| stat.device.busy_ns) as f64 / 1e7)),
                device_read_kib_per_s: Some(rate(read as f64 / 1024.0)),
                ..self.device
            },
            kernel: KernelFigures {
                throttled_ms: Some(since(|stat| stat.kernel.throttled_ns) as f64 / 1e6),
                dirty_throttled_ms: Some(since(|stat| stat.kernel.dirty_throttled_ns) as f64 / 1e6),
                dirty_pauses: Some(since(|stat| stat.kernel.dirty_pauses)),
                flusher_wakes: Some(since(|stat| stat.kernel.flusher_wakes)),
                retry_io_miss: Some(since(|stat| stat.kernel.retry_io_miss)),
                retry_mmap_drop: Some(since(|stat| stat.kernel.retry_mmap_drop)),
                ..self.kernel
            },
            ..self
        };
        row.with_accesses(since(|stat| stat.kernel.accesses), since(|stat| stat.kernel.major))
    }

    /// This row with the counts of a pager between two readings, in `seconds`, and with the
    /// accesses and misses of its users. All contents were verified, otherwise the run would have
    /// failed.
    pub fn on_pager(
        self,
        before: &Stat,
        after: &Stat,
        seconds: f64,
        (pages, misses): (u64, u64),
    ) -> Self {
        let since = |count: fn(&Stat) -> u64| count(after).saturating_sub(count(before));
        let (read, written) = (since(|stat| stat.io.read_bytes), since(|stat| stat.io.write_bytes));
        let events = after.memory.events.since(&before.memory.events);
        let row = Self {
            seconds: Some(seconds),
            errors: Some(0),
            stat: counters(&events, &after.memory, read, written),
            measured: MeasuredFigures { verified: Some(pages), ..self.measured },
            device: DeviceFigures {
                own_reads_per_s: Some(since(|stat| stat.io.reads) as f64 / seconds),
                own_read_kib_per_s: Some(read as f64 / 1024.0 / seconds),
                ..self.device
            },
            kernel: KernelFigures {
                throttled_ms: Some(1e3 * (after.io.throttled - before.io.throttled).as_secs_f64()),
                ..self.kernel
            },
            ..self
        };
        row.with_accesses(pages, misses)
    }

    /// This row with the operations of equal workers.
    pub fn with_workers(self, requests: Vec<u64>) -> Self {
        let spread = WorkerSpread::of(&requests);
        let own = TenantsRow {
            jain: Some(spread.jain),
            workers: Some(Workers::of(&spread, requests)),
            ..self.own()
        };
        Self { ..self }.with(own)
    }

    /// This row with the results of its workload in the measured time.
    pub fn with_ops(self, ops: u64) -> Self {
        let seconds = self.seconds.filter(|&seconds| seconds > 0.0);
        let rate = seconds.map_or(0.0, |seconds| ops as f64 / seconds);
        Self { ops: Some(ops), ops_per_s: Some(rate), ..self }
    }

    /// This row with what was counted in another part of the machine added: counters and sizes,
    /// accesses, failed charges, and naps of reclaim.
    pub fn plus_counts(mut self, other: &Self) -> Self {
        for (name, count) in &other.stat {
            *self.stat.entry(name.clone()).or_default() += count;
        }
        let sum = |a: Option<u64>, b: Option<u64>| a.unwrap_or(0) + b.unwrap_or(0);
        self.oom = Some(sum(self.oom, other.oom));
        self.kernel.throttled_ms = Some(
            self.kernel.throttled_ms.unwrap_or(0.0) + other.kernel.throttled_ms.unwrap_or(0.0),
        );
        let accesses = sum(self.accesses, other.accesses);
        let misses = sum(self.misses, other.misses);
        self.with_accesses(accesses, misses)
    }

    /// This row with the counters of a group instead of those of the whole machine.
    pub fn with_group(mut self, group: &MemoryStat) -> Self {
        let (read, written) = (self.count("pgpgin"), self.count("pgpgout"));
        self.stat = counters(&group.events, group, read << 10, written << 10);
        self.oom = Some(group.limits.oom);
        self
    }

    /// This row with the results of a plain machine.
    pub fn on_plain(self, counts: &PlainCounts, memory: &MemoryStat) -> Self {
        let bytes = |pages: u64| pages * memory.page_bytes;
        let stat = counters(&memory.events, memory, bytes(counts.reads), bytes(counts.writes));
        Self { stat, ..self }.with_accesses(counts.accesses, counts.misses)
    }

    fn with_accesses(self, accesses: u64, misses: u64) -> Self {
        let miss_ratio = if accesses == 0 { 0.0 } else { misses as f64 / accesses as f64 };
        Self {
            accesses: Some(accesses),
            misses: Some(misses),
            miss_ratio: Some(miss_ratio),
            ..self
        }
    }

    /// This row with the simulation's speed: its accesses in `took`, with `bytes` of memory for all
    /// pages of data.
    pub fn timed(self, took: Duration, bytes: usize, pages: u64) -> Self {
        let seconds = took.as_secs_f64();
        let rate = |accesses: u64| if seconds > 0.0 { accesses as f64 / seconds } else { 0.0 };
        Self {
            measured: MeasuredFigures {
                host_seconds: Some(seconds),
                accesses_per_s: self.accesses.map(rate),
                bytes_per_page: (pages > 0).then(|| bytes as f64 / pages as f64),
                ..self.measured
            },
            ..self
        }
    }

    /// The share of operations that took `from_s` seconds, or up to the end of that bucket longer.
    pub fn bucket_share(&self, from_s: u64) -> Option<f64> {
        let buckets = self.own::<TenantsRow>().latency_buckets?;
        let all: u64 = buckets.iter().map(|bucket| bucket.ops).sum();
        let found = buckets.iter().find(|bucket| bucket.from_s == from_s)?;
        Some(found.ops as f64 / all as f64)
    }

    /// This row with its ratio to `base`.
    pub fn compared_with(mut self, base: &Self) -> Self {
        let ratio = |name| self.count(name) as f64 / base.count(name) as f64;
        let rate = |row: &Self| row.ops_per_s.unwrap_or(f64::NAN);
        self.ratio = Some(Ratio {
            to: base.policy.clone(),
            ops_per_s: rate(&self) / rate(base),
            pgpgin: ratio("pgpgin"),
            workingset_refault_file: ratio("workingset_refault_file"),
        });
        self
    }
}

/// Text, or `null` if it is empty: it is known that there is none.
fn or_null<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    if text.is_empty() { to.serialize_unit() } else { to.serialize_str(text) }
}

/// Text, unless it is empty.
fn or_none<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
    (!text.is_empty()).then_some(text).serialize(to)
}

fn counters(events: &Events, memory: &MemoryStat, read: u64, written: u64) -> Counters {
    let sizes = memory.sizes().map(|(name, pages)| (name, pages * memory.page_bytes));
    let device = [("pgpgin", read / 1024), ("pgpgout", written / 1024)];
    named(events.iter().chain(sizes).chain(device))
}

/// Counters with the names of the source.
pub fn named(counts: impl IntoIterator<Item = (&'static str, u64)>) -> Counters {
    counts.into_iter().map(|(name, count)| (name.into(), count)).collect()
}
