//! Random rows: `gather`.
//!
//! A call of the workload is a batch of rows. Their offsets are given in the order in which they
//! were drawn, as those of a program are, and each row is checked in place: copied by systems that
//! have to, referred to by those that need not.

use std::hint::black_box;

use clap::ValueEnum;
use lowtide_report::tally::Tally;
use lowtide_workload::gather::GatherStream;
use lowtide_workload::{DistributionError, Gather};
use serde::{Deserialize, Serialize};

use crate::access::DataAccess;
use crate::content::Content;
use crate::thread_pool::Player;

/// Bytes of a cache line. In a file of unknown content, one byte of each line is touched, so that
/// the data is really read.
const LINE_BYTES: usize = 64;

/// Which rows are read more often than others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Skew {
    Uniform,
    // 90 % of the reads are of 5 % of the rows, which are scattered over the file.
    Hot,
    // 90 % of the reads are of the first 5 % of the file.
    HotStart,
}

impl Skew {
    /// The name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Hot => "hot",
            Self::HotStart => "hot-start",
        }
    }

    /// The same for a reader.
    pub const fn explained(self) -> &'static str {
        match self {
            Self::Uniform => "all alike",
            Self::Hot => "90 % of the reads are of 5 % of the rows, scattered over the file",
            Self::HotStart => "90 % of the reads are of the first 5 % of the file",
        }
    }
}

/// The rows of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    /// Bytes of a row, a multiple of a word.
    pub bytes: u64,
    /// Which rows are read more often.
    pub skew: Skew,
}

impl Rows {
    /// The reads of rows in a file of `data_bytes`.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] for a file without a whole row.
    pub fn reads(self, data_bytes: u64, seed: u64) -> Result<Gather, DistributionError> {
        let all = Gather::new(data_bytes / self.bytes, seed)?;
        Ok(match self.skew {
            Skew::Uniform => all,
            Skew::Hot => all.with_hot_rows(),
            Skew::HotStart => all.with_hot_start(),
        })
    }
}

/// One thread of reads.
pub struct GatherPlayer<D> {
    access: D,
    stream: GatherStream,
    row_bytes: usize,
    content: Content,
    offsets: Vec<u64>,
}

impl<D: DataAccess> GatherPlayer<D> {
    /// A player of `stream`, whose rows have `row_bytes`.
    pub fn new(access: D, stream: GatherStream, row_bytes: usize, content: Content) -> Self {
        Self { access, stream, row_bytes, content, offsets: Vec::new() }
    }
}

impl<D: DataAccess> Player for GatherPlayer<D> {
    fn step(&mut self, most: u64, tally: &mut Tally) -> u64 {
        let (row_bytes, content) = (self.row_bytes, self.content);
        let rows = usize::try_from(most).unwrap_or(usize::MAX);
        self.offsets.clear();
        self.offsets.extend(self.stream.by_ref().take(rows).map(|row| row * row_bytes as u64));
        let offsets = self.offsets.as_slice();
        tally.asked_bytes += (row_bytes * offsets.len()) as u64;
        let before = tally.verified + tally.errors;
        let done = self.access.load_many(offsets, row_bytes, |index, bytes| {
            check(content, offsets[index], bytes, tally);
        });
        if let Err(error) = done {
            tally.fail(&format_args!("a batch of {} rows: {error}", offsets.len()));
        } else if content != Content::Unknown
            && tally.verified + tally.errors != before + offsets.len() as u64
        {
            tally
                .fail(&format_args!("a batch of {} rows did not give each of them", offsets.len()));
        }
        offsets.len() as u64
    }
}

#[inline]
fn check(content: Content, offset: u64, bytes: &[u8], tally: &mut Tally) {
    if content == Content::Unknown {
        black_box(bytes.iter().step_by(LINE_BYTES).fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
    } else {
        tally.check(content.verify_words(offset, bytes));
    }
}
