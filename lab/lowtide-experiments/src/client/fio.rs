//! Jobs that read blocks of mapped files at random: fio's mmap engine, `fio-mmap`.
//!
//! ```text
//!   N processes x { a file, mapped once ── a block is copied out of the mapping ── the next }
//!   all in one group (max); the files are on a ramdisk, so a miss is the work of a CPU
//! ```
//!
//! With fio's default hint the mapping is advised to be random: a miss reads its page alone, and
//! accesses do not count, so the multi-gen LRU evicts in the order in which pages came. The
//! classical lists activate a page that comes back soon, once any page is active; a group owns two
//! such pages of its file system's metadata. Sources: `docs/kernel/workloads.md` §6,
//! `docs/kernel/reclaim.md` §6.1.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use lowtide_core::MemcgId;
use lowtide_sim::machine::{Ctx, Machine, MachineConfig, MachineError, MachineStat, MappingId};

use super::thrash::fitted;
use crate::programs::mapping::{FioBlocks, FioMmap};

/// CPU time of a read that hits, besides the touch and the copy: fio's own loop. A hit takes 550 ns
/// in all (`docs/kernel/workloads.md` §0.4, derived).
const LOOP_NS: u64 = 200;

/// Active pages of the file system's metadata, which the group pays for (`docs/kernel/reclaim.md`
/// §6.1, step 4).
const METADATA: u64 = 2;

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct FioResult {
    /// Counters when the measurement began.
    pub began: MachineStat,
    /// Counters at the end.
    pub ended: MachineStat,
    /// Reads of each job.
    pub reads: Vec<u64>,
}

impl FioResult {
    /// The share of reads whose page was resident.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        let misses = self.ended.kernel.major - self.began.kernel.major;
        1.0 - misses as f64 / self.reads.iter().sum::<u64>().max(1) as f64
    }
}

#[derive(Debug)]
struct Tally {
    reads: Vec<u64>,
    began: Option<MachineStat>,
}

/// Runs the jobs on a machine, whose own `max` must be `None`. `done` counts virtual milliseconds.
///
/// # Errors
/// [`MachineError`].
///
/// # Panics
/// When the machine has no room for a group, or a file no block.
pub fn run(
    machine: &MachineConfig,
    fio: &FioMmap,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<FioResult, MachineError> {
    let page = machine.spec.page;
    let mut m = Machine::new(&fitted(machine, fio.max))?;
    let group = {
        let engine = &mut m.world().pool.engine;
        let group = engine.create_group(MemcgId::ROOT).expect("the root has room for a group");
        engine.set_max(group, fio.max / page)?;
        group
    };
    let metadata = {
        let mut world = m.world();
        let file = world.add_file(METADATA);
        world.open(file)
    };
    m.background_in(group, async move |ctx| {
        // The second access of a page activates it; the same page again would be the same access.
        for page in (0..METADATA).cycle().take(2 * METADATA as usize) {
            ctx.read(metadata, page, 1).await?;
        }
        Ok(())
    });
    let reads = vec![0; fio.jobs as usize];
    let tally = Rc::new(RefCell::new(Tally { reads, began: None }));
    for job in 0..fio.jobs {
        let mapping = {
            let mut world = m.world();
            let process = world.add_address_space(group);
            let file = world.add_file(fio.file / page);
            let open = world.open(file);
            let mapping = world.map_file(process, open);
            if fio.hint {
                world.advise_mapping_random(mapping);
            }
            mapping
        };
        let blocks = fio.blocks(job).expect("a file has blocks");
        let counted = Rc::clone(&tally);
        m.background_in(group, async move |ctx| {
            read_for_ever(ctx, mapping, blocks, || counted.borrow_mut().reads[job as usize] += 1)
                .await
        });
    }
    let now = Rc::new(RefCell::new(0));
    let (millis, seen) = (Rc::clone(&now), Rc::clone(&tally));
    let times = (fio.warm, fio.run);
    m.client(move |ctx| watch(ctx, times, millis, seen));
    m.run(stop, &mut || done.store(*now.borrow(), Relaxed))?;
    let ended = m.stat();
    let tally = tally.borrow();
    let began = tally.began.clone().expect("a measurement begins before it ends");
    Ok(FioResult { began, ended, reads: tally.reads.clone() })
}

/// A job, which never ends.
async fn read_for_ever(
    ctx: Ctx,
    mapping: MappingId,
    mut blocks: FioBlocks,
    mut done: impl FnMut(),
) -> Result<(), MachineError> {
    let each = ctx.w().costs.copy_page_ns + LOOP_NS;
    let pages = FioMmap::BLOCK.div_ceil(ctx.w().page_bytes);
    loop {
        ctx.access(mapping, blocks.choose() * pages, pages, false).await?;
        ctx.spend(each).await;
        done();
    }
}

/// Starts the measurement when the time for it has come, and ends the run.
async fn watch(
    ctx: Ctx,
    (warm, run): (Duration, Duration),
    millis: Rc<RefCell<u64>>,
    tally: Rc<RefCell<Tally>>,
) -> Result<(), MachineError> {
    const STEP_NS: u64 = 100_000_000;
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let until = async |end: u64| {
        while ctx.now() < end {
            ctx.sleep((end - ctx.now()).min(STEP_NS)).await;
            *millis.borrow_mut() = ctx.now() / 1_000_000;
        }
    };
    until(nanos(warm)).await;
    {
        let mut tally = tally.borrow_mut();
        tally.reads.fill(0);
        tally.began = Some(MachineStat::of(&ctx.w()));
    }
    until(nanos(warm + run)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::mapping::FioOrder;
    use lowtide_core::Policy;
    use lowtide_sim::spec::MachineSpec;

    /// `docs/kernel/workloads.md` §6(d): the limit's share of the data, within a point.
    #[test]
    fn uniform_reads_hit_as_often_as_memory_holds_their_block() {
        let fio = FioMmap {
            warm: Duration::from_millis(300),
            run: Duration::from_millis(300),
            ..FioMmap::published(FioOrder::Uniform, 1.0 / 64.0)
        };
        let expected = fio.max as f64 / (f64::from(fio.jobs) * fio.file as f64);
        for policy in [Policy::MGLRU, Policy::LRU] {
            let spec = MachineSpec::load("ramdisk").unwrap();
            let machine = MachineConfig { spec, policy, max: None, seed: 1 };
            let result = run(&machine, &fio, &AtomicU64::new(0), &AtomicBool::new(false)).unwrap();
            let hit = result.hit_ratio();
            assert!((hit - expected).abs() < 0.01, "{policy}: {hit}, {expected}");
            assert!(result.reads.iter().all(|&reads| reads > 1_000), "{:?}", result.reads);
        }
    }

    /// Without recency the multi-gen LRU is first in, first out, in all versions. The classical
    /// lists look at no young bit either; what comes back to an active list makes them hit more, up
    /// to the least recently used.
    #[test]
    fn advised_to_be_random_pages_leave_in_the_order_in_which_they_came() {
        // A publication each two seconds shows how many pages are active.
        let published = FioMmap::published(FioOrder::Zipf, 1.0 / 32.0);
        let fio = FioMmap {
            jobs: 1,
            max: published.file / 4,
            warm: Duration::from_secs(5),
            run: Duration::from_secs(1),
            ..published
        };
        let (fifo, best) = fio.steady_hits().unwrap();
        let play = |policy| {
            let spec = MachineSpec::load("ramdisk").unwrap();
            let machine = MachineConfig { spec, policy, max: None, seed: 1 };
            let result = run(&machine, &fio, &AtomicU64::new(0), &AtomicBool::new(false)).unwrap();
            let events = result.ended.memory.events.since(&result.began.memory.events);
            assert_eq!(events.pgscan, events.pgsteal, "{policy}: no young bit keeps a page");
            (result.hit_ratio(), events)
        };
        let (first, events) = play(Policy::MGLRU);
        // What a charge takes in advance, and what reclaim frees with it, holds no page.
        assert!((first - fifo).abs() < 0.003, "{first}, {fifo}");
        assert_eq!(events.workingset_activate_file, 0);
        let (hit, _) = play(Policy::LRU);
        assert!(hit > fifo - 0.003 && hit < best, "{fifo} < {hit} < {best}");
    }
}
