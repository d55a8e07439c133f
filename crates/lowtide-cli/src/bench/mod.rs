//! `lowtide bench`: real files, real memory, a real device, and every byte verified.
//!
//! The file of a workload defines its options and their defaults; only this file lists all
//! workloads. Measurements of parts of lowtide, experiments and proofs are those of `lowtide-lab`,
//! which plays them with the same parts.
//!
//! | file | concept |
//! |---|---|
//! | `options` | options that several workloads share |
//! | `content`, `datafile` | the content of data files; creating, locking and keeping them |
//! | `access`, `play`, `thread_pool` | access to data; operations; threads |
//! | `system`, `map`, `peer` | lowtide under a policy; its maps; the systems it is compared with |
//! | `record` | an extra turn whose accesses become a trace |
//! | `rounds` | turns |
//! | `compare` | ycsb, random reads, rows, scans, traces: lowtide beside the kernel |
//! | `slow` | an artificially slow device |
//! | `machine`, `error` | the machine, and errors, in the output |

pub mod access;
pub mod compare;
pub mod content;
pub mod datafile;
pub mod error;
pub mod machine;
pub mod map;
pub mod options;
pub mod peer;
pub mod play;
pub mod record;
pub mod rounds;
pub mod slow;
pub mod system;
pub mod thread_pool;

use clap::{Command, Subcommand};
use lowtide_workload::Workload;

use compare::{gather, random_read, replay, scan, ycsb};
use error::BenchError;

/// The benchmarks, in the order of the listing.
#[derive(Debug, Subcommand)]
pub enum Bench {
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
    #[command(name = "replay", about = Workload::Replay.description())]
    Replay(Box<replay::ReplayArgs>),
}

/// Runs the selected workload.
///
/// # Errors
/// The reason why there is no trustworthy result.
pub fn run(bench: &Bench) -> Result<(), BenchError> {
    match bench {
        Bench::YcsbA(args) => args.run(Workload::YcsbA),
        Bench::YcsbB(args) => args.run(Workload::YcsbB),
        Bench::YcsbC(args) => args.run(),
        Bench::RandomRead(args) => args.run(),
        Bench::Gather(args) => args.run(),
        Bench::Scan(args) => args.run(),
        Bench::Replay(args) => args.run(),
    }
}

/// The workloads: names, each with a line about it, as `lowtide bench --help` lists them.
pub fn workloads() -> Vec<(String, String)> {
    let all = Bench::augment_subcommands(Command::new("bench"));
    let about = |of: &Command| of.get_about().map_or_else(String::new, ToString::to_string);
    all.get_subcommands().map(|of| (of.get_name().to_owned(), about(of))).collect()
}
