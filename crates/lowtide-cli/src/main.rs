//! The `lowtide` command. Everything is in the library beside this file.

use std::process::ExitCode;

fn main() -> ExitCode {
    lowtide_cli::main()
}
