//! The parts that workloads with tenants share: options, head and tail of the result, limits.

use clap::Args;
use lowtide::{Pager, PagerBuilder, Policy, Size, Tenant};
use lowtide_bench::content::UNIT_BYTES;
use lowtide_bench::datafile::DataFile;
use lowtide_bench::error::BenchError;
use lowtide_bench::machine::Machine;
use lowtide_bench::options::{Files, Io, Output, memory};
use lowtide_bpf::Programs;
use lowtide_host::probe::Probe;
use lowtide_report::interrupt::Cut;
use lowtide_report::json::Report;
use lowtide_report::out;
use lowtide_report::table::Table;
use lowtide_report::values::{self, PAGE, grain};
use lowtide_report::verdict::Closing;
use serde::Serialize;

use super::loaders;
use crate::throttle::{ProgramError, ThrottlePolicy};

/// Options of all workloads with tenants.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// lowtide's base page, 1K or more
    #[arg(long, value_name = "SIZE", value_parser = page, default_value = PAGE,
          allow_hyphen_values = true)]
    pub(crate) page: u64,
    #[command(flatten)]
    pub(crate) io: Io,
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl Common {
    /// A pager with a budget that the machine can hold.
    ///
    /// # Errors
    /// [`BenchError::NoMemory`], [`BenchError::Setup`].
    pub(crate) fn pager(&self, policy: Policy, max_bytes: u64) -> Result<Pager, BenchError> {
        check_memory(max_bytes)?;
        self.io.pager(policy, max_bytes, self.page, |builder: PagerBuilder| builder)
    }
}

/// A page that is large enough for a load.
pub(crate) fn page(text: &str) -> Result<u64, String> {
    match values::page(text)? {
        page if page < UNIT_BYTES as u64 => {
            Err("a load looks at 1K; give a power of two from 1K to 64K".into())
        }
        page => Ok(page),
    }
}

/// Prints the lines above the table: machine, data, and the workload's own lines. Returns the
/// description of the machine.
pub(crate) fn head(
    (name, about): (&str, &str),
    pager: &Pager,
    file: &DataFile,
    lines: &[(&str, String)],
) -> Result<Machine, BenchError> {
    let machine = Machine::ask(&Probe::ask(), file, pager)?;
    out::line(format_args!("{name}: {about}"));
    for line in machine.lines(file) {
        out::line(line);
    }
    for (name, text) in lines {
        out::line(format_args!("{name:<9} {text}"));
    }
    out::line("");
    Ok(machine)
}

/// The table, its conclusions, and the JSON; an interrupted run has only its completed rows.
pub(crate) fn tail(
    output: &Output,
    machine: &Machine,
    table: &Table,
    rows: Vec<impl Serialize>,
    closing: impl Into<Closing>,
    mut cut: Cut,
) -> Result<(), BenchError> {
    cut.refuse_nothing(rows.is_empty())?;
    out::line(table);
    let closing: Closing = closing.into();
    let lines = closing.text();
    if !lines.is_empty() {
        out::line(format_args!("\n{}", lines.join("\n")));
    }
    Report::new(machine, rows)
        .cut_short(cut.is_cut())
        .judged(closing.verdict)
        .write(output.json.as_deref())?;
    cut.verdict()
}

/// Sets a tenant's throttle policy.
///
/// # Errors
/// [`BenchError::Tenant`], [`BenchError::Usage`].
pub(crate) fn apply(
    throttle: &ThrottlePolicy,
    tenant: &Tenant,
) -> Result<Option<Programs>, BenchError> {
    tenant.set_high_policy(throttle.builtin())?;
    let ThrottlePolicy::Program { name, object } = throttle else { return Ok(None) };
    let programs = Programs::load(object, name)
        .map_err(|error| ProgramError { path: name.into(), why: error.to_string() })?;
    tenant.set_hooks(Some(Box::new(programs.clone())))?;
    Ok(Some(programs))
}

/// A data size that is a whole number of read-around windows.
pub(crate) fn whole_windows(bytes: u64, page_bytes: u64) -> u64 {
    grain(bytes.next_multiple_of(loaders::WINDOW_PAGES * page_bytes))
}

/// Rejects a budget that does not fit in memory, before any file is created.
pub(crate) fn check_memory(bytes: u64) -> Result<Size, BenchError> {
    memory::check_memory(0, 1, bytes, Probe::ask().memory_available)?;
    Ok(Size::new(bytes))
}
