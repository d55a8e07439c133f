//! A document store with a cache of its own, as MongoDB with WiredTiger, under YCSB: the client of
//! the published experiment.
//!
//! ```text
//!   32 threads ──► key ──► leaf of 27 records ──► in the store's own memory?
//!                                                    no: pread of 32 KiB, through the page cache
//!                                                    memory full: the oldest leaf goes;
//!                                                    if dirty, pwrite to a new extent
//!                          update: the leaf is dirty, 256 bytes of journal
//!   journal thread: every 100 ms, append and fdatasync
//!   checkpoint thread: every 60 s, all dirty leaves to new extents, fsync;
//!                      then old extents are free
//! ```
//!
//! The store's memory is anonymous and there is no swap, so it is simply not available to the page
//! cache. The page cache sees the misses only: long reuse distances, no young bits, and the freshly
//! written leaves, dirty, that nobody reads back soon. Source: `docs/kernel/workloads.md` §1(b).

use super::leaves::Leaves;
use crate::machine::{Ctx, Machine, MachineConfig, MachineError, MachineStat, OpenId};
use hdrhistogram::Histogram;
use lowtide_core::MemcgId;
use lowtide_workload::{Distribution, Letter, RecordOpKind, Ycsb};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Records in a leaf, and bytes of a leaf on disk and in the store's memory.
const RECORDS_PER_LEAF: u64 = 27;
const LEAF_BYTES: u64 = 32 << 10;
const LEAF_MEMORY_BYTES: u64 = LEAF_BYTES * 11 / 10;
/// Bytes of journal for an update.
const JOURNAL_BYTES: u64 = 256;
/// The same for an insertion: the record itself, and what is around it.
const INSERT_JOURNAL_BYTES: u64 = 1_300;
/// The store begins to write dirty leaves when they are this part of its cache.
const DIRTY_TARGET_PERCENT: u64 = 5;
/// The store begins to evict at this part of its cache.
const CACHE_TARGET_PERCENT: u64 = 80;
/// The journal begins again after so many bytes.
const JOURNAL_FILE_BYTES: u64 = 100 << 20;

/// What is run.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseConfig {
    /// Which mix.
    pub letter: Letter,
    /// How keys are chosen.
    pub distribution: Distribution,
    /// Records there are.
    pub records: u64,
    /// Operations measured, all threads together.
    pub ops: u64,
    /// CPU nanoseconds of one insertion while the records are loaded, client and server together.
    pub insert_ns: u64,
    /// Client threads.
    pub threads: u32,
    /// Bytes of the store's own cache.
    pub cache: u64,
    /// Bytes of the index, which stays in that cache.
    pub index: u64,
    /// Other anonymous memory in the group.
    pub other: u64,
    /// CPU nanoseconds of one operation, client and server together.
    pub op_ns: u64,
    /// Nanoseconds between two checkpoints.
    pub checkpoint_ns: u64,
    /// Nanoseconds between two group commits.
    pub journal_ns: u64,
    /// Pages that the read of a leaf brings in beyond it.
    pub excess_pages: u64,
    /// Seed of the keys.
    pub seed: u64,
}

impl DatabaseConfig {
    /// The published experiment at full scale.
    #[must_use]
    pub const fn published(letter: Letter) -> Self {
        Self {
            letter,
            distribution: Distribution::YcsbScrambled,
            records: 20_000_000,
            ops: 6_000_000,
            insert_ns: 400_000,
            threads: 32,
            cache: 9 << 29,
            index: 1 << 29,
            other: 717 << 20,
            op_ns: 130_000,
            checkpoint_ns: 60_000_000_000,
            journal_ns: 100_000_000,
            // 14 pages for 8: what it takes to read 26 to 28 KiB an operation before the series, as
            // published (`docs/kernel/workloads.md` §1, calibration).
            excess_pages: 6,
            seed: 1,
        }
    }

    fn leaves(&self) -> u64 {
        self.records.div_ceil(RECORDS_PER_LEAF)
    }

    fn cached_leaves(&self) -> u64 {
        (self.cache * CACHE_TARGET_PERCENT / 100).saturating_sub(self.index) / LEAF_MEMORY_BYTES
    }
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct DatabaseResult {
    /// Counters when the measured operations began, and when they ended.
    pub began: MachineStat,
    /// See `began`.
    pub ended: MachineStat,
    /// Operations measured.
    pub ops: u64,
    /// Nanoseconds of each.
    pub latency: Histogram<u64>,
    /// Leaves read, and leaves written, during those.
    pub leaf_reads: u64,
    /// See `leaf_reads`.
    pub leaf_writes: u64,
}

#[derive(Debug)]
struct Shared {
    config: DatabaseConfig,
    leaves: Leaves,
    data: OpenId,
    journal: OpenId,
    journal_pending: u64,
    journal_at: u64,
    /// Leaves not yet loaded begin here.
    next_leaf: u32,
    loaded: u32,
    /// Loaded leaves that have not been written, the oldest first.
    unwritten: VecDeque<u32>,
    left: u64,
    done: u64,
    began: Option<MachineStat>,
    latency: Histogram<u64>,
    leaf_reads: u64,
    leaf_writes: u64,
}

type Db = Rc<RefCell<Shared>>;

/// Runs the database on a machine. `done` counts operations, for a progress bar.
///
/// # Errors
/// [`MachineError`].
pub fn run(
    machine: &MachineConfig,
    config: &DatabaseConfig,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<DatabaseResult, MachineError> {
    let mut m = Machine::new(machine)?;
    let page = machine.spec.page;
    let db = {
        let mut world = m.world();
        let reserved = (config.cache + config.other) / page;
        world.pool.engine.try_charge(MemcgId::ROOT, reserved).map_err(|_| {
            MachineError::NoRoom {
                needed: config.cache + config.other,
                max: world.pool.engine.max(MemcgId::ROOT) * page,
            }
        })?;
        let data_file = world.add_file(0);
        let journal_file = world.add_file(0);
        let (data, journal) = (world.open(data_file), world.open(journal_file));
        world.opens[data.0 as usize].readahead.excess = config.excess_pages;
        Rc::new(RefCell::new(Shared {
            leaves: Leaves::new(config.leaves() as u32, config.cached_leaves() as u32),
            config: config.clone(),
            data,
            journal,
            journal_pending: 0,
            journal_at: 0,
            next_leaf: 0,
            loaded: 0,
            unwritten: VecDeque::new(),
            left: config.ops,
            done: 0,
            began: None,
            latency: Histogram::new_with_max(3_600_000_000_000, 3)
                .expect("the bounds are possible"),
            leaf_reads: 0,
            leaf_writes: 0,
        }))
    };
    let ycsb = Ycsb::new(config.letter, config.records, config.distribution, config.seed)
        .expect("there are records and the exponent is in range");
    for thread in 0..config.threads {
        let (db, mut stream) = (Rc::clone(&db), ycsb.stream(thread, config.threads));
        m.client(move |ctx| async move {
            load(&ctx, &db).await?;
            while begin(&db) {
                let op = stream.next_op();
                let began = ctx.now();
                operate(&ctx, &db, op.key, op.kind == RecordOpKind::Update).await?;
                end(&ctx, &db, began);
            }
            Ok(())
        });
    }
    let journal = Rc::clone(&db);
    m.background(move |ctx| journal_thread(ctx, journal));
    let checkpoint = Rc::clone(&db);
    m.background(move |ctx| checkpoint_thread(ctx, checkpoint));
    m.run(stop, &mut || done.store(db.borrow().done, Relaxed))?;
    let ended = m.stat();
    drop(m);
    let shared = db.borrow();
    Ok(DatabaseResult {
        began: shared.began.clone().unwrap_or_else(|| ended.clone()),
        ended,
        ops: shared.latency.len(),
        latency: shared.latency.clone(),
        leaf_reads: shared.leaf_reads,
        leaf_writes: shared.leaf_writes,
    })
}

/// Takes an operation from the common supply.
fn begin(db: &Db) -> bool {
    let mut db = db.borrow_mut();
    let more = db.left > 0;
    db.left -= u64::from(more);
    more
}

fn end(ctx: &Ctx, db: &Db, began: u64) {
    let now = ctx.now();
    let mut db = db.borrow_mut();
    db.done += 1;
    db.latency.saturating_record(now - began);
}

/// Loads records until there are none left, then waits until everybody has: the last one to finish
/// begins the measurement.
async fn load(ctx: &Ctx, db: &Db) -> Result<(), MachineError> {
    let insert_ns = db.borrow().config.insert_ns;
    loop {
        let leaf = {
            let mut db = db.borrow_mut();
            let leaf = db.next_leaf;
            if u64::from(leaf) == db.config.leaves() {
                break;
            }
            db.next_leaf += 1;
            leaf
        };
        ctx.spend(insert_ns * RECORDS_PER_LEAF).await;
        let overdue = {
            let mut db = db.borrow_mut();
            db.leaves.touch(leaf);
            db.leaves.insert(leaf);
            db.leaves.update(leaf);
            db.journal_pending += RECORDS_PER_LEAF * INSERT_JOURNAL_BYTES;
            db.unwritten.push_back(leaf);
            let limit = db.config.cached_leaves() * DIRTY_TARGET_PERCENT / 100;
            if db.unwritten.len() as u64 > limit { db.unwritten.pop_front() } else { None }
        };
        if let Some(leaf) = overdue {
            write_in_place(ctx, db, leaf).await?;
        }
        make_room(ctx, db).await?;
        db.borrow_mut().loaded += 1;
    }
    while u64::from(db.borrow().loaded) < db.borrow().config.leaves() {
        ctx.sleep(1_000_000).await;
    }
    loop {
        let Some(leaf) = db.borrow_mut().unwritten.pop_front() else { break };
        write_in_place(ctx, db, leaf).await?;
    }
    let mut db = db.borrow_mut();
    if db.began.is_none() {
        db.began = Some(MachineStat::of(&ctx.w()));
        (db.leaf_reads, db.leaf_writes) = (0, 0);
    }
    Ok(())
}

/// The first write of a leaf: to the extent it was given when it was made.
async fn write_in_place(ctx: &Ctx, db: &Db, leaf: u32) -> Result<(), MachineError> {
    let (open, extent) = {
        let mut db = db.borrow_mut();
        (db.data, db.leaves.take_clean(leaf))
    };
    let Some(extent) = extent else { return Ok(()) };
    let pages = pages_of(ctx);
    ctx.write(open, u64::from(extent) * pages, pages).await
}

async fn operate(ctx: &Ctx, db: &Db, key: u64, update: bool) -> Result<(), MachineError> {
    let op_ns = db.borrow().config.op_ns;
    ctx.spend(op_ns).await;
    let leaf = (key / RECORDS_PER_LEAF) as u32;
    loop {
        let cached = db.borrow_mut().leaves.touch(leaf);
        if !cached {
            let (open, extent) = {
                let mut db = db.borrow_mut();
                db.leaf_reads += 1;
                (db.data, db.leaves.extent(leaf))
            };
            let pages = pages_of(ctx);
            ctx.read(open, u64::from(extent) * pages, pages).await?;
            db.borrow_mut().leaves.insert(leaf);
            make_room(ctx, db).await?;
        }
        if !update {
            return Ok(());
        }
        // It may have been evicted while another leaf was written.
        let mut db = db.borrow_mut();
        if db.leaves.update(leaf) {
            db.journal_pending += JOURNAL_BYTES;
            return Ok(());
        }
    }
}

fn pages_of(ctx: &Ctx) -> u64 {
    (LEAF_BYTES / ctx.w().page_bytes).max(1)
}

/// Evicts leaves until the store's cache is no larger than it may be.
async fn make_room(ctx: &Ctx, db: &Db) -> Result<(), MachineError> {
    loop {
        let evicted = db.borrow_mut().leaves.evict();
        match evicted {
            None => return Ok(()),
            Some((_, false)) => {}
            Some((leaf, true)) => write_leaf(ctx, db, leaf).await?,
        }
    }
}

async fn write_leaf(ctx: &Ctx, db: &Db, leaf: u32) -> Result<(), MachineError> {
    let (open, extent) = {
        let mut db = db.borrow_mut();
        db.leaf_writes += 1;
        (db.data, db.leaves.relocate(leaf))
    };
    let pages = pages_of(ctx);
    ctx.write(open, u64::from(extent) * pages, pages).await
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
        let (dirty, given_up, open) = {
            let mut db = db.borrow_mut();
            (db.leaves.take_dirty(), db.leaves.take_given_up(), db.data)
        };
        for leaf in dirty {
            write_leaf(&ctx, &db, leaf).await?;
        }
        ctx.sync(open).await?;
        db.borrow_mut().leaves.checkpointed(given_up);
    }
}
