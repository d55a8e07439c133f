//! The systems of a benchmark: lowtide under some policy (a view or a map), or a peer.

use std::fs::File;
use std::time::Duration;

use lowtide::map::MapMode;
use lowtide::{OpenOptions, Pager, Policy, Size, Stat};
use lowtide_host::usage::{CpuTime, ProcIo};
use lowtide_report::tally::Slice;
use lowtide_sys::memory::page_size;
use lowtide_sys::page_cache::cachestat;

use super::access::{DataAccess, ViewAccess};
use super::datafile::DataFile;
use super::error::BenchError;
use super::map::{self, MapAccess};
use super::play::job::{Job, Script};
use super::play::slice::Turn;
use super::thread_pool::{ThreadPool, Until};

/// Operations per batch during lowtide's warm-up. Without batches, each small page would need its
/// own device read, one after the other, until the budget is full.
const WARM_BATCH: u32 = 256;

/// One row of the result: a system that plays slices of a job under a budget.
pub trait System {
    /// The system's name in results.
    fn name(&self) -> &'static str;

    /// lowtide's policy; `None` for peers.
    fn policy(&self) -> Option<String> {
        None
    }

    /// Name and policy together.
    fn label(&self) -> String {
        self.policy()
            .map_or_else(|| self.name().to_owned(), |policy| format!("{} {policy}", self.name()))
    }

    /// Whether it keeps what it has read, so that it has to be warmed up.
    fn keeps_pages(&self) -> bool {
        true
    }

    /// Plays the next slice and makes its writes durable.
    ///
    /// # Errors
    /// Errors that end the run. Failed operations are counted in the slice instead.
    fn run(&mut self, until: Until) -> Result<Slice, BenchError>;

    /// Like [`run`](System::run), but as fast as possible, before the measurement.
    ///
    /// # Errors
    /// Those of [`run`](System::run).
    fn warm(&mut self, until: Until) -> Result<Slice, BenchError> {
        self.run(until)
    }
}

/// The name of the rows of views.
pub const VIEW: &str = "lowtide";

/// The name of those whose evicted pages never stay compressed.
pub const NO_ZCACHE: &str = "lowtide-no-zcache";

/// lowtide in this process: a view, unless `D` is something else.
pub struct Lowtide<S, D = ViewAccess> {
    name: &'static str,
    pager: Pager,
    access: D,
    policy: Policy,
    pool: ThreadPool,
    batch: u32,
    writes: bool,
    script: S,
    /// The file, if the kernel reads it: only the kernel knows how much, and what it has in memory.
    cached: Option<File>,
}

impl<S: Script> Lowtide<S> {
    /// Opens `file` under `pager`, whose row has this name and policy, and starts threads for the
    /// job.
    ///
    /// # Errors
    /// [`BenchError::Open`] when the file cannot be opened, those of [`ThreadPool::start`].
    pub fn start(
        pager: Pager,
        (name, policy): (&'static str, Policy),
        file: &DataFile,
        job: &Job,
        script: &S,
    ) -> Result<Self, BenchError> {
        let mut options = data_options(job.writes);
        if !job.reads_ahead {
            options = options.read_ahead(Size::new(0));
        }
        let access = ViewAccess::new(options.open(&pager, file.path())?);
        Self::playing(name, pager, policy, access, (job, script))
    }

    /// Another access to its file, through the same pager.
    pub fn access(&self) -> ViewAccess {
        self.access.clone()
    }
}

impl<S: Script> Lowtide<S, MapAccess> {
    /// Maps `file` under `pager`, whose policy is `policy`, and starts the job's threads.
    ///
    /// # Errors
    /// [`BenchError::Map`] when the file cannot be mapped in this way, those of
    /// [`ThreadPool::start`].
    pub fn map(
        pager: Pager,
        policy: Policy,
        way: MapMode,
        file: &DataFile,
        job: &Job,
        script: &S,
    ) -> Result<Self, BenchError> {
        // As for views.
        let read_ahead = (!job.reads_ahead).then_some(0);
        let access = MapAccess::new(map::open(&pager, way, file, job.data_bytes, read_ahead)?);
        let mut system = Self::playing(map::name(way), pager, policy, access, (job, script))?;
        if way == MapMode::PageCache {
            let own = file.file().try_clone();
            system.cached =
                Some(own.map_err(|source| BenchError::file("open", file.path(), source))?);
        }
        Ok(system)
    }
}

impl<S: Script, D: DataAccess + Clone> Lowtide<S, D> {
    fn playing(
        name: &'static str,
        pager: Pager,
        policy: Policy,
        access: D,
        (job, script): (&Job, &S),
    ) -> Result<Self, BenchError> {
        let pool = ThreadPool::start(job.players(script, || access.clone()))?;
        Ok(Self {
            name,
            pager,
            access,
            policy,
            pool,
            batch: job.batch,
            writes: job.writes,
            script: script.clone(),
            cached: None,
        })
    }
}

/// Options for opening data files. The run itself holds the locks of its files, and compares pagers
/// on one file.
pub fn data_options(write: bool) -> OpenOptions {
    OpenOptions::new().write(write).lock(false)
}

impl<S: Script, D: DataAccess> System for Lowtide<S, D> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn policy(&self) -> Option<String> {
        Some(self.policy.to_string())
    }

    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        self.play(until, self.batch)
    }

    fn warm(&mut self, until: Until) -> Result<Slice, BenchError> {
        self.play(until, self.batch.max(WARM_BATCH))
    }
}

impl<S: Script, D: DataAccess> Lowtide<S, D> {
    fn play(&mut self, until: Until, batch: u32) -> Result<Slice, BenchError> {
        let (before, cpu) = (self.pager.stat(), CpuTime::now_self());
        let io = ProcIo::read_self().unwrap_or_default();
        let turn = Turn { until, batch, writes: self.writes, script: &self.script };
        let mut slice = turn.play(&mut self.pool, &mut self.access, |slice| {
            slice.write_back.dirty_bytes = self.writes.then(|| dirty_bytes(&self.pager));
            slice.cached_bytes = self.cached.as_ref().and_then(|file| {
                let stat = cachestat(file, 0, 0).ok()?;
                Some(stat.cached * page_size() as u64)
            });
        })?;
        slice.cpu_seconds = CpuTime::now_self().since(cpu).seconds();
        count(&mut slice, &before, &self.pager.stat());
        if self.cached.is_some() {
            slice.read_bytes = ProcIo::read_self().unwrap_or_default().since(io).read_bytes;
            add_device_kib(&mut slice);
        }
        Ok(slice)
    }
}

/// Bytes that are not on the device yet.
pub fn dirty_bytes(pager: &Pager) -> u64 {
    let dirty = pager.dirty();
    dirty.dirty_bytes + dirty.writeback_bytes
}

/// The pager's counts between two readings, under the kernel's names and in its units.
pub fn count(slice: &mut Slice, before: &Stat, after: &Stat) {
    slice.read_bytes = after.io.read_bytes.saturating_sub(before.io.read_bytes);
    slice.write_bytes = after.io.write_bytes.saturating_sub(before.io.write_bytes);
    let since = |count: fn(&Stat) -> u64| Some(count(after).saturating_sub(count(before)));
    slice.write_back.requests = since(|stat| stat.io.writes);
    let time = |time: fn(&Stat) -> Duration| Some(time(after).saturating_sub(time(before)));
    slice.write_back.throttled = time(|stat| stat.io.throttled);
    slice.write_back.dirty_throttled = time(|stat| stat.dirty.paused);
    slice.write_back.dirty_pauses = since(|stat| stat.dirty.pauses);
    slice.write_back.flusher_wakes = since(|stat| stat.io.flusher_wakes);
    slice.write_back.longest_pause = Some(after.dirty.longest_pause);
    slice.stat = after
        .memory
        .events
        .since(&before.memory.events)
        .iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
    add_device_kib(slice);
    slice.current_bytes = after.memory.current * after.memory.page_bytes;
    slice.metadata_bytes = Some(after.frame_metadata_bytes + after.translation_bytes);
}

/// `pgpgin` and `pgpgout` as in `/proc/vmstat`: KiB from and to devices. (A memory cgroup of
/// version 1 uses the same names for pages charged and uncharged; those are replaced.)
pub fn add_device_kib(slice: &mut Slice) {
    slice.stat.insert("pgpgin".into(), slice.read_bytes >> 10);
    slice.stat.insert("pgpgout".into(), slice.write_bytes >> 10);
}
