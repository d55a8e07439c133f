//! The trace, and a pass over it that finds the pages it touches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lowtide_report::interrupt;
use lowtide_report::progress::{Patient, Unit};
use lowtide_workload::trace::{Format, Names, Progress, Trace, TraceRecord, open};
use lowtide_workload::{OpKind, PageOp, SpaceKind};

use super::footprint::Footprint;
use super::paging::Repage;
use lowtide_bench::sim::error::SimError;

/// Records between two checks of progress and Ctrl-C.
const STRIDE: u64 = 4096;

/// A trace, which can be opened any number of times unless it is standard input.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    path: PathBuf,
    format: Option<Format>,
    repage: Repage,
}

/// The operations of a trace, in pages of the machine that plays them.
#[derive(Debug)]
pub(crate) struct Records {
    trace: Trace,
    repage: Repage,
}

/// The result of a pass over a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Survey {
    /// Number of operations.
    pub(crate) ops: u64,
    /// The spaces, by number.
    pub(crate) spaces: Vec<SpaceSurvey>,
    /// The numbers of all threads.
    pub(crate) threads: BTreeSet<u32>,
}

/// The result of a pass for one space.
#[derive(Clone, Debug)]
pub(crate) struct SpaceSurvey {
    pub(crate) kind: SpaceKind,
    /// One more than the last page of any operation.
    pub(crate) end: u64,
    footprint: Footprint,
}

impl Source {
    /// The trace in a file, in the given format or the one detected from its content.
    pub(crate) fn new(path: &Path, format: Option<Format>) -> Self {
        Self { path: path.to_owned(), format, repage: Repage::NONE }
    }

    /// The same trace for a machine with another page size.
    pub(crate) fn on(self, repage: Repage) -> Self {
        Self { repage, ..self }
    }

    /// Whether it can be read only once.
    pub(crate) fn is_standard_input(&self) -> bool {
        self.path == Path::new("-")
    }

    /// Its name as given.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Opens it from its beginning.
    ///
    /// # Errors
    /// [`SimError::Trace`].
    pub(crate) fn open(&self) -> Result<Trace, SimError> {
        Ok(open(&self.path, self.format)?)
    }

    /// Its operations from the first, in pages of the machine.
    ///
    /// # Errors
    /// [`SimError::Trace`].
    pub(crate) fn records(&self) -> Result<Records, SimError> {
        Ok(Records { trace: self.open()?, repage: self.repage })
    }

    /// Reads it to its end.
    ///
    /// # Errors
    /// [`SimError::Trace`] for the first error in it, [`SimError::Usage`] for a
    /// trace without operations, [`SimError::Interrupted`].
    pub(crate) fn survey(&self) -> Result<Survey, SimError> {
        let mut trace = self.records()?;
        let mut progress = reading(trace.progress());
        let mut survey = Survey::default();
        while let Some(record) = trace.next()? {
            if survey.ops.is_multiple_of(STRIDE) {
                progress.set(trace.progress().read_bytes);
                interrupt::check(|| format!("reading the trace {}", self.name()))?;
            }
            survey.ops += 1;
            survey.threads.extend(record.thread);
            let known = survey.spaces.len();
            if record.op.space.0 as usize >= known {
                let new = trace.names().spaces()[known..].iter();
                survey.spaces.extend(new.map(|space| SpaceSurvey::new(space.kind)));
            }
            survey.spaces[record.op.space.0 as usize].add(&record.op);
        }
        self.refuse_empty(survey.ops)?;
        Ok(survey)
    }

    /// Rejects a trace without operations.
    ///
    /// # Errors
    /// [`SimError::Usage`].
    pub(crate) fn refuse_empty(&self, ops: u64) -> Result<(), SimError> {
        if ops == 0 {
            return Err(SimError::usage(
                format!("the trace {} holds no operations", self.name()),
                "record a new trace, or choose another format with --format",
            ));
        }
        Ok(())
    }
}

impl Records {
    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// [`SimError::Trace`], those of [`Repage::op`].
    pub(crate) fn next(&mut self) -> Result<Option<TraceRecord>, SimError> {
        let Some(record) = self.trace.next().transpose()? else { return Ok(None) };
        Ok(Some(TraceRecord { op: self.repage.op(record.op)?, ..record }))
    }

    /// The spaces and tenants seen so far.
    pub(crate) fn names(&self) -> &Names {
        self.trace.names()
    }

    /// The position in the file.
    pub(crate) fn progress(&self) -> Progress {
        self.trace.progress()
    }
}

impl Survey {
    /// Different pages that are touched.
    pub(crate) fn footprint(&self) -> u64 {
        self.spaces.iter().map(|space| space.footprint.pages()).sum()
    }
}

impl SpaceSurvey {
    /// A space without operations so far.
    pub(crate) fn new(kind: SpaceKind) -> Self {
        Self { kind, end: 0, footprint: Footprint::default() }
    }

    /// Adds an operation. `sync` and `free` do not count as touching a page.
    pub(crate) fn add(&mut self, op: &PageOp) {
        self.end = self.end.max(op.last_page() + 1);
        if !matches!(op.kind, OpKind::Sync | OpKind::Free) {
            self.footprint.touch(op.page, op.pages.into());
        }
    }

    /// Different pages that are touched.
    pub(crate) const fn pages(&self) -> u64 {
        self.footprint.pages()
    }
}

/// A bar over the bytes of a trace's file.
pub(crate) fn reading(progress: Progress) -> Patient {
    Patient::new("reading the trace", Unit::Bytes, progress.file_bytes.unwrap_or(0))
}
