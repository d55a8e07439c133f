//! Options of `depth` and `in-order`: cold reads of one file from one thread.

use crate::bench::options::OnePolicy;
use clap::Args;
use lowtide_bench::content::Content;
use lowtide_bench::datafile::{DataFile, Purpose};
use lowtide_bench::error::BenchError;
use lowtide_bench::options::{Files, Io, Output, Seed, Source, UserFile, YoungFaults, rounds};
use lowtide_report::values::{PAGE, page, seconds};

/// See the module documentation. Budget and size have other defaults in each.
#[derive(Debug, Args)]
pub(crate) struct Cold {
    /// Measured seconds of each system, over all rounds
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "5",
          allow_negative_numbers = true)]
    pub(crate) seconds: f64,
    /// Slices of the measurement; systems take turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 5)]
    pub(crate) rounds: u32,
    /// lowtide's base page
    #[arg(long, value_name = "SIZE", value_parser = page, default_value = PAGE,
          allow_hyphen_values = true)]
    pub(crate) page: u64,
    #[command(flatten)]
    pub(crate) seed: Seed,
    #[command(flatten)]
    pub(crate) policy: OnePolicy,
    #[command(flatten)]
    pub(crate) young: YoungFaults,
    #[command(flatten)]
    pub(crate) io: Io,
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) file: UserFile,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl Cold {
    /// The file, a user's or one of `bytes`, and its content.
    ///
    /// # Errors
    /// Those of preparing files.
    pub(crate) fn data(&self, bytes: u64) -> Result<(DataFile, Content), BenchError> {
        match Source::of(&self.files, self.file.file.clone())? {
            Source::User(path, locking) => DataFile::of_user(&path, locking),
            Source::Made(data_dir) => {
                let mut files = data_dir.prepare(Content::Blocks, bytes, 1, Purpose::Lasting)?;
                Ok((files.remove(0), Content::Blocks))
            }
        }
    }
}
