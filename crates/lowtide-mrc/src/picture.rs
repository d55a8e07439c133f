//! Results as SVG and HTML.

use super::advise::Advice;
use super::curve::Curve;
use super::report::Table;
use crate::baseline::Baseline;
use crate::plot::{Axis, Chart, Level, Page, Scale, Series, Unit};

/// Ratio of the largest to the smallest size above which the axis of sizes is logarithmic.
const LOG_FROM: f64 = 30.0;

/// The curves as a chart: budget to the right, miss ratio upwards, the cold misses as a level.
///
/// `title` is one line, `subtitle` another, smaller one (trace, page size, footprint); either may
/// be empty.
#[must_use]
pub fn chart(title: &str, subtitle: &str, curves: &[Curve], page_bytes: u64) -> Chart {
    let bytes = |pages: u64| pages as f64 * page_bytes as f64;
    let sizes = || curves.iter().flat_map(|curve| &curve.points).map(|point| bytes(point.pages));
    let (min, max) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    let x = if min > 0.0 && max / min >= LOG_FROM {
        Scale::log(min, max, Unit::Bytes)
    } else {
        Scale::linear(0.0, max, Unit::Bytes)
    };
    let ratios =
        curves.iter().flat_map(|curve| &curve.points).map(|point| point.miss_ratio() * 100.0);
    let y = Scale::linear(0.0, ratios.fold(0.0, f64::max), Unit::Percent).rounded_up();
    let any = curves
        .iter()
        .find_map(|curve| curve.points.first().map(|point| (curve.cold, point.accesses)));
    let cold = any.map(|(cold, accesses)| Level {
        name: "cold misses".to_owned(),
        y: cold as f64 / accesses.max(1) as f64 * 100.0,
    });
    Chart {
        title: title.to_owned(),
        subtitle: subtitle.to_owned(),
        x: Axis { label: "Memory budget".to_owned(), scale: x },
        y: Axis { label: "Miss ratio".to_owned(), scale: y },
        series: curves.iter().map(|curve| series(curve, page_bytes)).collect(),
        levels: cold.into_iter().collect(),
    }
}

/// A curve as a line, which is broken at rejected sizes.
fn series(curve: &Curve, page_bytes: u64) -> Series {
    let measured = curve.points.iter().map(|point| (point.pages, Some(point.miss_ratio() * 100.0)));
    let refused = curve.gaps.iter().map(|gap| (gap.pages, None));
    let mut points: Vec<(u64, Option<f64>)> = measured.chain(refused).collect();
    points.sort_unstable_by_key(|(pages, _)| *pages);
    Series {
        name: curve.policy.clone(),
        points: points
            .into_iter()
            .map(|(pages, y)| (pages as f64 * page_bytes as f64, y))
            .collect(),
        bound: curve.policy == Baseline::Opt.name(),
    }
}

/// A self-contained page: the chart, the advice, the table.
///
/// `about` are paragraphs above the chart: the trace, the run, its version and seed.
#[must_use]
pub fn page(
    title: &str,
    about: &[String],
    curves: &[Curve],
    footprint: u64,
    page_bytes: u64,
    advice: &[Advice],
) -> String {
    let table = Table::new(curves, footprint, page_bytes);
    let mut page = Page::new(title);
    for paragraph in about {
        page.paragraph(paragraph);
    }
    page.chart(&chart("", "", curves, page_bytes));
    if !advice.is_empty() {
        page.heading("Smallest budgets");
        let sentences: Vec<String> =
            advice.iter().map(|advice| advice.sentences(page_bytes)).collect();
        page.list(&sentences);
    }
    page.heading("Miss ratio by budget");
    page.table(&table.head(), &table.cells());
    page.list(&table.notes());
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gap, Point};

    fn curve(policy: &str, points: &[(u64, u64)]) -> Curve {
        let point = |&(pages, misses): &(u64, u64)| Point { pages, accesses: 1000, misses };
        Curve {
            policy: policy.to_owned(),
            points: points.iter().map(point).collect(),
            gaps: Vec::new(),
            cold: 20,
        }
    }

    #[test]
    fn wide_ranges_of_sizes_are_drawn_by_ratio_and_narrow_ones_are_not() {
        let wide = chart("", "", &[curve("a", &[(1, 900), (1000, 20)])], 4096);
        let narrow = chart("", "", &[curve("a", &[(500, 900), (1000, 20)])], 4096);
        assert!(wide.x.scale.is_log() && !narrow.x.scale.is_log());
        assert_eq!(wide.levels, [Level { name: "cold misses".to_owned(), y: 2.0 }]);
    }

    #[test]
    fn a_refused_size_breaks_the_line() {
        let mut broken = curve("a", &[(100, 900), (300, 20)]);
        broken.gaps.push(Gap { pages: 200, reason: String::new() });
        let points: Vec<_> = chart("", "", &[broken], 1).series[0].points.clone();
        assert_eq!(points, [(100.0, Some(90.0)), (200.0, None), (300.0, Some(2.0))]);
    }

    #[test]
    fn nothing_measured_is_still_a_picture() {
        let svg = chart("t", "", &[curve("a", &[])], 4096).to_string();
        assert!(svg.starts_with("<svg") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let html = page(
            "a < b",
            &["about & more".to_owned()],
            &[curve("a", &[(1, 900), (64, 20)])],
            64,
            4096,
            &[],
        );
        assert!(
            html.contains("a &lt; b") && html.contains("about &amp; more") && html.contains("<svg")
        );
        assert!(html.contains("<td>90.00 %</td>"), "{html}");
        let foreign = ["<script", "src=", "href=", "@import", "url("];
        assert!(foreign.iter().all(|mark| !html.contains(mark)));
    }
}
