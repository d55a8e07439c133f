//! Heaps of the full machine, and swap on compressed memory.
//!
//! ```text
//!   fault ─► resident? ─no─► swapped out? ─no──► charge ─► zeros ─► insert ─► map          (minor)
//!               │                 └──────yes──► charge ─► decompress ─► swap_in ─► map     (major)
//!               │                                              (slot given up)
//!               └──yes (swap cache, if a reclaim left it there)──► swap_fault ─► map young (minor)
//!
//!   reclaim ─► slots taken ─► unmapped ─► compressed, in the reclaiming task's own time ─► freed
//! ```
//!
//! No task waits for a device: compression and decompression are computing, by the task that
//! reclaims and by the task that faults. So there is no writeback of heaps, reclaim never naps for
//! them, and a page that is mapped again gives its slot up at once
//! (`docs/kernel/fault-and-writeback.md` A7, C3). A heap of zeros is recognised as such: nothing is
//! compressed, nothing kept, and a fault fills a page instead of decompressing one.
//!
//! A CPU takes slots from a cluster of its own, and gives one back under the lock of its cluster.
//! Only for a new cluster it takes the lock that the whole machine shares
//! (`docs/kernel/fault-and-writeback.md` C2). What compressed pages take comes out of the budget
//! where the budget is the machine's memory; a group with a limit does not pay for it.
//!
//! There is no read-ahead: set-ups with compressed memory use none. Sources:
//! `docs/kernel/workloads.md` §2(b); `docs/kernel/reclaim.md` §4.1, 7.5.

use super::ctx::Ctx;
use super::ended::MachineError;
use super::lock::SpinLock;
use super::sched::TaskId;
use super::watch::PageEvent;
use super::world::{Mapping, MappingId, World};
use crate::memory::ObjectId;
use crate::pool::{Pool, UnmapWork};
use crate::spec::{Compressor, MachineSpec, SwapKind};
use crate::zram::Zram;
use lowtide_core::limits::MIN_BUDGET;
use lowtide_core::{MemcgId, Swap};

/// Slots of a cluster.
const CLUSTER: u64 = 512;

/// Swap as the machine has it.
#[derive(Debug, Default)]
pub struct SwapArea {
    /// Its slots; 0 is no swap.
    pub slots: u64,
    /// The lock that clusters are taken under.
    pub lock: SpinLock,
    /// Slots of clusters that were taken so far, and are not given out yet.
    at_hand: u64,
    /// What compresses its pages.
    compressor: Compressor,
    /// Pages of the budget before compressed pages take their part of it; 0 if they take none of
    /// it.
    budget: u64,
    /// What they take of it now.
    taken: u64,
}

impl SwapArea {
    /// Gives an empty pool the swap of a machine. `whole`: the budget is all of the machine's
    /// memory.
    ///
    /// # Errors
    /// [`MachineError::SwapDevice`] for swap that is not simulated.
    pub(super) fn new(
        spec: &MachineSpec,
        pool: &mut Pool,
        whole: bool,
    ) -> Result<Self, MachineError> {
        let Some(swap) = &spec.swap else { return Ok(Self::default()) };
        if swap.kind == SwapKind::Device {
            return Err(MachineError::SwapDevice { machine: spec.name.clone() });
        }
        let slots = swap.size / spec.page;
        pool.engine.set_swap(Swap { pages: slots, synchronous: true }).expect("none of it is used");
        pool.zram = Zram::new(spec.page * u64::from(swap.compressed_percent) / 100);
        let budget = if whole { pool.engine.max(MemcgId::ROOT) } else { 0 };
        let compressor = swap.compressor;
        Ok(Self { slots, compressor, budget, ..Self::default() })
    }
}

impl World {
    /// Marks a heap that has only zeros, whatever is stored to it. Called before the first access.
    pub fn set_zeros(&mut self, heap: MappingId) {
        let object = self.mapped_object(heap);
        self.pool.zram.set_zeros(object);
    }

    /// Takes what compressed pages take now out of the budget, where it is the machine's memory
    /// that they are in.
    pub fn fit_zram(&mut self) {
        let taken = self.pool.zram.bytes().div_ceil(self.page_bytes);
        if self.swap.budget == 0 || taken == self.swap.taken {
            return;
        }
        self.swap.taken = taken;
        let max = self.swap.budget.saturating_sub(taken).max(MIN_BUDGET);
        self.pool
            .engine
            .set_max(MemcgId::ROOT, max)
            .expect("it is between the least and the frames there are");
    }

    /// Takes slots at `now`. Returns what that costs.
    fn take_slots(&mut self, slots: u64, now: u64) -> u64 {
        let mut cost = slots * self.costs.swap_slot_ns;
        let clusters = slots.saturating_sub(self.swap.at_hand).div_ceil(CLUSTER);
        self.swap.at_hand = self.swap.at_hand + clusters * CLUSTER - slots;
        if clusters > 0 {
            let hold = clusters * self.costs.swap_cluster_ns;
            cost += self.swap.lock.take(self.sched.now, now, hold);
        }
        cost
    }

    /// Nanoseconds that unmapping a batch of victims takes a task, whose work on them begins at
    /// `now`. It takes their slots then, as it chose them: a task that reclaims several batches
    /// before others run is in its own time at each of them, and does not wait for itself.
    ///
    /// Translations are flushed once for all of a batch, but for pages that were stored to: each is
    /// written at once, and before that no CPU may store to it any more.
    pub fn unmap_cost(&mut self, work: UnmapWork, now: u64) -> u64 {
        let costs = &self.costs;
        let mut cost = work.translations * costs.unmap_ns;
        let flushes = work.stored + u64::from(work.translations > work.stored);
        cost += flushes * costs.tlb_flush_ns;
        cost += work.compressed * (costs.compress(self.swap.compressor) + costs.zram_io_ns)
            + work.zeros * costs.find_zeros_ns;
        cost + self.take_slots(work.compressed + work.zeros, now)
    }

    /// Nanoseconds that filling a page of a heap takes a task, on top of the fault.
    fn fill_cost(&self, object: ObjectId, swapped_out: bool) -> u64 {
        if !swapped_out {
            return self.costs.zero_page();
        }
        let zeros = self.pool.zram.is_zeros(object);
        let decompress = self.costs.decompress(self.swap.compressor) + self.costs.zram_io_ns;
        let contents = if zeros { self.costs.clear_page_ns } else { decompress };
        self.costs.new_page() + contents + self.costs.swap_slot_ns
    }

    /// Fills a page that has been charged, unless another task has by now. Returns whether it came
    /// from swap.
    fn fill(&mut self, id: TaskId, object: ObjectId, page: u64) -> bool {
        let cached = self.pool.memory.cached(object, page);
        let task = self.engine_task(id, true);
        let memcg = self.memcg(id);
        let event = if cached.frame().is_some() {
            self.pool.engine.uncharge(memcg, 1);
            return false;
        } else if cached.is_gone() {
            self.pool.swap_in(object, page, memcg, task);
            self.fit_zram();
            self.counts.major += 1;
            PageEvent::Arrived
        } else {
            let (frame, _) = self.pool.insert(object, page, true, memcg, task);
            self.pool.engine.set_dirty(frame);
            PageEvent::Zeroed
        };
        if let Some(frame) = self.pool.frame(object, page) {
            self.watched(|watch, world| watch.page(world, event, object, page, frame));
        }
        event == PageEvent::Arrived
    }
}

impl Ctx {
    /// A fault on a page of a heap, under a lock. Returns whether the page came from swap.
    pub(super) async fn heap_fault(
        &self,
        mapping: Mapping,
        page: u64,
        store: bool,
    ) -> Result<bool, MachineError> {
        let (object, cached) = {
            let world = self.w();
            let object = world.pool.memory.vmas[mapping.vma.0 as usize].object;
            (object, world.pool.memory.cached(object, page))
        };
        let mut swapped_in = false;
        if cached.frame().is_none() {
            if !self.charge(true).await {
                return Err(MachineError::OutOfMemory { at_ns: self.now() });
            }
            let cost = self.w().fill_cost(object, cached.is_gone());
            self.spend(cost).await;
            swapped_in = self.w().fill(self.id, object, page);
        }
        let world = &mut *self.w();
        let task = world.engine_task(self.id, true);
        if let Some(frame) = world.pool.frame(object, page) {
            world.pool.engine.swap_fault(frame, store, task);
        }
        world.pool.memory.map(mapping.vma, page, true);
        world.pool.memory.vmas[mapping.vma.0 as usize].touch(page, store);
        world.watched_touch(mapping.vma, page, store);
        Ok(swapped_in)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, MachineConfig};
    use super::*;
    use crate::spec::SwapSpec;
    use lowtide_core::Policy;
    use std::sync::atomic::AtomicBool;

    const POLICIES: [&str; 3] = ["mglru", "mglru-7.1", "lru"];

    /// A laptop with 8 MiB of memory, all of it for programs, and so much compressed memory.
    fn config(policy: &str, swap: Option<SwapSpec>) -> MachineConfig {
        let laptop = MachineSpec::load("laptop").expect("a preset");
        let spec = MachineSpec { cpus: 2, memory: 8 << 20, kernel: 0, swap, ..laptop };
        spec.validate().expect("it can be simulated");
        MachineConfig {
            spec,
            policy: policy.parse::<Policy>().expect("a policy"),
            max: None,
            seed: 1,
        }
    }

    /// Programs that sweep over a heap of `pages` pages each, `rounds` times; where there are two,
    /// the first gives its heap up in the end.
    fn sweep(
        config: &MachineConfig,
        programs: u32,
        pages: u64,
        rounds: u32,
        zeros: bool,
    ) -> (Machine, Result<(), MachineError>) {
        let mut machine = Machine::new(config).expect("the budget is possible");
        for number in 0..programs {
            let heap = {
                let mut world = machine.world();
                let process = world.add_address_space(MemcgId::ROOT);
                let heap = world.map_heap(process, pages);
                if zeros {
                    world.set_zeros(heap);
                }
                heap
            };
            machine.client(async move |ctx| {
                for round in 0..rounds {
                    ctx.access(heap, 0, pages, round % 2 == 0).await?;
                }
                if number + 1 < programs {
                    ctx.give_up(heap, 0, pages).await;
                }
                Ok(())
            });
        }
        let result = machine.run(&AtomicBool::new(false), &mut || {});
        (machine, result)
    }

    #[test]
    fn every_slot_is_free_or_has_one_page_and_zeros_take_no_memory() {
        for (policy, zeros) in
            POLICIES.into_iter().flat_map(|policy| [(policy, false), (policy, true)])
        {
            let config = config(policy, Some(SwapSpec::zram(16 << 20)));
            let (machine, result) = sweep(&config, 2, 1500, 4, zeros);
            result.expect("there is swap for all of it");
            let stat = machine.stat();
            let mut world = machine.world();
            world.pool.engine.validate().unwrap_or_else(|e| panic!("{policy}: {e}"));
            world.pool.validate_swap(4096).unwrap_or_else(|e| panic!("{policy}: {e}"));
            let events = stat.memory.events;
            assert!(events.pswpout > 1000 && events.pswpin > 1000, "{policy}: {events:?}");
            assert_eq!(
                events.pgmajfault, events.pswpin,
                "{policy}: each fault from swap brings one page"
            );
            assert_eq!(stat.memory.swapcached, 0, "{policy}: no second copies");
            assert_eq!(
                stat.memory.anon + (4096 - stat.swap_free_pages),
                1500,
                "{policy}: one heap is left"
            );
            let kept = if zeros { 0 } else { (4096 - stat.swap_free_pages) * (4096 * 33 / 100) };
            assert_eq!(stat.zram_bytes, kept, "{policy}");
            let budget = world.swap.budget - kept.div_ceil(4096);
            assert_eq!(
                world.pool.engine.max(MemcgId::ROOT),
                budget,
                "{policy}: it comes out of the memory"
            );
        }
    }

    #[test]
    fn heaps_larger_than_memory_need_swap_and_as_much_of_it_as_they_exceed() {
        for policy in POLICIES {
            for swap in [None, Some(SwapSpec::zram(2 << 20))] {
                let (machine, result) = sweep(&config(policy, swap.clone()), 2, 1500, 1, true);
                let error = result.expect_err("3000 pages and memory for 2048");
                assert!(matches!(error, MachineError::OutOfMemory { .. }), "{policy}: {error}");
                let stat = machine.stat();
                assert_eq!(stat.kernel.oom, 1, "{policy}");
                assert!(
                    stat.swap_free_pages < 64,
                    "{policy}, {swap:?}: {} slots left",
                    stat.swap_free_pages
                );
                machine.world().pool.engine.validate().unwrap_or_else(|e| panic!("{policy}: {e}"));
            }
        }
    }

    /// Under a limit, what is compressed takes nothing from the heap: the same pages go and come
    /// whatever compresses them.
    #[test]
    fn a_compressor_costs_its_time_and_its_memory() {
        let run = |compressor| {
            let swap = SwapSpec::zram(16 << 20).with(compressor);
            let whole = config("mglru", Some(swap));
            let config = MachineConfig { max: Some(4 << 20), ..whole };
            let (machine, result) = sweep(&config, 1, 1500, 4, false);
            result.expect("there is swap for all of it");
            machine.stat()
        };
        let costs = crate::Costs::default();
        let [lzo, lz4, zstd] = Compressor::ALL.map(run);
        let events = lzo.memory.events;
        for (other, compressor) in [(&lz4, Compressor::Lz4), (&zstd, Compressor::Zstd)] {
            assert!(events.iter().eq(other.memory.events.iter()), "{compressor}");
            let cost = |c| {
                (events.pswpout * costs.compress(c) + events.pswpin * costs.decompress(c)) as i64
            };
            let expected = cost(compressor) - cost(Compressor::LzoRle);
            let found = other.busy_ns as i64 - lzo.busy_ns as i64;
            assert!(
                (found - expected).abs() * 50 < expected.abs(),
                "{compressor}: {found}, {expected}"
            );
            let kept = (lzo.swap_pages - lzo.swap_free_pages)
                * (4096 * u64::from(compressor.percent()) / 100);
            assert_eq!(other.zram_bytes, kept, "{compressor}");
        }
    }

    #[test]
    fn compression_is_paid_for_by_who_reclaims_and_a_heap_of_zeros_is_cheaper() {
        // Under a limit, what is compressed takes nothing from the heap: the same pages go and come
        // either way.
        let whole = config("mglru", Some(SwapSpec::zram(16 << 20)));
        let config = MachineConfig { max: Some(4 << 20), ..whole };
        let run = |zeros| {
            let (machine, result) = sweep(&config, 1, 1500, 4, zeros);
            result.expect("there is swap for all of it");
            machine.stat()
        };
        let (ordinary, zeros) = (run(false), run(true));
        let (events, costs) = (ordinary.memory.events, crate::Costs::default());
        assert!(events.iter().eq(zeros.memory.events.iter()));
        let saved = events.pswpout * (costs.compress_ns + costs.zram_io_ns - costs.find_zeros_ns)
            + events.pswpin * (costs.decompress_ns + costs.zram_io_ns - costs.clear_page_ns);
        let difference = ordinary.busy_ns - zeros.busy_ns;
        // Daemons run a little longer beside a longer run.
        assert!(difference.abs_diff(saved) * 100 < saved, "{difference} ns of {saved}");
        let clusters = events.pswpout.div_ceil(CLUSTER);
        assert_eq!(ordinary.swap_lock.acquired, clusters, "the lock is taken for each cluster");
    }

    /// Who reclaims batch after batch is in its own time at each of them.
    #[test]
    fn a_task_that_is_alone_waits_for_no_lock() {
        for policy in POLICIES {
            let whole = config(policy, Some(SwapSpec::zram(16 << 20)));
            let config = MachineConfig { max: Some(4 << 20), ..whole };
            let (machine, result) = sweep(&config, 1, 1500, 4, false);
            result.expect("there is swap for all of it");
            let stat = machine.stat();
            assert!(stat.swap_lock.acquired > 1, "{policy}: {:?}", stat.swap_lock);
            assert!(stat.lruvec_lock.acquired > 100, "{policy}: {:?}", stat.lruvec_lock);
            assert_eq!(stat.swap_lock.waited_ns, 0, "{policy}");
            assert_eq!(stat.lruvec_lock.waited_ns, 0, "{policy}");
        }
    }

    #[test]
    fn swap_on_a_device_is_refused() {
        let swap = SwapSpec { kind: SwapKind::Device, ..SwapSpec::zram(16 << 20) };
        let error = Machine::new(&config("mglru", Some(swap))).err().expect("there is none");
        assert!(error.to_string().contains("zram"), "{error}");
    }
}
