//! The player on real files, real memory and a real device: lowtide under each policy, beside other
//! programs, in interleaved rounds like all benchmarks. Every file is verified and removed.
//!
//! There are two differences from the simulated machine:
//!
//! * The writer copies each block from another file, which the page cache has where memory has room
//!   for it, instead of working for some time.
//! * A file is flushed in any case, because it is read back. If the experiment does not make it
//!   durable, that time does not count; it is a figure of its own.

use crate::experiments::writing::WrittenRow;
use std::rc::Rc;

use crate::bench::options::{ScratchPlace, can_cache};
use clap::Args;
use lowtide::advanced::PagerAdvanced as _;
use lowtide::{Pager, Policy, Size};
use lowtide_bench::compare::refuse_slowed;
use lowtide_bench::datafile::Scratch;
use lowtide_bench::error::BenchError;
use lowtide_bench::machine::Machine;
use lowtide_bench::options::memory::check_memory;
use lowtide_bench::options::{Io, Output, Policies, YoungFaults, rounds};
use lowtide_bench::rounds as turns;
use lowtide_bench::rounds::take_turns;
use lowtide_bench::system::System;
use lowtide_bench::thread_pool::Until;
use lowtide_experiments::programs::writer::Writer;
use lowtide_host::probe::{Availability, Probe};
use lowtide_report::interrupt::Cut;
use lowtide_report::json::LatencyUs;
use lowtide_report::measured::checked;
use lowtide_report::outcome::Naps;
use lowtide_report::rounds::{self, ratio};
use lowtide_report::row::{DeviceFigures, MeasuredFigures, Row};
use lowtide_report::spread::Spread;
use lowtide_report::tally::{Latency, Slice};
use lowtide_report::values::{PAGE, page};
use lowtide_report::{columns, out, progress::Patient};

use super::{Beside, Writing, Written};
use crate::bench::peer::dd::Dd;
use crate::bench::peer::filler::Filler;
use crate::bench::slow::{Slowdown, Slowness};
use crate::bench::tenancy::host::tail;
use crate::bench::write::{FillPeer, Place, Source, Way, WritingSystem};

/// `lowtide-lab bench NAME` of an experiment with a writer.
#[derive(Debug, Args)]
#[command(after_help = W::HELP)]
pub(crate) struct RealWriting<W: Writing> {
    #[command(flatten)]
    own: W,
    /// Files that each system writes, in turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value = W::ROUNDS)]
    rounds: u32,
    #[command(flatten)]
    peers: W::Peers,
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
    slowdown: Slowdown,
    #[command(flatten)]
    place: ScratchPlace,
    #[command(flatten)]
    output: Output,
}

impl<W: Writing> RealWriting<W> {
    /// Writes files with all systems, and prints the rows.
    ///
    /// # Errors
    /// Any [`BenchError`]; rows that were measured before a write failed are printed and written
    /// first.
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        let (writer, slowness, probe) = (self.own.writer(), self.slowness()?, Probe::ask());
        let (policies, peers) = (self.policies.rows(), self.peers(&slowness, &probe)?);
        let budgets = policies.len() + peers.len();
        check_memory(0, budgets, writer.max, probe.memory_available)?;
        let pagers = policies.into_iter().map(|policy| {
            let pager = self.io.pager(policy, writer.max, self.page, |builder| {
                slowness.on(builder).young_faults(self.young.young_faults)
            })?;
            Ok((pager, policy))
        });
        let pagers = pagers.collect::<Result<Vec<_>, BenchError>>()?;
        let data_dir = self.place.data_dir()?;
        data_dir.check_free(2 * writer.file)?;
        if !can_cache(writer.file, budgets, writer.max, probe.memory_available) {
            out::note(format_args!(
                "memory has no room for {} of what is to be written beside the budgets: reading it \
                 from the device is part of what is timed",
                Size::new(writer.file)
            ));
        }
        let source = Source::make(&data_dir, writer.file)?;
        let place = Rc::new(Place { source, data_dir, writer });
        let example = place.data_dir.scratch("fill")?;
        let direct = lowtide_sys::file::direct_alignment(example.file())
            .map_err(|source| BenchError::file("examine", example.path(), source))?;
        let machine = Machine::of(&probe, example.path(), example.file(), &pagers[0].0)?;
        let mut systems = systems(pagers, &peers, &place, direct.is_some())?;
        self.head(&machine, &example, &writer, &slowness);
        drop(example);

        let mut progress = Patient::steps(systems.len() as u64 * u64::from(self.rounds));
        let mut cut = Cut::default();
        let slice = Until::Ops(writer.blocks());
        let results = take_turns(&mut systems, self.rounds, |_| slice, &mut progress, &mut cut)?;
        drop(progress);

        let without_cache = |row: &&rounds::Turns| ["dd", "direct"].contains(&row.system);
        let base = results.iter().find(without_cache).or(results.first());
        let row = |result| self.rows(&writer, &slowness, result, base.unwrap_or(result));
        let rows: Vec<Row> = results.iter().flat_map(row).collect();
        let mut closing = self.own.closing(&rows);
        let checked = format!(
            "{}; ratios are to {}",
            checked(&rows, "contents"),
            base.map_or("", |base| base.label.as_str())
        );
        closing.lines.insert(0, checked);
        let table = columns::table(W::COLUMNS, &rows);
        let wrong = results.iter().try_for_each(turns::verdict);
        tail(&self.output, &machine, &table, rows, closing, cut).and(wrong)
    }

    /// The delays of the device.
    fn slowness(&self) -> Result<Slowness, BenchError> {
        let slowness = self.slowdown.slowness();
        match (self.own.delay(), slowness.is_none()) {
            (Some(_), false) => Err(BenchError::usage(
                "--delay cannot be combined with --device-delay or --device-bandwidth",
                "write the delay of writes as --device-delay write=1s",
            )),
            (None, false) => Ok(slowness),
            (delay, true) => Ok(delay.or(W::DELAY).map_or(slowness, Slowness::of_writes)),
        }
    }

    /// The peers that can run on this machine.
    fn peers(&self, slowness: &Slowness, probe: &Probe) -> Result<Vec<FillPeer>, BenchError> {
        let mut peers = self.peers.peers()?;
        if !slowness.is_none() {
            refuse_slowed(&peers)?;
            // Unless it never has peers.
            if W::DELAY.is_none() {
                out::note("no peers: delays apply only to lowtide's own requests");
            }
        }
        if let Availability::No(why) = &probe.memcg
            && peers.iter().any(|&peer| peer != FillPeer::Dd)
        {
            out::note(format_args!(
                "pwrite and mmap left out, as there is no memory cgroup to limit them: {why}"
            ));
            peers.retain(|&peer| peer == FillPeer::Dd);
        }
        Ok(peers)
    }

    fn head(&self, machine: &Machine, scratch: &Scratch, writer: &Writer, slowness: &Slowness) {
        out::line(format_args!("{}: {}", W::NAME, W::ABOUT));
        for line in machine.lines_of(scratch.path(), writer.file) {
            out::line(line);
        }
        out::line(format_args!("budget    {}", Size::new(writer.max)));
        out::line(format_args!("page      {}", Size::new(self.page)));
        if let Some(slowed) = slowness.text() {
            out::line(format_args!("device    {slowed}, in addition to its own time"));
        }
        out::line(format_args!(
            "run       {} round{}, in turns; each a new file in pieces of {}, and a flush, whose \
             time {}\n",
            self.rounds,
            if self.rounds == 1 { "" } else { "s" },
            Size::new(Writer::BLOCK),
            if writer.durable { "counts" } else { "does not count" }
        ));
    }

    /// The rows of a system.
    fn rows(
        &self,
        writer: &Writer,
        slowness: &Slowness,
        result: &rounds::Turns,
        base: &rounds::Turns,
    ) -> Vec<Row> {
        let (sum, rounds) = (result.sum(), result.slices.len() as u64);
        let rate = |slice: &Slice| writer.file as f64 / f64::from(1 << 20) / slice.seconds;
        let row = {
            let row = Row::of_turns(result);
            let own = WrittenRow {
                written_bytes: Some((sum.ops * Writer::BLOCK).min(rounds * writer.file)),
                ..row.own()
            };
            Row {
                workload: W::NAME,
                max_bytes: Some(writer.max),
                data_bytes: Some(writer.file),
                page_bytes: self.page,
                threads: 1,
                device: DeviceFigures { slowed: slowness.text(), ..row.device },
                measured: MeasuredFigures {
                    speed_ratio: Some(ratio(result, base, rate)),
                    ..row.measured
                },
                ..row
            }
            .with(own)
        };
        let nap = |name| sum.stat.get(name).copied().unwrap_or(0);
        let written = Written {
            row,
            latency: (!sum.latency.is_empty())
                .then(|| LatencyUs::from(&Latency::from_pairs(&sum.latency))),
            mib_per_s: Spread::of(result.slices.iter().map(rate)),
            device_write_mib_per_s: None,
            unclean_pct: sum
                .write_back
                .dirty_bytes
                .map(|dirty| 100.0 * dirty as f64 / sum.current_bytes.max(1) as f64),
            naps: result.policy.as_ref().map(|_| Naps {
                congested: nap("nr_throttled_congested"),
                writeback: nap("nr_throttled_writeback"),
                isolated: nap("nr_throttled_isolated"),
            }),
            kill: None,
        };
        self.own.rows(written, false)
    }
}

/// The writers, lowtide's first.
fn systems(
    pagers: Vec<(Pager, Policy)>,
    peers: &[FillPeer],
    place: &Rc<Place>,
    direct: bool,
) -> Result<Vec<Box<dyn System>>, BenchError> {
    let max = place.writer.max;
    let mut ways: Vec<Way> =
        pagers.into_iter().map(|(pager, policy)| Way::Lowtide(pager, policy)).collect();
    for &peer in peers {
        let started = match peer {
            FillPeer::Dd if !direct => {
                out::note(
                    "dd left out: there is no direct I/O here, and memory would be compared with \
                     memory",
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
            FillPeer::Pwrite => {
                Filler::start("pwrite", false, max).map(|filler| Way::Cached("pwrite", filler))
            }
            _ => Filler::start("mmap", true, max).map(|filler| Way::Cached("mmap", filler)),
        };
        match started {
            Err(killed @ BenchError::PeerKilled { .. }) => out::note(killed),
            started => ways.push(started?),
        }
    }
    let system = |way| Box::new(WritingSystem { way, place: Rc::clone(place) }) as Box<dyn System>;
    Ok(ways.into_iter().map(system).collect())
}
