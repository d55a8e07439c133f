//! A whole screen: the first line, the list or page, the last line.

use lowtide_status::printable;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::scene::{Scene, state_text};
use super::{list, side, tenant, words};
use crate::top::model::navigation::View;
use crate::top::model::rows;

/// The smallest screen that has room for what is needed.
const WIDTH_MIN: u16 = 60;
const HEIGHT_MIN: u16 = 15;
/// From here on there is a place next to the list.
const WIDTH_BESIDE: u16 = 150;
/// Columns of that place.
const BESIDE: u16 = 58;
/// From here on there is a place below the list, and lines of that place.
const HEIGHT_BELOW: u16 = 20;
const BELOW: u16 = 8;

/// Draws everything.
pub(crate) fn screen(frame: &mut Frame<'_>, mut scene: Scene<'_>) {
    let area = frame.area();
    let look = scene.look;
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        words::too_small(frame, area, WIDTH_MIN, HEIGHT_MIN);
    } else {
        let parts = [Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
        let [head, body, foot] = Layout::vertical(parts).areas(area);
        header(frame, head, &scene);
        if scene.navigation.has_help {
            words::help(frame, body, look);
        } else {
            view(frame, body, &mut scene);
        }
        footer(frame, foot, &scene);
    }
    look.finish(frame.buffer_mut());
}

/// What the navigation is at.
fn view(frame: &mut Frame<'_>, area: Rect, scene: &mut Scene<'_>) {
    match scene.navigation.view.clone() {
        View::Processes if scene.processes.iter().next().is_none() => {
            words::no_processes(frame, area);
        }
        View::Process(key) if scene.processes.get(key).is_none() => words::gone(frame, area),
        View::Processes | View::Process(_) => {
            let (list, side) = split(area);
            let rows = scene.navigation.rows(scene.processes);
            list::draw(frame, list, scene, &rows);
            let selected = rows.get(scene.navigation.list().selection(&rows));
            if let (Some(row), Some(side)) = (selected, side) {
                side::draw(frame, side, scene, row);
            }
        }
        View::Tenant(key, place) => match scene.processes.get(key) {
            Some(process) => tenant::draw(frame, area, process, &place, scene.look),
            None => words::gone(frame, area),
        },
    }
}

/// A place for the list, and one for its selected row if there is room.
fn split(area: Rect) -> (Rect, Option<Rect>) {
    if area.width >= WIDTH_BESIDE {
        let parts = [Constraint::Min(0), Constraint::Length(BESIDE)];
        let [list, side] = Layout::horizontal(parts).areas(area);
        return (list, Some(side));
    }
    if area.height + 2 < HEIGHT_BELOW {
        return (area, None);
    }
    // A large screen has room for larger lines.
    let below = BELOW.max(area.height / 3).min(14);
    let [list, side] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(below)]).areas(area);
    (list, Some(side))
}

/// Where one is, and where the numbers come from.
fn header(frame: &mut Frame<'_>, area: Rect, scene: &Scene<'_>) {
    let mut left = "lowtide top".to_owned();
    match (&scene.navigation.view, scene.navigation.process(scene.processes)) {
        (View::Processes, _) => {
            let count = scene.processes.count();
            let s = if count == 1 { "" } else { "es" };
            left.push_str(&format!("  {count} process{s}"));
        }
        (view, Some(process)) => {
            left.push_str(&format!(" > {} {}", process.key.pid, rows::program(process)));
            if let View::Tenant(_, place) = view {
                left.push_str(&format!(" > {}", printable(&place.1)));
            }
            if let Some(state) = state_text(&process.state) {
                left.push_str(&format!("  ({state})"));
            }
        }
        (_, None) => left.push_str(" > a process that has ended"),
    }
    let pause = if scene.caption.is_paused { "PAUSED " } else { "" };
    let right = format!("{pause}{}", scene.caption.source);
    let width = area.width as usize;
    let room = width.saturating_sub(right.chars().count() + 3);
    let left: String = left.chars().take(room).collect();
    let blanks = width.saturating_sub(left.chars().count() + right.chars().count() + 2);
    let text = format!(" {left}{:blanks$}{right}", "");
    frame.render_widget(Paragraph::new(text).style(scene.look.frame()), area);
}

/// Keys, the filter while it is written, or what the reader should know.
fn footer(frame: &mut Frame<'_>, area: Rect, scene: &Scene<'_>) {
    let navigation = &scene.navigation;
    let look = scene.look;
    let filter = &navigation.list().order.filter;
    let line = if navigation.is_editing {
        Line::from(format!(" Filter: {}_   Enter keeps it, Esc removes it", printable(filter)))
    } else if let Some(note) = &scene.caption.note {
        Line::styled(format!(" {}", printable(note)), look.alert())
    } else {
        let moves = match navigation.view {
            View::Tenant(..) => "j k other tenant  Esc up",
            View::Process(_) => "Enter tenant  Esc up  s sort  r reverse  / filter",
            View::Processes => "Enter tenants  s sort  r reverse  / filter",
        };
        let shown = if filter.is_empty() || matches!(navigation.view, View::Tenant(..)) {
            String::new()
        } else {
            format!(" filter: {} ", printable(filter))
        };
        let keys = format!(" q quit  ? help  p pause  {moves}");
        Line::from(vec![Span::styled(shown, look.alert()), Span::raw(keys)])
    };
    frame.render_widget(Paragraph::new(line), area);
}
