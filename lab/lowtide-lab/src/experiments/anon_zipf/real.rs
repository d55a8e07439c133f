//! `anon-zipf` on real memory: lowtide's regions, beside the kernel's swap on compressed memory and
//! beside memory without a limit, in interleaved rounds.
//!
//! | row | memory | swap |
//! |---|---|---|
//! | `lowtide` | `--max`, compressed pages included | half of it compressed, the rest a file |
//! | `lowtide pointer` | the same, behind a pointer | the same |
//! | `kernel zram` | a memory cgroup of `--max`; compressed pages are not in it | a zram device |
//! | `no limit` | as much as the heap is | none |
//!
//! Every operation checks what it loads. What the program computes besides is left out.

use crate::bench::options::{FewPolicies, ScratchPlace};
use clap::{Args, ValueEnum};
use lowtide::{Pager, Policy, Size, SwapOptions};
use lowtide_bench::datafile::DataDir;
use lowtide_bench::error::BenchError;
use lowtide_bench::machine::Machine;
use lowtide_bench::options::memory::check_memory;
use lowtide_bench::options::{Output, Seed, chosen, rounds};
use lowtide_bench::rounds as turns;
use lowtide_bench::rounds::take_turns;
use lowtide_bench::system::System;
use lowtide_bench::thread_pool::Until;
use lowtide_experiments::programs::heap::{AnonZipf as Program, PAGE};
use lowtide_host::probe::Probe;
use lowtide_report::columns::{self, Columns, number, p99};
use lowtide_report::interrupt::Cut;
use lowtide_report::json::LatencyUs;
use lowtide_report::measured::checked;
use lowtide_report::rounds::{self, ratio};
use lowtide_report::row::{KernelFigures, MeasuredFigures, Row, RowLatency};
use lowtide_report::spread::Spread;
use lowtide_report::table::us;
use lowtide_report::tally::{Latency, Slice};
use lowtide_report::{out, progress::Patient};

use super::AnonZipf;
use crate::bench::heap::{Access, Lowtide, Unlimited};
use crate::bench::peer::swap::Swapping;
use crate::bench::tenancy::host::tail;
use crate::experiments::heap::Heap;
use crate::peer::HeapJob;

/// What is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    // lowtide behind a pointer.
    Pointer,
    // The kernel's swap on compressed memory.
    Zram,
    // Memory of this process.
    NoLimit,
    None,
}

/// `lowtide-lab bench anon-zipf`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct RealAnonZipf {
    #[command(flatten)]
    own: AnonZipf,
    /// Slices of the measurement; systems take turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 5)]
    rounds: u32,
    #[command(flatten)]
    policies: FewPolicies,
    /// Systems to compare with; pointer takes userfaultfd, zram takes root
    #[arg(
        long,
        value_name = "PEER,PEER",
        value_enum,
        value_delimiter = ',',
        default_value = "pointer,zram,no-limit"
    )]
    against: Vec<Peer>,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    place: ScratchPlace,
    #[command(flatten)]
    output: Output,
}

const HELP: &str = "\
Threads load and store pages of one heap, some pages much more often than others, and check what
they load. A row for each size of the heap and system. lowtide compresses within its budget, and
swaps to a file what does not fit; a zram device takes memory that no memory cgroup counts.

Examples:
  lowtide-lab bench anon-zipf --ratio 2,4 --policy mglru,lru
  lowtide-lab bench anon-zipf --max 64M --ratio 8 --threads 1 --against none";

const COLUMNS: Columns = Columns::named(
    2,
    &[
        ("data/budget", |row| {
            let ratio = row.data_bytes.zip(row.max_bytes);
            ratio.map_or_else(String::new, |(data, max)| format!("{}", data as f64 / max as f64))
        }),
        ("system", |row| format!("{} {}", row.system, row.policy).trim().to_owned()),
        ("ops/s", |row| number(row.ops_per_s)),
        ("ratio", |row| row.measured.speed_ratio.map_or_else(String::new, Spread::text)),
        ("mean µs", |row| row.latency_us.map_or_else(String::new, |us_| us(us_.mean()))),
        ("p99", p99),
        ("p99.9", |row| row.latency_us.and_then(RowLatency::p999).map_or_else(String::new, us)),
        ("faults/op", |row| {
            let faults = row.stat.get("pgmajfault").zip(row.ops);
            faults.map_or_else(String::new, |(&n, ops)| format!("{:.3}", n as f64 / ops as f64))
        }),
        ("in swap", |row| {
            row.kernel.swap_bytes.map_or_else(String::new, |bytes| Size::new(bytes).to_string())
        }),
        ("swap's memory", |row| {
            row.kernel.zram_bytes.map_or_else(String::new, |bytes| Size::new(bytes).to_string())
        }),
    ],
);

impl RealAnonZipf {
    pub(crate) const NAME: &str = AnonZipf::NAME;
    /// One line for listings.
    pub(crate) const ABOUT: &str = AnonZipf::ABOUT;

    /// Plays it with each size of the heap, and prints the rows.
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        let peers = chosen(&self.against, Peer::None)?;
        let probe = Probe::ask();
        let heap = self.program(self.own.ratio.len() - 1).heap;
        let policies = self.policies.rows();
        let ways = 1 + u64::from(peers.contains(&Peer::Pointer));
        let beside = (peers.len() as u64 + 1 - ways) * heap;
        let budgets = ways * policies.len() as u64 + 1;
        check_memory(0, 1, budgets * self.own.max + beside, probe.memory_available)?;
        let data_dir = self.place.data_dir()?;
        data_dir.check_free(ways * policies.len() as u64 * heap)?;
        let machine = self.head(&probe, &data_dir, policies[0])?;

        let (mut rows, mut cut) = (Vec::new(), Cut::default());
        let mut wrong = Ok(());
        for variant in 0..self.own.ratio.len() {
            let program = self.program(variant);
            let mut systems = self.systems(&program, &policies, &peers, &data_dir)?;
            let steps = systems.len() as u64 * u64::from(self.rounds);
            let mut progress = Patient::steps(steps);
            let slice = Until::Seconds(self.own.seconds as f64 / f64::from(self.rounds));
            let results = take_turns(&mut systems, self.rounds, |_| slice, &mut progress, &mut cut);
            drop(progress);
            let results = results?;
            rows.extend(results.iter().map(|result| self.row(&program, result, &results[0])));
            wrong = wrong.and(results.iter().try_for_each(turns::verdict));
            if cut.is_cut() || wrong.is_err() {
                break;
            }
        }
        let closing =
            [format!("{}; ratios are to the first row of each size", checked(&rows, "contents"))];
        let table = columns::table(COLUMNS, &rows);
        tail(&self.output, &machine, &table, rows, closing, cut).and(wrong)
    }

    fn program(&self, variant: usize) -> Program {
        self.own.of(variant, self.seed.seed)
    }

    fn pager(&self, policy: Policy, heap: u64, dir: &DataDir) -> Result<Pager, BenchError> {
        let max = Size::new(self.own.max);
        let swap =
            SwapOptions::compressed(Size::new(self.own.max / 2)).file(dir.path(), Size::new(heap));
        let pager = Pager::builder().max(max).policy(policy).swap(swap).build();
        pager.map_err(|source| BenchError::Setup { max, page_bytes: PAGE, source })
    }

    fn head(&self, probe: &Probe, dir: &DataDir, policy: Policy) -> Result<Machine, BenchError> {
        let example = dir.scratch("swap")?;
        let pager = self.pager(policy, self.own.max, dir)?;
        let machine = Machine::of(probe, example.path(), example.file(), &pager)?;
        out::line(format_args!("{}: {}", AnonZipf::NAME, AnonZipf::ABOUT));
        let heap = self.program(self.own.ratio.len() - 1).heap;
        for line in machine.lines_of(example.path(), heap) {
            out::line(line);
        }
        for (name, text) in self.own.describe() {
            out::line(format_args!("{name:<9} {text}"));
        }
        out::line(format_args!(
            "run       {} s of each system, in {} rounds; seed {}\n",
            self.own.seconds, self.rounds, self.seed.seed
        ));
        Ok(machine)
    }

    /// The systems, each with a heap that is filled.
    fn systems(
        &self,
        program: &Program,
        policies: &[Policy],
        peers: &[Peer],
        dir: &DataDir,
    ) -> Result<Vec<Box<dyn System>>, BenchError> {
        let mut systems: Vec<Box<dyn System>> = Vec::new();
        for &policy in policies {
            let pager = self.pager(policy, program.heap, dir)?;
            systems.push(Box::new(Lowtide::start(pager, policy, Access::Guards, program)?));
        }
        for peer in peers {
            match peer {
                Peer::Pointer => {
                    for &policy in policies {
                        let pager = self.pager(policy, program.heap, dir)?;
                        match Lowtide::start(pager, policy, Access::Pointer, program) {
                            Ok(system) => systems.push(Box::new(system)),
                            Err(BenchError::Map(why)) => {
                                out::note(format_args!("lowtide pointer {policy} left out: {why}"));
                            }
                            Err(error) => return Err(error),
                        }
                    }
                }
                Peer::Zram => {
                    let &Program { heap, threads, stores, seed, .. } = program;
                    let job = HeapJob { heap, threads, stores, seed };
                    match Swapping::start(job, self.own.max) {
                        Ok(system) => {
                            let algorithm = system.algorithm();
                            out::note(format_args!("the zram device compresses with {algorithm}"));
                            systems.push(Box::new(system));
                        }
                        Err(error @ (BenchError::Interrupted(_) | BenchError::Threads(_))) => {
                            return Err(error);
                        }
                        Err(error) => out::note(format_args!("kernel zram left out: {error}")),
                    }
                }
                Peer::NoLimit => systems.push(Box::new(Unlimited::start(program)?)),
                Peer::None => {}
            }
        }
        Ok(systems)
    }

    fn row(&self, program: &Program, result: &rounds::Turns, base: &rounds::Turns) -> Row {
        let sum = result.sum();
        let row = Row::of_turns(result);
        Row {
            workload: AnonZipf::NAME,
            max_bytes: Some(self.own.max),
            data_bytes: Some(program.heap),
            page_bytes: PAGE,
            threads: self.own.threads,
            seed: Some(self.seed.seed),
            latency_us: Some(RowLatency::Whole(LatencyUs::from(&Latency::from_pairs(
                &sum.latency,
            )))),
            measured: MeasuredFigures {
                speed_ratio: Some(ratio(result, base, Slice::rate)),
                // Nothing is flushed, and no writer is throttled.
                flush_seconds: None,
                ..row.measured
            },
            kernel: KernelFigures {
                swap_bytes: sum.swap.map(|swap| swap.orig_bytes),
                zram_bytes: sum.swap.map(|swap| swap.memory_bytes),
                longest_pause_ms: None,
                ..row.kernel
            },
            ..row
        }
    }
}
