//! A miss-ratio curve in words: how many accesses miss with the memory that there is, and what half
//! and twice as much would do.
//!
//! A curve is a promise about strict LRU, from a sample of the pages. So its own number for the
//! present size is shown next to the measured one, and a difference that is within the error of the
//! sample is called none. The lines are short: the smallest screen has 35 columns for them.

use lowtide::budget::Curve;
use lowtide_report::table::memory;
use lowtide_status::Curve as Published;

use super::columns::count;

/// Fewer sampled pages than this say little.
const SAMPLES_MIN: u64 = 100;
/// Standard errors that two ratios must differ by.
const ERRORS: f64 = 2.0;
/// Misses, besides first accesses, that the needed size is named for, as `lowtide advise` does.
const TARGET: f64 = 0.02;

/// A size, and the share of accesses that would miss there, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct At {
    pub(crate) bytes: u64,
    pub(crate) percent: f64,
}

/// What a curve says around a size.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    curve: Curve,
    pub(crate) here: At,
    half: At,
    twice: At,
    /// What happened in the same time.
    measured: f64,
    samples: u64,
    seconds: f64,
}

impl Reading {
    /// Reads a curve around a size. `None` if it has no accesses.
    pub(crate) fn of(published: &Published, bytes: u64) -> Option<Self> {
        if published.accesses <= 0.0 || published.points.is_empty() {
            return None;
        }
        let curve = Curve::from(published);
        let at = |bytes| At { bytes, percent: share(curve.ratio_at(bytes)) };
        Some(Self {
            here: at(bytes),
            half: at(bytes / 2),
            twice: at(bytes.saturating_mul(2)),
            measured: share(published.missed / published.accesses),
            samples: published.samples,
            seconds: published.seconds,
            curve,
        })
    }

    /// The share of accesses that miss at a size, in percent.
    pub(crate) fn percent(&self, bytes: u64) -> f64 {
        share(self.curve.ratio_at(bytes))
    }

    /// The size with which only first accesses miss.
    pub(crate) fn all(&self) -> u64 {
        self.curve.points().last().map_or(0, |point| point.bytes)
    }

    fn compare(&self, other: At) -> String {
        let size = memory(other.bytes);
        let difference = other.percent - self.here.percent;
        let error = self.curve.error() * 100.0;
        if difference.abs() <= (ERRORS * error).max(0.05) {
            return format!("{size}: about as many");
        }
        let times = other.percent / self.here.percent;
        let percent = percent_text(other.percent);
        if self.here.percent <= 0.0 || times >= 100.0 {
            return format!("{size}: {percent}");
        }
        if difference > 0.0 {
            let digits = usize::from(times < 9.95);
            return format!("{size}: {percent}, {times:.digits$} times as many");
        }
        format!("{size}: {percent}, {:.0} % fewer", (1.0 - times) * 100.0)
    }

    /// What half the memory would do.
    pub(crate) fn half_text(&self) -> String {
        format!("Half {}", self.compare(self.half))
    }

    /// What twice the memory would do.
    pub(crate) fn twice_text(&self) -> String {
        format!("Twice {}", self.compare(self.twice))
    }

    /// What happens at the present size.
    pub(crate) fn here_text(&self) -> String {
        let (here, measured) = (percent_text(self.here.percent), percent_text(self.measured));
        format!("Here {}: {here} (measured {measured})", memory(self.here.bytes))
    }

    /// How much would do, what no memory can change, and how sure all this is.
    pub(crate) fn caveats(&self) -> Vec<String> {
        let first = self.curve.first_accesses() / self.curve.accesses();
        let mut all = Vec::new();
        if first >= 0.001 {
            all.push(format!("At any size: {} (first accesses)", percent_text(share(first))));
        }
        let wanted = memory(self.curve.budget_for(TARGET));
        let besides = if first >= 0.001 { " more than that" } else { "" };
        all.push(format!("{:.0} %{besides}: {wanted}", TARGET * 100.0));
        let minutes = self.seconds / 60.0;
        let time = if minutes < 2.0 {
            format!("{:.0} s", self.seconds)
        } else {
            format!("{minutes:.0} min")
        };
        if self.samples < SAMPLES_MIN {
            all.push(format!("{} sampled pages are too few", self.samples));
        } else {
            let error = self.curve.error() * 100.0;
            let samples = count(Some(self.samples as f64));
            all.push(format!("{samples} pages, {time}, +-{error:.1} points"));
        }
        all
    }
}

/// A share in percent.
fn share(ratio: f64) -> f64 {
    (ratio * 100.0).clamp(0.0, 100.0)
}

fn percent_text(percent: f64) -> String {
    let digits = if percent >= 9.95 || percent == 0.0 { 0 } else { 1 };
    if percent > 0.0 && percent < 0.05 { "<0.1 %".into() } else { format!("{percent:.digits$} %") }
}

#[cfg(test)]
mod tests {
    use lowtide_status::Point;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// 1000 accesses; 500 miss at 100 MiB, 100 at 200 MiB, and 50 are first accesses.
    fn curve() -> Published {
        let points = [(0, 1000.0), (50, 750.0), (100, 500.0), (200, 100.0), (400, 50.0)];
        Published {
            seconds: 300.0,
            accesses: 1000.0,
            cold: 50.0,
            samples: 5000,
            error: 0.004,
            missed: 480.0,
            points: points.map(|(mib, misses)| Point { bytes: mib * MIB, misses }).to_vec(),
            ..Published::default()
        }
    }

    #[test]
    fn half_and_twice_the_memory_are_compared_in_words() {
        let reading = Reading::of(&curve(), 100 * MIB).unwrap();
        assert_eq!(reading.here_text(), "Here 100M: 50 % (measured 48 %)");
        assert_eq!(reading.half_text(), "Half 50M: 75 %, 1.5 times as many");
        assert_eq!(reading.twice_text(), "Twice 200M: 10 %, 80 % fewer");
        let expected = [
            "At any size: 5.0 % (first accesses)",
            "2 % more than that: 406M",
            "5000 pages, 5 min, +-0.4 points",
        ];
        assert_eq!(reading.caveats(), expected);
        assert_eq!((reading.all(), reading.percent(9 << 30)), (400 * MIB, 5.0));
    }

    #[test]
    fn a_difference_within_the_error_is_none() {
        let unsure = Published { error: 0.3, samples: 7, ..curve() };
        let reading = Reading::of(&unsure, 100 * MIB).unwrap();
        assert_eq!(reading.twice_text(), "Twice 200M: about as many");
        assert!(reading.caveats().iter().any(|caveat| caveat == "7 sampled pages are too few"));
    }

    #[test]
    fn where_nothing_misses_there_is_no_ratio_and_without_accesses_no_reading() {
        let points = [(0, 10.0), (512 << 10, 5.0), (MIB, 0.0)];
        let points = points.map(|(bytes, misses)| Point { bytes, misses }).to_vec();
        let all = Published { accesses: 10.0, points, ..Published::default() };
        let reading = Reading::of(&all, MIB).unwrap();
        assert_eq!(reading.half_text(), "Half 512K: 50 %");
        assert_eq!(reading.twice_text(), "Twice 2M: about as many");
        assert!(Reading::of(&Published { accesses: 0.0, ..curve() }, MIB).is_none());
        assert!(Reading::of(&Published::default(), MIB).is_none());
    }

    #[test]
    fn each_line_fits_the_smallest_screen() {
        let curve = Published { samples: 8192, seconds: 5900.0, ..curve() };
        let reading = Reading::of(&curve, 1023 << 10).unwrap();
        let lines = [reading.here_text(), reading.half_text(), reading.twice_text()];
        for line in lines.into_iter().chain(reading.caveats()) {
            assert!(line.chars().count() <= 35, "{line}");
        }
    }
}
