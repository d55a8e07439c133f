//! Scenes with a pager of their own: what the storm's pager, which many share, cannot have.
//!
//! Patience of nothing; a swap file that hangs, or is full; regions of 16 TiB of which little is
//! used; a tenant that is removed, and whose limit moves, while regions of it are made, stored to
//! and dropped. Two threads have regions of their own and know each byte of them. A third reclaims,
//! moves limits, removes the tenant and makes the device hang.
//!
//! Where there is time, and room in swap, and the device answers, no operation fails. However it
//! was, nothing is left of what was dropped, neither memory nor slots, nor of the pager itself.

use super::file::Came;
use super::operations::Hand;
use super::plan::Rng;
use super::size;
use lowtide::instruments::{Gate, Inject, InjectOp, Request, Verdict};
use lowtide::{Error, Pager, Region, SwapOptions, Tenant};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// Pages of the pager.
const BUDGET: u64 = 640;
/// Pages that the tenant has at first.
const TENANT: u64 = 256;
/// Pages that a region is stored to at, more than the tenant has.
const STORED: u64 = 180;
/// Regions that a thread makes.
const REGIONS: u64 = 3;
/// Bytes of a region of which little is used.
const SPARSE: u64 = 16 << 40;
/// Pages that lie together there: one alone would take as much to be noted in swap as it gives.
const TOGETHER: u64 = 20;

/// What the swap file does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SwapFile {
    /// It has room for all.
    Roomy,
    /// It has room for little.
    Full,
    /// It has room, and hangs now and then.
    Hangs,
}

#[derive(Debug)]
struct Apart {
    policy: &'static str,
    patience: Duration,
    file: SwapFile,
    sparse: bool,
    background: bool,
    removed: bool,
    /// Whether an operation may fail for want of room or time.
    fails: bool,
}

impl Apart {
    fn draw(rng: &mut Rng) -> Self {
        let file = rng.pick(&[SwapFile::Roomy, SwapFile::Roomy, SwapFile::Full, SwapFile::Hangs]);
        // Each table of slots is for few pages there, and takes what little room is left.
        let sparse = rng.one_in(3);
        let easy = file == SwapFile::Roomy && !sparse;
        let long = if easy { 30_000 } else { 50 };
        let patience = rng.pick(&[0, 1, long, long]);
        Self {
            policy: rng.pick(&["mglru", "lru", "lru", "tide", "mglru-7.1"]),
            patience: Duration::from_millis(patience),
            file,
            sparse,
            background: !rng.one_in(4),
            removed: rng.one_in(3),
            fails: patience < 30_000 || !easy,
        }
    }
}

impl Apart {
    /// A device that hangs has to be noticed. Any other may be slow on a busy machine, and a write
    /// that is left is a refusal.
    fn io_timeout(&self) -> Duration {
        let hangs = self.file == SwapFile::Hangs;
        if hangs { Duration::from_millis(20) } else { Duration::from_secs(30) }
    }
}

/// A device whose writes of the swap file hang while a gate is closed.
#[derive(Debug, Default)]
struct Device {
    hangs: AtomicBool,
    gate: std::sync::Mutex<Option<Gate>>,
    met: AtomicU64,
}

impl Device {
    fn close(&self) {
        *self.gate.lock().expect("no thread panics with it") = Some(Gate::new());
        self.hangs.store(true, SeqCst);
    }

    fn open(&self) {
        self.hangs.store(false, SeqCst);
        if let Some(gate) = self.gate.lock().expect("no thread panics with it").take() {
            gate.open();
        }
    }
}

impl Inject for Device {
    fn before(&self, request: &Request<'_>) -> Verdict {
        if !self.hangs.load(SeqCst) || request.op != InjectOp::Write {
            return Verdict::Pass;
        }
        self.met.fetch_add(1, SeqCst);
        let gate = self.gate.lock().expect("no thread panics with it").clone();
        gate.map_or(Verdict::Pass, Verdict::Hang)
    }
}

pub(crate) fn regions(hand: &mut Hand<'_>) -> Came {
    let plan = Apart::draw(&mut hand.rng);
    hand.post.also(&format!(", {plan:?}"));
    let device = Arc::new(Device::default());
    let slots = if plan.file == SwapFile::Full { 64 } else { 64 * STORED };
    let swap = SwapOptions::compressed(size(16 * PAGE)).file(hand.storm.dir, size(slots * PAGE));
    let pager = Pager::builder()
        .max(size(BUDGET * PAGE))
        .policy(plan.policy.parse().expect("a policy"))
        .memory_timeout(plan.patience)
        .io_timeout(plan.io_timeout())
        .background(plan.background)
        .swap(swap)
        .inject(Arc::<Device>::clone(&device))
        .build()
        .expect("it is possible");
    let tenant = pager.tenant("apart").max(size(TENANT * PAGE)).create();
    let tenant = tenant.expect("a tenant can be made");
    let seed = hand.rng.next();
    std::thread::scope(|scope| {
        let work = |number| {
            let (plan, tenant, pager) = (&plan, &tenant, &pager);
            move || store(plan, (tenant, pager), Rng(seed ^ number))
        };
        let storing = [scope.spawn(work(1)), scope.spawn(work(2))];
        let mut rng = Rng(seed);
        while storing.iter().any(|thread| !thread.is_finished()) {
            disturb(&plan, &pager, (&tenant, &device), &mut rng);
        }
        device.open();
        for thread in storing {
            thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
        }
    });
    pager.validate().unwrap_or_else(|e| panic!("{e}"));
    // What is charged ahead is given back, too.
    let _ = tenant.set_max(size(0));
    let left = || (pager.stat().memory.current, pager.swap_file().map_or(0, |file| file.used));
    eventually(|| left() == (0, 0), || format!("{:?} are left, {plan:?}", left()));
    let inject = Arc::downgrade(&device);
    drop((tenant, pager, device));
    eventually(|| inject.upgrade().is_none(), || format!("the pager is left, {plan:?}"));
    Came::Done
}

/// What is about to happen does.
fn eventually(mut happened: impl FnMut() -> bool, what: impl FnOnce() -> String) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < super::watch::patience() / 2, "{}", what());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// One thing that makes life hard for threads that store.
fn disturb(plan: &Apart, pager: &Pager, (tenant, device): (&Tenant, &Device), rng: &mut Rng) {
    match rng.below(8) {
        0 => drop(pager.root().reclaim(size(64 * PAGE))),
        1 => drop(tenant.reclaim(size(64 * PAGE))),
        2 if plan.removed => match tenant.remove() {
            Ok(()) | Err(lowtide::TenantError::Gone) => {}
            // It waits as long as it may.
            Err(lowtide::TenantError::Busy) => assert!(plan.fails, "it was busy: {plan:?}"),
            Err(error) => panic!("{error}: {plan:?}"),
        },
        3 if plan.file == SwapFile::Hangs => {
            device.close();
            std::thread::sleep(Duration::from_millis(rng.below(60)));
            device.open();
        }
        _ => {
            let frames = TENANT / 2 + rng.below(TENANT / 2 + 1);
            drop(tenant.set_max(size(frames * PAGE)));
            std::thread::sleep(Duration::from_millis(rng.below(3)));
        }
    }
}

/// Makes regions, one after the other, and stores to them.
fn store(plan: &Apart, (tenant, pager): (&Tenant, &Pager), mut rng: Rng) {
    for _ in 0..REGIONS {
        let bytes = if plan.sparse { SPARSE } else { STORED * PAGE };
        let made = tenant.region(bytes).or_else(|error| match error {
            // The tenant was removed.
            Error::Tenant(_) => pager.root().region(bytes),
            error => Err(error),
        });
        match made {
            Ok(heap) => fill(plan, &heap, &mut rng),
            Err(error) => refused(plan, &error, "a new region"),
        }
    }
}

fn refused(plan: &Apart, error: &Error, how: &str) {
    let possible = match error {
        Error::OutOfBudget { .. } | Error::HeldElsewhere { .. } => true,
        Error::Timeout { .. } => plan.file == SwapFile::Hangs,
        _ => false,
    };
    assert!(possible && plan.fails, "{how}: {error}: {plan:?}");
}

/// What a page holds in some version; every second one does not compress.
fn content(version: u64) -> impl Iterator<Item = u8> {
    let mut noise = Rng(version);
    let word = move |_| if version.is_multiple_of(2) { version } else { noise.next() };
    (0..PAGE / 8).map(word).flat_map(u64::to_le_bytes)
}

/// Stores to pages of a region, and reads what it has stored.
fn fill(plan: &Apart, heap: &Region, rng: &mut Rng) {
    let mut known = vec![None; STORED as usize];
    let (groups, pages) = (STORED / TOGETHER, heap.page_count());
    let place = |at: u64| match plan.sparse {
        true => pages / groups * (at / TOGETHER + 1) - 1 - at % TOGETHER,
        false => at,
    };
    for step in 0..2 * STORED {
        let at = if step < STORED { step } else { rng.below(STORED) };
        if step < STORED || rng.one_in(2) {
            let version = rng.next() >> 1;
            match heap.page_mut(place(at)) {
                Ok(mut page) => {
                    page.iter_mut().zip(content(version)).for_each(|(to, byte)| *to = byte);
                    known[at as usize] = Some(version);
                }
                Err(error) => refused(plan, &error, "a store"),
            }
            continue;
        }
        match heap.page(place(at)) {
            Ok(page) => {
                let right = match known[at as usize] {
                    Some(version) => page.iter().copied().eq(content(version)),
                    None => page.iter().all(|byte| *byte == 0),
                };
                assert!(right, "page {at} of a region has other bytes: {plan:?}");
            }
            Err(error) => refused(plan, &error, "a read"),
        }
    }
}
