//! Lines of the last minutes: usage, faults and waiting.

use lowtide_report::table::memory;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, RenderDirection, Sparkline};

use super::look::Look;
use crate::top::model::columns::{count, percent};
use crate::top::model::trail::{Moment, Trail};

/// Columns before a line, and those after it.
const LABEL: u16 = 8;
const VALUES: u16 = 20;
/// A line of waiting is as high as the place only from this share on, in percent.
const STALL_SCALE: f64 = 5.0;
/// A sparkline is drawn from whole numbers.
const GRAIN: f64 = 1000.0;

/// Draws three lines, each a third of the area.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    trail: &Trail,
    limit: Option<u64>,
    look: Look,
) {
    let thirds: [Rect; 3] = Layout::vertical([Constraint::Fill(1); 3]).areas(area);
    let bytes = |number: f64| memory(number as u64);
    let rate = |number: f64| count(Some(number));
    let share = |number: f64| percent(Some(number));
    let limit = limit.map_or(0.0, |limit| limit as f64);
    let wait = STALL_SCALE;
    draw_one(frame, thirds[0], trail, "used", limit, look, &|moment| moment.used as f64, &bytes);
    draw_one(frame, thirds[1], trail, "faults", 0.0, look, &|moment| moment.faults, &rate);
    draw_one(frame, thirds[2], trail, "stall", wait, look, &|moment| moment.stall, &share);
}

/// How long the lines are that an area has, in words.
pub(super) fn span(trail: &Trail, width: u16) -> String {
    let seconds = trail.seconds(width.saturating_sub(LABEL + VALUES) as usize);
    if seconds < 120.0 {
        format!("last {seconds:.0} s")
    } else {
        format!("last {:.0} min", seconds / 60.0)
    }
}

#[expect(clippy::too_many_arguments, reason = "a line is all of this, and used three times above")]
fn draw_one(
    frame: &mut Frame<'_>,
    area: Rect,
    trail: &Trail,
    label: &str,
    scale: f64,
    look: Look,
    number: &dyn Fn(&Moment) -> f64,
    text: &dyn Fn(f64) -> String,
) {
    let parts = [Constraint::Length(LABEL), Constraint::Fill(1), Constraint::Length(VALUES)];
    let [left, middle, right] = Layout::horizontal(parts).areas(area);
    let mut numbers: Vec<f64> = trail.last(middle.width as usize).map(number).collect();
    let now = numbers.last().map_or_else(|| "-".into(), |now| text(*now));
    let most = numbers.iter().copied().fold(0.0, f64::max);
    numbers.reverse();
    // The newest is at the right.
    let line = Sparkline::default()
        .data(numbers.iter().map(|number| (number * GRAIN) as u64))
        .max(((most.max(scale)) * GRAIN).max(1.0) as u64)
        .direction(RenderDirection::RightToLeft)
        .style(look.bar());
    frame.render_widget(line, middle);
    let bottom = |area: Rect| Rect { y: area.bottom().saturating_sub(1), height: 1, ..area };
    frame.render_widget(Paragraph::new(format!(" {label}")).style(look.dim()), bottom(left));
    let values = Line::from(format!(" {now:>6}  top {:>6}", text(most)));
    frame.render_widget(Paragraph::new(values), bottom(right));
}
