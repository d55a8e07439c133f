//! Rounds, table and JSON of `lowtide bench fill` and `dd-oom`.
//!
//! Both write files in interleaved turns, like all benchmarks. `fill` measures the share of the
//! device's bandwidth that a writer gets when its data passes through a budget, so its ratios are
//! to `dd` with direct I/O, which uses no cache. `dd-oom` shows whether the writer survives on a
//! device whose writes take a second each.

use std::rc::Rc;

use clap::Args;
use lowtide::{Pager, Policy, Size};
use lowtide_host::probe::{Availability, Probe};

use super::source::Source;
use super::systems::{FillPeer, Place, Way, Writer, pieces};
use crate::bench::datafile::Scratch;
use crate::bench::error::BenchError;
use crate::bench::json;
use crate::bench::json::WorkloadRow;
use crate::bench::machine::Machine;
use crate::bench::options::memory::check_memory;
use crate::bench::options::values::{PAGE, page, scaled};
use crate::bench::options::{Io, Output, Policies, ScratchPlace, Seed, YoungFaults};
use crate::bench::peer::dd::Dd;
use crate::bench::peer::filler::Filler;
use crate::bench::rounds::{Row, Spread, ratio, take_turns};
use crate::bench::slow::Slowness;
use crate::bench::system::System;
use crate::bench::table::{kib_per_write, longest_ms, slept_ms};
use crate::bench::tally::{Latency, Slice};
use crate::bench::thread_pool::Until;
use crate::interrupt::Cut;
use crate::json::Report;
use crate::table::{self, mib, thousands, us};
use crate::{out, progress};

/// Options of both.
#[derive(Debug, Args)]
pub(super) struct Common {
    #[command(flatten)]
    policies: Policies,
    /// lowtide's base page
    #[arg(long, value_name = "SIZE", value_parser = page, default_value = PAGE,
          allow_hyphen_values = true)]
    page: u64,
    #[command(flatten)]
    young: YoungFaults,
    #[command(flatten)]
    io: Io,
    #[command(flatten)]
    place: ScratchPlace,
    #[command(flatten)]
    output: Output,
}

/// A benchmark that only writes.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    pub(super) name: &'static str,
    /// One line for listings.
    pub(super) about: &'static str,
    pub(super) max_bytes: u64,
    /// Size of the file as a multiple of the budget.
    pub(super) scale: f64,
    pub(super) rounds: u32,
    pub(super) peers: Vec<FillPeer>,
    pub(super) slowness: Slowness,
    pub(super) common: &'a Common,
}

impl Writing<'_> {
    /// Bytes of the file.
    fn bytes(&self) -> u64 {
        scaled(self.max_bytes, self.scale)
    }

    fn pager(&self, policy: Policy) -> Result<Pager, BenchError> {
        let Common { io, young, page, .. } = self.common;
        io.pager(policy, self.max_bytes, *page, |builder| {
            self.slowness.on(builder).young_faults(young.young_faults)
        })
    }

    /// Drops peers that cannot run on this machine.
    fn leave_out_peers(&mut self, probe: &Probe) {
        if let Availability::No(why) = &probe.memcg
            && self.peers.iter().any(|&peer| peer != FillPeer::Dd)
        {
            out::note(format_args!(
                "pwrite and mmap left out, as there is no memory cgroup to limit them: {why}"
            ));
            self.peers.retain(|&peer| peer == FillPeer::Dd);
        }
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
                FillPeer::Dd if !direct => {
                    out::note(
                        "dd left out: there is no direct I/O here, and memory would be compared \
                         with memory",
                    );
                    continue;
                }
                FillPeer::Dd => Ok(Dd::find().map_or_else(
                    || {
                        out::note(
                            "dd is not installed; `direct` writes the same way from this process",
                        );
                        Way::Direct
                    },
                    Way::Dd,
                )),
                FillPeer::Pwrite => Filler::start("pwrite", false, self.max_bytes)
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
        out::line(format_args!("{}: {}", self.name, self.about));
        for line in machine.lines_of(scratch.path(), self.bytes()) {
            out::line(line);
        }
        out::line(format_args!("budget    {}", Size::new(self.max_bytes)));
        out::line(format_args!("page      {}", Size::new(self.common.page)));
        if let Some(slowed) = self.slowness.text() {
            out::line(format_args!("device    {slowed}, in addition to its own time"));
        }
        out::line(format_args!(
            "run       {} round{}, in turns; each time a new file in pieces of 1M, and a flush, \
             whose time counts\n",
            self.rounds,
            if self.rounds == 1 { "" } else { "s" }
        ));
    }

    fn rate(&self) -> impl Fn(&Slice) -> f64 {
        let mib = self.bytes() as f64 / f64::from(1 << 20);
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

    /// Writes files with all systems, and prints the table.
    ///
    /// # Errors
    /// Any [`BenchError`]; rows that were measured before a write failed are printed and written
    /// first.
    pub(super) fn run(mut self, probe: &Probe) -> Result<(), BenchError> {
        self.leave_out_peers(probe);
        let (bytes, policies) = (self.bytes(), self.common.policies.rows());
        let budgets = policies.len() + self.peers.len();
        check_memory(bytes, budgets, self.max_bytes, probe.memory_available)?;
        let pagers = policies.into_iter().map(|policy| Ok((self.pager(policy)?, policy)));
        let pagers = pagers.collect::<Result<Vec<_>, BenchError>>()?;
        let data_dir = self.common.place.data_dir()?;
        data_dir.check_free(bytes)?;
        let place = Rc::new(Place { data_dir, source: Source::make(bytes)?, bytes });
        let example = place.data_dir.scratch("fill")?;
        let direct = lowtide_sys::file::direct_alignment(example.file())
            .map_err(|source| BenchError::file("examine", example.path(), source))?;
        let machine = Machine::of(probe, example.path(), example.file(), &pagers[0].0)?;
        let mut systems = self.systems(pagers, &place, direct.is_some())?;
        self.head(&machine, &example);
        drop(example);

        let progress = progress::steps("", systems.len() as u64 * u64::from(self.rounds));
        let mut cut = Cut::default();
        let slice = Until::Ops(pieces(bytes));
        let rows = take_turns(&mut systems, self.rounds, |_| slice, &progress, &mut cut)?;
        progress.finish_and_clear();

        let Some(base) =
            rows.iter().find(|row| ["dd", "direct"].contains(&row.system)).or(rows.first())
        else {
            return Ok(());
        };
        out::line(self.table(&rows, base));
        let sum =
            |count: fn(&Slice) -> u64| rows.iter().map(|row| count(&row.sum())).sum::<u64>() as f64;
        out::line(format_args!(
            "\n{} contents verified, {} errors",
            thousands(sum(|sum| sum.verified)),
            thousands(sum(|sum| sum.errors))
        ));
        let common = json::Common {
            workload: self.name,
            max_bytes: self.max_bytes,
            data_bytes: bytes,
            page_bytes: self.common.page,
            threads: 1,
            batch: 1,
            seed: Seed::USUAL,
            slowed: self.slowness.text(),
            checkpoint_seconds: None,
        };
        let json = rows.iter().map(|row| {
            let mib_per_s = Spread::of(row.slices.iter().map(self.rate()));
            WorkloadRow::new(&common, row, base).filled(mib_per_s, ratio(row, base, self.rate()))
        });
        let report = Report::new(&machine, json.collect()).cut_short(cut.is_cut());
        report.write(self.common.output.json.as_deref())?;
        rows.iter().try_for_each(Row::verdict)?;
        cut.verdict()
    }
}
