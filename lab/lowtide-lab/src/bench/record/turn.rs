//! The extra turn that is recorded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lowtide::Size;
use lowtide_report::interrupt;
use lowtide_report::table::thousands;
use lowtide_report::tally::Slice;
use lowtide_workload::OpKind;
use lowtide_workload::trace::{Columns, Head, TraceWriter, check_path, create};

use super::log::Log;
use super::tap::Tap;
use lowtide_bench::access::{DataAccess, ViewAccess};
use lowtide_bench::compare::plan::Encore;
use lowtide_bench::error::BenchError;
use lowtide_bench::play::job::{Job, Script};
use lowtide_bench::thread_pool::{ThreadPool, Until};

/// A trace to be recorded. Its file exists under a temporary name, so that an unwritable path is
/// detected before the first round. Drop without a finished turn removes the file.
#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    writer: Option<TraceWriter>,
}

impl Recorder {
    /// Rejects an invalid path for a trace, before data files are created.
    ///
    /// # Errors
    /// [`BenchError::Trace`].
    pub(crate) fn new(path: &Path) -> Result<Self, BenchError> {
        check_path(path)?;
        Ok(Self { path: path.to_owned(), writer: None })
    }
}

impl<S: Script> Encore<S> for Recorder {
    /// Creates the file of a trace on pages of `page_bytes`.
    ///
    /// # Errors
    /// [`BenchError::Trace`].
    fn prepare(&mut self, page_bytes: u64) -> Result<(), BenchError> {
        let columns = Columns { time_ns: true, thread: true, tenant: false };
        let head = Head { columns, page_bytes: Some(page_bytes) };
        self.writer = Some(create(&self.path, head)?);
        Ok(())
    }

    /// Plays and records one turn of `job` through `access`, and returns a line about the trace.
    ///
    /// # Errors
    /// [`BenchError::Trace`] when the trace cannot be written, [`BenchError::Wrong`] when an
    /// operation failed, [`BenchError::Interrupted`], and those of [`ThreadPool`]. No trace is left
    /// then.
    fn play(
        mut self: Box<Self>,
        label: &str,
        mut access: ViewAccess,
        job: &Job,
        script: &S,
        until: Until,
    ) -> Result<String, BenchError> {
        let Some(writer) = self.writer.take() else { return Ok(String::new()) };
        let log = Arc::new(Log::start(writer)?);
        let mut threads = 0..;
        let players = job.players(script, || {
            let thread = threads.next().unwrap_or_default();
            Tap::new(access.clone(), Arc::clone(&log), thread, job.page_bytes)
        });
        let mut slice = {
            let mut pool = ThreadPool::start(players)?;
            Slice::of(&pool.run(until, job.batch)?)
        };
        if job.writes {
            let pages = u32::try_from(job.data_bytes / job.page_bytes).unwrap_or(u32::MAX);
            // If the writer has failed, `finish` returns the reason.
            let _ = log.note(0, OpKind::Sync, [(0, pages)]);
            if let Err(error) = access.flush() {
                slice.errors += 1;
                slice.first_error.get_or_insert_with(|| format!("flush: {error}"));
            }
        }
        interrupt::check(|| format!("recording {label}"))?;
        // A failed writer makes operations fail, so its error comes first.
        let (writer, noted) = log.finish()?;
        if slice.errors > 0 {
            let first = slice.first_error.unwrap_or_else(|| "not described".into());
            return Err(BenchError::Wrong {
                system: label.to_owned(),
                errors: slice.errors,
                first,
            });
        }
        writer.finish()?;
        Ok(format!(
            "{} accesses of {} operations of {label} are recorded in {}, on pages of {}",
            thousands(noted as f64),
            thousands(slice.ops as f64),
            self.path.display(),
            Size::new(job.page_bytes)
        ))
    }
}
