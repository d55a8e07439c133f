//! The workloads: streams of record operations, made of `lowtide-workload`'s own.
//!
//! | name | operations |
//! |---|---|
//! | `zipf` | reads of records, zipf 0.99, popular ones scattered over the file |
//! | `uniform` | reads, all records alike: hits are as many as memory allows, for every policy |
//! | `update-5`, `update-20` | zipf, of which 5 or 20 % replace the record |
//! | `scan-zipf` | zipf reads, of which a fifth is of the next page of the thread's share |

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::layout::RecordLayout;
use lowtide_workload::op::Access;
use lowtide_workload::scan::ScanStream;
use lowtide_workload::ycsb::YcsbStream;
use lowtide_workload::{
    Distribution, DistributionError, Letter, RecordOp, RecordOpKind, Scan, SplitMix64, Ycsb,
};

/// Operations of a scan in 100, where there is one.
const SCAN_PERCENT: u32 = 20;
/// Seed of all streams: the runs of all systems access the same records.
const SEED: u64 = 42;

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Zipf reads.
    Zipf,
    /// Uniform reads.
    Uniform,
    /// Zipf, with this share of updates in percent.
    Update(u32),
    /// Zipf reads and scans.
    ScanZipf,
}

impl Work {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Zipf, Self::Uniform, Self::Update(5), Self::Update(20), Self::ScanZipf];

    /// Whether the file is written.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Update(_))
    }

    /// The streams of a file of `records` records.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] for an empty file.
    pub fn streams(self, records: u64, layout: RecordLayout) -> Result<Streams, DistributionError> {
        let (distribution, updates) = match self {
            Self::Uniform => (Distribution::Uniform, 0),
            Self::Zipf | Self::ScanZipf => (Distribution::default(), 0),
            Self::Update(percent) => (Distribution::default(), percent),
        };
        let ycsb = Ycsb::new(Letter::C, records, distribution, SEED)?.with_updates(updates);
        let pages = layout.pages_for(records);
        let scan = (self == Self::ScanZipf)
            .then(|| Scan::new(pages, NonZeroU32::MIN, Access::Mapped))
            .transpose()?;
        Ok(Streams { ycsb, scan, records_per_page: records / pages })
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zipf => f.write_str("zipf"),
            Self::Uniform => f.write_str("uniform"),
            Self::Update(percent) => write!(f, "update-{percent}"),
            Self::ScanZipf => f.write_str("scan-zipf"),
        }
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|work| work.to_string() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(Self::to_string).collect();
            format!("there is no workload `{text}`; choose of {}", names.join(", "))
        })
    }
}

/// The operations of all threads.
#[derive(Clone, Debug)]
pub struct Streams {
    ycsb: Ycsb,
    scan: Option<Scan>,
    records_per_page: u64,
}

impl Streams {
    /// The operations of thread number `thread` of `threads`.
    #[must_use]
    pub fn stream(&self, thread: u32, threads: u32) -> Stream {
        Stream {
            ycsb: self.ycsb.stream(thread, threads),
            scan: self.scan.map(|scan| scan.stream(thread, threads)),
            rng: SplitMix64::new(SEED ^ 0x5343_414e).fork(thread.into()),
            records_per_page: self.records_per_page,
        }
    }
}

/// The operations of one thread; they never end.
#[derive(Clone, Debug)]
pub struct Stream {
    ycsb: YcsbStream,
    scan: Option<ScanStream>,
    /// Decides which operations are the scan's.
    rng: SplitMix64,
    records_per_page: u64,
}

impl Stream {
    /// The next operation.
    #[inline]
    pub fn next_op(&mut self) -> RecordOp {
        if let Some(scan) = &mut self.scan
            && self.rng.percent(SCAN_PERCENT)
            && let Some(op) = scan.next()
        {
            return RecordOp { kind: RecordOpKind::Read, key: op.page * self.records_per_page };
        }
        self.ycsb.next_op()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_scan_zipf_is_in_order() {
        let layout = RecordLayout::new(4096).unwrap();
        let streams = Work::ScanZipf.streams(40_000, layout).unwrap();
        let mut stream = streams.stream(1, 4);
        let mut next = 10_000;
        let mut scanned = 0;
        for _ in 0..1000 {
            if stream.next_op().key == next {
                (next, scanned) = (next + 4, scanned + 1);
            }
        }
        assert!((150..=260).contains(&scanned), "{scanned}");
    }

    #[test]
    fn updates_have_their_share_and_names_are_read() {
        for work in Work::ALL {
            assert_eq!(work.to_string().parse(), Ok(work));
            let streams = work.streams(4000, RecordLayout::new(1024).unwrap()).unwrap();
            let mut stream = streams.stream(0, 1);
            let updates =
                (0..10_000).filter(|_| stream.next_op().kind == RecordOpKind::Update).count();
            let percent = if let Work::Update(percent) = work { percent as usize } else { 0 };
            assert!(updates.abs_diff(100 * percent) <= 10 * percent, "{work}: {updates}");
        }
        assert!("zip".parse::<Work>().is_err());
    }
}
