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
use std::ffi::OsString;
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
fn read(view: &View, time: Duration, round: usize) -> Result<f64, lowtide::Error> {
    let (read, pages, begun) = (AtomicU64::new(0), view.page_count(), Instant::now());
    thread::scope(|scope| {
        let one = |thread| {
            let read = &read;
            scope.spawn(move || {
                let mut state = mix(thread + THREADS * round as u64);
                let mut sum = 0_u64;
                while begun.elapsed() < time {
                    for _ in 0..64 {
                        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                        sum += u64::from(view.page(page_of(mix(state), pages))?[0]);
                    }
                    read.fetch_add(64, Relaxed);
                }
                std::hint::black_box(sum);
                Ok::<(), lowtide::Error>(())
            })
        };
        let threads: Vec<_> = (0..THREADS).map(one).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    Ok(read.load(Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

/// A number that was given, or another.
fn number(arg: Option<OsString>, default: u64) -> Result<u64, String> {
    let Some(arg) = arg else { return Ok(default) };
    let number = arg.to_str().and_then(|arg| arg.parse().ok()).filter(|&number| number > 0);
    number.ok_or_else(|| format!("{} is not a number above zero", arg.display()))
}

#[expect(clippy::print_stdout, reason = "the figures are what the example is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let path = args.next().ok_or("name a file, and perhaps MiB and seconds")?;
    let bytes = std::fs::metadata(&path)?.len();
    if bytes == 0 {
        return Err("the file is empty".into());
    }
    let budget = Size::mib(number(args.next(), (bytes >> 22).max(4))?);
    let time = Duration::from_secs(number(args.next(), 10)?);

    let pagers = [true, false].map(|with| Pager::builder().max(budget).zcache(with).build());
    let [with, without] = pagers;
    let (with, without) = (with?, without?);
    let options = OpenOptions::new().read_ahead(Size::new(0));
    let views = [options.open(&with, &path)?, options.open(&without, &path)?];
    let (mut before, mut misses_before) = (ZcacheStat::default(), 0);
    println!("pages/s with  without  ratio  share compressed  pages in a page  misses found there");
    for round in 0..ROUNDS {
        let [a, b] = [&views[0], &views[1]].map(|view| read(view, time, round));
        let (a, b) = (a?, b?);
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
