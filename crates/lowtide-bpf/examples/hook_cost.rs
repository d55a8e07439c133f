//! What it costs to ask a program: nanoseconds for one call of a hook.
//!
//! The same call with native code that has no opinion is beside it, and the difference is the
//! virtual machine: the lock, copying the snapshot to the context, and the instructions. Rounds of
//! all kinds take turns; the table has the median round, the fastest and the slowest.
//!
//! `cargo run --release -p lowtide-bpf --example hook_cost [CALLS]`
#![expect(clippy::print_stdout, reason = "it is a report")]

use lowtide_bpf::Programs;
use lowtide_core::hooks::{LimitHooks, LimitSnapshot};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 21;

/// Native code without opinions.
#[derive(Debug)]
struct Native;

impl LimitHooks for Native {}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let calls: u32 = std::env::args().nth(1).map_or(Ok(200_000), |arg| arg.parse())?;
    let load = |name: &str, bytes: &[u8]| Programs::load(bytes, name);
    let noop = load("noop", include_bytes!("../../../examples/bpf/noop.bpf.o"))?;
    let refault =
        load("refault_recency", include_bytes!("../../../examples/bpf/refault_recency.bpf.o"))?;
    let priority = load("priority", include_bytes!("../../../examples/bpf/priority.bpf.o"))?;
    priority.map_set("priority", &7u64.to_le_bytes(), &50u32.to_le_bytes())?;
    let mut kinds: [(&str, Box<dyn LimitHooks>, Vec<f64>); 4] = [
        ("native, no opinion", Box::new(Native), Vec::new()),
        ("noop.bpf.o", Box::new(noop), Vec::new()),
        ("refault_recency.bpf.o", Box::new(refault), Vec::new()),
        ("priority.bpf.o, two lookups", Box::new(priority), Vec::new()),
    ];
    let snapshot = LimitSnapshot {
        group: 7,
        since_refault_ns: 50_000_000,
        overage_delay_ns: 20_000_000,
        default_delay_ns: 20_000_000,
        ..LimitSnapshot::default()
    };
    for _ in 0..ROUNDS {
        for (_, hooks, rounds) in &mut kinds {
            let start = Instant::now();
            for _ in 0..calls {
                black_box(hooks.throttle(black_box(&snapshot)));
            }
            rounds.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(calls));
        }
    }
    println!("{:<28} {:>9} {:>9} {:>9}", "ns for a call", "median", "fastest", "slowest");
    for (name, _, rounds) in &mut kinds {
        rounds.sort_by(f64::total_cmp);
        println!(
            "{name:<28} {:>9.1} {:>9.1} {:>9.1}",
            rounds[ROUNDS / 2],
            rounds[0],
            rounds[ROUNDS - 1]
        );
    }
    Ok(())
}
