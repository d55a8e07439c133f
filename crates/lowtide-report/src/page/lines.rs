//! Lines: curves and series, and the percentiles of rows, as SVG elements.
//!
//! As with bars, places to the right are percentages. A line is drawn in an element of its own that
//! is stretched to the width, with a pen that is not; its markers are not stretched. Lines differ
//! in colour and in marker; a line that is a bound of the others is dashed.

use maud::{Markup, html};

use super::number;

/// Pixels of the area of a plot.
const HEIGHT: f64 = 240.0;
/// Lines of a plot that differ in their looks.
pub(super) const LINES: usize = 9;
/// Colours; markers have another period, so neighbours differ in both.
const COLOURS: usize = 6;

/// A line, from left to right.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// A bound of the other lines.
    pub(super) bound: bool,
}

/// An axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis<'a> {
    pub(super) what: &'a str,
    pub(super) text: fn(f64) -> String,
    /// The base of a logarithmic axis.
    pub(super) log: Option<f64>,
    /// The ticks of another one, up to a value.
    pub(super) ticks: fn(f64) -> Vec<f64>,
}

impl<'a> Axis<'a> {
    /// A linear axis of numbers.
    pub(super) const fn linear(what: &'a str) -> Self {
        Self { what, text: number::text, log: None, ticks: number::ticks }
    }
}

/// An axis with its ticks for some values.
struct Scale {
    ticks: Vec<f64>,
    log: bool,
}

impl Scale {
    fn of(axis: &Axis<'_>, values: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| value.is_finite()) {
            (least, most) = (least.min(value), most.max(value));
        }
        match axis.log {
            Some(base) if least > 0.0 && most > 0.0 && least.is_finite() => {
                Self { ticks: number::log_ticks(base, (least, most)), log: true }
            }
            _ => Self { ticks: (axis.ticks)(most), log: false },
        }
    }

    /// The place of a value, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let (first, last) = (self.ticks[0], self.ticks[self.ticks.len() - 1]);
        let place = match self.log {
            true => (value / first).ln() / (last / first).ln(),
            false => (value - first) / (last - first),
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// The lines of a legend.
pub(super) fn legend(lines: &[Line]) -> Markup {
    html! {
        ul.legend {
            @for (index, line) in lines.iter().enumerate() {
                li {
                    svg xmlns="http://www.w3.org/2000/svg" aria-hidden="true"
                        class=(class(index, line.bound)) {
                        line class="line" stroke-dasharray=[dashes(line.bound)] x1="0" x2="26"
                            y1="7" y2="7" {}
                        @if !line.bound { (marker(index, "13", 7.0)) }
                    }
                    (line.name)
                }
            }
        }
    }
}

/// The picture.
pub(super) fn chart(lines: &[Line], across: &Axis<'_>, upwards: &Axis<'_>) -> Markup {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Scale::of(across, points().map(|point| point.0));
    let y = Scale::of(upwards, points().map(|point| point.1));
    let percent = |value: f64| format!("{:.2}%", 100.0 * x.place(value));
    let down = |value: f64| (1.0 - y.place(value)) * HEIGHT;
    html! {
        div.plot {
            svg xmlns="http://www.w3.org/2000/svg" role="img" height=(HEIGHT + 40.0) {
                title { (upwards.what) " by " (across.what) ": " (lines.len()) " lines" }
                @for &tick in &y.ticks {
                    line class="grid" x1="0" x2="100%" y1=(down(tick)) y2=(down(tick)) {}
                    text class="small" x="-6" y=(down(tick) + 4.0) text-anchor="end" {
                        ((upwards.text)(tick))
                    }
                }
                @for &tick in &x.ticks {
                    line class="axis" x1=(percent(tick)) x2=(percent(tick)) y1=(HEIGHT)
                        y2=(HEIGHT + 5.0) {}
                    text class="small" x=(percent(tick)) y=(HEIGHT + 18.0) text-anchor="middle" {
                        ((across.text)(tick))
                    }
                }
                text class="small" x="50%" y=(HEIGHT + 35.0) text-anchor="middle" { (across.what) }
                line class="axis" x1="0" x2="100%" y1=(HEIGHT) y2=(HEIGHT) {}
                @for (index, line) in lines.iter().enumerate() {
                    @let path: Vec<String> = line.points.iter().map(|&(right, up)| {
                        format!("{:.1},{:.1}", 1000.0 * x.place(right), down(up))
                    }).collect();
                    svg class=(class(index, line.bound)) width="100%" height=(HEIGHT)
                        viewBox={ "0 0 1000 " (HEIGHT) } preserveAspectRatio="none" {
                        polyline class="line" stroke-dasharray=[dashes(line.bound)]
                            points=(path.join(" ")) {}
                    }
                    @if !line.bound {
                        g class=(class(index, line.bound)) {
                            @for &(right, up) in marked(&line.points) {
                                (marker(index, &percent(right), down(up)))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Percentiles of rows on one axis of times, each row with its name above.
pub(super) fn percentiles(rows: &[(String, Vec<(&'static str, f64)>)]) -> Markup {
    const ROW: f64 = 40.0;
    let axis = Axis { text: number::microseconds, log: Some(10.0), ..Axis::linear("") };
    let scale = Scale::of(&axis, rows.iter().flat_map(|row| &row.1).map(|(_, us)| *us));
    let percent = |us: f64| format!("{:.2}%", 100.0 * scale.place(us));
    let height = ROW * rows.len() as f64;
    html! {
        svg xmlns="http://www.w3.org/2000/svg" role="img" height=(height + 22.0) {
            title { "Latency: percentiles of " (rows.len()) " rows" }
            @for &tick in &scale.ticks {
                line class="grid" x1=(percent(tick)) x2=(percent(tick)) y1="0" y2=(height) {}
                @let place = scale.place(tick);
                text class="small" x=(percent(tick)) y=(height + 15.0)
                    text-anchor=(super::bars::anchor(place, 1.0)) { (number::microseconds(tick)) }
            }
            @for (index, (name, percentiles)) in rows.iter().enumerate() {
                @let top = ROW * index as f64;
                @let middle = top + 26.0;
                text x="0" y=(top + 13.0) { (name) }
                @if let (Some(first), Some(last)) = (percentiles.first(), percentiles.last()) {
                    line class="spread" x1=(percent(first.1)) x2=(percent(last.1)) y1=(middle)
                        y2=(middle) {}
                }
                @for (number, &(_, us)) in percentiles.iter().enumerate() {
                    g class=(class(number, false)) { (marker(number, &percent(us), middle)) }
                }
            }
        }
    }
}

/// The legend of [`percentiles`].
pub(super) fn percentile_legend(rows: &[(String, Vec<(&'static str, f64)>)]) -> Markup {
    let longest = rows.iter().max_by_key(|row| row.1.len());
    let names: Vec<&str> = longest.into_iter().flat_map(|row| &row.1).map(|pair| pair.0).collect();
    html! {
        ul.legend {
            @for (number, name) in names.iter().enumerate() {
                li {
                    svg xmlns="http://www.w3.org/2000/svg" aria-hidden="true" {
                        g class=(class(number, false)) { (marker(number, "13", 7.0)) }
                    }
                    (name)
                }
            }
        }
    }
}

fn class(index: usize, bound: bool) -> String {
    if bound { "bound".into() } else { format!("s{}", index % COLOURS) }
}

const fn dashes(bound: bool) -> Option<&'static str> {
    if bound { Some("7 4") } else { None }
}

/// As many points as have room for a marker.
fn marked(points: &[(f64, f64)]) -> impl Iterator<Item = &(f64, f64)> {
    points.iter().step_by(points.len().div_ceil(30).max(1))
}

/// A marker at a place: a disc, a triangle, a square, or one of these as an outline.
fn marker(index: usize, x: &str, y: f64) -> Markup {
    let (filling, shape) = match index % 5 {
        0 => ("solid", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z"),
        1 => ("solid", "M0-5L5 4L-5 4Z"),
        2 => ("hollow", "M-3.5-3.5H3.5V3.5H-3.5Z"),
        3 => ("hollow", "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z"),
        _ => ("solid", "M0-5L5 0L0 5L-5 0Z"),
    };
    html! {
        svg x=(x) y=(y) width="1" height="1" overflow="visible" {
            path class=(filling) d=(shape) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_within_the_picture() {
        let axis = |log| Axis { log, ..Axis::linear("") };
        let linear = Scale::of(&axis(None), [3.0, 8.0, f64::NAN].into_iter());
        assert_eq!((linear.place(0.0), linear.place(8.0)), (0.0, 1.0));
        assert_eq!(linear.place(f64::NAN), 0.0);
        let log = Scale::of(&axis(Some(10.0)), [1.0, 1000.0].into_iter());
        assert!((log.place(10.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(log.place(0.0), 0.0, "there is no logarithm of nothing");
        let zeros = Scale::of(&axis(Some(10.0)), [0.0, 0.0].into_iter());
        assert!(!zeros.log && zeros.place(0.0) == 0.0);
    }

    #[test]
    fn neighbours_differ_in_colour_and_marker() {
        for index in 1..LINES {
            assert_ne!(class(index, false), class(index - 1, false));
            assert_ne!(marker(index, "0", 0.0).0, marker(index - 1, "0", 0.0).0);
        }
        let looks = |index| (class(index, false), marker(index, "0", 0.0).0);
        assert!((0..LINES).all(|a| (0..a).all(|b| looks(a) != looks(b))));
    }
}
