//! Threads of one process that play operation streams: the workloads of `lowtide-workload`, and
//! traces.
//!
//! Every file is mapped once into the process, and opened by each thread for itself, so that
//! threads do not disturb each other's read-ahead. A heap is mapped too; reading or writing it
//! "through the descriptor" is loading and storing.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use hdrhistogram::Histogram;
use lowtide_core::MemcgId;
use lowtide_workload::{OpKind, PageOp, SpaceKind};

use crate::machine::{
    Ctx, FileId, Machine, MachineConfig, MachineError, MachineStat, MappingId, OpenId,
};

/// A file or a heap that streams refer to by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamSpace {
    /// What it is.
    pub kind: SpaceKind,
    /// Its size in pages: a file's end; reads beyond it find nothing.
    pub pages: u64,
}

/// What a thread plays: its operations, or why they end early.
pub type Stream = Box<dyn Iterator<Item = Result<PageOp, MachineError>>>;

/// What a run measured.
#[derive(Clone, Debug)]
pub struct StreamResult {
    /// Counters at the end.
    pub stat: MachineStat,
    /// Operations carried out.
    pub ops: u64,
    /// Operations that a device failed.
    pub errors: u64,
    /// Nanoseconds of each operation.
    pub latency: Histogram<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    file: Option<FileId>,
    mapping: MappingId,
}

#[derive(Debug)]
struct Tally {
    ops: u64,
    errors: u64,
    latency: Histogram<u64>,
}

/// Plays one stream for each thread. Each operation costs `op_ns` of CPU time besides what it does
/// to memory. `done` counts operations.
///
/// # Errors
/// [`MachineError`]; a read that the device fails is counted and does not end the run.
///
/// # Panics
/// When a stream names a space that there is not.
pub fn run(
    machine: &MachineConfig,
    spaces: &[StreamSpace],
    streams: Vec<Stream>,
    op_ns: u64,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<StreamResult, MachineError> {
    let mut m = Machine::new(machine)?;
    let places = set_up(&m, spaces);
    let latency = Histogram::new_with_max(3_600_000_000_000, 3).expect("the bounds are possible");
    let tally = Rc::new(RefCell::new(Tally { ops: 0, errors: 0, latency }));
    for stream in streams {
        let (places, tally) = (places.clone(), Rc::clone(&tally));
        m.client(move |ctx| thread(ctx, places, stream, op_ns, tally));
    }
    m.run(stop, &mut || done.store(tally.borrow().ops, Relaxed))?;
    let tally = tally.borrow();
    Ok(StreamResult {
        stat: m.stat(),
        ops: tally.ops,
        errors: tally.errors,
        latency: tally.latency.clone(),
    })
}

fn set_up(m: &Machine, spaces: &[StreamSpace]) -> Vec<Place> {
    let mut world = m.world();
    let process = world.add_address_space(MemcgId::ROOT);
    let mut places = Vec::new();
    for space in spaces {
        places.push(match space.kind {
            SpaceKind::File => {
                let file = world.add_file(space.pages);
                let open = world.open(file);
                Place { file: Some(file), mapping: world.map_file(process, open) }
            }
            SpaceKind::Anon => Place { file: None, mapping: world.map_heap(process, space.pages) },
        });
    }
    places
}

async fn thread(
    ctx: Ctx,
    places: Vec<Place>,
    stream: Stream,
    op_ns: u64,
    tally: Rc<RefCell<Tally>>,
) -> Result<(), MachineError> {
    let opens: Vec<Option<OpenId>> = {
        let mut world = ctx.w();
        places.iter().map(|place| place.file.map(|file| world.open(file))).collect()
    };
    for op in stream {
        let op = op?;
        let began = ctx.now();
        ctx.spend(op_ns).await;
        let at = op.space.0 as usize;
        let failed = match play(&ctx, places[at], opens[at], &op).await {
            Ok(()) => false,
            Err(MachineError::Io { .. } | MachineError::WriteBack { .. }) => true,
            Err(error) => return Err(error),
        };
        let now = ctx.now();
        let mut tally = tally.borrow_mut();
        tally.ops += 1;
        tally.errors += u64::from(failed);
        tally.latency.saturating_record(now - began);
    }
    ctx.settle().await;
    Ok(())
}

async fn play(
    ctx: &Ctx,
    place: Place,
    open: Option<OpenId>,
    op: &PageOp,
) -> Result<(), MachineError> {
    let pages = u64::from(op.pages);
    match (op.kind, open) {
        (OpKind::Read, Some(open)) => ctx.read(open, op.page, pages).await,
        (OpKind::Write, Some(open)) => ctx.write(open, op.page, pages).await,
        (OpKind::Load | OpKind::Read, _) => ctx.access(place.mapping, op.page, pages, false).await,
        (OpKind::Store | OpKind::Write, _) => ctx.access(place.mapping, op.page, pages, true).await,
        (OpKind::Free, _) => {
            ctx.give_up(place.mapping, op.page, pages).await;
            Ok(())
        }
        (OpKind::Sync, _) => match open {
            Some(open) => ctx.sync(open).await,
            None => Ok(()),
        },
    }
}
