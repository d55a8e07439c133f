//! The job: everything that determines the sequence of operations, in a form that can be sent to a
//! peer.
//!
//! All systems of a run have the same job, and players of equal jobs make equal accesses in every
//! process.

use std::num::NonZeroU32;

use lowtide_report::tally::{Slice, Tally};
use lowtide_workload::op::Access;
use lowtide_workload::ycsb::Letter;
use lowtide_workload::{Gather, PageOp, RandomRead, Scan, Workload, Ycsb};
use serde::{Deserialize, Serialize};

use super::gather::{GatherPlayer, Rows};
use super::page::PagePlayer;
use super::record::RecordPlayer;
use crate::access::DataAccess;
use crate::content::{Content, UNIT_BYTES};
use crate::error::BenchError;
use crate::play::popularity::Popularity;
use crate::thread_pool::Player;

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
    /// Whether operations write.
    pub writes: bool,
    /// Whether lowtide reads ahead. Without, every miss is an access of the job.
    pub reads_ahead: bool,
    /// Pages from one read of a scan to the next.
    pub stride: u64,
    /// The rows of `gather`.
    pub rows: Option<Rows>,
    /// What the job of a command's own script has besides.
    pub own: Option<serde_json::Value>,
}

/// Data shared by the players of a job, made once per process. A command may have jobs of its own.
pub trait Script: Clone + Send + Sync + 'static {
    /// The script of a job, also in the process of a peer.
    ///
    /// # Errors
    /// The reason why the job cannot be played.
    fn of(job: &Job) -> Result<Self, BenchError>;

    /// One thread's player.
    fn player<D: DataAccess>(&self, job: &Job, thread: u32, access: D) -> Box<dyn Player>;

    /// One slice: `operations` plays it, and `access` is for what happens beside it.
    ///
    /// # Errors
    /// Those of `operations`.
    fn slice<D: DataAccess>(
        &self,
        _access: &mut D,
        operations: impl FnOnce() -> Result<Vec<Tally>, BenchError>,
    ) -> Result<Slice, BenchError> {
        Ok(Slice::of(&operations()?))
    }
}

/// The scripts of the shared workloads.
#[derive(Clone, Debug)]
pub enum Operations {
    Ycsb(Ycsb),
    Random(RandomRead),
    /// Random rows, and the bytes of a row.
    Gather(Gather, usize),
    Scan(Scan),
}

impl Script for Operations {
    /// # Errors
    /// [`BenchError::Distribution`] for a file without a single record, page or row.
    fn of(job: &Job) -> Result<Self, BenchError> {
        let pages = job.data_bytes / job.page_bytes;
        let workload: Workload = job
            .workload
            .parse()
            .map_err(|error| BenchError::usage(format!("{error}"), "choose one"))?;
        Ok(match (workload.ycsb_letter(), workload) {
            (Some(letter), _) => Self::Ycsb(job.records(letter)?),
            (None, Workload::RandomRead) => {
                Self::Random(RandomRead::new(pages, Access::Mapped, job.seed)?)
            }
            (None, Workload::Gather) => {
                let rows = job.rows.ok_or_else(|| {
                    BenchError::usage("gather needs rows", "say their size with --row")
                })?;
                let row_bytes = usize::try_from(rows.bytes).unwrap_or(usize::MAX);
                Self::Gather(rows.reads(job.data_bytes, job.seed)?, row_bytes)
            }
            (None, Workload::Scan) => {
                Self::Scan(Scan::new(pages, NonZeroU32::MIN, Access::Mapped)?)
            }
            (None, _) => {
                return Err(BenchError::usage(
                    format!("{workload} has no operations here"),
                    "choose another workload",
                ));
            }
        })
    }

    fn player<D: DataAccess>(&self, job: &Job, thread: u32, access: D) -> Box<dyn Player> {
        let page_bytes = usize::try_from(job.page_bytes).unwrap_or(usize::MAX);
        match self {
            Self::Ycsb(ycsb) => {
                Box::new(RecordPlayer::new(access, ycsb.stream(thread, job.threads)))
            }
            Self::Random(random) => {
                let stream = random.stream(thread, job.threads);
                Box::new(PagePlayer::new(access, stream, page_bytes, job.content))
            }
            Self::Gather(gather, row_bytes) => {
                let stream = gather.stream(thread, job.threads);
                Box::new(GatherPlayer::new(access, stream, *row_bytes, job.content))
            }
            Self::Scan(scan) => {
                let (share, stride) = (scan.share(thread, job.threads), job.stride);
                let stream = scan.stream(thread, job.threads).map(move |op| {
                    let at = strided(op.page - share.start, share.end - share.start, stride);
                    PageOp { page: share.start + at, ..op }
                });
                Box::new(PagePlayer::new(access, stream, page_bytes, job.content))
            }
        }
    }
}

impl Job {
    /// The operations on records of a workload.
    ///
    /// # Errors
    /// [`BenchError::Distribution`] for a file without a single record.
    pub fn records(&self, letter: Letter) -> Result<Ycsb, BenchError> {
        let records = self.data_bytes / UNIT_BYTES as u64;
        Ok(Ycsb::new(letter, records, self.popularity.into(), self.seed)?)
    }

    /// One player for each thread, each with its own access to the data.
    pub fn players<D: DataAccess>(
        &self,
        script: &impl Script,
        mut access: impl FnMut() -> D,
    ) -> Vec<Box<dyn Player>> {
        (0..self.threads).map(|thread| script.player(self, thread, access())).collect()
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
