//! `mmap-thrash` on real files and real memory: lowtide's maps in this process, beside the kernel's
//! mappings in a memory cgroup of the same limit, in interleaved rounds.
//!
//! There are three differences from the simulated machine:
//!
//! * It is a part of the published size, by default a fiftieth: ten threads, and an eighth of the
//!   memory that they need.
//! * Files are not all holes. Some pages have marks, so that each page is known for the right one.
//! * A memory cgroup of version 1 has no `high`, so the kernel's mappings have the limit alone.
//!
//! A map of lowtide waits for its faults by `hold` (`docs/design/fault-path.md`); how a real kernel
//! waits, and how often it looked in vain, it does not say.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use lowtide::map::Way;
use lowtide::{Pager, Size};
use lowtide_host::probe::{Availability, Probe};
use lowtide_workload::mapping::MapThrash;

use super::mapping::Mapping;
use super::mmap_thrash::MmapThrash;
use crate::bench::error::BenchError;
use crate::bench::machine::Machine;
use crate::bench::options::memory::check_memory;
use crate::bench::options::values::scale;
use crate::bench::options::{FewPolicies, Io, Output, ScratchPlace, rounds, values};
use crate::bench::peer::storm::StormPeer;
use crate::bench::rounds::{self as turns, ratio, take_turns};
use crate::bench::storm::{KernelStorm, LowtideStorm, PAGE, StormFiles};
use crate::bench::system::System;
use crate::bench::tally::{Latency, Slice};
use crate::bench::tenancy::host::tail;
use crate::bench::thread_pool::Until;
use crate::interrupt::Cut;
use crate::json::LatencyUs;
use crate::lab::turns::{checked, row as row_of};
use crate::sim::columns::{self, Columns, label, refaults};
use crate::sim::row::{Row, RowLatency};
use crate::{out, progress};

const HELP: &str = "\
Threads have a file of 16M each, nearly all holes. They map it, read a word of each page, check it,
and unmap it, in a group with a `high` and a limit of an eighth of the files, as published. The rows
of lowtide are maps whose page faults it serves (map-userfault), for each policy, and maps that are
the kernel's, watched and trimmed (map-pagecache). `mmap` and `mmap-random` (with MADV_RANDOM) are
the kernel's mappings in a memory cgroup (version 1) with the same limit.

Examples:
  lowtide bench mmap-thrash
  lowtide bench mmap-thrash --scale 0.1 --seconds 20 --policy mglru,lru
  lowtide bench mmap-thrash --against none";

/// The table.
const COLUMNS: Columns = Columns::named(
    2,
    &[
        ("system", |row| row.system.into()),
        ("policy", |row| if row.policy.is_empty() { String::new() } else { label(row) }),
        ("fault path", |row| row.fault_path.unwrap_or_default().into()),
        ("rounds/s", |row| row.ops_per_s.map_or_else(String::new, |rate| format!("{rate:.2}"))),
        ("p99 ms", |row| {
            let p99 = row.latency_us.and_then(RowLatency::p99);
            p99.map_or_else(String::new, |us| format!("{:.1}", us / 1e3))
        }),
        ("refaults", refaults),
    ],
);

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

/// `lowtide bench mmap-thrash`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct RealThrash {
    /// Threads and memory relative to the published size
    #[arg(long, value_name = "F", value_parser = scale, default_value = "0.02",
          allow_negative_numbers = true)]
    scale: f64,
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

impl RealThrash {
    /// Lets all systems play, in turns, and prints the rows.
    ///
    /// # Errors
    /// Any [`BenchError`].
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        let thrash = MapThrash::published(self.scale);
        let probe = Probe::ask();
        let policies = self.policies.rows();
        let budgets = policies.len() * 2 + 1;
        check_memory(0, budgets, thrash.max, probe.memory_available)?;
        let dir = self.place.data_dir()?;
        let pager = |policy| -> Result<Pager, BenchError> {
            // The group's limit holds, and not the pager's.
            let max = thrash.max + thrash.max / 4 + (16 << 20);
            self.io.pager(policy, max, PAGE, |builder| builder)
        };
        let mut systems: Vec<Box<dyn System>> = Vec::new();
        for &policy in &policies {
            for way in self.ways() {
                let of = format!("{}-{policy}", LowtideStorm::name_of(way));
                let files = StormFiles::make(&dir, &of, &thrash)?;
                let player = LowtideStorm::start((pager(policy)?, policy), way, files, &thrash)?;
                systems.push(Box::new(player));
            }
        }
        let files = StormFiles::make(&dir, "example", &thrash)?;
        let machine = self.head(&probe, &files, &thrash, &pager(policies[0])?)?;
        drop(files);
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
            let peer = StormPeer::start(name, random, thrash.max)?;
            let files = StormFiles::make(&dir, name, &thrash)?;
            systems.push(Box::new(KernelStorm { name, peer, files }));
        }
        let progress = progress::steps("", systems.len() as u64 * u64::from(self.rounds));
        let mut cut = Cut::default();
        let slice = Until::Seconds(self.seconds / f64::from(self.rounds));
        let results = take_turns(&mut systems, self.rounds, |_| slice, &progress, &mut cut)?;
        progress.finish_and_clear();
        let base = results.first();
        let rows: Vec<Row> = results
            .iter()
            .map(|result| self.row(&thrash, result, base.unwrap_or(result)))
            .collect();
        let closing = [format!(
            "{}; ratios are to {}",
            checked(&rows, "pages"),
            base.map_or("", |base| base.label.as_str())
        )];
        let table = columns::table(COLUMNS, &rows);
        let wrong = results.iter().try_for_each(turns::Row::verdict);
        tail(&self.output, &machine, &table, rows, &closing, cut).and(wrong)
    }

    /// The ways of lowtide's maps.
    fn ways(&self) -> Vec<Way> {
        let cached = self.against.contains(&Beside::MapPagecache).then_some(Way::PageCache);
        [Some(Way::Userfault), cached].into_iter().flatten().collect()
    }

    fn head(
        &self,
        probe: &Probe,
        files: &StormFiles,
        thrash: &MapThrash,
        pager: &Pager,
    ) -> Result<Machine, BenchError> {
        let example = files.example();
        let machine = Machine::of(probe, example.path(), example.file(), pager)?;
        out::line(format_args!("{}: {}", MmapThrash::NAME, MmapThrash::ABOUT));
        for line in machine.lines_of(example.path(), thrash.file * u64::from(thrash.threads)) {
            out::line(line);
        }
        out::line(format_args!(
            "budget    {}, high {}",
            Size::new(thrash.max),
            Size::new(thrash.high)
        ));
        out::line(format_args!(
            "data      {} threads with {} each, one page in 64 not a hole",
            thrash.threads,
            Size::new(thrash.file)
        ));
        out::line(format_args!(
            "run       {} rounds of {:.1} s, in turns\n",
            self.rounds,
            self.seconds / f64::from(self.rounds)
        ));
        Ok(machine)
    }

    fn row(&self, thrash: &MapThrash, result: &turns::Row, base: &turns::Row) -> Row {
        let sum = result.sum();
        let latency = Latency::from_pairs(&sum.latency);
        Row {
            workload: MmapThrash::NAME,
            max_bytes: Some(thrash.max),
            high_bytes: result.policy.is_some().then_some(thrash.high),
            data_bytes: Some(thrash.file * u64::from(thrash.threads)),
            page_bytes: PAGE,
            threads: thrash.threads,
            scale: (self.scale != 1.0).then_some(self.scale),
            fault_path: (result.system == "map-userfault").then_some("hold"),
            speed_ratio: Some(ratio(result, base, Slice::rate)),
            latency_us: (!sum.latency.is_empty())
                .then(|| RowLatency::Whole(LatencyUs::from(&latency))),
            ..row_of(result)
        }
    }
}
