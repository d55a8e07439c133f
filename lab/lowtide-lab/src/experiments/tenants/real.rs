//! `lowtide-lab bench tenants`: 64 workers of equal demand in 32 tenants, as Chrome & Node.js in
//! the published evaluation of fairness ([`lowtide_experiments::programs::tenants`]), on real
//! memory.
//!
//! A worker has two regions of its tenant, the server's and the client's, and with `--file` a view
//! of the tenant's file. What is evicted is compressed, by default zeros, of which nothing is kept,
//! as published. Every page that is stored to is checked first: zeros, or the number of stores to
//! it and words of its objects. There is no browser beside the client's arrays, and compressed
//! pages are part of the budget, which a zram device's are not of a group's.
//!
//! Sizes are a fraction (`--scale`) of the published ones, with a budget of 47 % of the heaps.
//! Times have the same fraction, multiplied by the ratio of 96 processors to those of this machine:
//! a request's time is divided by this factor before it is put into a bucket, and a worker pauses
//! before each request for the simulator's time outside page accesses, multiplied by it. Without
//! the pause, a worker whose chunks are resident would do hundreds of requests while another does
//! one, and so keep its chunks. Source: `docs/kernel/workloads.md` §2.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lowtide::{OpenOptions, Pager, Policy, Size, SwapOptions, Tenant, View};
use lowtide_bench::content::{Content, UNIT_BYTES};
use lowtide_bench::datafile::{DataDir, DataFile, Purpose};
use lowtide_bench::error::BenchError;
use lowtide_bench::machine::Machine;
use lowtide_bench::options::Io;
use lowtide_experiments::client::tenants::BUCKETS_S;
use lowtide_experiments::programs::heap::PAGE;
use lowtide_experiments::programs::tenants::{Request, Requests, Tenants};
use lowtide_host::probe::Probe;
use lowtide_report::interrupt::Cut;
use lowtide_report::json::LatencyUs;
use lowtide_report::row::Row;
use lowtide_report::tally::Latency;
use lowtide_report::values::grain;
use lowtide_report::{columns, out, progress::Patient};

use crate::bench::heap::Checked;
use crate::bench::tenancy::host::{check_memory, tail};
use crate::bench::tenancy::loaders::{Count, Loaders, load};
use crate::sim::compare;

use super::{
    ABOUT, BenchOptions, COLUMNS, CPUS, NAME, RESIDENT_PERCENT, WARM, conclusions, describe, row_of,
};

/// One run, with all options resolved.
#[derive(Debug)]
struct Alike {
    io: Io,
    tenants: Tenants,
    scale: f64,
    /// The length of a second of the published run here.
    time_scale: f64,
    /// The time of a request outside page accesses.
    pause: Duration,
    max: u64,
    time: Duration,
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

impl Alike {
    fn new(args: &BenchOptions) -> Self {
        let tenants = args.having.tenants(args.scale, args.seed.seed);
        // Files are whole grains.
        let file = if tenants.file == 0 { 0 } else { grain(tenants.file) };
        let tenants = Tenants { file, ..tenants };
        let cpus = thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
        let time_scale = args.scale * (CPUS / cpus).max(1.0);
        let heaps = u64::from(tenants.all_workers()) * tenants.server();
        Self {
            io: args.io,
            scale: args.scale,
            time_scale,
            pause: Duration::from_secs_f64(tenants.request_ns as f64 / 1e9 * time_scale),
            tenants,
            max: args.max.unwrap_or(heaps / 100 * RESIDENT_PERCENT),
            time: Duration::from_secs_f64(args.seconds),
            policies: args.policies.rows(),
        }
    }

    /// A pager with the budget. Compressed pages may take half of it; what does not fit goes to a
    /// file.
    fn pager(&self, policy: Policy, dir: &DataDir) -> Result<Pager, BenchError> {
        check_memory(self.max)?;
        let swap = SwapOptions::compressed(Size::new(self.max / 2))
            .file(dir.path(), Size::new(self.tenants.bytes()));
        self.io.pager(policy, self.max, PAGE, |builder| builder.swap(swap))
    }

    /// The workers of all tenants, with regions that were not touched yet.
    fn workers(&self, pager: &Pager, files: &[DataFile]) -> Result<Vec<Worker>, BenchError> {
        let mut workers = Vec::new();
        for tenant in 0..self.tenants.tenants {
            let group = pager.tenant(&format!("tenant-{}", tenant + 1)).create()?;
            if let Some(high) = self.tenants.swap_high {
                group.set_swap_high(Size::new(high))?;
            }
            for worker in 0..self.tenants.workers {
                let number = tenant * self.tenants.workers + worker;
                let file = files.get(tenant as usize);
                workers.push(Worker::new(pager, &group, &self.tenants, number, file)?);
            }
        }
        Ok(workers)
    }

    fn row(&self, policy: Policy, dir: &DataDir, files: &[DataFile]) -> Result<Row, BenchError> {
        let pager = self.pager(policy, dir)?;
        let workers = self.workers(&pager, files)?;
        let loaders = Loaders::default();
        let counts: Vec<(Count, Count)> = workers.iter().map(|_| Default::default()).collect();
        let work = Mutex::new(Work::default());
        let workers = workers.into_iter().zip(&counts).map(|(mut worker, (requests, touches))| {
            let (loaders, work) = (&loaders, &work);
            move || {
                let begin = Instant::now();
                loaders.pause(self.pause);
                if !worker.serve(loaders, touches)? {
                    return Ok(());
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
                let read = |(requests, touches): &(Count, Count)| {
                    (requests.ops(), touches.ops(), touches.misses())
                };
                counts.iter().map(read).collect::<Vec<_>>()
            };
            *work.lock().unwrap_or_else(PoisonError::into_inner) = Work::default();
            let (began, before, begin) = (look(), pager.stat(), Instant::now());
            loaders.watch(self.time, || ());
            let (ended, after, seconds) = (look(), pager.stat(), begin.elapsed().as_secs_f64());
            let both = || ended.iter().zip(&began);
            let requests: Vec<u64> = both().map(|(now, then)| now.0 - then.0).collect();
            let touches = both()
                .fold((0, 0), |sum, (now, then)| (sum.0 + now.1 - then.1, sum.1 + now.2 - then.2));
            (requests, touches, seconds, before, after)
        };
        let (requests, touches, seconds, before, after) = loaders.run(workers, measure)?;
        loaders.verdict(&policy.to_string())?;
        let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
        let total: u64 = requests.iter().sum();
        let latency = LatencyUs::from(&work.latency);
        let row = Row {
            world: "real",
            policy: policy.to_string(),
            max_bytes: Some(self.max),
            page_bytes: pager.page_size() as u64,
            ..row_of(&self.tenants, self.scale, latency, &work.buckets)
        };
        Ok(row.on_pager(&before, &after, seconds, touches).with_ops(total).with_workers(requests))
    }
}

/// A server with its client.
struct Worker {
    requests: Requests,
    server: Checked,
    client: Checked,
    file: Option<View>,
}

impl Worker {
    fn new(
        pager: &Pager,
        group: &Tenant,
        tenants: &Tenants,
        number: u32,
        file: Option<&DataFile>,
    ) -> Result<Self, BenchError> {
        let region = |bytes| {
            let region = group.region(bytes).map_err(|source| BenchError::Runtime {
                action: "make a worker's regions".into(),
                source,
            })?;
            Ok::<_, BenchError>(Checked::new(region, tenants.content, tenants.seed))
        };
        let view =
            |file: &DataFile| OpenOptions::new().tenant(group).lock(false).open(pager, file.path());
        Ok(Self {
            requests: tenants.requests(number, PAGE),
            server: region(tenants.server())?,
            client: region(tenants.client())?,
            file: file.map(view).transpose()?,
        })
    }

    /// Serves a request, unless threads are stopped meanwhile. Returns whether it is served.
    fn serve(&mut self, loaders: &Loaders, touches: &Count) -> Result<bool, String> {
        let Request { chunk, file, array, freed } = self.requests.choose();
        for (heap, pages) in [(&mut self.server, chunk), (&mut self.client, array)] {
            for page in pages {
                if loaders.stopped() {
                    return Ok(false);
                }
                touches.done(heap.store(page)?);
            }
        }
        if let Some(view) = &self.file {
            for page in file {
                let missed = !view.is_resident(page);
                load(view, page, page % (PAGE / UNIT_BYTES as u64))?;
                touches.done(missed);
            }
        }
        freed.map_or(Ok(()), |pages| self.client.free(pages))?;
        Ok(true)
    }
}

/// The bucket of a request: the last whose bound it reaches.
fn bucket_of(seconds: f64) -> usize {
    BUCKETS_S.iter().rposition(|&bound| seconds >= bound as f64).unwrap_or(0)
}

/// The lines above the table.
fn head(plan: &Alike, dir: &DataDir) -> Result<Machine, BenchError> {
    let example = dir.scratch("swap")?;
    let pager = plan.pager(plan.policies[0], dir)?;
    let machine = Machine::of(&Probe::ask(), example.path(), example.file(), &pager)?;
    out::line(format_args!("{NAME}: {ABOUT}"));
    for line in machine.lines_of(example.path(), plan.tenants.bytes()) {
        out::line(line);
    }
    out::line(format_args!(
        "tenants   {}: {} in all, in a budget of {}",
        describe(&plan.tenants),
        Size::new(plan.tenants.bytes()),
        Size::new(plan.max)
    ));
    out::line(format_args!(
        "run       {:.1} s for each row, after {:.1} s to warm; sizes are 1/{:.0} of the \
         published; {:.1} ms stand for a second in the buckets, and a request pauses {:.1} ms; \
         seed {}\n",
        plan.time.as_secs_f64(),
        plan.time.as_secs_f64() * WARM,
        1.0 / plan.scale,
        plan.time_scale * 1e3,
        plan.pause.as_secs_f64() * 1e3,
        plan.tenants.seed
    ));
    Ok(machine)
}

/// Measures every policy.
pub(crate) fn run(args: &BenchOptions) -> Result<(), BenchError> {
    let plan = Alike::new(args);
    let data_dir = args.files.data_dir()?;
    let machine = head(&plan, &data_dir)?;
    let files = match plan.tenants.file {
        0 => Vec::new(),
        bytes => {
            let count = plan.tenants.tenants as usize;
            data_dir.prepare(Content::Blocks, bytes, count, Purpose::Lasting)?
        }
    };
    files.iter().try_for_each(DataFile::drop_page_cache)?;
    let mut progress = Patient::steps(plan.policies.len() as u64);
    let mut rows = Vec::new();
    let mut cut = Cut::default();
    for &policy in &plan.policies {
        progress.say(policy.to_string());
        let Some(row) = cut.take(plan.row(policy, &data_dir, &files))? else { break };
        rows.push(row);
        progress.add(1);
    }
    cut.refuse_nothing(rows.is_empty())?;
    drop(progress);
    let mut rows = compare::with_ratios(rows);
    if args.having.is_published() {
        rows = compare::with_published_tenants(rows);
    }
    let closing = conclusions(&rows[0]);
    let table = columns::table(COLUMNS, &rows);
    tail(&args.output, &machine, &table, rows, closing, cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_belongs_to_the_last_bucket_that_it_reaches() {
        assert_eq!([0.0, 0.99, 1.0, 3.9, 4.0, 1e9].map(bucket_of), [0, 0, 1, 2, 3, 8]);
    }
}
