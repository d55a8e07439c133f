//! A program that writes a new file from start to end, in a group that is smaller than the file:
//! `dd-oom` and `fill`.
//!
//! ```text
//!   group (max) ── dd: N x { a block of 1 MiB is made ── write() }  [ fsync ]
//!                                                          │ each page charged, copied, dirtied
//!                                                          │ the group is full
//!                                                          ▼
//!                  reclaim: everything is dirty or being written, which takes the device's time
//! ```
//!
//! Against an ordinary device this measures how near a writer comes to the device's own bandwidth,
//! and how evenly: `fill`.
//!
//! Against one whose writes end after a second it is the reproducer of the throttling OOM,
//! `dd-oom`: memory fills up before anything has been written, so whether the writer survives hangs
//! on who waits, and how long. The multi-gen LRU before the series counted neither dirty pages nor
//! those under writeback, so it never slept, and eighteen fruitless invocations pass in
//! milliseconds (`docs/kernel/reclaim.md` §4.6). A kill is a result here, and no error.
//!
//! The group is one below the machine's root, as in a kernel, so the machine's own dirty limits are
//! far away. Source: `docs/kernel/workloads.md` §4.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use hdrhistogram::Histogram;
use lowtide_core::high::handler::HighPolicy;
use lowtide_core::{MemcgId, MemoryStat};
use lowtide_sim::machine::{Ctx, Machine, MachineConfig, MachineError, MachineStat, OpenId};

use crate::programs::writer::Writer;

/// How a run ended.
#[derive(Clone, Debug)]
pub struct DdResult {
    /// The machine's counters at the end, or at the kill.
    pub stat: MachineStat,
    /// The group at that moment.
    pub group: MemoryStat,
    /// Bytes that had been written to the file: whole blocks.
    pub written: u64,
    /// Nanoseconds of each `write()`.
    pub latency: Histogram<u64>,
    /// Virtual nanoseconds that the charge had been trying that failed, if the program was killed.
    pub killed_after_ns: Option<u64>,
}

impl DdResult {
    /// The part of the group's cached file pages that was dirty or being written at the end; 0 if
    /// there were none.
    #[must_use]
    pub fn unclean(&self) -> f64 {
        let unclean = self.group.file_dirty + self.group.file_writeback;
        if self.group.file == 0 { 0.0 } else { unclean as f64 / self.group.file as f64 }
    }

    /// Folios that reclaim took up for each page that it freed, those included that the multi-gen
    /// LRU only sorted; infinite if it freed none.
    #[must_use]
    pub fn scanned_per_reclaimed(&self) -> f64 {
        let events = &self.group.events;
        (events.pgscan + events.pgrefill) as f64 / events.pgsteal as f64
    }
}

#[derive(Debug)]
struct Tally {
    written: u64,
    latency: Histogram<u64>,
}

/// Runs the program on a machine, whose own `max` must be `None`. `done` counts bytes, for a
/// progress bar.
///
/// # Errors
/// [`MachineError`], but no [`MachineError::OutOfMemory`]: that is [`DdResult::killed_after_ns`].
///
/// # Panics
/// When the machine has no room for a group.
pub fn run(
    machine: &MachineConfig,
    writer: &Writer,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<DdResult, MachineError> {
    let page = machine.spec.page;
    let mut m = Machine::new(machine)?;
    let (group, open) = {
        let mut world = m.world();
        let group =
            world.pool.engine.create_group(MemcgId::ROOT).expect("the root has room for a group");
        world.pool.engine.set_max(group, writer.max / page)?;
        // As in a kernel: nobody pays for having waited.
        world.pool.engine.set_high_policy(group, HighPolicy::Overage);
        let file = world.add_file_of(group, 0);
        (group, world.open(file))
    };
    let latency = Histogram::new_with_max(3_600_000_000_000, 3).expect("the bounds are possible");
    let tally = Rc::new(RefCell::new(Tally { written: 0, latency }));
    let (writer, counted) = (*writer, Rc::clone(&tally));
    m.client_in(group, move |ctx| dd(ctx, open, writer, counted));
    let ended = m.run(stop, &mut || done.store(tally.borrow().written, Relaxed));
    let stat = m.stat();
    let killed_after_ns = match ended {
        Ok(()) => None,
        Err(MachineError::OutOfMemory { .. }) => Some(stat.kernel.oom_tried_ns),
        Err(error) => return Err(error),
    };
    let group = m.world().pool.engine.stat(group);
    let tally = tally.borrow();
    Ok(DdResult {
        stat,
        group,
        written: tally.written,
        latency: tally.latency.clone(),
        killed_after_ns,
    })
}

/// The program's life.
async fn dd(
    ctx: Ctx,
    open: OpenId,
    writer: Writer,
    tally: Rc<RefCell<Tally>>,
) -> Result<(), MachineError> {
    let page = ctx.w().page_bytes;
    let work_ns = u64::try_from(writer.work.as_nanos()).unwrap_or(u64::MAX);
    let mut at = 0;
    while at < writer.file {
        let block = Writer::BLOCK.min(writer.file - at);
        ctx.spend(work_ns).await;
        let began = ctx.now();
        ctx.write(open, at / page, block.div_ceil(page)).await?;
        at += block;
        let now = ctx.now();
        let mut tally = tally.borrow_mut();
        tally.written = at;
        tally.latency.saturating_record(now - began);
    }
    if writer.durable {
        ctx.sync(open).await?;
    }
    ctx.settle().await;
    Ok(())
}
