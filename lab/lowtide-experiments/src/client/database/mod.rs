//! A document store with a cache of its own, as MongoDB with WiredTiger, under YCSB: the client of
//! the published experiment, and of the one that real kernels performed for comparison.
//!
//! ```text
//!   32 threads ──► key ──► leaf of 27 records ──► in the store's own memory?
//!                                                    no: the oldest leaf goes (if dirty, pwrite to
//!                                                    a free extent); pread of 24 to 32 KiB,
//!                                                    through the page cache
//!                          update: the leaf is dirty, 256 bytes of journal;
//!                          more than 5 % of the cache dirty: pwrite of the oldest dirty leaf
//!   4 eviction workers: instead, when more than 5 % is dirty, the hundred oldest dirty leaves
//!   journal thread: every 100 ms, append and fdatasync
//!   checkpoint thread: every 60 s, all dirty leaves to free extents, fsync;
//!                      then old extents are free
//! ```
//!
//! The store's memory is anonymous and there is no swap, so it is simply not available to the page
//! cache. The page cache sees the misses only: long reuse distances, no young bits, and the freshly
//! written leaves, dirty, at places that are scattered over the file.
//!
//! The run begins with the file as it is after a while of use (`extents.rs`), with nothing of it in
//! the page cache, and with an empty cache of the store's own. Everything runs in one group below
//! the machine's root, which has a dirty domain of its own. The rest of the machine is idle.
//!
//! Sources: `docs/kernel/workloads.md` §1(b); `docs/design/fidelity.md`, the database.

mod cache;
mod extents;
mod recency;

pub use extents::Layout;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use hdrhistogram::Histogram;
use lowtide_core::high::handler::HighPolicy;
use lowtide_core::{DirtyLimits, MemcgId, MemoryStat};
use lowtide_sim::machine::{Ctx, Machine, MachineConfig, MachineError, MachineStat, OpenId, World};
use lowtide_workload::{Distribution, Letter, RecordOpKind, SplitMix64, Ycsb};

use cache::Cache;
use extents::{Extent, Extents};

/// Records in a leaf.
const RECORDS_PER_LEAF: u64 = 27;
/// Bytes of a leaf in the published store's memory: 32 KiB and its administration.
const LEAF_MEMORY_BYTES: u64 = (32 << 10) * 11 / 10;
/// Bytes of journal for an update.
const JOURNAL_BYTES: u64 = 256;
/// The store begins to write dirty leaves when they are this part of its cache.
const DIRTY_TARGET_PERCENT: u32 = 5;
/// Dirty leaves that are queued at a time: a third of the 300 that the store's server looks at.
const EVICTION_QUEUE: usize = 100;
/// Time after which an idle worker looks again. Guess.
const EVICTION_POLL_NS: u64 = 1_000_000;
/// The store evicts at this part of its cache.
const CACHE_TARGET_PERCENT: u64 = 80;
/// The journal begins again after so many bytes.
const JOURNAL_FILE_BYTES: u64 = 100 << 20;

/// What is run. Sizes are in bytes, times in virtual nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseConfig {
    /// Operations that update their record, in percent.
    pub update_percent: u32,
    /// How keys are chosen.
    pub distribution: Distribution,
    /// Records there are.
    pub records: u64,
    /// Operations before the measurement, all threads together.
    pub warm_ops: u64,
    /// Operations measured, all threads together.
    pub ops: u64,
    /// Client threads.
    pub threads: u32,
    /// Budget of the group.
    pub max: u64,
    /// Leaves that the store's own cache holds.
    pub cached_leaves: u32,
    /// Anonymous memory in the group: the store's cache, and whatever else its process has.
    pub anon: u64,
    /// Pages of a leaf on disk, from 1 to 8, each as often as it is to occur.
    pub leaf_pages: &'static [u8],
    /// Where the dirty leaves go.
    pub layout: Layout,
    /// Workers that write dirty leaves, a queue at a time; with 0, an operation that makes too many
    /// dirty writes the oldest of them itself.
    pub eviction_workers: u32,
    /// CPU time for which a worker prepares a leaf that it writes: reconciled and compressed.
    pub reconcile_ns: u64,
    /// Part of the file's extents that are free when the run begins, in percent.
    pub free_percent: u32,
    /// The file system keeps the file in large folios, as ext4 and XFS do.
    pub large_folios: bool,
    /// How much may be dirty; `None` for the kernel's defaults.
    pub dirty_limits: Option<DirtyLimits>,
    /// CPU time of one operation, client and server together.
    pub op_ns: u64,
    /// Time between two checkpoints.
    pub checkpoint_ns: u64,
    /// Time between two group commits.
    pub journal_ns: u64,
    /// Time between two readings of the group's statistics, by which an observer learns how much
    /// is dirty. As in a kernel, a reading brings the figures up to date that writers and flusher
    /// go by; without one they are up to two seconds old.
    pub reading_ns: u64,
    /// Seed of the keys and of the file's layout.
    pub seed: u64,
}

impl DatabaseConfig {
    /// The published experiment, its sizes multiplied by `scale`: 20 million records, a group of
    /// 10 GiB of which the store takes 5.2.
    ///
    /// The ranks that keys are drawn from are scaled so that the hit ratios of both caches stay
    /// what they are at full size (`docs/kernel/workloads.md` §1, parameters).
    #[must_use]
    pub fn published(letter: Letter, scale: f64) -> Self {
        const RECORDS: u64 = 20_000_000;
        let part = |amount: u64| ((amount as f64 * scale).round() as u64).max(1);
        // Sizes are whole mebibytes, and so whole pages.
        let size = |bytes: u64| part(bytes >> 20) << 20;
        let (cache, index) = (size(9 << 29), size(1 << 29));
        let leaves = (cache * CACHE_TARGET_PERCENT / 100).saturating_sub(index) / LEAF_MEMORY_BYTES;
        let records = part(RECORDS);
        let ranks = 1e10 * (records as f64 / RECORDS as f64).powf(2.06);
        Self {
            update_percent: letter.update_percent(),
            distribution: if records == RECORDS {
                Distribution::YcsbScrambled
            } else {
                Distribution::YcsbRanks(ranks.round() as u64)
            },
            records,
            warm_ops: 0,
            ops: part(6_000_000),
            threads: 32,
            max: size(10 << 30),
            cached_leaves: (leaves as u32).max(1),
            anon: cache + size(717 << 20),
            // 27 records of 1,168 bytes, compressed to 92 %: seven pages and a bit.
            leaf_pages: &[6, 7, 7, 7, 7, 8, 8, 8, 8, 8],
            layout: Layout::Scattered,
            // The store's default, and a guess for 32 KiB.
            eviction_workers: 4,
            reconcile_ns: 100_000,
            // Guess: a database that has been in use. Real kernels were asked with the same.
            free_percent: 15,
            large_folios: true,
            dirty_limits: None,
            op_ns: 130_000,
            checkpoint_ns: 60_000_000_000,
            journal_ns: 100_000_000,
            // Guess: a monitor.
            reading_ns: 1_000_000_000,
            seed: 1,
        }
    }

    /// The experiment that real kernels performed: about a ninth of the published one, in a group
    /// of 278,528 pages of 4 KiB, on two CPUs.
    #[must_use]
    pub fn ground_truth() -> Self {
        const PAGE: u64 = 4096;
        Self {
            update_percent: Letter::B.update_percent(),
            distribution: Distribution::YcsbRanks(96_000_000),
            records: 78_500 * RECORDS_PER_LEAF,
            warm_ops: 90_000,
            ops: 100_000,
            threads: 32,
            max: 278_528 * PAGE,
            cached_leaves: 9_605,
            anon: (9_605 * 9 + 38_900) * PAGE,
            leaf_pages: &[7],
            layout: Layout::Scattered,
            eviction_workers: 0,
            reconcile_ns: 0,
            free_percent: 15,
            large_folios: true,
            dirty_limits: None,
            // Guess: a hash, a list and a few comparisons, on an emulated CPU.
            op_ns: 20_000,
            // Rarer than the run.
            checkpoint_ns: 3_600_000_000_000,
            journal_ns: 200_000_000,
            // Guess: often enough for an average of the dirty part.
            reading_ns: 100_000_000,
            seed: 1,
        }
    }

    fn leaves(&self) -> u32 {
        u32::try_from(self.records.div_ceil(RECORDS_PER_LEAF)).unwrap_or(u32::MAX)
    }

    /// Bytes of the file of leaves when the run begins, about.
    #[must_use]
    pub fn file_bytes(&self, page: u64) -> u64 {
        let pages: u64 = self.leaf_pages.iter().map(|&pages| u64::from(pages)).sum();
        let extents = u64::from(self.leaves()) * 100 / (100 - u64::from(self.free_percent.min(99)));
        extents * pages / self.leaf_pages.len() as u64 * page
    }
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct DatabaseResult {
    /// Counters when the measured operations began, and when they ended.
    pub began: MachineStat,
    /// See `began`.
    pub ended: MachineStat,
    /// The group at the end.
    pub group: MemoryStat,
    /// Operations measured.
    pub ops: u64,
    /// Nanoseconds of each.
    pub latency: Histogram<u64>,
    /// Leaves read, and leaves written, during those.
    pub leaf_reads: u64,
    /// See `leaf_reads`.
    pub leaf_writes: u64,
    /// Pages of the leaves read.
    pub asked_pages: u64,
    /// The part of the cached file pages that was dirty, on average.
    pub dirty_share: f64,
}

#[derive(Debug, Default)]
struct Tally {
    leaf_reads: u64,
    leaf_writes: u64,
    asked_pages: u64,
    dirty_shares: f64,
    readings: u64,
}

#[derive(Debug)]
struct Shared {
    config: DatabaseConfig,
    group: MemcgId,
    extents: Extents,
    cache: Cache,
    data: OpenId,
    journal: OpenId,
    /// Dirty leaves that the workers are to write.
    eviction_queue: VecDeque<u32>,
    journal_pending: u64,
    journal_at: u64,
    left: u64,
    done: u64,
    began: Option<MachineStat>,
    latency: Histogram<u64>,
    tally: Tally,
}

type Db = Rc<RefCell<Shared>>;

impl Shared {
    /// The store before its first operation: its group, its files, and its memory, which is
    /// charged.
    fn new(world: &mut World, config: &DatabaseConfig) -> Result<Self, MachineError> {
        let page = world.page_bytes;
        let mut rng = SplitMix64::new(config.seed).fork(1 << 32);
        let extents = Extents::new(
            config.leaves(),
            config.leaf_pages,
            config.layout,
            config.free_percent,
            &mut rng,
        );
        let engine = &mut world.pool.engine;
        let group = engine.create_group(MemcgId::ROOT).expect("the root has room for a group");
        engine.set_max(group, config.max / page)?;
        // As in a kernel: a task that has waited owes nothing.
        engine.set_high_policy(group, HighPolicy::Overage);
        if let Some(limits) = config.dirty_limits {
            engine.set_dirty_limits(group, limits).expect("the limits were checked");
        }
        engine.try_charge(group, config.anon.div_ceil(page)).map_err(|over| {
            MachineError::NoRoom { needed: config.anon, max: engine.max(over) * page }
        })?;
        let data_file = world.add_file_of(group, u64::from(extents.pages()));
        let journal_file = world.add_file_of(group, 0);
        if config.large_folios {
            world.allow_large_folios(data_file);
        }
        let (data, journal) = (world.open(data_file), world.open(journal_file));
        let dirty_target = config.cached_leaves * DIRTY_TARGET_PERCENT / 100;
        Ok(Self {
            group,
            extents,
            cache: Cache::new(config.leaves(), config.cached_leaves, dirty_target),
            config: config.clone(),
            data,
            journal,
            eviction_queue: VecDeque::new(),
            journal_pending: 0,
            journal_at: 0,
            left: config.warm_ops + config.ops,
            done: 0,
            began: (config.warm_ops == 0).then(|| MachineStat::of(world)),
            latency: Histogram::new_with_max(3_600_000_000_000, 3)
                .expect("the bounds are possible"),
            tally: Tally::default(),
        })
    }

    /// What was measured until the machine's counters and the group's were these.
    fn result(&self, ended: MachineStat, group: MemoryStat) -> DatabaseResult {
        let tally = &self.tally;
        DatabaseResult {
            began: self.began.clone().unwrap_or_else(|| ended.clone()),
            ended,
            group,
            ops: self.latency.len(),
            latency: self.latency.clone(),
            leaf_reads: tally.leaf_reads,
            leaf_writes: tally.leaf_writes,
            asked_pages: tally.asked_pages,
            dirty_share: tally.dirty_shares / tally.readings.max(1) as f64,
        }
    }
}

/// Runs the database on a machine, whose own `max` must be `None`. `done` counts operations, for a
/// progress bar.
///
/// # Errors
/// [`MachineError`]; [`MachineError::NoRoom`] if the store's memory takes the whole budget.
///
/// # Panics
/// When the machine has no room for a group, or there are no records or no leaf sizes.
pub fn run(
    machine: &MachineConfig,
    config: &DatabaseConfig,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<DatabaseResult, MachineError> {
    let mut spec = machine.spec.clone();
    // Nothing runs outside of the group: frames that it can never have are not simulated.
    spec.memory = spec.memory.min(spec.kernel + 2 * config.max);
    let mut m = Machine::new(&MachineConfig { spec, ..machine.clone() })?;
    let db = Rc::new(RefCell::new(Shared::new(&mut m.world(), config)?));
    let group = db.borrow().group;
    spawn(&mut m, &db);
    m.run(stop, &mut || done.store(db.borrow().done, Relaxed))?;
    let (ended, at_end) = (m.stat(), m.world().pool.engine.stat(group));
    drop(m);
    Ok(db.borrow().result(ended, at_end))
}

/// Starts the clients and the store's own threads.
fn spawn(m: &mut Machine, db: &Db) {
    let Shared { config, group, .. } = &*db.borrow();
    let group = *group;
    let ycsb = Ycsb::new(Letter::B, config.records, config.distribution, config.seed)
        .expect("there are records and the exponent is in range")
        .with_updates(config.update_percent);
    for thread in 0..config.threads {
        let (db, mut stream) = (Rc::clone(db), ycsb.stream(thread, config.threads));
        m.client_in(group, async move |ctx| {
            while begin(&db) {
                let op = stream.next_op();
                let began = ctx.now();
                operate(&ctx, &db, op.key, op.kind == RecordOpKind::Update).await?;
                end(&ctx, &db, began);
            }
            Ok(())
        });
    }
    for _ in 0..config.eviction_workers {
        let db = Rc::clone(db);
        m.background_in(group, move |ctx| eviction_worker(ctx, db));
    }
    let journal = Rc::clone(db);
    m.background_in(group, move |ctx| journal_thread(ctx, journal));
    let checkpoint = Rc::clone(db);
    m.background_in(group, move |ctx| checkpoint_thread(ctx, checkpoint));
    let observer = Rc::clone(db);
    m.background(move |ctx| observe(ctx, observer));
}

/// Takes an operation from the common supply.
fn begin(db: &Db) -> bool {
    let mut db = db.borrow_mut();
    let more = db.left > 0;
    db.left -= u64::from(more);
    more
}

/// Counts an operation; the last one before the measurement begins it.
fn end(ctx: &Ctx, db: &Db, began: u64) {
    let now = ctx.now();
    let mut guard = db.borrow_mut();
    let db = &mut *guard;
    db.done += 1;
    if db.began.is_none() {
        if db.done >= db.config.warm_ops {
            db.began = Some(MachineStat::of(&ctx.w()));
            db.tally = Tally::default();
        }
        return;
    }
    db.latency.saturating_record(now - began);
}

async fn operate(ctx: &Ctx, db: &Db, key: u64, update: bool) -> Result<(), MachineError> {
    let op_ns = db.borrow().config.op_ns;
    ctx.spend(op_ns).await;
    let leaf = (key / RECORDS_PER_LEAF) as u32;
    loop {
        let cached = db.borrow_mut().cache.touch(leaf);
        if !cached {
            make_room(ctx, db).await?;
            let (open, extent) = {
                let mut guard = db.borrow_mut();
                let db = &mut *guard;
                let extent = db.extents.of(leaf);
                db.tally.leaf_reads += 1;
                db.tally.asked_pages += u64::from(extent.pages);
                (db.data, extent)
            };
            ctx.read(open, extent.first.into(), extent.pages.into()).await?;
            db.borrow_mut().cache.insert(leaf);
        }
        if !update {
            return Ok(());
        }
        let (updated, overdue) = {
            let mut guard = db.borrow_mut();
            let db = &mut *guard;
            // It may have been evicted while another leaf was written.
            let updated = db.cache.update(leaf);
            db.journal_pending += JOURNAL_BYTES * u64::from(updated);
            let inline = db.config.eviction_workers == 0;
            (updated, inline.then(|| db.cache.overdue()).flatten())
        };
        if let Some(overdue) = overdue {
            write_leaf(ctx, db, overdue).await?;
        }
        if updated {
            return Ok(());
        }
    }
}

/// Evicts leaves until there is room for another.
async fn make_room(ctx: &Ctx, db: &Db) -> Result<(), MachineError> {
    loop {
        let evicted = db.borrow_mut().cache.evict();
        match evicted {
            None => return Ok(()),
            Some((_, false)) => {}
            Some((leaf, true)) => write_leaf(ctx, db, leaf).await?,
        }
    }
}

async fn write_leaf(ctx: &Ctx, db: &Db, leaf: u32) -> Result<(), MachineError> {
    let (open, extent): (OpenId, Extent) = {
        let mut guard = db.borrow_mut();
        let db = &mut *guard;
        db.tally.leaf_writes += 1;
        (db.data, db.extents.allocate(leaf))
    };
    ctx.write(open, extent.first.into(), extent.pages.into()).await?;
    db.borrow_mut().extents.moved(leaf, extent);
    Ok(())
}

/// Writes the leaves of the queue, and fills it when too many are dirty.
async fn eviction_worker(ctx: Ctx, db: Db) -> Result<(), MachineError> {
    let prepare = db.borrow().config.reconcile_ns;
    loop {
        let next = {
            let mut guard = db.borrow_mut();
            let db = &mut *guard;
            if db.eviction_queue.is_empty() && db.cache.is_too_dirty() {
                let oldest = std::iter::from_fn(|| db.cache.take_dirty());
                db.eviction_queue.extend(oldest.take(EVICTION_QUEUE));
            }
            db.eviction_queue.pop_front()
        };
        match next {
            Some(leaf) => {
                ctx.spend(prepare).await;
                write_leaf(&ctx, &db, leaf).await?;
            }
            None => ctx.sleep(EVICTION_POLL_NS).await,
        }
    }
}

/// Reads the group's statistics now and then.
async fn observe(ctx: Ctx, db: Db) -> Result<(), MachineError> {
    let (interval, id) = (db.borrow().config.reading_ns, db.borrow().group);
    loop {
        ctx.sleep(interval).await;
        let group = {
            let mut guard = ctx.w();
            let world = &mut *guard;
            world.published.read(&mut world.pool.engine, id)
        };
        let mut db = db.borrow_mut();
        if db.began.is_some() {
            db.tally.dirty_shares += group.file_dirty as f64 / group.file.max(1) as f64;
            db.tally.readings += 1;
        }
    }
}

async fn journal_thread(ctx: Ctx, db: Db) -> Result<(), MachineError> {
    let interval = db.borrow().config.journal_ns;
    loop {
        ctx.sleep(interval).await;
        let (open, at, bytes) = {
            let mut db = db.borrow_mut();
            let bytes = std::mem::take(&mut db.journal_pending);
            let at = db.journal_at;
            db.journal_at = if at + bytes > JOURNAL_FILE_BYTES { 0 } else { at + bytes };
            (db.journal, at, bytes)
        };
        if bytes > 0 {
            let page = ctx.w().page_bytes;
            let (first, last) = (at / page, (at + bytes - 1) / page);
            ctx.write(open, first, last - first + 1).await?;
            ctx.sync(open).await?;
        }
    }
}

async fn checkpoint_thread(ctx: Ctx, db: Db) -> Result<(), MachineError> {
    let interval = db.borrow().config.checkpoint_ns;
    loop {
        ctx.sleep(interval).await;
        let (given_up, open) = {
            let mut db = db.borrow_mut();
            (db.extents.take_given_up(), db.data)
        };
        loop {
            let dirty = db.borrow_mut().cache.take_dirty();
            let Some(leaf) = dirty else { break };
            write_leaf(&ctx, &db, leaf).await?;
        }
        ctx.sync(open).await?;
        db.borrow_mut().extents.checkpointed(given_up);
    }
}
