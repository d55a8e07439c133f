//! The player on a simulated machine: `lowtide_experiments::client::dd`, one machine for each
//! policy, in parallel.

use crate::experiments::writing::WrittenRow;
use std::sync::atomic::AtomicU64;

use crate::sim::options::{self, Common, OnMachine};
use clap::Args;
use lowtide::{Policy, Size};
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::host::Host;
use lowtide_bench::sim::{jobs, show};
use lowtide_experiments::client::dd::{self, DdResult};
use lowtide_experiments::programs::writer::Writer;
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::json::LatencyUs;
use lowtide_report::outcome::{KillRow, Naps};
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::row::Row;
use lowtide_report::spread::Spread;
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{MachineConfig, MachineError};

use super::{Writing, Written};

/// Bytes of a mebibyte.
const MIB: f64 = (1 << 20) as f64;

/// `lowtide-lab sim NAME` of an experiment with a writer.
#[derive(Debug, Args)]
#[command(
    after_help = W::HELP,
    mut_arg("machine", |arg| arg.default_value(W::MACHINE)),
    mut_arg("policy", |arg| arg.default_value(W::POLICIES))
)]
pub(crate) struct SimulatedWriting<W: Writing> {
    /// The machine.
    #[command(flatten)]
    machine: OnMachine,
    /// The experiment's own.
    #[command(flatten)]
    own: W,
    /// Policies, seed and results.
    #[command(flatten)]
    common: Common,
}

impl<W: Writing> SimulatedWriting<W> {
    /// Simulates the writer under every policy and prints the rows.
    ///
    /// # Errors
    /// Any [`SimError`]; [`SimError::OutOfMemory`] after the rows, if a kill is no result.
    pub(crate) fn run(&self) -> Result<(), SimError> {
        let policies = self.common.begin()?;
        let machine = self.machine()?;
        let published = MachineSpec::preset(W::MACHINE)?.as_ref() == Some(&machine);
        let writer = self.own.writer();
        let max = options::group_budget(Size::new(writer.max), &machine)?;
        let file = options::data_pages(Size::new(writer.file), machine.page)? * machine.page;
        let writer = Writer { max, file, ..writer };
        let parallel = Host::ask().parallel(machine.pages(), writer.file / machine.page)?;
        self.head(&machine, &writer).print(&self.common);

        let seed = self.common.seed;
        let progress = Patient::new("bytes", Unit::Bytes, writer.file * policies.len() as u64);
        let results = jobs::run(policies.len(), parallel, progress, |number, done| {
            simulate(&machine, seed, &writer, policies[number], done)
        });
        let (mut rows, mut cut, mut killed) = (Vec::new(), Cut::default(), None);
        for (&policy, result) in policies.iter().zip(results) {
            let result = result.map_err(|error| {
                SimError::of_machine(policy, error, &format!("simulating {}", W::NAME))
            });
            let Some(result) = cut.take(result)? else { continue };
            if !W::KILL_IS_RESULT && result.killed_after_ns.is_some() {
                let what = format!("out of memory after {} MiB; raise --max", result.written >> 20);
                killed.get_or_insert(SimError::OutOfMemory { policy: policy.to_string(), what });
            }
            rows.extend(self.own.rows(self.written(&machine, &writer, policy, &result), published));
        }
        let closing = self.own.closing(&rows);
        show::results(&self.common, &machine, &rows, W::COLUMNS, closing, cut)?;
        killed.map_or(Ok(()), Err)
    }

    /// The machine, with the writer's delay.
    fn machine(&self) -> Result<MachineSpec, SimError> {
        let mut machine = self.machine.load()?;
        if let Some(delay) = self.own.delay().filter(|delay| delay.ns() != machine.device.write_ns)
        {
            machine.device.write_ns = delay.ns();
            machine.device.name =
                format!("{} (writes {} ms)", machine.device.name, delay.ns() as f64 / 1e6);
        }
        machine.validate()?;
        Ok(machine)
    }

    fn head(&self, machine: &MachineSpec, writer: &Writer) -> show::Head {
        let (flush, end) = if writer.durable {
            ("then fsync", "durable")
        } else if W::KILL_IS_RESULT {
            ("without fsync", "written, or the writer is killed")
        } else {
            ("without fsync", "written")
        };
        show::Head {
            what: format!("{}: {}", W::NAME, W::ABOUT),
            machine: show::machine(machine),
            max: Some(writer.max),
            data: format!(
                "a new file of {}, in writes of {}, {flush}",
                Size::new(writer.file),
                Size::new(Writer::BLOCK)
            ),
            run: format!("until the file is {end}"),
        }
    }

    fn written(
        &self,
        machine: &MachineSpec,
        writer: &Writer,
        policy: Policy,
        result: &DdResult,
    ) -> Written {
        let row = Row {
            workload: W::NAME,
            world: "sim",
            system: "lowtide",
            policy: policy.to_string(),
            machine: machine.name.clone(),
            max_bytes: Some(writer.max),
            data_bytes: Some(writer.file),
            page_bytes: machine.page,
            threads: 1,
            seed: Some(self.common.seed),
            ..Row::default()
        }
        .with(WrittenRow { written_bytes: Some(result.written), ..WrittenRow::default() });
        let group = &result.group;
        let seconds = result.stat.now_ns as f64 / 1e9;
        Written {
            row: row.on_machine(None, &result.stat, result.latency.len()).with_group(group),
            latency: Some(LatencyUs::from(&result.latency)),
            mib_per_s: Spread::of([result.written as f64 / MIB / seconds]),
            device_write_mib_per_s: Some(machine.device.write_bandwidth as f64 / MIB),
            unclean_pct: Some(100.0 * result.unclean()),
            naps: Some(Naps::of(&group.events)),
            kill: result.killed_after_ns.map(|tried_ns| KillRow {
                seconds,
                faulted: "writer",
                tried_ms: tried_ns as f64 / 1e6,
                clean_file_bytes: (group.file - group.file_dirty - group.file_writeback)
                    * group.page_bytes,
            }),
        }
    }
}

fn simulate(
    machine: &MachineSpec,
    seed: u64,
    writer: &Writer,
    policy: Policy,
    done: &AtomicU64,
) -> Result<DdResult, MachineError> {
    let machine = MachineConfig { spec: machine.clone(), policy, max: None, seed };
    dd::run(&machine, writer, done, interrupt::flag())
}
