//! The machine-readable result of every command: one object, `{"lowtide": VERSION, "machine": {…},
//! "command": "…", "rows": [{…}]}`, and `verdict` where a published result was repeated.
//!
//! The names are an interface: a field may be added, none renamed. Times are in the unit that the
//! name ends with. Counters under `stat` have the kernel's names and units.

use std::path::{Path, PathBuf};
use std::{fs, io};

use hdrhistogram::Histogram;
use rustix::fs::Access;
use serde::Serialize;
use thiserror::Error;

use crate::command;
use crate::verdict::CriterionRow;

/// The version of lowtide.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that it is built from. A build outside of a repository has none.
pub const COMMIT: Option<&str> = option_env!("LOWTIDE_COMMIT");

/// Results that cannot be written to a file.
#[derive(Debug, Error)]
pub enum ResultsError {
    /// A path that cannot be written.
    #[error(
        "cannot write results to {}: {why}; give --json a file in an existing directory",
        path.display()
    )]
    Place {
        /// The path.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The file cannot be written.
    #[error(
        "cannot write the results to {}: {source}; choose another file with --json",
        path.display()
    )]
    Write {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A whole result: the machine, and the rows.
#[derive(Debug, Serialize)]
pub struct Report<'a, M, R> {
    lowtide: &'static str,
    /// The commit of the build, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    /// The command line that repeats it.
    command: String,
    machine: &'a M,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// The run was interrupted, so rows are missing or shorter than requested.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    interrupted: bool,
    rows: Vec<R>,
    /// Whether a published result is reproduced, if it is one that was published.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    verdict: Vec<CriterionRow>,
}

impl<'a, M: Serialize, R: Serialize> Report<'a, M, R> {
    /// A result of this version of lowtide.
    pub fn new(machine: &'a M, rows: Vec<R>) -> Self {
        Self {
            lowtide: VERSION,
            commit: COMMIT,
            command: command::line(),
            machine,
            seed: None,
            interrupted: false,
            rows,
            verdict: Vec::new(),
        }
    }

    /// The same, of a run that was interrupted if `cut`.
    pub const fn cut_short(mut self, cut: bool) -> Self {
        self.interrupted = cut;
        self
    }

    /// The same with a verdict.
    pub fn judged(mut self, verdict: Vec<CriterionRow>) -> Self {
        self.verdict = verdict;
        self
    }

    /// The same, all rows of one seed.
    pub const fn seeded(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The text, with a line break at its end.
    ///
    /// # Errors
    /// Those of serialisation, which does not fail for rows of numbers and text.
    pub fn text(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Writes it to `path`, if there is one.
    ///
    /// # Errors
    /// [`ResultsError::Write`].
    pub fn write(&self, path: Option<&Path>) -> Result<(), ResultsError> {
        let Some(path) = path else { return Ok(()) };
        self.text()
            .and_then(|text| fs::write(path, text))
            .map_err(|source| ResultsError::Write { path: path.to_owned(), source })
    }
}

/// Rejects an unwritable path for results before any work starts.
///
/// # Errors
/// [`ResultsError::Place`].
pub fn check_path(path: Option<&Path>) -> Result<(), ResultsError> {
    path.map_or(Ok(()), |path| {
        writable(path).map_err(|why| ResultsError::Place { path: path.to_owned(), why })
    })
}

/// Whether a file can be written at this path, as far as known without creating it.
///
/// # Errors
/// Why not.
pub fn writable(path: &Path) -> Result<(), String> {
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let access = |path, how| {
        rustix::fs::access(path, how).map_err(|error| io::Error::from(error).to_string())
    };
    if path.is_dir() {
        Err("it is a directory".into())
    } else if !parent.is_dir() {
        Err(format!("{} is not a directory", parent.display()))
    } else if path.exists() {
        access(path, Access::WRITE_OK)
    } else {
        access(parent, Access::WRITE_OK | Access::EXEC_OK)
    }
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LatencyUs {
    /// The mean; 0 when nothing was counted.
    pub mean: f64,
    /// The 50th percentile.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The 99.99th percentile.
    pub p9999: f64,
    /// The longest.
    pub max: f64,
}

impl From<&Histogram<u64>> for LatencyUs {
    /// From counts of nanoseconds.
    fn from(nanoseconds: &Histogram<u64>) -> Self {
        let quantile = |quantile| nanoseconds.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            mean: nanoseconds.mean() / 1e3,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            p9999: quantile(0.9999),
            max: nanoseconds.max() as f64 / 1e3,
        }
    }
}
