//! How fast the plain machine is: accesses per second of one core on a zipf sequence, for each
//! policy.
//!
//! `cargo run --release -p lowtide-sim --example speed [-- ACCESSES [PAGES [BUDGET]]]`
#![expect(clippy::print_stdout, reason = "it is a benchmark")]

use lowtide_core::Policy;
use lowtide_sim::{Plain, PlainConfig};
use lowtide_workload::zipf::ZipfAlias;
use lowtide_workload::{OpKind, SpaceKind, SplitMix64};
use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a number"));
    let accesses = args.next().unwrap_or(20_000_000);
    let pages = args.next().unwrap_or(1 << 18);
    let budget = args.next().unwrap_or(pages / 4);
    let sampler = ZipfAlias::new(pages as u32, 0.99, 1).expect("there are pages");
    let mut rng = SplitMix64::new(1);
    let began = Instant::now();
    let sum = (0..accesses).fold(0, |sum, _| sampler.draw(&mut rng) ^ sum);
    println!(
        "drawing alone: {:.1} ns ({sum:x})",
        began.elapsed().as_nanos() as f64 / accesses as f64
    );
    for (policy, _) in Policy::builtin() {
        let mut machine = Plain::new(&PlainConfig::new(policy, budget)).expect("a possible budget");
        let space = machine.add_space(SpaceKind::File, pages);
        let mut rng = SplitMix64::new(1);
        let began = Instant::now();
        for _ in 0..accesses {
            machine
                .access(OpKind::Load, space, sampler.draw(&mut rng))
                .expect("clean pages can go");
        }
        let ns = began.elapsed().as_nanos() as f64 / accesses as f64;
        let counts = machine.counts();
        println!(
            "{:10} {ns:6.1} ns an access, {:5.1} M/s; {:.1} % misses; {} bytes a page of the file",
            policy.to_string(),
            1e3 / ns,
            100.0 * counts.misses as f64 / counts.accesses as f64,
            machine.bytes() as u64 / pages
        );
    }
}
