//! Jobs that read blocks of mapped files at random: fio's mmap engine, `fio-mmap`.
//!
//! ```text
//!   N processes x { a file, mapped once ── a block is copied out of the mapping ── the next }
//!   all in one group (max); the files are on a ramdisk, so a miss is the work of a CPU
//! ```
//!
//! With fio's default hint the mapping is advised to be random: a miss reads its page alone, and
//! accesses do not count, so every policy evicts in about the order in which pages came. Source:
//! `docs/kernel/workloads.md` §6.

use super::thrash::fitted;
use crate::machine::{Ctx, Machine, MachineConfig, MachineError, MachineStat, MappingId};
use lowtide_core::MemcgId;
use lowtide_workload::mapping::{FioBlocks, FioMmap};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// CPU time of a read that hits, besides the touch and the copy: fio's own loop. A hit takes 550 ns
/// in all (`docs/kernel/workloads.md` §0.4, derived).
const LOOP_NS: u64 = 200;

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
        m.background_in(group, move |ctx| async move {
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
    use crate::spec::MachineSpec;
    use lowtide_core::Policy;
    use lowtide_workload::mapping::FioOrder;

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
}
