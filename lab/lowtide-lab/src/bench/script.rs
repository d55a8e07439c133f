//! The operations of comparisons that only the laboratory plays, beside those of `lowtide bench`:
//! `replay`, and `mixed` with its checkpoints. The process of a peer plays the same.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lowtide_bench::access::DataAccess;
use lowtide_bench::error::BenchError;
use lowtide_bench::play::job::{Job, Operations, Script};
use lowtide_bench::thread_pool::Player;
use lowtide_report::tally::{Slice, Tally};
use lowtide_workload::trace::Format;
use lowtide_workload::{Letter, Ycsb};
use serde::{Deserialize, Serialize};

use super::checkpoint::{CheckpointedPlayer, Checkpointer};
use super::replay::recording::{Recording, ReplayPlayer};

/// What such a job has besides, in a form that can be sent to a peer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Own {
    /// A trace, and the name of its format, unless it is to be detected.
    Replay { trace: PathBuf, format: Option<String> },
    /// Records, with a checkpoint at intervals, and the percentage of updates.
    Mixed { every: Duration, updates: u32 },
}

impl Own {
    /// The form of a job.
    pub(crate) fn of_job(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self).ok()
    }
}

/// The operations of any comparison.
#[derive(Clone, Debug)]
pub(crate) enum LabScript {
    /// Of `lowtide bench`.
    Shared(Operations),
    Replay(Arc<Recording>),
    Mixed(Ycsb, Checkpointer),
}

impl Script for LabScript {
    fn of(job: &Job) -> Result<Self, BenchError> {
        let Some(own) = &job.own else { return Operations::of(job).map(Self::Shared) };
        let own = serde_json::from_value(own.clone())
            .map_err(|error| BenchError::usage(error.to_string(), "start the same command"))?;
        Ok(match own {
            Own::Replay { trace, format } => {
                let format = format.map(|name| name.parse::<Format>()).transpose();
                let format =
                    format.map_err(|error| BenchError::usage(error.to_string(), "choose one"))?;
                Self::Replay(Arc::new(Recording::read(&trace, format)?))
            }
            Own::Mixed { every, updates } => {
                let ycsb = job.records(Letter::B)?.with_updates(updates);
                Self::Mixed(ycsb, Checkpointer::every(every))
            }
        })
    }

    fn player<D: DataAccess>(&self, job: &Job, thread: u32, access: D) -> Box<dyn Player> {
        match self {
            Self::Shared(operations) => operations.player(job, thread, access),
            Self::Replay(trace) => {
                let page_bytes = usize::try_from(job.page_bytes).unwrap_or(usize::MAX);
                Box::new(ReplayPlayer::new(access, Arc::clone(trace), page_bytes))
            }
            Self::Mixed(ycsb, checkpointer) => {
                let stream = ycsb.stream(thread, job.threads);
                Box::new(CheckpointedPlayer::new(access, stream, checkpointer.clone()))
            }
        }
    }

    fn slice<D: DataAccess>(
        &self,
        access: &mut D,
        operations: impl FnOnce() -> Result<Vec<Tally>, BenchError>,
    ) -> Result<Slice, BenchError> {
        match self {
            Self::Mixed(_, checkpointer) => {
                let (tallies, checkpoints) = checkpointer.beside(access, operations)?;
                Ok(Slice { checkpoints: Some(checkpoints), ..Slice::of(&tallies) })
            }
            _ => Ok(Slice::of(&operations()?)),
        }
    }
}
