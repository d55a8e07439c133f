//! `lowtide list`: names, each with one line of description.

use std::process::ExitCode;

use lowtide::{Policy, Size};
use lowtide_report::{out, table};
use lowtide_sim::spec::{DeviceSpec, MachineSpec};

use crate::bench;
use crate::cli::Listing;
use crate::sim::Simulation;
use lowtide_bench::sim::error::SimError;
use lowtide_report::exit::Failure;

/// Prints the list, or one machine as a file.
pub(crate) fn run(what: Listing, toml: Option<&str>) -> ExitCode {
    match (what, toml) {
        (Listing::Machines, Some(name)) => return print_toml(name),
        (_, Some(_)) => {
            out::note(
                "error: --toml does not apply here; write `lowtide list machines --toml NAME`",
            );
            return ExitCode::from(2);
        }
        (_, None) => {}
    }
    match what {
        Listing::Workloads => {
            for (name, about) in bench::workloads() {
                out::line(format_args!("{name:<16} {about}"));
            }
            out::line("\nfor `lowtide sim`:");
            for command in Simulation::commands().get_subcommands() {
                let about = command.get_about().map(ToString::to_string).unwrap_or_default();
                out::line(format_args!("{:<16} {about}", command.get_name()));
            }
        }
        Listing::Policies => {
            for (policy, about) in Policy::builtin() {
                out::line(format_args!("{:<16} {about}", policy.to_string()));
            }
            out::line(
                "\nswitches, as in mglru-7.1+S10 or mglru-S7. S1 to S15 are the patches of the \
                 series\n\
                 \"mm/mglru: improve reclaim loop and dirty folio handling\" (Linux 7.2), together \
                 `series`.\n\
                 mglru, lru and tide have all switches but floor; mglru-7.1 has those since \
                 6.12, mglru-6.12 none.\nMore: docs/policies.md.\n",
            );
            for (name, about) in Policy::switches() {
                out::line(format_args!("{name:<16} {about}"));
            }
        }
        Listing::Machines => {
            out::line(machines());
            let devices: Vec<&str> = DeviceSpec::names().collect();
            out::line(format_args!(
                "\n`lowtide list machines --toml NAME` prints a machine as a file for `sim \
                 --machine`, with every key\n\
                 devices, for `device = \"hdd\"` in such a file: {}",
                devices.join(", ")
            ));
        }
    }
    ExitCode::SUCCESS
}

/// A machine as a TOML file.
fn print_toml(name: &str) -> ExitCode {
    let error = match MachineSpec::load(name).map(|machine| machine.to_toml()) {
        Ok(Ok(text)) => {
            out::line(text.trim_end());
            return ExitCode::SUCCESS;
        }
        Ok(Err(error)) => SimError::Tape(error.to_string()),
        Err(error) => SimError::from(error),
    };
    out::note(format_args!("error: {error}"));
    ExitCode::from(error.exit_code())
}

/// The machines, one row each. A machine with an invalid description shows the error instead.
fn machines() -> table::Table {
    let mut rows = table::new(&["machine", "cpus", "memory", "device", "swap", "about"], 6);
    for column in [1, 2] {
        rows.align_right(column);
    }
    for name in MachineSpec::names() {
        rows.add_row(match MachineSpec::load(name) {
            Ok(machine) => [
                machine.name,
                machine.cpus.to_string(),
                memory(machine.memory),
                machine.device.name,
                machine
                    .swap
                    .map_or("-".into(), |swap| format!("{} {}", swap.kind, Size::new(swap.size))),
                machine.about,
            ],
            Err(error) => {
                [name.into(), "-".into(), "-".into(), "-".into(), "-".into(), error.to_string()]
            }
        });
    }
    rows
}

/// Memory for display. This machine has an odd number of bytes, so it is rounded above a gibibyte
/// to an eighth of one.
fn memory(bytes: u64) -> String {
    let grain = if bytes < 1 << 30 { 1 } else { 1 << 27 };
    Size::new(bytes - bytes % grain).to_string()
}
