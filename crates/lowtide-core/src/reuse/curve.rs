//! The result: misses by size.

/// Misses at one size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Pages of memory.
    pub pages: u64,
    /// Accesses that miss.
    pub misses: f64,
}

/// Misses under strict LRU at every size, from a sample.
#[derive(Clone, PartialEq, Debug)]
pub struct ReuseCurve {
    /// From the first to the last access.
    pub seconds: f64,
    /// Accesses, as far as they can be counted: several to one page within an interval are one.
    /// Known less well than the misses, since few pages may have most of the accesses.
    pub accesses: f64,
    /// First accesses of pages: they miss at any size.
    pub cold: f64,
    /// Accesses that had to read.
    pub missed: f64,
    /// Pages in the sample.
    pub samples: u64,
    /// Standard error of the misses at a size, in misses: at most this where the size has room for
    /// a sixteenth of all pages.
    pub error: f64,
    /// The same of their share of the accesses, where the accesses are those of this curve.
    pub error_of_ratio: f64,
    /// By growing size, from none on. Between two points the misses are those of the smaller one.
    pub points: Vec<Point>,
    /// The same, of accesses that count half after two minutes.
    pub recent: Vec<Point>,
    /// Different pages that were accessed.
    pub footprint: u64,
    /// Different pages that are accessed in one interval, lately. Below this size the curve says
    /// too little.
    pub at_once: u64,
}

impl ReuseCurve {
    /// Misses with memory for this number of pages.
    #[must_use]
    pub fn misses(&self, pages: u64) -> f64 {
        at(&self.points, pages)
    }

    /// The share of accesses that miss with memory for this number of pages.
    #[must_use]
    pub fn ratio(&self, pages: u64) -> f64 {
        self.misses(pages) / self.accesses
    }

    /// The fewest pages with which at most this share of the accesses misses, besides the first
    /// accesses of pages.
    #[must_use]
    pub fn pages_for(&self, ratio: f64) -> u64 {
        let most = self.cold + ratio * self.accesses;
        let enough = self.points.iter().find(|point| point.misses <= most * (1.0 + 1e-9));
        enough.or(self.points.last()).map_or(0, |point| point.pages)
    }
}

pub(super) fn at(points: &[Point], pages: u64) -> f64 {
    let after = points.partition_point(|point| point.pages <= pages);
    after.checked_sub(1).map_or(0.0, |at| points[at].misses)
}
