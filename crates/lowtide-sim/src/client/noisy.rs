//! A noisy neighbour: one tenant scans, others have working sets, and all share the budget of one
//! parent.
//!
//! ```text
//!   parent (max)
//!    ├── tenant 1..4   loads of its own mapped file, zipf popularity, advised to be random;
//!    │                 with protection: low
//!    └── scanner       reads a file larger than everything from start to end, over and over
//! ```
//!
//! What the tenants lose to the scanner is the price of sharing; `low` is what makes them not lose
//! it. A hit is an access whose page is there and has arrived. What `low` guarantees is a little
//! less than the parent's budget: the rest is the scanner's. Source: `docs/kernel/memcg.md` §5, and
//! the task's own sizes.

use crate::machine::{Ctx, Machine, MachineConfig, MachineError, MachineStat, MappingId, OpenId};
use lowtide_core::MemcgId;
use lowtide_workload::{Distribution, Sampler, SplitMix64};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const SECOND_NS: u64 = 1_000_000_000;
/// CPU time of a tenant's operation besides its load. Guess.
const OP_NS: u64 = 20_000;
/// Pages that the scanner reads at once, and its pause after each: at most 80 thousand pages a
/// second.
const SCAN_PAGES: u64 = 8;
const SCAN_PAUSE_NS: u64 = 100_000;

/// Who is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Company {
    /// The tenants alone.
    Alone,
    /// With a scanner.
    Scanner,
    /// With a scanner, and `low` for the tenants.
    ScannerAndLow,
}

impl Company {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Alone, Self::Scanner, Self::ScannerAndLow];

    /// The name in tables and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Scanner => "scanner",
            Self::ScannerAndLow => "scanner, low",
        }
    }
}

/// What is run. Sizes are in bytes, times in virtual nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoisyConfig {
    /// Tenants with a working set.
    pub tenants: u32,
    /// The file of each.
    pub file: u64,
    /// The budget of all, the scanner included.
    pub max: u64,
    /// `low` of each tenant, with [`Company::ScannerAndLow`].
    pub low: u64,
    /// The scanner's file.
    pub scan: u64,
    /// Who is there.
    pub company: Company,
    /// Time before the measurement.
    pub warm_ns: u64,
    /// Time of the measurement.
    pub run_ns: u64,
    /// Seed of the choices.
    pub seed: u64,
}

impl NoisyConfig {
    /// Four tenants with 40 MiB of data each in 176 MiB, so that they fit without a scanner; 38 MiB
    /// of each are protected.
    #[must_use]
    pub const fn new(company: Company, seed: u64) -> Self {
        Self {
            tenants: 4,
            file: 40 << 20,
            max: 176 << 20,
            low: 38 << 20,
            scan: 1 << 30,
            company,
            warm_ns: 10 * SECOND_NS,
            run_ns: 10 * SECOND_NS,
            seed,
        }
    }
}

/// What a tenant did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TenantHits {
    /// Accesses.
    pub accesses: u64,
    /// Those that found their page.
    pub hits: u64,
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct NoisyResult {
    /// Counters when the measurement began.
    pub began: MachineStat,
    /// Counters at the end.
    pub ended: MachineStat,
    /// The tenants.
    pub tenants: Vec<TenantHits>,
    /// Pages that the scanner read.
    pub scanned: u64,
}

impl NoisyResult {
    /// All tenants together.
    #[must_use]
    pub fn all(&self) -> TenantHits {
        let sum = |of: fn(&TenantHits) -> u64| self.tenants.iter().map(of).sum();
        TenantHits { accesses: sum(|t| t.accesses), hits: sum(|t| t.hits) }
    }
}

#[derive(Debug)]
struct Tally {
    tenants: Vec<TenantHits>,
    scanned: u64,
    began: Option<MachineStat>,
}

/// Runs the experiment. `done` counts virtual milliseconds.
///
/// # Errors
/// [`MachineError`].
///
/// # Panics
/// When a file is smaller than a page.
pub fn run(
    machine: &MachineConfig,
    config: &NoisyConfig,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<NoisyResult, MachineError> {
    let page = machine.spec.page;
    let mut m = Machine::new(machine)?;
    let tenants = vec![TenantHits::default(); config.tenants as usize];
    let tally = Rc::new(RefCell::new(Tally { tenants, scanned: 0, began: None }));
    let root = SplitMix64::new(config.seed);
    let parent = {
        let engine = &mut m.world().pool.engine;
        let parent = engine.create_group(MemcgId::ROOT).expect("the root has room for a group");
        engine.set_max(parent, config.max / page)?;
        parent
    };
    for number in 0..config.tenants {
        let low = if config.company == Company::ScannerAndLow { config.low / page } else { 0 };
        let (group, _, mapping) = set_up(&m, parent, config.file / page, low, true);
        let sampler = Distribution::default()
            .sampler(config.file / page, config.seed ^ u64::from(number))
            .expect("a file has pages");
        let (tally, rng) = (Rc::clone(&tally), root.fork(u64::from(number)));
        m.background_in(group, move |ctx| {
            tenant(ctx, mapping, sampler, rng, number as usize, tally)
        });
    }
    if config.company != Company::Alone {
        let pages = config.scan / page;
        let (group, open, _) = set_up(&m, parent, pages, 0, false);
        let tally = Rc::clone(&tally);
        m.background_in(group, move |ctx| scanner(ctx, open, pages, tally));
    }
    let (warm_ns, end_ns) = (config.warm_ns, config.warm_ns + config.run_ns);
    let now = Rc::new(RefCell::new(0));
    let (told, seen) = (Rc::clone(&now), Rc::clone(&tally));
    m.client_in(MemcgId::ROOT, move |ctx| async move {
        wait_until(&ctx, warm_ns, &told).await;
        let began = MachineStat::of(&ctx.w());
        {
            let mut tally = seen.borrow_mut();
            tally.tenants.fill(TenantHits::default());
            tally.scanned = 0;
            tally.began = Some(began);
        }
        wait_until(&ctx, end_ns, &told).await;
        Ok(())
    });
    m.run(stop, &mut || done.store(*now.borrow(), Relaxed))?;
    let ended = m.stat();
    let tally = tally.borrow();
    Ok(NoisyResult {
        began: tally.began.clone().expect("the measurement has begun before it ended"),
        ended,
        tenants: tally.tenants.clone(),
        scanned: tally.scanned,
    })
}

/// A group with a file of its own, which its process has open and mapped.
fn set_up(
    m: &Machine,
    parent: MemcgId,
    pages: u64,
    low: u64,
    random: bool,
) -> (MemcgId, OpenId, MappingId) {
    let mut world = m.world();
    let group = world.pool.engine.create_group(parent).expect("there is room for a few groups");
    world.pool.engine.set_low(group, low);
    let process = world.add_address_space(group);
    let file = world.add_file(pages);
    let open = world.open(file);
    if random {
        world.advise_random(open);
    }
    (group, open, world.map_file(process, open))
}

async fn wait_until(ctx: &Ctx, then_ns: u64, told: &RefCell<u64>) {
    while ctx.now() < then_ns {
        ctx.sleep((then_ns - ctx.now()).min(SECOND_NS)).await;
        *told.borrow_mut() = ctx.now() / 1_000_000;
    }
}

/// Loads for ever.
async fn tenant(
    ctx: Ctx,
    mapping: MappingId,
    sampler: Sampler,
    mut rng: SplitMix64,
    number: usize,
    tally: Rc<RefCell<Tally>>,
) -> Result<(), MachineError> {
    loop {
        ctx.spend(OP_NS).await;
        let page = sampler.draw(&mut rng);
        let hit = {
            let world = ctx.w();
            let frame = world.pool.frame(world.mapped_object(mapping), page);
            frame.is_some_and(|frame| !world.is_locked(frame))
        };
        ctx.access(mapping, page, 1, false).await?;
        let tenant = &mut tally.borrow_mut().tenants[number];
        tenant.accesses += 1;
        tenant.hits += u64::from(hit);
    }
}

/// Reads for ever, from start to end.
async fn scanner(
    ctx: Ctx,
    open: OpenId,
    pages: u64,
    tally: Rc<RefCell<Tally>>,
) -> Result<(), MachineError> {
    let mut page = 0;
    loop {
        ctx.read(open, page, SCAN_PAGES).await?;
        tally.borrow_mut().scanned += SCAN_PAGES;
        page = (page + SCAN_PAGES) % pages;
        ctx.sleep(SCAN_PAUSE_NS).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::MachineSpec;
    use lowtide_core::Policy;

    fn noisy(policy: Policy, company: Company, seed: u64) -> NoisyResult {
        let spec = MachineSpec {
            memory: 512 << 20,
            kernel: 0,
            ..MachineSpec::load("laptop").expect("a preset")
        };
        let machine = MachineConfig { spec, policy, max: None, seed };
        // A quarter of it.
        let config = NoisyConfig {
            file: 10 << 20,
            max: 44 << 20,
            low: 38 << 18,
            scan: 128 << 20,
            warm_ns: 4 * SECOND_NS,
            run_ns: 2 * SECOND_NS,
            ..NoisyConfig::new(company, seed)
        };
        run(&machine, &config, &AtomicU64::new(0), &AtomicBool::new(false))
            .expect("nothing can fail")
    }

    fn hit_ratio(result: &NoisyResult) -> f64 {
        let TenantHits { accesses, hits } = result.all();
        assert!(accesses > 10_000 && hits <= accesses, "{accesses} {hits}");
        hits as f64 / accesses as f64
    }

    #[test]
    fn protection_keeps_the_hit_ratio_that_a_scanner_takes() {
        for policy in [Policy::MGLRU, Policy::LRU] {
            let [alone, scanned, low] = Company::ALL.map(|company| noisy(policy, company, 1));
            let ratios = [&alone, &scanned, &low].map(hit_ratio);
            assert_eq!((alone.scanned, alone.tenants.len()), (0, 4));
            assert!(
                low.scanned > 10_000 && scanned.scanned > 10_000,
                "{policy}: the scanner goes on"
            );
            assert!(ratios[1] < ratios[0], "{policy}: {ratios:?}");
            assert!((ratios[2] - ratios[0]).abs() <= 0.02 * ratios[0], "{policy}: {ratios:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let run = |seed| {
            let result = noisy(Policy::MGLRU, Company::ScannerAndLow, seed);
            (result.tenants, result.scanned, result.ended.events)
        };
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }
}
