//! `lowtide bench` with tenants: who pays, who is spared, and who gets how much, on real memory.
//!
//! The simulator has workloads of the same names, with the same names in their JSON
//! (`crates/lowtide-sim/src/client/`).
//!
//! | file | concept |
//! |---|---|
//! | `thrash` | a tenant that thrashes above `high`, under each law, and its neighbour on the device |
//! | `noisy` | tenants with working sets beside a scanner, with and without `low` |
//! | `equals` | many tenants of equal demand |
//! | `mix` | a file and a heap in one budget |
//! | `cost` | what a program costs whose answer changes nothing |
//! | `device` | the device, second by second |
//! | `crowd` | threads that load pages, and the loads |
//! | `row` | rows in JSON and in tables |

mod cost;
mod crowd;
mod device;
mod equals;
mod mix;
mod noisy;
mod row;
mod thrash;

use lowtide::{Pager, Programs, Size, Tenant, TenantPolicyError};
use lowtide_sys::probe::Probe;

use super::args::BenchArgs;
use super::datafile::DataFile;
use super::error::BenchError;
use super::machine::Machine;
use super::plan;
use super::workload::report;
use crate::interrupt::Cut;
use crate::json::Report;
use crate::law::{Law, ProgramError};
use crate::out;

/// A benchmark with tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tenancy {
    /// A thrash above `high`.
    HighThrash,
    /// A scanner beside working sets.
    NoisyNeighbour,
    /// Many of equal demand.
    Tenants,
    /// A file and a heap.
    FileAnonMix,
    /// What a program costs.
    ProgramCost,
}

impl Tenancy {
    /// All of them, in the order in which they are listed.
    pub(crate) const ALL: [Self; 5] = [
        Self::HighThrash,
        Self::NoisyNeighbour,
        Self::Tenants,
        Self::FileAnonMix,
        Self::ProgramCost,
    ];

    /// The name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::HighThrash => "high-thrash",
            Self::NoisyNeighbour => "noisy-neighbour",
            Self::Tenants => "tenants",
            Self::FileAnonMix => "file-anon-mix",
            Self::ProgramCost => "program-cost",
        }
    }

    /// One line about it, for listings.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::HighThrash => {
                "random loads by a tenant above its high, and a neighbour on its device"
            }
            Self::NoisyNeighbour => {
                "four tenants with working sets beside a scanner, with and without low"
            }
            Self::Tenants => "32 tenants alike, each of 64 workers sweeping chunks of its own file",
            Self::FileAnonMix => {
                "readers of a file beside workers that allocate and free, 1.375 times the budget"
            }
            Self::ProgramCost => "loads above high with an eBPF program and without it, in turns",
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// Any [`BenchError`].
    pub(super) fn run(self, args: &BenchArgs) -> Result<(), BenchError> {
        super::options::refuse_misplaced(args, super::args::Target::Tenancy(self))?;
        match self {
            Self::HighThrash => thrash::run(args),
            Self::NoisyNeighbour => noisy::run(args),
            Self::Tenants => equals::run(args),
            Self::FileAnonMix => mix::run(args),
            Self::ProgramCost => cost::run(args),
        }
    }
}

/// The page of all of these: the kernel's, unless another one was asked for.
fn page_bytes(args: &BenchArgs) -> Result<u64, BenchError> {
    match super::options::page_option(args)? {
        Some(page) if page < super::content::UNIT_BYTES as u64 => Err(BenchError::usage(
            format!("a load looks at 1K, and --page {page} is less"),
            "choose --page 1K or more",
        )),
        page => Ok(page.unwrap_or(plan::PAGE_BYTES)),
    }
}

/// What the numbers below are numbers of: machine, data, and lines of the workload's own. Returns
/// what is known of the machine.
fn head(
    tenancy: Tenancy,
    pager: &Pager,
    file: &DataFile,
    lines: &[(&str, String)],
) -> Result<Machine, BenchError> {
    let machine = Machine::ask(&Probe::ask(), file, report(std::slice::from_ref(pager)))?;
    out::line(format_args!("{}: {}", tenancy.name(), tenancy.description()));
    for line in machine.lines(file) {
        out::line(line);
    }
    for (name, text) in lines {
        out::line(format_args!("{name:<9} {text}"));
    }
    out::line("");
    Ok(machine)
}

/// The table, what follows from it, and the JSON; of a run that was interrupted, of the rows that
/// had ended.
fn tail(
    args: &BenchArgs,
    machine: &Machine,
    columns: &[row::Column],
    rows: Vec<row::TenancyRow>,
    closing: &[String],
    cut: Cut,
) -> Result<(), BenchError> {
    out::line(row::table(columns, &rows));
    if !closing.is_empty() {
        out::line(format_args!("\n{}", closing.join("\n")));
    }
    Report::new(machine, rows).cut_short(cut.is_cut()).write(args.json.as_deref())?;
    cut.verdict()
}

/// `1 thread`, `4 threads`.
fn threads_text(threads: u32) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// Puts a tenant under a law.
///
/// # Errors
/// [`BenchError::Tenant`], [`BenchError::Program`].
fn apply(law: &Law, tenant: &Tenant) -> Result<Option<Programs>, BenchError> {
    tenant.set_high_policy(law.builtin())?;
    let Law::Program { name, object } = law else { return Ok(None) };
    let programs = tenant.attach(object, name).map_err(|error| match error {
        TenantPolicyError::Tenant(error) => BenchError::from(error),
        error => ProgramError { path: name.into(), why: error.to_string() }.into(),
    })?;
    Ok(Some(programs))
}

/// A data size that is a whole number of read-around windows.
fn whole_windows(bytes: u64, page_bytes: u64) -> u64 {
    super::options::grain(bytes.next_multiple_of(crowd::WINDOW_PAGES * page_bytes))
}

/// Refuses a budget that the machine cannot hold, before anything is made.
fn check_memory(bytes: u64) -> Result<Size, BenchError> {
    plan::check_memory(1, bytes, Probe::ask().memory_available)?;
    Ok(Size::new(bytes))
}
