//! Line charts with two axes and a legend.
//!
//! ```text
//!   title
//!   subtitle
//!   y label
//!   |                       |  --o-- legend
//!   |  plot                 |  --s--
//!   +-----------------------+
//!    ticks
//!           x label
//! ```
//!
//! Lines differ in colour, dash and marker, each with a different period, so that any two of the
//! first dozens differ in at least one of them, and neighbours in all three, also in grey or for
//! colour-blind readers. A line that is a *bound* of the others is black, thick and dashed, and
//! drawn below them.

use super::scale::Scale;
use super::svg::{Px, Svg};
use std::fmt;

const WIDTH: u32 = 900;
const HEIGHT: u32 = 560;
const LEFT: f64 = 72.0;
const BOTTOM: f64 = 62.0;
/// Width of a character in the legend: an upper bound for a sans-serif font of 13 pixels.
const CHARACTER: f64 = 8.6;
/// Largest number of characters of a name in the legend.
const NAME_MAX: usize = 28;
/// The length of a line's sample in the legend.
const SAMPLE: f64 = 34.0;
/// Markers closer than this to the previous one on the same line are omitted: they would hide the
/// line.
const MARKER_DISTANCE: f64 = 14.0;

/// The first six are distinguishable by colour-blind readers, after M. Okabe and K. Ito, with the
/// lightest ones darkened for lines on white. The others are for charts with many lines.
const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#00876a", "#b1458b", "#c78500", "#3a9bd8", "#7a5230", "#5e4fa2",
    "#8a8a1e", "#e0307f",
];
const DASHES: [&str; 4] = ["", "7 3", "3 3", "9 3 2 3"];
const MARKERS: [Marker; 6] = [
    Marker::Circle,
    Marker::Square,
    Marker::Triangle,
    Marker::Diamond,
    Marker::Cross,
    Marker::Plus,
];
const BOUND_COLOUR: &str = "#222222";

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its label, without the unit, which is at the ticks.
    pub label: String,
    /// Its range.
    pub scale: Scale,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points from left to right. A point without `y` breaks the line.
    pub points: Vec<(f64, Option<f64>)>,
    /// Whether it is a bound of the others.
    pub bound: bool,
}

/// A horizontal line of reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Its name in the legend.
    pub name: String,
    /// Its height.
    pub y: f64,
}

/// A line chart of 900 x 560 pixels. Displays as SVG text.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// One line above the chart, or nothing.
    pub title: String,
    /// A second, smaller line, or nothing.
    pub subtitle: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The lines, in the order of the legend.
    pub series: Vec<Series>,
    /// Lines of reference, after them in the legend.
    pub levels: Vec<Level>,
}

#[derive(Clone, Copy, Debug)]
enum Marker {
    None,
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Plus,
}

impl Marker {
    fn draw(self, svg: &mut Svg, (x, y): (f64, f64), colour: &str) {
        let path = |steps: &str| format!("M{} {}{steps}", Px(x), Px(y));
        let filled = |svg: &mut Svg, steps: &str| {
            svg.path(&path(steps), &[("fill", &colour), ("stroke", &"none")]);
        };
        let stroked = |svg: &mut Svg, steps: &str| {
            svg.path(
                &path(steps),
                &[("fill", &"none"), ("stroke", &colour), ("stroke-width", &1.6)],
            );
        };
        match self {
            Self::None => (),
            Self::Circle => {
                svg.element(
                    "circle",
                    &[("cx", &Px(x)), ("cy", &Px(y)), ("r", &3.2), ("fill", &colour)],
                );
            }
            Self::Square => filled(svg, "m-3-3h6v6h-6z"),
            Self::Triangle => filled(svg, "m0-4l3.8 6.6h-7.6z"),
            Self::Diamond => filled(svg, "m0-4.3l3.7 4.3l-3.7 4.3l-3.7-4.3z"),
            Self::Cross => stroked(svg, "m-3-3l6 6m0-6l-6 6"),
            Self::Plus => stroked(svg, "m-3.8 0h7.6m-3.8-3.8v7.6"),
        }
    }
}

/// The style of a line.
#[derive(Clone, Copy, Debug)]
struct Style {
    colour: &'static str,
    dash: &'static str,
    marker: Marker,
    width: f64,
}

impl Style {
    const LEVEL: Self = Self { colour: "#8a8a8a", dash: "1 3", marker: Marker::None, width: 1.4 };
    const BOUND: Self =
        Self { colour: BOUND_COLOUR, dash: "10 4", marker: Marker::None, width: 2.4 };

    const fn of_line(index: usize) -> Self {
        Self {
            colour: COLOURS[index % COLOURS.len()],
            dash: DASHES[index % DASHES.len()],
            marker: MARKERS[index % MARKERS.len()],
            width: 1.8,
        }
    }

    fn stroke(&self, svg: &mut Svg, path: &str) {
        svg.path(
            path,
            &[
                ("fill", &"none"),
                ("stroke", &self.colour),
                ("stroke-width", &self.width),
                ("stroke-dasharray", if self.dash.is_empty() { &"none" } else { &self.dash }),
                ("stroke-linejoin", &"round"),
            ],
        );
    }
}

/// The pixels of the plot.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Area {
    fn x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + (self.right - self.left) * scale.place(value)
    }

    fn y(&self, scale: &Scale, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * scale.place(value)
    }
}

impl Chart {
    fn area(&self) -> Area {
        let headings = usize::from(!self.title.is_empty()) + usize::from(!self.subtitle.is_empty());
        let names = self
            .series
            .iter()
            .map(|line| &line.name)
            .chain(self.levels.iter().map(|level| &level.name));
        let longest = names.map(|name| name.chars().count().min(NAME_MAX)).max().unwrap_or(0);
        Area {
            left: LEFT,
            top: 36.0 + if headings > 0 { 10.0 + 24.0 * headings as f64 } else { 0.0 },
            right: f64::from(WIDTH) - (18.0 + SAMPLE + 8.0 + CHARACTER * longest as f64 + 6.0),
            bottom: f64::from(HEIGHT) - BOTTOM,
        }
    }

    fn draw(&self) -> String {
        let area = self.area();
        let name = if self.title.is_empty() {
            format!("{} by {}", self.y.label, self.x.label)
        } else {
            self.title.clone()
        };
        let mut svg = Svg::new(WIDTH, HEIGHT, &name);
        if !self.title.is_empty() {
            svg.text(
                16.0,
                28.0,
                &self.title,
                &[("font-size", &18), ("font-weight", &"bold"), ("fill", &"#111111")],
            );
        }
        if !self.subtitle.is_empty() {
            let y = if self.title.is_empty() { 26.0 } else { 50.0 };
            svg.text(16.0, y, &self.subtitle, &[("fill", &"#555555")]);
        }
        self.draw_axes(&mut svg, area);
        for level in &self.levels {
            let y = area.y(&self.y.scale, level.y);
            Style::LEVEL
                .stroke(&mut svg, &format!("M{} {}H{}", Px(area.left), Px(y), Px(area.right)));
        }
        let styled = self.styled();
        for (line, style) in styled
            .iter()
            .filter(|(line, _)| line.bound)
            .chain(styled.iter().filter(|(line, _)| !line.bound))
        {
            self.draw_line(&mut svg, area, line, *style);
        }
        self.draw_legend(&mut svg, area, &styled);
        svg.finish()
    }

    /// The lines with their styles, in the order of the legend.
    fn styled(&self) -> Vec<(&Series, Style)> {
        let mut index = 0;
        let mut style = |line: &Series| {
            if line.bound {
                return Style::BOUND;
            }
            index += 1;
            Style::of_line(index - 1)
        };
        self.series.iter().map(|line| (line, style(line))).collect()
    }

    fn draw_axes(&self, svg: &mut Svg, area: Area) {
        svg.begin(&[("stroke", &"#e3e3e3"), ("stroke-width", &1)]);
        let (x_ticks, y_ticks) = (self.x.scale.ticks(), self.y.scale.ticks());
        for tick in &y_ticks {
            let y = area.y(&self.y.scale, tick.value);
            svg.line((area.left, y), (area.right, y), &[]);
        }
        for tick in x_ticks.iter().filter(|tick| !tick.label.is_empty()) {
            let x = area.x(&self.x.scale, tick.value);
            svg.line((x, area.top), (x, area.bottom), &[]);
        }
        svg.end();
        svg.begin(&[("stroke", &"#444444"), ("stroke-width", &1)]);
        svg.line((area.left, area.top), (area.left, area.bottom), &[]);
        svg.line((area.left, area.bottom), (area.right, area.bottom), &[]);
        for tick in &x_ticks {
            let x = area.x(&self.x.scale, tick.value);
            let length = if tick.label.is_empty() { 3.0 } else { 6.0 };
            svg.line((x, area.bottom), (x, area.bottom + length), &[]);
        }
        svg.end();
        svg.begin(&[("fill", &"#333333")]);
        for tick in &y_ticks {
            let y = area.y(&self.y.scale, tick.value) + 4.5;
            svg.text(area.left - 8.0, y, &tick.label, &[("text-anchor", &"end")]);
        }
        for tick in &x_ticks {
            let x = area.x(&self.x.scale, tick.value);
            svg.text(x, area.bottom + 21.0, &tick.label, &[("text-anchor", &"middle")]);
        }
        let how = if self.x.scale.is_log() { " (logarithmic)" } else { "" };
        let middle = (area.left + area.right) / 2.0;
        let bold: [(&str, &dyn fmt::Display); 1] = [("font-weight", &"bold")];
        svg.text(
            middle,
            area.bottom + 46.0,
            &format!("{}{how}", self.x.label),
            &[("text-anchor", &"middle"), bold[0]],
        );
        svg.text(16.0, area.top - 12.0, &self.y.label, &bold);
        svg.end();
    }

    fn draw_line(&self, svg: &mut Svg, area: Area, line: &Series, style: Style) {
        let pixels: Vec<Option<(f64, f64)>> = line
            .points
            .iter()
            .map(|&(x, y)| y.map(|y| (area.x(&self.x.scale, x), area.y(&self.y.scale, y))))
            .collect();
        let mut path = String::new();
        let mut connected = false;
        for pixel in &pixels {
            if let Some((x, y)) = pixel {
                path += &format!("{}{} {}", if connected { 'L' } else { 'M' }, Px(*x), Px(*y));
            }
            connected = pixel.is_some();
        }
        if !path.is_empty() {
            style.stroke(svg, &path);
        }
        let mut last = (f64::NEG_INFINITY, 0.0);
        for pixel in pixels.into_iter().flatten() {
            if (pixel.0 - last.0).hypot(pixel.1 - last.1) >= MARKER_DISTANCE {
                style.marker.draw(svg, pixel, style.colour);
                last = pixel;
            }
        }
    }

    fn draw_legend(&self, svg: &mut Svg, area: Area, styled: &[(&Series, Style)]) {
        let lines = styled.iter().map(|(line, style)| (&line.name, *style));
        let levels = self.levels.iter().map(|level| (&level.name, Style::LEVEL));
        let entries: Vec<_> = lines.chain(levels).collect();
        // Rows move closer together when there are many.
        let pitch = (24.0_f64).min((area.bottom - area.top) / entries.len().max(1) as f64);
        let left = area.right + 18.0;
        for (row, (name, style)) in entries.into_iter().enumerate() {
            let y = area.top + 8.0 + pitch * row as f64;
            style.stroke(svg, &format!("M{} {}h{SAMPLE}", Px(left), Px(y)));
            style.marker.draw(svg, (left + SAMPLE / 2.0, y), style.colour);
            let name = match name.char_indices().nth(NAME_MAX) {
                Some(_) => name.chars().take(NAME_MAX - 1).chain(['…']).collect(),
                None => name.clone(),
            };
            svg.text(left + SAMPLE + 8.0, y + 4.5, &name, &[("fill", &"#222222")]);
        }
    }
}

impl fmt::Display for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.draw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Unit;

    fn chart(names: &[String]) -> Chart {
        let series = |name: &String| Series {
            name: name.clone(),
            points: vec![(0.0, Some(100.0)), (512.0, None), (1024.0, Some(0.0))],
            bound: name == "opt",
        };
        Chart {
            title: "T <1>".to_owned(),
            subtitle: String::new(),
            x: Axis { label: "Budget".to_owned(), scale: Scale::linear(0.0, 1024.0, Unit::Bytes) },
            y: Axis { label: "Misses".to_owned(), scale: Scale::linear(0.0, 100.0, Unit::Percent) },
            series: names.iter().map(series).collect(),
            levels: vec![Level { name: "floor".to_owned(), y: 10.0 }],
        }
    }

    #[test]
    fn everything_that_explains_the_lines_is_there() {
        let svg = chart(&["a&b".to_owned(), "opt".to_owned()]).to_string();
        for text in [
            "T &lt;1&gt;",
            ">Budget<",
            ">Misses<",
            ">a&amp;b<",
            ">opt<",
            ">floor<",
            ">100 %<",
            ">1 KiB<",
        ] {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count());
    }

    #[test]
    fn many_lines_differ_and_stay_inside() {
        let names: Vec<String> =
            (0..30).map(|i| format!("policy-with-a-very-long-name-{i}")).collect();
        let chart = chart(&names);
        let styles: Vec<Style> = chart.styled().into_iter().map(|(_, style)| style).collect();
        for (i, a) in styles.iter().enumerate() {
            for b in &styles[..i] {
                let differences =
                    [a.colour != b.colour, a.dash != b.dash, a.marker as u8 != b.marker as u8];
                assert!(differences.into_iter().filter(|&different| different).count() >= 1);
            }
        }
        assert!(chart.area().right > 500.0 && chart.to_string().contains('…'));
    }
}
