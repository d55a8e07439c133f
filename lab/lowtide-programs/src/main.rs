//! Plays programs with and without `lowtide run`, and prints what differs.

#![expect(clippy::print_stdout, reason = "a program for people")]

use clap::Parser;
use lowtide_programs::campaign::{Campaign, Finding, Options, Tally};
use lowtide_programs::mode::Mode;
use lowtide_programs::plan::Plan;
use lowtide_programs::stage::Stage;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Draws programs and plays each alone and under `lowtide run`: they must say the same, end in the
/// same way and leave the same files. What differs is made smaller and printed as a plan.
#[derive(Debug, Parser)]
#[command(name = "lowtide-programs")]
struct Args {
    /// Programs to draw
    #[arg(long, default_value_t = 1000)]
    programs: u64,
    /// The first seed; each program has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Play this plan instead
    #[arg(long)]
    plan: Option<Plan>,
    /// Modes to play in; all of them without this
    #[arg(long, value_enum)]
    mode: Vec<Mode>,
    /// Programs at a time; twice the number of processors without this
    #[arg(long)]
    jobs: Option<usize>,
    /// Begin no program after this number of seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// A play that takes longer hangs, in seconds
    #[arg(long, default_value_t = 20)]
    limit: u64,
    /// Begin no program after this number of differences
    #[arg(long, default_value_t = 1)]
    findings: u64,
    /// Play what is known to differ, too
    #[arg(long)]
    known: bool,
    /// The command under test; built by cargo without this
    #[arg(long)]
    lowtide: Option<PathBuf>,
    /// Where programs play: a folder on a disk
    #[arg(long, default_value = "target/tmp")]
    dir: PathBuf,
    /// Print the plan of the first seed, and play nothing
    #[arg(long)]
    print: bool,
}

fn print(finding: &Finding) {
    let Finding { seed, mode, plan, difference, again } = finding;
    let drawn = seed.map(|seed| format!(" (seed {seed})")).unwrap_or_default();
    match mode {
        Some(mode) => println!("DIFFERS in mode {}{drawn}, {again} times again", mode.name()),
        None => println!("WRONG ALONE{drawn}"),
    }
    println!("  {:?}", difference.respect);
    print!("{}", difference.text);
    println!("  plan: {plan}");
    if let Some(mode) = mode {
        let mode = mode.name();
        println!(
            "  again: cargo run --release -p lowtide-programs -- --mode {mode} --plan '{plan}'"
        );
    }
}

fn summarise(tally: &Tally, took: Duration) {
    let plays: Vec<_> = tally.plays.iter().map(|(mode, plays)| format!("{plays} {mode}")).collect();
    let seconds = took.as_secs_f64();
    println!("{} programs in {seconds:.0} s; plays: {}", tally.programs, plays.join(", "));
    let (evicted, refaulted) = (tally.moved.evicted, tally.moved.refaulted);
    println!("  pages that left: {evicted}; that came back: {refaulted}");
    let all: Vec<_> =
        tally.operations.iter().map(|(name, count)| format!("{name} {count}")).collect();
    println!("  operations: {}", all.join(", "));
    println!("  {} differences; {} plays were slow once", tally.findings.len(), tally.slow);
}

fn run() -> Result<bool, Box<dyn Error>> {
    let args = Args::parse();
    if args.print {
        println!("{}", Plan::draw(args.seed));
        return Ok(true);
    }
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let stage = Stage::build(&args.dir, args.lowtide)?;
    if !stage.has_namespaces {
        println!("SKIPPED: a full /dev/shm, which takes root: such plans have the usual one");
    }
    let options = Options {
        seed: args.seed,
        programs: args.programs,
        most: args.seconds.map(Duration::from_secs),
        modes: if args.mode.is_empty() { Mode::ALL.to_vec() } else { args.mode },
        at_a_time: args.jobs.unwrap_or(2 * processors),
        known: args.known,
        limit: Duration::from_secs(args.limit),
        findings: args.findings,
    };
    let begin = Instant::now();
    let campaign = Campaign::new(&stage, options);
    let tally = match args.plan {
        Some(plan) => campaign.run_plan(&plan, print)?,
        None => campaign.run(print)?,
    };
    summarise(&tally, begin.elapsed());
    Ok(tally.findings.is_empty())
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lowtide-programs: {error}");
            ExitCode::from(2)
        }
    }
}
