//! Results as SVG and HTML.
//!
//! The crate `plotters` draws. Its axes are linear, so a place on the axis of budgets is a number
//! of binary units, or an exponent of two where the budgets differ widely: either has its ticks at
//! round numbers of bytes.
//!
//! Lines differ in colour and in marker, with different periods, so that neighbours differ in grey
//! and for colour-blind readers, too. OPT, a bound of the others, is black and dashed.

use std::io;

use plotters::coord::Shift;
use plotters::element::{Cross, DashedPathElement, DynElement};
use plotters::prelude::*;

use super::advise::Advice;
use super::curve::Curve;
use super::report::Table;
use crate::baseline::Baseline;
use crate::bytes::Bytes;
use crate::html::Page;

const SIZE: (u32, u32) = (900, 560);
const FONT: &str = "sans-serif";
/// Ratio of the largest to the smallest size above which the axis of sizes is logarithmic.
const LOG_FROM: f64 = 30.0;
/// Distinguishable by colour-blind readers, after M. Okabe and K. Ito, with the lightest ones
/// darkened for lines on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 135, 106),
    RGBColor(177, 69, 139),
    RGBColor(199, 133, 0),
    RGBColor(58, 155, 216),
    RGBColor(122, 82, 48),
];
const LEVEL: RGBColor = RGBColor(138, 138, 138);
/// Length of a line's sample in the legend.
const SAMPLE: i32 = 26;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn<T> = Result<T, DrawingAreaErrorKind<io::Error>>;

/// The curves as an SVG element: budget to the right, miss ratio upwards, the cold misses as a
/// level.
///
/// `title` is one line, `subtitle` another, smaller one (trace, page size, footprint); either may
/// be empty.
#[must_use]
pub fn chart(title: &str, subtitle: &str, curves: &[Curve], page_bytes: u64) -> String {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        // It is written to memory, and has room for its labels.
        draw(&root, [title, subtitle], curves, page_bytes).expect("a chart can be drawn");
    }
    svg
}

/// The axis of budgets.
struct Budgets {
    /// Bytes of the least and of the most.
    ends: (f64, f64),
    /// Bytes of one step; `None` on a logarithmic axis.
    unit: Option<f64>,
}

impl Budgets {
    fn of(curves: &[Curve], page_bytes: u64) -> Self {
        let sizes = || {
            let points = curves.iter().flat_map(|curve| &curve.points);
            points.map(|point| point.pages as f64 * page_bytes as f64)
        };
        let (min, max) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
        if min > 0.0 && max / min >= LOG_FROM {
            return Self { ends: (min, max), unit: None };
        }
        let max = max.max(1.0);
        Self { ends: (0.0, max), unit: Some(1024_f64.powi((max.log2() / 10.0) as i32)) }
    }

    fn place(&self, bytes: f64) -> f64 {
        self.unit.map_or_else(|| bytes.log2(), |unit| bytes / unit)
    }

    fn label(&self, place: f64) -> String {
        let bytes = self.unit.map_or_else(|| place.exp2(), |unit| place * unit);
        if bytes < 1.0 { "0".to_owned() } else { Bytes(bytes.round() as u64).to_string() }
    }
}

fn draw(root: &Area<'_>, titles: [&str; 2], curves: &[Curve], page_bytes: u64) -> Drawn<()> {
    root.fill(&WHITE)?;
    let mut area = root.margin(8, 8, 8, 8);
    for (text, size) in titles.into_iter().zip([20, 14]).filter(|(text, _)| !text.is_empty()) {
        area = area.titled(text, (FONT, size))?;
    }
    let budgets = Budgets::of(curves, page_bytes);
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let most = points().map(|point| point.miss_ratio() * 100.0).fold(0.0, f64::max);
    let top = if most > 0.0 { most * 1.02 } else { 100.0 };
    let (left, right) = (budgets.place(budgets.ends.0), budgets.place(budgets.ends.1));

    let mut chart = ChartBuilder::on(&area)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(left..right, 0.0..top)?;
    let how = if budgets.unit.is_none() { " (logarithmic)" } else { "" };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .x_labels(9)
        .y_labels(9)
        .x_desc(format!("Memory budget{how}"))
        .y_desc("Miss ratio")
        .x_label_formatter(&|place| budgets.label(*place))
        // Ticks are at multiples of a round number, up to the error of their sum.
        .y_label_formatter(&|ratio| format!("{} %", (ratio * 1e6).round() / 1e6))
        .draw()?;

    for (index, curve) in curves.iter().enumerate() {
        let is_bound = curve.policy == Baseline::Opt.name();
        let colour = if is_bound { BLACK } else { COLOURS[index % COLOURS.len()] };
        let line = colour.stroke_width(2);
        let lines = broken(curve, |pages| budgets.place(pages as f64 * page_bytes as f64));
        for points in &lines {
            if is_bound {
                let points = points.iter().copied();
                chart.draw_series(DashedLineSeries::new(points, 9, 4, line))?;
            } else {
                chart.draw_series(LineSeries::new(points.iter().copied(), line))?;
            }
        }
        let marked = lines.concat().into_iter().filter(|_| !is_bound);
        let legend = chart.draw_series(marked.map(|at| marker(index, at, colour)))?;
        let legend = legend.label(curve.policy.as_str());
        if is_bound {
            legend.legend(move |(x, y)| {
                DashedPathElement::new([(x, y), (x + SAMPLE, y)], 9, 4, line)
            });
        } else {
            legend.legend(move |(x, y)| {
                EmptyElement::at((x, y))
                    + PathElement::new([(0, 0), (SAMPLE, 0)], line)
                    + marker(index, (SAMPLE / 2, 0), colour)
            });
        }
    }
    if let Some(cold) = cold_misses(curves) {
        let line = LEVEL.stroke_width(1);
        chart
            .draw_series(DashedLineSeries::new([(left, cold), (right, cold)], 2, 4, line))?
            .label("cold misses")
            .legend(move |(x, y)| DashedPathElement::new([(x, y), (x + SAMPLE, y)], 2, 4, line));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font((FONT, 13))
        .legend_area_size(SAMPLE + 8)
        .background_style(WHITE.mix(0.85))
        .border_style(LEVEL)
        .draw()?;
    root.present()
}

/// The cold misses in percent of the accesses, which are the same for all curves.
fn cold_misses(curves: &[Curve]) -> Option<f64> {
    curves.iter().find_map(|curve| {
        let accesses = curve.points.first()?.accesses.max(1);
        Some(curve.cold as f64 / accesses as f64 * 100.0)
    })
}

/// The points of a curve, by the lines that refused sizes break it into.
fn broken(curve: &Curve, place: impl Fn(u64) -> f64) -> Vec<Vec<(f64, f64)>> {
    let measured = curve.points.iter().map(|point| (point.pages, Some(point.miss_ratio() * 100.0)));
    let refused = curve.gaps.iter().map(|gap| (gap.pages, None));
    let mut points: Vec<(u64, Option<f64>)> = measured.chain(refused).collect();
    points.sort_unstable_by_key(|(pages, _)| *pages);
    let lines = points.split(|(_, ratio)| ratio.is_none()).filter(|line| !line.is_empty());
    lines
        .map(|line| line.iter().filter_map(|(n, ratio)| Some((place(*n), (*ratio)?))).collect())
        .collect()
}

/// The marker of the line `index`.
fn marker<DB: DrawingBackend, C: Clone + 'static>(
    index: usize,
    at: C,
    colour: RGBColor,
) -> DynElement<'static, DB, C> {
    match index % 4 {
        0 => Circle::new(at, 4, colour.filled()).into_dyn(),
        1 => TriangleMarker::new(at, 5, colour.filled()).into_dyn(),
        2 => Cross::new(at, 4, colour.stroke_width(2)).into_dyn(),
        _ => Circle::new(at, 4, colour.stroke_width(2)).into_dyn(),
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
    page.picture(&chart("", "", curves, page_bytes));
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
    fn everything_that_explains_the_lines_is_there() {
        let curves = [curve("a&b", &[(1, 1000), (512, 20)]), curve("opt", &[(1, 900), (512, 10)])];
        let svg = chart("T <1>", "of a trace", &curves, 4096);
        for text in [
            "T &lt;1&gt;",
            "of a trace",
            "Memory budget (logarithmic)",
            "Miss ratio",
            "a&amp;b",
            "opt",
            "cold misses",
            "100 %",
            "64 KiB",
        ] {
            assert!(svg.contains(&format!("\n{text}\n")), "{text} is missing in {svg}");
        }
    }

    #[test]
    fn wide_ranges_of_sizes_are_drawn_by_ratio_and_narrow_ones_are_not() {
        let wide = chart("", "", &[curve("a", &[(1, 900), (1000, 20)])], 4096);
        let narrow = chart("", "", &[curve("a", &[(256, 900), (1024, 20)])], 4096);
        assert!(wide.contains("(logarithmic)") && !narrow.contains("(logarithmic)"));
        for (svg, ticks) in
            [(wide, ["4 KiB", "64 KiB", "1 MiB"]), (narrow, ["0", "2 MiB", "4 MiB"])]
        {
            assert!(ticks.iter().all(|tick| svg.contains(&format!("\n{tick}\n"))), "{svg}");
        }
    }

    #[test]
    fn a_refused_size_breaks_the_line() {
        let mut whole = curve("a", &[(100, 900), (300, 20)]);
        assert_eq!(broken(&whole, |n| n as f64), [[(100.0, 90.0), (300.0, 2.0)]]);
        whole.gaps.push(Gap { pages: 200, reason: String::new() });
        assert_eq!(broken(&whole, |n| n as f64), [[(100.0, 90.0)], [(300.0, 2.0)]]);
    }

    #[test]
    fn nothing_measured_is_still_a_picture() {
        let svg = chart("t", "", &[curve("a", &[])], 4096);
        assert!(svg.starts_with("<svg") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn neighbours_among_many_lines_differ_in_colour_and_marker() {
        let names: Vec<String> = (0..12).map(|n| format!("policy {n}")).collect();
        let curves: Vec<Curve> =
            names.iter().map(|name| curve(name, &[(1, 900), (64, 20)])).collect();
        let svg = chart("", "", &curves, 4096);
        assert!(names.iter().all(|name| svg.contains(&format!("\n{name}\n"))), "{svg}");
        for index in 1..curves.len() {
            assert_ne!(COLOURS[index % COLOURS.len()], COLOURS[(index - 1) % COLOURS.len()]);
        }
        assert!(!COLOURS.len().is_multiple_of(4), "colours and markers have different periods");
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
