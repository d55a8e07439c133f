//! The kernel's own ways to a data file, in a process under a memory cgroup.

use lowtide_report::tally::Slice;

use super::process::Process;
use super::protocol::{Reach, Request};
use crate::datafile::DataFile;
use crate::error::BenchError;
use crate::play::job::Job;
use crate::system::System;
use crate::thread_pool::Until;

/// A child that reads the file in one of these ways.
pub struct KernelPeer {
    name: &'static str,
    reach: Reach,
    process: Process,
}

impl KernelPeer {
    /// Starts a peer on `file` with a budget of `max_bytes`. First drops the file from the page
    /// cache, because pages already cached are charged to no budget.
    ///
    /// # Errors
    /// Those of [`Process::start`] and [`DataFile::drop_page_cache`].
    pub fn start(
        name: &'static str,
        reach: Reach,
        file: &DataFile,
        job: &Job,
        max_bytes: u64,
    ) -> Result<Self, BenchError> {
        file.drop_page_cache()?;
        let (job, path) = (Box::new(job.clone()), file.path().to_owned());
        let mut process =
            Process::start(name, max_bytes, Some(&Request::Prepare { job, path, reach }))?;
        process.ask(&Request::Open)?;
        Ok(Self { name, reach, process })
    }
}

impl System for KernelPeer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn keeps_pages(&self) -> bool {
        self.reach != Reach::Direct
    }

    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        self.process.play(&Request::Run { until })
    }
}
