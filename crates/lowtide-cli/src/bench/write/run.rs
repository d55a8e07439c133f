//! `lowtide bench fill` and `dd-oom`: from options to rows.
//!
//! Both write files in turns, interleaved as all benchmarks are. `fill` asks how much of the
//! device's bandwidth a writer gets whose data passes through a budget, so its ratios are to `dd`
//! with direct I/O, which has no cache between. `dd-oom` asks whether the writer survives on a
//! device whose writes take a second each (`docs/kernel/fault-and-writeback.md` B12): all memory is
//! soon dirty or under write-back, and a pass of reclaim finds nothing to free for a long time.

use std::rc::Rc;

use lowtide::{Pager, Policy, Size};
use lowtide_sys::probe::{Availability, Probe};

use super::Writing;
use super::source::Source;
use super::systems::{Place, Way, Writer, pieces};
use crate::bench::args::{Against, BenchArgs};
use crate::bench::crew::Until;
use crate::bench::datafile::Scratch;
use crate::bench::error::BenchError;
use crate::bench::json::{Common, WorkloadRow};
use crate::bench::machine::Machine;
use crate::bench::options::{grain, max_option, page_option, policies, scale};
use crate::bench::peer::dd::Dd;
use crate::bench::peer::filler::Filler;
use crate::bench::plan;
use crate::bench::rounds::{Row, Spread, ratio, take_turns};
use crate::bench::slow::Slowness;
use crate::bench::system::System;
use crate::bench::table::{kib_per_write, longest_ms, slept_ms};
use crate::bench::tally::{Latency, Slice};
use crate::bench::workload::report;
use crate::interrupt::Cut;
use crate::json::Report;
use crate::table::{self, mib, thousands, us};
use crate::{out, progress};

/// What is run, decided.
#[derive(Debug)]
struct Plan {
    writing: Writing,
    max_bytes: u64,
    bytes: u64,
    page_bytes: u64,
    rounds: u32,
    peers: Vec<Against>,
    slowed: Option<String>,
}

impl Plan {
    fn new(writing: Writing, args: &BenchArgs, probe: &Probe) -> Result<Self, BenchError> {
        let max_bytes = max_option(args)?.unwrap_or(writing.max_bytes());
        let slowness = Slowness::of(args)?;
        let plan = Self {
            writing,
            max_bytes,
            bytes: grain((max_bytes as f64 * scale(args, writing.scale())?) as u64),
            page_bytes: page_option(args)?.unwrap_or(plan::PAGE_BYTES),
            rounds: args.rounds.unwrap_or(writing.rounds()),
            peers: peers(args, probe)?,
            slowed: (!slowness.is_none()).then(|| slowness.to_string()),
        };
        let budgets = policies(args).len() + plan.peers.len();
        plan::check_memory_beside(plan.bytes, budgets, max_bytes, probe.memory_available)?;
        drop(plan::build_pager(args, policies(args)[0], max_bytes, plan.page_bytes, None)?);
        Ok(plan)
    }

    /// A pager for each policy.
    fn pagers(&self, args: &BenchArgs) -> Result<Vec<(Pager, Policy)>, BenchError> {
        let pager = |policy| {
            let pager = plan::build_pager(args, policy, self.max_bytes, self.page_bytes, None)?;
            Ok((pager, policy))
        };
        policies(args).into_iter().map(pager).collect()
    }

    /// The writers, lowtide's first.
    fn systems(
        &self,
        pagers: Vec<(Pager, Policy)>,
        place: &Rc<Place>,
        direct: bool,
    ) -> Result<Vec<Box<dyn System>>, BenchError> {
        let mut ways: Vec<Way> =
            pagers.into_iter().map(|(pager, policy)| Way::Lowtide(pager, policy)).collect();
        for &peer in &self.peers {
            let started = match peer {
                Against::Dd if !direct => {
                    out::note(
                        "dd left out: there is no direct I/O here, and memory would be compared \
                         with memory",
                    );
                    continue;
                }
                Against::Dd => Ok(Dd::find().map_or_else(
                    || {
                        out::note(
                            "dd is not installed; `direct` writes the same way from this process",
                        );
                        Way::Direct
                    },
                    Way::Dd,
                )),
                Against::Pwrite => Filler::start("pwrite", false, self.max_bytes)
                    .map(|filler| Way::Cached("pwrite", filler)),
                _ => Filler::start("mmap", true, self.max_bytes)
                    .map(|filler| Way::Cached("mmap", filler)),
            };
            match started {
                Err(killed @ BenchError::PeerKilled { .. }) => out::note(killed),
                started => ways.push(started?),
            }
        }
        let writer = |way| Box::new(Writer { way, place: Rc::clone(place) }) as Box<dyn System>;
        Ok(ways.into_iter().map(writer).collect())
    }

    fn head(&self, machine: &Machine, scratch: &Scratch) {
        out::line(format_args!("{}: {}", self.writing.name(), self.writing.description()));
        for line in machine.lines_of(scratch.path(), self.bytes) {
            out::line(line);
        }
        out::line(format_args!("budget    {}", Size::new(self.max_bytes)));
        out::line(format_args!("page      {}", Size::new(self.page_bytes)));
        if let Some(slowed) = &self.slowed {
            out::line(format_args!("device    {slowed}, beside what it takes itself"));
        }
        out::line(format_args!(
            "run       {} round{}, in turns; each time a new file in pieces of 1M, and a flush, \
             whose time counts\n",
            self.rounds,
            if self.rounds == 1 { "" } else { "s" }
        ));
    }

    fn rate(&self) -> impl Fn(&Slice) -> f64 {
        let mib = self.bytes as f64 / f64::from(1 << 20);
        move |slice| mib / slice.seconds
    }

    fn table(&self, rows: &[Row], base: &Row) -> table::Table {
        let against = format!("ratio to {}", base.label);
        let mut table = table::new(
            &[
                "system",
                "MiB/s",
                &against,
                "s",
                "flush s",
                "p99 µs",
                "slept ms",
                "longest",
                "oom",
                "dirty MiB max",
                "writes",
                "KiB each",
                "cpu s",
            ],
            1,
        );
        for row in rows {
            let sum = row.sum();
            let each = |value: f64| format!("{:.2}", value / row.slices.len().max(1) as f64);
            table.add_row(vec![
                row.label.clone(),
                Spread::of(row.slices.iter().map(self.rate())).text(),
                ratio(row, base, self.rate()).text(),
                each(sum.seconds),
                each(sum.flush_seconds),
                us(Latency::from_pairs(&sum.latency).quantile_us(0.99)),
                slept_ms(&sum),
                longest_ms(&sum),
                sum.write_back.oom.map_or_else(String::new, |oom| oom.to_string()),
                sum.write_back.dirty_max_bytes.map_or_else(String::new, mib),
                sum.write_back.requests.map_or_else(String::new, |writes| thousands(writes as f64)),
                kib_per_write(&sum),
                each(sum.cpu_seconds),
            ]);
        }
        table
    }
}

/// The peers: those asked for, or all that can run here.
fn peers(args: &BenchArgs, probe: &Probe) -> Result<Vec<Against>, BenchError> {
    if plan::refuse_slowed_peers(args)? {
        return Ok(Vec::new());
    }
    let all = || vec![Against::Dd, Against::Pwrite, Against::Mmap];
    let mut peers = Vec::new();
    for peer in args.against.clone().unwrap_or_else(all) {
        if matches!(peer, Against::Fio | Against::MmapRandom) {
            return Err(BenchError::usage(
                "fill is compared with dd, pwrite and mmap",
                "write `lowtide bench fill --against dd,pwrite,mmap`",
            ));
        }
        if peer != Against::None && !peers.contains(&peer) {
            peers.push(peer);
        }
    }
    if let Availability::No(why) = &probe.memcg
        && peers.iter().any(|&peer| peer != Against::Dd)
    {
        out::note(format_args!(
            "pwrite and mmap left out, as there is no memory cgroup to limit them: {why}"
        ));
        peers.retain(|&peer| peer == Against::Dd);
    }
    Ok(peers)
}

/// Writes files with all systems, and prints the table.
///
/// # Errors
/// Any [`BenchError`]; rows that were measured before a write failed are printed and written first.
pub(super) fn run(writing: Writing, args: &BenchArgs) -> Result<(), BenchError> {
    let probe = Probe::ask();
    let plan = Plan::new(writing, args, &probe)?;
    let depot = plan::depot(args)?;
    depot.check_free(plan.bytes)?;
    let place = Rc::new(Place { depot, source: Source::make(plan.bytes)?, bytes: plan.bytes });
    let example = place.depot.scratch("fill")?;
    let direct = lowtide_sys::file::direct_alignment(example.file())
        .map_err(|source| BenchError::file("examine", example.path(), source))?;
    let pagers = plan.pagers(args)?;
    let io =
        pagers.first().map(|(pager, _)| report(std::slice::from_ref(pager))).unwrap_or_default();
    let mut systems = plan.systems(pagers, &place, direct.is_some())?;
    let machine = Machine::of(&probe, example.path(), example.file(), io)?;
    plan.head(&machine, &example);
    drop(example);

    let progress = progress::steps("", systems.len() as u64 * u64::from(plan.rounds));
    let mut cut = Cut::default();
    let slice = Until::Ops(pieces(plan.bytes));
    let rows = take_turns(&mut systems, plan.rounds, |_| slice, &progress, &mut cut)?;
    progress.finish_and_clear();

    let Some(base) =
        rows.iter().find(|row| ["dd", "direct"].contains(&row.system)).or(rows.first())
    else {
        return Ok(());
    };
    out::line(plan.table(&rows, base));
    let sum =
        |count: fn(&Slice) -> u64| rows.iter().map(|row| count(&row.sum())).sum::<u64>() as f64;
    out::line(format_args!(
        "\n{} contents verified, {} errors",
        thousands(sum(|sum| sum.verified)),
        thousands(sum(|sum| sum.errors))
    ));
    let common = Common {
        workload: writing.name(),
        max_bytes: plan.max_bytes,
        data_bytes: plan.bytes,
        page_bytes: plan.page_bytes,
        threads: 1,
        batch: 1,
        seed: args.seed,
        slowed: plan.slowed.clone(),
        checkpoint_seconds: None,
    };
    let json = rows.iter().map(|row| {
        let mib_per_s = Spread::of(row.slices.iter().map(plan.rate()));
        WorkloadRow::new(&common, row, base).filled(mib_per_s, ratio(row, base, plan.rate()))
    });
    Report::new(&machine, json.collect()).cut_short(cut.is_cut()).write(args.json.as_deref())?;
    rows.iter().try_for_each(Row::verdict)?;
    cut.verdict()
}
