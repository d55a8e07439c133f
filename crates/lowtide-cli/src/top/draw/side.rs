//! What there is to say of the selected row: facts that have no column, the last minutes, and its
//! curve where there is room.

use lowtide_report::table::memory;
use lowtide_status::printable;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};

use super::look::Look;
use super::scene::{Scene, boxed, state_text};
use super::{curve, history};
use crate::top::model::columns::{count, percent, way};
use crate::top::model::processes::{Place, Process};
use crate::top::model::rows::{Id, Row};
use crate::top::model::trail::Trail;

/// From this height on the place has a curve.
const HEIGHT_CURVE: u16 = 30;
/// From this width on facts are on few lines.
const WIDTH_FACTS: u16 = 70;

/// Draws it.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, scene: &Scene<'_>, row: &Row) {
    let look = scene.look;
    let (title, process, place) = match &row.id {
        Id::Process(key) => (format!("{} {}", row.pid, row.name), scene.processes.get(*key), None),
        Id::Tenant(place) => {
            let process = scene.navigation.process(scene.processes);
            (printable(&place.1), process, Some(place))
        }
    };
    let Some(process) = process else { return };
    let main = main_place(process);
    let place = place.or(main.as_ref());
    let (above, below) = if area.height >= HEIGHT_CURVE {
        let parts = [Constraint::Fill(1), Constraint::Fill(1)];
        let [above, below] = Layout::vertical(parts).areas(area);
        (above, Some(below))
    } else {
        (area, None)
    };
    let trail = match &row.id {
        Id::Process(_) => Some(&process.trail),
        Id::Tenant(place) => process.tenants.get(place).map(|tenant| &tenant.trail),
    };
    let span = trail.map(|trail| history::span(trail, above.width)).unwrap_or_default();
    let title = format!("{title}, {span}");
    let inside = boxed(frame, above, &title, look);
    let inside = state(frame, inside, row, look);
    let facts = facts(row, process, inside.width);
    let height = facts.len() as u16;
    let [words, lines] =
        Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(inside);
    frame.render_widget(Paragraph::new(facts), words);
    let empty = Trail::default();
    history::draw(frame, lines, trail.unwrap_or(&empty), row.measures.max, look);
    if let (Some(below), Some(place)) = (below, place) {
        let found = process.find(place);
        let known = found.and_then(|(_, tenant)| tenant.curve.as_ref());
        let used = found.map_or(0, |(_, tenant)| tenant.stat.usage_bytes);
        let at = process.limit(place).unwrap_or(used);
        curve::draw(frame, below, known, (used, at), look);
    }
}

/// Says above all else if something is the matter; returns what is left of the area.
fn state(frame: &mut Frame<'_>, area: Rect, row: &Row, look: Look) -> Rect {
    let Some(text) = state_text(&row.state) else { return area };
    // A message has no length that would be known before it is broken into lines.
    let lines = (text.len() as u16 / area.width.max(1) + 2).min(area.height);
    let [above, below] =
        Layout::vertical([Constraint::Length(lines), Constraint::Min(0)]).areas(area);
    let text = Paragraph::new(text).style(look.alert()).wrap(Wrap { trim: true });
    frame.render_widget(text, above);
    below
}

/// The root of the pager that uses most.
fn main_place(process: &Process) -> Option<Place> {
    let roots = process.status.pagers.iter().enumerate();
    let roots = roots.filter_map(|(at, pager)| Some((at, pager.tenants.first()?)));
    let largest = roots.max_by_key(|(_, root)| root.stat.usage_bytes);
    largest.map(|(at, root)| (at, root.path.clone()))
}

fn facts(row: &Row, process: &Process, width: u16) -> Vec<Line<'static>> {
    let of = &row.measures;
    let memory_facts = format!(
        " file {}  anon {}  swap {}  dirty {}  peak {}",
        memory(of.file),
        memory(of.anon),
        memory(of.swap),
        memory(of.dirty),
        memory(of.peak)
    );
    let work = format!(
        " evicted {}/s  scanned {}/s  all threads wait {}",
        count(of.evicted),
        count(of.scanned),
        percent(of.full)
    );
    let mut who = match &row.id {
        Id::Process(_) => {
            let s = if row.tenants == 1 { "" } else { "s" };
            let way = way(process.status.origin);
            format!(" {way}, {}, {} tenant{s}", row.policy, row.tenants)
        }
        Id::Tenant(_) => format!(" hits {}", percent(of.hit)),
    };
    let failed: u64 = process.status.pagers.iter().map(|pager| pager.stat.failed_pages).sum();
    if failed > 0 {
        who.push_str(&format!(", {failed} pages could not be written"));
    }
    let all = if width >= WIDTH_FACTS {
        vec![format!("{who};{memory_facts}"), work]
    } else {
        vec![who, memory_facts, work]
    };
    all.into_iter().map(Line::from).collect()
}
