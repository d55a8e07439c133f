//! Runs a swarm: `swarm [SEEDS [FIRST [BUG]]]`, or one plan: `swarm 'seed=...;...'`. Prints what it has been through, or what it found.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use lowtide_sim::swarm::{Plan, SwarmConfig, replay, run};
use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(text) = args.first().filter(|text| text.contains('=')) {
        let plan: Plan = text.parse()?;
        match replay(&plan) {
            Ok(coverage) => println!("nothing found\n{coverage}"),
            Err(failure) => println!("{failure}"),
        }
        return Ok(());
    }
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    if args.first().is_some_and(|word| word == "plan") {
        println!("{}", Plan::draw(args[1].parse()?));
        return Ok(());
    }
    let (seeds, first) = (number(0, 300)?, number(1, 0)?);
    let bug = args.get(2).map(|name| name.parse()).transpose()?;
    let threads = std::thread::available_parallelism()?.get();
    let config = SwarmConfig { seeds: first..first + seeds, threads, bug };
    let began = Instant::now();
    match run(&config, &|_| (), &AtomicBool::new(false)) {
        Ok(report) => println!("{}{} seeds in {:.1?}", report.coverage, report.seeds, began.elapsed()),
        Err(failure) => println!("{failure}\nafter {:.1?}", began.elapsed()),
    }
    Ok(())
}
