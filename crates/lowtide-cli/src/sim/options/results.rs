//! Where results go, and whether they say how fast the simulation was.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::json::check_path;
use crate::sim::error::SimError;

/// Where results go.
#[derive(Debug, Args)]
pub(crate) struct Results {
    /// Print the results as JSON instead of a table, or write them to FILE, too
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    json: Option<Option<PathBuf>>,
}

/// Where results go, decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output<'a> {
    /// A table.
    Table,
    /// JSON on standard output, and no table.
    Json,
    /// A table, and JSON in a file.
    Both(&'a Path),
}

impl Results {
    /// Where results go.
    pub(crate) fn output(&self) -> Output<'_> {
        match &self.json {
            None => Output::Table,
            Some(None) => Output::Json,
            Some(Some(path)) if path == Path::new("-") => Output::Json,
            Some(Some(path)) => Output::Both(path),
        }
    }

    /// Refuses a file that cannot be written.
    ///
    /// # Errors
    /// [`SimError::Results`].
    pub(crate) fn check(&self) -> Result<(), SimError> {
        match self.output() {
            Output::Both(path) => Ok(check_path(Some(path))?),
            Output::Table | Output::Json => Ok(()),
        }
    }
}

/// Whether rows say how fast the simulation was.
#[derive(Debug, Args)]
pub(crate) struct Timing {
    /// Add how fast the simulation was: host_seconds, accesses_per_s, bytes_per_page
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
    /// Whether they do.
    pub(crate) fn is_on(&self) -> bool {
        self.timing == Switch::On
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}
