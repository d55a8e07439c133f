//! `lowtide bench high-thrash`: a tenant whose pages are all hot, above its `high`, under each law
//! of what its threads pay.
//!
//! ```text
//!   thrashers (tenant: high 150 MiB, no max)         neighbour (tenant: max 8 MiB)
//!     for ever: load a page of a 200 MiB file,         for ever: load a page of a 256 MiB file,
//!     chosen uniformly                                 think 1 ms
//!                 └────────────── one pager, one device ──────────────┘
//! ```
//!
//! Of each row's time, one half is the thrasher alone, from which the figures of the device are,
//! and the other half is beside the neighbour. Before the first half the law is in force for as
//! long again, and before the second for a quarter of that, and nothing is counted. With read-ahead
//! a miss brings in the aligned window of 32 pages around it, by one `get_many`; pages that come in
//! that way count as accessed, which the kernel's do not. I/O is direct, or the kernel's page cache
//! would serve what was evicted. Source: `docs/kernel/workloads.md` §10.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lowtide::{HighPolicy, OpenOptions, Pager, Policy, Size, Tenant, View};
use lowtide_sim::published::{Arm, SarSample, published_thrash};
use lowtide_workload::SplitMix64;

use super::crowd::{Count, Crowd, fill, load, load_around};
use super::device::Device;
use super::host::{Common, apply, head, tail, threads_text, whole_windows};
use super::row::{Column, NeighbourRow, TenancyRow, micros, number, size, tenths};
use crate::bench::content::{Content, UNIT_BYTES};
use crate::bench::datafile::{DataFile, Purpose};
use crate::bench::error::BenchError;
use crate::bench::options::values::{budget, seconds};
use crate::bench::options::{FewPolicies, Seed, threads};
use crate::bench::tally::Latency;
use crate::interrupt::Cut;
use crate::json::LatencyUs;
use crate::law::Law;
use crate::sim::row::DeviceSample;
use crate::{names, progress};

/// The name.
pub(crate) const NAME: &str = "high-thrash";
/// One line about it, for listings.
pub(crate) const ABOUT: &str =
    "random loads by a tenant above its high, and a neighbour on its device";

/// `high` of the published run.
const PUBLISHED_HIGH_BYTES: u64 = 150 << 20;
/// What the neighbour's file is as a multiple of the thrasher's `high`, and its budget as a part of
/// that: nearly all of its loads are misses.
const NEIGHBOUR_FILE: u64 = 2;
const NEIGHBOUR_PART: u64 = 16;
/// The neighbour's pause after each load.
const THINK: Duration = Duration::from_millis(1);
/// The part of a half in which the law is felt already and nothing is counted.
const SETTLING: f64 = 0.25;

/// Options of `high-thrash`.
#[derive(Debug, Args)]
pub(crate) struct ThrashArgs {
    /// high of the tenant; its file is a third larger
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "150M",
          allow_hyphen_values = true)]
    max: u64,
    /// Measured seconds of each row, half of them alone; stall debt needs some ten to settle
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "24",
          allow_negative_numbers = true)]
    seconds: f64,
    /// Threads of the tenant, a list for a row of each
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = threads(),
          default_value = "1")]
    threads: Vec<u32>,
    /// What threads pay for being over high: overage, refault-recency or stall-debt [default: all]
    #[arg(long, value_name = "P,P", value_delimiter = ',', value_parser = names::high_policy)]
    high_policy: Option<Vec<HighPolicy>>,
    /// A program that decides what threads pay, an object file for eBPF; one more row for each
    #[arg(long, value_name = "FILE")]
    bpf: Vec<PathBuf>,
    /// Only the rows without read-ahead
    #[arg(long)]
    no_readahead: bool,
    #[command(flatten)]
    policies: FewPolicies,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    common: Common,
}

/// What is run, decided.
#[derive(Debug)]
struct Thrash<'a> {
    common: &'a Common,
    page: u64,
    high: u64,
    data: u64,
    neighbour_data: u64,
    neighbour_max: u64,
    /// Half of a row's time.
    half: Duration,
    seed: u64,
    cases: Vec<Case>,
}

/// One row.
#[derive(Clone, Debug)]
struct Case {
    policy: Policy,
    law: Law,
    readahead: bool,
    threads: u32,
}

/// Which part of a row's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The neighbour without a thrasher.
    Quiet,
    /// What is not counted.
    Settling,
    /// The thrasher alone.
    Alone,
    /// Both.
    Beside,
}

impl Part {
    /// Every part has streams of its own: what one has just loaded would be there if the next
    /// loaded it again.
    const fn seed(self) -> u64 {
        (self as u64) << 32
    }
}

/// What one half of a row was.
#[derive(Debug)]
struct Half {
    ops: u64,
    misses: u64,
    each: Vec<u64>,
    seconds: f64,
    samples: Vec<DeviceSample>,
    neighbour_ops: u64,
    neighbour_latency: Latency,
}

impl<'a> Thrash<'a> {
    fn new(args: &'a ThrashArgs) -> Result<Self, BenchError> {
        let (page, high) = (args.common.page, args.max);
        let readahead: &[bool] = if args.no_readahead { &[false] } else { &[true, false] };
        let mut cases = Vec::new();
        for policy in args.policies.rows() {
            for &threads in &args.threads {
                for law in Law::all(args.high_policy.as_deref(), &args.bpf)? {
                    let case = |&readahead| Case { policy, law: law.clone(), readahead, threads };
                    cases.extend(readahead.iter().map(case));
                }
            }
        }
        Ok(Self {
            common: &args.common,
            page,
            high,
            data: whole_windows(high / 3 * 4, page),
            neighbour_data: whole_windows(high * NEIGHBOUR_FILE, page),
            neighbour_max: (high / NEIGHBOUR_PART).max(64 * page),
            half: Duration::from_secs_f64(args.seconds / 2.0),
            seed: args.seed.seed,
            cases,
        })
    }

    /// The pager's budget: nothing but limits of tenants makes reclaim happen.
    const fn budget(&self) -> u64 {
        self.data + self.neighbour_max + self.data / 8 + (16 << 20)
    }

    fn pager(&self, policy: Policy) -> Result<Pager, BenchError> {
        self.common.pager(policy, self.budget())
    }

    fn neighbour(&self, pager: &Pager, file: &DataFile) -> Result<View, BenchError> {
        let tenant = pager.tenant("neighbour").max(size(self.neighbour_max)).create()?;
        Ok(OpenOptions::new().tenant(&tenant).lock(false).open(pager, file.path())?)
    }

    /// One half of a row: thrashers, if there are any, and a neighbour, if there is one.
    fn half(
        &self,
        pager: &Pager,
        thrashers: Option<(&View, &Case)>,
        neighbour: Option<&View>,
        device: &Device,
        part: Part,
    ) -> Result<Half, BenchError> {
        let crowd = Crowd::default();
        let threads = thrashers.map_or(0, |(_, case)| case.threads);
        let counts: Vec<Count> = (0..threads).map(|_| Count::default()).collect();
        let quiet = Count::default();
        let latency = Mutex::new(Latency::default());
        let units = self.page / UNIT_BYTES as u64;
        let half = thread::scope(|scope| {
            for (number, count) in counts.iter().enumerate() {
                let Some((view, case)) = thrashers else { break };
                let view = view.clone();
                let mut rng = SplitMix64::new(
                    self.seed.wrapping_add(number as u64).wrapping_add(part.seed()),
                );
                let readahead = case.readahead;
                crowd.spawn(scope, move || {
                    let place = rng.below(view.pages() * units);
                    let (page, unit) = (place / units, place % units);
                    let missed = if readahead {
                        load_around(&view, page, unit)?
                    } else {
                        let missed = !view.is_resident(page);
                        load(&view, page, unit)?;
                        missed
                    };
                    count.done(missed);
                    Ok::<(), String>(())
                });
            }
            if let Some(view) = neighbour {
                let view = view.clone();
                let mut rng = SplitMix64::new((self.seed ^ u64::MAX).wrapping_add(part.seed()));
                let (quiet, latency) = (&quiet, &latency);
                crowd.spawn(scope, move || {
                    let begin = Instant::now();
                    load(&view, rng.below(view.pages()), 0)?;
                    latency
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .record(begin.elapsed(), 1);
                    quiet.done(true);
                    thread::sleep(THINK);
                    Ok::<(), String>(())
                });
            }
            if part == Part::Beside {
                crowd.watch(self.half.mul_f64(SETTLING), || ());
            }
            let look =
                || counts.iter().map(|count| (count.ops(), count.misses())).collect::<Vec<_>>();
            *latency.lock().unwrap_or_else(PoisonError::into_inner) = Latency::default();
            let (before, quiet_before, begin) = (look(), quiet.ops(), Instant::now());
            let mut watch = device.watch(pager);
            crowd.watch(self.half, || watch.sample());
            let (after, quiet_after, seconds) =
                (look(), quiet.ops(), begin.elapsed().as_secs_f64());
            crowd.stop();
            let each: Vec<u64> =
                after.iter().zip(&before).map(|((after, _), (before, _))| after - before).collect();
            Half {
                ops: each.iter().sum(),
                misses: after
                    .iter()
                    .zip(&before)
                    .map(|((_, after), (_, before))| after - before)
                    .sum(),
                each,
                seconds,
                samples: watch.end(),
                neighbour_ops: quiet_after - quiet_before,
                neighbour_latency: Latency::default(),
            }
        });
        crowd.verdict(thrashers.map_or("the neighbour", |_| "the thrasher"))?;
        let neighbour_latency = latency.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Half { neighbour_latency, ..half })
    }

    /// How often the neighbour reads when it has the device for itself.
    fn quiet(&self, files: &Files, device: &Device) -> Result<f64, BenchError> {
        let pager = self.pager(self.cases[0].policy)?;
        let view = self.neighbour(&pager, &files.neighbour)?;
        let half = self.half(&pager, None, Some(&view), device, Part::Quiet)?;
        Ok(half.neighbour_ops as f64 / half.seconds)
    }

    fn row(
        &self,
        case: &Case,
        files: &Files,
        device: &Device,
        quiet: f64,
    ) -> Result<TenancyRow, BenchError> {
        let pager = self.pager(case.policy)?;
        let (tenant, view) = thrasher(&pager, &files.data, self.high)?;
        let programs = apply(&case.law, &tenant)?;
        fill(&view, self.high)?;
        let neighbour = self.neighbour(&pager, &files.neighbour)?;

        // What settles is left out of the counters, too.
        let settled = self.half(&pager, Some((&view, case)), None, device, Part::Settling)?;
        let before = pager.stat();
        let alone = self.half(&pager, Some((&view, case)), None, device, Part::Alone)?;
        let (after, usage) = (pager.stat(), tenant.usage()?);
        let beside =
            self.half(&pager, Some((&view, case)), Some(&neighbour), device, Part::Beside)?;

        let row =
            TenancyRow::lowtide(NAME, &pager, &case.policy.to_string(), case.threads, self.seed);
        let mut row = row
            .counted(&before, &after, alone.seconds)
            .loads(alone.ops, alone.misses)
            .sampled(alone.samples.clone());
        row.stat.insert("usage".into(), usage);
        let row = if case.threads > 1 { row.spread(alone.each.clone()) } else { row };
        Ok(TenancyRow {
            data_bytes: Some(self.data),
            high_policy: Some(case.law.name()),
            high_bytes: Some(self.high),
            readahead: Some(case.readahead),
            ops: Some(alone.ops),
            ops_per_s: Some(alone.ops as f64 / alone.seconds),
            verified: Some(settled.ops + alone.ops + beside.ops),
            device_source: Some(device.name()),
            program_runs: programs
                .map(|programs| programs.status().iter().map(|hook| hook.runs).sum()),
            neighbour: Some(NeighbourRow {
                ops_per_s: beside.neighbour_ops as f64 / beside.seconds,
                alone_ops_per_s: quiet,
                latency_us: LatencyUs::from(&beside.neighbour_latency),
                thrasher_ops_per_s: beside.ops as f64 / beside.seconds,
            }),
            ..row
        })
    }
}

/// The files of a run.
#[derive(Debug)]
struct Files {
    data: DataFile,
    neighbour: DataFile,
}

/// A tenant that may have `high`, and its file.
///
/// # Errors
/// [`BenchError::Tenant`], [`BenchError::Open`].
pub(super) fn thrasher(
    pager: &Pager,
    file: &DataFile,
    high: u64,
) -> Result<(Tenant, View), BenchError> {
    let tenant = pager.tenant("thrasher").high(Size::new(high)).create()?;
    let view = OpenOptions::new().tenant(&tenant).lock(false).open(pager, file.path())?;
    Ok((tenant, view))
}

/// What was published, a row for each set of samples.
fn published() -> Vec<TenancyRow> {
    let arms = [
        (Arm::Before, "overage", true),
        (Arm::After, "refault-recency", true),
        (Arm::After, "refault-recency", false),
    ];
    let row = |(arm, law, readahead): (Arm, &str, bool)| {
        let sample = |s: &SarSample| DeviceSample {
            tps: s.tps,
            read_kib: s.read_kib,
            util_pct: Some(s.util_pct),
        };
        let row = TenancyRow {
            workload: NAME,
            world: "real",
            system: "published",
            source: Some("patch"),
            policy: "not stated".into(),
            page_bytes: 4096,
            threads: 1,
            high_policy: Some(law.to_owned()),
            high_bytes: Some(PUBLISHED_HIGH_BYTES),
            readahead: Some(readahead),
            ..TenancyRow::default()
        };
        row.sampled(published_thrash(arm, readahead).iter().map(sample).collect())
    };
    arms.map(row).into()
}

const COLUMNS: &[Column] = &[
    ("policy", |row| if row.source.is_some() { "published".into() } else { row.policy.clone() }),
    ("threads", |row| row.threads.to_string()),
    ("law", |row| row.high_policy.clone().unwrap_or_default()),
    ("read-ahead", |row| row.readahead.map_or("", |on| if on { "on" } else { "off" }).into()),
    ("tps", |row| number(row.device_tps)),
    ("rkB/s", |row| number(row.device_read_kib_per_s)),
    ("%util", |row| tenths(row.device_util_pct)),
    ("own KiB/s", |row| number(row.own_read_kib_per_s)),
    ("loads/s", |row| number(row.ops_per_s)),
    ("slept ms/s", |row| {
        number(row.throttled_ms.zip(row.seconds).map(|(ms, seconds)| ms / seconds))
    }),
    ("neighbour/s", |row| number(row.neighbour.as_ref().map(|n| n.ops_per_s))),
    ("mean µs", |row| micros(row.neighbour.as_ref().map(|n| n.latency_us.mean))),
    ("p99", |row| micros(row.neighbour.as_ref().map(|n| n.latency_us.p99))),
    ("loads/s beside it", |row| number(row.neighbour.as_ref().map(|n| n.thrasher_ops_per_s))),
];

/// Measures every law, with and without read-ahead.
///
/// # Errors
/// Any [`BenchError`].
pub(crate) fn run(args: &ThrashArgs) -> Result<(), BenchError> {
    let plan = Thrash::new(args)?;
    drop(plan.pager(plan.cases[0].policy)?);
    let depot = args.common.files.depot()?;
    let make = |bytes| {
        depot.prepare(Content::Blocks, bytes, 1, Purpose::Lasting).map(|mut files| files.remove(0))
    };
    let files = Files { data: make(plan.data)?, neighbour: make(plan.neighbour_data)? };
    for file in [&files.data, &files.neighbour] {
        file.drop_page_cache()?;
    }
    let device = Device::of(&files.data);
    let pager = plan.pager(plan.cases[0].policy)?;
    let lines = [
        (
            "tenants",
            format!(
                "the thrasher has high {} and a file of {}; the neighbour has max {} and a file \
                 of {}, and thinks 1 ms after each load",
                size(plan.high),
                size(plan.data),
                size(plan.neighbour_max),
                size(plan.neighbour_data)
            ),
        ),
        (
            "device",
            match &device {
                Device::Kernel { name, .. } => {
                    format!(
                        "{name}, by /proc/diskstats, which counts whoever uses it; `own` is by \
                         lowtide's counters"
                    )
                }
                Device::Pager => {
                    "not in /proc/diskstats: its figures are lowtide's own counters".into()
                }
            },
        ),
        (
            "run",
            format!(
                "{} rows, each {:.1} s to settle, {:.1} s alone and {:.1} s beside the neighbour; \
                 {}; seed {}",
                plan.cases.len(),
                plan.half.as_secs_f64(),
                plan.half.as_secs_f64(),
                plan.half.as_secs_f64(),
                args.threads.iter().copied().map(threads_text).collect::<Vec<_>>().join(", "),
                plan.seed
            ),
        ),
    ];
    let machine = head((NAME, ABOUT), &pager, &files.data, &lines)?;
    drop(pager);

    let progress = progress::steps("", plan.cases.len() as u64 + 1);
    progress.set_message("the neighbour alone");
    let quiet = plan.quiet(&files, &device)?;
    progress.inc(1);
    let mut rows = Vec::new();
    let mut cut = Cut::default();
    for case in &plan.cases {
        progress.set_message(format!("{} {}", case.policy, case.law.name()));
        let Some(row) = cut.take(plan.row(case, &files, &device, quiet))? else { break };
        rows.push(row);
        progress.inc(1);
    }
    cut.refuse_nothing(rows.is_empty())?;
    progress.finish_and_clear();
    let verified: u64 = rows.iter().filter_map(|row| row.verified).sum();
    rows.extend(published());
    let closing = [
        format!("{} contents verified, 0 errors", crate::table::thousands(verified as f64)),
        format!("the neighbour alone: {quiet:.0} loads a second"),
        "published: a disk that serves 250 MB/s and 0.25 ms a request; the law of its first row \
         is the kernel's own"
            .into(),
    ];
    tail(&args.common.output, &machine, COLUMNS, rows, &closing, cut)
}
