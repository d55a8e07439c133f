//! The miss-ratio curve of a tenant or a file, as it is published.

use serde::{Deserialize, Serialize};

/// How many misses there would have been at other sizes of memory, under strict LRU, from a sample
/// of the pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Curve {
    /// Seconds that it covers. Older accesses count less and less.
    pub seconds: f64,
    /// Accesses that it stands for. Where an access leaves no trace but a bit, several between two
    /// looks are one.
    pub accesses: f64,
    /// Accesses to pages that were never accessed before: they miss at any size.
    pub cold: f64,
    /// Pages that were sampled.
    pub samples: u64,
    /// Standard error of the ratio of misses, as a share of accesses: 0.01 is one point.
    pub error: f64,
    /// Accesses that did miss.
    pub missed: f64,
    /// Bytes of different pages that are accessed between two looks at the sample, lately. Sizes
    /// are known to within about half of that.
    pub at_once_bytes: u64,
    /// The curve, by growing size; the first is at 0 bytes, the last has all pages.
    pub points: Vec<Point>,
}

/// One size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Bytes of memory.
    pub bytes: u64,
    /// Misses at this size, cold ones included.
    pub misses: f64,
}
