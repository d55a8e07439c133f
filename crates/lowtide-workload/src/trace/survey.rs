//! One pass over a trace before it is played: the sizes of its spaces.
//!
//! A player has to create its files before the first operation, but their sizes are known only at
//! the end of a trace. So a trace is read twice; the first pass also finds every error before any
//! operation is played.

use super::error::TraceFileError;
use super::format::Format;
use super::open::{Trace, open};
use crate::op::{OpKind, Space};
use std::collections::BTreeSet;
use std::path::Path;

/// What one space of a trace is used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceSurvey {
    /// The space.
    pub space: Space,
    /// The highest page that any operation touches.
    pub max_page: u64,
    /// Operations on it.
    pub ops: u64,
    /// Operations on it that write.
    pub writes: u64,
}

impl SpaceSurvey {
    const fn new(space: Space) -> Self {
        Self { space, max_page: 0, ops: 0, writes: 0 }
    }

    /// How many pages the space must have.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        // The readers refuse operations that end beyond the last page number.
        self.max_page.saturating_add(1)
    }
}

/// What a trace holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Operations in all.
    pub ops: u64,
    /// Operations that write.
    pub writes: u64,
    /// Operations that ask for durability.
    pub syncs: u64,
    /// The spaces, indexed by their number.
    pub spaces: Vec<SpaceSurvey>,
    /// The numbers of all threads.
    pub threads: BTreeSet<u32>,
    /// The names of all tenants, indexed by their number.
    pub tenants: Vec<String>,
    /// The first and the last time, for a trace with times.
    pub time_ns: Option<(u64, u64)>,
}

impl Survey {
    /// Reads the rest of `trace`.
    ///
    /// # Errors
    /// The first error of the trace.
    pub fn of(trace: &mut Trace) -> Result<Self, TraceFileError> {
        let mut survey = Self::default();
        while let Some(record) = trace.next().transpose()? {
            let op = record.op;
            let writes = u64::from(op.kind.writes());
            survey.ops += 1;
            survey.writes += writes;
            survey.syncs += u64::from(op.kind == OpKind::Sync);
            survey.threads.extend(record.thread);
            if let Some(time) = record.time_ns {
                let (first, last) = survey.time_ns.unwrap_or((time, time));
                survey.time_ns = Some((first.min(time), last.max(time)));
            }
            let number = op.space.0 as usize;
            if number >= survey.spaces.len() {
                let new = &trace.names().spaces()[survey.spaces.len()..];
                survey.spaces.extend(new.iter().cloned().map(SpaceSurvey::new));
            }
            let space = &mut survey.spaces[number];
            space.max_page = space.max_page.max(op.last_page());
            space.ops += 1;
            space.writes += writes;
        }
        survey.tenants = trace.names().tenants().to_vec();
        Ok(survey)
    }
}

/// Surveys the trace at `path`, opened as by [`open`]. Reads it to its end.
///
/// # Errors
/// [`TraceFileError`] when it cannot be opened or anything in it is wrong.
pub fn survey(path: &Path, format: Option<Format>) -> Result<Survey, TraceFileError> {
    Survey::of(&mut open(path, format)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_are_sized_by_their_furthest_operation() {
        let text = "op,space,page,pages,thread,tenant,time_ns\n\
                    read,file:a,3,1,0,x,50\n\
                    store,anon:b,10,5,7,y,20\n\
                    write,file:a,1,2,7,x,\n\
                    sync,file:a,0,1,,,90\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let survey = survey(file.path(), None).unwrap();
        assert_eq!((survey.ops, survey.writes, survey.syncs), (4, 2, 1));
        assert_eq!(
            survey.spaces,
            [
                SpaceSurvey { space: Space::file("a"), max_page: 3, ops: 3, writes: 1 },
                SpaceSurvey { space: Space::anon("b"), max_page: 14, ops: 1, writes: 1 },
            ]
        );
        assert_eq!(survey.spaces[1].pages(), 15);
        assert_eq!(survey.threads, BTreeSet::from([0, 7]));
        assert_eq!(survey.tenants, ["x", "y"]);
        assert_eq!(survey.time_ns, Some((20, 90)));
    }

    #[test]
    fn an_error_names_file_and_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "op,space,page,pages\nread,file:a,0,0\n").unwrap();
        let error = survey(file.path(), None).unwrap_err().to_string();
        assert!(
            error.contains(&file.path().display().to_string()) && error.contains("line 2"),
            "{error}"
        );
    }
}
