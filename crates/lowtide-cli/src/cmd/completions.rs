//! `lowtide completions`: completion scripts for shells.

use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};
use lowtide_report::out;

use crate::cli::Cli;

/// Prints the shell's script.
pub(crate) fn run(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    generate(shell, &mut visible(), "lowtide", &mut script);
    out::line(String::from_utf8_lossy(&script).trim_end());
    ExitCode::SUCCESS
}

/// The command line without the internal commands.
fn visible() -> Command {
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("lowtide").version(env!("CARGO_PKG_VERSION")).subcommands(shown)
}
