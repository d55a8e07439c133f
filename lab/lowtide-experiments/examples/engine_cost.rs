//! What the engine costs: nanoseconds for one miss, bytes for one folio.
//!
//! A miss is a charge, its share of the reclaim that the charge needs, and the insertion. The
//! driver is as small as one can be: an array of words for the translations (frame or shadow), a
//! byte each for the young bits, no I/O, no copying. Its answers to the engine are part of the
//! figures, and so is the aging walk. The accesses are zipf 0.99 over four times the memory, once
//! through the mapping (young bits) and once through the descriptor (access counts).
//!
//! `cargo run --release -p lowtide-experiments --example engine_cost [FRAMES [POLICY]]`
#![expect(clippy::print_stdout, reason = "it is a report")]

use lowtide_core::limits::{LOOK_AROUND_MAX, TABLE_ENTRIES};
use lowtide_core::{
    AgeJob, Charge, Engine, EngineConfig, Facts, Folio, FolioId, FolioState, LruType, MemcgId,
    Next, Owner, Policy, Reclaim, References, Shadow, SpaceId, Step, TableKey, Task, Unmapped,
    Window,
};
use lowtide_experiments::groundtruth::Case;
use std::time::{Duration, Instant};

const ROOT: MemcgId = MemcgId::ROOT;
const RESIDENT: u32 = 1 << 31;
/// Misses between two publications of group statistics.
const PUBLISH_EVERY: u64 = 20_000;

/// A translation a page: `RESIDENT` and the frame, or the bits of a shadow.
struct Translations {
    words: Vec<u32>,
    young: Vec<bool>,
}

impl Facts for Translations {
    fn state(&mut self, _: FolioId, _: &Folio) -> FolioState {
        FolioState { locked: false, mapped: true }
    }

    /// Loads the young bits of a batch side by side, as real drivers do.
    fn gather<'a>(&mut self, folios: impl Iterator<Item = &'a Folio>) {
        let young = folios.filter(|folio| self.young[folio.owner().page as usize]).count();
        std::hint::black_box(young);
    }

    fn references(&mut self, _: FolioId, folio: &Folio) -> References {
        let young = std::mem::take(&mut self.young[folio.owner().page as usize]);
        References { young: u32::from(young), exec: false }
    }

    fn look_around(
        &mut self,
        _: FolioId,
        folio: &Folio,
        visit: &mut dyn FnMut(FolioId) -> bool,
    ) -> Option<Window> {
        let page = folio.owner().page;
        let first = page / LOOK_AROUND_MAX * LOOK_AROUND_MAX;
        let end = (first + LOOK_AROUND_MAX).min(self.words.len() as u64);
        for p in first as usize..end as usize {
            if self.young[p] && visit(FolioId(self.words[p] & !RESIDENT)) {
                self.young[p] = false;
            }
        }
        Some(Window { table: TableKey(page / TABLE_ENTRIES), entries: end - first })
    }
}

struct Driver {
    engine: Engine,
    translations: Translations,
    space: SpaceId,
    free: Vec<u32>,
}

impl Driver {
    fn miss(&mut self, page: usize, task: Task) {
        let mut charge = Charge::new(ROOT, 1);
        let mut reclaimed = None;
        loop {
            match charge.next(&mut self.engine, task, reclaimed) {
                Next::Charged { .. } => break,
                Next::Reclaim(reclaim) => reclaimed = Some(self.reclaim(*reclaim)),
                Next::Failed { .. } | Next::Gone => panic!("there is always something clean"),
            }
        }
        let frame = self.free.pop().expect("what is charged has a frame");
        let shadow = Shadow::from_bits(self.translations.words[page]);
        let owner = Owner { space: self.space, page: page as u64 };
        self.engine.insert(FolioId(frame), owner, 0, LruType::File, ROOT, shadow, task);
        self.translations.words[page] = RESIDENT | frame;
    }

    fn reclaim(&mut self, mut reclaim: Reclaim) -> u64 {
        loop {
            match reclaim.step(&mut self.engine, &mut self.translations, 0) {
                Step::Walk => self.walk(reclaim.age_job()),
                Step::Unmap => {
                    reclaim.victims().iter_mut().for_each(|v| v.outcome = Unmapped::Done);
                }
                Step::Freed => {
                    for gone in reclaim.freed() {
                        self.translations.words[gone.owner.page as usize] =
                            gone.shadow.map_or(0, Shadow::to_bits);
                        self.free.push(gone.folio.0);
                    }
                }
                Step::WakeFlushers | Step::Throttle(..) | Step::Yield => {}
                Step::Done => return reclaim.reclaimed(),
            }
        }
    }

    fn walk(&mut self, job: &mut AgeJob) {
        while job.next_space(&mut self.engine).is_some() {
            let Translations { words, young } = &mut self.translations;
            let tables =
                words.chunks(TABLE_ENTRIES as usize).zip(young.chunks_mut(TABLE_ENTRIES as usize));
            for (n, (words, young)) in tables.enumerate() {
                let key = TableKey(n as u64);
                if !job.wants(&self.engine, key) {
                    continue;
                }
                let mut found = 0;
                for (word, young) in words.iter().zip(young.iter_mut()).filter(|(_, young)| **young)
                {
                    if let Some(folio) = job.takes(&self.engine, FolioId(word & !RESIDENT)) {
                        *young = false;
                        job.young(&mut self.engine, folio, false);
                        found += 1;
                    }
                }
                job.table_done(&mut self.engine, key, found, words.len() as u64);
            }
        }
    }
}

/// What reading the clock twice costs.
fn clock_overhead() -> Duration {
    let n = 100_000;
    let begin = Instant::now();
    for _ in 0..n {
        std::hint::black_box(Instant::now().elapsed());
    }
    begin.elapsed() / n
}

fn measure(
    policy: Policy,
    frames: u32,
    mapped: bool,
    ops: &[u32],
    pages: usize,
) -> (u64, f64, f64) {
    let config = EngineConfig { frames, max: u64::from(frames), page_bytes: 4096, policy, cpus: 1 };
    let mut engine = Engine::new(&config).expect("the budget is big enough");
    let space = engine.add_space(ROOT);
    let translations = Translations { words: vec![0; pages], young: vec![false; pages] };
    let mut driver = Driver { engine, translations, space, free: (0..frames).rev().collect() };
    let task = if mapped { Task::FAULT } else { Task::DESCRIPTOR };
    let accesses = driver.engine.accesses();
    let (mut misses, mut time, overhead) = (0, Duration::ZERO, clock_overhead());
    for &op in ops {
        let page = op as usize;
        if driver.translations.words[page] & RESIDENT == 0 {
            let full = driver.engine.usage(ROOT) == driver.engine.max(ROOT);
            let begin = Instant::now();
            driver.miss(page, task);
            let took = begin.elapsed();
            // Filling an empty memory is not what a miss costs; and from then on one miss in some
            // forty reclaims for all.
            if full || misses > 0 {
                misses += 1;
                time += took.saturating_sub(overhead);
            }
            if (misses + 1) % PUBLISH_EVERY == 0 {
                driver.engine.publish();
            }
        }
        if mapped {
            driver.translations.young[page] = true;
        } else {
            let folio = FolioId(driver.translations.words[page] & !RESIDENT);
            if accesses.record(folio) {
                driver.engine.mark_accessed(folio, task);
            }
        }
    }
    let bytes = driver.engine.metadata_bytes() as f64 / f64::from(frames);
    (misses, time.as_nanos() as f64 / misses as f64, bytes)
}

fn main() {
    let frames =
        std::env::args().nth(1).map_or(1 << 17, |n| n.parse().expect("a number of frames"));
    let (pages, accesses) = (u64::from(frames) * 4, u64::from(frames) * 32);
    let case = format!("kind=zipf s=0.99 F={pages} N={accesses} mem={frames} seed=1");
    let ops: Vec<_> = case.parse::<Case>().expect("a valid case").ops().collect();
    println!("{frames} frames, {pages} pages, {accesses} accesses");
    println!(
        "{:10} {:10} {:>10} {:>12} {:>14}",
        "policy", "access", "misses", "ns/miss", "bytes/folio"
    );
    let only = std::env::args().nth(2);
    let policies = Policy::builtin().map(|(policy, _)| policy);
    for policy in policies.filter(|p| only.as_ref().is_none_or(|only| p.to_string() == *only)) {
        for (mapped, access) in [(true, "mapped"), (false, "descriptor")] {
            // The best of three: what disturbs a run only ever makes it slower.
            let runs = (0..3).map(|_| measure(policy, frames, mapped, &ops, pages as usize));
            let (misses, nanos, bytes) =
                runs.min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are three runs");
            println!(
                "{:10} {access:10} {misses:>10} {nanos:>12.0} {bytes:>14.1}",
                policy.to_string()
            );
        }
    }
}
