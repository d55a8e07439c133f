//! Draws miss-ratio curves: all baselines over a stream of skewed reads with scans between, as
//! `OUT.svg` and `OUT.html`.
//!
//! `cargo run --release -p lowtide-mrc --example miss_ratio_page OUT`
#![expect(clippy::print_stdout, reason = "it is a report")]

use lowtide_mrc::baseline::Baseline;
use lowtide_mrc::{Run, Storage, System, Table, Tape, chart, page, spread};
use lowtide_workload::{Distribution, OpKind, PageOp, SpaceId, SplitMix64};
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

const PAGE_BYTES: u64 = 4096;
const PAGES: u64 = 200_000;
const OPERATIONS: u64 = 2_000_000;
const SEED: u64 = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = std::env::args().nth(1).ok_or("say where to write: miss_ratio_page OUT")?;
    let sampler = Distribution::Zipfian(0.9).sampler(PAGES, SEED)?;
    let mut rng = SplitMix64::new(SEED);
    let ops = (0..OPERATIONS).map(|_| {
        // One in a thousand reads a thousand pages in a row of another file.
        let scan = rng.below(1000) == 0;
        let scanned = PageOp {
            kind: OpKind::Read,
            space: SpaceId(1),
            page: rng.below(PAGES / 2),
            pages: 1000,
        };
        let read = PageOp::one(OpKind::Load, SpaceId(0), sampler.draw(&mut rng));
        Ok::<_, String>(if scan { scanned } else { read })
    });
    let tape = Tape::record(ops, &Storage::default())?;
    let footprint = u64::from(tape.distinct());
    let stop = AtomicBool::new(false);
    let threads = std::thread::available_parallelism()?;
    let run = Run {
        tape: &tape,
        threads: NonZeroUsize::max(threads, NonZeroUsize::MIN),
        stop: &stop,
        progress: &|_| (),
    };
    let systems = Baseline::ALL.map(System::Baseline);
    let curves = run.curves(&systems, &spread(footprint, 24))?;
    print!("{}", Table::new(&curves, footprint, PAGE_BYTES));
    let mut advice = Vec::new();
    for (system, curve) in systems.iter().zip(&curves) {
        advice.push(run.advise(system, 0.25, curve)?);
    }
    let about = format!(
        "zipf 0.9 and scans: {} accesses to {footprint} pages of {PAGE_BYTES} bytes, seed {SEED}",
        tape.accesses()
    );
    std::fs::write(
        format!("{out}.svg"),
        chart("Miss ratio by memory budget", &about, &curves, PAGE_BYTES),
    )?;
    let html =
        page("Miss ratio by memory budget", &[about], &curves, footprint, PAGE_BYTES, &advice);
    std::fs::write(format!("{out}.html"), html)?;
    Ok(())
}
