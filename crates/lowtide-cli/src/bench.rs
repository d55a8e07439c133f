//! `lowtide bench`: lowtide beside the kernel, on real files.
//!
//! The workloads are played by [`lowtide_bench`]; the file of each there defines its options and
//! their defaults, and only this one lists them. Measurements of parts of lowtide, experiments and
//! proofs are those of `lowtide-lab`, which plays them with the same parts.

use clap::{Command, Subcommand};
use lowtide_bench::compare::{Compare, gather, random_read, scan, ycsb};
use lowtide_bench::error::BenchError;
use lowtide_workload::Workload;

/// The benchmarks, in the order of the listing.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    #[command(name = "ycsb-a", about = Workload::YcsbA.description())]
    YcsbA(Box<ycsb::YcsbArgs>),
    #[command(name = "ycsb-b", about = Workload::YcsbB.description())]
    YcsbB(Box<ycsb::YcsbArgs>),
    #[command(name = "ycsb-c", about = Workload::YcsbC.description())]
    YcsbC(Box<ycsb::YcsbCArgs>),
    #[command(name = "random-read", about = Workload::RandomRead.description())]
    RandomRead(Box<random_read::RandomReadArgs>),
    #[command(name = "gather", about = Workload::Gather.description())]
    Gather(Box<gather::GatherArgs>),
    #[command(name = "scan", about = Workload::Scan.description())]
    Scan(Box<scan::ScanArgs>),
}

/// Runs the selected workload.
///
/// # Errors
/// The reason why there is no trustworthy result.
pub(crate) fn run(bench: &Bench) -> Result<(), BenchError> {
    let comparison = match bench {
        Bench::YcsbA(args) => args.comparison(Workload::YcsbA),
        Bench::YcsbB(args) => args.comparison(Workload::YcsbB),
        Bench::YcsbC(args) => args.comparison(Workload::YcsbC),
        Bench::RandomRead(args) => args.comparison(Workload::RandomRead),
        Bench::Gather(args) => args.comparison(Workload::Gather),
        Bench::Scan(args) => args.comparison(Workload::Scan),
    };
    comparison?.run()
}

/// The workloads: names, each with a line about it, as `lowtide bench --help` lists them.
pub(crate) fn workloads() -> Vec<(String, String)> {
    let all = Bench::augment_subcommands(Command::new("bench"));
    let about = |of: &Command| of.get_about().map_or_else(String::new, ToString::to_string);
    all.get_subcommands().map(|of| (of.get_name().to_owned(), about(of))).collect()
}
