//! Tenants of equal demand ([`crate::programs::tenants`]) on a simulated machine, in virtual time.
//!
//! Each tenant is a group without limits of memory, so the machine runs out of it, and reclaim
//! first chooses between groups. A worker is two processes: a server with one heap, which maps its
//! tenant's file if there is one, and a client with another. With a `swap.high`, a tenant's tasks
//! are slowed down while more of it is in swap. The model omits the browser's other processes, and
//! the minute by which clients start after their servers.
//!
//! **Nodes.** The published machine has two. Both processes of a worker are bound to the processors
//! and the memory of one, so the nodes share nothing but the lock of swap clusters. Each has
//! frames, lists, watermarks and a background reclaimer for itself. [`node`] is one of them, as a
//! machine. The other one takes the lock as often, so a cluster costs twice the time there.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use hdrhistogram::Histogram;
use lowtide_core::MemcgId;
use lowtide_sim::machine::{
    Ctx, FileId, Machine, MachineConfig, MachineError, MachineStat, MappingId,
};
use lowtide_sim::spec::{MachineSpec, SwapSpec};

use crate::programs::tenants::{Content, Request, Requests, Tenants};

/// Lower bounds of the latency buckets, in seconds: a request belongs to the largest bound that it
/// reaches (`docs/kernel/workloads.md` §0.5).
pub const BUCKETS_S: [u64; 9] = [0, 1, 2, 4, 8, 16, 32, 64, 128];

/// One of `nodes` equal nodes of a machine, as a machine of its own; see the module documentation.
#[must_use]
pub fn node(machine: &MachineSpec, nodes: u32) -> MachineSpec {
    let part = |bytes: u64| bytes / machine.page / u64::from(nodes) * machine.page;
    let mut costs = machine.costs.clone();
    costs.swap_cluster_ns *= u64::from(nodes);
    MachineSpec {
        cpus: (machine.cpus / nodes).max(1),
        memory: part(machine.memory),
        kernel: part(machine.kernel),
        swap: machine.swap.clone().map(|swap| SwapSpec { size: part(swap.size), ..swap }),
        costs,
        ..machine.clone()
    }
}

/// The result of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Worker {
    /// Its tenant.
    pub tenant: u32,
    /// Completed requests.
    pub requests: u64,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct TenantsResult {
    /// Counters at the end.
    pub stat: MachineStat,
    /// The workers, ordered by tenant.
    pub workers: Vec<Worker>,
    /// Requests in each bucket of [`BUCKETS_S`].
    pub buckets: [u64; 9],
    /// Latencies of requests in nanoseconds.
    pub latency: Histogram<u64>,
}

#[derive(Debug)]
struct Tally {
    workers: Vec<Worker>,
    buckets: [u64; 9],
    latency: Histogram<u64>,
}

impl Tally {
    fn answered(&mut self, worker: usize, nanos: u64) {
        self.workers[worker].requests += 1;
        self.buckets[bucket(nanos)] += 1;
        self.latency.saturating_record(nanos);
    }
}

/// The bucket of a latency.
fn bucket(nanos: u64) -> usize {
    let seconds = nanos / 1_000_000_000;
    BUCKETS_S.iter().rposition(|&bound| bound <= seconds).unwrap_or(0)
}

/// A worker's two heaps, and the file of its tenant.
#[derive(Clone, Copy, Debug)]
struct Spaces {
    server: MappingId,
    client: MappingId,
    file: Option<MappingId>,
}

/// Runs the workers of a machine until `run_ns` nanoseconds are over: all of them, or with `nodes`
/// those of one node, whose machine this is (`(which, nodes)`; a tenant's workers are spread over
/// the nodes). Requests in progress at the end do not count. `done` counts virtual milliseconds,
/// for a progress bar.
///
/// # Errors
/// [`MachineError`].
///
/// # Panics
/// When a size is smaller than a page.
pub fn run(
    machine: &MachineConfig,
    tenants: &Tenants,
    (which, nodes): (u32, u32),
    run_ns: u64,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<TenantsResult, MachineError> {
    let page = machine.spec.page;
    let mut m = Machine::new(machine)?;
    let numbers: Vec<u32> =
        (0..tenants.all_workers()).filter(|n| n % tenants.workers % nodes == which).collect();
    let workers = numbers.iter().map(|n| Worker { tenant: n / tenants.workers, requests: 0 });
    let latency = Histogram::new_with_max(3_600_000_000_000, 3).expect("valid bounds");
    let tally = Tally { workers: workers.collect(), buckets: [0; 9], latency };
    let tally = Rc::new(RefCell::new(tally));
    let groups: Vec<_> = (0..tenants.tenants).map(|_| set_up_tenant(&m, tenants, page)).collect();
    for (at, &number) in numbers.iter().enumerate() {
        let tenant = groups[(number / tenants.workers) as usize];
        let spaces = set_up(&m, tenant, tenants, page);
        let (requests, tally) = (tenants.requests(number, page), Rc::clone(&tally));
        let report = move |nanos| tally.borrow_mut().answered(at, nanos);
        let request_ns = tenants.request_ns;
        m.background_in(tenant.group, move |ctx| worker(ctx, spaces, requests, request_ns, report));
    }
    let now = Rc::new(RefCell::new(0));
    let millis = Rc::clone(&now);
    m.client(async move |ctx| {
        // The task that waits for the end also advances the progress bar.
        while ctx.now() < run_ns {
            ctx.sleep((run_ns - ctx.now()).min(1_000_000_000)).await;
            *millis.borrow_mut() = ctx.now() / 1_000_000;
        }
        Ok(())
    });
    m.run(stop, &mut || done.store(*now.borrow(), Relaxed))?;
    let tally = tally.borrow();
    Ok(TenantsResult {
        stat: m.stat(),
        workers: tally.workers.clone(),
        buckets: tally.buckets,
        latency: tally.latency.clone(),
    })
}

/// A tenant's group, and its file.
#[derive(Clone, Copy, Debug)]
struct Tenant {
    group: MemcgId,
    file: Option<FileId>,
}

fn set_up_tenant(m: &Machine, tenants: &Tenants, page: u64) -> Tenant {
    let mut world = m.world();
    let engine = &mut world.pool.engine;
    let group = engine.create_group(MemcgId::ROOT).expect("there is room for the groups");
    if let Some(high) = tenants.swap_high {
        engine.set_swap_high(group, high / page);
    }
    let file = (tenants.file > 0).then(|| world.add_file_of(group, tenants.file.div_ceil(page)));
    Tenant { group, file }
}

/// Creates a worker's processes in the group of its tenant.
fn set_up(m: &Machine, tenant: Tenant, tenants: &Tenants, page: u64) -> Spaces {
    let mut world = m.world();
    let [(process, server), (_, client)] = [tenants.server(), tenants.client()].map(|bytes| {
        let process = world.add_address_space(tenant.group);
        let heap = world.map_heap(process, bytes / page);
        if tenants.content == Content::Zeros {
            world.set_zeros(heap);
        }
        (process, heap)
    });
    let file = tenant.file.map(|file| {
        let open = world.open(file);
        world.map_file(process, open)
    });
    Spaces { server, client, file }
}

/// Sends requests forever, and reports the latency of each.
async fn worker(
    ctx: Ctx,
    spaces: Spaces,
    mut requests: Requests,
    request_ns: u64,
    report: impl Fn(u64),
) -> Result<(), MachineError> {
    let pages = |range: &Range<u64>| range.end - range.start;
    loop {
        let began = ctx.now();
        ctx.spend(request_ns).await;
        let Request { chunk, file, array, freed } = requests.choose();
        ctx.access(spaces.server, chunk.start, pages(&chunk), true).await?;
        if let Some(mapping) = spaces.file {
            ctx.access(mapping, file.start, pages(&file), false).await?;
        }
        ctx.access(spaces.client, array.start, pages(&array), true).await?;
        if let Some(freed) = freed {
            ctx.give_up(spaces.client, freed.start, pages(&freed)).await;
        }
        ctx.settle().await;
        report(ctx.now() - began);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_core::Policy;
    use lowtide_sim::Costs;

    const RUN_NS: u64 = 100_000_000_000;
    const SCALE: f64 = 1.0 / 512.0;

    /// A 32nd of the machine, for two tenants of a 512th of the experiment: 32 MiB of buffers on 15
    /// MiB.
    fn small() -> (MachineSpec, Tenants) {
        let xeon = MachineSpec::load("xeon-96t").expect("a preset");
        let spec = MachineSpec {
            memory: 16 << 20,
            kernel: 1 << 20,
            swap: Some(SwapSpec::zram(64 << 20)),
            costs: Costs::default().coarse(1.0 / SCALE),
            ..xeon
        };
        (spec, Tenants { tenants: 2, ..Tenants::published(SCALE, 1) })
    }

    fn play(
        spec: &MachineSpec,
        policy: Policy,
        tenants: &Tenants,
        node: (u32, u32),
    ) -> TenantsResult {
        let machine = MachineConfig { spec: spec.clone(), policy, max: None, seed: tenants.seed };
        let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        run(&machine, tenants, node, RUN_NS, &done, &stop).expect("there is swap for all of it")
    }

    fn requests(result: &TenantsResult) -> u64 {
        result.workers.iter().map(|worker| worker.requests).sum()
    }

    #[test]
    fn a_request_belongs_to_the_largest_bound_that_it_reaches() {
        let s = 1_000_000_000;
        for (nanos, at) in
            [(0, 0), (s - 1, 0), (s, 1), (2 * s - 1, 1), (4 * s, 3), (127 * s, 7), (600 * s, 8)]
        {
            assert_eq!(bucket(nanos), at, "{nanos} ns");
        }
    }

    #[test]
    fn every_request_is_counted_once_and_memory_goes_to_swap() {
        for policy in [Policy::MGLRU, Policy::LRU] {
            let (spec, tenants) = small();
            let result = play(&spec, policy, &tenants, (0, 1));
            let requests = requests(&result);
            assert!(requests > 400, "{policy}: {requests}");
            assert_eq!(result.buckets.iter().sum::<u64>(), requests, "{policy}");
            assert_eq!(result.latency.len(), requests, "{policy}");
            assert_eq!(result.workers.iter().map(|w| w.tenant).collect::<Vec<_>>(), [0, 0, 1, 1]);
            assert!(
                result.workers.iter().all(|worker| worker.requests > 50),
                "{policy}: no worker starves"
            );
            let stat = &result.stat;
            assert!(stat.now_ns >= RUN_NS && stat.now_ns < RUN_NS + 1_000_000_000, "{policy}");
            assert!(
                stat.memory.events.pswpin > 10_000 && stat.zram_bytes == 0,
                "{policy}: zram stores no zeros"
            );
            assert!(stat.kernel.kswapd_wakes > 0, "{policy}");
        }
    }

    /// A node has half of everything but the time that a slot takes, and each worker is on one.
    #[test]
    fn two_nodes_have_half_of_the_workers_and_of_the_machine_each() {
        let (whole, tenants) = small();
        let half = node(&whole, 2);
        half.validate().expect("it can be simulated");
        assert_eq!((half.cpus, half.memory, half.kernel), (48, 8 << 20, 512 << 10));
        assert_eq!(half.costs.swap_cluster_ns, 2 * whole.costs.swap_cluster_ns);
        let both = [0, 1].map(|which| play(&half, Policy::MGLRU, &tenants, (which, 2)));
        for node in &both {
            assert_eq!(node.workers.iter().map(|w| w.tenant).collect::<Vec<_>>(), [0, 1]);
        }
        let (one, two) = (requests(&play(&whole, Policy::MGLRU, &tenants, (0, 1))), both);
        let two: u64 = two.iter().map(requests).sum();
        assert!((0.8..1.25).contains(&(two as f64 / one as f64)), "{two} and {one}");
    }

    /// A file that every request loads competes with the heaps: some of it is read again.
    #[test]
    fn a_tenants_file_is_read_by_its_servers() {
        let (spec, tenants) = small();
        for policy in [Policy::MGLRU, Policy::LRU] {
            let with = play(&spec, policy, &tenants.with(SCALE, 512 << 20, None), (0, 1));
            let without = play(&spec, policy, &tenants, (0, 1));
            assert_eq!(without.stat.device.read_bytes, 0, "{policy}");
            assert!(with.stat.device.read_bytes >= 2 << 20, "{policy}: two files of a MiB");
            assert!(with.stat.memory.events.workingset_refault_file > 0, "{policy}");
            assert!(requests(&with) < requests(&without), "{policy}");
        }
    }

    /// Objects take memory when they are compressed, and zeros take none.
    #[test]
    fn what_heaps_hold_decides_what_swap_takes() {
        let (spec, tenants) = small();
        let objects = Tenants { content: Content::Objects, ..tenants };
        let stat = play(&spec, Policy::MGLRU, &objects, (0, 1)).stat;
        assert!(stat.zram_bytes > 1 << 20, "{}", stat.zram_bytes);
    }

    /// Two tenants have some 9 MiB each in swap; above half of that their tasks sleep.
    #[test]
    fn tasks_of_a_tenant_above_its_swap_high_sleep() {
        let (spec, tenants) = small();
        let high = |bytes: u64| Tenants { swap_high: Some(bytes), ..tenants };
        let far = play(&spec, Policy::MGLRU, &high(64 << 20), (0, 1));
        assert_eq!(far.stat.kernel.high_sleep_ns, 0);
        let near = play(&spec, Policy::MGLRU, &high(4 << 20), (0, 1));
        assert!(near.stat.kernel.high_sleep_ns > RUN_NS / 10, "{}", near.stat.kernel.high_sleep_ns);
        assert!(requests(&near) < requests(&far) / 2, "{} {}", requests(&near), requests(&far));
        assert!(near.stat.memory.events.pswpin > 0, "swap.high stops nothing");
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let run = |seed| {
            let (spec, tenants) = small();
            let result = play(&spec, Policy::MGLRU, &Tenants { seed, ..tenants }, (0, 1));
            (
                result.workers.clone(),
                result.buckets,
                result.stat.events,
                format!("{:?}", result.stat.memory),
            )
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5).3, run(6).3);
    }
}
