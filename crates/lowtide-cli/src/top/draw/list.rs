//! Rows and columns of processes and of tenants.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::look::{Look, bar};
use super::scene::{Scene, state_text};
use crate::top::model::columns::{self, Column, Shown, percent, used_percent};
use crate::top::model::navigation::View;
use crate::top::model::processes::State;
use crate::top::model::rows::{Order, Row};

/// A share of the time from which on waiting for memory is worth a mark, in percent.
pub(super) const STALL_ALERT: f64 = 10.0;
/// A bar of this width has room for a number.
const WIDE_BAR: usize = 14;

/// Draws the list, and notes how many rows fit.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, scene: &mut Scene<'_>, rows: &[Row]) {
    let is_tenant = matches!(scene.navigation.view, View::Process(_));
    let shown = columns::fit(is_tenant, (area.width as usize).saturating_sub(1));
    let room = (area.height as usize).saturating_sub(1);
    scene.navigation.page_rows = room;
    scene.navigation.shown = shown.iter().map(|(column, _)| *column).collect();
    let selected = scene.navigation.list().selection(rows);
    // The selected row is in the middle where the list is longer than its place.
    let first = selected.saturating_sub(room / 2).min(rows.len().saturating_sub(room));
    let look = scene.look;
    let mut lines = vec![header(&shown, is_tenant, &scene.navigation.list().order, look)];
    for (number, row) in rows.iter().enumerate().skip(first).take(room) {
        let line = row_line(row, &shown, area.width as usize, number == selected, look);
        lines.push(line);
    }
    if rows.is_empty() {
        let why = match scene.navigation.list().order.filter.is_empty() {
            true => " no tenants",
            false => " nothing matches the filter",
        };
        lines.push(Line::styled(why, look.dim()));
    }
    let process = scene.navigation.process(scene.processes);
    let left_out = process.map_or(0, |process| {
        process.status.pagers.iter().map(|pager| pager.tenants_left_out).sum::<u64>()
    });
    if left_out > 0 {
        let text = format!(" and {left_out} more that have no place on the page");
        lines.push(Line::styled(text, look.dim()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// A text in a column: cut off where it is too long.
fn cell(text: &str, width: usize, is_text: bool) -> String {
    let short: String = text.chars().take(width).collect();
    if is_text { format!("{short:<width$}") } else { format!("{short:>width$}") }
}

fn header(shown: &[Shown], is_tenant: bool, order: &Order, look: Look) -> Line<'static> {
    let mut spans = vec![Span::raw(" ")];
    for (column, width) in shown {
        let is_key = *column == order.by;
        let title = column.title(is_tenant);
        let style = if is_key { look.title().underlined() } else { look.title() };
        let text = cell(title, *width, column.is_text());
        spans.push(Span::styled(text, style));
        // The gap has room for a mark: numbers sort downwards, names upwards.
        let is_upwards = order.reversed != column.sorts_upwards();
        let mark = if !is_key {
            " "
        } else if is_upwards {
            "^"
        } else {
            "v"
        };
        spans.push(Span::styled(mark, look.title()));
    }
    Line::from(spans)
}

/// What stands before a row.
fn mark(row: &Row, is_selected: bool) -> &'static str {
    match row.state {
        State::Ended(_) => "x",
        State::Silent(_) | State::Unreadable(_) => "?",
        State::Live if is_selected => ">",
        State::Live if row.measures.stall.is_some_and(|stall| stall >= STALL_ALERT) => "!",
        State::Live => " ",
    }
}

fn row_line(
    row: &Row,
    shown: &[Shown],
    width: usize,
    is_selected: bool,
    look: Look,
) -> Line<'static> {
    let base = match (&row.state, is_selected) {
        (_, true) => look.selected(),
        (State::Live, false) => Style::new(),
        _ => look.dim(),
    };
    let mut spans = vec![Span::styled(mark(row, is_selected), base)];
    let message = match row.state {
        State::Ended(_) | State::Unreadable(_) => state_text(&row.state),
        State::Live | State::Silent(_) => None,
    };
    let mut used = 1;
    for (column, width) in shown {
        if message.is_some() && !matches!(column, Column::Pid | Column::Name) {
            break;
        }
        spans.push(Span::styled(shown_cell(row, *column, *width), style(row, *column, base, look)));
        spans.push(Span::styled(" ", base));
        used += width + 1;
    }
    if let Some(message) = message {
        spans.push(Span::styled(cell(&message, width.saturating_sub(used), true), base));
    }
    Line::from(spans)
}

fn shown_cell(row: &Row, column: Column, width: usize) -> String {
    match (column, row.measures.max) {
        (Column::Bar, Some(max)) => {
            let share = used_percent(row.measures.used, max);
            if width < WIDE_BAR {
                return bar(share / 100.0, width);
            }
            format!("{} {:>5}", bar(share / 100.0, width - 6), percent(Some(share)))
        }
        _ => cell(&column.text(row), width, column.is_text()),
    }
}

fn style(row: &Row, column: Column, base: Style, look: Look) -> Style {
    let stalls = row.measures.stall.is_some_and(|stall| stall >= STALL_ALERT);
    match column {
        Column::Bar if row.state == State::Live => base.patch(look.bar()),
        Column::Stall if stalls => base.patch(look.alert()),
        _ => base,
    }
}
