//! What the baselines cost: million accesses a second on one core, and the same through a tape.
//!
//! The accesses are zipf 0.99 over PAGES pages (default 50 thousand, so that the tables fit a
//! core's cache), the capacity is a quarter of that. Each figure is the best of five runs.
//!
//! `cargo run --release -p lowtide-mrc --example baseline_cost [PAGES [ACCESSES]]`
#![expect(clippy::print_stdout, reason = "it is a report")]

use lowtide_mrc::baseline::{Baseline, Cache, Clock, Lru, Sieve};
use lowtide_mrc::{NextUse, Run, StackDistances, Storage, System, Tape};
use lowtide_workload::{Distribution, OpKind, PageOp, SpaceId, SplitMix64};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

fn best_of_five(accesses: usize, mut run: impl FnMut()) -> f64 {
    let rates = (0..5).map(|_| {
        let start = Instant::now();
        run();
        accesses as f64 / start.elapsed().as_secs_f64() / 1e6
    });
    rates.fold(0.0, f64::max)
}

fn play(mut cache: impl Cache, pages: &[u32]) {
    let misses: u64 = pages.iter().map(|&page| u64::from(!cache.access(page, 0))).sum();
    std::hint::black_box(misses);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let pages: u32 = arguments.next().map_or(Ok(50_000), |text| text.parse())?;
    let accesses: usize = arguments.next().map_or(Ok(10_000_000), |text| text.parse())?;
    let capacity = NonZeroU32::new(pages / 4).ok_or("at least 4 pages are needed")?;
    let sampler = Distribution::default().sampler(u64::from(pages), 1)?;
    let mut rng = SplitMix64::new(1);
    let stream: Vec<u32> = (0..accesses).map(|_| sampler.draw(&mut rng) as u32).collect();

    println!(
        "zipf 0.99, {pages} pages, capacity {capacity}, {accesses} accesses; million accesses a \
         second"
    );
    println!(
        "strict-lru direct   {:8.1}",
        best_of_five(accesses, || play(Lru::new(pages, capacity), &stream))
    );
    println!(
        "clock direct        {:8.1}",
        best_of_five(accesses, || play(Clock::new(pages, capacity), &stream))
    );
    println!(
        "sieve direct        {:8.1}",
        best_of_five(accesses, || play(Sieve::new(pages, capacity), &stream))
    );

    let op = |page: &u32| Ok::<_, String>(PageOp::one(OpKind::Read, SpaceId(0), u64::from(*page)));
    let storage = Storage::default();
    let tape = Tape::record(stream.iter().map(op), &storage)?;
    println!(
        "recording a tape    {:8.1}",
        best_of_five(accesses, || _ = Tape::record(stream.iter().map(op), &storage))
    );

    let stop = AtomicBool::new(false);
    println!(
        "next uses           {:8.1}",
        best_of_five(accesses, || _ = NextUse::of(&tape, &stop))
    );
    println!(
        "stack distances     {:8.1}",
        best_of_five(accesses, || _ = StackDistances::of(&tape, &stop))
    );
    let run = Run { tape: &tape, threads: NonZeroUsize::MIN, stop: &stop, progress: &|_| () };
    for baseline in Baseline::ALL.into_iter().filter(|baseline| *baseline != Baseline::Lru) {
        let systems = [System::Baseline(baseline)];
        let rate =
            best_of_five(accesses, || _ = run.curves(&systems, &[u64::from(capacity.get())]));
        println!("{baseline:<11} by tape {rate:8.1}");
    }
    Ok(())
}
