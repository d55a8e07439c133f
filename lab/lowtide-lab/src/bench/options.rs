//! Options and parts that only the laboratory's workloads have, beside those of `lowtide bench`.

use clap::Args;
use lowtide::{Pager, Policy, View};
use lowtide_bench::datafile::{DataDir, DataFile};
use lowtide_bench::error::BenchError;
use lowtide_bench::options::memory::check_memory;
use lowtide_bench::options::{Place, policy_rows};
use lowtide_bench::system::{count, data_options};
use lowtide_bench::thread_pool::{ThreadPool, Until};
use lowtide_host::memcg;
use lowtide_report::names;
use lowtide_report::tally::Slice;

/// lowtide's rows, for a workload that does not compare policies.
#[derive(Debug, Args)]
pub(crate) struct FewPolicies {
    /// Reclaim policies of lowtide, one row each
    #[arg(long = "policy", value_name = "P,P", value_delimiter = ',', value_parser = names::policy,
          default_value = "mglru")]
    policies: Vec<Policy>,
}

impl FewPolicies {
    /// Each policy once.
    pub(crate) fn rows(&self) -> Vec<Policy> {
        policy_rows(&self.policies)
    }
}

/// The policy of a workload that uses only one.
#[derive(Debug, Args)]
pub(crate) struct OnePolicy {
    /// Reclaim policy of lowtide
    #[arg(long, value_name = "P", value_parser = names::policy, default_value = "mglru")]
    pub(crate) policy: Policy,
}

/// The directory of files that no later run uses.
#[derive(Debug, Args)]
pub(crate) struct ScratchPlace {
    #[command(flatten)]
    place: Place,
    // Accepted but hidden, because it is always the case.
    #[arg(long, hide = true)]
    no_keep: bool,
}

impl ScratchPlace {
    /// The directory.
    ///
    /// # Errors
    /// Those of [`DataDir::open`].
    pub(crate) fn data_dir(&self) -> Result<DataDir, BenchError> {
        self.place.data_dir(false)
    }
}

/// Whether the page cache has room for a file beside the budgets, as far as is known.
pub(crate) fn can_cache(file: u64, systems: usize, each: u64, available: u64) -> bool {
    let limit = memcg::own_limit().unwrap_or(u64::MAX);
    check_memory(file, systems, each, available.min(limit)).is_ok()
}

/// Opens a data file under a pager.
///
/// # Errors
/// [`BenchError::Open`].
pub(crate) fn open_view(pager: &Pager, file: &DataFile, write: bool) -> Result<View, BenchError> {
    Ok(data_options(write).open(pager, file.path())?)
}

/// A slice of threads that use a pager and flush nothing, with the pager's counts.
///
/// # Errors
/// Those of [`ThreadPool::slice`].
pub(crate) fn counted(
    pool: &mut ThreadPool,
    pager: &Pager,
    until: Until,
) -> Result<Slice, BenchError> {
    let before = pager.stat();
    let mut slice = pool.slice(until)?;
    count(&mut slice, &before, &pager.stat());
    Ok(slice)
}
