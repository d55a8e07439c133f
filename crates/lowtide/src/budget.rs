//! How large a budget should be, and who should have which part of it: miss-ratio curves of tenants
//! and files, advice drawn from them, and ways to share.
//!
//! [`Tenant::curve`](crate::Tenant::curve) and [`View::curve`](crate::View::curve) give a curve of
//! the running program, [`Tenant::budget_for_misses`](crate::Tenant::budget_for_misses) a sentence.
//! [`Tenant::set_share`](crate::Tenant::set_share) divides one budget,
//! [`Tenant::set_auto`](crate::Tenant::set_auto) lets one set itself.

pub use crate::tenant::{AutoLimits, AutoStat, Share};
use lowtide_core::Size;
use lowtide_core::reuse::ReuseCurve;
use std::fmt;
use std::time::Duration;

/// A size of memory, and the misses that there would be with it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct CurvePoint {
    /// Bytes.
    pub bytes: u64,
    /// Accesses to pages that miss, first accesses included.
    pub misses: f64,
}

/// How many accesses would miss at other sizes of memory: the miss-ratio curve of a tenant or a
/// file, from all accesses so far.
///
/// It is estimated from a sample of at most 8192 pages, chosen by a hash, whose accesses are looked
/// at up to ten times a second. So:
///
/// * Misses are those of strict LRU. The policies of the engine come close to it, and beat it where
///   a file is read in a circle.
/// * Several accesses to a page between two looks are one. Sizes that have no room for what is
///   accessed between two looks miss more than the curve says.
/// * [`error`](Self::error) is the standard error that the choice of pages leaves.
///
/// It needs the pager's background thread, and costs less than 1 % of a processor, or 2 % where
/// pages are reached through pointers.
///
/// `Display` is a table of sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    inner: ReuseCurve,
    page_shift: u32,
    accesses: f64,
    /// All accesses were counted.
    is_counted: bool,
}

impl Curve {
    /// `counted`: accesses, where each was counted.
    pub(crate) fn new(inner: ReuseCurve, page_shift: u32, counted: Option<f64>) -> Self {
        let accesses = inner.accesses.max(counted.unwrap_or_default());
        Self { inner, page_shift, accesses, is_counted: counted.is_some() }
    }

    const fn bytes(&self, pages: u64) -> u64 {
        pages << self.page_shift
    }

    const fn point(&self, at: &lowtide_core::reuse::Point) -> CurvePoint {
        CurvePoint { bytes: self.bytes(at.pages), misses: at.misses }
    }

    /// The curve, by growing size. The first point is no memory at all; with the size of the last
    /// only first accesses miss. Between two points the misses are those of the smaller one.
    pub fn points(&self) -> impl Iterator<Item = CurvePoint> {
        self.inner.points.iter().map(|at| self.point(at))
    }

    /// Accesses to pages. Of the root of a pager without maps all are counted; otherwise several to
    /// one page between two looks are one.
    #[must_use]
    pub const fn accesses(&self) -> f64 {
        self.accesses
    }

    /// First accesses of pages: with any size they miss.
    #[must_use]
    pub const fn first_accesses(&self) -> f64 {
        self.inner.cold
    }

    /// Accesses that did miss, estimated from the same sample.
    #[must_use]
    pub const fn missed(&self) -> f64 {
        self.inner.missed
    }

    /// Bytes of different pages that were accessed: with this budget only first accesses miss.
    #[must_use]
    pub const fn footprint(&self) -> u64 {
        self.bytes(self.inner.footprint)
    }

    /// Time from the first access to the last.
    #[must_use]
    pub fn span(&self) -> Duration {
        Duration::try_from_secs_f64(self.inner.seconds).unwrap_or_default()
    }

    /// The standard error of a ratio of misses, for sizes from a sixteenth of the footprint on:
    /// 0.01 is one point.
    #[must_use]
    pub fn error(&self) -> f64 {
        let of_misses = self.inner.error / self.accesses;
        if self.is_counted { of_misses } else { self.inner.error_of_ratio.min(of_misses) }
    }

    /// Accesses that would have missed with this size, first accesses included.
    fn misses_at(&self, bytes: u64) -> f64 {
        self.inner.misses(bytes >> self.page_shift)
    }

    /// The share of the accesses that would have missed with this size, first accesses included.
    #[must_use]
    pub fn ratio_at(&self, bytes: u64) -> f64 {
        self.misses_at(bytes) / self.accesses
    }

    /// The smallest size with which at most this share of the accesses would have missed, besides
    /// first accesses. Sizes are known to within what is accessed between two looks at the sample,
    /// which is added, since where a curve falls steeply a little less would miss much more; and so
    /// is a sixty-fourth, since reclaim keeps a part of a budget free.
    ///
    /// # Examples
    /// ```
    /// # use lowtide::{Pager, Size};
    /// # let file = tempfile::NamedTempFile::new()?;
    /// # file.as_file().set_len(1 << 20)?;
    /// # let pager = Pager::builder().max(Size::mib(4)).build()?;
    /// # let view = pager.open(file.path())?;
    /// # view.page(0)?;
    /// if let Some(curve) = pager.root().curve()? {
    ///     let enough = curve.budget_for(0.02);
    ///     println!("{} misses {:.1} %", Size::new(enough), 100.0 * curve.ratio_at(enough));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn budget_for(&self, ratio: f64) -> u64 {
        let ratio = ratio * self.accesses / self.inner.accesses;
        let pages = self.inner.pages_for(ratio);
        let most = pages.max(self.inner.footprint);
        let pages = (pages + self.inner.at_once).min(most);
        self.bytes(pages + pages / 64)
    }

    /// The size below which more than half of the accesses would have missed, if there is one.
    fn thrashes_below(&self) -> Option<u64> {
        let half = self.accesses / 2.0;
        let first = self.points().find(|point| point.misses <= half);
        first.map(|point| point.bytes).filter(|&bytes| bytes > 0)
    }

    /// The advice for a share of accesses that may miss.
    #[must_use]
    pub fn advice(&self, target: f64) -> Advice {
        let bytes = self.budget_for(target);
        let four = self.budget_for(4.0 * target);
        let point = |bytes| (bytes, self.ratio_at(bytes));
        Advice {
            target,
            bytes,
            ratio: self.ratio_at(bytes),
            first: self.first_accesses() / self.accesses,
            smaller: (four < bytes).then(|| point(four)),
            thrashes_below: self.thrashes_below().filter(|&at| at < four.min(bytes)),
            error: self.error(),
        }
    }
}

impl fmt::Display for Curve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>10}  {:>9}  {:>7}", "size", "misses", "ratio")?;
        let (mut last, first) = (f64::INFINITY, self.first_accesses());
        for point in self.points() {
            let is_last = point.misses <= first;
            // A line for each step of a tenth, and the end.
            if point.misses > first + (last - first) * 0.75 && !(is_last && last > first) {
                continue;
            }
            last = point.misses;
            let ratio = 100.0 * point.misses / self.accesses;
            let size = rounded(point.bytes);
            writeln!(f, "{size:>10}  {:>9.0}  {ratio:>5.1} %", point.misses)?;
            if is_last {
                break;
            }
        }
        Ok(())
    }
}

/// How large a budget should be, from a [`Curve`]. `Display` is one sentence.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// The share of accesses that may miss, besides first accesses.
    pub target: f64,
    /// The smallest size that holds it.
    pub bytes: u64,
    /// The share that misses with it, first accesses included.
    pub ratio: f64,
    /// The share of first accesses, which miss with any size.
    pub first: f64,
    /// A smaller size that misses four times as much as may miss, and the share.
    pub smaller: Option<(u64, f64)>,
    /// Below this more than half of the accesses miss.
    pub thrashes_below: Option<u64>,
    /// Standard error of the shares.
    pub error: f64,
}

/// The share of first accesses above which there is nothing to advise.
const READ_ONCE: f64 = 0.97;

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |ratio: f64| 100.0 * ratio;
        if self.first > READ_ONCE {
            let once = percent(self.first);
            return write!(
                f,
                "{once:.1} % of accesses are the first of their page: no budget helps"
            );
        }
        write!(f, "with {} {:.1} % of accesses miss", rounded(self.bytes), percent(self.ratio))?;
        if self.first > 0.001 {
            write!(f, " ({:.1} % with any budget, being the first)", percent(self.first))?;
        }
        if let Some((bytes, ratio)) = self.smaller {
            write!(f, "; with {} {:.1} %", rounded(bytes), percent(ratio))?;
        }
        if let Some(bytes) = self.thrashes_below {
            write!(f, "; below {} more than half", rounded(bytes))?;
        }
        if self.error > 0.0005 {
            write!(f, " (± {:.1})", percent(self.error))?;
        }
        Ok(())
    }
}

/// A size with at most three digits before the unit.
fn rounded(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 99.95);
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(feature = "status")]
mod published {
    use super::{Curve, CurvePoint};
    use lowtide_core::reuse::{self, ReuseCurve};
    use lowtide_status::Point;

    /// Points of a curve that is published at most: those in between are left out.
    const POINTS: usize = 96;

    impl From<&Curve> for lowtide_status::Curve {
        fn from(curve: &Curve) -> Self {
            let all: Vec<CurvePoint> = curve.points().collect();
            let step = all.len().div_ceil(POINTS).max(1);
            let last = all.len().saturating_sub(1);
            let stays = |(at, point): (usize, &CurvePoint)| {
                let CurvePoint { bytes, misses } = *point;
                (at == last || at % step == 0).then_some(Point { bytes, misses })
            };
            Self {
                seconds: curve.inner.seconds,
                accesses: curve.accesses(),
                cold: curve.first_accesses(),
                samples: curve.inner.samples,
                error: curve.error(),
                missed: curve.missed(),
                at_once_bytes: curve.bytes(curve.inner.at_once),
                points: all.iter().enumerate().filter_map(stays).collect(),
            }
        }
    }

    impl From<&lowtide_status::Curve> for Curve {
        fn from(curve: &lowtide_status::Curve) -> Self {
            let point = |at: &Point| reuse::Point { pages: at.bytes, misses: at.misses };
            let points: Vec<_> = curve.points.iter().map(point).collect();
            let inner = ReuseCurve {
                seconds: curve.seconds,
                accesses: curve.accesses,
                cold: curve.cold,
                missed: curve.missed,
                samples: curve.samples,
                error: curve.error * curve.accesses,
                error_of_ratio: curve.error,
                footprint: points.last().map_or(0, |point| point.pages),
                at_once: curve.at_once_bytes,
                recent: points.clone(),
                points,
            };
            Self { inner, page_shift: 0, accesses: curve.accesses, is_counted: false }
        }
    }
}

/// For callers that think in [`Size`].
impl From<Advice> for Size {
    fn from(advice: Advice) -> Self {
        Self::new(advice.bytes)
    }
}
