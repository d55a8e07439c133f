//! A document store with a cache of its own, on a full machine: the published experiment, and the
//! one that real kernels performed for comparison. Both are one client
//! (`lowtide_experiments::client::database`) with different figures, so they have one row and one
//! table.
//!
//! Each policy has its own machine; machines are simulated in parallel on all cores and are
//! independent of each other.
//!
//! | file | concept |
//! |---|---|
//! | `ycsb`, `wt` | the two experiments: options, defaults, what is refused |
//! | `reading` | what the store requested, and what the device read for it |
//! | `explain` | where each byte read came from |

mod explain;
pub(crate) mod wt;
pub(crate) mod ycsb;

use lowtide_report::reading::DatabasePart;
use std::sync::atomic::AtomicU64;

use crate::sim::options::{self, Common};
use clap::Args;
use lowtide::{Policy, Size};
use lowtide_bench::sim::clock::Stopwatch;
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::host::Host;
use lowtide_bench::sim::jobs;
use lowtide_bench::sim::show::{self, Head};
use lowtide_core::{DirtyLimits, DirtyShare};
use lowtide_experiments::client::database::{self, DatabaseConfig, DatabaseResult, Layout};
use lowtide_report::columns::{self, Columns};
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::json::LatencyUs;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::reading::DatabaseRow;
use lowtide_report::row::{Row, RowLatency};
use lowtide_report::table::thousands;
use lowtide_report::verdict::Closing;
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{KernelCounts, MachineConfig, MachineError, MachineStat};

use super::compare;

/// Read-ahead, and what is printed about it. Both experiments have these options.
#[derive(Debug, Args)]
pub(crate) struct Reading {
    /// Largest read-ahead window; 0 for no read-ahead [default: the machine's]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    read_ahead: Option<Size>,
    /// Print below the table where each byte read came from, by policy
    #[arg(long)]
    explain: bool,
}

impl Reading {
    /// The machine with the read-ahead that was requested, if any was.
    ///
    /// # Errors
    /// [`SimError::Machine`] for a size that is no window.
    fn on(&self, machine: MachineSpec) -> Result<MachineSpec, SimError> {
        let Some(size) = self.read_ahead else { return Ok(machine) };
        let machine = MachineSpec { readahead: size.bytes(), ..machine };
        machine.validate()?;
        Ok(machine)
    }
}

/// How much may be dirty. Both experiments have these options.
#[derive(Debug, Args)]
pub(crate) struct Dirty {
    /// Dirty memory above which the flusher writes in the background [default: 10]
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u32).range(0..=100)
    )]
    dirty_background: Option<u32>,
    /// Dirty memory at which writers wait [default: 20]
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    dirty_limit: Option<u32>,
}

impl Dirty {
    /// The limits, if any was given; the other has its default.
    ///
    /// # Errors
    /// [`SimError::Usage`] for limits that contradict each other.
    fn limits(&self, page: u64) -> Result<Option<DirtyLimits>, SimError> {
        if self.dirty_background.is_none() && self.dirty_limit.is_none() {
            return Ok(None);
        }
        let defaults = DirtyLimits::default();
        let share = |given: Option<u32>, default| given.map_or(default, DirtyShare::Percent);
        let limits = DirtyLimits::new(
            share(self.dirty_background, defaults.background),
            share(self.dirty_limit, defaults.hard),
        );
        limits.check(page).map_err(|error| {
            SimError::usage(error.to_string(), "lower --dirty-background, or raise --dirty-limit")
        })?;
        Ok(Some(limits))
    }
}

/// One run, with all options resolved.
#[derive(Clone, Debug)]
struct Plan {
    name: &'static str,
    about: &'static str,
    machine: MachineSpec,
    /// The group's limit, if it is less than the machine's memory.
    limit: Option<u64>,
    config: DatabaseConfig,
    columns: Columns,
    /// Whether it is the published experiment, but perhaps for its read-ahead.
    published: bool,
    explain: bool,
}

impl Plan {
    /// Refuses a budget that the store's own memory fills; `advice` says how to make room.
    ///
    /// # Errors
    /// [`SimError::Usage`].
    fn with_room(self, advice: &str) -> Result<Self, SimError> {
        if self.config.max > self.config.anon {
            return Ok(self);
        }
        Err(SimError::usage(
            format!(
                "a budget of {} leaves no room for files: the database and its cache take {}",
                Size::new(self.config.max),
                options::floor(self.config.anon)
            ),
            advice,
        ))
    }

    fn head(&self) -> Head {
        let config = &self.config;
        let places = match config.layout {
            Layout::Scattered => format!("file {} % free", config.free_percent),
            Layout::Appended => "file written at its end".into(),
        };
        Head {
            what: format!("{}: {}", self.name, self.about),
            machine: format!(
                "{}; read-ahead of {}",
                show::machine(&self.machine),
                Size::new(self.machine.readahead)
            ),
            max: self.limit,
            data: format!(
                "{} records, {places}; {} of the database's own memory, not reclaimable",
                thousands(config.records as f64),
                options::floor(config.anon)
            ),
            run: format!(
                "{} thread{}; {} operations {}; {} % updates",
                config.threads,
                if config.threads == 1 { "" } else { "s" },
                thousands(config.ops as f64),
                match config.warm_ops {
                    0 => "on an empty page cache".into(),
                    warm => format!("after {} left out", thousands(warm as f64)),
                },
                config.update_percent,
            ),
        }
    }

    fn simulate(&self, policy: Policy, done: &AtomicU64) -> Result<DatabaseResult, MachineError> {
        let machine =
            MachineConfig { spec: self.machine.clone(), policy, max: None, seed: self.config.seed };
        database::run(&machine, &self.config, done, interrupt::flag())
    }

    fn row(&self, policy: Policy, result: &DatabaseResult) -> Row {
        let row = Row {
            workload: self.name,
            program: Some("document store"),
            world: "sim",
            system: "lowtide",
            policy: policy.to_string(),
            machine: self.machine.name.clone(),
            max_bytes: self.limit,
            page_bytes: self.machine.page,
            threads: self.config.threads,
            seed: Some(self.config.seed),
            latency_us: Some(RowLatency::Whole(LatencyUs::from(&result.latency))),
            ..Row::default()
        }
        .with(DatabasePart { database: Some(reading_of(result, &self.machine)) });
        row.on_machine(Some(&result.began), &result.ended, result.ops)
    }

    /// Simulates the database under every policy and prints the rows.
    fn run(&self, common: &Common, policies: &[Policy], timing: bool) -> Result<(), SimError> {
        let frames = 2 * self.config.max / self.machine.page;
        let data_pages = self.config.file_bytes(self.machine.page) / self.machine.page;
        let parallel = Host::ask().parallel(frames, data_pages)?;
        self.head().print(common);

        let total = (self.config.warm_ops + self.config.ops) * policies.len() as u64;
        let progress = Patient::new("operations", Unit::Steps, total);
        let parallel = if timing { 1 } else { parallel };
        let results = jobs::run(policies.len(), parallel, progress, |number, done| {
            let began = Stopwatch::start();
            self.simulate(policies[number], done).map(|result| (result, began.elapsed()))
        });
        let mut rows = Vec::with_capacity(policies.len());
        let mut cut = Cut::default();
        for (&policy, result) in policies.iter().zip(results) {
            let result = result.map_err(|error| {
                SimError::of_machine(policy, error, &format!("simulating {}", self.name))
            });
            let Some((result, took)) = cut.take(result)? else { continue };
            let row = self.row(policy, &result);
            rows.push(if timing { row.timed(took, result.ended.bytes, data_pages) } else { row });
        }
        let mut rows = compare::with_ratios(rows);
        let mut closing = compare::ratio_line(&rows);
        if self.explain {
            closing.extend(explain::lines(&rows));
        }
        let mut verdict = Vec::new();
        if self.published {
            verdict = compare::database_verdict(&rows);
            rows = compare::with_published(rows);
        }
        let closing = Closing { lines: closing, verdict };
        show::results(common, &self.machine, &rows, self.columns, closing, cut)
    }
}

/// What the store of a run on `machine` requested, and what was read for it.
fn reading_of(result: &DatabaseResult, machine: &MachineSpec) -> DatabaseRow {
    let per_op = |bytes: u64| bytes as f64 / 1024.0 / result.ops.max(1) as f64;
    let (began, ended): (&MachineStat, &MachineStat) = (&result.began, &result.ended);
    let since = |count: fn(&KernelCounts) -> u64| count(&ended.kernel) - count(&began.kernel);
    let windows = since(|kernel| kernel.marked_windows);
    DatabaseRow {
        read_ahead_bytes: machine.readahead,
        read_kib_per_op: per_op(ended.device.read_bytes - began.device.read_bytes),
        asked_kib_per_op: per_op(result.asked_pages * machine.page),
        missing_pages: since(|kernel| kernel.missing),
        missing_again_pages: since(|kernel| kernel.missing_again),
        marked_hits: since(|kernel| kernel.marked_hits),
        marked_windows: windows,
        mean_window_pages: since(|kernel| kernel.marked_window_pages) as f64
            / windows.max(1) as f64,
        readahead_pages: since(|kernel| kernel.readahead),
        readahead_used_pages: since(|kernel| kernel.readahead_used),
        readahead_unused_pages: since(|kernel| kernel.readahead_unused),
        dirty_share_pct: 100.0 * result.dirty_share,
    }
}
