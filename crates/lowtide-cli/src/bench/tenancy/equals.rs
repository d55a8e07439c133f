//! `lowtide bench tenants`: 64 workers of equal demand in 32 tenants, as Chrome & Node.js in the
//! published evaluation of fairness.
//!
//! Each worker repeatedly sweeps one of the 16 chunks of its own file, chosen uniformly. The
//! published servers do that with buffers in anonymous memory; here the pages are a file's, as the
//! runtime does not swap: an evicted page costs a read, never a write. There is no browser either.
//! The fairness and the bimodality of requests are comparable with the published rows, their number
//! is not.
//!
//! Sizes are a fraction (`--scale`) of the published ones, 47 % of them resident. Times have the
//! same fraction, multiplied by the ratio of 96 processors to those of this machine: a request's
//! time is divided by this factor before it is put into a bucket, and a worker pauses before each
//! request for the simulator's time outside page accesses, multiplied by it. Without the pause, a
//! worker whose chunks are resident would do hundreds of requests while another does one, and so
//! keep its chunks. Source: `docs/kernel/workloads.md` §2.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use lowtide::{OpenOptions, Policy, Size};
use lowtide_sim::client::tenants::{BUCKETS_S, TenantsConfig};
use lowtide_sim::statistics::Spread;
use lowtide_workload::SplitMix64;

use super::host::{Common, head, tail, whole_windows};
use super::loaders::{Count, Loaders, load};
use crate::bench::content::{Content, UNIT_BYTES};
use crate::bench::datafile::{DataFile, Purpose};
use crate::bench::error::BenchError;
use crate::bench::options::values::{budget, part, seconds};
use crate::bench::options::{Policies, Seed};
use crate::bench::tally::Latency;
use crate::interrupt::Cut;
use crate::json::LatencyUs;
use crate::progress;
use crate::sim::row::{Bucket, Row, RowLatency};
use crate::sim::{columns, compare};

/// The name.
pub(crate) const NAME: &str = "tenants";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "64 workers in 32 tenants alike, each sweeping chunks of its own file";

/// Resident share at full size, in percent.
const RESIDENT_PERCENT: u64 = 47;
/// Processors of the published machine.
const CPUS: f64 = 96.0;
/// Warm-up time, as a fraction of the measured time.
const WARM: f64 = 0.3;

/// Options of `tenants`.
#[derive(Debug, Args)]
pub(crate) struct TenantsArgs {
    /// Part of the published size: 1/1024 of it is 256 MiB of data
    #[arg(long, value_name = "F", value_parser = part, default_value = "0.0009765625",
          allow_negative_numbers = true)]
    scale: f64,
    /// Memory budget of all tenants together [default: 47 % of the data]
    #[arg(long, value_name = "SIZE", value_parser = budget, allow_hyphen_values = true)]
    max: Option<u64>,
    /// Measured seconds of each row
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "6",
          allow_negative_numbers = true)]
    seconds: f64,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    common: Common,
}

/// One run, with all options resolved.
#[derive(Debug)]
struct Alike<'a> {
    common: &'a Common,
    /// The published experiment at full size.
    whole: TenantsConfig,
    page: u64,
    scale: f64,
    /// The length of a second of the published run here.
    time_scale: f64,
    /// The time of a request outside page accesses.
    pause: Duration,
    chunk: u64,
    max: u64,
    time: Duration,
    seed: u64,
    policies: Vec<Policy>,
}

/// Results of the workers.
#[derive(Debug)]
struct Work {
    latency: Latency,
    buckets: [u64; BUCKETS_S.len()],
}

impl Default for Work {
    fn default() -> Self {
        Self { latency: Latency::default(), buckets: [0; BUCKETS_S.len()] }
    }
}

impl<'a> Alike<'a> {
    fn new(args: &'a TenantsArgs) -> Self {
        let page = args.common.page;
        let whole = TenantsConfig::published(1.0, args.seed.seed);
        let chunk = whole_windows((whole.chunk as f64 * args.scale) as u64, page);
        let data = whole.chunks * u64::from(whole.all_workers()) * chunk;
        // A chunk has a minimum size.
        let scale = chunk as f64 / whole.chunk as f64;
        let cpus = thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
        let time_scale = scale * (CPUS / cpus).max(1.0);
        Self {
            common: &args.common,
            page,
            scale,
            time_scale,
            pause: Duration::from_secs_f64(whole.request_ns as f64 / 1e9 * time_scale),
            whole,
            chunk,
            max: args.max.unwrap_or(data / 100 * RESIDENT_PERCENT),
            time: Duration::from_secs_f64(args.seconds),
            seed: args.seed.seed,
            policies: args.policies.rows(),
        }
    }

    const fn file(&self) -> u64 {
        self.whole.chunks * self.chunk
    }

    fn row(&self, policy: Policy, files: &[DataFile]) -> Result<Row, BenchError> {
        let pager = self.common.pager(policy, self.max)?;
        let mut views = Vec::new();
        for (number, pair) in files.chunks(self.whole.workers as usize).enumerate() {
            let tenant = pager.tenant(&format!("tenant-{}", number + 1)).create()?;
            for file in pair {
                views.push(
                    OpenOptions::new().tenant(&tenant).lock(false).open(&pager, file.path())?,
                );
            }
        }
        let loaders = Loaders::default();
        let counts: Vec<(Count, Count)> = views.iter().map(|_| Default::default()).collect();
        let work = Mutex::new(Work::default());
        let (units, pages) = (self.page / UNIT_BYTES as u64, self.chunk / self.page);
        let workers = views.into_iter().zip(&counts).enumerate();
        let workers = workers.map(|(number, (view, (requests, loads)))| {
            let mut rng = SplitMix64::new(self.seed.wrapping_add(number as u64));
            let (loaders, work) = (&loaders, &work);
            move || {
                let begin = Instant::now();
                loaders.pause(self.pause);
                let first = rng.below(self.whole.chunks) * pages;
                for page in first..first + pages {
                    if loaders.stopped() {
                        return Ok(());
                    }
                    let missed = !view.is_resident(page);
                    load(&view, page, page % units)?;
                    loads.done(missed);
                }
                requests.done(false);
                let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
                work.latency.record(begin.elapsed(), 1);
                let bucket = bucket_of(begin.elapsed().as_secs_f64() / self.time_scale);
                work.buckets[bucket] += 1;
                Ok::<(), String>(())
            }
        });
        let measure = || {
            loaders.watch(self.time.mul_f64(WARM), || ());
            let look = || {
                let read = |(requests, loads): &(Count, Count)| {
                    (requests.ops(), loads.ops(), loads.misses())
                };
                counts.iter().map(read).collect::<Vec<_>>()
            };
            *work.lock().unwrap_or_else(PoisonError::into_inner) = Work::default();
            let (began, before, begin) = (look(), pager.stat(), Instant::now());
            loaders.watch(self.time, || ());
            let (ended, after, seconds) = (look(), pager.stat(), begin.elapsed().as_secs_f64());
            let both = || ended.iter().zip(&began);
            let requests: Vec<u64> = both().map(|(now, then)| now.0 - then.0).collect();
            let loads = both()
                .fold((0, 0), |sum, (now, then)| (sum.0 + now.1 - then.1, sum.1 + now.2 - then.2));
            (requests, loads, seconds, before, after)
        };
        let (requests, loads, seconds, before, after) = loaders.run(workers, measure)?;
        loaders.verdict(&policy.to_string())?;
        let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
        let total: u64 = requests.iter().sum();
        let threads = self.whole.all_workers();
        let row = Row::real(NAME, &pager, policy, threads, self.seed)
            .on_pager(&before, &after, seconds, loads)
            .with_ops(total)
            .with_workers(requests);
        Ok(Row {
            program: Some("files"),
            max_bytes: Some(self.max),
            data_bytes: Some(self.file() * u64::from(threads)),
            scale: Some(self.scale),
            latency_us: Some(RowLatency::Whole(LatencyUs::from(&work.latency))),
            latency_buckets: Some(Bucket::all(&BUCKETS_S, &work.buckets)),
            ..row
        })
    }
}

/// The bucket of a request: the last whose bound it reaches.
fn bucket_of(seconds: f64) -> usize {
    BUCKETS_S.iter().rposition(|&bound| seconds >= bound as f64).unwrap_or(0)
}

/// Measures every policy.
///
/// # Errors
/// Any [`BenchError`].
pub(crate) fn run(args: &TenantsArgs) -> Result<(), BenchError> {
    let plan = Alike::new(args);
    let pager = plan.common.pager(plan.policies[0], plan.max)?;
    let data_dir = args.common.files.data_dir()?;
    let files = data_dir.prepare(
        Content::Blocks,
        plan.file(),
        plan.whole.all_workers() as usize,
        Purpose::Lasting,
    )?;
    for file in &files {
        file.drop_page_cache()?;
    }
    let lines = [
        (
            "tenants",
            format!(
                "{} without limits, {} workers each, a worker with {} chunks \
                 of {}: {} in all, in a budget of {}",
                plan.whole.tenants,
                plan.whole.workers,
                plan.whole.chunks,
                Size::new(plan.chunk),
                Size::new(plan.file() * u64::from(plan.whole.all_workers())),
                Size::new(plan.max)
            ),
        ),
        (
            "pages",
            "of files: the runtime does not swap, so an eviction costs a read and never a write"
                .into(),
        ),
        (
            "run",
            format!(
                "{:.1} s for each row, after {:.1} s to warm; sizes are 1/{:.0} of the published; \
                 {:.1} ms stand for a second in the buckets, and a request pauses {:.1} ms; seed \
                 {}",
                plan.time.as_secs_f64(),
                plan.time.as_secs_f64() * WARM,
                1.0 / plan.scale,
                plan.time_scale * 1e3,
                plan.pause.as_secs_f64() * 1e3,
                plan.seed
            ),
        ),
    ];
    let machine = head((NAME, ABOUT), &pager, &files[0], &lines)?;
    drop(pager);
    let progress = progress::steps("", plan.policies.len() as u64);
    let mut rows = Vec::new();
    let mut cut = Cut::default();
    for &policy in &plan.policies {
        progress.set_message(policy.to_string());
        let Some(row) = cut.take(plan.row(policy, &files))? else { break };
        rows.push(row);
        progress.inc(1);
    }
    cut.refuse_nothing(rows.is_empty())?;
    progress.finish_and_clear();
    let rows = compare::with_published_tenants(compare::with_ratios(rows));
    let spread = Spread::of(
        &rows[0].workers.as_ref().map(|workers| workers.requests.clone()).unwrap_or_default(),
    );
    let closing = [
        format!(
            "{}: the worker that did least did {:.2} of the mean",
            rows[0].policy,
            if spread.mean > 0.0 { spread.least / spread.mean } else { 0.0 }
        ),
        "published rows are of anonymous memory on zram, on 96 threads, with a browser for each \
         worker: compare fairness, not counts"
            .into(),
    ];
    let table = columns::table(columns::TENANTS, &rows);
    tail(&args.common.output, &machine, &table, rows, &closing, cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_belongs_to_the_last_bucket_that_it_reaches() {
        assert_eq!([0.0, 0.99, 1.0, 3.9, 4.0, 1e9].map(bucket_of), [0, 0, 1, 2, 3, 8]);
    }
}
