//! A trace on a full machine: one task for each of its threads.

use lowtide::Policy;
use lowtide_report::columns;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::row::{MeasuredFigures, Row};
use lowtide_report::table::{self, thousands};
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::stream::StreamSpace;

use super::deal::deal;
use super::paging::{self, Repage};
use super::source::Source;
use super::{Options, WORKLOAD};
use crate::sim::full::{self, Play, Rows};
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::options::machine_budget;
use lowtide_bench::sim::show::{self, Head};

/// The largest number of tasks.
const THREADS_MAX: usize = 65_536;

/// Plays the trace under every policy and prints the rows.
pub(crate) fn run(
    options: &Options,
    policies: &[Policy],
    source: Source,
    machine: &MachineSpec,
) -> Result<(), SimError> {
    if source.is_standard_input() {
        return Err(SimError::usage(
            "a machine's files must exist before a trace begins, so the trace is read twice, and \
             standard input can be read only once",
            "name a file, or omit --machine",
        ));
    }
    let max = machine_budget(options.max, machine, None)?;
    let trace = source.open()?;
    let page = paging::page_of(options.page, &trace)?;
    let paged = paging::shown(options.page, &trace, page);
    let source = source.on(Repage::new(page, machine.page));
    let survey = source.survey()?;
    let threads = survey.threads.len().max(1);
    if threads > THREADS_MAX {
        return Err(SimError::usage(
            format!("the trace {} has {threads} threads, more than {THREADS_MAX}", source.name()),
            "omit --machine, or renumber its threads",
        ));
    }
    let pages = survey.footprint();
    let head = Head {
        what: format!("{WORKLOAD}: a recorded trace"),
        machine: show::machine(machine),
        max,
        data: format!(
            "{}, {paged}; {} pages of the machine touched ({})",
            source.name(),
            thousands(pages as f64),
            table::memory(pages * machine.page)
        ),
        run: format!(
            "{threads} thread{}; {} operations",
            if threads == 1 { "" } else { "s" },
            thousands(survey.ops as f64)
        ),
    };
    head.print(&options.common);
    let spaces = survey.spaces.iter();
    let play = Play {
        machine,
        max,
        spaces: spaces.map(|space| StreamSpace { kind: space.kind, pages: space.end }).collect(),
        data_pages: pages,
        during: format!("playing the trace {}", source.name()),
    };
    let row = |policy: Policy| Row {
        workload: WORKLOAD,
        trace: Some(source.name()),
        world: "sim",
        system: "lowtide",
        policy: policy.to_string(),
        machine: machine.name.clone(),
        max_bytes: max,
        data_bytes: Some(pages * machine.page),
        page_bytes: machine.page,
        threads: threads as u32,
        seed: Some(options.common.seed),
        measured: MeasuredFigures { footprint_pages: Some(pages), ..MeasuredFigures::default() },
        ..Row::default()
    };
    let progress = Patient::new("operations", Unit::Steps, survey.ops * policies.len() as u64);
    let (timing, seed) = (options.timing.is_on(), options.common.seed);
    let rows = Rows { policies, timing, seed };
    let outcome = full::run(&rows, &play, progress, row, || deal(&source, &survey))?;
    outcome.show(&options.common, machine, columns::STREAMS, &[])
}
