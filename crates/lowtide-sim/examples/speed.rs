//! How fast the plain machine is: accesses per second of one core on a zipf sequence, for each
//! policy.
//!
//! `cargo run --release -p lowtide-sim --example speed [-- ACCESSES [PAGES [BUDGET [POLICY]]]]`
#![expect(clippy::print_stdout, reason = "it is a benchmark")]

use lowtide_core::Policy;
use lowtide_sim::{Plain, PlainConfig};
use lowtide_workload::{Distribution, OpKind, SpaceKind, SplitMix64};
use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1).take(3).map(|a| a.parse::<u64>().expect("a number"));
    let accesses = args.next().unwrap_or(20_000_000);
    let pages = args.next().unwrap_or(1 << 18);
    let budget = args.next().unwrap_or(pages / 4);
    // Drawn before the clock starts, four bytes an access.
    let sampler = Distribution::default().sampler(pages, 1).expect("there are pages");
    let mut rng = SplitMix64::new(1);
    let sequence: Vec<u32> = (0..accesses).map(|_| sampler.draw(&mut rng) as u32).collect();
    let only = std::env::args().nth(4);
    let policies = Policy::builtin().map(|(policy, _)| policy);
    for policy in policies.filter(|p| only.as_ref().is_none_or(|only| p.to_string() == *only)) {
        let mut machine = Plain::new(&PlainConfig::new(policy, budget)).expect("a possible budget");
        let space = machine.add_space(SpaceKind::File, pages);
        let began = Instant::now();
        for &page in &sequence {
            machine.access(OpKind::Load, space, page.into()).expect("clean pages can go");
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
