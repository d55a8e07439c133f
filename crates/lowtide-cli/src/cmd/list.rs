//! `lowtide list`: names, each with a line about it.

use std::process::ExitCode;

use lowtide::Policy;
use lowtide_workload::Workload;

use crate::bench::args::Target;
use crate::cli::Listing;
use crate::out;

/// Prints the list.
pub(crate) fn run(what: Listing) -> ExitCode {
    match what {
        Listing::Workloads => {
            for workload in Workload::ALL {
                out::line(format_args!("{:<12} {}", workload.name(), workload.description()));
            }
            out::line(format_args!("{:<12} {}", Target::HIT, Target::HIT_DESCRIPTION));
        }
        Listing::Policies => {
            for (policy, about) in Policy::builtin() {
                out::line(format_args!("{:<12} {about}", policy.to_string()));
            }
            let switches: Vec<String> = Policy::switch_names().collect();
            out::line(format_args!("\nswitches, as in mglru-7.1+S10 or mglru-S7: {}", switches.join(", ")));
        }
    }
    ExitCode::SUCCESS
}
