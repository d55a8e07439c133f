//! The destination of results, and whether they include the simulation's speed.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use lowtide_report::json::check_path;

use crate::sim::error::SimError;

/// The destination of results, as given.
#[derive(Debug, Args)]
pub struct Results {
    /// Print JSON instead of a table; with FILE, print the table and write JSON to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    json: Option<Option<PathBuf>>,
}

/// The destination of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<'a> {
    Table,
    /// JSON on standard output, and no table.
    Json,
    /// A table, and JSON in a file.
    Both(&'a Path),
}

impl Results {
    /// The destination.
    pub fn output(&self) -> Output<'_> {
        match &self.json {
            None => Output::Table,
            Some(None) => Output::Json,
            Some(Some(path)) if path == Path::new("-") => Output::Json,
            Some(Some(path)) => Output::Both(path),
        }
    }

    /// Rejects a file that cannot be written.
    ///
    /// # Errors
    /// [`SimError::Results`].
    pub fn check(&self) -> Result<(), SimError> {
        match self.output() {
            Output::Both(path) => Ok(check_path(Some(path))?),
            Output::Table | Output::Json => Ok(()),
        }
    }
}

/// Whether rows include the simulation's speed.
#[derive(Debug, Args)]
pub struct Timing {
    /// Include the simulation's speed: host_seconds, accesses_per_s, bytes_per_page
    #[arg(
        long,
        value_enum,
        value_name = "on|off",
        num_args = 0..=1,
        require_equals = true,
        default_value = "off",
        default_missing_value = "on",
        hide_possible_values = true
    )]
    timing: Switch,
}

impl Timing {
    /// Whether rows include it.
    pub fn is_on(&self) -> bool {
        self.timing == Switch::On
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}
