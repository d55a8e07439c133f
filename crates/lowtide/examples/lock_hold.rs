//! For how long a miss holds the lock that all threads of a pager share.
//!
//! ```sh
//! cargo run --release -p lowtide --example lock_hold -- [MIB [THREADS [PAGE [SECONDS]]]]
//! ```
//!
//! Reads records at random from a file of four budgets, with one thread and with THREADS, for each
//! policy. A reader of the clock is part of what is measured: the least that one look costs here is
//! printed too. What comes out is the `--hold` of `lowtide-lab sim scaling`.
#![allow(clippy::print_stdout, reason = "an example shows something")]

use lowtide::{Pager, Policy, Size};
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let mut next = |default| args.next().unwrap_or(Ok(default));
    let (mib, threads, page, seconds) = (next(1024)?, next(32)?, next(4096)?, next(5)?);
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("data");
    let mut file = File::create(&path)?;
    (0..mib).try_for_each(|at| file.write_all(&vec![at as u8; 1 << 20]))?;
    file.sync_all()?;
    let look = (0..10_000).map(|_| Instant::now().elapsed().as_nanos()).min().unwrap_or(0);
    println!(
        "file {mib} MiB, budget a quarter, pages of {page} bytes; a look at the clock {look} ns"
    );
    println!(
        "policy     threads   misses/s  held ns/miss  engine ns/miss  waited ns/miss  acquired/miss"
    );
    for policy in [Policy::MGLRU, Policy::LRU, Policy::TIDE] {
        for threads in [1, threads] {
            let pager = Pager::builder()
                .max(Size::new(mib << 18))
                .base_page(usize::try_from(page)?)
                .policy(policy)
                .build()?;
            let view = pager.open(&path)?;
            let (over, reads) = (AtomicBool::new(false), AtomicU64::new(0));
            let mut measured = None;
            std::thread::scope(|scope| {
                for seed in 0..threads {
                    let (view, over, reads) = (&view, &over, &reads);
                    scope.spawn(move || {
                        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                        while !over.load(Relaxed) {
                            state ^= state << 13;
                            state ^= state >> 7;
                            state ^= state << 17;
                            let at = state % view.page_count();
                            let guard = view.page(at).expect("the file can be read");
                            assert_eq!(guard[0], ((at * page) >> 20) as u8, "page {at}");
                            reads.fetch_add(1, Relaxed);
                        }
                    });
                }
                // Full first, then measured.
                while pager.stat().memory.events.pgsteal < mib * 16 {
                    std::thread::sleep(Duration::from_millis(5));
                }
                pager.measure_misses(true);
                let (before, began) = (pager.stat().memory.events, Instant::now());
                std::thread::sleep(Duration::from_secs(seconds));
                let (events, took) = (pager.stat().memory.events, began.elapsed());
                measured = Some((events.pgsteal - before.pgsteal, took, pager.miss_times()));
                over.store(true, Relaxed);
            });
            let Some((misses, took, times)) = measured else { continue };
            let per = |ns: u64| ns as f64 / misses.max(1) as f64;
            println!(
                "{:<10} {threads:>7} {:>10.0} {:>13.0} {:>15.0} {:>15.0} {:>14.2}",
                policy.to_string(),
                misses as f64 / took.as_secs_f64(),
                per(times.lock.held_ns),
                per(times.engine_ns),
                per(times.lock.waited_ns),
                per(times.lock.acquired),
            );
        }
    }
    Ok(())
}
