//! The directory of the data files, and a data file of the user's.

use std::path::PathBuf;

use clap::Args;
use lowtide_report::values::{budget, scale, scaled};

use crate::datafile::{DataDir, Locking};
use crate::error::BenchError;

/// The budget, and how much data there are.
#[derive(Clone, Copy, Debug, Args)]
pub struct Sizes {
    /// Memory budget of each system
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "256M",
          allow_hyphen_values = true)]
    max: u64,
    /// Size of the data as a multiple of the budget
    #[arg(long, value_name = "F", value_parser = scale, default_value = "4",
          allow_negative_numbers = true)]
    scale: f64,
}

impl Sizes {
    /// Bytes of the budget and of the data.
    pub fn bytes(self) -> (u64, u64) {
        (self.max, scaled(self.max, self.scale))
    }
}

/// The directory of data files, and whether they are locked.
#[derive(Debug, Args)]
pub struct Place {
    /// Directory of data files [default: lowtide-bench-UID in TMPDIR]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Do not lock data files; for file systems without locks
    #[arg(long)]
    no_lock: bool,
}

impl Place {
    /// The directory, whose files are `kept` for later runs.
    ///
    /// # Errors
    /// Those of [`DataDir::open`].
    pub fn data_dir(&self, kept: bool) -> Result<DataDir, BenchError> {
        DataDir::open(self.dir.as_deref(), kept, self.locking())
    }

    /// Whether data files are locked.
    const fn locking(&self) -> Locking {
        if self.no_lock { Locking::Unlocked } else { Locking::Locked }
    }
}

/// The directory of data files, and whether later runs use them.
#[derive(Debug, Args)]
pub struct Files {
    #[command(flatten)]
    place: Place,
    /// Remove the data files at the end; otherwise the next run reuses them
    #[arg(long)]
    no_keep: bool,
}

impl Files {
    /// The directory of the files that the bench creates.
    ///
    /// # Errors
    /// Those of [`DataDir::open`].
    pub fn data_dir(&self) -> Result<DataDir, BenchError> {
        self.place.data_dir(!self.no_keep)
    }

    /// Whether data files are locked.
    pub const fn locking(&self) -> Locking {
        self.place.locking()
    }
}

/// A file of the user's own.
#[derive(Debug, Args)]
pub struct UserFile {
    /// Read this file instead of creating one
    #[arg(long, value_name = "PATH", conflicts_with_all = ["dir", "scale", "no_keep"])]
    pub file: Option<PathBuf>,
}

/// The source of the data.
#[derive(Debug)]
pub enum Source {
    /// Files that the bench creates and may keep.
    Made(DataDir),
    /// A file of the user's own, which is only read.
    User(PathBuf, Locking),
}

impl Source {
    /// The source that the options select.
    ///
    /// # Errors
    /// Those of [`DataDir::open`].
    pub fn of(files: &Files, user: Option<PathBuf>) -> Result<Self, BenchError> {
        match user {
            Some(path) => Ok(Self::User(path, files.locking())),
            None => files.data_dir().map(Self::Made),
        }
    }
}
