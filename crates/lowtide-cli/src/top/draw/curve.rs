//! A miss-ratio curve: sizes of memory to the right, misses upwards, and where one is.

use lowtide_report::table::memory;
use lowtide_status::Curve;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Paragraph, Wrap};

use super::look::Look;
use super::scene::boxed;
use crate::top::model::columns::percent as share;
use crate::top::model::reading::Reading;

/// Limits that a curve is drawn up to, if it is longer than that.
const LIMITS: u64 = 4;
/// Lines of words below a curve.
const WORDS: u16 = 6;
/// A curve with less room than this is not drawn: the words are.
const CURVE_MIN: u16 = 5;

/// Draws the curve of a tenant and says what it means. `at` is the limit, or the usage where there
/// is none.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    curve: Option<&Curve>,
    (used, at): (u64, u64),
    look: Look,
) {
    let inside = boxed(frame, area, "Misses by memory", look);
    let Some(reading) = curve.and_then(|curve| Reading::of(curve, at)) else {
        let why = "No curve yet: too little was accessed, or this process takes none.";
        frame
            .render_widget(Paragraph::new(why).style(look.dim()).wrap(Wrap { trim: true }), inside);
        return;
    };
    let has_room = inside.height >= CURVE_MIN + WORDS;
    let words = if has_room { WORDS } else { inside.height };
    let [above, below] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(words)]).areas(inside);
    if has_room {
        chart(frame, above, used, &reading, look);
    }
    let mut lines = vec![
        Line::styled(reading.here_text(), look.here()),
        Line::from(reading.half_text()),
        Line::from(reading.twice_text()),
    ];
    lines.extend(reading.caveats().into_iter().map(|text| Line::styled(text, look.dim())));
    frame.render_widget(Paragraph::new(lines), below);
}

/// The curve, with marks at the limit and at what is used.
fn chart(frame: &mut Frame<'_>, area: Rect, used: u64, reading: &Reading, look: Look) {
    let here = reading.here.bytes;
    let right = reading.all().min(here.saturating_mul(LIMITS)).max(here.saturating_mul(2)).max(1);
    // From all misses at no memory a curve falls so steeply that the rest would be a flat line.
    // What is right of a tenth counts.
    let top = reading.percent(right / 10).max(reading.here.percent * 1.2).clamp(0.1, 100.0);
    let columns = u64::from(area.width.max(2)) * 2;
    let sizes = (0..=columns).map(|column| (right as f64 / columns as f64 * column as f64) as u64);
    let at = |bytes: u64| (bytes as f64, reading.percent(bytes));
    let line: Vec<(f64, f64)> = sizes.map(at).filter(|(_, y)| *y <= top).collect();
    let (used_mark, here_mark) = ([at(used.min(right))], [at(here)]);
    let marker = if look.is_ascii { Marker::Custom('*') } else { Marker::Braille };
    let scatter = |marker, data| {
        let set = Dataset::default().marker(Marker::Custom(marker)).style(look.here());
        set.graph_type(GraphType::Scatter).data(data)
    };
    let curve = Dataset::default().marker(marker).graph_type(GraphType::Line).style(look.bar());
    let mut sets = vec![curve.data(&line)];
    if is_apart(used, here) {
        sets.push(scatter('o', &used_mark));
    }
    sets.push(scatter('X', &here_mark));
    let x = Axis::default()
        .bounds([0.0, right as f64])
        .labels([Line::from("0"), Line::from(memory(right / 2)), Line::from(memory(right))])
        .style(look.dim());
    let y = Axis::default()
        .bounds([0.0, top])
        .labels([Line::from("0"), Line::from(share(Some(top)))])
        .style(look.dim());
    frame.render_widget(Chart::new(sets).x_axis(x).y_axis(y).legend_position(None), area);
    label(frame, area, used, here, look);
}

/// Whether what is used has a mark of its own: it is below the limit by more than a tenth.
const fn is_apart(used: u64, here: u64) -> bool {
    used < here - here / 10
}

/// What the marks mean: at the upper right, where a falling curve leaves room.
fn label(frame: &mut Frame<'_>, area: Rect, used: u64, here: u64, look: Look) {
    let mut lines = vec![format!("X you are here: {}", memory(here))];
    if is_apart(used, here) {
        lines.push(format!("o used: {}", memory(used)));
    }
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0) as u16;
    let width = width.min(area.width);
    let height = (lines.len() as u16).min(area.height);
    let place = Rect { x: area.right() - width, y: area.y, width, height };
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).style(look.here()), place);
}
