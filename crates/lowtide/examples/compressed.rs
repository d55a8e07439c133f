//! Whether compressed pages pay for one's own file: pages are read by popularity, with and without,
//! in turns.
//!
//! Eight threads draw pages of 4 KiB, of which the n-th is n times as rare as the first. Two pagers
//! with the same budget take turns, with the same draws. It reads the file, and changes nothing.
//!
//! `cargo run --release -p lowtide --example compressed -- FILE MIB SECONDS`: the budget, a quarter
//! of the file without one, and for how long each of four rounds of each pager lasts.

use lowtide::{OpenOptions, Pager, Size, View, ZcacheStat};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 4;
const THREADS: u64 = 8;

/// Spreads a number over all of its bits.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The page of a draw: that of rank n is n times as rare as the first, and somewhere in the file.
fn page_of(draw: u64, pages: u64) -> u64 {
    let unit = (draw >> 11) as f64 / (1_u64 << 53) as f64;
    let rank = (pages as f64).powf(unit) as u64 - 1;
    mix(rank + 1) % pages
}

/// Reads for a time. Returns pages a second.
fn read(view: &View, time: Duration, round: usize) -> f64 {
    let (read, pages, begun) = (AtomicU64::new(0), view.page_count(), Instant::now());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let read = &read;
            scope.spawn(move || {
                let mut state = mix(thread + THREADS * round as u64);
                let mut sum = 0_u64;
                while begun.elapsed() < time {
                    for _ in 0..64 {
                        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                        match view.page(page_of(mix(state), pages)) {
                            Ok(page) => sum += u64::from(page[0]),
                            Err(error) => panic!("{error}"),
                        }
                    }
                    read.fetch_add(64, Relaxed);
                }
                std::hint::black_box(sum);
            });
        }
    });
    read.load(Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

#[expect(clippy::print_stdout, reason = "the figures are what the example is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = args.next().ok_or("name a file")?;
    let number = |arg: Option<std::ffi::OsString>| arg.and_then(|arg| arg.to_str()?.parse().ok());
    let quarter = (std::fs::metadata(&path)?.len() >> 22).max(4);
    let budget = Size::mib(number(args.next()).unwrap_or(quarter));
    let time = Duration::from_secs(number(args.next()).unwrap_or(10));

    let pagers = [true, false].map(|with| Pager::builder().max(budget).zcache(with).build());
    let [with, without] = pagers;
    let (with, without) = (with?, without?);
    let options = OpenOptions::new().read_ahead(Size::new(0));
    let views = [options.open(&with, &path)?, options.open(&without, &path)?];
    let (mut before, mut misses_before) = (ZcacheStat::default(), 0);
    println!("pages/s with  without  ratio  share compressed  pages in a page  misses found there");
    for round in 0..ROUNDS {
        let [a, b] = [&views[0], &views[1]].map(|view| read(view, time, round));
        let (stat, misses) = (with.root().zcache_stat()?, with.root().stat()?);
        let misses = misses.events.workingset_refault_file;
        let part = stat.memory_bytes as f64 / budget.bytes() as f64;
        let found = (stat.loaded - before.loaded) as f64 / (misses - misses_before).max(1) as f64;
        println!(
            "{a:>12.0} {b:>8.0} {:>6.2} {part:>17.2} {:>16.2} {found:>19.2}",
            a / b,
            stat.ratio().unwrap_or(1.0),
        );
        (before, misses_before) = (stat, misses);
    }
    Ok(())
}
