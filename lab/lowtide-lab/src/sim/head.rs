//! The lines above the table of an experiment.

use lowtide_bench::sim::options::{Common, Output};
use lowtide_bench::sim::show;
use lowtide_report::out;
use lowtide_sim::spec::MachineSpec;

/// Prints the lines above the table of an experiment, unless standard output is used for JSON:
/// named lines, and the length of the run.
pub(crate) fn experiment(
    common: &Common,
    what: &str,
    machine: &MachineSpec,
    lines: &[(&str, String)],
    run: &str,
) {
    if common.results.output() == Output::Json {
        return;
    }
    out::line(what);
    out::line(format_args!("machine   {}", show::machine(machine)));
    for (name, text) in lines {
        out::line(format_args!("{name:<9} {text}"));
    }
    out::line(format_args!("run       {run}; seed {}\n", common.seed));
}
