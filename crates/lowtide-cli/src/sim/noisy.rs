//! `lowtide sim noisy-neighbour`: what a tenant that scans takes from tenants with working sets,
//! and what `memory.low` gives back.
//!
//! Three rows for each policy: the tenants alone, with the scanner, with the scanner and `low`. The
//! change of the hit ratio is to the first of them.

use std::sync::atomic::AtomicU64;

use clap::Args;
use lowtide::{Policy, Size};
use lowtide_sim::client::noisy::{self, Company, NoisyConfig, NoisyResult, TenantHits};
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{MachineConfig, MachineError};

use super::error::SimError;
use super::host::Host;
use super::options::{self, Common, OnMachine, seconds};
use super::row::Row;
use super::show::{self, Head};
use super::{columns, jobs};
use crate::interrupt::{self, Cut};
use crate::progress::{Patient, Unit};

/// Change of the hit ratio up to which it counts as kept, in percent of what it was.
const KEPT_PCT: f64 = 2.0;

/// The name of the workload.
pub(crate) const NAME: &str = "noisy-neighbour";
/// A line about it.
pub(crate) const ABOUT: &str =
    "tenants with working sets beside one that scans, with and without memory.low";

const HELP: &str = "\
Four tenants and a scanner share a budget of 176M. Each policy has three rows: the tenants alone,
beside the scanner, and beside it with memory.low. The change of the hit ratio is to the first.
The machine's memory is not what is short.

Example: lowtide sim noisy-neighbour --policy mglru,lru";

/// Options of `sim noisy-neighbour`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// The machine.
    #[command(flatten)]
    machine: OnMachine,
    /// Virtual seconds measured
    #[arg(
        long,
        value_name = "N",
        value_parser = seconds(),
        default_value_t = 10
    )]
    seconds: u64,
    /// Policies, seed and results.
    #[command(flatten)]
    common: Common,
}

/// The runs, decided.
#[derive(Debug)]
struct Plan {
    machine: MachineSpec,
    run_ns: u64,
    seed: u64,
    cases: Vec<(Policy, Company)>,
}

impl Plan {
    fn new(options: &Options, policies: Vec<Policy>) -> Result<Self, SimError> {
        let machine = options.machine.load()?;
        machine.validate()?;
        let (needed, memory) =
            (2 * NoisyConfig::new(Company::Alone, 0).max, machine.pages() * machine.page);
        if memory < needed {
            return Err(SimError::usage(
                format!(
                    "machine `{}` has {} for programs and files",
                    machine.name,
                    options::floor(memory)
                ),
                format!("choose one with at least {}", Size::new(needed)),
            ));
        }
        let cases =
            policies.into_iter().flat_map(|policy| Company::ALL.map(|company| (policy, company)));
        let run_ns = options.seconds * 1_000_000_000;
        Ok(Self { machine, run_ns, seed: options.common.seed, cases: cases.collect() })
    }

    const fn config(&self, company: Company) -> NoisyConfig {
        NoisyConfig { run_ns: self.run_ns, ..NoisyConfig::new(company, self.seed) }
    }

    fn head(&self) -> Head {
        let config = self.config(Company::ScannerAndLow);
        Head {
            what: format!("{NAME}: {ABOUT}"),
            machine: show::machine(&self.machine),
            max: Some(config.max),
            data: format!(
                "{} tenants with {} each, zipf, memory.low {}; a scanner with {}",
                config.tenants,
                Size::new(config.file),
                Size::new(config.low),
                Size::new(config.scan)
            ),
            run: format!(
                "{} s, after {} s that are left out",
                config.run_ns / 1_000_000_000,
                config.warm_ns / 1_000_000_000
            ),
        }
    }

    fn simulate(&self, job: usize, done: &AtomicU64) -> Result<NoisyResult, SimError> {
        let (policy, company) = self.cases[job];
        let machine =
            MachineConfig { spec: self.machine.clone(), policy, max: None, seed: self.seed };
        let failed = |error: MachineError| {
            SimError::of_machine(policy, error, "simulating tenants and a scanner")
        };
        noisy::run(&machine, &self.config(company), done, interrupt::flag()).map_err(failed)
    }

    fn row(
        &self,
        (policy, company): (Policy, Company),
        result: &NoisyResult,
        alone: &NoisyResult,
    ) -> Row {
        let config = self.config(company);
        let change = |now: TenantHits, then: TenantHits| 100.0 * (ratio(now) / ratio(then) - 1.0);
        let row = Row {
            workload: NAME,
            world: "sim",
            system: "lowtide",
            policy: policy.to_string(),
            machine: self.machine.name.clone(),
            max_bytes: Some(config.max),
            data_bytes: Some(u64::from(config.tenants) * config.file),
            page_bytes: self.machine.page,
            threads: config.tenants,
            seed: Some(self.seed),
            company: Some(company.name()),
            hit_ratio: Some(ratio(result.all())),
            hit_ratio_change_pct: Some(change(result.all(), alone.all())),
            tenant_hit_ratios: Some(result.tenants.iter().copied().map(ratio).collect()),
            scanned_pages_per_s: Some(result.scanned as f64 / (config.run_ns as f64 / 1e9)),
            ..Row::default()
        };
        row.on_machine(Some(&result.began), &result.ended, result.all().accesses)
    }
}

fn ratio(of: TenantHits) -> f64 {
    if of.accesses == 0 { 0.0 } else { of.hits as f64 / of.accesses as f64 }
}

/// Whether protection kept what the scanner would have taken, a line for each policy.
fn verdict(rows: &[Row]) -> Vec<String> {
    let line = |rows: &[Row]| {
        let change = |row: &Row| row.hit_ratio_change_pct.unwrap_or(f64::NAN);
        let kept = if change(&rows[2]).abs() <= KEPT_PCT { "kept" } else { "not kept" };
        format!(
            "{}: hit ratio {kept} with low ({:+.2} %, at most {KEPT_PCT} %), {:+.2} % without",
            rows[0].policy,
            change(&rows[2]),
            change(&rows[1])
        )
    };
    std::iter::once(String::new()).chain(rows.chunks_exact(Company::ALL.len()).map(line)).collect()
}

/// Simulates the tenants under every policy and prints the rows.
///
/// # Errors
/// Any [`SimError`].
pub(crate) fn run(options: &Options) -> Result<(), SimError> {
    let plan = Plan::new(options, options.common.begin()?)?;
    let config = plan.config(Company::Scanner);
    let pages = (u64::from(config.tenants) * config.file + config.scan) / plan.machine.page;
    let parallel = Host::ask().parallel(plan.machine.pages(), pages)?;
    plan.head().print(&options.common);

    let each = (config.warm_ns + config.run_ns) / 1_000_000;
    let progress =
        Patient::new("virtual milliseconds", Unit::Steps, each * plan.cases.len() as u64);
    let results =
        jobs::run(plan.cases.len(), parallel, progress, |job, done| plan.simulate(job, done));
    let mut cut = Cut::default();
    let results =
        results.into_iter().map(|result| cut.take(result)).collect::<Result<Vec<_>, _>>()?;
    let mut rows = Vec::with_capacity(results.len());
    let phases = Company::ALL.len();
    for (cases, results) in plan.cases.chunks_exact(phases).zip(results.chunks_exact(phases)) {
        // Of a run that was interrupted, the policies are shown whose rows have all ended.
        let Some(results) = results.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() else {
            continue;
        };
        rows.extend(
            cases.iter().zip(&results).map(|(&case, result)| plan.row(case, result, results[0])),
        );
    }
    let closing = verdict(&rows);
    show::results(&options.common, &plan.machine, &rows, columns::NOISY, &closing, cut)
}
