//! The page of a tenant: limits, ages, files, the last minutes, and its curve.

use lowtide_report::table::memory;
use lowtide_status::{Generation, PagerStatus, TenantStatus, printable};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::list::STALL_ALERT;
use super::look::{Look, bar};
use super::scene::boxed;
use super::{curve, history, words};
use crate::top::model::columns::{count, percent, used_percent};
use crate::top::model::measures::Measures;
use crate::top::model::processes::{Place, Process};
use crate::top::model::trail::Trail;

/// Lines of the box of limits, and of that of the last minutes, with their frames.
const LIMITS: u16 = 10;
/// Columns of the boxes at the left: what their longest line needs, with its frame.
const LEFT: (u16, u16) = (43, 70);
const HISTORY: u16 = 5;

/// Draws the page.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    process: &Process,
    place: &Place,
    look: Look,
) {
    let (Some((pager, tenant)), Some(known)) = (process.find(place), process.tenants.get(place))
    else {
        words::gone(frame, area);
        return;
    };
    let limit = process.limit(place);
    let history_height = HISTORY.max(area.height / 5);
    let parts = [Constraint::Min(0), Constraint::Length(history_height)];
    let [above, below] = Layout::vertical(parts).areas(area);
    let left_width = (area.width / 2).clamp(LEFT.0, LEFT.1).min(area.width);
    let parts = [Constraint::Length(left_width), Constraint::Min(0)];
    let [left, right] = Layout::horizontal(parts).areas(above);
    let parts = [Constraint::Length(LIMITS), Constraint::Min(0)];
    let [numbers, rest] = Layout::vertical(parts).areas(left);
    limits(frame, numbers, pager, tenant, &known.measures, look);
    generations(frame, rest, tenant, look);
    let sizes = (tenant.stat.usage_bytes, limit.unwrap_or(tenant.stat.usage_bytes));
    let files = match tenant.files.len() as u16 {
        0 => 0,
        _ if right.height < 20 => 0,
        files => (files + 2).min(right.height / 4),
    };
    let parts = [Constraint::Min(0), Constraint::Length(files)];
    let [above, files] = Layout::vertical(parts).areas(right);
    curve::draw(frame, above, tenant.curve.as_ref(), sizes, look);
    if files.height > 0 {
        list_files(frame, files, tenant, look);
    }
    last_minutes(frame, below, &known.trail, limit, look);
}

fn limits(
    frame: &mut Frame<'_>,
    area: Rect,
    pager: &PagerStatus,
    tenant: &TenantStatus,
    measures: &Measures,
    look: Look,
) {
    let inside = boxed(frame, area, "Memory", look);
    let mut usage = vec![Span::raw(format!("used {}", memory(tenant.stat.usage_bytes)))];
    if let Some(max) = tenant.stat.max_bytes {
        let share = used_percent(tenant.stat.usage_bytes, max);
        let text = format!(" of {} ", memory(max));
        let width = (inside.width as usize).saturating_sub(usage[0].width() + text.len() + 7);
        usage.push(Span::raw(text));
        usage.push(Span::styled(bar(share / 100.0, width), look.bar()));
        usage.push(Span::raw(format!(" {}", percent(Some(share)))));
    }
    let of = |bytes: u64| if bytes == 0 { "-".into() } else { memory(bytes) };
    let stall_style = if measures.stall.is_some_and(|stall| stall >= STALL_ALERT) {
        look.alert()
    } else {
        Style::new()
    };
    let events = |number: u64| count(Some(number as f64));
    let lines = vec![
        Line::from(usage),
        Line::from(format!(
            "peak {} high {} low {} min {}",
            memory(tenant.stat.peak_bytes),
            tenant.stat.high_bytes.map_or_else(|| "-".into(), memory),
            of(tenant.stat.low_bytes),
            of(tenant.stat.min_bytes)
        )),
        Line::from(format!(
            "file {} anon {} swap {}",
            memory(tenant.stat.file_bytes),
            memory(tenant.stat.anon_bytes),
            memory(tenant.stat.swap_bytes)
        )),
        Line::from(format!(
            "faults {}/s, refaults {}/s",
            count(measures.faults),
            count(measures.refaults)
        )),
        Line::from(format!(
            "evicted {}/s, dirty {}",
            count(measures.evicted),
            memory(measures.dirty)
        )),
        Line::styled(
            format!(
                "stall {} (10 s: {:.1} %), full {}",
                percent(measures.stall),
                tenant.stat.stall_some_avg10,
                percent(measures.full)
            ),
            stall_style,
        ),
        Line::from(format!(
            "met high {}, max {}, no room {}",
            events(tenant.stat.high_events),
            events(tenant.stat.max_events),
            events(tenant.stat.oom_events)
        )),
        Line::from(ahead(pager)),
    ];
    frame.render_widget(Paragraph::new(lines), inside);
}

/// What became of pages that were read ahead. Only the pager knows.
fn ahead(pager: &PagerStatus) -> String {
    let io = &pager.stat.io;
    let Some((used, wasted)) = io.ahead_shares() else {
        return "read ahead: nothing".into();
    };
    let [used, wasted] = [used, wasted].map(|share| percent(Some(share * 100.0)));
    format!("read ahead {}: used {used}, wasted {wasted}", count(Some(io.ahead_pages as f64)))
}

/// A time, short.
fn age(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        seconds if seconds < 9.95 => format!("{seconds:.1} s"),
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.0} h", seconds / 3600.0),
    }
}

/// What a line of ages is called.
fn generation_name(all: &[Generation], number: usize) -> String {
    if all.len() == 2 && all.iter().all(|generation| generation.age_ns == 0) {
        return if number == 0 { "active" } else { "inactive" }.into();
    }
    age(all[number].age_ns)
}

fn generations(frame: &mut Frame<'_>, area: Rect, tenant: &TenantStatus, look: Look) {
    let inside = boxed(frame, area, "Pages by age, youngest first", look);
    let all = &tenant.generations;
    let bytes = |generation: &Generation| generation.file_bytes + generation.anon_bytes;
    let most = all.iter().map(bytes).max().unwrap_or(0).max(1);
    let width = (inside.width as usize).saturating_sub(16);
    let lines = all.iter().enumerate().map(|(number, generation)| {
        let share = bytes(generation) as f64 / most as f64;
        Line::from(vec![
            Span::raw(format!("{:>8} ", generation_name(all, number))),
            Span::styled(bar(share, width), look.bar()),
            Span::raw(format!(" {:>5}", memory(bytes(generation)))),
        ])
    });
    let mut lines: Vec<Line<'_>> = lines.collect();
    if lines.is_empty() {
        lines.push(Line::styled(" none", look.dim()));
    }
    if lines.len() < inside.height as usize
        && let Some(file) = tenant.files.first()
    {
        let more = tenant.files.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        lines.push(Line::styled(format!("files: {}{more}", printable(file)), look.dim()));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

fn list_files(frame: &mut Frame<'_>, area: Rect, tenant: &TenantStatus, look: Look) {
    let inside = boxed(frame, area, "Files", look);
    let lines: Vec<Line<'_>> =
        tenant.files.iter().map(|file| Line::from(printable(file))).collect();
    frame.render_widget(Paragraph::new(lines), inside);
}

fn last_minutes(frame: &mut Frame<'_>, area: Rect, trail: &Trail, limit: Option<u64>, look: Look) {
    let title = history::span(trail, area.width).replacen('l', "L", 1);
    let inside = boxed(frame, area, &title, look);
    history::draw(frame, inside, trail, limit, look);
}
