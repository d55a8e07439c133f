//! The output of a run: lines about the simulation, a table, and JSON. With `--json` and no file,
//! standard output contains only the JSON.

use lowtide::Size;
use lowtide_report::columns::{Columns, table};
use lowtide_report::interrupt::Cut;
use lowtide_report::json::Report;
use lowtide_report::out;
use lowtide_report::row::Row;
use lowtide_report::verdict::Closing;
use lowtide_sim::spec::MachineSpec;
use serde::Serialize;

use super::error::SimError;
use super::options::{Common, Output, PAGE_BYTES, floor};

/// The plain machine, as in results.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PlainMachine {
    name: &'static str,
    about: &'static str,
    cpus: u32,
    page: u64,
}

/// See [`PlainMachine`].
pub const PLAIN: PlainMachine = PlainMachine {
    name: "plain",
    about: "one CPU, no time, no read-ahead, no fault-around: counters mean what the accesses did",
    cpus: 1,
    page: PAGE_BYTES,
};

impl PlainMachine {
    /// The same with another page size, which a trace may have.
    pub const fn of(page: u64) -> Self {
        Self { page, ..PLAIN }
    }

    /// Bytes of its pages.
    pub const fn page(&self) -> u64 {
        self.page
    }

    /// Its name in results.
    pub const NAME: &str = PLAIN.name;
}

/// The lines above a table.
#[derive(Clone, Debug)]
pub struct Head {
    pub what: String,
    pub machine: String,
    /// The budget in bytes; `None` for all of the machine's memory.
    pub max: Option<u64>,
    pub data: String,
    /// The length of the run, without the seed.
    pub run: String,
}

impl Head {
    /// Prints the lines, unless standard output is used for JSON. The last one begins with `run`.
    pub fn print(&self, common: &Common) {
        if common.results.output() == Output::Json {
            return;
        }
        let max = self
            .max
            .map_or_else(|| "all of the machine's memory".into(), |max| Size::new(max).to_string());
        out::line(&self.what);
        out::line(format_args!("machine   {}", self.machine));
        out::line(format_args!("budget    {max}"));
        out::line(format_args!("data      {}", self.data));
        out::line(format_args!("run       {}; seed {}\n", self.run, common.seed));
    }

    /// The same for runs with many budgets and without random choices.
    pub fn print_but_budget(&self, common: &Common) {
        if common.results.output() == Output::Json {
            return;
        }
        out::line(&self.what);
        out::line(format_args!("machine   {}", self.machine));
        out::line(format_args!("data      {}", self.data));
        out::line(format_args!("run       {}\n", self.run));
    }
}

/// A machine in one line.
pub fn machine(machine: &MachineSpec) -> String {
    format!(
        "{}: {} CPU{}, {} of memory, {}; simulated",
        machine.name,
        machine.cpus,
        if machine.cpus == 1 { "" } else { "s" },
        floor(machine.memory),
        machine.device.name
    )
}

/// The plain machine in one line.
pub fn plain_machine() -> String {
    format!("none: {}", PLAIN.about)
}

/// Prints or writes the rows, for people as a table of `columns` with what follows from them below
/// it. An interrupted run has only its completed rows.
///
/// # Errors
/// [`SimError::Results`], [`SimError::Output`]; [`SimError::Interrupted`] without rows,
/// [`SimError::CutShort`] after them.
pub fn results<M: Serialize>(
    common: &Common,
    machine: &M,
    rows: &[Row],
    columns: impl Into<Columns>,
    closing: impl Into<Closing>,
    mut cut: Cut,
) -> Result<(), SimError> {
    cut.refuse_nothing(rows.is_empty())?;
    let closing: Closing = closing.into();
    let report = Report::new(machine, rows.to_vec())
        .seeded(common.seed)
        .cut_short(cut.is_cut())
        .judged(closing.verdict.clone());
    if common.results.output() == Output::Json {
        report.text().and_then(|text| out::all(&text)).map_err(SimError::Output)?;
        return cut.verdict();
    }
    out::line(table(columns, rows));
    for line in closing.text() {
        out::line(line);
    }
    if let Output::Both(path) = common.results.output() {
        report.write(Some(path))?;
    }
    cut.verdict()
}
