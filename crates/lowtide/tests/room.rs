//! Promise: an operation fails for want of room only where there is none. A region whose pages go
//! to compressed swap, some of which do not compress, is used next to views of files by two threads
//! each, in two tenants of one pager. A plan is drawn so that all that cannot go, and all that is
//! held at a time, has room: then no operation may fail.
//!
//! `LOWTIDE_STRESS_SECONDS=600` plays further plans for so long, `LOWTIDE_STRESS_SEED=17` one.

use crate::common::Dir;
use lowtide::advanced::OpenAdvanced as _;
use lowtide::{Error, OpenOptions, Pager, Region, Size, SwapOptions, View};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// Plans that every machine plays.
const SEEDS: u64 = 24;
/// Operations of a thread.
const STEPS: u64 = 3000;
/// Bytes that a page takes in swap at the most beyond those that do not compress.
const PACKED: u64 = 192;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

fn size(pages: u64) -> Size {
    Size::new(pages * PAGE)
}

/// What a seed draws. Sizes are pages.
#[derive(Debug)]
struct Plan {
    seed: u64,
    policy: &'static str,
    budget: u64,
    /// Of the folios of each view.
    orders: [u8; 2],
    region: u64,
    swap: u64,
    files: u64,
    /// What the tenants of the region and of the views may have.
    limits: [Option<u64>; 2],
    /// Bytes of a page that do not compress.
    noise: u64,
    /// One page in this number does not compress at all; 0 is none.
    hard: u64,
    /// Kinds of stores to files.
    stores: u64,
    /// Guards that a thread has at most, besides the one that it takes.
    held: usize,
    /// Pages of a read of many.
    many: u64,
    background: bool,
}

impl Plan {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let budget = 512 + rng.below(1537);
        let (noise, hard) = (rng.pick(&[128, 512, 1536]), rng.pick(&[0, 8, 3]));
        let taken = noise + PACKED + PAGE.checked_div(hard).unwrap_or(0);
        // What cannot go, or is compressed, has room in a third of the budget.
        let stays = budget / 4 + rng.below(budget / 12);
        let held = rng.pick(&[0, 1, 4, 8]);
        let pinned = 2 * 16 * (1 + held as u64) + 64;
        Self {
            seed,
            policy: rng.pick(&["lru", "lru", "mglru", "mglru-7.1", "tide"]),
            budget,
            orders: [rng.below(5) as u8, rng.below(5) as u8],
            region: stays * PAGE / taken,
            swap: rng.pick(&[8 * budget, budget / 2]),
            files: budget / 2 + rng.below(2 * budget),
            limits: [
                (rng.below(4) > 0).then(|| stays * 5 / 4 + 64 + rng.below(64)),
                (rng.below(2) == 0).then(|| pinned + rng.below(budget / 2)),
            ],
            noise,
            hard,
            stores: rng.below(3),
            held,
            many: rng.pick(&[1, 4, 40]),
            background: rng.below(4) > 0,
        }
    }

    fn noise_of(&self, page: u64) -> u64 {
        let hard = self.hard > 0 && page.is_multiple_of(self.hard);
        if hard { PAGE } else { self.noise }
    }
}

/// Drops guards, down to one in most steps.
fn let_go<T>(held: &mut Vec<T>, plan: &Plan, rng: &mut Rng) {
    while held.len() > plan.held || (!held.is_empty() && rng.below(4) == 0) {
        drop(held.swap_remove(rng.below(held.len() as u64) as usize));
    }
}

/// A thread at the region. It stores to pages of its own, which the other one holds for a moment.
fn use_region(region: &Region, plan: &Plan, rng: &mut Rng, thread: u64) -> Result<(), Error> {
    let (pages, mut held) = (region.page_count(), Vec::new());
    for _ in 0..STEPS {
        let_go(&mut held, plan, rng);
        let page = rng.below(pages / 2) * 2 + thread;
        match rng.below(8) {
            0..4 => {
                held.clear();
                let mut guard = region.page_mut(page)?;
                let words = guard.chunks_exact_mut(8).take((plan.noise_of(page) / 8) as usize);
                words.for_each(|word| word.copy_from_slice(&rng.next().to_le_bytes()));
            }
            4..6 => held.push(region.page(page)?),
            6 => drop(region.page(rng.below(pages))?),
            _ => {
                let count = (1 + rng.below(plan.many)).min(pages - page);
                region.read_at(page * PAGE, &mut vec![0; (count * PAGE) as usize])?;
            }
        }
    }
    Ok(())
}

/// A thread at its view.
fn use_view(view: &View, plan: &Plan, rng: &mut Rng) -> Result<(), Error> {
    let (pages, mut held) = (view.page_count(), Vec::new());
    for _ in 0..STEPS {
        let_go(&mut held, plan, rng);
        let among = rng.pick(&[pages / 8 + 1, pages]);
        let page = rng.below(among);
        match rng.below(16) {
            0..3 if plan.stores > 0 => {
                held.clear();
                view.write_at(page * PAGE, &[7; PAGE as usize])?;
            }
            3..5 if plan.stores > 1 => {
                held.clear();
                view.write_at(page * PAGE + 5, &[7; 100])?;
            }
            5 => view.prefetch(page * PAGE..(page + 16).min(pages) * PAGE),
            6 => {
                let count = (1 + rng.below(plan.many)).min(pages - page);
                view.read_at(page * PAGE, &mut vec![0; (count * PAGE) as usize])?;
            }
            7 => {
                let list: Vec<_> = (0..plan.many).map(|_| rng.below(pages)).collect();
                view.get_many(&list, |_, _| ())?;
            }
            _ => held.push(view.page(page)?),
        }
    }
    Ok(())
}

fn play(plan: &Plan) {
    let dir = Dir::new();
    let pager = Pager::builder()
        .max(size(plan.budget))
        .policy(plan.policy.parse().unwrap())
        .swap(SwapOptions::compressed(size(plan.swap)))
        .memory_timeout(Duration::from_secs(30))
        .background(plan.background)
        .build()
        .unwrap();
    let tenant = |name: &str, limit: Option<u64>| {
        let tenant = pager.tenant(name);
        limit.map_or(tenant.clone(), |limit| tenant.max(size(limit))).create().unwrap()
    };
    let [heap, files] = [tenant("heap", plan.limits[0]), tenant("files", plan.limits[1])];
    let region = heap.region(plan.region * PAGE).unwrap();
    let views = [0, 1].map(|n| {
        let path = dir.path().join(n.to_string());
        std::fs::write(&path, vec![7; (plan.files / 2 * PAGE) as usize]).unwrap();
        let options = OpenOptions::new().write(true).folio_order(plan.orders[n]).tenant(&files);
        options.open(&pager, &path).unwrap()
    });
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (pager, region, view) = (&pager, &region, &views[thread as usize / 2]);
            scope.spawn(move || {
                let mut rng = Rng(plan.seed << 8 | thread);
                let done = match thread % 2 {
                    0 => use_region(region, plan, &mut rng, thread / 2),
                    _ => use_view(view, plan, &mut rng),
                };
                done.unwrap_or_else(|error| {
                    let of = if let Error::OutOfBudget { report } = &error {
                        report.to_string()
                    } else {
                        String::new()
                    };
                    panic!("thread {thread}: {error}\n{of}{}\n{plan:?}", pager.report())
                });
            });
        }
    });
    pager.validate().unwrap();
}

#[test]
fn there_is_room_for_each_operation_while_little_is_held() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(seed) = number("LOWTIDE_STRESS_SEED") {
        return play(&Plan::draw(seed));
    }
    let (began, least) = (Instant::now(), number("LOWTIDE_STRESS_SECONDS").unwrap_or(0));
    for seed in 0.. {
        if seed >= SEEDS && began.elapsed() >= Duration::from_secs(least) {
            break;
        }
        play(&Plan::draw(seed));
    }
}

/// Each takes a frame of the tenant's reserve, while there is one; those that come too late wait.
#[test]
fn pages_come_back_from_swap_as_soon_as_those_in_memory_are_let_go() {
    for policy in ["lru", "mglru", "mglru-7.1", "tide"] {
        let pager = Pager::builder()
            .max(size(1024))
            .policy(policy.parse().unwrap())
            .swap(SwapOptions::compressed(size(1024)))
            .memory_timeout(Duration::from_secs(60))
            .build()
            .unwrap();
        let tenant = pager.tenant("heap").max(size(128)).create().unwrap();
        let region = tenant.region(400 * PAGE).unwrap();
        for page in 0..400 {
            region.page_mut(page).unwrap()[0] = page as u8;
        }
        let (resident, gone): (Vec<_>, Vec<_>) =
            (0..400).partition(|page| region.is_resident(*page));
        let held: Vec<_> = resident.iter().map(|page| region.page(*page).unwrap()).collect();
        // It has no page to spare, but for its reserve.
        let _ = tenant.set_max(Size::new(tenant.usage().unwrap())).unwrap();
        let start = std::sync::Barrier::new(25);
        std::thread::scope(|scope| {
            for page in gone.into_iter().take(24) {
                let (start, region) = (&start, &region);
                scope.spawn(move || {
                    start.wait();
                    let read = region.page(page);
                    let read = read.unwrap_or_else(|e| panic!("{policy}, page {page}: {e}"));
                    assert_eq!(read[0], page as u8);
                    std::thread::sleep(Duration::from_millis(100));
                });
            }
            start.wait();
            std::thread::sleep(Duration::from_millis(500));
            drop(held);
        });
    }
}
