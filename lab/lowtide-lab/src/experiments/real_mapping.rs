//! Programs that read mapped files, on real files and real memory: `mmap-thrash` and `fio-mmap`.
//! lowtide's maps in this process stand beside the kernel's mappings in a memory cgroup of the same
//! limit, in interleaved rounds.
//!
//! There are these differences from the simulated machine:
//!
//! * It is a part of the published size, by default a fiftieth or a hundredth.
//! * A file of `mmap-thrash` is not all holes. Some pages have marks, so that each page is known
//!   for the right one.
//! * The jobs of `fio-mmap` are threads and not processes, and their files are on a disk and not on
//!   a ramdisk: a miss costs a read of the device.
//! * A memory cgroup of version 1 has no `high`, so the kernel's mappings have the limit alone. It
//!   also pays for the threads and page tables of the child, which lowtide's tenant does not.
//!
//! A map of lowtide waits for its faults by `hold` (`docs/design/fault-path.md`); how a real kernel
//! waits, and how often it looked in vain, it does not say.

use std::fmt;

use crate::bench::options::{FewPolicies, ScratchPlace};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lowtide::map::MapMode;
use lowtide::{Pager, Size};
use lowtide_bench::datafile::DataDir;
use lowtide_bench::error::BenchError;
use lowtide_bench::machine::Machine;
use lowtide_bench::options::memory::check_memory;
use lowtide_bench::options::{Io, Output, rounds};
use lowtide_bench::rounds as turns;
use lowtide_bench::rounds::take_turns;
use lowtide_bench::system::System;
use lowtide_bench::thread_pool::Until;
use lowtide_experiments::programs::mapping::{FioMmap, MapThrash};
use lowtide_host::probe::{Availability, Probe};
use lowtide_report::columns::{self, Columns, label, number, refaults};
use lowtide_report::interrupt::Cut;
use lowtide_report::json::LatencyUs;
use lowtide_report::measured::checked;
use lowtide_report::rounds::{self, ratio};
use lowtide_report::row::{KernelFigures, MeasuredFigures, Row, RowLatency};
use lowtide_report::tally::{Latency, Slice};
use lowtide_report::values::{self, part};
use lowtide_report::{out, progress::Patient};

use super::fio_mmap::{Distribution, FioMapped};
use super::mapping::Mapping;
use super::mmap_thrash::MmapThrash;
use crate::bench::mapped::{KernelMaps, Limits, LowtideMaps, Made, PAGE};
use crate::bench::peer::mapped::MappedPeer;
use crate::bench::tenancy::host::tail;
use crate::bench::{blocks, storm};
use crate::experiments::mapping::FaultRow;

/// A program, with its own options.
pub(crate) trait RealProgram: Args + fmt::Debug {
    const NAME: &str;
    /// One line for listings.
    const ABOUT: &str;
    /// The text below the options in its help.
    const HELP: &str;
    /// The table.
    const COLUMNS: Columns;
    /// What is verified.
    const WHAT: &str;
    /// Whether memory is to be full before the measurement: a slice goes before it.
    const WARMS: bool;

    /// Its size relative to the published one.
    fn scale(&self) -> f64;
    /// The limits of its group.
    fn limits(&self) -> Limits;
    fn threads(&self) -> u32;
    /// Bytes of the file of each.
    fn file(&self) -> u64;
    /// What is in the files, and what is read of them.
    fn about_files(&self) -> &'static str;
    /// Makes the files of a system.
    ///
    /// # Errors
    /// Those of files.
    fn make(&self, dir: &DataDir, of: &str) -> Result<Made, BenchError>;
}

/// Own options of `bench mmap-thrash`.
#[derive(Debug, Args)]
pub(crate) struct Thrash {
    /// Threads and memory relative to the published size
    #[arg(long, value_name = "F", value_parser = part, default_value = "0.02",
          allow_negative_numbers = true)]
    scale: f64,
}

impl Thrash {
    fn published(&self) -> MapThrash {
        MapThrash::published(self.scale)
    }
}

impl RealProgram for Thrash {
    const NAME: &str = MmapThrash::NAME;
    const ABOUT: &str = MmapThrash::ABOUT;
    const HELP: &str = "\
Threads have a file of 16M each, nearly all holes. They map it, read a word of each page, check it,
and unmap it, in a group with a `high` and a limit of an eighth of the files, as published. The rows
of lowtide are maps whose page faults it serves (map-userfault), for each policy, and maps that are
the kernel's, watched and trimmed (map-pagecache). `mmap` and `mmap-random` (with MADV_RANDOM) are
the kernel's mappings in a memory cgroup (version 1) with the same limit.

Examples:
  lowtide-lab bench mmap-thrash
  lowtide-lab bench mmap-thrash --scale 0.1 --seconds 20 --policy mglru,lru
  lowtide-lab bench mmap-thrash --against none";
    const COLUMNS: Columns = Columns::named(
        2,
        &[
            ("system", |row| row.system.into()),
            ("policy", policy),
            ("fault path", |row| row.own::<FaultRow>().fault_path.unwrap_or_default().into()),
            ("rounds/s", |row| row.ops_per_s.map_or_else(String::new, |rate| format!("{rate:.2}"))),
            ("p99 ms", |row| {
                let p99 = row.latency_us.and_then(RowLatency::p99);
                p99.map_or_else(String::new, |us| format!("{:.1}", us / 1e3))
            }),
            ("refaults", refaults),
        ],
    );
    const WHAT: &str = "pages";
    const WARMS: bool = false;

    fn scale(&self) -> f64 {
        self.scale
    }

    fn limits(&self) -> Limits {
        Limits { max: self.published().max, high: Some(self.published().high) }
    }

    fn threads(&self) -> u32 {
        self.published().threads
    }

    fn file(&self) -> u64 {
        self.published().file
    }

    fn about_files(&self) -> &'static str {
        "one page in 64 not a hole"
    }

    fn make(&self, dir: &DataDir, of: &str) -> Result<Made, BenchError> {
        storm::make(dir, of, &self.published())
    }
}

/// Own options of `bench fio-mmap`.
#[derive(Debug, Args)]
pub(crate) struct Fio {
    /// Files and memory relative to the published sizes
    #[arg(long, value_name = "F", value_parser = part, default_value = "0.01",
          allow_negative_numbers = true)]
    scale: f64,
    /// Popularity of the blocks: zipf (fio's zipf:1.2, in a quarter of the files' size) or uniform
    /// (in a fifth)
    #[arg(long, value_name = "D", value_enum, default_value = "zipf", hide_possible_values = true)]
    distribution: Distribution,
}

impl Fio {
    fn published(&self) -> FioMmap {
        FioMmap::published(self.distribution.into(), self.scale)
    }
}

impl RealProgram for Fio {
    const NAME: &str = FioMapped::NAME;
    const ABOUT: &str = "threads that copy blocks out of mapped files, chosen as fio does";
    const HELP: &str = "\
16 threads map a file each, and copy blocks of 4 KiB out of it, chosen as fio chooses them. Each
block is checked. The rows of lowtide are maps whose page faults it serves (map-userfault), for each
policy, and maps that are the kernel's, watched and trimmed (map-pagecache). `mmap` and
`mmap-random` (with MADV_RANDOM, fio's default) are the kernel's mappings in a memory cgroup
(version 1) with the same limit. A slice that is not measured goes before the others.

Examples:
  lowtide-lab bench fio-mmap
  lowtide-lab bench fio-mmap --distribution uniform --policy mglru,lru
  lowtide-lab bench fio-mmap --scale 0.03 --seconds 30 --against mmap-random";
    const COLUMNS: Columns = Columns::named(
        2,
        &[
            ("system", |row| row.system.into()),
            ("policy", policy),
            ("MB/s", FioMapped::megabytes),
            ("reads/s", |row| number(row.ops_per_s)),
            ("p99 us", |row| {
                let p99 = row.latency_us.and_then(RowLatency::p99);
                p99.map_or_else(String::new, |us| format!("{us:.1}"))
            }),
            ("refaults", refaults),
        ],
    );
    const WHAT: &str = "blocks";
    const WARMS: bool = true;

    fn scale(&self) -> f64 {
        self.scale
    }

    fn limits(&self) -> Limits {
        Limits { max: self.published().max, high: None }
    }

    fn threads(&self) -> u32 {
        self.published().jobs
    }

    fn file(&self) -> u64 {
        self.published().file
    }

    fn about_files(&self) -> &'static str {
        match self.distribution {
            Distribution::Zipf => "zipf:1.2",
            Distribution::Uniform => "uniform",
        }
    }

    fn make(&self, dir: &DataDir, of: &str) -> Result<Made, BenchError> {
        blocks::make(dir, of, &self.published())
    }
}

fn policy(row: &Row) -> String {
    if row.policy.is_empty() { String::new() } else { label(row) }
}

/// What stands beside lowtide's rows of `map-userfault`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Beside {
    Mmap,
    MmapRandom,
    MapPagecache,
    None,
}

impl Beside {
    const ALL: [(&str, Self); 4] = [
        ("mmap", Self::Mmap),
        ("mmap-random", Self::MmapRandom),
        ("map-pagecache", Self::MapPagecache),
        ("none", Self::None),
    ];

    fn parser() -> impl TypedValueParser<Value = Self> {
        PossibleValuesParser::new(Self::ALL.map(|(name, _)| name)).map(|text| {
            Self::ALL.iter().find(|(name, _)| *name == text).map_or(Self::None, |(_, of)| *of)
        })
    }
}

/// `lowtide-lab bench NAME` of such a program.
#[derive(Debug, Args)]
#[command(after_help = P::HELP)]
pub(crate) struct RealMapping<P: RealProgram> {
    #[command(flatten)]
    own: P,
    /// Measured seconds of each system, over all rounds
    #[arg(long, value_name = "S", value_parser = values::seconds, default_value = "10",
          allow_negative_numbers = true)]
    seconds: f64,
    /// Slices of the measurement; systems take turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value = "5")]
    rounds: u32,
    /// Systems to compare with
    #[arg(long, value_name = "PEER,PEER", value_parser = Beside::parser(), value_delimiter = ',',
          default_value = "map-pagecache,mmap,mmap-random")]
    against: Vec<Beside>,
    #[command(flatten)]
    policies: FewPolicies,
    #[command(flatten)]
    io: Io,
    #[command(flatten)]
    place: ScratchPlace,
    #[command(flatten)]
    output: Output,
}

impl<P: RealProgram> RealMapping<P> {
    /// Lets all systems play, in turns, and prints the rows.
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        let limits = self.own.limits();
        let probe = Probe::ask();
        let policies = self.policies.rows();
        let budgets = policies.len() * 2 + 1;
        check_memory(0, budgets, limits.max, probe.memory_available)?;
        let dir = self.place.data_dir()?;
        let pager = |policy| -> Result<Pager, BenchError> {
            // The group's limit holds, and not the pager's.
            let max = limits.max + limits.max / 4 + (16 << 20);
            self.io.pager(policy, max, PAGE, |builder| builder)
        };
        let mut systems: Vec<Box<dyn System>> = Vec::new();
        let mut left_out = None;
        for &policy in &policies {
            for way in self.ways() {
                let of = format!("{}-{policy}", LowtideMaps::name_of(way));
                let made = self.own.make(&dir, &of)?;
                match LowtideMaps::start((pager(policy)?, policy), way, made, limits) {
                    Ok(player) => systems.push(Box::new(player)),
                    Err(BenchError::Map(why)) => {
                        let name = LowtideMaps::name_of(way);
                        out::note(format_args!("{name} {policy} left out: {why}"));
                        left_out = Some(why);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        let machine = self.head(&probe, &dir, &pager(policies[0])?)?;
        for (name, random, beside) in
            [("mmap", false, Beside::Mmap), ("mmap-random", true, Beside::MmapRandom)]
        {
            if !self.against.contains(&beside) {
                continue;
            }
            if let Availability::No(why) = &probe.memcg {
                out::note(format_args!(
                    "{name} left out, as there is no memory cgroup to limit it: {why}"
                ));
                continue;
            }
            let peer = MappedPeer::start(name, random, limits.max)?;
            let made = self.own.make(&dir, name)?;
            systems.push(Box::new(KernelMaps { name, peer, made }));
        }
        if let (true, Some(why)) = (systems.is_empty(), left_out) {
            return Err(why.into());
        }
        let slices = self.rounds + u32::from(P::WARMS);
        let mut progress = Patient::steps(systems.len() as u64 * u64::from(slices));
        let mut cut = Cut::default();
        let slice = Until::Seconds(self.seconds / f64::from(self.rounds));
        if P::WARMS {
            let warm = take_turns(&mut systems, 1, |_| slice, &mut progress, &mut cut)?;
            warm.iter().try_for_each(turns::verdict)?;
        }
        let results = take_turns(&mut systems, self.rounds, |_| slice, &mut progress, &mut cut)?;
        drop(progress);
        let base = results.first();
        let rows: Vec<Row> =
            results.iter().map(|result| self.row(result, base.unwrap_or(result))).collect();
        let closing = [format!(
            "{}; ratios are to {}",
            checked(&rows, P::WHAT),
            base.map_or("", |base| base.label.as_str())
        )];
        let table = columns::table(P::COLUMNS, &rows);
        let wrong = results.iter().try_for_each(turns::verdict);
        tail(&self.output, &machine, &table, rows, closing, cut).and(wrong)
    }

    /// The ways of lowtide's maps.
    fn ways(&self) -> Vec<MapMode> {
        let cached = self.against.contains(&Beside::MapPagecache).then_some(MapMode::PageCache);
        [Some(MapMode::Userfault), cached].into_iter().flatten().collect()
    }

    fn head(&self, probe: &Probe, dir: &DataDir, pager: &Pager) -> Result<Machine, BenchError> {
        let (example, limits) = (dir.scratch("example")?, self.own.limits());
        let machine = Machine::of(probe, example.path(), example.file(), pager)?;
        out::line(format_args!("{}: {}", P::NAME, P::ABOUT));
        for line in machine.lines_of(example.path(), self.bytes()) {
            out::line(line);
        }
        let high =
            limits.high.map_or_else(String::new, |high| format!(", high {}", Size::new(high)));
        out::line(format_args!("budget    {}{high}", Size::new(limits.max)));
        out::line(format_args!(
            "data      {} threads with {} each, {}",
            self.own.threads(),
            Size::new(self.own.file()),
            self.own.about_files()
        ));
        out::line(format_args!(
            "run       {} rounds of {:.1} s, in turns\n",
            self.rounds,
            self.seconds / f64::from(self.rounds)
        ));
        Ok(machine)
    }

    /// Bytes of all files.
    fn bytes(&self) -> u64 {
        self.own.file() * u64::from(self.own.threads())
    }

    fn row(&self, result: &rounds::Turns, base: &rounds::Turns) -> Row {
        let (sum, limits) = (result.sum(), self.own.limits());
        let latency = Latency::from_pairs(&sum.latency);
        let row = Row::of_turns(result);
        let own = FaultRow {
            fault_path: (result.system == "map-userfault").then_some("hold"),
            ..row.own()
        };
        Row {
            workload: P::NAME,
            max_bytes: Some(limits.max),
            data_bytes: Some(self.bytes()),
            page_bytes: PAGE,
            threads: self.own.threads(),
            scale: (self.own.scale() != 1.0).then_some(self.own.scale()),
            latency_us: (!sum.latency.is_empty())
                .then(|| RowLatency::Whole(LatencyUs::from(&latency))),
            kernel: KernelFigures {
                high_bytes: limits.high.filter(|_| result.policy.is_some()),
                ..row.kernel
            },
            measured: MeasuredFigures {
                speed_ratio: Some(ratio(result, base, Slice::rate)),
                ..row.measured
            },
            ..row
        }
        .with(own)
    }
}
