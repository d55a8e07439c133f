//! The full machine: CPUs, tasks, locks, a device, and a kernel between them, in virtual time.
//!
//! | file | holds |
//! |---|---|
//! | `sched.rs`, `ctx.rs` | virtual time, CPUs, tasks as futures |
//! | `world.rs` | all state |
//! | `lock.rs`, `locking.rs` | locks, and what waiting for them costs |
//! | `device.rs`, `requests.rs`, `submit.rs` | a device; requests in flight and their completion |
//! | `files.rs`, `opening.rs`, `read.rs` | files, access through the descriptor |
//! | `readahead.rs`, `window.rs` | what to read ahead, and reading it |
//! | `hold.rs`, `holding.rs` | references to pages |
//! | `space.rs` | address spaces; mapping and unmapping |
//! | `fault.rs` | accesses through a mapping, and their faults |
//! | `swap.rs` | heaps, and swap on compressed memory |
//! | `retry.rs` | what retries of faults depend on |
//! | `resize.rs` | files made shorter and longer |
//! | `discard.rs` | pages given up or dropped on purpose |
//! | `charge.rs` | charging and direct reclaim |
//! | `kswapd.rs`, `watermarks.rs` | the background reclaimer |
//! | `budget.rs` | changing the budget |
//! | `groups.rs` | charges, stalls, and the payment for being over a limit |
//! | `watch.rs`, `ended.rs` | an observer that checks; why a run ended early |
//! | `writeback.rs`, `flusher.rs`, `balance.rs` | writing dirty pages; when; writers held back |
//! | `published.rs` | when statistics of groups are published |
//! | `sync.rs`, `errors.rs` | making a file durable; reporting failed writes, once to each opener |
//!
//! The policy is `lowtide-core`'s; nothing here decides which page goes.

mod balance;
mod budget;
mod charge;
mod ctx;
mod device;
mod discard;
mod ended;
mod errors;
mod fault;
mod files;
mod flusher;
mod groups;
mod hold;
mod holding;
mod io_max;
mod kswapd;
mod lock;
mod locking;
mod opening;
mod published;
mod read;
mod readahead;
mod requests;
mod resize;
mod retry;
mod sched;
mod space;
mod submit;
mod swap;
mod sync;
mod watch;
mod watermarks;
mod window;
mod world;
mod writeback;

pub use ctx::Ctx;
pub use device::DeviceCounts;
pub use ended::MachineError;
pub use files::{File, FileId, OpenId};
pub use lock::Contention;
pub use requests::Fails;
pub use resize::Size;
pub use retry::RetryTimes;
pub use sched::TaskId;
pub use watch::{FlushEvent, PageEvent, Watch};
pub use world::KernelCounts;
pub use world::{AddressSpace, MappingId, World};

use crate::pool::Pool;
use crate::spec::MachineSpec;
use device::Device;
use lowtide_core::{EngineConfig, MemcgId, MemoryStat, Policy};
use requests::Requests;
use sched::{Happens, Sched};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use swap::SwapArea;
use watermarks::Kswapd;

/// What a machine is to do.
#[derive(Clone, Debug)]
pub struct MachineConfig {
    /// The hardware.
    pub spec: MachineSpec,
    /// The policy.
    pub policy: Policy,
    /// Budget in bytes of the group that everything runs in; `None` or more than the machine's
    /// memory: no group limit, the background reclaimer keeps memory free.
    pub max: Option<u64>,
    /// Seed of everything random.
    pub seed: u64,
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// How a task ends.
type End = Result<(), MachineError>;

/// A machine with its tasks. See the module documentation.
pub struct Machine {
    world: Rc<RefCell<World>>,
    running: Vec<Option<Running>>,
}

/// What a machine counted.
#[derive(Clone, Debug)]
pub struct MachineStat {
    /// Virtual nanoseconds since the start.
    pub now_ns: u64,
    /// The group's sizes and events.
    pub memory: MemoryStat,
    /// The kernel's other counts.
    pub kernel: KernelCounts,
    /// The device's counts.
    pub device: DeviceCounts,
    /// CPU nanoseconds of all tasks.
    pub busy_ns: u64,
    /// Switches between tasks.
    pub switches: u64,
    /// The lruvec locks of all groups.
    pub lruvec_lock: Contention,
    /// The lock of slots in swap.
    pub swap_lock: Contention,
    /// Slots in swap, and the free ones of them.
    pub swap_pages: u64,
    /// See `swap_pages`.
    pub swap_free_pages: u64,
    /// Bytes of memory that compressed pages take.
    pub zram_bytes: u64,
    /// The locks of address spaces and mappings together.
    pub rwsems: Contention,
    /// Events that the simulator handled.
    pub events: u64,
    /// Bytes of memory that page tables, page cache and engine take.
    pub bytes: usize,
}

impl Machine {
    /// Builds a machine with its daemons.
    ///
    /// # Errors
    /// [`MachineError::Config`].
    pub fn new(config: &MachineConfig) -> Result<Self, MachineError> {
        let spec = &config.spec;
        let cpus = u16::try_from(spec.cpus).unwrap_or(u16::MAX);
        let memory = spec.pages();
        let limit = config.max.map(|max| max / spec.page).filter(|&max| max < memory);
        let kswapd =
            if limit.is_some() { Kswapd::default() } else { Kswapd::for_memory(memory, spec.page) };
        let max = limit.unwrap_or(memory - kswapd.min);
        let mut pool = Pool::new(&EngineConfig {
            frames: u32::try_from(max).unwrap_or(u32::MAX),
            max,
            page_bytes: spec.page,
            policy: config.policy,
            cpus,
        })?;
        if limit.is_none() {
            pool.engine.set_machine_root();
        }
        pool.memory.around_is_young = spec.fault_around_young;
        let writeback = device::Writeback::new(&mut pool.engine);
        let swap = SwapArea::new(spec, &mut pool, limit.is_none())?;
        let world = World {
            sched: Sched::new(cpus, spec.timeslice_ns, spec.costs.context_switch_ns),
            pool,
            costs: spec.costs.clone(),
            page_bytes: spec.page,
            device: Device::new(spec.device.clone(), config.seed ^ 0xDE71CE),
            requests: Requests::default(),
            files: Vec::new(),
            opens: Vec::new(),
            mappings: Vec::new(),
            readahead_pages: spec.readahead / spec.page,
            fault_around_pages: spec.fault_around / spec.page,
            lruvec_locks: BTreeMap::new(),
            pool_lock: None,
            swap,
            groups: groups::Groups::default(),
            fault_path: spec.fault_path,
            retries: retry::Retries::default(),
            free_mappings: Vec::new(),
            rwsems: Vec::new(),
            page_waiters: BTreeMap::new(),
            writeback,
            kswapd,
            counts: KernelCounts::default(),
            clients: 0,
            holds: hold::Holds::default(),
            published: published::Published::new(cpus),
            failure: None,
            watch: None,
        };
        let background = limit.is_none();
        let mut machine = Self { world: Rc::new(RefCell::new(world)), running: Vec::new() };
        machine.spawn(Ctx::publisher);
        let flusher = machine.spawn(Ctx::flusher);
        machine.world.borrow_mut().writeback.has_flusher(flusher);
        if background {
            let kswapd = machine.spawn(Ctx::kswapd);
            machine.world.borrow_mut().kswapd.task = Some(kswapd);
        }
        Ok(machine)
    }

    /// The world, to set up files and mappings before the run.
    pub fn world(&self) -> std::cell::RefMut<'_, World> {
        self.world.borrow_mut()
    }

    /// Adds a task.
    fn spawn<F: Future<Output = ()> + 'static>(&mut self, life: impl FnOnce(Ctx) -> F) -> TaskId {
        let id = self.world.borrow_mut().sched.spawn();
        let ctx = Ctx { world: Rc::clone(&self.world), id };
        self.running.push(Some(Box::pin(life(ctx))));
        id
    }

    /// Adds a client: the run is over when all clients have finished. The first error ends it.
    pub fn client(&mut self, life: impl AsyncFnOnce(Ctx) -> End + 'static) {
        self.world.borrow_mut().clients += 1;
        self.spawn(move |ctx| async move {
            let world = Rc::clone(&ctx.world);
            let result = life(ctx).await;
            let mut world = world.borrow_mut();
            world.clients -= 1;
            world.fail(result);
        });
    }

    /// A client that is a member of a group.
    pub fn client_in(&mut self, memcg: MemcgId, life: impl AsyncFnOnce(Ctx) -> End + 'static) {
        self.client(async move |ctx: Ctx| {
            ctx.w().join(ctx.id, memcg);
            life(ctx).await
        });
    }

    /// A task that the run does not wait for, as a member of a group.
    pub fn background_in(&mut self, memcg: MemcgId, life: impl AsyncFnOnce(Ctx) -> End + 'static) {
        self.background(async move |ctx: Ctx| {
            ctx.w().join(ctx.id, memcg);
            life(ctx).await
        });
    }

    /// Adds a task that the run does not wait for. Its error ends the run all the same.
    pub fn background(&mut self, life: impl AsyncFnOnce(Ctx) -> End + 'static) {
        self.spawn(move |ctx| async move {
            let world = Rc::clone(&ctx.world);
            let result = life(ctx).await;
            world.borrow_mut().fail(result);
        });
    }

    /// Runs until all clients have finished.
    ///
    /// # Errors
    /// The first error of a client, [`MachineError::Stuck`], or [`MachineError::Interrupted`] when
    /// `stop` is set. `progress` is called now and then.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(),
    ) -> Result<(), MachineError> {
        let mut context = Context::from_waker(Waker::noop());
        let mut turns = 0_u32;
        loop {
            let id = {
                let mut world = self.world.borrow_mut();
                world.watched(|watch, world| watch.turn(world));
                if let Some(failure) = world.failure.take() {
                    return Err(failure);
                }
                if world.clients == 0 {
                    return Ok(());
                }
                turns = turns.wrapping_add(1);
                if turns.is_multiple_of(4096) {
                    progress();
                    if stop.load(Relaxed) {
                        return Err(MachineError::Interrupted { at_ns: world.sched.now });
                    }
                }
                match world.sched.next() {
                    Some(Happens::Io(request)) => {
                        world.due(request);
                        continue;
                    }
                    Some(Happens::Run(task)) => task,
                    None => {
                        return Err(MachineError::Stuck {
                            at_ns: world.sched.now,
                            clients: world.clients,
                        });
                    }
                }
            };
            let slot = &mut self.running[id.0 as usize];
            let task = slot.as_mut().expect("a finished task is never run");
            match task.as_mut().poll(&mut context) {
                Poll::Pending => self.world.borrow_mut().sched.parked(id),
                Poll::Ready(()) => {
                    *slot = None;
                    self.world.borrow_mut().sched.finished(id);
                }
            }
        }
    }

    /// Counters as of now.
    pub fn stat(&self) -> MachineStat {
        MachineStat::of(&self.world.borrow())
    }
}

impl MachineStat {
    /// Counters of a world as of now.
    pub fn of(world: &World) -> Self {
        let mut rwsems = Contention::default();
        for sem in &world.rwsems {
            rwsems.acquired += sem.contention.acquired;
            rwsems.contended += sem.contention.contended;
            rwsems.waited_ns += sem.contention.waited_ns;
        }
        Self {
            now_ns: world.sched.now,
            memory: world.pool.engine.stat(MemcgId::ROOT),
            kernel: world.counts,
            device: world.device.counts,
            busy_ns: world.sched.busy_ns,
            switches: world.sched.switches,
            lruvec_lock: world.lruvec_contention(),
            swap_lock: world.swap.lock.contention,
            swap_pages: world.swap.slots,
            swap_free_pages: world.pool.engine.free_swap_pages(),
            zram_bytes: world.pool.zram.bytes(),
            rwsems,
            events: world.sched.handled,
            bytes: world.pool.bytes(),
        }
    }
}
