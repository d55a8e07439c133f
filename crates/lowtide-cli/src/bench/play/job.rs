//! The job: everything that determines the sequence of operations, in a form that can be sent to a
//! peer.
//!
//! All systems of a run have the same job, and players of equal jobs make equal accesses in every
//! process.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lowtide_workload::op::Access;
use lowtide_workload::trace::UnknownFormat;
use lowtide_workload::ycsb::Letter;
use lowtide_workload::{Gather, PageOp, RandomRead, Scan, Workload, Ycsb};
use serde::{Deserialize, Serialize};

use super::checkpoint::{CheckpointedPlayer, Checkpointer};
use super::gather::{GatherPlayer, Rows};
use super::page::PagePlayer;
use super::record::RecordPlayer;
use super::replay::{Recording, ReplayPlayer};
use crate::bench::access::DataAccess;
use crate::bench::content::{Content, UNIT_BYTES};
use crate::bench::error::BenchError;
use crate::bench::play::popularity::Popularity;
use crate::bench::thread_pool::Player;

/// Everything that determines the operations.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The workload's name in the catalog.
    pub workload: String,
    /// Popularity of records.
    pub popularity: Popularity,
    /// The content of the data file.
    pub content: Content,
    /// Bytes used from the start of the file.
    pub data_bytes: u64,
    /// Bytes of a page of the workload.
    pub page_bytes: u64,
    pub threads: u32,
    /// Records or pages per call.
    pub batch: u32,
    /// Seed of the streams.
    pub seed: u64,
    /// The trace to replay.
    pub trace: Option<PathBuf>,
    /// The name of its format; `None` to detect it from the content.
    pub trace_format: Option<String>,
    /// Whether operations write.
    pub writes: bool,
    /// Percentage of updates, unless it is that of the workload.
    pub update_percent: Option<u32>,
    /// Seconds between checkpoints, if there are any.
    pub checkpoint_seconds: Option<f64>,
    /// Pages from one read of a scan to the next.
    pub stride: u64,
    /// The rows of `gather`.
    pub rows: Option<Rows>,
}

/// Data shared by the players of a job, made once per process.
#[derive(Clone, Debug)]
pub enum Script {
    Ycsb(Ycsb),
    /// Records, with checkpoints.
    Mixed(Ycsb, Checkpointer),
    Random(RandomRead),
    /// Random rows, and the bytes of a row.
    Gather(Gather, usize),
    Scan(Scan),
    Replay(Arc<Recording>),
}

impl Script {
    /// The checkpointer, if there are checkpoints.
    pub const fn checkpointer(&self) -> Option<&Checkpointer> {
        match self {
            Self::Mixed(_, checkpointer) => Some(checkpointer),
            _ => None,
        }
    }
}

impl Job {
    /// The script of this job. Reads the whole trace of a replay, unless `recording` has it
    /// already.
    ///
    /// # Errors
    /// [`BenchError::Distribution`] for a file without a single record, page or row, those of
    /// [`Recording::read`].
    pub fn script(&self, recording: Option<Arc<Recording>>) -> Result<Script, BenchError> {
        let pages = self.data_bytes / self.page_bytes;
        let records = |letter: Letter| {
            let records = self.data_bytes / UNIT_BYTES as u64;
            let ycsb = Ycsb::new(letter, records, self.popularity.into(), self.seed)?;
            let percent = self.update_percent.unwrap_or(letter.update_percent());
            Ok::<_, BenchError>(ycsb.with_updates(percent))
        };
        let workload: Workload = self
            .workload
            .parse()
            .map_err(|error| BenchError::usage(format!("{error}"), "choose one"))?;
        Ok(match (workload.ycsb_letter(), workload) {
            (Some(letter), _) => match self.checkpoint_seconds {
                None => Script::Ycsb(records(letter)?),
                Some(seconds) => {
                    let checkpointer = Checkpointer::every(Duration::from_secs_f64(seconds));
                    Script::Mixed(records(letter)?, checkpointer)
                }
            },
            (None, Workload::RandomRead) => {
                Script::Random(RandomRead::new(pages, Access::Mapped, self.seed)?)
            }
            (None, Workload::Gather) => {
                let rows = self.rows.ok_or_else(|| {
                    BenchError::usage("gather needs rows", "say their size with --row")
                })?;
                let row_bytes = usize::try_from(rows.bytes).unwrap_or(usize::MAX);
                Script::Gather(rows.reads(self.data_bytes, self.seed)?, row_bytes)
            }
            (None, Workload::Scan) => {
                Script::Scan(Scan::new(pages, NonZeroU32::MIN, Access::Mapped)?)
            }
            (None, _) => Script::Replay(match (recording, &self.trace) {
                (Some(recording), _) => recording,
                (None, Some(path)) => {
                    let format = self.trace_format.as_deref().map(str::parse).transpose();
                    let format = format.map_err(|error: UnknownFormat| {
                        BenchError::usage(error.to_string(), "choose one")
                    })?;
                    Arc::new(Recording::read(path, format)?)
                }
                (None, None) => {
                    return Err(BenchError::usage(
                        format!("{workload} needs a trace"),
                        "name one with --trace FILE",
                    ));
                }
            }),
        })
    }

    /// One player for each thread, each with its own access to the data.
    pub fn players<D: DataAccess>(
        &self,
        script: &Script,
        mut access: impl FnMut() -> D,
    ) -> Vec<Box<dyn Player>> {
        let page_bytes = usize::try_from(self.page_bytes).unwrap_or(usize::MAX);
        (0..self.threads)
            .map(|thread| -> Box<dyn Player> {
                let access = access();
                match script {
                    Script::Ycsb(ycsb) => {
                        Box::new(RecordPlayer::new(access, ycsb.stream(thread, self.threads)))
                    }
                    Script::Mixed(ycsb, checkpointer) => {
                        let stream = ycsb.stream(thread, self.threads);
                        Box::new(CheckpointedPlayer::new(access, stream, checkpointer.clone()))
                    }
                    Script::Random(random) => {
                        let stream = random.stream(thread, self.threads);
                        Box::new(PagePlayer::new(access, stream, page_bytes, self.content))
                    }
                    Script::Gather(gather, row_bytes) => {
                        let stream = gather.stream(thread, self.threads);
                        Box::new(GatherPlayer::new(access, stream, *row_bytes, self.content))
                    }
                    Script::Scan(scan) => {
                        let (share, stride) = (scan.share(thread, self.threads), self.stride);
                        let stream = scan.stream(thread, self.threads).map(move |op| {
                            let at =
                                strided(op.page - share.start, share.end - share.start, stride);
                            PageOp { page: share.start + at, ..op }
                        });
                        Box::new(PagePlayer::new(access, stream, page_bytes, self.content))
                    }
                    Script::Replay(trace) => {
                        Box::new(ReplayPlayer::new(access, Arc::clone(trace), page_bytes))
                    }
                }
            })
            .collect()
    }
}

/// The page that is read as number `nth` of `pages`, each `stride` pages behind the last: pages 0,
/// `stride`, twice `stride` and so on, then those from page 1 on. Each page has its turn once.
const fn strided(nth: u64, pages: u64, stride: u64) -> u64 {
    let (rows, longer) = (pages / stride, pages % stride);
    let in_longer = longer * (rows + 1);
    if nth < in_longer {
        nth / (rows + 1) + nth % (rows + 1) * stride
    } else {
        // There are rows, or all would be longer ones.
        let nth = nth - in_longer;
        longer + nth / rows + nth % rows * stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stride_visits_every_page_once() {
        for (pages, stride) in [(1, 1), (10, 1), (10, 3), (12, 4), (7, 7), (5, 9)] {
            let order: Vec<u64> = (0..pages).map(|nth| strided(nth, pages, stride)).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..pages).collect::<Vec<_>>(), "{pages} by {stride}: {order:?}");
            let rows = (pages / stride) as usize;
            assert!(order.windows(2).take(rows.saturating_sub(1)).all(|w| w[1] == w[0] + stride));
        }
    }
}
